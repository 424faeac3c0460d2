"""The link with a delay: nothing lost, nothing early, nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from delayed_link import DelayedLink

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """A server that sends back what it gets, until the sender ends; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(1000):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def tunnel(link: DelayedLink, target: str) -> tuple[bytes, Streams]:
    """The first line of the answer, and the tunnel."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(link.url).port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], (reader, writer)


async def test_all_comes_back_in_order_and_no_sooner_than_a_round_trip() -> None:
    delay_s = 0.05
    loop = asyncio.get_running_loop()
    data = random.Random(1).randbytes(300_000)
    async with echo() as port, DelayedLink("127.0.0.1", port, delay_s) as link:
        status, (reader, writer) = await tunnel(link, f"127.0.0.1:{port}")
        assert status == b"HTTP/1.1 200 Connected"
        began = loop.time()
        for at in range(0, len(data), 7_001):
            writer.write(data[at : at + 7_001])
        writer.write_eof()
        first = await reader.readexactly(1)
        # A timer may go off before its time by no more than the clock's resolution.
        assert loop.time() - began >= 2 * delay_s - 0.002
        # The end of one direction is carried as the end of that direction.
        assert first + await reader.read() == data
        writer.close()


async def test_it_leads_to_one_place_only() -> None:
    async with echo() as port, DelayedLink("127.0.0.1", port, 0.0) as link:
        status, (reader, writer) = await tunnel(link, "127.0.0.1:22")
        assert status == b"HTTP/1.1 403 Forbidden"
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("head", [b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000, b"CONN"])
async def test_what_is_no_request_for_a_tunnel_gets_none(head: bytes) -> None:
    async with echo() as port, DelayedLink("127.0.0.1", port, 0.0) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(link.url).port)
        writer.write(head)
        writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            assert not (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_place_that_is_not_there_is_told() -> None:
    # Taken, so that nobody else listens there.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with DelayedLink("127.0.0.1", port, 0.0) as link:
            status, (_, writer) = await tunnel(link, f"127.0.0.1:{port}")
            assert status == b"HTTP/1.1 502 Bad Gateway"
            writer.close()


@pytest.mark.parametrize("abruptly", [True, False])
async def test_who_hangs_up_ends_the_tunnel(abruptly: bool) -> None:
    before = asyncio.all_tasks()
    async with echo() as port, DelayedLink("127.0.0.1", port, 0.01) as link:
        _, (reader, writer) = await tunnel(link, f"127.0.0.1:{port}")
        writer.write(b"x" * 50_000)
        await reader.readexactly(1)
        if abruptly:
            writer.transport.abort()
        # Leaving the block hangs up on everybody.
    await asyncio.sleep(0)
    left = {task for task in asyncio.all_tasks() - before if "DelayedLink" in repr(task)}
    assert not left
    writer.close()
