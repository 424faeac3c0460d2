"""Checks and requirements name each other, both ways."""

from __future__ import annotations

import pytest
import utterwire_conformance.runner  # noqa: F401 - importing it registers everything
from utterwire_conformance.check import CHECKS, check, settle
from utterwire_conformance.client_half import SCRIPTS
from utterwire_conformance.judging import chosen_checks
from utterwire_conformance.requirements import requirements
from utterwire_conformance.stage import SCENARIOS, scenario
from utterwire_conformance.verdict import Judgement, Verdict, fail, not_exercised, passed, worst


def test_every_check_is_in_the_requirements_and_the_other_way_round() -> None:
    named = {name: row.id for row in requirements() for name in row.checks}
    assert named == {row.id: row.requirement for row in CHECKS.values()}


def test_scripts_and_checks_of_clients_serve_each_other() -> None:
    used = {name for row in chosen_checks(role="client") for name in row.scenarios}
    assert used <= set(SCRIPTS)
    # What no check names is there for those that look at everything.
    assert set(SCRIPTS) - used == {"client-http-errors", "client-http-full"}


def test_no_requirement_is_left_without_a_check() -> None:
    """Of no role and no profile: what has none is excluded, and a test elsewhere covers it."""
    assert [row.id for row in requirements() if row.todo] == []
    assert [row.id for row in requirements() if not row.checks and row.covered_by is None] == []


def test_every_check_names_scenarios_that_there_are() -> None:
    for row in chosen_checks(role="endpoint"):
        assert row.scenarios, row.id
        assert set(row.scenarios) <= set(SCENARIOS), row.id


def test_every_scenario_serves_a_check() -> None:
    assert {name for row in chosen_checks(role="endpoint") for name in row.scenarios} == set(
        SCENARIOS
    )


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="two checks"):
        check("order.fifo", "order")(lambda _: passed())

    async def order(_: object) -> None: ...

    with pytest.raises(ValueError, match="two scenarios"):
        scenario()(order)


def test_the_worst_decides() -> None:
    bad, good, unseen = fail("bad"), passed(), not_exercised("unseen")
    assert worst([good, bad, unseen]) is bad
    assert worst([unseen, good]) is good
    assert settle([unseen, good], [], "") == good
    assert settle([unseen], [], "").reason == "unseen"
    assert settle([], [], "nothing").reason == "nothing"
    with pytest.raises(ValueError, match="no judgement"):
        worst([])


def test_a_recommendation_is_weak_at_worst() -> None:
    assert fail("bad").weakened().verdict is Verdict.WEAK
    assert passed().weakened().verdict is Verdict.PASS
    assert Judgement(Verdict.WEAK).verdict.judged
    assert not Verdict.HARNESS_ERROR.judged
