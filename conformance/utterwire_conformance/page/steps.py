"""The part of a transcript that shows how a rule broke: some rungs of its ladder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from utterwire_conformance.ladder import Rung, rungs
from utterwire_conformance.transcript import Entry, Transcript

from .visible import cut

__all__ = ["Step", "steps"]

_BEGINNING: Final = 5
_AFTER: Final = 3
_TEXT: Final = 260
_LONG: Final = 2_000
_WAYS: Final = {"out": "sent", "in": "received", "note": "note"}
# What the suite notes for its judges, in words for a reader.
_NOTES: Final = {
    "in vain: ": "waited in vain for the end of message ",
    "unanswered: ": "waited in vain for an answer to message ",
    "abuse": "what follows breaks RFC 6455 on purpose",
}
_NAMES: Final = {"eof": "end", "open": "handshake", "note": "", "binary": "binary"}


@dataclass(frozen=True, slots=True)
class Step:
    """One row: `t` in seconds since the transcript began, `size` in bytes of payload.

    `way` is `sent`, `received` or `note`, or `left out` for rows that are not shown. `broke` marks
    the one at which the rule broke.
    """

    t: float
    way: str
    what: str
    text: str = ""
    size: int = 0
    broke: bool = False


def steps(transcript: Transcript, line: int | None, most: int = 40) -> list[Step]:
    """The beginning of the session in question, and what stands around `line` of its file.

    `line` counts from 1, the header included; without it the beginning alone is shown.
    """
    whole = transcript.entries
    index = line - 2 if line is not None and 0 <= line - 2 < len(whole) else None
    session = whole[index].session if index is not None else 0
    marked = {} if index is None else {index: ()}
    short = Transcript(transcript.scenario, entries=[_shortened(entry) for entry in whole])
    shown = [r for r in rungs(short, marked) if session in (0, r.session)]
    place = next(
        (i for i, r in enumerate(shown) if index is not None and r.first <= index <= r.last), None
    )
    if place is None:
        kept = list(range(min(len(shown), most // 2)))
    else:
        first = max(0, place - max(1, most - _BEGINNING - _AFTER))
        kept = [
            *range(min(_BEGINNING, first)),
            *range(first, min(len(shown), place + 1 + _AFTER)),
        ]
    sizes = [len(entry.data) for entry in whole]
    return list(_with_omissions(shown, kept, place, sizes))


def _shortened(entry: Entry) -> Entry:
    """The entry with no more of long texts than may be shown."""
    texts = (entry.text or "", entry.reason or "")
    if len(entry.data) <= _LONG and all(len(text) <= _LONG for text in texts):
        return entry
    data = entry.data[:_LONG]
    try:
        data.decode()
    except UnicodeDecodeError as error:
        # Cut in the middle of a code point, it would not be text any more.
        data = data[: error.start] if error.end == len(data) else data
    text, reason = (text[:_LONG] or None for text in texts)
    return replace(entry, data=data, text=text, reason=reason)


def _with_omissions(
    shown: Sequence[Rung], kept: list[int], broken: int | None, sizes: Sequence[int]
) -> Iterator[Step]:
    following = 0
    for number in kept:
        if number > following:
            yield _omission(shown[following:number], sizes)
        rung = shown[number]
        yield Step(
            rung.t,
            _WAYS[rung.direction],
            _NAMES.get(rung.kind, rung.kind),
            cut(_in_words(rung), _TEXT),
            sum(sizes[rung.first : rung.last + 1]),
            number == broken,
        )
        following = number + 1
    if following < len(shown):
        yield _omission(shown[following:], sizes)


def _in_words(rung: Rung) -> str:
    if rung.direction == "note":
        for beginning, words in _NOTES.items():
            if rung.text.startswith(beginning):
                return words + rung.text.removeprefix(beginning)
    return rung.text


def _omission(left: Sequence[Rung], sizes: Sequence[int]) -> Step:
    count = sum(rung.count for rung in left)
    size = sum(sum(sizes[rung.first : rung.last + 1]) for rung in left)
    return Step(left[0].t, "left out", f"{count} line{'s' if count > 1 else ''}", size=size)
