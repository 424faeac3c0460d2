"""Text of strangers, made fit to be shown: nothing in it hides, reorders or never ends."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["cut", "visible"]

# Marks and joiners that scripts need, and that change nothing but their neighbours.
_HARMLESS: Final = frozenset("\u200c\u200d")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MOST_MARKS: Final = 4


def visible(text: str) -> str:
    """The text with every control, format and lone surrogate character written as an escape.

    Override and isolate characters cannot turn what follows around, and marks do not pile up.
    """
    shown: list[str] = []
    marks = 0
    for char in text:
        kind = unicodedata.category(char)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if (kind[0] == "C" and char not in _HARMLESS) or kind in ("Zl", "Zp"):
            shown.append(_NAMED.get(char) or _escape(char))
        elif marks > _MOST_MARKS:
            shown.append(_escape(char))
        else:
            shown.append(char)
    return "".join(shown)


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def cut(text: str, most: int) -> str:
    """At most so many characters of the text, saying how many are left out."""
    if len(text) <= most:
        return text
    left = len(text) - most
    return f"{text[:most]}… ({left:,} more character{'s' if left > 1 else ''})"
