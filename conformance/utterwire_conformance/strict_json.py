"""One JSON value of RFC 8259, read to the letter, with everything odd about it noted.

`json.loads` accepts NaN, keeps the last of two equal names, guesses UTF-16, stops at 4,300 digits
and at the recursion limit. A judge may do none of that, so this reader is a small loop of its own:
it never recurses, takes time linear in its input and raises nothing but `NotJson` and `NotUtf8`.
A flat object with nothing to doubt, as most messages are, is known by its form, and left to
`json.loads`, which is quicker.

What RFC 8259 allows but `protocol.md#odd-json` and `protocol.md#control-messages` set apart is not
an error here: it is an `Oddity` of the document, for the caller to weigh.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

__all__ = [
    "MAX_LEVELS",
    "MAX_SIGNIFICANT_DIGITS",
    "Document",
    "JsonValue",
    "NotJson",
    "NotUtf8",
    "Oddity",
    "has_lone_surrogate",
    "parse",
]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_LEVELS: Final = 16
"""Levels of nesting a control message may have; the outermost object is the first."""

MAX_SIGNIFICANT_DIGITS: Final = 17
"""Digits a number of a control message may have, leading zeros aside."""

# Above this many digits CPython refuses to make an int; no number on this wire comes near it.
_EXACT_DIGITS: Final = 400

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_HEX4: Final = re.compile(r"[0-9A-Fa-f]{4}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPES: Final = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
# One object of strings without escapes, numbers that every parser reads alike, and literals. The
# possessive quantifiers keep it linear: nothing that was matched is ever given up.
_GAP: Final = r"[ \t\n\r]*+"
_CLEAR: Final = r'"[^"\\\x00-\x1f\ud800-\udfff]*+"'
_SHORT: Final = r"-?(?:0|[1-9][0-9]{0,7}+)(?:\.[0-9]{1,9}+)?+"
_MEMBER: Final = f"{_GAP}{_CLEAR}{_GAP}:{_GAP}(?:{_CLEAR}|{_SHORT}|true|false|null){_GAP}"
_UNDOUBTED: Final = re.compile(rf"{_GAP}\{{{_MEMBER}(?:,{_MEMBER})*+\}}{_GAP}")
# What is read again soon, within a few dozen megabytes.
_KEPT: Final = 8_192
_KEPT_BYTES: Final = 1_024
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_BOM: Final = "\ufeff"


class Oddity(Enum):
    """What is legal JSON and yet read differently from parser to parser."""

    DUPLICATE_NAME = "an object that has one name twice"
    LONE_SURROGATE = "an escape for half of a surrogate pair"
    LONG_NUMBER = "a number of more than 17 significant digits"
    OVERFLOW = "a number that a double holds only as infinity"
    UNDERFLOW = "a number that a double holds only as zero"
    DEEP = "more than 16 levels"
    BYTE_ORDER_MARK = "a byte order mark"


class NotUtf8(ValueError):
    """The bytes are not strict UTF-8 (RFC 3629). `position` is the first bad byte."""

    def __init__(self, position: int) -> None:
        super().__init__(f"byte {position} is not UTF-8")
        self.position = position


class NotJson(ValueError):
    """The text is not one JSON value (RFC 8259).

    `position` counts code points. `oddities` holds what was odd before that place: a parser may
    have stumbled there already.
    """

    def __init__(
        self, reason: str, position: int, oddities: frozenset[Oddity] = frozenset()
    ) -> None:
        super().__init__(f"{reason} at position {position}")
        self.reason = reason
        self.position = position
        self.oddities = oddities


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value, what is odd about it, and how many levels it has (a bare number has 0).

    Of two equal names the value keeps the last, as most parsers do. A number too large for a
    double is an infinity here.
    """

    value: JsonValue
    oddities: frozenset[Oddity]
    levels: int


def has_lone_surrogate(text: str) -> bool:
    """Whether `text` holds a code point from U+D800 to U+DFFF."""
    return _SURROGATE.search(text) is not None


def parse(data: bytes | str) -> Document:
    """Read one JSON value, white space around it allowed.

    What comes back is shared by all who ask for the same bytes: nobody may change it.

    Raises:
        NotUtf8: `data` is bytes and not strict UTF-8.
        NotJson: the text is not exactly one JSON value.
    """
    return _kept(data) if isinstance(data, bytes) and len(data) <= _KEPT_BYTES else _parse(data)


def _parse(data: bytes | str) -> Document:
    if isinstance(data, bytes):
        try:
            text = data.decode("utf-8", "strict")
        except UnicodeDecodeError as error:
            raise NotUtf8(error.start) from None
    else:
        text = data
    return _undoubted(text) or _Reader(text).document()


# Each message is read by the driver, by those who judge and by the oracle, and by a proxy.
_kept = lru_cache(maxsize=_KEPT)(_parse)


