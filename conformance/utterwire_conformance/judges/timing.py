"""Judges of word marks (`protocol.md#marks`)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from utterwire_schemas import validator

from utterwire_conformance.check import Account, Judge, check, on_sessions, settle
from utterwire_conformance.client_message import WHITE_SPACE, is_nothing_to_speak
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote
from .audio import is_heard
from .cases import judge_cases

__all__ = ["before_audio", "heard", "offsets", "ordered", "sent_when_asked", "speed"]

_CASES: Final = "timing.sent_when_asked"
_MILLISECOND: Final = 0.001 + 1e-9
# Samples by which an encoder-free format is longer than its bytes say, and bytes a sample has.
_SAMPLE_BYTES: Final = {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}
# How far from the time told for a word its sound may lie.
_NEAR_S: Final = 0.1
# How far the share of the whole time at which a word ends may differ between two speeds. The
# silence at the ends of speech need not follow the speed; times that do not follow it differ by a
# half and more.
_SHARE: Final = 0.2
_LEAST_CHANGE: Final = 1.3
# The same share of a duration can be told of very short audio by chance.
_ONE_WORD_MORE: Final = 3


@dataclass(frozen=True, slots=True)
class _Word:
    """One entry of `words`, and the message that told it."""

    chunk: Chunk
    text: str
    start_s: float
    end_s: float
    char_start: int
    char_end: int

    @property
    def place(self) -> tuple[int, int]:
        return self.char_start, self.char_end

    def __str__(self) -> str:
        return f"{self.text!r} ({self.char_start} to {self.char_end})"


def _messages(utterance: Utterance) -> list[Chunk]:
    """The `marks` of an utterance; what comes after its end is judged by the order of things."""
    end = utterance.terminal
    return [
        chunk
        for chunk in utterance.others
        if chunk.type == "marks" and (end is None or chunk.number < end.number)
    ]


def _words(utterance: Utterance) -> list[_Word]:
    """The words that were told, in order; messages that break their schema are judged apart."""
    found: list[_Word] = []
    for chunk in _messages(utterance):
        if not validator("marks").is_valid(dict(chunk.fields)):
            continue
        words = chunk.fields["words"]
        assert isinstance(words, list)
        for word in words:
            assert isinstance(word, dict)
            values = [word[name] for name in ("start_s", "end_s", "char_start", "char_end")]
            start_s, end_s, start, end = (v for v in values if isinstance(v, int | float))
            found.append(_Word(chunk, str(word["text"]), start_s, end_s, int(start), int(end)))
    return found


def _asks(utterance: Utterance) -> bool:
    meaning = utterance.sent.meaning
    return meaning.type == "synthesize" and bool(meaning.fields.get("marks"))


def _is_slice(word: _Word, text: str) -> bool:
    return word.char_end <= len(text) and text[word.char_start : word.char_end] == word.text


def _fail(
    utterance: Utterance, reason: str, got: Chunk | None, legal: str, advice: str
) -> Judgement:
    return fail(
        reason,
        sent=quote.sent(utterance.sent),
        received=quote.chunk(got),
        legal=legal,
        advice=advice,
    )


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Where letters and numbers, with their combining marks, stand side by side."""
    start = None
    for index, character in enumerate(text):
        if _is_letter(character) or (start is not None and _is_mark(character)):
            start = index if start is None else start
        elif start is not None:
            yield start, index
            start = None
    if start is not None:
        yield start, len(text)


# --- Each word once ------------------------------------------------------------------------------


