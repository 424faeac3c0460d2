"""What was accepted and is not spoken yet, in the server as a whole, and how much of it may be."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from utterwire_server.pace import Pace

__all__ = ["SOONEST_S", "Backlog", "Place"]

#: Nobody is told to come back sooner, or later, than after so many seconds.
SOONEST_S: Final = 1.0
LATEST_S: Final = 60.0
#: Of the bound on seconds for all, no one listener's texts take more than this part: the engine is
#: shared by blocks, so that a long text keeps nobody waiting for longer than a short one.
SHARE: Final = 1 / 8


class Place:
    """An accepted utterance's part of the backlog: a context manager that gives it back at its end.

    Make it by `Backlog.place`.
    """

    __slots__ = ("_backlog", "_characters", "_held", "_left", "_owner", "_speech_s", "_speed")

    def __init__(self, backlog: Backlog, characters: int, speed: float, owner: Hashable) -> None:
        self._backlog = backlog
        self._owner = owner
        self._characters = characters
        self._speed = speed
        self._speech_s = 0.0
        self._left = float(characters)
        self._held = True
        backlog._move(owner, 1, self._left, self._left / speed)

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
            self._backlog._move(self._owner, -1, 0.0, 0.0)

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
        self._backlog._move(self._owner, 0, change, change / self._speed)


class Backlog:
    """All places, and the bounds on them.

    :param pace: how fast the engine is; it is told what was spoken.
    :param workers: how many blocks the engine makes at once.
    :param max_characters: so many characters may wait.
    :param max_s: who comes while more than so many seconds of work wait is sent away: of its own,
        or of all, of which each owner's counts up to `SHARE` of the bound.
    """

    def __init__(self, pace: Pace, *, workers: int, max_characters: int, max_s: float) -> None:
        self.pace = pace
        self._workers = workers
        self._max_characters = max_characters
        self._max_s = max_s
        self._characters = 0.0
        self._held: dict[Hashable, _Held] = {}

    @property
    def places(self) -> int:
        """How many utterances are accepted and not ended."""
        return sum(held.places for held in self._held.values())

    @property
    def characters(self) -> float:
        """Characters that are probably still to be spoken."""
        return self._characters

    @property
    def seconds(self) -> float:
        """How long the engine will probably work on them."""
        return self._seconds(sum(held.weight for held in self._held.values()))

    def overload(self, characters: int, owner: Hashable = None) -> float | None:
        """None if a text of ``characters`` has room, or after how many seconds it may have."""
        own = self._held.get(owner)
        most_s = self._max_s * SHARE
        counted_s = sum(min(self._seconds(held.weight), most_s) for held in self._held.values())
        over_s = max(counted_s, self._seconds(own.weight) if own else 0.0) - self._max_s
        over = self._characters + characters - self._max_characters
        if over_s <= 0 and over <= 0:
            return None
        wait_s = max(over_s, self.pace.work_s(max(0.0, over)) / self._workers)
        return min(max(wait_s, SOONEST_S), LATEST_S)

    def place(self, characters: int, speed: float, owner: Hashable = None) -> Place:
        """A place for a text of ``owner``, say a listener, whether or not there is room; leave it
        on every way out."""
        return Place(self, characters, speed, owner)

    def _seconds(self, weight: float) -> float:
        return self.pace.work_s(weight) / self._workers

    def _move(self, owner: Hashable, places: int, characters: float, weight: float) -> None:
        held = self._held.get(owner)
        if held is None:
            held = self._held[owner] = _Held()
        held.places += places
        held.weight += weight
        self._characters += characters
        if not held.places:
            del self._held[owner]
        if not self._held:
            # What rounding has left.
            self._characters = 0.0


@dataclass(slots=True)
class _Held:
    """What one owner has in the backlog; `weight` is characters, each text's by its speed."""

    places: int = 0
    weight: float = 0.0
