"""How far ``utterwire say`` has come, on stderr."""

import sys
import time
from collections.abc import Callable
from typing import Protocol

from utterwire_client.events import SAMPLE_BYTES, Start

__all__ = ["Progress", "TextStream", "printable"]

# How often a line of its own is written where lines cannot be rewritten, in seconds of audio.
_LINE_EVERY_S = 10.0

# And of something that takes long, in seconds of time.
_STEP_EVERY_S = 30.0

# How often a rewritten line is, in seconds of time.
_REWRITE_EVERY_S = 0.1


class TextStream(Protocol):
    """What is needed of ``sys.stderr``."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...
    def isatty(self) -> bool: ...


def printable(text: str) -> str:
    """The text as one line that does nothing to a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


class Progress:
    """Writes lines to ``stream``: one that is rewritten on a terminal, plain lines elsewhere.

    ``quiet`` leaves out all but :meth:`note`. ``clock`` returns seconds. What cannot be written is
    lost, and nothing else: ``stream`` may be None, closed or full.
    """

    def __init__(
        self, stream: TextStream | None, *, quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._quiet = quiet
        self._clock = clock
        self._rewrites = stream is not None and stream.isatty()
        self._started_at = clock()
        self._requested = False
        self._drawn_at = -1.0
        self._drawn = False
        self._stepped_at = float("-inf")
        self._next_line_s = _LINE_EVERY_S
        self._start: Start | None = None
        self._bytes = 0
        self._first_byte_s: float | None = None
        self._first_sound_s: float | None = None
        self._worked_s: float | None = 0.0

    def hint(self, text: str) -> None:
        """Tell people at a terminal what they can do."""
        if self._rewrites:
            self._line(text)

    def requested(self, at: float | None = None) -> None:
        """The request was made, now or at a time of the clock; only the first counts."""
        if not self._requested:
            self._requested = True
            self._started_at = self._clock() if at is None else at

    def began(self, start: Start) -> None:
        self._start = start

    def audio(self, size: int) -> None:
        """So many more bytes of audio came."""
        self._bytes += size
        if self._first_byte_s is None:
            self._first_byte_s = self._clock() - self._started_at
            if not self._rewrites:
                self._line(f"first audio after {self._first_byte_s:.3f} s")
        if self._quiet:
            return
        if self._rewrites:
            now = self._clock()
            if now - self._drawn_at >= _REWRITE_EVERY_S:
                self._drawn_at = now
                self._draw(f"{self.amount()}, first after {self._first_byte_s:.3f} s")
        elif (seconds := self._seconds()) is not None and seconds >= self._next_line_s:
            self._next_line_s += _LINE_EVERY_S
            self._line(self.amount())

    def _seconds(self) -> float | None:
        width = SAMPLE_BYTES.get(self._start.format) if self._start else None
        return self._bytes / (width * self._start.sample_rate) if width and self._start else None

    def amount(self) -> str:
        """How much audio has come, in words."""
        seconds = self._seconds()
        if seconds is None:
            return f"{self._bytes} bytes of {self._start.format if self._start else 'audio'}"
        return f"{seconds:.2f} s of audio"

    def sounded(self, at_s: float) -> None:
        """The first sound is so far into the audio."""
        if self._first_byte_s is not None and self._first_sound_s is None:
            self._first_sound_s = self._first_byte_s + at_s

    def worked(self, elapsed_s: float | None) -> None:
        """An utterance is whole, on which the endpoint worked for so long, if it told."""
        if elapsed_s is None or self._worked_s is None:
            self._worked_s = None
        else:
            self._worked_s += elapsed_s

    def done(self, where: str | None) -> None:
        """All came and is in a file; or it was played."""
        told = [f"{self._clock() - self._started_at:.2f} s"]
        if self._first_byte_s is not None:
            told.append(f"first byte after {self._first_byte_s:.3f} s")
        if self._first_sound_s is not None:
            told.append(f"first sound after {self._first_sound_s:.3f} s")
        seconds = self._seconds()
        if seconds and self._worked_s:
            told.append(f"real-time factor {self._worked_s / seconds:.3f}")
        place = "played" if where is None else f"in {where}"
        self._line(f"{self.amount()} {place} ({', '.join(told)})")

    def step(self, text: str) -> None:
        """Where something long stands: the next step takes its place on a terminal; elsewhere it is
        told now and then."""
        if self._quiet:
            return
        if self._rewrites:
            self._draw(text)
        elif self._clock() - self._stepped_at >= _STEP_EVERY_S:
            self._stepped_at = self._clock()
            self._write(printable(text))

    def note(self, text: str) -> None:
        """A warning or an error: shown also when quiet."""
        self._write(printable(text))

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._write(printable(text))

    def _write(self, text: str) -> None:
        clear = "\r\x1b[K" if self._drawn else ""
        self._drawn = False
        self._put(f"{clear}{text}\n")

    def _draw(self, text: str) -> None:
        self._drawn = True
        self._put(f"\r{printable(text)}\x1b[K")

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # It keeps what it could not write. The interpreter would try again as it exits, and
            # turn the failure into its own exit status.
            if sys.stderr is self._stream:
                sys.stderr = None
            self._stream = None
