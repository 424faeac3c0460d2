"""The proxy without a fault changes nothing that either side can see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from utterwire_conformance.proxy import FaultProxy
from utterwire_conformance.wire import Frame, FrameDecoder, Opcode, accept_key, encode

MASK = b"\x01\x02\x03\x04"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_head(reader: asyncio.StreamReader) -> dict[str, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {"": first}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, str]:
    headers = await read_head(reader)
    key = accept_key(headers["sec-websocket-key"])
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + key.encode() + b"\r\n\r\n"
    )
    return headers


async def connect(
    proxy: FaultProxy, path: str = "/x"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, str]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: somewhere\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Version: 13\r\nAuthorization: Bearer t\r\n\r\n".encode()
    )
    return reader, writer, await read_head(reader)


BYTES = [
    pytest.param([encode(Frame(Opcode.TEXT, b"abc", mask=MASK))], id="text"),
    pytest.param([encode(Frame(Opcode.TEXT, "\u00e9".encode()[:1], mask=MASK))], id="bad-utf8"),
    pytest.param(
        [
            encode(Frame(Opcode.TEXT, b"a", fin=False, mask=MASK)),
            encode(Frame(Opcode.PING, b"p", mask=MASK)),
            encode(Frame(Opcode.CONTINUATION, b"b", mask=MASK)),
        ],
        id="ping-between-fragments",
    ),
    pytest.param([encode(Frame(Opcode.TEXT, b"abc"))], id="unmasked"),
    pytest.param([encode(Frame(0x3, b"abc", rsv=5, mask=MASK))], id="reserved-bits"),
    pytest.param([b"\x81\xfe\x00\x03" + MASK + b"abc"], id="length-not-minimal"),
    pytest.param([b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff" + MASK + b"x"], id="absurd-length"),
    pytest.param([bytes([octet]) for octet in encode(Frame(2, b"z" * 300, mask=MASK))], id="drip"),
    pytest.param([encode(Frame(Opcode.BINARY, b"z" * 300, mask=MASK))[:100]], id="half-a-frame"),
]


@pytest.mark.parametrize("pieces", BYTES)
async def test_the_clients_bytes_arrive_as_sent(pieces: list[bytes]) -> None:
    got = asyncio.get_running_loop().create_future()

    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await upgrade(reader, writer)
        got.set_result(await reader.read(-1))

    async with upstream(endpoint) as url, FaultProxy(url) as proxy:
        _, writer, head = await connect(proxy)
        assert head[""] == "HTTP/1.1 101 "
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        assert await got == b"".join(pieces)
        writer.close()


async def test_the_endpoints_frames_arrive_as_sent() -> None:
    frames = [
        Frame(Opcode.TEXT, b'{"type":"synthesis_start","seq":1}'),
        Frame(Opcode.BINARY, b"\0" * 70_000),
        Frame(Opcode.BINARY, b"\1", fin=False),
        Frame(Opcode.CONTINUATION, b"\2"),
        Frame(Opcode.PING, b"p"),
        Frame(Opcode.CLOSE, b"\x03\xe8"),
    ]

    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = await upgrade(reader, writer)
        assert headers["authorization"] == "Bearer t"
        assert headers[""] == "GET /x?y HTTP/1.1"
        for frame in frames:
            writer.write(encode(frame))

    async with (
        upstream(endpoint) as url,
        FaultProxy(url.replace("http:", "ws:")) as proxy,
    ):
        assert proxy.ws_url == f"ws://127.0.0.1:{proxy.port}"
        assert proxy.http_url == f"http://127.0.0.1:{proxy.port}"
        reader, writer, _ = await connect(proxy, "/x?y")
        assert FrameDecoder().feed(await reader.read(-1)) == frames
        writer.close()


async def test_a_client_that_resets_is_hung_up_on_the_other_side() -> None:
    ended = asyncio.Event()

    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await upgrade(reader, writer)
        with suppress(ConnectionError):
            await reader.read(-1)
        ended.set()

    async with upstream(endpoint) as url, FaultProxy(url) as proxy:
        _, writer, _ = await connect(proxy)
        writer.transport.abort()
        await ended.wait()


async def test_a_refused_handshake_is_passed_on() -> None:
    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nX-A: b\r\n\r\nno")

    async with upstream(endpoint) as url, FaultProxy(url) as proxy:
        reader, writer, head = await connect(proxy)
        assert head[""].startswith("HTTP/1.1 404")
        assert head["x-a"] == "b"
        assert await reader.read(-1) == b"no"
        writer.close()


RESPONSES = [
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello", b"hello", True, id="length"
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\nX-B: \xc3\xa9\r\n\r\n"
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
        True,
        id="chunked",
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5\r\nhello\r\n",
        b"5\r\nhello\r\n",
        False,
        id="aborted",
    ),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 0\r\n\r\n",
        b"",
        True,
        id="informational",
    ),
]


@pytest.mark.parametrize(("response", "body", "clean"), RESPONSES)
async def test_a_response_arrives_as_sent(response: bytes, body: bytes, clean: bool) -> None:
    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = await read_head(reader)
        assert headers[""] == "POST /invocations HTTP/1.1"
        assert await reader.readexactly(3) == b"abc"
        writer.write(response)

    async with upstream(endpoint) as url, FaultProxy(url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        asked = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n%b\r\nabc"
        # Both at once: what was sent ahead waits until the first is answered.
        writer.write(asked % b"" + asked % b"Connection: close\r\n")
        for last in (False, True) if clean else (False,):
            head = await read_head(reader)
            if " 100 " in head[""]:
                head = await read_head(reader)
            assert head["x-a"] == "b"
            assert (await reader.read(-1) if last else await reader.readexactly(len(body))) == body
        if not clean:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        writer.close()


@pytest.mark.parametrize("path", ["/x", "/ping"])
async def test_a_dead_endpoint_looks_dead(path: str) -> None:
    async with upstream(read_head) as url:  # type: ignore[arg-type]
        pass
    async with FaultProxy(url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        upgrade_headers = "" if path == "/ping" else "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{upgrade_headers}\r\n".encode())
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


@pytest.mark.parametrize("url", ["localhost:80", "ftp://x", "ws://"])
def test_a_url_it_cannot_use_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not a ws, wss, http or https URL"):
        FaultProxy(url)
