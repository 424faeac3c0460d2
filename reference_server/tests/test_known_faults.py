"""Faults that public speech servers have been seen to have. This server has none of them.

Each test fails on a server with the fault that its name tells.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from utterwire_server.engines import Block, LoudEngine, SpeechRequest, ToneEngine
from websockets.frames import Opcode

PARAGRAPH = "All that was said at the table that evening was heard by nobody else. " * 5
BODY_BYTES = 200_000


def post(body: bytes) -> bytes:
    return b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


class ThreadEngine(ToneEngine):
    """Computes in a thread, as a model does: a block cannot be broken off."""

    name = "thread"

    def __init__(self) -> None:
        super().__init__()
        self.threads = ThreadPoolExecutor(4)
        self.gate = threading.Semaphore(0)
        self.in_use = 0
        self.most_in_use = 0
        self.begun: list[str] = []

    def _work(self, text: str) -> None:
        self.in_use += 1
        self.most_in_use = max(self.most_in_use, self.in_use)
        self.begun.append(text)
        assert self.gate.acquire(timeout=60)
        self.in_use -= 1

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        loop = asyncio.get_running_loop()
        async for block in super().synthesize(request):
            computed = loop.run_in_executor(self.threads, self._work, request.text)
            try:
                await asyncio.shield(computed)
            finally:
                # The model is in use until the thread is done with it.
                while not computed.done():
                    try:
                        await asyncio.shield(computed)
                    except asyncio.CancelledError:
                        continue
            yield block

    async def stop(self) -> None:
        for _ in range(1_000):
            self.gate.release()
        self.threads.shutdown()


async def test_the_whole_text_is_synthesised_before_the_first_byte(
    start: Any, connect: Any, eventually: Any, held_engine: Any
) -> None:
    """The first block is heard while the second is not begun."""
    server = await start(held_engine)
    peer = await connect(server)
    held_engine.gate.release()
    peer.say(text=PARAGRAPH)
    await peer.until("synthesis_start")
    opcode, audio = await peer.frame()
    assert opcode is Opcode.BINARY
    assert 0 < len(audio) <= 2 * 24_000 * 0.04
    peer.say(type="cancel")
    await peer.until("cancel_done")
    await eventually(lambda: not server.service.scheduler.speaking)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    held_engine.gate.release()
    writer.write(post(json.dumps({"text": PARAGRAPH}).encode()))
    async with asyncio.timeout(60):
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert int(await reader.readline(), 16) > 0
    writer.close()


class ParagraphEngine(ToneEngine):
    """Makes a whole paragraph in one block."""

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        blocks = [block async for block in super().synthesize(request)]
        yield Block(np.concatenate([block.samples for block in blocks]), blocks[0].marks)


async def test_a_paragraph_is_one_frame_of_a_megabyte(start: Any, connect: Any) -> None:
    """Common clients refuse frames beyond 1 MiB."""
    peer = await connect(await start(ParagraphEngine()))
    peer.say(text=PARAGRAPH * 2)
    done = await peer.until("synthesis_complete")
    assert done["audio_bytes"] > 1_000_000
    sizes = [len(data) for opcode, data in peer.frames if opcode is Opcode.BINARY]
    assert sum(sizes) == done["audio_bytes"]
    assert max(sizes) <= 65_536


async def test_samples_wrap_at_full_scale(start: Any, connect: Any) -> None:
    """What is too loud is clipped, and keeps its sign."""
    server = await start(LoudEngine())
    peer = await connect(server)
    peer.say(text="Loud.")
    await peer.until("synthesis_complete")
    request = SpeechRequest("Loud.", "alto", 1.0, 24_000)
    made = np.concatenate([b.samples async for b in LoudEngine().synthesize(request)])
    heard = np.frombuffer(peer.audio(), "<i2")
    beyond = np.abs(np.nan_to_num(made, posinf=0.0, neginf=0.0)) > 1.0
    assert beyond.sum() > 100
    assert (np.sign(heard[beyond]) == np.sign(made[beyond])).all()
    assert (np.abs(heard[beyond].astype(int)) == 32_767).all()


async def test_one_stalled_reader_stops_everybody(start: Any, connect: Any) -> None:
    """No lock is held while a network write waits."""
    server = await start(ToneEngine())
    stalled = [await connect(server, receive_buffer=4_096) for _ in range(3)]
    for peer in stalled:
        peer.say(text=(PARAGRAPH * 12)[:4_096])
        peer.say(text=(PARAGRAPH * 12)[:4_096])
    readers = []
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_024)
        writer.write(post(json.dumps({"text": (PARAGRAPH * 12)[:4_096]}).encode()))
        await reader.readuntil(b"\r\n\r\n")
        readers.append(writer)
    for _ in range(3):
        other = await connect(server)
        other.say(text=PARAGRAPH)
        await other.until("synthesis_complete")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.post(f"{server.http}/invocations", json={"text": "Hi."})
    assert answer.status_code == 200
    assert server.service.guests >= 5
    for writer in readers:
        writer.transport.abort()


async def test_bad_json_leaks_a_slot_of_the_queue_until_nothing_is_served(
    start: Any, connect: Any
) -> None:
    server = await start(ToneEngine(), max_sessions=4, max_queued_chars=4_096)
    bad = [b"{", b"", b"[]", b'{"text": ', b"\xff\xfe", b'{"text": "a", "speed": 9}']
    peer = await connect(server)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        for index in range(120):
            body = bad[index % len(bad)]
            answer = await client.post(f"{server.http}/invocations", content=body)
            assert answer.status_code == 400
            peer.send(body)
            assert (await peer.until("error"))["rejected"]
        assert server.service.scheduler.backlog.places == 0
        answer = await client.post(f"{server.http}/invocations", json={"text": "Hi."})
        assert answer.status_code == 200
    peer.say(text="Hi.")
    await peer.until("synthesis_complete")


async def test_200_000_characters_and_a_disconnect_block_everybody(
    start: Any, connect: Any, eventually: Any
) -> None:
    """Within the block in the making the engine works for somebody else."""
    engine = ThreadEngine()
    server = await start(engine, max_text_chars=BODY_BYTES, max_queued_chars=10 * BODY_BYTES)
    text = (PARAGRAPH * 1_000)[:BODY_BYTES]
    leaving = await connect(server)
    leaving.say(text=text)
    await leaving.until("synthesis_start")
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(json.dumps({"text": text, "stream": False}).encode()))
    await eventually(lambda: server.service.scheduler.speaking == 2)
    await eventually(lambda: len(engine.begun) == 1)
    leaving.writer.transport.abort()
    writer.transport.abort()
    other = await connect(server)
    other.say(text="Hi.")
    await other.until("synthesis_start")
    await eventually(lambda: server.service.guests == 1)
    assert server.service.scheduler.queued_chars == 3
    engine.gate.release()
    await eventually(lambda: len(engine.begun) == 2)
    assert engine.begun == [text, "Hi."]
    for _ in range(20):
        engine.gate.release()
    await other.until("synthesis_complete")


async def test_a_second_synthesis_is_started_on_a_model_in_use(
    start: Any, connect: Any, eventually: Any
) -> None:
    """After a disconnect the model computes on; whoever comes next waits for that."""
    engine = ThreadEngine()
    server = await start(engine)
    for number in range(3):
        leaving = await connect(server)
        leaving.say(text=f"Leaving {number}.")
        await eventually(lambda: engine.in_use == 1)
        other = await connect(server)
        other.say(text="Hi.")
        await other.until("synthesis_start")
        leaving.writer.transport.abort()
        await eventually(lambda: server.service.guests == 1)
        assert (engine.in_use, server.service.scheduler.waiting) == (1, 1)
        for _ in range(4):
            engine.gate.release()
        await other.until("synthesis_complete")
        await other.leave()
        await eventually(lambda: server.service.guests == 0)
        await eventually(lambda: server.service.scheduler.speaking == 0)
        while engine.gate.acquire(blocking=False):
            pass
    assert engine.most_in_use == 1


async def test_sigterm_drops_speech(launch: Any, connect: Any) -> None:
    """Both are spoken to the last sample, which takes longer than any server lingers anyway."""
    text = PARAGRAPH[:60]
    server = await launch("--rtf", "0.8")
    request = SpeechRequest(text, "alto", 1.0, 24_000)
    samples = sum([b.samples.size async for b in ToneEngine().synthesize(request)])
    peer = await connect(server)
    peer.say(text=text)
    await peer.until("synthesis_start")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        url = f"http://127.0.0.1:{server.port}/invocations"
        async with client.stream("POST", url, json={"text": text}) as answer:
            parts = answer.aiter_bytes()
            audio = await anext(parts)
            server.process.send_signal(signal.SIGTERM)
            audio += b"".join([part async for part in parts])
    assert len(audio) == 2 * samples
    assert (await peer.until("synthesis_complete"))["audio_bytes"] == 2 * samples
    assert (await peer.until("session_closed"))["reason"] == "going_away"
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
    assert await server.ended() == 0


async def test_a_health_check_says_200_throughout(
    start: Any, connect: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading, draining, and while the engine is gone: none of them is ready."""
    loaded = asyncio.Event()

    class Fragile(ToneEngine):
        well = True

        @property
        def healthy(self) -> bool:
            return self.well

        async def start(self) -> None:
            await loaded.wait()

    engine = Fragile()
    server = await start(engine, ready=False, shutdown_timeout_s=60.0)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:

        async def ping() -> tuple[int, str]:
            answer = await client.get(f"{server.http}/ping")
            return answer.status_code, answer.json()["status"]

        async def asked() -> int:
            answer = await client.post(f"{server.http}/invocations", json={"text": "Hi."})
            return answer.status_code

        # Its socket may still be opening.
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await ping() == (503, "loading")
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.001)
        assert await asked() == 503
        loaded.set()
        await eventually(lambda: server.service.ready)
        assert (await ping(), await asked()) == ((200, "ready"), 200)
        engine.well = False
        assert (await ping(), await asked()) == ((503, "unavailable"), 503)
        engine.well = True
        peer = await connect(server)
        engine.real_time_factor = 1.0
        # Longer than anything here may take.
        peer.say(text="A sentence. " * 300)
        await peer.until("synthesis_start")
        server.runner.stop()
        await eventually(lambda: server.service.draining)
        assert (await ping(), await asked()) == ((503, "draining"), 503)
        peer.say(type="cancel")
        await peer.until("session_closed")
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)


async def test_pongs_are_missing_while_the_model_computes(
    start: Any, connect: Any, eventually: Any
) -> None:
    """The model computes in a thread that is let go only when the pong has come."""
    engine = ThreadEngine()
    peer = await connect(await start(engine))
    peer.say(text="Hi.")
    await eventually(lambda: engine.in_use == 1)
    for number in range(3):
        peer.send(b"%d" % number, opcode=Opcode.PING)
        while (await peer.frame()) != (Opcode.PONG, b"%d" % number):
            pass
    assert engine.in_use == 1
    for _ in range(4):
        engine.gate.release()
    await peer.until("synthesis_complete")
