"""The readers of coded audio: strict about framing, on streams of a real encoder and by hand."""

from __future__ import annotations

import io
import math
import struct
import sys
from array import array
from collections.abc import Callable
from fractions import Fraction

import av
import pytest
from utterwire_conformance import codecs
from utterwire_conformance.codecs import FramingError, adts, decode, g711, mpeg, ogg, riff
from utterwire_conformance.codecs import decoder as decoding

MUXERS = {"mp3": ("mp3", "libmp3lame"), "aac": ("adts", "aac"), "opus": ("ogg", "libopus")}
SECOND = 24_000


def tone(samples: int, rate: int = SECOND, level: float = 9_000.0) -> array[int]:
    step = 2 * math.pi * 220 / rate
    return array("h", (round(level * math.sin(step * n)) for n in range(samples)))


def encoded(name: str, pcm: array[int], rate: int = SECOND, **options: str) -> bytes:
    """A stream of a real encoder."""
    muxer, codec = MUXERS[name]
    target = io.BytesIO()
    given = {"id3v2_version": "0", "write_xing": "0"} if name == "mp3" else {}
    with av.open(target, "w", format=muxer, options={**given, **options}) as container:
        stream = container.add_stream(codec, rate=rate, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(pcm))
        frame.planes[0].update(pcm.tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        frame.sample_rate, frame.pts = rate, 0
        frame.time_base = Fraction(1, rate)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


@pytest.fixture(scope="module")
def streams() -> dict[str, bytes]:
    return {name: encoded(name, tone(SECOND)) for name in MUXERS}


READERS: dict[str, Callable[[bytes], object]] = {
    "mp3": lambda data: list(mpeg.frames(data)),
    "aac": lambda data: list(adts.frames(data)),
    "opus": ogg.read_opus,
}


@pytest.mark.parametrize("rate", [8_000, 11_025, 12_000, 16_000, 22_050, 32_000, 44_100, 48_000])
def test_frames_of_mpeg_audio(rate: int) -> None:
    data = encoded("mp3", tone(rate, rate), rate)
    found = list(mpeg.frames(data))
    assert {frame.sample_rate for frame in found} == {rate}
    assert found[0].offset == found[0].reaches_back == 0
    assert found[-1].offset + found[-1].size == len(data)
    assert sum(frame.samples for frame in found) == decode("mp3", data).samples
    assert mpeg.is_layer_three(data)


def test_tags_and_an_index_are_part_of_an_mpeg_stream() -> None:
    data = encoded("mp3", tone(SECOND), id3v2_version="3", write_xing="1")
    assert data.startswith(b"ID3")
    found = list(mpeg.frames(data + b"TAG" + bytes(125)))
    assert [frame.is_index for frame in found[:3]] == [True, False, False]
    assert found[0].samples == 0
    assert mpeg.is_layer_three(data)
    assert not mpeg.is_layer_three(b"ID3")


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100])
def test_frames_of_aac(rate: int) -> None:
    data = encoded("aac", tone(rate, rate), rate)
    found = list(adts.frames(data))
    assert {frame.sample_rate for frame in found} == {rate}
    assert all(frame.is_lc and frame.header == 7 for frame in found)
    assert sum(frame.samples for frame in found) == decode("aac", data).samples


