from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from utterwire_protocol import (
    ERROR_CODES,
    MAX_CHUNK_BYTES,
    EndpointOptions,
    LocalProtocolError,
    Utterance,
    Word,
    encode_cancel_done,
    encode_cancelled,
    encode_error,
    encode_marks,
    encode_session,
    encode_session_closed,
    encode_synthesis_complete,
    encode_synthesis_start,
)
from utterwire_schemas import validator

UTTERANCE = Utterance(
    seq=3,
    request_id="é\U0001f600",
    text="a\U0001f600 b",
    voice="v",
    speed=1.0,
    sample_rate=24_000,
    format="pcm_s16le",
    marks=("word",),
    audio_bytes=10,
)
NAMELESS = Utterance(3, None, "a", "v", 1.0, 24_000, "pcm_s16le")


def read(message: bytes) -> dict[str, Any]:
    validator("control-message").validate(fields := json.loads(message.decode("utf-8")))
    assert isinstance(fields, dict)
    return fields


def test_messages_about_an_utterance() -> None:
    about = {"seq": 3, "request_id": "é\U0001f600"}
    assert read(encode_synthesis_start(UTTERANCE)) == {
        "type": "synthesis_start",
        **about,
        "sample_rate": 24_000,
        "format": "pcm_s16le",
        "voice": "v",
    }
    complete = encode_synthesis_complete(
        UTTERANCE, total_duration_s=1 / 3, elapsed_s=2 / 3, audio_bytes=16_000
    )
    assert read(complete) == {
        "type": "synthesis_complete",
        **about,
        "total_duration_s": 0.333333,
        "elapsed_s": 0.666666,
        "audio_bytes": 16_000,
        "characters": 4,
    }
    assert read(encode_cancelled(UTTERANCE)) == {"type": "cancelled", **about, "audio_bytes": 10}


def test_no_id_stays_no_id() -> None:
    assert "request_id" not in read(encode_synthesis_start(NAMELESS))
    assert read(encode_cancel_done(9, None, 0)) == {"type": "cancel_done", "seq": 9, "count": 0}
    assert read(encode_cancel_done(9, "x", 2))["request_id"] == "x"


def test_errors_by_the_registry() -> None:
    for code, row in ERROR_CODES.items():
        for rejected in (False, True):
            if row.rejection == ("never" if rejected else "always"):
                with pytest.raises(LocalProtocolError, match=code):
                    encode_error(code, "m", seq=1, rejected=rejected)
                continue
            found = read(encode_error(code, "m", seq=1, rejected=rejected))
            assert found["retryable"] is row.retryable
            assert found.get("rejected", False) is rejected
    with pytest.raises(LocalProtocolError, match="no error code 'oops'"):
        encode_error("oops", "m")
    with pytest.raises(LocalProtocolError, match="'missing_text' is not worth another try"):
        encode_error("missing_text", "m", seq=1, rejected=True, retry_after_s=1)
    told = read(encode_error("overloaded", "m", seq=1, retry_after_s=1.23456789))
    assert told["retry_after_s"] == pytest.approx(1.234568)


def test_the_message_of_an_error() -> None:
    assert read(encode_error("internal", "", seq=1))["message"] == ERROR_CODES["internal"].meaning
    assert read(encode_error("internal", "a\ud800", seq=1))["message"] == "a?"
    assert read(encode_error("internal", "x" * 1001, seq=1))["message"] == "x" * 1000
    assert list(json.loads(encode_error("internal", "m"))) == [
        "type",
        "code",
        "message",
        "retryable",
    ]


def test_session(options: Callable[..., EndpointOptions]) -> None:
    made = options(default_voice="w", session_id="s1")
    found = read(encode_session(1, made))
    assert found == {
        "type": "session",
        "seq": 1,
        "protocol_version": 1,
        "session_id": "s1",
        "profiles": ["core", "interrupt", "negotiate"],
        "limits": made.limits.as_fields(),
        "voices": ["w", "v"],
        "formats": ["pcm_s16le"],
        "sample_rates": [24_000],
    }


def test_a_session_lists_the_voices_that_fit(options: Callable[..., EndpointOptions]) -> None:
    voices = tuple(f"voice-{index:06}" for index in range(20_000))
    message = encode_session(1, options(voices=voices, default_voice=voices[-1]))
    assert len(message) <= MAX_CHUNK_BYTES
    listed = read(message)["voices"]
    assert len(listed) == 2500
    assert listed[0] == voices[-1]
    assert tuple(listed[1:]) == voices[: len(listed) - 1]


