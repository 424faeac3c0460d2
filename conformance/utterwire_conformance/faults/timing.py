"""Faults in word marks."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    control_frame,
)
from utterwire_conformance.wire import Frame, Opcode

from .catalogue import Catalogue
from .rewriting import message_frame

__all__ = ["FAULTS", "Gathers"]

FAULTS: Final = Catalogue()

_Word: TypeAlias = dict[str, Any]
_SILENCE: Final = bytes(48_000)


def _words(chunk: Chunk) -> list[_Word]:
    words = (chunk.fields or {}).get("words")
    return (
        [dict(word) for word in words if isinstance(word, dict)] if isinstance(words, list) else []
    )


def _text_of(tap: Tap, seq: int | None) -> str:
    message = tap.messages.get(seq or 0)
    return message.meaning.text if message is not None else ""


def _speed_of(tap: Tap, seq: int | None) -> float:
    message = tap.messages.get(seq or 0)
    speed = message.fields.get("speed") if message is not None else None
    return float(speed) if isinstance(speed, int | float) else 1.0


def _each(change: Callable[[_Word, str], _Word]) -> Callable[[Chunk, Tap], Iterable[Frame] | None]:
    """Change each word of each `marks`, given the text of the utterance."""

    def apply(chunk: Chunk, tap: Tap) -> Iterable[Frame] | None:
        if chunk.type != "marks":
            return None
        text = _text_of(tap, chunk.seq)
        return [chunk.changed(words=[change(word, text) for word in _words(chunk)])]

    return apply


class Gathers(SessionTamper):
    """Holds the audio of an utterance with marks until its end, then tells all words ahead of it.

    That alone is legal; `retold` is given the words, the text and the speed, and makes others of
    them. Where `most` is given, texts of more code points are left as they are.
    """

    def __init__(
        self,
        shared: Shared,
        tap: Tap,
        retold: Callable[[list[_Word], str, float], list[_Word]] = lambda words, *_: words,
        most: int | None = None,
    ) -> None:
        super().__init__(shared, tap)
        self._retold = retold
        self._most = most
        self._words: list[_Word] = []
        self._audio: list[Chunk] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        marked = message is not None and bool(message.fields.get("marks"))
        if self._most is not None and len(_text_of(self.tap, chunk.seq)) > self._most:
            return super().chunk(chunk)
        if chunk.type == "marks":
            self._words += _words(chunk)
            return []
        if chunk.is_audio and marked:
            self._audio.append(chunk)
            return []
        if not chunk.is_terminal or not marked:
            return super().chunk(chunk)
        words, audio = self._words, self._audio
        self._words, self._audio = [], []
        told = self._retold(words, _text_of(self.tap, chunk.seq), _speed_of(self.tap, chunk.seq))
        marks = chunk.changed(type="marks", words=told, **dict.fromkeys(_COMPLETE, ...))
        frames = [marks] if told else []
        return [ToClient(frame) for frame in [*frames, *self.ending(audio, chunk)]]

    def ending(self, audio: list[Chunk], terminal: Chunk) -> list[Frame]:
        """The audio and the terminal message."""
        return [*(chunk.frame for chunk in audio), terminal.frame]


_COMPLETE: Final = (
    *("total_duration_s", "elapsed_s", "audio_bytes", "characters"),
    *("code", "message", "retryable"),
)


def _retells(
    name: str,
    explanation: str,
    breaks: str | tuple[str, ...],
    retold: Callable[[list[_Word], str, float], list[_Word]],
) -> None:
    FAULTS.add(name, explanation, breaks, partial(Gathers, retold=retold))


# --- Each word once ------------------------------------------------------------------------------


class _Asks(SessionTamper):
    """Has marks told to who did not ask for them."""

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not message.is_valid_request or message.fields.get("marks"):
            return super().client_message(message)
        fields = {**message.fields, "marks": ["word"]}
        return [message_frame(control_frame(fields).payload, message)]


FAULTS.add(
    "marks-unasked",
    "Words are told to everybody.",
    "timing.sent-when-asked",
    _Asks,
)
FAULTS.chunks(
    "marks-never-sent",
    "Words are not told, whoever asks.",
    "timing.sent-when-asked",
    lambda chunk, _: [] if chunk.type == "marks" else None,
)
FAULTS.chunks(
    "marks-doubled",
    "Each `marks` message is sent twice.",
    "timing.sent-when-asked",
    lambda chunk, _: [chunk.frame] * 2 if chunk.type == "marks" else None,
)
_retells(
    "marks-lack-a-word",
    "The second word of a text is not told.",
    "timing.sent-when-asked",
    lambda words, *_: words[:1] + words[2:],
)
_retells(
    "marks-lack-the-last-word",
    "The last word of a text is not told.",
    "timing.sent-when-asked",
    lambda words, *_: words[:-1] if len(words) > 1 else words,
)
_retells(
    "marks-lack-numbers",
    "Numbers are spoken, and are no words.",
    "timing.sent-when-asked",
    lambda words, *_: [word for word in words if not word["text"].isdigit()],
)
_retells(
    "marks-of-first-likeness",
    "Of a word that comes again the place of the first is told.",
    "timing.sent-when-asked",
    lambda words, *_: [_first_like(word, words) for word in words],
)


def _first_like(word: _Word, words: list[_Word]) -> _Word:
    first = next(other for other in words if other["text"] == word["text"])
    return word | {name: first[name] for name in ("char_start", "char_end")}


def _with_punctuation(words: list[_Word], text: str, _: float) -> list[_Word]:
    told = []
    for word in words:
        told.append(word)
        end = word["char_end"]
        if text[end : end + 1] in (".", ",", "!", "?"):
            middle = (word["start_s"] + word["end_s"]) / 2
            told[-1] = word | {"end_s": middle}
            point = {"text": text[end], "char_start": end, "char_end": end + 1}
            told.append(word | point | {"start_s": middle})
    return told


_retells(
    "marks-of-punctuation",
    "Full stops and commas are told as words.",
    "timing.sent-when-asked",
    _with_punctuation,
)


def _uncombined(words: list[_Word], _: str, __: float) -> list[_Word]:
    told = []
    for word in words:
        text = word["text"]
        cut = next((i for i, c in enumerate(text) if unicodedata.category(c)[0] == "M"), len(text))
        told.append(word | {"text": text[:cut], "char_end": word["char_start"] + cut})
    return told


_retells(
    "marks-cut-combining-marks",
    "A word ends at its first combining mark.",
    "timing.sent-when-asked",
    _uncombined,
)
_retells(
    "marks-with-white-space",
    "A word takes the white space before it along.",
    "timing.sent-when-asked",
    lambda words, text, _: [
        word
        | (
            {"text": f" {word['text']}", "char_start": word["char_start"] - 1}
            if text[: word["char_start"]].endswith(" ")
            else {}
        )
        for word in words
    ],
)

# --- Offsets -------------------------------------------------------------------------------------


def _counted(encoding: str, width: int) -> Callable[[_Word, str], _Word]:
    def change(word: _Word, text: str) -> _Word:
        ends = ("char_start", "char_end")
        return word | {n: len(text[: word[n]].encode(encoding)) // width for n in ends}

    return change


FAULTS.chunks(
    "marks-in-utf16",
    "Offsets count UTF-16 units.",
    "timing.offsets",
    _each(_counted("utf-16-le", 2)),
)
FAULTS.chunks(
    "marks-in-bytes",
    "Offsets count bytes of UTF-8.",
    "timing.offsets",
    _each(_counted("utf-8", 1)),
)
FAULTS.chunks(
    "marks-of-trimmed-text",
    "Offsets count from the first letter that is not white space.",
    "timing.offsets",
    _each(
        lambda word, text: (
            word
            | {
                name: max(int(name == "char_end"), word[name] - len(text) + len(text.lstrip()))
                for name in ("char_start", "char_end")
            }
        )
    ),
)
FAULTS.chunks(
    "marks-of-composed-text",
    "Offsets and words are those of the text in normal form C.",
    "timing.offsets",
    _each(
        lambda word, text: {
            **word,
            "text": unicodedata.normalize("NFC", word["text"]),
            **{
                name: len(unicodedata.normalize("NFC", text[: word[name]]))
                for name in ("char_start", "char_end")
            },
        }
    ),
)
FAULTS.chunks(
    "marks-in-small-letters",
    "Words are told in small letters.",
    "timing.offsets",
    _each(lambda word, _: word | {"text": word["text"].lower()}),
)
FAULTS.chunks(
    "marks-with-the-end-included",
    "`char_end` is the offset of the last code point.",
    "timing.offsets",
    _each(lambda word, _: word | {"char_end": max(word["char_start"] + 1, word["char_end"] - 1)}),
)

# --- Before the audio ----------------------------------------------------------------------------


def _no_words(chunk: Chunk) -> Frame:
    return chunk.changed(type="marks", words=[], audio_bytes=...)


class _LateMarks(SessionTamper):
    """Sends each `marks` behind the next chunks of audio."""

    def __init__(self, shared: Shared, tap: Tap, behind: int) -> None:
        super().__init__(shared, tap)
        self._behind = behind
        self._left = 0
        self._held: list[Chunk] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "marks":
            if not self._held:
                self._left = self._behind
            self._held.append(chunk)
            return []
        frames = [chunk.frame]
        self._left -= chunk.is_audio
        if self._held and (chunk.is_terminal or self._left <= 0):
            held, self._held = [late.frame for late in self._held], []
            frames = [*held, *frames] if chunk.is_terminal else [*frames, *held]
        return [ToClient(frame) for frame in frames]


FAULTS.add(
    "marks-late",
    "A word is told behind the chunk in which it begins.",
    "timing.before-audio",
    partial(_LateMarks, behind=1),
)
FAULTS.add(
    "marks-all-at-the-end",
    "All words are told when the audio has been sent.",
    "timing.before-audio",
    partial(_LateMarks, behind=1_000_000),
)


class _MarksBeforeStart(SessionTamper):
    """Holds `synthesis_start` until something else comes, and sends it behind."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._start: Chunk | None = None

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        asked = message is not None and bool(message.fields.get("marks"))
        if chunk.type == "synthesis_start" and asked:
            self._start = chunk
            return []
        start, self._start = self._start, None
        frames = [chunk.frame]
        if start is not None:
            frames = (
                [chunk.frame, start.frame] if chunk.type == "marks" else [start.frame, chunk.frame]
            )
        return [ToClient(frame) for frame in frames]


