"""Say what a run of all environments came to, from tox's result file, in one honest line.

    ci_verdict.py RESULT_JSON EXIT_CODE_OF_TOX

Fails if tox failed, if an environment of ``env_list`` is missing from the result, or if one
was skipped: a missing Python 3.13 may be skipped, 3.12 only where
``UTTERWIRE_CI_ALLOW_MISSING_312=1`` says so.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["REQUIRED", "Verdict", "judge", "main"]

# Every environment that a full run has. Those of a Python that may be missing come below.
REQUIRED = ("lint", "types", "imports", "py311", "conformance", "packaging", "bench")
PERMIT = "UTTERWIRE_CI_ALLOW_MISSING_312"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to: `problems` is empty when all is well, `versions` are the Pythons
    whose tests ran and passed."""

    problems: tuple[str, ...]
    versions: tuple[str, ...]
    passed: int


def judge(result: dict[str, Any], exit_code: int, *, may_miss_312: bool) -> Verdict:
    """The verdict on tox's result file (``tox --result-json``) and its exit code."""
    environments = {
        name: each
        for name, each in result.get("testenvs", {}).items()
        if not name.startswith(".pkg")
    }
    ran = {
        name: each["result"]
        for name, each in environments.items()
        if "result" in each and not each["result"].get("skipped", False)
    }
    required = REQUIRED if may_miss_312 else (*REQUIRED, "py312")
    problems = [f"{name} failed" for name, each in ran.items() if not each["success"]]
    problems += [f"{name} did not run" for name in required if name not in ran]
    if exit_code != 0 and not problems:
        problems.append(f"tox exited with {exit_code}")
    good = [name for name, each in ran.items() if each["success"]]
    versions = [
        environments[name]["python"]["version"].split()[0]
        for name in good
        if name.startswith("py3") and "python" in environments[name]
    ]
    return Verdict(tuple(problems), tuple(versions), len(good))


def main(arguments: list[str]) -> int:
    """Print the verdict; 0 if all is well, 1 if not, 2 if called wrongly."""
    if len(arguments) != 2:
        print("usage: ci_verdict.py RESULT_JSON EXIT_CODE_OF_TOX", file=sys.stderr)
        return 2
    path, exit_code = Path(arguments[0]), int(arguments[1])
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"ci: FAILED: tox exited with {exit_code} and left no usable result: {error}")
        return 1
    verdict = judge(result, exit_code, may_miss_312=os.environ.get(PERMIT) == "1")
    print(f"ci: tests passed on Python: {', '.join(verdict.versions) or 'none'}")
    if not verdict.problems and not any(each.startswith("3.12.") for each in verdict.versions):
        print(f"ci: Python 3.12 is missing here, which {PERMIT}=1 allows")
    if verdict.problems:
        print(f"ci: FAILED: {'; '.join(verdict.problems)}")
        return 1
    print(f"ci: passed: all {verdict.passed} environments that ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
