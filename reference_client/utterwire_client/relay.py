"""Speech for browsers: an ASGI application between them and endpoints that they cannot reach.

It needs no framework, runs under any ASGI server, and can be mounted in any application.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from utterwire_protocol import ERROR_CODES, is_blank

from utterwire_client.audio_event import AudioEvent, EventStyle, audio_events, error_event
from utterwire_client.deadlines import Deadlines
from utterwire_client.endpoints import Endpoint, tls_context
from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    PeerViolation,
    SpeechIncomplete,
    UtterwireError,
)
from utterwire_client.session import connect
from utterwire_client.transport import Transport, TransportClosed

__all__ = ["Relay"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_logger = logging.getLogger("utterwire_client.relay")

# Audio that waits here for a browser that does not read: of one utterance, and of all of a session.
_BUFFER_BYTES = 128 * 1024
_MAX_BUFFER_BYTES = 1024 * 1024

# All was told by then: an endpoint that does not say goodbye is not waited for.
_CLOSE_S = 1.0

# What every endpoint takes (`protocol.md#request-ids`).
_MOST_ID_CHARS = 128

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "voice": str,
    "speed": (int, float),
    "sample_rate": int,
    "format": str,
    "request_id": str,
}


class _Refusal(Exception):
    """A request is not served: ``code`` of the registry, ``status`` where it is not that of the
    code."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class _Gone(Exception):
    """The browser has left."""


class _Stalled(Exception):
    """The browser has taken nothing for too long."""


