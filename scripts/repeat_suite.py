"""Run the conformance suite over and over, and compare the verdicts.

    python scripts/repeat_suite.py                          5 runs on the reference server
    python scripts/repeat_suite.py --runs 50 --endpoint mine --endpoints FILE

The result is JSON: how it was made, the wall time of each run from start to exit (setting up and
launching included), and every requirement whose verdict was not the same in all runs. The report of
a run that did not exit with 0 is kept under `.tox/repeat_suite/`, to see why.

Exits 0 if all runs exited 0 with the same verdicts, 1 if not, 2 if a run wrote no report.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from provenance import ROOT, record, write

__all__ = ["Run", "differences", "main"]

KEPT = ROOT / ".tox" / "repeat_suite"
LIBRARIES = ("pytest", "starlette", "uvicorn", "websockets")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: wall time in seconds, exit status, verdicts, and the reasons where it broke."""

    wall_s: float
    exit_code: int
    verdicts: dict[str, str]
    broken: dict[str, str]


def run_once(endpoint: str, endpoints: str | None, kept: Path) -> Run:
    """Run the suite in a process of its own; its report is left in ``kept`` where it fails.  Raises
    `FileNotFoundError` without a report."""
    with tempfile.TemporaryDirectory(prefix="utterwire-report-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", "conformance", "--no-fuzz"]
        command += ["--endpoint", endpoint]
        if endpoints is not None:
            command += ["--endpoints", endpoints]
        command += ["--report", folder]
        started = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        wall = time.monotonic() - started
        report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        if done.returncode:
            shutil.copytree(folder, kept, dirs_exist_ok=True)
    verdicts = {each["requirement"]: each["verdict"] for each in report["results"]}
    broken = {
        each["requirement"]: next((c["reason"] for c in each["checks"] if "reason" in c), "")
        for each in report["results"]
        if each["verdict"] in ("fail", "weak", "harness-error")
    }
    return Run(wall, done.returncode, verdicts, broken)


def differences(runs: list[Run]) -> dict[str, list[str]]:
    """The verdicts run by run of each requirement that did not always get the same."""
    names = sorted({name for run in runs for name in run.verdicts})
    rows = {name: [run.verdicts.get(name, "missing") for run in runs] for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}


def main(arguments: list[str]) -> int:
    """Run and write the result; see the module's text for the exit codes."""
    parser = argparse.ArgumentParser(description="Run the conformance suite over and over.")
    parser.add_argument("--endpoint", default="reference")
    parser.add_argument("--endpoints", help="an endpoint file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", default="evidence/suite_runs.json", help="a file, or - for stdout")
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    shutil.rmtree(KEPT, ignore_errors=True)
    runs: list[Run] = []
    for number in range(1, options.runs + 1):
        try:
            run = run_once(options.endpoint, options.endpoints, KEPT / str(number))
        except FileNotFoundError:
            print(f"repeat_suite: run {number} wrote no report; run it by hand", file=sys.stderr)
            return 2
        runs.append(run)
        print(
            f"repeat_suite: run {number} of {options.runs}: exit {run.exit_code}, "
            f"{run.wall_s:.1f} s",
            file=sys.stderr,
        )
    differing = differences(runs)
    counts = {
        verdict: list(runs[0].verdicts.values()).count(verdict)
        for verdict in sorted(set(runs[0].verdicts.values()))
    }
    result = record(["python", "scripts/repeat_suite.py", *arguments], started, LIBRARIES)
    result |= {
        "endpoint": options.endpoint,
        "runs": len(runs),
        "exit_codes": [run.exit_code for run in runs],
        "wall_s": [round(run.wall_s, 1) for run in runs],
        "wall_median_s": round(statistics.median(run.wall_s for run in runs), 1),
        "verdicts_of_first_run": counts,
        "differing": differing,
        "broken": {str(number): run.broken for number, run in enumerate(runs, 1) if run.broken},
    }
    write(result, options.out)
    return int(bool(differing) or any(run.exit_code for run in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
