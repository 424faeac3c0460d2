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


class EspeakPhonemizer:
    """Sentences to phonemes, word by word, so that each word knows its phonemes.

    espeak-ng reads numbers, dates and symbols in words by itself.
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
        spoken = [piece for piece, _, _ in pieces if any(map(str.isalnum, piece))]
        phonemes = iter(self._phonemes(spoken))
        sounds: list[Sound] = []
        for piece, at, stop in pieces:
            char_start, char_end = folded.span(at, stop)
            if not any(map(str.isalnum, piece)):
                if _MARKS.get(piece):
                    sounds.append(Sound(_MARKS[piece], char_start, char_end, word=False))
                continue
            if sounds and not sounds[-1].phonemes.endswith(("(", "“")):
                sounds.append(Sound(" ", char_start, char_start, word=False))
            sounds.append(Sound(next(phonemes), char_start, char_end))
        return sounds

    def _phonemes(self, words: list[str]) -> list[str]:
        """misaki's phonemes for each of ``words``, in one call to espeak-ng."""
        if not words:
            return []
        found = self._backend.phonemize(words, strip=True)
        spoken = []
        for phonemes in found:
            for old, new in self._g2p.e2m:
                phonemes = phonemes.replace(old, new)
            spoken.append(phonemes.replace("^", "").replace("-", "").strip())
        return spoken
