"""`POST /invocations` answered by server-sent events, over real sockets (`sse.md`)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from utterwire_protocol import Synthesize
from utterwire_schemas import vectors
from utterwire_server import events as events_module
from utterwire_server import http as http_module
from utterwire_server.encoders.pcm import encode_pcm_s16le
from utterwire_server.engines import FaultyEngine, SpeechRequest, ToneEngine
from utterwire_server.events import EventWriter, accepts_events

EVENTS = {"Accept": "text/event-stream"}
STORY = ("A long story about nothing at all. " * 120)[:4_096]
Told = list[tuple[str, dict[str, Any]]]


async def spoken(text: str, voice: str = "alto", rate: int = 24_000) -> bytes:
    request = SpeechRequest(text, voice, 1.0, rate)
    return b"".join([encode_pcm_s16le(b.samples) async for b in ToneEngine().synthesize(request)])


def events_of(body: bytes) -> Told:
    """The events of a body, which has nothing but events in it."""
    told: Told = []
    parts = body.decode().split("\n\n")
    assert parts.pop() == "", "the last event is not ended"
    for part in parts:
        if part == ":":
            continue
        first, second = part.split("\n")
        assert first.startswith("event: ")
        assert second.startswith("data: ")
        told.append((first.removeprefix("event: "), json.loads(second.removeprefix("data: "))))
    return told


def audio_of(told: Told) -> bytes:
    chunks = [fields for name, fields in told if name == "audio_chunk"]
    assert [fields["seq"] for fields in chunks] == list(range(len(chunks)))
    pieces = [base64.b64decode(fields["data"], validate=True) for fields in chunks]
    assert all(piece and len(piece) % 2 == 0 and len(piece) <= 65_536 for piece in pieces)
    return b"".join(pieces)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as made:
        yield made


@pytest.mark.parametrize("more", [{}, {"stream": False}, {"stream": True, "marks": ["word"]}])
async def test_audio_comes_in_events(
    start: Any, client: httpx.AsyncClient, more: dict[str, Any]
) -> None:
    server = await start()
    asked = {"text": "Hello.", "voice": "ténor", "sample_rate": 8_000, "request_id": "ü\n1", **more}
    answer = await client.post(f"{server.http}/invocations", json=asked, headers=EVENTS)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert "content-length" not in answer.headers
    told = events_of(answer.content)
    audio = await spoken("Hello.", "ténor", 8_000)
    assert audio_of(told) == audio
    assert all(fields["request_id"] == "ü\n1" for _, fields in told)
    start_fields = {"format": "pcm_s16le", "voice": "ténor", "sample_rate": 8_000}
    assert told[0] == ("audio_stream_start", {"request_id": "ü\n1"} | start_fields)
    name, end = told[-1]
    assert (name, end["total_chunks"]) == ("audio_stream_end", len(told) - 2)
    assert end["duration_s"] == pytest.approx(len(audio) / 16_000, abs=1e-6)


async def test_nothing_to_speak(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    answer = await client.post(f"{server.http}/invocations", json={"text": "..."}, headers=EVENTS)
    told = events_of(answer.content)
    assert [name for name, _ in told] == ["audio_stream_start", "audio_stream_end"]
    assert told[1][1] == {"total_chunks": 0, "duration_s": 0}


ACCEPTS: list[tuple[list[str], bool]] = [
    ([], False),
    (["*/*"], False),
    (["text/*"], False),
    (["audio/pcm"], False),
    (["text/event-streams"], False),
    (["text/event-stream"], True),
    (["Text/Event-Stream"], True),
    (["text/event-stream; charset=utf-8"], True),
    (["text/event-stream;q=0.1, audio/*"], True),
    (["audio/*, text/event-stream"], True),
    (["audio/*", "text/event-stream"], True),
    (["text/event-stream;q=0"], False),
    (["text/event-stream; Q=0.000, */*"], False),
    (["text/event-stream;q=0, text/event-stream;charset=utf-8"], True),
    (["text/event-stream;q=0.001"], True),
    (['audio/x;note="a, text/event-stream"'], False),
    (['audio/x;note="\\", text/event-stream"'], False),
    (["text/event-stream;q=high"], True),
    ([",, ;"], False),
]


@pytest.mark.parametrize(("fields", "named"), ACCEPTS)
def test_what_accept_names(fields: list[str], named: bool) -> None:
    assert accepts_events(fields) is named


@pytest.mark.parametrize("vector", vectors("accept-fields"), ids=lambda vector: vector["id"])
def test_vectors_of_accept(vector: dict[str, Any]) -> None:
    assert accepts_events(vector["fields"]) is vector["events"]


@pytest.mark.parametrize(
    ("fields", "named"), [(["audio/*", "text/event-stream"], True), (["*/*"], False), ([], False)]
)
async def test_accept_of_a_request(
    start: Any, client: httpx.AsyncClient, fields: list[str], named: bool
) -> None:
    server = await start()
    request = client.build_request("POST", f"{server.http}/invocations", json={"text": "a"})
    del request.headers["accept"]
    headers = [*request.headers.raw, *((b"Accept", field.encode()) for field in fields)]
    request.headers = httpx.Headers(headers)
    answer = await client.send(request)
    assert answer.headers["content-type"].startswith("text/event-stream") is named


async def test_without_the_profile_accept_means_nothing(
    start: Any, client: httpx.AsyncClient
) -> None:
    server = await start(profiles=frozenset({"core", "http"}))
    answer = await client.post(f"{server.http}/invocations", json={"text": "a"}, headers=EVENTS)
    assert answer.headers["content-type"].startswith("audio/pcm")


async def test_the_profile_alone_has_the_route(start: Any, client: httpx.AsyncClient) -> None:
    server = await start(profiles=frozenset({"core", "sse"}))
    answer = await client.post(f"{server.http}/invocations", json={"text": "a"}, headers=EVENTS)
    assert answer.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b'{"text": "a", "stream": 1}', 400, "invalid_request"),
        (b'{"text": "a", "marks": "word"}', 400, "invalid_request"),
        (b'{"text": "a", "voice": "nobody"}', 400, "invalid_voice"),
    ],
)
async def test_refusals_are_no_events(
    start: Any, client: httpx.AsyncClient, body: bytes, status: int, code: str
) -> None:
    server = await start()
    answer = await client.post(f"{server.http}/invocations", content=body, headers=EVENTS)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"


async def test_a_failure_before_the_first_event_is_a_status(
    start: Any, client: httpx.AsyncClient
) -> None:
    server = await start(FaultyEngine(0))
    answer = await client.post(f"{server.http}/invocations", json={"text": "abc"}, headers=EVENTS)
    assert (answer.status_code, answer.json()["code"]) == (500, "synthesis_failed")
    assert "rejected" not in answer.json()


async def test_a_failure_after_it_is_an_event(start: Any, client: httpx.AsyncClient) -> None:
    server = await start(FaultyEngine(2))
    asked = {"text": "abc def", "request_id": "r"}
    answer = await client.post(f"{server.http}/invocations", json=asked, headers=EVENTS)
    told = events_of(answer.content)
    names = ["audio_stream_start", "audio_chunk", "audio_chunk", "error"]
    assert [name for name, _ in told] == names
    assert told[-1][1]["code"] == "synthesis_failed"
    assert told[-1][1]["request_id"] == "r"
    # The connection lives: the body ended as it should.
    assert (await client.get(f"{server.http}/ping")).status_code == 200


async def test_a_shutdown_that_runs_out_of_time_is_told(
    start: Any, client: httpx.AsyncClient, held_engine: Any
) -> None:
    server = await start(held_engine, shutdown_timeout_s=0.05)
    body = b""
    asked = {"text": STORY}
    url = f"{server.http}/invocations"
    held_engine.gate.release()
    async with client.stream("POST", url, json=asked, headers=EVENTS) as answer:
        async for part in answer.aiter_bytes():
            if not body:
                server.runner.stop()
            body += part
    name, fields = events_of(body)[-1]
    assert (name, fields["code"]) == ("error", "going_away")


async def test_who_reads_nothing_at_the_end_is_cut_off(
    start: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(http_module, "LAST_WORDS_S", 0.05)
    monkeypatch.setattr("utterwire_server.wire.LINGER_S", 0.1)
    server = await start(shutdown_timeout_s=0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_024)
    body = json.dumps({"text": STORY}).encode()
    head = f"Host: x\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(b"POST /invocations HTTP/1.1\r\n" + head.encode() + body)
    await eventually(lambda: server.service.scheduler.speaking)
    await reader.readuntil(b"\r\n\r\n")
    server.runner.stop()
    async with asyncio.timeout(60):
        await server.running
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(10**8)
    writer.close()


async def test_a_stalled_client_is_dropped(
    start: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr("utterwire_server.wire.LINGER_S", 0.1)
    server = await start(stall_timeout_s=0.2)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_024)
    body = json.dumps({"text": STORY}).encode()
    head = f"Host: x\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(b"POST /invocations HTTP/1.1\r\n" + head.encode() + body)
    async with asyncio.timeout(60):
        await eventually(lambda: any(event == "request_cut_off" for event, _ in log_lines))
        await eventually(lambda: not server.service.guests)
    assert [f["reason"] for e, f in log_lines if e == "request_cut_off"] == ["stalled"]
    writer.close()


async def test_a_client_that_leaves_cancels(
    start: Any, client: httpx.AsyncClient, eventually: Any, held_engine: Any
) -> None:
    server = await start(held_engine)
    held_engine.gate.release()
    url = f"{server.http}/invocations"
    async with client.stream("POST", url, json={"text": STORY}, headers=EVENTS) as answer:
        async for _ in answer.aiter_bytes():
            break
        assert held_engine.open_streams == 1
    await eventually(lambda: not held_engine.open_streams and not server.service.guests)


async def test_comments_keep_a_slow_stream_alive(
    start: Any, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, held_engine: Any
) -> None:
    monkeypatch.setattr(http_module, "KEEP_ALIVE_S", 0.01)
    server = await start(held_engine)
    body = b""
    held_engine.gate.release()
    url = f"{server.http}/invocations"
    async with client.stream("POST", url, json={"text": "abc"}, headers=EVENTS) as answer:
        async for part in answer.aiter_bytes():
            body += part
            if body.count(b":\n\n") >= 2:
                held_engine.open()
    assert body.count(b":\n\n") >= 2
    told = events_of(body)
    assert audio_of(told) == await spoken("abc")
    assert told[-1][0] == "audio_stream_end"


async def test_http_1_0_gets_its_events_in_one_body(start: Any) -> None:
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"text": "Hello.", "request_id": "r"}'
    head = f"Host: x\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(b"POST /invocations HTTP/1.0\r\n" + head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b"transfer-encoding" not in answer
    body = await reader.read()
    assert b"content-length: %d\r\n" % len(body) in answer
    told = events_of(body)
    assert audio_of(told) == await spoken("Hello.")
    assert [told[0][0], told[-1][0]] == ["audio_stream_start", "audio_stream_end"]
    writer.close()


async def test_nothing_follows_the_end(
    start: Any, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown that runs out of time just when all was said has nothing to tell."""
    server = await start()
    put = http_module.Invocation._put

    async def interrupted(self: Any, data: bytes, *, last: bool = False) -> None:
        await put(self, data, last=last)
        if last:
            self.cut_off()
            await asyncio.sleep(0)

    monkeypatch.setattr(http_module.Invocation, "_put", interrupted)
    answer = await client.post(f"{server.http}/invocations", json={"text": "a"}, headers=EVENTS)
    assert events_of(answer.content)[-1][0] == "audio_stream_end"
    assert (await client.get(f"{server.http}/ping")).status_code == 200


def test_a_large_block_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "EVENT_AUDIO_BYTES", 4)
    request = Synthesize("a", "v", 1.0, 8_000, "pcm_s16le", (), None)
    writer = EventWriter(request)
    pieces = b"".join(writer.audio(b"123456"))
    assert [fields["data"] for _, fields in events_of(pieces)] == ["MTIzNA==", "NTY="]
    assert events_of(writer.end(0.5)) == [
        ("audio_stream_end", {"total_chunks": 2, "duration_s": 0.5})
    ]
    assert list(writer.audio(b"")) == []
