"""Faults in the binding to HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from utterwire_conformance.client_message import Meaning, read_client_message
from utterwire_conformance.event_stream import names_events
from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ExchangeTamper,
    Head,
    Request,
    SessionTamper,
    Shared,
    Tap,
    rewritten,
)

from .catalogue import Catalogue
from .rewriting import SAFE_TEXT

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_RequestTest: TypeAlias = Callable[[Request], bool]
_HeadChange: TypeAlias = Callable[[Request, Head], Head]
_JSON: Final = "application/json"
_KNOWN_FIELDS: Final = frozenset(
    {"type", "text", "voice", "speed", "sample_rate", "format", "request_id", "stream"}
)


def _is_speech(request: Request) -> bool:
    """Whether it asks for speech, and not in events: these have faults of their own."""
    accept = ", ".join(value for name, value in request.headers if name.lower() == "accept")
    asks = request.path.endswith("/invocations") and request.method == "POST"
    return asks and not names_events(accept)


def _is_ping(request: Request) -> bool:
    return request.path.endswith("/ping")


def _meaning(request: Request) -> Meaning:
    return read_client_message(request.body)


def _is_valid(request: Request) -> bool:
    meaning = _meaning(request)
    stream = meaning.fields.get("stream")
    return (
        _is_speech(request)
        and meaning.type == "synthesize"
        and meaning.verdict != "reject"
        and isinstance(stream, bool | None)
    )


def _is_whole(request: Request) -> bool:
    return _is_speech(request) and _meaning(request).fields.get("stream") is False


def _header(request: Request, name: str) -> str:
    return next((value for key, value in request.headers if key.lower() == name), "")


class _Changes(ExchangeTamper):
    """Gives the endpoint another request for each that `when` picks."""

    def __init__(
        self, shared: Shared, when: _RequestTest, body: Callable[[Request], bytes]
    ) -> None:
        super().__init__(shared)
        self._when = when
        self._body = body

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if not self._when(request):
            return request
        return Request(request.method, request.target, request.headers, self._body(request))


class _Answers(ExchangeTamper):
    """Answers each request that `when` picks in the endpoint's place."""

    def __init__(self, shared: Shared, when: _RequestTest, head: Head, body: bytes = b"") -> None:
        super().__init__(shared)
        self._when = when
        self._head = head
        self._body = body

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        return (self._head, self._body) if self._when(request) else request


class _Heads(ExchangeTamper):
    """Changes status and headers of each response."""

    def __init__(self, shared: Shared, change: _HeadChange) -> None:
        super().__init__(shared)
        self._change = change

    def head(self, request: Request, head: Head) -> Head:
        return self._change(request, head)


def _answers(
    name: str,
    explanation: str,
    breaks: str | tuple[str, ...],
    when: _RequestTest,
    head: Head,
    body: bytes = b"",
) -> None:
    FAULTS.add(
        name, explanation, breaks, exchange=partial(_Answers, when=when, head=head, body=body)
    )


def _changes(
    name: str,
    explanation: str,
    breaks: str,
    when: _RequestTest,
    body: Callable[[Request], bytes],
) -> None:
    FAULTS.add(name, explanation, breaks, exchange=partial(_Changes, when=when, body=body))


def _heads(name: str, explanation: str, breaks: str, change: _HeadChange) -> None:
    FAULTS.add(name, explanation, breaks, exchange=partial(_Heads, change=change))


def _on_audio(change: Callable[[Head], Head]) -> _HeadChange:
    return lambda request, head: (
        change(head) if _is_speech(request) and head.status == 200 else head
    )


def _lacking(name: str) -> Callable[[Head], Head]:
    return lambda head: head.without(name)


def _on_error(change: Callable[[Head], Head]) -> _HeadChange:
    return lambda request, head: (
        change(head) if _is_speech(request) and head.status >= 400 else head
    )


def _with_fields(request: Request, **fields: Any) -> bytes:
    kept = {**_meaning(request).fields, **fields}
    return rewritten({name: value for name, value in kept.items() if value is not ...})


def _error(code: str) -> bytes:
    fields = {"type": "error", "code": code, "message": "No.", "retryable": False, "rejected": True}
    return json.dumps(fields).encode()


def _error_head(status: int) -> Head:
    return Head(status, (("Content-Type", _JSON),))


# --- Audio ---------------------------------------------------------------------------------------


_answers(
    "http-not-found",
    "There is nothing at `/invocations`.",
    "http.streams",
    _is_speech,
    Head(404),
)


