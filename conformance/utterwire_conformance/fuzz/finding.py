"""What fuzzing found, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from utterwire_conformance.check import FUZZ_PREFIX
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

from .plan import FuzzPlan
from .program import Program

__all__ = ["KINDS", "Finding", "FuzzResults", "KindResult"]

KINDS: Final[Mapping[str, str]] = {
    "sessions": "programs of legal and illegal messages in interleaved sessions",
    "messages": "odd, broken and nearly valid messages in one session, beside another",
    "http": "odd, broken and nearly valid bodies over HTTP",
}
"""The kinds of fuzzing, and what each does."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that broke.

    `judgements` are the failures in `transcript`, by requirement. The program was played `tries`
    times more and broke the same requirement in `again` of them.
    """

    name: str
    program: Program
    transcript: Transcript
    judgements: Mapping[str, Judgement]
    requirement: str
    tries: int = 0
    again: int = 0

    @property
    def judgement(self) -> Judgement:
        """The failure that it is named for."""
        return self.judgements[self.requirement]

    @property
    def flaky(self) -> bool:
        """Whether it did not come every time."""
        return self.again < self.tries

    @property
    def seen(self) -> str:
        """How often it came, for a person."""
        if not self.tries:
            return "seen once; there was no time to try again"
        if not self.again:
            return f"seen once, and not again in {self.tries} more tries"
        return f"seen again in {self.again} of {self.tries} more tries"

    @property
    def scenario(self) -> str:
        """What its transcript is called among those of the run."""
        return f"{FUZZ_PREFIX}{self.program.kind}-{self.name}"

    def told(self) -> Transcript:
        """Its transcript under its own name, with a note of what broke."""
        notes = [
            Entry(0.0, "note", "note", 0, text=f"finding: {name}: {judgement.reason}")
            for name, judgement in self.judgements.items()
        ]
        notes.append(Entry(0.0, "note", "note", 0, text=f"played again: {self.seen}"))
        entries = [*notes, *self.transcript.entries]
        return replace(self.transcript, scenario=self.scenario, entries=entries)

    def to_json(self) -> dict[str, Any]:
        """The finding as the schema `report` has it; `transcript` is the name of its transcript."""
        judgement = self.judgement
        told = {
            name: getattr(judgement, name)
            for name in ("reason", "sent", "received", "legal", "advice")
            if getattr(judgement, name)
        }
        others = [name for name in self.judgements if name != self.requirement]
        return {
            "requirement": self.requirement,
            **told,
            "also": others,
            "kind": self.program.kind,
            "steps": len(self.program.steps),
            "seen": self.seen,
            "flaky": self.flaky,
            "transcript": self.scenario,
        }


@dataclass(frozen=True, slots=True)
class KindResult:
    """What came of one kind of fuzzing: a verdict, why, and how many programs were played."""

    verdict: Verdict
    reason: str = ""
    examples: int = 0

    def to_json(self) -> dict[str, Any]:
        """The result as the schema `report` has it."""
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            "programs": self.examples,
        }


@dataclass(slots=True)
class FuzzResults:
    """What came of fuzzing. `cells` counts how often each cell of the table of states was tried;
    `stopped` says what ended it."""

    seed: int
    random: bool = False
    kinds: dict[str, KindResult] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    cells: dict[tuple[str, str], int] = field(default_factory=dict)
    duration_s: float = 0.0
    sessions: int = 0
    characters: int = 0
    stopped: str = ""

    @classmethod
    def left_out(cls, plan: FuzzPlan, why: str) -> FuzzResults:
        """The results of fuzzing that did not take place."""
        results = cls(plan.seed, plan.random, stopped=why)
        for kind in plan.kinds:
            results.kinds[kind] = KindResult(Verdict.NOT_EXERCISED, why)
        return results

    @property
    def examples(self) -> int:
        """How many programs were played."""
        return sum(kind.examples for kind in self.kinds.values())

    def to_json(self) -> dict[str, Any]:
        """The results as the schema `report` has them."""
        return {
            "seed": self.seed,
            "derandomized": not self.random,
            "programs": self.examples,
            "duration_s": round(self.duration_s, 3),
            "sessions": self.sessions,
            "characters": self.characters,
            "stopped": self.stopped,
            "kinds": {name: kind.to_json() for name, kind in self.kinds.items()},
            "cells": [
                {"state": state, "event": event, "count": count}
                for (state, event), count in self.cells.items()
            ],
        }
