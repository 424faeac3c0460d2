"""From an engine's word marks to the words that are told (`protocol.md#marks`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from utterwire_protocol import Word

from utterwire_server.engines.engine import EngineError, WordMark

__all__ = ["WordTimes"]

#: Times are told to the millisecond; what differs by less is rounding.
SLACK_S: Final = 0.001


class WordTimes:
    """Watches over the words of one utterance: in order, and never behind their audio.

    Engines compute times in floating point and in pieces, so that a word can seem to begin a hair
    before the one before it has ended; that is evened out. Anything more is an engine's mistake.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._end_s = 0.0
        self._char_end = 0

    def words(self, marks: Iterable[WordMark], made_s: float) -> list[Word]:
        """The words to tell before more than the first ``made_s`` seconds of audio are sent.

        :raises EngineError: if a word is not in the text, is out of order, overlaps the one before,
            or begins in audio that was made already.
        """
        found = []
        for mark in marks:
            where = f"the word at {mark.char_start} to {mark.char_end}"
            if self._text[mark.char_start : mark.char_end] != mark.text:
                raise EngineError(f"{where} is not what the text has there")
            if mark.char_start < self._char_end or mark.start_s < self._end_s - SLACK_S:
                raise EngineError(f"{where} overlaps the word before it, or is out of order")
            if mark.start_s < made_s - SLACK_S:
                raise EngineError(f"{where} begins in audio that was made before it")
            start_s = max(mark.start_s, self._end_s, made_s)
            if mark.end_s <= start_s:
                raise EngineError(f"{where} takes no time")
            self._char_end, self._end_s = mark.char_end, mark.end_s
            found.append(Word(mark.text, start_s, mark.end_s, mark.char_start, mark.char_end))
        return found
