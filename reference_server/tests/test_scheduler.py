"""Capacity is shared block by block, by need, and freed by whoever gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from utterwire_server import scheduler as scheduler_module
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
    await turns()
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
    await turns()
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
    await turns()
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_a_block_that_takes_too_long_fails_its_utterance() -> None:
    engine = GatedEngine()
    scheduler = Scheduler(engine, block_timeout_s=0.01)
    with pytest.raises(EngineError, match=r"no block within 0\.01 s"):
        await drink(scheduler, "a")
    await turns()
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


class StubbornEngine(GatedEngine):
    """Computes on when it is cancelled, as a thread does, until the test lets go of it."""

    def __init__(self, concurrency: int = 1) -> None:
        super().__init__(concurrency)
        self.let_go = asyncio.Event()
        self.computing = 0

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        self.begun.append(request.text)
        while True:
            self.computing += 1
            assert self.computing <= self.concurrency, "a second synthesis on a model in use"
            try:
                await self.gate.acquire()
            except asyncio.CancelledError:
                await self.let_go.wait()
                raise
            finally:
                self.computing -= 1
            yield Block(np.zeros(10, np.float32))


async def test_a_slot_is_free_when_the_engine_has_let_go_and_not_before() -> None:
    engine = StubbornEngine()
    scheduler = Scheduler(engine, block_timeout_s=60)
    first = asyncio.create_task(drink(scheduler, "a"))
    await turns()
    second = asyncio.create_task(drink(scheduler, "b"))
    await turns()
    first.cancel()
    await turns()
    # Who leaves is gone at once; the model still computes, and nothing else is begun on it.
    assert first.cancelled()
    assert (scheduler.computing, scheduler.waiting, engine.computing) == (1, 1, 1)
    assert engine.begun == ["a"]
    engine.let_go.set()
    await turns()
    assert engine.begun == ["a", "b"]
    assert (scheduler.computing, scheduler.waiting, engine.computing) == (1, 0, 1)
    second.cancel()
    await turns()
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_an_engine_has_its_time_to_let_go() -> None:
    class Warned(StubbornEngine):
        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            # The time of its block runs already; that for letting go is read when it is over.
            scheduler.block_timeout_s = 60
            async with aclosing(super().synthesize(request)) as stream:
                async for block in stream:
                    yield block

    engine = Warned()
    scheduler = Scheduler(engine, block_timeout_s=0.02)
    with pytest.raises(EngineError, match="no block within"):
        await drink(scheduler, "a")
    assert not scheduler.stuck
    second = asyncio.create_task(drink(scheduler, "b"))
    await turns()
    assert (scheduler.waiting, engine.begun) == (1, ["a"])
    engine.let_go.set()
    await turns()
    assert engine.begun == ["a", "b"]
    second.cancel()
    await asyncio.wait({second})


async def test_an_engine_that_never_lets_go_fails_whoever_waits(log_lines: Any) -> None:
    engine = StubbornEngine()
    scheduler = Scheduler(engine, block_timeout_s=0.02)
    with pytest.raises(EngineError, match="no block within"):
        await drink(scheduler, "a")
    with pytest.raises(EngineError, match="does not let go"):
        await drink(scheduler, "b")
    assert scheduler.stuck
    with pytest.raises(EngineError, match="does not let go"):
        await drink(scheduler, "c")
    assert "engine_stuck" in [event for event, _ in log_lines]
    engine.let_go.set()
    await turns()
    assert not scheduler.stuck
    engine.gate = asyncio.Semaphore(2)
    scheduler.block_timeout_s = 60
    task = asyncio.create_task(drink(scheduler, "d"))
    await turns()
    assert engine.begun == ["a", "d"]
    await scheduler.close()
    with pytest.raises(EngineError, match="the server stops"):
        await task


async def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "CLOSING_S", 0.01)
    engine = StubbornEngine()
    scheduler = Scheduler(engine, block_timeout_s=60)
    task = asyncio.create_task(drink(scheduler, "a"))
    await turns()
    await scheduler.close()
    with pytest.raises(EngineError, match="the server stops"):
        await task
    assert scheduler.speaking == 1
    engine.let_go.set()
    await turns()
    assert scheduler.speaking == 0
    await scheduler.close()


async def test_a_stream_is_made_and_closed_by_one_task_and_yields_to_nobody_else() -> None:
    """An engine may hold a timeout or a task group open across its blocks."""
    tasks: set[asyncio.Task[Any] | None] = set()

    class Careful(ToneEngine):
        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            try:
                async with asyncio.timeout(60):
                    for _ in range(3):
                        tasks.add(asyncio.current_task())
                        yield Block(np.zeros(10, np.float32))
            finally:
                tasks.add(asyncio.current_task())

    scheduler = Scheduler(Careful(), block_timeout_s=60)
    async with aclosing(scheduler.blocks(asked("a"), recorded())) as blocks:
        await asyncio.create_task(blocks.__anext__())
        await asyncio.create_task(blocks.__anext__())
    await turns()
    assert len(tasks) == 1
    assert scheduler.speaking == 0


@pytest.mark.parametrize(
    ("raised", "seen", "words"),
    [
        pytest.param(ValueError("bad"), ValueError, "bad", id="an error"),
        pytest.param(SystemExit(3), EngineError, "wanted to exit", id="exit"),
        pytest.param(
            asyncio.CancelledError(), EngineError, "something of its own", id="its own cancel"
        ),
    ],
)
async def test_what_an_engine_raises_fails_its_utterance_alone(
    raised: BaseException, seen: type[Exception], words: str
) -> None:
    class Raising(GatedEngine):
        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            async with aclosing(super().synthesize(request)) as stream:
                async for block in stream:
                    yield block
                    if request.text == "bad":
                        raise raised

    engine = Raising()
    engine.gate = asyncio.Semaphore(10)
    scheduler = Scheduler(engine, block_timeout_s=60)
    results = await asyncio.gather(
        drink(scheduler, "good"), drink(scheduler, "bad"), return_exceptions=True
    )
    assert results[0] == 3
    assert isinstance(results[1], seen)
    assert words in str(results[1])
    await turns()
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_an_engine_that_fails_at_being_closed_harms_nobody(log_lines: Any) -> None:
    class Clumsy(GatedEngine):
        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            try:
                yield Block(np.zeros(10, np.float32))
                yield Block(np.zeros(10, np.float32))
            finally:
                raise RuntimeError("closing")

    scheduler = Scheduler(Clumsy(), block_timeout_s=60)
    async with aclosing(scheduler.blocks(asked("a"), recorded())) as blocks:
        await anext(blocks)
    await turns()
    assert ("stream_not_closed", "RuntimeError") in [
        (event, fields.get("error")) for event, fields in log_lines
    ]
    assert (scheduler.speaking, scheduler.computing) == (0, 0)


async def test_who_runs_dry_goes_ahead_of_who_has_plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = GatedEngine(blocks=2)
    scheduler = Scheduler(engine, block_timeout_s=60)
    loop = asyncio.get_running_loop()
    # Nobody runs dry because the machine is held up.
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)

    async def listen(text: str, in_hand: float | None) -> None:
        record = recorded()
        record.listener.heard = text != "whole"
        if in_hand is not None:
            record.listener.put(in_hand, loop.time())
        async with aclosing(scheduler.blocks(asked(text), record)) as blocks:
            async for _ in blocks:
                record.listener.put(3.0, loop.time())

    async with asyncio.TaskGroup() as group:
        for text, in_hand in {
            "busy": None, "whole": None, "plenty": 4.5, "little": 2.5, "first": None
        }.items():  # fmt: skip
            group.create_task(listen(text, in_hand))
            await turns()
        assert scheduler.waiting == 4
        for _ in range(10):
            engine.gate.release()
            await turns()
    assert engine.begun[:6] == ["busy", "first", "little", "busy", "first", "plenty"]


async def test_an_engine_that_has_to_come_back_first_is_not_slow_for_that() -> None:
    class Restarting(ToneEngine):
        healthy = False

    engine = Restarting(0.01)
    scheduler = Scheduler(engine, block_timeout_s=60)
    record = recorded()
    async with aclosing(
        scheduler.blocks(SpeechRequest("a" * 200, "alto", 1.0, 24_000), record)
    ) as blocks:
        await anext(blocks)
        assert scheduler.pace.real_time_factor == record.computing_s == 0.0
        engine.healthy = True
        await anext(blocks)
        assert record.computing_s > 0
        assert scheduler.pace.real_time_factor >= 0.01


async def test_pace_and_backlog_follow_the_work() -> None:
    scheduler = Scheduler(ToneEngine(0.01), block_timeout_s=60, max_queued_chars=500)
    record = recorded()
    with scheduler.backlog.place(200, 1.0) as place:
        record.place = place
        assert scheduler.queued_chars == 200
        assert scheduler.backlog.overload(300) is None
        assert scheduler.backlog.overload(301) is not None
        request = SpeechRequest("a" * 200, "alto", 1.0, 24_000)
        async with aclosing(scheduler.blocks(request, record)) as blocks:
            async for _ in blocks:
                pass
        assert scheduler.queued_chars < 200
        assert scheduler.pace.real_time_factor >= 0.01
    assert (scheduler.queued_chars, scheduler.queued_s) == (0, 0.0)
