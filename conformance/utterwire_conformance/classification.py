"""Telling control from audio, and what a sender may put on the wire (`protocol.md#receiver-rule`).

Written from the prose for the suite alone: the core that endpoints and clients share must not be
what judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from .strict_json import MAX_LEVELS, Document, JsonValue, NotJson, NotUtf8, Oddity, parse

__all__ = [
    "MAX_AUDIO_BYTES",
    "MAX_CONTROL_BYTES",
    "Breach",
    "FrameKind",
    "Reading",
    "audio_breaches",
    "classify",
    "control_breaches",
    "integral",
]

FrameKind: TypeAlias = Literal["text", "binary", "unknown"]

MAX_AUDIO_BYTES: Final = 65_536
MAX_CONTROL_BYTES: Final = 65_536
_OPENING: Final = 0x7B
_CLOSING: Final = 0x7D
_WHITE: Final = b" \t\r\n"
# Every integer below it is a double of its own.
_EXACT: Final = 2.0**53
# What a sender of control may not write but a receiver may well understand.
_SENDER_ONLY: Final = frozenset(
    {Oddity.DUPLICATE_NAME, Oddity.LONE_SURROGATE, Oddity.LONG_NUMBER, Oddity.OVERFLOW, Oddity.DEEP}
)


@dataclass(frozen=True, slots=True)
class Breach:
    """One rule broken, by its id in `requirements.yaml`, in words for a person."""

    requirement: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a receiver makes of a chunk.

    `verdict` is `either` where only the sender's rules are broken, so that receivers may differ.
    `fields` is the object, where there is one to read.
    """

    verdict: Literal["control", "audio", "either"]
    fields: Mapping[str, JsonValue] | None
    why: str

    @property
    def type(self) -> str | None:
        """The control message's `type`, if it has one."""
        kind = self.fields.get("type") if self.fields is not None else None
        return kind if isinstance(kind, str) else None


def classify(data: bytes, kind: FrameKind = "binary") -> Reading:
    """Apply the receiver's rule to one chunk.

    A text frame is control whatever it holds; `fields` is then None if it is not an object.
    """
    if kind != "text" and (not data or data[0] != _OPENING):
        return Reading("audio", None, "it does not begin with 0x7B")
    document, why = _read(data)
    value = integral(document.value) if document is not None else None
    fields = value if isinstance(value, dict) else None
    if kind == "text":
        return Reading("control", fields, why or "a text frame is control")
    if document is None:
        return Reading("audio", None, why)
    if fields is None:  # pragma: no cover - what begins with 0x7B and parses is an object
        return Reading("audio", None, "it is not an object")
    if not isinstance(fields.get("type"), str):
        if Oddity.DUPLICATE_NAME in document.oddities:
            return Reading("either", fields, "an object whose names are not unique")
        return Reading("audio", None, "the object has no `type` that is a string")
    breaches = control_breaches(data)
    if breaches:
        return Reading("either", fields, breaches[0].reason)
    return Reading("control", fields, "one strict JSON object with a string `type`")


def integral(value: JsonValue, *, levels: int = MAX_LEVELS) -> JsonValue:
    """A JSON value with every number that is integral as an integer, however it was written
    (`protocol.md#control-messages`); what is deeper than control may be stays as it is."""
    if levels and isinstance(value, dict):
        return {name: integral(each, levels=levels - 1) for name, each in value.items()}
    if levels and isinstance(value, list):
        return [integral(each, levels=levels - 1) for each in value]
    if isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
        return int(value)
    return value


def _read(data: bytes) -> tuple[Document | None, str]:
    try:
        return parse(data), ""
    except NotUtf8 as error:
        return None, str(error)
    except NotJson as error:
        return None, f"not JSON: {error}"


def control_breaches(data: bytes) -> tuple[Breach, ...]:
    """The rules of `protocol.md#control-messages` that `data`, sent as control, breaks."""
    found: list[Breach] = []
    strict = "control.strict-json"
    if len(data) > MAX_CONTROL_BYTES:
        found.append(
            Breach("control.size", f"{len(data)} bytes; at most {MAX_CONTROL_BYTES} are allowed")
        )
    if not data or data[0] != _OPENING:
        found.append(Breach(strict, "it does not begin with 0x7B, an opening brace"))
    document, why = _read(data)
    if document is None:
        found.append(Breach(strict, why))
        return tuple(found)
    if not isinstance(document.value, dict):
        found.append(Breach(strict, "it is not a JSON object"))
    elif not isinstance(document.value.get("type"), str):
        found.append(Breach(strict, "it has no `type` that is a string"))
    for oddity in sorted(document.oddities, key=lambda item: item.name):
        if oddity is Oddity.DEEP:
            found.append(
                Breach("control.size", f"{document.levels} levels; at most {MAX_LEVELS} allowed")
            )
        elif oddity in _SENDER_ONLY:
            found.append(Breach(strict, f"it has {oddity.value}"))
    return tuple(found)


def audio_breaches(
    data: bytes, *, sample_bytes: int | None = None, encoded: bool = False
) -> tuple[Breach, ...]:
    """The rules of `protocol.md#audio` that `data`, sent as one chunk of audio, breaks.

    `sample_bytes` is the size of a sample where chunks hold whole samples (2 for `pcm_s16le`);
    `encoded` tells that the audio is in a format other than PCM.
    """
    found: list[Breach] = []
    if not data:
        found.append(Breach("audio.chunk-size", "an empty chunk"))
        return tuple(found)
    if len(data) > MAX_AUDIO_BYTES:
        found.append(
            Breach("audio.chunk-size", f"{len(data)} bytes; at most {MAX_AUDIO_BYTES} are allowed")
        )
    if sample_bytes is not None and len(data) % sample_bytes:
        found.append(
            Breach(
                "audio.whole-samples",
                f"{len(data)} bytes are not whole {sample_bytes}-byte samples",
            )
        )
    if data[0] == _OPENING:
        found.append(Breach("audio.no-leading-brace", "the chunk begins with 0x7B"))
        if data.rstrip(_WHITE)[-1] == _CLOSING:
            found.append(
                Breach(
                    "formats.never-json" if encoded else "audio.never-json",
                    "the chunk begins with 0x7B and ends, white space aside, in 0x7D",
                )
            )
    return tuple(found)
