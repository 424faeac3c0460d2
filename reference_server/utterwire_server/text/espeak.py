"""Phonemes by espeak-ng through `misaki`, for the languages that Kokoro was trained on that way.

espeak-ng and `phonemizer` are under the GPL: they are never installed with another extra.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final

from utterwire_server.text.folding import FoldedText
from utterwire_server.text.phonemes import Sound

__all__ = ["EspeakPhonemizer"]

#: A word with what is glued to it (numbers, prices, times), or a mark.
_PIECE: Final = re.compile(r"[^\s;:,.!?—…\"()“”¿¡।]+(?:[.,:][0-9]+[^\s;:,.!?—…\"()“”¿¡।]*)*|\S")
_MARKS: Final = {mark: mark for mark in ';:,.!?—…"()“”'} | {"।": ".", "¿": "", "¡": ""}
#: Longer words are read in parts.
_LONGEST: Final = 60


#: Symbols that have a name in every language.
_SYMBOLS: Final = frozenset("€$£¥%&@+=°")


def _speaks(piece: str) -> bool:
    return any(char.isalnum() or char in _SYMBOLS for char in piece)


class EspeakPhonemizer:
    """Sentences to phonemes, clause by clause; espeak-ng reads numbers and symbols by itself.

    A clause, up to a mark or a number, is read as a whole, for its words change each other. Where
    what comes back has as many words as the clause, each knows its phonemes; where not, the clause
    is read again word by word.
    """

    def __init__(self, language: str) -> None:
        espeak = importlib.import_module("misaki.espeak")
        self._g2p: Any = espeak.EspeakG2P(language=language)
        self._backend: Any = self._g2p.backend

    def __call__(self, text: str, start: int, end: int) -> Sequence[Sound]:
        """See `Phonemizer`."""
        folded = FoldedText(text, start, end)
        pieces: list[tuple[str, int, int]] = []
        for match in _PIECE.finditer(folded.folded):
            for at in range(match.start(), match.end(), _LONGEST):
                stop = min(at + _LONGEST, match.end())
                pieces.append((folded.folded[at:stop], at, stop))
        clauses: list[list[str]] = [[]]
        for piece, _, _ in pieces:
            counted = not piece.replace("'", "").isalpha()
            if not _speaks(piece) or counted:
                clauses.append([])
            if _speaks(piece):
                clauses[-1].append(piece)
            if counted:
                clauses.append([])
        phonemes = iter([found for clause in clauses for found in self._clause(clause)])
        sounds: list[Sound] = []
        for piece, at, stop in pieces:
            char_start, char_end = folded.span(at, stop)
            if not _speaks(piece):
                if _MARKS.get(piece):
                    if piece in "(“" and sounds:
                        sounds.append(Sound(" ", char_start, char_start, word=False))
                    sounds.append(Sound(_MARKS[piece], char_start, char_end, word=False))
                continue
            if sounds and not sounds[-1].phonemes.endswith(("(", "“")):
                sounds.append(Sound(" ", char_start, char_start, word=False))
            sounds.append(Sound(next(phonemes), char_start, char_end))
        return sounds

    def _clause(self, words: list[str]) -> list[str]:
        """The phonemes of each of ``words``."""
        if not words:
            return []
        together = self._phonemes([" ".join(words)])
        if together and len(together[0].split()) == len(words):
            return together[0].split()
        return self._phonemes(words)

    def _phonemes(self, words: list[str]) -> list[str]:
        """misaki's phonemes for each of ``words``, in one call to espeak-ng."""
        found = self._backend.phonemize(words, strip=True)
        spoken = []
        for phonemes in found:
            for old, new in self._g2p.e2m:
                phonemes = phonemes.replace(old, new)
            spoken.append(phonemes.replace("^", "").replace("-", "").strip())
        return spoken
