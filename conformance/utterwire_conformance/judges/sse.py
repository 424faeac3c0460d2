"""Judges of server-sent events (`sse.md`)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from utterwire_schemas import ERROR_CODES, validator

from utterwire_conformance.check import Account, Judge, check, on_exchanges, settle
from utterwire_conformance.client_message import is_nothing_to_speak
from utterwire_conformance.event_stream import Event, EventStream, read_events
from utterwire_conformance.exchange import Exchange
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = [
    "chunks",
    "content_type",
    "end",
    "error",
    "refusal",
    "start",
    "streamed",
    "whole_events",
    "whole_pcm",
]

_MEDIUM: Final = "text/event-stream"
_START: Final = "audio_stream_start"
_CHUNK: Final = "audio_chunk"
_END: Final = "audio_stream_end"
_SCHEMAS: Final = {
    _START: "sse-audio-stream-start",
    _CHUNK: "sse-audio-chunk",
    _END: "sse-audio-stream-end",
    "error": "sse-error",
}
_EXCUSES: Final = frozenset({"overloaded", "going_away", "queue_full"})
_MAX_CHUNK: Final = 65_536
_SAMPLE_BYTES: Final = {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}
_PCM_RATE: Final = 24_000
_SHUTDOWN: Final = "events until shutdown is over"
# A judge by the clock needs something that takes long enough to tell.
_LEAST_TIME_S: Final = 0.1
_EARLY: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer in events: those that this specification names, in order, and their data."""

    exchange: Exchange
    stream: EventStream
    events: tuple[tuple[Event, dict[str, Any]], ...]

    @classmethod
    def of(cls, exchange: Exchange) -> _Told:
        stream = read_events(exchange.body)
        named = [(e, e.fields) for e in stream.events if e.name in _SCHEMAS]
        return cls(
            exchange, stream, tuple((e, fields) for e, fields in named if fields is not None)
        )

    @property
    def names(self) -> list[str]:
        return [event.name for event, _ in self.events]

    @property
    def unbroken(self) -> bool:
        """Whether every event can be read, so that one that is missing really is."""
        return not _broken(self.stream) and not (self.exchange.clean and self.stream.unended)

    def each(self, name: str) -> list[tuple[Event, dict[str, Any]]]:
        return [(event, fields) for event, fields in self.events if event.name == name]


def _medium(exchange: Exchange) -> str:
    return exchange.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_stream(exchange: Exchange) -> bool:
    answered = exchange.is_synthesis and exchange.status == 200
    return answered and exchange.asks_for_events and _medium(exchange) == _MEDIUM


def _code(exchange: Exchange) -> str | None:
    code = (exchange.json or {}).get("code")
    return code if isinstance(code, str) else None


def _fail(
    exchange: Exchange, reason: str, legal: str, advice: str, event: Event | None = None
) -> Judgement:
    accept = exchange.request_headers.get("accept")
    received = quote.answer(exchange)
    if event is not None:
        received = quote.octets(event.text.encode())
    elif _medium(exchange) == _MEDIUM:
        received = f"HTTP {exchange.status}, {_MEDIUM}: {quote.octets(exchange.body) or 'no body'}"
    return fail(
        reason,
        sent=f"{quote.exchange_request(exchange)} (Accept: {accept or 'none'})",
        received=received,
        legal=legal,
        advice=advice,
    )


def _case(exchange: Exchange, name: str) -> bool:
    return exchange.case is not None and exchange.case.check == name


