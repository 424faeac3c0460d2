"""The driver of Kokoro without its model: windows, silence, pauses and marks agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from utterwire_server.engines import Block, EngineError
from utterwire_server.engines.kokoro.acoustics import (
    CONTEXT_FRAMES,
    Interrupted,
    Prepared,
    tokens_of,
)
from utterwire_server.engines.kokoro.speech import END_S, LEAD_S, Utterance
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.engines.kokoro.windows import (
    FIRST_FRAMES,
    LARGEST_FRAMES,
    LATER_FRAMES,
    windows,
)
from utterwire_server.marks import WordTimes
from utterwire_server.text.segment import Segment, SpokenWord

RATE = 24_000
FRAME = 600
#: Letters sound for as many frames as their place in the alphabet says, twice; `,` and ` ` are
#: silent for 5 and 1.
VOCABULARY = {letter: 2 * (index + 1) for index, letter in enumerate("abcdefgh")} | {",": 5, " ": 1}
STYLES = np.zeros((510, 256), np.float32)
FIXED = Statistics(np.zeros(4, np.float32), np.ones(4, np.float32), 1)


def segment_of(text: str, offset: int = 0, pause_s: float = 0.0) -> Segment:
    """A segment whose phonemes are its text."""
    words = []
    start = None
    for index, letter in enumerate(text + " "):
        if letter.isalpha() and start is None:
            start = index
        if not letter.isalpha() and start is not None:
            words.append(SpokenWord(offset + start, offset + index, start, index))
            start = None
    return Segment(text, tuple(words), offset, offset + len(text), pause_s)


def segments_of(*texts: str, pause_s: float = 0.3) -> tuple[str, list[Segment]]:
    """A text of several segments, with a pause after each but the last."""
    segments, offset = [], 0
    for index, text in enumerate(texts):
        segments.append(segment_of(text, offset, pause_s if index + 1 < len(texts) else 0.0))
        offset += len(text)
    return "".join(texts), segments


def utterance_of(
    text: str,
    segments: Any,
    *,
    statistics: Statistics | None = FIXED,
    speed: float = 1.0,
) -> Utterance:
    return Utterance(
        text,
        segments,
        vocabulary=VOCABULARY,
        styles=STYLES,
        speed=speed,
        statistics=statistics,
    )


def blocks_of(utterance: Utterance, acoustics: Any) -> Iterator[Block]:
    while (block := utterance.next_block(acoustics)) is not None:
        yield block


def samples_of(blocks: list[Block]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.float32), *(block.samples for block in blocks)])


@given(
    st.integers(0, 500),
    st.integers(0, 3_000),
    st.integers(1, 200),
    st.integers(1, 200),
)
def test_windows_hold_each_frame_once_and_grow(
    start: int, length: int, first: int, more: int
) -> None:
    largest = first + more
    cut = list(windows(start, start + length, first=first, largest=largest))
    assert [frame for window in cut for frame in range(window.start, window.stop)] == list(
        range(start, start + length)
    )
    sizes = [window.stop - window.start for window in cut]
    for index, size in enumerate(sizes[:-1]):
        assert size == min(first * 2**index, largest)
    if len(sizes) > 1:
        # What is left over costs no more in context than it brings.
        assert 2 * CONTEXT_FRAMES < sizes[-1] <= largest + 2 * CONTEXT_FRAMES or first == sizes[-1]


@pytest.mark.parametrize(
    ("stop", "sizes"),
    [
        (0, []),
        (1, [1]),
        (20, [20]),
        (30, [30]),
        (31, [20, 11]),
        (60, [20, 40]),
        (470, [20, 40, 80, 160, 170]),
        (471, [20, 40, 80, 160, 160, 11]),
    ],
)
def test_windows_grow_from_half_a_second_to_four(stop: int, sizes: list[int]) -> None:
    assert [window.stop - window.start for window in windows(0, stop)] == sizes


@pytest.mark.parametrize("first", [0, LARGEST_FRAMES + 1])
def test_a_first_window_out_of_range_is_refused(first: int) -> None:
    with pytest.raises(ValueError, match="the first window has"):
        next(windows(0, 100, first=first))


words = st.text("abcdefgh", min_size=1, max_size=8)
phrases = st.lists(words, min_size=1, max_size=8).map(" ".join)


@settings(deadline=None, max_examples=50)
@given(
    texts=st.lists(phrases, min_size=1, max_size=4),
    lead=st.integers(3, 30),
    tail=st.integers(1, 40),
    speed=st.sampled_from([0.5, 0.8, 1.0, 1.7, 2.0]),
    pause_s=st.sampled_from([0.0, 0.02, 0.3, 2.0]),
    statistics=st.sampled_from([FIXED, None]),
)
@example(["a"], 3, 1, 1.0, 0.3, FIXED)
@example(["a", "h" * 60], 12, 20, 1.0, 0.3, FIXED)
def test_all_sound_is_heard_once_and_marks_tell_where(
    sounding_positions: Any,
    texts: list[str],
    lead: int,
    tail: int,
    speed: float,
    pause_s: float,
    statistics: Statistics | None,
) -> None:
    text, segments = segments_of(*texts, pause_s=pause_s)
    acoustics = sounding_positions(lead, tail)
    blocks = list(
        blocks_of(utterance_of(text, segments, statistics=statistics, speed=speed), acoustics)
    )
    samples = samples_of(blocks)

    # Every sample that sounds is there, once, in order.
    expected = [
        acoustics.prepare(tokens_of(part.phonemes, VOCABULARY), STYLES[0], speed).handle
        for part in segments
    ]
    assert np.array_equal(samples[samples != 0], np.concatenate([e[e != 0] for e in expected]))

    # The server takes the marks, and each word sounds exactly where it says.
    times, made = WordTimes(text), 0.0
    told = []
    for block in blocks:
        told += times.words(block.marks, made)
        made += block.samples.size / RATE
    assert [(word.char_start, word.char_end) for word in told] == [
        (word.char_start, word.char_end) for part in segments for word in part.words
    ]
    sounding = np.zeros(samples.size, bool)
    for word in told:
        assert word.text == text[word.char_start : word.char_end]
        begin, end = round(word.start_s * RATE), round(word.end_s * RATE)
        assert end <= samples.size
        sounding[begin:end] = True
    assert np.array_equal(sounding, samples != 0)


@pytest.mark.parametrize("statistics", [FIXED, None])
def test_silence_at_both_ends_is_cut_to_what_is_wanted(
    sounding_positions: Any, statistics: Statistics | None
) -> None:
    acoustics = sounding_positions(12, 20)
    samples = samples_of(
        list(blocks_of(utterance_of(*segments_of("abc"), statistics=statistics), acoustics))
    )
    loud = np.flatnonzero(samples)
    assert loud[0] == round(LEAD_S * RATE)
    assert samples.size - 1 - loud[-1] == round(END_S * RATE)


@pytest.mark.parametrize("statistics", [FIXED, None])
@pytest.mark.parametrize(("speed", "heard_s"), [(1.0, 0.4), (2.0, 0.2), (0.5, 0.8)])
def test_the_pause_between_two_segments_is_the_one_asked_for(
    sounding_positions: Any, statistics: Statistics | None, speed: float, heard_s: float
) -> None:
    text, segments = segments_of("hhh", "aaa", pause_s=0.4)
    utterance = utterance_of(text, segments, statistics=statistics, speed=speed)
    loud = np.flatnonzero(samples_of(list(blocks_of(utterance, sounding_positions()))))
    gaps = np.diff(loud)
    assert gaps.max() - 1 == round(heard_s * RATE)
    assert (gaps > 1).sum() == 1


def test_silence_is_not_rendered_where_it_would_be_cut_off(sounding_positions: Any) -> None:
    acoustics = sounding_positions(lead=30, tail=40)
    list(blocks_of(utterance_of(*segments_of("hhhh")), acoustics))
    speech = 4 * 16
    assert acoustics.spoken[0][0] == 30 - 3 - 2
    assert acoustics.spoken[-1][1] == 30 - 3 + speech + math.ceil(END_S * RATE / FRAME) + 1
    assert all(
        stop == start
        for (_, stop, _), (start, _, _) in zip(acoustics.spoken, acoustics.spoken[1:], strict=False)
    )


def test_sound_after_the_last_word_is_rendered_to_its_end(sounding_positions: Any) -> None:
    # The last phonemes sound, but belong to no word.
    segment = Segment("ab" + "h" * 5, (SpokenWord(0, 2, 0, 2),), 0, 7)
    acoustics = sounding_positions(tail=60)
    samples = samples_of(list(blocks_of(utterance_of("abhhhhh", [segment]), acoustics)))
    assert np.count_nonzero(samples) == (2 + 4 + 5 * 16) * FRAME
    assert acoustics.spoken[-1][1] < 12 + 86 + 60
    assert samples[-1] == 0


def test_sound_before_the_first_phoneme_is_rendered_from_its_beginning(
    sounding_positions: Any,
) -> None:
    # The first phonemes sound, but the model says that they belong to the silence before them.
    class Early(sounding_positions):  # type: ignore[misc]
        def prepare(self, tokens: Any, style: Any, speed: float) -> Prepared:
            prepared = super().prepare(tokens, style, speed)
            assert isinstance(prepared, Prepared)
            return Prepared(prepared.durations, np.roll(prepared.handle, -12 * FRAME))

    acoustics = Early(lead=40)
    blocks = list(blocks_of(utterance_of(*segments_of("hhhh")), acoustics))
    samples = samples_of(blocks)
    assert np.count_nonzero(samples) == 4 * 16 * FRAME
    assert np.flatnonzero(samples)[0] == round(LEAD_S * RATE)
    assert acoustics.spoken[1] == (25, 35, True)
    assert acoustics.spoken[2] == (15, 25, True)


def test_windows_begin_small_and_later_segments_go_on_larger(sounding_positions: Any) -> None:
    acoustics = sounding_positions()
    list(blocks_of(utterance_of(*segments_of("h" * 40, "h" * 40)), acoustics))
    sizes = [stop - start for start, stop, _ in acoustics.spoken]
    assert sizes[:4] == [FIRST_FRAMES, 2 * FIRST_FRAMES, 80, LARGEST_FRAMES]
    assert LATER_FRAMES in sizes[4:]
    assert FIRST_FRAMES not in sizes[4:]


def test_a_segment_is_taken_only_when_its_turn_comes(sounding_positions: Any) -> None:
    taken = []

    def front_end() -> Iterator[Segment]:
        for index, segment in enumerate(segments_of("hhhh", "a", "b")[1]):
            taken.append(index)
            yield segment

    acoustics = sounding_positions()
    utterance = utterance_of("hhhhab", front_end())
    assert not taken
    utterance.next_block(acoustics)
    assert taken == [0]
    assert acoustics.prepared == 1
    utterance.next_block(acoustics)
    assert taken == [0]


def test_marks_come_with_the_block_in_which_their_word_begins(sounding_positions: Any) -> None:
    text, segments = segments_of("hh hh hh", "hh hh")
    made = 0.0
    for block in blocks_of(utterance_of(text, segments), sounding_positions()):
        ends = made + block.samples.size / RATE
        assert all(made <= mark.start_s < ends for mark in block.marks)
        made = ends


def test_the_last_word_ends_with_its_sound(sounding_positions: Any) -> None:
    # `,` is silent, but belongs to the word.
    segment = Segment("ab,,", (SpokenWord(0, 4, 0, 4),), 0, 4)
    (block,) = blocks_of(utterance_of("ab,,", [segment]), sounding_positions())
    (mark,) = block.marks
    assert (mark.start_s, mark.end_s) == (LEAD_S, LEAD_S + 6 * FRAME / RATE)
    assert block.samples.size == round((LEAD_S + END_S) * RATE) + 6 * FRAME


def test_nothing_to_speak_gives_no_block(sounding_positions: Any) -> None:
    assert utterance_of("...", []).next_block(sounding_positions()) is None


def test_a_segment_without_words_is_spoken_without_marks(sounding_positions: Any) -> None:
    segment = Segment("ab", (), 0, 2)
    (block,) = blocks_of(utterance_of("?!", [segment]), sounding_positions())
    assert np.count_nonzero(block.samples) == 6 * FRAME
    assert block.marks == ()


class Wrong:
    """Acoustics that break one rule."""

    def __init__(self, durations: list[int], samples: int | None) -> None:
        self.durations = np.array(durations, np.int64)
        self.samples = samples

    def prepare(self, tokens: Any, style: Any, speed: float) -> Prepared:
        return Prepared(self.durations, None)

    def render(self, prepared: Prepared, start: int, stop: int, statistics: Any) -> np.ndarray:
        if self.samples is None:
            raise RuntimeError("out of memory")
        return np.zeros(self.samples, np.float32)


@pytest.mark.parametrize(
    ("acoustics", "problem"),
    [
        (Wrong([9, 2, 9], FRAME), "samples for"),
        (Wrong([9, 2], FRAME), "durations that do not fit"),
        (Wrong([9, 0, 9], FRAME), "durations that do not fit"),
        (Wrong([9, 2, 9], None), "RuntimeError: out of memory"),
    ],
)
def test_a_model_that_fails_is_an_engine_error(acoustics: Any, problem: str) -> None:
    with pytest.raises(EngineError, match=problem):
        utterance_of(*segments_of("a")).next_block(acoustics)


def test_a_front_end_that_fails_is_an_engine_error(sounding_positions: Any) -> None:
    def broken() -> Iterator[Segment]:
        yield segment_of("a")
        raise LookupError("no such word")

    utterance = utterance_of("ab", broken())
    assert utterance.next_block(sounding_positions()) is not None
    with pytest.raises(EngineError, match="LookupError: no such word"):
        utterance.next_block(sounding_positions())


def test_a_call_that_was_given_up_says_so(sounding_positions: Any) -> None:
    acoustics = sounding_positions()
    acoustics.failure = Interrupted()
    with pytest.raises(Interrupted):
        utterance_of(*segments_of("a")).next_block(acoustics)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_samples_that_are_no_numbers_are_not_taken_for_silence(value: float) -> None:
    class Broken(Wrong):
        def render(self, prepared: Prepared, start: int, stop: int, statistics: Any) -> Any:
            return np.full((stop - start) * FRAME, value, np.float32)

    blocks = list(blocks_of(utterance_of(*segments_of("a")), Broken([9, 2, 9], 0)))
    # All of it passes, for the server to make silence of.
    assert sum(block.samples.size for block in blocks) == (9 + 2 + 9) * FRAME


@pytest.mark.parametrize(
    ("phonemes", "problem"),
    [("a" * 511, "511 phonemes; a segment has 510 at most"), ("aZ", "no phoneme 'Z'")],
)
def test_tokens_that_cannot_be_are_refused(phonemes: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        tokens_of(phonemes, VOCABULARY)


def test_tokens_have_an_end_on_both_sides() -> None:
    assert tokens_of("a, b", VOCABULARY) == [0, 2, 5, 1, 4, 0]
