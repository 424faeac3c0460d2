"""The result of the study as one page that needs nothing else: no script, no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

__all__ = ["Line", "plot", "study_page"]

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1b1d21; --soft: #575c66;
  --line: #dcdee3; --box: #a9c2ef; --mid: #1c4fb0; --due: #8a5300; --good: #14713d;
  --bad: #b1231f; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --card: #1e2126; --ink: #e8e9ec;
  --soft: #a4a9b4; --line: #363a42; --box: #3a5488; --mid: #a9c8ff; --due: #f0bd5f;
  --good: #6fd39a; --bad: #ff928c; } }
* { box-sizing: border-box; }
html { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
body { margin: 0 auto; max-width: 64rem; padding: 1rem; background: var(--paper);
  color: var(--ink); }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .2rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; }
p, li { margin: .3rem 0; overflow-wrap: anywhere; }
ul { padding: 0; list-style: none; }
.soft, figcaption { color: var(--soft); font-size: .875rem; }
.goal { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem .75rem; }
.met { color: var(--good); font-weight: 600; } .missed { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
figcaption { margin-bottom: .5rem; }
.line { display: grid; grid-template-columns: 15rem 1fr 7rem; gap: .75rem; align-items: center;
  padding: .1rem 0; }
.line svg { display: block; width: 100%; height: 1.5rem; overflow: visible; }
.line b { font-weight: 600; text-align: right; font-variant-numeric: tabular-nums; }
.axis { grid-column: 2; display: flex; justify-content: space-between; }
.grid { stroke: var(--line); } .whisker { stroke: var(--soft); } .box { fill: var(--box); }
.median { stroke: var(--mid); stroke-width: 3; }
.expected { stroke: var(--due); stroke-width: 2; stroke-dasharray: 3 2; }
.grid, .whisker, .median, .expected { vector-effect: non-scaling-stroke; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 500; font-size: .875rem; min-width: 6rem; }
tbody th { font-weight: 500; min-width: 9rem; } td { white-space: nowrap; }
td.words { white-space: normal; min-width: 9rem; }
th:first-child { text-align: left; }
small { display: block; color: var(--soft); }
@media (max-width: 44rem) {
  .line { grid-template-columns: 1fr auto; gap: 0 .75rem; padding: .3rem 0; }
  .line svg { grid-column: 1 / -1; grid-row: 2; } .axis { grid-column: 1 / -1; }
}
"""

# Of a picture, which is stretched to the room there is.
_WIDTH: Final = 1000
_HEIGHT: Final = 24
_INTERVALS: Final = 4
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a plot: its name, a spread in the form of the schema, and what was expected."""

    name: str
    spread: Mapping[str, float]
    expected: float | None = None


def plot(title: str, lines: Sequence[Line]) -> str:
    """Boxes over one axis: extremes, quartiles, median, and the expected value as a broken line."""
    known = [each for line in lines for each in _values(line)]
    axis = _Axis.over(min(0.0, *known), max(known))
    ticks = "".join(f"<span>{tick:,g}</span>" for tick in axis.ticks)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>\n"
        + "".join(_line(line, axis) for line in lines)
        + f'<div class="line" aria-hidden="true"><p class="axis soft">{ticks}</p></div></figure>\n'
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """Round numbers, evenly spaced, from the first to the last."""

    ticks: tuple[float, ...]

    @classmethod
    def over(cls, low: float, high: float) -> _Axis:
        least = (high - low) / _INTERVALS or 1.0
        power = 10.0 ** math.floor(math.log10(least))
        # Without the slack, 0.3 is more than 3 times 0.1.
        step = next(each * power for each in _STEPS if each * power >= least * (1 - 1e-9))
        first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
        last = max(last, first + 1)
        return cls(tuple(round(number * step, 9) for number in range(first, last + 1)))

    def x(self, value: float) -> float:
        return _WIDTH * (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])


def _values(line: Line) -> list[float]:
    values = [line.spread["least"], line.spread["most"]]
    return values if line.expected is None else [*values, line.expected]


def _line(line: Line, axis: _Axis) -> str:
    spread = line.spread
    x = {part: axis.x(spread[part]) for part in ("least", "q1", "median", "q3", "most")}
    told = (
        f"median {_number(spread['median'])}, half of all from {_number(spread['q1'])} to "
        f"{_number(spread['q3'])}"
    )
    middle = _HEIGHT // 2
    # A box is never so narrow that it cannot be seen.
    width = max(x["q3"] - x["q1"], 2.0)
    parts = [
        *(_stroke("grid", axis.x(tick), axis.x(tick), 0, _HEIGHT) for tick in axis.ticks),
        _stroke("whisker", x["least"], x["most"], middle, middle),
        f'<rect class="box" x="{x["q1"]:.1f}" y="5" width="{width:.1f}" height="14"/>',
        _stroke("median", x["median"], x["median"], 3, _HEIGHT - 3),
    ]
    if line.expected is not None:
        told += f", expected {_number(line.expected)}"
        parts.append(_stroke("expected", axis.x(line.expected), axis.x(line.expected), 0, _HEIGHT))
    return (
        f'<div class="line"><span>{escape(line.name)}</span>'
        f'<svg role="img" aria-label="{told}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
        f"<b>{_number(spread['median'])}</b></div>\n"
    )


def _stroke(kind: str, x1: float, x2: float, y1: int, y2: int) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1}" y2="{y2}"/>'


def _number(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def study_page(result: Mapping[str, Any]) -> str:
    """The page of a result of the schema ``study.schema.json``."""
    endpoint, machine = result["endpoint"], result["machine"]
    name = escape(endpoint["name"])
    engine = f" ({escape(endpoint['engine'])})" if endpoint["engine"] else ""
    versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Study of {name}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<p class="soft">{escape(result["started"])}, {result["duration_s"]} s</p>
<h1>Streamed speech, measured: {name}{engine}</h1>
<p class="soft">{escape(" ".join(result["command"]))}</p>
<p class="soft">{escape(machine["system"])}, {machine["cores"]} cores, Python
{escape(machine["python"])}, {escape(versions)}; load average before it {result["load_average"]};
commit {escape(str(result["commit"]))}</p>
<p>Broad bars hold half of all samples, thin lines all of them; the bold line, and the number, is
the median. A broken line is what arithmetic expects. Times are in milliseconds. The engine takes
{_number(endpoint["first_block_ms"])} ms for its first audio.</p>
<ul>
{"".join(_goal(goal) for goal in result["goals"])}</ul>
{"".join(_experiment(each) for each in result["experiments"])}</main>
</body>
</html>
"""


