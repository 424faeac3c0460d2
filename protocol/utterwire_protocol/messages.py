"""Client messages: reading them as an endpoint must, and writing them.

The rules are those of ``protocol.md#validation``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from utterwire_protocol.errors import RemoteProtocolError
from utterwire_protocol.jsontext import JsonObject, decode_utf8, dump, parse_object, quoted
from utterwire_protocol.options import EndpointOptions

__all__ = [
    "WHITE_SPACE",
    "Cancel",
    "ClientMessage",
    "Close",
    "Hello",
    "Keepalive",
    "Rejection",
    "Request",
    "Synthesize",
    "encode_message",
    "has_lone_surrogate",
    "is_blank",
    "parse_message",
    "parse_request",
    "validate_synthesize",
]

#: The 25 code points of Unicode White_Space, as version 1 lists them (``protocol.md#synthesize``).
#: ``str.isspace`` is another set: it has U+001C to U+001F, which are none.
WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class Synthesize:
    """An accepted request, every default filled in. ``sample_rate`` in Hz, ``speed`` a factor.

    The text is private and not shown in ``repr``.
    """

    text: str = field(repr=False)
    voice: str
    speed: float
    sample_rate: int
    format: str
    marks: tuple[str, ...]
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Close:
    """``close``."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """``keepalive``."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """``cancel``; ``request_id`` None means all that is unended."""

    request_id: str | None


@dataclass(frozen=True, slots=True)
class Hello:
    """``hello`` with the versions it names; a ``request_id`` is only echoed by a rejection."""

    versions: tuple[int, ...]
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A message that is not accepted: error code, words for a person, and the id to echo if valid.

    ``requirement`` is the broken rule. ``at_once`` tells that the error overtakes what waits: it
    answers a ``cancel`` or ``hello`` of a profile that is claimed (``protocol.md#order``).
    ``retry_after_s``: after how many seconds it is worth another try, where that is known.
    """

    code: str
    message: str
    request_id: str | None
    requirement: str
    at_once: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The body of an HTTP request (``http.md``)."""

    synthesize: Synthesize
    stream: bool


_INFINITE = (math.inf, -math.inf)

ClientMessage = Synthesize | Close | Keepalive | Cancel | Hello


def has_lone_surrogate(text: str) -> bool:
    """Whether ``text`` holds a code point that UTF-8 cannot carry."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def is_blank(text: str) -> bool:
    """Whether ``text`` is empty or holds nothing but White_Space."""
    return not text.strip(WHITE_SPACE)


