"""Hold each package to its branch coverage: combine the data files, report, compare.

Run after ``coverage run``.  With arguments (a part of the tests was chosen) the report is
printed and nothing is held against it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["GATES", "main"]

# Folder of each package: branch coverage it must have, in percent.
GATES = {
    "schemas/utterwire_schemas": 95.0,
    "protocol/utterwire_protocol": 100.0,
    "reference_server/utterwire_server": 95.0,
    "reference_client/utterwire_client": 95.0,
    "reference_client/utterwire_player": 95.0,
    "conformance/utterwire_conformance": 95.0,
}

JsonObject = dict[str, "int | float"]


def measure() -> dict[str, JsonObject]:
    """Summary of each measured file, by path relative to the repository, from coverage's own
    JSON report."""
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet"], check=True)
    subprocess.run([sys.executable, "-m", "coverage", "report"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(report)]
        subprocess.run(command, check=True)
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {Path(name).as_posix(): entry["summary"] for name, entry in files.items()}


def percent(summaries: list[JsonObject]) -> float:
    """Statements and branches covered, of all there are; an empty package is covered."""
    covered = sum(each["covered_lines"] + each["covered_branches"] for each in summaries)
    total = sum(each["num_statements"] + each["num_branches"] for each in summaries)
    return 100.0 * covered / total if total else 100.0


def main(arguments: list[str]) -> int:
    """Print one line per package; 1 if any is below its gate or was not measured at all."""
    files = measure()
    if arguments:
        print("coverage: only a part of the tests ran, so no gate is applied")
        return 0
    failed = False
    for folder, gate in GATES.items():
        summaries = [each for name, each in files.items() if name.startswith(folder + "/")]
        value = percent(summaries)
        verdict = "ok" if value >= gate else "LOW"
        if not summaries:
            verdict = "NOT MEASURED"
        failed = failed or verdict != "ok"
        print(f"coverage: {folder}: {value:.2f} % (at least {gate:g} %) {verdict}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
