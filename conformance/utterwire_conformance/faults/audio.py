"""Faults in the audio and in how it is cut into chunks."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from utterwire_conformance.client_message import is_nothing_to_speak
from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.wire import Frame, Opcode

from .catalogue import Catalogue
from .rewriting import SAFE_TEXT, MessageChange, MessageTest, message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_BYTES_PER_SECOND: Final = 48_000


def _audio(payload: bytes) -> Frame:
    return Frame(Opcode.BINARY, payload)


FAULTS.chunks(
    "audio-in-text-frames",
    "Audio is sent in text frames, in hexadecimal.",
    "audio.binary-frame",
    lambda chunk, _: (
        [Frame(Opcode.TEXT, chunk.frame.payload.hex().encode())] if chunk.is_audio else None
    ),
)


class _OddChunks(SessionTamper):
    """Cuts each chunk of audio one byte short; that byte leads the next chunk."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._carry = b""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_audio:
            payload = self._carry + chunk.frame.payload
            cut = len(payload) - 1 + len(payload) % 2
            self._carry = payload[cut:]
            yield ToClient(_audio(payload[:cut]))
            return
        if chunk.is_terminal and self._carry:
            carry, self._carry = self._carry, b""
            yield ToClient(_audio(carry))
        yield ToClient(chunk.frame)


FAULTS.add(
    "samples-split",
    "Chunks of audio end in the middle of a sample.",
    "audio.whole-samples",
    _OddChunks,
)
FAULTS.chunks(
    "chunks-empty",
    "An empty chunk of audio comes before each other.",
    "audio.chunk-size",
    lambda chunk, _: [_audio(b""), chunk.frame] if chunk.is_audio else None,
)


class _Resizes(SessionTamper):
    """Adds bytes to an utterance and keeps the books right."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._added: dict[int, int] = {}

    def added(self, chunk: Chunk) -> bytes:
        """What to put before the first chunk of audio."""
        raise NotImplementedError

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        seq = chunk.seq or 0
        if chunk.is_audio and seq not in self._added:
            addition = self.added(chunk)
            self._added[seq] = len(addition)
            return [ToClient(_audio(addition + chunk.frame.payload))]
        if chunk.type == "synthesis_complete" and self._added.get(seq) and chunk.fields:
            extra = self._added[seq]
            changes: dict[str, Any] = {
                "audio_bytes": chunk.fields.get("audio_bytes"),
                "total_duration_s": chunk.fields.get("total_duration_s"),
            }
            if isinstance(changes["audio_bytes"], int):
                changes["audio_bytes"] += extra
            if isinstance(changes["total_duration_s"], int | float):
                seconds = changes["total_duration_s"] + extra / _BYTES_PER_SECOND
                changes["total_duration_s"] = round(seconds, 6)
            return [ToClient(chunk.changed(**changes))]
        return super().chunk(chunk)


class _OversizedChunks(_Resizes):
    def added(self, chunk: Chunk) -> bytes:
        return bytes(65_538)


FAULTS.add(
    "chunks-over-64k",
    "Chunks of audio are larger than 65,536 bytes.",
    "audio.chunk-size",
    _OversizedChunks,
)


def _is_raw(chunk: Chunk, tap: Tap) -> bool:
    """Whether it is audio in the default format."""
    message = tap.messages.get(chunk.seq or 0)
    asked = message.fields.get("format") if message is not None else None
    return chunk.is_audio and asked in (None, "pcm_s16le")


class _RiffHeader(SessionTamper):
    """Has a RIFF header where the first samples of an utterance should be."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._seen: set[int | None] = set()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if not _is_raw(chunk, self.tap) or chunk.seq in self._seen:
            return super().chunk(chunk)
        self._seen.add(chunk.seq)
        unknown = 0xFFFFFFFF
        header = struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            *(b"RIFF", unknown, b"WAVE", b"fmt ", 16, 1, 1, 24_000, 48_000, 2, 16),
            *(b"data", unknown),
        )
        payload = chunk.frame.payload
        return [ToClient(_audio((header + payload[len(header) :])[: len(payload)]))]


FAULTS.add(
    "audio-with-header",
    "PCM audio begins with a RIFF header.",
    "audio.no-header",
    _RiffHeader,
)


class _AudioLost(SessionTamper):
    """Loses the first chunk of audio of each utterance."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._seen: set[int | None] = set()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_audio and chunk.seq not in self._seen:
            self._seen.add(chunk.seq)
            return []
        return super().chunk(chunk)


FAULTS.add(
    "audio-lost",
    "The first chunk of audio of an utterance is lost, and counted all the same.",
    "complete.audio-bytes",
    _AudioLost,
)


class _OneByteMore(SessionTamper):
    """Sends one byte of nothing before the end of each utterance that has audio."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_complete" and self.tap.audio_bytes.get(chunk.seq or 0):
            yield ToClient(_audio(b"\0"))
        yield ToClient(chunk.frame)


FAULTS.add(
    "one-byte-too-many",
    "A single byte comes at the end of the audio of an utterance, and is not counted.",
    ("audio.whole-samples", "complete.audio-bytes"),
    _OneByteMore,
)


