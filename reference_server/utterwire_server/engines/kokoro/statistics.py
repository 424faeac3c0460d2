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

    ``means`` and ``variances`` hold one float32 array of shape ``(channels,)`` for each norm, in
    the order in which the norms run. ``frames`` is how many frames they were taken over.
    """

    means: tuple[npt.NDArray[np.float32], ...]
    variances: tuple[npt.NDArray[np.float32], ...]
    frames: int

    def __post_init__(self) -> None:
        shapes = [array.shape for array in self.means]
        if not shapes or shapes != [array.shape for array in self.variances]:
            raise ValueError("means and variances do not have the same shapes")
        if any(len(shape) != 1 for shape in shapes) or self.frames < 1:
            raise ValueError(
                "statistics are one row of channels for each norm, over 1 frame or more"
            )

    @property
    def channels(self) -> tuple[int, ...]:
        """How many channels each norm has."""
        return tuple(array.size for array in self.means)


def pooled(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of several segments taken as one.

    :raises ValueError: if there are none, or they are of different models.
    """
    every = list(parts)
    if not every or len({part.channels for part in every}) > 1:
        raise ValueError("statistics of one model are pooled, and of one segment at least")
    frames = sum(part.frames for part in every)
    means, variances = [], []
    for index in range(len(every[0].means)):
        mean = sum(part.frames / frames * part.means[index].astype(np.float64) for part in every)
        square = sum(
            part.frames
            / frames
            * (part.variances[index] + part.means[index].astype(np.float64) ** 2)
            for part in every
        )
        means.append(np.asarray(mean, np.float32))
        variances.append(np.asarray(np.maximum(square - np.square(mean), 0.0), np.float32))
    return Statistics(tuple(means), tuple(variances), frames)
