"""Word marks: asked for with many texts, not asked for, asked for wrongly (`protocol.md#marks`)."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

from utterwire_conformance.stage import Stage, scenario
from utterwire_conformance.transcript import Case

from .cases import Special, accepted, play_cases, rejected

__all__ = ["marks_invalid", "word_marks"]

_CHECK: Final = "timing.sent_when_asked"
_ASK: Final[dict[str, Any]] = {"marks": ["word"]}


def _accented(text: str) -> str:
    """The text with a combining mark on the last letter of every other word."""
    words = text.split(" ")
    for number in range(0, len(words), 2):
        word = words[number]
        last = next((i for i in reversed(range(len(word))) if word[i].isalpha()), None)
        if last is not None and unicodedata.category(word[last + 1 : last + 2] or " ")[0] != "M":
            words[number] = f"{word[: last + 1]}\u0301{word[last + 1 :]}"
    return " ".join(words)


@scenario(profile="timing")
async def word_marks(stage: Stage) -> None:
    """Texts in which offsets and times are easy to get wrong, with marks and without."""
    texts, claims = stage.texts, stage.claims
    one, two = texts.sample(0), texts.sample(1)
    rates = sorted((claims.sample_rates or frozenset()) - {24_000})[:1]
    # What is spoken of a plain text must be told; other texts are made of these and more.
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("plain", f"{one} {two}", _ASK),
        ("plain, with digits", f"{one} 2 8.", _ASK),
        ("plain, slow", f"{one} {two}", _ASK | {"speed": 0.5}),
        ("plain, fast", f"{one} {two}", _ASK | {"speed": 2.0}),
        *(("plain, at another rate", one, _ASK | {"sample_rate": rate}) for rate in rates),
        ("outside the BMP", f"\U0001f600 {one} \U00020000\U0001f680 {two}", _ASK),
        ("combining marks", _accented(f"{one} {two}"), _ASK),
        ("white space around", f" \t\n{one}\r\n\n {two}\u3000", _ASK),
        ("punctuation around", f"\u00ab{one}\u00bb \u2026 \u2014 ({two})!", _ASK),
        ("the same words again", f"{one} {one}", _ASK),
        ("asked for twice", one, {"marks": ["word", "word"], "request_id": "twice"}),
        ("nothing to speak", "... \U0001f600", _ASK),
        ("not asked for", one, {}),
        ("an empty array", one, {"marks": []}),
        ("null", one, {"marks": None}),
        ("a longer text", texts.of_length(500), _ASK),
    ]
    async with stage.relay() as relay:
        for name, text, fields in cases:
            session = await relay.session()
            case = Case(name, _CHECK, "accept")
            seq = await session.send(stage.request(text, **fields), case=case)
            if not await stage.ended(session, seq):
                break
        if "interrupt" not in claims.profiles:
            return
        # What is cut short has told no more than it came to, and nothing afterwards.
        session = await relay.session()
        case = Case("cut short", _CHECK, "accept")
        request = stage.request(texts.of_length(1200), request_id="cut short", **_ASK)
        seq = await session.send(request, case=case)
        await session.until(
            lambda: bool(session.utterance(seq).audio) or session.utterance(seq).ended,
            within=stage.pace.first,
            stall=stage.pace.stall,
        )
        cancel = await session.send({"type": "cancel", "request_id": "cut short"})
        await stage.ended(session, seq, cancel)
        await stage.speak(session, texts.shortest)


@scenario(profile="timing")
async def marks_invalid(stage: Stage) -> None:
    """`marks` that are none, each beside what is valid."""
    check = "timing.invalid"
    kinds: list[tuple[str, Any]] = [
        ("a string", "word"),
        ("a number", 1),
        ("a boolean", True),
        ("an object", {"word": True}),
        ("an unknown kind", ["phoneme"]),
        ("an unknown kind behind a known one", ["word", "sentence"]),
        ("in capitals", ["Word"]),
        ("an empty string", [""]),
        ("a number in an array", [1]),
        ("null in an array", ["word", None]),
        ("an array in an array", [["word"]]),
        ("an object in an array", [{"kind": "word"}]),
    ]
    specials: list[Special] = [
        accepted(check, "one kind", _ASK),
        accepted(check, "an empty array", {"marks": []}),
        accepted(check, "null", {"marks": None}),
        accepted(check, "a kind twice", {"marks": ["word", "word"]}),
        *(rejected(check, "invalid_request", name, {"marks": value}) for name, value in kinds),
    ]
    await play_cases(stage, specials)
