"""Telling control from audio (``protocol.md#control-or-audio``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from utterwire_protocol.errors import RemoteProtocolError
from utterwire_protocol.jsontext import JsonObject, decode_utf8, parse_object

__all__ = [
    "MAX_CHUNK_BYTES",
    "Audio",
    "Control",
    "FrameKind",
    "classify",
    "is_sendable_audio",
]

#: No chunk is larger, control or audio (``protocol.md#control-messages``, ``#audio``).
MAX_CHUNK_BYTES = 65_536

_BRACE = 0x7B
_JSON_SPACE = b" \t\n\r"


class FrameKind(Enum):
    """What the transport says of a message: text, binary, or nothing."""

    TEXT = "text"
    BINARY = "binary"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Control:
    """A control message: its members, ``type`` a string among them."""

    fields: JsonObject


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio, byte for byte as it came; empty only if the chunk was."""

    data: bytes


def classify(data: bytes, kind: FrameKind) -> Control | Audio:
    """What a receiver takes a chunk for (``protocol.md#receiver-rule``).

    Takes time linear in the chunk. Raises ``RemoteProtocolError`` for a text frame that holds no
    control message, which is the endpoint's fault and for which there is nothing to play; nothing
    is ever raised for another kind of frame.
    """
    if kind is FrameKind.TEXT:
        return Control(_control_fields(data))
    if not data or data[0] != _BRACE or not data.rstrip(_JSON_SPACE).endswith(b"}"):
        return Audio(data)
    try:
        return Control(_control_fields(data))
    except RemoteProtocolError:
        return Audio(data)


def _control_fields(data: bytes) -> JsonObject:
    try:
        fields = parse_object(decode_utf8(data), unique_names=False)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(
            "control.strict-json", "invalid_json", f"Not a control message. {error.message}"
        ) from None
    if not isinstance(fields.get("type"), str):
        raise RemoteProtocolError(
            "control.schema", "invalid_request", "Not a control message: it has no string `type`."
        )
    return fields


def is_sendable_audio(data: bytes) -> bool:
    """Whether an endpoint may send these bytes as one audio chunk.

    That is: not empty, not over 64 KiB, and, where they begin with 0x7B, not ending in 0x7D, white
    space aside (``protocol.md#sender-rule``, ``audio.chunk-size``).
    """
    if not 0 < len(data) <= MAX_CHUNK_BYTES:
        return False
    return data[0] != _BRACE or not data.rstrip(_JSON_SPACE).endswith(b"}")
