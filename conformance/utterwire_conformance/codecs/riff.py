"""The header of `wav`: 44 bytes, whose sizes say that the length is not known yet."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["HEADER_BYTES", "WavHeader", "is_riff", "read_header"]

HEADER_BYTES: Final = 44
"""How long the header is (`protocol.md#encoded-audio`)."""

_LAYOUT: Final = "<4sI4s4sIHHIIHH4sI"
_UNKNOWN: Final = 0xFFFFFFFF
_PCM: Final = 1


class WavHeader:
    """A header as it stands; `faults` says in words what is wrong with it, nothing if all is well.

    `sample_rate` in Hz.
    """

    def __init__(self, octets: bytes) -> None:
        riff, size, wave, fmt, length, tag, channels, rate, speed, block, bits, data, body = (
            struct.unpack(_LAYOUT, octets)
        )
        self.sample_rate: int = rate
        right = {
            "it does not begin with RIFF": riff == b"RIFF",
            "the form is not WAVE": wave == b"WAVE",
            "the chunk at byte 12 is not `fmt ` of 16 bytes": (fmt, length) == (b"fmt ", 16),
            f"the format tag is {tag}, not 1 (PCM)": tag == _PCM,
            f"there are {channels} channels, not 1": channels == 1,
            f"samples have {bits} bits, not 16": bits == 16,
            f"a block has {block} bytes, not 2": block == 2,
            f"there are {speed} bytes a second, not {2 * rate}": speed == 2 * rate,
            "the chunk at byte 36 is not `data`": data == b"data",
            f"the first size is 0x{size:08X}, not 0xFFFFFFFF": size == _UNKNOWN,
            f"the second size is 0x{body:08X}, not 0xFFFFFFFF": body == _UNKNOWN,
        }
        self.faults: tuple[str, ...] = tuple(fault for fault, fine in right.items() if not fine)


def is_riff(data: bytes) -> bool:
    """Whether a stream begins with a RIFF header of any kind."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def read_header(data: bytes) -> WavHeader | None:
    """The header at the start of a stream; None where the stream is too short for one."""
    return WavHeader(data[:HEADER_BYTES]) if len(data) >= HEADER_BYTES else None
