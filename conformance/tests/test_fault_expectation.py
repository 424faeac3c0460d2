"""What is expected of faults, as data."""

from __future__ import annotations

from typing import Any

import pytest
from utterwire_conformance.faults.expectation import (
    Difference,
    Expectation,
    expectations,
    from_json,
    to_text,
)

ONE = Expectation(
    "reference", frozenset({"b", "a"}), ("y", "x"), {"c": "Both are right."}, frozenset({"e"})
)


def test_what_is_written_is_read_again() -> None:
    import json

    assert from_json(json.loads(to_text({"one": ONE}))) == {
        "one": Expectation("reference", ONE.red, ("x", "y"), ONE.may, ONE.also)
    }


def test_the_file_is_written_as_it_is_read() -> None:
    from importlib.resources import files

    text = (files("utterwire_conformance.faults") / "expected.json").read_text(encoding="utf-8")
    assert to_text(expectations()) == text


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"red": frozenset()}, "no check"),
        ({"may": {"a": "Both."}}, "both must and may"),
        ({"may": {"c": " "}}, "no reason"),
        ({"may": {"b": "Both."}, "also": frozenset({"b"})}, "both must and may"),
        ({"also": frozenset({"a"})}, "besides"),
    ],
)
def test_an_expectation_that_is_none_is_refused(change: dict[str, Any], match: str) -> None:
    given = {"endpoint": "reference", "red": frozenset({"a"}), "play": (), "may": {}}
    with pytest.raises(ValueError, match=match):
        Expectation(**(given | change))


def test_a_document_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 1"):
        from_json({"version": 2, "faults": {}})


def test_a_difference_reads_as_a_sentence() -> None:
    found = Difference.between("one", {"a", "c", "d"}, ONE)
    assert found
    assert str(found) == (
        "one: expected to turn red, and did not: b; turned red, and was not expected to: d"
    )
    assert str(Difference.between("one", {"a", "b"}, ONE)) == "one: as expected"
    assert str(Difference.between("one", {"a", "b", "e"}, ONE, whole=True)) == "one: as expected"
    assert Difference.between("one", {"a", "b"}, ONE, whole=True).missing == ("e",)


def test_of_several_runs_only_what_differs_each_time_is_a_difference() -> None:
    first = Difference("one", ("a", "b"), ("d",))
    second = Difference("one", ("b",), ("e",))
    assert first & second == Difference("one", ("b",))
    assert (len(first), len(second), len(first & second)) == (3, 2, 1)
    assert not first & Difference("one", (), ("e",))
