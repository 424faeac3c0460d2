"""Sentences out of a text that comes in fragments, each as early as it can be told."""

from __future__ import annotations

import re
from typing import Final

from utterwire_client.errors import ExtraMissing

__all__ = ["IncrementalSentenceChunker"]

_TERMINATORS: Final = frozenset(".!?…")
#: Terminators after which a sentence ends without a space.
_FULL_STOPS: Final = frozenset("。！？｡।॥؟۔")
#: What may stand between a terminator and the end of its sentence.
_CLOSERS: Final = "\"'”’»)]}」』）】》〉*_`"
_CLAUSE_END: Final = re.compile(r"[,;:，、；：—–،](?=\s)|[，、；：]")
_LIST_MARKER: Final = re.compile(r"\s*(?:[-*+•]|\(?\d{1,3}|[A-Za-z])[.)]*")
_LAST_WORD: Final = re.compile(rf"([^\W\d_]+)[.!?…]+[{re.escape(_CLOSERS)}]*\Z")
#: Half a character, which `sentencex` cannot take.
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
#: How much of the next word is waited for, in characters.
_LOOK_AHEAD: Final = 24
_SHORTEST_LIMIT: Final = 40
_FIRST_CLAUSE_CHARS: Final = 20


class IncrementalSentenceChunker:
    """Cuts a text that comes in fragments into sentences.

    The pieces, joined, are the text. They depend on the text alone, never on how it was cut into
    fragments, and what was returned once does not change with what follows.

    ``max_chars`` bounds a piece, in code points: a longer sentence is cut after a clause, or after
    a word. ``first_clause`` lets the first piece go at a clause mark. ``language`` is an ISO 639
    code. Raises `ValueError` for ``max_chars`` below 40, `ExtraMissing` without the extra
    ``client``. Not safe to use from several threads at once.
    """

    def __init__(
        self, *, max_chars: int = 250, first_clause: bool = False, language: str = "en"
    ) -> None:
        if max_chars < _SHORTEST_LIMIT:
            raise ValueError(f"max_chars must be at least {_SHORTEST_LIMIT}, not {max_chars}")
        try:
            from sentencex import segment
        except ModuleNotFoundError:
            raise ExtraMissing(
                "the chunker needs the package sentencex: pip install 'utterwire[client]'"
            ) from None
        self._segment = segment
        self._max_chars = max_chars
        self._first_clause = first_clause
        self._language = language
        self._buffer = ""
        self._candidate: int | None = None
        self._in_word = False
        self._line_ended = False
        self._count = 0

    def feed(self, fragment: str) -> list[str]:
        """The pieces that ``fragment`` completes, in order."""
        pieces: list[str] = []
        for char in fragment:
            self._add(char, pieces)
        return pieces

    def flush(self) -> list[str]:
        """What is left when the text ends; the chunker is then as new."""
        pieces: list[str] = []
        if self._candidate is not None:
            self._decide(len(self._buffer), pieces)
        if self._buffer:
            pieces.append(self._buffer)
        self._buffer = ""
        self._candidate = None
        self._in_word = self._line_ended = False
        self._count = 0
        return pieces

    def _emit(self, end: int, pieces: list[str]) -> None:
        pieces.append(self._buffer[:end])
        rest = self._buffer[end:]
        self._buffer = ""
        self._candidate = None
        self._in_word = self._line_ended = False
        self._count += 1
        for char in rest:
            self._add(char, pieces)

    def _sentence_ends(self, upto: int) -> set[int]:
        text = self._buffer[:upto]
        end = 0
        ends = set()
        for sentence in self._segment(self._language, _SURROGATE.sub("\ufffd", text)):
            end += len(sentence)
            ends.add(len(text[:end].rstrip()))
        return ends

    def _decide(self, upto: int, pieces: list[str]) -> bool:
        end = self._candidate
        self._candidate = None
        self._in_word = False
        if end is None or _LIST_MARKER.fullmatch(self._buffer[:end]):
            return False
        if not any(map(str.isalnum, self._buffer[:end])):
            return False
        if end in self._sentence_ends(upto):
            self._emit(end, pieces)
            return True
        return False

    def _add(self, char: str, pieces: list[str]) -> None:
        before = self._buffer
        if self._line_ended and char not in " \t\r\n":
            line = before.rstrip()
            paragraph = before[len(line) :].count("\n") > 1
            if any(map(str.isalnum, line)) and (
                paragraph
                or char in "-*+•#>"
                or char.isdigit()
                or char.isupper()
                or line[-1] in ".!?:…。！？"
            ):
                self._buffer += char
                self._emit(len(before), pieces)
                return
            self._line_ended = False
        self._buffer += char
        size = len(self._buffer)
        if char == "\n":
            self._line_ended = True
        if self._candidate is not None and self._look(char, size, pieces):
            return
        if self._candidate is None and (char in _TERMINATORS or char in _FULL_STOPS):
            self._candidate, self._in_word = size, False
        if size >= self._max_chars:
            self._cut(pieces)
        elif (
            self._first_clause
            and self._count == 0
            and size > _FIRST_CLAUSE_CHARS
            and char == " "
            and before[-1] in ",;:—–"
            and self._candidate is None
        ):
            self._emit(size - 1, pieces)

    def _look(self, char: str, size: int, pieces: list[str]) -> bool:
        """Whether ``char`` settles the candidate (True also if it goes on)."""
        end = self._candidate
        assert end is not None
        if self._in_word:
            if (
                char.isspace()
                or char in _TERMINATORS
                or char in _FULL_STOPS
                or size - end > _LOOK_AHEAD
            ):
                return self._decide(size if char.isspace() else size - 1, pieces)
            return False
        if end == size - 1 and (char in _TERMINATORS or char in _FULL_STOPS or char in _CLOSERS):
            self._candidate = size
            return True
        if self._buffer[:end].rstrip(_CLOSERS)[-1:] in _FULL_STOPS:
            if not char.isspace():
                self._emit(end, pieces)
            return True
        if char.isspace():
            return False
        if end == size - 1:  # glued to what follows, as in 3.14
            self._candidate = None
            return False
        self._in_word = True
        word = _LAST_WORD.search(self._buffer[:end])
        sure = self._buffer[:end].rstrip(_CLOSERS)[-1:] in "!?" or (
            word is not None and len(word[1]) >= 4 and word[1].islower()
        )
        return sure and (char.isupper() or char.isdigit()) and self._decide(size, pieces)

    def _cut(self, pieces: list[str]) -> None:
        """Cut a sentence that is too long: after a clause, after a word, or anywhere."""
        ends = [match.end() for match in _CLAUSE_END.finditer(self._buffer)]
        end = max(ends, default=0)
        if end <= self._max_chars // 3:
            end = self._buffer.rstrip().rfind(" ")
        if end <= self._max_chars // 3:
            end = len(self._buffer)
        self._emit(end, pieces)
