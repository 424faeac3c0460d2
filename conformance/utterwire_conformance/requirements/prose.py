"""The prose of the specification, read for its clauses, normative statements and links."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .catalogue import Requirement

__all__ = [
    "BEGIN",
    "END",
    "NORMATIVE_FILES",
    "Clause",
    "Document",
    "Link",
    "Statement",
    "disagreements",
    "read_document",
    "slug",
    "with_tables",
]

NORMATIVE_FILES: Final = ("protocol.md", "websocket.md", "http.md", "sse.md", "sagemaker.md")

# Between these two lines stands the table of a clause's requirements, made from the YAML.
BEGIN: Final = "<!-- requirements -->"
END: Final = "<!-- /requirements -->"

_HEADING: Final = re.compile(r"(#{1,6}) (.+)")
_FENCE: Final = re.compile(r"\s*```")
_ITEM: Final = re.compile(r"\s*(?:[-*]|\d+\.) ")
_TAG: Final = re.compile(r"\[`([^`\]]+)`\](?!\()")
_LEVEL: Final = re.compile(r"\*\*(MUST NOT|MUST|SHOULD NOT|SHOULD)\*\*")
# Every key word of BCP 14; those that are not bold, or are not among the four used, are faults.
_KEYWORD: Final = re.compile(
    r"\b(?:MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b(?: NOT\b)?"
)
_BOILERPLATE: Final = "are to be interpreted as described in BCP 14"
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A normative statement: the text that ends in a requirement's id, and its bold keywords."""

    id: str
    levels: tuple[str, ...]
    clause: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the prose, with the line it stands on."""

    target: str
    line: int


@dataclass(frozen=True, slots=True)
class Clause:
    """A heading and whether a table of requirements stands under it."""

    anchor: str
    line: int
    tables: int


@dataclass(frozen=True, slots=True)
class Document:
    """One file of prose, as far as it matters here.

    `stray` holds keywords that no id follows or that are written in a way not allowed, each with
    its line.
    """

    name: str
    clauses: tuple[Clause, ...]
    statements: tuple[Statement, ...]
    stray: tuple[tuple[int, str], ...]
    links: tuple[Link, ...]

    def anchors(self) -> frozenset[str]:
        """The slugs of all headings."""
        return frozenset(clause.anchor for clause in self.clauses)


def slug(heading: str) -> str:
    """The anchor that GitHub gives to `heading`, leaving aside repeated headings."""
    kept = (
        character
        for character in heading.strip().lower()
        if character in " -_" or unicodedata.category(character)[0] in "LN"
    )
    return "".join(kept).replace(" ", "-")


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, text) of each heading, marker and block of running text.

    A block is a paragraph, one list item or one row of a table: what a reader sees as one unit,
    and so the unit in which a keyword and its id must stand together.
    """
    fenced = generated = False
    start, parts = 0, list[str]()

    def flush() -> Iterator[tuple[int, str, str]]:
        if parts:
            yield start, "text", " ".join(parts)
            parts.clear()

    for number, line in enumerate(lines, 1):
        if not generated and _FENCE.match(line):
            yield from flush()
            fenced = not fenced
        elif fenced:
            continue
        elif line == END:
            generated = False
        elif generated:
            continue
        elif line == BEGIN:
            yield from flush()
            generated = True
            yield number, "marker", ""
        elif heading := _HEADING.fullmatch(line):
            yield from flush()
            yield number, "heading", heading[2]
        elif not line.strip():
            yield from flush()
        else:
            if _ITEM.match(line) or line.startswith("|"):
                yield from flush()
            if not parts:
                start = number
            parts.append(line.strip())
    yield from flush()


