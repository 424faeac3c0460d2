"""Japanese phonemes: words and readings by `pyopenjtalk`, their sounds from the kana."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from utterwire_server.text.folding import FoldedText
from utterwire_server.text.phonemes import MARKS, Sound

__all__ = ["JapanesePhonemizer"]

#: Rows of kana, and their sounds in the symbols that Kokoro-82M's Japanese voices know.
_ROWS: Final = (
    ("アイウエオ", "a i ɯ e o"),
    ("カキクケコ", "ka kʲi kɯ ke ko"),
    ("ガギグゲゴ", "ɡa ɡʲi ɡɯ ɡe ɡo"),
    ("サシスセソ", "sa ɕi sɨ se so"),
    ("ザジズゼゾ", "ʣa ʥi zɨ ʣe ʣo"),
    ("タチツテト", "ta ʨi ʦɨ te to"),
    ("ダヂヅデド", "da ʥi zɨ de do"),
    ("ナニヌネノ", "na ɲi nɯ ne no"),
    ("ハヒフヘホ", "ha çi ɸɯ he ho"),
    ("バビブベボ", "ba bʲi bɯ be bo"),
    ("パピプペポ", "pa pʲi pɯ pe po"),
    ("マミムメモ", "ma mʲi mɯ me mo"),
    ("ヤユヨ", "ja jɯ jo"),
    ("ラリルレロ", "ɾa ɾʲi ɾɯ ɾe ɾo"),
    ("ワヰヱヲンッーヴ", "βa i e o ɴ ʔ ː vɯ"),
)
_KANA: Final = {
    kana: sound for row, sounds in _ROWS for kana, sound in zip(row, sounds.split(), strict=True)
}
#: A small kana changes the vowel of the one before it.
_SMALL: Final = dict(zip("ァィゥェォャュョヮ", "aiɯeoaɯoa", strict=True))
_VOWELS: Final = "aiɯɨeo"
#: What goes to the dictionary at once, in code points.
_LONGEST: Final = 200


def _kana_sounds(kana: str) -> str:
    """The phonemes of katakana; what is none has no sound."""
    sounds: list[str] = []
    for char in kana:
        small = _SMALL.get(char)
        if small is None:
            sounds.append(_KANA.get(char, ""))
        elif sounds and sounds[-1][-1:] in _VOWELS and len(sounds[-1]) > 1:
            sounds[-1] = sounds[-1][:-1] + small
        elif sounds and sounds[-1] == "ɯ":
            sounds[-1] = "β" + small
        else:
            sounds.append(small)
    return "".join(sounds)


class JapanesePhonemizer:
    """Sentences of Japanese to phonemes. Numbers and Latin letters are read by the dictionary."""

    def __init__(self) -> None:
        self._frontend: Any = importlib.import_module("pyopenjtalk").run_frontend

    def __call__(self, text: str, start: int, end: int) -> Sequence[Sound]:
        """See `Phonemizer`."""
        folded = FoldedText(text, start, end)
        plain = folded.folded
        sounds: list[Sound] = []
        for first, last in _stretches(plain):
            self._stretch(folded, first, last, sounds)
        return sounds

    def _stretch(self, folded: FoldedText, first: int, last: int, sounds: list[Sound]) -> None:
        plain = folded.folded[first:last]
        if plain in MARKS:
            char_start, char_end = folded.span(first, last)
            sounds.append(Sound(MARKS[plain], char_start, char_end, word=False))
            return
        words = [
            (str(word["string"]), _kana_sounds(str(word["pron"]))) for word in self._frontend(plain)
        ]
        at = first
        for index, (surface, phonemes) in enumerate(words):
            # Its words are in full width, and digits became numerals: find how much of the text
            # each one is, and give what cannot be found to the word before what can.
            width = _width(surface, folded.folded, at, last)
            if index == len(words) - 1:
                width = last - at
            if not width:
                if sounds and sounds[-1].word and phonemes:
                    before = sounds.pop()
                    joined = before.phonemes + phonemes
                    sounds.append(Sound(joined, before.char_start, before.char_end))
                    continue
                width = min(1, last - at)
            if not width or not phonemes:
                at += width
                continue
            char_start, char_end = folded.span(at, at + width)
            if sounds and sounds[-1].char_end > char_start:
                char_start = sounds[-1].char_end
            at += width
            if char_start >= char_end:
                continue
            if sounds and sounds[-1].word:
                sounds.append(Sound(" ", char_start, char_start, word=False))
            sounds.append(Sound(phonemes, char_start, char_end))


def _stretches(plain: str) -> list[tuple[int, int]]:
    """Marks by themselves, and what stands between them, without spaces."""
    found = []
    at = 0
    while at < len(plain):
        if plain[at] in MARKS and not _in_number(plain, at):
            found.append((at, at + 1))
            at += 1
        elif plain[at].isspace() or (not plain[at].isalnum() and plain[at] not in "ー々〆"):
            at += 1
        else:
            first = at
            while at < len(plain) and at - first < _LONGEST and not plain[at].isspace():
                if plain[at] in MARKS and not _in_number(plain, at):
                    break
                at += 1
            found.append((first, at))
    return found


def _in_number(plain: str, at: int) -> bool:
    """Whether a comma or a point stands between digits."""
    return (
        plain[at] in ",." and plain[at - 1 : at].isdecimal() and plain[at + 1 : at + 2].isdecimal()
    )


def _width(surface: str, plain: str, at: int, last: int) -> int:
    """How many characters of ``plain`` from ``at`` on are ``surface``, written in full width."""
    narrow = FoldedText(surface).folded
    if plain.startswith(narrow, at) and at + len(narrow) <= last:
        return len(narrow)
    if narrow and narrow[0] in "〇一二三四五六七八九十百千万億" and plain[at : at + 1].isdecimal():
        stop = at
        while stop < last and (plain[stop].isdecimal() or plain[stop] in ",."):
            stop += 1
        return stop - at
    return 0
