"""A second reading of the rules, in the plainest code, to hold the vectors against.

Nothing here is shared with the implementations: no recursion, no json module, no cleverness.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Any

import pytest

_TOKEN = re.compile(
    r'[ \t\r\n]*(?:([{}\[\],:])|"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"'
    r"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(true|false|null))"
)
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u(....)|\\(.)"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}


def _unescape(match: re.Match[str]) -> str:
    high, low, unit, short = match.groups()
    if high:
        return chr(0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00)
    return chr(int(unit, 16)) if unit else _SHORT.get(short, short)


def has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


class Members(list[tuple[str, Any]]):
    """A JSON object, with its members as they were written, repeated names and all."""


@dataclass
class Reading:
    """A JSON text that was read, and what is odd about it."""

    value: Any = None
    failed: bool = False
    depth: int = 0
    duplicates: bool = False
    long: bool = False
    infinite: bool = False
    vanishing: bool = False
    surrogates: int = 0


def _number(token: str, reading: Reading) -> int | float:
    mantissa = re.split("[eE]", token)[0]
    digits = mantissa.replace("-", "").replace(".", "").lstrip("0")
    value = float(token)
    reading.long |= len(digits) > 17
    reading.infinite |= isinf(value)
    reading.vanishing |= value == 0 and digits != ""
    return int(token) if mantissa == token and "." not in token and len(digits) < 40 else value


def read_json(text: str) -> Reading:
    """RFC 8259, with a stack of our own so that no depth is too deep."""
    reading = Reading()
    stack: list[tuple[Any, str | None]] = []
    names: list[set[str]] = []
    at, state = 0, "value"
    try:
        while True:
            match = _TOKEN.match(text, at)
            if match is None:
                break
            at = match.end()
            mark, string, number, word = match.groups()
            done: Any = None
            if (state == "name" and string is not None) or (state == "name or }" and mark != "}"):
                name = _ESCAPE.sub(_unescape, string)
                reading.surrogates += has_surrogate(name)
                reading.duplicates |= name in names[-1]
                names[-1].add(name)
                stack[-1] = (stack[-1][0], name)
                state = ":"
                continue
            if state == ":" and mark == ":":
                state = "value"
                continue
            if mark == "," and state in (", or }", ", or ]"):
                state = "name" if state == ", or }" else "value"
                continue
            if mark in ("{", "[") and state.startswith("value"):
                stack.append((Members() if mark == "{" else [], None))
                names.append(set())
                reading.depth = max(reading.depth, len(stack))
                state = "name or }" if mark == "{" else "value or ]"
                continue
            if mark in ("}", "]") and state.endswith(f"or {mark}"):
                done = stack.pop()[0]
                names.pop()
            elif mark is not None or not state.startswith("value"):
                raise ValueError(state)
            elif string is not None:
                done = _ESCAPE.sub(_unescape, string)
                reading.surrogates += has_surrogate(done)
            else:
                done = _WORDS[word] if word else _number(number, reading)
            if not stack:
                reading.value, state = done, "end"
                continue
            holder, held_name = stack[-1]
            if isinstance(holder, Members):
                holder.append((held_name or "", done))
            else:
                holder.append(done)
            state = ", or }" if isinstance(holder, Members) else ", or ]"
    except (ValueError, TypeError):
        reading.failed = True
    reading.failed |= state != "end" or text[at:].strip(" \t\r\n") != ""
    return reading


def classify(chunk: bytes, frame: str) -> tuple[str, bool]:
    """What a receiver takes a chunk for, and whether it may be sent as control."""
    try:
        reading = read_json(chunk.decode("utf-8")) if chunk else Reading(failed=True)
    except UnicodeDecodeError:
        reading = Reading(failed=True)
    types = (
        [value for name, value in reading.value if name == "type"]
        if (not reading.failed and isinstance(reading.value, Members))
        else []
    )
    strings = [value for value in types if isinstance(value, str)]
    odd = (
        reading.duplicates
        or reading.long
        or reading.infinite
        or reading.surrogates > 0
        or reading.depth > 16
        or len(chunk) > 65536
    )
    begins = chunk[:1] == b"\x7b"
    sendable = begins and bool(strings) and not odd
    if frame == "text":
        return "control", sendable
    if not begins or not strings:
        return "audio", sendable
    return ("either" if odd else "control"), sendable


def unsendable(chunk: bytes) -> str | None:
    """Why an endpoint may not send a chunk as audio, if it may not."""
    if not chunk:
        return "empty"
    if len(chunk) > 65536:
        return "too-large"
    if chunk[0] == 0x7B and chunk.rstrip(b" \t\r\n")[-1] == 0x7D:
        return "brace"
    return None


WHITE_SPACE = "".join(
    map(
        chr,
        [
            *(*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)),
            *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
        ],
    )
)
FLOORS: Mapping[str, Any] = {
    "max_text_chars": 4096,
    "max_request_id_chars": 128,
    "max_waiting": 8,
    "min_speed": 0.5,
    "max_speed": 2.0,
    "idle_timeout_s": 300,
}


@dataclass
class Judgement:
    """What an endpoint may do with a message: accept it, or reject it with one of the codes."""

    type: str | None = None
    acceptable: bool = False
    rejectable: bool = True
    codes: set[str] = field(default_factory=set)
    request_id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    odd: bool = False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_id(value: object, limits: Mapping[str, Any]) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= limits["max_request_id_chars"]
        and not has_surrogate(value)
    )


def _named(value: object, known: Iterable[str], code: str) -> set[str]:
    if value is None or (isinstance(value, str) and value in known):
        return set()
    if isinstance(value, str) and not has_surrogate(value):
        return {code}
    return {code, "invalid_request"}


def _synthesize_faults(
    given: Mapping[str, Any], claims: set[str], limits: Mapping[str, Any], voices: Iterable[str]
) -> set[str]:
    faults: set[str] = set()
    text = given.get("text")
    if text is None:
        faults.add("missing_text")
    elif not isinstance(text, str):
        faults |= {"missing_text", "invalid_request"}
    else:
        if not text.strip(WHITE_SPACE):
            faults.add("empty_text")
        if has_surrogate(text):
            faults.add("invalid_request")
        if len(text) > limits["max_text_chars"]:
            faults.add("text_too_long")
    faults |= _named(given.get("voice"), voices, "invalid_voice")
    faults |= _named(given.get("format"), ["pcm_s16le"], "unsupported_format")
    speed, rate = given.get("speed"), given.get("sample_rate")
    if speed is not None and not _is_number(speed):
        faults |= {"invalid_speed", "invalid_request"}
    elif speed is not None and not limits["min_speed"] <= speed <= limits["max_speed"]:
        faults.add("invalid_speed")
    if rate is not None and not (_is_number(rate) and (isinf(rate) or rate == int(rate))):
        faults |= {"unsupported_sample_rate", "invalid_request"}
    elif rate is not None and rate != 24000:
        faults.add("unsupported_sample_rate")
    if given.get("request_id") is not None and not _is_id(given["request_id"], limits):
        faults.add("invalid_request")
    marks = given.get("marks")
    if (
        "timing" in claims
        and marks is not None
        and (not isinstance(marks, list) or any(kind != "word" for kind in marks))
    ):
        faults.add("invalid_request")
    return faults


def _faults(
    given: Mapping[str, Any], claims: set[str], limits: Mapping[str, Any], voices: Iterable[str]
) -> tuple[str | None, set[str]]:
    kind = given.get("type")
    kind = "synthesize" if kind is None else kind
    served = {"synthesize", "close", "keepalive"}
    served |= {"cancel"} if "interrupt" in claims else set()
    served |= {"hello"} if "negotiate" in claims else set()
    if not isinstance(kind, str):
        return None, {"invalid_request"}
    if kind not in served:
        return None, {"unknown_type"} | ({"invalid_request"} if has_surrogate(kind) else set())
    if kind == "synthesize":
        return kind, _synthesize_faults(given, claims, limits, voices)
    if kind == "cancel" and "request_id" in given and not _is_id(given["request_id"], limits):
        return kind, {"invalid_request"}
    if kind == "hello":
        versions = given.get("protocol_versions")
        if (
            not isinstance(versions, list)
            or not versions
            or not all(_is_number(version) and version == int(version) for version in versions)
        ):
            return kind, {"invalid_request"}
        return kind, set() if 1 in versions else {"unsupported_version"}
    return kind, set()


def judge_message(
    raw: bytes, claims: set[str], limits: Mapping[str, Any], voices: Iterable[str] = ()
) -> Judgement:
    """The outcomes that are legal for one message, the first of a fresh session."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Judgement(codes={"invalid_utf8"})
    mark = text.startswith("\ufeff")
    reading = read_json(text.removeprefix("\ufeff"))
    odd = (
        reading.duplicates
        or reading.long
        or reading.infinite
        or reading.vanishing
        or reading.depth > 16
    )
    excuse = {"invalid_json", "invalid_request"}
    if reading.failed:
        return Judgement(codes=excuse if odd else {"invalid_json"})
    odd = odd or mark
    if not isinstance(reading.value, Members):
        return Judgement(codes={"not_an_object"} | (excuse if odd else set()))
    values: dict[str, list[Any]] = {}
    for name, value in reading.value:
        values.setdefault(name, []).append(value)
    known = [
        value
        for name in ("type", "text", "voice", "format", "request_id")
        for value in values.get(name, [])
        if isinstance(value, str) and has_surrogate(value)
    ]
    odd = odd or reading.surrogates > len(known)
    result = Judgement(rejectable=odd, codes=excuse if odd else set(), odd=odd)
    for choice in itertools.product(*values.values()):
        given = dict(zip(values, choice, strict=True))
        kind, faults = _faults(given, claims, limits, voices)
        result.codes |= faults
        result.rejectable |= bool(faults)
        result.acceptable |= not faults
        result.type = kind
        result.fields = given
        # Types without this field echo it only when they are rejected.
        has_id = kind not in ("close", "keepalive", "hello")
        if _is_id(given.get("request_id"), limits) and (has_id or faults):
            result.request_id = given["request_id"]
    return result


class Rules:
    """The functions above, for tests."""

    read_json = staticmethod(read_json)
    classify = staticmethod(classify)
    unsendable = staticmethod(unsendable)
    judge_message = staticmethod(judge_message)
    is_id = staticmethod(_is_id)
    floors = FLOORS


@pytest.fixture(scope="session")
def rules() -> type[Rules]:
    return Rules