class _RiffBody(ExchangeTamper):
    """Puts a RIFF header before the audio."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._first = False

    def head(self, request: Request, head: Head) -> Head:
        self._first = _is_speech(request) and head.status == 200 and not _is_whole(request)
        return head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        first, self._first = self._first, False
        return [b"RIFF\xff\xff\xff\xffWAVEfmt " + bytes(28) + data] if first else [data]


FAULTS.add(
    "http-audio-with-header",
    "The streamed audio begins with a RIFF header.",
    "http.streams",
    exchange=_RiffBody,
)


class _OddBody(ExchangeTamper):
    """Ends the audio in the middle of a sample."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._cut = False

    def head(self, request: Request, head: Head) -> Head:
        self._cut = _is_speech(request) and head.status == 200 and not _is_whole(request)
        return head

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return (b"\0" if self._cut else b""), clean


FAULTS.add(
    "http-audio-of-odd-length",
    "The streamed audio ends in the middle of a sample.",
    "http.streams",
    exchange=_OddBody,
)
_changes(
    "http-never-streams",
    "With `stream` true the audio still comes whole, with a `Content-Length`.",
    "http.streams",
    lambda request: _is_valid(request) and not _is_whole(request),
    lambda request: _with_fields(request, stream=False),
)
_changes(
    "http-always-streams",
    'With `"stream": false` the audio still comes in chunks.',
    "http.whole",
    _is_whole,
    lambda request: _with_fields(request, stream=...),
)


