"""Client messages: parsing, validation, and the texts of refusals (protocol.md#validation)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

VOICES = ("tone/\u03b1", "tone \u03b2")
FORMATS = ("pcm_s16le",)
SAMPLE_RATE = 24_000
PROFILES = ("core", "http", "interrupt", "negotiate")
MAX_TEXT_CHARS = 5_000
MAX_MESSAGE_BYTES = 131_072
MAX_REQUEST_ID_CHARS = 200
MAX_WAITING = 11
MIN_SPEED = 0.4
MAX_SPEED = 3.0
SESSION_TYPES = frozenset({"synthesize", "close", "keepalive", "cancel", "hello"})
HTTP_TYPES = frozenset({"synthesize"})
MAX_DEPTH = 16
MAX_DIGITS = 17
# The 25 code points that are White_Space in version 1; str.isspace() has others.
BLANK = frozenset(range(0x2000, 0x200B)).union(
    map(ord, "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000")
)

# code: (retryable, HTTP status, words for a person)
CODES: dict[str, tuple[bool, int, str]] = {
    "invalid_utf8": (False, 400, "The message is not UTF-8."),
    "invalid_json": (False, 400, "The message is not JSON as this endpoint reads it."),
    "not_an_object": (False, 400, "The message is JSON, but no object."),
    "unknown_type": (False, 400, "There is no such message type here."),
    "missing_text": (False, 400, "There is no `text`."),
    "empty_text": (False, 400, "The text is blank."),
    "text_too_long": (False, 413, f"The text is longer than {MAX_TEXT_CHARS} code points."),
    "invalid_voice": (False, 400, "There is no such voice."),
    "invalid_speed": (False, 400, f"The speed is not within {MIN_SPEED} to {MAX_SPEED}."),
    "unsupported_sample_rate": (False, 400, "The only sample rate is 24000."),
    "unsupported_format": (False, 400, "The only format is pcm_s16le."),
    "invalid_request": (False, 400, "A field has a wrong type or value."),
    "duplicate_request_id": (False, 409, "An unended utterance has this request_id."),
    "unsupported_version": (False, 400, "This endpoint speaks version 1 only."),
    "queue_full": (True, 503, f"{MAX_WAITING} utterances wait already."),
    "synthesis_failed": (True, 500, "The speech could not be made."),
    "going_away": (True, 503, "The endpoint ends before this could be spoken."),
}


class Refused(Exception):
    """A message is not accepted: why, with its id and type where they are known."""

    def __init__(
        self,
        code: str,
        message: str = "",
        request_id: str | None = None,
        kind: str | None = None,
    ) -> None:
        """Keep the code, a text for a person, the id to echo and the type."""
        super().__init__(code)
        self.code = code
        self.message = message or CODES[code][2]
        self.request_id = request_id
        self.kind = kind


@dataclass(frozen=True)
class Speak:
    """A valid `synthesize`, defaults filled in; `stream` is for HTTP only."""

    text: str
    voice: str
    speed: float
    request_id: str | None
    stream: bool = True


@dataclass(frozen=True)
class Cancel:
    """A valid `cancel`; without an id it means everything."""

    request_id: str | None


@dataclass(frozen=True)
class Close:
    """A `close`."""


@dataclass(frozen=True)
class Keepalive:
    """A `keepalive`."""


@dataclass(frozen=True)
class Hello:
    """A `hello` that is well formed and names version 1; an id is only for a refusal."""

    request_id: str | None


Message = Speak | Cancel | Close | Keepalive | Hello


def error_fields(
    code: str, message: str, request_id: str | None, *, rejected: bool
) -> dict[str, Any]:
    """Give the fields of an `error`, without `seq`."""
    fields: dict[str, Any] = {"type": "error", "code": code, "message": message}
    fields["retryable"] = CODES[code][0]
    if request_id is not None:
        fields["request_id"] = request_id
    if rejected:
        fields["rejected"] = True
    return fields


def dump(message: dict[str, Any]) -> str:
    """Write a control message: it begins with a brace, and non-ASCII stays as it is."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False)


def _number(literal: str) -> int | float:
    """Read a number; refuse what doubles do not hold (Odd JSON)."""
    mantissa = literal.lower().partition("e")[0]
    digits = mantissa.replace(".", "").lstrip("-").strip("0")
    value = math.inf if len(digits) > MAX_DIGITS else float(literal)
    if math.isinf(value) or (value == 0 and digits):
        raise Refused("invalid_json", "A number is beyond what a double holds.")
    return int(value) if value.is_integer() else value


