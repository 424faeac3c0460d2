"""`mp3`, `aac` and `opus` by PyAV, each packet leaving as soon as it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import av
import numpy as np
from av.audio.stream import AudioStream

from utterwire_server.encoders.encoder import Encoder
from utterwire_server.encoders.pcm import quantised
from utterwire_server.engines.engine import Samples

__all__ = ["RECIPES", "CompressedEncoder", "Recipe"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How FFmpeg makes one format: its muxer, its encoder, their options, bits a second.

    ``narrow_bit_rate`` holds below 16,000 Hz.
    """

    muxer: str
    codec: str
    bit_rate: int
    narrow_bit_rate: int
    muxer_options: Mapping[str, str] = field(default_factory=dict)
    codec_options: Mapping[str, str] = field(default_factory=dict)


RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        # No Xing frame, which would have to be written again at the end; no bit reservoir, so
        # that each frame is whole in itself.
        "mp3": Recipe(
            "mp3",
            "libmp3lame",
            64_000,
            32_000,
            {"write_xing": "0", "id3v2_version": "0", "flush_packets": "1"},
            {"reservoir": "0"},
        ),
        "aac": Recipe("adts", "aac", 64_000, 32_000, {"flush_packets": "1"}),
        # Left alone, the muxer fills a page with a second of audio.
        "opus": Recipe(
            "ogg",
            "libopus",
            40_000,
            24_000,
            {"page_duration": "20000", "flush_packets": "1"},
            {"application": "audio", "frame_duration": "20", "vbr": "constrained"},
        ),
    }
)
"""By the format's name."""

_WIDE_BAND: Final = 16_000


class _Output:
    """What the muxer writes to: it cannot be gone back in."""

    name = "utterance"

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._held)
        self._held.clear()
        return taken


class CompressedEncoder(Encoder):
    """Encodes by ``recipe`` at ``sample_rate`` Hz.

    :raises ValueError: if the encoder refuses the rate.
    """

    def __init__(self, recipe: Recipe, sample_rate: int) -> None:
        self._rate = sample_rate
        self._output = _Output()
        self._made = 0
        self._container = av.open(
            self._output, "w", format=recipe.muxer, options=dict(recipe.muxer_options)
        )
        try:
            made: Any = self._container.add_stream(
                recipe.codec, rate=sample_rate, options=dict(recipe.codec_options), layout="mono"
            )
            self._stream: AudioStream = made
            narrow = sample_rate < _WIDE_BAND
            self._stream.bit_rate = recipe.narrow_bit_rate if narrow else recipe.bit_rate
            self._container.start_encoding()
        except BaseException:
            self.close()
            raise

    def encode(self, samples: Samples) -> bytes:
        if samples.size:
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(quantised(samples).reshape(1, -1)),
                format="s16",
                layout="mono",
            )
            frame.sample_rate = self._rate
            frame.time_base = Fraction(1, self._rate)
            frame.pts = self._made
            self._made += samples.size
            self._container.mux(self._stream.encode(frame))
        return self._output.take()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._output.take()

    def close(self) -> None:
        # Of an utterance that was given up nobody wants the trailer, nor what is wrong with it.
        with suppress(av.FFmpegError):
            self._container.close()
