"""The driver: an utterance from its segments to blocks of sound with word marks.

A segment is prepared once and rendered in windows. Silence is not rendered where it would only be
cut off again: Kokoro begins a segment with some 300 ms of it and ends with some 500 ms, as its
durations tell beforehand. They are not exact: where sound goes on, so does the rendering. What is
heard between two segments is the pause that the front end asks for. Marks follow the durations, in
the time of the sound that is really sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

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
from utterwire_server.text.segment import Segment, SpokenWord

__all__ = ["END_S", "LEAD_S", "SILENCE", "STREAMING", "Streaming", "Utterance"]

Streaming = Literal["window", "sentence"]
STREAMING: tuple[Streaming, ...] = ("window", "sentence")

#: Samples up to this are silence.
SILENCE: Final = 10 ** (-50 / 20)
#: Silence left before the first sound of a segment, in seconds.
LEAD_S: Final = 0.05
#: Silence left after the last sound of a segment that no pause follows, in seconds at most.
END_S: Final = 0.25
#: Sound comes so many frames before its phoneme, by the durations. (Kokoro's own time stamps take
#: the same off, and at the start of a sentence one sees it.)
_AHEAD_FRAMES: Final = 3
#: How much more is rendered where sound goes on at either end of what was thought to hold it all.
_MORE_FRAMES: Final = 10


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
        self._given_up = False
        self._made = 0
        self._zero = 0
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

    def give_up(self) -> None:
        """Begin nothing more: a call in progress in another thread raises `Interrupted`."""
        self._given_up = True

    def _go_on(self) -> None:
        if self._given_up:
            raise Interrupted

    def _next_block(self, acoustics: Acoustics) -> Block | None:
        self._go_on()
        before = np.zeros(0, np.float32)
        if (part := self._part) is None:
            segment = next(self._segments, None)
            if segment is None:
                return None
            self._go_on()
            self._part = part = self._begin(segment, acoustics)
            self._go_on()
            samples = part.render(acoustics)
            before = np.zeros(max(0, self._owed - part.lead), np.float32)
            # Where frame 0 of the segment would be in the utterance.
            self._zero = self._made + before.size - part.begins
        else:
            samples = part.render(acoustics)
        marks = tuple(
            WordMark(
                self._text[word.char_start : word.char_end],
                (self._zero + begin) / SAMPLE_RATE,
                (self._zero + end) / SAMPLE_RATE,
                word.char_start,
                word.char_end,
            )
            for word, begin, end in part.words()
        )
        if part.finished:
            self._part = None
            self._owed = round(part.segment.pause_s / self._speed * SAMPLE_RATE) - part.tail
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
        self._keep = round(keep_s * SAMPLE_RATE)
        edges = np.cumsum(prepared.durations[:-1])
        #: The frame at which the sound of each phoneme begins, and that at which the last ends.
        self._edges: list[int] = (edges - min(_AHEAD_FRAMES, int(edges[0]))).tolist()
        words = segment.words
        self._waiting = list(words)
        self._speech_stop = self._edges[words[-1].phoneme_end if words else -1]
        #: The latest that the sound that is sent may begin: it must hold the first word.
        self._begins_by = self._edges[words[0].phoneme_start if words else 0] * FRAME_SAMPLES
        self._plan = self._windows(first)
        self._window: Window | None = next(self._plan)
        self._first = True
        #: The sound that is sent so far: where it begins and ends, and where the last of it is.
        self.begins = self._ends = self._loud = 0
        #: Until when words were said to last.
        self._told = 0
        #: Silence before the first sound, and after the last.
        self.lead = self.tail = 0

    @property
    def finished(self) -> bool:
        """Whether all of it is rendered."""
        return self._window is None

    def _windows(self, first: int) -> Iterator[Window]:
        frames = self._prepared.frames
        if self._statistics is None:
            yield Window(0, frames)
            return
        start = max(0, self._edges[0] - math.ceil(LEAD_S / FRAME_S))
        stop = min(frames, self._speech_stop + math.ceil(self._keep / FRAME_SAMPLES) + 1)
        *most, last = windows(start, max(self._speech_stop, start + 1), first=first)
        yield from most
        yield Window(last.start, stop)
        while stop < frames and self._loud > (stop - 1) * FRAME_SAMPLES:
            start, stop = stop, min(frames, stop + _MORE_FRAMES)
            yield Window(start, stop)

    def render(self, acoustics: Acoustics) -> Samples:
        """The sound of the next window, without the silence that is cut off."""
        assert self._window is not None
        start, stop = self._window.start, self._window.stop
        samples = self._frames(acoustics, start, stop)
        loud = _loud(samples)
        if self._first:
            while start > 0 and loud.size and loud[0] < FRAME_SAMPLES:
                # Sound began even before.
                earlier = max(0, start - _MORE_FRAMES)
                samples = np.concatenate((self._frames(acoustics, earlier, start), samples))
                start, loud = earlier, _loud(samples)
        at = start * FRAME_SAMPLES
        begin, end = at, at + samples.size
        if loud.size:
            self._loud = at + int(loud[-1]) + 1
        if self._first:
            self._first = False
            onset = at + int(loud[0]) if loud.size else end
            begin = max(at, min(onset - round(LEAD_S * SAMPLE_RATE), self._begins_by))
            self.begins, self.lead = begin, onset - begin
        self._window = next(self._plan, None)
        if self.finished:
            least = max(self._loud + self._keep, self._told, self.begins)
            if self._waiting:
                least = max(least, self._start(self._waiting[-1]) + FRAME_SAMPLES)
            end = max(begin, min(end, least))
            self.tail = end - max(self._loud, self.begins)
        self._ends = end
        return samples[begin - at : end - at]

    def words(self) -> list[tuple[SpokenWord, int, int]]:
        """The words whose sound begins in what was rendered last: each with its begin and end.

        The duration of the last word holds silence after it; where the sound is known to the end
        of the segment, the word ends with it.
        """
        told = []
        while self._waiting and (self.finished or self._start(self._waiting[0]) < self._ends):
            word = self._waiting.pop(0)
            begin = self._start(word)
            end = self._edges[word.phoneme_end] * FRAME_SAMPLES
            if self.finished and not self._waiting:
                end = min(end, max(self._loud, begin + FRAME_SAMPLES))
            self._told = end
            told.append((word, begin, end))
        return told

    def _start(self, word: SpokenWord) -> int:
        return self._edges[word.phoneme_start] * FRAME_SAMPLES

    def _frames(self, acoustics: Acoustics, start: int, stop: int) -> Samples:
        samples = acoustics.render(self._prepared, start, stop, self._statistics)
        if samples.shape != ((stop - start) * FRAME_SAMPLES,):
            raise EngineError(f"Kokoro gave {samples.shape} samples for {stop - start} frames")
        return samples


def _loud(samples: Samples) -> npt.NDArray[np.intp]:
    """Where samples are no silence; those that are no numbers are not taken for it."""
    return np.flatnonzero(~(np.abs(samples) <= SILENCE))
