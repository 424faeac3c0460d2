"""Opus in Ogg: pages (RFC 3533 section 6) and what RFC 7845 puts into them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .framing import FramingError

__all__ = ["CLOCK_HZ", "OggPage", "OpusStream", "checksum", "pages", "read_opus"]

_MAGIC: Final = b"OggS"
_HEADER: Final = 27
_CONTINUED, _FIRST, _LAST = 1, 2, 4
#: The clock of an Opus stream, whatever the rate of the speech (RFC 7845 section 4).
CLOCK_HZ: Final = 48_000


@dataclass(frozen=True, slots=True)
class OggPage:
    """One page: where it begins and its bytes, its flags, its clock, its place, its content.

    `lengths` are the lacing values: a value of 255 goes on in the next.
    """

    offset: int
    size: int
    flags: int
    granule: int
    serial: int
    sequence: int
    intact: bool
    lengths: bytes
    body: bytes

    @property
    def is_first(self) -> bool:
        """Whether it begins a logical stream."""
        return bool(self.flags & _FIRST)

    @property
    def is_last(self) -> bool:
        """Whether it ends a logical stream."""
        return bool(self.flags & _LAST)


@dataclass(frozen=True, slots=True)
class OpusStream:
    """One Opus stream as its pages tell of it.

    `input_rate` in Hz is that of the speech before encoding, 0 where nobody says. `samples` is how
    much is to be heard, at 48,000 Hz: the clock of the last page, less what comes before the
    speech.
    """

    pages: tuple[OggPage, ...]
    packets: tuple[bytes, ...]
    channels: int
    input_rate: int
    pre_skip: int

    @property
    def samples(self) -> int:
        """What is to be heard, at 48,000 Hz."""
        return max(0, self.pages[-1].granule - self.pre_skip)

    @property
    def missing(self) -> int | None:
        """The number of the first page that is not there; None if all are."""
        for number, page in enumerate(self.pages):
            if page.sequence != self.pages[0].sequence + number:
                return number
        return None


def pages(data: bytes) -> Iterator[OggPage]:
    """The pages from the first byte to the last.

    Raises:
        FramingError: something else stands where a page should begin, or the last is cut off.
    """
    at = 0
    while at < len(data):
        head = data[at : at + _HEADER]
        if head[:4] != _MAGIC[: len(head)]:
            raise FramingError("no Ogg page begins", at)
        if len(head) < _HEADER:
            raise FramingError("the header of an Ogg page is cut off", at)
        version, flags, granule, serial, sequence, said, count = struct.unpack("<BBqIIIB", head[4:])
        if version != 0:
            raise FramingError(f"the Ogg page is of version {version}", at)
        lengths = data[at + _HEADER : at + _HEADER + count]
        start = at + _HEADER + count
        size = _HEADER + count + sum(lengths)
        if len(lengths) < count or at + size > len(data):
            raise FramingError("an Ogg page is cut off", at)
        whole = data[at : at + 22] + bytes(4) + data[at + 26 : at + size]
        yield OggPage(
            at,
            size,
            flags,
            granule,
            serial,
            sequence,
            checksum(whole) == said,
            lengths,
            data[start : at + size],
        )
        at += size


@lru_cache(maxsize=64)
def read_opus(data: bytes) -> OpusStream:
    """The one Opus stream that `data` is.

    Raises:
        FramingError: it is no Ogg, or not one stream with the two headers of RFC 7845 section 5.
    """
    found = tuple(pages(data))
    if not found or not found[0].is_first:
        raise FramingError("no page begins a stream", 0)
    for page in found[1:]:
        if page.is_first or page.serial != found[0].serial:
            raise FramingError("a second stream begins", page.offset)
        if found[0].is_last or (page.is_last and page is not found[-1]):
            raise FramingError("the stream ends before its last page", page.offset)
    packets = _packets(found)
    head = packets[0] if packets else b""
    # The four high bits of the version are 0 in all that is compatible.
    if head[:8] != b"OpusHead" or len(head) < 19 or head[8] & 0xF0:
        raise FramingError("the first packet is no OpusHead", 0)
    if len(packets) < 2 or packets[1][:8] != b"OpusTags":
        raise FramingError("the second packet is no OpusTags", found[0].size)
    channels, pre_skip, rate = struct.unpack("<BHI", head[9:16])
    return OpusStream(found, packets[2:], channels, rate, pre_skip)


def _packets(found: tuple[OggPage, ...]) -> tuple[bytes, ...]:
    packets = []
    open_packet = bytearray()
    for page in found:
        if not page.flags & _CONTINUED:
            # What a lost page should have ended is lost with it.
            open_packet.clear()
        at = 0
        for length in page.lengths:
            open_packet += page.body[at : at + length]
            at += length
            if length < 255:
                packets.append(bytes(open_packet))
                open_packet.clear()
    return tuple(packets)


def _table() -> tuple[int, ...]:
    rows = []
    for number in range(256):
        row = number << 24
        for _ in range(8):
            row = (row << 1 ^ (0x04C11DB7 if row & 0x80000000 else 0)) & 0xFFFFFFFF
        rows.append(row)
    return tuple(rows)


_TABLE: Final = _table()


def checksum(data: bytes) -> int:
    """CRC-32 with the polynomial 0x04C11DB7, not reflected, from 0 (RFC 3533 section 6)."""
    value = 0
    for octet in data:
        value = (value << 8 ^ _TABLE[value >> 24 ^ octet]) & 0xFFFFFFFF
    return value
