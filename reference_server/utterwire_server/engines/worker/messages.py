"""What server and worker say to each other over their socket.

A message is a head of 12 bytes (a mark, the length of a JSON object, the length of the payload, all
big-endian), the object, and the payload: samples as little-endian float32, or a text as UTF-8. It
is no pickle: what comes out of a worker gone mad must not run here.

==========  =============  ==========================================  =========
from        kind           fields                                      payload
==========  =============  ==========================================  =========
server      ``start``      ``factory``, ``arguments``
worker      ``ready``      ``voices``, ``sample_rates``
worker      ``failed``     ``error``: one line; the worker then ends
server      ``open``       ``voice``, ``speed``, ``sample_rate``       text
server      ``next``
server      ``close``
worker      ``block``      ``marks``                                   samples
worker      ``end``
worker      ``error``      ``error``, ``at``, ``broken``
worker      ``closed``
worker      ``log``        ``event``, ``fields``
server      ``stop``
==========  =============  ==========================================  =========

Each ``next`` is answered by ``block``, ``end`` or ``error``, after the last two of which the stream
is gone; ``close`` by ``closed``, once the engine has let go of the stream. One that is gone by
itself meanwhile is ``closed`` as well. A worker whose engine is ``broken`` ends.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from utterwire_server.engines.engine import Block, SpeechRequest, WordMark

__all__ = [
    "BrokenMessage",
    "Message",
    "block_message",
    "block_of",
    "encode",
    "open_message",
    "read",
    "request_of",
]

_MARK: Final = b"UWwk"
_HEAD: Final = struct.Struct("!4sII")
#: Six minutes of audio are 35 MB.
_MOST_BYTES: Final = 2**26


class BrokenMessage(Exception):
    """What came is no message, or breaks off."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``stream`` is the number of the utterance it is about, 0 for none."""

    kind: str
    stream: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    head = {"kind": message.kind, "stream": message.stream, **message.fields}
    body = json.dumps(head, separators=(",", ":")).encode()
    return _HEAD.pack(_MARK, len(body), len(message.payload)) + body + message.payload


async def read(reader: asyncio.StreamReader) -> Message | None:
    """The next message, or None where the stream ends between two.

    :raises BrokenMessage: if what comes is none.
    """
    try:
        start = await reader.readexactly(_HEAD.size)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise BrokenMessage("it breaks off") from None
    mark, body_size, payload_size = _HEAD.unpack(start)
    if mark != _MARK or max(body_size, payload_size) > _MOST_BYTES:
        raise BrokenMessage("its head is none")
    try:
        body = await reader.readexactly(body_size)
        payload = await reader.readexactly(payload_size)
    except asyncio.IncompleteReadError:
        raise BrokenMessage("it breaks off") from None
    try:
        fields = json.loads(body)
        kind, stream = fields.pop("kind"), fields.pop("stream")
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        raise BrokenMessage("its body is none") from None
    if not isinstance(kind, str) or type(stream) is not int:
        raise BrokenMessage("its body is none")
    return Message(kind, stream, fields, payload)


def open_message(stream: int, request: SpeechRequest) -> Message:
    """The message that asks for a stream."""
    fields = {
        "voice": request.voice,
        "speed": request.speed,
        "sample_rate": request.sample_rate,
    }
    return Message("open", stream, fields, request.text.encode("utf-8", "surrogatepass"))


def request_of(message: Message) -> SpeechRequest:
    """What an ``open`` asks for."""
    return SpeechRequest(text=message.payload.decode("utf-8", "surrogatepass"), **message.fields)


def block_message(stream: int, block: Block) -> Message:
    """The message that carries a block."""
    marks = [
        [mark.text, mark.start_s, mark.end_s, mark.char_start, mark.char_end]
        for mark in block.marks
    ]
    return Message("block", stream, {"marks": marks}, block.samples.astype("<f4").tobytes())


def block_of(message: Message) -> Block:
    """The block that a message carries.

    :raises BrokenMessage: if it carries none.
    """
    try:
        samples = np.frombuffer(message.payload, dtype="<f4").astype(np.float32, copy=False)
        return Block(samples, tuple(WordMark(*mark) for mark in message.fields["marks"]))
    except (KeyError, TypeError, ValueError):
        raise BrokenMessage("it carries no block") from None
