"""Strict JSON text (RFC 8259), read in bounded time whatever it holds.

``json.loads`` alone will not do: it takes NaN and infinities, guesses UTF-16 and UTF-32 from
bytes, raises ``ValueError`` past 4,300 digits and ``RecursionError`` on deep nesting. Here bytes
are UTF-8 or nothing, levels are counted before parsing, and a number too long for a double is the
nearest double.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import NoReturn

from utterwire_protocol.errors import RemoteProtocolError

__all__ = ["MAX_LEVELS", "JsonObject", "decode_utf8", "dump", "parse_object", "quoted"]

JsonObject = dict[str, object]

#: Levels of nesting that are read; the outermost object is level 1 (``protocol.md#odd-json``).
MAX_LEVELS = 16

# A number of more digits than this is read as the nearest double, in linear time.
_EXACT_DIGITS = 18

# What is no bracket of the structure: strings, closed or not (so that no input makes the scan start
# again inside of one), and all else.
_NO_BRACKET = re.compile(r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+\\?+(?:"|\Z)|[^"\[\]{}]++)++', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class _RepeatedName(Exception):
    """An object holds a name twice."""


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _EXACT_DIGITS else float(digits)


def _unique(pairs: list[tuple[str, object]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedName
    return members


_LENIENT = json.JSONDecoder(parse_int=_integer, parse_constant=_constant)
_UNIQUE = json.JSONDecoder(parse_int=_integer, parse_constant=_constant, object_pairs_hook=_unique)


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_LEVELS:
        return False
    brackets = _NO_BRACKET.sub("", text)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_LEVELS


def decode_utf8(data: bytes) -> str:
    """The text of UTF-8 bytes.

    Raises ``RemoteProtocolError`` with ``invalid_utf8`` for anything that RFC 3629 does not allow.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(
            "reject.invalid-utf8",
            "invalid_utf8",
            f"The message is not UTF-8: byte {error.start} cannot be decoded.",
        ) from None


def parse_object(text: str, *, unique_names: bool) -> JsonObject:
    """The members of the JSON object that is the whole of ``text``.

    A number of more digits than a double holds becomes the nearest double, which may be infinite.
    Lone surrogates are kept. Where a name comes twice, the last member counts, unless
    ``unique_names`` is asked for.

    Raises ``RemoteProtocolError`` with ``invalid_json`` where ``text`` is not one value of RFC
    8259, ``not_an_object`` for another value than an object, and ``invalid_request`` for odd JSON
    that is not read: over ``MAX_LEVELS`` levels, or a name twice (``protocol.md#odd-json``).
    """
    if _too_deep(text):
        raise RemoteProtocolError(
            "reject.odd-json-survives",
            "invalid_request",
            f"The message has more than {MAX_LEVELS} levels of nesting.",
        )
    decoder = _UNIQUE if unique_names else _LENIENT
    try:
        # raw_decode and not decode, whose idea of white space is wider in no version so far but
        # is not documented: RFC 8259 section 2 has these four.
        start = len(text) - len(text.lstrip(" \t\n\r"))
        value, end = decoder.raw_decode(text, start)
    except _RepeatedName:
        raise RemoteProtocolError(
            "reject.odd-json-survives",
            "invalid_request",
            "The message has an object in which a name is repeated.",
        ) from None
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg}, at character {error.pos}") from None
    except ValueError as error:
        raise _not_json(f"{error} is no JSON number") from None
    if text[end:].strip(" \t\n\r"):
        raise _not_json(f"more follows the value, at character {end}")
    if not isinstance(value, dict):
        raise RemoteProtocolError(
            "reject.not-an-object",
            "not_an_object",
            "The message is JSON, but not an object.",
        )
    return value


def _not_json(why: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        "reject.invalid-json", "invalid_json", f"The message is not JSON: {why}."
    )


def dump(members: JsonObject) -> bytes:
    """One JSON object in UTF-8, without white space.

    The caller vouches for strings without lone surrogates and for finite numbers.
    """
    text = json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")


def quoted(value: str, limit: int = 40) -> str:
    """``value`` in quotes and plain ASCII, cut to ``limit`` code points, for an error message."""
    return json.dumps(value if len(value) <= limit else value[:limit] + "...")
