"""A waterfall as one page that needs nothing else: no script, no network."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from utterwire_client.page_style import PAGE_STYLE

__all__ = ["waterfall_page"]

_STYLE: Final = (
    PAGE_STYLE
    + """
td:last-child, th:last-child { text-align: left; white-space: normal; min-width: 14rem;
  overflow-wrap: anywhere; }
"""
)

_KEY: Final = (
    ("text", "its text comes"),
    ("wait", "complete, until its first byte"),
    ("net", "audio arrives"),
    ("gap", "gap: silence because it was late"),
    ("hush", "heard: silence it begins with"),
    ("play", "heard: sound"),
)

_COLUMNS: Final = (
    ("text ready", "text_ready_s"),
    ("sent", "sent_s"),
    ("first byte", "first_byte_s"),
    ("first sound", "first_sound_s"),
    ("last byte", "last_byte_s"),
    ("heard", "heard_s"),
    ("heard to", "heard_to_s"),
)


def waterfall_page(document: Mapping[str, Any]) -> str:
    """The page of a document of the schema ``latency``."""
    summary, options, sentences = document["summary"], document["options"], document["sentences"]
    name = escape(document["endpoint"]["name"])
    whole = max((row[key] or 0.0 for row in sentences for _, key in _COLUMNS), default=0.0) or 1.0
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Latency of {name}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<p class="soft">{escape(document["made_by"])}, {escape(document["started"])}</p>
<h1>Latency of {name}</h1>
<p class="soft">{_how(document["endpoint"], options, document["audio"])}</p>
<dl>
{_figures(summary)}
</dl>
<h2>Waterfall</h2>
<ul class="key soft">
{"".join(f'<li><i class="{kind}"></i>{what}</li>' for kind, what in _KEY)}
</ul>
<ol>
{"".join(_row(row, whole) for row in sentences)}
</ol>
<p class="axis soft"><span>0 s</span><span>{whole / 2:.2f} s</span><span>{whole:.2f} s</span></p>
<h2>Times</h2>
<p class="soft">In milliseconds since the first of the text; gap and stall are lengths.</p>
<div class="scroll" tabindex="0">
<table>
<thead><tr><th scope="col">#</th>{"".join(f'<th scope="col">{title}</th>' for title, _ in _COLUMNS)}
<th scope="col">gap</th><th scope="col">stall</th><th scope="col">sentence</th></tr></thead>
<tbody>
{"".join(_line(row) for row in sentences)}
</tbody>
</table>
</div>
<h2>What the words mean</h2>
<p>First byte: from the request to the first audio chunk. First sound: the same, and the silence
that the audio begins with (windows of 10 ms, -40 dBFS held for 50 ms). Heard: when a sample left
the player's clock. Gap: silence between two sentences because the second was late; stall: inside
of one.</p>
</main>
</body>
</html>
"""


def _how(
    endpoint: Mapping[str, str], options: Mapping[str, Any], audio: Mapping[str, Any] | None
) -> str:
    told = [endpoint.get("url", ""), options["transport"]]
    if "depth" in options:
        told.append(f"{options['depth']} in flight at most")
    if options.get("pieces_per_s"):
        told.append(f"text at {options['pieces_per_s']:g} pieces a second")
    if audio is not None:
        told.append(f"{audio['format']} at {audio['sample_rate']} Hz")
    return escape(", ".join(filter(None, told)))


def _figures(summary: Mapping[str, Any]) -> str:
    def figure(title: str, value: str, *, late: bool = False) -> str:
        kind = ' class="late"' if late else ""
        return f"<div><dt>{title}</dt><dd{kind}>{value}</dd></div>"

    factor = summary["real_time_factor"]
    gaps = summary["gaps"]
    return "\n".join(
        [
            figure("first byte", _ms(summary["first_byte_s"])),
            figure("first sound", _ms(summary["first_sound_s"])),
            figure("text to heard", _ms(summary["heard_s"])),
            figure("gaps", f"{gaps} ({_ms(summary['gap_s'])})" if gaps else "none", late=gaps > 0),
            figure("audio", f"{summary['audio_s']:.2f} s"),
            figure("real-time factor", "unknown" if factor is None else f"{factor:.3f}"),
        ]
    )


def _row(row: Mapping[str, Any], whole: float) -> str:
    def bar(kind: str, start: float | None, end: float | None) -> str:
        if start is None or end is None or end < start:
            return ""
        left, width = 100 * start / whole, 100 * (end - start) / whole
        if not width:
            return ""
        return f'<i class="{kind}" style="left:{left:.3f}%;width:{width:.3f}%"></i>'

    heard, first_byte = row["heard_s"], row["first_byte_s"]
    sound = None
    if heard is not None and first_byte is not None and row["first_sound_s"] is not None:
        sound = min(heard + row["first_sound_s"] - first_byte, row["heard_to_s"])
    upper = (
        bar("text", row["text_began_s"], row["text_ready_s"])
        + bar("wait", row["text_ready_s"], first_byte)
        + bar("net", first_byte, row["last_byte_s"])
    )
    lower = bar("hush", heard, sound) + bar(
        "play", heard if sound is None else sound, row["heard_to_s"]
    )
    if heard is not None and row["gap_s"]:
        lower = bar("gap", heard - row["gap_s"], heard) + lower
    return (
        f'<li class="row"><p>{row["index"] + 1}. {escape(row["text"])}</p>'
        f'<div aria-hidden="true"><div class="lane">{upper}</div>'
        f'<div class="lane">{lower}</div></div></li>\n'
    )


def _line(row: Mapping[str, Any]) -> str:
    times = "".join(f"<td>{_number(row[key])}</td>" for _, key in _COLUMNS)
    kind = ' class="late"' if row["gap_s"] else ""
    stall = ' class="late"' if row["stall_s"] else ""
    return (
        f"<tr><td>{row['index'] + 1}</td>{times}<td{kind}>{_number(row['gap_s'])}</td>"
        f"<td{stall}>{_number(row['stall_s'])}</td><td>{escape(row['text'])}</td></tr>\n"
    )


def _number(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f}"


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{1000 * seconds:.1f} ms"
