"""What was accepted and is not spoken yet, in the server as a whole, and how much of it may be."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from utterwire_server.pace import Pace

__all__ = ["SOONEST_S", "Backlog", "Place"]

#: Nobody is told to come back sooner, or later, than after so many seconds.
SOONEST_S: Final = 1.0
LATEST_S: Final = 60.0


class Place:
    """An accepted utterance's part of the backlog: a context manager that gives it back at its end.

    Make it by `Backlog.place`.
    """

    __slots__ = ("_backlog", "_characters", "_held", "_left", "_speech_s", "_speed")

    def __init__(self, backlog: Backlog, characters: int, speed: float) -> None:
        self._backlog = backlog
        self._characters = characters
        self._speed = speed
        self._speech_s = 0.0
        self._left = float(characters)
        self._held = True
        backlog._move(1, self._left, self._left / speed)

    @property
    def left_s(self) -> float:
        """Seconds that the engine will probably work on the rest of it."""
        return self._backlog.pace.work_s(self._left, self._speed)

    def made(self, speech_s: float) -> None:
        """``speech_s`` more seconds of it are made."""
        self._speech_s += speech_s
        if self._held:
            spoken = self._speech_s / self._backlog.pace.speech_s(1, self._speed)
            self._set(max(0.0, min(self._left, self._characters - spoken)))

    def completed(self) -> None:
        """All of it is made: how long such a text is to be heard can be learned from it."""
        self._backlog.pace.spoke(self._characters, self._speech_s, self._speed)

    def release(self) -> None:
        """Give the place back; again changes nothing."""
        if self._held:
            self._set(0.0)
            self._held = False
            self._backlog._move(-1, 0.0, 0.0)

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _set(self, left: float) -> None:
        change = left - self._left
        self._left = left
        self._backlog._move(0, change, change / self._speed)


class Backlog:
    """All places, and the bounds on them.

    :param pace: how fast the engine is; it is told what was spoken.
    :param workers: how many blocks the engine makes at once.
    :param max_characters: so many characters may wait.
    :param max_s: who comes while more than so many seconds of work wait is sent away.
    """

    def __init__(self, pace: Pace, *, workers: int, max_characters: int, max_s: float) -> None:
        self.pace = pace
        self._workers = workers
        self._max_characters = max_characters
        self._max_s = max_s
        self._places = 0
        self._characters = 0.0
        # The same, each text divided by its speed.
        self._weight = 0.0

    @property
    def places(self) -> int:
        """How many utterances are accepted and not ended."""
        return self._places

    @property
    def characters(self) -> float:
        """Characters that are probably still to be spoken."""
        return self._characters

    @property
    def seconds(self) -> float:
        """How long the engine will probably work on them."""
        return self.pace.work_s(self._weight) / self._workers

    def overload(self, characters: int) -> float | None:
        """None if a text of ``characters`` has room, or after how many seconds it may have."""
        over_s = self.seconds - self._max_s
        over = self._characters + characters - self._max_characters
        if over_s <= 0 and over <= 0:
            return None
        wait_s = max(over_s, self.pace.work_s(max(0.0, over)) / self._workers)
        return min(max(wait_s, SOONEST_S), LATEST_S)

    def place(self, characters: int, speed: float) -> Place:
        """A place for a text, whether or not there is room; leave it on every way out."""
        return Place(self, characters, speed)

    def _move(self, places: int, characters: float, weight: float) -> None:
        self._places += places
        self._characters += characters
        self._weight += weight
        if not self._places:
            # What rounding has left.
            self._characters = self._weight = 0.0
