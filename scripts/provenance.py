"""How a result under ``evidence/`` was made: command, commit, machine, versions."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

__all__ = ["ROOT", "commit", "machine", "record", "write"]

ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, str | int | None]:
    """What the run was done on, as far as it bears on the result."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def commit() -> str | None:
    """The commit of the checkout, marked if files differ from it; None outside of git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def record(
    command: list[str], started: datetime.datetime, libraries: Iterable[str]
) -> dict[str, object]:
    """The head of a result: `started` is an aware time, `libraries` are distributions."""
    return {
        "command": command,
        "commit": commit(),
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round((datetime.datetime.now(datetime.UTC) - started).total_seconds()),
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in libraries},
    }


def write(result: Mapping[str, object], out: str) -> None:
    """Write a result as JSON to a path from the checkout's root, or to stdout for ``-``."""
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if out == "-":
        print(text, end="")
        return
    path = ROOT / out
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
