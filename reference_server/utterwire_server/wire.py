"""uvicorn's two protocols, made safe against peers that flood, stall or vanish.

uvicorn keeps the sockets; what is added here is bounds: on what waits unsent, on what a peer may
pile up, and on how long a closing connection lingers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

__all__ = ["HttpWire", "PlainWire", "WebSocketWire", "Wire", "wire_of"]

LINGER_S = 3.0
OPENING_S = 30.0
READ_SIZE = 4_096
_EXTENSION = "utterwire.wire"


class Wire(Protocol):
    """What a session may ask of its transport."""

    @property
    def is_writable(self) -> bool:
        """Whether all that was written has reached the kernel, or the transport is lost."""

    async def drained(self) -> None:
        """Return once ``is_writable`` is true."""

    def hang_up(self) -> bool:
        """Close the connection behind what was written; drop it if that does not get through.

        False if this wire cannot be closed from here.
        """


class PlainWire:
    """The wire under a server that is not ours: always writable, as far as anyone can tell."""

    is_writable = True

    async def drained(self) -> None:
        return

    def hang_up(self) -> bool:
        return False


def wire_of(scope: Scope) -> Wire:
    """The wire under an ASGI connection."""
    extensions: Mapping[str, Any] = scope.get("extensions") or {}
    found = extensions.get(_EXTENSION)
    return PlainWire() if found is None else cast(Wire, found["wire"])


def _limit(transport: asyncio.Transport) -> None:
    # Unsent audio is audio that a cancel cannot take back: one chunk waits here at most.
    transport.set_write_buffer_limits(high=0)
    # asyncio reads 256 KiB at once. Cut into the smallest frames that is tens of thousands of
    # them, read in one go while everybody else waits.
    if hasattr(transport, "max_size"):
        transport.max_size = READ_SIZE


class WebSocketWire(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with bounds.

    - A message in many fragments is gathered as bytes, not as a list of fragments: empty ones
      would add to it for ever.
    - Toward a peer that does not read, only the last ping is answered (RFC 6455 section 5.5.3).
    - A broken connection is read on for a moment after its close frame, since closing a socket
      with unread data resets it, and the peer would never see the close code.
    - A closing connection is dropped after a while if the peer takes nothing more.
    """

    _drop_timer: asyncio.TimerHandle | None = None
    _held_pong: bytes = b""
    _whole: bytearray | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.close_timeout = LINGER_S
        _limit(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held_pong = b""
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        # What came before a broken frame counts, also in the same read.
        self.handle_events()
        if self.conn.parser_exc is not None:
            if not self.disconnected and not self.close_sent:
                self.handle_parser_exception()
        elif self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.handshake_initiated = self.handshake_complete = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.hang_up()

    def handle_cont(self, event: Frame) -> None:
        if self._whole is None:
            self._whole = bytearray(self.frames[0])
        self._whole += event.data
        if event.fin:
            self.frames = [bytes(self._whole)]
            self._whole = None
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        answers = self.conn.data_to_send()
        if self.writable.is_set() or self.conn.close_sent is not None:
            self.transport.write(b"".join(answers))
        elif answers:
            self._held_pong = answers[-1]

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._held_pong:
            self.transport.write(self._held_pong)
            self._held_pong = b""

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._drop_later(LINGER_S)

    def handle_parser_exception(self) -> None:
        sent = self.conn.close_sent
        self.queue.put_nowait(
            {
                "type": "websocket.disconnect",
                "code": 1006 if sent is None else sent.code,
                "reason": "" if sent is None else sent.reason,
            }
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(LINGER_S, self.hang_up)

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            # A refused handshake is complete; uvicorn would log it as a fault of the application.
            self.handshake_complete = True

    async def run_asgi(self) -> None:
        self.scope["extensions"] = {**(self.scope["extensions"] or {}), _EXTENSION: {"wire": self}}
        await super().run_asgi()
        # With a close frame sent, uvicorn gives the peer LINGER_S to answer before it closes.
        self._drop_later(LINGER_S if self.close_timer is None else 2 * LINGER_S)

    @property
    def is_writable(self) -> bool:
        return self.writable.is_set()

    async def drained(self) -> None:
        await self.writable.wait()

    def hang_up(self) -> bool:
        self.transport.close()
        self._drop_later(LINGER_S)
        return True

    def _drop_later(self, delay_s: float) -> None:
        if self._drop_timer is None and not self.disconnected:
            self._drop_timer = self.loop.call_later(delay_s, self.transport.abort)


class HttpWire(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds: on unsent audio, and on how long a head may take."""

    _drop_timer: asyncio.TimerHandle | None = None
    _opening_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _limit(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._drop_timer, self._opening_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()
        self.scope["extensions"] = {_EXTENSION: {"wire": self}}

    def on_headers_complete(self) -> None:
        if self._opening_timer is not None:
            self._opening_timer.cancel()
        super().on_headers_complete()

    @property
    def is_writable(self) -> bool:
        return not self.flow.write_paused

    async def drained(self) -> None:
        await self.flow.drain()

    def hang_up(self) -> bool:
        self.transport.close()
        if self._drop_timer is None:
            self._drop_timer = self.loop.call_later(LINGER_S, self.transport.abort)
        return True

    def _await_head(self) -> None:
        if self._opening_timer is not None:
            self._opening_timer.cancel()
        self._opening_timer = self.loop.call_later(OPENING_S, self.transport.close)
