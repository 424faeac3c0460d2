"""What a model folder holds, file by file, and whether it still does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from utterwire_server.model.folder import MANIFEST, ModelError

__all__ = ["Entry", "Manifest", "digest", "file_names", "problems", "read_manifest"]

_FORMAT: Final = 1
# Made on this machine, by calibration, after the folder was fetched.
_MADE_LATER: Final = "statistics/"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its size and digest, where it came from, and whether the digest was known before."""

    size: int
    sha256: str
    origin: str
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was put into a model folder, and by what."""

    model: str
    licence: str
    source: str
    revision: str
    made_with: Mapping[str, str]
    files: Mapping[str, Entry]

    def write(self, folder: Path) -> None:
        """Write it into `folder`."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, sort_keys=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of `folder`.

    :raises ModelError: if there is none, or it is damaged or of another format.
    """
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_bytes())
        version = data.pop("format")
        files = {_inside(name): Entry(**entry) for name, entry in data.pop("files").items()}
        manifest = Manifest(**data, files=files)
    except FileNotFoundError:
        raise ModelError(
            f"{folder} has no {MANIFEST}, so that its files cannot be checked"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if version != _FORMAT:
        raise ModelError(f"{path} has format {version!r}, and this version reads {_FORMAT}")
    return manifest


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is outside of the folder")
    return name


def digest(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_names(folder: Path) -> Iterator[str]:
    """The files of `folder` and of its folders, by name and sorted, the manifest left out."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            yield name


def problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    """One line for each file that is missing, damaged or not in the manifest."""
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
            continue
        if (size := path.stat().st_size) != entry.size:
            yield f"{name} has {size} bytes instead of {entry.size}"
        elif digest(path) != entry.sha256:
            yield f"{name} is damaged: its sha256 is another"
    yield from _strangers(file_names(folder), manifest.files)


def _strangers(names: Iterable[str], known: Mapping[str, Entry]) -> Iterator[str]:
    for name in names:
        if name not in known and not name.startswith(_MADE_LATER):
            yield f"{name} is not in {MANIFEST}"
