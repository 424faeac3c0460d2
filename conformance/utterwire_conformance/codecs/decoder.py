"""A real decoder: what a player makes of a coded stream. It is FFmpeg's, by PyAV, if installed."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

__all__ = ["DECODER_MISSING", "Heard", "decode", "decoder_is_there"]

DECODER_MISSING: Final = (
    "no decoder is installed, so that nobody can hear it: pip install 'utterwire[decoders]'"
)
"""Why coded audio cannot be judged."""

_DEMUXERS: Final = {"mp3": "mp3", "aac": "aac", "opus": "ogg"}
# A few megabytes can decode to days. No text that the suite sends takes half an hour to speak.
_MOST_S: Final = 1_800


@dataclass(frozen=True, slots=True)
class Heard:
    """What came out: samples of one channel, their rate in Hz, the greatest of them (1.0 is full
    scale), and why decoding failed, if it did. Where there is much more than speech can be, it is
    `broken_off`."""

    samples: int
    sample_rate: int
    peak: float
    failure: str | None = None
    broken_off: bool = False


def decoder_is_there() -> bool:
    """Whether `decode` can be used."""
    return _library() is not None


def _library() -> Any:
    try:
        return importlib.import_module("av")
    except ImportError:
        return None


@lru_cache(maxsize=512)
def decode(name: str, data: bytes) -> Heard:
    """Decode the whole of `data`, a stream in the format `name`: mp3, aac or opus.

    Raises:
        ModuleNotFoundError: there is no decoder.
    """
    av = _library()
    if av is None:
        raise ModuleNotFoundError(DECODER_MISSING)
    samples, rate, peak = 0, 0, 0.0
    try:
        with av.open(io.BytesIO(data), "r", format=_DEMUXERS[name]) as container:
            resampler = av.AudioResampler(format="s16", layout="mono")
            for frame in container.decode(audio=0):
                samples += frame.samples
                rate = frame.sample_rate
                for plain in resampler.resample(frame):
                    peak = max(peak, _peak(bytes(plain.planes[0])[: 2 * plain.samples]))
                if samples > _MOST_S * rate:
                    return Heard(samples, rate, peak, broken_off=True)
    except (av.FFmpegError, ValueError, IndexError, EOFError) as error:
        words = str(error).partition(":")[0].strip() or type(error).__name__
        return Heard(samples, rate, peak, words)
    return Heard(samples, rate, peak)


def _peak(pcm: bytes) -> float:
    found = memoryview(pcm).cast("h")
    return max(max(found), -min(found)) / 32_768 if len(found) else 0.0
