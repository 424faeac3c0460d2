"""What people read, word for word: errors on the wire, errors to the caller, violations.

Each is one line that says what is wrong, and none shows more of the inside than that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from utterwire_protocol import (
    Connection,
    EndpointOptions,
    FrameKind,
    Limits,
    LocalProtocolError,
    MessageRejected,
    ProtocolViolation,
    Rejection,
    RemoteProtocolError,
    Role,
    Word,
    classify,
    encode_error,
    parse_message,
    parse_request,
)

OPTIONS = EndpointOptions(
    voices=("v",),
    formats=("pcm_s16le", "mp3"),
    profiles=frozenset({"interrupt", "negotiate", "timing"}),
)


MESSAGES: list[tuple[Any, str, str]] = [
    (b"{\xff", "invalid_utf8", "The message is not UTF-8: byte 1 cannot be decoded."),
    (b"", "invalid_json", "The message is not JSON: Expecting value, at character 0."),
    (b"{} x", "invalid_json", "The message is not JSON: more follows the value, at character 2."),
    (b'{"a":NaN}', "invalid_json", "The message is not JSON: NaN is no JSON number."),
    (b"5", "not_an_object", "The message is JSON, but not an object."),
    (b'{"a":1,"a":2}', "invalid_request", "The message has an object in which a name is repeated."),
    (
        b'{"a":' + b"[" * 16 + b"]" * 16 + b"}",
        "invalid_request",
        "The message has more than 16 levels of nesting.",
    ),
    ({"type": 1}, "invalid_request", "`type` must be a string."),
    ({"type": "Close"}, "unknown_type", 'There is no message type "Close" here.'),
    ({}, "missing_text", "`text` is missing."),
    ({"text": 5}, "invalid_request", "`text` must be a string."),
    ({"text": "x" * 4097}, "text_too_long", "`text` has 4097 code points; the limit is 4096."),
    ({"text": "a\ud800"}, "invalid_request", "`text` holds a lone surrogate."),
    ({"text": " "}, "empty_text", "`text` has nothing but white space."),
    ({"text": "a", "voice": 1}, "invalid_request", "`voice` must be a string."),
    ({"text": "a", "voice": "é"}, "invalid_voice", 'There is no voice "\\u00e9".'),
    ({"text": "a", "speed": "1"}, "invalid_request", "`speed` must be a number."),
    ({"text": "a", "speed": 3}, "invalid_speed", "`speed` must be 0.5 to 2."),
    ({"text": "a", "format": 1}, "invalid_request", "`format` must be a string."),
    ({"text": "a", "format": "x"}, "unsupported_format", 'The format "x" is not offered.'),
    ({"text": "a", "sample_rate": "x"}, "invalid_request", "`sample_rate` must be an integer."),
    ({"text": "a", "sample_rate": 0.5}, "invalid_request", "`sample_rate` must be an integer."),
    (
        {"text": "a", "sample_rate": 8000},
        "unsupported_sample_rate",
        "`sample_rate` must be one that is offered for pcm_s16le.",
    ),
    ({"text": "a", "marks": 5}, "invalid_request", '`marks` must be an array of "word" alone.'),
    (
        {"text": "a", "request_id": ""},
        "invalid_request",
        "`request_id` must be a string of 1 to 128 code points without lone surrogates.",
    ),
    (
        {"type": "cancel", "request_id": None},
        "invalid_request",
        "`request_id` of a cancel must not be null; leave it out to cancel all.",
    ),
    (
        {"type": "cancel", "request_id": 5},
        "invalid_request",
        "`request_id` must be a string of 1 to 128 code points without lone surrogates.",
    ),
    (
        {"type": "hello"},
        "invalid_request",
        "`protocol_versions` must be an array of at least one integer.",
    ),
    (
        {"type": "hello", "protocol_versions": ["1"]},
        "invalid_request",
        "`protocol_versions` must hold integers.",
    ),
]


BODIES: list[tuple[bytes, str, str]] = [
    (b'{"type":"close"}', "unknown_type", 'There is no type "close" over HTTP.'),
    (b'{"text":"a","stream":0}', "invalid_request", "`stream` must be a boolean."),
]


CHUNKS: list[tuple[bytes, str, str, str]] = [
    (
        b"",
        "control.strict-json",
        "invalid_json",
        "Not a control message. The message is not JSON: Expecting value, at character 0.",
    ),
    (b"{}", "control.schema", "invalid_request", "Not a control message: it has no string `type`."),
    (
        b"[]",
        "control.strict-json",
        "invalid_json",
        "Not a control message. The message is JSON, but not an object.",
    ),
    (
        b"\xff",
        "control.strict-json",
        "invalid_json",
        "Not a control message. The message is not UTF-8: byte 0 cannot be decoded.",
    ),
]


SESSIONS: list[tuple[list[Any], str, str, str]] = [
    (
        [{"text": "a", "request_id": "x"}, {"text": "a", "request_id": "x"}],
        "duplicate_request_id",
        "reject.duplicate-request-id",
        "An utterance that has not ended has this `request_id`.",
    ),
    ([{"text": "a"}] * 18, "queue_full", "queue.full", "16 utterances wait already."),
    (
        [{"type": "keepalive"}, {"type": "hello", "protocol_versions": [1]}],
        "invalid_request",
        "hello.first-only",
        "`hello` must be the first message.",
    ),
    (
        [{"type": "hello", "protocol_versions": [2]}],
        "unsupported_version",
        "hello.unsupported-version",
        "Only protocol version 1 is spoken here.",
    ),
]


ENDPOINT_CALLS: list[tuple[Callable[[Connection], object], str]] = [
    (lambda core: core.start(9, 0.0), "there is no unended utterance 9"),
    (lambda core: core.start(2, 0.0), "utterance 2 is not the next in order"),
    (lambda core: core.audio(2, b"", 0.0), "utterance 2 is waiting: audio is not possible"),
    (lambda core: core.marks(1, [], 0.0), "utterance 1 did not ask for marks"),
    (
        lambda core: core.complete(3, 0.0),
        "utterance 3 is waiting: synthesis_complete is not possible",
    ),
    (lambda core: core.fail(1, "oops", "m", 0.0), "there is no error code 'oops'"),
    (
        lambda core: core.fail(1, "queue_full", "m", 0.0),
        "the error code 'queue_full' is for rejections alone",
    ),
    (lambda core: core.end("bored", 0.0), "a session does not end with the reason 'bored'"),
    (lambda core: core.hello(0.0), "only a client does this"),
]


CLIENT_CALLS: list[tuple[Callable[[Connection], object], str]] = [
    (lambda core: core.synthesize(" ", 0.0), "text has nothing but white space"),
    (lambda core: core.synthesize("\ud800", 0.0), "text holds a lone surrogate"),
    (
        lambda core: core.synthesize("x" * 5001, 0.0),
        "text has 5001 code points; the endpoint takes 5000",
    ),
    (
        lambda core: core.synthesize("a", 0.0, voice=""),
        "voice must not be empty or hold a lone surrogate",
    ),
    (
        lambda core: core.synthesize("a", 0.0, format="\ud800"),
        "format must not be empty or hold a lone surrogate",
    ),
    (lambda core: core.synthesize("a", 0.0, speed=4), "speed must be a number from 0 to 3"),
    (
        lambda core: core.synthesize("a", 0.0, sample_rate=0),
        "sample_rate must be an integer in Hz, not 0",
    ),
    (lambda core: core.synthesize("a", 0.0, request_id="x"), "request_id 'x' is in use"),
    (
        lambda core: core.synthesize("a", 0.0, request_id=""),
        "request_id must have 1 to 128 code points and no lone surrogate",
    ),
    (lambda core: core.synthesize("a", 0.0, marks=["line"]), 'marks can only be "word"'),
    (
        lambda core: core.synthesize("a", 0.0, voice="w" * 70000),
        "the message has 70043 bytes; the endpoint takes 70000",
    ),
    (lambda core: core.hello(0.0), "the session is open: no hello now"),
    (lambda core: core.running(), "only an endpoint does this"),
]


VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: Connection(Role.ENDPOINT, now=0.0), "an endpoint needs its options"),
    (
        lambda: Connection(Role.CLIENT, now=0.0, endpoint=OPTIONS),
        "a client has no endpoint's options",
    ),
    (
        lambda: Connection(Role.CLIENT, now=0.0).hello(0.0, ()),
        "versions must be at least one integer",
    ),
    (lambda: Word("a", 1.0, 0.5, 0, 1), "a word is spoken from 1.0 to 0.5 s"),
    (lambda: Word("a", 0.0, 0.5, 1, 1), "a word stands from 1 to 1"),
    (
        lambda: encode_error("synthesis_failed", "m", rejected=True),
        "the error code 'synthesis_failed' is never for rejections",
    ),
    (lambda: Limits(max_waiting=7), "max_waiting must be an integer of 8 or more, not 7"),
    (lambda: Limits(max_request_id_chars=5000), "max_request_id_chars must be 4096 or less"),
    (lambda: Limits(idle_timeout_s=0), "idle_timeout_s must be more than 0"),
    (lambda: Limits(min_speed=1), "min_speed must be more than 0, and 0.5 or less"),
    (lambda: Limits(max_speed=1), "max_speed must be 2.0 or more"),
    (lambda: Limits(max_speed=float("nan")), "max_speed must be a finite number, not nan"),
    (lambda: EndpointOptions(voices=()), "voices must name at least one, each once"),
    (
        lambda: EndpointOptions(voices=("",)),
        "each of voices must be a string that is not empty, not ''",
    ),
    (lambda: EndpointOptions(voices=("\ud800",)), "each of voices must not hold a lone surrogate"),
    (
        lambda: EndpointOptions(voices=("v",), formats=()),
        "formats must name at least one, each once",
    ),
    (
        lambda: EndpointOptions(voices=("v",), formats=("",)),
        "each of formats must be a string that is not empty, not ''",
    ),
    (
        lambda: EndpointOptions(voices=("v",), default_voice="w"),
        "default_voice 'w' is not among voices",
    ),
    (
        lambda: EndpointOptions(voices=("v",), default_format="x"),
        "default_format 'x' is not among formats",
    ),
    (
        lambda: EndpointOptions(voices=("v",), sample_rates=()),
        "sample rates must name at least one, each once",
    ),
    (lambda: EndpointOptions(voices=("v",), sample_rates=(True,)), "sample rates must be integers"),
    (
        lambda: EndpointOptions(voices=("v",), sample_rates=(0,)),
        "sample rates must be 1 Hz or more",
    ),
    (
        lambda: EndpointOptions(voices=("v",), sample_rates=(1,)),
        "default_sample_rate 24000 is not offered",
    ),
    (
        lambda: EndpointOptions(voices=("v",), profiles=frozenset({"x"})),
        "profiles: version 1 has no 'x'",
    ),
    (lambda: EndpointOptions(voices=("v",), shutdown_s=-1), "shutdown_s must be 0 or more"),
    (
        lambda: EndpointOptions(voices=("v",), shutdown_s=float("inf")),
        "shutdown_s must be a finite number, not inf",
    ),
    (lambda: EndpointOptions(voices=("v",), chunk_bytes=1), "chunk_bytes must be 2 to 65536"),
    (
        lambda: EndpointOptions(voices=("v",), session_id=""),
        "session_id must be a string that is not empty, not ''",
    ),
]


VIOLATIONS: list[tuple[list[Any], str, str]] = [
    ([b""], "audio.chunk-size", "An empty audio chunk came."),
    ([b"\0" * 65_537], "audio.chunk-size", "An audio chunk of 65537 bytes came."),
    ([b'{"type":"x_a"}'], "control.text-frame", "A control message came in a binary frame."),
    (
        [{"type": "synthesis_start", "seq": 1}],
        "start.fields",
        "`synthesis_start` lacks its format or sample rate.",
    ),
    (
        [{"type": "synthesis_start", "seq": "1"}],
        "control.schema",
        "`seq` is no integer of 1 or more.",
    ),
    (
        [{"type": "synthesis_start", "seq": 9}],
        "order.nothing-after-terminal",
        "`synthesis_start` came for no unended utterance.",
    ),
    (
        [{"type": "synthesis_start", "seq": 2}],
        "order.fifo",
        "Utterance 2 was started before an older one ended.",
    ),
    (
        [{"type": "synthesis_start", "seq": 1}, {"type": "synthesis_start", "seq": 1}],
        "order.complete-had-start",
        "A second `synthesis_start` came.",
    ),
    (
        [b"ab", {"type": "synthesis_complete", "seq": 1, "audio_bytes": 3}],
        "complete.audio-bytes",
        "Utterance 1: 3 bytes were sent, the endpoint says; 2 came.",
    ),
    (
        [b"ab", {"type": "cancelled", "seq": 1, "audio_bytes": 3}],
        "cancel.audio-bytes",
        "Utterance 1: 3 bytes were sent, the endpoint says; 2 came.",
    ),
    (
        [b"ab", {"type": "error", "seq": 1, "rejected": True}],
        "reject.no-harm",
        "Utterance 1 was rejected while running.",
    ),
    (
        [{"type": "error", "seq": 9}],
        "order.nothing-after-terminal",
        "An `error` came that belongs to no message.",
    ),
    (
        [{"type": "cancel_done", "seq": 9}],
        "cancel.done",
        "A `cancel_done` came that belongs to no `cancel`.",
    ),
    (
        [{"type": "marks", "seq": 1, "words": [1]}],
        "control.schema",
        "`marks` holds a word that is none.",
    ),
    ([{"type": "session", "seq": 1}], "hello.session", "A `session` came that answers no `hello`."),
    (
        [{"type": "session_closed"}, b"ab"],
        "close.last-word",
        "A chunk came after the end of the session.",
    ),
    (
        [{"type": "cancelled", "seq": 1}, {"type": "cancelled", "seq": 2}, b"ab"],
        "order.nothing-after-terminal",
        "Audio came that belongs to no utterance.",
    ),
]


def data(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


@pytest.mark.parametrize(("message", "code", "words"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages_that_are_rejected(message: Any, code: str, words: str) -> None:
    found = parse_message(data(message), OPTIONS)
    assert isinstance(found, Rejection)
    assert (found.code, found.message) == (code, words)


@pytest.mark.parametrize(("body", "code", "words"), BODIES, ids=range(len(BODIES)))
def test_bodies_that_are_rejected(body: bytes, code: str, words: str) -> None:
    found = parse_request(body, OPTIONS)
    assert isinstance(found, Rejection)
    assert (found.code, found.message) == (code, words)


@pytest.mark.parametrize(("chunk", "requirement", "code", "words"), CHUNKS, ids=range(len(CHUNKS)))
def test_text_frames_that_are_no_control(
    chunk: bytes, requirement: str, code: str, words: str
) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        classify(chunk, FrameKind.TEXT)
    error = caught.value
    assert (error.requirement, error.code, error.message) == (requirement, code, words)


@pytest.mark.parametrize(
    ("messages", "code", "requirement", "words"), SESSIONS, ids=range(len(SESSIONS))
)
def test_messages_that_a_session_rejects(
    messages: list[Any], code: str, requirement: str, words: str
) -> None:
    core = Connection(Role.ENDPOINT, now=0.0, endpoint=OPTIONS)
    events: tuple[Any, ...] = ()
    for message in messages:
        events = core.receive(data(message), 0.0)
    (event,) = events
    assert isinstance(event, MessageRejected)
    assert (event.code, event.requirement, event.message) == (code, requirement, words)


@pytest.mark.parametrize(("call", "words"), ENDPOINT_CALLS, ids=range(len(ENDPOINT_CALLS)))
def test_calls_an_endpoint_must_not_make(call: Callable[[Connection], object], words: str) -> None:
    core = Connection(Role.ENDPOINT, now=0.0, endpoint=OPTIONS)
    for message in ({"text": "a"}, {"text": "a b", "marks": ["word"]}, {"text": "a b"}):
        core.receive(data(message), 0.0)
    core.start(1, 0.0)
    with pytest.raises(LocalProtocolError) as caught:
        call(core)
    assert str(caught.value) == words


@pytest.mark.parametrize(("call", "words"), CLIENT_CALLS, ids=range(len(CLIENT_CALLS)))
def test_calls_a_client_must_not_make(call: Callable[[Connection], object], words: str) -> None:
    core = Connection(Role.CLIENT, now=0.0)
    core.hello(0.0)
    limits = {"max_text_chars": 5000, "max_message_bytes": 70000, "max_speed": 3}
    core.receive(
        json.dumps({"type": "session", "seq": 1, "protocol_version": 1, "limits": limits}), 0.0
    )
    core.synthesize("a", 0.0, request_id="x")
    with pytest.raises(LocalProtocolError) as caught:
        call(core)
    assert str(caught.value) == words


@pytest.mark.parametrize(("make", "words"), VALUES, ids=range(len(VALUES)))
def test_values_that_cannot_be_made(make: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, LocalProtocolError)) as caught:
        make()
    assert str(caught.value) == words


@pytest.mark.parametrize(("chunks", "requirement", "words"), VIOLATIONS, ids=range(len(VIOLATIONS)))
def test_what_is_told_of_an_endpoint_with_faults(
    chunks: list[Any], requirement: str, words: str
) -> None:
    core = Connection(Role.CLIENT, now=0.0)
    core.synthesize("a", 0.0)
    core.synthesize("b", 0.0)
    core.cancel(0.0)
    events: tuple[Any, ...] = ()
    for chunk in chunks:
        events = core.receive(chunk if isinstance(chunk, bytes) else json.dumps(chunk), 0.0)
    told = next(each for each in events if isinstance(each, ProtocolViolation))
    assert (told.requirement, told.message) == (requirement, words)
