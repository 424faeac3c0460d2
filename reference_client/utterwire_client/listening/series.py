"""Answers listened to in turns, and what is told of all runs together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from utterwire_client.listening.answer import Answer
from utterwire_client.listening.figures import FIGURES, Figures, spread_of
from utterwire_client.listening.recording import Run

__all__ = ["WAYS", "Series", "Turn", "Way"]

Ask: TypeAlias = Literal["bidi", "batch"]
Carrier: TypeAlias = Literal["websocket", "sse"]


@dataclass(frozen=True, slots=True)
class Way:
    """How an answer is asked for: sentence by sentence as its text comes (``bidi``), or when all of
    it is there (``batch``); over a session, or by server-sent events."""

    ask: Ask
    transport: Carrier

    def __str__(self) -> str:
        return f"{self.ask}-{self.transport}"

    def described(self) -> dict[str, str]:
        """As the schema has it."""
        return {"ask": self.ask, "transport": self.transport}


#: All of them, by the names that they have on the command line.
WAYS: Final[Mapping[str, Way]] = {
    str(way): way
    for way in (
        Way("bidi", "websocket"),
        Way("batch", "websocket"),
        Way("bidi", "sse"),
        Way("batch", "sse"),
    )
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be listened to next; ``number`` of ``of`` turns, from 1."""

    number: int
    of: int
    answer: Answer
    way: Way


@dataclass(slots=True)
class _Group:
    """The runs of an answer in a way."""

    runs: list[Run] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Series:
    """Which answers are listened to, in which ways, and how often; then what was heard.

    Each round takes every answer in every way once, so that what changes with time changes all.
    """

    def __init__(self, answers: Sequence[Answer], ways: Sequence[Way], repeat: int) -> None:
        self.answers = tuple(answers)
        self.repeat = repeat
        self._left_out: dict[Way, str] = {}
        self._groups = {(answer, way): _Group() for answer in answers for way in ways}
        self.ways = tuple(ways)

    def leave_out(self, way: Way, reason: str) -> None:
        """The endpoint cannot be listened to in this way."""
        self._left_out[way] = reason

    @property
    def left_out(self) -> Mapping[Way, str]:
        """Ways that are left out, and why."""
        return self._left_out

    def turns(self) -> Iterator[Turn]:
        """In order; a way that was left out has none."""
        groups = [key for key in self._groups if key[1] not in self._left_out]
        of = self.repeat * len(groups)
        rounds = (group for _ in range(self.repeat) for group in groups)
        for number, (answer, way) in enumerate(rounds, 1):
            yield Turn(number, of, answer, way)

    def heard(self, turn: Turn, run: Run) -> None:
        """It was heard."""
        self._groups[turn.answer, turn.way].runs.append(run)

    def failed(self, turn: Turn, reason: str) -> None:
        """It was not, or not whole."""
        self._groups[turn.answer, turn.way].failures.append(reason)

    @property
    def reasons(self) -> list[str]:
        """Why runs failed, once for each."""
        told = (reason for group in self._groups.values() for reason in group.failures)
        return list(dict.fromkeys(told))

    @property
    def failures(self) -> int:
        """How many runs failed."""
        return sum(len(group.failures) for group in self._groups.values())

    @property
    def count(self) -> int:
        """How many were measured."""
        return sum(len(group.runs) for group in self._groups.values())

    def document(
        self,
        *,
        made_by: str,
        started: datetime,
        duration_s: float,
        endpoint: Mapping[str, str],
        options: Mapping[str, Any],
        browser: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The result, in the form of the schema ``latency``; ``started`` is in UTC."""
        return {
            "utterwire_latency": 1,
            "made_by": made_by,
            "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration_s": round(duration_s, 3),
            "endpoint": dict(endpoint),
            "options": {**options, "repeat": self.repeat},
            "browser": dict(browser),
            "answers": [answer.described() for answer in self.answers],
            "left_out": [
                {"way": way.described(), "reason": reason} for way, reason in self._left_out.items()
            ],
            "heard": [
                _described(answer, way, group)
                for (answer, way), group in self._groups.items()
                if way not in self._left_out
            ],
        }


def _described(answer: Answer, way: Way, group: _Group) -> dict[str, Any]:
    runs: list[Figures] = [run.figures for run in group.runs]
    known = [run.exact for run in group.runs if run.exact is not None]
    return {
        "answer": answer.name,
        "way": way.described(),
        "count": len(runs),
        "figures": {name: spread_of(run[name] for run in runs) for name in FIGURES},  # type: ignore[literal-required]
        "exact": sum(known) if known else None,
        "failures": list(dict.fromkeys(group.failures)),
        "runs": runs,
    }
