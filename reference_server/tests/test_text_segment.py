"""What a front end may hand to an engine, and what it may not."""

from __future__ import annotations

import pytest
from utterwire_server.text import MAX_PHONEMES, Segment, SpokenWord


def test_a_segment_with_its_words() -> None:
    words = (SpokenWord(0, 2, 0, 3), SpokenWord(3, 5, 4, 6))
    segment = Segment("abc de", words, 0, 5, 0.25)
    assert [segment.phonemes[w.phoneme_start : w.phoneme_end] for w in words] == ["abc", "de"]


@pytest.mark.parametrize("word", [(-1, 1, 0, 1), (1, 1, 0, 1), (0, 1, -1, 1), (0, 1, 1, 1)])
def test_a_word_stands_somewhere_and_sounds(word: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="a word cannot"):
        SpokenWord(*word)


@pytest.mark.parametrize(
    ("segment", "fault"),
    [
        (("", (), 0, 1, 0.0), "1 to 510 phonemes, not 0"),
        (("a" * (MAX_PHONEMES + 1), (), 0, 1, 0.0), "not 511"),
        (("a", (), 0, 1, -1.0), "pause_s"),
        (("a", (), 0, 1, float("nan")), "pause_s"),
        (("ab", (SpokenWord(0, 2, 0, 1), SpokenWord(1, 3, 1, 2)), 0, 3, 0.0), "out of order"),
        (("ab", (SpokenWord(0, 1, 0, 2), SpokenWord(1, 3, 1, 2)), 0, 3, 0.0), "out of order"),
        (("ab", (SpokenWord(0, 1, 0, 1),), 1, 3, 0.0), "out of order"),
        (("ab", (SpokenWord(0, 4, 0, 1),), 0, 3, 0.0), "after the segment"),
        (("ab", (SpokenWord(0, 1, 0, 3),), 0, 3, 0.0), "after the segment"),
    ],
)
def test_a_segment_holds_together(
    segment: tuple[str, tuple[SpokenWord, ...], int, int, float], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        Segment(*segment)
