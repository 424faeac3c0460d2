"""WAV files whose header tells the truth.

A stream does not know its length beforehand, so that the header is written with the sizes of what
there is, and again when there is more. Layout: RIFF, ``fmt `` and ``data`` chunks as in
"Multimedia Programming Interface and Data Specifications 1.0" (IBM and Microsoft, 1991) and its
"New Multimedia Data Types" revision (1994), which asks for a ``fact`` chunk for anything but PCM.
"""

import struct
from typing import Final

__all__ = ["MAX_DATA_BYTES", "WAV_FORMATS", "RiffStripper", "wav_header"]

#: Formats of the protocol that a WAV file can hold, with the format tag and bytes per sample.
WAV_FORMATS: Final = {"pcm_s16le": (1, 2), "alaw": (6, 1), "mulaw": (7, 1)}

#: The most audio one file can hold: sizes are 32-bit, and the header counts too.
MAX_DATA_BYTES: Final = 0xFFFFFFFF - 64


def wav_header(data_bytes: int, *, sample_rate: int, format: str = "pcm_s16le") -> bytes:
    """The header of a mono WAV file with ``data_bytes`` of audio after it.

    An odd number of bytes needs one zero byte after the audio, which the sizes here allow for.
    Raises ``ValueError`` for a format a WAV file cannot hold, or more audio than it can.
    """
    if format not in WAV_FORMATS:
        raise ValueError(f"a WAV file holds {', '.join(WAV_FORMATS)}, not {format}")
    if not 0 <= data_bytes <= MAX_DATA_BYTES:
        raise ValueError(f"a WAV file holds at most {MAX_DATA_BYTES} bytes, not {data_bytes}")
    tag, width = WAV_FORMATS[format]
    shape = struct.pack("<HHIIHH", tag, 1, sample_rate, sample_rate * width, width, 8 * width)
    if tag == 1:
        fmt = b"fmt " + struct.pack("<I", 16) + shape
    else:
        fmt = b"fmt " + struct.pack("<I", 18) + shape + struct.pack("<H", 0)
        fmt += b"fact" + struct.pack("<II", 4, data_bytes // width)
    rest = b"WAVE" + fmt + b"data" + struct.pack("<I", data_bytes)
    return b"RIFF" + struct.pack("<I", len(rest) + data_bytes + data_bytes % 2) + rest


class RiffStripper:
    """Takes the header off a WAV stream (format ``wav``), however the stream is cut.

    ``feed`` returns the audio bytes; ``sample_rate`` and ``format`` are known once the first of
    them came. A stream's own sizes are not believed: 0xFFFFFFFF stands there while it is being
    made (``protocol.md#audio``). Raises ``ValueError`` for a stream that is no mono WAV of a
    format in :data:`WAV_FORMATS`.
    """

    # Before the audio there is a header of some dozens of bytes, not a file of its own.
    _MAX_HEADER = 64 * 1024

    def __init__(self) -> None:
        self._held: bytearray | None = bytearray()
        self.sample_rate: int | None = None
        self.format: str | None = None

    def feed(self, data: bytes) -> bytes:
        if self._held is None:
            return data
        self._held += data
        start = self._data_start(bytes(self._held))
        if start is None:
            if len(self._held) > self._MAX_HEADER:
                raise ValueError("the stream has no audio where a WAV file has it")
            return b""
        audio = bytes(self._held[start:])
        self._held = None
        return audio

    def _data_start(self, held: bytes) -> int | None:
        if len(held) < 12:
            return None
        if held[:4] != b"RIFF" or held[8:12] != b"WAVE":
            raise ValueError("the stream does not begin as a WAV file")
        at = 12
        while len(held) >= at + 8:
            name, size = held[at : at + 4], int.from_bytes(held[at + 4 : at + 8], "little")
            if name == b"data":
                if self.format is None:
                    raise ValueError("the stream has audio before its format")
                return at + 8
            body = held[at + 8 : at + 8 + size]
            if name == b"fmt " and len(body) == size:
                self._read_format(body)
            at += 8 + size + size % 2
        return None

    def _read_format(self, body: bytes) -> None:
        if len(body) < 16:
            raise ValueError("the stream's format chunk is cut short")
        tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
        names = {(t, 8 * width): name for name, (t, width) in WAV_FORMATS.items()}
        if channels != 1 or (tag, bits) not in names:
            raise ValueError(
                f"the stream is a WAV of {channels} channels, format tag {tag}, {bits} bits: "
                "only mono 16-bit PCM, A-law and mu-law can be kept"
            )
        self.sample_rate, self.format = rate, names[tag, bits]
