"""The text of the specification as it is shipped: its revision, and what a clause says."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

from .catalogue import RequirementsError, requirements
from .prose import NORMATIVE_FILES, read_folder, slug

__all__ = ["clause_text", "folder", "revision"]

_HEADING: Final = re.compile(r"(#{1,6}) (.+)")
_FENCE: Final = re.compile(r"\s*```")


def folder() -> Path:
    """Where the specification lies: in the installed package, or in a checkout."""
    packaged = Path(__file__).resolve().parent.parent / "data"
    if (packaged / NORMATIVE_FILES[0]).is_file():
        return packaged
    return Path(__file__).resolve().parents[3] / "spec"


@cache
def revision() -> str:
    """A digest over the requirements and the normative prose, which tells revisions apart.

    Raises:
        RequirementsError: the specification is not there.
    """
    digest = hashlib.sha256()
    for name in ("requirements.yaml", *NORMATIVE_FILES):
        try:
            octets = (folder() / name).read_bytes()
        except OSError:
            raise RequirementsError(
                f"{folder() / name}: cannot be read: reinstall utterwire"
            ) from None
        # A checkout may have other line ends.
        octets = octets.replace(b"\r\n", b"\n")
        digest.update(f"{name} {len(octets)}\n".encode() + octets)
    return f"sha256:{digest.hexdigest()}"


def clause_text(name: str) -> str:
    """The Markdown of a clause (`protocol.md#audio`), or of the one that a requirement stands in.

    Raises:
        KeyError: there is no such clause or requirement.
        OSError: the specification is not there.
    """
    clauses = {row.id: row.clause for row in requirements()}
    clause = clauses.get(name, name.removeprefix("spec/"))
    file, _, anchor = clause.partition("#")
    if file not in NORMATIVE_FILES:
        raise KeyError(name)
    lines = _section(read_folder(folder())[file].splitlines(), anchor)
    if not lines:
        raise KeyError(name)
    return "\n".join(lines).strip() + "\n"


def _section(lines: list[str], anchor: str) -> list[str]:
    found: list[str] = []
    depth = 0
    fenced = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else _HEADING.fullmatch(line)
        if heading is not None:
            if depth and len(heading[1]) <= depth:
                break
            if not depth and (not anchor or slug(heading[2]) == anchor):
                depth = len(heading[1])
        if depth:
            found.append(line)
    return found
