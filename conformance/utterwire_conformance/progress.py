"""How far a run is, for somebody who waits for it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Progress"]

_LEAST: Final = 20


@dataclass(slots=True)
class Progress:
    """Filled by the run in its thread, read by another; a glance may be a moment old.

    `phase` is what is done before scenarios are played; `playing` names those that are; `after`
    says how far it is with what comes then.
    """

    phase: str = ""
    total: int = 0
    done: int = 0
    playing: dict[str, None] = field(default_factory=dict)
    after: str = ""

    def begin(self, scenario: str) -> None:
        """A scenario is played now."""
        self.playing[scenario] = None

    def finish(self, scenario: str) -> None:
        """It is over."""
        self.playing.pop(scenario, None)
        self.done += 1

    def line(self, columns: int) -> str:
        """One line of at most so many columns."""
        if self.after:
            text = self.after
        elif not self.total:
            text = self.phase
        else:
            text = f"{self.done} of {self.total} scenarios played"
            # The oldest first: it is what all the others wait for in the end.
            names = list(self.playing)
            if names:
                text += f"; waiting for {', '.join(names)}"
        return _cut(text, max(columns, _LEAST))


def _cut(text: str, columns: int) -> str:
    plain = "".join(char if unicodedata.category(char)[0] != "C" else "?" for char in text)
    return plain if len(plain) <= columns else plain[: columns - 1] + "…"
