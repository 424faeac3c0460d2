"""The legal oddities: each makes one choice that the specification leaves, in a rare way."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from utterwire_schemas import ERROR_CODES

from utterwire_conformance.event_stream import read_events
from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    ExchangeTamper,
    Head,
    Pause,
    Request,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.strict_json import NotJson, NotUtf8, parse
from utterwire_conformance.wire import Frame, Opcode, close_payload

from .oddity import Oddity
from .timing import Gathers

__all__ = ["ODDITIES"]

_LARGEST: Final = 65_536
_BRACE: Final = 0x7B
_found: dict[str, Oddity] = {}


def _add(
    name: str,
    explanation: str,
    clause: str,
    session: Callable[[Shared, Tap], SessionTamper] = SessionTamper,
    exchange: Callable[[Shared], ExchangeTamper] = ExchangeTamper,
) -> None:
    _found[name] = Oddity(name, explanation, clause, session, exchange)


def _text(payload: str) -> ToClient:
    return ToClient(Frame(Opcode.TEXT, payload.encode()))


def _audio(payload: bytes) -> ToClient:
    return ToClient(Frame(Opcode.BINARY, payload))


class _Audio(SessionTamper):
    """Knows the format of the audio that passes."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._format: object = None

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_start" and chunk.fields is not None:
            self._format = chunk.fields.get("format")
        if chunk.is_audio:
            return self.audio(chunk)
        return self.control(chunk)

    @property
    def is_pcm(self) -> bool:
        """Whether samples of 16 bits are passing."""
        return self._format == "pcm_s16le"

    def audio(self, chunk: Chunk) -> Iterable[Action]:
        """What becomes of a chunk of audio."""
        return [ToClient(chunk.frame)]

    def control(self, chunk: Chunk) -> Iterable[Action]:
        """What becomes of a control message."""
        return [ToClient(chunk.frame)]


# --- How audio is cut ----------------------------------------------------------------------------


