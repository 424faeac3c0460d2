"""What a player has played by now: a model that is told the time."""

import math
from collections import deque
from dataclasses import dataclass

__all__ = ["Gap", "Playback"]

# Gaps that are kept one by one; all are counted.
_MOST_GAPS = 256


@dataclass(frozen=True, slots=True)
class Gap:
    """Silence in which a listener waited for audio that was late.

    ``at_s``: how much had been heard before it; ``seconds``: how long it lasted.
    """

    at_s: float
    seconds: float


class Playback:
    """A player that is a clock and a queue: no device, no tasks, no clock of its own.

    Audio is scheduled right behind what is queued, or, where the queue has run dry, ``lead_s``
    after the moment it came. It is *heard* when it leaves the player's clock. Positions and lengths
    are in seconds of audio, from the first that was ever queued; ``now`` is in seconds of any clock
    that does not run backwards, the same one for all calls.

    Raises ``ValueError`` for a length that is negative or not finite.
    """

    def __init__(self, *, lead_s: float = 0.0) -> None:
        self._lead_s = _length(lead_s)
        self._before = 0.0  # audio of the stretches that were played before this one
        self._start = -math.inf  # of this stretch, which has no gap in it
        self._stretch = 0.0
        self._resting = True
        self._gaps: deque[Gap] = deque(maxlen=_MOST_GAPS)
        self._gap_count = 0
        self._gap_s = 0.0

    def enqueue(self, seconds: float, now: float) -> float:
        """Queue so much audio; returns when its first sample is scheduled."""
        seconds = _length(seconds)
        end = self._start + self._stretch
        if seconds and now >= end:
            start = now + self._lead_s
            if not self._resting and start > end:
                self._gaps.append(Gap(self.enqueued_s, start - end))
                self._gap_count += 1
                self._gap_s += start - end
            if self._resting or start > end:
                self._before += self._stretch
                self._start, self._stretch = start, 0.0
                end = start
        if seconds:
            self._resting = False
            self._stretch += seconds
        return max(end, now)

    def finish(self) -> None:
        """What was queued is all for now: silence after it is no gap."""
        self._resting = True

    def flush(self, now: float) -> float:
        """Throw away what was not heard; returns how much that was."""
        heard = self._heard_of_stretch(now)
        dropped = self._stretch - heard
        self._stretch = heard
        if dropped:
            # It ended where it was cut, or before it began.
            self._start = min(self._start, now - heard)
        self._resting = True
        return dropped

    @property
    def enqueued_s(self) -> float:
        """All audio that was queued, less what was thrown away."""
        return self._before + self._stretch

    def heard_s(self, now: float) -> float:
        """All audio that was heard."""
        return self._before + self._heard_of_stretch(now)

    def queued_s(self, now: float) -> float:
        """What is still to be heard."""
        return self._stretch - self._heard_of_stretch(now)

    def _heard_of_stretch(self, now: float) -> float:
        return min(max(now - self._start, 0.0), self._stretch)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The last gaps, the oldest first."""
        return tuple(self._gaps)

    @property
    def gap_count(self) -> int:
        """How many gaps there were."""
        return self._gap_count

    @property
    def gap_s(self) -> float:
        """How long all gaps were together."""
        return self._gap_s


def _length(seconds: float) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a length of {seconds!r} s: give a number of seconds, 0 or more")
    return seconds
