"""The JSON reader that holds the vectors, against the one of the standard library."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

# Lone surrogates cannot be encoded; the vectors have them, written out.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(10**16), 10**16) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from("{}[],:\"\\1-0.e+é'/ \n\x00\u00a0") | st.sampled_from(
    ['"a"', "NaN", "true", "null", "\\u00e9", "\\ud800"]
)


def plain(value: Any) -> Any:
    """Objects of the reader as dictionaries."""
    if isinstance(value, list):
        if type(value) is not list:
            return {name: plain(inner) for name, inner in value}
        return [plain(inner) for inner in value]
    return value


@settings(derandomize=True, max_examples=150, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_reads_what_was_written(
    rules: Any, value: Any, ascii_only: bool, indent: int | None
) -> None:
    reading = rules.read_json(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert not reading.failed
    assert plain(reading.value) == value
    odd = reading.duplicates or reading.long or reading.infinite or reading.surrogates
    assert not odd


def refuse(name: str) -> None:
    raise ValueError(name)


@settings(derandomize=True, max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=9).map("".join))
def test_fails_where_others_fail(rules: Any, text: str) -> None:
    try:
        expected = json.loads(text, parse_constant=refuse)
    except ValueError:
        assert rules.read_json(text).failed
    else:
        assert plain(rules.read_json(text).value) == expected
