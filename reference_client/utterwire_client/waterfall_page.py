"""A waterfall as one page that needs nothing else: no script, no network."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

__all__ = ["waterfall_page"]

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1b1d21; --soft: #575c66;
  --line: #dcdee3; --text: #a7b4c8; --wait: #f0b429; --net: #3b6fd4; --hush: #b9dfc8;
  --play: #14713d; --bad: #b1231f; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --card: #1e2126; --ink: #e8e9ec;
  --soft: #a4a9b4; --line: #363a42; --text: #55617a; --wait: #d9a227; --net: #7aa5f5;
  --hush: #2c5a40; --play: #6fd39a; --bad: #ff928c; } }
* { box-sizing: border-box; }
html { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--paper);
  color: var(--ink); }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .2rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.soft { color: var(--soft); font-size: .875rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 1rem 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem .75rem; }
dt { color: var(--soft); font-size: .875rem; } dd { margin: 0; font-size: 1.25rem; }
.late { color: var(--bad); font-weight: 600; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0;
  margin: .5rem 0; }
.key i { display: inline-block; width: .9rem; height: .9rem; border-radius: 3px;
  margin-right: .4rem; vertical-align: -.1rem; }
ol { list-style: none; margin: 0; padding: 0; }
li.row { border-top: 1px solid var(--line); padding: .5rem 0; }
.lane { position: relative; height: .8rem; margin: .2rem 0; background: linear-gradient(to right,
  var(--line) 1px, transparent 1px) 0 0 / 10% 100%; }
.lane i { position: absolute; top: 0; bottom: 0; min-width: 2px; border-radius: 2px; }
.text { background: var(--text); } .wait { background: var(--wait); }
.net { background: var(--net); } .hush { background: var(--hush); }
.play { background: var(--play); }
.gap { background: repeating-linear-gradient(45deg, var(--bad) 0 3px, transparent 3px 6px);
  outline: 1px solid var(--bad); outline-offset: -1px; }
.axis { display: flex; justify-content: space-between; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; font-size: .875rem; }
td:last-child, th:last-child { text-align: left; white-space: normal; min-width: 14rem;
  overflow-wrap: anywhere; }
"""

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
