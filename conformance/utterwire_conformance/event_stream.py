"""Server-sent events, read as the HTML standard says (section 9.2), and when they are asked for.

The reader takes every legal way to write a stream: lines ended by LF, CR or CRLF, a byte order
mark, comments, fields without a colon, data in several lines. What is wrong it keeps and tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .strict_json import JsonValue, NotJson, NotUtf8, parse

__all__ = ["Event", "EventStream", "names_events", "read_events"]

_LINE_END: Final = re.compile("\r\n|\n|\r")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_ZERO: Final = re.compile(r"0(?:\.0{0,3})?")
_MEDIUM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Event:
    """What stands between two blank lines, comments aside.

    `name` is the value of its last `event` line, empty where there is none; `data` that of its
    `data` lines, joined, None where there is none. `text` is how it was written.
    """

    name: str
    data: str | None
    text: str

    @property
    def fields(self) -> dict[str, JsonValue] | None:
        """The object that is its data, if it is one."""
        if self.data is None:
            return None
        try:
            value = parse(self.data.encode("utf-8", "surrogatepass")).value
        except (NotJson, NotUtf8):
            return None
        return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class EventStream:
    """The events of a body, whole ones only; `unended` is what no blank line ended.

    `is_utf8` tells whether all of the body is; where it is not, what is wrong reads as U+FFFD.
    """

    events: tuple[Event, ...]
    unended: Event | None
    is_utf8: bool


def read_events(body: bytes) -> EventStream:
    """The events in a body, or in the beginning of one."""
    try:
        text, is_utf8 = body.decode("utf-8"), True
    except UnicodeDecodeError:
        text, is_utf8 = body.decode("utf-8", "replace"), False
    *blocks, rest = _blocks(text.removeprefix("\ufeff"))
    events = tuple(event for event in map(_event, blocks) if event is not None)
    return EventStream(events, _event(rest), is_utf8)


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines up to each blank line, then those that are left."""
    *lines, last = _LINE_END.split(text)
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        else:
            yield block
            block = []
    yield [*block, last] if last else block


def _event(lines: list[str]) -> Event | None:
    name = ""
    data: list[str] = []
    named = False
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name, named = value, True
        elif field == "data":
            data.append(value)
    if not named and not data:
        return None
    return Event(name, "\n".join(data) if data else None, "\n".join(lines))


def names_events(accept: str) -> bool:
    """Whether an `Accept` names `text/event-stream`, by the rule of `sse.md#opening`."""
    for item in _QUOTED.sub("", accept).split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weights = [value for key, _, value in (p.partition("=") for p in parameters) if key == "q"]
        if name == _MEDIUM and not any(_ZERO.fullmatch(weight) for weight in weights):
            return True
    return False
