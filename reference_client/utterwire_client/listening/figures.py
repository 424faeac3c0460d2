"""The figures of one run, and what is told of a figure that was measured many times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Final, TypedDict

__all__ = ["FIGURES", "Figures", "Spread", "spread_of"]


class Figures(TypedDict):
    """Of one run, as the schema ``latency`` has them; None is what is not known."""

    first_byte_s: float | None
    first_sound_s: float | None
    heard_s: float | None
    byte_to_heard_s: float | None
    heard_to_s: float | None
    gaps: float | None
    gap_s: float | None
    underruns: float | None
    stall_s: float | None
    skipped_s: float | None
    silence_s: float | None


#: Their names, in the order in which they are shown.
FIGURES: Final = tuple(Figures.__annotations__)


class Spread(TypedDict):
    """Median, quartiles and extremes of so many runs."""

    median: float
    q1: float
    q3: float
    least: float
    most: float
    count: int


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Of those that are known; None if none is. Quartiles are linear between the values."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(
        median=_rounded(statistics.median(known)),
        q1=_rounded(_at(known, 0.25)),
        q3=_rounded(_at(known, 0.75)),
        least=_rounded(known[0]),
        most=_rounded(known[-1]),
        count=len(known),
    )


def _at(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))


def _rounded(value: float) -> float:
    return round(value, 6)