def _refuse(requirement: str, code: str, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(requirement, code, message)


def _wrong_type(name: str, due: str) -> RemoteProtocolError:
    return _refuse("reject.field-types", "invalid_request", f"`{name}` must be {due}.")


def _valid_id(value: object, options: EndpointOptions) -> str | None:
    """``value`` if it is a valid ``request_id``."""
    if not isinstance(value, str) or not 1 <= len(value) <= options.limits.max_request_id_chars:
        return None
    return None if has_lone_surrogate(value) else value


def _is_integral(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool)
    # A number too large for a double was read as infinity, and is integral.
    return isinstance(value, float) and (math.isinf(value) or value.is_integer())


def _text(fields: JsonObject, options: EndpointOptions) -> str:
    text = fields.get("text")
    if text is None:
        raise _refuse("reject.missing-text", "missing_text", "`text` is missing.")
    if not isinstance(text, str):
        raise _refuse("reject.text-type", "invalid_request", "`text` must be a string.")
    if len(text) > options.limits.max_text_chars:
        raise _refuse(
            "reject.text-too-long",
            "text_too_long",
            f"`text` has {len(text)} code points; the limit is {options.limits.max_text_chars}.",
        )
    if has_lone_surrogate(text):
        raise _refuse("reject.lone-surrogate", "invalid_request", "`text` holds a lone surrogate.")
    if is_blank(text):
        raise _refuse("reject.empty-text", "empty_text", "`text` has nothing but white space.")
    return text


def _voice(fields: JsonObject, options: EndpointOptions) -> str:
    voice = fields.get("voice")
    if voice is None:
        return options.default_voice
    if not isinstance(voice, str):
        raise _wrong_type("voice", "a string")
    if voice not in options.voices:
        raise _refuse(
            "reject.invalid-voice", "invalid_voice", f"There is no voice {quoted(voice)}."
        )
    return voice


def _speed(fields: JsonObject, options: EndpointOptions) -> float:
    speed = fields.get("speed")
    if speed is None:
        return 1.0
    if not isinstance(speed, (int, float)) or isinstance(speed, bool):
        raise _wrong_type("speed", "a number")
    low, high = options.limits.min_speed, options.limits.max_speed
    if not low <= speed <= high:
        raise _refuse(
            "reject.invalid-speed", "invalid_speed", f"`speed` must be {low:g} to {high:g}."
        )
    return float(speed)


def _format(fields: JsonObject, options: EndpointOptions) -> str:
    format = fields.get("format")
    if format is None:
        return options.default_format
    if not isinstance(format, str):
        raise _wrong_type("format", "a string")
    if format not in options.formats:
        raise _refuse(
            "reject.unsupported-format",
            "unsupported_format",
            f"The format {quoted(format)} is not offered.",
        )
    return format


def _sample_rate(fields: JsonObject, format: str, options: EndpointOptions) -> int:
    rate = fields.get("sample_rate")
    if rate is None:
        return options.default_rate_for(format)
    if not _is_integral(rate):
        raise _wrong_type("sample_rate", "an integer")
    offered = options.rates_for(format)
    if rate not in offered:
        raise _refuse(
            "reject.unsupported-sample-rate",
            "unsupported_sample_rate",
            f"`sample_rate` must be one that is offered for {format}.",
        )
    return next(each for each in offered if each == rate)


def _marks(fields: JsonObject, options: EndpointOptions) -> tuple[str, ...]:
    if "timing" not in options.profiles:
        return ()
    marks = fields.get("marks")
    if marks is None:
        return ()
    if not isinstance(marks, list) or any(mark != "word" for mark in marks):
        raise _refuse(
            "timing.invalid", "invalid_request", '`marks` must be an array of "word" alone.'
        )
    return ("word",) if marks else ()


def _request_id(fields: JsonObject, options: EndpointOptions) -> str | None:
    value = fields.get("request_id")
    if value is None:
        return None
    valid = _valid_id(value, options)
    if valid is None:
        raise _refuse(
            "reject.request-id",
            "invalid_request",
            "`request_id` must be a string of 1 to "
            f"{options.limits.max_request_id_chars} code points without lone surrogates.",
        )
    return valid


def _synthesize(fields: JsonObject, options: EndpointOptions) -> Synthesize:
    format = _format(fields, options)
    return Synthesize(
        text=_text(fields, options),
        voice=_voice(fields, options),
        speed=_speed(fields, options),
        sample_rate=_sample_rate(fields, format, options),
        format=format,
        marks=_marks(fields, options),
        request_id=_request_id(fields, options),
    )


def _cancel(fields: JsonObject, options: EndpointOptions) -> Cancel:
    if "request_id" not in fields:
        return Cancel(None)
    if fields["request_id"] is None:
        raise _refuse(
            "cancel.null-id",
            "invalid_request",
            "`request_id` of a cancel must not be null; leave it out to cancel all.",
        )
    try:
        return Cancel(_request_id(fields, options))
    except RemoteProtocolError as error:
        raise _refuse("cancel.invalid-id", error.code, error.message) from None


def _hello(fields: JsonObject, options: EndpointOptions) -> Hello:
    versions = fields.get("protocol_versions")
    if not isinstance(versions, list) or not versions:
        raise _refuse(
            "hello.malformed",
            "invalid_request",
            "`protocol_versions` must be an array of at least one integer.",
        )
    for version in versions:
        if not _is_integral(version):
            raise _refuse(
                "hello.malformed", "invalid_request", "`protocol_versions` must hold integers."
            )
    finite = tuple(int(version) for version in versions if version not in _INFINITE)
    return Hello(finite, _valid_id(fields.get("request_id"), options))


def _read(fields: JsonObject, type: str, options: EndpointOptions) -> ClientMessage:
    if type == "synthesize":
        return _synthesize(fields, options)
    if type == "close":
        return Close()
    if type == "keepalive":
        return Keepalive()
    if type == "cancel" and "interrupt" in options.profiles:
        return _cancel(fields, options)
    if type == "hello" and "negotiate" in options.profiles:
        return _hello(fields, options)
    raise _refuse(
        "reject.unknown-type",
        "unknown_type",
        f"There is no message type {quoted(type)} here.",
    )


def _type_of(fields: JsonObject) -> str:
    type = fields.get("type")
    if type is None:
        return "synthesize"
    if not isinstance(type, str):
        raise _refuse("reject.type-not-string", "invalid_request", "`type` must be a string.")
    return type


def _rejection(
    error: RemoteProtocolError,
    fields: JsonObject,
    options: EndpointOptions,
    type: str | None = None,
) -> Rejection:
    return Rejection(
        code=error.code,
        message=error.message,
        request_id=_valid_id(fields.get("request_id"), options),
        requirement=error.requirement,
        at_once=type in ("cancel", "hello") and error.code != "unknown_type",
    )


def parse_message(data: bytes, options: EndpointOptions) -> ClientMessage | Rejection:
    """What one whole client message says, or why it is rejected. Never raises for any bytes.

    Judges the message by itself: what depends on the session (a duplicate id, a late ``hello``, a
    full queue) is judged by ``Connection``.
    """
    fields: JsonObject = {}
    type = None
    try:
        fields = parse_object(decode_utf8(data), unique_names=True)
        type = _type_of(fields)
        return _read(fields, type, options)
    except RemoteProtocolError as error:
        return _rejection(error, fields, options, type)


def validate_synthesize(fields: JsonObject, options: EndpointOptions) -> Synthesize | Rejection:
    """The request that the members of a ``synthesize`` message make, or why they make none.

    ``fields`` are as parsed from JSON; ``type`` among them is not looked at.
    """
    try:
        return _synthesize(fields, options)
    except RemoteProtocolError as error:
        return _rejection(error, fields, options)


def parse_request(body: bytes, options: EndpointOptions) -> Request | Rejection:
    """What the body of ``POST /invocations`` asks for, or why it is rejected (``http.md``).

    The body is a ``synthesize`` message and may hold ``stream``. Never raises for any bytes.
    """
    fields: JsonObject = {}
    try:
        fields = parse_object(decode_utf8(body), unique_names=True)
        if (type := _type_of(fields)) != "synthesize":
            raise _refuse(
                "http.unknown-type", "unknown_type", f"There is no type {quoted(type)} over HTTP."
            )
        stream = fields.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise _refuse("http.stream-type", "invalid_request", "`stream` must be a boolean.")
        return Request(_synthesize(fields, options), stream is not False)
    except RemoteProtocolError as error:
        return _rejection(error, fields, options)


def encode_message(type: str, fields: JsonObject) -> bytes:
    """A client message in UTF-8 JSON; members that are None are left out."""
    members: JsonObject = {"type": type}
    members.update((name, value) for name, value in fields.items() if value is not None)
    return dump(members)
