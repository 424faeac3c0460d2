"""Cutting audio into chunks that may be sent (``protocol.md#audio``, ``#sender-rule``)."""

from __future__ import annotations

from utterwire_protocol.classification import is_sendable_audio

__all__ = ["Cutter"]

_BRACE = 0x7B

# How far back from the preferred size a better cut is looked for, in samples.
_LOOK_BACK = 256

# Bytes of one sample, where changing a sample by one step means changing its first byte by one.
_SAMPLE_BYTES = {"pcm_s16le": 2, "wav": 2, "mulaw": 1, "alaw": 1}

_WAV_HEADER_BYTES = 44


class Cutter:
    """Cuts the audio of one utterance, handed over in pieces of any length, into legal chunks.

    Each chunk holds whole samples (the rest waits for the next piece), is at most ``size`` bytes
    long, and does not begin with 0x7B: it is cut elsewhere or, where no cut helps, its first
    sample is changed by one step. Encoded audio cannot be changed; there a chunk that must begin
    with 0x7B is cut so that it does not end in 0x7D.
    """

    def __init__(self, format: str, size: int) -> None:
        self._step = _SAMPLE_BYTES.get(format, 1)
        self._alterable = format in _SAMPLE_BYTES
        self._size = size - size % self._step
        self._rest = b""
        self._header = _WAV_HEADER_BYTES if format == "wav" else 0

    @property
    def rest(self) -> int:
        """Bytes of a sample that is not whole yet."""
        return len(self._rest)

    def cut(self, data: bytes) -> list[bytes]:
        """The chunks that ``data`` completes, in order; none is empty."""
        audio = bytearray(self._rest + data)
        if len(audio) < self._header:
            self._rest = bytes(audio)
            return []
        whole = len(audio) - len(audio) % self._step
        self._rest = bytes(audio[whole:])
        chunks = []
        start = 0
        while start < whole:
            if audio[start] == _BRACE and self._alterable:
                audio[start] -= 1
            end = self._end(audio, start, whole)
            chunks.append(bytes(audio[start:end]))
            self._header = 0
            start = end
        return chunks

    def _end(self, audio: bytearray, start: int, whole: int) -> int:
        """Where the chunk that begins at ``start`` is best cut."""
        last = min(start + max(self._size, self._header), whole)
        first = max(start + max(self._step, self._header), last - _LOOK_BACK * self._step)
        fallback = start + self._step
        for end in range(last, first - 1, -self._step):
            if audio[start] == _BRACE and not is_sendable_audio(bytes(audio[start:end])):
                continue
            if end == whole or audio[end] != _BRACE:
                return end
            fallback = max(fallback, end)
        return fallback
