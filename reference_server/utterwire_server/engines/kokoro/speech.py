"""The driver: an utterance from its segments to blocks of sound with word marks.

A segment is prepared once and rendered in windows. Silence is not rendered where it would only be
cut off again: Kokoro begins a segment with some 300 ms of it and ends with some 500 ms, which its
durations tell beforehand. What is heard between two segments is the pause that the front end asks
for. Marks follow the durations, in the time of the sound that is really sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import numpy as np

from utterwire_server.engines.engine import Block, EngineError, Samples, WordMark
from utterwire_server.engines.kokoro.acoustics import (
    FRAME_S,
    FRAME_SAMPLES,
    SAMPLE_RATE,
    Acoustics,
    Interrupted,
    Prepared,
    Styles,
    tokens_of,
)
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.engines.kokoro.windows import FIRST_FRAMES, LATER_FRAMES, Window, windows
from utterwire_server.text.segment import Segment

__all__ = ["END_S", "LEAD_S", "SILENCE", "STREAMING", "Streaming", "Utterance"]

Streaming = Literal["window", "sentence"]
STREAMING: tuple[Streaming, ...] = ("window", "sentence")

#: Samples up to this are silence.
SILENCE: Final = 10 ** (-50 / 20)
#: Silence left before the first sound of a segment, in seconds.
LEAD_S: Final = 0.05
#: Silence left after the last sound of a segment that no pause follows, in seconds at most.
END_S: Final = 0.25
#: Sound may begin so many frames before the first phoneme does.
_LEAD_FRAMES: Final = 3
#: How much more is rendered where sound goes on after the last word.
_MORE_FRAMES: Final = 20


class Utterance:
    """One utterance in the making, block by block. Use it from one thread at a time.

    :param text: what is spoken, for the marks.
    :param segments: of the front end; taken one at a time, when its turn comes.
    :param styles: the voice.
    :param speed: a factor, as in `SpeechRequest`.
    :param statistics: of the voice, for windows; None renders each segment whole and exactly.
    """

    def __init__(
        self,
        text: str,
        segments: Iterable[Segment],
        *,
        vocabulary: Mapping[str, int],
        styles: Styles,
        speed: float,
        statistics: Statistics | None,
    ) -> None:
        self._text = text
        self._segments = iter(segments)
        self._vocabulary = vocabulary
        self._styles = styles
        self._speed = speed
        self._statistics = statistics
        self._part: _Part | None = None
        self._made = 0
        #: How much silence has still to be heard before the next sound, in samples.
        self._owed = 0

    def next_block(self, acoustics: Acoustics) -> Block | None:
        """Make the next block with ``acoustics``; None after the last one. Blocks the thread.

        After an exception the utterance is of no more use.

        :raises EngineError: if the front end or the model fails.
        :raises Interrupted: if `Acoustics.interrupt` gave the call up.
        """
        try:
            return self._next_block(acoustics)
        except (EngineError, Interrupted):
            raise
        except Exception as error:
            raise EngineError(f"Kokoro failed: {type(error).__name__}: {error}") from error

    def _next_block(self, acoustics: Acoustics) -> Block | None:
        marks: tuple[WordMark, ...] = ()
        before = np.zeros(0, np.float32)
        if self._part is None:
            segment = next(self._segments, None)
            if segment is None:
                return None
            self._part = part = self._begin(segment, acoustics)
            samples = part.render(acoustics)
            silent = part.lead
            before = np.zeros(max(0, self._owed - silent), np.float32)
            marks = self._marks(part, self._made + before.size)
        else:
            part = self._part
            samples = part.render(acoustics)
        if part.finished:
            self._part = None
            pause = round(part.segment.pause_s / self._speed * SAMPLE_RATE)
            self._owed = pause - part.tail
        block = Block(np.concatenate((before, samples)) if before.size else samples, marks)
        self._made += block.samples.size
        return block

    def _begin(self, segment: Segment, acoustics: Acoustics) -> _Part:
        tokens = tokens_of(segment.phonemes, self._vocabulary)
        style = self._styles[len(segment.phonemes) - 1]
        prepared = acoustics.prepare(tokens, style, self._speed)
        if prepared.durations.shape != (len(tokens),) or prepared.durations.min() < 1:
            raise EngineError("Kokoro gave durations that do not fit the phonemes")
        first = LATER_FRAMES if self._made else FIRST_FRAMES
        pause_s = segment.pause_s / self._speed
        keep_s = max(pause_s - LEAD_S, 0.0) if pause_s else END_S
        return _Part(segment, prepared, self._statistics, first, keep_s)

    def _marks(self, part: _Part, begins: int) -> tuple[WordMark, ...]:
        """The words of a segment whose sound begins ``begins`` samples into the utterance."""
        zero = begins - part.begins
        return tuple(
            WordMark(
                self._text[word.char_start : word.char_end],
                (zero + part.edges[word.phoneme_start] * FRAME_SAMPLES) / SAMPLE_RATE,
                (zero + part.edges[word.phoneme_end] * FRAME_SAMPLES) / SAMPLE_RATE,
                word.char_start,
                word.char_end,
            )
            for word in part.segment.words
        )


class _Part:
    """A segment in the making. Positions in its sound are samples from its first frame.

    :param first: how many frames the first window has.
    :param keep_s: the most silence that is left at its end, in seconds.
    """

    def __init__(
        self,
        segment: Segment,
        prepared: Prepared,
        statistics: Statistics | None,
        first: int,
        keep_s: float,
    ) -> None:
        self.segment = segment
        self._prepared = prepared
        self._statistics = statistics
        self._keep_s = keep_s
        #: The frame at which each phoneme begins, and that at which the last one ends.
        self.edges: list[int] = np.cumsum(prepared.durations[:-1]).tolist()
        words = segment.words
        speech_start = self.edges[words[0].phoneme_start if words else 0]
        self._speech_stop = self.edges[words[-1].phoneme_end if words else -1]
        self._latest_start = speech_start * FRAME_SAMPLES
        self._plan = self._windows(first)
        self._window = next(self._plan)
        #: Where the last sound so far ends.
        self._loud = 0
        self._first = True
        #: Where the sound that is sent begins.
        self.begins = 0
        self._ends = 0
        self.finished = False
        #: Silence before the first sound, and after the last, in samples.
        self.lead = 0
        self.tail = 0

    def _windows(self, first: int) -> Iterator[Window]:
        frames = self._prepared.frames
        if self._statistics is None:
            yield Window(0, frames)
            return
        start = max(0, self.edges[0] - _LEAD_FRAMES)
        stop = min(frames, self._speech_stop + math.ceil(self._keep_s / FRAME_S) + 1)
        *most, last = windows(start, max(self._speech_stop, start + 1), first=first)
        yield from most
        yield Window(last.start, stop)
        while stop < frames and self._loud > (stop - 1) * FRAME_SAMPLES:
            start, stop = stop, min(frames, stop + _MORE_FRAMES)
            yield Window(start, stop)

    def render(self, acoustics: Acoustics) -> Samples:
        """The sound of the next window, without the silence that is cut off."""
        window = self._window
        samples = acoustics.render(self._prepared, window.start, window.stop, self._statistics)
        if samples.shape != ((window.stop - window.start) * FRAME_SAMPLES,):
            raise EngineError(f"Kokoro gave {samples.shape} samples for {window}")
        at = window.start * FRAME_SAMPLES
        loud = np.flatnonzero(~(np.abs(samples) <= SILENCE))
        if loud.size:
            self._loud = at + int(loud[-1]) + 1
        begin = at
        if self._first:
            self._first = False
            onset = at + int(loud[0]) if loud.size else at + samples.size
            begin = max(at, min(onset - round(LEAD_S * SAMPLE_RATE), self._latest_start))
            self.begins, self.lead = begin, onset - begin
        end = at + samples.size
        following = next(self._plan, None)
        if following is None:
            self.finished = True
            wanted = self._loud + round(self._keep_s * SAMPLE_RATE)
            end = max(begin, min(end, max(wanted, self._speech_stop * FRAME_SAMPLES)))
            self.tail = max(0, end - max(self._loud, self.begins))
        else:
            self._window = following
        return samples[begin - at : end - at]