class _WholeDiffers(ExchangeTamper):
    """Says other words where the audio is to come whole."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if not _is_whole(request) or not _is_valid(request):
            return request
        text = f"{_meaning(request).text} {SAFE_TEXT}"
        body = _with_fields(request, text=text)
        return Request(request.method, request.target, request.headers, body)


FAULTS.add(
    "http-whole-headers-untrue",
    "The headers of a whole body tell the values of another text.",
    "http.whole-headers",
    exchange=_WholeDiffers,
)
for _short in ("Duration-S", "Audio-Bytes", "Characters"):
    _heads(
        f"http-without-{_short.lower()}",
        f"A whole body comes without `Utterwire-{_short}`.",
        "http.whole-headers",
        _on_audio(_lacking(f"Utterwire-{_short}")),
    )
_heads(
    "http-duration-in-milliseconds",
    "`Utterwire-Duration-S` is given in milliseconds.",
    "http.whole-headers",
    _on_audio(
        lambda head: (
            head.having(
                "Utterwire-Duration-S", str(1000 * float(head.get("Utterwire-Duration-S") or 0))
            )
            if head.get("Utterwire-Duration-S")
            else head
        )
    ),
)
_heads(
    "http-audio-as-octets",
    "Audio comes as `application/octet-stream`.",
    "http.content-type",
    _on_audio(lambda head: head.having("Content-Type", "application/octet-stream")),
)
_heads(
    "http-content-type-without-rate",
    "The `Content-Type` of PCM does not name the rate.",
    "http.content-type",
    _on_audio(lambda head: head.having("Content-Type", "audio/pcm")),
)
for _short in ("Sample-Rate", "Format", "Voice", "Request-Id"):
    _heads(
        f"http-without-{_short.lower()}",
        f"Audio comes without the header `Utterwire-{_short}`.",
        "http.headers",
        _on_audio(_lacking(f"Utterwire-{_short}")),
    )
_heads(
    "http-rate-untrue",
    "`Utterwire-Sample-Rate` names another rate.",
    "http.headers",
    _on_audio(lambda head: head.having("Utterwire-Sample-Rate", "22050")),
)
_heads(
    "http-request-id-untrue",
    "`Utterwire-Request-Id` is not the id of the request.",
    "http.headers",
    _on_audio(
        lambda head: (
            head.having("Utterwire-Request-Id", "another")
            if head.get("Utterwire-Request-Id") is not None
            else head
        )
    ),
)

# --- Requests ------------------------------------------------------------------------------------

_answers(
    "http-content-type-demanded",
    "A request whose `Content-Type` is not `application/json` is refused with 415.",
    "http.request-content-type",
    lambda request: _is_speech(request) and not _header(request, "content-type").startswith(_JSON),
    _error_head(415),
    _error("invalid_request"),
)
_changes(
    "http-invalid-accepted",
    "Requests that should be rejected are served.",
    "http.same-validation",
    lambda request: _is_speech(request) and _meaning(request).verdict == "reject",
    lambda _: json.dumps({"text": SAFE_TEXT}).encode(),
)
_changes(
    "http-nan-accepted",
    "NaN and infinities are taken for numbers.",
    "http.same-validation",
    lambda request: (
        _is_speech(request)
        and any(word in request.body for word in (b"NaN", b"Infinity"))
        and _meaning(request).codes == {"invalid_json"}
    ),
    lambda _: json.dumps({"text": SAFE_TEXT}).encode(),
)
_changes(
    "http-unknown-voices-accepted",
    "A voice, format or rate that does not exist is taken for the default.",
    "http.same-validation",
    lambda request: _is_valid(request) and _meaning(request).verdict == "either",
    lambda request: _with_fields(request, voice=..., format=..., sample_rate=..., speed=...),
)
_answers(
    "http-unknown-fields-refused",
    "Requests with a field that is unknown or null are refused.",
    "http.same-validation",
    lambda request: (
        _is_valid(request)
        and (
            None in _meaning(request).fields.values()
            or bool(
                _meaning(request).fields.keys()
                - {
                    "type",
                    "text",
                    "voice",
                    "speed",
                    "sample_rate",
                    "format",
                    "request_id",
                    "stream",
                }
            )
        )
    ),
    _error_head(400),
    _error("invalid_request"),
)
_changes(
    "http-stream-of-any-type",
    "A `stream` that is no boolean is taken for true or false.",
    "http.stream-type",
    lambda request: (
        _is_speech(request) and not isinstance(_meaning(request).fields.get("stream"), bool | None)
    ),
    lambda request: _with_fields(request, stream=True),
)
_changes(
    "http-any-type",
    "A message of any `type` is taken for a request to speak.",
    "http.unknown-type",
    lambda request: (
        _is_speech(request) and _meaning(request).fields.get("type") not in (None, "synthesize")
    ),
    lambda request: _with_fields(request, type=..., text=_meaning(request).text or SAFE_TEXT),
)


def _is_unspeakable(request: Request) -> bool:
    text = _meaning(request).text
    return _is_valid(request) and not any(letter.isalnum() for letter in text)


_answers(
    "http-unspeakable-refused",
    "Text with nothing to speak is refused.",
    "http.unspeakable",
    _is_unspeakable,
    _error_head(400),
    _error("empty_text"),
)
_changes(
    "http-unspeakable-spoken",
    "Text with nothing to speak is spoken all the same.",
    "http.unspeakable",
    _is_unspeakable,
    lambda request: _with_fields(request, text=SAFE_TEXT),
)

_answers(
    "http-unspeakable-as-204",
    "Text with nothing to speak is answered 204.",
    "http.unspeakable",
    _is_unspeakable,
    Head(204),
)
_answers(
    "http-unspeakable-as-silence",
    "Text with nothing to speak is answered by a second of silence.",
    "http.unspeakable",
    _is_unspeakable,
    Head(
        200,
        (
            ("Content-Type", "audio/pcm;rate=24000;channels=1"),
            ("Utterwire-Sample-Rate", "24000"),
            ("Utterwire-Format", "pcm_s16le"),
            ("Utterwire-Voice", "v"),
        ),
    ),
    bytes(48_000),
)
_changes(
    "http-text-cut-at-twenty",
    "Over HTTP only the first twenty code points of a text are spoken.",
    "http.whole-headers",
    _is_valid,
    lambda request: _with_fields(request, text=_meaning(request).text[:20]),
)
_heads(
    "http-request-id-unencoded",
    "`Utterwire-Request-Id` is not percent-encoded.",
    "http.headers",
    _on_audio(
        lambda head: (
            head.having(
                "Utterwire-Request-Id",
                unquote(head.get("Utterwire-Request-Id") or "", "latin-1").replace("\n", " "),
            )
            if head.get("Utterwire-Request-Id") is not None
            else head
        )
    ),
)

# --- Errors --------------------------------------------------------------------------------------

_heads(
    "http-errors-as-200",
    "A refusal comes with the status 200.",
    "http.status",
    lambda request, head: (
        Head(200, head.headers) if _is_speech(request) and head.status >= 400 else head
    ),
)
_heads(
    "http-errors-as-500",
    "A refusal comes with the status 500.",
    "http.status",
    _on_error(lambda head: Head(500, head.headers)),
)
_heads(
    "http-errors-as-422",
    "A refusal comes with the status 422.",
    "http.status",
    _on_error(lambda head: Head(422, head.headers) if head.status == 400 else head),
)


class _ErrorBodies(ExchangeTamper):
    """Changes the body of each refusal."""

    def __init__(self, shared: Shared, change: Callable[[bytes], bytes]) -> None:
        super().__init__(shared)
        self._change = change
        self._parts: list[bytes] | None = None

    def head(self, request: Request, head: Head) -> Head:
        if not _is_speech(request) or head.status < 400:
            return head
        self._parts = []
        return head.without("Content-Length")

    def body(self, data: bytes) -> Iterable[bytes | float]:
        if self._parts is None:
            return [data]
        self._parts.append(data)
        return []

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return (b"" if self._parts is None else self._change(b"".join(self._parts))), clean


def _without(*names: str) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        try:
            fields = json.loads(body)
        except ValueError:
            return body
        return json.dumps({key: fields[key] for key in fields if key not in names}).encode()

    return change


FAULTS.add(
    "http-errors-in-html",
    "The body of a refusal is a page for people.",
    "http.error-body",
    exchange=partial(_ErrorBodies, change=lambda _: b"<html><h1>Bad Request</h1></html>"),
)
FAULTS.add(
    "http-errors-without-code",
    "The body of a refusal has no `code`.",
    "http.error-body",
    exchange=partial(_ErrorBodies, change=_without("code")),
)
FAULTS.add(
    "http-errors-unmarked",
    "The body of a refusal does not say `rejected`.",
    "http.error-body",
    exchange=partial(_ErrorBodies, change=_without("rejected")),
)
FAULTS.add(
    "http-errors-without-request-id",
    "The body of a refusal does not echo the `request_id`.",
    "http.error-body",
    exchange=partial(_ErrorBodies, change=_without("request_id")),
)
FAULTS.add(
    "http-errors-without-message",
    "The body of a refusal has no `message`.",
    "http.error-body",
    exchange=partial(_ErrorBodies, change=_without("message")),
)
FAULTS.add(
    "http-errors-called-internal",
    "The body of a refusal has the code `internal`, whatever the status.",
    ("http.status", "http.same-validation"),
    exchange=partial(_ErrorBodies, change=lambda body: _recoded(body, "internal")),
)
_heads(
    "http-errors-as-text",
    "The body of a refusal comes as `text/plain`.",
    "http.error-body",
    _on_error(lambda head: head.having("Content-Type", "text/plain")),
)
_heads(
    "http-503-without-retry-after",
    "A 503 does not say when to try again.",
    "http.retry-after",
    lambda _, head: head.without("Retry-After") if head.status == 503 else head,
)
_answers(
    "http-always-busy",
    "Requests are refused with 503, which does not say when to try again.",
    "http.retry-after",
    _is_speech,
    _error_head(503),
    _error("overloaded"),
)


def _recoded(body: bytes, code: str) -> bytes:
    try:
        return json.dumps({**json.loads(body), "code": code, "retryable": True}).encode()
    except ValueError:
        return body


class _CleanEnd(ExchangeTamper):
    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return b"", True


FAULTS.add(
    "http-failure-ends-cleanly",
    "Audio that broke off ends as if it were whole.",
    "http.abort",
    exchange=_CleanEnd,
)
_answers(
    "http-big-bodies-as-400",
    "A body beyond the limit is answered 400.",
    "http.body-limit",
    lambda request: _is_speech(request) and len(request.body) > 65_536,
    _error_head(400),
    _error("invalid_request"),
)
_changes(
    "http-big-bodies-served",
    "A body beyond the limit is served.",
    "http.body-limit",
    lambda request: _is_speech(request) and len(request.body) > 65_536,
    lambda _: json.dumps({"text": SAFE_TEXT}).encode(),
)
_answers(
    "http-get-not-found",
    "`GET /invocations` answers 404.",
    "http.method",
    lambda request: request.path.endswith("/invocations") and request.method == "GET",
    Head(404),
)
_answers(
    "http-get-is-served",
    "`GET /invocations` answers 200.",
    "http.method",
    lambda request: request.path.endswith("/invocations") and request.method != "POST",
    Head(200),
)
_heads(
    "http-405-without-allow",
    "A 405 does not say what is allowed.",
    "http.method",
    lambda _, head: head.without("Allow") if head.status == 405 else head,
)


class _FailsAfterRejection(ExchangeTamper):
    """Answers 500 to all that comes after a request that was refused."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if _is_speech(request) and self.shared.notes.get("broken"):
            return _error_head(500), _error("internal")
        return request

    def head(self, request: Request, head: Head) -> Head:
        if _is_speech(request) and head.status >= 400:
            self.shared.notes["broken"] = True
        return head


