"""What a fault is: one rule broken, on purpose, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from utterwire_conformance.proxy import ExchangeTamper, SessionTamper, Shared, Tap

__all__ = ["Fault"]

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Fault:
    """One way for an endpoint to be wrong.

    `explanation` is one sentence on what the endpoint then does. `breaks` names the requirements
    it breaks by their ids: a suite that finds all of those met has missed it. `session` and
    `exchange` make the tamper for one session and one HTTP exchange. `lacks` names profiles that
    the endpoint may not claim, or the fault cannot be seen.

    Raises:
        ValueError: the name is not kebab-case, the explanation no sentence, or nothing is broken.
    """

    name: str
    explanation: str
    breaks: tuple[str, ...]
    session: Callable[[Shared, Tap], SessionTamper] = SessionTamper
    exchange: Callable[[Shared], ExchangeTamper] = ExchangeTamper
    lacks: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a name in kebab-case")
        if not self.explanation.endswith("."):
            raise ValueError(f"fault {self.name}: the explanation is a sentence")
        if not self.breaks:
            raise ValueError(f"fault {self.name} breaks no requirement")
