"""Run every fault against every check, compare with what is expected, and keep the whole matrix.

    python scripts/fault_matrix.py                 # all; writes evidence/fault_matrix.json and .md
    python scripts/fault_matrix.py --resume        # goes on where a run was broken off
    python scripts/fault_matrix.py --fault NAME    # some; shows what is red, writes nothing
    python scripts/fault_matrix.py --update        # writes what was found as what is expected
    python scripts/fault_matrix.py --stored        # the scenarios that show what is expected
    python scripts/fault_matrix.py --oddities      # legal oddities, alone and all at once: no red

For each fault all scenarios are played in which it changes anything (found out by putting before
it what passed an honest proxy), or all with --everything; then every check judges. A fault that
was not found as expected is played again, alone, up to three times (with --update once, and beside
others): only what shows each time is a difference. --update prints what changes and asks for a
person's word: --yes gives it beforehand.

Exits with 0 if every fault turned red what it should and nothing else, 1 if not, 2 if it could not
be found out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import difflib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from provenance import ROOT, record, write
from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.faults import FAULTS, ODDITIES, Combined, Fault, Oddity
from utterwire_conformance.faults.expectation import (
    NARROW,
    Difference,
    Expectation,
    expectations,
    to_text,
)
from utterwire_conformance.faults.matrix import Plan, Row, run_matrix

__all__ = ["main"]

LIBRARIES = ("h11", "starlette", "uvicorn", "websockets")
ENDPOINTS = ("reference", "reference-core")
PACKAGE = ROOT / "conformance" / "utterwire_conformance"
EXPECTED = PACKAGE / "faults" / "expected.json"
PARTS = ROOT / ".tox" / "fault_matrix.jsonl"
AGAIN = 3
OUT = "evidence/fault_matrix.json"
ALL_AT_ONCE = Combined(list(ODDITIES.values())).as_one("all-at-once")
ODD: dict[str, Fault | Oddity] = {**ODDITIES, ALL_AT_ONCE.name: ALL_AT_ONCE}
SUBJECTS: dict[str, Fault | Oddity] = {**ODD, **FAULTS}
PANEL = ("probe", "order", "keepalive", "close-drains", "reject-field-types", "cancel-named")


def main(arguments: list[str]) -> int:
    """Run, compare, write; the exit status."""
    options = parse(arguments)
    started = datetime.datetime.now(datetime.UTC)
    chosen = choose(options)
    if chosen is None:
        return 2
    expected = dict(expectations()) if EXPECTED.exists() else {}
    try:
        with tempfile.TemporaryDirectory(prefix="utterwire-matrix-") as folder:
            parts = (
                Path(folder) / "rows.jsonl"
                if options.fault or options.stored or options.oddities
                else PARTS
            )
            rows, found, runs = run(chosen, expected, options, parts)
    except (OSError, ValueError, ExceptionGroup) as error:
        print(f"fault_matrix: {first_of(error)}", file=sys.stderr)
        return 2
    for name, row in rows.items():
        if options.fault:
            show(name, row)
    if options.update and not options.oddities:
        return update(rows, found, expected, yes=options.yes, partial=bool(options.fault))
    odd_ones = [str(each) for each in found.values() if each]
    print("\n".join(odd_ones) or f"{len(rows)} played: each as expected")
    if options.oddities and not options.fault:
        result = record(["python", "scripts/fault_matrix.py", *arguments], started, LIBRARIES)
        kept = {
            name: {"explanation": ODD[name].explanation, **row, "runs": runs[name]}
            for name, row in rows.items()
        }
        result |= {"oddities": len(rows), "differences": odd_ones, "rows": kept}
        write(result, "evidence/oddities.json" if options.out == OUT else options.out)
    elif not options.fault:
        result = record(["python", "scripts/fault_matrix.py", *arguments], started, LIBRARIES)
        kept = {name: {**row, "runs": runs[name]} for name, row in rows.items()}
        result |= summary(rows, expected) | {"differences": odd_ones, "matrix": kept}
        write(result, options.out)
        if options.out != "-":
            page = (ROOT / options.out).with_suffix(".md")
            page.write_text(markdown(rows, result), encoding="utf-8")
    return 1 if odd_ones else 0


def run(
    chosen: Sequence[Fault | Oddity],
    expected: Mapping[str, Expectation],
    options: argparse.Namespace,
    parts: Path,
) -> tuple[dict[str, dict[str, Any]], dict[str, Difference], dict[str, int]]:
    """The rows of the faults, how each differs from what is expected, how often it was played."""
    parts.parent.mkdir(exist_ok=True)
    rows = read_parts(parts) if options.resume else {}
    if not options.resume:
        parts.unlink(missing_ok=True)
    rows |= play([fault for fault in chosen if fault.name not in rows], options, parts)
    rows = {fault.name: rows[fault.name] for fault in chosen}
    found = {
        name: difference(row, name, expected, whole=options.whole) for name, row in rows.items()
    }
    runs = dict.fromkeys(rows, 1)
    # Where much is new, once more tells it from what a busy machine does: a person looks, too.
    for _ in range(1 if options.update else AGAIN):
        odd = [fault for fault in chosen if found[fault.name]]
        if not odd or not expected:
            break
        for fault in odd:
            print(f"again: {found[fault.name]}", file=sys.stderr)
        for name, row in play(odd, options, parts, alone=not options.update).items():
            runs[name] += 1
            now = difference(row, name, expected, whole=options.whole)
            if len(now) < len(difference(rows[name], name, expected, whole=options.whole)):
                rows[name] = row
            # Of what differs only what shows each time counts.
            found[name] &= now
    return rows, found, runs


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="Run every fault against every check.")
    parser.add_argument("--out", default=OUT, help="a file, or -")
    parser.add_argument("--fault", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--everything", action="store_true", help="play all scenarios")
    parser.add_argument("--oddities", action="store_true", help="legal oddities, not faults")
    parser.add_argument("--short", action="store_true", help="play what is near each fault only")
    parser.add_argument("--stored", action="store_true", help="play what shows it, as is stored")
    parser.add_argument("--resume", action="store_true", help="keep the rows of a broken-off run")
    parser.add_argument("--update", action="store_true", help="rewrite what is expected")
    parser.add_argument("--yes", action="store_true", help="the update was reviewed")
    options = parser.parse_args(arguments)
    # Of a choice of scenarios nothing can be said of what the others show.
    options.whole = not (options.stored or options.short)
    return options


def choose(options: argparse.Namespace) -> list[Fault | Oddity] | None:
    """What to play, or None with a word on stderr."""
    every = ODD if options.oddities else FAULTS
    names = options.fault or list(every)
    unknown = next((name for name in names if name not in every), None)
    if unknown is not None:
        print(f"fault_matrix: there is no {unknown!r}", file=sys.stderr)
        return None
    return [every[name] for name in names]


def sources() -> str:
    """A digest of all that a row rests on."""
    digest = hashlib.sha256()
    for folder in (PACKAGE, ROOT / "reference_server" / "utterwire_server"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def read_parts(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a run as far as it came, if nothing has changed since."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    version = sources()
    return {line["fault"]: line["row"] for line in lines if line["sources"] == version}


def play(
    faults: Sequence[Fault | Oddity],
    options: argparse.Namespace,
    parts: Path,
    *,
    alone: bool = False,
) -> dict[str, dict[str, Any]]:
    """Play faults in processes of their own, which add rows to `parts` as they come."""
    jobs = 1 if alone else max(1, min(options.jobs, len(faults)))
    # Those that are next to each other are alike, and so take alike long.
    shares = [[fault.name for fault in faults[number::jobs]] for number in range(jobs)]
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
        everything, version = options.everything, sources()
        choice = "stored" if options.stored else "near" if options.short else None
        tasks = [
            pool.submit(play_share, names, everything, choice, alone, str(parts), version)
            for names in shares
            if names
        ]
        for task in as_completed(tasks):
            task.result()
    rows = read_parts(parts)
    if any(fault.name not in rows for fault in faults):
        raise ValueError("the code has changed while it was played; run it again")
    return {fault.name: rows[fault.name] for fault in faults}


def near(fault: Fault | Oddity) -> list[str]:
    """The scenarios of the checks of what a fault breaks, and a few that show most."""
    breaks = fault.breaks if isinstance(fault, Fault) else ()
    checks = [check for check in CHECKS.values() if check.requirement in breaks]
    own = [name for check in checks for name in check.scenarios]
    return list(dict.fromkeys([*own, *PANEL]))


def stored(fault: Fault | Oddity) -> list[str]:
    """The scenarios that show what is expected of a fault."""
    return list(expectations()[fault.name].play)


def play_share(
    names: list[str], everything: bool, choice: str | None, alone: bool, path: str, version: str
) -> None:
    """Play some faults and add their rows to a file; runs in a process of its own."""
    plan = Plan(
        scenarios={"near": near, "stored": stored}[choice] if choice else None,
        everything=everything,
        covers=choice != "stored",
        faults=1 if alone else 3,
        tries=3 if alone else 1,
    )
    begun, done = time.monotonic(), 0
    with open(path, "a", encoding="utf-8") as parts:

        def keep(row: Row) -> None:
            nonlocal done
            done += 1
            line = {"fault": row.fault, "sources": version, "row": row.to_json()}
            # One write of one line: several processes add to the file.
            parts.write(json.dumps(line) + "\n")
            parts.flush()
            spent = time.monotonic() - begun
            print(f"{done} of {len(names)} after {spent:.0f} s: {row.fault}", file=sys.stderr)

        endpoints = [find_endpoint(name) for name in ENDPOINTS]
        asyncio.run(run_matrix(endpoints, [SUBJECTS[name] for name in names], plan, each=keep))


def difference(
    row: Mapping[str, Any], name: str, expected: Mapping[str, Expectation], *, whole: bool
) -> Difference:
    """How a row differs from what is expected of its fault."""
    red = row["red"].keys() | row["broken"].keys()
    if name not in expected:
        return Difference(name, (), tuple(sorted(red)))
    return Difference.between(name, red, expected[name], whole=whole)


def show(name: str, row: Mapping[str, Any]) -> None:
    """A row for a person."""
    print(f"{name} before {row['endpoint']} (standstill {row['standstill_s']} s):")
    for kind in ("red", "broken"):
        for check, reason in row[kind].items():
            print(f"    {kind}: {check}: {reason}")


def update(
    rows: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Difference],
    expected: Mapping[str, Expectation],
    *,
    yes: bool,
    partial: bool,
) -> int:
    """Make what was found what is expected, once a person has seen the difference."""
    new = dict(expected) if partial else {}
    for name, row in rows.items():
        known = expected.get(name)
        # What a known fault leaves nobody able to judge is expected like what turns red.
        if not row["red"] or (known is None and row["broken"]):
            print(f"fault_matrix: {name} was not found, or not judged: {row}", file=sys.stderr)
            return 2
        if known is None:
            new[name] = Expectation(row["endpoint"], frozenset(row["red"]), tuple(row["cover"]))
            continue
        every = (known.all_red - set(found[name].missing)) | set(found[name].unexpected)
        red, play = known.red, known.play
        if not red <= every:
            # What this row shows can be shown again; the rest of what is red stays known.
            red, play = every & row["red"].keys(), tuple(row["cover"]) or play
        if not red:
            print(f"fault_matrix: {name} was not found each time: {row}", file=sys.stderr)
            return 2
        new[name] = replace(known, endpoint=row["endpoint"], red=red, also=every - red, play=play)
    before, after = to_text(expected).splitlines(), to_text(new).splitlines()
    lines = list(difflib.unified_diff(before, after, "expected", "found", lineterm="", n=3))
    if not lines:
        print("nothing has changed")
        return 0
    print("\n".join(lines))
    if not yes and input("Is each of these changes right? Say yes: ").strip() != "yes":
        print("fault_matrix: nothing was written", file=sys.stderr)
        return 1
    EXPECTED.write_text(to_text(new), encoding="utf-8")
    return 0


def killers(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """By check, the faults that turn it red, the narrowest first."""
    found: dict[str, list[str]] = {check: [] for check in sorted(CHECKS)}
    for name in sorted(rows, key=lambda name: (len(rows[name]["red"]), name)):
        for check in rows[name]["red"]:
            found[check].append(name)
    return found


def summary(
    rows: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Expectation]
) -> dict[str, Any]:
    """The matrix in numbers."""
    narrow = {
        check: [name for name in names if len(rows[name]["red"]) <= NARROW]
        for check, names in killers(rows).items()
    }
    return {
        "faults": len(rows),
        "checks": len(CHECKS),
        "pairs": sum(len(row["red"]) for row in rows.values()),
        "checks_without_a_narrow_fault": sorted(c for c, names in narrow.items() if not names),
        "free": {name: dict(each.may) for name, each in sorted(expected.items()) if each.may},
    }


def markdown(rows: Mapping[str, Mapping[str, Any]], result: Mapping[str, Any]) -> str:
    """The matrix as a page: by check its faults, and by fault its checks."""
    lines = [
        "# Faults and checks",
        "",
        "Made by `python scripts/fault_matrix.py`. The reasons of every red check stand in",
        "[fault_matrix.json](fault_matrix.json).",
        "",
        f"{result['faults']} faults, {result['checks']} checks, {result['pairs']} pairs.",
        f"Differences from what is expected: {len(result['differences'])}.",
        "",
        "## By check",
        "",
        "| check | faults that turn it red, those that turn fewest checks red first |",
        "| --- | --- |",
    ]
    for check, names in killers(rows).items():
        told = ", ".join(f"`{n}` ({len(rows[n]['red'])})" for n in names[:8])
        more = f", and {len(names) - 8} more" if len(names) > 8 else ""
        lines.append(f"| `{check}` | {told or '(none)'}{more} |")
    lines += ["", "## By fault", "", "| fault | what it does | checks it turns red |"]
    lines.append("| --- | --- | --- |")
    for name, row in rows.items():
        told = ", ".join(f"`{check}`" for check in sorted(row["red"]))
        lines.append(f"| `{name}` | {FAULTS[name].explanation} | {told} |")
    return "\n".join(lines) + "\n"


def first_of(error: BaseException) -> BaseException:
    """The first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
