"""Distributions of times as pictures: inline SVG without styles, scripts or outside things."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

__all__ = ["Strip", "duration", "strip_plot"]

_WIDTH: Final = 720
_LEFT: Final = 128
_RIGHT: Final = 34
_ROW: Final = 64
_AXIS: Final = 26
_BINS: Final = 72
_TALLEST: Final = 38
_LEAST_S: Final = 1e-4
_TICKS: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Strip:
    """One row of a plot: values in seconds, zero or more."""

    label: str
    values: tuple[float, ...]

    def quantile(self, part: float) -> float:
        """The value below which so large a part (0 to 1) of the values lies."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1 if part else 0)]


def duration(seconds: float) -> str:
    """A time as people write it: `340 µs`, `12.5 ms`, `1.30 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s"


def strip_plot(title: str, strips: Sequence[Strip]) -> Markup:
    """Histograms over one logarithmic axis, with the median and the 90th percentile marked.

    Rows without values are left away; without any the picture is empty.
    """
    rows = [strip for strip in strips if strip.values]
    if not rows:
        return Markup("")
    every = [max(value, _LEAST_S) for strip in rows for value in strip.values]
    low = _floor(min(every))
    high = max(_ceiling(max(every)), low * 10)
    height = _ROW * len(rows) + _AXIS
    parts = [
        f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {height}">',
        f"<title>{escape(title)}</title>",
    ]
    scale = _Scale(low, high)
    ticks = scale.ticks()
    for number, tick in enumerate(ticks):
        # Where there is little room every second label is left out, and the last keeps inside.
        kind = "tick second" if number % 2 else "tick"
        kind += " last" if tick == ticks[-1] else ""
        x = scale.x(tick)
        bottom = height - _AXIS
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{bottom}"/>')
        parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{escape(duration(tick))}</text>"
        )
    for number, strip in enumerate(rows):
        parts += _row(strip, scale, _ROW * number)
    parts.append("</svg>")
    return Markup("".join(parts))


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float

    def x(self, value: float) -> float:
        span = math.log(self.high / self.low)
        part = math.log(max(value, _LEAST_S, self.low) / self.low) / span
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        """Round values, few enough for their labels to stand side by side."""
        decades = math.log10(self.high / self.low)
        steps = _TICKS if decades <= 2 else (1, 3) if decades <= 3 else (1,)
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        slack = 1 + 1e-9
        return [tick for tick in found if self.low / slack <= tick <= self.high * slack]


def _floor(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in _TICKS if step * power <= value * (1 + 1e-9))


def _ceiling(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return min(step * power for step in (*_TICKS, 10) if step * power >= value * (1 - 1e-9))


def _row(strip: Strip, scale: _Scale, top: int) -> list[str]:
    base = top + _ROW - 12
    counts = [0] * _BINS
    width = (_WIDTH - _LEFT - _RIGHT) / _BINS
    for value in strip.values:
        counts[min(_BINS - 1, int((scale.x(value) - _LEFT) / width))] += 1
    tallest = max(counts)
    parts = [
        f'<text class="label" x="0" y="{base - 18}">{escape(strip.label)}</text>',
        *(
            f'<text class="label-narrow" x="0" y="{base - 24 + 24 * line}">{escape(word)}</text>'
            for line, word in enumerate(strip.label.split(maxsplit=1))
        ),
        f'<text class="count" x="0" y="{base}">{len(strip.values):,} measured</text>',
        f'<line class="base" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>',
    ]
    for number, count in enumerate(counts):
        if count:
            tall = max(2.0, _TALLEST * count / tallest)
            parts.append(
                f'<rect class="bar" x="{_LEFT + number * width + 0.5:.1f}" y="{base - tall:.1f}"'
                f' width="{width - 1:.1f}" height="{tall:.1f}"/>'
            )
    for name, part in (("median", 0.5), ("p90", 0.9)):
        x = scale.x(strip.quantile(part))
        parts.append(
            f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 6}" y2="{base + 4}"/>'
        )
    return parts