def test_a_session_fills_a_message_to_the_last_byte(
    options: Callable[..., EndpointOptions],
) -> None:
    voices = tuple(f"voice-{index:06}" for index in range(4000))
    rest = MAX_CHUNK_BYTES - len(encode_session(1, options(voices=voices, session_id="x")))
    full = encode_session(1, options(voices=voices, session_id="x" * (1 + rest)))
    assert len(full) == MAX_CHUNK_BYTES
    assert len(read(full)["voices"]) == 4000
    over = encode_session(1, options(voices=voices, session_id="x" * (2 + rest)))
    assert len(read(over)["voices"]) == 2000


def test_session_closed() -> None:
    assert read(encode_session_closed("idle", 0)) == {
        "type": "session_closed",
        "reason": "idle",
        "last_seq": 0,
    }
    assert read(encode_session_closed("client_close", 4, seq=4, retry_after_s=1.5)) == {
        "type": "session_closed",
        "seq": 4,
        "reason": "client_close",
        "last_seq": 4,
        "retry_after_s": 1.5,
    }


@pytest.mark.parametrize(
    "values",
    [
        (1.0, 0.5, 0, 1),
        (-0.1, 0.5, 0, 1),
        (math.nan, 1.0, 0, 1),
        (0.0, math.nan, 0, 1),
        (0.0, math.inf, 0, 1),
        (0.0, 1.0, -1, 1),
        (0.0, 1.0, 1, 1),
    ],
    ids=str,
)
def test_words_that_cannot_be(values: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="a word"):
        Word("a", *values)


def test_marks() -> None:
    words = [Word("a", 0.0, 0.1, 0, 1), Word("b", 1 / 3, 2 / 3, 3, 4)]
    (message,) = encode_marks(UTTERANCE, words)
    assert read(message)["words"] == [
        {"text": "a", "start_s": 0.0, "end_s": 0.1, "char_start": 0, "char_end": 1},
        {"text": "b", "start_s": 0.333333, "end_s": 0.666667, "char_start": 3, "char_end": 4},
    ]
    assert encode_marks(UTTERANCE, []) == []
    with pytest.raises(LocalProtocolError, match="from 1 to 3 is not 'b'"):
        encode_marks(UTTERANCE, [Word("b", 0.0, 1.0, 1, 3)])
    with pytest.raises(LocalProtocolError, match="'a' takes no time"):
        encode_marks(UTTERANCE, [Word("a", 1.0, 1.0, 0, 1)])


def test_marks_are_spread_over_messages_of_64_kib() -> None:
    words = [Word("a", 1 / 3, 2 / 3, 0, 1)] * 2500
    messages = encode_marks(UTTERANCE, iter(words))
    assert sum(len(read(message)["words"]) for message in messages) == 2500
    assert len(messages) == 3
    assert all(len(message) <= MAX_CHUNK_BYTES for message in messages)
    assert all(read(message)["request_id"] == UTTERANCE.request_id for message in messages)
    # No message could have taken one word more.
    one = len(encode_marks(UTTERANCE, words[:2])[0]) - len(encode_marks(UTTERANCE, words[:1])[0])
    assert all(len(message) + one > MAX_CHUNK_BYTES for message in messages[:-1])


def test_marks_fill_a_message_to_the_last_byte() -> None:
    words = [Word("a", 0.0, 0.1, 0, 1)] * 2000
    nameless = dataclasses.replace(UTTERANCE, request_id="")
    rest = MAX_CHUNK_BYTES - sum(len(each) for each in encode_marks(nameless, words[:900]))
    one = len(encode_marks(nameless, words[:2])[0]) - len(encode_marks(nameless, words[:1])[0])
    words = words[: 900 + rest // one]
    rest %= one
    full = dataclasses.replace(UTTERANCE, request_id="x" * rest)
    assert [len(message) for message in encode_marks(full, words)] == [MAX_CHUNK_BYTES]
    assert len(encode_marks(full, words * 2)) == 2
    assert [len(message) for message in encode_marks(full, words * 2)] == [MAX_CHUNK_BYTES] * 2
    over = dataclasses.replace(UTTERANCE, request_id="x" * (rest + 1))
    assert len(encode_marks(over, words)) == 2
