"""How much to fuzz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["DEFAULT_S", "FuzzPlan", "Kind"]

Kind: TypeAlias = Literal["sessions", "messages", "http"]

DEFAULT_S: Final = 30.0
"""How long fuzzing takes unless told otherwise, in seconds."""


@dataclass(frozen=True, slots=True)
class FuzzPlan:
    """How much to fuzz.

    `seconds` of wall time in all, and `examples` programs of each kind; whichever is reached first
    ends it, None for no limit. The same `seed` makes the same programs for an endpoint with the
    same claims, `random` tells that it was chosen by chance.
    """

    seconds: float | None = DEFAULT_S
    examples: int | None = None
    seed: int = 0
    random: bool = False
    kinds: tuple[Kind, ...] = ("sessions", "messages", "http")

    def __post_init__(self) -> None:
        if self.seconds is None and self.examples is None:
            raise ValueError("fuzzing needs an end: seconds, examples, or both")
        if any(limit is not None and limit <= 0 for limit in (self.seconds, self.examples)):
            raise ValueError("a limit is more than 0")
