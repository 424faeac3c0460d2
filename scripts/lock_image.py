"""Pin what images install, by version and sha256: the server's and the example of an agent's.

What is pinned already stays as it is, unless ``--upgrade`` is given. Needs ``uv`` (`tox -e lock`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "LOCKS", "PYTHON", "SOURCES", "TORCH", "Lock", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "reference_server" / "requirements"
#: What the image has; `BASE` of the Dockerfile must be of the same version.
PYTHON: Final = "3.12"
#: Any Linux with this glibc or a newer one, as Debian 12 is.
_LIBC: Final = "manylinux_2_28"
#: The one that the engine is tested with (tox.ini, environment `torch`).
TORCH: Final = "torch==2.13.0"

#: There are no wheels of these; they are built with what `build.txt` has, and nothing else.
SOURCES: Final = ("docopt",)
_BUILDERS: Final = ("hatchling>=1.27", "setuptools>=75", "wheel>=0.45")

_SERVER: Final = ("server", "encoders", "metrics", "tracing", "kokoro")


@dataclass(frozen=True, slots=True)
class Lock:
    """One file.

    :param extras: what is pinned in it; none for what builds the wheel of Utterwire itself.
    :param machine: processor of the image.
    """

    file: Path
    extras: tuple[str, ...] = ()
    machine: str = "x86_64"


LOCKS: Final = (
    Lock(FOLDER / "build.txt"),
    Lock(FOLDER / "kokoro-onnx.txt", _SERVER),
    Lock(FOLDER / "kokoro-torch.txt", (*_SERVER, "torch")),
    # AgentCore runs no other processor.
    Lock(
        ROOT / "examples" / "agentcore" / "requirements.txt",
        ("client", "agents", "aws"),
        machine="aarch64",
    ),
)


def command(lock: Lock, upgrade: bool) -> tuple[list[str], str]:
    """How `uv` makes one of the files, and what it reads."""
    extras = lock.extras
    source = ["pyproject.toml", *(word for extra in extras for word in ("--extra", extra))]
    words = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet"),
        *(source if extras else ["-"]),
        *("--python-version", PYTHON, "--python-platform", f"{lock.machine}-{_LIBC}"),
        *("--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate"),
        # A wheel is what its hash says; a source distribution runs code to become one.
        *("--only-binary", ":all:", *(word for each in SOURCES for word in ("--no-binary", each))),
        *("--output-file", str(lock.file)),
        *(["--upgrade"] if upgrade else []),
    ]
    if "torch" in extras:
        return [*words, "--constraints", "-"], TORCH
    return words, "" if extras else "\n".join(_BUILDERS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every file; the exit status is that of the first run of uv that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest releases")
    values = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    for lock in LOCKS:
        words, given = command(lock, values.upgrade)
        done = subprocess.run(words, input=given, cwd=ROOT, text=True, check=False)
        if done.returncode != 0:
            return done.returncode
        print(lock.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