@check("timing.sent-when-asked", "word-marks", general=True)
def sent_when_asked(evidence: Sequence[Account]) -> Judgement:
    """With marks each word is told once; without, nothing is."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            utterances = [u for d in account.dialogues for u in d.utterances.values()]
            plain = [u for u in utterances if _case_of(u).startswith("plain")]
            # What stands in a plain text is spoken wherever it stands.
            known = {
                u.sent.meaning.text[start:end]
                for u in plain
                for start, end in _runs(u.sent.meaning.text)
            }
            for utterance in utterances:
                for judgement in _told_once(utterance, frozenset(known)):
                    yield replace(judgement, scenarios=(account.scenario,))

    return settle(find(), evidence, "no utterance with marks was completed")


def _case_of(utterance: Utterance) -> str:
    case = utterance.sent.case
    return case.name if case is not None and case.check == _CASES else ""


def _told_once(utterance: Utterance, known: frozenset[str]) -> Iterator[Judgement]:
    messages = _messages(utterance)
    meaning = utterance.sent.meaning
    if meaning.type != "synthesize" or meaning.verdict == "reject":
        return
    if not _asks(utterance):
        if messages:
            yield _fail(
                utterance,
                "`marks` came, and nobody had asked for them.",
                messages[0],
                "no `marks` message",
                'Send marks only where the request has `"marks": ["word"]`.',
            )
        elif _case_of(utterance) and utterance.complete is not None:
            yield passed()
        return
    words, text = _words(utterance), meaning.text
    if not all(_is_slice(word, text) for word in words):
        return
    reason = _amiss(words, text)
    if not reason and utterance.complete is not None:
        reason = _missing(words, text, known)
    if reason:
        yield _fail(
            utterance,
            reason[0],
            reason[1] or (messages[-1] if messages else utterance.complete),
            "each word of the text told once: every letter and number in one word, with its"
            " combining marks, and no word of nothing but punctuation, emoji or white space",
            "Tell each word when the engine comes to it, cut where it really begins and ends.",
        )
    elif utterance.complete is not None:
        yield passed()


def _amiss(words: Sequence[_Word], text: str) -> tuple[str, Chunk | None] | None:
    """What is wrong with a word that was told, as a sentence, and the message that told it."""
    seen: set[tuple[int, int]] = set()
    for word in words:
        start, end = word.place
        if word.place in seen:
            return f"The word {word} was told twice.", word.chunk
        seen.add(word.place)
        if is_nothing_to_speak(word.text) or set(word.text) <= WHITE_SPACE:
            return f"{word} was told as a word, and nothing of it is spoken.", word.chunk
        if word.text[0] in WHITE_SPACE or word.text[-1] in WHITE_SPACE:
            return f"The word {word} begins or ends in white space.", word.chunk
        if _parts_mark(text, start) or _parts_mark(text, end):
            return (
                f"The word {word} is cut between a letter and the combining mark that follows it.",
                word.chunk,
            )
    return None


def _parts_mark(text: str, at: int) -> bool:
    """Whether a cut at `at` parts a combining mark from the letter or number it stands on."""
    if at >= len(text) or not _is_mark(text[at]):
        return False
    before = text[:at].rstrip("".join({c for c in text[:at] if _is_mark(c)}))
    return bool(before) and _is_letter(before[-1])


def _missing(
    words: Sequence[_Word], text: str, known: frozenset[str]
) -> tuple[str, Chunk | None] | None:
    told = {index for word in words for index in range(*word.place)}
    for start, end in _runs(text):
        if text[start:end] not in known:
            continue
        left = [i for i in range(start, end) if _is_letter(text[i]) and i not in told]
        if left:
            where = f"{text[start:end]!r} ({start} to {end})"
            return f"The word {where} was not told, or not all of it.", None
    return None


# --- One word at a time --------------------------------------------------------------------------


_Find = Callable[[Dialogue, Utterance, list[_Word]], Iterator[Judgement]]


def _on_words(find: _Find) -> Judge:
    """Make a judge from a function that looks at the words of one utterance."""

    @on_sessions("no words were told")
    def judge(dialogue: Dialogue) -> Iterator[Judgement]:
        for utterance in dialogue.utterances.values():
            words = _words(utterance)
            if words:
                yield from find(dialogue, utterance, words)

    judge.__doc__ = find.__doc__
    return judge


@check("timing.offsets", "word-marks", general=True)
@_on_words
def offsets(_: Dialogue, utterance: Utterance, words: list[_Word]) -> Iterator[Judgement]:
    """Each word is the slice of the text that its offsets name."""
    text = utterance.sent.meaning.text
    wrong = next((word for word in words if not _is_slice(word, text)), None)
    if wrong is None:
        yield passed()
        return
    there = text[wrong.char_start : wrong.char_end]
    yield _fail(
        utterance,
        f"The word {wrong} is not what stands there in the text: {there!r}.",
        wrong.chunk,
        "offsets in code points of `text` as it was sent, and `text` the slice between them",
        "Count code points, not UTF-16 units or bytes, and before any trimming or normalising.",
    )


@check("timing.before-audio", "word-marks", general=True)
@_on_words
def before_audio(_: Dialogue, utterance: Utterance, words: list[_Word]) -> Iterator[Judgement]:
    """Each word is told after the start and no later than its first audio."""
    start = utterance.start
    advice = "Send the mark of a word ahead of the audio in which it begins."
    if start is None or words[0].chunk.number < start.number:
        yield _fail(
            utterance,
            "`marks` came before `synthesis_start`.",
            words[0].chunk,
            "`synthesis_start` first",
            "Send `synthesis_start` ahead of all else about an utterance.",
        )
        return
    rate = _per_second(start)
    if rate is None:
        return
    for word in words:
        came = sum(len(c.data) for c in utterance.audio if c.number < word.chunk.number)
        if word.start_s < came / rate - _MILLISECOND:
            yield _fail(
                utterance,
                f"The word {word} begins at {word.start_s:.3f} s, but was told when"
                f" {came / rate:.3f} s of audio had come.",
                word.chunk,
                f"the mark before the chunk that holds {word.start_s:.3f} s",
                advice,
            )
            return
    yield passed()


def _per_second(start: Chunk) -> float | None:
    """Bytes of audio in a second, where that can be told."""
    rate = start.fields.get("sample_rate")
    width = _SAMPLE_BYTES.get(str(start.fields.get("format", "pcm_s16le")))
    if width is None or isinstance(rate, bool) or not isinstance(rate, int | float) or rate <= 0:
        return None
    return width * rate


@check("timing.ordered", "word-marks", general=True)
@_on_words
def ordered(_: Dialogue, utterance: Utterance, words: list[_Word]) -> Iterator[Judgement]:
    """Words come in order, without overlap, within the duration."""
    reason = _disorder(utterance, words)
    if reason is None:
        yield passed()
        return
    yield _fail(
        utterance,
        reason[0],
        reason[1],
        "words in the order of the text and of time, each ending after it begins, none overlapping"
        " another, all within `total_duration_s`",
        "Check `end_s` against the next `start_s` and the duration; give times in seconds.",
    )


def _disorder(utterance: Utterance, words: Sequence[_Word]) -> tuple[str, Chunk] | None:
    seen: set[tuple[int, int]] = set()
    before: _Word | None = None
    for word in words:
        if word.place in seen:
            continue
        seen.add(word.place)
        if word.end_s <= word.start_s:
            return (
                f"The word {word} ends at {word.end_s} s and begins at {word.start_s} s.",
                word.chunk,
            )
        if word.char_end <= word.char_start:
            return f"The word {word} ends in the text before it begins.", word.chunk
        if before is not None and word.char_start < before.char_end:
            return (
                f"The word {word} stands before the end of the one before it, {before}.",
                word.chunk,
            )
        if before is not None and word.start_s < before.end_s - _MILLISECOND:
            times = f"{word.start_s} s, before {before} ends at {before.end_s} s"
            return f"The word {word} begins at {times}.", word.chunk
        before = word
    duration = _duration(utterance)
    if before is not None and duration is not None and before.end_s > duration + _MILLISECOND:
        return (
            f"The word {before} ends at {before.end_s} s, but the audio at {duration:.3f} s.",
            before.chunk,
        )
    return None


def _duration(utterance: Utterance) -> float | None:
    """How long a whole utterance is, in seconds: by its bytes, else by what is said."""
    if utterance.complete is None or utterance.start is None:
        return None
    rate = _per_second(utterance.start)
    if rate is not None:
        return sum(len(chunk.data) for chunk in utterance.audio) / rate
    said = utterance.complete.fields.get("total_duration_s")
    return float(said) if isinstance(said, int | float) and not isinstance(said, bool) else None


@check("timing.heard", "word-marks", general=True)
@_on_words
def heard(_: Dialogue, utterance: Utterance, words: list[_Word]) -> Iterator[Judgement]:
    """Where a word is told to be, something is heard."""
    start = utterance.start
    rate = _per_second(start) if start is not None else None
    if start is None or rate is None or start.fields.get("format", "pcm_s16le") != "pcm_s16le":
        return
    if utterance.complete is None:
        return
    pcm = b"".join(chunk.data for chunk in utterance.audio)
    for word in words:
        first = max(0, int((word.start_s - _NEAR_S) * rate)) // 2 * 2
        last = max(0, int((word.end_s + _NEAR_S) * rate)) // 2 * 2
        if first >= len(pcm) or is_heard(pcm[first:last]):
            continue
        yield _fail(
            utterance,
            f"In the time of the word {word}, {word.start_s:.3f} to {word.end_s:.3f} s, there is"
            " only silence.",
            word.chunk,
            "times at which the word is heard, counted from the first sample sent",
            "Count the silence before speech, and between sentences, too.",
        )
        return
    yield passed()


# --- Speed ---------------------------------------------------------------------------------------


@check("timing.speed", "word-marks")
def speed(evidence: Sequence[Account]) -> Judgement:
    """Times of marks follow the speed, as the audio does."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            spoken = {
                _case_of(u): u
                for d in account.dialogues
                for u in d.utterances.values()
                if _case_of(u) and u.complete is not None
            }
            yield from _follows_speed(spoken)

    return settle(find(), evidence, "no text was spoken with marks at two speeds")


