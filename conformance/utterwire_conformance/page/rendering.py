"""Rendering `report.html` from a folder that holds `report.json` and its transcripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from utterwire_conformance.command import PROGRAM, Parser, complain, show
from utterwire_conformance.report_file import ReportError, ReportFile
from utterwire_conformance.requirements.text import clause_text, revision

from .plot import duration
from .view import View
from .visible import cut, visible

__all__ = ["main_page", "render_page", "write_page"]

_MOST_CHARACTERS: Final = 1_500
_MOST_LINES: Final = 400
_BREAKS: Final = re.compile(r"(?<=[/:.?&_-])(?=\w)")


def render_page(document: dict[str, Any], folder: Path) -> str:
    """The page, as HTML, for a report of the schema `report`; `folder` holds its transcripts."""

    def shown(value: Any) -> Any:
        """Whatever is written into the page passes here."""
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return _shown(value)

    style, script = _asset("page.css"), _asset("page.js")
    environment = Environment(
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["size"] = _size
    environment.filters["ms"] = lambda seconds: f"{seconds * 1000:,.1f}"
    environment.filters["duration"] = duration
    environment.filters["ticked"] = _ticked
    environment.filters["breakable"] = _breakable
    environment.filters["prose"] = _lines
    environment.filters["pretty"] = lambda value: _lines(
        json.dumps(value, indent=2, ensure_ascii=False)
    )
    view = View(document, folder, _clauses(document))
    return environment.from_string(_asset("page.html")).render(
        view=view,
        document=document,
        style=Markup(style),
        script=Markup(script),
        style_digest=_digest(style),
        script_digest=_digest(script),
    )


def write_page(report: Path, target: Path | None = None) -> Path:
    """Render a report to `target`, or to a file beside it, of its name and with `.html`.

    `report` is a file of whatever name, or the folder with `report.json` in it. Its transcripts are
    looked for where it lies.

    Raises:
        ReportError: there is no report, or it is none that this version knows.
        OSError: the page cannot be written.
    """
    found = ReportFile.load(report)
    path = target if target is not None else found.path.with_suffix(".html")
    if path.exists() and path.samefile(found.path):
        raise ReportError(f"{path}: it is the report itself; name another file with --output")
    text = render_page(found.document, found.folder)
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def main_page(arguments: Sequence[str]) -> int:
    """`page REPORT [-o FILE]`: render a report again; the exit status is 0, or 2 for no report."""
    parser = Parser(prog=f"{PROGRAM} page", description="Render a report as one page of HTML.")
    parser.add_argument(
        "report",
        metavar="REPORT",
        type=Path,
        help="report.json, or the folder it lies in",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="where the page goes (default: beside the report, with .html in place of .json)",
    )
    try:
        options = parser.parse_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        show([str(write_page(options.report, options.output))])
    except ReportError as error:
        return complain(str(error))
    except (OSError, ValueError) as error:
        # A name with NUL in it is a ValueError.
        why = error.strerror if isinstance(error, OSError) else str(error)
        return complain(f"{options.output or 'the page'}: cannot be written: {why}")
    return 0


def _clauses(document: dict[str, Any]) -> dict[str, str]:
    """What the clauses say, where the specification at hand is the one judged by."""
    if document["spec"]["revision"] != revision():
        return {}
    found = {}
    for clause in {row["clause"] for row in document["results"]}:
        try:
            found[clause] = clause_text(clause)
        except (KeyError, OSError):
            continue
    return found


def _asset(name: str) -> str:
    return (files("utterwire_conformance.page") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _shown(text: str) -> str:
    """Text of whatever length and content, short enough and fit to be shown."""
    return cut(visible(cut(text, _MOST_CHARACTERS)), 2 * _MOST_CHARACTERS)


def _ticked(text: str) -> Markup:
    """Text in which backquotes stand around what is to be shown as code."""
    parts = _shown(text).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    shown = (
        escape(part) if i % 2 == 0 else Markup("<code>%s</code>") % part
        for i, part in enumerate(parts)
    )
    return Markup("").join(shown)


def _breakable(text: str) -> Markup:
    """Text that may be broken behind the marks that part addresses and names."""
    parts = _BREAKS.split(_shown(text))
    return Markup("<wbr>").join(escape(part) for part in parts if part)


def _lines(text: str) -> Markup:
    """Text whose line ends stay line ends."""
    shown = (escape(_shown(line)) for line in text.split("\n")[:_MOST_LINES])
    return Markup("\n").join(shown)


def _size(octets: int) -> str:
    if octets < 1000:
        return f"{octets} B"
    if octets < 1_000_000:
        return f"{octets / 1000:.1f} kB"
    return f"{octets / 1_000_000:.1f} MB"
