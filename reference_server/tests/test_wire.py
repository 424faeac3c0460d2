"""Peers that break the framing, flood, or never finish a head: bounded, and told why."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from typing import Any

import pytest
import uvicorn
from starlette.types import Scope
from utterwire_server import runner, wire
from websockets.frames import Opcode

BROKEN: list[tuple[bytes, int]] = [
    (b"\x81\x05hello", 1002),  # not masked
    (b"\xf1\x80\0\0\0\0", 1002),  # reserved bits
    (b"\x83\x80\0\0\0\0", 1002),  # unknown opcode
    (b"\x89\xfe\x00\x7e\0\0\0\0" + b"x" * 126, 1002),  # ping of 126 bytes
    (b"\x09\x80\0\0\0\0", 1002),  # ping in fragments
    (b"\x80\x80\0\0\0\0", 1002),  # continuation of nothing
    (b"\x01\x80\0\0\0\0\x81\x80\0\0\0\0", 1002),  # a message within another
    (b"\x88\x81\0\0\0\0\x03", 1002),  # close with one byte
    (b"\x88\x82\0\0\0\0\x03\xec", 1002),  # close with 1004
    (b"\x81\x82\0\0\0\0\xc3\x28", 1007),
    (b"\x01\x81\0\0\0\0\xc3\x80\x81\0\0\0\0\x28", 1007),
    (b"\x82\xff" + struct.pack("!Q", 2**62) + b"\0\0\0\0", 1009),
    (b"\x82\xff" + struct.pack("!Q", 65_537) + b"\0\0\0\0" + b" " * 65_537, 1009),
]


async def test_broken_framing(start: Any, connect: Any) -> None:
    server = await start(max_message_bytes=65_536)
    for data, code in BROKEN:
        peer = await connect(server)
        peer.write(data)
        assert await peer.closed() == code, data[:20]
        await peer.leave()
    other = await connect(server)
    other.say(text="Hi.")
    await other.until("synthesis_complete")


async def test_a_message_too_large_in_fragments(start: Any, connect: Any) -> None:
    peer = await connect(await start(max_message_bytes=65_536))
    peer.send(b" " * 40_000, fin=False)
    peer.send(b" " * 25_536, opcode=Opcode.CONT, fin=False)
    peer.send(b" ", opcode=Opcode.CONT, fin=False)
    assert await peer.closed() == 1009


async def test_the_close_code_survives_a_sender_that_goes_on(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket closed with unread data is reset, and the close frame lost with it."""
    # Longer than the sender goes on, however slow it is.
    monkeypatch.setattr(wire, "LINGER_S", 60.0)
    peer = await connect(await start(max_message_bytes=65_536))
    peer.write(b"\x82\xff" + struct.pack("!Q", 3_000_000) + b"\0\0\0\0")
    sending = asyncio.create_task(_send(peer, b" " * 3_000_000))
    assert await peer.closed() == 1009
    await sending


async def _send(peer: Any, data: bytes) -> None:
    for at in range(0, len(data), 10_000):
        peer.write(data[at : at + 10_000])
        await peer.writer.drain()
        await asyncio.sleep(0)


