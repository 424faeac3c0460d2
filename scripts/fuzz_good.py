"""Fuzz endpoints that are good, for minutes: what is found is a false alarm, or a bug in them.

    python scripts/fuzz_good.py                         5 minutes each, by seeds of their own
    python scripts/fuzz_good.py --minutes 1 --seed 7 --endpoint reference

The endpoints are the reference server with all its profiles and with two of them, and the peer that
was written from the specification alone. The result is JSON: how it was made, and for each endpoint
what the report says of the fuzzing.

Exits 0 if nothing was found, 1 if something was, 2 if a run wrote no report.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from launched_server import package_environment
from provenance import ROOT, record, write

__all__ = ["ENDPOINTS", "fuzz_one", "main"]

LIBRARIES = ("hypothesis", "h11", "starlette", "uvicorn", "websockets", "wsproto")
ENDPOINTS = ("reference", "reference-core", "spec-peer")
_PEERS = ROOT / "conformance" / "tests" / "peers"
_TABLE = """
[endpoint.spec-peer]
launch = ["{python}", "-m", "spec_peer", "--host", "127.0.0.1", "--port", "{port}"]
ready_url = "http://127.0.0.1:{port}/ping"
profiles = ["core", "http", "interrupt", "negotiate"]
"""


def fuzz_one(endpoint: str, minutes: float, seed: int | None) -> dict[str, Any]:
    """What a run has to say of the fuzzing.  Raises `FileNotFoundError` without a report."""
    with tempfile.TemporaryDirectory(prefix="utterwire-fuzz-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "utterwire_conformance", "--endpoint", endpoint]
        # One requirement, so that the time goes into fuzzing.
        command += ["--requirement", "ws.path", "--report", str(folder / "report"), "-q"]
        command += ["--fuzz-minutes", str(minutes)]
        if endpoint == "spec-peer":
            (folder / "endpoints.toml").write_text(_TABLE, encoding="utf-8")
            command += ["--endpoints", str(folder / "endpoints.toml")]
        if seed is not None:
            command += ["--fuzz-seed", str(seed)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=package_environment(_PEERS),
        )
        report = json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))
    fuzz: dict[str, Any] = report["fuzz"]
    findings = [{k: v for k, v in f.items() if k != "sha256"} for f in report.get("findings", ())]
    return {"endpoint": endpoint, "exit_code": done.returncode, **fuzz, "findings": findings}


def main(arguments: list[str]) -> int:
    """Fuzz and write the result; see the module's text for the exit codes."""
    parser = argparse.ArgumentParser(description="Fuzz endpoints that are good.")
    parser.add_argument("--endpoint", action="append", choices=ENDPOINTS)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", default="evidence/fuzz_runs.json", help="a file, or - for stdout")
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    runs = []
    for endpoint in options.endpoint or ENDPOINTS:
        try:
            run = fuzz_one(endpoint, options.minutes, options.seed)
        except FileNotFoundError:
            print(f"fuzz_good: {endpoint}: no report; run it by hand", file=sys.stderr)
            return 2
        runs.append(run)
        found = len(run["findings"])
        print(f"fuzz_good: {endpoint}: {run['programs']} programs, {found} found", file=sys.stderr)
    result = record(["python", "scripts/fuzz_good.py", *arguments], started, LIBRARIES)
    write(result | {"runs": runs}, options.out)
    return int(any(run["findings"] or run["exit_code"] for run in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
