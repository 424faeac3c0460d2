"""No fault survives: each of them turns the checks red that it should, and every check finds one.

The whole matrix takes a minute or two and is marked slow. With `UTTERWIRE_FAULT_MATRIX` in the
environment it is written to that file.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.faults import FAULTS, Fault
from utterwire_conformance.faults.matrix import Matrix, run_behind, run_matrix
from utterwire_conformance.runner import Results
from utterwire_conformance.stage import Pace
from utterwire_conformance.target import Target
from utterwire_conformance.verdict import Verdict, fail, passed

ENDPOINTS = [find_endpoint("reference"), find_endpoint("reference-core")]
# Nothing is waited for in vain without a fault, so that a machine that halts for seconds may.
_PATIENT = Pace(connect=30.0, first=30.0, stall=30.0)
# One of each kind: a message refused, accepted, rewritten; chunks changed, moved, held; frames,
# handshakes, closing, HTTP.
SAMPLE = (
    "null-fields-refused",
    "blank-text-accepted",
    "text-ignored",
    "seq-from-zero",
    "second-first",
    "samples-split",
    "compression-negotiated",
    "pongs-empty",
    "closes-after-utterance",
    "http-errors-as-500",
)


def run(faults: list[Fault]) -> Matrix:
    return asyncio.run(run_matrix(ENDPOINTS, faults, at_a_time=6))


@pytest.fixture(scope="module")
def sample() -> Matrix:
    return run([FAULTS[name] for name in SAMPLE])


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_found(sample: Matrix, name: str) -> None:
    assert sample.judgements[name]
    assert name not in sample.survivors, sample.survivors[name]


def selected(items: list[pytest.Item]) -> list[Fault]:
    """The faults that the tests to be run ask for: all, or those chosen by name."""
    names: set[str] = set()
    for item in items:
        if "matrix" not in getattr(item, "fixturenames", ()):
            continue
        callspec = getattr(item, "callspec", None)
        names |= set(FAULTS) if callspec is None else {callspec.params["name"]}
    return [fault for fault in FAULTS.values() if fault.name in names]


def test_one_check_of_a_requirement_is_enough_to_find_a_fault() -> None:
    both = {"accept.defaults": passed(), "accept.defaults_kept": passed()}
    found = both | {"accept.defaults_kept": fail("kept")}
    other = {"order.fifo": fail("mixed"), "accept.defaults": passed()}
    matrix = Matrix({"missed": both, "found": found, "half": other})
    assert matrix.survivors == {"missed": both, "half": {"accept.defaults": passed()}}


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Matrix:
    found = run(selected(request.session.items))
    path = os.environ.get("UTTERWIRE_FAULT_MATRIX")
    if path:
        text = json.dumps(found.to_json(), indent=1, sort_keys=True)
        Path(path).write_text(text + "\n", encoding="utf-8")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found(matrix: Matrix, name: str) -> None:
    assert matrix.judgements[name], "no check judges what this fault breaks"
    assert name not in matrix.survivors, matrix.survivors[name]


@pytest.mark.slow
def test_every_check_finds_a_fault(matrix: Matrix) -> None:
    judged = {
        check.id
        for check in CHECKS.values()
        if any(check.requirement in fault.breaks for fault in FAULTS.values())
    }
    assert matrix.found == judged == set(CHECKS)


@pytest.mark.slow
def test_without_a_fault_everything_passes() -> None:
    async def through_the_proxy() -> Results:
        async with Target(ENDPOINTS[0]) as target:
            assert target.main is not None
            everything = list(CHECKS)
            return await run_behind(ENDPOINTS[0], target.main, None, everything, pace=_PATIENT)

    results = asyncio.run(through_the_proxy())
    odd = {
        check: (judgement.verdict, judgement.reason)
        for check, judgement in results.judgements.items()
        if judgement.verdict is not Verdict.PASS
    }
    # The reference claims every profile with messages of its own.
    assert odd.keys() == {"reject.unclaimed_types"}, odd
