"""The queue of the whole server: bounded, told when full, and given back on every way out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest
from utterwire_server.engines import Block, Engine, FaultyEngine, SpeechRequest, ToneEngine
from websockets.frames import Opcode

TEXT = "A story of some length. " * 20

Way = Callable[[Any, Any], Awaitable[None]]


class ExitingEngine(ToneEngine):
    """Its model ends the process that it is in, or would."""

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        yield Block(np.zeros(960, np.float32))
        raise SystemExit(1)


async def _said(server: Any, connect: Any, *messages: Any) -> Any:
    peer = await connect(server)
    for message in messages:
        peer.send(message if isinstance(message, str | bytes) else json.dumps(message))
    return peer


async def _success(server: Any, connect: Any) -> None:
    peer = await _said(server, connect, {"text": "Hi."}, {"text": "Ho."})
    for _ in range(2):
        await peer.until("synthesis_complete")


async def _failure(server: Any, connect: Any) -> None:
    peer = await _said(server, connect, {"text": TEXT}, {"text": TEXT})
    for _ in range(2):
        assert (await peer.until("error"))["code"] == "synthesis_failed"


async def _cancel(server: Any, connect: Any) -> None:
    peer = await _said(server, connect, {"text": TEXT}, {"text": TEXT}, {"text": TEXT})
    await peer.until("synthesis_start")
    peer.say(type="cancel")
    assert (await peer.until("cancel_done"))["count"] == 3


async def _close_frame(server: Any, connect: Any) -> None:
    peer = await _said(server, connect, {"text": TEXT}, {"text": TEXT})
    await peer.until("synthesis_start")
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
    await peer.closed()


async def _reset(server: Any, connect: Any) -> None:
    peer = await _said(server, connect, {"text": TEXT}, {"text": TEXT})
    await peer.until("synthesis_start")
    peer.writer.transport.abort()


async def _bad_messages(server: Any, connect: Any) -> None:
    bad = ["{", "[]", "", {"text": ""}, {"text": "a", "voice": "nobody"}, {"text": 1}, b"\xff"]
    peer = await _said(server, connect, *bad * 5)
    for _ in bad * 5:
        assert (await peer.until("error"))["rejected"]


async def _broken_frame(server: Any, connect: Any) -> None:
    peer = await _said(server, connect, {"text": TEXT}, {"text": TEXT})
    await peer.until("synthesis_start")
    peer.send(b"\xff", opcode=Opcode.TEXT)
    await peer.closed()


async def _stall(server: Any, connect: Any) -> None:
    peer = await connect(server, receive_buffer=4_096)
    peer.say(text=(TEXT * 9)[:4_096])
    # And reads nothing more.
    await peer.until("synthesis_start")


async def _ask(server: Any, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.post(f"{server.http}/invocations", json=fields)


async def _http_success(server: Any, connect: Any) -> None:
    for stream in (True, False):
        assert (await _ask(server, text="Hi.", stream=stream)).status_code == 200


async def _http_failure(server: Any, connect: Any) -> None:
    assert (await _ask(server, text="Hi.", stream=False)).status_code == 500


async def _http_bad(server: Any, connect: Any) -> None:
    for fields in ({}, {"text": 1}, {"text": "a", "voice": "nobody"}):
        assert (await _ask(server, **fields)).status_code == 400


async def _http_disconnect(server: Any, connect: Any) -> None:
    body = json.dumps({"text": TEXT}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


@pytest.mark.parametrize(
    ("engine", "way", "settings"),
    [
        pytest.param(ToneEngine(), _success, {}, id="success"),
        pytest.param(FaultyEngine(2), _failure, {}, id="engine error"),
        pytest.param(ExitingEngine(), _failure, {}, id="engine exits"),
        pytest.param(
            FaultyEngine(2, hang=True), _failure, {"block_timeout_s": 0.05}, id="block timeout"
        ),
        pytest.param(ToneEngine(1.0), _cancel, {}, id="cancel"),
        pytest.param(ToneEngine(1.0), _close_frame, {}, id="close frame"),
        pytest.param(ToneEngine(1.0), _reset, {}, id="connection reset"),
        pytest.param(ToneEngine(), _bad_messages, {}, id="bad messages"),
        pytest.param(ToneEngine(1.0), _broken_frame, {}, id="text that is not UTF-8"),
        pytest.param(ToneEngine(), _stall, {"stall_timeout_s": 0.3}, id="stalled reader"),
        pytest.param(ToneEngine(), _http_success, {}, id="http success"),
        pytest.param(FaultyEngine(2), _http_failure, {}, id="http engine error"),
        pytest.param(ExitingEngine(), _http_failure, {}, id="http engine exits"),
        pytest.param(ToneEngine(), _http_bad, {}, id="http bad request"),
        pytest.param(ToneEngine(1.0), _http_disconnect, {}, id="http disconnect"),
    ],
)
async def test_every_way_out_gives_the_place_back(
    start: Any, connect: Any, eventually: Any, engine: Engine, way: Way, settings: dict[str, Any]
) -> None:
    """Several times, in a server with little room: what is kept would soon be all of it."""
    server = await start(engine, max_queued_chars=5_000, **settings)
    scheduler = server.service.scheduler
    for _ in range(3):
        async with asyncio.timeout(60):
            await way(server, connect)
        await eventually(lambda: not scheduler.backlog.places)
        await eventually(lambda: not (scheduler.speaking or scheduler.computing))
        assert (scheduler.queued_chars, scheduler.queued_s, scheduler.waiting) == (0, 0.0, 0)


async def test_who_finds_no_room_is_told_when_to_come_back(
    start: Any, connect: Any, eventually: Any, held_engine: Any
) -> None:
    server = await start(held_engine, max_queued_chars=5_000)
    full, other = await connect(server), await connect(server)
    full.say(text="a" * 3_000)
    full.say(text="b" * 2_000)
    await full.until("synthesis_start")
    await eventually(lambda: server.service.scheduler.queued_chars == 5_000)
    other.say(text="c", request_id="c")
    error = await other.control()
    assert (error["code"], error["rejected"], error["retryable"]) == ("overloaded", True, True)
    assert (error["request_id"], error["retry_after_s"]) == ("c", 1.0)
    answer = await _ask(server, text="c", request_id="d")
    told = answer.json()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (told["code"], told["rejected"], told["request_id"]) == ("overloaded", True, "d")
    assert told["retry_after_s"] == 1.0
    # Nobody's place was taken by that, and there is room again as soon as somebody has left.
    full.say(type="cancel")
    await full.until("cancel_done")
    held_engine.open()
    other.say(text="c", request_id="c")
    assert (await other.until("synthesis_complete"))["request_id"] == "c"
    assert (await _ask(server, text="c")).status_code == 200


@pytest.mark.slow
async def test_work_that_waits_is_bounded_by_what_the_engine_showed(
    start: Any, connect: Any
) -> None:
    server = await start(ToneEngine(0.5), max_queued_work_s=1.0)
    first, other = await connect(server), await connect(server)
    first.say(text=TEXT)
    # Nothing is known yet, so that nobody is sent away for what is only supposed.
    first.say(text="More.")
    await first.until("synthesis_start")
    while not server.service.scheduler.pace.real_time_factor:
        assert (await first.frame())[0] is Opcode.BINARY
    first.say(text="Hi.")
    error = await first.until("error")
    assert error["code"] == "overloaded"
    assert error["retry_after_s"] >= 1.0
    # Who has nothing waiting is not sent away for that.
    other.say(text="Hi.")
    await other.until("synthesis_complete")


async def test_a_full_queue_says_when_its_turn_comes(
    start: Any, connect: Any, held_engine: Any
) -> None:
    peer = await connect(await start(held_engine, max_waiting=8))
    for _ in range(10):
        peer.say(text="Hello.")
    error = await peer.until("error")
    assert (error["code"], error["seq"], error["retry_after_s"]) == ("queue_full", 10, 1.0)


async def test_an_engine_that_does_not_let_go_is_told_by_ping(
    start: Any, connect: Any, eventually: Any
) -> None:
    class Deaf(ToneEngine):
        let_go = asyncio.Event()

        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await self.let_go.wait()
            yield Block(np.zeros(1, np.float32))

    engine = Deaf()
    server = await start(engine, block_timeout_s=0.05)
    peer = await connect(server)
    peer.say(text="Hi.")
    assert (await peer.until("error"))["code"] == "synthesis_failed"
    await eventually(lambda: not server.service.ready)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"{server.http}/ping")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
    assert (await _ask(server, text="a")).json()["code"] == "overloaded"
    # Who is inside is not left waiting.
    peer.say(text="Ho.")
    assert (await peer.until("error"))["code"] == "synthesis_failed"
    engine.let_go.set()
    await eventually(lambda: server.service.ready)
