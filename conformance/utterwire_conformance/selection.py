"""Which requirements of a run are judged, and what is played for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from .requirements import Requirement

__all__ = ["QUICK_SCENARIOS", "Selection"]

QUICK_SCENARIOS: Final = frozenset(
    {
        "probe",
        "negotiation",
        "order",
        "keepalive",
        "close-at-once",
        "pings",
        "compression",
        "reject-invalid-json",
        "reject-empty-frame",
        "unspeakable",
        "http-methods",
        "http-pings",
        "http-unspeakable",
    }
)
"""What `--quick` plays: the scenarios that tell most about a request, its end, the next request,
bad messages and the close for 500 characters in all. None of them waits for a time limit."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What of the suite is wanted.

    `patterns` are ids of requirements, or globs of them (`audio.*`); none means every one. With
    `quick` only `QUICK_SCENARIOS` are played.
    """

    patterns: tuple[str, ...] = ()
    quick: bool = False

    @property
    def scenarios(self) -> frozenset[str] | None:
        """The names of the scenarios that may be played; None means all."""
        return QUICK_SCENARIOS if self.quick else None

    @property
    def omission(self) -> str:
        """Why a requirement was not exercised whose scenarios were left out."""
        return "left out by --quick" if self.quick else "its scenario was left out"

    def admits(self, row: Requirement) -> bool:
        """Whether the requirement is to be judged."""
        return not self.patterns or any(fnmatchcase(row.id, each) for each in self.patterns)

    def idle(self, rows: Iterable[Requirement]) -> list[str]:
        """The patterns that match none of these requirements."""
        ids = [row.id for row in rows]
        return [p for p in self.patterns if not any(fnmatchcase(name, p) for name in ids)]