class _TinyChunks(_Audio):
    """Sends the beginning of each utterance a sample at a time."""

    _SAMPLES: Final = 600

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._left = self._SAMPLES

    def control(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_start":
            self._left = self._SAMPLES
        return super().control(chunk)

    def audio(self, chunk: Chunk) -> Iterable[Action]:
        size = 2 if self.is_pcm else 1
        payload = chunk.frame.payload
        start = 0
        while self._left and start < len(payload):
            end = start + size
            # None begins with a brace: what would is left with the one before.
            while end < len(payload) and payload[end] == _BRACE:
                end += size
            yield _audio(payload[start:end])
            start = end
            self._left -= 1
        if start < len(payload):
            yield _audio(payload[start:])


class _LargestChunks(_Audio):
    """Joins chunks of PCM as long as 64 KiB hold them."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held = b""

    def audio(self, chunk: Chunk) -> Iterable[Action]:
        if not self.is_pcm:
            yield ToClient(chunk.frame)
            return
        if len(self._held) + len(chunk.frame.payload) > _LARGEST:
            yield from self._released()
        self._held += chunk.frame.payload

    def control(self, chunk: Chunk) -> Iterable[Action]:
        yield from self._released()
        yield ToClient(chunk.frame)

    def _released(self) -> list[Action]:
        held, self._held = self._held, b""
        return [_audio(held)] if held else []


_add(
    "chunks-tiny",
    "The first audio of an utterance comes a sample at a time.",
    "protocol.md#audio",
    _TinyChunks,
)
_add(
    "chunks-largest",
    "Audio comes in chunks of up to 65,536 bytes.",
    "protocol.md#audio",
    _LargestChunks,
)


class _NeverTwiceAlike(_Audio):
    """Changes samples by one step, other ones each time."""

    def audio(self, chunk: Chunk) -> Iterable[Action]:
        if not self.is_pcm:
            return [ToClient(chunk.frame)]
        turn = self.shared.notes["turn"] = self.shared.notes.get("turn", 0) + 1
        payload = bytearray(chunk.frame.payload)
        # Neither the first nor the last sample, by which a chunk might look like control.
        for place in range(2 + 2 * (turn % 50), len(payload) - 2, 100):
            payload[place] ^= 1
        return [_audio(bytes(payload))]


class _LengthsVary(_Audio):
    """Ends each utterance that has audio in a silence, which is longer each time."""

    def control(self, chunk: Chunk) -> Iterable[Action]:
        heard = self.tap.audio_bytes.get(chunk.seq or 0, 0)
        if chunk.type != "synthesis_complete" or not heard or not self.is_pcm:
            return super().control(chunk)
        turn = self.shared.notes["silences"] = self.shared.notes.get("silences", 0) + 1
        samples = 24 * (1 + turn % 10)
        fields = chunk.fields or {}
        size, seconds = fields.get("audio_bytes"), fields.get("total_duration_s")
        if not isinstance(size, int) or not isinstance(seconds, int | float) or not seconds:
            return super().control(chunk)
        total = size + 2 * samples
        return [
            _audio(bytes(2 * samples)),
            ToClient(
                chunk.changed(audio_bytes=total, total_duration_s=round(seconds * total / size, 6))
            ),
        ]


_add(
    "audio-never-twice-alike",
    "The same text never gives the same samples twice.",
    "protocol.md#audio",
    _NeverTwiceAlike,
)
_add(
    "lengths-vary",
    "The silence at the end of an utterance is of another length each time.",
    "protocol.md#audio",
    _LengthsVary,
)

# --- Other control messages ----------------------------------------------------------------------


class _PrivateMessages(SessionTamper):
    """Puts private messages between all others: with the `seq` of another, with none, with odd
    fields."""

    _FORMS: Final = (
        '{"type":"x_progress","seq":%d,"done":0.5}',
        '{"type":"x_note","request_id":"nobody","words":[],"audio_bytes":1}',
        '{"type":"x_level","audio":{"type":"synthesis_complete","seq":1},"rms":-12.5}',
        '{"type":"x_"}',
        '{"seq":99999,"type":"x_error","code":"x","rejected":true,"retryable":false}',
    )

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._count = 0
        self._over = False

    def _next(self) -> list[Action]:
        if self._over:
            return []
        form = self._FORMS[self._count % len(self._FORMS)]
        self._count += 1
        return [_text(form % (self.tap.running or 1) if "%d" in form else form)]

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        yield from super().client_message(message)
        # Not into an endpoint's silence before the end of a session that breaks.
        if message.is_valid:
            yield from self._next()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_audio and self._count > 200:
            yield ToClient(chunk.frame)
            return
        yield from self._next()
        yield ToClient(chunk.frame)
        self._over = self._over or chunk.type == "session_closed"
        if not chunk.is_audio:
            yield from self._next()


_add(
    "private-messages",
    "Private control messages (`x_…`) come between all others.",
    "protocol.md#extension",
    _PrivateMessages,
)


class _ExtraFields(SessionTamper):
    """Adds private fields to every control message, at its beginning and at its end."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.fields is None:
            return [ToClient(chunk.frame)]
        fields: dict[str, Any] = {
            "x_trace": {"id": "0af7", "type": "error", "seq": [1, None, {"rejected": True}]},
            **chunk.fields,
            "x_": None,
            "x_text": '\U0001f642 {"type": "cancelled"}',
        }
        return [_text(json.dumps(fields, ensure_ascii=False))]


_add(
    "extra-fields",
    "Every control message has private fields (`x_…`).",
    "protocol.md#extension",
    _ExtraFields,
)


def _escaped(value: Any) -> str:
    """JSON written as nobody does: every character of a string escaped, white space everywhere,
    fields in reverse, integers with a point or an exponent."""
    if isinstance(value, Mapping):
        members = (f"{_escaped(name)} :\t{_escaped(value[name])}" for name in reversed([*value]))
        return "{\r\n " + " , ".join(members) + "\n}"
    if isinstance(value, list | tuple):
        return "[ " + " ,\n".join(map(_escaped, value)) + " ]"
    if isinstance(value, str):
        units = value.encode("utf-16-be")
        return (
            '"'
            + "".join(f"\\u{units[i]:02X}{units[i + 1]:02x}" for i in range(0, len(units), 2))
            + '"'
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}.0" if value % 2 else f"{value}e0"
    return json.dumps(value)


class _OddlyWritten(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.fields is None:
            return [ToClient(chunk.frame)]
        written = _escaped(chunk.fields)
        # White space and escapes may not make it longer than a control message may be.
        return [_text(written) if len(written) <= _LARGEST else ToClient(chunk.frame)]


def _is_json(head: Head | None) -> bool:
    kind = (head.get("Content-Type") if head is not None else None) or ""
    return kind.partition(";")[0].strip().lower() == "application/json"


class _WholeBody(ExchangeTamper):
    """Holds a body of JSON until it is whole, and writes it anew."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._head: Head | None = None
        self._held = b""

    def head(self, request: Request, head: Head) -> Head:
        self._head = head
        return head.without("Content-Length") if _is_json(head) else head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if not _is_json(self._head):
            return [data]
        self._held += data
        return []

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return (self.written(self._held) if self._held else b""), clean

    def written(self, body: bytes) -> bytes:
        """The body, written anew."""
        try:
            document = parse(body)
        except (NotJson, NotUtf8):
            return body
        return _escaped(document.value).encode()


_add(
    "json-oddly-written",
    "JSON is written with escapes, white space, fields in reverse, and integers as 1.0 or 2e0.",
    "protocol.md#control-messages",
    _OddlyWritten,
    _WholeBody,
)


class _OtherCodes(SessionTamper):
    """Gives a rejection another of the codes that apply."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        code = (chunk.fields or {}).get("code")
        if not chunk.is_rejection or message is None or message.meaning.verdict != "reject":
            return [ToClient(chunk.frame)]
        if code not in message.meaning.codes:
            return [ToClient(chunk.frame)]
        others = sorted(message.meaning.codes - {code})
        if not others:
            return [ToClient(chunk.frame)]
        retryable = ERROR_CODES[others[-1]].retryable
        changed = chunk.changed(code=others[-1], retryable=retryable, message="\u2639")
        return [ToClient(changed)]


_add(
    "other-codes",
    "Where several codes apply to a message, another is chosen than most would.",
    "protocol.md#validation",
    _OtherCodes,
)


class _SessionClosedTellsMore(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type != "session_closed":
            return [ToClient(chunk.frame)]
        return [ToClient(chunk.changed(retry_after_s=0.5))]


_add(
    "session-closed-with-retry",
    "`session_closed` always says `retry_after_s`.",
    "protocol.md#session-closed",
    _SessionClosedTellsMore,
)


class _Rounds(SessionTamper):
    """Rounds `elapsed_s` down to whole seconds and the duration to the millisecond."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type != "synthesis_complete" or chunk.fields is None:
            return [ToClient(chunk.frame)]
        changes: dict[str, Any] = {}
        elapsed, seconds = chunk.fields.get("elapsed_s"), chunk.fields.get("total_duration_s")
        if isinstance(elapsed, int | float) and elapsed >= 0:
            changes["elapsed_s"] = math.floor(elapsed)
        if isinstance(seconds, int | float):
            changes["total_duration_s"] = round(seconds, 3)
        return [ToClient(chunk.changed(**changes))]


_add(
    "times-rounded",
    "`elapsed_s` comes in whole seconds, and `total_duration_s` to the millisecond.",
    "protocol.md#synthesis-complete",
    _Rounds,
)


class _CancelledReversed(SessionTamper):
    """Sends several `cancelled` of one `cancel` the last request first."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "cancelled":
            self._held.insert(0, ToClient(chunk.frame))
            return
        held, self._held = self._held, []
        yield from held
        yield ToClient(chunk.frame)


_add(
    "cancelled-reversed",
    "Of several utterances that a `cancel` stops the last is the first to be told of.",
    "protocol.md#cancel",
    _CancelledReversed,
)


class _MarksOneByOne(SessionTamper):
    """Tells each word in a message of its own."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        words = (chunk.fields or {}).get("words")
        if chunk.type != "marks" or not isinstance(words, list) or len(words) < 2:
            return [ToClient(chunk.frame)]
        return [ToClient(chunk.changed(words=[word])) for word in words]


_add(
    "marks-one-by-one",
    "Each word is told in a `marks` message of its own.",
    "protocol.md#marks",
    _MarksOneByOne,
)


def _cut_anew(words: list[dict[str, Any]], text: str, _: float) -> list[dict[str, Any]]:
    """Cut words in two, take two for one, and leave punctuation with its word."""
    told: list[dict[str, Any]] = []
    for number, word in enumerate(words):
        end = word["char_end"]
        if text[end : end + 1] in _POINTS:
            word = word | {"char_end": end + 1, "text": text[word["char_start"] : end + 1]}
        before = told[-1] if told else None
        middle = word["char_start"] + 1
        if number % 3 == 1 and before is not None and _is_blank(text, before, word):
            told[-1] = before | {name: word[name] for name in ("end_s", "char_end")}
            told[-1]["text"] = text[before["char_start"] : word["char_end"]]
        elif number % 3 == 2 and text[middle : middle + 1].isalnum() and middle < end:
            half = (word["start_s"] + word["end_s"]) / 2
            first = {"text": text[middle - 1], "end_s": half, "char_end": middle}
            rest = {"text": text[middle : word["char_end"]], "start_s": half, "char_start": middle}
            told += [word | first, word | rest]
        else:
            told.append(word)
    return told


def _is_blank(text: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return text[one["char_end"] : other["char_start"]] == " "


_POINTS: Final = (".", ",", "!", "?")
_add(
    "marks-cut-otherwise",
    "Two words are told as one, one as two, and punctuation as a part of its word.",
    "protocol.md#marks",
    partial(Gathers, retold=_cut_anew, most=300),
)

# --- Transport -----------------------------------------------------------------------------------


class _Pings(SessionTamper):
    """Pings the client in between, now with a payload, now without."""

    _PAYLOADS: Final = (b"", b"keep", bytes(125), b'{"type":"close"}')

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._sent: deque[bytes] = deque()
        self._count = 0

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if not chunk.is_audio or self._count % 50 == 0:
            payload = self._PAYLOADS[self._count % len(self._PAYLOADS)]
            self._sent.append(payload)
            yield ToClient(Frame(Opcode.PING, payload))
        self._count += 1
        yield ToClient(chunk.frame)

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        # The answers are this side's own, and no affair of the endpoint's.
        if frame.opcode == Opcode.PONG and frame.payload in self._sent:
            while self._sent and self._sent.popleft() != frame.payload:
                pass
            return []
        return super().client_frame(frame)


_add(
    "pings-from-the-endpoint",
    "The endpoint sends pings in between, with payloads and without.",
    "websocket.md#ping",
    _Pings,
)


class _PongsCoalesced(SessionTamper):
    """Answers only the last of several pings that wait."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._open: list[bytes] = []

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode == Opcode.PING:
            self._open.append(frame.payload)
        return super().client_frame(frame)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode == Opcode.PONG and frame.payload in self._open:
            del self._open[: self._open.index(frame.payload) + 1]
            if self._open:
                return []
        return super().endpoint_frame(frame)


_add(
    "pongs-coalesced",
    "Of several pings that wait only the last is answered.",
    "websocket.md#ping",
    _PongsCoalesced,
)


class _PongsUnasked(SessionTamper):
    """Sends pongs that no ping asked for."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if not chunk.is_audio:
            yield ToClient(Frame(Opcode.PONG, b"unasked"))
        yield ToClient(chunk.frame)


_add(
    "pongs-unasked",
    "Pongs come that answer no ping, as RFC 6455 section 5.5.3 allows.",
    "websocket.md#ping",
    _PongsUnasked,
)


class _OtherCloses(SessionTamper):
    """Answers a close frame with a bare one; says 1001 instead of 1000 on shutdown."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._asked = False

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        self._asked = self._asked or frame.opcode == Opcode.CLOSE
        return super().client_frame(frame)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode != Opcode.CLOSE:
            return super().endpoint_frame(frame)
        failed = frame.payload[:2] in {close_payload(code) for code in (1002, 1007, 1009)}
        if self._asked and not failed:
            return [ToClient(Frame(Opcode.CLOSE, b""))]
        if self.shared.shutting_down and frame.payload[:2] == close_payload(1000):
            return [ToClient(Frame(Opcode.CLOSE, close_payload(1001, "bye")))]
        return super().endpoint_frame(frame)


_add(
    "close-frames-otherwise",
    "A close frame is answered by one without a code, and a shutdown closes with 1001.",
    "websocket.md#closing",
    _OtherCloses,
)


class _BareTooBig(SessionTamper):
    """Fails the connection over a message that is too big, without `session_closed`."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._told = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        reason = (chunk.fields or {}).get("reason")
        if chunk.type == "session_closed" and reason == "message_too_big":
            self._told = True
            return []
        return super().chunk(chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if self._told and frame.opcode == Opcode.CLOSE:
            return [ToClient(Frame(Opcode.CLOSE, close_payload(1009, "too big")))]
        return super().endpoint_frame(frame)


_add(
    "too-big-without-a-word",
    "A message that is too big fails the connection with 1009, without `session_closed`.",
    "websocket.md#failures",
    _BareTooBig,
)


class _Slow(SessionTamper):
    """Takes its time before each answer: a way that is 40 ms longer."""

    _DELAY_S: Final = 0.04

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._last: str | None = None

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        kind, self._last = self._last, chunk.type
        slow = chunk.type in ("synthesis_start", "error", "cancelled", "session")
        if slow and chunk.type != kind:
            yield Pause(self._DELAY_S)
        yield ToClient(chunk.frame)


class _SlowExchange(ExchangeTamper):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._begun = False

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if not self._begun:
            self._begun = True
            yield 0.2
        yield data


_add(
    "answers-slow",
    "The first of several answers takes 40 ms longer, and a body over HTTP a fifth of a second.",
    "protocol.md#order",
    _Slow,
    _SlowExchange,
)

# --- HTTP ----------------------------------------------------------------------------------------


class _OddHeaders(ExchangeTamper):
    """Writes header names in capitals, adds others, and turns parameters about."""

    def head(self, request: Request, head: Head) -> Head:
        headers = []
        for name, value in head.headers:
            if name.lower() == "content-type":
                kind, *parameters = (part.strip() for part in value.split(";"))
                if kind.lower() == "application/json":
                    parameters.append("charset=utf-8")
                value = " ; ".join([kind, *reversed(parameters)])
            headers.append((name.upper(), value))
        extra = (("X-Request-Cost", "0"), ("Cache-Control", "no-store"), ("Server", "x"))
        return Head(head.status, (*extra, *headers))


_add(
    "headers-otherwise",
    "Header names are in capitals, parameters in another order, and there are more headers.",
    "http.md#response",
    exchange=_OddHeaders,
)


class _BodiesCutAnew(ExchangeTamper):
    """Cuts bodies into odd pieces: one byte, then seven, then the rest, and so on."""

    _MOST: Final = 40

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._cuts = 0

    def body(self, data: bytes) -> Iterable[bytes | float]:
        start = 0
        for size in (1, 7, 4096):
            if self._cuts >= self._MOST or start >= len(data):
                break
            self._cuts += 1
            yield data[start : start + size]
            start += size
        if start < len(data):
            yield data[start:]


_add(
    "bodies-cut-anew",
    "Bodies come in pieces that split samples, events and code points.",
    "http.md#streaming",
    exchange=_BodiesCutAnew,
)


class _EventComments(ExchangeTamper):
    """Puts comment lines between the events of a stream."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._events = False
        self._end = b""

    def head(self, request: Request, head: Head) -> Head:
        kind = head.get("Content-Type") or ""
        self._events = head.status == 200 and kind.lower().startswith("text/event-stream")
        return head.without("Content-Length") if self._events else head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if self._events:
            data = (self._end + data).replace(b"\n\n", b"\n\n: still here\n")
            # A blank line that is cut in two is put together first.
            self._end = b"\n" if data.endswith(b"\n") and not data.endswith(b"here\n") else b""
            data = data.removesuffix(self._end)
        return [data] if data else []

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return self._end, clean


_add(
    "events-with-comments",
    "Comment lines come between server-sent events.",
    "sse.md#framing",
    exchange=_EventComments,
)


class _EventsOtherwise(ExchangeTamper):
    """Writes each event in another way that the standard has."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._held: bytes | None = None
        self._begun = False

    def head(self, request: Request, head: Head) -> Head:
        kind = head.get("Content-Type") or ""
        if head.status == 200 and kind.lower().startswith("text/event-stream"):
            self._held = b""
            return head.without("Content-Length")
        return head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if self._held is None:
            return [data]
        *blocks, self._held = (self._held + data).split(b"\n\n")
        return [self._written(block + b"\n\n") for block in blocks]

    def _written(self, block: bytes) -> bytes:
        events = read_events(block).events
        if not events or events[0].fields is None:
            return block
        begun, self._begun = self._begun, True
        mark = "" if begun else "\ufeff"
        # What is not known is skipped.
        other = 'event: x_note\rdata: {"x_n": 1}\r\r'
        data = json.dumps(events[0].fields | {"x_more": [1]}, indent=1).split("\n")
        lines = ["id: 7", "retry: 10", "x_field", *(f"data:{line}" for line in data)]
        lines += [f"event:{events[0].name}"]
        return (mark + other + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return self._held or b"", clean


_add(
    "events-otherwise",
    "Events come with a byte order mark, ends of lines and fields of other kinds, data in several"
    " lines, and others between them.",
    "sse.md#framing",
    exchange=_EventsOtherwise,
)

ODDITIES: Final[Mapping[str, Oddity]] = MappingProxyType(_found)
"""Every oddity by its name."""
