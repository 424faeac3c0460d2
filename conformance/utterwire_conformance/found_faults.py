"""Which faults the checks were shown to find, as stored data."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

__all__ = ["EXPECTED_FILE", "fault_matrix"]

EXPECTED_FILE: Final = "faults/expected.json"


def fault_matrix() -> dict[str, Any] | None:
    """The part `fault_matrix` of a report: by check, the faults that turn it red.

    None where the matrix was not shipped.
    """
    source = files("utterwire_conformance") / EXPECTED_FILE
    if not source.is_file():
        return None
    faults: dict[str, Any] = json.loads(source.read_text("utf-8"))["faults"]
    by_check: dict[str, list[str]] = {}
    for fault, expected in sorted(faults.items()):
        for check in expected["red"]:
            by_check.setdefault(check, []).append(fault)
    return {
        "faults": len(faults),
        "checks": len(by_check),
        "by_check": dict(sorted(by_check.items())),
    }