async def test_a_broken_connection_is_not_kept(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(wire, "LINGER_S", 0.05)
    server = await start()
    peer = await connect(server)
    peer.write(b"\x83\x80\0\0\0\0")
    assert await peer.closed() == 1002
    async with asyncio.timeout(60):
        await eventually(lambda: not server.runner._server.server_state.connections)


async def test_what_came_before_a_broken_frame_counts(start: Any, connect: Any) -> None:
    peer = await connect(await start())
    peer.write(b"\x89\x81\0\0\0\0x\x83\x80\0\0\0\0")
    assert await peer.closed() == 1002
    assert (Opcode.PONG, b"x") in peer.frames


@pytest.mark.parametrize(
    "offer", ["permessage-deflate", "permessage-deflate; client_max_window_bits"]
)
async def test_compression_is_declined(start: Any, connect: Any, offer: str) -> None:
    peer = await connect(await start(), headers=f"Sec-WebSocket-Extensions: {offer}\r\n")
    assert peer.status == 101
    assert "sec-websocket-extensions" not in peer.headers
    peer.say(text="Hi.")
    await peer.until("synthesis_complete")


HANDSHAKES: list[tuple[str, str, int | set[int]]] = [
    ("/elsewhere", "", 404),
    ("/ping", "", 404),
    ("/invocations-bidirectional-stream/", "", 404),
    ("/invocations-bidirectional-stream?x=1", "", 101),
    ("http://localhost/invocations-bidirectional-stream?x=1", "", 101),
    ("http://localhost", "", 404),
    ("/invocations-bidirectional-stream", "Sec-WebSocket-Version: 99\r\n", 400),
    ("/invocations-bidirectional-stream", "".join(f"X-{n}: y\r\n" for n in range(200)), {400, 431}),
    ("/invocations-bidirectional-stream", f"X: {'y' * 20_000}\r\n", {400, 431}),
]


async def test_handshakes(start: Any, connect: Any, eventually: Any) -> None:
    server = await start()
    for path, headers, status in HANDSHAKES:
        peer = await connect(server, path, headers=headers)
        expected = status if isinstance(status, set) else {status}
        assert peer.status in expected, (path, headers[:40])
        if status != 101:
            async with asyncio.timeout(60):
                await peer.reader.read()
        await peer.leave()
        await eventually(lambda: not server.runner._server.server_state.connections)


async def test_pings_are_answered_in_mid_utterance(start: Any, connect: Any) -> None:
    from utterwire_server.engines import ToneEngine

    peer = await connect(await start(ToneEngine(0.5)))
    peer.say(text="A rather long sentence, to have time.")
    await peer.until("synthesis_start")
    for payload in (b"", b"x" * 125):
        peer.send(payload, opcode=Opcode.PING)
        while (await peer.frame()) != (Opcode.PONG, payload):
            assert b"synthesis_complete" not in peer.frames[-1][1]


async def test_pings_that_nobody_reads_pile_up_nothing(start: Any, connect: Any) -> None:
    server = await start()
    peer = await connect(server, receive_buffer=4_096)
    connections = server.runner._server.server_state.connections

    def waiting() -> int:
        return sum(c._transport.get_write_buffer_size() for c in connections)

    sending = asyncio.create_task(_ping(peer, 60_000))
    most = 0
    while not sending.done():
        most = max(most, waiting())
        await asyncio.sleep(0.001)
    assert most < 65_536
    # Reading again, it gets the answer to the last one.
    last = b"%125d" % 59_999
    while (await peer.frame()) != (Opcode.PONG, last):
        pass
    assert len(peer.frames) < 60_000
    peer.say(text="Hi.")
    await peer.until("synthesis_complete")


async def _ping(peer: Any, count: int) -> None:
    for number in range(count):
        peer.send(b"%125d" % number, opcode=Opcode.PING)
        await peer.writer.drain()


async def test_sockets_hold_little_and_send_at_once(start: Any, connect: Any) -> None:
    server = await start(send_buffer_bytes=16_384)
    await connect(server)
    (connection,) = server.runner._server.server_state.connections
    sock = connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * 16_384
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_fragments_without_bytes_pile_up_nothing(start: Any, connect: Any) -> None:
    server = await start()
    peer = await connect(server)
    peer.send(b'{"text"', fin=False)
    for _ in range(2_000):
        peer.send(b"", opcode=Opcode.CONT, fin=False)
    peer.send(b"ok", opcode=Opcode.PING)
    while (await peer.frame()) != (Opcode.PONG, b"ok"):
        pass
    (connection,) = server.runner._server.server_state.connections
    assert len(connection._gathered) == 7
    peer.send(b': "Hi."}', opcode=Opcode.CONT)
    await peer.until("synthesis_complete")


async def test_a_head_that_never_comes(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "OPENING_S", 0.1)
    server = await start()
    for sent in (b"", b"GET /ping HTTP/1.1\r\nHost:"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


async def test_the_wire_of_another_server_is_taken_as_it_is() -> None:
    scope: Scope = {"type": "websocket"}
    plain = wire.wire_of(scope)
    assert plain.is_writable
    await plain.drained()
    assert not plain.hang_up()


async def _serve_app(app: Any) -> tuple[uvicorn.Server, asyncio.Task[None], int]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app, ws=wire.WebSocketWire, http=wire.HttpWire, lifespan="off", log_config=None
        )
    )
    return server, asyncio.create_task(server.serve([sock])), sock.getsockname()[1]


