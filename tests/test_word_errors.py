"""The rules by which words that were heard wrong are counted."""

from __future__ import annotations

import itertools

import pytest
from word_errors import Hearing, Sentence, hearing, rate, read_sentences, words


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Hello, World!", "hello world"),
        ("Don\u2019t go.", "don't go"),
        ("'Quoted' words", "quoted words"),
        ("twenty-two \u2014 or so", "twenty two or so"),
        ("well\u2026 yes", "well yes"),
        ("$4.50", "four dollars fifty cents"),
        ("$1.01", "one dollar one cent"),
        ("$1,200", "one thousand two hundred dollars"),
        ("£2.05 and €3", "two pounds five pence and three euros"),
        ("four dollars and fifty cents", "four dollars fifty cents"),
        ("one hundred and five", "one hundred five"),
        ("salt and pepper", "salt and pepper"),
        ("40%", "forty percent"),
        ("8:15", "eight fifteen"),
        ("8:05 or 9:00", "eight oh five or nine"),
        ("3.5", "three point five"),
        ("2.", "two"),
        ("the 22nd", "the twenty second"),
        ("1st", "first"),
        ("1,250 m", "one thousand two hundred fifty m"),
        ("1250", "twelve fifty"),
        ("1987.", "nineteen eighty seven"),
        ("2026", "twenty twenty six"),
        ("2000 and 2008", "two thousand two thousand eight"),
        ("1,987", "one thousand nine hundred eighty seven"),
        ("305", "three hundred five"),
        ("90210", "nine zero two one zero"),
        ("007", "zero zero seven"),
        ("8:15 a.m. in the U.S.", "eight fifteen am in the us"),
        ("Dr. Allen and Mr. Bell, OK?", "doctor allen and mister bell okay"),
        ("ends. Here", "ends here"),
        ("", ""),
        ("\u2026 !?", ""),
    ],
)
def test_both_sides_come_to_the_same_words(written: str, said: str) -> None:
    assert " ".join(words(written)) == said


SALT = Sentence("salt", "It costs $2.50.", (("it", "costs", "two", "fifty"), tuple("abcdef")))


@pytest.mark.parametrize(
    ("heard", "errors", "of"),
    [
        ("It costs two fifty.", 0, 4),
        ("it cost two fifty", 1, 4),
        ("it two fifty", 1, 4),
        ("well it costs two fifty", 1, 4),
        ("a b c d e x", 1, 6),
        ("", 4, 4),
        ("one two three four five six seven eight", 8, 6),
    ],
)
def test_words_put_in_left_out_and_changed_are_errors(heard: str, errors: int, of: int) -> None:
    assert hearing(SALT, heard) == Hearing(errors, of)


def test_the_rate_is_over_all_words_not_over_sentences() -> None:
    assert rate([Hearing(1, 2), Hearing(0, 8)]) == 10.0
    assert rate([Hearing(9, 6)]) == 150.0


def test_every_sentence_read_as_it_stands_is_one_of_its_ways() -> None:
    sentences = read_sentences()
    assert len(sentences) == len({sentence.id for sentence in sentences}) == 20
    assert sum(any(map(str.isdigit, sentence.text)) for sentence in sentences) == 5
    for sentence in sentences:
        for way in sentence.spoken:
            assert hearing(sentence, " ".join(way)).errors == 0
        assert hearing(sentence, sentence.text).errors == 0, sentence.text


def test_another_sentence_is_no_way_of_saying_one() -> None:
    sentences = read_sentences()
    for sentence, other in itertools.pairwise(sentences):
        wrong = hearing(sentence, other.text)
        assert wrong.errors > wrong.words / 2
