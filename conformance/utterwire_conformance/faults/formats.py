"""Faults in encoded audio: in its framing, its length, its rate, and in what is said of it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from utterwire_conformance.codecs import FramingError, adts, mpeg, ogg, riff
from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    ExchangeTamper,
    Head,
    Request,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.strict_json import JsonValue
from utterwire_conformance.wire import Frame, Opcode

from .catalogue import Catalogue
from .rewriting import message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_PCM: Final = "pcm_s16le"
_ENCODED: Final = frozenset({"wav", "mp3", "aac", "opus", "mulaw", "alaw"})
_DEFAULT_RATES: Final[Mapping[str, int]] = {"mulaw": 8_000, "alaw": 8_000}
_MOST_CHUNK: Final = 65_536

Changes = Mapping[str, Any]


def _audio(payload: bytes) -> list[Action]:
    return [
        ToClient(Frame(Opcode.BINARY, payload[at : at + _MOST_CHUNK]))
        for at in range(0, len(payload), _MOST_CHUNK)
    ]


def _format(fields: Mapping[str, JsonValue]) -> str:
    name = fields.get("format")
    return name if isinstance(name, str) else _PCM


def _rate(fields: Mapping[str, JsonValue]) -> int:
    rate = fields.get("sample_rate")
    if isinstance(rate, int | float) and rate >= 1:
        return int(rate)
    return _DEFAULT_RATES.get(_format(fields), 24_000)


class _Stream:
    """The encoded audio of one utterance on its way through: passes it on as it is."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        self.fields = fields

    def piece(self, data: bytes) -> bytes:
        """What leaves in the place of the next bytes."""
        return data

    def rest(self) -> bytes:
        """What leaves at the end, before `synthesis_complete`."""
        return b""

    def told(self, complete: Changes) -> Changes:
        """What else changes in `synthesis_complete`."""
        return {}


class _Rewritten(SessionTamper):
    """Sends other bytes for those of some formats, and keeps the books right."""

    def __init__(
        self,
        shared: Shared,
        tap: Tap,
        formats: Iterable[str],
        make: Callable[[Mapping[str, JsonValue]], _Stream],
    ) -> None:
        super().__init__(shared, tap)
        self._formats = frozenset(formats)
        self._make = make
        self._streams: dict[int, _Stream] = {}
        self._more: dict[int, int] = {}

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if message is None or _format(message.fields) not in self._formats:
            return super().chunk(chunk)
        seq = message.seq
        if chunk.is_audio:
            if seq not in self._streams:
                self._streams[seq] = self._make(message.fields)
            data = self._streams[seq].piece(chunk.frame.payload)
            self._more[seq] = self._more.get(seq, 0) + len(data) - len(chunk.frame.payload)
            return _audio(data)
        stream = self._streams.get(seq)
        counted = (chunk.fields or {}).get("audio_bytes")
        if stream is None or not chunk.is_terminal or not isinstance(counted, int):
            return super().chunk(chunk)
        complete = chunk.type == "synthesis_complete"
        rest = stream.rest() if complete else b""
        changes = {"audio_bytes": counted + self._more[seq] + len(rest)}
        if complete:
            changes |= stream.told({**(chunk.fields or {}), **changes})
        return [*_audio(rest), ToClient(chunk.changed(**changes))]


def _streams(
    name: str,
    explanation: str,
    breaks: str | tuple[str, ...],
    formats: Iterable[str],
    make: Callable[[Mapping[str, JsonValue]], _Stream],
) -> None:
    FAULTS.add(name, explanation, breaks, partial(_Rewritten, formats=formats, make=make))


# --- Streams that are not whole ------------------------------------------------------------------