@check("sse.content-type", "sse-accept", "sse-streams")
@on_exchanges("no request could be made")
def content_type(exchange: Exchange) -> Iterator[Judgement]:
    """Who names events gets them, and nobody else."""
    if not (_case(exchange, "sse.content_type") or _case(exchange, "sse.start")):
        return
    named = exchange.asks_for_events
    if not named and exchange.status != 200:
        # Whether raw audio is served, to who asks for it, is the affair of another profile.
        return
    legal = f"HTTP 200 and `Content-Type: {_MEDIUM}`" if named else "HTTP 200 and raw audio"
    advice = (
        "Look in `Accept`, in all of its fields, for `text/event-stream` with a weight above 0."
    )
    if exchange.status == 503 and _code(exchange) in _EXCUSES:
        yield not_exercised(f"The endpoint refused a valid request with {_code(exchange)}.")
    elif exchange.status != 200:
        how = f"was answered with {exchange.status}" if exchange.status else "got no response"
        yield _fail(exchange, f"A valid request {how}.", legal, advice)
    elif named and _medium(exchange) != _MEDIUM:
        reason = f"A request for events was answered with {_medium(exchange) or 'no content type'}."
        yield _fail(exchange, reason, legal, advice)
    elif not named and _medium(exchange) == _MEDIUM:
        reason = "A request that does not name events was answered with them."
        yield _fail(exchange, reason, legal, advice)
    else:
        yield passed()


@check("sse.refusal", "sse-rejects")
@on_exchanges("no request could be refused")
def refusal(exchange: Exchange) -> Iterator[Judgement]:
    """An invalid request is refused as over HTTP."""
    case = exchange.case
    if case is None or case.check != "sse.refusal":
        return
    advice = "Check the request before you send status 200 and the first event."
    if case.expect == "accept":
        if exchange.status == 503 and _code(exchange) in _EXCUSES:
            yield not_exercised(f"The endpoint refused a valid request with {_code(exchange)}.")
        elif exchange.status != 200:
            how = f"answered with {exchange.status}" if exchange.status else "not answered"
            yield _fail(exchange, f"A valid request was {how}.", "HTTP 200 and events", advice)
        return
    codes = " or ".join(case.codes)
    legal = f"a status of 400 or more, and an `error` as JSON with the code {codes}"
    if exchange.status is None:
        yield _fail(exchange, f"No response came ({case.name}).", legal, advice)
    elif exchange.status < 400:
        told = read_events(exchange.body).events if _medium(exchange) == _MEDIUM else ()
        what = "told of by an event" if any(e.name == "error" for e in told) else "served"
        yield _fail(exchange, f"An invalid request was {what} ({case.name}).", legal, advice)
    elif _code(exchange) in _EXCUSES:
        yield not_exercised(f"The endpoint refused the request with {_code(exchange)}.")
    elif _code(exchange) not in case.codes or _medium(exchange) != "application/json":
        reason = f"An invalid request ({case.name}) was refused with {_code(exchange) or 'no code'}"
        yield _fail(exchange, f"{reason}, as {_medium(exchange) or 'nothing'}.", legal, advice)
    else:
        yield passed()


def _broken(stream: EventStream) -> tuple[str, Event | None] | None:
    """What is wrong with how the events are written."""
    if not stream.is_utf8:
        return "The body is not UTF-8.", None
    for event in stream.events:
        if not event.name:
            return "An event has no name: there is no `event` line.", event
        if event.data is None:
            return (
                f"The event `{event.name}` has no data, so that a receiver passes over it.",
                event,
            )
        if event.fields is None:
            return f"The data of the event `{event.name}` is not one JSON object.", event
    return None


@check("sse.whole-events", "sse-streams", general=True)
@on_exchanges("no events were received")
def whole_events(exchange: Exchange) -> Iterator[Judgement]:
    """Each event has a name and an object, and is ended."""
    if not _is_stream(exchange):
        return
    stream = read_events(exchange.body)
    broken = _broken(stream)
    if broken is None and exchange.clean and stream.unended is not None:
        broken = "The last event is not ended by a blank line.", stream.unended
    if broken is None and exchange.clean and not stream.events:
        broken = "The body holds no event.", None
    if broken is not None:
        yield _fail(
            exchange,
            broken[0],
            "`event: NAME`, `data: {…}` and a blank line, in UTF-8",
            "Write each event as a name line, a data line of JSON, and an empty line.",
            broken[1],
        )
    elif stream.events:
        yield passed()