def _undoubted(text: str) -> Document | None:
    """The document if it is a flat object that no two parsers read differently, else None."""
    if not _UNDOUBTED.fullmatch(text):
        return None
    members: list[tuple[str, JsonValue]] = json.loads(text, object_pairs_hook=list)
    value: dict[str, JsonValue] = dict(members)
    return Document(value, frozenset(), 1) if len(value) == len(members) else None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._odd: set[Oddity] = set()
        self._levels = 0

    def document(self) -> Document:
        if self._text.startswith(_BOM):
            self._odd.add(Oddity.BYTE_ORDER_MARK)
            self._at = 1
        value = self._value()
        self._skip_space()
        if self._at != len(self._text):
            raise self._wrong("something follows the value")
        if self._levels > MAX_LEVELS:
            self._odd.add(Oddity.DEEP)
        return Document(value, frozenset(self._odd), self._levels)

    def _wrong(self, reason: str) -> NotJson:
        if self._levels > MAX_LEVELS:
            self._odd.add(Oddity.DEEP)
        return NotJson(reason, self._at, frozenset(self._odd))

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _value(self) -> JsonValue:
        """Read a value of any depth with an explicit stack of open arrays and objects."""
        stack: list[tuple[list[JsonValue] | dict[str, JsonValue], str]] = []
        name = ""
        while True:
            self._skip_space()
            mark = self._peek()
            value: JsonValue
            if mark == "[":
                self._at += 1
                value = []
                if not self._closes("]"):
                    stack.append((value, name))
                    self._levels = max(self._levels, len(stack))
                    continue
                self._levels = max(self._levels, len(stack) + 1)
            elif mark == "{":
                self._at += 1
                value = {}
                if not self._closes("}"):
                    stack.append((value, name))
                    self._levels = max(self._levels, len(stack))
                    name = self._name(value)
                    continue
                self._levels = max(self._levels, len(stack) + 1)
            else:
                value = self._scalar(mark)
            # The value is whole: hand it to what holds it, and close whatever ends here.
            while stack:
                holder, outer_name = stack[-1]
                if isinstance(holder, list):
                    holder.append(value)
                    closer = "]"
                else:
                    holder[name] = value
                    closer = "}"
                self._skip_space()
                mark = self._peek()
                if mark == ",":
                    self._at += 1
                    if isinstance(holder, dict):
                        name = self._name(holder)
                    break
                if mark != closer:
                    raise self._wrong(f"expected ',' or '{closer}'")
                self._at += 1
                value, name = holder, outer_name
                stack.pop()
            else:
                return value

    def _closes(self, closer: str) -> bool:
        self._skip_space()
        if self._peek() != closer:
            return False
        self._at += 1
        return True

    def _name(self, holder: dict[str, JsonValue]) -> str:
        self._skip_space()
        if self._peek() != '"':
            raise self._wrong("expected a name in quotes")
        name = self._string()
        if name in holder:
            self._odd.add(Oddity.DUPLICATE_NAME)
        # The name is taken from here on, though its value is still to be read.
        holder[name] = None
        self._skip_space()
        if self._peek() != ":":
            raise self._wrong("expected ':'")
        self._at += 1
        return name

    def _scalar(self, mark: str) -> JsonValue:
        if mark == '"':
            return self._string()
        if mark and mark in "-0123456789":
            return self._number()
        for word, value in _LITERALS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        raise self._wrong("expected a value" if mark else "the text ends where a value is due")

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self._wrong("not a number")
        whole, fraction, exponent = match.groups()
        self._at = match.end()
        digits = len((whole + (fraction or "")[1:]).lstrip("0"))
        if digits > MAX_SIGNIFICANT_DIGITS:
            self._odd.add(Oddity.LONG_NUMBER)
        if fraction is None and exponent is None and len(whole) <= _EXACT_DIGITS:
            integer = int(match.group())
            if len(whole) > 308 and abs(integer) > 1.7976931348623157e308:
                self._odd.add(Oddity.OVERFLOW)
            return integer
        number = float(match.group())
        if math.isinf(number):
            self._odd.add(Oddity.OVERFLOW)
        if number == 0 and digits:
            self._odd.add(Oddity.UNDERFLOW)
        return number

    def _string(self) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN.match(self._text, self._at)
            if match is not None and match.end() > self._at:
                parts.append(match.group())
                self._at = match.end()
            mark = self._peek()
            if mark == '"':
                self._at += 1
                break
            if mark != "\\":
                if mark:
                    raise self._wrong("a control character in a string")
                self._at = start
                raise self._wrong("a string without an end")
            parts.append(self._escape())
        text = "".join(parts)
        if _SURROGATE.search(text):
            # "😀" is two escapes for one code point: join pairs, then look again.
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            if _SURROGATE.search(text):
                self._odd.add(Oddity.LONE_SURROGATE)
        return text

    def _escape(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter == "u":
            match = _HEX4.match(self._text, self._at + 2)
            if match is None:
                raise self._wrong("'\\u' without four hexadecimal digits")
            self._at = match.end()
            return chr(int(match.group(), 16))
        try:
            plain = _ESCAPES[letter]
        except KeyError:
            raise self._wrong("an unknown escape") from None
        self._at += 2
        return plain
