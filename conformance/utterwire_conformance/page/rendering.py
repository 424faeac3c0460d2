"""Rendering `report.html` from a folder that holds `report.json` and its transcripts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from utterwire_schemas import validator

from utterwire_conformance.command import PROGRAM, Parser, complain
from utterwire_conformance.requirements.text import clause_text, revision

from .plot import duration
from .view import View
from .visible import cut, visible

__all__ = ["PageError", "main_page", "render_page", "write_page"]

_MOST_CHARACTERS: Final = 1_500
_MOST_LINES: Final = 400
_MOST_BYTES: Final = 256 * 1024 * 1024


class PageError(ValueError):
    """A report cannot be shown; the text is for people and names the file."""


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


def write_page(folder: Path, target: Path | None = None) -> Path:
    """Render the report in a folder to `report.html` in it, or to `target`.

    Raises:
        PageError: there is no report, or it is none that this version knows.
        OSError: the page cannot be written.
    """
    document = _load(folder / "report.json")
    text = render_page(document, folder)
    path = target if target is not None else folder / "report.html"
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def main_page(arguments: Sequence[str]) -> int:
    """`page REPORT [-o FILE]`: render a report again; the exit status is 0, or 2 for no report."""
    parser = Parser(prog=f"{PROGRAM} page", description="Render a report as one page of HTML.")
    parser.add_argument(
        "report",
        metavar="REPORT",
        type=Path,
        help="the folder of the report, or its report.json",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: report.html")
    try:
        options = parser.parse_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    folder: Path = options.report
    if folder.name == "report.json":
        folder = folder.parent
    try:
        print(write_page(folder, options.output))
    except PageError as error:
        return complain(str(error))
    except OSError as error:
        where = options.output or folder / "report.html"
        return complain(f"{where}: cannot be written: {error.strerror}")
    return 0


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise PageError(f"{path}: is too large for a report")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PageError(f"{path}: is no JSON: {error}") from error
    fault = next(validator("report").iter_errors(document), None)
    if fault is not None:
        place = ".".join(str(step) for step in fault.absolute_path) or "the document"
        raise PageError(f"{path}: is no report of this version: {place}: {fault.message[:200]}")
    found: dict[str, Any] = document
    return found


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
