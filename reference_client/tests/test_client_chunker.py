"""Sentences out of a text in fragments."""

import pytest
from utterwire_client import IncrementalSentenceChunker


def cut(text: str, size: int = 1, **options: int | bool | str) -> list[str]:
    chunker = IncrementalSentenceChunker(**options)  # type: ignore[arg-type]
    pieces = [
        piece
        for start in range(0, len(text), size)
        for piece in chunker.feed(text[start : start + size])
    ]
    return pieces + chunker.flush()


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_piece_for_each_sentence(size: int) -> None:
    assert cut("Dr. Smith is in. Come at 3.30 p.m. today! OK?", size) == [
        "Dr. Smith is in.",
        " Come at 3.30 p.m. today!",
        " OK?",
    ]


def test_a_limit_that_is_too_low_is_refused() -> None:
    with pytest.raises(ValueError, match="max_chars"):
        IncrementalSentenceChunker(max_chars=1)