class _WearsOut(ExchangeTamper):
    """Answers 500 to every valid request that comes after so many that were refused."""

    _MOST: Final = 40

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        worn = self.shared.notes.get("refused", 0) > self._MOST
        if worn and _is_valid(request):
            return _error_head(500), _error("internal")
        return request

    def head(self, request: Request, head: Head) -> Head:
        if _is_speech(request) and head.status >= 400:
            self.shared.notes["refused"] = self.shared.notes.get("refused", 0) + 1
        return head


FAULTS.add(
    "http-worn-out-by-rejections",
    "After forty requests were refused every valid one fails with 500.",
    "http.survives",
    exchange=_WearsOut,
)
FAULTS.add(
    "http-breaks-after-rejection",
    "After a request was refused every other fails with 500.",
    "http.survives",
    exchange=_FailsAfterRejection,
)


class _NextExchange(ExchangeTamper):
    """Does something to each exchange of a connection but its first."""

    def __init__(self, shared: Shared, held_s: float) -> None:
        super().__init__(shared)
        self._held_s = held_s

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if self.turn > 1 and not self._held_s:
            return Head(400, (("Content-Type", "text/plain"),)), b"what is left of the last body"
        return request

    def passed_after(self, request: Request) -> float:
        return self._held_s if self.turn > 1 else 0.0


