"""What was heard of a speech that was interrupted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from utterwire_client.events import Word
from utterwire_client.sentence import Sentence

__all__ = ["Interruption", "heard_of", "in_source"]

#: How the cut was found: it lies between sentences, by the endpoint's word times, or by proportion.
Precision = Literal["sentence", "word", "proportion"]

# Longer texts are compared by length alone: comparing takes time that grows with its square.
_MOST_COMPARED = 2000
_WORD_END = re.compile(r"(?<=\S)(?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class Interruption:
    """How a speech was cut short.

    ``text`` is what was heard, in the words of the input: the sentences that were heard whole, and
    of the one in which it was cut the words that were; what the gate dropped is not in it.
    ``position`` is where it ends in the input, in code points: cut the history of the conversation
    there. ``unheard`` is the rest of what had been taken from the input. ``precision`` says how the
    cut was found: ``sentence`` where it lies between two, ``word`` by the times of words that the
    endpoint told (profile ``timing``), ``proportion`` by the share of the sentence's time.

    ``sentences`` were heard whole; ``running`` is the one that was cut, or None. ``heard_s`` is how
    much of the speech was heard, and ``dropped_s`` how much was scheduled and was thrown away, in
    seconds. ``session_dropped`` is True where the endpoint could not be told to stop, or did not
    answer, so that the session was ended instead.
    """

    text: str
    position: int
    unheard: str
    precision: Precision
    sentences: tuple[Sentence, ...]
    running: Sentence | None
    heard_s: float
    dropped_s: float
    session_dropped: bool


def heard_of(
    sentence: Sentence, words: Sequence[Word], heard_s: float, duration_s: float
) -> tuple[int, Precision]:
    """How many code points of ``sentence.text`` were heard after ``heard_s`` of its audio, to the
    end of a word, and how that was found. ``duration_s`` is the length of all its audio."""
    spoken = sentence.spoken or ""
    if words:
        ends = [word.char_end for word in words if word.end_s <= heard_s]
        return in_source(sentence, min(max(ends, default=0), len(spoken))), "word"
    share = min(heard_s / duration_s, 1.0) if duration_s > 0 else 1.0
    at = int(share * len(spoken))
    ends = [match.start() for match in _WORD_END.finditer(spoken) if match.start() <= at]
    return in_source(sentence, max(ends, default=0)), "proportion"


def in_source(sentence: Sentence, at: int) -> int:
    """The place in ``text`` of the place ``at`` in ``spoken``."""
    text, spoken = sentence.text, sentence.spoken or ""
    if at == 0:
        return 0
    if (start := text.find(spoken)) >= 0:
        return start + at
    if at >= len(spoken):
        return len(text)
    if max(len(text), len(spoken)) > _MOST_COMPARED:
        return len(text) * at // len(spoken)
    place = 0
    for a, b, size in SequenceMatcher(None, spoken, text, autojunk=False).get_matching_blocks():
        if a >= at:
            break
        place = b + min(at - a, size)
    return place
