"""Which requirement a wrong answer to a client message breaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from utterwire_conformance.client_message import Claims, Meaning, is_nothing_to_speak
from utterwire_conformance.strict_json import has_lone_surrogate

__all__ = ["of_acceptance", "of_rejection"]

_LONG_TEXT: Final = 4096
_KNOWN: Final = frozenset(
    {
        "type",
        "text",
        "voice",
        "speed",
        "sample_rate",
        "format",
        "request_id",
        "marks",
        "request_timestamp",
    }
)
_BY_CODE: Final[Mapping[str, str]] = {
    "invalid_utf8": "reject.invalid-utf8",
    "not_an_object": "reject.not-an-object",
    "missing_text": "reject.missing-text",
    "empty_text": "reject.empty-text",
    "text_too_long": "reject.text-too-long",
    "invalid_voice": "reject.invalid-voice",
    "invalid_speed": "reject.invalid-speed",
    "unsupported_sample_rate": "reject.unsupported-sample-rate",
    "unsupported_format": "reject.unsupported-format",
    "unsupported_version": "hello.unsupported-version",
    "duplicate_request_id": "reject.duplicate-request-id",
}
_REFUSED_FLOORS: Final[Mapping[str, str]] = {
    "invalid_speed": "accept.speed-range",
    "text_too_long": "accept.text-floor",
    "queue_full": "accept.waiting-floor",
    "duplicate_request_id": "request-id.reusable",
}


def of_acceptance(data: bytes, meaning: Meaning, claims: Claims) -> str:
    """The requirement by which `data` should have been rejected, with one of `meaning.codes`."""
    if not data:
        return "reject.empty-frame"
    fields = meaning.fields
    if not fields:
        code = min(meaning.codes & {"invalid_utf8", "not_an_object"}, default="")
        if code:
            return _BY_CODE[code]
        if "invalid_json" in meaning.codes:
            return "reject.invalid-json"
    kind = fields.get("type")
    if kind is not None and not isinstance(kind, str):
        return "reject.type-not-string"
    if "unknown_type" in meaning.codes:
        if kind in ("append", "flush"):
            return "reject.reserved-types"
        return "reject.unclaimed-types" if kind in ("cancel", "hello") else "reject.unknown-type"
    if meaning.type == "cancel":
        return "cancel.null-id" if fields.get("request_id") is None else "cancel.invalid-id"
    if meaning.type == "hello":
        return (
            "hello.unsupported-version"
            if "unsupported_version" in meaning.codes
            else "hello.malformed"
        )
    return _of_field(meaning)


def _of_field(meaning: Meaning) -> str:
    fields = meaning.fields
    text = fields.get("text")
    if text is not None and not isinstance(text, str):
        return "reject.text-type"
    if isinstance(text, str) and has_lone_surrogate(text):
        return "reject.lone-surrogate"
    if any(isinstance(fields.get(name), bool) for name in ("speed", "sample_rate")):
        return "reject.boolean-is-not-number"
    wrong = any(
        fields.get(name) is not None and not isinstance(fields[name], kinds)
        for name, kinds in (
            ("voice", str),
            ("format", str),
            ("speed", (int, float)),
            ("sample_rate", (int, float)),
        )
    )
    rate = fields.get("sample_rate")
    if wrong or (isinstance(rate, float) and not rate.is_integer() and math.isfinite(rate)):
        return "reject.field-types"
    own = sorted(meaning.codes & _BY_CODE.keys())
    if own:
        return _BY_CODE[own[0]]
    if fields.get("request_id") is not None and meaning.request_id is None:
        return "reject.request-id"
    return "timing.invalid" if fields.get("marks") is not None else "reject.field-types"


def of_rejection(meaning: Meaning, code: str | None, *, is_text: bool, frames: int) -> str:
    """The requirement by which a message of this meaning should not have been rejected.

    With several peculiarities the message has, the most telling one is named.
    """
    if meaning.type == "hello":
        return "hello.session"
    if meaning.type == "cancel":
        return "cancel.unknown-id"
    if meaning.type == "keepalive":
        return "message.keepalive"
    if meaning.type == "close":
        return "close.session-closed"
    if code is not None and code in _REFUSED_FLOORS:
        return _REFUSED_FLOORS[code]
    if frames > 1:
        return "message.fragmentation-invisible"
    if not is_text:
        return "message.frame-kinds-alike"
    fields = meaning.fields
    if "type" in fields and fields["type"] is None:
        return "message.type-absent"
    if None in fields.values():
        return "message.null-is-absent"
    if fields.keys() & {"language", "model"}:
        return "message.reserved-fields-ignored"
    if fields.keys() - _KNOWN:
        return "message.unknown-fields-ignored"
    if "marks" in fields:
        return "message.unclaimed-marks"
    if isinstance(fields.get("sample_rate"), float):
        return "message.integral-floats"
    if "request_timestamp" in fields:
        return "message.request-timestamp"
    if "speed" in fields:
        return "accept.speed-range"
    if len(meaning.text) >= _LONG_TEXT:
        return "accept.text-floor"
    if is_nothing_to_speak(meaning.text):
        return "audio.unspeakable"
    if meaning.request_id is not None and len(fields) == 2:
        return "accept.request-id-floor"
    return "accept.defaults"
