"""What the suite is known to find of each fault: data that ships with it, compared both ways."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

__all__ = ["NARROW", "Difference", "Expectation", "expectations", "from_json", "to_text"]

NARROW: Final = 3
"""A fault that turns at most so many checks red shows what each of them is good for."""

_VERSION: Final = 1
_FILE: Final = "expected.json"
_ABOUT: Final = (
    "By fault: the endpoint it is put before, the scenarios that show it and the checks that turn"
    " red in them; `also` are those that turn red, too, where every scenario is played, and no"
    " others do. `may` are checks that the fault leaves free to turn red or not, each with the"
    " reason. Written by scripts/fault_matrix.py --update, and reviewed by hand."
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one fault does: `red` checks, all of them shown by the scenarios of `play`.

    `endpoint` names the built-in endpoint it is put before. `also` are the checks that turn red
    besides where every scenario is played. `may` are checks that can turn red or stay green, each
    with the reason why both are right.

    Raises:
        ValueError: nothing turns red, a check is in two of the three, or a reason is missing.
    """

    endpoint: str
    red: frozenset[str]
    play: tuple[str, ...]
    may: Mapping[str, str] = field(default_factory=dict)
    also: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.red:
            raise ValueError("a fault that no check is known to find")
        if self.all_red & self.may.keys():
            raise ValueError("a check both must and may turn red")
        if self.red & self.also:
            raise ValueError("a check turns red, and does so besides")
        if not all(reason.strip() for reason in self.may.values()):
            raise ValueError("a check may turn red, and no reason is given")

    @property
    def all_red(self) -> frozenset[str]:
        """The checks that turn red where every scenario is played."""
        return self.red | self.also

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        body: dict[str, Any] = {
            "on": self.endpoint,
            "red": sorted(self.red),
            "play": sorted(self.play),
        }
        if self.also:
            body["also"] = sorted(self.also)
        return body | ({"may": dict(sorted(self.may.items()))} if self.may else {})


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a run and the expectation of a fault part: checks that should be red and are not, and
    checks that are red and should not be."""

    fault: str
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @classmethod
    def between(
        cls, fault: str, red: Collection[str], expected: Expectation, *, whole: bool = False
    ) -> Difference:
        """Compare both ways; what may be red is neither missing nor unexpected.

        `whole` says that every scenario was played, and not only those that show the fault.
        """
        found = frozenset(red)
        return cls(
            fault,
            tuple(sorted((expected.all_red if whole else expected.red) - found)),
            tuple(sorted(found - expected.all_red - expected.may.keys())),
        )

    def __and__(self, other: Difference) -> Difference:
        """What shows in both, of two runs of one fault."""
        return Difference(
            self.fault,
            tuple(each for each in self.missing if each in other.missing),
            tuple(each for each in self.unexpected if each in other.unexpected),
        )

    def __len__(self) -> int:
        return len(self.missing) + len(self.unexpected)

    def __str__(self) -> str:
        parts = []
        if self.missing:
            parts.append(f"expected to turn red, and did not: {', '.join(self.missing)}")
        if self.unexpected:
            parts.append(f"turned red, and was not expected to: {', '.join(self.unexpected)}")
        return f"{self.fault}: {'; '.join(parts) or 'as expected'}"


def from_json(document: Mapping[str, Any]) -> dict[str, Expectation]:
    """The expectations of a document, by fault.

    Raises:
        ValueError: it is of another version, or an expectation is none.
    """
    if document.get("version") != _VERSION:
        raise ValueError(f"expectations of version {_VERSION} are wanted")
    return {
        name: Expectation(
            row["on"],
            frozenset(row["red"]),
            tuple(row["play"]),
            dict(row.get("may", {})),
            frozenset(row.get("also", ())),
        )
        for name, row in document["faults"].items()
    }


def to_text(expected: Mapping[str, Expectation]) -> str:
    """The file: a line for each check, so that a change is a change of few lines."""
    faults = {name: expected[name].to_json() for name in sorted(expected)}
    document = {"version": _VERSION, "about": _ABOUT, "faults": faults}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


@cache
def expectations() -> Mapping[str, Expectation]:
    """What is expected of every fault of `FAULTS`, by its name."""
    text = (files(__package__) / _FILE).read_text(encoding="utf-8")
    return MappingProxyType(from_json(json.loads(text)))
