"""What a listener hears of the reference server, three times over, and whether it repeats.

    python scripts/heard.py                      writes evidence/heard.json; takes half an hour
    python scripts/heard.py --repeat 2 --out -   tries it in some minutes

`utterwire latency --browser` listens to the answers of `heard_answers.toml` in every way, so many
times; that is done again and again on the same server, with the tone engine as fast as `--rtf`
says. Kept are the spreads of each measurement, which medians do not lie within 10 % of each other,
and how the goals are met: heard at most 60 ms after the first byte, silent at most 50 ms after
Interrupt, no underruns, every sample rendered as it came. It needs the extras `server` and
`browser`, Chromium, and a quiet machine.

Exits 1 if medians lie further apart or a goal is missed, 2 without a result.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launched_server import LaunchedServer, package_environment
from provenance import ROOT, record, write
from utterwire_client.errors import RequestInvalid
from utterwire_client.listening.comparison import AGREED, compare, read_measurement

__all__ = ["agreement", "goals", "main"]

LIBRARIES = ("numpy", "playwright", "starlette", "uvicorn", "websockets")
REAL_TIME_FACTOR = 0.3
BYTE_TO_HEARD_S = 0.060
SILENCE_S = 0.050
ANSWERS = ROOT / "scripts" / "heard_answers.toml"


def _measure(url: str, out: Path, arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "utterwire_client", "latency", "--browser"]
    command += ["--url", url, "--json", str(out), "--answers", str(ANSWERS), *arguments]
    # Its progress, its complaints and its table are shown as they come.
    done = subprocess.run(command, env=package_environment(), stdout=sys.stderr, check=False)
    if not out.is_file():
        raise RuntimeError(f"a measurement ended with status {done.returncode}")
    return read_measurement(out)


def agreement(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many medians lie within 10 % of each other, and the spreads of those that do not."""
    found = compare(documents)
    apart = sorted((each for each in found if not each.agrees), key=lambda each: -each.apart)
    return {
        "within": AGREED,
        "medians": len(found),
        "agree": len(found) - len(apart),
        "apart": [
            {
                "answer": each.answer,
                "way": each.way,
                "figure": each.figure,
                "apart": None if each.apart == float("inf") else round(each.apart, 3),
                "spreads": each.spreads,
            }
            for each in apart
        ],
    }


def goals(documents: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each goal the limit, the worst that was measured, and whether it is met."""
    groups = [group for document in documents for group in document["heard"]]

    def worst(figure: str, of: str) -> float | None:
        known = [group["figures"][figure][of] for group in groups if group["figures"][figure]]
        return max(known, default=None)

    def most(limit: float, value: float | None) -> dict[str, Any]:
        return {"most": limit, "worst": value, "met": value is not None and value <= limit}

    altered = sum(group["count"] - (group["exact"] or 0) for group in groups)
    return {
        "byte_to_heard_s, medians": most(BYTE_TO_HEARD_S, worst("byte_to_heard_s", "median")),
        "silence_s, medians": most(SILENCE_S, worst("silence_s", "median")),
        "silence_s, every run": most(SILENCE_S, worst("silence_s", "most")),
        "underruns, every run": most(0, worst("underruns", "most")),
        "runs not rendered as they came": most(0, altered if groups else None),
        "runs that failed": most(0, sum(len(group["failures"]) for group in groups)),
    }


def main(arguments: list[str]) -> int:
    """Measure and write the result; see the module's text for the exit codes."""
    parser = argparse.ArgumentParser(description="What a listener hears, and whether it repeats.")
    parser.add_argument("--measurements", type=int, default=3, metavar="N")
    parser.add_argument("--repeat", type=int, default=20, metavar="N")
    parser.add_argument("--rtf", type=float, default=REAL_TIME_FACTOR, metavar="X")
    parser.add_argument("--html", metavar="PATH", help="the page of the last measurement")
    parser.add_argument("--out", default="evidence/heard.json", help="a file, or - for stdout")
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    documents: list[dict[str, Any]] = []
    try:
        flags = ["--engine", "tone", "--rtf", str(options.rtf)]
        with (
            tempfile.TemporaryDirectory() as folder,
            LaunchedServer(flags, log=Path(folder, "server.log")) as server,
        ):
            for number in range(1, options.measurements + 1):
                print(
                    f"measurement {number} of {options.measurements}", file=sys.stderr, flush=True
                )
                more = ["--repeat", str(options.repeat)]
                if options.html is not None:
                    more += ["--html", options.html]
                documents.append(_measure(server.url, Path(folder, f"{number}.json"), more))
        agreed = agreement(documents)
    except (OSError, RuntimeError, RequestInvalid) as error:
        print(f"heard: {error}", file=sys.stderr)
        return 2
    met = goals(documents)
    for document in documents:
        # Where it was served says nothing.
        document["endpoint"] = {"name": "reference"}
        for group in document["heard"]:
            del group["runs"]
    head = record(["python", "scripts/heard.py", *arguments], started, LIBRARIES)
    result = {
        "engine": f"tone, real-time factor {options.rtf:g}",
        "goals": met,
        "agreement": agreed,
        "measurements": documents,
    }
    write({**head, **result}, options.out)
    print(
        f"{agreed['agree']} of {agreed['medians']} medians lie within {AGREED:.0%}", file=sys.stderr
    )
    for name, goal in met.items():
        told = "met" if goal["met"] else "MISSED"
        print(f"{name}: {goal['worst']} (at most {goal['most']:g}) {told}", file=sys.stderr)
    return int(bool(agreed["apart"]) or not all(goal["met"] for goal in met.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
