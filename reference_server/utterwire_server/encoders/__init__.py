"""The encoders: from samples to the bytes of each format (`protocol.md#encoded-audio`).

`mp3`, `aac` and `opus` need the extra ``encoders``; so do rates that the engine does not speak at.
"""

from utterwire_server.encoders.encoder import Encoder
from utterwire_server.encoders.offer import (
    FORMATS,
    RESAMPLED_RATES,
    FormatMissing,
    is_heavy,
    make_encoder,
    media_type,
    offer,
    resamples,
)

__all__ = [
    "FORMATS",
    "RESAMPLED_RATES",
    "Encoder",
    "FormatMissing",
    "is_heavy",
    "make_encoder",
    "media_type",
    "offer",
    "resamples",
]
