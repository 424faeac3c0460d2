"""What the generator's instance norms subtract and divide by, held fixed for a voice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Statistics", "pooled"]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Mean and variance of every channel at every instance norm of the generator.

    ``means`` and ``variances`` are float32 of shape ``(channels,)``: the channels of all norms one
    after the other, in the order in which the norms run. ``frames`` is how many frames they were
    taken over.

    :raises ValueError: if they do not fit together.
    """

    means: npt.NDArray[np.float32]
    variances: npt.NDArray[np.float32]
    frames: int

    def __post_init__(self) -> None:
        if self.means.ndim != 1 or self.means.shape != self.variances.shape or self.frames < 1:
            raise ValueError("means and variances are one value for each channel, of some frames")

    @property
    def channels(self) -> int:
        """How many channels all norms have together."""
        return self.means.size


def pooled(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of several segments taken as one.

    :raises ValueError: if there are none, or they are of different models.
    """
    every = list(parts)
    if len({part.channels for part in every}) != 1:
        raise ValueError("statistics are pooled of one segment at least, and of one model")
    frames = sum(part.frames for part in every)
    mean = np.zeros(every[0].channels)
    square = np.zeros(every[0].channels)
    for part in every:
        mean += part.frames / frames * part.means
        square += part.frames / frames * (part.variances + np.square(part.means, dtype=np.float64))
    variance = np.maximum(square - np.square(mean), 0.0)
    return Statistics(mean.astype(np.float32), variance.astype(np.float32), frames)
