"""How much a listener still has to hear who plays from the first byte on."""

from __future__ import annotations

__all__ = ["Playback"]


class Playback:
    """A listener at speed 1 who begins with the first byte, and waits where nothing is left.

    All times are seconds of one clock, which the caller reads.
    """

    __slots__ = ("dry_at",)

    def __init__(self) -> None:
        #: When there is nothing left to hear; None before the first byte.
        self.dry_at: float | None = None

    @property
    def begun(self) -> bool:
        """Whether the first byte has come."""
        return self.dry_at is not None

    def ahead_s(self, now: float) -> float:
        """Seconds of speech not heard yet; 0 before the first byte and for who has run dry."""
        return 0.0 if self.dry_at is None else max(0.0, self.dry_at - now)

    def put(self, seconds: float, now: float) -> float:
        """``seconds`` of speech come to the listener; for how long nothing was left to play."""
        if self.dry_at is None:
            self.dry_at = now
        gap = max(0.0, now - self.dry_at)
        self.dry_at = max(self.dry_at, now) + seconds
        return gap

    def taken(self, now: float) -> None:
        """All that was put has left: what came too late till now was the transport's doing.

        A peer that reads slowly, or not at all, is not told from a listener who waits, and must
        not pass for one.
        """
        if self.dry_at is not None:
            self.dry_at = max(self.dry_at, now)
