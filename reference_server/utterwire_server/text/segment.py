"""What a front end hands to an engine: phonemes, and the words of the text that they speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_PHONEMES", "Segment", "SpokenWord"]

#: The most phonemes that go through Kokoro at once: its 512 positions without the two end tokens.
MAX_PHONEMES: Final = 510


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of the request's text, and the phonemes that speak it.

    ``char_start`` and ``char_end`` are code points of the request's text, the end not included:
    what stands there, however it is read out. ``phoneme_start`` and ``phoneme_end`` are positions
    in the segment's ``phonemes``.
    """

    char_start: int
    char_end: int
    phoneme_start: int
    phoneme_end: int

    def __post_init__(self) -> None:
        if not 0 <= self.char_start < self.char_end:
            raise ValueError(f"a word cannot run from {self.char_start} to {self.char_end}")
        if not 0 <= self.phoneme_start < self.phoneme_end:
            raise ValueError(
                f"a word cannot have the phonemes {self.phoneme_start} to {self.phoneme_end}"
            )


@dataclass(frozen=True, slots=True)
class Segment:
    """What goes through the model at once: a sentence, or a part of a long one.

    ``phonemes`` are 1 to `MAX_PHONEMES` characters of the model's vocabulary. ``words`` are in
    order and do not overlap, neither in the text nor in the phonemes; one word may go on in the
    next segment, when it is longer than a segment can be. ``char_start`` and ``char_end`` are the
    stretch of the request's text that the segment speaks. ``pause_s`` is the silence that follows,
    in seconds: 0.0 inside a sentence, and after the last segment of a text.
    """

    phonemes: str
    words: tuple[SpokenWord, ...]
    char_start: int
    char_end: int
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < len(self.phonemes) <= MAX_PHONEMES:
            count = len(self.phonemes)
            raise ValueError(f"a segment has 1 to {MAX_PHONEMES} phonemes, not {count}")
        if not self.pause_s >= 0:
            raise ValueError(f"pause_s is {self.pause_s!r}; it must not be below 0")
        char = self.char_start
        phoneme = 0
        for word in self.words:
            if word.char_start < char or word.phoneme_start < phoneme:
                raise ValueError(f"{word} is out of order, or overlaps the word before it")
            char, phoneme = word.char_end, word.phoneme_end
        if char > self.char_end or phoneme > len(self.phonemes):
            raise ValueError("the last word ends after the segment")
