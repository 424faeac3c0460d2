"""`application/vnd.amazon.eventstream`: messages out of octets, and the ones that go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any, Final

from smithy_aws_event_stream.events import Event, EventMessage
from smithy_aws_event_stream.exceptions import EventError

from .errors import StreamFailed

__all__ = ["MEDIA_TYPE", "Deframer", "Message", "NotEvents", "exception", "part", "refusal"]

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"

_PRELUDE: Final = 12
# 16 MiB of payload, which may itself be a message, and 128 KiB of headers twice.
_MOST_BYTES: Final = 16 * 1024 * 1024 + 2 * 128 * 1024 + 64


class NotEvents(Exception):
    """What came is no event stream."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its headers by name, and its payload."""

    headers: dict[str, Any]
    payload: bytes

    @property
    def date(self) -> datetime | None:
        """When it was signed."""
        value = self.headers.get(":date")
        return value if isinstance(value, datetime) else None

    @property
    def signature(self) -> bytes | None:
        """The signature that the chain goes on with."""
        value = self.headers.get(":chunk-signature")
        return value if isinstance(value, bytes) else None

    @property
    def ends_the_stream(self) -> bool:
        """Whether it is the signed, empty message behind the last event."""
        return not self.payload and self.signature is not None

    def unwrapped(self) -> Message:
        """The event itself, where this is its signed envelope.

        Raises:
            NotEvents: there is none in it.
        """
        return self if self.signature is None else _decode(self.payload)

    def text(self, name: str) -> str | None:
        """A header that is a string."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else None


class Deframer:
    """Cuts octets, fed in any pieces, into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def inside_a_message(self) -> bool:
        """Whether what was fed ended in the middle of a message."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole now; what comes before a bad one is given first.

        Raises:
            NotEvents: a checksum is wrong, or a message is too large or malformed.
        """
        self._buffer += data
        return self._whole()

    def _whole(self) -> Iterator[Message]:
        while len(self._buffer) >= _PRELUDE:
            size = int.from_bytes(self._buffer[:4], "big")
            if not 16 <= size <= _MOST_BYTES:
                raise NotEvents(f"a message of {size} bytes is announced")
            if len(self._buffer) < size:
                return
            message = _decode(bytes(self._buffer[:size]))
            del self._buffer[:size]
            yield message


def _decode(octets: bytes) -> Message:
    try:
        event = Event.decode(BytesIO(octets))
    except (EventError, ValueError, IndexError, OverflowError) as error:
        raise NotEvents(f"a message is malformed: {error or type(error).__name__}") from error
    except Exception as error:
        # `struct.error`, and what the library does not wrap.
        raise NotEvents(f"a message is malformed: {type(error).__name__}") from error
    if event is None:
        raise NotEvents("an envelope is empty")
    return Message(dict(event.message.headers), event.message.payload)


def part(
    payload: bytes, *, data_type: str | None = None, completion_state: str | None = None
) -> bytes:
    """A `PayloadPart`, encoded; what is None is left out."""
    headers = {
        ":message-type": "event",
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
    }
    if data_type is not None:
        headers["DataType"] = data_type
    if completion_state is not None:
        headers["CompletionState"] = completion_state
    return _encode(headers, payload)


def exception(failure: StreamFailed) -> bytes:
    """An exception of the model, encoded."""
    headers = {
        ":message-type": "exception",
        ":exception-type": failure.name,
        ":content-type": "application/json",
    }
    return _encode(headers, json.dumps(failure.body()).encode())


def refusal(code: str, message: str) -> bytes:
    """An error that the model does not have, encoded."""
    headers = {":message-type": "error", ":error-code": code, ":error-message": message}
    return _encode(headers, b"")


def _encode(headers: dict[str, str], payload: bytes) -> bytes:
    octets: bytes = EventMessage(headers=headers, payload=payload).encode()
    return octets
