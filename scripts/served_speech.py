"""Speech as a listener gets it: through an endpoint's socket and the reference client.

spoken = asyncio.run(speak("ws://127.0.0.1:8080", "Hello.", format="mp3"))
"""

from __future__ import annotations

import asyncio
import io
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from utterwire_client import Audio, Deadlines, Marks, Start, Word, connect

__all__ = [
    "RATE",
    "Samples",
    "Spoken",
    "decoded",
    "read_wav",
    "speak",
    "write_wav",
]

RATE: Final = 24_000
Samples = npt.NDArray[np.float32]

# How PyAV calls the containers.
_CONTAINERS = {"mp3": "mp3", "aac": "aac", "opus": "ogg"}


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance: mono samples at `RATE`, shape ``(n,)``, and the words' marks if asked for."""

    samples: Samples
    words: tuple[Word, ...]


async def speak(
    url: str, text: str, *, voice: str | None = None, format: str = "pcm_s16le", marks: bool = False
) -> Spoken:
    """Have an endpoint speak one text in a session of its own, and decode what comes.

    :raises UtterwireError: if it does not come whole.
    """
    audio = bytearray()
    words: list[Word] = []
    rate = RATE
    patient = Deadlines(first_chunk_s=300, stall_s=300)
    async with connect(url, deadlines=patient) as session:
        utterance = session.synthesize(
            text, voice=voice, format=format, sample_rate=None, marks=["word"] if marks else None
        )
        async for event in utterance:
            if isinstance(event, Start):
                rate = event.sample_rate
            elif isinstance(event, Marks):
                words.extend(event.words)
            elif isinstance(event, Audio):
                audio += event.data
    return Spoken(await asyncio.to_thread(decoded, bytes(audio), format, rate), tuple(words))


def decoded(audio: bytes, format: str, rate: int) -> Samples:
    """Samples at `RATE` of `pcm_s16le` at ``rate``, or of MP3, AAC (ADTS) or Opus (Ogg)."""
    if format == "pcm_s16le":
        pcm = np.frombuffer(audio, dtype="<i2")
        if rate != RATE:
            raise ValueError(f"{rate} Hz was sent, and {RATE} Hz is compared")
        return (pcm / 32_768).astype(np.float32)
    import av

    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    with av.open(io.BytesIO(audio), mode="r", format=_CONTAINERS[format]) as container:
        frames = [each for frame in container.decode(audio=0) for each in resampler.resample(frame)]
    frames += resampler.resample(None)
    parts = [frame.to_ndarray().reshape(-1).astype(np.float32) for frame in frames]
    return np.concatenate([*parts, np.zeros(0, np.float32)])


def read_wav(path: Path) -> Samples:
    """The samples of a WAV file of 16-bit mono PCM, at `RATE`."""
    import soxr

    with wave.open(str(path), "rb") as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        samples = (pcm / 32_768).astype(np.float32)
        return np.asarray(soxr.resample(samples, file.getframerate(), RATE), np.float32)


def write_wav(path: Path, samples: Samples) -> Path:
    """Write samples at `RATE` as 16-bit mono PCM, clipped at full scale; the path is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes())
    return path
