"""Speech as a listener gets it: through the reference server's socket and the reference client.

with LaunchedServer(["--engine", "tone"]) as server:
    spoken = asyncio.run(speak(server.url, "Hello.", format="mp3"))
"""

from __future__ import annotations

import asyncio
import io
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from utterwire_client import Audio, Deadlines, Marks, Start, Word, connect

__all__ = [
    "RATE",
    "LaunchedServer",
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


class LaunchedServer:
    """The reference server in a process of its own, as a context manager.

    :param flags: of ``utterwire-server serve``.
    :param python: its interpreter.
    :param log: the file its log goes to.
    :param ready_s: how long it may take until `/ping` answers 200.
    :param env: its environment; None takes ours.
    """

    def __init__(
        self,
        flags: Sequence[str],
        *,
        log: Path,
        python: str = sys.executable,
        ready_s: float = 600.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._command = [python, "-m", "utterwire_server", "serve", *flags]
        self._log = log
        self._ready_s = ready_s
        self._env = env

    def __enter__(self) -> Self:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(port)], stderr=log, env=self._env
            )
        try:
            self._wait(f"http://127.0.0.1:{port}/ping")
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, ping: str) -> None:
        until = time.monotonic() + self._ready_s
        while time.monotonic() < until:
            if self._process.poll() is not None:
                last = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
                raise RuntimeError(f"the server ended at once: {''.join(last)}")
            try:
                with urllib.request.urlopen(ping, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise RuntimeError(f"the server was not ready after {self._ready_s:g} s")


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
