"""Each format by itself: what comes out decodes to what went in, all of it, early."""

from __future__ import annotations

import io
import struct
import sys
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from utterwire_server import encoders
from utterwire_server.encoders import (
    FORMATS,
    RESAMPLED_RATES,
    Encoder,
    FormatMissing,
    make_encoder,
    media_type,
    offer,
)
from utterwire_server.encoders import offer as offering
from utterwire_server.encoders.compressed import RECIPES, CompressedEncoder, Recipe
from utterwire_server.encoders.g711 import ALAW, MULAW
from utterwire_server.encoders.pcm import encode_pcm_s16le
from utterwire_server.encoders.resampler import Resampler

ENGINE_RATES = (24_000, 8_000, 16_000, 48_000)
OFFER = offer(None, ENGINE_RATES)
EVERY = [(name, rate) for name, rates in OFFER.items() for rate in rates]
COMPRESSED = [(name, rate) for name, rate in EVERY if name in RECIPES]


def tone(rate: int, seconds: float, hertz: float = 200.0) -> Any:
    time = np.arange(round(rate * seconds)) / rate
    return (0.4 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def encoded(name: str, rate: int, samples: Any, step: int = 0) -> bytes:
    encoder = make_encoder(name, rate)
    step = step or max(1, rate // 25)
    parts = [encoder.encode(samples[at : at + step]) for at in range(0, samples.size, step)]
    tail = encoder.finish()
    encoder.close()
    return b"".join(parts) + tail


def decoded(name: str, rate: int, data: bytes) -> tuple[int, Any]:
    """The rate that a decoder plays at, and the samples it makes."""
    known = {"opus": "ogg", "pcm_s16le": "s16le"}.get(name, name)
    options = {"sample_rate": str(rate)} if known in ("s16le", "mulaw", "alaw") else {}
    with av.open(io.BytesIO(data), "r", format=known, options=options) as container:
        plane = [frame.to_ndarray() for frame in container.decode(audio=0)]
        played = container.streams.audio[0].sample_rate
    parts = [p[0] / 32_768 if p.dtype == np.int16 else p[0] for p in plane]
    return played, np.concatenate(parts)


@pytest.mark.parametrize(("name", "rate"), EVERY)
@pytest.mark.parametrize("seconds", [0.02, 1.003])
def test_all_that_went_in_comes_out(name: str, rate: int, seconds: float) -> None:
    samples = tone(rate, seconds)
    played, heard = decoded(name, rate, encoded(name, rate, samples))
    assert played == (48_000 if name == "opus" else rate)
    excess = heard.size - round(samples.size * Fraction(played, rate))
    if name in ("mp3", "aac"):
        frame = 1_024 if name == "aac" else 1_152 if rate >= 32_000 else 576
        assert 0 <= excess < 1_152 + frame
    else:
        assert excess == 0
    assert np.abs(heard).max() > 0.2


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_heard_is_what_was_spoken(name: str) -> None:
    rate = 8_000 if name.endswith("law") else 24_000
    played, heard = decoded(name, rate, encoded(name, rate, tone(rate, 1.0, 440.0)))
    middle = heard[played // 4 : played * 3 // 4]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(middle.size)))
    assert spectrum.argmax() * played / middle.size == pytest.approx(440.0, abs=3.0)


@pytest.mark.parametrize(("name", "rate"), EVERY)
def test_the_bytes_do_not_depend_on_how_samples_came(name: str, rate: int) -> None:
    samples = tone(rate, 0.3)
    if name == "opus":  # the serial number of an Ogg stream is drawn by lot
        assert len(encoded(name, rate, samples)) == len(encoded(name, rate, samples, 7))
    else:
        assert encoded(name, rate, samples) == encoded(name, rate, samples, 7)


@pytest.mark.parametrize(
    ("name", "rate", "most_ms"),
    [("mp3", 24_000, 60), ("mp3", 48_000, 60), ("opus", 24_000, 40), ("aac", 24_000, 100)],
)
def test_the_first_byte_comes_early(name: str, rate: int, most_ms: int) -> None:
    encoder = make_encoder(name, rate)
    fed = 0
    step = rate // 200
    while not encoder.encode(tone(rate, 1.0)[fed : fed + step]):
        fed += step
        assert fed < rate
    # Of Ogg the header pages leave at once, and with the first audio.
    assert (fed + step) * 1000 / rate <= most_ms
    encoder.close()


def test_opus_pages_leave_one_by_one() -> None:
    encoder = make_encoder("opus", 24_000)
    sizes = [len(encoder.encode(tone(24_000, 0.02))) for _ in range(50)]
    encoder.close()
    assert all(sizes[3:])


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_an_encoder_that_is_given_up_says_nothing(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder = make_encoder(name, 24_000)
    encoder.encode(tone(24_000, 0.1))
    encoder.close()
    encoder.close()
    made = make_encoder(name, 24_000)
    made.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", FORMATS)
def test_samples_beyond_full_scale_are_clipped(name: str) -> None:
    rate = 8_000 if name.endswith("law") else 24_000
    odd = 12.0 * tone(rate, 0.5)
    odd[:3] = np.nan, np.inf, -np.inf
    _, heard = decoded(name, rate, encoded(name, rate, odd))
    assert np.isfinite(heard).all()
    # What wraps round jumps from one end to the other between two samples.
    inner = heard[heard.size // 4 : heard.size * 3 // 4]
    assert np.abs(np.diff(inner)).max() < 1.5


def test_a_wav_header_comes_once_with_the_first_samples() -> None:
    encoder = make_encoder("wav", 16_000)
    first, second = encoder.encode(tone(16_000, 0.01)), encoder.encode(tone(16_000, 0.01))
    assert first[44:] == second == encode_pcm_s16le(tone(16_000, 0.01))
    assert struct.unpack("<4sI4s4sIHHIIHH4sI", first[:44]) == (
        *(b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16),
        *(b"data", 0xFFFFFFFF),
    )
    assert encoder.finish() == b""


SAMPLES = np.arange(-32_768, 32_768, dtype=np.int16)


@pytest.mark.parametrize(
    ("name", "table", "silence"), [("mulaw", MULAW, 0xFF), ("alaw", ALAW, 0xD5)]
)
def test_every_sample_keeps_its_sign_order_and_size(name: str, table: Any, silence: int) -> None:
    assert table[0] == silence
    _, heard = decoded(name, 8_000, table[SAMPLES.view(np.uint16)].tobytes())
    assert (np.diff(heard) >= 0).all()
    # Sixteen levels in each doubling: half a step is a thirty-second at most.
    distance = np.abs(heard * 32_768 - SAMPLES)
    assert (distance <= np.abs(SAMPLES.astype(np.int32)) / 32 + 16).all()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="audioop left the standard library")
@pytest.mark.filterwarnings("ignore:'audioop' is deprecated:DeprecationWarning")
def test_the_octets_are_those_of_an_older_implementation() -> None:
    import audioop  # type: ignore[import-not-found,unused-ignore]

    # That one rounds negative samples away from zero before it looks for the segment.
    positive = SAMPLES[SAMPLES >= 0]
    assert MULAW[positive.view(np.uint16)].tobytes() == audioop.lin2ulaw(positive.tobytes(), 2)
    assert ALAW[SAMPLES.view(np.uint16)].tobytes() == audioop.lin2alaw(SAMPLES.tobytes(), 2)


@pytest.mark.parametrize(
    ("rate_in", "rate_out"), [(24_000, 22_050), (48_000, 44_100), (24_000, 8_000), (8_000, 11_025)]
)
def test_resampling_keeps_length_and_pitch(rate_in: int, rate_out: int) -> None:
    resampler = Resampler(rate_in, rate_out)
    whole = tone(rate_in, 1.0, 440.0)
    step = rate_in // 25
    parts = [resampler.process(whole[at : at + step]) for at in range(0, whole.size, step)]
    # Something came before the end.
    assert sum(part.size for part in parts) > rate_out * 0.8
    heard = np.concatenate([*parts, resampler.finish()])
    assert heard.size == rate_out
    assert np.abs(heard - tone(rate_out, 1.0, 440.0))[50:-50].max() < 0.01


def test_resampling_nothing_gives_nothing() -> None:
    assert Resampler(24_000, 22_050).finish().size == 0


def test_one_odd_sample_does_not_spread() -> None:
    resampler = Resampler(24_000, 12_000)
    odd = tone(24_000, 0.5)
    odd[5_000] = np.nan
    odd[6_000] = np.inf
    heard = np.concatenate([resampler.process(odd), resampler.finish()])
    assert np.isfinite(heard).all()


def test_what_is_offered() -> None:
    assert tuple(OFFER) == FORMATS
    assert OFFER["pcm_s16le"] == RESAMPLED_RATES
    assert set(OFFER["opus"]) == {8_000, 12_000, 16_000, 24_000, 48_000}
    assert 44_100 in OFFER["mp3"]
    assert 44_100 in OFFER["aac"]
    assert tuple(offer((), (24_000,))) == ("pcm_s16le",)
    assert tuple(offer(("opus", "wav"), (24_000,))) == ("pcm_s16le", "opus", "wav")
    # A rate of the engine that an encoder does not take.
    assert 32_001 in offer(None, (24_000, 32_001))["wav"]
    assert 32_001 not in offer(None, (24_000, 32_001))["mp3"]


@pytest.fixture
def without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("av", "soxr"):
        monkeypatch.setitem(sys.modules, name, None)
    offering_module = sys.modules[offering.__module__]
    offering_module._is_there.cache_clear()
    monkeypatch.setattr(offering_module, "_is_there", offering_module._is_there.__wrapped__)


@pytest.mark.usefixtures("without_libraries")
def test_without_the_extra_what_can_be_made_is_offered() -> None:
    assert dict(offer(None, (24_000, 8_000))) == dict.fromkeys(
        ("pcm_s16le", "wav", "mulaw", "alaw"), (24_000, 8_000)
    )
    assert tuple(offer(None, (24_000,))) == ("pcm_s16le", "wav")


@pytest.mark.usefixtures("without_libraries")
@pytest.mark.parametrize(
    ("name", "said"), [("mp3", "av is not installed"), ("mulaw", "has no 8000 Hz, and soxr is")]
)
def test_what_cannot_be_made_is_told_with_its_extra(name: str, said: str) -> None:
    with pytest.raises(FormatMissing, match=said) as told:
        offer(("wav", name), (24_000,))
    assert "pip install 'utterwire[encoders]'" in str(told.value)


def test_content_types() -> None:
    assert media_type("alaw", 16_000) == "audio/PCMA;rate=16000"
    assert media_type("opus", 24_000) == "audio/ogg;codecs=opus"
    assert len({media_type(name, 8_000) for name in FORMATS}) == len(FORMATS)


def test_an_encoder_that_cannot_be_opened_leaves_nothing_open() -> None:
    with pytest.raises((ValueError, OSError)):
        CompressedEncoder(Recipe("ogg", "libopus", 1, 1), 44_100)


def test_the_package_exports_what_it_says() -> None:
    assert sorted(encoders.__all__) == [
        "Encoder",
        "FORMATS",
        "FormatMissing",
        "RESAMPLED_RATES",
        "is_heavy",
        "make_encoder",
        "media_type",
        "offer",
        "resamples",
    ]
    assert issubclass(CompressedEncoder, Encoder)