class _LosesLast(_Stream):
    """Keeps the last chunk."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._held = b""

    def piece(self, data: bytes) -> bytes:
        sent, self._held = self._held, data
        return sent


_streams(
    "encoder-tail-lost",
    "What the encoder still holds at the end of an utterance is never sent.",
    "formats.duration",
    ("mp3", "aac"),
    _LosesLast,
)
_streams(
    "ogg-without-end",
    "The last page of an Ogg stream is never sent.",
    "formats.decodable",
    ("opus",),
    _LosesLast,
)


class _LosesOne(_Stream):
    """Loses the sixth chunk."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._number = 0

    def piece(self, data: bytes) -> bytes:
        self._number += 1
        return b"" if self._number == 6 else data


_streams(
    "ogg-page-lost",
    "A page in the middle of an Ogg stream is lost, and not counted.",
    "formats.decodable",
    ("opus",),
    _LosesOne,
)


class _LosesFrames(_Stream):
    """Loses a chunk of every four."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._number = 0

    def piece(self, data: bytes) -> bytes:
        self._number += 1
        return b"" if self._number % 4 == 0 else data


_streams(
    "encoded-chunks-lost",
    "Of encoded audio one chunk in four is lost, and not counted.",
    "formats.duration",
    ("mp3", "aac"),
    _LosesFrames,
)


class _AddsByte(_Stream):
    def rest(self) -> bytes:
        return b"\0"


_streams(
    "encoded-byte-too-many",
    "Behind each encoded stream comes a byte that belongs to nothing.",
    "formats.decodable",
    ("wav", "mp3", "aac"),
    _AddsByte,
)


class _Garbles(_Stream):
    """Zeroes the beginning of the fourth chunk."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._number = 0

    def piece(self, data: bytes) -> bytes:
        self._number += 1
        return bytes(4) + data[4:] if self._number == 4 else data


_streams(
    "encoded-frame-garbled",
    "The header of a frame of MP3 is overwritten.",
    "formats.decodable",
    ("mp3",),
    _Garbles,
)


class _Reordered(_Stream):
    """Sends the seventh chunk before the sixth."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._number = 0
        self._held = b""

    def piece(self, data: bytes) -> bytes:
        self._number += 1
        if self._number == 6:
            self._held = data
            return b""
        held, self._held = self._held, b""
        return data + held

    def rest(self) -> bytes:
        return self._held


_streams(
    "ogg-pages-swapped",
    "Two pages of an Ogg stream change places.",
    "formats.decodable",
    ("opus",),
    _Reordered,
)

# --- Framing -------------------------------------------------------------------------------------


class _FromWav(_Stream):
    """Changes the header of `wav`, which comes in one chunk with the first samples."""

    def __init__(self, fields: Mapping[str, JsonValue], change: Callable[[bytes], bytes]) -> None:
        super().__init__(fields)
        self._change = change
        self._begun = False

    def piece(self, data: bytes) -> bytes:
        if self._begun:
            return data
        self._begun = True
        return self._change(data[: riff.HEADER_BYTES]) + data[riff.HEADER_BYTES :]


def _wav(name: str, explanation: str, breaks: str, change: Callable[[bytes], bytes]) -> None:
    _streams(name, explanation, breaks, ("wav",), partial(_FromWav, change=change))


_wav("wav-without-header", "`wav` is bare samples.", "formats.wav-header", lambda header: b"")
_wav(
    "wav-of-no-length",
    "The header of `wav` says that it holds nothing.",
    "formats.wav-header",
    lambda header: header[:4] + bytes(4) + header[8:40] + bytes(4),
)
_wav(
    "wav-in-stereo",
    "The header of `wav` speaks of two channels.",
    "formats.wav-header",
    lambda header: header[:22] + b"\2\0" + header[24:],
)
_wav(
    "wav-header-twice",
    "`wav` has its header twice.",
    "formats.wav-header",
    lambda header: header * 2,
)
_wav(
    "wav-names-another-rate",
    "The header of `wav` names 44,100 Hz, whatever the rate.",
    "formats.sample-rate",
    lambda header: header[:24] + struct.pack("<II", 44_100, 88_200) + header[32:],
)


class _Bare(_Stream):
    """Takes the framing off, frame by frame."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._held = b""

    def piece(self, data: bytes) -> bytes:
        self._held += data
        found = []
        end = 0
        try:
            for content, stop in self.bare(self._held):
                found.append(content)
                end = stop
        except FramingError:
            # The rest of it is still to come.
            pass
        self._held = self._held[end:]
        return b"".join(found)

    def bare(self, data: bytes) -> Iterable[tuple[bytes, int]]:
        """What is in each frame, and where that ends."""
        raise NotImplementedError


