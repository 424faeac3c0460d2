"""`POST /invocations` and the small routes around it, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from utterwire_server import wire
from utterwire_server.encoders.pcm import encode_pcm_s16le
from utterwire_server.engines import FaultyEngine, SpeechRequest, ToneEngine

LONG = "A long story about nothing at all. " * 40
STORY = (LONG * 3)[:4_096]


async def spoken(text: str, voice: str = "alto", speed: float = 1.0, rate: int = 24_000) -> bytes:
    request = SpeechRequest(text, voice, speed, rate)
    return b"".join([encode_pcm_s16le(b.samples) async for b in ToneEngine().synthesize(request)])


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as made:
        yield made


async def raw(server: Any, request: bytes, *, eof: bool = False) -> tuple[Any, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    if eof:
        writer.write_eof()
    return reader, writer


def post(body: bytes, headers: str = "") -> bytes:
    return (
        f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    ).encode() + body


@pytest.mark.parametrize("stream", [{}, {"stream": True}, {"stream": None}])
async def test_audio_is_streamed(
    start: Any, client: httpx.AsyncClient, stream: dict[str, Any]
) -> None:
    server = await start()
    asked = {
        "text": "Hello.",
        "voice": "ténor",
        "sample_rate": 8_000,
        "request_id": "ü 1~",
        **stream,
    }
    answer = await client.post(f"{server.http}/invocations", json=asked)
    assert answer.status_code == 200
    assert answer.content == await spoken("Hello.", "ténor", 1.0, 8_000)
    assert answer.headers["content-type"] == "audio/pcm;rate=8000;channels=1"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in answer.headers
    assert answer.headers["utterwire-sample-rate"] == "8000"
    assert answer.headers["utterwire-format"] == "pcm_s16le"
    assert answer.headers["utterwire-voice"] == "t%C3%A9nor"
    assert answer.headers["utterwire-request-id"] == "%C3%BC%201~"
    assert unquote(answer.headers["utterwire-request-id"]) == "ü 1~"


async def test_audio_in_one_body(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    answer = await client.post(
        f"{server.http}/invocations", json={"text": "Hello.", "stream": False}
    )
    audio = await spoken("Hello.")
    assert answer.status_code == 200
    assert answer.content == audio
    assert answer.headers["content-length"] == str(len(audio))
    assert "transfer-encoding" not in answer.headers
    assert float(answer.headers["utterwire-duration-s"]) == pytest.approx(
        len(audio) / 48_000, abs=0.001
    )
    assert answer.headers["utterwire-audio-bytes"] == str(len(audio))
    assert answer.headers["utterwire-characters"] == "6"
    assert "utterwire-request-id" not in answer.headers


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_to_speak(start: Any, client: httpx.AsyncClient, stream: bool) -> None:
    server = await start()
    answer = await client.post(f"{server.http}/invocations", json={"text": "...", "stream": stream})
    assert (answer.status_code, answer.content) == (200, b"")


REFUSALS: list[tuple[bytes, int, str]] = [
    (b"", 400, "invalid_json"),
    (b"{", 400, "invalid_json"),
    (b'{"text": NaN}', 400, "invalid_json"),
    (b"\xff", 400, "invalid_utf8"),
    (b"[]", 400, "not_an_object"),
    (b"{}", 400, "missing_text"),
    (b'{"text": null}', 400, "missing_text"),
    (b'{"text": " "}', 400, "empty_text"),
    (b'{"text": "a", "type": "close"}', 400, "unknown_type"),
    (b'{"text": "a", "type": "cancel"}', 400, "unknown_type"),
    (b'{"text": "a", "type": "append"}', 400, "unknown_type"),
    (b'{"text": "a", "type": 1}', 400, "invalid_request"),
    (b'{"text": "a", "voice": "nobody"}', 400, "invalid_voice"),
    (b'{"text": "a", "speed": 9}', 400, "invalid_speed"),
    (b'{"text": "a", "sample_rate": 1}', 400, "unsupported_sample_rate"),
    (b'{"text": "a", "format": "flac"}', 400, "unsupported_format"),
    (b'{"text": "a", "stream": 1}', 400, "invalid_request"),
    (b'{"text": "a", "stream": "false"}', 400, "invalid_request"),
    (b'{"text": "a", "request_id": ""}', 400, "invalid_request"),
    (json.dumps({"text": "a" * 4_097}).encode(), 413, "text_too_long"),
]


async def test_refusals(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    for body, status, code in REFUSALS:
        answer = await client.post(f"{server.http}/invocations", content=body)
        told = answer.json()
        assert (answer.status_code, told["code"]) == (status, code), body
        assert answer.headers["content-type"] == "application/json"
        assert (told["type"], told["retryable"], told["rejected"]) == ("error", False, True)
        assert told["message"]
        assert "seq" not in told
        served = await client.post(f"{server.http}/invocations", json={"text": "a"})
        assert served.status_code == 200, f"after {body!r}"


async def test_a_refusal_names_the_request(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    asked = {"text": "a", "voice": "nobody", "request_id": "r"}
    assert (await client.post(f"{server.http}/invocations", json=asked)).json()["request_id"] == "r"
    asked = {"text": "a", "request_id": ""}
    assert "request_id" not in (await client.post(f"{server.http}/invocations", json=asked)).json()


async def test_any_content_type_will_do(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    for kind in ("application/json", "text/plain", "audio/wav", "nonsense", None):
        headers = {} if kind is None else {"Content-Type": kind}
        answer = await client.post(
            f"{server.http}/invocations", content=b'{"text": "a"}', headers=headers
        )
        assert answer.status_code == 200, kind


async def test_audio_leaves_as_it_is_made(start: Any, eventually: Any, held_engine: Any) -> None:
    server = await start(held_engine)
    reader, writer = await raw(server, post(json.dumps({"text": LONG}).encode()))
    held_engine.gate.release()
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"200 OK" in head
    size = int(await reader.readuntil(b"\r\n"), 16)
    assert await reader.readexactly(size) == (await spoken(LONG))[:size]
    writer.transport.abort()
    async with asyncio.timeout(60):
        await eventually(lambda: not (held_engine.open_streams or server.service.guests))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine(
    start: Any, stream: bool, eventually: Any, held_engine: Any
) -> None:
    server = await start(held_engine)
    _, writer = await raw(server, post(json.dumps({"text": LONG, "stream": stream}).encode()))
    async with asyncio.timeout(60):
        await eventually(lambda: held_engine.open_streams)
        writer.transport.abort()
        await eventually(lambda: not (held_engine.open_streams or server.service.guests))
    await eventually(lambda: server.service.scheduler.computing == 0)


@pytest.mark.parametrize(("blocks", "stream"), [(0, True), (0, False), (3, False)])
async def test_a_failure_before_the_first_byte_is_a_status(
    start: Any, client: httpx.AsyncClient, blocks: int, stream: bool
) -> None:
    server = await start(FaultyEngine(blocks))
    asked = {"text": "Hello there.", "stream": stream, "request_id": "r"}
    answer = await client.post(f"{server.http}/invocations", json=asked)
    told = answer.json()
    assert (answer.status_code, told["code"], told["retryable"]) == (500, "synthesis_failed", True)
    assert told["request_id"] == "r"
    assert "rejected" not in told


async def test_a_failure_after_the_first_byte_breaks_the_body_off(
    start: Any, log_lines: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start(FaultyEngine(3))
    reader, writer = await raw(server, post(b'{"text": "Hello there."}'))
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert not answer.endswith(b"0\r\n\r\n")
    body = answer.partition(b"\r\n\r\n")[2]
    audio = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        audio += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    assert audio
    assert (await spoken("Hello there.")).startswith(audio)
    writer.close()
    assert [f["outcome"] for e, f in log_lines if e == "request"] == ["failed"]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_a_hanging_engine_is_given_up(start: Any, client: httpx.AsyncClient) -> None:
    server = await start(FaultyEngine(0, hang=True), block_timeout_s=0.1)
    answer = await client.post(f"{server.http}/invocations", json={"text": "Hello."})
    assert (answer.status_code, answer.json()["code"]) == (500, "synthesis_failed")


@pytest.mark.parametrize("size", [65_537, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_beyond_the_limit(
    start: Any,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    chunked: bool,
) -> None:
    # However slowly it comes.
    monkeypatch.setattr("utterwire_server.http.DISCARD_S", 60.0)
    server = await start(max_message_bytes=65_536)

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, size, 65_536):
            yield b" " * min(65_536, size - at)

    content: Any = parts() if chunked else b" " * size
    answer = await client.post(f"{server.http}/invocations", content=content)
    assert (answer.status_code, answer.json()["code"]) == (413, "text_too_long")
    assert (await client.post(f"{server.http}/invocations", json={"text": "a"})).status_code == 200


async def test_a_body_at_the_limit(start: Any, client: httpx.AsyncClient) -> None:
    server = await start(max_message_bytes=65_536)
    body = b'{"text": "a"}'.ljust(65_536)
    assert (await client.post(f"{server.http}/invocations", content=body)).status_code == 200


async def test_a_body_beyond_the_limit_is_not_asked_for(start: Any) -> None:
    server = await start(max_message_bytes=65_536)
    head = post(b"", "Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 70000")
    reader, writer = await raw(server, head)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_a_body_without_end_is_not_read_for_ever(
    start: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr("utterwire_server.http.DISCARD_BYTES", 200_000)
    server = await start(max_message_bytes=65_536)
    reader, writer = await raw(
        server, b"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    async def feed() -> None:
        while True:
            writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
            await writer.drain()

    feeding = asyncio.create_task(feed())
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413")
    async with asyncio.timeout(60):
        await eventually(lambda: not server.service.guests)
    feeding.cancel()
    await asyncio.wait({feeding})
    writer.transport.abort()


async def test_a_body_that_does_not_come(start: Any, client: httpx.AsyncClient) -> None:
    server = await start(body_timeout_s=0.1)
    reader, writer = await raw(server, post(b'{"text": "a"}')[:-3])
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400")
    writer.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_http_1_0_gets_a_body_with_its_length(start: Any, stream: bool) -> None:
    server = await start()
    asked = post(json.dumps({"text": "Hello.", "stream": stream}).encode())
    reader, writer = await raw(server, asked.replace(b"HTTP/1.1", b"HTTP/1.0"))
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    audio = await spoken("Hello.")
    assert b"transfer-encoding" not in head
    assert b"content-length: %d\r\n" % len(audio) in head
    assert await reader.read() == audio
    writer.close()


async def test_one_connection_serves_many_requests(start: Any) -> None:
    server = await start()
    reader, writer = await raw(server, post(b"{") + post(b'{"text": "...", "stream": false}') * 2)
    for status in (b"400", b"200", b"200"):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split(b" ", 2)[1] == status
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await reader.readexactly(length)
    writer.close()


async def test_a_client_that_leaves_in_its_body(start: Any, eventually: Any) -> None:
    server = await start()
    _, writer = await raw(server, post(b'{"text": "a"}')[:-3])
    async with asyncio.timeout(60):
        await eventually(lambda: server.service.guests)
        writer.transport.abort()
        await eventually(lambda: not server.service.guests)


@pytest.mark.parametrize("headers", ["", "Accept: text/event-stream\r\n"], ids=["audio", "events"])
async def test_a_stalled_client_is_dropped(
    start: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any, headers: str
) -> None:
    monkeypatch.setattr("utterwire_server.wire.LINGER_S", 0.1)
    server = await start(stall_timeout_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_024)
    writer.write(post(json.dumps({"text": STORY}).encode(), headers))
    async with asyncio.timeout(60):
        await eventually(lambda: any(event == "request_cut_off" for event, _ in log_lines))
        await eventually(lambda: not server.runner._server.server_state.connections)
    assert [f["reason"] for e, f in log_lines if e == "request_cut_off"] == ["stalled"]
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(10**8)
    writer.close()


async def test_other_methods_and_paths(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    for method in ("GET", "PUT", "DELETE", "HEAD", "PATCH"):
        answer = await client.request(method, f"{server.http}/invocations")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST"), method
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("POST", "/invocations/", 404),
        ("GET", "/ping/", 404),
        ("DELETE", "/ping", 405),
        ("GET", "/invocations-bidirectional-stream", 426),
        ("POST", "/invocations-bidirectional-stream", 405),
    ):
        answer = await client.request(method, server.http + path)
        assert answer.status_code == status, path
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]
    for method in ("GET", "POST", "HEAD"):
        assert (await client.request(method, f"{server.http}/ping")).status_code == 200


async def test_ping_while_the_engine_is_busy(
    start: Any, client: httpx.AsyncClient, eventually: Any, held_engine: Any
) -> None:
    server = await start(held_engine)
    asking = asyncio.create_task(client.post(f"{server.http}/invocations", json={"text": "Hi."}))
    await eventually(lambda: server.service.scheduler.computing)
    assert (await client.get(f"{server.http}/ping")).status_code == 200
    assert not asking.done()
    held_engine.open()
    asking.cancel()
    await asyncio.wait({asking})


async def test_without_the_profile_there_is_no_route(start: Any, client: httpx.AsyncClient) -> None:
    server = await start(profiles=frozenset({"core"}))
    assert (await client.post(f"{server.http}/invocations", json={"text": "a"})).status_code == 404


async def test_no_capacity(
    start: Any, connect: Any, client: httpx.AsyncClient, eventually: Any
) -> None:
    server = await start(max_sessions=1)
    peer = await connect(server)
    assert peer.status == 101
    answer = await client.post(f"{server.http}/invocations", json={"text": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert answer.json()["retryable"] is True
    assert int(answer.headers["retry-after"]) >= 0
    other = await connect(server)
    assert other.status == 503
    assert "retry-after" in other.headers
    assert (await client.get(f"{server.http}/ping")).status_code == 200
    await peer.leave()
    async with asyncio.timeout(60):
        await eventually(lambda: not server.service.guests)
    assert (await client.post(f"{server.http}/invocations", json={"text": "a"})).status_code == 200


async def test_a_body_that_is_on_its_way_takes_no_place(
    start: Any, connect: Any, client: httpx.AsyncClient, eventually: Any
) -> None:
    server = await start(max_sessions=1)
    request = post(b'{"text": "Hello."}')
    reader, writer = await raw(server, request[:-5])
    await eventually(lambda: server.service.guests)
    # But no more of them are received than there are places.
    answer = await client.post(f"{server.http}/invocations", json={"text": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    peer = await connect(server)
    assert peer.status == 101
    writer.write(request[-5:])
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 503")
    await peer.leave()
    writer.close()


class SlowStarter(ToneEngine):
    """Loads when the test says so, or fails to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stopped = False

    async def start(self) -> None:
        await self.loaded

    async def stop(self) -> None:
        self.stopped = True


