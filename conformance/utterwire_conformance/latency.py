"""What a listener waits for, measured in transcripts: first byte, first sound, gaps.

It is reported, never judged. *First byte* runs from the last frame of a request to the first
chunk of its audio (a `synthesis_start` does not count). *First sound* is later by the silence at
the beginning of the audio: up to the first 10 ms window, moved in steps of 1 ms, from which on
the level (RMS, the mean removed) stays at -40 dBFS or above for 50 ms. A *gap* is a time in which
a player that began with the first chunk has nothing left to play before the next one comes.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import Any, Final

from .dialogue import Dialogue, Utterance, dialogues
from .exchange import Exchange, exchanges
from .transcript import Transcript

__all__ = ["Sample", "Spread", "gaps", "leading_silence", "measure", "samples", "spreads"]

_WINDOW_S: Final = 0.010
_HOP_S: Final = 0.001
_HELD_S: Final = 0.050
_THRESHOLD: Final = 32_768 * 10 ** (-40 / 20)
_LEAST_GAP_S: Final = 0.001
_MOST_SAMPLES: Final = 500
# Looking for the first sound further than that would take long and tell nothing more.
_MOST_SILENCE_S: Final = 30.0
_PCM: Final = "pcm_s16le"
_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured on one utterance; times in seconds, `gaps` the length of each.

    `alone` tells whether the suite played nothing else meanwhile. `first_sound` is None where the
    audio is not PCM, or silent.
    """

    transcript: str
    session: int
    seq: int
    transport: str
    characters: int
    alone: bool
    first_byte: float
    first_sound: float | None = None
    audio: float | None = None
    gaps: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The sample as the schema `report` has it."""
        line: dict[str, Any] = {
            "transcript": self.transcript,
            "session": self.session,
            "seq": self.seq,
            "transport": self.transport,
            "characters": self.characters,
            "alone": self.alone,
            "first_byte_s": round(self.first_byte, 6),
        }
        if self.first_sound is not None:
            line["first_sound_s"] = round(self.first_sound, 6)
        if self.audio is not None:
            line["audio_s"] = round(self.audio, 6)
            line["gaps_s"] = [round(gap, 6) for gap in self.gaps]
        return line


@dataclass(frozen=True, slots=True)
class Spread:
    """How a measure is spread over its samples, in seconds."""

    count: int
    median: float
    p90: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of some values; None where there are none."""
        if not values:
            return None
        ordered = sorted(values)
        # The nearest rank: a value that was measured, not one in between.
        rank = max(0, math.ceil(0.9 * len(ordered)) - 1)
        return cls(len(ordered), median(ordered), ordered[rank], ordered[-1])

    def to_json(self) -> dict[str, float]:
        """The spread as the schema `report` has it."""
        return {
            "count": self.count,
            "median": round(self.median, 6),
            "p90": round(self.p90, 6),
            "max": round(self.max, 6),
        }


