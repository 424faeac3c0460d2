"""One run, out of what the page told of it and recorded: every sample that its player rendered."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from utterwire_client.listening.figures import Figures

__all__ = ["Recording", "Run", "run_of"]

_SAMPLE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Run:
    """An answer that was listened to.

    ``exact`` tells whether what was rendered is what came, sample for sample; None where that
    cannot be told.
    """

    figures: Figures
    exact: bool | None


class Recording:
    """Samples of the player's output, 32-bit floats, from a frame of its clock on.

    What the browser left out, and where audio was late, are ``holes``: pairs of frames, from and
    to.
    """

    def __init__(self, first: int, samples: bytes, holes: Sequence[Sequence[int]]) -> None:
        self._first = first
        self._samples = samples
        self._holes = sorted((int(start), int(end)) for start, end in holes)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Recording:
        """As the page gives it, in base64."""
        return cls(told["first"], base64.b64decode(told["samples"]), told["holes"])

    def between(self, start: int, end: int) -> bytes:
        """What was rendered in the frames from ``start`` up to ``end``, without the holes."""
        kept = bytearray()
        at = start
        for hole_start, hole_end in self._holes:
            if hole_end > at and hole_start < end:
                kept += self._cut(at, max(at, hole_start))
                at = max(at, hole_end)
        return bytes(kept + self._cut(at, max(at, end)))

    def silent_from(self, frame: int) -> int:
        """The first frame, not before that one, after which every recorded sample is zero."""
        rest = self._cut(frame, self._first + len(self._samples) // _SAMPLE_BYTES)
        # A sample is zero if its four bytes are; a negative zero is none that a player makes.
        sounding = -(-len(rest.rstrip(b"\0")) // _SAMPLE_BYTES)
        return frame + sounding

    def _cut(self, start: int, end: int) -> bytes:
        low, high = max(start - self._first, 0), max(end - self._first, 0)
        return self._samples[low * _SAMPLE_BYTES : high * _SAMPLE_BYTES]


def run_of(told: Mapping[str, Any]) -> Run:
    """What the page told of a run that did not fail."""
    document = told["document"]
    summary = document["summary"]
    rows = document["sentences"]
    first = next((row for row in rows if row["first_byte_s"] is not None), None)
    heard = [row["heard_to_s"] for row in rows if row["heard_to_s"] is not None]
    recording = Recording.of(told["recording"])
    rate = told["sample_rate"]
    return Run(
        figures=Figures(
            first_byte_s=summary["first_byte_s"],
            first_sound_s=summary["first_sound_s"],
            heard_s=summary["heard_s"],
            byte_to_heard_s=None if first is None else _between(first, "first_byte_s", "heard_s"),
            heard_to_s=max(heard, default=None),
            gaps=summary["gaps"],
            gap_s=summary["gap_s"],
            underruns=summary["underruns"],
            stall_s=summary["stall_s"],
            skipped_s=_rounded(told["skipped"] / rate),
            silence_s=_silence_s(told["interruption"], recording, rate),
        ),
        exact=_exact(told, recording),
    )


def _between(row: Mapping[str, Any], earlier: str, later: str) -> float | None:
    return None if row[later] is None else _rounded(row[later] - row[earlier])


def _silence_s(told: Mapping[str, Any] | None, recording: Recording, rate: float) -> float | None:
    if told is None:
        return None
    fading = recording.silent_from(told["frame"]) - told["frame"]
    return _rounded((told["audible_at"] - told["clicked_at"]) / 1000 + fading / rate)


def _exact(told: Mapping[str, Any], recording: Recording) -> bool | None:
    interruption = told["interruption"]
    for utterance in told["utterances"]:
        if utterance["sample_rate"] != told["sample_rate"]:
            return None
        if utterance["begin"] is None:
            continue
        sent = base64.b64decode(utterance["samples"])
        end = utterance["end"]
        if end is None:
            if interruption is None:
                return False
            heard = recording.between(utterance["begin"], interruption["frame"])
            same = _same(heard, sent[: len(heard)])
        else:
            same = _same(recording.between(utterance["begin"], end), sent)
        if not same:
            return False
    return True


def _same(one: bytes, other: bytes) -> bool:
    # Zero has two forms, which sound alike.
    return one == other or _floats(one) == _floats(other)


def _floats(samples: bytes) -> array[float]:
    floats = array("f")
    floats.frombytes(samples)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


def _rounded(seconds: float) -> float:
    return round(max(seconds, 0.0), 6)