class Relay:
    """An ASGI application that carries speech of ``endpoints`` to browsers, and of no others.

    At ``/NAME``, below wherever it is mounted, it serves the endpoint of that name in two ways:

    - ``POST`` with the fields of ``http.md#request`` as JSON: the text, of any length, is spoken
      sentence by sentence over a session, and answered by the events of ``sse.md`` as one stream;
      ``?style=data`` puts each event's name into its data, as ``type``, for carriers that know
      nothing else.
    - a WebSocket: a session with the endpoint as it is, message by message, audio as bytes.

    What the endpoint wants (its address, header fields, authorities) stays here. A browser that
    does not read holds up the endpoint, with less than 2 MiB of audio here (and what the kernels on
    the way buffer); after ``stall_s`` it is dropped. One that leaves cancels what it asked for.

    ``origins`` are those whose pages may ask (as ``https://app.example.com``), besides those of the
    host that it is served at; ``*`` is any. ``max_sessions`` are carried at once, further ones
    refused for now. Who may ask beyond that is for what stands before it. It logs names of
    endpoints and kinds of errors, and nothing of what is said. (At DEBUG the WebSocket library logs
    frames, as ``utterwire_client.websocket``.)
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        origins: Collection[str] = (),
        max_sessions: int = 64,
        max_message_bytes: int = 65_536,
        stall_s: float = 60.0,
        max_unheard_s: float = 30.0,
    ) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._tls = {
            name: None if endpoint.ca_file is None else tls_context(endpoint.ca_file)
            for name, endpoint in self._endpoints.items()
        }
        self._origins = frozenset(origin.lower() for origin in origins)
        self._max_sessions = max_sessions
        self._max_message_bytes = max_message_bytes
        self._stall_s = stall_s
        self._max_unheard_s = max_unheard_s
        self._sessions = 0

    @property
    def sessions(self) -> int:
        """How many are carried now."""
        return self._sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)
            case "lifespan":
                await _lifespan(receive, send)

    def _endpoint(self, scope: Scope) -> Endpoint:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        endpoint = self._endpoints.get(path.strip("/"))
        if endpoint is None:
            raise _Refusal("invalid_request", "there is no such endpoint here", 404)
        if not self._welcomes(_header(scope, b"origin"), _header(scope, b"host") or ""):
            raise _Refusal("invalid_request", "pages of this origin are not served", 403)
        if self._sessions >= self._max_sessions:
            raise _Refusal("overloaded", "too many listen already")
        return endpoint

    def _welcomes(self, origin: str | None, host: str) -> bool:
        if origin is None or "*" in self._origins or origin in self._origins:
            return True
        return origin.partition("://")[2] == host.lower() != ""

    def _connect(self, endpoint: Endpoint) -> connect:
        standard = Deadlines()
        return connect(
            endpoint.url,
            headers=endpoint.headers,
            ssl=self._tls[endpoint.name],
            deadlines=replace(
                standard,
                close_s=_CLOSE_S,
                connect_s=endpoint.connect_s or standard.connect_s,
                first_chunk_s=endpoint.first_byte_s or standard.first_chunk_s,
                stall_s=endpoint.stall_s or standard.stall_s,
            ),
            on_violation=_Violations(endpoint.name),
            buffer_bytes=_BUFFER_BYTES,
            max_buffer_bytes=_MAX_BUFFER_BYTES,
        )

    # -- events

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header(scope, b"origin")
        if origin is not None and self._welcomes(origin, _header(scope, b"host") or ""):
            send = _readable_by(origin, send)
        try:
            if scope["method"] == "OPTIONS":
                await self._send(send, _PREFLIGHT)
                await self._send(send, {"type": "http.response.body", "body": b""})
                return
            endpoint = self._endpoint(scope)
            if scope["method"] != "POST":
                raise _Refusal("invalid_request", "ask by POST", 405)
            style = _style(scope)
            self._sessions += 1
            try:
                fields = await self._fields(receive)
                await _while_there(
                    receive, "http.disconnect", self._speak(endpoint, fields, style, send)
                )
            finally:
                self._sessions -= 1
        except _Refusal as refusal:
            with contextlib.suppress(OSError):  # nobody is left to be told
                await _refuse(send, refusal)
        except _Gone:
            pass
        except _Stalled:
            _logger.warning("%s: a listener took nothing for %g s", endpoint.name, self._stall_s)

    async def _fields(self, receive: Receive) -> dict[str, Any]:
        body = bytearray()
        more = True
        try:
            async with asyncio.timeout(self._stall_s):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._max_message_bytes:
                        limit = self._max_message_bytes
                        raise _Refusal("text_too_long", f"the body is larger than {limit} bytes")
        except TimeoutError:
            raise _Refusal("invalid_request", "the body did not come in time", 408) from None
        return _checked(bytes(body))

    async def _speak(
        self, endpoint: Endpoint, fields: dict[str, Any], style: EventStyle, send: Send
    ) -> None:
        request_id = fields.pop("request_id", None)
        text = fields.pop("text")
        fields.setdefault("voice", endpoint.voice)
        begun = False

        async def put(event: AudioEvent) -> None:
            nonlocal begun
            if not begun:
                begun = True
                await self._send(send, _HEAD)
            body = event.encode(style)
            await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})

        async def tell(error: UtterwireError) -> None:
            told = error_event(error, request_id)
            code, message = told.fields["code"], told.fields["message"]
            _logger.warning("%s: %s (%s)", endpoint.name, _kind(error), code)
            if not begun:
                raise _Refusal(code, message, _status(error))
            await put(told)

        try:
            async with self._connect(endpoint) as session:
                try:
                    async with session.speak(
                        text, marks=False, max_unheard_s=self._max_unheard_s, **fields
                    ) as speech:
                        async for event in audio_events(speech, joined=True, request_id=request_id):
                            await put(event)
                except UtterwireError as exc:
                    # Told before the session is left, which may take a while.
                    await tell(exc)
        except UtterwireError as exc:
            if not begun:
                await tell(exc)
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, message: Message) -> None:
        """Returns when the browser's connection has room for more."""
        try:
            async with asyncio.timeout(self._stall_s):
                await send(message)
        except TimeoutError:
            raise _Stalled from None
        except OSError:
            raise _Gone from None

    # -- sessions

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            endpoint = self._endpoint(scope)
        except _Refusal:
            # Before it was accepted, this is HTTP 403.
            with contextlib.suppress(OSError):
                await send({"type": "websocket.close", "code": 1008})
            return
        self._sessions += 1
        try:
            await self._session(endpoint, receive, send)
        except _Gone:
            pass
        except _Stalled:
            _logger.warning("%s: a listener took nothing for %g s", endpoint.name, self._stall_s)
        finally:
            self._sessions -= 1

    async def _session(self, endpoint: Endpoint, receive: Receive, send: Send) -> None:
        try:
            transport = await self._connect(endpoint).open()
        except UtterwireError as exc:
            _logger.warning("%s: %s", endpoint.name, _kind(exc))
            await self._send(send, {"type": "websocket.accept"})
            why = 1013 if exc.retryable else 1011
            await self._send(
                send, {"type": "websocket.close", "code": why, "reason": "no endpoint"}
            )
            return
        try:
            await self._send(send, {"type": "websocket.accept"})
            down = asyncio.create_task(self._down(transport, send), name="utterwire-relay-down")
            up = asyncio.create_task(self._up(transport, receive), name="utterwire-relay-up")
            try:
                await asyncio.wait({down, up}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended = [task for task in (down, up) if task.done()]
                down.cancel()
                up.cancel()
                await asyncio.wait({down, up})
            code, reason = ended[0].result()
            if code is not None:
                with contextlib.suppress(_Gone, _Stalled):
                    close = {"type": "websocket.close", "code": code, "reason": reason}
                    await self._send(send, close)
            await transport.close()
        finally:
            transport.abort()

    async def _down(self, transport: Transport, send: Send) -> tuple[int | None, str]:
        """Carry what the endpoint says, until it ends; returns how to close."""
        while True:
            try:
                message = await transport.receive()
            except TransportClosed as exc:
                return _close_code(exc), ""
            kind = "text" if isinstance(message, str) else "bytes"
            await self._send(send, {"type": "websocket.send", kind: message})

    async def _up(self, transport: Transport, receive: Receive) -> tuple[int | None, str]:
        """Carry what the browser says, until it leaves; returns how to close."""
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return None, ""
            text = message.get("text")
            if text is None:
                try:
                    text = bytes(message["bytes"]).decode()
                except UnicodeDecodeError:
                    return 1007, "messages are UTF-8"
            if len(text.encode()) > self._max_message_bytes:
                return 1009, "the message is too long"
            try:
                # While it waits nobody sees whether the browser is still there.
                async with asyncio.timeout(self._stall_s):
                    await transport.send(text)
            except TransportClosed as exc:
                return _close_code(exc), ""
            except TimeoutError:
                return 1011, "the endpoint takes nothing"


class _Violations:
    """Logs each rule that an endpoint breaks, by its id alone."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, violation: PeerViolation) -> None:
        _logger.info("%s broke %s", self._name, violation.requirement)


async def _while_there(receive: Receive, leaving: str, work: Awaitable[None]) -> None:
    """Do it to its end, or until the browser leaves, which cancels it."""

    async def watch() -> None:
        while (await receive())["type"] != leaving:
            pass

    watching = asyncio.create_task(watch(), name="utterwire-relay-watch")
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({watching, working}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()
        await asyncio.wait({watching, working})
    if not working.cancelled():
        working.result()


def _checked(body: bytes) -> dict[str, Any]:
    """The fields of a request; their values are the endpoint's to judge."""
    try:
        fields = json.loads(body.decode())
    except UnicodeDecodeError:
        raise _Refusal("invalid_utf8", "the body is not UTF-8") from None
    except (ValueError, RecursionError):
        raise _Refusal("invalid_json", "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise _Refusal("not_an_object", "the body is not a JSON object")
    taken = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
    if "text" not in taken:
        raise _Refusal("missing_text", "there is no text")
    for name, value in taken.items():
        if not isinstance(value, _FIELDS[name]) or isinstance(value, bool):
            raise _Refusal("invalid_request", f"{name} is of the wrong type")
    if not _is_id(taken.get("request_id", "none")):
        most = _MOST_ID_CHARS
        raise _Refusal("invalid_request", f"request_id has 1 to {most} characters of Unicode")
    if is_blank(taken["text"]):
        raise _Refusal("empty_text", "the text is blank")
    return taken


def _is_id(text: str) -> bool:
    lone_surrogate = any("\ud800" <= char <= "\udfff" for char in text)
    return 1 <= len(text) <= _MOST_ID_CHARS and not lone_surrogate


def _style(scope: Scope) -> EventStyle:
    given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("style", ["event"])[-1]
    if given == "data":
        return "data"
    if given != "event":
        raise _Refusal("invalid_request", "style is event or data")
    return "event"


_HEAD: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        # For proxies that would gather the events.
        (b"x-accel-buffering", b"no"),
    ],
}


