"""Run ``mypy`` over the packages, and over each folder of tests, scripts and benchmarks.

The folders of tests share module names (each may have a ``conftest``), so that one run over
all of them is an error to mypy; every folder gets a run of its own, and all of them report.
Arguments are passed on to mypy.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["main", "runs"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "schemas/utterwire_schemas",
    "protocol/utterwire_protocol",
    "reference_server/utterwire_server",
    "reference_client/utterwire_client",
    "reference_client/utterwire_player",
    "conformance/utterwire_conformance",
)


def runs() -> list[list[str]]:
    """Paths to check, one list per run of mypy: the packages first, as one program."""
    groups = [list(PACKAGES)]
    folders = dict.fromkeys(str(Path(package).parent / "tests") for package in PACKAGES)
    groups += [[folder] for folder in [*folders, "tests", "scripts", "benchmarks"]]
    groups += [[str(path.relative_to(ROOT))] for path in ROOT.glob("*/conftest.py")]
    groups += [["conftest.py"], ["bootstrap.py"]]
    return [
        group
        for group in groups
        if any(
            ROOT.joinpath(path).is_file() or any(ROOT.joinpath(path).rglob("*.py"))
            for path in group
        )
    ]


def main(arguments: list[str]) -> int:
    """1 if any run of mypy found something, otherwise 0."""
    failed = 0
    for group in runs():
        print("mypy:", *group, flush=True)
        command = [sys.executable, "-m", "mypy", *arguments, *group]
        failed += subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
