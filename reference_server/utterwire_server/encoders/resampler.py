"""From the rate of the engine to the rate that was asked for."""

from __future__ import annotations

from typing import cast

import numpy as np
import soxr

from utterwire_server.engines.engine import Samples

__all__ = ["Resampler"]


class Resampler:
    """Resamples one utterance, block by block; both rates in Hz.

    What comes out is as long, in seconds, as what went in, to the sample.
    """

    def __init__(self, rate_in: int, rate_out: int) -> None:
        self._stream = soxr.ResampleStream(rate_in, rate_out, 1, dtype="float32")

    def process(self, samples: Samples) -> Samples:
        """The samples that ``samples``, float32 of shape ``(n,)``, complete."""
        # One value that is not a number would spread over its neighbours.
        clean = np.clip(np.nan_to_num(samples, nan=0.0), np.float32(-1.0), np.float32(1.0))
        return cast(Samples, self._stream.resample_chunk(clean))

    def finish(self) -> Samples:
        """What is left at the end."""
        return cast(Samples, self._stream.resample_chunk(np.zeros(0, np.float32), last=True))
