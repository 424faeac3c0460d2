"""AAC in ADTS frames: each with a header of seven bytes, or nine (ISO/IEC 13818-7 section 6.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .framing import FramingError

__all__ = ["AdtsFrame", "frames"]

_RATES: Final = (
    *(96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000),
    *(22_050, 16_000, 12_000, 11_025, 8_000, 7_350),
)
_BLOCK: Final = 1_024
_LOW_COMPLEXITY: Final = 1


@dataclass(frozen=True, slots=True)
class AdtsFrame:
    """One frame: where it begins, the bytes of its header and of all of it, its rate in Hz, its
    samples; `is_lc` tells whether it is AAC-LC."""

    offset: int
    header: int
    size: int
    sample_rate: int
    samples: int
    is_lc: bool


def frames(data: bytes) -> Iterator[AdtsFrame]:
    """The frames from the first byte to the last.

    Raises:
        FramingError: something else stands where a frame should begin, or the last is cut off.
    """
    at = 0
    while at < len(data):
        head = data[at : at + 7]
        # Twelve bits of sync, then the layer, which is 0.
        if head[:1] != b"\xff" or len(head) < 2 or head[1] & 0xF6 != 0xF0:
            raise FramingError("no ADTS frame begins", at)
        if len(head) < 7:
            raise FramingError("the header of an ADTS frame is cut off", at)
        header = 7 if head[1] & 1 else 9
        rate = head[2] >> 2 & 15
        size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
        if rate >= len(_RATES) or size < header:
            raise FramingError("the header of an ADTS frame is not valid", at)
        if at + size > len(data):
            raise FramingError(f"an ADTS frame of {size} bytes is cut off", at)
        blocks = (head[6] & 3) + 1
        yield AdtsFrame(
            at, header, size, _RATES[rate], _BLOCK * blocks, head[2] >> 6 == _LOW_COMPLEXITY
        )
        at += size
