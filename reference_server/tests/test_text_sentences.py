"""Sentences: cut where a reader would pause, and nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_server.text.sentences import sentences

pytest.importorskip("sentencex", reason="needs the extra kokoro")


@pytest.mark.parametrize(
    "parts",
    [
        ["One sentence only"],
        ["Hello Dr. Smith. ", "How are you? ", "Fine!"],
        ["See No. 5 and Fig. 3. ", "Then go on."],
        ["J. R. R. Tolkien wrote it. ", "It is long."],
        ["He said: “Go!” ", "And then he left... ", "No one knew."],
        ["First paragraph\n\n", "Second one."],
        ["- one\n", "- Two\n", "3. three"],
        ["1. First item. ", "2. Second item."],
        ["This line was\nwrapped by hand. ", "This one not."],
        ["Version 1.2.3 is out. ", "It costs $3.50. ", "Yes."],
        ["Wow 😀. ", "More."],
        ["\n\n  \n"],
    ],
)
def test_where_sentences_end(parts: list[str]) -> None:
    text = "".join(parts)
    assert [text[s.start : s.end] for s in sentences(text)] == parts


def test_lines_end_paragraphs() -> None:
    assert [s.paragraph for s in sentences("One. Two.\nThree.")] == [False, True, False]


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [
        ("ja", "こんにちは。元気ですか？はい。", 3),
        ("zh", "你好。今天很好！", 2),
        ("hi", "नमस्ते। कैसे हो?", 2),
    ],
)
def test_other_languages(language: str, text: str, count: int) -> None:
    assert len(list(sentences(text, language))) == count


@given(
    st.text(st.one_of(st.sampled_from(list("ab. !?\n,“”)*1A。")), st.characters()), max_size=200)
)
def test_joined_they_are_the_text(text: str) -> None:
    at = 0
    for sentence in sentences(text):
        assert sentence.start == at
        assert sentence.end > at
        at = sentence.end
    assert at == len(text)


@pytest.mark.parametrize("unit", ["a", "a. ", "a ", "\n", " ", "a\n", "?!", "\u0301", "a,", "漢"])
def test_a_long_text_is_cut_in_bounded_pieces(unit: str) -> None:
    text = unit * 5_000
    found = list(sentences(text))
    assert sum(s.end - s.start for s in found) == len(text)
    assert max(s.end - s.start for s in found) <= 1_000


def test_a_long_sentence_is_cut_after_a_clause_or_a_word() -> None:
    for text in ("some words here, " * 200, "some words here " * 200):
        assert all(text[s.start : s.end].endswith(" ") for s in sentences(text))


def test_the_first_sentence_costs_no_look_at_the_rest() -> None:
    class Watched(str):
        __slots__ = ("furthest",)

        def __getitem__(self, key: object) -> str:
            assert isinstance(key, slice)
            self.furthest = max(getattr(self, "furthest", 0), key.stop)
            return str.__getitem__(self, key)

    text = Watched("A sentence of some words. " * 10_000)
    next(sentences(text))
    assert text.furthest <= 1_000
