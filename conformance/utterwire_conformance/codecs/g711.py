"""ITU-T G.711 and what else octets could be: which reading of them sounds like speech."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final

__all__ = ["READINGS", "is_speech", "likelier", "roughness"]


def _mulaw(octet: int) -> int:
    code = ~octet & 0xFF
    level = ((code & 15) << 3) + 132 << (code >> 4 & 7)
    return 132 - level if code & 128 else level - 132


def _alaw(octet: int) -> int:
    code = octet ^ 0x55
    segment = code >> 4 & 7
    level = ((code & 15) << 4) + 8
    if segment:
        level = level + 256 << segment - 1
    return level if code & 128 else -level


_MULAW: Final = tuple(map(_mulaw, range(256)))
_ALAW: Final = tuple(map(_alaw, range(256)))


def _words(data: bytes, *, swapped: bool) -> Sequence[int]:
    found = array("h")
    found.frombytes(data[: len(data) // 2 * 2])
    little = array("H", [1]).tobytes() == b"\x01\x00"
    if swapped is little:
        found.byteswap()
    return found


READINGS: Final[Mapping[str, Callable[[bytes], Sequence[int]]]] = MappingProxyType(
    {
        "mulaw": lambda data: [_MULAW[octet] for octet in data],
        "alaw": lambda data: [_ALAW[octet] for octet in data],
        "pcm_s16le": lambda data: _words(data, swapped=False),
        "16-bit PCM, high byte first": lambda data: _words(data, swapped=True),
        "unsigned 8-bit PCM": lambda data: [octet - 128 for octet in data],
        "signed 8-bit PCM": lambda data: [(octet ^ 128) - 128 for octet in data],
    }
)
"""Ways to make samples of octets, by name."""

# Speech goes on from sample to sample. What is read the wrong way jumps about.
_MUCH: Final = 0.5
_NOISE: Final = 1.0
_MOST: Final = 12_000
_FEWEST: Final = 400


def roughness(samples: Sequence[int]) -> float:
    """How much a signal jumps: about 2 for noise, far less for speech; 2 for silence."""
    if len(samples) < 2:
        return 2.0
    mean = sum(samples) / len(samples)
    power = sum((sample - mean) ** 2 for sample in samples)
    steps = sum((after - before) ** 2 for before, after in pairwise(samples))
    return steps / power if power else 2.0


@lru_cache(maxsize=256)
def is_speech(data: bytes, name: str) -> bool:
    """Whether octets, read as `name`, go on from sample to sample as speech does."""
    return roughness(READINGS[name](data[:_MOST])) < _NOISE


@lru_cache(maxsize=256)
def likelier(data: bytes, name: str) -> str | None:
    """Another reading of `data` that is far more like speech than `name`; None if none is.

    Raises:
        KeyError: there is no such reading.
    """
    # Cut on a whole word, wherever the samples begin.
    piece = data[:_MOST]
    if len(piece) < _FEWEST:
        return None
    found = {other: roughness(READINGS[other](piece)) for other in READINGS}
    best = min(found, key=lambda other: found[other])
    return best if found[best] < _MUCH * found[name] else None
