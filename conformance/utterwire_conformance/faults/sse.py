"""Faults in server-sent events."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from utterwire_conformance.client_message import read_client_message
from utterwire_conformance.event_stream import Event, names_events, read_events
from utterwire_conformance.proxy import ExchangeTamper, Head, Request, Shared, rewritten

from .catalogue import Catalogue

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_MEDIUM: Final = "text/event-stream"
_START: Final = "audio_stream_start"
_CHUNK: Final = "audio_chunk"
_END: Final = "audio_stream_end"
_MAKING_S: Final = 4
_LONG_BYTES: Final = 500
_Breaks: TypeAlias = str | tuple[str, ...]


def _accept(request: Request) -> str:
    return ", ".join(value for name, value in request.headers if name.lower() == "accept")


def _written(name: str, fields: Any, *, encoding: str = "utf-8") -> bytes:
    data = json.dumps(fields, ensure_ascii=False)
    return f"event: {name}\ndata: {data}\n\n".encode(encoding, "replace")


# --- Asking for events ---------------------------------------------------------------------------


class _Accepts(ExchangeTamper):
    """Has the endpoint see another `Accept` where `when` picks the one that came."""

    def __init__(self, shared: Shared, when: Callable[[str], bool], seen: str | None) -> None:
        super().__init__(shared)
        self._when = when
        self._seen = seen

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if not self._when(_accept(request)):
            return request
        kept = tuple((key, value) for key, value in request.headers if key.lower() != "accept")
        more = (("Accept", self._seen),) if self._seen is not None else ()
        return replace(request, headers=(*kept, *more))


def _sees(name: str, explanation: str, when: Callable[[str], bool], seen: str | None) -> None:
    FAULTS.add(
        name, explanation, "sse.content-type", exchange=partial(_Accepts, when=when, seen=seen)
    )


_sees("sse-never", "`Accept` is not looked at: audio comes raw.", names_events, None)
_sees(
    "sse-for-everything",
    "`Accept: */*` is answered by events.",
    lambda accept: accept == "*/*",
    _MEDIUM,
)
_sees(
    "sse-for-all-text",
    "`Accept: text/*` is answered by events.",
    lambda accept: accept == "text/*",
    _MEDIUM,
)
_sees(
    "sse-without-weight",
    "A weight of 0 in `Accept` is passed over.",
    lambda accept: _MEDIUM in accept and not names_events(accept),
    _MEDIUM,
)
_sees(
    "sse-in-small-letters-alone",
    "`Accept` is compared letter by letter.",
    lambda accept: names_events(accept) and _MEDIUM not in accept,
    None,
)
_sees(
    "sse-not-in-a-list",
    "An `Accept` that names more than events is not understood.",
    lambda accept: names_events(accept) and "," in accept,
    None,
)
_sees(
    "sse-by-prefix",
    "`Accept` is searched for the name of events, wherever it stands.",
    lambda accept: "text/event-streams" in accept,
    _MEDIUM,
)


class _Heads(ExchangeTamper):
    """Answers in events under another content type."""

    def head(self, request: Request, head: Head) -> Head:
        if (head.get("Content-Type") or "").startswith(_MEDIUM):
            return head.having("Content-Type", "text/plain")
        return head


FAULTS.add("sse-as-plain-text", "Events come as `text/plain`.", "sse.content-type", exchange=_Heads)


class _RefusesByEvent(ExchangeTamper):
    """Answers 200 and tells a refusal by an event."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._parts: list[bytes] | None = None

    def head(self, request: Request, head: Head) -> Head:
        if head.status < 400 or not names_events(_accept(request)):
            return head
        self._parts = []
        return Head(200, (("Content-Type", _MEDIUM),))

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if self._parts is None:
            return [data]
        self._parts.append(data)
        return []

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        if self._parts is None:
            return b"", clean
        try:
            fields = json.loads(b"".join(self._parts))
        except ValueError:
            fields = {"code": "internal", "message": "No."}
        kept = {name: fields[name] for name in ("request_id", "code", "message") if name in fields}
        return _written("error", kept), clean


FAULTS.add(
    "sse-refuses-by-event",
    "An invalid request is answered 200, and an event tells that it was refused.",
    "sse.refusal",
    exchange=_RefusesByEvent,
)


class _Forgives(ExchangeTamper):
    """Has an invalid request for events served."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if not names_events(_accept(request)):
            return request
        try:
            fields = json.loads(request.body)
        except (ValueError, RecursionError):
            return request
        if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
            return request
        kept = {name: value for name, value in fields.items() if name != "stream"}
        return replace(request, body=rewritten(kept))


FAULTS.add(
    "sse-stream-unchecked",
    "Whatever `stream` holds, a request for events is served.",
    "sse.refusal",
    exchange=_Forgives,
)


class _CutsText(ExchangeTamper):
    """Speaks the first twenty code points of a text that is asked for in events."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        meaning = read_client_message(request.body)
        if not names_events(_accept(request)) or meaning.verdict == "reject":
            return request
        text = meaning.text[:20]
        return replace(request, body=rewritten({**meaning.fields, "text": text}))


