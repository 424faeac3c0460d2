"""Whose turn it is at the engine: pure decisions, on a clock that the caller reads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from utterwire_server.playback import Playback

__all__ = ["COMFORT_S", "PATIENCE_S", "Ask", "Line", "Listener"]

#: With so much in hand a listener is no more pressed than somebody who does not listen.
COMFORT_S: Final = 5.0
#: After waiting for so long, who does not listen is taken for somebody who has run dry.
PATIENCE_S: Final = 10.0


class Listener(Playback):
    """Who hears one session, utterance after utterance.

    :param heard: False where nobody listens while it is made: an answer that is sent whole.
    """

    __slots__ = ("_awaits_sound", "heard", "served_at")

    def __init__(self, *, heard: bool = True) -> None:
        super().__init__()
        self.heard = heard
        #: When it last had a turn.
        self.served_at = -math.inf
        self._awaits_sound = False

    @property
    def awaits_sound(self) -> bool:
        """Whether an utterance has begun of which nothing is there, and nothing else to hear."""
        return self._awaits_sound

    def begin(self, now: float) -> None:
        """The next utterance begins."""
        self._awaits_sound = self.heard and not self.ahead_s(now)

    def put(self, seconds: float, now: float) -> float:
        """``seconds`` of speech come to the listener; for how long nothing was left to play."""
        if seconds > 0:
            self._awaits_sound = False
        return super().put(seconds, now)

    def flush(self) -> None:
        """What is not heard yet never will be: the client has cancelled (`protocol.md#cancel`)."""
        self.dry_at = None


@dataclass(slots=True, eq=False)
class Ask:
    """A listener's wish for one block, made at a time of the caller's clock."""

    listener: Listener
    asked_at: float
    order: int = field(default=0, repr=False)

    @property
    def deadline(self) -> float:
        """When the listener runs dry, or would have liked the first sound."""
        if self.listener.awaits_sound:
            return self.asked_at
        if not self.listener.heard:
            return self.asked_at + PATIENCE_S
        # Who comes back after a pause of its own making has not been waiting all the while.
        return max(self.listener.dry_at or self.asked_at, self.asked_at)


class Line:
    """Those who wait for a block, and who of them is next.

    In this order:

    1. first sounds, first come, first served, and listeners who run dry soon, by deadline.
       Where there are both they take turns, so that no flood of new sessions starves who listens;
       and a first sound goes ahead of a listener only if its session had no turn while that one
       waited, so that many short utterances gain a session nothing;
    2. listeners with less than `COMFORT_S` in hand, by deadline;
    3. all others, who listen to nothing or have plenty, as they came.

    Nobody waits for ever: listeners run dry in time, others are treated so after `PATIENCE_S`, and
    once somebody is dry each of the others goes ahead at most once more, plus as many first sounds.
    Somebody is next whenever anybody waits.
    """

    def __init__(self) -> None:
        self._asks: list[Ask] = []
        self._orders = itertools.count()
        # The turn before was that of a first sound.
        self._sounded = False

    def __len__(self) -> int:
        return len(self._asks)

    def join(self, listener: Listener, now: float) -> Ask:
        """``listener`` asks for a block."""
        ask = Ask(listener, now, next(self._orders))
        self._asks.append(ask)
        return ask

    def leave(self, ask: Ask) -> None:
        """It does not want it any more; nothing happens if it has had its turn."""
        if ask in self._asks:
            self._asks.remove(ask)

    def next(self, now: float, *, soon_s: float) -> Ask | None:
        """Take the next out of the line; None if it is empty.

        ``soon_s``: who has no more than so many seconds in hand is about to run dry.
        """
        if not self._asks:
            return None
        ask = self._choose(now, soon_s)
        self._asks.remove(ask)
        ask.listener.served_at = now
        return ask

    def _choose(self, now: float, soon_s: float) -> Ask:
        first = [ask for ask in self._asks if ask.listener.awaits_sound]
        others = [ask for ask in self._asks if not ask.listener.awaits_sound]
        dry = [ask for ask in others if ask.deadline - now <= soon_s]
        if dry:
            since = min(ask.asked_at for ask in dry)
            fresh = [ask for ask in first if ask.listener.served_at < since]
            # A turn of one that is not fresh is none of the first sounds' turns.
            self._sounded = bool(fresh) and not self._sounded
            if self._sounded:
                return _earliest(fresh)
            # Who has had a turn meanwhile waits like all others.
            return _earliest([*dry, *(ask for ask in first if ask not in fresh)])
        self._sounded = bool(first)
        if first:
            return _earliest(first)
        pressed = [ask for ask in others if ask.listener.heard and ask.deadline - now < COMFORT_S]
        if pressed:
            return _earliest(pressed)
        return min(others, key=lambda ask: ask.order)


def _earliest(asks: Iterable[Ask]) -> Ask:
    return min(asks, key=lambda ask: (ask.deadline, ask.order))
