"""The client half of the suite, on clients that are good and on clients that break one rule."""

from __future__ import annotations

import asyncio
import json
import selectors
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

import pytest
from utterwire_conformance.check import Account
from utterwire_conformance.client_half.contract import PROFILES_OF_CLIENTS, Client
from utterwire_conformance.client_half.run import run_client
from utterwire_conformance.client_half.subject import Outcome, Subject
from utterwire_conformance.judging import chosen_checks
from utterwire_conformance.runner import Results
from utterwire_conformance.verdict import Verdict

T = TypeVar("T")

_MOST_OVER_S = 0.1

CLIENTS = Path(__file__).parent / "peers" / "clients"
EXPECTED = CLIENTS / "expected.json"
CHECKS_OF_CLIENTS = {check.id for check in chosen_checks(role="client")}
RED = (Verdict.FAIL, Verdict.WEAK, Verdict.HARNESS_ERROR)


def _load(name: str) -> Any:
    spec = spec_from_file_location(name, CLIENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Its dataclasses look for their module there.
    import sys

    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


good_client = _load("good_client")


class Hosted:
    """A client of `good_client` that runs in this process: a `Subject` that costs no start."""

    def __init__(self, faults: frozenset[str], values: Mapping[str, str]) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._audio = bytearray()
        self._events: list[str] = []
        self._more = asyncio.Event()
        client = good_client.GoodClient(
            values["url"],
            values["profile"],
            float(values["deadline_s"]),
            self._lines,
            self._write,
            lambda event: self._events.append(json.dumps(event)),
            faults,
        )
        self._task: asyncio.Task[int] = asyncio.create_task(client.run())

    def _write(self, data: bytes) -> None:
        self._audio += data
        self._more.set()

    async def say(self, line: str) -> None:
        await self._lines.put(line)

    async def end_input(self) -> None:
        await self._lines.put(None)

    async def heard(self, at_least: int, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                while len(self._audio) < at_least:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            return False
        return True

    async def finish(self, within: float) -> Outcome:
        await asyncio.wait({self._task}, timeout=within)
        if not self._task.done():
            return await self.kill(f"it was still running after {within:g} s")
        status = 1 if self._task.exception() is not None else self._task.result()
        return self._outcome(status, None)

    async def kill(self, why: str) -> Outcome:
        self._task.cancel()
        await asyncio.wait({self._task})
        return self._outcome(None, why)

    def _outcome(self, status: int | None, killed: str | None) -> Outcome:
        return Outcome(status, killed, bytes(self._audio), "\n".join(self._events))


def hosting(*faults: str) -> Any:
    async def launch(client: Client, values: Mapping[str, str]) -> Subject:
        return Hosted(frozenset(faults), values)

    return launch


class _Waits(selectors.DefaultSelector):
    """Counts the time in which there was nothing to do, and of that no more than was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0
        self._over_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        began = time.monotonic()
        if timeout is None or timeout > self._over_s:
            ready = super().select(timeout and timeout - self._over_s)
        took = time.monotonic() - began + self._over_s
        counted = took if timeout is None else min(took, timeout)
        self.waited_s += counted
        # A little too long, as each wait is, is made up for in the next: hundreds a second end.
        self._over_s = min(took - counted, _MOST_OVER_S)
        return ready


class WaitingTime(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while anything runs, or holds up the machine.

    Endpoint and client are both in it: what each does takes no time, and what it waits for, as
    much as it says. So no wait is judged by how busy the machine was.
    """

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.waited_s


GOOD = Client("good", ("good", "{url}", "{deadline_s}"), frozenset(PROFILES_OF_CLIENTS))


async def judge(*faults: str) -> Results:
    return await run_client(GOOD, launcher=hosting(*faults), players=24, limit_s=15.0)


async def judge_all(faults: Iterable[str]) -> dict[str, Results]:
    # A few at a time: each plays dozens of scripts, most of which wait.
    places = asyncio.Semaphore(3)

    async def one(fault: str) -> Results:
        async with places:
            return await judge(fault)

    async with asyncio.TaskGroup() as group:
        judging = {fault: group.create_task(one(fault)) for fault in faults}
    return {fault: task.result() for fault, task in judging.items()}


def by_waiting_time(judging: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=WaitingTime) as runner:
        return runner.run(judging)


def red(results: Results) -> list[str]:
    return sorted(name for name, j in results.judgements.items() if j.verdict in RED)


def test_a_client_that_keeps_the_rules_passes_every_check() -> None:
    results = by_waiting_time(judge())
    assert results.unreachable is None
    assert {name: j.reason for name, j in results.judgements.items() if j.verdict in RED} == {}
    unseen = [n for n, j in results.judgements.items() if j.verdict is not Verdict.PASS]
    assert unseen == []
    assert set(results.judgements) == CHECKS_OF_CLIENTS


def test_no_beginning_of_a_transcript_confounds_a_judge() -> None:
    """Where a rule broke is found by asking judges about beginnings."""
    results = by_waiting_time(judge())
    for transcript in results.transcripts.values():
        entries = transcript.entries
        for length in range(0, min(len(entries), 400), 7):
            part = replace(transcript, entries=entries[:length])
            account = Account.of(part)
            for check in chosen_checks(role="client"):
                if check.general or part.scenario in check.scenarios:
                    verdict = check.judge([account]).verdict
                    assert verdict in (Verdict.PASS, Verdict.NOT_EXERCISED), (check.id, length)


# What a client that does nothing of the kind cannot show.
UNSEEN = {
    "one-at-a-time": {"client.reads_always"},
    "session-per-line": {"client.limits", "client.reads_always"},
    "no-goodbye": {"client.keeps_sending_side", "client.no_message_after_close"},
    "asks-nothing-twice": {"client.backs_off"},
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_the_rules_leave_to_a_client_turns_nothing_red() -> None:
    found = by_waiting_time(judge_all(good_client.ODDITIES))
    assert {oddity: not_passed(results) for oddity, results in found.items()} == {
        oddity: UNSEEN.get(oddity, set()) for oddity in good_client.ODDITIES
    }
    assert {oddity: red(results) for oddity, results in found.items() if red(results)} == {}


def not_passed(results: Results) -> set[str]:
    return {name for name, j in results.judgements.items() if j.verdict is not Verdict.PASS}


def test_every_check_is_killed_by_a_client_and_every_fault_is_listed() -> None:
    expected = json.loads(EXPECTED.read_text("utf-8"))
    assert list(expected) == list(good_client.FAULTS)
    assert {name for row in expected.values() for name in row} == CHECKS_OF_CLIENTS
    # Each check has a client that it alone, or nearly alone, finds.
    alone = {name for row in expected.values() if len(row) <= 3 for name in row}
    assert alone == CHECKS_OF_CLIENTS


@pytest.mark.slow
@pytest.mark.timeout(1800)
# A client that gives up in the middle may leave a connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_faulty_client_turns_exactly_its_checks_red() -> None:
    expected = json.loads(EXPECTED.read_text("utf-8"))
    found = by_waiting_time(judge_all(expected))
    assert {fault: red(results) for fault, results in found.items()} == expected
