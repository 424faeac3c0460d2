"""What an endpoint must make of one client message (`protocol.md#validation`).

The verdict is a set of legal outcomes, never a guess at what the endpoint prefers: where the
prose leaves a choice, or where the endpoint's own limits are not known, both outcomes stand.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from .strict_json import JsonValue, NotJson, NotUtf8, Oddity, has_lone_surrogate, parse

__all__ = [
    "CLIENT_CODES",
    "WHITE_SPACE",
    "Claims",
    "Meaning",
    "is_blank",
    "is_nothing_to_speak",
    "is_speakable",
    "read_client_message",
]

Verdict: TypeAlias = Literal["accept", "reject", "either"]

WHITE_SPACE: Final = frozenset(
    map(
        chr,
        (
            *range(0x09, 0x0E),
            *(0x20, 0x85, 0xA0, 0x1680),
            *range(0x2000, 0x200B),
            *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
        ),
    )
)
"""The code points with the Unicode property White_Space (Unicode 16.0, PropList.txt)."""

CLIENT_CODES: Final = frozenset(
    {
        "invalid_utf8",
        "invalid_json",
        "not_an_object",
        "unknown_type",
        "missing_text",
        "empty_text",
        "text_too_long",
        "invalid_voice",
        "invalid_speed",
        "unsupported_sample_rate",
        "unsupported_format",
        "invalid_request",
        "duplicate_request_id",
        "unsupported_version",
    }
)
"""The codes that blame the message, not the state of the endpoint."""

_TEXT_FLOOR: Final = 4096
_ID_FLOOR: Final = 128
_SPEED_FLOOR: Final = (0.5, 2.0)
_DEFAULT_FORMAT: Final = "pcm_s16le"
_DEFAULT_RATE: Final = 24_000
_ODD_CODES: Final = frozenset({"invalid_json", "invalid_request"})
# Regional indicators, modifiers of skin tone, and stretches in which every code point has
# Emoji_Presentation (Unicode 16.0, emoji-data.txt).
_EMOJI: Final = (
    (0x1F1E6, 0x1F1FF),
    (0x1F300, 0x1F320),
    (0x1F32D, 0x1F335),
    (0x1F337, 0x1F37C),
    (0x1F37E, 0x1F393),
    (0x1F3A0, 0x1F3CA),
    (0x1F3E0, 0x1F3F0),
    (0x1F3F8, 0x1F43E),
    (0x1F442, 0x1F4FC),
    (0x1F4FF, 0x1F53D),
    (0x1F5FB, 0x1F64F),
    (0x1F680, 0x1F6C5),
    (0x1F90C, 0x1F93A),
    (0x1F93C, 0x1F945),
    (0x1F947, 0x1F9FF),
)
_TYPES: Final = {
    "synthesize": "core",
    "close": "core",
    "keepalive": "core",
    "cancel": "interrupt",
    "hello": "negotiate",
}


_STRING_FIELDS: Final = {
    "synthesize": frozenset({"text", "voice", "format", "request_id"}),
    "cancel": frozenset({"request_id"}),
}


@dataclass(frozen=True, slots=True)
class Claims:
    """What is known of an endpoint. None means not known: the floors alone are then certain."""

    profiles: frozenset[str] = frozenset({"core"})
    max_text_chars: int | None = None
    max_request_id_chars: int | None = None
    max_waiting: int | None = None
    min_speed: float | None = None
    max_speed: float | None = None
    voices: frozenset[str] | None = None
    formats: frozenset[str] | None = None
    sample_rates: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if "core" not in self.profiles:
            raise ValueError("every endpoint claims the profile 'core'")


@dataclass(frozen=True, slots=True)
class Meaning:
    """The legal outcomes of one client message, taken by itself.

    `codes` are the codes legal if it is rejected. `type` is the kind of message it is, None where
    it is none. `request_id` is what a chunk about it carries; `id_certain` is False where parsers
    may differ on that. What depends on the session (a duplicate id, a full queue, shutdown, a
    `hello` that is not first, a message after `close`) is not considered here.
    """

    verdict: Verdict
    codes: frozenset[str]
    type: str | None
    fields: Mapping[str, JsonValue] = field(default_factory=dict)
    request_id: str | None = None
    id_certain: bool = True

    @property
    def text(self) -> str:
        """The text to be spoken, empty where there is none."""
        text = self.fields.get("text")
        return text if isinstance(text, str) else ""


def is_blank(text: str) -> bool:
    """Whether `text` holds nothing but Unicode White_Space."""
    return all(character in WHITE_SPACE for character in text)


def is_speakable(text: str) -> bool:
    """Whether `text` holds a letter or a number, so that something must be heard."""
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def is_nothing_to_speak(text: str) -> bool:
    """Whether `text` is certain to complete with zero bytes (`protocol.md#audio`).

    Of the code points with Emoji_Presentation, which Python has no table of, only the blocks that
    consist of nothing else are known here: False can mean that it is not known.
    """
    return all(map(_is_silent, text)) and not is_blank(text)


def _is_silent(character: str) -> bool:
    if character in WHITE_SPACE or character in "\ufe0e\ufe0f":
        return True
    category = unicodedata.category(character)
    if category[0] in "PZ" or category == "Cf":
        return True
    point = ord(character)
    return any(first <= point <= last for first, last in _EMOJI)


class _Faults:
    """Codes gathered from the fields: certain rejections and possible ones."""

    def __init__(self) -> None:
        self.certain: set[str] = set()
        self.possible: set[str] = set()

    def must(self, *codes: str) -> None:
        self.certain.update(codes)

    def may(self, *codes: str) -> None:
        self.possible.update(codes)

    def verdict(self) -> Verdict:
        if self.certain:
            return "reject"
        return "either" if self.possible else "accept"

    def codes(self) -> frozenset[str]:
        return frozenset(self.certain | self.possible)


def read_client_message(data: bytes, claims: Claims | None = None) -> Meaning:
    """Judge one whole client message; the kind of frame it came in makes no difference."""
    claims = claims or Claims()
    try:
        document = parse(data)
    except NotUtf8:
        return Meaning("reject", frozenset({"invalid_utf8"}), None)
    except NotJson as error:
        odd = error.oddities - {Oddity.BYTE_ORDER_MARK}
        codes = _ODD_CODES if odd else frozenset({"invalid_json"})
        return Meaning("reject", codes, None)
    odd = document.oddities
    if not isinstance(document.value, dict):
        codes = frozenset({"not_an_object"}) | (_ODD_CODES if odd else frozenset())
        return Meaning("reject", codes, None)
    fields = document.value
    faults = _Faults()
    kind = _check_type(fields, claims, faults)
    request_id, id_certain = _check_id(fields, kind, claims, faults)
    if kind == "synthesize":
        _check_synthesize(fields, claims, faults)
    elif kind == "hello":
        _check_hello(fields, faults)
    if odd == {Oddity.LONE_SURROGATE} and not _has_odd_surrogate(fields, kind):
        odd = frozenset()
    if odd:
        faults.may(*_ODD_CODES)
    if Oddity.DUPLICATE_NAME in odd:
        # Which of two equal names counts is the parser's choice, and so is everything after it.
        return Meaning("either", CLIENT_CODES, kind, fields, request_id, id_certain=False)
    return Meaning(
        faults.verdict(), faults.codes(), kind, fields, request_id, id_certain and not odd
    )


def _check_type(fields: Mapping[str, JsonValue], claims: Claims, faults: _Faults) -> str | None:
    kind = fields.get("type")
    if kind is None:
        return "synthesize"
    if not isinstance(kind, str):
        faults.must("invalid_request")
        return None
    if _TYPES.get(kind) not in claims.profiles:
        faults.must("unknown_type")
        if has_lone_surrogate(kind):
            faults.may("invalid_request")
        return None
    return kind


def _check_id(
    fields: Mapping[str, JsonValue], kind: str | None, claims: Claims, faults: _Faults
) -> tuple[str | None, bool]:
    """The id to echo and whether that is certain; its faults count only where it is a field."""
    relevant = kind in ("synthesize", "cancel")
    value = fields.get("request_id")
    if value is None:
        if kind == "cancel" and "request_id" in fields:
            faults.must("invalid_request")
        return None, True
    if not isinstance(value, str) or not value or has_lone_surrogate(value):
        if relevant:
            faults.must("invalid_request")
        return None, True
    limit = claims.max_request_id_chars
    if limit is not None and len(value) > limit:
        if relevant:
            faults.must("invalid_request")
        return None, True
    if limit is None and len(value) > _ID_FLOOR:
        if relevant:
            faults.may("invalid_request")
        return value, False
    return value, True


def _has_odd_surrogate(fields: Mapping[str, JsonValue], kind: str | None) -> bool:
    """Whether a lone surrogate stands in a name or in a value that is ignored anyway."""
    read = {"type"} | _STRING_FIELDS.get(kind or "", frozenset())
    queue: list[JsonValue] = []
    for name, value in fields.items():
        queue.append(name)
        if not (name in read and isinstance(value, str)):
            queue.append(value)
    while queue:
        value = queue.pop()
        if isinstance(value, str):
            if has_lone_surrogate(value):
                return True
        elif isinstance(value, list):
            queue.extend(value)
        elif isinstance(value, dict):
            queue.extend(value)
            queue.extend(value.values())
    return False


def _check_synthesize(fields: Mapping[str, JsonValue], claims: Claims, faults: _Faults) -> None:
    _check_text(fields.get("text"), claims, faults)
    _check_voice(fields.get("voice"), claims, faults)
    _check_speed(fields.get("speed"), claims, faults)
    _check_sample_rate(fields.get("sample_rate"), claims, faults)
    _check_format(fields.get("format"), claims, faults)
    if "timing" in claims.profiles:
        marks = fields.get("marks")
        if marks is not None and (
            not isinstance(marks, list) or any(mark != "word" for mark in marks)
        ):
            faults.must("invalid_request")


def _check_text(text: JsonValue, claims: Claims, faults: _Faults) -> None:
    if text is None:
        faults.must("missing_text")
        return
    if not isinstance(text, str):
        faults.must("invalid_request", "missing_text")
        return
    if has_lone_surrogate(text):
        faults.must("invalid_request")
    if is_blank(text):
        faults.must("empty_text")
    if claims.max_text_chars is not None:
        if len(text) > claims.max_text_chars:
            faults.must("text_too_long")
    elif len(text) > _TEXT_FLOOR:
        faults.may("text_too_long")


def _check_voice(voice: JsonValue, claims: Claims, faults: _Faults) -> None:
    if voice is None:
        return
    if not isinstance(voice, str):
        faults.must("invalid_request", "invalid_voice")
        return
    if not voice:
        faults.must("invalid_voice")
    elif claims.voices is None:
        faults.may("invalid_voice")
    elif voice not in claims.voices:
        faults.must("invalid_voice")
    if has_lone_surrogate(voice):
        faults.must("invalid_request", "invalid_voice")


def _check_speed(speed: JsonValue, claims: Claims, faults: _Faults) -> None:
    if speed is None:
        return
    if isinstance(speed, bool) or not isinstance(speed, int | float):
        faults.must("invalid_request", "invalid_speed")
        return
    if not _is_finite(speed):
        faults.must("invalid_speed", "invalid_request", "invalid_json")
        return
    low, high = _SPEED_FLOOR
    if low <= speed <= high:
        return
    bound = claims.min_speed if speed < low else claims.max_speed
    if speed <= 0 or (bound is not None and (speed < bound if speed < low else speed > bound)):
        faults.must("invalid_speed")
    elif bound is None:
        faults.may("invalid_speed")


def _check_sample_rate(rate: JsonValue, claims: Claims, faults: _Faults) -> None:
    if rate is None:
        return
    own = "unsupported_sample_rate"
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        faults.must("invalid_request", own)
    elif not _is_finite(rate):
        faults.must("invalid_request", own, "invalid_json")
    elif rate != int(rate):
        faults.must("invalid_request", own)
    elif rate <= 0 or (claims.sample_rates is not None and rate not in claims.sample_rates):
        faults.must(own)
    elif rate != _DEFAULT_RATE and claims.sample_rates is None:
        faults.may(own)


def _check_format(name: JsonValue, claims: Claims, faults: _Faults) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        faults.must("invalid_request", "unsupported_format")
        return
    if not name or (claims.formats is not None and name not in claims.formats):
        faults.must("unsupported_format")
    elif claims.formats is None and name != _DEFAULT_FORMAT:
        faults.may("unsupported_format")
    if has_lone_surrogate(name):
        faults.must("invalid_request", "unsupported_format")


def _check_hello(fields: Mapping[str, JsonValue], faults: _Faults) -> None:
    versions = fields.get("protocol_versions")
    if not isinstance(versions, list) or not versions:
        faults.must("invalid_request")
        return
    if not all(_is_integer(version) for version in versions):
        faults.must("invalid_request")
    elif 1 not in versions:
        faults.must("unsupported_version")


def _is_integer(value: JsonValue) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return _is_finite(value) and value == int(value)


def _is_finite(value: float) -> bool:
    """Whether a double can hold the value; an integer of 400 digits is none that it can."""
    return value.bit_length() <= 1024 if isinstance(value, int) else math.isfinite(value)