def test_an_aac_header_with_a_checksum() -> None:
    frame = b"\xff\xf0\x58\x40\x02\x9f\xfc\0\0" + bytes(11)
    (found,) = adts.frames(frame)
    assert (found.header, found.size, found.sample_rate) == (9, 20, 24_000)


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_pages_of_opus(rate: int) -> None:
    data = encoded("opus", tone(rate, rate), rate, page_duration="20000")
    stream = ogg.read_opus(data)
    assert (stream.input_rate, stream.channels, stream.missing) == (rate, 1, None)
    assert stream.samples == decode("opus", data).samples == 48_000
    assert all(page.intact for page in stream.pages)
    assert [page.is_last for page in stream.pages[-2:]] == [False, True]
    assert len(stream.packets) >= 50


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "cut off"),
        (lambda data: data + b"\0", "no .* begins"),
        (lambda data: b"\0" + data, "^at byte 0 no .* begins"),
        (lambda data: b"RIFF" + data[4:], "^at byte 0 no .* begins"),
        (lambda data: data + data[:3], "cut off|no .* begins"),
    ],
)
def test_what_is_no_whole_stream(
    streams: dict[str, bytes], name: str, damage: Callable[[bytes], bytes], said: str
) -> None:
    READERS[name](streams[name])
    with pytest.raises(FramingError, match=said):
        READERS[name](damage(streams[name]))


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"\xff\xf1\x7c\x40\x02\x9f\xfc" + bytes(13), 0),  # a rate that is reserved
        (b"\xff\xf1\x58\x40\x00\x1f\xfc", 0),  # shorter than its header
        (b"\xff\xf1\x58\x40", 0),
        (b"\xff", 0),
        (b"\xff\xf3\x84\xc4" + bytes(188), 0),  # MPEG audio, Layer III
    ],
)
def test_what_is_no_adts(data: bytes, offset: int) -> None:
    with pytest.raises(FramingError) as told:
        list(adts.frames(data))
    assert told.value.offset == offset


@pytest.mark.parametrize(
    "head",
    [
        b"\xff\xf3\xf4\xc4",  # a bit rate that is reserved
        b"\xff\xf3\x04\xc4",  # a bit rate that nobody tells
        b"\xff\xf3\x8c\xc4",  # a rate that is reserved
        b"\xff\xeb\x84\xc4",  # a version that is reserved
        b"\xff\xf5\x84\xc4",  # Layer II
        b"\xff\xf1\x58\x40",  # ADTS
    ],
)
def test_what_is_no_frame_of_layer_three(head: bytes) -> None:
    assert not mpeg.is_layer_three(head + bytes(200))
    with pytest.raises(FramingError):
        list(mpeg.frames(head + bytes(200)))


def page(number: int, body: bytes, *, flags: int = 0, serial: int = 7, version: int = 0) -> bytes:
    lengths = bytes([255] * (len(body) // 255) + [len(body) % 255])
    head = struct.pack("<4sBBqIII", b"OggS", version, flags, 0, serial, number, 0)
    whole = head + bytes([len(lengths)]) + lengths + body
    return whole[:22] + struct.pack("<I", ogg.checksum(whole)) + whole[26:]


HEAD = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 312, 24_000, 0, 0)
FIRST = page(0, HEAD, flags=2)
TAGS = page(1, b"OpusTags" + bytes(300))


def test_a_packet_goes_on_over_lacing_values_and_pages() -> None:
    stream = ogg.read_opus(FIRST + TAGS + page(2, b"abc" * 170) + page(3, b"d", flags=4))
    assert [len(packet) for packet in stream.packets] == [510, 1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no page begins a stream"),
        (page(0, HEAD), "no page begins a stream"),
        (FIRST, "second packet is no OpusTags"),
        (page(0, b"OpusHead", flags=2), "first packet is no OpusHead"),
        (page(0, b"\x80theora" + bytes(30), flags=2), "first packet is no OpusHead"),
        (page(0, HEAD[:8] + b"\x10" + HEAD[9:], flags=2), "first packet is no OpusHead"),
        (FIRST + page(1, b"x"), "second packet is no OpusTags"),
        (FIRST + TAGS + FIRST, "a second stream begins"),
        (FIRST + page(1, b"OpusTags", serial=8), "a second stream begins"),
        (FIRST + TAGS + page(2, b"x", flags=4) + page(3, b"y"), "ends before its last page"),
        (FIRST + page(1, b"OpusTags", version=1), "version 1"),
        (FIRST + TAGS[:20], "header of an Ogg page is cut off"),
    ],
)
def test_what_is_no_opus_stream(data: bytes, said: str) -> None:
    with pytest.raises(FramingError, match=said):
        ogg.read_opus(data)


def test_a_lost_page_and_a_damaged_one_are_seen() -> None:
    lost = ogg.read_opus(FIRST + TAGS + page(3, b"x", flags=4))
    assert lost.missing == 2
    damaged = bytearray(FIRST + TAGS + page(2, b"xyz", flags=4))
    damaged[-1] ^= 1
    assert [p.intact for p in ogg.read_opus(bytes(damaged)).pages] == [True, True, False]