def _on_streams(find: Callable[[_Told], Iterator[Judgement]]) -> Judge:
    """Make a judge from a function that looks at one stream whose events can all be read."""

    @on_exchanges("no events were received")
    def judge(exchange: Exchange) -> Iterator[Judgement]:
        if _is_stream(exchange):
            told = _Told.of(exchange)
            if told.unbroken and told.events:
                yield from find(told)

    judge.__doc__ = find.__doc__
    return judge


def _amiss(told: _Told, event: Event, fields: Mapping[str, Any]) -> str:
    """What is wrong with the fields of an event by its schema, or with its id."""
    name = event.name
    errors = validator(_SCHEMAS[name]).iter_errors(dict(fields))
    found = next(iter(errors), None)
    if found is not None:
        where = "/".join(map(str, found.absolute_path))
        return (
            f"`{name}` breaks its schema{f' at `{where}`' if where else ''}: {found.message[:120]}."
        )
    asked = told.exchange.request.get("request_id")
    if fields.get("request_id") != asked:
        wrong = "is missing" if "request_id" not in fields else f"is {fields['request_id']!r}"
        if asked is None:
            return f"`{name}` has a `request_id`, and the request had none."
        return f"The `request_id` of `{name}` {wrong}."
    return ""


@check("sse.start", "sse-streams", general=True)
@_on_streams
def start(told: _Told) -> Iterator[Judgement]:
    """The first event tells format, voice, rate and id."""
    legal = "`audio_stream_start` once, before all other audio events, with what was asked for"
    if told.names == ["error"]:
        return
    starts = told.each(_START)
    reason = ""
    shown: Event | None = told.events[0][0]
    if told.names[0] != _START:
        reason = f"The first event is `{told.names[0]}`."
    elif len(starts) > 1:
        reason, shown = "`audio_stream_start` came twice.", starts[1][0]
    else:
        fields, asked = starts[0][1], told.exchange.request
        expected = {
            "format": asked.get("format") or "pcm_s16le",
            "voice": asked.get("voice") or fields.get("voice"),
        }
        rate = asked.get("sample_rate")
        default = 8_000 if expected["format"] in ("mulaw", "alaw") else 24_000
        expected["sample_rate"] = rate if isinstance(rate, int | float) else default
        if expected["format"] != "pcm_s16le" and rate is None:
            # An endpoint that does not offer the default for a format has another.
            expected["sample_rate"] = fields.get("sample_rate")
        untrue = [name for name, value in expected.items() if fields.get(name) != value]
        reason = _amiss(told, *starts[0])
        if not reason and untrue:
            reason = f"`{untrue[0]}` is {fields.get(untrue[0])!r}, not {expected[untrue[0]]!r}."
    if reason:
        advice = (
            "Send `audio_stream_start` first and once, filled from what the engine really does."
        )
        yield _fail(told.exchange, reason, legal, advice, shown)
    else:
        yield passed()


def _audio_of(fields: Mapping[str, Any]) -> bytes | None:
    data = fields.get("data")
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def whole_pcm(exchange: Exchange) -> tuple[bytes, str] | None:
    """The audio and the voice of an answer in events that came whole, as PCM at 24,000 Hz; None
    where it did not, or is none."""
    if not _is_stream(exchange):
        return None
    told = _Told.of(exchange)
    starts, ends = told.each(_START), told.each(_END)
    pieces = [_audio_of(fields) for _, fields in told.each(_CHUNK)]
    audio = [piece for piece in pieces if piece is not None]
    if not told.unbroken or len(starts) != 1 or len(ends) != 1 or len(audio) < len(pieces):
        return None
    fields = starts[0][1]
    if ends[0][1].get("total_chunks") != len(pieces) or _format_of(told) != "pcm_s16le":
        return None
    if fields.get("sample_rate") != _PCM_RATE:
        return None
    return b"".join(audio), str(fields.get("voice"))


def _format_of(told: _Told) -> str:
    starts = told.each(_START)
    asked = told.exchange.request.get("format") or "pcm_s16le"
    return str(starts[0][1].get("format", asked) if starts else asked)


