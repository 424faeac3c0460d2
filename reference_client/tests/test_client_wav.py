"""WAV headers: read back with the standard library, whatever the format and size."""

import io
import itertools
import struct
import wave

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_client import wav_header as exported
from utterwire_client.wav import MAX_DATA_BYTES, WAV_FORMATS, RiffStripper, wav_header

deterministic = settings(derandomize=True, max_examples=60, deadline=None)


def test_the_header_is_exported() -> None:
    assert exported is wav_header


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("samples", [0, 1, 12345])
def test_the_standard_library_reads_it(rate: int, samples: int) -> None:
    audio = bytes(range(256)) * (samples * 2 // 256 + 1)
    audio = audio[: samples * 2]
    with wave.open(io.BytesIO(wav_header(len(audio), sample_rate=rate) + audio)) as read:
        assert (read.getnchannels(), read.getsampwidth()) == (1, 2)
        assert read.getframerate() == rate
        assert read.getnframes() == samples
        assert read.readframes(samples) == audio


@pytest.mark.parametrize("format", sorted(WAV_FORMATS))
@pytest.mark.parametrize("size", [0, 2, 4096])
def test_the_sizes_are_true(format: str, size: int) -> None:
    header = wav_header(size, sample_rate=8000, format=format)
    riff, total, wave_tag = struct.unpack("<4sI4s", header[:12])
    assert (riff, wave_tag) == (b"RIFF", b"WAVE")
    assert total == len(header) - 8 + size
    assert header[-8:-4] == b"data"
    assert struct.unpack("<I", header[-4:])[0] == size


def test_an_odd_size_counts_the_padding_byte() -> None:
    header = wav_header(3, sample_rate=8000, format="mulaw")
    assert struct.unpack("<I", header[4:8])[0] == len(header) - 8 + 4
    assert struct.unpack("<I", header[-4:])[0] == 3


def test_what_is_not_pcm_says_how_many_samples() -> None:
    header = wav_header(100, sample_rate=8000, format="alaw")
    at = header.index(b"fact")
    assert struct.unpack("<II", header[at + 4 : at + 12]) == (4, 100)
    assert struct.unpack("<H", header[20:22])[0] == 6


@pytest.mark.parametrize(
    ("size", "format"),
    [(-1, "pcm_s16le"), (MAX_DATA_BYTES + 1, "pcm_s16le"), (0, "mp3"), (0, "wav")],
)
def test_what_a_file_cannot_hold(size: int, format: str) -> None:
    with pytest.raises(ValueError, match="a WAV file holds"):
        wav_header(size, sample_rate=24000, format=format)


def stream_header(format: str = "pcm_s16le", rate: int = 24000, extra: bytes = b"") -> bytes:
    """The header of a stream: as a file's, but of unknown length."""
    header = wav_header(0, sample_rate=rate, format=format)
    return (
        b"RIFF\xff\xff\xff\xffWAVE"
        + extra
        + header[12:].replace(b"data" + bytes(4), b"data" + b"\xff" * 4)
    )


@given(
    format=st.sampled_from(sorted(WAV_FORMATS)),
    audio=st.binary(max_size=64),
    cuts=st.lists(st.integers(0, 200), max_size=8),
    extra=st.sampled_from([b"", b"LIST\x05\x00\x00\x00abcde\x00", b"junk\x00\x00\x00\x00"]),
)
@deterministic
def test_the_header_comes_off_however_the_stream_is_cut(
    format: str, audio: bytes, cuts: list[int], extra: bytes
) -> None:
    stream = stream_header(format, 22050, extra) + audio
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    stripper = RiffStripper()
    got = b"".join(stripper.feed(stream[a:b]) for a, b in itertools.pairwise(edges))
    assert got == audio
    assert (stripper.sample_rate, stripper.format) == (22050, format)


@pytest.mark.parametrize(
    "stream",
    [
        b"ID3\x04" + bytes(40),
        b"RIFX" + bytes(4) + b"WAVE" + bytes(40),
        b"RIFF" + bytes(4) + b"WAVEdata" + bytes(4) + b"\0\0",
        b"RIFF" + bytes(4) + b"WAVEfmt \x04\0\0\0" + bytes(4),
        b"RIFF" + bytes(4) + b"WAVEfmt \x10\0\0\0" + struct.pack("<HHIIHH", 1, 2, 8000, 0, 4, 16),
        b"RIFF" + bytes(4) + b"WAVEfmt \x10\0\0\0" + struct.pack("<HHIIHH", 3, 1, 8000, 0, 4, 32),
        b"RIFF" + bytes(4) + b"WAVE" + b"junk\x00\x00\x02\x00" + bytes(70000),
    ],
)
def test_what_is_no_mono_wav_stream(stream: bytes) -> None:
    with pytest.raises(ValueError, match="stream"):
        RiffStripper().feed(stream)
