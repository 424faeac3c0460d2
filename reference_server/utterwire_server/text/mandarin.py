"""Mandarin phonemes by `jieba` (words), `pypinyin` (readings) and `misaki` (their sounds)."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final

from utterwire_server.text.folding import FoldedText
from utterwire_server.text.phonemes import MARKS, Sound

__all__ = ["MandarinPhonemizer"]

_PIECE: Final = re.compile(
    r"(?P<number>(?:\d{4}(?=年)|\d{1,12}(?:,\d{3})*(?:\.\d+)?)%?|\d{1,12})"
    r"|(?P<han>[\u3400-\u4dbf\u4e00-\u9fff]+)|(?P<latin>[A-Za-z]+)|(?P<space>\s+)|(?P<mark>.)"
)
_DIGITS: Final = "零一二三四五六七八九"
#: How the letters of the Latin alphabet are named in Chinese.
_LETTERS: Final = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz",
        (
            "诶 比 西 迪 伊 艾弗 吉 艾尺 艾 杰 开 艾勒 艾姆 "
            "恩 欧 屁 扣 阿 艾丝 提 优 维 达布溜 艾克斯 歪 贼德"
        ).split(),
        strict=True,
    )
)


class MandarinPhonemizer:
    """Sentences of Mandarin to phonemes; Latin words are spelled by the letter."""

    def __init__(self) -> None:
        zh = importlib.import_module("misaki.zh")
        self._g2p: Any = zh.ZHG2P()
        self._jieba: Any = importlib.import_module("jieba")
        self._cn2an: Any = importlib.import_module("cn2an")
        self._jieba.setLogLevel("ERROR")

    def __call__(self, text: str, start: int, end: int) -> Sequence[Sound]:
        """See `Phonemizer`."""
        folded = FoldedText(text, start, end)
        sounds: list[Sound] = []
        for piece in _PIECE.finditer(folded.folded):
            first, found = piece.start(), piece[0]
            match piece.lastgroup:
                case "number":
                    self._say(
                        sounds, self._number(found, folded.folded[piece.end() :][:1]), folded, piece
                    )
                case "han":
                    for word in self._jieba.cut(found):
                        if sounds and sounds[-1].word:
                            where = sounds[-1].char_end
                            sounds.append(Sound(" ", where, where, word=False))
                        char_start, char_end = folded.span(first, first + len(word))
                        sounds.append(Sound(self._sound(word), char_start, char_end))
                        first += len(word)
                case "latin":
                    letters = "".join(_LETTERS[letter] for letter in found.lower()[:40])
                    self._say(sounds, letters, folded, piece)
                case "mark" if found in MARKS:
                    char_start, char_end = folded.span(first, piece.end())
                    sounds.append(Sound(MARKS[found], char_start, char_end, word=False))
                case "space":
                    char_start, _ = folded.span(first, piece.end())
                    sounds.append(Sound(" ", char_start, char_start, word=False))
        return sounds

    def _say(self, sounds: list[Sound], han: str, folded: FoldedText, piece: re.Match[str]) -> None:
        if sounds and sounds[-1].word:
            where = sounds[-1].char_end
            sounds.append(Sound(" ", where, where, word=False))
        phonemes = " ".join(self._sound(word) for word in self._jieba.cut(han))
        sounds.append(Sound(phonemes, *folded.span(*piece.span())))

    def _number(self, number: str, following: str) -> str:
        plain = number.replace(",", "").rstrip("%")
        if following == "年" and len(plain) == 4:
            words = "".join(_DIGITS[int(digit)] for digit in plain)
        elif len(plain) > 12 or (plain.startswith("0") and plain.isdigit() and len(plain) > 1):
            words = "".join(_DIGITS[int(digit)] for digit in plain if digit.isdigit())
        else:
            words = str(self._cn2an.an2cn(plain, "low"))
        return f"百分之{words}" if number.endswith("%") else words

    def _sound(self, word: str) -> str:
        # A character that pypinyin has no reading for comes back as it is, and is left out later.
        try:
            return str(self._g2p.word2ipa(word)).replace(chr(815), "")
        except (AssertionError, IndexError, KeyError, ValueError):
            return ""
