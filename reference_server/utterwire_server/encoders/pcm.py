"""From an engine's float32 samples to 16-bit linear PCM, bare or behind a WAV header."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from utterwire_server.encoders.encoder import Encoder
from utterwire_server.engines.engine import Samples

__all__ = ["PcmEncoder", "WavEncoder", "encode_pcm_s16le", "quantised", "wav_header"]

_FULL_SCALE = np.float32(32_767)
#: The length of a stream is not known while it is made (`protocol.md#encoded-audio`).
_UNKNOWN: Final = 0xFFFFFFFF


def quantised(samples: Samples) -> npt.NDArray[np.int16]:
    """Mono float32 samples, shape ``(n,)``, as 16-bit integers of the same shape.

    Samples beyond full scale are clipped, never wrapped; a sample that is not a number is silence.
    """
    scaled = np.clip(samples, np.float32(-1.0), np.float32(1.0)) * _FULL_SCALE
    scaled[np.isnan(scaled)] = 0.0
    whole: npt.NDArray[np.int16] = np.rint(scaled).astype("<i2")
    return whole


def encode_pcm_s16le(samples: Samples) -> bytes:
    """Encode mono float32 samples, shape ``(n,)``, as ``2 * n`` bytes of signed 16-bit PCM."""
    return quantised(samples).tobytes()


def wav_header(sample_rate: int) -> bytes:
    """The 44 bytes before mono 16-bit PCM of unknown length, at ``sample_rate`` Hz."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", _UNKNOWN, b"WAVE"),
        *(b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16),
        *(b"data", _UNKNOWN),
    )


class PcmEncoder(Encoder):
    """`pcm_s16le` (`protocol.md#audio`)."""

    def encode(self, samples: Samples) -> bytes:
        return encode_pcm_s16le(samples)


class WavEncoder(PcmEncoder):
    """`wav`: one header, in one piece with the first samples, then PCM."""

    def __init__(self, sample_rate: int) -> None:
        self._header = wav_header(sample_rate)

    def encode(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        return header + super().encode(samples)
