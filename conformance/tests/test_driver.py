"""The driver on sockets that misbehave: it sends anything and survives anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.driver import (
    Address,
    ConnectFailed,
    HandshakeRefused,
    HttpConnection,
    Recorder,
    WebSocketSession,
    fetch_status,
    tls_context,
)
from utterwire_conformance.driver.connection import open_stream
from utterwire_conformance.endpoints import Endpoint, Timeouts
from utterwire_conformance.runner import run_checks
from utterwire_conformance.target import Target
from utterwire_conformance.transcript import Case, Transcript
from utterwire_conformance.verdict import Verdict
from utterwire_conformance.wire import (
    Frame,
    FrameDecoder,
    Opcode,
    accept_key,
    close_payload,
    encode,
    parse_close,
)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
# For what comes in any case: a machine may halt for seconds.
_WITHIN_S = 60.0


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handler(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # What a peer has not taken by now keeps no connection open beyond the test.
        for writer in writers:
            writer.transport.abort()


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Answer a handshake; the request."""
    request = await reader.readuntil(b"\r\n\r\n")
    key = next(
        line.partition(b": ")[2].decode()
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key")
    )
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    writer.write(f"{head}Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode())
    return request


async def frames_of(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    decoder = FrameDecoder()
    while data := await reader.read(65_536):
        for frame in decoder.feed(data):
            yield frame


def recorder() -> Recorder:
    return Recorder(Transcript("test"))


async def open_at(port: int, record: Recorder | None = None, **options: object) -> WebSocketSession:
    return await WebSocketSession.open(
        f"ws://127.0.0.1:{port}/p?key=1",
        record or recorder(),
        EndpointClaims(),
        within=_WITHIN_S,
        **options,  # type: ignore[arg-type]
    )


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back every frame as it came, and answers closes and pings."""
    await shake_hands(reader, writer)
    async for frame in frames_of(reader):
        opcode = {Opcode.PING: Opcode.PONG}.get(Opcode(frame.opcode), frame.opcode)
        writer.write(encode(Frame(opcode, frame.payload, frame.fin)))
        if frame.opcode == Opcode.CLOSE:
            return


async def test_frames_of_every_kind_are_sent_and_recorded() -> None:
    record = recorder()
    async with serving(echo) as port, await open_at(port, record) as session:
        case = Case("a case", "x.y", "accept")
        assert await session.send({"text": "é"}, case=case) == 1
        between = Frame(Opcode.PING, b"p")
        assert (
            await session.send_fragments(
                [b"a", b"", b"b"], kind="binary", between=lambda n: between if n else None
            )
            == 2
        )
        await session.send_frame(Frame(Opcode.TEXT, b"x", rsv=4))
        assert await session.until(lambda: len(session.dialogue.chunks) >= 3, within=_WITHIN_S)
        assert await session.until_pongs(1, _WITHIN_S)
        assert [s.data for s in session.dialogue.sent] == ['{"text": "é"}'.encode(), b"ab"]
        assert session.dialogue.sent[0].case == case
        assert session.dialogue.sent[1].frames == 3
        # What was sent with a reserved bit is no message, and the echo took that bit away.
        assert session.dialogue.chunks[2].data == b"x"
        await session.say_goodbye(_WITHIN_S)
    kinds = [(e.dir, e.kind) for e in record.transcript.entries]
    assert kinds.index(("out", "close")) < kinds.index(("in", "close"))
    assert ("out", "raw") in kinds
    assert all("key=1" not in (e.target or "") for e in record.transcript.entries)


async def test_headers_are_sent_and_hidden() -> None:
    seen = bytearray()

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await shake_hands(reader, writer))

    record = recorder()
    async with serving(look) as port:
        session = await open_at(port, record, headers=[("X-Token", "abc")], extensions="foo")
        await session.end()
    assert b"X-Token: abc" in seen
    assert b"Sec-WebSocket-Extensions: foo" in seen
    assert b"GET /p?key=1 " in seen
    assert "abc" not in "".join(record.transcript.to_lines())


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", HandshakeRefused, "404"),
        (
            b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
            HandshakeRefused,
            "Accept",
        ),
        (
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
            HandshakeRefused,
            "403",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ConnectFailed, "HTTP"),
        (b"", ConnectFailed, "closed"),
    ],
)
async def test_handshakes_that_fail(answer: bytes, error: type[Exception], words: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with serving(refuse) as port:
        with pytest.raises(error, match=words):
            await open_at(port)


async def test_a_handshake_that_is_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def connected(
        address: Address, *, within: float, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # Only the handshake has little time.
        return await open_stream(address, within=_WITHIN_S, **options)

    monkeypatch.setattr("utterwire_conformance.driver.websocket.open_stream", connected)
    async with serving(stay) as port:
        with pytest.raises(ConnectFailed, match="not answered within"):
            await WebSocketSession.open(
                f"ws://127.0.0.1:{port}", recorder(), EndpointClaims(), within=0.05
            )


async def test_nobody_there() -> None:
    # Taken, so that nobody else listens there.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for receive_buffer in (None, 8192):
            with pytest.raises(ConnectFailed, match="Connection refused"):
                await open_at(port, receive_buffer=receive_buffer)
        assert await fetch_status(f"http://127.0.0.1:{port}/") is None
    with pytest.raises(ConnectFailed, match="name is not known"):
        await WebSocketSession.open(
            "ws://no-such-host.invalid", recorder(), EndpointClaims(), within=_WITHIN_S
        )


async def test_pings_and_closes_of_the_peer_are_answered() -> None:
    got: list[Frame] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(
            encode(Frame(Opcode.PING, b"you?")) + encode(Frame(Opcode.CLOSE, close_payload(1001)))
        )
        async for frame in frames_of(reader):
            got.append(frame)
            if frame.opcode == Opcode.CLOSE:
                return

    async with serving(peer) as port, await open_at(port) as session:
        await session.until_close(_WITHIN_S)
        await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert session.dialogue.hung_up
    assert [f.opcode for f in got] == [Opcode.PONG, Opcode.CLOSE]
    assert got[0].payload == b"you?"
    assert parse_close(got[1].payload).code == 1001


async def test_a_close_that_is_not_answered_is_noted() -> None:
    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        await reader.read()

    record = recorder()
    async with serving(stay) as port:
        session = await open_at(port, record)
        await session.say_goodbye(0.05)
        await session.end()
    assert any(e.text == "the close frame was not answered" for e in record.transcript.entries)


async def test_frames_that_cannot_be_are_recorded_raw() -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(encode(Frame(Opcode.TEXT, b"{}", rsv=4)))
        writer.write(encode(Frame(Opcode.TEXT, b"{}", mask=b"abcd")))
        writer.write(encode(Frame(0x5, b"?")))
        writer.write(b"\x82\x7f" + b"\x7f" * 8)
        await reader.read()

    record = recorder()
    async with serving(odd) as port, await open_at(port, record) as session:
        await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert len(session.dialogue.broken_frames) == 3
        assert session.dialogue.eof is not None
        assert "announced" in (session.dialogue.eof.reason or "")


async def test_a_reset_is_an_end_like_any_other() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        await reader.read(1)
        writer.transport.abort()

    async with serving(reset) as port, await open_at(port) as session:
        await session.send(b"x" * 3_000_000)
        assert not await session.until(lambda: False, within=_WITHIN_S)
        await session.send(b"into the void")
        assert session.dialogue.ended


async def test_a_paused_session_reads_nothing_until_it_is_resumed() -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        async for frame in frames_of(reader):
            if frame.opcode == Opcode.CLOSE:
                return
            for _ in range(50):
                writer.write(encode(Frame(Opcode.BINARY, bytes(10_000))))

    async with serving(pour) as port, await open_at(port, receive_buffer=8192) as session:
        session.pause()
        await session.send(b"go")
        assert not await session.until(lambda: bool(session.dialogue.chunks), within=0.2)
        session.resume()
        assert await session.until(lambda: len(session.dialogue.chunks) == 50, within=_WITHIN_S)


async def test_a_slow_reader_holds_the_sender_and_still_reads() -> None:
    octets = 4_000_000
    sent = asyncio.Event()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        for _ in range(octets // 1_000):
            writer.write(encode(Frame(Opcode.BINARY, bytes(1_000))))
            await writer.drain()
        sent.set()
        await reader.read()

    async with serving(pour) as port, await open_at(port, receive_buffer=8192) as session:
        session.sip()
        assert await session.until(lambda: len(session.dialogue.chunks) > 4, within=_WITHIN_S)
        assert not sent.is_set()
        session.resume()
        whole = octets // 1_000
        assert await session.until(lambda: len(session.dialogue.chunks) == whole, within=_WITHIN_S)
        await session.abort()


async def test_an_end_in_the_middle_of_a_frame_is_noted() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(encode(Frame(Opcode.BINARY, bytes(100)))[:50])

    async with serving(cut) as port, await open_at(port) as session:
        assert await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert "ended in a frame" in session.dialogue.facts


async def test_breaking_off_leaves_nothing_behind() -> None:
    async with serving(echo) as port:
        session = await open_at(port)
        await session.abort()
        assert session.dialogue.aborted
        cancelled = asyncio.create_task(_hang(port))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    assert not [task for task in asyncio.all_tasks() if "WebSocketSession" in repr(task)]


async def _hang(port: int) -> None:
    async with await open_at(port) as session:
        await session.until(lambda: False, within=60.0)


def respond(*pieces: bytes, stay: bool = False) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length"):
                await reader.readexactly(int(line.partition(b":")[2]))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if stay:
            await reader.read()

    return handler


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\nA: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "status", "body", "clean"),
    [
        ((CHUNKED, b"3\r\nabc\r\n", b"0\r\n\r\n"), 200, b"abc", True),
        ((CHUNKED, b"3\r\nabc\r\n"), 200, b"abc", False),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",), 200, b"ab", False),
        ((b"HTTP/1.1 204 No\r\n\r\n",), 204, b"", True),
        ((b"nonsense\r\n\r\n",), None, b"", False),
        ((), None, b"", False),
    ],
)
async def test_how_a_body_ends(
    pieces: tuple[bytes, ...], status: int | None, body: bytes, clean: bool
) -> None:
    record = recorder()
    async with serving(respond(*pieces)) as port:
        connection = await HttpConnection.open(
            f"http://127.0.0.1:{port}/?k=1", record, headers=[("X-Token", "abc")]
        )
        async with connection:
            await connection.send("POST", "/invocations", b"{}")
            assert await connection.head(within=_WITHIN_S) == status
            await connection.read(within=_WITHIN_S)
            assert (bytes(connection.body), connection.clean) == (body, clean)
    assert "abc" not in connection.headers.values()


async def test_a_body_is_read_as_far_as_one_likes() -> None:
    async with serving(respond(CHUNKED, b"3\r\nabc\r\n", stay=True)) as port:
        connection = await HttpConnection.open(f"http://127.0.0.1:{port}", recorder())
        async with connection:
            await connection.send("GET", "/")
            await connection.head(within=_WITHIN_S)
            assert connection.headers["a"] == "1, 2"
            assert await connection.read(within=_WITHIN_S, at_least=2) == b"abc"
            assert await connection.read(within=0.05) == b"abc"
            assert connection.clean is None


@pytest.mark.parametrize(
    ("limit", "medium", "what"),
    [
        ("MOST_FRAMES", "audio/pcm", "more than 5 pieces"),
        ("_MOST_LINES", "text/event-stream", "more than 5 lines"),
    ],
)
async def test_a_body_without_end_is_not_read_on(
    limit: str, medium: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"utterwire_conformance.driver.http.{limit}", 5)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {medium}\r\nTransfer-Encoding: chunked\r\n\r\n"
    record = recorder()
    async with serving(respond(head.encode(), *[b"2\r\n\n\n\r\n"] * 20, stay=True)) as port:
        connection = await HttpConnection.open(f"http://127.0.0.1:{port}", record)
        async with connection:
            await connection.send("GET", "/")
            await connection.read(within=_WITHIN_S)
            assert connection.clean is False
    (end,) = [entry for entry in record.transcript.entries if entry.kind == "eof"]
    assert what in (end.reason or "")


async def test_a_connection_that_is_over_carries_no_request() -> None:
    async with serving(respond(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nx")) as port:
        connection = await HttpConnection.open(f"http://127.0.0.1:{port}", recorder())
        async with connection:
            await connection.send("GET", "/")
            await connection.head(within=_WITHIN_S)
            await connection.read(within=_WITHIN_S)
            with pytest.raises(ConnectFailed, match="cannot carry"):
                await connection.send("GET", "/")


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("ws://h", Address("h", 80, False, "/"), "h"),
        ("wss://h/x?y", Address("h", 443, True, "/x?y"), "h"),
        ("http://[::1]:8080/", Address("::1", 8080, False, "/"), "[::1]:8080"),
    ],
)
def test_addresses(url: str, address: Address, authority: str) -> None:
    assert Address.of(url) == address
    assert address.authority == authority


def test_trust(tmp_path: Path) -> None:
    assert tls_context() is not None
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConnectFailed, match="ca_file"):
        tls_context(tmp_path / "ca.pem")
    with pytest.raises(ConnectFailed, match="ca_file"):
        tls_context(tmp_path / "none.pem")


async def test_a_flood_of_small_frames_comes_to_an_end() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        while True:
            writer.write(encode(Frame(Opcode.TEXT, b"{}")) * 100)
            await writer.drain()

    async with serving(flood) as port:
        session = await open_at(port)
        session.most_frames = 1_000
        assert await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert session.dialogue.eof is not None
        assert "1000 frames" in (session.dialogue.eof.reason or "")
        await session.end()


async def test_a_flood_of_pings_is_read_and_not_answered_one_by_one() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        while True:
            writer.write(encode(Frame(Opcode.PING, b"x" * 100)) * 100)
            await writer.drain()

    async with serving(flood) as port:
        session = await open_at(port)
        session.most_bytes = 200_000
        assert await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert session.dialogue.eof is not None
        assert "reads no further" in (session.dialogue.eof.reason or "")
        await session.end()


async def test_a_peer_that_takes_nothing_does_not_stop_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    monkeypatch.setattr("utterwire_conformance.driver.websocket.SEND_S", 0.01)
    async with serving(ignore) as port:
        session = await open_at(port)
        # Far more than two sockets hold.
        await session.send(b"x" * 20_000_000)
        await session.end()


async def test_a_body_without_end() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10\r\n0123456789abcdef\r\n" * 1000)
            await writer.drain()

    async with serving(endless) as port:
        connection = await HttpConnection.open(f"http://127.0.0.1:{port}", recorder())
        connection.most_bytes = 100_000
        async with connection:
            await connection.send("GET", "/x")
            assert await connection.head(within=_WITHIN_S) == 200
            await connection.read(within=_WITHIN_S)
            assert connection.clean is False


async def test_an_endpoint_that_never_ends_is_not_waited_for_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        while True:
            writer.write(encode(Frame(Opcode.BINARY, b"ab")))
            await writer.drain()
            await asyncio.sleep(0.01)

    monkeypatch.setattr("utterwire_conformance.scenarios.probe._MORE_S", 0.1)
    monkeypatch.setattr("utterwire_conformance.stage._HOPELESS_LIMIT_S", 0.3)
    async with serving(drip) as port:
        endpoint = Endpoint("x", url=f"ws://127.0.0.1:{port}", timeouts=Timeouts(first_byte_s=0.1))
        results = await run_checks(Target(endpoint), ["ws.path", "accept.text_floor"])
    assert results.transcripts["probe"].unfinished == "a first utterance of a few words did not end"
    assert results.transcripts["text-floor"].unfinished == "it was not over after 0.3 s"
    assert results.judgements["ws.path"].verdict is Verdict.PASS
