"""What one experiment of the study found, as it is written down and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spread import Spread

__all__ = ["Finding", "Goal", "NotMeasured", "Row"]


class NotMeasured(Exception):
    """An experiment cannot be done here; the message is one line that says why."""


@dataclass(slots=True)
class Row:
    """One of the things that are compared.

    ``samples`` by measure; ``expected`` is what arithmetic says of a measure; ``facts`` are told
    once; ``note`` says what is missing.
    """

    name: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float | int | str] = field(default_factory=dict)
    note: str | None = None

    def add(self, **values: float) -> None:
        """One sample of each of these measures."""
        for measure, value in values.items():
            self.samples.setdefault(measure, []).append(value)

    def document(self) -> dict[str, Any]:
        """The form of the schema."""
        return {
            "name": self.name,
            "measures": {
                measure: Spread.of(values).rounded()
                for measure, values in self.samples.items()
                if values
            },
            "expected": {name: round(value, 3) for name, value in self.expected.items()},
            "facts": {
                name: round(value, 3) if isinstance(value, float) else value
                for name, value in self.facts.items()
            },
            "note": self.note,
        }


@dataclass(slots=True)
class Finding:
    """One experiment: what it asks, and a row for each thing that is compared.

    ``measures`` and ``facts`` say what the names mean that rows use; ``published`` is what others
    found.
    """

    question: str
    measures: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    published: str | None = None
    note: str | None = None
    rows: list[Row] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The form of the schema, but for what the experiment is called."""
        return {
            "question": self.question,
            "published": self.published,
            "measures": dict(self.measures),
            "facts": dict(self.facts),
            "note": self.note,
            "rows": [row.document() for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class Goal:
    """Something that the project set itself: ``found`` in words, and whether it was reached."""

    name: str
    goal: str
    found: str
    met: bool

    def document(self) -> dict[str, Any]:
        """The form of the schema."""
        return {"name": self.name, "goal": self.goal, "found": self.found, "met": self.met}
