"""An orderly end: in this loop by ``stop``, and in a process of its own by real signals."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import httpx
import pytest
from utterwire_server import service as service_module
from utterwire_server import session as session_module
from utterwire_server.encoders.pcm import encode_pcm_s16le
from utterwire_server.engines import FaultyEngine, SpeechRequest, ToneEngine
from websockets.frames import Opcode

LONG = "A long story about nothing at all. " * 40
STORY = (LONG * 3)[:4_096]


async def test_what_runs_is_spoken_to_its_end(
    start: Any,
    connect: Any,
    held_engine: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It is the clients who close.
    monkeypatch.setattr(session_module, "CLOSE_AFTER_S", 60.0)
    server = await start(held_engine, shutdown_timeout_s=60.0)
    busy, idle = await connect(server), await connect(server)
    busy.say(text="A sentence that takes a while.")
    busy.say(text="And one that waits.")
    await busy.until("synthesis_start")
    server.runner.stop()
    assert (await idle.control())["reason"] == "going_away"
    assert (await connect(server)).status == 503
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        assert (await client.get(f"{server.http}/ping")).status_code == 503
        answer = await client.post(f"{server.http}/invocations", json={"text": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "going_away")
    busy.say(text="Too late.")
    await eventually(lambda: any(session._rejected for session in server.service._guests))
    held_engine.open()
    assert (await busy.until("synthesis_complete"))["seq"] == 1
    assert (await busy.until("synthesis_complete"))["seq"] == 2
    error = await busy.control()
    assert (error["code"], error["seq"], error["rejected"]) == ("going_away", 3, True)
    assert (await busy.control())["reason"] == "going_away"
    for peer in (busy, idle):
        peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
        assert await peer.closed() == 1000
    assert await server.running == 0


async def test_what_cannot_finish_is_ended(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_AFTER_S", 0.1)
    server = await start(FaultyEngine(2, hang=True), shutdown_timeout_s=0.3)
    peer = await connect(server)
    peer.say(text="Never done.")
    peer.say(text="Never begun.")
    await peer.until("synthesis_start")
    server.runner.stop()
    errors = [await peer.until("error") for _ in range(2)]
    assert [(m["seq"], m["code"]) for m in errors] == [(1, "going_away"), (2, "going_away")]
    assert not any("rejected" in m for m in errors)
    assert (await peer.control())["reason"] == "going_away"
    assert await peer.closed() == 1001
    assert await server.running == 0


@pytest.mark.parametrize("blocks", [0, 2])
async def test_a_request_that_cannot_finish_is_cut_off(
    start: Any, blocks: int, eventually: Any
) -> None:
    server = await start(FaultyEngine(blocks, hang=True), shutdown_timeout_s=0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"text": "Never done."}'
    writer.write(
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await eventually(lambda: server.service.scheduler.computing)
    if blocks:
        await reader.readuntil(b"\r\n\r\n")
    server.runner.stop()
    async with asyncio.timeout(60):
        answer = await reader.read()
    if blocks:
        assert not answer.endswith(b"0\r\n\r\n")
    else:
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in answer.lower()
        told = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert told["code"] == "going_away"
        assert "rejected" not in told
    writer.close()
    assert await server.running == 0


async def test_a_request_in_the_making_is_finished(launch: Any) -> None:
    server = await launch("--rtf", "0.2")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        asked = {"text": "A sentence that takes a while."}
        url = f"http://127.0.0.1:{server.port}"
        async with client.stream("POST", f"{url}/invocations", json=asked) as answer:
            assert answer.status_code == 200
            server.process.send_signal(signal.SIGTERM)
            audio = b"".join([part async for part in answer.aiter_bytes()])
    request = SpeechRequest(asked["text"], "alto", 1.0, 24_000)
    made = [encode_pcm_s16le(b.samples) async for b in ToneEngine().synthesize(request)]
    assert audio == b"".join(made)
    assert await server.ended() == 0


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_request_whose_body_comes_after_shutdown(
    start: Any, eventually: Any, in_time: bool
) -> None:
    server = await start(shutdown_timeout_s=20.0 if in_time else 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"text": "Hi.", "request_id": "r"}'
    writer.write(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 34\r\n\r\n" + body[:5])
    await eventually(lambda: server.service.guests)
    server.runner.stop()
    await eventually(lambda: server.service.draining)
    if in_time:
        writer.write(body[5:])
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 503")
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (told["code"], told["rejected"]) == ("going_away", True)
    writer.close()
    assert await server.running == 0


async def _stalled(server: Any, eventually: Any) -> Any:
    """Wait until the only client, who does not read, takes nothing more; its session."""
    (session,) = server.service._guests
    await eventually(lambda: not session._wire.is_writable)
    return session


async def test_a_client_that_never_leaves_holds_nobody_up(
    start: Any, connect: Any, eventually: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither reads nor closes."""
    monkeypatch.setattr(session_module, "LAST_WORDS_S", 0.1)
    monkeypatch.setattr(service_module, "LEAVING_S", 2.0)
    monkeypatch.setattr("utterwire_server.wire.LINGER_S", 0.1)
    server = await start(shutdown_timeout_s=0.2)
    peer = await connect(server, receive_buffer=4_096)
    peer.say(text=STORY)
    await peer.until("synthesis_start")
    await _stalled(server, eventually)
    server.runner.stop()
    async with asyncio.timeout(60):
        assert await server.running == 0
    # It was told nothing, so the log claims nothing, and no close frame stands in for it.
    (ended,) = [fields for event, fields in log_lines if event == "session_closed"]
    assert (ended["reason"], ended["delivered"]) == ("going_away", False)
    assert await peer.closed() is None