FAULTS.add(
    "sse-text-cut-at-twenty",
    "In events only the first twenty code points of a text are spoken.",
    "audio.speaks-text",
    exchange=_CutsText,
)

# --- Events --------------------------------------------------------------------------------------

_Rewrite: TypeAlias = Callable[[str, dict[str, Any], int], Iterable[bytes] | None]


class _Events(ExchangeTamper):
    """Sends what `rewrite` makes of each event, given its name, its fields and how many events
    came before it; None leaves it as it is."""

    def __init__(self, shared: Shared, rewrite: _Rewrite) -> None:
        super().__init__(shared)
        self._rewrite = rewrite
        self._buffer: bytes | None = None
        self._count = 0

    def head(self, request: Request, head: Head) -> Head:
        if (head.get("Content-Type") or "").startswith(_MEDIUM):
            self._buffer = b""
        return head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if self._buffer is None:
            return [data]
        *whole, self._buffer = (self._buffer + data).split(b"\n\n")
        return [piece for block in whole for piece in self._one(block + b"\n\n")]

    def _one(self, block: bytes) -> Iterable[bytes]:
        events: tuple[Event, ...] = read_events(block).events
        if not events or events[0].fields is None:
            return [block]
        changed = self._rewrite(events[0].name, events[0].fields, self._count)
        self._count += 1
        return [block] if changed is None else changed

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return self._buffer or b"", clean


def _events(name: str, explanation: str, breaks: _Breaks, rewrite: _Rewrite) -> None:
    FAULTS.add(name, explanation, breaks, exchange=partial(_Events, rewrite=rewrite))


def _on(wanted: str, change: Callable[[dict[str, Any]], Iterable[bytes]]) -> _Rewrite:
    return lambda name, fields, _: change(fields) if name == wanted else None


def _setting(wanted: str, **changes: Any) -> _Rewrite:
    """Set fields of each event of a name, by what they were if the value can be called."""

    def rewrite(fields: dict[str, Any]) -> Iterable[bytes]:
        told = dict(fields)
        for key, value in changes.items():
            told[key] = value(fields.get(key)) if callable(value) else value
            if value is ...:
                del told[key]
        return [_written(wanted, told)]

    return _on(wanted, rewrite)


_events(
    "sse-start-missing",
    "`audio_stream_start` is not sent.",
    "sse.start",
    _on(_START, lambda _: []),
)
_events(
    "sse-start-twice",
    "`audio_stream_start` is sent twice.",
    "sse.start",
    _on(_START, lambda fields: [_written(_START, fields)] * 2),
)
_events(
    "sse-start-rate-untrue",
    "`audio_stream_start` names another sample rate.",
    ("sse.start", "sse.end"),
    _setting(_START, sample_rate=22_050),
)
_events(
    "sse-start-voice-untrue",
    "`audio_stream_start` always names the same voice.",
    "sse.start",
    _setting(_START, voice="somebody"),
)
_events(
    "sse-start-without-format",
    "`audio_stream_start` does not name the format.",
    "sse.start",
    lambda name, fields, _: (
        [_written(name, {k: v for k, v in fields.items() if k != "format"})]
        if name == _START
        else None
    ),
)


class _Remembers(_Events):
    """Gives `rewrite` a memory of its own for each stream."""

    def __init__(self, shared: Shared, remembering: Callable[[dict[str, Any]], _Rewrite]) -> None:
        super().__init__(shared, remembering({}))


def _remembering(
    name: str,
    explanation: str,
    breaks: _Breaks,
    remembering: Callable[[dict[str, Any]], _Rewrite],
) -> None:
    FAULTS.add(name, explanation, breaks, exchange=partial(_Remembers, remembering=remembering))


def _late_start(memory: dict[str, Any]) -> _Rewrite:
    def rewrite(name: str, fields: dict[str, Any], _: int) -> Iterable[bytes] | None:
        if name == _START:
            memory["start"] = _written(name, fields)
            return []
        start = memory.pop("start", b"")
        return (
            [_written(name, fields), start] if name == _CHUNK else [start, _written(name, fields)]
        )

    return rewrite


_remembering(
    "sse-start-late",
    "`audio_stream_start` comes behind the first chunk.",
    "sse.start",
    _late_start,
)


