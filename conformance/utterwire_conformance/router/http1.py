"""HTTP/1.1 from the server's side: what boto3 speaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

import h11

from .call import CallerGone, Inflow, WebHandler

__all__ = ["Http1Connection"]

_MOST_WAITING: Final = 1024 * 1024
_WRITE_BUFFER: Final = 256 * 1024


class Http1Connection:
    """One connection, which carries calls one after the other."""

    def __init__(self, transport: asyncio.Transport, handler: WebHandler) -> None:
        self._transport = transport
        self._handler = handler
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=65_536)
        self._call: _Http1Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)

    # --- from the transport -------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Octets have come."""
        try:
            self._http.receive_data(data)
            self._advance()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

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
        if self._call is not None:
            self._call.inflow.lose()

    async def close(self) -> None:
        """End the connection and the task that answers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._transport.close()

    # --- events -------------------------------------------------------------------------------

    def _advance(self) -> None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data) and self._call is not None:
                self._call.feed(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._call is not None:
                self._call.inflow.end()
            elif isinstance(event, h11.ConnectionClosed):
                self._transport.close()
                return

    def _begin(self, request: h11.Request) -> None:
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers
        ]
        expects = self._http.they_are_waiting_for_100_continue
        call = self._call = _Http1Call(
            self, request.method.decode("latin-1"), request.target.decode("latin-1"), headers
        )
        if expects:
            self.write(h11.InformationalResponse(status_code=100, headers=[]))
        self._task = asyncio.create_task(self._answer(call), name="router-call")

    async def _answer(self, call: _Http1Call) -> None:
        with contextlib.suppress(CallerGone):
            await self._handler(call)
        self._call = None
        http = self._http
        if self._lost:
            return
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
            try:
                self._advance()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
        else:
            self._transport.close()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        with contextlib.suppress(h11.LocalProtocolError):
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self.write(
                    h11.Response(status_code=error.error_status_hint, headers=[]),
                    h11.EndOfMessage(),
                )
        self._transport.close()

    # --- for the call -------------------------------------------------------------------------

    def write(self, *events: h11.Event) -> None:
        """Give events to the transport."""
        data = b"".join(self._http.send(event) or b"" for event in events)
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def until_writable(self) -> None:
        """Wait until the transport takes more."""
        await self._writable.wait()
        if self._lost:
            raise CallerGone

    def hold(self, hold: bool) -> None:
        """Read no further, or on."""
        if self._transport.is_closing():
            return
        if hold:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Break the connection off."""
        self._transport.abort()


class _Http1Call:
    """The call that a connection carries now (see `Call`)."""

    version = "1.1"

    def __init__(
        self,
        connection: Http1Connection,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.inflow = Inflow()
        self._connection = connection
        self._waiting = 0
        self._held = False

    def feed(self, data: bytes) -> None:
        """A piece of the body has come."""
        self._waiting += len(data)
        self.inflow.feed(data)
        if self._waiting > _MOST_WAITING and not self._held:
            self._held = True
            self._connection.hold(True)

    async def receive(self) -> bytes | None:
        data = await self.inflow.read()
        self._waiting -= len(data or b"")
        if self._held and self._waiting <= _MOST_WAITING // 2:
            self._held = False
            self._connection.hold(False)
        return data

    async def respond(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self._write(h11.Response(status_code=status, headers=list(headers)))

    async def send(self, data: bytes) -> None:
        self._write(h11.Data(data=data))
        await self._connection.until_writable()

    async def end(self) -> None:
        self._write(h11.EndOfMessage())

    def reset(self) -> None:
        self._connection.abort()

    def reset_connection(self) -> None:
        self._connection.abort()

    def go_away(self) -> None:
        # HTTP/1.1 has no such word.
        self._connection.abort()

    def _write(self, event: h11.Event) -> None:
        if self.inflow.lost:
            raise CallerGone
        try:
            self._connection.write(event)
        except h11.LocalProtocolError as error:
            raise CallerGone from error