def _constant(_: str) -> NoReturn:
    raise Refused("invalid_json", "NaN and Infinity are not JSON.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; a repeated name is refused, as any odd JSON may be."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Refused("invalid_json", "A name is repeated in an object.")
    return value


def _too_deep(text: str) -> bool:
    """Tell in one linear pass whether brackets nest beyond the limit, outside strings."""
    depth = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif char in "}]":
            depth -= 1
    return False


def _has_surrogate(value: Any) -> bool:
    """Tell whether any name or string in a value (of bounded depth) has a lone surrogate."""
    if isinstance(value, str):
        return any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, dict):
        return any(_has_surrogate(k) or _has_surrogate(v) for k, v in value.items())
    return isinstance(value, list) and any(map(_has_surrogate, value))


def parse(raw: bytes | str) -> dict[str, Any]:
    """Read octets or text as one JSON object, or raise `Refused`."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("invalid_utf8") from None
    if _too_deep(text):
        raise Refused("invalid_json", f"The JSON nests deeper than {MAX_DEPTH} levels.")
    try:
        value = json.loads(
            text,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except ValueError:
        raise Refused("invalid_json") from None
    if not isinstance(value, dict):
        raise Refused("not_an_object")
    return value


def valid_id(value: object) -> bool:
    """Tell whether a value can be a `request_id` here."""
    return (
        isinstance(value, str)
        and 1 <= len(value) <= MAX_REQUEST_ID_CHARS
        and not _has_surrogate(value)
    )


def _check_speak(fields: dict[str, Any], *, http: bool) -> Speak:
    """Check the fields of `synthesize`; the codes are told by raising `Refused`."""
    text = fields.get("text")
    if text is None:
        raise Refused("missing_text")
    if not isinstance(text, str):
        raise Refused("invalid_request", "`text` is not a string.")
    if all(ord(char) in BLANK for char in text):
        raise Refused("empty_text")
    if len(text) > MAX_TEXT_CHARS:
        raise Refused("text_too_long")
    voice = fields.get("voice", VOICES[0])
    if not isinstance(voice, str) or voice not in VOICES:
        raise Refused("invalid_voice")
    speed = fields.get("speed", 1)
    if isinstance(speed, bool) or not isinstance(speed, int | float):
        raise Refused("invalid_speed", "`speed` is not a number.")
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise Refused("invalid_speed")
    rate = fields.get("sample_rate", SAMPLE_RATE)
    if isinstance(rate, bool) or not isinstance(rate, int):
        raise Refused("invalid_request", "`sample_rate` is not an integer.")
    if rate != SAMPLE_RATE:
        raise Refused("unsupported_sample_rate")
    if fields.get("format", FORMATS[0]) not in FORMATS:
        raise Refused("unsupported_format")
    stream = fields.get("stream", True) if http else True
    if not isinstance(stream, bool):
        raise Refused("invalid_request", "`stream` is not a boolean.")
    return Speak(text, voice, float(speed), fields.get("request_id"), stream)


def _check_hello(fields: dict[str, Any], request_id: str | None) -> Hello:
    """Check the fields of `hello`."""
    versions = fields.get("protocol_versions")
    if not isinstance(versions, list) or not versions:
        raise Refused("invalid_request", "`protocol_versions` is not a list of integers.")
    if any(isinstance(v, bool) or not isinstance(v, int) for v in versions):
        raise Refused("invalid_request", "`protocol_versions` holds more than integers.")
    if 1 not in versions:
        raise Refused("unsupported_version")
    return Hello(request_id)


def judge(raw: bytes | str, *, http: bool = False) -> Message:
    """Validate one message as far as it can be without knowing the session."""
    value = parse(raw)
    null_id = "request_id" in value and value["request_id"] is None
    fields = {name: item for name, item in value.items() if item is not None}
    kind = fields.get("type", "synthesize")
    echo = fields.get("request_id")
    request_id = echo if valid_id(echo) else None
    try:
        if not isinstance(kind, str):
            raise Refused("invalid_request", "`type` is not a string.")
        if _has_surrogate(value):
            raise Refused("invalid_request", "A string holds a lone surrogate.")
        if kind not in (HTTP_TYPES if http else SESSION_TYPES):
            raise Refused("unknown_type")
        if kind == "close":
            return Close()
        if kind == "keepalive":
            return Keepalive()
        if kind == "hello":
            return _check_hello(fields, request_id)
        if (echo is not None and request_id is None) or (kind == "cancel" and null_id):
            raise Refused("invalid_request", "`request_id` is not a valid id.")
        return Cancel(request_id) if kind == "cancel" else _check_speak(fields, http=http)
    except Refused as refusal:
        refusal.request_id = request_id
        refusal.kind = kind if isinstance(kind, str) else None
        raise