def _lacks_id(wanted: str) -> _Rewrite:
    return _on(
        wanted,
        lambda fields: [_written(wanted, {k: v for k, v in fields.items() if k != "request_id"})],
    )


for _event, _requirement in ((_START, "sse.start"), (_CHUNK, "sse.chunks"), (_END, "sse.end")):
    _events(
        f"sse-{_event.replace('_', '-')}-without-id",
        f"`{_event}` does not carry the `request_id`.",
        _requirement,
        _lacks_id(_event),
    )

# --- Chunks --------------------------------------------------------------------------------------

_events(
    "sse-seq-from-one",
    "Chunks are numbered from 1.",
    "sse.chunks",
    _setting(_CHUNK, seq=lambda seq: seq + 1),
)
_events(
    "sse-seq-skips",
    "Every third number of a chunk is left out.",
    "sse.chunks",
    _setting(_CHUNK, seq=lambda seq: seq + seq // 2),
)
_events(
    "sse-seq-as-text",
    "The number of a chunk is a string.",
    "sse.chunks",
    _setting(_CHUNK, seq=str),
)
_events(
    "sse-base64-of-urls",
    "Audio is in the base64 of URLs, with - and _.",
    "sse.chunks",
    _setting(_CHUNK, data=lambda data: data.replace("+", "-").replace("/", "_")),
)
_events(
    "sse-base64-without-padding",
    "Base64 comes without its padding.",
    "sse.chunks",
    _setting(_CHUNK, data=lambda data: data.rstrip("=")),
)
_events(
    "sse-base64-in-lines",
    "Base64 is broken into lines of 76 characters.",
    "sse.chunks",
    _setting(_CHUNK, data=lambda data: base64.encodebytes(base64.b64decode(data)).decode()),
)
_events(
    "sse-chunks-in-hex",
    "Audio is in hexadecimal, with a colon in front.",
    "sse.chunks",
    _setting(_CHUNK, data=lambda data: f":{base64.b64decode(data).hex()}"),
)


def _split_sample(memory: dict[str, Any]) -> _Rewrite:
    """Cut each chunk one byte short; that byte leads the next."""

    def rewrite(name: str, fields: dict[str, Any], _: int) -> Iterable[bytes] | None:
        carry = memory.pop("carry", b"")
        if name == _CHUNK:
            audio = carry + base64.b64decode(fields["data"])
            cut = len(audio) - 1 + len(audio) % 2
            memory["carry"] = audio[cut:]
            memory["last"] = fields
            data = base64.b64encode(audio[:cut]).decode()
            return [_written(name, fields | {"data": data})]
        if name == _END and carry:
            last = memory["last"]
            seq = last["seq"] + 1
            rest = last | {"seq": seq, "data": base64.b64encode(carry).decode()}
            total = fields["total_chunks"] + 1
            return [_written(_CHUNK, rest), _written(_END, fields | {"total_chunks": total})]
        return None

    return rewrite


_remembering(
    "sse-samples-split",
    "Chunks end in the middle of a sample.",
    "sse.chunks",
    _split_sample,
)


def _empty_first(memory: dict[str, Any]) -> _Rewrite:
    def rewrite(name: str, fields: dict[str, Any], _: int) -> Iterable[bytes] | None:
        if name == _CHUNK:
            later = _written(name, fields | {"seq": fields["seq"] + 1})
            if "begun" in memory:
                return [later]
            memory["begun"] = True
            return [_written(name, fields | {"data": ""}), later]
        if name == _END and "begun" in memory:
            return [_written(name, fields | {"total_chunks": fields["total_chunks"] + 1})]
        return None

    return rewrite


_remembering(
    "sse-chunk-empty",
    "The first chunk holds no audio.",
    "sse.chunks",
    _empty_first,
)

# --- The end -------------------------------------------------------------------------------------

_events("sse-end-missing", "`audio_stream_end` is not sent.", "sse.end", _on(_END, lambda _: []))
_events(
    "sse-end-twice",
    "`audio_stream_end` is sent twice.",
    "sse.end",
    _on(_END, lambda fields: [_written(_END, fields)] * 2),
)
_events(
    "sse-total-one-short",
    "`total_chunks` is one too small.",
    "sse.end",
    _setting(_END, total_chunks=lambda total: max(0, total - 1)),
)
_events(
    "sse-duration-in-milliseconds",
    "`duration_s` is given in milliseconds.",
    "sse.end",
    _setting(_END, duration_s=lambda seconds: seconds * 1000),
)


def _lost_chunk(memory: dict[str, Any]) -> _Rewrite:
    """Drop the second chunk and close the gap in the numbers."""

    def rewrite(name: str, fields: dict[str, Any], _: int) -> Iterable[bytes] | None:
        if name != _CHUNK or fields["seq"] == 0:
            return None
        return [] if fields["seq"] == 1 else [_written(name, fields | {"seq": fields["seq"] - 1})]

    return rewrite


_remembering("sse-chunk-lost", "One chunk is lost on the way.", "sse.end", _lost_chunk)


def _early_end(memory: dict[str, Any]) -> _Rewrite:
    """Hold each chunk until the next event, so that the end overtakes the last one."""

    def rewrite(name: str, fields: dict[str, Any], _: int) -> Iterable[bytes] | None:
        if name == _CHUNK:
            before = memory.pop("held", b"")
            memory["held"] = _written(name, fields)
            return [before]
        if name == _END:
            return [_written(name, fields), memory.pop("held", b"")]
        return None

    return rewrite


_remembering("sse-end-early", "The end overtakes the last chunk.", "sse.end", _early_end)


class _AtOnce(ExchangeTamper):
    """Sends the events of a long text when all of them are there, and that some time later."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._parts: list[bytes] | None = None

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        # A tamper that is not asked for the request is not shown its body.
        return request

    def head(self, request: Request, head: Head) -> Head:
        is_long = len(request.body) > _LONG_BYTES
        if is_long and (head.get("Content-Type") or "").startswith(_MEDIUM):
            self._parts = []
        return head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if self._parts is None:
            return [data]
        self._parts.append(data)
        # A comment each second: who waits for events is not to take this for a standstill.
        return [b":\n\n", 1.0] * _MAKING_S if len(self._parts) == 1 else []

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return b"".join(self._parts or []), clean


FAULTS.add(
    "sse-all-at-once",
    "Of a long text no event leaves before all of the audio is made.",
    "sse.streamed",
    exchange=_AtOnce,
)

# --- Failures ------------------------------------------------------------------------------------


class _CutsFailures(_Events):
    """Cuts the body off where an event would tell of a failure."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared, lambda name, *_: self._cut() if name == "error" else None)
        self._failed = False

    def _cut(self) -> list[bytes]:
        self._failed = True
        return []

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return b"", clean and not self._failed


FAULTS.add(
    "sse-failure-cut-off",
    "After a failure the body is cut off without an event.",
    "sse.error",
    exchange=_CutsFailures,
)
_events(
    "sse-failure-ends-quietly",
    "After a failure the body ends as if nothing had happened.",
    ("sse.error", "sse.end"),
    _on("error", lambda _: []),
)
_events(
    "sse-failure-code-unknown",
    "The code of a failure is not in the registry.",
    "sse.error",
    _setting("error", code="oops"),
)
_events(
    "sse-goes-on-after-error",
    "After a failure was told the stream still has an end.",
    "sse.error",
    _on(
        "error",
        lambda fields: [
            _written("error", fields),
            _written(_END, {"total_chunks": 0, "duration_s": 0}),
        ],
    ),
)

# --- How events are written ----------------------------------------------------------------------


def _raw(wanted: str, write: Callable[[dict[str, Any]], bytes]) -> _Rewrite:
    return _on(wanted, lambda fields: [write(fields)])


_WRITTEN: Final[tuple[tuple[str, str, _Rewrite], ...]] = (
    (
        "sse-without-names",
        "Chunks have no `event` line.",
        _raw(_CHUNK, lambda fields: b"data: " + json.dumps(fields).encode() + b"\n\n"),
    ),
    (
        "sse-run-together",
        "No blank line stands between the start and the first chunk.",
        _raw(_START, lambda fields: _written(_START, fields)[:-1]),
    ),
    (
        "sse-last-event-unended",
        "The last event is not ended by a blank line.",
        _raw(_END, lambda fields: _written(_END, fields)[:-1]),
    ),
    (
        "sse-data-in-an-array",
        "The data of an event is an array with one object.",
        lambda name, fields, _: [_written(name, [fields])],
    ),
    (
        "sse-end-without-data",
        "The end has no data.",
        _raw(_END, lambda _: b"event: audio_stream_end\n\n"),
    ),
    (
        "sse-done-in-words",
        "The stream is closed by `data: [DONE]`, as some others are.",
        _on(_END, lambda fields: [_written(_END, fields), b"data: [DONE]\n\n"]),
    ),
    (
        "sse-in-latin-1",
        "Events are written in Latin-1.",
        lambda name, fields, _: [_written(name, fields, encoding="latin-1")],
    ),
    (
        "sse-json-in-lines",
        "JSON is written in several lines, of which only the first is data.",
        _raw(
            _START,
            lambda fields: f"event: {_START}\ndata: {json.dumps(fields, indent=1)}\n\n".encode(),
        ),
    ),
)
for _name, _explanation, _rewrite in _WRITTEN:
    _events(_name, _explanation, "sse.whole-events", _rewrite)