def read_document(name: str, text: str) -> Document:
    """Read the Markdown `text` of the file called `name`."""
    clauses: list[Clause] = []
    statements: list[Statement] = []
    stray: list[tuple[int, str]] = []
    links: list[Link] = []
    anchor = ""
    for line, kind, block in _blocks(text.splitlines()):
        if kind == "heading":
            anchor = slug(block)
            clauses.append(Clause(anchor, line, 0))
            continue
        if kind == "marker":
            if clauses:
                last = clauses[-1]
                clauses[-1] = Clause(last.anchor, last.line, last.tables + 1)
            continue
        links += [Link(match[1], line) for match in _LINK.finditer(block)]
        if _BOILERPLATE in block:
            continue
        at = 0
        for tag in _TAG.finditer(block):
            part = block[at : tag.start()]
            at = tag.end()
            statements.append(
                Statement(
                    id=tag[1],
                    levels=tuple(match[1] for match in _LEVEL.finditer(part)),
                    clause=f"{name}#{anchor}",
                    line=line,
                    text=part.strip(),
                )
            )
            stray += [(line, match[0]) for match in _KEYWORD.finditer(_LEVEL.sub("", part))]
        stray += [(line, match[0]) for match in _KEYWORD.finditer(block[at:])]
    return Document(name, tuple(clauses), tuple(statements), tuple(stray), tuple(links))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(rows: Iterable[Requirement]) -> list[str]:
    return [
        "| requirement | level | role | profile | statement |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| `{row.id}` | {row.level} | {row.role} | `{row.profile}` | {_cell(row.text)} |"
            for row in rows
        ),
    ]


def with_tables(name: str, text: str, rows: Iterable[Requirement]) -> str:
    """The Markdown `text` with the table of each clause made anew from `rows`."""
    by_clause: dict[str, list[Requirement]] = {}
    for row in rows:
        by_clause.setdefault(row.clause, []).append(row)
    result: list[str] = []
    anchor = ""
    fenced = generated = False
    for line in text.splitlines():
        if generated:
            generated = line != END
            if generated:
                continue
        elif _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.fullmatch(line)):
            anchor = slug(heading[2])
        result.append(line)
        if not fenced and line == BEGIN:
            generated = True
            result += ["", *_table(by_clause.get(f"{name}#{anchor}", ())), ""]
    return "\n".join(result) + "\n"


def _within(document: Document, expected: Mapping[str, Requirement]) -> Iterator[tuple[int, str]]:
    for line, keyword in document.stray:
        yield line, f"{keyword} has no id after it, is not bold, or is not one of the four used"
    for statement in document.statements:
        row = expected.get(statement.id)
        if row is None:
            yield statement.line, f"[{statement.id}] is not in requirements.yaml"
            continue
        if len(statement.levels) != 1:
            yield (
                statement.line,
                f"[{statement.id}] needs one bold keyword, has {len(statement.levels)}",
            )
        elif statement.levels[0] != row.level:
            yield (
                statement.line,
                f"[{statement.id}] says {statement.levels[0]}, requirements.yaml {row.level}",
            )
        if statement.clause != row.clause:
            said = f"stands in {statement.clause}, requirements.yaml says {row.clause}"
            yield statement.line, f"[{statement.id}] {said}"
    for clause in document.clauses:
        name = f"{document.name}#{clause.anchor}"
        due = int(any(row.clause == name for row in expected.values()))
        if clause.tables != due:
            yield clause.line, f"#{clause.anchor} has {clause.tables} tables, needs {due}"
    seen: set[str] = set()
    for clause in document.clauses:
        if clause.anchor in seen:
            yield clause.line, f"the anchor #{clause.anchor} is used twice"
        seen.add(clause.anchor)


def disagreements(texts: Mapping[str, str], rows: Iterable[Requirement]) -> tuple[str, ...]:
    """Where prose and requirements disagree, one line each as `file:line: what`.

    `texts` maps each of `NORMATIVE_FILES` to its Markdown. Both directions are looked at: each
    statement has its row, of the same level and clause, and each row has one statement; no
    keyword stands without an id; each clause's table is up to date.
    """
    rows = tuple(rows)
    expected = {row.id: row for row in rows}
    faults: list[str] = []
    places: dict[str, str] = {}
    for name, text in texts.items():
        document = read_document(name, text)
        faults += [f"{name}:{line}: {fault}" for line, fault in _within(document, expected)]
        for statement in document.statements:
            place = f"{name}:{statement.line}"
            if statement.id in places:
                faults.append(f"{place}: [{statement.id}] stands already at {places[statement.id]}")
            places.setdefault(statement.id, place)
        if with_tables(name, text, rows) != text:
            faults.append(f"{name}:1: the tables of requirements are out of date: run --write")
    faults += [
        f"requirements.yaml:1: {row.id} is nowhere in the prose"
        for row in rows
        if row.id not in places
    ]
    return tuple(faults)


def read_folder(folder: Path) -> dict[str, str]:
    """The texts of `NORMATIVE_FILES` in `folder`.

    Raises:
        OSError: a file cannot be read.
    """
    return {name: (folder / name).read_text(encoding="utf-8") for name in NORMATIVE_FILES}
