"""Putting a model folder together from the files that were fetched, all of it or nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from utterwire_server.model.folder import ModelError, ModelFolder
from utterwire_server.model.manifest import Entry, Manifest, digest, file_names
from utterwire_server.model.source import Source

__all__ = ["Part", "Workshop", "assemble", "workshop"]

_STYLE_BYTES: Final = 510 * 256 * 4


@dataclass(frozen=True, slots=True)
class Part:
    """A file that was fetched, and the name that it gets in the folder.

    A voice may be the hub's ``.pt``; its numbers are then taken out of it.
    """

    name: str
    path: Path
    origin: str
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Workshop:
    """The folder beside the one that is to be: what is fetched stays there until all is done."""

    target: Path
    path: Path

    @property
    def downloads(self) -> Path:
        """Where fetched files are kept."""
        return self.path / "downloads"

    @property
    def folder(self) -> Path:
        """The model folder in the making."""
        return self.path / "folder"

    def finish(self) -> None:
        """Put the folder in its place, in one step, and clean up."""
        try:
            os.rename(self.folder, self.target)
        except OSError as error:
            raise ModelError(
                f"{self.target} cannot be put in its place ({error.strerror}); "
                f"it lies complete in {self.folder}"
            ) from error
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def workshop(target: Path) -> Iterator[Workshop]:
    """A workshop for `target`, held by this process alone.

    :raises ModelError: if `target` cannot be or is there already, or somebody else is making it.
    """
    try:
        target = target.expanduser().absolute()
    except RuntimeError:
        raise ModelError(f"{target} cannot be: there is no such user") from None
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ModelError(
            f"{target} is there already; name another folder with --to, or remove it first"
        )
    path = target.with_name(f".{target.name}.partial")
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ModelError(f"{target} is being fetched by another process") from None
        made = Workshop(target, path)
        shutil.rmtree(made.folder, ignore_errors=True)
        made.downloads.mkdir(exist_ok=True)
        yield made
    finally:
        os.close(lock)


def assemble(
    shop: Workshop,
    parts: Sequence[Part],
    engines: Collection[str],
    source: Source,
    *,
    origin: str,
    revision: str,
) -> Manifest:
    """Make the folder of `shop` out of `parts`: voices, the cut graph, torch weights, manifest.

    Weights for torch are made out of the ONNX graph where `parts` have none.

    :raises ModelError: if a part is not what it should be.
    """
    folder = shop.folder
    (folder / "voices").mkdir(parents=True)
    known = {}
    for part in parts:
        name = part.name
        if name.endswith(".pt"):
            name = name.removesuffix(".pt") + ".bin"
            (folder / name).write_bytes(_voice(part.path))
        else:
            _copy(part.path, folder / name)
        known[name] = (part.origin, part.confirmed)
    if "kokoro-onnx" in engines:
        _cut(folder)
    if "kokoro-torch" in engines and "kokoro.pth" not in known:
        from utterwire_server.model.torch_weights import write_weights

        write_weights(folder / "kokoro.onnx", folder / "config.json", folder / "kokoro.pth")
    made = ModelFolder(folder)
    _ = made.vocabulary
    for voice in made.voices:
        made.styles(voice)
    for engine in engines:
        if missing := made.missing(engine):
            raise ModelError(f"{engine} lacks {', '.join(missing)}")
    manifest = Manifest(
        model=source.model,
        licence=source.licence,
        source=origin,
        revision=revision,
        made_with={name: metadata.version(name) for name in ("utterwire", "onnx") if _there(name)},
        files={
            name: Entry(
                (folder / name).stat().st_size,
                digest(folder / name),
                *known.get(name, ("made out of kokoro.onnx", False)),
            )
            for name in file_names(folder)
        },
    )
    manifest.write(folder)
    return manifest


def _there(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _copy(source: Path, target: Path) -> None:
    # A link costs neither time nor space, and the fetched file goes away in the end.
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _cut(folder: Path) -> None:
    from utterwire_server.engines.kokoro.graph import GraphError, cut_file

    try:
        cut_file(
            folder / "kokoro.onnx", folder / "kokoro-front.onnx", folder / "kokoro-generator.onnx"
        )
    except GraphError as error:
        raise ModelError(f"kokoro.onnx is not the graph that is expected: {error}") from error


def _voice(path: Path) -> bytes:
    """The numbers of a voice as torch saved it: a zip archive with one tensor of float32.

    Nothing is unpickled.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            data = [name for name in names if "/data/" in name]
            order = [archive.read(name) for name in names if name.endswith("/byteorder")]
            pickled = [archive.read(name) for name in names if name.endswith("/data.pkl")]
            content = archive.read(data[0]) if len(data) == 1 else b""
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"voice {path.stem} is damaged: {error}") from error
    if (
        len(content) != _STYLE_BYTES
        or order not in ([], [b"little"])
        or len(pickled) != 1
        or b"FloatStorage" not in pickled[0]
    ):
        raise ModelError(f"voice {path.stem} is not one tensor of 510 x 256 float32 numbers")
    return content