def _goal(goal: Mapping[str, Any]) -> str:
    verdict = (
        '<span class="met">Met</span>' if goal["met"] else '<span class="missed">Missed</span>'
    )
    return (
        f'<li class="goal">{verdict}: {escape(goal["name"])}: {escape(goal["found"])} '
        f'<span class="soft">(goal: {escape(goal["goal"])})</span></li>\n'
    )


def _experiment(found: Mapping[str, Any]) -> str:
    parts = [f'<h2 id="{escape(found["id"])}">{escape(found["title"])}</h2>\n']
    if found["not_measured"] is not None:
        return "".join([*parts, f"<p>Not measured: {escape(found['not_measured'])}</p>\n"])
    parts.append(f"<p>{escape(found['question'])}</p>\n")
    if found["published"] is not None:
        parts.append(f"<p>Published: {escape(found['published'])}</p>\n")
    parts += _plots(found)
    if found["note"] is not None:
        parts.append(f'<p class="soft">{escape(found["note"])}</p>\n')
    return "".join([*parts, _table(found)])


def _plots(found: Mapping[str, Any]) -> list[str]:
    titles, rows = found["measures"], found["rows"]
    if len(rows) == 1:
        # Nothing beside it: its measures are compared with each other.
        row = rows[0]
        lines = [
            Line(titles[key], spread, row["expected"].get(key))
            for key, spread in row["measures"].items()
        ]
        return [plot(row["name"], lines)] if lines else []
    pictures = []
    for key, title in titles.items():
        lines = [
            Line(row["name"], row["measures"][key], row["expected"].get(key))
            for row in rows
            if key in row["measures"]
        ]
        if lines:
            pictures.append(plot(title, lines))
    return pictures


def _table(found: Mapping[str, Any]) -> str:
    facts = [key for key in found["facts"] if any(key in row["facts"] for row in found["rows"])]
    heads = [*found["measures"].values(), "samples", *(found["facts"][key] for key in facts)]
    return (
        '<div class="scroll" tabindex="0">\n<table>\n<thead><tr><th scope="col"></th>'
        + "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
        + "</tr></thead>\n<tbody>\n"
        + "".join(_cells(row, list(found["measures"]), facts) for row in found["rows"])
        + "</tbody>\n</table>\n</div>\n"
    )


def _cells(row: Mapping[str, Any], measures: Sequence[str], facts: Sequence[str]) -> str:
    note = "" if row["note"] is None else f"<small>{escape(row['note'])}</small>"
    cells = [f'<th scope="row">{escape(row["name"])}{note}</th>']
    for key in measures:
        spread = row["measures"].get(key)
        expected = row["expected"].get(key)
        due = "" if expected is None else f"<small>expected {_number(expected)}</small>"
        told = (
            ""
            if spread is None
            else f"{_number(spread['median'])}<small>{_number(spread['q1'])} to "
            f"{_number(spread['q3'])}</small>{due}"
        )
        cells.append(f"<td>{told}</td>")
    samples = {spread["samples"] for spread in row["measures"].values()}
    cells.append(f"<td>{' to '.join(str(each) for each in sorted(samples))}</td>")
    for key in facts:
        value = row["facts"].get(key, "")
        if isinstance(value, str):
            cells.append(f'<td class="words">{escape(value)}</td>')
        else:
            cells.append(
                f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{_number(value)}</td>"
            )
    return f"<tr>{''.join(cells)}</tr>\n"
