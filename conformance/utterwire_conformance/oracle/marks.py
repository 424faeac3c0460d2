"""The words that `marks` tells of one utterance (`protocol.md#marks`)."""

from __future__ import annotations

from typing import Any, Final

from utterwire_conformance.classification import Breach
from utterwire_conformance.client_message import is_speakable

__all__ = ["Words"]

_TOLERANCE_S: Final = 0.001 + 1e-9


class Words:
    """Collects the words of one utterance as they are told, and judges each.

    `asked` is None where the request asked for what does not exist.
    """

    def __init__(self, text: str, *, asked: bool | None) -> None:
        self._text = text
        self._asked = asked
        self._places: set[tuple[int, int]] = set()
        self._count = 0
        self._char_end = 0
        self._end_s = 0.0

    def told(self, words: Any, heard_s: float) -> list[Breach]:
        """A `marks` message came, after `heard_s` seconds of audio."""
        found: list[Breach] = []
        if self._asked is False:
            found.append(Breach("timing.sent-when-asked", "`marks` came unasked"))
        for word in words if isinstance(words, list) else ():
            if not _is_word(word):
                continue
            self._count += 1
            found.extend(self._judge(word, heard_s))
        return found

    def _judge(self, word: dict[str, Any], heard_s: float) -> list[Breach]:
        found: list[Breach] = []
        # An integer can be written as 1.0.
        start, end = int(word["char_start"]), int(word["char_end"])
        if self._text[start:end] != word["text"]:
            found.append(
                Breach("timing.offsets", f"{word['text']!r} is not the text from {start} to {end}")
            )
        if (start, end) in self._places:
            return [Breach("timing.sent-when-asked", f"{word['text']!r} was told twice")]
        self._places.add((start, end))
        if word["end_s"] <= word["start_s"]:
            found.append(Breach("timing.ordered", f"{word['text']!r} takes no time"))
        if word["start_s"] < heard_s - _TOLERANCE_S:
            found.append(
                Breach("timing.before-audio", f"{word['text']!r} was told after its audio")
            )
        if start < self._char_end or word["start_s"] < self._end_s - _TOLERANCE_S:
            found.append(Breach("timing.ordered", f"{word['text']!r} overlaps the word before"))
        self._char_end = max(self._char_end, end)
        self._end_s = max(self._end_s, word["end_s"])
        return found

    def complete(self, duration: Any, audio_bytes: int) -> list[Breach]:
        """The utterance was completed, with that `total_duration_s`, after so much audio."""
        found: list[Breach] = []
        # What an endpoint has no way to speak it passes over, and has no words to tell of it.
        if self._asked and audio_bytes and not self._count and is_speakable(self._text):
            found.append(Breach("timing.sent-when-asked", "no `marks` came"))
        if isinstance(duration, int | float) and self._end_s > duration + _TOLERANCE_S:
            found.append(Breach("timing.ordered", "a word ends after the utterance"))
        return found


def _is_word(word: Any) -> bool:
    if not isinstance(word, dict) or not isinstance(word.get("text"), str):
        return False
    numbers = ("start_s", "end_s", "char_start", "char_end")
    return all(
        isinstance(word.get(name), int | float) and not isinstance(word[name], bool)
        for name in numbers
    ) and all(
        isinstance(word[name], int) or word[name].is_integer()
        for name in ("char_start", "char_end")
    )
