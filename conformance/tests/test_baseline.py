"""Files of known failures: exact, explained, and readable again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.baseline import Baseline, BaselineError
from utterwire_conformance.requirements import requirements

IDS = sorted(row.id for row in requirements() if row.role == "endpoint")
CLIENT_ID = next(row.id for row in requirements() if row.role == "client")


def write(folder: Path, text: str, name: str = "known.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


GOOD = """
utterwire_baseline = 1

[[known]]
requirement = "queue.full"
reason = "The queue is unbounded."
"""


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    document = {
        "utterwire_baseline": 1,
        "known": [{"requirement": "queue.full", "reason": "The queue is unbounded."}],
    }
    one = Baseline.load(write(tmp_path, GOOD))
    other = Baseline.load(write(tmp_path, json.dumps(document), "known.json"))
    assert one.reasons == other.reasons == {"queue.full": "The queue is unbounded."}
    assert one.source == "known.toml"
    assert "queue.full" in one
    assert "order.fifo" not in one


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@given(
    reasons=st.dictionaries(
        st.sampled_from(IDS),
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text.strip()),
        max_size=5,
    )
)
@settings(derandomize=True, max_examples=60, deadline=None)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, reasons: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("baseline") / f"known{suffix}"
    Baseline(reasons).save(path)
    assert Baseline.load(path).reasons == reasons


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (GOOD.replace("queue.full", "queue.fuller"), "k.toml", "is called queue.fuller"),
        (GOOD.replace("queue.full", CLIENT_ID), "k.toml", f"is called {CLIENT_ID}"),
        (GOOD.replace("The queue is unbounded.", " "), "k.toml", "known[0].reason"),
        (GOOD.replace("= 1", "= 2"), "k.toml", "utterwire_baseline"),
        (GOOD + GOOD.partition("1\n")[2], "k.toml", "queue.full is listed twice"),
        (GOOD.replace("reason", "because"), "k.toml", "known[0]"),
        ("nonsense", "k.toml", "not TOML"),
        ("[" * 100_000, "k.json", "not JSON"),
        ("[]", "k.json", "the file"),
        ("{}", "k.json", "the file"),
    ],
)
def test_a_wrong_file_is_told_in_a_line(tmp_path: Path, text: str, name: str, words: str) -> None:
    path = write(tmp_path, text, name)
    with pytest.raises(BaselineError) as caught:
        Baseline.load(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert words in said
    assert "\n" not in said


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="cannot be read"):
        Baseline.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BaselineError, match="not UTF-8"):
        Baseline.load(tmp_path / "bytes.toml")


def test_reasons_that_were_given_are_kept_and_the_others_asked_for() -> None:
    before = Baseline({"queue.full": "We know."})
    made = Baseline.of_failures(
        [("queue.full", "x"), ("order.fifo", "Two\nlines."), ("a.b", "")], before
    )
    assert made.reasons["queue.full"] == "We know."
    assert made.reasons["order.fifo"] == "not explained yet: Two lines."
    assert made.reasons["a.b"].startswith("not explained yet: ")


def test_no_entry_without_a_reason() -> None:
    with pytest.raises(ValueError, match=r"queue\.full"):
        Baseline({"queue.full": " "})
