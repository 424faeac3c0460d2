from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_protocol import (
    ERROR_CODES,
    WHITE_SPACE,
    Cancel,
    Close,
    EndpointOptions,
    Hello,
    Keepalive,
    Rejection,
    Request,
    Synthesize,
    encode_message,
    is_blank,
    parse_message,
    parse_request,
    validate_synthesize,
)

Options = Callable[..., EndpointOptions]
ALL = frozenset({"interrupt", "negotiate", "timing"})


def parsed(options: EndpointOptions, fields: object) -> Any:
    return parse_message(json.dumps(fields).encode(), options)


def accepted(options: EndpointOptions, **fields: object) -> Synthesize:
    found = parsed(options, {"text": "Hello.", **fields})
    assert isinstance(found, Synthesize), found
    return found


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "close"}, Close()),
        ({"type": "close", "request_id": 5, "text": []}, Close()),
        ({"type": "keepalive", "text": 7}, Keepalive()),
        ({"type": "cancel"}, Cancel(None)),
        ({"type": "cancel", "request_id": "x"}, Cancel("x")),
        ({"type": "hello", "protocol_versions": [1]}, Hello((1,))),
        ({"type": "hello", "protocol_versions": [2, 1.0, -3, 0]}, Hello((2, 1, -3, 0))),
        ({"type": "hello", "protocol_versions": [10**400, 1]}, Hello((1,))),
    ],
    ids=str,
)
def test_other_types(options: Options, fields: dict[str, Any], message: object) -> None:
    assert parsed(options(), fields) == message


