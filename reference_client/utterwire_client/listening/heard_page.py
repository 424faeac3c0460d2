"""What was heard, as one page that needs nothing else: no script, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from utterwire_client.page_style import PAGE_STYLE

__all__ = ["heard_page", "way_name"]

_STYLE: Final = (
    PAGE_STYLE
    + """
.story { font-size: 1.25rem; line-height: 1.4; margin: .75rem 0; }
figure { margin: 1rem 0; padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
figcaption p { margin: 0 0 .3rem; } figcaption b { font-size: 1.05rem; }
.way { display: grid; grid-template-columns: 13rem 1fr 9rem; gap: .75rem; align-items: center;
  padding: .2rem 0; }
.way .lane { height: 1.2rem; margin: 0; }
.way .lane .run { min-width: 0; width: 1px; background: var(--ink); opacity: .45; border-radius: 0;
  top: 25%; bottom: 25%; }
.way b { font-variant-numeric: tabular-nums; text-align: right; font-weight: 600; }
.way small, td small { display: block; color: var(--soft); font-weight: 400; }
.way .axis { grid-column: 2; }
td:first-child, th:first-child { text-align: left; } td { vertical-align: top; }
@media (max-width: 44rem) {
  .way { grid-template-columns: 1fr auto; gap: 0 .75rem; padding: .4rem 0; }
  .way .lane { grid-column: 1 / -1; grid-row: 2; } .way .axis { grid-column: 1 / -1; }
}
"""
)

_KEY: Final = (
    ("wait", "silence, since the first of the text"),
    ("play", "heard"),
)

_ASKED: Final = {"bidi": "as it is written", "batch": "when it is whole"}
_CARRIED: Final = {"websocket": "WebSocket, binary", "sse": "SSE, base64"}

_COLUMNS: Final = (
    ("first byte", "first_byte_s"),
    ("first sound", "first_sound_s"),
    ("heard", "heard_s"),
    ("byte to heard", "byte_to_heard_s"),
    ("Interrupt to silence", "silence_s"),
    ("gaps", "gaps"),
    ("in gaps", "gap_s"),
    ("underruns", "underruns"),
    ("in underruns", "stall_s"),
)
_COUNTED: Final = frozenset({"gaps", "underruns"})
#: What nobody wants to hear.
_LATE: Final = frozenset({"gaps", "gap_s", "underruns", "stall_s"})


def way_name(way: Mapping[str, str]) -> str:
    """A way of the schema ``latency``, for people."""
    return f"{_ASKED[way['ask']]}, {_CARRIED[way['transport']]}"


def heard_page(document: Mapping[str, Any]) -> str:
    """The page of a document of the schema ``latency`` with answers that were repeated."""
    name = escape(document["endpoint"]["name"])
    groups = {
        answer["name"]: [it for it in document["heard"] if it["answer"] == answer["name"]]
        for answer in document["answers"]
    }
    figures = "\n".join(
        _figure(answer, groups[answer["name"]])
        for answer in document["answers"]
        if groups[answer["name"]]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>What is heard of {name}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<p class="soft">{escape(document["made_by"])}, {escape(document["started"])}</p>
<h1>What is heard of {name}</h1>
<p class="soft">{_how(document)}</p>
<p class="story">{_story(document)}</p>
<dl>
{_cards(document)}
</dl>
{_troubles(document)}
<h2>Until it is heard</h2>
<p class="soft">From the first of the text on; medians. A fine line is one run.</p>
<ul class="key soft">
{"".join(f'<li><i class="{kind}"></i>{what}</li>' for kind, what in _KEY)}
</ul>
{figures}
<h2>All figures</h2>
<p class="soft">Milliseconds: the median, then the middle half of the runs, then the smallest and
the largest.</p>
<div class="scroll" tabindex="0">
<table>
<thead><tr><th scope="col">answer, way</th><th scope="col">runs</th>
{"".join(f'<th scope="col">{title}</th>' for title, _ in _COLUMNS)}</tr></thead>
<tbody>
{"".join(_line(group) for group in document["heard"])}
</tbody>
</table>
</div>
<h2>What the words mean</h2>
<p>First byte: from the request to the first audio chunk. First sound: the same, and the silence
that the audio begins with (windows of 10 ms, -40 dBFS held for 50 ms). Heard: from the first of the
text until the first sample leaves the loudspeaker, as far as the browser knows. Byte to heard: from
the first audio chunk on; what the player adds. Gap: silence between two sentences because the
second was late; underrun: inside of one. Interrupt to silence: from the click until the last sample
that is not zero has left the loudspeaker; what came of the old answer after that would count.</p>
<p>As it is written: each sentence is asked for as soon as it is whole. When it is whole: the answer
is asked for once all of its text is there.</p>
</main>
</body>
</html>
"""


def _how(document: Mapping[str, Any]) -> str:
    options, browser = document["options"], document["browser"]
    rate = options.get("pieces_per_s")
    told = [
        document["endpoint"].get("url", ""),
        f"{options['repeat']} rounds",
        "all text at once" if rate is None else f"text at {rate:g} pieces a second",
        f"{browser['name']} {browser['version']} at {browser['sample_rate']:g} Hz",
    ]
    return escape(", ".join(filter(None, told)))


def _story(document: Mapping[str, Any]) -> str:
    """The longest answer that nobody interrupts, in the two ways to ask."""
    whole = [it for it in document["answers"] if it["interrupt_after_s"] is None]
    for answer in sorted(whole, key=lambda it: -sum(len(str(part)) for part in it["parts"])):
        name = answer["name"]
        for transport in _CARRIED:
            times = {
                group["way"]["ask"]: group["figures"]["heard_s"]
                for group in document["heard"]
                if group["answer"] == name and group["way"]["transport"] == transport
            }
            if times.get("bidi") and times.get("batch"):
                early, late = times["bidi"]["median"], times["batch"]["median"]
                return (
                    f"The answer “{escape(name)}” is heard <b>{_seconds(early)}</b> after its text "
                    f"begins to be written. Asked for when it is whole, it is heard after "
                    f"<b>{_seconds(late)}</b>."
                )
    known = [it for it in document["heard"] if it["figures"]["heard_s"]]
    if not known:
        return "Nothing was heard."
    group = known[0]
    return (
        f"The answer “{escape(group['answer'])}” is heard "
        f"<b>{_seconds(group['figures']['heard_s']['median'])}</b> after its text begins to be "
        "written."
    )


def _cards(document: Mapping[str, Any]) -> str:
    groups = document["heard"]

    def card(title: str, value: str, *, late: bool = False) -> str:
        kind = ' class="late"' if late else ""
        return f"<div><dt>{title}</dt><dd{kind}>{value}</dd></div>"

    def medians(figure: str) -> str:
        known = sorted(it["figures"][figure]["median"] for it in groups if it["figures"][figure])
        if not known:
            return "unknown"
        if _ms(known[0]) == _ms(known[-1]):
            return f"{_ms(known[0])} ms"
        return f"{_ms(known[0])} to {_ms(known[-1])} ms"

    def runs_with(figure: str) -> int:
        return sum((run[figure] or 0) > 0 for group in groups for run in group.get("runs", ()))

    count = sum(group["count"] for group in groups)
    exact = sum(group["exact"] or 0 for group in groups)
    told = sum(group["count"] for group in groups if group["exact"] is not None)
    cards = [
        card("first byte, medians", medians("first_byte_s")),
        card("byte to heard, medians", medians("byte_to_heard_s")),
        card("Interrupt to silence, medians", medians("silence_s")),
    ]
    if all("runs" in group for group in groups):
        late = runs_with("underruns")
        cards.append(card("runs with underruns", f"{late} of {count}", late=late > 0))
    same = "unknown" if not told else f"{exact} of {told} runs"
    cards.append(card("rendered as it came, to the sample", same, late=exact < told))
    return "\n".join(cards)


def _troubles(document: Mapping[str, Any]) -> str:
    told = [
        f"Not listened to {escape(way_name(it['way']))}: {escape(it['reason'])}."
        for it in document["left_out"]
    ]
    for group in document["heard"]:
        if group["failures"]:
            failed = document["options"]["repeat"] - group["count"]
            told.append(
                f"“{escape(group['answer'])}” {escape(way_name(group['way']))} failed {failed} "
                f"{'time' if failed == 1 else 'times'}: {escape('; '.join(group['failures']))}."
            )
    return "".join(f'<p class="late">{line}</p>' for line in told)


def _figure(answer: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    ends = [group["figures"]["heard_to_s"] for group in groups]
    whole = max((spread["most"] for spread in ends if spread), default=0.0) or 1.0
    after_s = answer["interrupt_after_s"]
    note = "" if after_s is None else f", interrupted {after_s:g} s after its first sound"
    return f"""<figure>
<figcaption><p><b>{escape(answer["name"])}</b>{note}</p><p class="soft">{_text(answer)}</p>
</figcaption>
{"".join(_way(group, whole) for group in groups)}
<p class="way soft"><span class="axis"><span>0 s</span><span>{whole / 2:.1f} s</span>
<span>{whole:.1f} s</span></span></p>
</figure>"""


def _text(answer: Mapping[str, Any]) -> str:
    told = [it if isinstance(it, str) else f"[{it:g} s]" for it in answer["parts"]]
    text = " ".join(told)
    return escape(text if len(text) <= 400 else text[:397] + "...")


def _way(group: Mapping[str, Any], whole: float) -> str:
    heard, end = group["figures"]["heard_s"], group["figures"]["heard_to_s"]
    name = escape(way_name(group["way"]))
    if not heard or not end:
        return f'<div class="way"><span>{name}</span><span></span><b class="late">unheard</b></div>'

    def share(seconds: float) -> float:
        return 100 * min(max(seconds / whole, 0.0), 1.0)

    start = share(heard["median"])
    bars = f'<i class="wait" style="left:0%;width:{start:.3f}%"></i>'
    width = max(share(end["median"]) - start, 0.0)
    bars += f'<i class="play" style="left:{start:.3f}%;width:{width:.3f}%"></i>'
    bars += "".join(
        f'<i class="run" style="left:{min(share(run["heard_s"]), 99.9):.3f}%"></i>'
        for run in group.get("runs", ())
        if run["heard_s"] is not None
    )
    return (
        f'<div class="way"><span>{name}</span><div class="lane" aria-hidden="true">{bars}</div>'
        f"<b>{_seconds(heard['median'])}<small>{_range(heard, 'q1', 'q3')} ms</small></b></div>\n"
    )


def _line(group: Mapping[str, Any]) -> str:
    cells = "".join(_cell(group["figures"].get(key), key) for _, key in _COLUMNS)
    return (
        f"<tr><td>{escape(group['answer'])}<small>{escape(way_name(group['way']))}</small></td>"
        f"<td>{group['count']}</td>{cells}</tr>\n"
    )


def _cell(spread: Mapping[str, float] | None, key: str) -> str:
    if spread is None:
        return "<td></td>"
    kind = ' class="late"' if key in _LATE and spread["median"] > 0 else ""
    if key in _COUNTED:
        most = f"<small>at most {spread['most']:g}</small>" if spread["most"] else ""
        return f"<td{kind}>{spread['median']:g}{most}</td>"
    if spread["most"] == 0:
        return "<td>0</td>"
    return (
        f"<td{kind}>{_ms(spread['median'])}<small>{_range(spread, 'q1', 'q3')}</small>"
        f"<small>{_range(spread, 'least', 'most')}</small></td>"
    )


def _range(spread: Mapping[str, float], low: str, high: str) -> str:
    return f"{_ms(spread[low])} to {_ms(spread[high])}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
