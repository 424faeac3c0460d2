"""What is told of a number that was measured many times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass

__all__ = ["Spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, quartiles, 95th percentile and extremes of so many samples."""

    median: float
    q1: float
    q3: float
    p95: float
    least: float
    most: float
    samples: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of one value or more, all finite. Raises `ValueError` for anything else."""
        ordered = sorted(values)
        if not ordered or not all(map(math.isfinite, ordered)):
            raise ValueError("a spread is of finite numbers, one at least")
        return cls(
            median=statistics.median(ordered),
            q1=_at(ordered, 0.25),
            q3=_at(ordered, 0.75),
            p95=_at(ordered, 0.95),
            least=ordered[0],
            most=ordered[-1],
            samples=len(ordered),
        )

    def rounded(self) -> dict[str, float | int]:
        """As it is written down: three decimals."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def _at(ordered: list[float], share: float) -> float:
    """Linear between the samples, the extremes at 0 and 1 (type 7 of Hyndman and Fan, 1996)."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