async def test_not_ready_until_the_engine_is(
    start: Any, connect: Any, client: httpx.AsyncClient, eventually: Any
) -> None:
    engine = SlowStarter()
    server = await start(engine, ready=False)
    assert (await client.get(f"{server.http}/ping")).status_code == 503
    answer = await client.post(f"{server.http}/invocations", json={"text": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert int(answer.headers["retry-after"]) == answer.json()["retry_after_s"] == 1
    refused = await connect(server)
    assert refused.status == 503
    length = int(refused.headers.partition("content-length: ")[2].partition("\r")[0])
    assert json.loads(await refused.reader.readexactly(length))["retry_after_s"] == 1
    engine.loaded.set_result(None)
    await eventually(lambda: server.service.ready)
    assert (await client.get(f"{server.http}/ping")).status_code == 200
    server.runner.stop()
    assert await server.running == 0
    assert engine.stopped


async def test_an_engine_that_cannot_start_ends_the_server(start: Any, log_lines: Any) -> None:
    engine = SlowStarter()
    engine.loaded.set_exception(RuntimeError("no weights"))
    server = await start(engine, ready=False)
    assert await server.running == 1
    # What is wrong is told, and not only where: nobody's text can be in it yet.
    (told,) = [fields for event, fields in log_lines if event == "engine_failed"]
    assert told["message"] == "no weights"


async def test_a_server_can_stop_while_its_engine_loads(start: Any) -> None:
    engine = SlowStarter()
    server = await start(engine, ready=False)
    server.runner.stop()
    assert await server.running == 0
    assert engine.stopped


async def test_pipelined_requests_are_answered_in_order(start: Any) -> None:
    server = await start()
    bodies = [json.dumps({"text": "a" * (n % 3 + 1)}).encode() for n in range(40)]
    requests = b"".join(post(body) for body in bodies)
    reader, writer = await raw(server, requests + post(b"", "Connection: close\r\n"))
    answers = (await reader.read()).split(b"HTTP/1.1 ")[1:]
    writer.close()
    assert [answer[:3] for answer in answers] == [b"200"] * 40 + [b"400"]
    one = len(await spoken("a"))
    chunked = [answer.partition(b"\r\n\r\n")[2] for answer in answers[:40]]
    assert all(len(body) // one == n % 3 + 1 for n, body in enumerate(chunked))


@pytest.mark.parametrize("stream", ["true", "false"])
async def test_a_client_that_leaves_pipelined_requests_frees_the_engine(
    start: Any, eventually: Any, stream: str, held_engine: Any
) -> None:
    server = await start(held_engine)
    asked = post(f'{{"text": "{LONG}", "stream": {stream}}}'.encode())
    _, writer = await raw(server, asked * 3)
    await eventually(lambda: held_engine.open_streams)
    # Of the requests that wait for the first, none is begun.
    writer.transport.abort()
    await eventually(lambda: not held_engine.open_streams and not server.service.guests)
    assert not server.runner._server.server_state.connections


async def test_answers_that_nobody_reads_pile_up_no_requests(start: Any, eventually: Any) -> None:
    """The peer pipelines and does not read: memory stays bounded, and so does its time."""
    server = await start(stall_timeout_s=0.3, max_sessions=1)
    connections = server.runner._server.server_state.connections
    for request in (post(b"[]"), b"GET /ping HTTP/1.1\r\n\r\n", b"GET /?%s HTTP/1.1\r\n\r\n"):
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
        _, writer = await asyncio.open_connection(sock=sock, limit=1_024)
        writer.write(request * 50_000)
        await eventually(lambda: connections)
        (connection,) = connections
        waiting = 0
        while connections:
            waiting = max(waiting, len(connection.pipeline))
            await asyncio.sleep(0.001)
        assert 0 < waiting < 500
        writer.transport.abort()
    # It held the only place no longer than that.
    await eventually(lambda: not server.service.guests)


async def test_line_ends_in_place_of_a_request_keep_no_connection(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start()
    monkeypatch.setattr(wire, "OPENING_S", 0.2)
    reader, writer = await raw(server, b"GET /ping HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"}")
    writer.write(b"\r\n")
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
