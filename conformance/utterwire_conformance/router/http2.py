"""HTTP/2 from the server's side (RFC 9113), with flow control that reaches both ways."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from .call import CallerGone, Inflow, WebHandler

__all__ = ["Http2Connection"]

# With the default of 64 KiB a part of 1 MiB takes more than a second.
_WINDOW: Final = 2 * 1024 * 1024
_MOST_WINDOW: Final = 2**31 - 1
_DEFAULT_WINDOW: Final = 65_535
_MOST_STREAMS: Final = 1_000
_WRITE_BUFFER: Final = 256 * 1024
_LINGER_S: Final = 2.0
# `SO_LINGER` with no time: closing resets.
_RESET: Final = struct.pack("ii", 1, 0)


class Http2Connection:
    """One connection. It is fed by its transport's protocol, and starts a task for each call."""

    def __init__(self, transport: asyncio.Transport, handler: WebHandler) -> None:
        self._transport = transport
        self._handler = handler
        self._http = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        self._calls: dict[int, _Http2Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False
        self._unacknowledged = 0
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        codes = h2.settings.SettingCodes
        # Before the connection starts: what is set later comes too late for the first stream.
        self._http.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.INITIAL_WINDOW_SIZE: _WINDOW,
                codes.MAX_CONCURRENT_STREAMS: _MOST_STREAMS,
            },
        )
        self._http.initiate_connection()
        # The connection's own window never holds anybody up: each stream has one that does.
        self._http.increment_flow_control_window(_MOST_WINDOW - _DEFAULT_WINDOW)
        self.flush()

    # --- from the transport -------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Octets have come."""
        try:
            events = self._http.receive_data(data)
        except h2.exceptions.ProtocolError:
            self.flush()
            self._transport.close()
            return
        for event in events:
            self._take(event)
        self.flush()

    def pause(self) -> None:
        """The transport has enough for now."""
        self._writable.clear()

    def resume(self) -> None:
        """The transport takes more."""
        self._writable.set()

    def lose(self) -> None:
        """The transport is gone."""
        self._lost = True
        self._writable.set()
        for call in tuple(self._calls.values()):
            call.lose()

    async def close(self) -> None:
        """End the connection and every task of it."""
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._http.close_connection()
            self.flush()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._transport.close()

    # --- events -------------------------------------------------------------------------------

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self._begin(event)
            case h2.events.DataReceived():
                size = event.flow_controlled_length
                self._unacknowledged += size
                if self._unacknowledged >= _MOST_WINDOW // 4:
                    # Not where the caller has said in the same breath that it goes.
                    with contextlib.suppress(h2.exceptions.ProtocolError):
                        self._http.increment_flow_control_window(self._unacknowledged)
                    self._unacknowledged = 0
                call = self._calls.get(event.stream_id)
                if call is not None:
                    call.feed(event.data, size)
            case h2.events.StreamEnded():
                call = self._calls.get(event.stream_id)
                if call is not None:
                    call.inflow.end()
            case h2.events.StreamReset():
                call = self._calls.get(event.stream_id)
                if call is not None:
                    call.lose()
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                for call in self._calls.values():
                    call.window_opened.set()
            case _:
                pass

    def _begin(self, event: h2.events.RequestReceived) -> None:
        pseudo: dict[str, str] = {}
        headers: list[tuple[str, str]] = []
        for raw, octets in event.headers:
            name, value = raw.decode("latin-1"), octets.decode("utf-8", "replace")
            if name.startswith(":"):
                pseudo[name] = value
            else:
                headers.append((name, value))
        if not any(name == "host" for name, _ in headers):
            headers.append(("host", pseudo.get(":authority", "")))
        stream = event.stream_id
        # CONNECT has no path.
        call = _Http2Call(self, stream, pseudo[":method"], pseudo.get(":path", ""), headers)
        self._calls[stream] = call
        task = asyncio.create_task(self._answer(call), name=f"router-stream-{stream}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: _Http2Call) -> None:
        try:
            await self._handler(call)
            await call.linger()
        except CallerGone:
            pass
        finally:
            # Does nothing where the answer came to its end.
            call.reset()
            self._calls.pop(call.stream, None)

    # --- for the calls ------------------------------------------------------------------------

    @property
    def http(self) -> h2.connection.H2Connection:
        """The state machine."""
        return self._http

    def flush(self) -> None:
        """Give to the transport what waits to be sent."""
        data = self._http.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def until_writable(self) -> None:
        """Wait until the transport takes more."""
        await self._writable.wait()
        if self._lost:
            raise CallerGone

    def reset(self) -> None:
        """Reset the TCP connection."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def go_away(self) -> None:
        """Send GOAWAY and end the connection."""
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._http.close_connection(h2.errors.ErrorCodes.NO_ERROR)
        self.flush()
        self._transport.close()


class _Http2Call:
    """One stream of a connection (see `Call`)."""

    version = "2"

    def __init__(
        self,
        connection: Http2Connection,
        stream: int,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
    ) -> None:
        self.stream = stream
        self.method = method
        self.target = target
        self.headers = headers
        self.inflow = Inflow()
        self.window_opened = asyncio.Event()
        self._connection = connection
        self._unacknowledged = 0
        self._over = False

    def feed(self, data: bytes, size: int) -> None:
        """A piece of the body has come; it takes `size` octets of the window until it is read."""
        self._unacknowledged += size - len(data)
        self.inflow.feed(data)

    def lose(self) -> None:
        """The caller is gone."""
        self._over = True
        self.inflow.lose()
        self.window_opened.set()

    async def receive(self) -> bytes | None:
        data = await self.inflow.read()
        self._unacknowledged += len(data or b"")
        # In large steps, so that not each piece is answered by a frame of its own.
        if self._unacknowledged >= _WINDOW // 4:
            with contextlib.suppress(h2.exceptions.ProtocolError, KeyError):
                self._connection.http.increment_flow_control_window(
                    self._unacknowledged, self.stream
                )
            self._unacknowledged = 0
            self._connection.flush()
        return data

    async def respond(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self._check()
        fields = [(":status", str(status)), *headers]
        with _lost_if_refused():
            self._connection.http.send_headers(self.stream, fields)
        self._connection.flush()

    async def send(self, data: bytes) -> None:
        http = self._connection.http
        rest = memoryview(data)
        while rest:
            self._check()
            with _lost_if_refused():
                window = http.local_flow_control_window(self.stream)
            size = min(window, http.max_outbound_frame_size, len(rest))
            if size <= 0:
                self._connection.flush()
                self.window_opened.clear()
                await self.window_opened.wait()
                continue
            with _lost_if_refused():
                http.send_data(self.stream, bytes(rest[:size]))
            rest = rest[size:]
        self._connection.flush()
        await self._connection.until_writable()

    async def end(self) -> None:
        self._check()
        self._over = True
        with _lost_if_refused():
            self._connection.http.end_stream(self.stream)
        self._connection.flush()

    async def linger(self) -> None:
        """After the answer's end, give the caller time to end the request as well.

        Clients take a reset that crosses their own end for a failure. One that goes on is told
        that nothing more of the request is wanted (RFC 9113 section 8.1).
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self.inflow.drain()
        if not self.inflow.at_end and not self.inflow.lost:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._connection.http.reset_stream(self.stream, h2.errors.ErrorCodes.NO_ERROR)
            self._connection.flush()

    def reset(self) -> None:
        if self._over:
            return
        self._over = True
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._connection.http.reset_stream(self.stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        self._connection.flush()

    def reset_connection(self) -> None:
        self._over = True
        self._connection.reset()

    def go_away(self) -> None:
        self._over = True
        self._connection.go_away()

    def _check(self) -> None:
        if self._over:
            raise CallerGone


@contextlib.contextmanager
def _lost_if_refused() -> Iterator[None]:
    """What the state machine refuses: the stream was reset or the connection closed meanwhile."""
    try:
        yield
    except (h2.exceptions.ProtocolError, KeyError) as error:
        raise CallerGone from error
