"""One conversation, measured: when each sentence was ready, sent, received and heard.

The words are those of the schema ``latency`` of :mod:`utterwire_schemas`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from utterwire_client.events import SAMPLE_BYTES, Audio, Complete, Start
from utterwire_client.player import Player
from utterwire_client.sentence import SpeechEvent, Spoken
from utterwire_client.sound import SoundFinder
from utterwire_client.speech import Chunker

__all__ = ["Waterfall"]


@dataclass(slots=True)
class _Row:
    """A sentence; times of the clock."""

    index: int
    text: str
    began_at: float
    ready_at: float
    sent_at: float = 0.0
    first_byte_at: float | None = None
    last_byte_at: float | None = None
    heard_at: float | None = None
    heard_to: float | None = None
    silence_s: float | None = None
    audio_s: float | None = None
    elapsed_s: float | None = None
    audio_bytes: int = 0
    chunks: int = 0
    gap_s: float = 0.0
    stall_s: float = 0.0
    finder: SoundFinder | None = None


class _Listener(Player):
    """A player without an output that remembers when the last piece was scheduled."""

    def __init__(self, *, clock: Callable[[], float], lead_s: float) -> None:
        super().__init__(clock=clock, lead_s=lead_s)
        self.last_at = 0.0
        self.late_s = 0.0

    async def play(self, data: bytes, start: Start) -> None:
        gaps = self.playback.gap_s
        self.last_at = self._queue(data, start)
        self.late_s = self.playback.gap_s - gaps


class Waterfall:
    """Give its :attr:`chunker` and its :attr:`player` to ``speak``, and :meth:`take` all that the
    speech yields; :meth:`document` is the result.

    ``chunker`` is the one to measure. ``clock`` is that of the event loop. ``lead_s`` is how long
    the player that is taken for granted holds back the first audio after silence.
    """

    def __init__(
        self,
        chunker: Chunker,
        *,
        lead_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._listener = _Listener(clock=clock, lead_s=lead_s)
        self._lead_s = lead_s
        timed = _Timed(chunker, clock)
        self.chunker: Chunker = timed
        self._pieces = timed.pieces
        self._rows: list[_Row] = []
        self._start: Start | None = None

    @property
    def player(self) -> Player:
        """What hears it."""
        return self._listener

    def take(self, event: SpeechEvent) -> None:
        """The next event of the speech, as soon as it is yielded."""
        if not isinstance(event, Spoken):
            return
        sentence, what = event.sentence, event.event
        if not self._rows or self._rows[-1].index != sentence.index:
            began_at, ready_at = self._pieces[sentence.index]
            self._rows.append(_Row(sentence.index, sentence.spoken or "", began_at, ready_at))
        row = self._rows[-1]
        match what:
            case Start():
                row.sent_at = event.utterance.inbox.submitted_at
                self._start = self._start or what
                if what.format == "pcm_s16le":
                    row.finder = SoundFinder(what.sample_rate)
            case Audio():
                self._hear(row, event, what)
            case Complete():
                row.last_byte_at = self._clock()
                row.elapsed_s = what.elapsed_s
                if row.audio_s is None:
                    row.audio_s = what.duration_s
                    if row.heard_at is not None and row.audio_s is not None:
                        row.heard_to = row.heard_at + row.audio_s

    def _hear(self, row: _Row, event: Spoken, audio: Audio) -> None:
        assert self._start is not None
        row.chunks += 1
        row.audio_bytes += len(audio.data)
        if row.heard_at is None:
            row.first_byte_at = event.utterance.inbox.first_audio_at
            row.heard_at = self._listener.last_at
            row.gap_s = self._listener.late_s
        else:
            row.stall_s += self._listener.late_s
        width = SAMPLE_BYTES.get(self._start.format)
        if width:
            rate = width * self._start.sample_rate
            row.audio_s = row.audio_bytes / rate
            row.heard_to = self._listener.last_at + len(audio.data) / rate
        if row.finder is not None and row.silence_s is None:
            row.silence_s = row.finder.feed(audio.data)

    def document(
        self, *, made_by: str, endpoint: dict[str, str], options: dict[str, Any]
    ) -> dict[str, Any]:
        """The result, in the form of the schema ``latency``. Raises ``ValueError`` if no text
        came."""
        if not self._pieces:
            raise ValueError("there is no text")
        zero = self._pieces[0][0]
        now = datetime.now(UTC).timestamp() - (self._clock() - zero)
        started = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        first = next((row for row in self._rows if row.first_byte_at is not None), None)
        audio_s = sum(row.audio_s or 0.0 for row in self._rows)
        works = [row.elapsed_s for row in self._rows if row.elapsed_s is not None]
        known = bool(self._rows) and len(works) == len(self._rows) and audio_s > 0
        ends = [row.last_byte_at for row in self._rows if row.last_byte_at is not None]
        summary = {
            "first_byte_s": None if first is None else _between(first.sent_at, first.first_byte_at),
            "first_sound_s": None if first is None else _between(first.sent_at, _sound_at(first)),
            "heard_s": None if first is None else _between(zero, first.heard_at),
            "gaps": sum(row.gap_s > 0 for row in self._rows),
            "gap_s": _rounded(sum(row.gap_s for row in self._rows)),
            "stall_s": _rounded(sum(row.stall_s for row in self._rows)),
            "audio_s": _rounded(audio_s),
            "duration_s": _between(zero, max(ends, default=zero)),
            "real_time_factor": _rounded(sum(works) / audio_s) if known else None,
        }
        audio = None
        if self._start is not None:
            audio = {"format": self._start.format, "sample_rate": self._start.sample_rate}
        return {
            "utterwire_latency": 1,
            "made_by": made_by,
            "started": started.replace("+00:00", "Z"),
            "endpoint": endpoint,
            "options": {**options, "lead_s": self._lead_s},
            "audio": audio,
            "sentences": [_described(row, zero) for row in self._rows],
            "summary": summary,
        }


class _Timed:
    """A chunker that remembers when the text of each piece began and was complete."""

    def __init__(self, chunker: Chunker, clock: Callable[[], float]) -> None:
        self._chunker = chunker
        self._clock = clock
        self._arrivals: list[tuple[int, float]] = []  # where text ended that came at a time
        self._fed = 0
        self._taken = 0
        self.pieces: list[tuple[float, float]] = []

    def feed(self, fragment: str) -> list[str]:
        self._fed += len(fragment)
        self._arrivals.append((self._fed, self._clock()))
        return self._took(self._chunker.feed(fragment))

    def flush(self) -> list[str]:
        return self._took(self._chunker.flush())

    def _took(self, pieces: list[str]) -> list[str]:
        now = self._clock()
        for piece in pieces:
            # White space before a sentence belongs to it, and is not its beginning.
            begins = self._taken + len(piece) - len(piece.lstrip())
            while len(self._arrivals) > 1 and self._arrivals[0][0] <= begins:
                del self._arrivals[0]
            self.pieces.append((self._arrivals[0][1] if self._arrivals else now, now))
            self._taken += len(piece)
        return pieces


def _sound_at(row: _Row) -> float | None:
    if row.first_byte_at is None or row.silence_s is None:
        return None
    return row.first_byte_at + row.silence_s


def _between(earlier: float, later: float | None) -> float | None:
    return None if later is None else _rounded(max(later - earlier, 0.0))


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


def _described(row: _Row, zero: float) -> dict[str, Any]:
    return {
        "index": row.index,
        "text": row.text,
        "text_began_s": _between(zero, row.began_at),
        "text_ready_s": _between(zero, row.ready_at),
        "sent_s": _between(zero, row.sent_at),
        "first_byte_s": _between(zero, row.first_byte_at),
        "first_sound_s": _between(zero, _sound_at(row)),
        "last_byte_s": _between(zero, row.last_byte_at),
        "heard_s": _between(zero, row.heard_at),
        "heard_to_s": _between(zero, row.heard_to),
        "audio_s": None if row.audio_s is None else _rounded(row.audio_s),
        "audio_bytes": row.audio_bytes,
        "chunks": row.chunks,
        "gap_s": _rounded(row.gap_s),
        "stall_s": _rounded(row.stall_s),
    }
