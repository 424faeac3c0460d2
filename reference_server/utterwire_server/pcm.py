"""From an engine's float32 samples to the bytes of `pcm_s16le` (`protocol.md#audio`)."""

from __future__ import annotations

import numpy as np

from utterwire_server.engines.engine import Samples

__all__ = ["BYTES_PER_SAMPLE", "encode_pcm_s16le"]

BYTES_PER_SAMPLE = 2
_FULL_SCALE = np.float32(32_767)


def encode_pcm_s16le(samples: Samples) -> bytes:
    """Encode mono float32 samples, shape ``(n,)``, as ``2 * n`` bytes of signed 16-bit PCM.

    Samples beyond full scale are clipped, never wrapped; a sample that is not a number is silence.
    """
    scaled = np.clip(samples, np.float32(-1.0), np.float32(1.0)) * _FULL_SCALE
    scaled[np.isnan(scaled)] = 0.0
    return bytes(np.rint(scaled).astype("<i2"))