FAULTS.add(
    "marks-before-start",
    "The first words are told before `synthesis_start`.",
    "timing.before-audio",
    _MarksBeforeStart,
)

FAULTS.chunks(
    "marks-after-cancelled",
    "Words are told of an utterance that was cancelled.",
    "order.nothing-after-terminal",
    lambda chunk, _: [chunk.frame, _no_words(chunk)] if chunk.type == "cancelled" else None,
)

# --- Times ---------------------------------------------------------------------------------------


def _scaled(word: _Word, factor: float) -> _Word:
    return word | {name: word[name] * factor for name in ("start_s", "end_s")}


FAULTS.chunks(
    "marks-overlap",
    "A word lasts well into the next.",
    "timing.ordered",
    _each(lambda word, _: word | {"end_s": word["end_s"] + 0.25}),
)
FAULTS.chunks(
    "marks-take-no-time",
    "A word ends when it begins.",
    "timing.ordered",
    _each(lambda word, _: word | {"end_s": word["start_s"]}),
)
FAULTS.chunks(
    "marks-past-the-end",
    "The last word ends after the audio.",
    "timing.ordered",
    _each(
        lambda word, text: (
            word
            if any(c.isalnum() for c in text[word["char_end"] :])
            else word | {"end_s": word["end_s"] + 2.0}
        )
    ),
)
_retells(
    "marks-in-milliseconds",
    "Times are told in milliseconds.",
    "timing.ordered",
    lambda words, *_: [_scaled(word, 1000.0) for word in words],
)
_retells(
    "marks-backwards",
    "Words are told from the last to the first.",
    "timing.ordered",
    lambda words, *_: words[::-1],
)
_retells(
    "marks-in-input-time",
    "Times are those at speed 1.0, however fast the text is spoken.",
    ("timing.speed", "timing.ordered"),
    lambda words, _, speed: [_scaled(word, speed) for word in words],
)
_retells(
    "marks-not-slowed",
    "At a speed below 1.0 times are those at 1.0.",
    "timing.speed",
    lambda words, _, speed: [_scaled(word, min(speed, 1.0)) for word in words],
)


