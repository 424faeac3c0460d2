"""Each fault turns red the checks that are expected of it, and no others.

The whole matrix plays, for each fault, the scenarios that show what is expected, and judges by
every check; it takes minutes and is marked slow. `scripts/fault_matrix.py` plays everything.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.faults import FAULTS, Fault, Oddity
from utterwire_conformance.faults.expectation import (
    NARROW,
    Difference,
    Expectation,
    expectations,
    from_json,
)
from utterwire_conformance.faults.matrix import (
    Plan,
    Row,
    place_of,
    run_baseline,
    run_matrix,
    run_row,
)
from utterwire_conformance.judging import chosen_checks
from utterwire_conformance.stage import SCENARIOS, Pace
from utterwire_conformance.target import Target
from utterwire_conformance.verdict import Verdict, fail, not_exercised, passed

ROOT = Path(__file__).parents[2]
ENDPOINTS = [find_endpoint("reference"), find_endpoint("reference-core")]
EXPECTED = expectations()
# Nothing is waited for in vain without a fault, so that a machine that halts for seconds may.
_PATIENT = Pace(connect=30.0, first=30.0, stall=30.0)
# One of each kind: a message refused, accepted, rewritten; chunks changed, moved, held; frames,
# handshakes, closing, HTTP.
SAMPLE = (
    "null-fields-refused",
    "blank-text-accepted",
    "text-ignored",
    "second-first",
    "samples-split",
    "compression-negotiated",
    "pongs-empty",
    "closes-after-utterance",
    "http-errors-as-500",
    "unclaimed-type-accepted",
)


def showing(fault: Fault | Oddity) -> tuple[str, ...]:
    return EXPECTED[fault.name].play


def run(faults: list[Fault]) -> dict[str, Row]:
    return asyncio.run(run_matrix(ENDPOINTS, faults, Plan(scenarios=showing, faults=4)))


def confirmed(row: Row) -> Row:
    """The row; one that differs is played once more, by itself: a busy machine can do that."""
    return run([FAULTS[row.fault]])[row.fault] if row.against(EXPECTED[row.fault]) else row


@pytest.fixture(scope="module")
def sample() -> dict[str, Row]:
    return run([FAULTS[name] for name in SAMPLE])


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_found_as_expected(sample: dict[str, Row], name: str) -> None:
    difference = confirmed(sample[name]).against(EXPECTED[name])
    assert not difference, str(difference)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_fault_is_found_as_expected(tmp_path: Path) -> None:
    # Several processes at a time; what differs is played again, alone.
    command = [sys.executable, str(ROOT / "scripts" / "fault_matrix.py"), "--stored"]
    out = tmp_path / "matrix.json"
    environment = dict(os.environ)
    if environment.pop("COVERAGE_PROCESS_CONFIG", None) is not None:
        environment["COVERAGE_PROCESS_START"] = str(Path(__file__).parent / "faults_coverage.toml")
    done = subprocess.run(
        [*command, "--jobs", "4", "--out", str(out)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    assert json.loads(out.read_text("utf-8"))["faults"] == len(FAULTS)


# --- What is expected ------------------------------------------------------------------------


def test_something_is_expected_of_every_fault_and_of_nothing_else() -> None:
    assert set(EXPECTED) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_expected_can_be(name: str) -> None:
    expected, fault = EXPECTED[name], FAULTS[name]
    assert expected.all_red | expected.may.keys() <= CHECKS.keys()
    assert set(expected.play) <= SCENARIOS.keys()
    assert expected.endpoint == ENDPOINTS[place_of(fault, ENDPOINTS)].name
    broken = {CHECKS[check].requirement for check in expected.red}
    assert broken.issuperset(fault.breaks), "a rule it breaks stays green"


def test_every_check_has_a_narrow_fault() -> None:
    few = [each.all_red for each in EXPECTED.values() if len(each.all_red) <= NARROW]
    narrow = frozenset().union(*few)
    assert {check.id for check in chosen_checks()} - narrow == set()


# --- The machinery ---------------------------------------------------------------------------


def test_a_row_is_compared_both_ways() -> None:
    judgements = {
        "order.fifo": fail("mixed"),
        "audio.speed": fail("slow").weakened(),
        "accept.defaults": passed(),
        "http.ping": not_exercised("no ping"),
    }
    row = Row("a-fault", "reference", judgements, ("order",))
    assert row.red == {"order.fifo", "audio.speed"}
    exact = Expectation("reference", frozenset(row.red), ("order",))
    assert not row.against(exact)
    more = Expectation("reference", row.red | {"accept.defaults"}, ("order",))
    assert row.against(more).missing == ("accept.defaults",)
    fewer = Expectation("reference", frozenset({"order.fifo"}), ("order",))
    assert row.against(fewer).unexpected == ("audio.speed",)
    free = Expectation("reference", frozenset({"order.fifo"}), ("order",), {"audio.speed": "why"})
    assert not row.against(free)
    besides = replace(fewer, also=frozenset({"audio.speed", "accept.defaults"}))
    assert not row.against(besides)
    whole = Difference.between("a-fault", row.red, besides, whole=True)
    assert whole.missing == ("accept.defaults",)


@pytest.mark.parametrize(
    ("missing", "unexpected", "written"),
    [
        ((), (), None),
        ((), ("c",), Expectation("reference", frozenset("a"), ("order",), also=frozenset("bc"))),
        (("b",), (), Expectation("reference", frozenset("a"), ("order",))),
        (
            ("a",),
            ("c",),
            Expectation("reference", frozenset("c"), ("close",), also=frozenset("b")),
        ),
    ],
)
def test_an_update_takes_over_what_showed_each_time_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    missing: tuple[str, ...],
    unexpected: tuple[str, ...],
    written: Expectation | None,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("fault_matrix")
    file = tmp_path / "expected.json"
    monkeypatch.setattr(script, "EXPECTED", file)
    known = Expectation("reference", frozenset("a"), ("order",), also=frozenset("b"))
    # What was red in one of the runs only stands in its row.
    red = {"a": "", "c": "", "by chance": ""}
    row = {"endpoint": "reference", "red": red, "broken": {}, "cover": ["close"]}
    found = {"one": Difference("one", missing, unexpected)}
    assert script.update({"one": row}, found, {"one": known}, yes=True, partial=True) == 0
    if written is None:
        assert not file.exists()
    else:
        assert from_json(json.loads(file.read_text("utf-8"))) == {"one": written}


def test_an_update_does_not_expect_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("fault_matrix")
    file = tmp_path / "expected.json"
    monkeypatch.setattr(script, "EXPECTED", file)
    known = Expectation("reference", frozenset("a"), ("order",), {"b": "a consequence"})
    row = {"endpoint": "reference", "red": {"b": ""}, "broken": {}, "cover": ["close"]}
    found = {"one": Difference("one", ("a",))}
    assert script.update({"one": row}, found, {"one": known}, yes=True, partial=True) == 2
    assert "one was not found each time" in capsys.readouterr().err
    assert not file.exists()


def test_who_could_not_judge_is_not_as_expected() -> None:
    broken = fail("it died")
    judgements = {
        "order.fifo": fail("mixed"),
        "http.ping": type(broken)(Verdict.HARNESS_ERROR, "it died"),
    }
    row = Row("a-fault", "reference", judgements, ("order",))
    assert row.broken == {"http.ping"}
    assert row.to_json()["broken"] == {"http.ping": "it died"}
    assert row.against(Expectation("reference", row.red, ())).unexpected == ("http.ping",)


def test_a_fault_that_no_endpoint_shows_is_refused() -> None:
    hidden = FAULTS["unclaimed-type-accepted"]
    with pytest.raises(ValueError, match="none of the endpoints"):
        place_of(hidden, ENDPOINTS[:1])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_a_fault_nothing_is_red_and_a_fault_plays_what_it_touches() -> None:
    async def play() -> Row:
        async with Target(ENDPOINTS[0]) as target:
            assert target.main is not None
            plan = Plan(rounds=1, pace=_PATIENT)
            baseline = await run_baseline(ENDPOINTS[0], target.main, plan)
            return await run_row(
                ENDPOINTS[0], target.main, FAULTS["null-type-refused"], plan, baseline
            )

    row = asyncio.run(play())
    expected = EXPECTED["null-type-refused"]
    assert row.red == expected.red
    assert len(row.played) < len(SCENARIOS) / 4
    assert set(row.cover) <= set(row.played)