class _LosesOneInAHundred(SessionTamper):
    """Loses every hundredth chunk of audio of a session, and counts it all the same."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._count = 0

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        self._count += chunk.is_audio
        return [] if chunk.is_audio and not self._count % 100 else super().chunk(chunk)


FAULTS.add(
    "one-chunk-in-a-hundred-lost",
    "One chunk of audio in a hundred is lost, and counted all the same.",
    "complete.audio-bytes",
    _LosesOneInAHundred,
)


class _LeaksAudio(SessionTamper):
    """Puts a chunk that went to another session into the audio of each utterance, once."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._leaked: set[int | None] = set()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        notes = self.shared.notes
        yield ToClient(chunk.frame)
        if not chunk.is_audio:
            return
        owner, foreign = notes.get("audio", (self, None))
        if owner is not self and foreign is not None and chunk.seq not in self._leaked:
            self._leaked.add(chunk.seq)
            yield ToClient(foreign)
        notes["audio"] = (self, chunk.frame)


FAULTS.add(
    "audio-of-another-session",
    "A chunk of audio of another session turns up in an utterance, and is not counted.",
    "complete.audio-bytes",
    _LeaksAudio,
)

# --- What is heard -------------------------------------------------------------------------------


def _says(text: str) -> MessageChange:
    return lambda message, _: message.changed(text=text)


def _speaks_letters(message: ClientMessage, _: Tap) -> bool:
    return message.is_valid_request and any(letter.isalnum() for letter in message.meaning.text)


FAULTS.rewrites(
    "text-ignored",
    "The same is spoken whatever the text.",
    "audio.speaks-text",
    _speaks_letters,
    _says(SAFE_TEXT),
)
FAULTS.chunks(
    "audio-silent",
    "All samples are zero.",
    "audio.speaks-text",
    lambda chunk, _: [_audio(bytes(len(chunk.frame.payload)))] if chunk.is_audio else None,
)


class _CutsText(SessionTamper):
    """Speaks the first code points of a text that `when` picks and says that it was all."""

    def __init__(self, shared: Shared, tap: Tap, most: int, when: MessageTest) -> None:
        super().__init__(shared, tap)
        self._most = most
        self._when = when

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not message.is_valid_request or not self._when(message, self.tap):
            return super().client_message(message)
        text = message.meaning.text
        return [message_frame(message.changed(text=text[: self._most]), message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if chunk.type == "synthesis_complete" and message is not None:
            return [ToClient(chunk.changed(characters=len(message.meaning.text)))]
        return super().chunk(chunk)


def _finds_another(message: ClientMessage, tap: Tap) -> bool:
    return any(seq != message.seq for seq in tap.unended())


FAULTS.add(
    "text-cut-at-twenty",
    "Of each text only the first twenty code points are spoken.",
    "audio.speaks-text",
    partial(_CutsText, most=20, when=_speaks_letters),
)
FAULTS.add(
    "text-cut-at-five-hundred",
    "Of each text only the first five hundred code points are spoken.",
    "audio.speaks-text",
    partial(_CutsText, most=500, when=_speaks_letters),
)
FAULTS.add(
    "text-cut-when-busy",
    "Of a text that has to wait only the first ten code points are spoken.",
    "audio.speaks-text",
    partial(_CutsText, most=10, when=_finds_another),
)
FAULTS.chunks(
    "audio-sent-twice",
    "Each chunk of audio is sent twice, and counted once.",
    "complete.audio-bytes",
    lambda chunk, _: [chunk.frame] * 2 if chunk.is_audio else None,
)
FAULTS.rewrites(
    "unspeakable-spoken",
    "Punctuation and emoji are read out.",
    "audio.unspeakable",
    lambda message, _: message.is_valid_request and is_nothing_to_speak(message.meaning.text),
    _says(SAFE_TEXT),
)
FAULTS.refuses(
    "unspeakable-refused",
    "Text with nothing to speak is rejected.",
    "audio.unspeakable",
    lambda message, _: message.is_valid_request and is_nothing_to_speak(message.meaning.text),
    "empty_text",
)
FAULTS.rewrites(
    "speed-ignored",
    "Every `speed` sounds the same.",
    "audio.speed",
    lambda message, _: message.is_valid_request and "speed" in message.fields,
    lambda message, _: message.changed(speed=1.0),
)


class _AudioHeldBack(SessionTamper):
    """Sends the audio of an utterance when all of it is made."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_audio:
            self._held.append(ToClient(chunk.frame))
            return
        if chunk.is_terminal:
            held, self._held = self._held, []
            yield from held
        yield ToClient(chunk.frame)


FAULTS.add(
    "audio-held-back",
    "No audio leaves before all of the utterance is made.",
    "audio.streamed",
    _AudioHeldBack,
)

# --- Audio that looks like control ---------------------------------------------------------------


def _spells_json(chunk: Chunk, _: Tap) -> Iterable[Frame] | None:
    if not chunk.is_audio:
        return None
    size = len(chunk.frame.payload)
    body = b'{"type":"synthesis_complete","audio_bytes":0' + b" " * size
    return [_audio(body[: size - 1] + b"}" if size > 44 else b"{" + bytes(size - 2) + b"}")]


FAULTS.chunks(
    "audio-spells-json",
    "Chunks of audio happen to be JSON with a `type`.",
    "audio.never-json",
    _spells_json,
)
FAULTS.chunks(
    "audio-between-braces",
    "Chunks of PCM begin with 0x7B and end in 0x7D, with samples between them.",
    "audio.never-json",
    lambda chunk, tap: (
        [_audio(b"\x7b" + chunk.frame.payload[1:-1] + b"\x7d")] if _is_raw(chunk, tap) else None
    ),
)
FAULTS.chunks(
    "audio-behind-a-brace",
    "Chunks of PCM begin with 0x7B.",
    "audio.no-leading-brace",
    lambda chunk, tap: (
        [_audio(b"\x7b" + chunk.frame.payload[1:-1] + b"\x00")] if _is_raw(chunk, tap) else None
    ),
)