@check("sse.chunks", "sse-streams", general=True)
@_on_streams
def chunks(told: _Told) -> Iterator[Judgement]:
    """Chunks are numbered from 0 and hold base64 of audio."""
    legal = "`seq` 0, 1, 2 …, and `data` base64 of 1 to 65,536 bytes of whole samples"
    found = told.each(_CHUNK)
    width = 2 if _format_of(told) == "pcm_s16le" else 1
    for number, (event, fields) in enumerate(found):
        audio = _audio_of(fields)
        reason = ""
        if fields.get("seq") != number:
            reason = f"`seq` of the {_ordinal(number)} chunk is {fields.get('seq')!r}."
        elif audio is None:
            reason = f"`data` of chunk {number} is not base64 of RFC 4648 section 4."
        elif not 0 < len(audio) <= _MAX_CHUNK:
            reason = f"Chunk {number} holds {len(audio)} bytes of audio."
        elif len(audio) % width:
            reason = f"Chunk {number} ends in the middle of a sample: it holds {len(audio)} bytes."
        elif number == 0 and width == 2 and audio.startswith((b"RIFF", b"OggS", b"ID3")):
            reason = "The audio begins with a header, and it is to be raw PCM."
        reason = reason or _amiss(told, event, fields)
        if reason:
            advice = "Count chunks from 0, and encode each by itself, with padding and `+/`."
            yield _fail(told.exchange, reason, legal, advice, event)
            return
    text = told.exchange.request.get("text")
    if not isinstance(text, str) or _END not in told.names:
        if found:
            yield passed()
    elif is_nothing_to_speak(text) and found:
        reason = "Text with nothing to speak has audio."
        advice = "Send a start and an end, and no chunk, where there is nothing to speak."
        yield _fail(told.exchange, reason, "no `audio_chunk`", advice, found[0][0])
    elif not found and told.exchange.case is not None and not is_nothing_to_speak(text):
        reason = "There is no audio between start and end."
        yield _fail(told.exchange, reason, legal, "Send the audio in `audio_chunk` events.")
    else:
        yield passed()


def _ordinal(number: int) -> str:
    return {0: "first", 1: "second", 2: "third"}.get(number, f"{number + 1}th")


@check("sse.end", "sse-streams", general=True)
@_on_streams
def end(told: _Told) -> Iterator[Judgement]:
    """The end comes once, last, and its numbers are true."""
    legal = "`audio_stream_end` once, behind all chunks, with their number and the duration"
    advice = "Count what you send, and send the end behind it, once."
    names = told.names
    if "error" in names and _END not in names[: names.index("error")]:
        return
    ends = told.each(_END)
    if not ends:
        if told.exchange.clean:
            reason = "The body ended without `audio_stream_end` and without an `error`."
            yield _fail(told.exchange, reason, legal, advice, told.events[-1][0])
        return
    event, fields = ends[0]
    after = names[names.index(_END) + 1 :]
    count = len(told.each(_CHUNK))
    reason = ""
    if after:
        reason, event = f"`{after[0]}` came after `audio_stream_end`.", told.events[-1][0]
    elif fields.get("total_chunks") != count:
        reason = f"`total_chunks` is {fields.get('total_chunks')!r}, and {count} chunks came."
    else:
        reason = _amiss(told, event, fields) or _untrue(told, fields)
    if reason:
        yield _fail(told.exchange, reason, legal, advice, event)
    else:
        yield passed()


def _untrue(told: _Told, fields: Mapping[str, Any]) -> str:
    """What is wrong with the duration, where that follows from the bytes."""
    starts = told.each(_START)
    pieces = [_audio_of(chunk) for _, chunk in told.each(_CHUNK)]
    width = _SAMPLE_BYTES.get(_format_of(told))
    rate = starts[0][1].get("sample_rate") if starts else None
    if width is None or not isinstance(rate, int | float) or rate <= 0:
        return ""
    audio = [piece for piece in pieces if piece is not None]
    if len(audio) < len(pieces):
        return ""
    expected = sum(map(len, audio)) / (width * rate)
    said = fields.get("duration_s")
    if isinstance(said, int | float) and abs(said - expected) <= 0.001 + 1e-9:
        return ""
    return f"`duration_s` is {said!r}, and the chunks hold {expected:.4f} s of audio."


