"""The few moves that most faults are made of.

A fault that *accepts* what is invalid gives the endpoint a valid message in its place. One that
*refuses* what is valid gives it an invalid one, so that the refusal comes in the place it would
have come in. What remains is to change, drop, double or hold a chunk on its way back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    ToEndpoint,
    control_frame,
)
from utterwire_conformance.wire import Frame, Opcode

__all__ = [
    "KEEPALIVE",
    "SAFE_TEXT",
    "Accepts",
    "ChangesChunks",
    "ChangesMessages",
    "ChunkChange",
    "MessageChange",
    "MessageTest",
    "Refuses",
    "RenamesCode",
    "error_frame",
    "invalid_twin",
    "message_frame",
    "valid_twin",
]

MessageTest: TypeAlias = Callable[[ClientMessage, Tap], bool]
MessageChange: TypeAlias = Callable[[ClientMessage, Tap], bytes]
ChunkChange: TypeAlias = Callable[[Chunk, Tap], "Iterable[Frame] | None"]

KEEPALIVE: Final = b'{"type":"keepalive"}'
"""A message that is counted and not answered: what a message that is ignored becomes."""

SAFE_TEXT: Final = "One two three."
"""What is spoken where the client gave nothing that can be."""

_RETRYABLE: Final = frozenset(
    {"queue_full", "overloaded", "synthesis_failed", "going_away", "internal"}
)
_INVALID: Final[Mapping[str, Mapping[str, Any]]] = {
    "unknown_type": {"type": "x-no-such-type"},
    "invalid_speed": {"text": SAFE_TEXT, "speed": -1},
    "missing_text": {},
    "invalid_request": {"type": 0},
}


def message_frame(data: bytes, like: ClientMessage) -> ToEndpoint:
    """Send `data` in a frame of the kind that `like` came in, binary where it must be."""
    opcode = Opcode.TEXT if like.is_text else Opcode.BINARY
    try:
        data.decode()
    except UnicodeDecodeError:
        opcode = Opcode.BINARY
    return ToEndpoint(Frame(opcode, data))


def valid_twin(message: ClientMessage, tap: Tap) -> bytes:
    """A request for the text of `message` and nothing else, or for some text if it has none."""
    text = message.fields.get("text")
    speakable = isinstance(text, str) and text.strip() and "\\ud" not in ascii(text)
    fields: dict[str, Any] = {"text": text[:4096] if speakable and isinstance(text, str) else ""}
    if not fields["text"]:
        known = [other.fields["text"] for other in tap.messages.values() if other.is_valid_request]
        fields["text"] = known[0] if known else SAFE_TEXT
    if message.meaning.request_id is not None:
        fields["request_id"] = message.meaning.request_id
    return json.dumps(fields).encode()


def invalid_twin(message: ClientMessage, code: str) -> bytes:
    """A message that is rejected, with `code` where one message can bring that about."""
    fields = dict(_INVALID.get(code, _INVALID["missing_text"]))
    if message.meaning.request_id is not None:
        fields["request_id"] = message.meaning.request_id
    return json.dumps(fields).encode()


def error_frame(code: str, seq: int, request_id: str | None = None, **fields: Any) -> Frame:
    """An `error` of the endpoint that is well-formed in itself; `fields` are added to it."""
    body: dict[str, Any] = {
        "type": "error",
        "code": code,
        "message": "The request cannot be served.",
        "retryable": code in _RETRYABLE,
        "seq": seq,
    }
    if request_id is not None:
        body["request_id"] = request_id
    return control_frame(body | fields)


class ChangesMessages(SessionTamper):
    """Gives the endpoint another message for each that `when` picks."""

    def __init__(self, shared: Shared, tap: Tap, when: MessageTest, into: MessageChange) -> None:
        super().__init__(shared, tap)
        self._when = when
        self._into = into

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not self._when(message, self.tap):
            return super().client_message(message)
        return [message_frame(self._into(message, self.tap), message)]


class Accepts(ChangesMessages):
    """Has a message accepted that should be rejected."""

    def __init__(self, shared: Shared, tap: Tap, when: MessageTest) -> None:
        super().__init__(shared, tap, when, valid_twin)


class Refuses(SessionTamper):
    """Has a message rejected, with `code`, that should be accepted."""

    def __init__(self, shared: Shared, tap: Tap, when: MessageTest, code: str) -> None:
        super().__init__(shared, tap)
        self._when = when
        self._code = code
        self._refused: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not self._when(message, self.tap):
            return super().client_message(message)
        self._refused.add(message.seq)
        return [message_frame(invalid_twin(message, self._code), message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_rejection and chunk.seq in self._refused:
            retryable = self._code in _RETRYABLE
            return [ToClient(chunk.changed(code=self._code, retryable=retryable))]
        return super().chunk(chunk)


class RenamesCode(SessionTamper):
    """Gives the rejection of each message that `when` picks the code `code`."""

    def __init__(self, shared: Shared, tap: Tap, when: MessageTest, code: str) -> None:
        super().__init__(shared, tap)
        self._when = when
        self._code = code

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if chunk.is_rejection and message is not None and self._when(message, self.tap):
            retryable = self._code in _RETRYABLE
            return [ToClient(chunk.changed(code=self._code, retryable=retryable))]
        return super().chunk(chunk)


class ChangesChunks(SessionTamper):
    """Sends the client what `change` makes of each chunk; None leaves the chunk as it is."""

    def __init__(self, shared: Shared, tap: Tap, change: ChunkChange) -> None:
        super().__init__(shared, tap)
        self._change = change

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        frames = self._change(chunk, self.tap)
        return super().chunk(chunk) if frames is None else [ToClient(frame) for frame in frames]
