"""What of the suite is wanted: globs, and the scenarios of a quick look."""

from __future__ import annotations

import pytest
from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import Endpoint
from utterwire_conformance.requirements import requirements
from utterwire_conformance.runner import Options, run_checks
from utterwire_conformance.selection import QUICK_SCENARIOS, Selection
from utterwire_conformance.stage import SCENARIOS, Pace
from utterwire_conformance.target import Target
from utterwire_conformance.verdict import Verdict

ROWS = [row for row in requirements() if row.role == "endpoint"]


@pytest.mark.parametrize(
    ("patterns", "few"),
    [
        ((), {"order.fifo", "audio.streamed", "http.ping"}),
        (("order.fifo",), {"order.fifo"}),
        (("audio.[sw]*", "order.fifo"), {"order.fifo", "audio.streamed", "audio.whole-samples"}),
        (("*-accepted-nowhere",), set()),
    ],
)
def test_globs(patterns: tuple[str, ...], few: set[str]) -> None:
    admitted = {row.id for row in ROWS if Selection(patterns).admits(row)}
    assert admitted >= few
    assert not patterns or all(
        name.startswith(("order.fifo", "audio.s", "audio.w")) for name in admitted
    )


def test_a_pattern_that_matches_nothing_is_told() -> None:
    assert Selection(("order.*", "nothing.*")).idle(ROWS) == ["nothing.*"]
    assert Selection(("order.Fifo",)).idle(ROWS) == ["order.Fifo"]


def test_a_quick_look_waits_for_no_limit_and_speaks_no_long_text() -> None:
    assert set(SCENARIOS) >= QUICK_SCENARIOS
    for name in QUICK_SCENARIOS:
        scenario = SCENARIOS[name]
        assert not scenario.heavy
        assert not scenario.long
        assert not scenario.launches


async def test_what_a_quick_look_leaves_out_is_never_green() -> None:
    # Nobody listens there; the verdicts show what would have been played.
    target = Target(Endpoint("x", url="ws://127.0.0.1:1", http_url="http://127.0.0.1:1"))
    names = ["audio.streamed", "order.fifo"]
    options = Options(pace=Pace(connect=0.5), selection=Selection(quick=True))
    results = await run_checks(target, names, options)
    assert results.judgements["audio.streamed"].verdict is Verdict.NOT_EXERCISED
    assert results.judgements["audio.streamed"].reason == "left out by --quick"
    assert results.judgements["order.fifo"].verdict is Verdict.HARNESS_ERROR
    played = set(results.transcripts)
    assert played == QUICK_SCENARIOS & {s for name in names for s in CHECKS[name].scenarios}
