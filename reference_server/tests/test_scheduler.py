"""Capacity is shared block by block, in turn, and freed by whoever gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest
from utterwire_server.engines import Block, Engine, EngineError, SpeechRequest, ToneEngine
from utterwire_server.observer import UtteranceRecord
from utterwire_server.scheduler import Scheduler


class GatedEngine(Engine):
    """Notes who computes, and lets each block go when the test opens the gate."""

    name = "gated"
    voices = ("one",)
    sample_rates = (24_000,)

    def __init__(self, concurrency: int = 1, blocks: int = 3) -> None:
        self.concurrency = concurrency
        self.blocks = blocks
        self.gate = asyncio.Semaphore(0)
        self.begun: list[str] = []
        self.closed: list[str] = []

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        try:
            for _ in range(self.blocks):
                self.begun.append(request.text)
                await self.gate.acquire()
                yield Block(np.zeros(10, np.float32))
        finally:
            self.closed.append(request.text)


def asked(text: str) -> SpeechRequest:
    return SpeechRequest(text, "one", 1.0, 24_000)


def recorded() -> UtteranceRecord:
    return UtteranceRecord("websocket", "one", "pcm_s16le", 24_000, 1, accepted_at=0.0, due_at=0.0)


async def drink(scheduler: Scheduler, text: str, record: UtteranceRecord | None = None) -> int:
    count = 0
    async with aclosing(scheduler.blocks(asked(text), record or recorded())) as blocks:
        async for _ in blocks:
            count += 1
    return count


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_blocks_are_made_in_turn() -> None:
    engine = GatedEngine()
    scheduler = Scheduler(engine, block_timeout_s=60)
    async with asyncio.TaskGroup() as group:
        for text in "abc":
            group.create_task(drink(scheduler, text))
        await turns()
        assert engine.begun == ["a"]
        assert (scheduler.speaking, scheduler.computing) == (3, 1)
        for _ in range(9):
            engine.gate.release()
    assert engine.begun == list("abcabcabc")
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_an_engine_may_make_several_blocks_at_once() -> None:
    engine = GatedEngine(concurrency=2)
    scheduler = Scheduler(engine, block_timeout_s=60)
    async with asyncio.TaskGroup() as group:
        for text in "abc":
            group.create_task(drink(scheduler, text))
        await turns()
        assert engine.begun == ["a", "b"]
        for _ in range(9):
            engine.gate.release()
    assert sorted(engine.begun) == list("aaabbbccc")


async def test_a_reader_that_does_not_ask_holds_nobody_up() -> None:
    engine = GatedEngine()
    engine.gate = asyncio.Semaphore(100)
    scheduler = Scheduler(engine, block_timeout_s=60)
    async with aclosing(scheduler.blocks(asked("slow"), recorded())) as slow:
        await anext(slow)
        assert await drink(scheduler, "quick") == 3


async def test_giving_up_frees_the_engine_at_once() -> None:
    engine = GatedEngine()
    scheduler = Scheduler(engine, block_timeout_s=60)
    first = asyncio.create_task(drink(scheduler, "a"))
    second = asyncio.create_task(drink(scheduler, "b"))
    await turns()
    first.cancel()
    await turns()
    assert engine.closed == ["a"]
    assert engine.begun == ["a", "b"]
    for _ in range(3):
        engine.gate.release()
    assert await second == 3
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_giving_up_in_the_line_loses_no_turn() -> None:
    engine = GatedEngine()
    scheduler = Scheduler(engine, block_timeout_s=60)
    tasks = [asyncio.create_task(drink(scheduler, text)) for text in "abc"]
    await turns()
    tasks[1].cancel()
    await turns()
    for _ in range(6):
        engine.gate.release()
    assert await tasks[0] == await tasks[2] == 3
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_a_block_that_takes_too_long_fails_its_utterance() -> None:
    engine = GatedEngine()
    scheduler = Scheduler(engine, block_timeout_s=0.01)
    with pytest.raises(EngineError, match=r"no block within 0\.01 s"):
        await drink(scheduler, "a")
    assert engine.closed == ["a"]
    engine.gate = asyncio.Semaphore(3)
    assert await drink(scheduler, "b") == 3


async def test_a_timeout_of_the_engine_itself_is_passed_on() -> None:
    class Impatient(ToneEngine):
        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            raise TimeoutError("its own")
            yield Block(np.zeros(1, np.float32))

    with pytest.raises(TimeoutError, match="its own"):
        await drink(Scheduler(Impatient(), block_timeout_s=60), "a")


async def test_the_record_holds_what_the_engine_took_and_no_waiting() -> None:
    engine = GatedEngine()
    scheduler = Scheduler(engine, block_timeout_s=60)
    loop = asyncio.get_running_loop()
    first, second = recorded(), recorded()
    began = loop.time()
    tasks = [
        asyncio.create_task(drink(scheduler, "a", first)),
        asyncio.create_task(drink(scheduler, "b", second)),
    ]
    await turns()
    assert first.begun_at is not None
    assert second.begun_at is None
    for _ in range(6):
        engine.gate.release()
    await asyncio.gather(*tasks)
    assert second.begun_at is not None
    assert began <= first.begun_at <= second.begun_at
    assert 0 < first.computing_s + second.computing_s <= loop.time() - began