class _BareAac(_Bare):
    def bare(self, data: bytes) -> Iterable[tuple[bytes, int]]:
        for frame in adts.frames(data):
            end = frame.offset + frame.size
            yield data[frame.offset + frame.header : end], end


class _BareOpus(_Bare):
    def bare(self, data: bytes) -> Iterable[tuple[bytes, int]]:
        for page in ogg.pages(data):
            yield page.body, page.offset + page.size


_streams("aac-without-adts", "`aac` is raw blocks of AAC.", "formats.adts", ("aac",), _BareAac)
_streams("opus-without-ogg", "`opus` is bare packets.", "formats.opus-ogg", ("opus",), _BareOpus)


class _HeadersOnce(SessionTamper):
    """Sends the two header pages of Opus once in a session."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._first: int | None = None
        self._rewritten = _Rewritten(shared, tap, ("opus",), _WithoutHeaders)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if chunk.is_audio and message is not None and _format(message.fields) == "opus":
            self._first = self._first or message.seq
        if chunk.seq == self._first:
            return super().chunk(chunk)
        return self._rewritten.chunk(chunk)


class _WithoutHeaders(_Stream):
    """Leaves out the pages that hold no audio."""

    def piece(self, data: bytes) -> bytes:
        try:
            return b"".join(
                data[page.offset : page.offset + page.size]
                for page in ogg.pages(data)
                if page.body[:8] not in (b"OpusHead", b"OpusTags")
            )
        except FramingError:
            return data


FAULTS.add(
    "opus-headers-once",
    "Only the first Opus utterance of a session has the headers of its stream.",
    "formats.opus-ogg",
    _HeadersOnce,
)

# --- Another format, or another rate -------------------------------------------------------------


class _Delivers(SessionTamper):
    """Asks for something else in the client's place, and names what the client asked for.

    `instead` gives the fields to ask with, None to leave a request alone.
    """

    def __init__(
        self,
        shared: Shared,
        tap: Tap,
        instead: Callable[[Mapping[str, JsonValue]], Mapping[str, Any] | None],
    ) -> None:
        super().__init__(shared, tap)
        self._instead = instead
        self._asked: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        changes = self._instead(message.fields) if message.is_valid_request else None
        if changes is None:
            return super().client_message(message)
        self._asked.add(message.seq)
        return [message_frame(message.changed(**changes), message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.seq not in self._asked or chunk.fields is None:
            return super().chunk(chunk)
        fields = self.tap.messages[chunk.seq or 0].fields
        changes: dict[str, Any] = {}
        if chunk.type == "synthesis_start":
            changes = {"format": _format(fields), "sample_rate": _rate(fields)}
        elif chunk.type == "synthesis_complete" and _format(fields) == _PCM:
            # To its own mind it speaks at that rate.
            counted = chunk.fields.get("audio_bytes")
            size = counted if isinstance(counted, int) else 0
            changes = {"total_duration_s": size / 2 / _rate(fields)}
        return [ToClient(chunk.changed(**changes))]


def _delivers(
    name: str,
    explanation: str,
    breaks: str,
    when: Callable[[Mapping[str, JsonValue]], bool],
    instead: Callable[[Mapping[str, JsonValue]], Mapping[str, Any]],
) -> None:
    def choose(fields: Mapping[str, JsonValue]) -> Mapping[str, Any] | None:
        return instead(fields) if when(fields) else None

    FAULTS.add(name, explanation, breaks, partial(_Delivers, instead=choose))


def _as(name: str) -> Callable[[Mapping[str, JsonValue]], Mapping[str, Any]]:
    return lambda fields: {"format": name, "sample_rate": _rate(fields)}


_delivers(
    "pcm-as-mp3",
    "What is called `mp3` is PCM.",
    "formats.decodable",
    lambda fields: _format(fields) == "mp3",
    _as(_PCM),
)
_delivers(
    "pcm-as-mulaw",
    "What is called `mulaw` is 16-bit PCM.",
    "formats.g711",
    lambda fields: _format(fields) == "mulaw",
    _as(_PCM),
)
_delivers(
    "laws-confused",
    "What is called `alaw` is mu-law.",
    "formats.g711",
    lambda fields: _format(fields) == "alaw",
    _as("mulaw"),
)
_delivers(
    "rate-only-named",
    "PCM is spoken at the default rate, whatever rate is asked for and named.",
    "formats.sample-rate",
    lambda fields: _format(fields) == _PCM and _rate(fields) != 24_000,
    lambda fields: {"sample_rate": 24_000},
)
_delivers(
    "encoded-rate-ignored",
    "MP3 has the default rate, whatever rate is asked for and named.",
    "formats.sample-rate",
    lambda fields: _format(fields) == "mp3" and _rate(fields) != 24_000,
    lambda fields: {"sample_rate": 24_000},
)


class _NamesPlayed(_Stream):
    """Names the rate that a decoder plays at in OpusHead."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._begun = False

    def piece(self, data: bytes) -> bytes:
        if self._begun:
            return data
        self._begun = True
        page = next(ogg.pages(data), None)
        if page is None or page.body[:8] != b"OpusHead":
            return data
        start = page.size - len(page.body)
        head = bytearray(data[: page.size])
        head[start + 12 : start + 16] = struct.pack("<I", ogg.CLOCK_HZ)
        head[22:26] = bytes(4)
        head[22:26] = struct.pack("<I", ogg.checksum(bytes(head)))
        return bytes(head) + data[page.size :]


