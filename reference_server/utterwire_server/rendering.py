"""One utterance on its way from the engine's blocks to the bytes of its format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from utterwire_server.encoders import Encoder, is_heavy, make_encoder
from utterwire_server.engines.engine import Samples, SpeechRequest, WordMark
from utterwire_server.observer import UtteranceRecord
from utterwire_server.scheduler import Scheduler

if TYPE_CHECKING:
    from utterwire_server.encoders.resampler import Resampler

__all__ = ["Piece", "Rendering"]

#: So much is encoded at once: a cancel waits for no more than that.
SLICE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of an utterance, and the words that begin in the speech behind them.

    ``data`` is empty where an encoder still holds what it was given. ``begins_s`` is how much the
    engine had spoken before, in seconds.
    """

    data: bytes
    begins_s: float
    marks: tuple[WordMark, ...] = ()


class Rendering:
    """Speaks, resamples and encodes one utterance. Iterate over `pieces` once.

    :param scheduler: hands out the engine.
    :param workshop: its threads do what computes too much for the event loop.
    :param request: what the engine is asked for, at a rate of its own.
    :param record: of the utterance; what the engine takes for it is noted there.
    :param format: one of `FORMATS`.
    :param sample_rate: that of the audio, in hertz.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        workshop: Executor,
        request: SpeechRequest,
        record: UtteranceRecord,
        *,
        format: str,
        sample_rate: int,
    ) -> None:
        self._scheduler = scheduler
        self._workshop = workshop
        self._request = request
        self._record = record
        self._format = format
        self._rate = sample_rate
        self._resampler: Resampler | None = None
        if request.sample_rate != sample_rate:
            from utterwire_server.encoders.resampler import Resampler

            self._resampler = Resampler(request.sample_rate, sample_rate)
        self._encoder: Encoder | None = None
        self._samples = 0
        self._job: Future[bytes] | None = None

    @property
    def duration_s(self) -> float:
        """Seconds of speech so far, without what an encoder adds."""
        return self._samples / self._rate

    async def pieces(self) -> AsyncGenerator[Piece]:
        """The bytes as they are made. Closing the stream gives the utterance up.

        :raises EngineError: as the engine does, or if it takes too long.
        """
        spoken = 0
        try:
            async with aclosing(self._scheduler.blocks(self._request, self._record)) as blocks:
                async for block in blocks:
                    marks = block.marks
                    for samples in self._slices(block.samples):
                        data = await self._do(partial(self._encode, samples))
                        yield Piece(data, spoken / self._request.sample_rate, marks)
                        spoken += samples.size
                        marks = ()
            data = await self._do(self._finish)
            yield Piece(data, spoken / self._request.sample_rate)
        finally:
            self._release()

    def _slices(self, samples: Samples) -> Iterator[Samples]:
        size = max(1, int(SLICE_S * self._request.sample_rate))
        yield samples[:size]
        for start in range(size, samples.size, size):
            yield samples[start : start + size]

    async def _do(self, work: Callable[[], bytes]) -> bytes:
        """Do ``work`` beside the event loop where it computes much, else at once."""
        if self._resampler is None and not is_heavy(self._format):
            return work()
        self._job = self._workshop.submit(work)
        return await asyncio.wrap_future(self._job)

    def _encode(self, samples: Samples) -> bytes:
        return self._put(samples if self._resampler is None else self._resampler.process(samples))

    def _put(self, samples: Samples) -> bytes:
        if not samples.size:
            return b""
        self._samples += samples.size
        if self._encoder is None:
            self._encoder = make_encoder(self._format, self._rate)
        return self._encoder.encode(samples)

    def _finish(self) -> bytes:
        rest = b""
        if self._resampler is not None:
            rest = self._put(self._resampler.finish())
        # Text with nothing to speak has no bytes in any format, no header either.
        return rest if self._encoder is None else rest + self._encoder.finish()

    def _release(self) -> None:
        """Free the encoder, as soon as no thread works with it any more."""
        job = self._job
        if job is None or job.done():
            self._close()
        else:
            job.add_done_callback(lambda _: self._close())

    def _close(self) -> None:
        # Its threads last as long as it does, and what failed may be kept until it is collected.
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            encoder.close()
