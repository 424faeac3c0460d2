"""Being told to stop: by Ctrl-C, by SIGTERM, or since the terminal is gone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

__all__ = ["Interruption"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """From `begin` to `end` every signal to stop is taken as Ctrl-C is, once.

    The first raises `KeyboardInterrupt`. Those that follow must not, since they would hit whoever
    is tidying up: they call `hurry`, and are done with.
    """

    def __init__(self, hurry: Callable[[], None]) -> None:
        self.came = False
        """Whether there was a signal."""
        self._hurry = hurry
        self._before: dict[signal.Signals, Any] = {}

    def begin(self) -> None:
        """Take the signals, where that can be done and nobody asked to have them ignored."""
        if threading.current_thread() is not threading.main_thread():
            return
        for each in _SIGNALS:
            before = signal.getsignal(each)
            if before is not signal.SIG_IGN and before is not None:
                self._before[each] = before
                signal.signal(each, self._take)

    def end(self) -> None:
        """Give the signals back; after one has come only when the process ends."""
        before, self._before = self._before, {}
        if not self.came:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            self._hurry()
            return
        self.came = True
        raise KeyboardInterrupt
