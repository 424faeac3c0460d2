"""What every way from text to phonemes gives: pieces of sound, and where their text stands."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["CLAUSE_MARKS", "MARKS", "SENTENCE_MARKS", "Phonemizer", "Sound", "within"]

#: Where a long sentence may be cut.
CLAUSE_MARKS = frozenset(",;:—…)”")
SENTENCE_MARKS = frozenset(".!?")
#: Punctuation of either width as the model knows it, with the spaces that such a text lacks.
MARKS: Final = {
    **dict.fromkeys(",、，", ", "),
    **dict.fromkeys(".。．", ". "),
    **dict.fromkeys("!！", "! "),
    **dict.fromkeys("?？", "? "),
    **dict.fromkeys(":：", ": "),
    **dict.fromkeys(";；", "; "),
    **dict.fromkeys("“", " “"),
    **dict.fromkeys("”", "” "),
    **dict.fromkeys("(（", " ("),
    **dict.fromkeys(")）", ") "),
    **dict.fromkeys("—…", "… "),
}


@dataclass(frozen=True, slots=True)
class Sound:
    """Phonemes, and the stretch of the text that they speak.

    ``word`` tells a word from punctuation and spaces. The phonemes of a word may hold spaces, if
    it is read as several ("$5"). A word comes with no space around it.
    """

    phonemes: str
    char_start: int
    char_end: int
    word: bool = True


class Phonemizer(Protocol):
    """One language's way from a sentence to phonemes. Blocking, and one call at a time."""

    def __call__(self, text: str, start: int, end: int) -> Sequence[Sound]:
        """The sounds of ``text[start:end]``, in order, none overlapping.

        Nothing in a text makes it raise: what has no sound is left out.
        """


def within(sounds: Sequence[Sound], vocabulary: Collection[str]) -> list[Sound]:
    """``sounds`` without the phonemes that the model does not know, and without what is then empty.

    Spaces are single, and a word has none at its ends. Where two words came from one character (a
    ligature), the first keeps it, and speaks both if nothing is left for the second.
    """
    kept: list[Sound] = []
    after_space = True
    last_word = -1  # where in ``kept``
    for sound in sounds:
        phonemes = "".join(phoneme for phoneme in sound.phonemes if phoneme in vocabulary)
        if sound.word:
            phonemes = " ".join(part for part in phonemes.split(" ") if part)
        elif after_space:
            phonemes = phonemes.lstrip(" ")
        if not phonemes:
            continue
        start, end = sound.char_start, sound.char_end
        if sound.word and last_word >= 0:
            before = kept[last_word]
            start = max(start, before.char_end)
            if start >= end:
                joined = f"{before.phonemes} {phonemes}"
                kept[last_word] = Sound(joined, before.char_start, before.char_end)
                continue
        if sound.word:
            last_word = len(kept)
        kept.append(Sound(phonemes, start, end, sound.word))
        after_space = phonemes.endswith(" ")
    return kept