def leading_silence(pcm: bytes, sample_rate: int) -> float | None:
    """Seconds before the first sound in mono 16-bit PCM; None where all of it is silent."""
    values = array("h", pcm[: len(pcm) // _BYTES * _BYTES][: _most_bytes(sample_rate)])
    if sys.byteorder == "big":
        values.byteswap()
    window = max(1, round(_WINDOW_S * sample_rate))
    sums = [0, *accumulate(values)]
    squares = [0, *accumulate(value * value for value in values)]
    needed = round((_HELD_S - _WINDOW_S) / _HOP_S) + 1
    held = 0
    for step in range(_steps(len(values), window, sample_rate)):
        start = round(step * _HOP_S * sample_rate)
        total = sums[start + window] - sums[start]
        power = squares[start + window] - squares[start]
        loud = power * window - total * total >= (_THRESHOLD * window) ** 2
        held = held + 1 if loud else 0
        if held == needed:
            return (step - needed + 1) * _HOP_S
    return None


def _most_bytes(sample_rate: int) -> int:
    return int(_MOST_SILENCE_S * sample_rate) * _BYTES


def _steps(length: int, window: int, sample_rate: int) -> int:
    """How many windows begin early enough to be whole."""
    last = length - window
    if last < 0:
        return 0
    steps = int(last / (_HOP_S * sample_rate)) + 1
    return steps if round((steps - 1) * _HOP_S * sample_rate) <= last else steps - 1


def gaps(chunks: Iterable[tuple[float, int]], rate: float) -> tuple[float, ...]:
    """The times without anything to play; `chunks` are (time, bytes), `rate` in bytes a second."""
    found = []
    empty: float | None = None  # When the player has played all that came so far.
    for t, size in chunks:
        if empty is not None and t - empty >= _LEAST_GAP_S:
            found.append(t - empty)
        empty = max(t, empty if empty is not None else t) + size / rate
    return tuple(found)


def samples(transcript: Transcript) -> Iterator[Sample]:
    """What can be measured in one transcript."""
    alone = transcript.scenario == "probe"
    for dialogue in dialogues([transcript]):
        if "reading" in dialogue.facts:
            continue  # The suite itself held up what came.
        for utterance in dialogue.utterances.values():
            sample = _of_utterance(dialogue, utterance, alone)
            if sample is not None:
                yield sample
    for session in transcript.sessions():
        if transcript.is_http(session):
            for number, exchange in enumerate(exchanges(transcript.session(session)), 1):
                sample = _of_exchange(transcript.scenario, number, exchange, alone)
                if sample is not None:
                    yield sample


def _of_utterance(dialogue: Dialogue, utterance: Utterance, alone: bool) -> Sample | None:
    if utterance.start is None or not utterance.audio or utterance.complete is None:
        return None
    if _had_to_wait(dialogue, utterance):
        return None
    fields = utterance.start.fields
    first = utterance.audio[0].t - utterance.sent.t
    made = Sample(
        dialogue.scenario,
        dialogue.session,
        utterance.seq,
        "websocket",
        len(utterance.sent.meaning.text),
        alone,
        first,
    )
    rate = fields.get("sample_rate")
    if fields.get("format") != _PCM or not isinstance(rate, int) or rate <= 0:
        return made
    silence = leading_silence(utterance.pcm, rate)
    return replace(
        made,
        first_sound=None if silence is None else first + silence,
        audio=len(utterance.pcm) / _BYTES / rate,
        gaps=gaps(((chunk.t, len(chunk.data)) for chunk in utterance.audio), rate * _BYTES),
    )


def _had_to_wait(dialogue: Dialogue, utterance: Utterance) -> bool:
    """Whether others were before it when it was sent, so that it waited for them."""
    return any(
        other.seq < utterance.seq
        and other.starts
        and (other.terminal is None or other.terminal.t > utterance.sent.t)
        for other in dialogue.utterances.values()
    )


def _of_exchange(scenario: str, number: int, exchange: Exchange, alone: bool) -> Sample | None:
    if not exchange.is_synthesis or exchange.status != 200 or exchange.first_byte_t is None:
        return None
    text = exchange.request.get("text")
    return Sample(
        scenario,
        exchange.session,
        number,
        "http",
        len(text) if isinstance(text, str) else 0,
        alone,
        exchange.first_byte_t - exchange.sent_t,
    )


def spreads(measured: Sequence[Sample]) -> dict[str, Spread]:
    """The spreads of all samples of sessions, by the name of the measure."""
    own = [sample for sample in measured if sample.transport == "websocket"]
    measures = {
        "first_byte_s": [sample.first_byte for sample in own],
        "first_sound_s": [s.first_sound for s in own if s.first_sound is not None],
        "gap_s": [gap for sample in own for gap in sample.gaps],
    }
    found = {name: Spread.of(values) for name, values in measures.items()}
    return {name: spread for name, spread in found.items() if spread is not None}


def measure(transcripts: Iterable[Transcript]) -> dict[str, Any]:
    """The object `latency` of the schema `report`; of a great many samples, those first by name."""
    ordered = sorted(transcripts, key=lambda transcript: transcript.scenario)
    found = [s for t in ordered if t.role == "endpoint" for s in samples(t)]
    return {"samples": [sample.to_json() for sample in found[:_MOST_SAMPLES]]} | {
        name: spread.to_json() for name, spread in spreads(found).items()
    }
