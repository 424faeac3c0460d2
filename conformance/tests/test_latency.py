"""First byte, first sound and gaps: measured on sounds and times that are known."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.latency import Spread, gaps, leading_silence, measure, samples
from utterwire_conformance.transcript import Entry, Transcript

RATE = 24_000


def tone(seconds: float, *, level_db: float = -10.0, rate: int = RATE, offset: int = 0) -> bytes:
    """A sine of 400 Hz at this level (RMS, dBFS), upon a constant offset."""
    peak = 32_768 * 10 ** (level_db / 20) * math.sqrt(2)
    count = round(seconds * rate)
    values = (round(peak * math.sin(2 * math.pi * 400 * i / rate)) + offset for i in range(count))
    return struct.pack(f"<{count}h", *values)


def silence(seconds: float, *, rate: int = RATE, offset: int = 0) -> bytes:
    count = round(seconds * rate)
    return struct.pack(f"<{count}h", *([offset] * count))


@pytest.mark.parametrize(
    ("pcm", "expected"),
    [
        (tone(0.2), 0.0),
        (silence(0.3) + tone(0.2), 0.3),
        (silence(0.2995) + tone(0.2), 0.3),
        (silence(0.3), None),
        (b"", None),
        (b"\x00", None),
        # Shorter than what has to be held.
        (silence(0.1) + tone(0.03) + silence(0.1), None),
        # A click is no sound, what comes after it is.
        (silence(0.1) + tone(0.02) + silence(0.1) + tone(0.2), 0.22),
        # Below and above the threshold.
        (tone(0.2, level_db=-42), None),
        (silence(0.1) + tone(0.2, level_db=-38), 0.1),
        # A constant is no sound, however large.
        (silence(0.2, offset=9000) + tone(0.2, offset=9000), 0.2),
    ],
)
def test_leading_silence(pcm: bytes, expected: float | None) -> None:
    found = leading_silence(pcm, RATE)
    if expected is None:
        assert found is None
    else:
        # A window in which sound begins may be loud enough before it is full of it.
        assert found is not None
        assert expected - 0.010 <= found <= expected + 0.001


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000])
def test_leading_silence_at_every_rate(rate: int) -> None:
    found = leading_silence(silence(0.25, rate=rate) + tone(0.2, rate=rate), rate)
    assert found is not None
    assert 0.24 <= found <= 0.252


@given(st.binary(max_size=4000), st.sampled_from([8_000, 24_000, 48_000]))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_any_octets_have_a_first_sound_or_none(pcm: bytes, rate: int) -> None:
    found = leading_silence(pcm, rate)
    assert found is None or 0 <= found <= len(pcm) / 2 / rate


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([], []),
        ([(0.0, 1000)], []),
        # Each holds a second: they come in time, then one is half a second late.
        ([(0.0, 1000), (0.9, 1000), (2.5, 1000)], [0.5]),
        # What came early is still to be played.
        ([(0.0, 1000), (0.1, 1000), (0.2, 1000), (2.9, 1000)], []),
        ([(0.0, 1000), (2.0, 1000), (4.0, 1000)], [1.0, 1.0]),
        # Less than a millisecond is none.
        ([(0.0, 1000), (1.0005, 1000)], []),
    ],
)
def test_gaps(chunks: list[tuple[float, int]], expected: list[float]) -> None:
    assert gaps(chunks, 1000.0) == pytest.approx(tuple(expected))


def control(kind: str, seq: int, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "seq": seq} | fields).encode()


def start(seq: int, **fields: Any) -> bytes:
    whole = {"sample_rate": RATE, "format": "pcm_s16le", "voice": "v"} | fields
    return control("synthesis_start", seq, **whole)


def complete(seq: int) -> bytes:
    fields = {"total_duration_s": 1, "elapsed_s": 1, "audio_bytes": 1, "characters": 6}
    return control("synthesis_complete", seq, **fields)


def transcript(lines: list[tuple[float, str, str, bytes]], name: str = "probe") -> Transcript:
    made = Transcript(name)
    made.add(Entry(0.0, "out", "open", 1, method="GET", target="/"))
    made.add(Entry(0.1, "in", "open", 1, status=101))
    for t, direction, kind, data in lines:
        if kind == "note":
            made.add(Entry(t, "note", "note", 1, text=data.decode()))
        else:
            made.add(Entry(t, direction, kind, 1, data=data))  # type: ignore[arg-type]
    return made


ASKED = (1.0, "out", "text", b'{"text": "Hello."}')
SPOKEN = [
    ASKED,
    (1.1, "in", "text", start(1)),
    (1.3, "in", "binary", silence(0.2) + tone(0.1)),
    (2.0, "in", "binary", tone(0.2)),
    (2.1, "in", "text", complete(1)),
]


def test_an_utterance_is_measured() -> None:
    (found,) = samples(transcript(SPOKEN))
    assert (found.characters, found.transport, found.alone) == (6, "websocket", True)
    assert found.first_byte == pytest.approx(0.3)
    assert found.first_sound == pytest.approx(0.5, abs=0.011)
    assert found.audio == pytest.approx(0.5)
    assert found.gaps == pytest.approx((0.4,))


@pytest.mark.parametrize(
    "lines",
    [
        # It failed, was cancelled, or never began.
        [ASKED, (1.1, "in", "text", start(1)), (1.2, "in", "binary", tone(0.1))],
        [ASKED, (1.1, "in", "text", complete(1))],
        [(0.9, "note", "note", b"reading: paused"), *SPOKEN],
    ],
    ids=["unended", "without audio", "held up by the suite"],
)
def test_what_tells_nothing_is_left_out(lines: list[tuple[float, str, str, bytes]]) -> None:
    assert list(samples(transcript(lines))) == []


def test_who_waited_for_others_is_left_out() -> None:
    second = [
        (1.05, "out", "text", b'{"text": "Again."}'),
        (2.2, "in", "text", start(2)),
        (2.3, "in", "binary", tone(0.1)),
        (2.4, "in", "text", complete(2)),
    ]
    lines = sorted([*SPOKEN, *second], key=lambda line: line[0])
    # The first had not even started when the second was sent, but it was before it all the same.
    assert [sample.seq for sample in samples(transcript(lines))] == [1]


def test_other_formats_have_a_first_byte_alone() -> None:
    lines = [
        ASKED,
        (1.1, "in", "text", start(1, format="mp3")),
        (1.3, "in", "binary", b"\xff\xfb" + bytes(100)),
        (2.1, "in", "text", complete(1)),
    ]
    (found,) = samples(transcript(lines))
    assert found.first_sound is None
    assert found.audio is None
    assert "gaps_s" not in found.to_json()


def test_http_has_a_first_byte() -> None:
    made = Transcript("http-whole")
    body = b'{"text": "Hello."}'
    target = "/invocations"
    made.add(Entry(0.0, "out", "http-request", 1, method="POST", target=target, data=body))
    made.add(Entry(0.1, "in", "http-response", 1, status=200))
    made.add(Entry(0.25, "in", "http-body", 1, data=b"\x01\x02", fin=False))
    made.add(Entry(0.3, "in", "http-body", 1))
    (found,) = samples(made)
    assert (found.transport, found.first_byte) == ("http", 0.25)


def test_spreads() -> None:
    assert Spread.of([]) is None
    spread = Spread.of([0.5, 0.1, 0.3])
    assert spread is not None
    assert spread.to_json() == {"count": 3, "median": 0.3, "p90": 0.5, "max": 0.5}
    found = measure([transcript(SPOKEN, "b"), transcript(SPOKEN, "a")])
    assert [sample["transcript"] for sample in found["samples"]] == ["a", "b"]
    assert found["first_byte_s"]["count"] == 2
    assert found["gap_s"]["median"] == pytest.approx(0.4)
    assert measure([]) == {"samples": []}
