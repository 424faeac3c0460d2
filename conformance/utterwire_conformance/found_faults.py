"""Which faults the checks were shown to find, as stored data."""

from __future__ import annotations

from typing import Any

from .faults.expectation import expectations

__all__ = ["fault_matrix"]


def fault_matrix() -> dict[str, Any] | None:
    """The part `fault_matrix` of a report: by check, the faults that turn it red.

    None where the matrix was not shipped.
    """
    try:
        expected = expectations()
    except FileNotFoundError:
        return None
    by_check: dict[str, list[str]] = {}
    for fault, each in sorted(expected.items()):
        for check in sorted(each.all_red):
            by_check.setdefault(check, []).append(fault)
    return {
        "faults": len(expected),
        "checks": len(by_check),
        "by_check": dict(sorted(by_check.items())),
    }