_streams(
    "opus-names-the-played-rate",
    "OpusHead names 48,000 Hz, whatever the rate of the speech.",
    "formats.sample-rate",
    ("opus",),
    _NamesPlayed,
)

# --- What is said of it --------------------------------------------------------------------------


class _CountsPadding(_Stream):
    """Tells the length of what a decoder makes of the stream."""

    def __init__(self, fields: Mapping[str, JsonValue]) -> None:
        super().__init__(fields)
        self._data = b""

    def piece(self, data: bytes) -> bytes:
        self._data += data
        return data

    def told(self, complete: Changes) -> Changes:
        read: Any = mpeg.frames if _format(self.fields) == "mp3" else adts.frames
        try:
            found = list(read(self._data))
        except FramingError:
            return {}
        return {"total_duration_s": sum(f.samples / f.sample_rate for f in found)}


_streams(
    "duration-with-padding",
    "`total_duration_s` counts what an encoder adds before and behind the speech.",
    "formats.duration",
    ("mp3", "aac"),
    _CountsPadding,
)


class _Tells(_Stream):
    def __init__(
        self, fields: Mapping[str, JsonValue], change: Callable[[Changes, int], Changes]
    ) -> None:
        super().__init__(fields)
        self._change = change

    def told(self, complete: Changes) -> Changes:
        return self._change(complete, _rate(self.fields))


