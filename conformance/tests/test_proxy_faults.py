"""What a faulty proxy does on real sockets, and the command that offers it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import h11
import pytest
from utterwire_conformance.faults import FAULTS, main_proxy
from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    CloseSession,
    CutSession,
    ExchangeTamper,
    FaultProxy,
    Head,
    Pause,
    Request,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    ToEndpoint,
    control_frame,
)
from utterwire_conformance.wire import (
    Frame,
    FrameDecoder,
    Opcode,
    accept_key,
    close_payload,
    encode,
)

MASK = b"\1\2\3\4"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def upstream(handler: Callable[[Streams], Awaitable[None]]) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler((reader, writer))
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


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


async def echo(streams: Streams) -> None:
    """Answers every message with itself in a text frame, pings and closes as it should."""
    reader, writer = streams
    head = await head_of(reader)
    key = next(line for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
    answer = accept_key(key.partition(":")[2].strip())
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {answer}\r\n\r\n".encode()
    )
    decoder = FrameDecoder()
    parts = b""
    while data := await reader.read(65_536):
        for frame in decoder.feed(data):
            if frame.opcode == Opcode.CLOSE:
                writer.write(encode(Frame(Opcode.CLOSE, frame.payload)))
                return
            if frame.opcode == Opcode.PING:
                writer.write(encode(Frame(Opcode.PONG, frame.payload)))
                continue
            parts += frame.payload
            if frame.fin:
                writer.write(encode(Frame(Opcode.TEXT, parts)))
                parts = b""


class Client:
    """A session through a proxy, frame by frame."""

    def __init__(self, streams: Streams, head: str) -> None:
        self.reader, self.writer = streams
        self.head = head
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    @classmethod
    async def open(cls, proxy: FaultProxy) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(
            b"GET /x HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        return cls((reader, writer), await head_of(reader))

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.writer.write(encode(frame))

    async def frame(self) -> Frame | None:
        while not self._frames:
            data = await self.reader.read(65_536)
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


def text(data: bytes) -> Frame:
    return Frame(Opcode.TEXT, data, mask=MASK)


class Tampers:
    """Tampers made of functions."""

    def __init__(
        self,
        session: Callable[[Shared, Tap], SessionTamper] = SessionTamper,
        exchange: Callable[[Shared], ExchangeTamper] = ExchangeTamper,
    ) -> None:
        self.session = session
        self.exchange = exchange


@asynccontextmanager
async def session(tamper: Callable[[Shared, Tap], SessionTamper]) -> AsyncIterator[Client]:
    async with upstream(echo) as url, FaultProxy(url, Tampers(tamper)) as proxy:
        client = await Client.open(proxy)
        try:
            yield client
        finally:
            client.writer.close()


class Whole(SessionTamper):
    """Takes part in the client's messages without changing them."""

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        return super().client_message(message)


async def test_messages_go_on_whole() -> None:
    async with session(Whole) as client:
        client.send(Frame(Opcode.TEXT, b"ab", fin=False, mask=MASK))
        client.send(Frame(Opcode.PING, b"p", mask=MASK), Frame(0, b"c", mask=MASK))
        assert await client.frame() == Frame(Opcode.PONG, b"p")
        assert await client.frame() == Frame(Opcode.TEXT, b"abc")
        client.send(Frame(Opcode.CLOSE, close_payload(1000), mask=MASK))
        assert await client.frame() == Frame(Opcode.CLOSE, close_payload(1000))
        assert await client.frame() is None


async def test_half_a_frame_goes_on_when_the_client_ends() -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def endpoint(streams: Streams) -> None:
        reader, writer = streams
        await head_of(reader)
        writer.write(
            b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            + encode(Frame(Opcode.BINARY, b"xyz"))[:3]
        )
        got.set_result(await reader.read(-1))

    async with upstream(endpoint) as url, FaultProxy(url, Tampers(Whole)) as proxy:
        client = await Client.open(proxy)
        client.writer.write(encode(text(b"abc"))[:5])
        client.writer.write_eof()
        assert await got == encode(text(b"abc"))[:5]
        assert await client.reader.read(-1) == encode(Frame(Opcode.BINARY, b"xyz"))[:3]
        client.writer.close()


