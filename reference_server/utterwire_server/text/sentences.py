"""Sentences of a text, one after the other, without looking further ahead than it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Sentence", "sentences"]

#: No sentence is longer, in code points; one that is, is cut where it hurts least.
_LONGEST: Final = 1_000

#: A line's end, unless the next line goes on in lower case (text that was wrapped by hand).
_LINE_END: Final = re.compile(r"\n\s*(?=(\S)|\Z)|[\u2028\u2029\v\f]\s*(?=(\S)|\Z)")
#: No sentence by themselves: "1.", "(a)", "B."; they belong to what follows.
_LIST_MARKER: Final = re.compile(r"\s*[(\[]?(?:\d{1,3}|[A-Za-z])[.)\]]+\s*")
#: Shortened words that are followed by a number, and end no sentence.
_COUNTING: Final = re.compile(
    r"(?:^|\W)(?:[Nn]os?|[Ff]igs?|[Vv]ols?|[Pp]p?|[Cc]h|[Ss]ec|[Ee]q|[Aa]pprox|ca?|[Ee]st|[Aa]rt)\.\s*$"
)
#: Shortened words that are followed by a name.
_NAMING: Final = re.compile(
    r"(?:^|\W)(?:Mrs?|Ms|Drs?|Prof|St|Mt|Ft|Gov|Sen|Rep|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Messrs|vs|al)\.\s*$"
)
_CLAUSE: Final = re.compile(r"[,;:—–)\]]\s|[、，；：]")
#: Half a character, which `sentencex` cannot take.
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_SPACE: Final = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Sentence:
    """The stretch ``text[start:end]``, with the space after it; ``paragraph`` if a line ends."""

    start: int
    end: int
    paragraph: bool = False


def sentences(text: str, language: str = "en") -> Iterator[Sentence]:
    """Cut ``text`` into sentences: joined, they are the whole text.

    ``language`` is an ISO 639 code for `sentencex`. Lines are sentences of their own. The work is
    linear in the length of the text, and the first sentence costs no more than `_LONGEST` code
    points of it.
    """
    # Imported late: it is part of an extra.
    from sentencex import segment

    at = 0
    while at < len(text):
        stop = min(len(text), at + _LONGEST)
        line_end = _line_end(text, at, stop)
        if line_end is not None:
            stop = line_end
        # A window that ends in mid-text is cut before its last sentence, which may go on.
        closed = line_end is not None or stop == len(text)
        pieces = _joined(segment(language, _SURROGATE.sub("\ufffd", text[at:stop])))
        if sum(map(len, pieces)) != stop - at:  # never seen; nothing may be lost for it
            pieces = [text[at:stop]]
        if not closed and len(pieces) > 1:
            pieces.pop()
        elif not closed:
            pieces = [text[at : _soft_cut(text, at, stop)]]
        for index, piece in enumerate(pieces):
            last = closed and index == len(pieces) - 1
            yield Sentence(at, at + len(piece), paragraph=last and line_end is not None)
            at += len(piece)


def _line_end(text: str, start: int, stop: int) -> int | None:
    """The end of the first line in ``text[start:stop]`` that is a line of its own."""
    for match in _LINE_END.finditer(text, start, stop):
        following = match[1] or match[2]
        if match.start() > start and not (following and following.islower()):
            return match.end()
        if following is None:
            return match.end()
    return None


def _joined(pieces: list[str]) -> list[str]:
    """``pieces`` with what is no sentence by itself joined to its neighbour."""
    joined: list[str] = []
    for piece in pieces:
        if joined and _belongs(joined[-1], piece):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _belongs(before: str, piece: str) -> bool:
    head = piece.lstrip()[:1]
    if not any(map(str.isalnum, piece)) or not any(map(str.isalnum, before)):
        return True
    if _LIST_MARKER.fullmatch(before):
        return True
    if head.isdigit() and _COUNTING.search(before[-12:]):
        return True
    return head.isupper() and _NAMING.search(before[-12:]) is not None


def _soft_cut(text: str, start: int, stop: int) -> int:
    """Where to cut a sentence that is too long: after a clause, after a word, or anywhere."""
    for pattern in (_CLAUSE, _SPACE):
        found = [match.end() for match in pattern.finditer(text, start + (stop - start) // 2, stop)]
        if found:
            return found[-1]
    return stop
