from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_protocol.errors import RemoteProtocolError
from utterwire_protocol.jsontext import MAX_LEVELS, decode_utf8, dump, parse_object, quoted


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_json"),
        (" \t\r\n", "invalid_json"),
        ("{", "invalid_json"),
        ("{} {}", "invalid_json"),
        ("{}\0", "invalid_json"),
        ("{}\u00a0", "invalid_json"),
        ("\ufeff{}", "invalid_json"),
        ("\x0c{}", "invalid_json"),
        ("{'a':1}", "invalid_json"),
        ('{"a":1,}', "invalid_json"),
        ('{"a":01}', "invalid_json"),
        ('{"a":1.}', "invalid_json"),
        ('{"a":+1}', "invalid_json"),
        ('{"a":\uff11}', "invalid_json"),
        ('{"a":NaN}', "invalid_json"),
        ('{"a":Infinity}', "invalid_json"),
        ('{"a":-Infinity}', "invalid_json"),
        ('{"a":"\t"}', "invalid_json"),
        ('{"a":"\\u12"}', "invalid_json"),
        ('{"a":"\\u 123"}', "invalid_json"),
        ('{"a":"\\x"}', "invalid_json"),
        ("nan", "invalid_json"),
        ("[]", "not_an_object"),
        ('"{}"', "not_an_object"),
        ("1", "not_an_object"),
        ("null", "not_an_object"),
        ("true", "not_an_object"),
    ],
)
def test_text_that_is_no_object(text: str, code: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_object(text, unique_names=False)
    assert caught.value.code == code
    assert caught.value.requirement.startswith("reject.")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        (' \t\r\n{"a" : 1 } \n', {"a": 1}),
        ('{"a":123456789012345678}', {"a": 123456789012345678}),
        ('{"a":1234567890123456789}', {"a": 1234567890123456789.0}),
        ('{"a":-0}', {"a": 0}),
        ('{"a":1e400}', {"a": math.inf}),
        ('{"a":-1e400}', {"a": -math.inf}),
        ('{"a":"\\ud800"}', {"a": "\ud800"}),
        ('{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ('{"\\u0061":1}', {"a": 1}),
    ],
)
def test_text_that_is_an_object(text: str, value: object) -> None:
    assert parse_object(text, unique_names=True) == value


def test_a_long_integer_is_a_float_and_a_short_one_is_not() -> None:
    assert isinstance(parse_object('{"a":123456789012345678}', unique_names=True)["a"], int)
    assert isinstance(parse_object('{"a":1234567890123456789}', unique_names=True)["a"], float)


def test_a_name_twice() -> None:
    text = '{"b":{"a":1,"\\u0061":2}}'
    assert parse_object(text, unique_names=False) == {"b": {"a": 2}}
    with pytest.raises(RemoteProtocolError) as caught:
        parse_object(text, unique_names=True)
    assert caught.value.code == "invalid_request"


def nested(levels: int) -> str:
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def test_levels() -> None:
    assert parse_object(nested(MAX_LEVELS), unique_names=True)
    with pytest.raises(RemoteProtocolError) as caught:
        parse_object(nested(MAX_LEVELS + 1), unique_names=True)
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"' + "[" * 99 + '"}',
        '{"a":"\\"' + "[" * 99 + '"}',
        '{"a":"\\\\","b":[' + ",".join(["[]"] * 99) + "]}",
        '{"a":[' + ",".join(["{}"] * 99) + "]}",
    ],
)
def test_brackets_that_do_not_nest(text: str) -> None:
    assert parse_object(text, unique_names=True) == json.loads(text)


def outcome_of(text: str) -> str:
    """What the reader says; anything but an object or its own error is raised."""
    try:
        value = parse_object(text, unique_names=True)
    except RemoteProtocolError as error:
        return error.message
    return "object" if isinstance(value, dict) else ""


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"a":' * 200_000,
        '{"a":[' + ",".join(["[]"] * 300_000) + "]}",
        '{"a":' + "9" * 1_000_000 + "}",
        '{"a":0.' + "1" * 1_000_000 + "e-5}",
        "[" * 20 + '"' * 1_000_001,
        "[" * 20 + '"\\' * 500_000,
        '{"a":"' + "\\\\" * 500_000 + '"}',
        '{"a":"' + "\\ud800" * 150_000 + '"}',
        " " * 1_000_000 + "x",
    ],
    ids=range(10),
)
def test_a_megabyte_of_hostility_is_read(text: str) -> None:
    # In linear time: a quadratic reader does not come to an end of these.
    outcome = outcome_of(text)
    assert outcome == "object" or len(outcome) < 200


@given(st.text(alphabet='{}[]"\\u0123, :ae\ud800', max_size=60))
@settings(derandomize=True, max_examples=300, deadline=None, database=None)
def test_no_text_raises_anything_else(text: str) -> None:
    assert outcome_of(text)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xed\xa0\x80",
        b"\xed\xa0\xbd\xed\xb8\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"{\x00}\x00\xfe",
    ],
)
def test_bytes_that_are_not_utf8(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_utf8(data)
    assert caught.value.code == "invalid_utf8"


def test_written_json_is_compact_utf8() -> None:
    assert dump({"a": "é\u2028", "b": [1, 2.5]}) == '{"a":"é\u2028","b":[1,2.5]}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        dump({"a": math.nan})


def test_quoting_is_short_and_ascii() -> None:
    assert quoted("é\ud800\n") == '"\\u00e9\\ud800\\n"'
    assert quoted("x" * 40) == '"' + "x" * 40 + '"'
    assert quoted("x" * 41) == '"' + "x" * 40 + '..."'
