"""The fault proxy: a socket that stands between a client and an endpoint."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol
from urllib.parse import urlsplit

import h11

from .exchange import HttpLeg, Streams, head_of, octets_of, relay_exchange, request_of
from .session import SessionRelay
from .tamper import ExchangeTamper, Head, SessionTamper, Shared
from .tap import Tap

__all__ = ["FaultProxy", "Tampers"]

_DEFAULT_PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
# Small, so that the proxy adds little to what an endpoint may have unsent.
_BUFFER_BYTES: Final = 16_384
# As on an Ethernet. A segment of the loopback interface is larger than such a buffer: the receiver,
# who acknowledges only every second whole segment at once (RFC 1122 4.2.3.2), would make each
# bufferful wait, 40 ms on Linux.
_SEGMENT_BYTES: Final = 1_400


class Tampers(Protocol):
    """What makes a proxy faulty: a tamper for every session and every exchange."""

    def session(self, shared: Shared, tap: Tap, /) -> SessionTamper:
        """A tamper for one session."""

    def exchange(self, shared: Shared, /) -> ExchangeTamper:
        """A tamper for one HTTP exchange."""


class _Honest:
    session = SessionTamper
    exchange = ExchangeTamper


class FaultProxy:
    """Carries WebSocket sessions and HTTP exchanges to `upstream`, with the faults of `tampers`.

    Args:
        upstream: URL of the endpoint: ws, wss, http or https; its path is prefixed to no request.
        tampers: what to break; None breaks nothing.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        tls: context for an endpoint behind TLS.

    Use it as an async context manager; it listens from entry to exit. Raises `ValueError` for a
    URL it cannot use and `OSError` where it cannot listen.
    """

    def __init__(
        self,
        upstream: str,
        tampers: Tampers | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(upstream)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"{upstream!r} is not a ws, wss, http or https URL")
        self._upstream_host = parts.hostname
        self._upstream_port = parts.port or _DEFAULT_PORTS[parts.scheme]
        self._authority = parts.netloc.rpartition("@")[2]
        is_tls = parts.scheme in ("wss", "https")
        self._tls = (tls or ssl.create_default_context()) if is_tls else None
        self._tampers: Tampers = tampers or _Honest()
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.shared = Shared()

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None:
            raise RuntimeError("the proxy is not running")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def http_url(self) -> str:
        """Base URL for HTTP, without a trailing slash."""
        return f"http://{self._host}:{self.port}"

    @property
    def ws_url(self) -> str:
        """Base URL for WebSocket sessions, without a trailing slash."""
        return f"ws://{self._host}:{self.port}"

    async def __aenter__(self) -> FaultProxy:
        listener = socket.create_server((self._host, self._port))
        # Accepted sockets inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        _small_segments(listener)
        self._server = await asyncio.start_server(self._accepted, sock=listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = HttpLeg((reader, writer), h11.SERVER)
        try:
            turn = 0
            while isinstance(opening := await client.event(), h11.Request):
                turn += 1
                if _asks_for_websocket(opening):
                    await self._serve_session(client, (reader, writer), opening)
                    return
                await self._serve_exchange(client, opening, turn)
                if not client.next_exchange():
                    return
        except h11.ProtocolError:
            client.abort()
        finally:
            await _close(writer)

    async def _serve_exchange(self, client: HttpLeg, opening: h11.Request, turn: int) -> None:
        self.shared.exchanges += 1
        tamper = self._tampers.exchange(self.shared)
        tamper.turn = turn
        await self._with_endpoint(
            client,
            lambda endpoint: relay_exchange(client, opening, endpoint, self._authority, tamper),
        )

    async def _serve_session(self, client: HttpLeg, streams: Streams, opening: h11.Request) -> None:
        self.shared.sessions += 1
        tap = Tap()
        tamper = self._tampers.session(self.shared, tap)
        await asyncio.sleep(tamper.opens_after())
        target = tamper.upgrade(request_of(opening).target)
        await client.body()
        if isinstance(target, Head):
            await _refuse(client, target)
            return

        async def relay(endpoint: Streams) -> None:
            leg = HttpLeg(endpoint, h11.CLIENT)
            headers = [
                (name, value)
                for name, value in opening.headers.raw_items()
                if name.lower() != b"host"
            ]
            host = (b"Host", self._authority.encode("ascii"))
            await leg.send(h11.Request(method="GET", target=target, headers=[host, *headers]))
            await leg.send(h11.EndOfMessage())
            answer = await leg.event()
            if not isinstance(answer, h11.InformationalResponse | h11.Response):
                client.abort()
                return
            head = tamper.handshake(head_of(answer))
            if not isinstance(answer, h11.InformationalResponse):
                await _refuse(client, head, await leg.body())
                return
            if head.status != 101:
                await _refuse(client, head)
                return
            await client.send(
                h11.InformationalResponse(status_code=101, headers=octets_of(head.headers))
            )
            await SessionRelay(streams, endpoint, tamper, tap).run(client.left_over, leg.left_over)

        await self._with_endpoint(client, relay)

    async def _with_endpoint(
        self, client: HttpLeg, relay: Callable[[Streams], Awaitable[None]]
    ) -> None:
        try:
            reader, writer = await self._connect()
        except OSError:
            # As if the client had called the endpoint itself: no answer but a lost connection.
            client.abort()
            return
        try:
            await relay((reader, writer))
        except h11.ProtocolError:
            client.abort()
        finally:
            await _close(writer)

    async def _connect(self) -> Streams:
        """A connection to the endpoint whose buffers are small from the start."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self._upstream_host, self._upstream_port, type=socket.SOCK_STREAM
        )
        problem: OSError | None = None
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _small_segments(sock)
                await loop.sock_connect(sock, address)
                name = self._upstream_host if self._tls is not None else None
                return await asyncio.open_connection(
                    sock=sock, ssl=self._tls, server_hostname=name, limit=_BUFFER_BYTES
                )
            except OSError as error:
                sock.close()
                problem = error
        raise problem or OSError(f"{self._upstream_host} has no address")


def _small_segments(sock: socket.socket) -> None:
    with suppress(OSError, AttributeError):  # Not every system lets a segment be smaller.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)


def _asks_for_websocket(request: h11.Request) -> bool:
    return any(
        name == b"upgrade" and value.lower() == b"websocket" for name, value in request.headers
    )


async def _refuse(client: HttpLeg, head: Head, body: bytes = b"") -> None:
    head = head.without("content-length", "transfer-encoding", "connection", "upgrade")
    head = head.having("Content-Length", str(len(body))).having("Connection", "close")
    await client.send(h11.Response(status_code=head.status, headers=octets_of(head.headers)))
    await client.send(h11.Data(data=body))
    await client.send(h11.EndOfMessage())


async def _close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        writer.close()
        await writer.wait_closed()