WAV = struct.pack(
    "<4sI4s4sIHHIIHH4sI",
    *(b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16),
    *(b"data", 0xFFFFFFFF),
)


def test_a_wav_header() -> None:
    header = riff.read_header(WAV + bytes(10))
    assert header is not None
    assert (header.sample_rate, header.faults) == (16_000, ())
    assert riff.read_header(WAV[:43]) is None
    assert riff.is_riff(WAV)
    assert not riff.is_riff(bytes(44))


@pytest.mark.parametrize("place", range(44))
def test_each_byte_of_a_wav_header_counts(place: int) -> None:
    changed = bytearray(WAV)
    changed[place] ^= 1
    header = riff.read_header(bytes(changed))
    assert header is not None
    assert header.faults


SPEECH = array(
    "h", (a // 2 + b // 3 for a, b in zip(tone(8_000, 8_000), tone(8_000, 3_300), strict=True))
)


def law(name: str, pcm: array[int]) -> bytes:
    target = io.BytesIO()
    with av.open(target, "w", format=name) as container:
        stream = container.add_stream(f"pcm_{name}", rate=8_000, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(pcm))
        frame.planes[0].update(pcm.tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        frame.sample_rate, frame.pts = 8_000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


WAYS: dict[str, Callable[[array[int]], bytes]] = {
    "mulaw": lambda pcm: law("mulaw", pcm),
    "alaw": lambda pcm: law("alaw", pcm),
    "pcm_s16le": lambda pcm: pcm.tobytes(),
    "16-bit PCM, high byte first": lambda pcm: b"".join(struct.pack(">h", s) for s in pcm),
    "unsigned 8-bit PCM": lambda pcm: bytes((s >> 8) + 128 for s in pcm),
    "signed 8-bit PCM": lambda pcm: bytes((s >> 8) & 255 for s in pcm),
}


@pytest.mark.parametrize("true", WAYS)
@pytest.mark.parametrize("claimed", ["mulaw", "alaw", "pcm_s16le"])
def test_octets_are_known_by_how_they_sound(true: str, claimed: str) -> None:
    data = WAYS[true](SPEECH)
    assert g711.likelier(data, claimed) == (None if true == claimed else true)
    assert g711.is_speech(data, true)


def test_the_laws_are_those_of_a_real_codec() -> None:
    for name in ("mulaw", "alaw"):
        octets = bytes(range(256))
        with av.open(io.BytesIO(octets), "r", format=name) as container:
            heard = b"".join(bytes(f.planes[0])[: 2 * f.samples] for f in container.decode(audio=0))
        assert list(g711.READINGS[name](octets)) == list(array("h", heard))


def test_where_nothing_tells_nothing_is_said() -> None:
    assert g711.likelier(b"\xff" * 100, "mulaw") is None
    assert g711.likelier(b"\xff" * 2_000, "mulaw") is None
    assert g711.roughness([]) == g711.roughness([5]) == g711.roughness([5, 5]) == 2.0
    with pytest.raises(KeyError):
        g711.likelier(bytes(1_000), "flac")


def test_a_decoder_tells_what_it_hears(streams: dict[str, bytes]) -> None:
    heard = decode("opus", streams["opus"])
    assert (heard.samples, heard.sample_rate, heard.failure) == (48_000, 48_000, None)
    assert 0.2 < heard.peak < 0.4
    silent = decode("mp3", encoded("mp3", array("h", bytes(2 * SECOND))))
    assert silent.peak < 0.001
    assert decode("opus", b"no Ogg at all").failure
    assert decode("aac", b"").failure


def test_what_goes_on_and_on_is_not_decoded_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_MOST_S", 0.25)
    long = decode("mp3", encoded("mp3", array("h", bytes(4 * SECOND))))
    assert long.broken_off
    assert long.failure is None
    assert 0.25 < long.samples / long.sample_rate < 1


def test_without_a_decoder_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codecs.decoder_is_there()
    monkeypatch.setitem(sys.modules, "av", None)
    assert not codecs.decoder_is_there()
    decoding.decode.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="utterwire\\[decoders\\]"):
        decode("mp3", b"")