async def _plain(scope: Any, receive: Any, send: Any) -> None:
    """An application that does whatever its path says."""
    await receive()
    match scope["path"]:
        case "/refuse":
            await send({"type": "websocket.close"})
        case "/nothing":
            return
        case "/raise":
            raise RuntimeError("spoken words")
        case "/early":
            await send({"type": "websocket.send", "text": "too early"})
        case "/twice":
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.accept"})
        case "/late":
            await send({"type": "websocket.accept", "headers": [(b"x-own", b"1")]})
            await send({"type": "websocket.close", "code": 4000, "reason": "bye"})
            await send({"type": "websocket.send", "text": "too late"})
        case "/gone":
            await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass
            await send({"type": "websocket.send", "text": "too late"})
        case _:
            await send({"type": "websocket.accept"})
            await receive()


async def test_other_applications(connect: Any, eventually: Any, log_lines: Any) -> None:
    """The wire is an ASGI transport as any other, also for an application with faults."""
    server, serving, port = await _serve_app(_plain)
    target = type("Target", (), {"port": port})()
    for path, status, code in (
        ("/refuse", 403, None),
        ("/nothing", 500, None),
        ("/raise", 500, None),
        ("/early", 500, None),
        ("/twice", 101, None),
        ("/late", 101, 4000),
    ):
        peer = await connect(target, path)
        assert peer.status == status, path
        if status == 101:
            assert await peer.closed() == code, path
        await peer.leave()
    gone = await connect(target, "/gone")
    gone.writer.transport.abort()
    await eventually(lambda: not server.server_state.connections and not server.server_state.tasks)
    assert [event for event, _ in log_lines] == ["application_failed"] * 3
    assert "spoken" not in repr(log_lines)
    stays = await connect(target, "/stays")
    server.should_exit = True
    assert await stays.closed() == 1012
    await stays.leave()
    await serving


async def test_the_connection_that_is_idle_for_longest_makes_way(
    start: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(runner, "SPARE_CONNECTIONS", 1)  # three in all
    server = await start(max_sessions=1)
    connections = server.runner._server.server_state.connections
    idle = []
    for number in range(1, 4):
        idle.append(await asyncio.open_connection("127.0.0.1", server.port))
        await eventually(lambda number=number: len(connections) == number)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        assert b"200" in await reader.readline()
        assert await idle[0][0].read() == b""
    assert not any(reader.at_eof() for reader, _ in idle[1:])
    for _, each in [*idle, (reader, writer)]:
        each.close()


async def test_where_nobody_is_idle_there_is_no_room(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SPARE_CONNECTIONS", -1)  # one in all
    server = await start(max_sessions=1)
    peer = await connect(server)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(60):
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
    writer.close()
    peer.say(text="Hello.")
    await peer.until("synthesis_complete")


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [
        (1_024, 4_096, (1_344, 4_096), 704),
        (1_024, 1_024, (1_024, 1_024), 704),
        (128, resource.RLIM_INFINITY, (1_344, resource.RLIM_INFINITY), 64),
        (1, 1, (1, 1), 1),
        (4_096, 4_096, None, 1_024),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 1_024),
    ],
)
def test_there_are_files_for_connections_and_no_more_than_these(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    raised: tuple[int, int] | None,
    most: int,
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    assert runner._most_connections(256) == most
    runner._raise_file_limit(256)
    assert set_to == ([] if raised is None else [raised])
