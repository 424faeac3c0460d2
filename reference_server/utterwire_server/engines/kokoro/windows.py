"""Which frames of a segment are rendered together: small windows first, then ever larger ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from utterwire_server.engines.kokoro.acoustics import CONTEXT_FRAMES

__all__ = ["FIRST_FRAMES", "LARGEST_FRAMES", "LATER_FRAMES", "Window", "windows"]

#: The first window of an utterance: half a second of sound, made in a fraction of it.
FIRST_FRAMES: Final = 20
#: The first window of its other segments, by when the listener has something in hand.
LATER_FRAMES: Final = 40
#: No window is larger, so that other utterances need not wait long for their turn.
LARGEST_FRAMES: Final = 160
#: What is left over joins the window before it if its context would cost more than itself.
_CRUMB_FRAMES: Final = 2 * CONTEXT_FRAMES


@dataclass(frozen=True, slots=True)
class Window:
    """The frames from ``start`` up to ``stop``."""

    start: int
    stop: int


def windows(
    start: int, stop: int, *, first: int = FIRST_FRAMES, largest: int = LARGEST_FRAMES
) -> Iterator[Window]:
    """Cut the frames ``start`` up to ``stop`` into windows, in order, each frame in one of them.

    The first has ``first`` frames, each other twice as many as the one before, up to ``largest``.
    The last may have fewer, or a few more.

    :raises ValueError: if ``first`` is not 1 to ``largest``.
    """
    if not 1 <= first <= largest:
        raise ValueError(f"the first window has {first} frames; it must be 1 to {largest}")
    size = first
    while start < stop:
        end = start + size
        if stop - end <= _CRUMB_FRAMES:
            end = stop
        yield Window(start, end)
        start = end
        size = min(2 * size, largest)
