"""The transcripts of a run as files in the folder of its report, each with its digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .transcript import BULKY_BYTES, Transcript

__all__ = ["Stored", "file_digest", "store"]

_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.xz")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_READ: Final = 1 << 20
# A line without its payload.
_LINE_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Stored:
    """A transcript that was saved.

    `file` is its path in the folder of the report, with `/`; `sha256` the digest of its octets as
    they lie there, in hexadecimal digits; `lines` counts those of the transcript.
    """

    file: str
    sha256: str
    lines: int
    sessions: int
    unfinished: str | None = None
    broken: str | None = None

    def to_json(self) -> dict[str, Any]:
        """What the report says of the file."""
        line: dict[str, Any] = {
            "file": self.file,
            "sha256": self.sha256,
            "lines": self.lines,
            "sessions": self.sessions,
        }
        for name in ("unfinished", "broken"):
            if getattr(self, name) is not None:
                line[name] = getattr(self, name)
        return line


def store(folder: Path, part: str, transcripts: Mapping[str, Transcript]) -> dict[str, Stored]:
    """Save transcripts in the folder `part` of a report, in place of those of an earlier run.

    Small ones are plain text; those with much audio are compressed.

    Raises:
        OSError: the folder cannot be written.
    """
    place = folder / part
    if transcripts:
        place.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        for old in place.iterdir():
            if old.name.endswith(_SUFFIXES):
                old.unlink()

    def save(item: tuple[str, Transcript]) -> tuple[str, Stored]:
        name, transcript = item
        file = _UNSAFE.sub("-", name) + (".jsonl.xz" if _is_bulky(transcript) else ".jsonl")
        transcript.save(place / file)
        notes = (transcript.unfinished, transcript.broken)
        return name, Stored(
            f"{part}/{file}",
            file_digest(place / file),
            1 + len(transcript.entries) + sum(note is not None for note in notes),
            len(transcript.sessions()),
            *notes,
        )

    # Compressing lets other threads run.
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(save, transcripts.items()))


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while octets := file.read(_READ):
            digest.update(octets)
    return digest.hexdigest()


def _is_bulky(transcript: Transcript) -> bool:
    payload = sum(len(entry.data) for entry in transcript.entries)
    return payload * 4 // 3 + len(transcript.entries) * _LINE_BYTES > BULKY_BYTES
