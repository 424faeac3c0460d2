"""WebSocket frames, read and written without judging them (RFC 6455 section 5).

A suite and a fault proxy must be able to send what no library sends and to see what no library
lets through. So this codec keeps every bit of a frame and refuses only what it cannot delimit.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum
from itertools import cycle
from typing import Final

__all__ = [
    "MAX_FRAME_BYTES",
    "CloseReason",
    "Frame",
    "FrameDecoder",
    "FrameTooLarge",
    "Opcode",
    "accept_key",
    "close_payload",
    "encode",
    "masked",
    "parse_close",
]

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""The largest payload the decoder takes; a peer that announces more is not worth waiting for."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Opcode(IntEnum):
    """The opcodes of RFC 6455 section 5.2; a `Frame` may carry any other number as well."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class FrameTooLarge(ValueError):
    """A peer announced a frame of more than `MAX_FRAME_BYTES`; the stream cannot be read on."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it crossed the wire; `payload` is unmasked, `mask` the key it was sent with."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0
    mask: bytes | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.opcode <= 15 or not 0 <= self.rsv <= 7:
            raise ValueError("an opcode has 4 bits and the reserved bits are 3")
        if self.mask is not None and len(self.mask) != 4:
            raise ValueError("a masking key is 4 bytes")

    @property
    def is_control(self) -> bool:
        """Whether this is a frame of control (close, ping, pong), which may stand in a message."""
        return bool(self.opcode & 0x8)


@dataclass(frozen=True, slots=True)
class CloseReason:
    """What a close frame says; `code` is None where it says nothing."""

    code: int | None
    reason: str


def masked(payload: bytes, mask: bytes) -> bytes:
    """Apply a masking key of 4 bytes to `payload`; doing it twice undoes it."""
    size = len(payload)
    if not size:
        return b""
    if size < 16:
        return bytes(octet ^ key for octet, key in zip(payload, cycle(mask), strict=False))
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def encode(frame: Frame) -> bytes:
    """The bytes of `frame`, with the shortest length field that RFC 6455 allows."""
    size = len(frame.payload)
    first = (frame.fin << 7) | (frame.rsv << 4) | frame.opcode
    mask_bit = 0 if frame.mask is None else 0x80
    if size < 126:
        head = struct.pack("!BB", first, mask_bit | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, size)
    if frame.mask is None:
        return head + frame.payload
    return head + frame.mask + masked(frame.payload, frame.mask)


class FrameDecoder:
    """Cuts a stream of bytes, fed in any pieces, into frames of any kind."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def buffered(self) -> bytes:
        """What has been fed and is not yet a whole frame."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes, give back the frames that are whole now.

        Raises:
            FrameTooLarge: the next frame is one that nobody should wait for. Frames before it are
                given back first; the call after that raises.
        """
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while True:
            try:
                frame, end = self._frame(position)
            except FrameTooLarge:
                if not frames:
                    raise
                break
            if frame is None:
                break
            frames.append(frame)
            position = end
        del self._buffer[:position]
        return frames

    def _frame(self, start: int) -> tuple[Frame | None, int]:
        buffer = self._buffer
        available = len(buffer) - start
        if available < 2:
            return None, start
        first, second = buffer[start], buffer[start + 1]
        size = second & 0x7F
        head = start + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if available < 2 + width:
                return None, start
            size = int.from_bytes(buffer[head : head + width], "big")
            head += width
        if size > MAX_FRAME_BYTES:
            raise FrameTooLarge(f"a frame of {size} bytes is announced")
        mask: bytes | None = None
        if second & 0x80:
            if len(buffer) < head + 4:
                return None, start
            mask = bytes(buffer[head : head + 4])
            head += 4
        end = head + size
        if len(buffer) < end:
            return None, start
        payload = bytes(buffer[head:end])
        if mask is not None:
            payload = masked(payload, mask)
        return Frame(first & 0x0F, payload, bool(first & 0x80), (first >> 4) & 0x7, mask), end


def close_payload(code: int | None = None, reason: str = "") -> bytes:
    """The payload of a close frame; without a code it is empty."""
    return b"" if code is None else struct.pack("!H", code) + reason.encode()


def parse_close(payload: bytes) -> CloseReason:
    """What a close frame says; a payload of one byte, which RFC 6455 forbids, says nothing."""
    if len(payload) < 2:
        return CloseReason(None, "")
    return CloseReason(int.from_bytes(payload[:2], "big"), payload[2:].decode("utf-8", "replace"))


def accept_key(key: str) -> str:
    """The `Sec-WebSocket-Accept` that answers `Sec-WebSocket-Key` (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()
