"""What is spoken: answers, as somebody who writes them would give them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from utterwire_client.errors import RequestInvalid

__all__ = ["STANDARD", "Answer", "read_answers"]

_MOST_ANSWERS: Final = 50
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Text in ``parts``, and pauses in seconds between them, in which no text comes.

    ``interrupt_after_s`` is when it is interrupted, counted from its first sample; None if not.
    """

    name: str
    parts: tuple[str | float, ...]
    interrupt_after_s: float | None = None

    def described(self) -> dict[str, Any]:
        """As the schema has it."""
        return {
            "name": self.name,
            "parts": list(self.parts),
            "interrupt_after_s": self.interrupt_after_s,
        }


_LONG: Final = (
    "Sure, I can help with that. Your train to Edinburgh leaves at 9:42 from platform 4. You have "
    "twelve minutes to change at York. Shall I send the tickets to your phone?"
)
_TOO_LONG: Final = (
    "The museum opens at ten and closes at six, but on Thursdays it stays open until nine. Tickets "
    "are sold at the door. Members get in for free, and so do children."
)

STANDARD: Final = (
    Answer("short", ("Yes, that works. See you at nine.",)),
    Answer("long", (_LONG,)),
    Answer(
        "with pauses",
        (
            "One moment, I will look that up for you.",
            1.0,
            "There are two seats left in the quiet coach.",
            1.0,
            "Shall I book one of them?",
        ),
    ),
    Answer("interrupted", (_TOO_LONG,), interrupt_after_s=1.0),
)
"""Answers that show what differs: short, long, with pauses, interrupted."""


def read_answers(path: Path) -> tuple[Answer, ...]:
    """Answers of a TOML file: tables ``[[answer]]`` with ``name``, ``text`` (a string, or a list of
    strings and, between them, pauses in seconds) and, if it is to be interrupted,
    ``interrupt_after_s``. Raises :class:`RequestInvalid` with one line that says what is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as exc:
        raise RequestInvalid(f"cannot read {path}: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise RequestInvalid(f"{path} is not TOML: {exc}") from None
    except RecursionError:
        raise RequestInvalid(f"{path} is nested too deeply") from None
    tables = document.get("answer")
    if not isinstance(tables, list) or not tables or set(document) != {"answer"}:
        raise RequestInvalid(f"{path} wants tables [[answer]], and nothing else")
    if len(tables) > _MOST_ANSWERS:
        raise RequestInvalid(f"{path} has {len(tables)} answers; {_MOST_ANSWERS} are the most")
    try:
        answers = [_answer(number, table) for number, table in enumerate(tables, 1)]
    except ValueError as exc:
        raise RequestInvalid(f"{path}: {exc}") from None
    names = [answer.name for answer in answers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestInvalid(f"{path}: two answers have the name {twice!r}")
    return tuple(answers)


def _answer(number: int, table: object) -> Answer:
    if not isinstance(table, dict):
        raise ValueError("answer wants tables: write [[answer]]")
    unknown = sorted(set(table) - {"name", "text", "interrupt_after_s"})
    if unknown:
        raise ValueError(f"answer {number} has {unknown[0]!r}, which is not known")
    name = table.get("name", f"answer {number}")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"answer {number}: name wants a text")
    text = table.get("text")
    parts = [text] if isinstance(text, str) else text
    if not isinstance(parts, list):
        raise ValueError(f"{name}: text wants a string, or a list of strings and pauses")
    after_s = table.get("interrupt_after_s")
    if after_s is not None and not _is_seconds(after_s):
        raise ValueError(f"{name}: interrupt_after_s wants seconds, from 0 to {_LONGEST_PAUSE_S:g}")
    return Answer(name, _parts(name, parts), None if after_s is None else float(after_s))


def _parts(name: str, parts: Sequence[object]) -> tuple[str | float, ...]:
    taken: list[str | float] = []
    for part in parts:
        if isinstance(part, str):
            taken.append(part)
        elif _is_seconds(part):
            taken.append(float(part))
        else:
            raise ValueError(
                f"{name}: a part of its text is neither a string nor a pause of 0 to "
                f"{_LONGEST_PAUSE_S:g} seconds"
            )
    if not any(isinstance(part, str) and any(map(str.isalnum, part)) for part in taken):
        raise ValueError(f"{name} has nothing to speak")
    return tuple(taken)


def _is_seconds(value: object) -> TypeGuard[float]:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= _LONGEST_PAUSE_S
    )
