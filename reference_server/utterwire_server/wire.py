"""The connections under uvicorn, safe against peers that flood, stall or vanish.

uvicorn keeps the sockets; what is added here is bounds: on what waits unsent, on what a peer may
pile up, and on how long a closing connection lingers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sized
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from utterwire_server.logs import log_event, whereabouts

__all__ = ["HttpWire", "PlainWire", "WebSocketWire", "Wire", "wire_of"]

LINGER_S = 3.0
OPENING_S = 30.0
READ_SIZE = 4_096
#: Past so many pipelined requests nothing more of the connection is read.
PIPELINE = 4
_EXTENSION = "utterwire.wire"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\n\r\n"
)
# What a peer does wrong is the peer's affair; and in debug mode every text would be logged.
_SILENT = logging.getLogger("utterwire.silent")
_SILENT.setLevel(logging.CRITICAL + 1)


class Wire(Protocol):
    """What a session may ask of its transport."""

    @property
    def is_writable(self) -> bool:
        """Whether all that was written has reached the kernel, or the transport is lost."""

    async def drained(self) -> None:
        """Return once ``is_writable`` is true."""

    @property
    def is_open(self) -> bool:
        """Whether the transport is there still, as far as anyone can tell."""

    def hang_up(self, *, at_once: bool = False) -> bool:
        """Close the connection behind what was written; drop it if that does not get through.

        ``at_once`` drops what has not reached the kernel, instead of waiting for it.
        False if this wire cannot be closed from here.
        """


class PlainWire:
    """The wire under a server that is not ours: always writable, as far as anyone can tell."""

    is_writable = True
    is_open = True

    async def drained(self) -> None:
        return

    def hang_up(self, *, at_once: bool = False) -> bool:
        return False


def wire_of(scope: Scope) -> Wire:
    """The wire under an ASGI connection."""
    extensions: Mapping[str, Any] = scope.get("extensions") or {}
    found = extensions.get(_EXTENSION)
    return PlainWire() if found is None else cast(Wire, found["wire"])


def _limit(transport: asyncio.Transport) -> None:
    # Unsent audio is audio that a cancel cannot take back: one chunk waits here at most.
    if transport.get_extra_info("sslcontext") is None:
        transport.set_write_buffer_limits(high=0)
    else:
        # asyncio's TLS pauses at the limit, not above it: at 0 it would never write again. What it
        # has encrypted waits in a transport of its own, which holds 64 KiB if it is left alone.
        transport.set_write_buffer_limits(high=1)
        below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        if below is not None:
            below.set_write_buffer_limits(high=0)
    # asyncio reads 256 KiB at once. Cut into the smallest frames that is tens of thousands of
    # them, read in one go while everybody else waits.
    if hasattr(transport, "max_size"):
        transport.max_size = READ_SIZE


class _Gone(OSError):
    """The peer is gone; Starlette turns this into `WebSocketDisconnect`."""


class WebSocketWire(asyncio.Protocol):
    """A WebSocket connection for uvicorn, framed by websockets' sans-IO protocol.

    uvicorn's own has no bounds where a peer floods or stalls. Here:

    - A message in many fragments is gathered as bytes, not as a list of fragments: empty ones
      would add to it for ever.
    - Toward a peer that does not read, only the last ping is answered (RFC 6455 section 5.5.3).
    - Nothing more is read while a message waits for the application.
    - A failed connection is read on for a moment after its close frame, since closing a socket
      with unread data resets it, and the peer would never see the close code.
    - A closing connection is dropped after a while if the peer takes nothing more.
    """

    _transport: asyncio.Transport
    _request: Request
    _response: Response

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app = cast(ASGIApp, config.loaded_app)
        self._root_path = config.root_path
        self._server_state: Any = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._protocol = ServerProtocol(max_size=config.ws_max_size, logger=_SILENT)
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._lost = False
        self._answered = False
        self._refusal: Message | None = None
        self._kind: Opcode = Opcode.BINARY
        self._gathered = bytearray()
        self._held_pong = b""
        self._close_timer: asyncio.TimerHandle | None = None
        self._drop_timer: asyncio.TimerHandle | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)
        _limit(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._server_state.connections.discard(self)
        self._disconnect(1006)
        # Nobody resumes a lost transport.
        self._writable.set()
        for timer in (self._close_timer, self._drop_timer):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._held_pong:
            self._transport.write(self._held_pong)
            self._held_pong = b""

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        # What came before a broken frame counts, also in the same read.
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._open(event)
            elif isinstance(event, Frame):
                self._take(event)
        if protocol.handshake_exc is not None and not self._answered:
            self._answered = True
            # websockets before 16 has no words for a head that is too large.
            refusal = b"".join(self._protocol.data_to_send()) or _BAD_REQUEST
            self._transport.write(refusal)
            self.hang_up()
        elif protocol.parser_exc is not None and self._close_timer is None:
            self._fail()
        else:
            self._pong()

    def shutdown(self) -> None:
        """uvicorn stops: whoever is left is told so."""
        hung_up = self._lost or self._drop_timer is not None
        if self._answered and self._protocol.state is State.OPEN and not hung_up:
            self._protocol.send_close(1012)
            self._disconnect(1012)
            self._flush()
        self.hang_up()

    # Reading

    def _open(self, request: Request) -> None:
        self._request = request
        self._response = self._protocol.accept(request)
        if self._response.status_code != 101:
            self._answer(self._response)
            self.hang_up()
            return
        target = request.path
        if not target.startswith("/"):
            # A proxy may send the whole address (RFC 9112 section 3.2.2).
            target = "/" + target.partition("://")[2].partition("/")[2]
        path, _, query = target.partition("?")
        scope: Scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws" if self._transport.get_extra_info("sslcontext") is None else "wss",
            "server": self._address("sockname"),
            "client": self._address("peername"),
            "root_path": self._root_path,
            "path": self._root_path + unquote(path),
            "raw_path": (self._root_path + path).encode(),
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1", "surrogateescape"))
                for name, value in request.headers.raw_items()
            ],
            "subprotocols": [],
            "state": self._app_state.copy(),
            "extensions": {"websocket.http.response": {}, _EXTENSION: {"wire": self}},
        }
        self._incoming.put_nowait({"type": "websocket.connect"})
        task = self._loop.create_task(self._run(scope), name="websocket")
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def _address(self, name: str) -> tuple[str, int] | None:
        address = self._transport.get_extra_info(name)
        return (address[0], address[1]) if address else None

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._closed()
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._kind = frame.opcode
            self._gathered += frame.data
            if frame.fin:
                data = bytes(self._gathered)
                self._gathered.clear()
                self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        if self._protocol.state is not State.OPEN:
            return
        if self._kind is Opcode.TEXT:
            try:
                message: Message = {"type": "websocket.receive", "text": data.decode()}
            except UnicodeDecodeError:
                self._protocol.fail(1007, "a text message is not UTF-8")
                self._fail()
                return
        else:
            message = {"type": "websocket.receive", "bytes": data}
        self._incoming.put_nowait(message)
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _closed(self) -> None:
        """A close frame came; websockets has answered it, unless it answers ours."""
        close = self._protocol.close_rcvd
        self._disconnect(1005 if close is None else close.code)
        self._flush()
        self.hang_up()

    def _fail(self) -> None:
        """The connection was failed (RFC 6455 section 7.1.7)."""
        close = self._protocol.close_sent
        self._disconnect(1006 if close is None else close.code)
        self._flush()
        self._resume()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._close_timer = self._loop.call_later(LINGER_S, self.hang_up)

    def _disconnect(self, code: int) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": code})

    def _resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    # Writing

    def _flush(self) -> None:
        # Also nothing must not be written once the sending side is shut.
        if data := b"".join(self._protocol.data_to_send()):
            self._transport.write(data)

    def _pong(self) -> None:
        if self._writable.is_set():
            self._flush()
        elif answers := self._protocol.data_to_send():
            self._held_pong = answers[-1]

    def _answer(self, response: Response) -> None:
        self._answered = True
        self._protocol.send_response(response)
        self._flush()

    # The application's side

    async def _run(self, scope: Scope) -> None:
        try:
            await self._app(scope, self._receive, self._send)
        except _Gone:
            pass
        except Exception as error:
            log_event("application_failed", **whereabouts(error))
        finally:
            if not self._answered and not self._lost:
                self._answer(self._protocol.reject(500, "Internal Server Error"))
            if self._close_timer is None:
                self.hang_up()

    async def _receive(self) -> Message:
        message = await self._incoming.get()
        if self._incoming.empty() and not self._lost:
            self._resume()
        return message

    async def _send(self, message: Message) -> None:
        await self._writable.wait()
        if self._lost:
            raise _Gone
        kind = message["type"]
        if not self._answered:
            self._send_answer(kind, message)
        elif self._protocol.state is not State.OPEN:
            raise _Gone
        elif kind == "websocket.send":
            data = message.get("bytes")
            if data is None:
                self._protocol.send_text(message["text"].encode())
            else:
                self._protocol.send_binary(data)
            self._flush()
        elif kind == "websocket.close":
            self._protocol.send_close(message.get("code", 1000), message.get("reason") or "")
            self._disconnect(message.get("code", 1000))
            self._flush()
            # Read on, for the peer's answer.
            self._resume()
            self._close_timer = self._loop.call_later(LINGER_S, self.hang_up)
        else:
            raise RuntimeError(f"{kind} cannot be sent in a session")

    def _send_answer(self, kind: str, message: Message) -> None:
        if kind == "websocket.accept":
            headers = self._response.headers
            del headers["Date"]
            for name, value in [*self._server_state.default_headers, *message.get("headers", ())]:
                headers[name.decode("latin-1")] = value.decode("latin-1")
            self._answer(self._response)
        elif kind == "websocket.http.response.start":
            self._refusal = message
        elif kind == "websocket.http.response.body" and self._refusal is not None:
            status, body = self._refusal["status"], message.get("body", b"")
            headers = Headers(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in self._refusal.get("headers", ())
            )
            headers["Connection"] = "close"
            self._answer(Response(status, HTTPStatus(status).phrase, headers, body))
            self.hang_up()
        elif kind == "websocket.close":
            self._answer(self._protocol.reject(403, ""))
            self.hang_up()
        else:
            raise RuntimeError(f"{kind} cannot be sent before websocket.accept")

    @property
    def is_writable(self) -> bool:
        return self._writable.is_set()

    async def drained(self) -> None:
        await self._writable.wait()

    @property
    def is_open(self) -> bool:
        return not self._lost

    def hang_up(self, *, at_once: bool = False) -> bool:
        self._transport.close()
        if self._drop_timer is None and not self._lost:
            self._drop_timer = self._loop.call_later(LINGER_S, self._transport.abort)
        if at_once:
            self._transport.abort()
        return True


class _Flow(FlowControl):
    """Reads on only while few pipelined requests wait.

    uvicorn's own reads on for each answer, and one read brings dozens of requests: a peer that
    reads no answers fills the memory with them.
    """

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if len(self._waiting) <= PIPELINE:
            super().resume_reading()


class HttpWire(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds.

    - On what waits unsent, and on how long the peer may take none of it.
    - On how long a head may take, and what comes instead of one.
    - On pipelined requests; a lost connection stops all of them, not just the last.
    - On how many connections there are: the one that has been idle for longest makes way for the
      next, so that no crowd of connections that ask for nothing keeps out who asks.
    """

    #: How long, in seconds, a peer may leave waiting what was written.
    stall_s: float = 60.0
    #: How many connections the server keeps, WebSockets included; 0 is any number.
    most_connections: int = 0

    _idle_since = 0.0
    _drop_timer: asyncio.TimerHandle | None = None
    _opening_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _unanswered: list[RequestResponseCycle]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._unanswered = []
        _limit(transport)
        self._await_head()
        self._idle_since = self.loop.time()
        if 0 < self.most_connections < len(self.connections):
            self._make_room()

    def _make_room(self) -> None:
        idle = [wire for wire in self.connections if isinstance(wire, HttpWire) and wire.is_idle]
        idle.remove(self)
        if idle:
            min(idle, key=lambda wire: wire._idle_since).hang_up()
        else:
            self.transport.write(_NO_ROOM)
            self.hang_up()

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer on it, nor is it being closed."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.is_closing()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._drop_timer, self._opening_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Bytes that begin no request (RFC 9112 section 2.2 has line ends ignored) have stopped
        # the keep-alive clock.
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._opening_timer is None and self.transport.get_protocol() is self:
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()
        self.scope["extensions"] = {_EXTENSION: {"wire": self}}

    def handle_websocket_upgrade(self) -> None:
        # By TLS, what a handshake left to be sent may have paused writing; it resumes for the next.
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        super().handle_websocket_upgrade()
        if self.flow.write_paused:
            session = self.transport.get_protocol()
            if isinstance(session, WebSocketWire):
                session.pause_writing()

    def on_headers_complete(self) -> None:
        if self._opening_timer is not None:
            self._opening_timer.cancel()
            self._opening_timer = None
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._unanswered = [it for it in self._unanswered if not it.response_complete]
            self._unanswered.append(self.cycle)
            # Who is not read from is not seen leaving.
            self.flow.resume_reading()

    @property
    def is_writable(self) -> bool:
        return not self.flow.write_paused

    async def drained(self) -> None:
        await self.flow.drain()

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def hang_up(self, *, at_once: bool = False) -> bool:
        self.transport.close()
        if self._drop_timer is None:
            self._drop_timer = self.loop.call_later(LINGER_S, self.transport.abort)
        if at_once:
            self.transport.abort()
        return True

    def _await_head(self) -> None:
        if self._opening_timer is not None:
            self._opening_timer.cancel()
        self._opening_timer = self.loop.call_later(OPENING_S, self.hang_up)
