"""The engine's capacity, shared block by block by every session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from utterwire_server.engines.engine import Block, Engine, EngineError, SpeechRequest
from utterwire_server.observer import UtteranceRecord

__all__ = ["Scheduler"]


class Scheduler:
    """Hands out the engine in turn, one block at a time.

    Whoever has had a block goes to the back of the line, so a long text keeps nobody from its
    first audio: with ``n`` speaking, each waits for at most ``n - 1`` blocks of others.

    :param engine: the engine that is shared; it makes ``engine.concurrency`` blocks at once.
    :param block_timeout_s: how long one block may take before its utterance fails.
    """

    def __init__(self, engine: Engine, *, block_timeout_s: float) -> None:
        self._engine = engine
        self._block_timeout_s = block_timeout_s
        # asyncio.Semaphore wakes its waiters first come, first served.
        self._slots = asyncio.Semaphore(engine.concurrency)
        self._speaking = 0
        self._computing = 0

    @property
    def speaking(self) -> int:
        """How many utterances have a stream open."""
        return self._speaking

    @property
    def computing(self) -> int:
        """How many blocks are in the making."""
        return self._computing

    async def blocks(
        self, request: SpeechRequest, record: UtteranceRecord
    ) -> AsyncGenerator[Block]:
        """Speak ``request``, waiting for a turn before each block; ``record`` keeps what it took.

        Close the stream to give up the utterance: the engine is free as soon as it has let go of
        the block in the making.

        :raises EngineError: if a block takes longer than the limit.
        """
        loop = asyncio.get_running_loop()
        self._speaking += 1
        try:
            async with aclosing(self._engine.synthesize(request)) as stream:
                while True:
                    async with self._slots:
                        self._computing += 1
                        began = loop.time()
                        record.begin(began)
                        try:
                            block = await self._next(stream)
                        finally:
                            self._computing -= 1
                            record.computing_s += loop.time() - began
                    if block is None:
                        return
                    yield block
        finally:
            self._speaking -= 1

    async def _next(self, stream: AsyncGenerator[Block]) -> Block | None:
        deadline = asyncio.timeout(self._block_timeout_s)
        try:
            async with deadline:
                return await anext(stream, None)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise EngineError(f"no block within {self._block_timeout_s:g} s") from error
