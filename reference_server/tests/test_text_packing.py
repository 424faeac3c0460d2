"""Sounds to segments: nothing lost, whatever the length."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_server.text import MAX_PHONEMES, Segment
from utterwire_server.text.packing import made_into_segments
from utterwire_server.text.phonemes import Sound, within


def sounds_of(words: list[str]) -> tuple[list[Sound], str]:
    """Words, spaces and marks as sounds, each phoneme one character of the text."""
    text = ""
    sounds = []
    for word in words:
        start = len(text)
        text += word
        is_word = word.strip(" ,.") != ""
        sounds.append(Sound(word, start, len(text), word=is_word))
    return sounds, text


def heard(segments: list[Segment]) -> str:
    return "".join(segment.phonemes for segment in segments).replace(" ", "")


WORDS = st.lists(
    st.one_of(
        st.sampled_from([" ", ", ", ". ", "word", "a", "phoneme"]),
        st.integers(1, 1500).map(lambda n: "x" * n),
    ),
    max_size=120,
)


@given(WORDS)
def test_no_phoneme_of_a_word_is_lost(words: list[str]) -> None:
    sounds, text = sounds_of(words)
    segments = list(made_into_segments(sounds))
    letters = [c for c in text if c.isalpha()]
    assert [c for c in heard(segments) if c.isalpha()] == letters
    at = 0
    for segment in segments:
        assert 0 < len(segment.phonemes) <= MAX_PHONEMES
        assert segment.phonemes.strip(" ") == segment.phonemes
        for word in segment.words:
            said = segment.phonemes[word.phoneme_start : word.phoneme_end]
            assert said == text[word.char_start : word.char_end]
            assert word.char_start >= at
            at = word.char_end


def test_a_comfortable_sentence_is_one_segment() -> None:
    sounds, _ = sounds_of(["word", ", "] * 50)
    assert len(list(made_into_segments(sounds))) == 1


def test_a_long_one_is_cut_at_clauses_into_parts_of_like_length() -> None:
    sounds, _ = sounds_of((["word", " "] * 7 + ["word", ", "]) * 20)
    segments = list(made_into_segments(sounds))
    assert len(segments) == 3
    assert all(segment.phonemes.endswith(",") for segment in segments)
    lengths = [len(segment.phonemes) for segment in segments]
    assert max(lengths) - min(lengths) < 60


def test_without_clauses_it_is_cut_between_words() -> None:
    sounds, _ = sounds_of(["word", " "] * 300)
    segments = list(made_into_segments(sounds))
    assert all(set(segment.phonemes.split(" ")) == {"word"} for segment in segments)


def test_a_word_read_as_many_is_cut_between_them() -> None:
    sounds = [Sound(" ".join(["nine"] * 200), 0, 300)]
    segments = list(made_into_segments(sounds))
    assert all(set(segment.phonemes.split(" ")) == {"nine"} for segment in segments)
    spans = [(w.char_start, w.char_end) for s in segments for w in s.words]
    assert spans[0][0] == 0
    assert spans[-1][1] == 300
    assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_one_character_with_too_many_phonemes() -> None:
    segments = list(made_into_segments([Sound("a" * 1200, 4, 5)]))
    assert heard(segments) == "a" * 1200
    assert [len(segment.words) for segment in segments] == [1, 0, 0]


def test_a_stress_stays_with_its_vowel() -> None:
    word = "a" * (MAX_PHONEMES - 1) + "ˈa" * 10
    segments = list(made_into_segments([Sound(word, 0, len(word))]))
    assert heard(segments) == word
    assert not segments[0].phonemes.endswith("ˈ")


@pytest.mark.parametrize(
    "sounds", [[], [Sound(".", 0, 1, word=False)], [Sound(" ", 0, 1, word=False)]]
)
def test_nothing_to_hear_is_no_segment(sounds: list[Sound]) -> None:
    assert list(made_into_segments(sounds)) == []


def test_what_the_model_does_not_know_is_left_out() -> None:
    sounds = [
        Sound("❓", 0, 1),
        Sound(" ", 1, 2, word=False),
        Sound("a❓ ❓ b ", 2, 5),
        Sound(" ", 5, 6, word=False),
        Sound(" ", 6, 7, word=False),
        Sound("c", 7, 8),
    ]
    kept = within(sounds, " abc")
    assert [sound.phonemes for sound in kept] == ["a b", " ", "c"]


def test_two_words_of_one_character() -> None:
    sounds = [Sound("a", 0, 1), Sound("b", 0, 1), Sound("c", 0, 2), Sound("a", 1, 2)]
    kept = within(sounds, " abc")
    assert kept == [Sound("a b", 0, 1), Sound("c a", 1, 2)]
