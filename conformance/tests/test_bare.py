"""Connections whose octets nobody writes down, and how late the suite itself is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from utterwire_conformance.driver import BareConnection, ConnectFailed, OwnDelay

ANSWERS = {
    b"/agrees": b"HTTP/1.1 101 Switching Protocols\r\n\r\nmore",
    b"/refuses": b"HTTP/1.1 503 Busy\r\n\r\n",
    b"/ends": b"",
    b"/floods": b"x" * 100_000,
}


@pytest.fixture
async def peer() -> AsyncIterator[str]:
    """Answers by the path of the request; `/silent` does not answer, and reads no further."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1]
            if path == b"/silent":
                await asyncio.Event().wait()
            writer.write(ANSWERS[path])
        finally:
            writer.close()

    tasks: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "agreed"),
    [("/agrees", True), ("/refuses", False), ("/ends", False), ("/floods", False)],
)
async def test_a_handshake(peer: str, path: str, agreed: bool) -> None:
    async with await BareConnection.open(f"{peer}{path}") as connection:
        assert await connection.shake_hands(within=10) is agreed
        assert await connection.read_to_end(within=10)
        assert await connection.read_some(within=10) == b""


async def test_the_head_can_be_spoiled(peer: str) -> None:
    headers = (("Authorization", "Bearer x"),)
    async with await BareConnection.open(f"{peer}/agrees", headers=headers) as connection:
        head = connection.opening(target="/x", upgrade=None, sec_websocket_version="12").decode()
        assert head.startswith("GET /x HTTP/1.1\r\n")
        assert head.endswith("Authorization: Bearer x\r\n\r\n")
        assert "sec-websocket-version: 12\r\n" in head
        assert "upgrade:" not in head


async def test_a_peer_that_takes_nothing(peer: str) -> None:
    async with await BareConnection.open(f"{peer}/silent", receive_buffer=4096) as connection:
        assert not await connection.shake_hands(within=0.01)
        assert await connection.read_some(within=0.01) == b""
        assert not await connection.read_to_end(within=0.01)
        size = 64 * 1024 * 1024
        assert 0 < await connection.write(bytes(size), within=0.2) < size


async def test_nobody_there(peer: str) -> None:
    with pytest.raises(ConnectFailed):
        await BareConnection.open("ws://127.0.0.1:1/")


async def test_what_the_loop_was_late_is_its_own() -> None:
    async with OwnDelay() as delay:
        await asyncio.sleep(0.02)
        # As a judge or a decoder would hold up the loop.
        time.sleep(0.2)  # noqa: ASYNC251
        await asyncio.sleep(0)
    assert delay.own >= 0.15
    assert delay.took >= 0.2
    assert delay.own <= delay.took
