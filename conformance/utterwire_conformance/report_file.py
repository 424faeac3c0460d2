"""A report as it lies in a folder: read, and checked for its form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from utterwire_schemas import validator

from .claims import EndpointClaims
from .transcript import Transcript

__all__ = ["FORMAT", "MOST_BYTES", "RecordedSubject", "ReportError", "ReportFile"]

FORMAT: Final = 2
"""The version of the schema `report` that is written and read."""

MOST_BYTES: Final = 256 * 1024 * 1024
"""The largest `report.json` that is read."""


class ReportError(ValueError):
    """What was given is no report; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class RecordedSubject:
    """Who was judged, as a report tells of it."""

    name: str
    claims: EndpointClaims
    table: dict[str, Any]
    secrets: tuple[str, ...] = ()

    def configuration(self) -> dict[str, Any]:
        """All that is known of it."""
        return dict(self.table)


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report of the present format and the folder that it lies in, with its transcripts."""

    path: Path
    document: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Where its transcripts are."""
        return self.path.parent

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a report; `path` is the file, or the folder with `report.json` in it.

        Raises:
            ReportError: it cannot be read, is no report, or of another format.
        """
        path, document = _read(path)
        if not isinstance(document, dict) or "utterwire_report" not in document:
            raise ReportError(f"{path}: it is no report of the conformance suite")
        found = document["utterwire_report"]
        if found != FORMAT:
            raise ReportError(f"{path}: it is a report of format {found!r}; this is for {FORMAT}")
        fault = next(iter(validator("report").iter_errors(document)), None)
        if fault is not None:
            place = ".".join(str(step) for step in fault.absolute_path) or "the report"
            raise ReportError(f"{path}: {place}: {_short(fault.message)}")
        return cls(path, document)

    def subject(self) -> RecordedSubject:
        """Who was judged.

        Raises:
            ReportError: the claims are none.
        """
        table = self.document["subject"]
        try:
            claims = EndpointClaims.from_table(self.document["claims"])
        except (ValueError, TypeError, AttributeError) as error:
            raise ReportError(f"{self.path}: claims: {error}") from error
        return RecordedSubject(table["name"], claims, table)

    def transcript(self, name: str) -> Transcript:
        """One of its transcripts, by name.

        Raises:
            KeyError: the report names no such transcript.
            OSError: its file cannot be read.
            ValueError: its file is no transcript.
        """
        return Transcript.load(self.folder / self.document["transcripts"][name]["file"])


def _read(path: Path) -> tuple[Path, Any]:
    """The file and the JSON in it."""
    try:
        if path.is_dir():
            path = path / "report.json"
        with path.open("rb") as file:
            octets = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        # A name with NUL in it is a ValueError.
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ReportError(f"{path}: cannot be read: {why}") from error
    if len(octets) > MOST_BYTES:
        raise ReportError(f"{path}: it is larger than {MOST_BYTES} bytes")
    if not octets.strip():
        raise ReportError(f"{path}: the file is empty")
    try:
        return path, json.loads(octets.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: it is no report: not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ReportError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ReportError(f"{path}: nested too deeply") from error
    except ValueError as error:
        raise ReportError(f"{path}: not JSON: {error}") from error


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:120]} … {text[-30:]}"
