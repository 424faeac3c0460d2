"""Samples become bytes: clipped, never wrapped, and silent where they are no numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from utterwire_server.encoders.pcm import encode_pcm_s16le


@pytest.mark.parametrize(
    ("sample", "octets"),
    [
        (0.0, b"\x00\x00"),
        (-0.0, b"\x00\x00"),
        (1.0, b"\xff\x7f"),
        (-1.0, b"\x01\x80"),
        (1.5, b"\xff\x7f"),
        (-1.5, b"\x01\x80"),
        (3.4e38, b"\xff\x7f"),
        (float("inf"), b"\xff\x7f"),
        (float("-inf"), b"\x01\x80"),
        (float("nan"), b"\x00\x00"),
        (1 / 32_767, b"\x01\x00"),
        (-1 / 32_767, b"\xff\xff"),
        (0.4 / 32_767, b"\x00\x00"),
        (0.6 / 32_767, b"\x01\x00"),
    ],
)
def test_one_sample(sample: float, octets: bytes) -> None:
    assert encode_pcm_s16le(np.array([sample], dtype=np.float32)) == octets


@given(arrays(np.float32, st.integers(0, 64), elements=st.floats(width=32)))
@settings(derandomize=True, max_examples=200)
def test_any_samples(samples: np.ndarray) -> None:
    decoded = np.frombuffer(encode_pcm_s16le(samples), dtype="<i2")
    assert decoded.size == samples.size
    finite = np.isfinite(samples)
    wanted = np.clip(samples[finite].astype(np.float64), -1.0, 1.0) * 32_767
    assert np.abs(decoded[finite] - wanted).max(initial=0.0) <= 0.51
    assert not decoded[np.isnan(samples)].any()


def test_every_sixteen_bit_value_but_the_lowest_survives() -> None:
    values = np.arange(-32_767, 32_768, dtype="<i2")
    assert encode_pcm_s16le((values / 32_767).astype(np.float32)) == values.tobytes()
