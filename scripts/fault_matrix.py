"""Run every fault against the checks that must find it, and keep the whole matrix.

    python scripts/fault_matrix.py

The result is JSON: how it was made, and for each fault the verdict and reason of each check that
is to turn red.  Exits as the tests of the matrix do: 0 if no fault survives.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from provenance import ROOT, record, write

__all__ = ["main"]

LIBRARIES = ("h11", "pytest", "starlette", "uvicorn", "websockets")


def main(arguments: list[str]) -> int:
    """Run and write the result; 2 if there was no matrix."""
    parser = argparse.ArgumentParser(description="Run every fault against its checks.")
    parser.add_argument("--out", default="evidence/fault_matrix.json", help="a file, or -")
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory(prefix="utterwire-matrix-") as folder:
        path = Path(folder) / "matrix.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "conformance/tests/test_fault_matrix.py"],
            cwd=ROOT,
            env={**os.environ, "UTTERWIRE_FAULT_MATRIX": str(path)},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
        )
        if not path.exists():
            print("fault_matrix: the tests wrote no matrix; see above", file=sys.stderr)
            return 2
        matrix = json.loads(path.read_text(encoding="utf-8"))
    result = record(["python", "scripts/fault_matrix.py", *arguments], started, LIBRARIES)
    red = {"fail", "weak"}
    result |= {
        "faults": len(matrix),
        "checks": len({check for row in matrix.values() for check in row}),
        "survivors": sorted(
            name
            for name, row in matrix.items()
            if any(j["verdict"] not in red for j in row.values())
        ),
        "matrix": matrix,
    }
    write(result, options.out)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