_PREFLIGHT: Message = {
    "type": "http.response.start",
    "status": 204,
    "headers": [
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", b"content-type"),
        (b"access-control-max-age", b"600"),
    ],
}


def _readable_by(origin: str, send: Send) -> Send:
    """``send`` for a page of that origin: its browser shows it no answer that does not say so."""
    said = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"retry-after"),
        (b"vary", b"origin"),
    ]

    async def saying(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *said]}
        await send(message)

    return saying


async def _refuse(send: Send, refusal: _Refusal) -> None:
    row = ERROR_CODES[refusal.code]
    status = refusal.status or row.http_status
    body = {
        "type": "error",
        "code": refusal.code,
        "message": refusal.message,
        "retryable": row.retryable or status in (502, 504),
        "rejected": True,
    }
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def _header(scope: Scope, name: bytes) -> str | None:
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    # What stands there twice is no page's origin.
    return ", ".join(values) if values else None


def _cause(exc: UtterwireError) -> UtterwireError:
    cause = exc.__cause__
    if isinstance(exc, SpeechIncomplete) and isinstance(cause, UtterwireError):
        return cause
    return exc


def _kind(exc: UtterwireError) -> str:
    return type(_cause(exc)).__name__


def _status(exc: UtterwireError) -> int | None:
    """The status of what the registry has no code for."""
    match _cause(exc):
        case ConnectFailed():
            return 502
        case DeadlineExceeded():
            return 504
        case _:
            return None


def _close_code(exc: TransportClosed) -> int:
    """The endpoint's close code, where a close frame may carry it (RFC 6455 section 7.4)."""
    code = exc.code or 1011
    registered = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    return code if registered or 3000 <= code <= 4999 else 1011


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"].removeprefix("lifespan.")
        await send({"type": f"lifespan.{event}.complete"})
        if event == "shutdown":
            return
