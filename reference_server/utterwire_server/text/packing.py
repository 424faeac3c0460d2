"""Sounds of sentences packed into segments that the model speaks well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from utterwire_server.text.phonemes import CLAUSE_MARKS, SENTENCE_MARKS, Sound
from utterwire_server.text.segment import MAX_PHONEMES, Segment, SpokenWord

__all__ = ["CRUMB", "length", "made_into_segments", "speaks"]

#: A sentence of fewer phonemes is spoken with its neighbour: alone it sounds clipped, and its
#: silences cost more than its speech.
CRUMB: Final = 20
#: About 20 seconds. A longer sentence is cut at a clause, if it has one.
_COMFORTABLE: Final = 300
#: No part that is cut off is shorter, if that can be helped.
_PART: Final = 40


def length(sounds: Sequence[Sound]) -> int:
    """How many phonemes ``sounds`` are, spaces and marks included."""
    return sum(len(sound.phonemes) for sound in sounds)


def speaks(sounds: Sequence[Sound]) -> bool:
    """Whether there is a word among ``sounds``."""
    return any(sound.word for sound in sounds)


def made_into_segments(sounds: Sequence[Sound]) -> Iterator[Segment]:
    """``sounds`` as one segment, or as several where they are too long for one.

    Cut at clause marks if the parts are fit for it, else between words, else inside a word: no
    phoneme is lost. Parts without a word (marks alone) are left out, since there is nothing to
    hear. The work is linear in the number of sounds.
    """
    rest = list(sounds)
    while rest:
        total = length(rest)
        if total <= _COMFORTABLE:
            head, rest = rest, []
        else:
            head, rest = _cut(rest, total)
        segment = _segment(head)
        if segment is not None:
            yield segment


def _cut(sounds: list[Sound], total: int) -> tuple[list[Sound], list[Sound]]:
    """The first part of ``sounds``, and the rest."""
    parts = -(-total // _COMFORTABLE)
    target = total / parts
    best: tuple[float, int] | None = None
    last_space = 0
    at = 0
    for index, sound in enumerate(sounds):
        at += len(sound.phonemes)
        if at > MAX_PHONEMES:
            break
        if sound.word:
            continue
        last_space = index + 1
        mark = sound.phonemes.strip(" ")[-1:]
        if mark and (mark in CLAUSE_MARKS or mark in SENTENCE_MARKS):
            fit = at >= _PART and (total - at >= _PART or total == at)
            if fit and (best is None or abs(at - target) < best[0]):
                best = (abs(at - target), index + 1)
    if best is not None:
        return sounds[: best[1]], sounds[best[1] :]
    if total <= MAX_PHONEMES:
        return sounds, []
    if last_space:
        return sounds[:last_space], sounds[last_space:]
    return _cut_word(sounds)


def _cut_word(sounds: list[Sound]) -> tuple[list[Sound], list[Sound]]:
    """Cut inside the first word, which alone is too long for a segment."""
    room = MAX_PHONEMES
    head: list[Sound] = []
    for index, sound in enumerate(sounds):
        if len(sound.phonemes) <= room:
            head.append(sound)
            room -= len(sound.phonemes)
            continue
        if head and speaks(head):
            return head, sounds[index:]
        at = sound.phonemes.rfind(" ", 1, room)
        at = room if at < 0 else at
        if sound.phonemes[at - 1] in "ˈˌ":  # a stress goes with the vowel after it
            at -= 1
        chars = sound.char_end - sound.char_start
        middle = sound.char_start + max(1, chars * at // len(sound.phonemes))
        first = replace(sound, phonemes=sound.phonemes[:at], char_end=min(middle, sound.char_end))
        second = replace(sound, phonemes=sound.phonemes[at:].lstrip(), char_start=first.char_end)
        if second.char_start >= second.char_end:
            # A stretch of one character cannot be shared: the first part has it.
            second = replace(second, char_start=sound.char_end, word=False)
        return [*head, first], [second, *sounds[index + 1 :]]
    return head, []


def _segment(sounds: Sequence[Sound]) -> Segment | None:
    if not any(sound.phonemes.strip(" ") for sound in sounds) or not _audible(sounds):
        return None
    while sounds and not sounds[0].phonemes.strip(" "):
        sounds = sounds[1:]
    words = []
    phonemes = ""
    for sound in sounds:
        if sound.word:
            span = (len(phonemes), len(phonemes) + len(sound.phonemes))
            words.append(SpokenWord(sound.char_start, sound.char_end, *span))
        phonemes += sound.phonemes
    phonemes = phonemes.rstrip(" ")
    start = min(sound.char_start for sound in sounds)
    end = max(sound.char_end for sound in sounds)
    return Segment(phonemes, tuple(words), start, end)


def _audible(sounds: Sequence[Sound]) -> bool:
    return any(sound.word or any(map(str.isalpha, sound.phonemes)) for sound in sounds)
