"""A link that takes its time: what goes in comes out later, in order, in both directions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self

__all__ = ["DelayedLink"]

_PIECE_BYTES: Final = 65_536
#: Pieces that are under way at most, each way; past that the link takes no more.
_PIECES: Final = 1024


class DelayedLink:
    """A proxy on this machine (``CONNECT``, RFC 9110 section 9.3.6), as an async context manager.

    What a tunnel carries is held back for ``delay_s`` each way, so that a round trip takes twice
    as long; the tunnel itself is there at once. It leads to ``host`` and ``port`` and nowhere else.
    TLS goes through it untouched. ``url`` is what to give a client as its proxy.
    """

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self._host = host
        self._port = port
        self._delay_s = delay_s
        self._tunnels: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        if self._tunnels:
            await asyncio.wait(self._tunnels)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tunnels.add(task)
        task.add_done_callback(self._tunnels.discard)
        async with self._closing(writer):
            with contextlib.suppress(
                OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                await self._tunnel(reader, writer)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[:2] != [b"CONNECT", _authority(self._host, self._port)]:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        async with self._closing(far_writer):
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            try:
                async with asyncio.TaskGroup() as both_ways:
                    both_ways.create_task(self._carry(reader, far_writer))
                    both_ways.create_task(self._carry(far_reader, writer))
            except* OSError:
                pass  # where one end is gone, so is the tunnel

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES)

        async def take() -> None:
            while True:
                data = await source.read(_PIECE_BYTES)
                await under_way.put((loop.time() + self._delay_s, data))
                if not data:
                    return

        async def give() -> None:
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(max(due - loop.time(), 0.0))
                if not data:
                    sink.write_eof()
                    return
                sink.write(data)
                await sink.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(take())
            group.create_task(give())

    @contextlib.asynccontextmanager
    async def _closing(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _authority(host: str, port: int) -> bytes:
    return f"[{host}]:{port}".encode() if ":" in host else f"{host}:{port}".encode()
