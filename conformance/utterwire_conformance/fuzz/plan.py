"""How much to fuzz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["DEFAULT_S", "FuzzPlan", "Kind"]

_SHARE: Final = 0.2
_LEAST_S: Final = 4.0
_MOST_S: Final = 60.0

Kind: TypeAlias = Literal["sessions", "messages", "http"]

DEFAULT_S: Final = 30.0
"""How long fuzzing takes unless told otherwise, in seconds."""


@dataclass(frozen=True, slots=True)
class FuzzPlan:
    """How much to fuzz.

    `seconds` of wall time in all, and `examples` programs of each kind; whichever is reached first
    ends it, None for no limit. The same `seed` makes the same programs for an endpoint with the
    same claims, `random` tells that it was chosen by chance. After `findings` it is over, and
    `shrink_s` is how long each may take to be made small (None: a fifth of `seconds`).
    """

    seconds: float | None = DEFAULT_S
    examples: int | None = None
    seed: int = 0
    random: bool = False
    kinds: tuple[Kind, ...] = ("sessions", "messages", "http")
    findings: int = 10
    shrink_s: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is None and self.examples is None:
            raise ValueError("fuzzing needs an end: seconds, examples, or both")
        limits = (self.seconds, self.examples, self.findings, self.shrink_s)
        if any(limit is not None and limit <= 0 for limit in limits):
            raise ValueError("a limit is more than 0")

    @property
    def patience_s(self) -> float:
        """How long a finding may take to be made small, in seconds."""
        if self.shrink_s is not None:
            return self.shrink_s
        share = _SHARE * self.seconds if self.seconds is not None else _MOST_S / 3
        return min(max(share, _LEAST_S), _MOST_S)
