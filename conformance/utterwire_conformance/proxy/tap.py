"""What a proxy knows of one session from what has passed through it. No input, no output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from utterwire_conformance.classification import classify
from utterwire_conformance.client_message import Claims, Meaning, read_client_message
from utterwire_conformance.strict_json import JsonValue
from utterwire_conformance.wire import Frame, Opcode

__all__ = ["Chunk", "ClientMessage", "Tap", "control_frame", "rewritten"]

_TERMINAL: Final = frozenset({"synthesis_complete", "cancelled"})
# A proxy that fronts any endpoint takes every message for what it may mean at best.
_CLAIMS: Final = Claims(profiles=frozenset({"core", "interrupt", "negotiate"}))


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One whole message from the client and the frames it came in; `seq` counts from 1."""

    seq: int
    data: bytes
    frames: tuple[Frame, ...]
    meaning: Meaning

    @property
    def is_text(self) -> bool:
        """Whether it came in a text frame."""
        return self.frames[0].opcode == Opcode.TEXT

    @property
    def fields(self) -> Mapping[str, JsonValue]:
        """The fields of its object, empty where it holds none."""
        return self.meaning.fields

    @property
    def is_request(self) -> bool:
        """Whether it is a `synthesize` message, valid or not."""
        return self.meaning.type == "synthesize"

    @property
    def is_valid_request(self) -> bool:
        """Whether it is a request that an endpoint would accept."""
        return self.is_request and self.is_valid

    @property
    def is_valid(self) -> bool:
        """Whether an endpoint that has what it asks for would accept it."""
        return self.meaning.verdict != "reject"

    def changed(self, **changes: Any) -> bytes:
        """The message with fields set."""
        return rewritten({**self.fields, **changes})


@dataclass(frozen=True, slots=True)
class Chunk:
    """One data frame from the endpoint.

    `fields` is the object of a control message, None for audio. `seq` is the message it is about:
    for audio the running utterance, None where that cannot be known.
    """

    frame: Frame
    fields: Mapping[str, JsonValue] | None
    seq: int | None

    @property
    def is_audio(self) -> bool:
        """Whether this is a chunk of audio."""
        return self.fields is None

    @property
    def type(self) -> str | None:
        """The `type` of a control message."""
        kind = self.fields.get("type") if self.fields is not None else None
        return kind if isinstance(kind, str) else None

    @property
    def is_rejection(self) -> bool:
        """Whether this is an `error` with `rejected` true."""
        return self.type == "error" and bool(self.fields and self.fields.get("rejected") is True)

    @property
    def is_terminal(self) -> bool:
        """Whether an utterance ends with this."""
        return self.type in _TERMINAL or (self.type == "error" and not self.is_rejection)

    def changed(self, **changes: Any) -> Frame:
        """The frame of this control message with fields set; a value of `...` drops the field."""
        fields: dict[str, Any] = dict(self.fields or {})
        for name, value in changes.items():
            if value is ...:
                fields.pop(name, None)
            else:
                fields[name] = value
        return control_frame(fields)


def control_frame(fields: Mapping[str, Any]) -> Frame:
    """A control message in one text frame."""
    return Frame(Opcode.TEXT, json.dumps(fields, separators=(",", ":")).encode())


def rewritten(fields: Mapping[str, Any]) -> bytes:
    """The object of a request, written anew.

    What is nested deeper than can be written is left out: no field that means anything is, and an
    endpoint ignores the others.
    """
    try:
        return json.dumps(fields).encode()
    except RecursionError:
        flat = {name: each for name, each in fields.items() if not isinstance(each, (dict, list))}
        return json.dumps(flat).encode()


@dataclass(slots=True)
class Tap:
    """The state of one session as both sides' frames show it.

    `in_message` says that the client has begun a message and not ended it.
    """

    messages: dict[int, ClientMessage] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    running: int | None = None
    closing: bool = False
    in_message: bool = False
    audio_bytes: dict[int, int] = field(default_factory=dict)

    def client_message(self, data: bytes, frames: tuple[Frame, ...]) -> ClientMessage:
        """Count a message of the client and remember it."""
        message = ClientMessage(
            len(self.messages) + 1, data, frames, read_client_message(data, _CLAIMS)
        )
        self.messages[message.seq] = message
        self.closing = self.closing or message.meaning.type == "close"
        return message

    def chunk(self, frame: Frame) -> Chunk:
        """Take in a data frame of the endpoint, up to but not including the end of an utterance."""
        kind = "text" if frame.opcode == Opcode.TEXT else "binary"
        reading = classify(frame.payload, "text" if kind == "text" else "binary")
        if reading.verdict == "audio":
            seq = self.running
            if seq is not None:
                self.audio_bytes[seq] = self.audio_bytes.get(seq, 0) + len(frame.payload)
            return Chunk(frame, None, seq)
        fields = reading.fields or {}
        number = fields.get("seq")
        seq = number if isinstance(number, int) and not isinstance(number, bool) else None
        chunk = Chunk(frame, fields, seq)
        if chunk.type == "synthesis_start" and seq is not None:
            self.running = seq
            self.started.add(seq)
        return chunk

    def after(self, chunk: Chunk) -> None:
        """Take in the end of an utterance, once the chunk that told of it has been dealt with."""
        if chunk.seq is None or not (chunk.is_terminal or chunk.is_rejection):
            return
        self.ended.add(chunk.seq)
        if chunk.seq == self.running:
            self.running = None

    def unended(self) -> tuple[int, ...]:
        """The requests that may have been accepted and have had no answer that ends them."""
        return tuple(
            seq
            for seq, message in self.messages.items()
            if message.is_valid_request and seq not in self.ended
        )

    def waiting(self) -> tuple[int, ...]:
        """The unended requests that have not begun."""
        return tuple(seq for seq in self.unended() if seq not in self.started)
