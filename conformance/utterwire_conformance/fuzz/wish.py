"""How much fuzzing somebody asked for, and what that means for an endpoint."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from utterwire_conformance.endpoints import Budget, Endpoint

from .plan import DEFAULT_S, FuzzPlan

__all__ = ["FuzzWish"]

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class FuzzWish:
    """The options `--fuzz`, `--no-fuzz`, `--fuzz-examples`, `--fuzz-minutes` and `--fuzz-seed`."""

    wanted: bool = False
    unwanted: bool = False
    examples: int | None = None
    minutes: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.unwanted and self.asked:
            raise ValueError("--no-fuzz goes with no other option of fuzzing")

    @property
    def asked(self) -> bool:
        """Whether any option asks for fuzzing."""
        given = (self.examples, self.minutes, self.seed)
        return self.wanted or any(value is not None for value in given)

    def reluctance(self, endpoint: Endpoint, *, narrowed: bool) -> str | None:
        """Why there is no fuzzing, or None if there is.

        Unasked, only an endpoint is fuzzed that costs nobody anything, in a run of everything.
        """
        if self.unwanted:
            return "left out by --no-fuzz"
        if endpoint.via == "sagemaker":
            return "left out through SageMaker, which does not carry all that is sent"
        if self.asked:
            return None
        if narrowed:
            return "left out where only a part of the suite is run; --fuzz asks for it"
        if endpoint.budget != Budget():
            return "left out where there is a budget; --fuzz spends what is left of it"
        host = urlsplit(endpoint.url or "").hostname
        if not endpoint.launch and host not in _LOOPBACK:
            return "left out where the endpoint is not on this machine; --fuzz asks for it"
        return None

    def plan(self) -> FuzzPlan:
        """How much to fuzz. A long run has a seed of its own unless one is given."""
        seconds = 60.0 * self.minutes if self.minutes is not None else None
        if seconds is None and self.examples is None:
            seconds = DEFAULT_S
        by_chance = self.seed is None and self.minutes is not None
        seed = secrets.randbelow(2**32) if by_chance else self.seed or 0
        return FuzzPlan(seconds, self.examples, seed, by_chance)