async def test_a_frame_of_absurd_length_goes_on_as_it_came() -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    absurd = b"\x81\xff\x00\x00\xff\xff\xff\xff\xff\xff" + MASK

    async def endpoint(streams: Streams) -> None:
        reader, writer = streams
        await head_of(reader)
        writer.write(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        got.set_result(await reader.readexactly(len(absurd) + 4))

    async with upstream(endpoint) as url, FaultProxy(url, Tampers(Whole)) as proxy:
        client = await Client.open(proxy)
        client.writer.write(absurd)
        await client.writer.drain()
        client.writer.write(b"more")
        assert await got == absurd + b"more"
        client.writer.close()


class OnText(SessionTamper):
    """Does the same at each message."""

    def __init__(self, shared: Shared, tap: Tap, actions: list[Action]) -> None:
        super().__init__(shared, tap)
        self._actions = actions

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        return self._actions


async def test_a_session_is_closed_by_the_proxy() -> None:
    actions: list[Action] = [
        ToClient(control_frame({"type": "a"})),
        CloseSession(1008, "no"),
        ToClient(control_frame({"type": "b"})),
    ]
    async with session(lambda shared, tap: OnText(shared, tap, actions)) as client:
        client.send(text(b"x"))
        assert await client.frame() == Frame(Opcode.TEXT, b'{"type":"a"}')
        assert await client.frame() == Frame(Opcode.CLOSE, close_payload(1008, "no"))
        assert await client.frame() is None
        client.send(text(b"late"))
        await client.writer.drain()


async def test_a_session_is_cut_by_the_proxy() -> None:
    async with session(lambda shared, tap: OnText(shared, tap, [CutSession()])) as client:
        client.send(text(b"x"))
        with contextlib.suppress(ConnectionResetError):
            assert await client.frame() is None


async def test_a_session_is_held_up_by_the_proxy() -> None:
    actions: list[Action] = [Pause(0.0), ToEndpoint(Frame(Opcode.TEXT, b"other"))]
    async with session(lambda shared, tap: OnText(shared, tap, actions)) as client:
        client.send(text(b"x"))
        assert await client.frame() == Frame(Opcode.TEXT, b"other")


def test_a_pause_is_not_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        Pause(-1.0)


async def test_text_that_is_not_utf_8_is_not_a_message() -> None:
    seen: list[int] = []

    class Sees(SessionTamper):
        def client_message(self, message: ClientMessage) -> Iterable[Action]:
            seen.append(message.seq)
            return super().client_message(message)

    async with session(Sees) as client:
        client.send(Frame(Opcode.TEXT, b"\xc3", fin=False, mask=MASK), Frame(0, b"(", mask=MASK))
        assert await client.frame() == Frame(Opcode.TEXT, b"\xc3(")
        client.send(text(b"ok"))
        assert await client.frame() == Frame(Opcode.TEXT, b"ok")
    assert seen == [1]


@pytest.mark.parametrize(
    "frame",
    [
        Frame(0x3, b"x", mask=MASK),
        Frame(Opcode.TEXT, b"x", rsv=4, mask=MASK),
        Frame(Opcode.TEXT, b"x"),
        Frame(Opcode.CONTINUATION, b"x", mask=MASK),
        Frame(Opcode.PING, b"x" * 126, mask=MASK),
        Frame(Opcode.PING, b"x", fin=False, mask=MASK),
        Frame(0xB, b"x", mask=MASK),
    ],
)
async def test_breaches_of_framing_are_told_from_messages(frame: Frame) -> None:
    class Hides(SessionTamper):
        def client_breach(self, frame: Frame) -> Iterable[Action]:
            return [ToClient(Frame(Opcode.BINARY, frame.payload))]

    async with session(Hides) as client:
        client.send(frame, text(b"ok"))
        assert await client.frame() == Frame(Opcode.BINARY, frame.payload)
        assert await client.frame() == Frame(Opcode.TEXT, b"ok")


async def test_ends_can_be_kept_from_the_other_side() -> None:
    class Silent(SessionTamper):
        def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
            return []

        def endpoint_gone(self) -> bool:
            return False

        def client_gone(self, *, clean: bool) -> bool:
            self.shared.notes["gone"] = clean
            return False

    async with upstream(echo) as url, FaultProxy(url, Tampers(Silent)) as proxy:
        client = await Client.open(proxy)
        client.send(Frame(Opcode.CLOSE, b"", mask=MASK))
        client.writer.write_eof()
        assert await client.frame() is None
        assert proxy.shared.notes["gone"] is True
        client.writer.close()


async def test_the_handshake_can_be_refused_or_changed() -> None:
    class Moved(SessionTamper):
        def upgrade(self, target: str) -> str | Head:
            return Head(404, (("X-A", "b"),))

    class Refused(SessionTamper):
        def handshake(self, head: Head) -> Head:
            return Head(503)

    for tamper, status in ((Moved, "404"), (Refused, "503")):
        async with session(tamper) as client:
            assert client.head.startswith(f"HTTP/1.1 {status} ")
            assert await client.frame() is None


async def test_an_endpoint_that_is_no_http_server_looks_dead() -> None:
    async def rubbish(streams: Streams) -> None:
        await head_of(streams[0])
        streams[1].write(b"rubbish\r\n\r\n")

    async with upstream(rubbish) as url, FaultProxy(url) as proxy:
        for request in (b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n", None):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(
                request
                or b"GET /x HTTP/1.1\r\nHost: h\r\n"
                b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            )
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(-1) == b""
            writer.close()


async def test_a_client_that_is_no_http_client_is_hung_up_on() -> None:
    async with FaultProxy("http://127.0.0.1:9") as proxy:
        for rubbish in (b"rubbish\r\n\r\n", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(rubbish)
            writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(-1) == b""
            writer.close()


def test_a_proxy_that_does_not_run_has_no_port() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        _ = FaultProxy("http://127.0.0.1:9").port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the size may be out of reach")
async def test_several_segments_fit_into_the_buffers_of_the_proxy() -> None:
    """Of a single one the acknowledgement is delayed, which makes a quick endpoint look slow."""
    sizes: dict[str, int] = {}

    async def accepts(streams: Streams) -> None:
        _, writer = streams
        sizes["to the endpoint"] = segment(writer)
        writer.close()

    def segment(writer: asyncio.StreamWriter) -> int:
        sock = writer.get_extra_info("socket")
        size: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        return size

    async with upstream(accepts) as url, FaultProxy(url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        sizes["to the client"] = segment(writer)
        writer.write(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.read(-1)
        writer.close()
    assert sizes.keys() == {"to the endpoint", "to the client"}
    assert max(sizes.values()) <= 1_400


# --- HTTP ----------------------------------------------------------------------------------------


async def answers(streams: Streams) -> None:
    """Answers with what it was asked, in two chunks."""
    reader, writer = streams
    connection = h11.Connection(h11.SERVER)
    request, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        else:
            break
    assert request is not None
    parts = [request.method + b" " + request.target + b"|", body]
    writer.write(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
        + b"0\r\n\r\n"
    )


async def ask(proxy: FaultProxy, method: str = "POST", body: bytes = b"hi") -> tuple[Head, bytes]:
    """A request through the proxy: head and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    connection = h11.Connection(h11.CLIENT)
    headers = [("Host", "h"), ("Content-Length", str(len(body)))]
    opening = h11.Request(method=method, target="/invocations", headers=headers)
    for sent in (opening, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(connection.send(sent) or b"")
    head, parts = Head(0), b""
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
            elif isinstance(event, h11.Response):
                names = [(k.decode(), v.decode()) for k, v in event.headers.raw_items()]
                head = Head(event.status_code, tuple(names))
            elif isinstance(event, h11.Data):
                parts += bytes(event.data)
            else:
                return head, parts
    finally:
        writer.close()


class Exchange(ExchangeTamper):
    """Changes everything there is in an exchange."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if request.method == "PUT":
            return Head(418, (("X-Tea", "pot"),)), b"short"
        return Request(request.method, "/other", request.headers, request.body.upper())

    def head(self, request: Request, head: Head) -> Head:
        return head.having("X-A", "changed")

    def body(self, data: bytes) -> Iterable[bytes | float]:
        return [0.0, data.lower()]

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        return b"!", clean


async def test_an_exchange_is_changed_all_over() -> None:
    async with upstream(answers) as url, FaultProxy(url, Tampers(exchange=Exchange)) as proxy:
        head, body = await ask(proxy)
        assert (head.status, head.get("x-a"), body) == (200, "changed", b"post /other|hi!")
        head, body = await ask(proxy, "PUT")
        assert (head.status, head.get("x-tea"), body) == (418, "pot", b"short")
        head, body = await ask(proxy, body=b"")
        assert body == b"post /other|!"


async def test_an_end_is_made_unclean() -> None:
    class Breaks(ExchangeTamper):
        def end(self, *, clean: bool) -> tuple[bytes, bool]:
            return b"", False

    async with upstream(answers) as url, FaultProxy(url, Tampers(exchange=Breaks)) as proxy:
        with pytest.raises((ConnectionResetError, h11.RemoteProtocolError)):
            await ask(proxy)


async def test_a_body_shorter_than_its_length_is_cut_off() -> None:
    class Short(ExchangeTamper):
        def head(self, request: Request, head: Head) -> Head:
            return head.without("Transfer-Encoding").having("Content-Length", "100")

    async with upstream(answers) as url, FaultProxy(url, Tampers(exchange=Short)) as proxy:
        with pytest.raises((ConnectionResetError, h11.RemoteProtocolError)):
            await ask(proxy)


async def test_a_client_that_leaves_is_followed() -> None:
    left = asyncio.Event()

    async def waits(streams: Streams) -> None:
        reader, writer = streams
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read(-1)
        left.set()

    async with upstream(waits) as url, FaultProxy(url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
        await head_of(reader)
        writer.close()
        await left.wait()


async def test_a_client_that_leaves_in_its_body_is_followed() -> None:
    left = asyncio.Event()

    async def waits(streams: Streams) -> None:
        with contextlib.suppress(ConnectionError):
            await streams[0].read(-1)
        left.set()

    async with upstream(waits) as url, FaultProxy(url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
        await writer.drain()
        writer.close()
        await left.wait()


# --- The command ---------------------------------------------------------------------------------


def test_the_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_proxy(["--list"]) == 0
    told = capsys.readouterr().out
    assert all(f"{name}\n" in told for name in FAULTS)
    assert "breaks audio.whole-samples" in told


async def test_a_reader_may_leave_the_list_early() -> None:
    code = "import sys; from utterwire_conformance.faults import main_proxy; sys.exit(main_proxy())"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, "--list"), stdout=writing, stderr=asyncio.subprocess.PIPE
        )
    finally:
        os.close(writing)
    _, told = await process.communicate()
    assert (process.returncode, told) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--to"),
        (["--to", "nowhere"], "nowhere"),
        (["--to", "http://127.0.0.1:9", "--fault", "none-such"], "none-such"),
        (["--to", "https://127.0.0.1:9", "--ca-file", "/none/such"], "/none/such: No such"),
        (["--to", "https://127.0.0.1:9", "--ca-file", __file__], "--ca-file"),
        (["--to", "http://127.0.0.1:9", "--port", "1", "--host", "192.0.2.1"], "cannot listen"),
        (["--to", "http://127.0.0.1:9", "--port", "99999"], "0 to 65535"),
        (["--to", "http://127.0.0.1:9", "--port", "x"], "--port"),
        (["--none-such"], "--none-such"),
    ],
)
def test_what_it_cannot_use_is_told_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_proxy(arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


async def test_the_command_serves_until_it_is_interrupted() -> None:
    code = "import sys; from utterwire_conformance.faults import main_proxy; sys.exit(main_proxy())"
    async with upstream(answers) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, "--to", url, "--fault", "http-not-found"),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode().split()
            port = int(line[1].rpartition(":")[2])
            assert line[0] == f"ws://127.0.0.1:{port}"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            assert (await head_of(reader)).startswith("HTTP/1.1 404 ")
            writer.close()
        finally:
            process.send_signal(signal.SIGINT)
            # To the end of its output: the pipe is closed only then.
            await process.communicate()
        assert process.returncode == 0


def test_chunks_are_changed_field_by_field() -> None:
    chunk = Chunk(control_frame({"type": "a", "b": 1}), {"type": "a", "b": 1}, None)
    assert chunk.changed(b=..., c=2) == control_frame({"type": "a", "c": 2})


def test_a_message_is_changed_field_by_field() -> None:
    tap = Tap()
    deep = b"[" * 100_000 + b"]" * 100_000
    for data, changed in (
        (b'{"text":"a","x":[1]}', b'{"text": "b", "x": [1]}'),
        (b'{"text":"a","x":' + deep + b',"y":1}', b'{"text": "b", "y": 1}'),
    ):
        message = tap.client_message(data, (Frame(Opcode.TEXT, data),))
        assert message.changed(text="b") == changed
