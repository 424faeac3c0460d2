"""One HTTP exchange carried through the proxy, and the handshake of a WebSocket session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

import h11

from .tamper import ExchangeTamper, Head, Request

__all__ = ["HttpLeg", "Streams", "head_of", "octets_of", "relay_exchange", "request_of"]

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_READ_BYTES: Final = 65_536
# A body that a tamper looks at is held whole; this is far above any endpoint's message limit.
_MAX_BODY: Final = 64 * 1024 * 1024
# What a client may send ahead of the answer to what it asked before.
_MAX_AHEAD: Final = 1024 * 1024
_HOP_BY_HOP: Final = ("connection", "keep-alive", "proxy-connection")
_FRAMING: Final = ("content-length", "transfer-encoding")


class HttpLeg:
    """h11 over one pair of asyncio streams.

    Reading raises `h11.RemoteProtocolError` where the peer breaks HTTP, a body cut short included.
    """

    def __init__(self, streams: Streams, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self._reader, self.writer = streams
        self.state = h11.Connection(our_role=role)

    async def event(self) -> Any:
        """The next event of the peer."""
        while True:
            event = self.state.next_event()
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await self._reader.read(_READ_BYTES)
            except OSError:
                data = b""
            self.state.receive_data(data)

    async def send(self, event: Any) -> None:
        """Send an event; a peer that has hung up is found out on reading."""
        data = self.state.send(event)
        if data:
            await self.send_bytes(data)

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        with suppress(OSError, RuntimeError):
            if not self.writer.is_closing():
                self.writer.write(data)
                await self.writer.drain()

    async def until_closed(self) -> None:
        """Wait until the peer has closed its side; what it sends before that waits its turn."""
        ahead = 0
        with suppress(OSError):
            while (data := await self._reader.read(_READ_BYTES)) and ahead < _MAX_AHEAD:
                self.state.receive_data(data)
                ahead += len(data)

    def next_exchange(self) -> bool:
        """Get ready for another exchange; False where this connection cannot carry one."""
        if self.state.our_state is not h11.DONE or self.state.their_state is not h11.DONE:
            return False
        self.state.start_next_cycle()
        return True

    def abort(self) -> None:
        """End the transport at once."""
        self.writer.transport.abort()

    async def body(self, limit: int = _MAX_BODY) -> bytes:
        """The rest of the message's body, at most `limit` bytes of it."""
        parts: list[bytes] = []
        size = 0
        while not isinstance(event := await self.event(), h11.EndOfMessage):
            if isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("the peer hung up in the body")
            part = bytes(event.data)
            size += len(part)
            if size <= limit:
                parts.append(part)
        return b"".join(parts)

    @property
    def left_over(self) -> bytes:
        """Bytes that came after the handshake."""
        return bytes(self.state.trailing_data[0])


def request_of(event: h11.Request, body: bytes = b"") -> Request:
    """An h11 request in plain strings."""
    return Request(
        event.method.decode("ascii"),
        event.target.decode("latin-1"),
        tuple(_strings(event.headers.raw_items())),
        body,
    )


def head_of(event: h11.Response | h11.InformationalResponse) -> Head:
    """The head of an h11 response in plain strings."""
    return Head(event.status_code, tuple(_strings(event.headers.raw_items())))


def octets_of(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers as they stand on the wire, whatever octets a peer put there."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _strings(items: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in items]


async def relay_exchange(
    client: HttpLeg, opening: h11.Request, endpoint: Streams, host: str, tamper: ExchangeTamper
) -> None:
    """Carry one request and its response; the endpoint's connection ends with the exchange.

    A tamper that does not touch requests lets the body through as it comes.
    """
    request = request_of(opening)
    whole = type(tamper).request is not ExchangeTamper.request
    if whole:
        request = replace(request, body=await client.body())
        passed = tamper.request(request)
        if isinstance(passed, tuple):
            await _answer(client, *passed, head_only=request.method == "HEAD")
            return
        request = passed
    await asyncio.sleep(tamper.passed_after(request))
    leg = HttpLeg(endpoint, h11.CLIENT)
    await leg.send(
        h11.Request(
            method=request.method,
            target=request.target,
            headers=octets_of(_onward_headers(request, host, whole=whole)),
        )
    )
    if whole:
        if request.body:
            await leg.send(h11.Data(data=request.body))
        await leg.send(h11.EndOfMessage())
    watcher = asyncio.create_task(_follow_client(client, leg, body=not whole))
    try:
        await _relay_response(client, leg, request, tamper)
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


def _onward_headers(request: Request, host: str, *, whole: bool) -> list[tuple[str, str]]:
    dropped = {*_HOP_BY_HOP, "host", *(_FRAMING if whole else ())}
    headers = [item for item in request.headers if item[0].lower() not in dropped]
    had_body = any(name.lower() in _FRAMING for name, _ in request.headers)
    if whole and (request.body or had_body):
        headers.append(("Content-Length", str(len(request.body))))
    return [("Host", host), ("Connection", "close"), *headers]


async def _follow_client(client: HttpLeg, endpoint: HttpLeg, *, body: bool) -> None:
    """Pass on the request's body, then hang up on the endpoint when the client hangs up."""
    try:
        while body:
            event = await client.event()
            with suppress(h11.LocalProtocolError):
                await endpoint.send(event)
            body = isinstance(event, h11.Data)
        await client.until_closed()
    except h11.RemoteProtocolError:
        pass
    endpoint.abort()


async def _relay_response(
    client: HttpLeg, endpoint: HttpLeg, request: Request, tamper: ExchangeTamper
) -> None:
    try:
        event = await endpoint.event()
        while isinstance(event, h11.InformationalResponse):
            await client.send(event)
            event = await endpoint.event()
    except h11.RemoteProtocolError:
        event = None
    if not isinstance(event, h11.Response):
        client.abort()
        return
    head = tamper.head(request, head_of(event))
    await client.send(_response(head))
    clean = True
    while True:
        try:
            event = await endpoint.event()
        except h11.RemoteProtocolError:
            clean = False
            break
        if not isinstance(event, h11.Data):
            break
        for part in tamper.body(bytes(event.data)):
            if isinstance(part, bytes):
                await _send_data(client, part)
            else:
                await asyncio.sleep(part)
    rest, clean = tamper.end(clean=clean)
    await _send_data(client, rest)
    await _finish(client, clean=clean)


async def _send_data(client: HttpLeg, data: bytes) -> None:
    if data:
        # A tamper may have said less in Content-Length than it sends: that is its fault to show.
        with suppress(h11.LocalProtocolError):
            await client.send(h11.Data(data=data))


async def _finish(client: HttpLeg, *, clean: bool) -> None:
    if clean:
        try:
            await client.send(h11.EndOfMessage())
        except h11.LocalProtocolError:
            clean = False
    if not clean:
        client.abort()


async def _answer(client: HttpLeg, head: Head, body: bytes, *, head_only: bool) -> None:
    head = head.without("content-length", "transfer-encoding").having(
        "Content-Length", str(len(body))
    )
    await client.send(_response(head))
    if not head_only:
        await _send_data(client, body)
    await _finish(client, clean=True)


def _response(head: Head) -> h11.Response:
    return h11.Response(
        status_code=head.status,
        headers=octets_of(head.without(*_HOP_BY_HOP).headers),
    )
