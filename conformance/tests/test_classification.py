"""Control or audio, by the suite's own lights."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.classification import audio_breaches, classify, control_breaches
from utterwire_schemas import octets, vectors

VECTORS = vectors("classification")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vectors(vector: dict[str, Any]) -> None:
    data = octets(vector["chunk"])
    reading = classify(data, vector["frame"])
    assert reading.verdict == vector["receiver"], reading.why
    broken = {breach.requirement for breach in audio_breaches(data)}
    assert (not broken - {"audio.no-leading-brace"}) is vector["sendable_as_audio"]
    assert (not control_breaches(data)) is vector["sendable_as_control"]


@pytest.mark.parametrize(
    ("data", "sample_bytes", "requirement"),
    [
        (b"", 2, "audio.chunk-size"),
        (bytes(65_538), 2, "audio.chunk-size"),
        (b"\1\2\3", 2, "audio.whole-samples"),
        (b"\1\2\3", 4, "audio.whole-samples"),
        (b"{\0", 2, "audio.no-leading-brace"),
        (b"{\0\0\0} \n\t", 2, "audio.never-json"),
    ],
)
def test_audio_that_may_not_be_sent(data: bytes, sample_bytes: int, requirement: str) -> None:
    found = {breach.requirement for breach in audio_breaches(data, sample_bytes=sample_bytes)}
    assert requirement in found


@pytest.mark.parametrize("data", [b"\0\0", bytes(65_536), b"}\0", b"\0{"])
def test_audio_that_may_be_sent(data: bytes) -> None:
    assert audio_breaches(data, sample_bytes=2) == ()


@pytest.mark.parametrize(
    ("data", "requirement"),
    [
        (b"", "control.strict-json"),
        (b"[1]", "control.strict-json"),
        (b"{}", "control.strict-json"),
        (b'{"type":1}', "control.strict-json"),
        (b'{"type":"a","type":"a"}', "control.strict-json"),
        (b'{"type":"\xff"}', "control.strict-json"),
        (b' {"type":"a"}', "control.strict-json"),
        (b'{"type":"a","x":"%s"}' % (b"x" * 65_536), "control.size"),
        (b'{"type":"a","x":%s%s}' % (b"[" * 16, b"]" * 16), "control.size"),
    ],
)
def test_control_that_may_not_be_sent(data: bytes, requirement: str) -> None:
    assert requirement in {breach.requirement for breach in control_breaches(data)}


def test_a_reading_tells_the_type() -> None:
    assert classify(b'{"type":"x"}').type == "x"
    assert classify(b"\0").type is None
    assert classify(b"[]", "text").type is None


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.binary(max_size=64).map(lambda data: b"{" + data))
def test_what_may_be_sent_as_audio_is_never_control(data: bytes) -> None:
    if not {breach.requirement for breach in audio_breaches(data)} - {"audio.no-leading-brace"}:
        assert classify(data).verdict == "audio"
