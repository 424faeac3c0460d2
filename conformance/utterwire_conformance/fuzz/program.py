"""What a fuzzer does to an endpoint, as data: it can be played, shrunk, told and played again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from utterwire_conformance.transcript import Case

__all__ = [
    "Exchange",
    "Leave",
    "Pause",
    "Ping",
    "Program",
    "Resume",
    "Say",
    "Stall",
    "Step",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message; `cuts` are the offsets at which it is split into frames, and with `pings` a
    ping goes between two of them."""

    session: int
    octets: bytes
    kind: Literal["text", "binary"] = "text"
    cuts: tuple[int, ...] = ()
    pings: bool = False

    def __post_init__(self) -> None:
        if any(not 0 <= cut <= len(self.octets) for cut in self.cuts):
            raise ValueError("a cut lies in the message")
        if list(self.cuts) != sorted(self.cuts):
            raise ValueError("cuts are in order")

    @property
    def pieces(self) -> list[bytes]:
        """The payloads of the frames."""
        ends = (*self.cuts, len(self.octets))
        starts = (0, *self.cuts)
        return [self.octets[a:b] for a, b in zip(starts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class Ping:
    """Send a ping."""

    session: int
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for something: that the last request has an answer, that every message has come to its
    end, or that `session_closed` was read."""

    session: int
    until: Literal["answered", "ended", "closed"] = "ended"


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many milliseconds."""

    session: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Stall:
    """Read no more."""

    session: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Read again."""

    session: int


@dataclass(frozen=True, slots=True)
class Leave:
    """End the session: by a close frame, or by breaking the connection off."""

    session: int
    how: Literal["close", "abort"] = "close"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send a body to `POST /invocations`; `case` says what is legal."""

    body: bytes
    case: Case
    content_type: str | None = "application/json"


Step: TypeAlias = Say | Ping | Wait | Pause | Stall | Resume | Leave | Exchange


@dataclass(frozen=True, slots=True)
class Program:
    """Steps, in order. `kind` is what sort of fuzzing it comes from; `cells` are those of the table
    of states that it was made to try, (state, message)."""

    kind: Literal["sessions", "messages", "http"]
    steps: tuple[Step, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, kind: Literal["sessions", "messages", "http"], steps: Iterable[Step]) -> Program:
        """A program of these steps."""
        return cls(kind, tuple(steps))

    @property
    def sessions(self) -> tuple[int, ...]:
        """The sessions that it needs, in the order in which they are opened."""
        numbers = (step.session for step in self.steps if not isinstance(step, Exchange))
        return tuple(dict.fromkeys(numbers))

    @property
    def weight(self) -> tuple[int, int]:
        """What makes one program simpler than another: steps, then octets."""
        octets = 0
        for step in self.steps:
            if isinstance(step, Say):
                octets += len(step.octets) + len(step.cuts)
            elif isinstance(step, Exchange):
                octets += len(step.body)
        return len(self.steps), octets
