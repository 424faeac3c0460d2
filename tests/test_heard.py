"""What `scripts/heard.py` makes of measurements."""

from __future__ import annotations

import copy
from typing import Any

import heard
import pytest
from utterwire_client.listening.answer import read_answers
from utterwire_schemas import schema


@pytest.fixture
def document() -> dict[str, Any]:
    """The example of the schema, with an interruption."""
    example: dict[str, Any] = copy.deepcopy(schema("latency")["examples"][1])
    figures = example["heard"][0]["figures"]
    figures["silence_s"] = dict.fromkeys(("median", "q1", "q3", "least", "most"), 0.03)
    figures["silence_s"]["count"] = 1
    return example


def test_goals_that_are_met(document: dict[str, Any]) -> None:
    found = heard.goals([document, document])
    assert all(goal["met"] for goal in found.values())
    assert found["byte_to_heard_s, medians"] == {"most": 0.06, "worst": 0.05, "met": True}


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"byte_to_heard_s": {"median": 0.061, "most": 0.07}}, {"byte_to_heard_s, medians"}),
        ({"silence_s": {"median": 0.05, "most": 0.051}}, {"silence_s, every run"}),
        ({"silence_s": None}, {"silence_s, medians", "silence_s, every run"}),
        ({"underruns": {"median": 0, "most": 1}}, {"underruns, every run"}),
    ],
)
def test_goals_that_are_missed(
    document: dict[str, Any], change: dict[str, Any], missed: set[str]
) -> None:
    document["heard"][0]["figures"] |= change
    found = heard.goals([document])
    assert {name for name, goal in found.items() if not goal["met"]} == missed


def test_runs_that_were_altered_or_failed(document: dict[str, Any]) -> None:
    document["heard"][0] |= {"count": 3, "exact": 1, "failures": ["it broke off"]}
    found = heard.goals([document])
    assert found["runs not rendered as they came"]["worst"] == 2
    assert found["runs that failed"]["worst"] == 1
    assert not heard.goals([{**document, "heard": []}])["runs not rendered as they came"]["met"]


def test_whether_it_repeats(document: dict[str, Any]) -> None:
    other = copy.deepcopy(document)
    found = heard.agreement([document, other])
    assert (found["apart"], found["agree"]) == ([], found["medians"])
    other["heard"][0]["figures"]["heard_s"]["median"] *= 1.5
    other["heard"][0]["figures"]["gaps"]["median"] = 1
    apart = heard.agreement([document, other])["apart"]
    assert [(it["figure"], it["apart"]) for it in apart] == [("heard_s", 0.4), ("gaps", 2.0)][::-1]


def test_what_is_listened_to_has_each_kind_of_answer() -> None:
    answers = read_answers(heard.ANSWERS)
    assert [answer.name for answer in answers] == ["short", "long", "with pauses", "interrupted"]
    assert [len(answer.parts) > 1 for answer in answers] == [False, False, True, False]
    assert [answer.interrupt_after_s is not None for answer in answers] == [False] * 3 + [True]