class _SilentLead(Gathers):
    """Begins with a second of silence of which the times know nothing."""

    def ending(self, audio: list[Chunk], terminal: Chunk) -> list[Frame]:
        frames = super().ending(audio, terminal)
        fields = terminal.fields or {}
        total, size = fields.get("total_duration_s"), fields.get("audio_bytes")
        message = self.tap.messages.get(terminal.seq or 0)
        plain = message is not None and not message.fields.get("sample_rate")
        if (
            not audio
            or not plain
            or not isinstance(total, int | float)
            or not isinstance(size, int)
        ):
            return frames
        told = {"total_duration_s": total + 1.0, "audio_bytes": size + len(_SILENCE)}
        return [Frame(Opcode.BINARY, _SILENCE), *frames[:-1], terminal.changed(**told)]


FAULTS.add(
    "marks-without-the-lead",
    "Times do not count the silence at the beginning.",
    "timing.heard",
    _SilentLead,
)

# --- Invalid -------------------------------------------------------------------------------------


def _is_bad(message: ClientMessage, _: Tap) -> bool:
    marks = message.fields.get("marks")
    if not message.is_valid_request or marks is None:
        return False
    return not isinstance(marks, list) or any(mark != "word" for mark in marks)


FAULTS.accepts(
    "marks-of-any-kind",
    "A request with `marks` of a kind that does not exist is served.",
    "timing.invalid",
    lambda message, tap: _is_bad(message, tap) and isinstance(message.fields["marks"], list),
)
FAULTS.accepts(
    "marks-of-any-type",
    "A request with `marks` that are no array is served.",
    "timing.invalid",
    lambda message, tap: _is_bad(message, tap) and not isinstance(message.fields["marks"], list),
)
FAULTS.renames(
    "marks-refused-as-unknown",
    "A request with bad `marks` is rejected with `unknown_type`.",
    "timing.invalid",
    _is_bad,
    "unknown_type",
)
FAULTS.refuses(
    "marks-empty-refused",
    "A request with an empty array of marks is rejected.",
    ("timing.invalid",),
    lambda message, _: message.is_valid_request and message.fields.get("marks") == [],
    "invalid_request",
)