@check("sse.streamed", "sse-long")
def streamed(evidence: Sequence[Account]) -> Judgement:
    """The first chunk of a long text comes well before the last."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            # What every answer takes, a short one too: the way, and the start of the engine.
            waits = [
                e.first_byte_t - e.sent_t for e in account.exchanges if e.first_byte_t is not None
            ]
            for exchange in account.exchanges:
                case = exchange.case
                if case is not None and case.name == "a long text" and _is_stream(exchange):
                    yield from _in_time(account, exchange, min(waits, default=0.0))

    return settle(find(), evidence, "no long text was spoken in events")


def _in_time(account: Account, exchange: Exchange, least: float) -> Iterator[Judgement]:
    told = _Told.of(exchange)
    count = len(told.each(_CHUNK))
    first = _first_chunk_t(account, exchange)
    if not exchange.clean or exchange.end_t is None or first is None or not told.unbroken:
        return
    whole = exchange.end_t - exchange.sent_t - least
    share = (first - exchange.sent_t - least) / whole if whole > 0 else 0.0
    if whole < _LEAST_TIME_S:
        yield passed("all of it came at once, too fast to tell")
    elif share <= _EARLY and count > 1:
        yield passed(f"first chunk after {first - exchange.sent_t:.3f} s")
    else:
        yield _fail(
            exchange,
            f"The first chunk of a long text came when {share:.0%} of the time had passed."
            if count > 1
            else "A long text came in one chunk.",
            "the first chunk well before the last",
            "Send each event as soon as its audio is made, and let nothing on the way hold it.",
        )


def _first_chunk_t(account: Account, exchange: Exchange) -> float | None:
    """When the name of the first chunk had come; the rest of that event cannot be far."""
    at = exchange.body.find(_CHUNK.encode())
    came = 0
    for entry in account.transcript.session(exchange.session):
        came += len(entry.data) if entry.kind == "http-body" else 0
        if 0 <= at < came:
            return entry.t
    return None


@check("sse.error", "shutdown", general=True)
def error(evidence: Sequence[Account]) -> Judgement:
    """A failure is told by one event, the last."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for exchange in account.exchanges:
                if _is_stream(exchange):
                    for judgement in _failures(_Told.of(exchange)):
                        yield replace(judgement, scenarios=(account.scenario,))

    return settle(find(), evidence, "no stream of events could be made to fail")


def _failures(told: _Told) -> Iterator[Judgement]:
    legal = "one `error` event with a registered code, the last of the body, which ends cleanly"
    advice = (
        "When speaking fails, or the time of a shutdown is over, send `error` and end the body."
    )
    exchange, stream = told.exchange, told.stream
    if _broken(stream):
        return
    names = [event.name for event in stream.events]
    if "error" not in names:
        if exchange.clean is False and _END not in names:
            reason = "The body was cut off, and no event had told why."
            yield _fail(exchange, reason, legal, advice, stream.events[-1] if names else None)
        elif exchange.clean and _SHUTDOWN in exchange.notes and _END in names:
            yield not_exercised("The endpoint finished the long request in spite of the shutdown.")
        elif exchange.clean and _SHUTDOWN in exchange.notes:
            reason = "A shutdown cut the audio short, and no event told of it."
            yield _fail(exchange, reason, legal, advice, stream.events[-1] if names else None)
        return
    if _END in names[: names.index("error")]:
        return
    event = stream.events[names.index("error")]
    fields = event.fields or {}
    after = stream.events[names.index("error") + 1 :]
    reason = _amiss(told, event, fields)
    if after:
        reason, event = f"`{after[0].name}` came after `error`.", after[0]
    elif not reason and fields.get("code") not in ERROR_CODES:
        reason = f"The code {fields.get('code')!r} is not in the registry."
    elif not reason and exchange.clean is False:
        reason = "After the `error` event the body was cut off, as if it were not told."
    if reason:
        yield _fail(exchange, reason, legal, advice, event)
    elif exchange.clean:
        yield passed()
