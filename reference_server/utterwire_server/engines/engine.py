"""What an engine is: voices, rates, and an asynchronous stream of float32 blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Block", "Engine", "EngineError", "Samples", "SpeechRequest", "WordMark"]

Samples: TypeAlias = npt.NDArray[np.float32]


class EngineError(Exception):
    """An engine could not make speech.

    Its message is written for the operator's log; the client is told only that the engine failed.
    """


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What to speak, checked and with every default filled in.

    ``text`` is not blank. ``speed`` is a factor: 2.0 takes half as long as 1.0. ``sample_rate`` is
    in hertz and one of the engine's ``sample_rates``.
    """

    text: str
    voice: str
    speed: float
    sample_rate: int

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("text is empty")
        if not self.speed > 0:
            raise ValueError(f"speed is {self.speed!r}; it must be above 0")
        if self.sample_rate <= 0:
            raise ValueError(f"sample_rate is {self.sample_rate!r}; it must be above 0")


@dataclass(frozen=True, slots=True)
class WordMark:
    """When a word is spoken, and where it stands in the text (`protocol.md#marks`).

    ``start_s`` and ``end_s`` are seconds from the first sample that the engine made for the
    utterance, after ``speed``; resampling and encoding change nothing in them. ``char_start`` and
    ``char_end`` are code point offsets of the request's text, the end not included, and ``text`` is
    what stands there, however it is pronounced: an engine that normalises keeps the way back.
    """

    text: str
    start_s: float
    end_s: float
    char_start: int
    char_end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_s <= self.end_s:
            raise ValueError(f"a word cannot run from {self.start_s} s to {self.end_s} s")
        if not 0 <= self.char_start < self.char_end:
            raise ValueError(f"a word cannot run from {self.char_start} to {self.char_end}")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of speech: mono float32 samples, full scale at -1.0 and 1.0, shape ``(n,)``.

    Values beyond full scale are clipped by the server, and values that are not numbers become
    silence. A block may have no samples.

    ``marks`` are words that begin in this block or after it, in the order of the text and of time,
    none of them overlapping another, each told once. An engine that makes speech by the segment
    gives the words of a segment with its first block. A word ends no later than the last sample.
    """

    samples: Samples
    marks: tuple[WordMark, ...] = ()

    def __post_init__(self) -> None:
        if self.samples.ndim != 1:
            raise ValueError(
                f"samples have {self.samples.ndim} dimensions; a block is mono, shape (n,)"
            )
        if self.samples.dtype != np.float32:
            raise ValueError(f"samples are {self.samples.dtype}; a block holds float32")


class Engine(ABC):
    """A source of speech, shared by every session of the server.

    The server asks for one block at a time, in turn for all sessions, and never has more than
    ``concurrency`` blocks in the making. It closes the stream of an utterance that nobody wants
    any more, by cancelling the call in progress and then ``aclose()``: an engine must let go of
    whatever it holds when that happens. A call must not block the event loop: a model belongs in
    another process or thread.
    """

    name: str = "engine"
    concurrency: int = 1
    #: Whether each word of the text comes as a mark. Without that the server does not claim
    #: `timing`, and marks are not looked at.
    times_words: bool = False

    @property
    def healthy(self) -> bool:
        """Whether it can speak now, once started.

        False while it mends itself, such as by starting its process again. Streams that are
        asked for meanwhile wait for that, or fail.
        """
        return True

    @property
    @abstractmethod
    def voices(self) -> tuple[str, ...]:
        """The voices on offer; the first is the default."""

    @property
    @abstractmethod
    def sample_rates(self) -> tuple[int, ...]:
        """The sample rates it speaks at, in hertz; without 24000 the server needs a resampler."""

    @abstractmethod
    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        """Speak, as a stream of blocks.

        Blocks of 20 to 100 ms keep the first byte early and a cancel cheap. Text with nothing
        to speak gives a stream without samples. Any exception ends the utterance with
        ``synthesis_failed`` and leaves the session as it was.
        """

    async def start(self) -> None:  # noqa: B027 - most engines have nothing to load
        """Load what speaking needs. `/ping` answers 503 until this has returned."""

    async def stop(self) -> None:  # noqa: B027 - most engines hold nothing
        """Free what ``start`` took. Called once, when no stream is open any more."""
