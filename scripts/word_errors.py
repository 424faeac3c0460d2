"""Counts the words that were heard wrong, by the rules in ``scripts/data/quality_sentences.json``.

The rules were fixed before anything was measured. Both sides, what a recogniser wrote and what may
rightly be said, are brought to the same words first: one writes "$4.50", another "four dollars
fifty".
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from num2words import num2words
from rapidfuzz.distance import Levenshtein

__all__ = ["SENTENCES", "Hearing", "Sentence", "hearing", "rate", "read_sentences", "words"]

SENTENCES = Path(__file__).resolve().parent / "data" / "quality_sentences.json"

_SHORT = {"mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay"}
_HEARD_WITH_AND = frozenset({"hundred", "thousand", "dollar", "dollars", "pound", "pounds"})
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
}
_WHOLE = r"\d{1,3}(?:,\d{3})+|\d+"
_NUMERAL = re.compile(
    rf"""
      (?P<currency>[$£€])(?P<units>{_WHOLE})(?:\.(?P<hundredths>\d\d)(?!\d))?
    | (?P<hour>\d{{1,2}}):(?P<minute>[0-5]\d)(?!\d)
    | (?P<ordinal>\d+)(?:st|nd|rd|th)\b
    | (?P<before>{_WHOLE})\.(?P<after>\d+)
    | (?P<whole>{_WHOLE})
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence to be spoken, and each way in which it may rightly be read aloud, as words."""

    id: str
    text: str
    spoken: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Hearing:
    """How many words of one sentence were heard wrong, of how many."""

    errors: int
    words: int


def read_sentences(path: Path = SENTENCES) -> tuple[Sentence, ...]:
    """The sentences of a file like ``scripts/data/quality_sentences.json``."""
    table = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Sentence(
            each["id"],
            each["text"],
            tuple(tuple(words(way)) for way in each.get("spoken", [each["text"]])),
        )
        for each in table["sentences"]
    )


def words(text: str) -> list[str]:
    """The words of a text as they are compared: lower case, numerals written out, no marks."""
    text = (
        unicodedata.normalize("NFKC", text).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    )
    text = _NUMERAL.sub(lambda match: f" {_said(match)} ", text).replace("%", " percent ")
    # Inside a word a period is an abbreviation's (a.m., U.S.); a hyphen or a dash parts words.
    text = re.sub(r"(?<=[^\W\d])\.(?=[^\W\d]\b)", "", text)
    text = re.sub(r"[^\w'\s]|_", " ", text)
    found = [_SHORT.get(word, word) for word in (part.strip("'") for part in text.split()) if word]
    return [
        word
        for before, word in zip([None, *found], found, strict=False)
        if not (word == "and" and before in _HEARD_WITH_AND)
    ]


def hearing(sentence: Sentence, heard: str) -> Hearing:
    """The errors in what was heard of a sentence, against the nearest way of saying it."""
    got = words(heard)
    return min(
        (Hearing(Levenshtein.distance(way, got), len(way)) for way in sentence.spoken),
        key=lambda each: (each.errors, -each.words),
    )


def rate(hearings: Iterable[Hearing]) -> float:
    """Word error rate in percent over all of them; more than 100 if words were made up."""
    held = list(hearings)
    return 100 * sum(each.errors for each in held) / sum(each.words for each in held)


def _said(numeral: re.Match[str]) -> str:
    part = {name: (text or "").replace(",", "") for name, text in numeral.groupdict().items()}
    if part["currency"]:
        unit, units, hundredth, hundredths = _CURRENCIES[part["currency"]]
        said = f"{_cardinal(part['units'])} {unit if part['units'] == '1' else units}"
        few = int(part["hundredths"] or 0)
        return (
            f"{said} {_cardinal(str(few))} {hundredth if few == 1 else hundredths}" if few else said
        )
    if part["hour"]:
        minute = int(part["minute"])
        if not minute:
            return _cardinal(part["hour"])
        return f"{_cardinal(part['hour'])} {'oh ' if minute < 10 else ''}{_cardinal(str(minute))}"
    if part["ordinal"]:
        return str(num2words(int(part["ordinal"]), to="ordinal")).replace("-", " ")
    if part["before"]:
        return f"{_cardinal(part['before'])} point {' '.join(map(_cardinal, part['after']))}"
    number = part["whole"]
    if "," not in numeral.group():
        if len(number) == 4 and (1100 <= int(number) <= 1999 or 2010 <= int(number) <= 2099):
            return str(num2words(int(number), to="year")).replace("-", " ")
        if len(number) >= 5 or (number.startswith("0") and len(number) > 1):
            return " ".join(map(_cardinal, number))
    return _cardinal(number)


def _cardinal(digits: str) -> str:
    said: str = num2words(int(digits))
    return re.sub(r"[-,]", " ", said)
