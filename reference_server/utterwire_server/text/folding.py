"""Odd characters made plain, with the way back to the text that they came from."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final

__all__ = ["JOINING_SPACE", "FoldedText"]

#: What every space that must not break a line becomes: it may stand between groups of digits.
JOINING_SPACE: Final = "\N{NO-BREAK SPACE}"

_PLAIN: Final[Mapping[str, str]] = {
    **dict.fromkeys("‘’‛ʼ′＇`´", "'"),
    **dict.fromkeys("«„‟❝《「『【〈", "“"),
    **dict.fromkeys("»❞》」』】〉", "”"),
    **dict.fromkeys("″", '"'),
    **dict.fromkeys("‐‑−﹣－﹘", "-"),
    **dict.fromkeys("‒", "–"),
    **dict.fromkeys("―⸺⸻", "—"),
    **dict.fromkeys("\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}", JOINING_SPACE),
    **dict.fromkeys("。｡", "."),
    **dict.fromkeys("、､", ","),
    "‥": "…",
    "⁄": "/",
    "∕": "/",
    "μ": "µ",
    "℃": "°C",
    "℉": "°F",
    "ß": "ss",
    "ẞ": "SS",
}
#: Compatibility characters that mean more than their plain form ("m²" is not "m2").
_KEPT: Final = frozenset("…²³¹⁰⁴⁵⁶⁷⁸⁹ªº")


class FoldedText:
    """The stretch ``[start, end)`` of ``text``, folded: plain letters, digits, quotes and spaces.

    ``folded`` has the compatibility forms of letters and digits resolved (full width, ligatures,
    mathematical alphabets), digits of every script plain, marks composed with their letter or left
    out, and what has no shape (zero width, direction marks) left out; control characters are
    spaces, a line's end stays. Each character of it stands for a stretch of the text. The work is
    linear in the length.
    """

    __slots__ = ("_ends", "_starts", "folded")

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        stop = len(text) if end is None else end
        out: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        at = start
        while at < stop:
            first = at
            char = text[at]
            at += 1
            # A mark changes the letter before it; without one it has nothing to stand on.
            while at < stop and unicodedata.category(text[at]) in ("Mn", "Me"):
                if at - first == 1:
                    composed = unicodedata.normalize("NFC", char + text[at])
                    char = composed if len(composed) == 1 else char
                at += 1
            for plain in _fold(char):
                out.append(plain)
                starts.append(first)
                ends.append(at)
        self.folded = "".join(out)
        self._starts = starts
        self._ends = ends

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where ``folded[start:end]``, which is not empty, stands in the text."""
        return self._starts[start], self._ends[end - 1]


def _fold(char: str) -> str:
    if char.isascii():
        return char if char >= " " or char == "\n" else " "
    plain = _PLAIN.get(char)
    if plain is not None:
        return plain
    category = unicodedata.category(char)
    if category in ("Mn", "Me", "Cf", "Cs", "Co", "Cn"):
        return ""
    if category in ("Zl", "Zp"):
        return "\n"
    if category in ("Cc", "Zs"):
        return " "
    if category == "Nd":  # any script's digits
        return str(unicodedata.decimal(char))
    if category[0] in "LNP" and char not in _KEPT:
        compatible = unicodedata.normalize("NFKC", char)
        # A fraction such as a half is read as one; its plain form would join the digits before it.
        return char if "\N{FRACTION SLASH}" in compatible else compatible
    return char
