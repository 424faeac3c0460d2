"""The client's side: what it may send, and what it makes of endpoints good and bad."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from utterwire_protocol import (
    TRANSITIONS,
    UTTERANCE_TRANSITIONS,
    AudioChunk,
    CancelDone,
    Cancelled,
    ErrorReceived,
    FrameKind,
    LocalProtocolError,
    MarksReceived,
    ProtocolViolation,
    Role,
    SessionClosed,
    SessionEnded,
    SessionInput,
    SessionReceived,
    SessionState,
    SynthesisComplete,
    SynthesisStart,
    UnknownControl,
    UtteranceEnded,
    UtteranceInput,
    UtteranceState,
    Verdict,
    Word,
)


def start(seq: int | None = 1, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "synthesis_start",
        **({} if seq is None else {"seq": seq}),
        "sample_rate": 24000,
        "format": "pcm_s16le",
        "voice": "v",
        **fields,
    }


def complete(seq: int | None = 1, audio_bytes: int = 0, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "synthesis_complete",
        **({} if seq is None else {"seq": seq}),
        "total_duration_s": 0.5,
        "elapsed_s": 0.25,
        "audio_bytes": audio_bytes,
        "characters": 6,
        **fields,
    }


def error(seq: int | None, code: str = "internal", /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "error",
        **({} if seq is None else {"seq": seq}),
        "code": code,
        "message": "m",
        "retryable": True,
        **fields,
    }


def kinds(events: list[Any]) -> list[Any]:
    return [
        each.requirement if isinstance(each, ProtocolViolation) else type(each) for each in events
    ]


def json_text(fields: dict[str, Any]) -> str:
    return json.dumps(fields)


@pytest.fixture
def speaking(client: Any) -> Any:
    client.core.synthesize("Hello.", 0.0, request_id="x")
    client.sent()
    return client


# Sending


def test_what_is_sent(client: Any) -> None:
    core = client.core
    assert core.hello(0.0) == 1
    assert core.synthesize("Hello.", 0.0) == 2
    assert (
        core.synthesize(
            "Hé.",
            0.0,
            voice="w",
            speed=1.5,
            sample_rate=8000,
            format="mulaw",
            request_id="x",
            marks=["word"],
        )
        == 3
    )
    assert core.cancel(0.0) == 4
    assert core.cancel(0.0, "x") == 5
    assert core.keepalive(0.0) == 6
    assert core.close(0.0) == 7
    assert core.pending() == 7
    assert core.pending_bytes() > 100
    assert client.sent() == [
        {"type": "hello", "protocol_versions": [1]},
        {"type": "synthesize", "text": "Hello."},
        {
            "type": "synthesize",
            "text": "Hé.",
            "voice": "w",
            "speed": 1.5,
            "sample_rate": 8000,
            "format": "mulaw",
            "request_id": "x",
            "marks": ["word"],
        },
        {"type": "cancel"},
        {"type": "cancel", "request_id": "x"},
        {"type": "keepalive"},
        {"type": "close"},
    ]
    assert core.pending() == core.pending_bytes() == 0
    assert core.next_deadline() is None
    assert core.tick(9.0) == ()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": ""}, "nothing but white space"),
        ({"text": "\u2028"}, "nothing but white space"),
        ({"text": "a\ud800"}, "lone surrogate"),
        ({"voice": ""}, "voice must not be empty"),
        ({"voice": "\ud800"}, "voice must not"),
        ({"format": ""}, "format must not be empty"),
        ({"speed": 0}, "speed must be a number"),
        ({"speed": -1.0}, "speed must be a number"),
        ({"speed": float("nan")}, "speed must be a number"),
        ({"speed": float("inf")}, "speed must be a number"),
        ({"speed": True}, "speed must be a number"),
        ({"sample_rate": 0}, "sample_rate must be an integer"),
        ({"sample_rate": 8000.5}, "sample_rate must be an integer"),
        ({"sample_rate": True}, "sample_rate must be an integer"),
        ({"request_id": ""}, "1 to 128 code points"),
        ({"request_id": "x" * 129}, "1 to 128 code points"),
        ({"request_id": "\udfff"}, "lone surrogate"),
        ({"marks": ["line"]}, 'only be "word"'),
    ],
    ids=str,
)
def test_what_no_endpoint_takes_is_not_sent(client: Any, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(LocalProtocolError, match=told):
        client.core.synthesize(**{"text": "Hello.", "now": 0.0, **fields})
    assert client.sent() == []
    assert client.core.state is SessionState.FRESH
    assert client.core.synthesize("Hello.", 0.0, request_id="x" * 128) == 1


@pytest.mark.parametrize("versions", [(), ("1",), (True,), (1, 1.0)])
def test_versions_that_are_none(client: Any, versions: tuple[Any, ...]) -> None:
    with pytest.raises(LocalProtocolError, match="versions must be"):
        client.core.hello(0.0, versions)


def test_an_id_is_not_used_twice_while_unended(speaking: Any) -> None:
    with pytest.raises(LocalProtocolError, match="request_id 'x' is in use"):
        speaking.core.synthesize("Again.", 0.0, request_id="x")
    speaking.read(json_text(start()))
    with pytest.raises(LocalProtocolError, match="request_id 'x' is in use"):
        speaking.core.synthesize("Again.", 0.0, request_id="x")
    speaking.read(json_text(complete()))
    assert speaking.core.synthesize("Again.", 0.0, request_id="x") == 2


def test_an_invalid_id_is_not_cancelled(client: Any) -> None:
    with pytest.raises(LocalProtocolError, match="request_id must have"):
        client.core.cancel(0.0, "")


SESSION = {
    "type": "session",
    "seq": 1,
    "protocol_version": 1,
    "session_id": "s",
    "profiles": ["core", "negotiate"],
    "limits": {
        "max_text_chars": 5000,
        "max_message_bytes": 70000,
        "max_request_id_chars": 200,
        "max_waiting": 8,
        "idle_timeout_s": 300,
        "min_speed": 0.25,
        "max_speed": 3,
        "other": 1,
    },
    "voices": ["v"],
    "formats": ["pcm_s16le"],
    "sample_rates": [24000, 8000.0, "x", 0, 1],
}


def test_session(client: Any) -> None:
    client.core.hello(0.0)
    (event,) = client.read(json_text(SESSION))
    limits = {key: value for key, value in SESSION["limits"].items() if key != "other"}  # type: ignore[attr-defined]
    assert event == SessionReceived(
        1, "s", frozenset({"core", "negotiate"}), limits, ("v",), ("pcm_s16le",), (24000, 8000, 1)
    )


@pytest.mark.parametrize(
    ("text", "fields", "told"),
    [
        ("x" * 5001, {}, "the endpoint takes 5000"),
        ("\0" * 5000, {}, None),
        ("x" * 5000, {"request_id": "\0" * 200}, None),
        ("x" * 5000, {"voice": "w" * 70000}, "the endpoint takes 70000"),
        ("x", {"speed": 0.24}, "from 0.25 to 3"),
        ("x", {"speed": 3.1}, "from 0.25 to 3"),
        ("x", {"speed": 0.25}, None),
        ("x", {"speed": 3}, None),
        ("x", {"request_id": "x" * 201}, "1 to 200 code points"),
    ],
    ids=range(9),
)
def test_a_client_keeps_to_the_limits_it_was_told(
    client: Any, text: str, fields: dict[str, Any], told: str | None
) -> None:
    client.core.hello(0.0)
    client.read(json_text(SESSION))
    client.sent()
    if told is None:
        assert client.core.synthesize(text, 0.0, **fields) == 2
    else:
        with pytest.raises(LocalProtocolError, match=told):
            client.core.synthesize(text, 0.0, **fields)
        assert client.sent() == []
        assert client.core.keepalive(0.0) == 2


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        (
            {"session_id": 5, "profiles": "core", "limits": [], "sample_rates": None},
            SessionReceived(1, None, frozenset(), {}, ("v",), ("pcm_s16le",), ()),
        ),
        (
            {"limits": {"max_speed": "fast", "min_speed": True, "max_waiting": -1}},
            SessionReceived(
                1,
                "s",
                frozenset({"core", "negotiate"}),
                {},
                ("v",),
                ("pcm_s16le",),
                (24000, 8000, 1),
            ),
        ),
    ],
    ids=["lists", "limits"],
)
def test_a_session_with_faults(
    client: Any, changes: dict[str, Any], event: SessionReceived
) -> None:
    client.core.hello(0.0)
    assert client.read(json_text({**SESSION, **changes})) == [event]


def test_a_session_after_its_hello_was_refused(client: Any) -> None:
    client.core.hello(0.0)
    client.read(error(1, "unsupported_version", rejected=True))
    assert kinds(client.read(SESSION)) == ["hello.session"]


def test_a_session_nobody_asked_for(client: Any) -> None:
    assert kinds(client.read(json_text(SESSION))) == ["hello.session"]
    client.core.hello(0.0)
    assert kinds(client.read(json_text({**SESSION, "protocol_version": "1"}))) == ["hello.session"]
    assert kinds(client.read(json_text(SESSION))) == [SessionReceived]
    assert kinds(client.read(json_text(SESSION))) == ["hello.session"]


# Reading


def test_an_utterance(speaking: Any) -> None:
    assert speaking.read(
        json_text(start(request_id="x")), b"abcd", b"ef", json_text(complete(1, 6))
    ) == [
        SynthesisStart(1, "x", 24000, "pcm_s16le", "v"),
        AudioChunk(1, b"abcd"),
        AudioChunk(1, b"ef"),
        SynthesisComplete(1, "x", 0.5, 0.25, 6, 6, 6),
    ]
    assert speaking.core.utterance(1) is None


def test_several_in_flight(client: Any) -> None:
    for name in ("a", "b", "c"):
        client.core.synthesize("Hello.", 0.0, request_id=name)
    events = client.read(
        json_text(error(3, "queue_full", rejected=True, request_id="c")),
        json_text(start(1)),
        b"ab",
        json_text(complete(1, 2)),
        json_text(start(2)),
        b"cd",
        json_text(error(2)),
    )
    assert kinds(events) == [
        ErrorReceived,
        SynthesisStart,
        AudioChunk,
        SynthesisComplete,
        SynthesisStart,
        AudioChunk,
        ErrorReceived,
    ]
    assert [each.seq for each in events] == [3, 1, 1, 1, 2, 2, 2]
    assert events[0] == ErrorReceived(3, "c", "queue_full", "m", True, True)


def test_an_endpoint_of_the_field(client: Any) -> None:
    """No ``synthesis_start``, no ``seq``."""
    client.core.synthesize("One.", 0.0, request_id="x")
    client.core.synthesize("Two.", 0.0, voice="w", sample_rate=8000, format="mulaw")
    events = client.read(b"ab", b"ef", json_text({"type": "synthesis_complete"}), b"cd")
    assert events == [
        SynthesisStart(1, "x", 24000, "pcm_s16le", None, implied=True),
        AudioChunk(1, b"ab"),
        AudioChunk(1, b"ef"),
        SynthesisComplete(1, "x", None, None, None, None, 4),
        SynthesisStart(2, None, 8000, "mulaw", "w", implied=True),
        AudioChunk(2, b"cd"),
    ]
    assert client.read(json_text({"type": "error", "message": "no"})) == [
        ErrorReceived(2, None, "internal", "no", False, False)
    ]
    assert client.core.transport_lost(0.0) == (SessionEnded("transport_lost"),)


def test_g711_without_a_start_is_at_8000(client: Any) -> None:
    client.core.synthesize("One.", 0.0, format="alaw")
    (implied, _) = client.read(b"ab")
    assert implied.sample_rate == 8000


@pytest.mark.parametrize("seq", [1, None])
def test_completion_without_start_or_audio(speaking: Any, seq: int | None) -> None:
    assert speaking.read(complete(seq, total_duration_s=0, elapsed_s=0, characters=0)) == [
        SynthesisStart(1, "x", 24000, "pcm_s16le", None, implied=True),
        SynthesisComplete(1, "x", 0.0, 0.0, 0, 0, 0),
    ]


def test_cancelled_without_a_seq(client: Any) -> None:
    for _ in range(3):
        client.core.synthesize("Hello.", 0.0)
    client.core.cancel(0.0)
    client.read(start(2))
    message = {"type": "cancelled", "audio_bytes": 0}
    # What runs, and then the oldest that waits.
    assert [client.read(message)[-1].seq for _ in range(3)] == [2, 1, 3]


def test_a_cancel_that_found_nothing(client: Any) -> None:
    client.core.cancel(0.0)
    assert client.read({"type": "cancel_done", "seq": 1, "count": 0}) == [CancelDone(1, None, 0)]


def test_an_error_that_belongs_nowhere_is_told_with_its_id(client: Any) -> None:
    events = client.read(error(7, request_id="y"))
    assert events[-1] == ErrorReceived(7, "y", "internal", "m", True, False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (start(None), complete(None)),
        (start(None, request_id="a"), complete(None, request_id="a")),
        (start(None, request_id="b"), complete(None, request_id="b")),
        (start(None, request_id="b"), complete(None)),
        (start(None, request_id="zz"), complete(None, request_id=7)),
        (start(None, seq=None), complete(None, seq=None)),
    ],
    ids=range(6),
)
def test_without_a_seq_the_id_tells_and_else_the_order(
    client: Any, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for name in ("a", "b"):
        client.core.synthesize("Hello.", 0.0, request_id=name)
    expected = 2 if first.get("request_id") == "b" else 1
    events = client.read(json_text(first), json_text(second))
    told = [each for each in events if not isinstance(each, ProtocolViolation)]
    assert [(type(each), each.seq) for each in told] == [
        (SynthesisStart, expected),
        (SynthesisComplete, expected),
    ]


@pytest.mark.parametrize(
    ("message", "seq"),
    [
        (error(None), 1),
        (error(None, rejected=True), 2),
        (error(None, request_id="b"), 2),
        (error(None, request_id="zz", rejected=True), 2),
    ],
    ids=range(4),
)
def test_an_error_without_a_seq(client: Any, message: dict[str, Any], seq: int) -> None:
    for name in ("a", "b"):
        client.core.synthesize("Hello.", 0.0, request_id=name)
    client.read(json_text(start(1)))
    (event,) = client.read(json_text(message))
    assert event.seq == seq


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({}, ErrorReceived(1, "x", "internal", "The endpoint gave no reason.", False, False)),
        (
            {"code": "queue_full", "rejected": True},
            ErrorReceived(1, "x", "queue_full", "The endpoint gave no reason.", False, True),
        ),
        (
            {"code": "new_code", "message": "m", "retryable": True, "rejected": 1},
            ErrorReceived(1, "x", "new_code", "m", True, False),
        ),
        (
            {"code": "new_code", "message": 5, "retryable": "yes"},
            ErrorReceived(1, "x", "new_code", "The endpoint gave no reason.", False, False),
        ),
        (
            {"code": "empty_text", "message": "m", "retryable": True},
            ErrorReceived(1, "x", "empty_text", "m", True, False),
        ),
        (
            {"code": None, "message": "m"},
            ErrorReceived(1, "x", "internal", "m", False, False),
        ),
        (
            {"code": "overloaded", "message": "m", "retryable": True, "retry_after_s": 2.5},
            ErrorReceived(1, "x", "overloaded", "m", True, False, 2.5),
        ),
        (
            {"code": "overloaded", "message": "m", "retryable": True, "retry_after_s": -1},
            ErrorReceived(1, "x", "overloaded", "m", True, False),
        ),
    ],
    ids=range(8),
)
def test_what_an_error_says(speaking: Any, fields: dict[str, Any], event: ErrorReceived) -> None:
    assert speaking.read(json_text({"type": "error", "seq": 1, **fields})) == [event]


def test_errors_to_other_messages(client: Any) -> None:
    client.core.hello(0.0)
    client.core.cancel(0.0, "x")
    client.core.keepalive(0.0)
    assert client.read(
        json_text(error(1, "unknown_type", rejected=True)),
        json_text(error(2, "unknown_type", rejected=True)),
    ) == [
        ErrorReceived(1, None, "unknown_type", "m", True, True),
        ErrorReceived(2, "x", "unknown_type", "m", True, True),
    ]
    # Each once; and an error without a message to belong to is still told.
    for seq in (1, 2, 3, 99, None, 0, "1"):
        events = client.read(json_text(error(None, seq=seq)))
        assert kinds(events)[-2:] == ["order.nothing-after-terminal", ErrorReceived]


def test_cancelling(client: Any) -> None:
    client.core.synthesize("One.", 0.0, request_id="a")
    client.core.synthesize("Two.", 0.0)
    client.core.cancel(0.0)
    client.core.cancel(0.0, "a")
    assert client.read(
        json_text(start(1)),
        b"ab",
        json_text({"type": "cancelled", "seq": 1, "request_id": "a", "audio_bytes": 2}),
        json_text({"type": "cancelled", "seq": 2, "audio_bytes": 0}),
        json_text({"type": "cancel_done", "seq": 3, "count": 2}),
        json_text({"type": "cancel_done", "count": "none"}),
    )[2:] == [
        Cancelled(1, "a", 2, 2),
        Cancelled(2, None, 0, 0),
        CancelDone(3, None, 2),
        CancelDone(4, "a", None),
    ]
    for message in ({"seq": 3}, {"seq": 9}, {}, {"seq": "3"}):
        events = client.read(json_text({"type": "cancel_done", "count": 0, **message}))
        assert kinds(events)[-1] == "cancel.done"
    assert kinds(client.read(b"cd")) == ["order.nothing-after-terminal"]


@pytest.mark.parametrize(
    ("cancels", "stopped", "told"),
    [
        ([], 1, True),
        ([None], 1, False),
        ([None], 2, False),
        (["a"], 1, False),
        (["a"], 2, True),
        (["a", "b"], 2, False),
        (["x"], 1, True),
    ],
    ids=str,
)
def test_who_was_cancelled_by_nobody_is_told(
    client: Any, cancels: list[str | None], stopped: int, told: bool
) -> None:
    for name in ("a", "b"):
        client.core.synthesize("Hello.", 0.0, request_id=name)
    for asked in cancels:
        client.core.cancel(0.0, asked)
    client.core.synthesize("Later.", 0.0)
    for seq, expected in ((stopped, told), (3 + len(cancels), True)):
        events = client.read({"type": "cancelled", "seq": seq, "audio_bytes": 0})
        message = f"Utterance {seq} was cancelled by nobody here."
        violations = [ProtocolViolation("order.one-terminal", message)] if expected else []
        assert events[:-1] == violations
        assert isinstance(events[-1], Cancelled)


def test_marks(speaking: Any) -> None:
    good = {"text": "a", "start_s": 0, "end_s": 0.5, "char_start": 0, "char_end": 1}
    # Before the start, and without a seq; a word that takes no time is one.
    short = {**good, "end_s": 0}
    assert speaking.read({"type": "marks", "words": [short]}) == [
        MarksReceived(1, "x", (Word("a", 0.0, 0.0, 0, 1),))
    ]
    bad = [
        None,
        {},
        {**good, "text": ""},
        {**good, "start_s": -1},
        {**good, "end_s": "1"},
        {**good, "start_s": 0.6},
        {**good, "char_start": 1},
        {**good, "char_end": 0.5},
    ]
    events = speaking.read(
        json_text(start()), json_text({"type": "marks", "seq": 1, "words": [good, *bad]})
    )
    assert kinds(events) == [SynthesisStart, *["control.schema"] * len(bad), MarksReceived]
    assert events[-1] == MarksReceived(1, "x", (Word("a", 0.0, 0.5, 0, 1),))
    assert kinds(speaking.read(json_text({"type": "marks", "words": 5}))) == [
        "control.schema",
        MarksReceived,
    ]


def test_unknown_control_is_told_and_skipped(speaking: Any) -> None:
    assert speaking.read(json_text({"type": "x_new", "a": 1})) == [
        UnknownControl("x_new", {"type": "x_new", "a": 1})
    ]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([""], ["control.strict-json"]),
        (["not json"], ["control.strict-json"]),
        (["{}"], ["control.schema"]),
        (["[" * 50], ["control.strict-json"]),
        (["{\udcff}"], ["control.strict-json"]),
        ([b""], ["audio.chunk-size"]),
        ([b"\0" * 65_537], ["audio.chunk-size", SynthesisStart, AudioChunk]),
        ([json_text(start()).encode()], ["control.text-frame", SynthesisStart]),
        ([json_text(start()), json_text(start())], [SynthesisStart, "order.complete-had-start"]),
        ([json_text(start(9))], ["order.nothing-after-terminal"]),
        ([json_text(start(None, seq="1"))], ["control.schema", SynthesisStart]),
        ([json_text(start(None, seq=True))], ["control.schema", SynthesisStart]),
        ([json_text(start(None, seq=1.0))], [SynthesisStart]),
        ([json_text(start(None, seq=0))], ["control.schema", SynthesisStart]),
        ([json_text(start(format=5))], ["start.fields", SynthesisStart]),
        ([json_text(start(sample_rate=0))], ["start.fields", SynthesisStart]),
        ([json_text(start(voice=None))], [SynthesisStart]),
        (
            [json_text(start()), b"ab", json_text(complete(1, 3))],
            [SynthesisStart, AudioChunk, "complete.audio-bytes", SynthesisComplete],
        ),
        (
            [json_text(start()), json_text({"type": "cancelled", "seq": 1, "audio_bytes": 2})],
            [SynthesisStart, "order.one-terminal", "cancel.audio-bytes", Cancelled],
        ),
        (
            [json_text(complete()), json_text(complete())],
            [SynthesisStart, SynthesisComplete, "order.nothing-after-terminal"],
        ),
        ([json_text(complete()), b"ab"][1:], [SynthesisStart, AudioChunk]),
        ([json_text({"type": "cancelled", "seq": 7})], ["order.nothing-after-terminal"]),
        ([json_text({"type": "marks", "seq": 7})], ["order.nothing-after-terminal"]),
        (
            [json_text(start()), json_text(error(1, rejected=True))],
            [SynthesisStart, "reject.no-harm", ErrorReceived],
        ),
    ],
    ids=range(24),
)
def test_endpoints_with_faults(speaking: Any, chunks: list[Any], expected: list[Any]) -> None:
    assert kinds(speaking.read(*chunks)) == expected


@pytest.mark.parametrize(
    ("asked", "told", "format", "rate"),
    [
        ({}, {}, "pcm_s16le", 24_000),
        ({"format": "mulaw"}, {}, "mulaw", 8_000),
        ({"format": "alaw", "sample_rate": 16_000}, {}, "alaw", 16_000),
        ({"sample_rate": 16_000}, {"format": "mp3"}, "mp3", 16_000),
        ({"format": "mp3"}, {"format": "alaw"}, "alaw", 8_000),
        ({"format": "mulaw", "sample_rate": 8_000}, {"sample_rate": 1}, "mulaw", 1),
    ],
    ids=str,
)
def test_what_a_start_leaves_out_is_what_was_asked_for(
    client: Any, asked: dict[str, Any], told: dict[str, Any], format: str, rate: int
) -> None:
    client.core.synthesize("Hello.", 0.0, voice="w", **asked)
    violation, event = client.read({"type": "synthesis_start", "seq": 1, **told})
    assert violation.requirement == "start.fields"
    assert event == SynthesisStart(1, None, rate, format, "w")
    # What it tells holds, whatever was asked for.
    client.core.synthesize("Hello.", 0.0, **asked)
    event = client.read(start(2, format="opus", sample_rate=48_000))[-1]
    assert (event.format, event.sample_rate) == ("opus", 48_000)


def test_nothing_is_kept_of_what_has_ended(client: Any) -> None:
    for seq in range(1, 200, 2):
        client.core.synthesize("Hello.", 0.0)
        client.core.cancel(0.0)
        client.read(
            {"type": "cancelled", "seq": seq, "audio_bytes": 0},
            {"type": "cancel_done", "seq": seq + 1, "count": 1},
        )
    half = client.core._half
    assert not half._unended
    assert not half._cancellable
    assert not half._cancels


def test_a_start_before_its_turn(client: Any) -> None:
    for _ in range(3):
        client.core.synthesize("Hello.", 0.0)
    events = client.read(json_text(start(2)), b"ab")
    assert kinds(events) == ["order.fifo", SynthesisStart, AudioChunk]
    assert events[-1].seq == 2
    # The older one is not lost by it.
    events = client.read(json_text(start(1)), b"cd", json_text(complete(1, 2)))
    assert [each.seq for each in events] == [1, 1, 1]
    # Audio belongs to what was started last and has not ended; here to nobody but the third.
    assert [each.seq for each in client.read(b"ef")] == [3, 3]


def test_the_end_of_an_older_utterance_leaves_the_one_that_speaks(client: Any) -> None:
    for _ in range(2):
        client.core.synthesize("Hello.", 0.0)
    client.read(json_text(start(1)), json_text(start(2)))
    assert [each.seq for each in client.read(json_text(complete(1)), b"ab")] == [1, 2]


def test_frame_kinds(speaking: Any) -> None:
    core = speaking.core
    data = json_text(start()).encode()
    assert kinds(list(core.receive(data, 0.0, kind=FrameKind.UNKNOWN))) == [SynthesisStart]
    assert core.receive(b"{}", 0.0, kind=FrameKind.UNKNOWN) == (AudioChunk(1, b"{}"),)
    text = json_text(complete(1, 2))
    (event,) = core.receive(text.encode(), 0.0, kind=FrameKind.TEXT)
    assert isinstance(event, SynthesisComplete)


# Ending


def test_session_closed(client: Any) -> None:
    for name in "abc":
        client.core.synthesize("Hello.", 0.0, request_id=name)
    client.read(json_text(start(1)), b"abcd")
    message = {"type": "session_closed", "reason": "going_away", "last_seq": 2}
    assert client.read(json_text({**message, "retry_after_s": 5})) == [
        UtteranceEnded(1, UtteranceState.LOST, "a", 4),
        UtteranceEnded(2, UtteranceState.LOST, "b", 0),
        UtteranceEnded(3, UtteranceState.LOST, "c", 0, unprocessed=True),
        SessionClosed("going_away", 2, 5.0),
    ]
    assert client.core.state is SessionState.CLOSED
    assert client.core.end_reason == "going_away"
    assert client.core.pending() == client.core.pending_bytes() == 0
    assert kinds(client.read(b"ab", json_text(message))) == ["close.last-word"] * 2
    assert client.core.transport_lost(0.0) == ()
    with pytest.raises(LocalProtocolError, match="the session is closed: no close now"):
        client.core.close(0.0)


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({}, SessionClosed("unknown", None, None)),
        (
            {"reason": "", "last_seq": -1, "retry_after_s": -1},
            SessionClosed("unknown", None, None),
        ),
        (
            {"reason": "x_new", "last_seq": 0, "retry_after_s": True},
            SessionClosed("x_new", 0, None),
        ),
    ],
    ids=range(3),
)
def test_session_closed_with_faults(
    speaking: Any, fields: dict[str, Any], event: SessionClosed
) -> None:
    events = speaking.read(json_text({"type": "session_closed", **fields}))
    assert events[-1] == event
    assert events[0].unprocessed is (event.last_seq == 0)


def test_losing_the_transport(speaking: Any) -> None:
    speaking.core.keepalive(0.0)
    speaking.read(b"ab")
    assert speaking.core.transport_lost(0.0) == (
        UtteranceEnded(1, UtteranceState.LOST, "x", 2),
        SessionEnded("transport_lost"),
    )
    assert speaking.core.end_reason == "transport_lost"
    assert speaking.core.next_chunk() is None
    assert speaking.core.pending_bytes() == 0


# Every cell


@pytest.mark.parametrize(
    ("state", "event"),
    list(itertools.product(TRANSITIONS[Role.CLIENT], SessionInput)),
    ids=lambda value: value.name,
)
def test_every_cell_of_a_session(client: Any, state: SessionState, event: SessionInput) -> None:
    core = client.core
    move = TRANSITIONS[Role.CLIENT][state].get(event)
    if state is SessionState.OPEN:
        core.keepalive(0.0)
    elif state is SessionState.CLOSING:
        core.close(0.0)
    elif state is SessionState.CLOSED:
        core.transport_lost(0.0)
    assert core.state is state
    calls = {
        SessionInput.HELLO: lambda: core.hello(0.0),
        SessionInput.SYNTHESIZE: lambda: core.synthesize("Hello.", 0.0),
        SessionInput.CANCEL: lambda: core.cancel(0.0),
        SessionInput.KEEPALIVE: lambda: core.keepalive(0.0),
        SessionInput.CLOSE: lambda: core.close(0.0),
    }
    before = core.pending()
    if event in calls:
        if move is None:
            with pytest.raises(LocalProtocolError, match=f"the session is {state.value}"):
                calls[event]()
            assert core.pending() == before
            assert core.state is state
        else:
            calls[event]()
            assert core.pending() == before + 1
            assert core.state is move.to
        return
    if event is SessionInput.CHUNK:
        events = client.read(json_text({"type": "x_new"}))
    elif event is SessionInput.SESSION_CLOSED:
        events = client.read(json_text({"type": "session_closed", "reason": "idle"}))
    elif event is SessionInput.TRANSPORT_LOST:
        events = core.transport_lost(0.0)
        assert bool(events) is (move is not None and move.verdict is Verdict.ACT)
    else:
        # What meets endpoints alone.
        assert move is None
        return
    assert move is not None
    assert core.state is move.to
    violated = ProtocolViolation in map(type, events)
    assert violated is (move.verdict is Verdict.IGNORE and event is not SessionInput.TRANSPORT_LOST)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (state, event)
        for state in UTTERANCE_TRANSITIONS[Role.CLIENT]
        for event in UtteranceInput
        if event not in (UtteranceInput.COMPLETE_SENT, UtteranceInput.ERROR_SENT)
    ],
    ids=lambda value: value.name,
)
def test_every_cell_of_an_utterance(
    speaking: Any, state: UtteranceState, event: UtteranceInput
) -> None:
    core = speaking.core
    move = UTTERANCE_TRANSITIONS[Role.CLIENT][state].get(event)
    reach: dict[UtteranceState, list[Any]] = {
        UtteranceState.WAITING: [],
        UtteranceState.RUNNING: [start()],
        UtteranceState.COMPLETED: [start(), complete()],
        UtteranceState.FAILED: [error(1)],
        UtteranceState.CANCELLED: [{"type": "cancelled", "seq": 1}],
        UtteranceState.REJECTED: [error(1, rejected=True)],
        UtteranceState.LOST: [{"type": "session_closed"}],
    }
    core.cancel(0.0)
    speaking.read(*map(json_text, reach[state]))
    chunk: dict[UtteranceInput, Any] = {
        UtteranceInput.START: start(),
        UtteranceInput.MARKS: {"type": "marks", "seq": 1, "words": []},
        UtteranceInput.COMPLETE: complete(),
        UtteranceInput.ERROR: error(1),
        UtteranceInput.REJECTION: error(1, rejected=True),
        UtteranceInput.CANCELLED: {"type": "cancelled", "seq": 1, "audio_bytes": 0},
        UtteranceInput.SESSION_ENDS: {"type": "session_closed"},
    }
    if event is UtteranceInput.AUDIO:
        events = speaking.read(b"ab")
    elif event is UtteranceInput.TRANSPORT_LOST:
        events = list(core.transport_lost(0.0))
    else:
        events = speaking.read(json_text(chunk[event]))
    ended = {
        SynthesisComplete: UtteranceState.COMPLETED,
        Cancelled: UtteranceState.CANCELLED,
    }
    if move is None:
        # Told as a fault, unless the session is over or ends by it anyway.
        session_ends = event in (UtteranceInput.SESSION_ENDS, UtteranceInput.TRANSPORT_LOST)
        assert session_ends or any(isinstance(each, ProtocolViolation) for each in events)
        assert not any(type(each) in ended for each in events)
        return
    utterance = core.utterance(1)
    if utterance is not None:
        assert utterance.state is move
    elif event in (UtteranceInput.ERROR, UtteranceInput.REJECTION):
        assert events[-1].rejected is (move is UtteranceState.REJECTED)
    elif move is UtteranceState.LOST:
        assert events[0].state is move
    else:
        assert ended[type(events[-1])] is move
    assert not any(isinstance(each, ProtocolViolation) for each in events)
