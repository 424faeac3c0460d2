"""Fuzzing live endpoints: good ones, ones with a planted bug, ones that go away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.endpoints import Budget, Endpoint, Timeouts
from utterwire_conformance.fuzz import FuzzPlan, FuzzResults, broken, fuzz
from utterwire_conformance.fuzz.plan import Kind
from utterwire_conformance.runner import Options, run_checks
from utterwire_conformance.stage import Meter, Pace
from utterwire_conformance.target import Target
from utterwire_conformance.transcript import Transcript
from utterwire_conformance.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).parent / "peers"
# A machine under load may halt for seconds; only what is missing is waited for.
PACE = Pace(connect=10.0, first=6.0, stall=6.0)
PROFILES = ("core", "http", "interrupt", "negotiate")


def paths() -> str:
    return os.pathsep.join([*(str(ROOT / part) for part in ("schemas", "conformance")), str(PEERS)])


@pytest.fixture(autouse=True)
def _peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", paths())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # One that has done its work may still be about to end.
    for thread in set(threading.enumerate()) - before:
        thread.join(60.0)
        assert not thread.is_alive(), thread.name


def endpoint(bug: str | None = None) -> Endpoint:
    module = ("-m", "spec_peer") if bug is None else ("-m", "buggy_peer", bug)
    return Endpoint(
        "peer",
        launch=(sys.executable, *module, "--host", "127.0.0.1", "--port", "{port}"),
        ready_url="http://127.0.0.1:{port}/ping",
        claims=EndpointClaims(frozenset(PROFILES), max_waiting=11, max_request_id_chars=200),
    )


def plan(examples: int, *kinds: Kind, shrink_s: float = 150.0) -> FuzzPlan:
    """One finding, and by default time enough to make it as small as it gets."""
    chosen: tuple[Kind, ...] = kinds or ("sessions", "messages", "http")
    return FuzzPlan(None, examples, kinds=chosen, findings=1, shrink_s=shrink_s)


async def fuzzed(subject: Endpoint, examples: int, *kinds: Kind) -> FuzzResults:
    async with Target(subject) as target:
        return await fuzz(target, plan(examples, *kinds), pace=PACE, meter=Meter(subject.budget))


async def test_nothing_is_found_where_nothing_is_wrong() -> None:
    results = await fuzzed(endpoint(), 8)
    assert results.findings == []
    assert {name: kind.verdict for name, kind in results.kinds.items()} == dict.fromkeys(
        ("sessions", "messages", "http"), Verdict.PASS
    )
    assert results.examples == 24
    assert results.stopped == "every program was played"
    assert results.sessions > 24
    assert sum(results.cells.values()) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "kind", "steps"),
    [
        ("third-rejection-ends", "messages", 3),
        ("ping-forgets-fragments", "sessions", 1),
    ],
)
async def test_a_planted_bug_is_found_and_made_small(bug: str, kind: Kind, steps: int) -> None:
    results = await fuzzed(endpoint(bug), 60, kind)
    assert results.kinds[kind].verdict is Verdict.FAIL
    (finding,) = results.findings
    assert len(finding.program.steps) <= steps
    assert finding.again == finding.tries > 0
    assert finding.requirement in broken(finding.transcript)


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "utterwire_conformance", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": paths()},
    )


TABLE = """
[endpoint.{name}]
launch = ["{{python}}", {module}, "--host", "127.0.0.1", "--port", "{{port}}"]
ready_url = "http://127.0.0.1:{{port}}/ping"
profiles = ["core", "http", "interrupt", "negotiate"]
"""


@pytest.mark.slow
async def test_a_finding_is_played_again_from_its_file(tmp_path: Path) -> None:
    results = await fuzzed(endpoint("third-rejection-ends"), 20, "messages")
    (finding, *_) = results.findings
    finding.told().save(tmp_path / "finding.jsonl")
    assert finding.requirement in broken(Transcript.load(tmp_path / "finding.jsonl"))
    (tmp_path / "endpoints.toml").write_text(
        TABLE.format(name="good", module='"-m", "spec_peer"')
        + TABLE.format(name="bad", module='"-m", "buggy_peer", "third-rejection-ends"')
    )
    again = await asyncio.to_thread(
        command, "replay", "finding.jsonl", "--endpoint", "bad", cwd=tmp_path
    )
    assert again.returncode == 1, again.stdout + again.stderr
    assert finding.requirement in again.stdout
    mended = await asyncio.to_thread(
        command, "replay", "finding.jsonl", "--endpoint", "good", cwd=tmp_path
    )
    assert mended.returncode == 0, mended.stdout + mended.stderr


async def test_the_budget_ends_it() -> None:
    poor = replace(endpoint(), budget=Budget(sessions=12))
    results = await fuzzed(poor, 50, "sessions")
    assert results.stopped == "the budget of 12 sessions is spent"
    assert results.sessions <= 12
    assert results.findings == []


async def test_an_endpoint_of_one_session_gets_one_at_a_time() -> None:
    narrow = replace(endpoint(), max_concurrent_sessions=1)
    results = await fuzzed(narrow, 6, "sessions", "messages")
    assert results.findings == []
    assert results.examples == 12


async def test_an_endpoint_that_is_gone_is_not_taken_for_good() -> None:
    gone = Endpoint("gone", url="ws://127.0.0.1:9/invocations-bidirectional-stream")
    results = await fuzzed(gone, 5, "sessions", "http")
    assert results.kinds["sessions"].verdict is Verdict.HARNESS_ERROR
    assert "refused" in results.kinds["sessions"].reason
    assert "http" not in results.kinds  # It is not claimed.


class Watched(Meter):
    """Tells when the first session is asked for."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.opened = asyncio.Event()

    async def spend(self, *, characters: int = 0, sessions: int = 0) -> None:
        self.opened.set()
        await super().spend(characters=characters, sessions=sessions)


async def test_it_can_be_broken_off() -> None:
    async with Target(endpoint()) as target:
        endless = FuzzPlan(seconds=600.0)
        meter = Watched(Budget())
        running = asyncio.create_task(fuzz(target, endless, pace=PACE, meter=meter))
        await meter.opened.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.slow
async def test_findings_turn_requirements_red() -> None:
    """Also those whose own scenarios saw nothing wrong."""
    options = Options(pace=PACE, fuzz=plan(60, "messages", shrink_s=2.0))
    subject = Target(endpoint("deep-json-crashes"))
    async with asyncio.timeout(120):
        results = await run_checks(subject, ["reject.session_survives"], options)
    assert results.fuzz is not None
    (finding, *_) = results.fuzz.findings
    assert results.transcripts[finding.scenario].scenario == finding.scenario
    # It took the process down, which was started anew each time.
    assert finding.again == finding.tries > 0
    assert "status 3" in str(finding.transcript.unfinished)
    judgement = results.judgements["reject.session_survives"]
    assert judgement.verdict is Verdict.FAIL
    assert judgement.scenarios == (finding.scenario,)


async def test_where_nothing_is_spoken_nothing_is_fuzzed() -> None:
    silent = replace(endpoint(), launch=(sys.executable, str(PEERS / "silent_peer.py"), "{port}"))
    hasty = replace(silent, timeouts=Timeouts(ready_s=20.0, first_byte_s=0.3, stall_s=0.3))
    results = await run_checks(Target(hasty), ["ws.path"], Options(fuzz=FuzzPlan(5.0)))
    assert results.fuzz is not None
    assert results.fuzz.kinds["sessions"].verdict is Verdict.NOT_EXERCISED