def test_defaults_and_ignored_fields(options: Options) -> None:
    assert accepted(options()) == Synthesize(
        text="Hello.",
        voice="v",
        speed=1.0,
        sample_rate=24_000,
        format="pcm_s16le",
        marks=(),
        request_id=None,
    )
    nulls = dict.fromkeys(
        ["type", "voice", "speed", "sample_rate", "format", "request_id", "marks"]
    )
    assert accepted(options(profiles=ALL), **nulls) == accepted(options())
    ignored = {"language": 5, "model": {}, "x_": [], "stream": 3, "request_timestamp": {}}
    assert accepted(options(), **ignored) == accepted(options())


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"voice": "w"}, "voice", "w"),
        ({"speed": 0.5}, "speed", 0.5),
        ({"speed": 2}, "speed", 2.0),
        ({"sample_rate": 24000.0}, "sample_rate", 24_000),
        ({"format": "mulaw"}, "sample_rate", 8_000),
        ({"format": "mulaw", "sample_rate": 8000}, "format", "mulaw"),
        ({"marks": ["word", "word"]}, "marks", ("word",)),
        ({"marks": []}, "marks", ()),
        ({"request_id": "\U0001f600" * 128}, "request_id", "\U0001f600" * 128),
        ({"text": "x" * 4096}, "text", "x" * 4096),
        ({"text": "\u200b"}, "text", "\u200b"),
        ({"text": "\ufeff"}, "text", "\ufeff"),
        ({"text": "\x1c\x1d\x1e\x1f"}, "text", "\x1c\x1d\x1e\x1f"),
        ({"type": "synthesize"}, "text", "Hello."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_request_asks_for(
    options: Options, fields: dict[str, Any], name: str, value: object
) -> None:
    made = options(
        profiles=ALL, formats=("pcm_s16le", "mulaw"), format_sample_rates={"mulaw": (8_000,)}
    )
    found = getattr(accepted(made, **fields), name)
    assert found == value
    assert type(found) is type(value)


REJECTED: list[tuple[object, str, str]] = [
    (b"", "invalid_json", "reject.invalid-json"),
    (b"\xff", "invalid_utf8", "reject.invalid-utf8"),
    (b"[]", "not_an_object", "reject.not-an-object"),
    ({"type": 1}, "invalid_request", "reject.type-not-string"),
    ({"type": "Close"}, "unknown_type", "reject.unknown-type"),
    ({"type": "append"}, "unknown_type", "reject.unknown-type"),
    ({"type": "\ud800"}, "unknown_type", "reject.unknown-type"),
    ({}, "missing_text", "reject.missing-text"),
    ({"text": None}, "missing_text", "reject.missing-text"),
    ({"text": 5}, "invalid_request", "reject.text-type"),
    ({"text": ""}, "empty_text", "reject.empty-text"),
    ({"text": WHITE_SPACE}, "empty_text", "reject.empty-text"),
    ({"text": "a\ud800"}, "invalid_request", "reject.lone-surrogate"),
    ({"text": "x" * 4097}, "text_too_long", "reject.text-too-long"),
    ({"text": "a", "voice": 1}, "invalid_request", "reject.field-types"),
    ({"text": "a", "voice": ""}, "invalid_voice", "reject.invalid-voice"),
    ({"text": "a", "voice": "V"}, "invalid_voice", "reject.invalid-voice"),
    ({"text": "a", "voice": "\ud800"}, "invalid_voice", "reject.invalid-voice"),
    ({"text": "a", "speed": "1"}, "invalid_request", "reject.field-types"),
    ({"text": "a", "speed": True}, "invalid_request", "reject.field-types"),
    ({"text": "a", "speed": 0.49}, "invalid_speed", "reject.invalid-speed"),
    ({"text": "a", "speed": 2.01}, "invalid_speed", "reject.invalid-speed"),
    (b'{"text":"a","speed":1e400}', "invalid_speed", "reject.invalid-speed"),
    ({"text": "a", "sample_rate": "24000"}, "invalid_request", "reject.field-types"),
    ({"text": "a", "sample_rate": False}, "invalid_request", "reject.field-types"),
    ({"text": "a", "sample_rate": 24000.5}, "invalid_request", "reject.field-types"),
    ({"text": "a", "sample_rate": 0}, "unsupported_sample_rate", "reject.unsupported-sample-rate"),
    (
        b'{"text":"a","sample_rate":1e400}',
        "unsupported_sample_rate",
        "reject.unsupported-sample-rate",
    ),
    (
        {"text": "a", "format": "mulaw", "sample_rate": 24000},
        "unsupported_sample_rate",
        "reject.unsupported-sample-rate",
    ),
    ({"text": "a", "format": 1}, "invalid_request", "reject.field-types"),
    ({"text": "a", "format": "PCM"}, "unsupported_format", "reject.unsupported-format"),
    ({"text": "a", "marks": "word"}, "invalid_request", "timing.invalid"),
    ({"text": "a", "marks": ["word", "line"]}, "invalid_request", "timing.invalid"),
    ({"text": "a", "request_id": 5}, "invalid_request", "reject.request-id"),
    ({"text": "a", "request_id": ""}, "invalid_request", "reject.request-id"),
    ({"text": "a", "request_id": "x" * 129}, "invalid_request", "reject.request-id"),
    ({"text": "a", "request_id": "\udfff"}, "invalid_request", "reject.request-id"),
    ({"type": "cancel", "request_id": None}, "invalid_request", "cancel.null-id"),
    ({"type": "cancel", "request_id": ""}, "invalid_request", "cancel.invalid-id"),
    ({"type": "cancel", "request_id": 1}, "invalid_request", "cancel.invalid-id"),
    ({"type": "hello"}, "invalid_request", "hello.malformed"),
    ({"type": "hello", "protocol_versions": None}, "invalid_request", "hello.malformed"),
    ({"type": "hello", "protocol_versions": []}, "invalid_request", "hello.malformed"),
    ({"type": "hello", "protocol_versions": {"0": 1}}, "invalid_request", "hello.malformed"),
    ({"type": "hello", "protocol_versions": [1, "1"]}, "invalid_request", "hello.malformed"),
    ({"type": "hello", "protocol_versions": [1, True]}, "invalid_request", "hello.malformed"),
    ({"type": "hello", "protocol_versions": [1.5]}, "invalid_request", "hello.malformed"),
]


@pytest.mark.parametrize(
    ("message", "code", "requirement"), REJECTED, ids=lambda value: str(value)[:50]
)
def test_rejection(options: Options, message: object, code: str, requirement: str) -> None:
    made = options(
        profiles=ALL, formats=("pcm_s16le", "mulaw"), format_sample_rates={"mulaw": (8_000,)}
    )
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    found = parse_message(data, made)
    assert isinstance(found, Rejection)
    assert (found.code, found.requirement, found.request_id) == (code, requirement, None)
    assert ERROR_CODES[code].rejection != "never"
    assert found.message.isascii()
    assert found.message.endswith(".")
    assert len(found.message) < 200
    type = message.get("type") if isinstance(message, dict) else None
    assert found.at_once is (type in ("cancel", "hello"))


@pytest.mark.parametrize("type", ["cancel", "hello"])
def test_types_of_a_profile_that_is_not_claimed_are_unknown(options: Options, type: str) -> None:
    found = parsed(options(profiles=frozenset()), {"type": type, "request_id": "x"})
    assert (found.code, found.at_once, found.request_id) == ("unknown_type", False, "x")


def test_marks_are_ignored_where_timing_is_not_claimed(options: Options) -> None:
    values: list[Any] = [["word"], 5, {}, ["line"]]
    for marks in values:
        assert accepted(options(), marks=marks).marks == ()


@pytest.mark.parametrize("value", ["x", "é" * 128, " ", "\0"])
def test_a_valid_id_is_echoed_whatever_else_is_wrong(options: Options, value: str) -> None:
    for fields in ({"type": 5}, {"type": "x"}, {}, {"text": 3}, {"text": "a", "speed": 9}):
        assert parsed(options(), {**fields, "request_id": value}).request_id == value


def test_blank_is_the_25_code_points_of_white_space() -> None:
    assert len(WHITE_SPACE) == len(set(WHITE_SPACE)) == 25
    assert is_blank("")
    # By the Unicode data at hand: the separators, and seven control characters.
    spaces = {chr(point) for point in range(0x110000) if unicodedata.category(chr(point))[0] == "Z"}
    assert set(WHITE_SPACE) == spaces | set("\t\n\x0b\x0c\r\x85")
    assert not is_blank(WHITE_SPACE + "\u200b")


@given(st.binary(max_size=80) | st.text(max_size=40).map(lambda text: text.encode()))
@settings(derandomize=True, max_examples=300, deadline=None, database=None)
def test_no_bytes_make_reading_fail(data: bytes) -> None:
    options = EndpointOptions(voices=("v",), profiles=ALL)
    found = parse_message(data, options)
    assert isinstance(found, (Synthesize, Close, Keepalive, Cancel, Hello, Rejection))
    assert isinstance(parse_request(data, options), (Request, Rejection))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=6)
    | st.sampled_from(["v", "close", "cancel", "hello", "synthesize", "word", "pcm_s16le", 24000]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
NAMES = st.sampled_from(
    [
        "type",
        "text",
        "voice",
        "speed",
        "sample_rate",
        "format",
        "request_id",
        "marks",
        "protocol_versions",
        "stream",
    ]
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
@settings(derandomize=True, max_examples=500, deadline=None, database=None)
def test_no_fields_make_validation_fail(fields: dict[str, Any]) -> None:
    options = EndpointOptions(voices=("v",), profiles=ALL)
    body = json.dumps(fields).encode()
    for found in (parse_message(body, options), parse_request(body, options)):
        if isinstance(found, Rejection):
            assert found.code in ERROR_CODES
            assert found.message


def test_validation_of_members_alone(options: Options) -> None:
    found = validate_synthesize({"type": "ignored", "text": "a", "request_id": "x"}, options())
    assert isinstance(found, Synthesize)
    assert found.request_id == "x"
    # Other parsers keep integers of any size.
    for name in ("sample_rate", "speed"):
        for value in (10**400, -(10**400), float("nan")):
            refused = validate_synthesize({"text": "a", name: value}, options())
            assert isinstance(refused, Rejection)
    refused = validate_synthesize({"request_id": "x"}, options())
    assert isinstance(refused, Rejection)
    assert (refused.code, refused.request_id, refused.at_once) == ("missing_text", "x", False)


@pytest.mark.parametrize(
    ("fields", "stream"),
    [
        ({"text": "a"}, True),
        ({"text": "a", "stream": None}, True),
        ({"text": "a", "stream": True}, True),
        ({"text": "a", "stream": False, "type": "synthesize"}, False),
    ],
    ids=str,
)
def test_body_of_a_request(options: Options, fields: dict[str, Any], stream: bool) -> None:
    found = parse_request(json.dumps(fields).encode(), options())
    assert isinstance(found, Request)
    assert found.stream is stream
    assert found.synthesize.text == "a"


@pytest.mark.parametrize(
    ("body", "code", "requirement"),
    [
        (b"", "invalid_json", "reject.invalid-json"),
        (b'{"type":"close"}', "unknown_type", "http.unknown-type"),
        (b'{"type":5}', "invalid_request", "reject.type-not-string"),
        (b'{"text":"a","text":"b"}', "invalid_request", "reject.odd-json-survives"),
        (b'{"text":"a","stream":0}', "invalid_request", "http.stream-type"),
        (b'{"text":"a","stream":"false"}', "invalid_request", "http.stream-type"),
        (b'{"text":" "}', "empty_text", "reject.empty-text"),
    ],
    ids=str,
)
def test_body_that_is_refused(options: Options, body: bytes, code: str, requirement: str) -> None:
    found = parse_request(body, options())
    assert isinstance(found, Rejection)
    assert (found.code, found.requirement, found.at_once) == (code, requirement, False)


def test_what_a_client_writes_leaves_out_what_is_none() -> None:
    assert encode_message("cancel", {"request_id": None}) == b'{"type":"cancel"}'
    assert (
        encode_message("synthesize", {"text": "é"}) == '{"type":"synthesize","text":"é"}'.encode()
    )


def test_text_is_not_shown(options: Options) -> None:
    assert "Hello" not in repr(accepted(options()))
