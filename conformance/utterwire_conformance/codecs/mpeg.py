"""MPEG audio, Layer III: a chain of frames, each with a header of four bytes (ISO/IEC 11172-3,
13818-3, and the extension of the latter to low rates, known as MPEG-2.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .framing import FramingError

__all__ = ["MpegFrame", "frames", "is_layer_three"]

# By the two bits of the version: MPEG-2.5, reserved, MPEG-2, MPEG-1.
_RATES: Final = {
    0: (11_025, 12_000, 8_000),
    2: (22_050, 24_000, 16_000),
    3: (44_100, 48_000, 32_000),
}
_LOW: Final = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_HIGH: Final = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG1: Final = 3
_LAYER_THREE: Final = 1
_TAG_HEADER: Final = 10
_OLD_TAG: Final = 128


@dataclass(frozen=True, slots=True)
class MpegFrame:
    """One frame: where it begins and how many bytes it has, its rate in Hz, its samples.

    `reaches_back` is how many bytes before it its audio begins (the bit reservoir). `is_index`
    marks a Xing, Info or VBRI frame, which tells of the stream and holds no audio.
    """

    offset: int
    size: int
    sample_rate: int
    samples: int
    channels: int
    reaches_back: int
    is_index: bool


def is_layer_three(data: bytes) -> bool:
    """Whether a stream begins as one of Layer III, behind any tag."""
    start = _after_tags(data)
    return len(data) >= start + 4 and _header(data, start) is not None


def frames(data: bytes) -> Iterator[MpegFrame]:
    """The frames from the first byte to the last, tags at both ends left out.

    Raises:
        FramingError: something else stands where a frame should begin, or the last is cut off.
    """
    at = _after_tags(data)
    end = len(data)
    if data[-_OLD_TAG:].startswith(b"TAG"):
        end -= _OLD_TAG
    first = True
    while at < end:
        frame = _header(data, at)
        if frame is None:
            raise FramingError("no frame of MPEG audio, Layer III, begins", at)
        if at + frame.size > end:
            raise FramingError(f"a frame of {frame.size} bytes is cut off", at)
        if first:
            frame = _with_index(frame, data)
            first = False
        yield frame
        at += frame.size


def _after_tags(data: bytes) -> int:
    """Where an ID3v2 tag ends; 0 without one (id3v2.4.0-structure section 3.1)."""
    if data[:3] != b"ID3" or len(data) < _TAG_HEADER:
        return 0
    size = 0
    for octet in data[6:10]:
        size = size << 7 | octet & 0x7F
    return _TAG_HEADER + size


def _header(data: bytes, at: int) -> MpegFrame | None:
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bits, rate = head[2] >> 4, head[2] >> 2 & 3
    # A bit rate of 0 is "free": nothing in the header tells the length, and nobody uses it.
    if layer != _LAYER_THREE or version not in _RATES or bits in (0, 15) or rate == 3:
        return None
    hertz = _RATES[version][rate]
    is_one = version == _MPEG1
    samples = 1_152 if is_one else 576
    kilobits = (_HIGH if is_one else _LOW)[bits]
    padding = head[2] >> 1 & 1
    channels = 1 if head[3] >> 6 == 3 else 2
    size = samples // 8 * kilobits * 1_000 // hertz + padding
    side = at + 4 + (0 if head[1] & 1 else 2)
    begins = data[side : side + 2]
    # Nine bits in MPEG-1, eight in the others, at the start of the side information.
    back = (int.from_bytes(begins) >> 7 if is_one else begins[0]) if len(begins) == 2 else 0
    return MpegFrame(at, size, hertz, samples, channels, back, False)


def _with_index(frame: MpegFrame, data: bytes) -> MpegFrame:
    """The first frame, marked where it tells of the stream instead of holding audio."""
    is_one = frame.samples == 1_152
    side = (17 if frame.channels == 1 else 32) if is_one else (9 if frame.channels == 1 else 17)
    place = frame.offset + 4 + side
    index = data[place : place + 4] in (b"Xing", b"Info")
    index = index or data[frame.offset + 36 : frame.offset + 40] == b"VBRI"
    return MpegFrame(
        frame.offset,
        frame.size,
        frame.sample_rate,
        0 if index else frame.samples,
        frame.channels,
        0 if index else frame.reaches_back,
        index,
    )
