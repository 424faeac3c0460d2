"""The suite's own reader of JSON."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.strict_json import (
    Document,
    NotJson,
    NotUtf8,
    Oddity,
    has_lone_surrogate,
    parse,
)

PLAIN = settings(derandomize=True, max_examples=150, deadline=None)

GOOD: list[tuple[str, Any, int]] = [
    ("null", None, 0),
    (" true ", True, 0),
    ("\t\r\nfalse", False, 0),
    ("0", 0, 0),
    ("-0", 0, 0),
    ("-12.5e-1", -1.25, 0),
    ("1E2", 100.0, 0),
    ('""', "", 0),
    ('"\\u00e9\\n\\/\\"\\\\\\b\\f\\r\\t"', 'é\n/"\\\b\f\r\t', 0),
    ('"\\ud83d\\ude00"', "😀", 0),
    ('"\u2028\x7f"', "\u2028\x7f", 0),
    ("[]", [], 1),
    ("[ ]", [], 1),
    ("{}", {}, 1),
    ("{ }", {}, 1),
    ("[1, [2, {}], 3]", [1, [2, {}], 3], 3),
    ('{"a": {"b": [1]}, "": 2}', {"a": {"b": [1]}, "": 2}, 3),
    ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}], 2),
]


@pytest.mark.parametrize(("text", "value", "levels"), GOOD)
def test_json_is_read(text: str, value: Any, levels: int) -> None:
    assert parse(text) == Document(value, frozenset(), levels)
    assert parse(text.encode("utf-8", "surrogatepass")) == Document(value, frozenset(), levels)


BAD = [
    *("", " ", "nul", "True", "NaN", "Infinity", "-Infinity", "undefined", "'a'"),
    *("01", "+1", "1.", ".5", "1e", "1e+", "-", "--1", "0x10", "1_0", "\u0661"),
    *('"', '"a', '"\x00"', '"\n"', '"\\', '"\\x"', '"\\u12"', '"\\u12g4"', '"\\u 123"'),
    *("[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "]"),
    *("{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{,}", "{1:2}", '{"a" 1}', '{"a":1]'),
    *("1 2", "{} {}", '{"a":1}x', "\u00a01", "\ufeff", "1\ufeff", "\ufeff\ufeff1", "{'a':1}"),
    *("// c\n1", "/* c */ 1", "[1,,2]", "\x0c1", "\x0b1"),
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson) as caught:
        parse(text)
    assert 0 <= caught.value.position <= len(text)
    assert caught.value.reason in str(caught.value)


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b"\xff", 0),
        (b'{"a":"\xc3"}', 6),
        (b'"\xed\xa0\x80"', 1),
        (b'"\xc0\xaf"', 1),
        (b"7\x00\xd8", 2),
    ],
)
def test_what_is_not_utf_8_is_refused(data: bytes, position: int) -> None:
    with pytest.raises(NotUtf8) as caught:
        parse(data)
    assert caught.value.position == position


ODD = [
    ('{"a":1,"a":1}', Oddity.DUPLICATE_NAME),
    ('{"a":{"b":1,"\\u0062":2}}', Oddity.DUPLICATE_NAME),
    ('"\\ud800"', Oddity.LONE_SURROGATE),
    ('{"\\udc00":1}', Oddity.LONE_SURROGATE),
    ('"\\ude00\\ud83d"', Oddity.LONE_SURROGATE),
    ("123456789012345678", Oddity.LONG_NUMBER),
    ("0.123456789012345678", Oddity.LONG_NUMBER),
    ("1e400", Oddity.OVERFLOW),
    ("-1e400", Oddity.OVERFLOW),
    ("1e-400", Oddity.UNDERFLOW),
    ("1" + "0" * 308 + ".0", Oddity.LONG_NUMBER),
    ("2" + "0" * 308, Oddity.OVERFLOW),
    ("9" * 5000, Oddity.OVERFLOW),
    ("[" * 17 + "]" * 17, Oddity.DEEP),
    ("[" * 100_000 + "]" * 100_000, Oddity.DEEP),
    ("\ufeff{}", Oddity.BYTE_ORDER_MARK),
]


@pytest.mark.parametrize(("text", "oddity"), ODD)
def test_odd_json_is_noted(text: str, oddity: Oddity) -> None:
    assert oddity in parse(text).oddities


@pytest.mark.parametrize(
    "text",
    ["[" * 16 + "]" * 16, "12345678901234567", "0.00000000000000000000012345", "1e308", "0e-999"],
)
def test_what_is_within_bounds_is_not_odd(text: str) -> None:
    assert parse(text).oddities == frozenset()


def test_of_two_names_the_last_counts() -> None:
    assert parse('{"a":1,"a":2}').value == {"a": 2}


def test_lone_surrogates_are_found() -> None:
    assert has_lone_surrogate("a\ud800")
    assert not has_lone_surrogate("😀")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=12,
)


@PLAIN
@given(VALUES, st.booleans())
def test_agrees_with_the_standard_library_on_good_json(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse(text).value == json.loads(text)


@PLAIN
@given(st.text('[]{}",:0123456789.eE+-\\u tfn\ud800', max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        ours = parse(text).value
    except NotJson:
        with pytest.raises(ValueError):  # noqa: PT011 - any failure of the other parser will do
            _strictly(text)
    else:
        theirs = _strictly(text)
        assert ours == theirs or (isinstance(ours, float) and math.isinf(ours))


def _strictly(text: str) -> Any:
    def constant(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_constant=constant)


@PLAIN
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(NotJson, NotUtf8):
        parse(data)


STRINGS = ('"text"', '"\\n"', '"\ud800"', '"\\ud800"')
WORDS = ("true", "null", "nul", "NaN", "[]", "{}")
NUMBERS = (
    *("0", "-0", "-0.0", "01", "1.", "0.1", "12345678.123456789", "99999999.999999999"),
    *("123456789", "1234567890.1234567890", "-1.5e3", "1e999"),
)
FLAT = st.lists(
    st.tuples(
        st.sampled_from(['"a"', '"b"', '"type"', '""', '"\\u0061"', '"\U0001f600"']),
        st.sampled_from(["", " ", "\n", "\t ", "\x0c", "\u00a0"]),
        st.sampled_from([*STRINGS, *WORDS, *NUMBERS]),
        st.sampled_from(["", ",", " ,"]),
    ),
    max_size=4,
)


@settings(PLAIN, max_examples=500)
@given(FLAT)
def test_a_flat_object_reads_by_itself_as_it_does_within_a_list(
    members: list[tuple[str, str, str, str]],
) -> None:
    inner = "".join(f"{name}{gap}:{value}{gap}{comma}" for name, gap, value, comma in members)
    text = "{" + inner.removesuffix(",") + "}"
    assert read(text) == read(f"[{text}]")


def read(text: str) -> object:
    """What a reader makes of a text, without the list around it."""
    try:
        document = parse(text)
    except NotJson as error:
        return error.reason, error.oddities
    value, levels = document.value, document.levels
    if isinstance(value, list):
        value, levels = value[0], levels - 1
    return repr(value), document.oddities, levels
