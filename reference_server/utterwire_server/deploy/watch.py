"""How a command tells how far it is, and how it waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Watch"]


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass(slots=True)
class Watch:
    """Progress lines with the time since the start, and pauses between two looks.

    :param write: takes each line.
    :param sleep: pauses, in seconds.
    :param now: a clock in seconds that never goes back.
    :param poll_s: pause between two looks at what AWS is doing.
    """

    write: Callable[[str], None] = _to_stderr
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    poll_s: float = 5.0
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.now()

    def say(self, line: str) -> None:
        """Tell how far it is."""
        self.write(f"[{self.now() - self._began:5.0f} s] {line}")

    def pause(self) -> None:
        """Wait until it is worth looking again."""
        self.sleep(self.poll_s)
