from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from utterwire_protocol import EndpointOptions, Limits

Options = Callable[..., EndpointOptions]


@pytest.mark.parametrize(
    "changes",
    [
        {"max_text_chars": 4095},
        {"max_text_chars": 5000.0},
        {"max_text_chars": True},
        {"max_message_bytes": 65_535},
        {"max_request_id_chars": 127},
        {"max_request_id_chars": 4097},
        {"max_waiting": 7},
        {"idle_timeout_s": 0},
        {"idle_timeout_s": math.nan},
        {"idle_timeout_s": "300"},
        {"min_speed": 0},
        {"min_speed": 0.51},
        {"min_speed": True},
        {"max_speed": 1.99},
        {"max_speed": math.inf},
    ],
    ids=str,
)
def test_limits_below_their_floor(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        Limits(**changes)


def test_limits_at_their_floor() -> None:
    fields = {
        "max_text_chars": 4096,
        "max_message_bytes": 65_536,
        "max_request_id_chars": 128,
        "max_waiting": 8,
        "idle_timeout_s": 0.001,
        "min_speed": 0.5,
        "max_speed": 2.0,
    }
    assert Limits(**fields).as_fields() == fields  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"voices": ()}, "voices must name at least one"),
        ({"voices": ("v", "v")}, "each once"),
        ({"voices": ("",)}, "must be a string that is not empty"),
        ({"voices": (1,)}, "must be a string"),
        ({"voices": ("\udfff",)}, "lone surrogate"),
        ({"default_voice": "x"}, "default_voice 'x' is not among voices"),
        ({"formats": ()}, "formats must name"),
        ({"formats": ("mp3",)}, "default_format 'pcm_s16le' is not among formats"),
        ({"sample_rates": ()}, "sample rates must name"),
        ({"sample_rates": (24000, 24000)}, "each once"),
        ({"sample_rates": (24000.0,)}, "must be integers"),
        ({"sample_rates": (True, 24000)}, "must be integers"),
        ({"sample_rates": (24000, 0)}, "1 Hz or more"),
        ({"sample_rates": (8000,)}, "default_sample_rate 24000 is not offered"),
        ({"format_sample_rates": {"mulaw": ()}}, "sample rates must name"),
        ({"profiles": frozenset({"incremental"})}, "version 1 has no 'incremental'"),
        ({"shutdown_s": -1}, "shutdown_s must be 0 or more"),
        ({"shutdown_s": math.inf}, "shutdown_s must be a finite number"),
        ({"chunk_bytes": 1}, "chunk_bytes must be 2 to 65536"),
        ({"chunk_bytes": 65_537}, "chunk_bytes must be 2 to 65536"),
        ({"chunk_bytes": True}, "chunk_bytes must be"),
        ({"session_id": ""}, "session_id must be a string"),
    ],
    ids=str,
)
def test_options_that_do_not_fit(options: Options, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        options(**changes)


def test_what_is_left_out_is_filled_in(options: Options) -> None:
    made = options(profiles=frozenset({"timing"}), shutdown_s=0, chunk_bytes=2)
    assert made.default_voice == "v"
    assert made.profiles == {"core", "timing"}
    assert options(default_voice="w").default_voice == "w"
    assert options(chunk_bytes=65_536).chunk_bytes == 65_536


def test_sample_rates_by_format(options: Options) -> None:
    made = options(
        formats=("pcm_s16le", "mulaw", "opus"),
        sample_rates=(16_000, 24_000, 8_000),
        format_sample_rates={"opus": (48_000,)},
    )
    assert made.rates_for("pcm_s16le") == (16_000, 24_000, 8_000)
    assert made.rates_for("opus") == (48_000,)
    assert made.default_rate_for("pcm_s16le") == 24_000
    assert made.default_rate_for("mulaw") == 8_000
    assert made.default_rate_for("opus") == 48_000
    assert options(formats=("pcm_s16le", "alaw")).default_rate_for("alaw") == 24_000