FAULTS.add(
    "http-next-exchange-hangs",
    "The second request of a connection is not answered.",
    "http.persistent",
    exchange=partial(_NextExchange, held_s=60.0),
)
FAULTS.add(
    "http-next-exchange-malformed",
    "The second request of a connection is taken for malformed.",
    "http.persistent",
    exchange=partial(_NextExchange, held_s=0.0),
)

_answers(
    "http-a-page-for-everything",
    "Whatever is asked for, a page for people comes, with the status 200.",
    ("http.streams", "http.whole", "http.request-content-type", "http.survives"),
    _is_speech,
    Head(200, (("Content-Type", "text/html"),)),
    b"<html><h1>Welcome</h1></html>",
)

# --- Ping ----------------------------------------------------------------------------------------

_answers(
    "http-ping-not-found",
    "There is nothing at `/ping`.",
    "http.ping",
    lambda request: _is_ping(request) and request.method == "GET",
    Head(404),
)
_answers(
    "http-ping-never-ready",
    "`GET /ping` answers 503 though the endpoint is ready.",
    "http.ping",
    lambda request: _is_ping(request) and request.method == "GET",
    Head(503),
)
_answers(
    "http-ping-only-by-get",
    "`POST /ping` answers 405.",
    "http.ping-post",
    lambda request: _is_ping(request) and request.method == "POST",
    Head(405, (("Allow", "GET"),)),
)


class _PingsReadyWhenDraining(ExchangeTamper):
    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if _is_ping(request) and self.shared.shutting_down:
            return Head(200), b""
        return request


FAULTS.add(
    "http-ping-ready-when-draining",
    "`/ping` answers 200 though the endpoint is shutting down.",
    "http.ping-draining",
    exchange=_PingsReadyWhenDraining,
)


class _BusySession(SessionTamper):
    """Tells the proxy when a session speaks."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._speaking: set[int | None] = set()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_start":
            self._speaking.add(chunk.seq)
            _speak(self.shared, 1)
        elif chunk.is_terminal and chunk.seq in self._speaking:
            self._speaking.discard(chunk.seq)
            _speak(self.shared, -1)
        return super().chunk(chunk)


class _BusyPing(ExchangeTamper):
    """Answers `/ping` only when no audio is being made."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if _is_ping(request) and self.shared.notes.get("speaking"):
            return Head(503), b""
        if _is_speech(request):
            _speak(self.shared, 1)
        return request

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        if self.request_sent is not None and _is_speech(self.request_sent):
            _speak(self.shared, -1)
        return super().end(clean=clean)


def _speak(shared: Shared, more: int) -> None:
    shared.notes["speaking"] = shared.notes.get("speaking", 0) + more


FAULTS.add(
    "http-ping-fails-when-busy",
    "`/ping` answers 503 while an utterance is being made.",
    "http.ping-busy",
    session=_BusySession,
    exchange=_BusyPing,
)
