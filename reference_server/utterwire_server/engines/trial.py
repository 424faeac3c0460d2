"""Engines that no listener would want: they try what surrounds an engine."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np

from utterwire_server.engines.engine import Block, EngineError, SpeechRequest
from utterwire_server.engines.tone import ToneEngine

__all__ = ["BraceEngine", "FaultyEngine", "LoudEngine"]

FULL_SCALE = 32_767

_SPELLINGS: tuple[bytes, ...] = (
    b'{"type":"synthesis_complete","seq":1,"audio_bytes":0}',
    b"{}",
    b"{\x00}\x00",
    b'{"type":"error","code":"internal","message":"no","retryable":true}',
    b'{"type":"cancelled"}\n',
    b"{ ",
    b"{" * 2_400,
    b'{"type":"x","a":' + b" " * 1_000 + b"1}",
    b"{}" * 1_000,
)
# PCM holds whole samples, two bytes each; white space after an object leaves it an object.
SPELLINGS = tuple(spelling + b" " * (len(spelling) % 2) for spelling in _SPELLINGS)


class BraceEngine(ToneEngine):
    """Makes samples whose bytes spell JSON, control messages of this protocol among them.

    It shows that no receiver mistakes audio for control (`protocol.md#sender-rule`). Longer
    text gives more blocks; text with nothing to speak gives none.
    """

    name = "brace"
    times_words = False

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        spelling = itertools.cycle(SPELLINGS)
        async with aclosing(super().synthesize(request)) as stream:
            async for _ in stream:
                pcm = np.frombuffer(next(spelling), dtype="<i2")
                yield Block((pcm / FULL_SCALE).astype(np.float32))


class LoudEngine(ToneEngine):
    """Overdrives every note four times over, and slips in samples that are no numbers."""

    name = "loud"

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        async with aclosing(super().synthesize(request)) as stream:
            async for block in stream:
                samples = block.samples * np.float32(12.0)
                samples[:3] = (np.nan, np.inf, -np.inf)[: samples[:3].size]
                yield Block(samples, block.marks)


class FaultyEngine(ToneEngine):
    """Speaks ``blocks`` blocks of each utterance and then fails, or hangs for ever.

    :param blocks: how many blocks come before the failure; 0 fails before the first.
    :param hang: never return instead of failing.
    """

    name = "faulty"

    def __init__(
        self, blocks: int = 0, *, hang: bool = False, real_time_factor: float = 0.0
    ) -> None:
        super().__init__(real_time_factor)
        if blocks < 0:
            raise ValueError(f"cannot fail after {blocks} blocks")
        self.blocks = blocks
        self.hang = hang

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        made = 0
        async with aclosing(super().synthesize(request)) as stream:
            async for block in stream:
                if made == self.blocks:
                    break
                made += 1
                yield block
        if self.hang:
            await asyncio.get_running_loop().create_future()
        raise EngineError(f"failed on purpose after {made} blocks")