_streams(
    "duration-of-bytes-as-pcm",
    "`total_duration_s` is computed from encoded bytes as if they were PCM.",
    "formats.duration",
    ("mp3", "aac", "opus"),
    partial(
        _Tells,
        change=lambda complete, rate: {"total_duration_s": complete["audio_bytes"] / 2 / rate},
    ),
)
_streams(
    "audio-bytes-of-pcm",
    "`audio_bytes` of encoded audio counts the PCM behind it.",
    ("formats.audio-bytes", "complete.audio-bytes"),
    _ENCODED,
    partial(
        _Tells,
        change=lambda complete, rate: {
            "audio_bytes": 2 * round(complete["total_duration_s"] * rate)
        },
    ),
)


class _HeaderOfNothing(SessionTamper):
    """Sends a WAV header for text with nothing to speak."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        silent = chunk.type == "synthesis_complete" and (chunk.fields or {}).get("audio_bytes") == 0
        if message is None or not silent or _format(message.fields) != "wav":
            return super().chunk(chunk)
        header = b"RIFF\xff\xff\xff\xffWAVE" + bytes(32)
        return [*_audio(header), ToClient(chunk.changed(audio_bytes=len(header)))]


FAULTS.add(
    "wav-header-of-nothing",
    "Text with nothing to speak gets the header of a WAV file.",
    "audio.unspeakable",
    _HeaderOfNothing,
)

# --- Chunks --------------------------------------------------------------------------------------

_WINDOW: Final = 6_000
_LONGEST_HELD: Final = 2_000


class _BetweenBraces(SessionTamper):
    """Cuts encoded audio so that a chunk begins with one brace and ends with the other."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held = b""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if message is None or _format(message.fields) not in _ENCODED:
            return super().chunk(chunk)
        if chunk.is_audio:
            self._held += chunk.frame.payload
            return self._cut() if len(self._held) >= _WINDOW else []
        if chunk.is_terminal:
            return [*self._cut(), *super().chunk(chunk)]
        return super().chunk(chunk)

    def _cut(self) -> list[Action]:
        held, self._held = self._held, b""
        start = held.find(b"{")
        end = held.rfind(b"}") + 1
        if start < 0 or end <= start:
            return _audio(held)
        return [*_audio(held[:start]), *_audio(held[start:end]), *_audio(held[end:])]


FAULTS.add(
    "encoded-between-braces",
    "Chunks of encoded audio begin with 0x7B and end in 0x7D.",
    "formats.never-json",
    _BetweenBraces,
)


class _HeldBack(SessionTamper):
    """Sends encoded audio when all of it is made; of a very long text as it comes."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if message is None or _format(message.fields) not in _ENCODED:
            return super().chunk(chunk)
        if len(message.meaning.text) > _LONGEST_HELD:
            return super().chunk(chunk)
        if chunk.is_audio:
            self._held.append(ToClient(chunk.frame))
            return []
        held, self._held = (self._held, []) if chunk.is_terminal else ([], self._held)
        return [*held, *super().chunk(chunk)]


FAULTS.add(
    "encoded-held-back",
    "No encoded audio leaves before all of the utterance is made.",
    "formats.early",
    _HeldBack,
)


def _encoded_request(message: ClientMessage, _: Tap) -> bool:
    spoken = any(letter.isalnum() for letter in message.meaning.text)
    return message.is_valid_request and spoken and _format(message.fields) == "aac"


FAULTS.refuses(
    "offered-format-refused",
    "A format that is offered is refused.",
    ("formats.decodable", "session.offers-work"),
    _encoded_request,
    "unsupported_format",
)

# --- HTTP ----------------------------------------------------------------------------------------


class _CalledPcm(ExchangeTamper):
    """Calls every body PCM."""

    def head(self, request: Request, head: Head) -> Head:
        kind = head.get("content-type") or ""
        if head.status != 200 or not kind.startswith("audio/") or kind.startswith("audio/pcm"):
            return head
        return head.having("Content-Type", "audio/pcm;rate=24000;channels=1")


FAULTS.add(
    "http-encoded-called-pcm",
    "By HTTP every format has the `Content-Type` of PCM.",
    "http.content-type",
    exchange=_CalledPcm,
)
