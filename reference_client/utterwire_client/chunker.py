"""Sentences out of a text that comes in fragments, each as early as it can be told."""

from __future__ import annotations

import re
from typing import Final

from utterwire_client.boundary import LINE_BREAK, Boundaries, Undecided, is_joined, may_end
from utterwire_client.errors import ExtraMissing

__all__ = ["IncrementalSentenceChunker"]

#: So much of a word is waited for, in characters.
_LONGEST_WORD: Final = 24
_LOWEST_MAX: Final = 20
_LINE_KEPT: Final = 400
#: The first clause has at least so many characters, and two words; or so many of a script that
#: sets no spaces.
_FIRST_CLAUSE: Final = 12
_FIRST_CLAUSE_UNSPACED: Final = 5
#: Past so many characters that cannot be spoken, they are let go as they are.
_MOST_UNSPEAKABLE: Final = 65_536

_CLOSERS: Final = "\"'”’»)\\]}*_」』）】"
_CLAUSE_END: Final = re.compile(rf"[,;:،؛—–][{_CLOSERS}]*(?=\s)|[，、；：][{_CLOSERS}]*")
_SPACE: Final = re.compile(r"\s+")


class IncrementalSentenceChunker:
    """Cuts a text that comes in fragments into sentences, to be spoken one after the other.

    The pieces, joined, are the text. They depend on the text alone, never on how it was cut into
    fragments; what was returned stays true whatever follows. Every piece has a letter or a number
    in it: what has none joins its neighbour, and a text without any is one piece at `flush`.

    ``max_chars`` bounds a piece, in code points: a longer sentence is cut after a clause, else
    after a word, else anywhere. A run of characters that cannot be spoken is not cut for it (up to
    65,536). ``first_clause`` lets the first piece go after a clause of a dozen characters.
    ``language`` is an ISO 639 code; it may have a region.

    Raises `ValueError` for ``max_chars`` below 20, `ExtraMissing` without the extra ``client``.
    """

    def __init__(
        self, *, max_chars: int = 250, first_clause: bool = False, language: str = "en"
    ) -> None:
        if max_chars < _LOWEST_MAX:
            raise ValueError(f"max_chars must be at least {_LOWEST_MAX}, not {max_chars}")
        try:
            from sentencex import segment
        except ModuleNotFoundError:
            raise ExtraMissing(
                "the chunker needs the package sentencex: pip install 'utterwire[client]'"
            ) from None
        self._boundaries = Boundaries(language.replace("_", "-").partition("-")[0], segment)
        self._max_chars = max_chars
        self._first_clause = first_clause
        self._reset()

    def feed(self, fragment: str) -> list[str]:
        """The pieces that ``fragment`` completes, in order."""
        pieces: list[str] = []
        for char in fragment:
            if char.isalnum():
                self._add_speakable(char, pieces)
            else:
                self._add_other(char, pieces)
        return pieces

    def flush(self) -> list[str]:
        """What is left at the end of the text. The chunker is then ready for another."""
        pieces: list[str] = []
        if self._word_at is not None:
            self._decide("".join(self._chars[self._word_at :]), "", pieces)
        if self._chars:
            self._emit(len(self._chars), pieces)
        self._reset()
        return pieces

    def _reset(self) -> None:
        #: What was read and not yet returned.
        self._chars: list[str] = []
        #: The first character that can be spoken, in `_chars`.
        self._first: int | None = None
        #: Where the gap begins that is being read, or that `_word_at` waits to decide.
        self._gap_at: int | None = None
        #: Where the word begins that is waited for.
        self._word_at: int | None = None
        #: What earlier pieces had of the line.
        self._line = ""
        self._returned = False

    def _add_speakable(self, char: str, pieces: list[str]) -> None:
        gap_at, self._gap_at = self._gap_at, None
        if self._word_at is not None:
            self._gap_at = gap_at
            if len(self._chars) - self._word_at >= _LONGEST_WORD:
                self._decide("".join(self._chars[self._word_at :]), "", pieces)
        elif gap_at is not None and self._first is not None:
            self._gap_at, self._word_at = gap_at, len(self._chars)
            self._decide(char, None, pieces)
        if self._first is None:
            self._first = len(self._chars)
        self._chars.append(char)
        if len(self._chars) > self._max_chars:
            self._limit(pieces)

    def _add_other(self, char: str, pieces: list[str]) -> None:
        if self._word_at is not None:
            if is_joined(char):  # a vowel sign, an accent: the word goes on
                self._chars.append(char)
                return
            self._decide("".join(self._chars[self._word_at :]), char, pieces)
        if self._gap_at is None and not (self._first is not None and is_joined(char)):
            self._gap_at = len(self._chars)
        self._chars.append(char)
        if len(self._chars) > self._max_chars + _MOST_UNSPEAKABLE:
            self._take(len(self._chars), pieces)

    def _decide(self, word: str, follow: str | None, pieces: list[str]) -> None:
        """Whether the piece ends in the gap before ``word``, of which ``follow`` is the end."""
        assert self._gap_at is not None
        assert self._word_at is not None
        gap = "".join(self._chars[self._gap_at : self._word_at])
        place: int | Undecided = Undecided.NO
        if may_end(gap):
            body = "".join(self._chars[: self._gap_at])
            lines = LINE_BREAK.split(body)
            line = self._line + body if len(lines) == 1 else lines[-1]
            place = self._boundaries.find(body, gap, word, follow, line)
        if place is Undecided.WORD and follow is None:
            return
        gap_at = self._gap_at
        self._gap_at = self._word_at = None
        if isinstance(place, int):
            self._emit(place, pieces)
        elif self._first_clause and not self._returned:
            self._emit_first_clause(gap_at, gap, word, pieces)

    def _emit_first_clause(self, gap_at: int, gap: str, word: str, pieces: list[str]) -> None:
        clause = _CLAUSE_END.search(gap)
        if clause is None or "." in gap or word[0].isdigit():
            return
        assert self._first is not None
        text = "".join(self._chars[self._first : gap_at])
        spoken = sum(map(str.isalnum, text))
        if gap[clause.start()] in "，、；：":
            enough = spoken >= _FIRST_CLAUSE_UNSPACED
        else:
            enough = len(text) >= _FIRST_CLAUSE and " " in text
        if enough:
            self._emit(gap_at + clause.end(), pieces)

    def _emit(self, end: int, pieces: list[str]) -> None:
        """Return the first ``end`` characters, in as many pieces as the limit asks for."""
        while (cut := self._soft_cut(end)) is not None:
            self._take(cut, pieces)
            end -= cut
        self._take(end, pieces)

    def _limit(self, pieces: list[str]) -> None:
        while (cut := self._soft_cut(len(self._chars))) is not None:
            self._take(cut, pieces)

    def _take(self, end: int, pieces: list[str]) -> None:
        piece = "".join(self._chars[:end])
        del self._chars[:end]
        pieces.append(piece)
        self._returned = True
        lines = LINE_BREAK.split(piece)
        # Its length and its beginning are asked for.
        self._line = (self._line + piece if len(lines) == 1 else lines[-1])[:_LINE_KEPT]
        self._first = next(
            (index for index, char in enumerate(self._chars) if char.isalnum()), None
        )
        if self._word_at is not None and self._gap_at is not None:
            if self._gap_at <= end:  # cut in the very gap
                self._gap_at = self._word_at = None
            else:
                self._gap_at -= end
                self._word_at -= end
        elif self._gap_at is not None:
            self._gap_at = max(0, self._gap_at - end)

    def _soft_cut(self, end: int) -> int | None:
        """Where to cut the first ``end`` characters, if they are too many."""
        first = self._first
        if end <= self._max_chars or first is None:
            return None
        # A long run that cannot be spoken, before the first word, does not count.
        base = first if first > self._max_chars // 4 else 0
        most = base + self._max_chars
        last = next(index for index in range(end - 1, -1, -1) if self._chars[index].isalnum())
        # Something to speak on either side.
        lowest, most = max(first + 1, base + self._max_chars // 3), min(most, last)
        if end <= base + self._max_chars or most <= first:
            return None
        text = "".join(self._chars[: most + 1])
        for pattern, after in ((_CLAUSE_END, True), (_SPACE, False)):
            places = [match.end() if after else match.start() for match in pattern.finditer(text)]
            places = [place for place in places if lowest <= place <= most]
            if places:
                return places[-1]
        for place in range(most, first, -1):
            if not is_joined(self._chars[place]) and self._chars[place - 1] != "\u200d":
                return place
        # One long character: after it.
        return next(place for place in range(most, last + 1) if not is_joined(self._chars[place]))
