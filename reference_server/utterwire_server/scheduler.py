"""The engine's capacity, shared block by block by every session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

from utterwire_server.backlog import Backlog
from utterwire_server.engines.engine import Block, Engine, EngineError, SpeechRequest
from utterwire_server.line import Ask, Line, Listener
from utterwire_server.logs import log_event, whereabouts
from utterwire_server.observer import UtteranceRecord
from utterwire_server.pace import Pace

__all__ = ["Scheduler"]

#: Who has no more in hand than the engine takes for so many blocks is about to run dry.
BLOCKS_AHEAD: Final = 2.0
#: How long, in seconds, the end waits for an engine that does not let go.
CLOSING_S: Final = 5.0


class Scheduler:
    """Hands out the engine one block at a time, to the session that needs it most (`Line`).

    A slot is given back when the engine has let go of it, and not before: nothing is begun on a
    model that still computes for somebody who has left. Who leaves does not wait for that.

    :param engine: the engine that is shared; it makes ``engine.concurrency`` blocks at once.
    :param block_timeout_s: how long one block may take before its utterance fails. An engine that
        has not let go after as long again is stuck, and whoever waits for it then fails.
    :param max_queued_chars: so many characters may wait to be spoken, for all sessions together.
    :param max_queued_work_s: so many seconds of work may wait: of one session, and of all, of which
        each session's counts up to a part (`Backlog`).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        block_timeout_s: float,
        max_queued_chars: int = 1_000_000,
        max_queued_work_s: float = 120.0,
    ) -> None:
        self.engine = engine
        self.block_timeout_s = block_timeout_s
        self.pace = Pace()
        #: What was accepted and is not spoken yet.
        self.backlog = Backlog(
            self.pace,
            workers=engine.concurrency,
            max_characters=max_queued_chars,
            max_s=max_queued_work_s,
        )
        self._line = Line()
        self._granted: dict[Ask, asyncio.Future[None]] = {}
        self._free = engine.concurrency
        self._streams: set[_Stream] = set()

    @property
    def speaking(self) -> int:
        """How many streams of the engine are open."""
        return len(self._streams)

    @property
    def waiting(self) -> int:
        """How many utterances wait for their next block."""
        return len(self._line)

    @property
    def computing(self) -> int:
        """How many blocks are in the making, also those that nobody wants any more."""
        return self.engine.concurrency - self._free

    @property
    def queued_chars(self) -> int:
        """Characters that were accepted and are, probably, still to be spoken."""
        return round(self.backlog.characters)

    @property
    def queued_s(self) -> float:
        """How long the engine will probably work on them, in seconds."""
        return self.backlog.seconds

    @property
    def stuck(self) -> bool:
        """Whether the engine does not let go of any block that it makes."""
        return sum(stream.stuck for stream in self._streams) >= self.engine.concurrency

    async def blocks(
        self, request: SpeechRequest, record: UtteranceRecord
    ) -> AsyncGenerator[Block]:
        """Speak ``request`` to the listener of ``record``, waiting for a turn before each block.

        Close the stream to give up the utterance. ``record`` keeps what it took.

        :raises EngineError: if a block takes longer than the limit, or the engine is stuck.
        """
        stream, place = _Stream(self, request, record), record.place
        self._streams.add(stream)
        stream.task.add_done_callback(lambda _: self._streams.discard(stream))
        try:
            while (block := await stream.next()) is not None:
                if place is not None:
                    place.made(block.samples.size / request.sample_rate)
                yield block
            if place is not None:
                place.completed()
        finally:
            stream.give_up("it was given up")

    async def close(self) -> None:
        """Give up every stream, and return when the engine has let go or will not."""
        tasks = [stream.task for stream in self._streams]
        for stream in tuple(self._streams):
            stream.give_up("the server stops")
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=CLOSING_S)
            if left:
                log_event("engine_stuck", streams=len(left))

    # What streams need

    @asynccontextmanager
    async def slot(self, listener: Listener) -> AsyncIterator[None]:
        """Wait for a turn; while the block runs, one of the engine's slots is held.

        :raises EngineError: if the engine is stuck.
        """
        self.check()
        loop = asyncio.get_running_loop()
        ask = self._line.join(listener, loop.time())
        granted = self._granted[ask] = loop.create_future()
        self._dispatch()
        try:
            await granted
        except BaseException:
            self._line.leave(ask)
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._release()
            raise
        finally:
            del self._granted[ask]
        try:
            yield
        finally:
            self._release()

    def check(self) -> None:
        """Fail all who wait if the engine is stuck.

        :raises EngineError: if it is.
        """
        if not self.stuck:
            return
        error = EngineError("the engine does not let go of what was given up")
        for ask, granted in self._granted.items():
            if not granted.done():
                self._line.leave(ask)
                granted.set_exception(error)
        raise error

    def _dispatch(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._free:
            ask = self._line.next(now, soon_s=BLOCKS_AHEAD * self.pace.block_s)
            if ask is None:
                return
            granted = self._granted[ask]
            # One that was cancelled a moment ago has not left the line yet.
            if not granted.done():
                self._free -= 1
                granted.set_result(None)

    def _release(self) -> None:
        self._free += 1
        self._dispatch()


class _Stream:
    """One utterance's stream of the engine: made, asked and closed in one task of its own.

    The task outlives whoever wanted the utterance until the engine has let go.
    """

    def __init__(
        self, scheduler: Scheduler, request: SpeechRequest, record: UtteranceRecord
    ) -> None:
        self._scheduler = scheduler
        self._request = request
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._answer: asyncio.Future[Block | None] = self._loop.create_future()
        self._given_up = False
        self._computing = False
        #: It still computes, long after it was given up.
        self.stuck = False
        record.listener.begin(self._loop.time())
        self.task = asyncio.create_task(self._run(), name="engine-stream")

    async def next(self) -> Block | None:
        """The next block, or None at the end."""
        if self._answer.done():
            self._answer = self._loop.create_future()
        self._wanted.set()
        return await self._answer

    def give_up(self, why: str) -> None:
        """Nobody wants the utterance any more, or it has failed."""
        if self._given_up or self.task.done():
            return
        self._given_up = True
        self._fail(EngineError(why))
        self.task.cancel()
        if self._computing:
            self._loop.call_later(self._scheduler.block_timeout_s, self._look)

    def _look(self) -> None:
        if self._computing and not self.task.done():
            self.stuck = True
            log_event("engine_stuck", streams=1)
            try:
                self._scheduler.check()
            except EngineError:
                log_event("engine_gone")

    async def _run(self) -> None:
        try:
            async with aclosing(self._scheduler.engine.synthesize(self._request)) as stream:
                while not self._given_up:
                    await self._wanted.wait()
                    self._wanted.clear()
                    async with self._scheduler.slot(self._record.listener):
                        block = await self._make(stream)
                    self._tell(block)
                    if block is None:
                        break
        except asyncio.CancelledError:
            if not self._given_up:
                # Something that the engine waited for was cancelled, or the loop ends.
                self._fail(EngineError("the engine was cancelled by something of its own"))
            if self._asked_to_stop():
                raise
        except (Exception, SystemExit) as error:
            # A model that exits takes nobody along.
            if isinstance(error, SystemExit):
                error = EngineError("the engine wanted to exit")
            if not self._fail(error):
                log_event("stream_not_closed", **whereabouts(error))

    async def _make(self, stream: AsyncGenerator[Block]) -> Block | None:
        """The next block, in a slot that is held until it is made, or let go of."""
        scheduler, began = self._scheduler, self._loop.time()
        # An engine that has to come back first tells nothing of how fast it is.
        there = scheduler.engine.healthy
        limit_s = scheduler.block_timeout_s
        timer = self._loop.call_later(limit_s, self.give_up, f"no block within {limit_s:g} s")
        self._computing = True
        self._record.begin(began)
        try:
            block = await anext(stream, None)
            if self._given_up:
                await stream.aclose()
        finally:
            timer.cancel()
            self._computing = self.stuck = False
            if there:
                self._record.computing_s += self._loop.time() - began
        if block is None or self._given_up:
            return None
        if there:
            speech_s = block.samples.size / self._request.sample_rate
            scheduler.pace.made(speech_s, self._loop.time() - began)
        return block

    def _tell(self, block: Block | None) -> None:
        if not self._answer.done():
            self._answer.set_result(block)

    def _fail(self, error: Exception) -> bool:
        """Tell whoever waits; False if nobody does."""
        if self._answer.done():
            return False
        self._answer.set_exception(error)
        return True

    @staticmethod
    def _asked_to_stop() -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
