"""The seam between Kokoro-82M and whatever drives it: what a model has to do, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from utterwire_server.engines.engine import Samples
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.text.segment import MAX_PHONEMES

__all__ = [
    "CONTEXT_FRAMES",
    "FRAME_S",
    "FRAME_SAMPLES",
    "SAMPLE_RATE",
    "STYLE_SIZE",
    "Acoustics",
    "Interrupted",
    "Prepared",
    "Styles",
    "tokens_of",
]

SAMPLE_RATE: Final = 24_000
#: Durations and windows are counted in frames of so many samples.
FRAME_SAMPLES: Final = 600
FRAME_S: Final = FRAME_SAMPLES / SAMPLE_RATE
#: How many frames on either side of a window the generator has to see to render it.
CONTEXT_FRAMES: Final = 5
STYLE_SIZE: Final = 256

#: A voice: row ``n - 1`` is its style for ``n`` phonemes; float32 of shape ``(510, 256)``.
Styles = npt.NDArray[np.float32]


class Interrupted(Exception):
    """A call was given up because `Acoustics.interrupt` asked for it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A segment of speech before its generator has run.

    ``durations`` are frames for each token, both end tokens included, int64 of shape ``(n + 2,)``;
    none is below 1, and their sum is how many frames the segment has. ``handle`` is what the model
    keeps for itself; it is freed with this object.
    """

    durations: npt.NDArray[np.int64]
    handle: Any

    @property
    def frames(self) -> int:
        """How long the segment is, in frames."""
        return int(self.durations.sum())


class Acoustics(Protocol):
    """Kokoro-82M, loaded. Every call blocks, and one is made at a time.

    What `prepare` gave may be handed to any instance that was made from the same files with the
    same settings, in the same process.
    """

    def prepare(
        self, tokens: Sequence[int], style: npt.NDArray[np.float32], speed: float
    ) -> Prepared:
        """All that comes before the generator, once for the whole segment, the source included.

        :param tokens: as `tokens_of` makes them: an end token on both sides.
        :param style: float32 of shape ``(256,)``.
        """

    def render(
        self, prepared: Prepared, start: int, stop: int, statistics: Statistics | None
    ) -> Samples:
        """The samples of frames ``start`` up to ``stop``: float32, `FRAME_SAMPLES` for each.

        Up to `CONTEXT_FRAMES` frames of the segment on either side are rendered along and dropped.
        With `None` each norm uses the statistics of its own input, which is exact, and is asked for
        the whole segment only.
        """

    def measure(self, prepared: Prepared) -> Statistics:
        """The true statistics of the segment, each of its frames counted."""

    def interrupt(self) -> None:
        """Give up the call in progress, from any thread; it raises `Interrupted`.

        A model that cannot stop in the middle finishes the call instead. With no call in progress
        nothing happens, now or later.
        """


def tokens_of(phonemes: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The tokens of ``phonemes``, with an end token (0) on both sides.

    :raises ValueError: if there are more than `MAX_PHONEMES`, or one is not in ``vocabulary``.
    """
    if len(phonemes) > MAX_PHONEMES:
        raise ValueError(f"{len(phonemes)} phonemes; a segment has {MAX_PHONEMES} at most")
    try:
        return [0, *(vocabulary[phoneme] for phoneme in phonemes), 0]
    except KeyError as error:
        raise ValueError(f"the model has no phoneme {error.args[0]!r}") from None
