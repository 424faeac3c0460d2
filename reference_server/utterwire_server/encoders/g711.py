"""`mulaw` and `alaw`: ITU-T G.711, by one table each."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from utterwire_server.encoders.encoder import Encoder
from utterwire_server.encoders.pcm import quantised
from utterwire_server.engines.engine import Samples

__all__ = ["ALAW", "MULAW", "G711Encoder"]

Table: TypeAlias = npt.NDArray[np.uint8]


def _logarithm(magnitude: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The number of the highest bit that is set, of values above 0."""
    number: npt.NDArray[np.int32] = np.frexp(magnitude.astype(np.float64))[1] - 1
    return number


# Every 16-bit sample, in the order of its unsigned reading: 0 to 32767, then -32768 to -1.
_SAMPLES: Final = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)


def _mulaw() -> Table:
    """G.711 table 2a: a 14-bit sample, biased by 33, as sign, segment and 4 bits, inverted."""
    negative = _SAMPLES < 0
    # In 16-bit steps: the bias is 33 << 2, and what the last segment cannot hold is clipped.
    biased = np.minimum(np.abs(_SAMPLES), 32_635) + 132
    segment = _logarithm(biased) - 7
    step = (biased >> (segment + 3)) & 0x0F
    code = (negative << 7) | (segment << 4) | step
    table: Table = (~code & 0xFF).astype(np.uint8)
    return table


def _alaw() -> Table:
    """G.711 table 1a: a 13-bit sample as sign, segment and 4 bits, the even bits inverted."""
    positive = _SAMPLES >= 0
    # In 12 bits and a sign; -1 lies beside 0, as in two's complement.
    magnitude = np.where(positive, _SAMPLES, ~_SAMPLES) >> 4
    segment = np.maximum(_logarithm(np.maximum(magnitude, 1)) - 3, 0)
    segment = np.where(magnitude < 16, 0, segment)
    step = (magnitude >> np.maximum(segment - 1, 0)) & 0x0F
    code = (positive << 7) | (segment << 4) | step
    table: Table = (code ^ 0x55).astype(np.uint8)
    return table


MULAW: Final = _mulaw()
"""The octet of each 16-bit sample, by its unsigned reading."""

ALAW: Final = _alaw()
"""The same in A-law."""


class G711Encoder(Encoder):
    """One octet for each sample, by ``table``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def encode(self, samples: Samples) -> bytes:
        return self._table[quantised(samples).view(np.uint16)].tobytes()