def _follows_speed(spoken: Mapping[str, Utterance]) -> Iterator[Judgement]:
    plain = spoken.get("plain")
    for name in ("plain, slow", "plain, fast"):
        other = spoken.get(name)
        if plain is None or other is None:
            continue
        lengths = [_duration(plain) or 0.0, _duration(other) or 0.0]
        shares = [_shares(plain, lengths[0]), _shares(other, lengths[1])]
        common = sorted(shares[0].keys() & shares[1].keys())[-_ONE_WORD_MORE:]
        if not common:
            continue
        if max(lengths) < _LEAST_CHANGE * min(lengths):
            yield not_exercised("the audio of the same text is as long at another speed")
            continue
        apart = median(abs(shares[0][place] - shares[1][place]) for place in common)
        if apart <= _SHARE:
            yield passed()
            continue
        last = common[-1]
        yield _fail(
            other,
            f"The last word ends at {shares[1][last]:.0%} of the audio; at speed 1.0 it ends at"
            f" {shares[0][last]:.0%}: the times do not follow the speed.",
            _messages(other)[-1],
            "times in the audio that is sent: at twice the speed, half of those at speed 1.0",
            "Scale the times as the audio is scaled.",
        )


def _shares(utterance: Utterance, length: float) -> dict[tuple[int, int], float]:
    """For each word, the share of the whole time at which it ends."""
    return {word.place: word.end_s / length for word in _words(utterance)} if length else {}


check("timing.invalid", "marks-invalid")(
    judge_cases(
        "timing.invalid",
        "Answer a `marks` that is no array of known kinds with `invalid_request`; an empty array"
        " and a kind twice are valid.",
    )
)
