"""Mutation run over one package: change the code in small ways, see whether its tests notice.

    python scripts/mutation.py                              all of protocol/
    python scripts/mutation.py --module jsontext --module cutting
    python scripts/mutation.py --container schemas --out -

mutmut does the work, in a copy outside the checkout.  It changes the code of functions only, so
that tables at the level of a module are not put to the test.  The result is JSON: how it was
made, the counts by status, and every mutant that no test noticed with its diff and a
`judgement`: why it may live, written by hand into the file.  A judgement is carried over to
later runs as long as the diff is the same.

Exits 0 if every mutant was noticed or is judged, 1 if not, 2 if there was no run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from provenance import ROOT, record, write

__all__ = ["main"]

PACKAGES = {
    "schemas": "utterwire_schemas",
    "protocol": "utterwire_protocol",
    "reference_server": "utterwire_server",
    "reference_client": "utterwire_client",
    "conformance": "utterwire_conformance",
}
COPIED = (*PACKAGES, "spec")
# A mutant that makes its tests hang or crash has been noticed.
NOTICED = frozenset({"killed", "timeout", "segfault", "suspicious", "caught by type check"})
LIBRARIES = ("mutmut", "pytest", "hypothesis")


class RunFailed(Exception):
    """Why there was no run, in one line."""


def lay_out(work: Path, container: str, modules: list[str]) -> None:
    """A copy of what the tests need.  The package under test goes to ``src``, a name that
    mutmut knows to leave out of module names; the rest keeps its place."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for folder in COPIED:
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, work / folder, ignore=ignore)
    package = PACKAGES[container]
    for module in modules:
        if not (ROOT / container / package / f"{module}.py").is_file():
            raise RunFailed(f"{container}/{package} has no module {module}.py")
    shutil.copytree(ROOT / container / package, work / "src" / package, ignore=ignore)
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    # What is under test is found first; beside it stands what others need of the same folder.
    paths = ["src", *PACKAGES]
    lines = [
        f"pythonpath = {json.dumps(paths)}" if x.startswith("pythonpath") else x for x in lines
    ]
    only = [f"src/{package}/{module}.py" for module in modules]
    lines += [
        "[tool.mutmut]",
        'source_paths = ["src"]',
        f"only_mutate = {json.dumps(only)}",
        f"also_copy = {json.dumps([folder for folder in COPIED if (work / folder).is_dir()])}",
        f"pytest_add_cli_args_test_selection = {json.dumps([f'{container}/tests'])}",
        'pytest_add_cli_args = ["-p", "no:cacheprovider"]',
        "use_git_change_detection = false",
    ]
    (work / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def mutmut(work: Path, *arguments: str, show: bool = False) -> str:
    """Run one command of mutmut in the copy; its output.  Raises `RunFailed`."""
    # The same examples of Hypothesis for every mutant.
    environment = {**os.environ, "CI": "true", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if show else subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stdout or "see above").strip().splitlines()[-1]
        raise RunFailed(f"mutmut {arguments[0]} exited {done.returncode}: {last}")
    return done.stdout or ""


def statuses(work: Path) -> dict[str, str]:
    """Status of each mutant by name.  Raises `RunFailed` if there is none."""
    found = {}
    for line in mutmut(work, "results", "--all", "true").splitlines():
        name, separator, status = line.strip().rpartition(": ")
        if separator and "__mutmut_" in name:
            found[name] = status
    if not found:
        raise RunFailed("mutmut made no mutant: is the module's name right?")
    return found


def earlier_judgements(out: Path) -> dict[str, str]:
    """Judgements in an earlier result, by diff."""
    try:
        unnoticed = json.loads(out.read_text(encoding="utf-8"))["unnoticed"]
    except (OSError, ValueError, KeyError):
        return {}
    return {each["diff"]: each["judgement"] for each in unnoticed if each["judgement"]}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Mutation run over one package.")
    parser.add_argument("--container", choices=PACKAGES, default="protocol")
    parser.add_argument("--module", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--out", default="evidence/mutation.json", help="a file, or - for stdout")
    parser.add_argument("--max-children", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, command: list[str]) -> dict[str, object]:
    """Run, and describe the result.  Raises `RunFailed`."""
    started = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory(prefix="utterwire-mutation-") as folder:
        work = Path(folder)
        lay_out(work, options.container, options.module)
        mutmut(work, "run", "--max-children", str(options.max_children), show=True)
        found = statuses(work)
        judged = earlier_judgements(ROOT / options.out)
        unnoticed = []
        for name, status in sorted(found.items()):
            if status not in NOTICED:
                # Without the heading, whose number changes with mutants made before this one.
                diff = mutmut(work, "show", name).partition("\n")[2]
                entry = {"mutant": name, "status": status, "diff": diff}
                unnoticed.append({**entry, "judgement": judged.get(diff, "")})
    counts = {status: list(found.values()).count(status) for status in sorted(set(found.values()))}
    return record(command, started, LIBRARIES) | {
        "container": options.container,
        "modules": options.module or "all",
        "total": len(found),
        "counts": counts,
        "unnoticed": unnoticed,
    }


def main(arguments: list[str]) -> int:
    """Run and write the result; see the module's text for the exit codes."""
    options = parse(arguments)
    try:
        result = measure(options, ["python", "scripts/mutation.py", *arguments])
    except (RunFailed, metadata.PackageNotFoundError) as error:
        print(f"mutation: {error}", file=sys.stderr)
        return 2
    write(result, options.out)
    unnoticed = result["unnoticed"]
    assert isinstance(unnoticed, list)
    unjudged = sum(1 for each in unnoticed if not each["judgement"])
    print(
        f"mutation: {result['total']} mutants, {len(unnoticed)} unnoticed, "
        f"{unjudged} of these not judged",
        file=sys.stderr,
    )
    return int(unjudged > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