async def test_a_reader_stalled_at_the_deadline_is_told_where_it_reads_again(
    start: Any, connect: Any, eventually: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAST_WORDS_S", "CLOSE_AFTER_S"):
        monkeypatch.setattr(session_module, name, 60.0)
    monkeypatch.setattr(service_module, "LEAVING_S", 60.0)
    server = await start(shutdown_timeout_s=0.2)
    peer = await connect(server, receive_buffer=4_096)
    peer.say(text=STORY)
    await peer.until("synthesis_start")
    session = await _stalled(server, eventually)
    server.runner.stop()
    await eventually(
        lambda: session._connection.end_reason == "going_away" and not session._wire.is_writable
    )
    assert (await peer.until("error"))["code"] == "going_away"
    assert (await peer.until("session_closed"))["reason"] == "going_away"
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
    assert await peer.closed() == 1000
    assert await server.running == 0
    (ended,) = [fields for event, fields in log_lines if event == "session_closed"]
    assert (ended["reason"], ended["delivered"]) == ("going_away", True)


def test_last_words_have_their_time() -> None:
    """`protocol.md#timeouts`: 5 s for them; the drain waits for the latest, and its close."""
    assert 4.0 <= session_module.LAST_WORDS_S <= 5.0
    assert session_module.LAST_WORDS_S + service_module.CLOSE_AFTER_S < service_module.LEAVING_S


async def test_stopping_twice_gives_up_draining(start: Any, connect: Any) -> None:
    server = await start(FaultyEngine(0, hang=True), shutdown_timeout_s=60.0)
    peer = await connect(server)
    peer.say(text="Never done.")
    await peer.until("synthesis_start")
    server.runner.stop()
    await asyncio.sleep(0)
    server.runner.stop()
    async with asyncio.timeout(60):
        assert await server.running == 128 + signal.SIGTERM


async def test_with_nothing_to_read_again_a_hangup_is_an_orderly_end(
    start: Any, connect: Any
) -> None:
    server = await start(shutdown_timeout_s=20.0)
    peer = await connect(server)
    peer.say(text="Hello.")
    await peer.until("synthesis_start")
    server.runner.hang_up()
    await peer.until("synthesis_complete")
    assert (await peer.until("session_closed"))["reason"] == "going_away"
    await peer.leave()
    assert await server.running == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_in_mid_utterance(launch: Any, connect: Any, number: signal.Signals) -> None:
    server = await launch("--shutdown-timeout", "60")
    assert server.lines[0]["event"] == "listening"
    assert server.lines[0]["max_waiting"] == 16
    # More than there is room for on its way: it is not spoken to its end before it is read.
    busy, idle = await connect(server, receive_buffer=4_096), await connect(server)
    busy.say(text="A sentence that takes a while. " * 12, request_id="secret-id")
    await busy.until("synthesis_start")
    server.process.send_signal(number)
    assert (await idle.control())["reason"] == "going_away"
    assert (await connect(server)).status == 503
    busy.say(text="Too late.")
    assert (await busy.until("synthesis_complete"))["audio_bytes"] == len(busy.audio()) > 0
    assert (await busy.control())["code"] == "going_away"
    assert (await busy.control())["reason"] == "going_away"
    for peer in (busy, idle):
        peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
        # 1001 where the endpoint has not waited for it.
        assert await peer.closed() in (1000, 1001)
    assert await server.ended() == 0
    events = [line["event"] for line in server.lines]
    assert {"signal", "draining", "stopped"} <= set(events)
    assert "library" not in events
    assert "sentence" not in repr(server.lines)
    assert "secret-id" not in repr(server.lines)


async def test_the_endpoint_closes_with_1001_on_shutdown(launch: Any, connect: Any) -> None:
    server = await launch()
    peer = await connect(server)
    server.process.send_signal(signal.SIGTERM)
    assert (await peer.control())["reason"] == "going_away"
    assert await peer.closed() == 1001
    peer.send(b"\x03\xe9", opcode=Opcode.CLOSE)
    assert await server.ended() == 0


async def test_a_second_signal_cuts_the_end_short(
    launch: Any, connect: Any, eventually: Any
) -> None:
    server = await launch("--engine", "hanging", "--shutdown-timeout", "60")
    peer = await connect(server)
    peer.say(text="Never done.")
    await peer.until("synthesis_start")
    server.process.send_signal(signal.SIGTERM)
    await eventually(lambda: any(line["event"] == "draining" for line in server.lines))
    server.process.send_signal(signal.SIGTERM)
    assert await server.ended() == 128 + signal.SIGTERM
