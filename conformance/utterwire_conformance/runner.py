"""A run: play the scenarios that the chosen checks need, then judge what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from . import scenarios
from .check import Check
from .claims import EndpointClaims
from .driver import ConnectFailed
from .endpoints import Endpoint
from .fuzz import FuzzPlan, FuzzResults, fuzz
from .judging import chosen_checks, judge_checks
from .places import Places
from .progress import Progress
from .requirements import requirement
from .selection import Selection
from .stage import SCENARIOS, Meter, Pace, Scenario, play
from .target import LaunchFailed, Target
from .transcript import Transcript
from .verdict import Judgement
from .via import SAGEMAKER, unseen

__all__ = ["Options", "Results", "learned", "run_checks"]

_PROBE: Final = "probe"
_NEGOTIATION: Final = "negotiation"
_PLAYERS_WITHOUT_HOPE: Final = 16
# Scenarios that mostly wait, or stop an instance of their own, at a time.
_WAITERS: Final = 8
# Who speaks a short text in less may well be asked for several at a time.
_QUICK_S: Final = 1.0
# Who takes no longer for several texts at a time than so many times as for one speaks side by side.
_SIDE_BY_SIDE: Final = 1.5
_LEAST_FUZZ_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: `players` scenarios at a time, fewer where the endpoint is slow and speaks one
    text after the other; `pace` to be used instead of measuring it.

    Of what the checks need only what `selection` allows is played. `progress` is told how far
    the run is. With `fuzz` the endpoint is fuzzed in the end. `max_s` is how long all this may take
    from the moment at which the endpoint is there, in seconds: what is not over by then is not
    exercised.
    """

    players: int = 6
    pace: Pace | None = None
    selection: Selection = field(default_factory=Selection)
    progress: Progress = field(default_factory=Progress)
    fuzz: FuzzPlan | None = None
    max_s: float | None = None


@dataclass(slots=True)
class Results:
    """What came of a run: judgements by check, and every transcript by scenario.

    `claims` are those of the endpoint, completed by what was learned in the run. `characters` and
    `sessions` are what it cost; `most_connections` is how many connections the endpoint was found
    to take at a time, None where it took all; `unreachable` says why nothing could be judged. What
    fuzzing found stands among the transcripts, too.
    """

    judgements: dict[str, Judgement] = field(default_factory=dict)
    transcripts: dict[str, Transcript] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    characters: int = 0
    sessions: int = 0
    unreachable: str | None = None
    claims: EndpointClaims | None = None
    most_connections: int | None = None
    fuzz: FuzzResults | None = None


async def run_checks(
    target: Target, checks: Iterable[str] | None = None, options: Options | None = None
) -> Results:
    """Play and judge; `checks` are ids of `CHECKS`, all of them where None.

    Starts the endpoint where it is one to be launched, and stops it in the end.

    Raises:
        KeyError: there is no such check.
    """
    options = options or Options()
    chosen = chosen_checks(checks)
    results = Results()
    allowed = options.selection.scenarios
    seen = chosen
    if target.endpoint.via == SAGEMAKER:
        seen = [check for check in chosen if unseen(requirement(check.requirement)) is None]
    needed = [s for s in _needed(seen) if allowed is None or s.name in allowed]
    options.progress.phase = "waiting for the endpoint to be ready"
    try:
        async with target:
            options.progress.phase = "waiting for the answer to a first request"
            await _play_all(target, needed, options, results)
    except (LaunchFailed, ConnectFailed) as error:
        results.unreachable = str(error)
    results.judgements = judge_checks(
        chosen,
        results.transcripts.values(),
        launched=target.can_launch,
        unreachable=results.unreachable,
        selection=options.selection,
    )
    return results


def _needed(checks: Iterable[Check]) -> list[Scenario]:
    names = {name for check in checks for name in check.scenarios}
    found = [SCENARIOS[name] for name in names]
    return sorted(
        found,
        key=lambda scenario: (
            not scenario.launches,
            not scenario.long,
            scenario.heavy,
            scenario.name,
        ),
    )


async def _play_all(
    target: Target, needed: list[Scenario], options: Options, results: Results
) -> None:
    endpoint = target.endpoint
    meter = Meter(endpoint.budget, Places(endpoint.max_concurrent_sessions))
    if options.max_s is not None:
        meter.until = asyncio.get_running_loop().time() + options.max_s
        meter.too_late = f"the run was to take {options.max_s / 60:g} minutes at most"
    main = target.main
    assert main is not None
    pace, players = options.pace, options.players
    if pace is None:
        waits = endpoint.timeouts
        patience = Pace(waits.connect_s, waits.first_byte_s or 30.0, waits.stall_s or 30.0)
        probe = await play(SCENARIOS[_PROBE], target, main, patience, meter)
        results.transcripts[_PROBE] = probe
        results.unreachable = scenarios.out_of_order(probe)
        if results.unreachable is not None:
            log = main.log_tail()
            if log:
                results.unreachable += f"; the endpoint's last words: {log.splitlines()[-1]}"
            return
        rtt, first_byte, character = scenarios.probed(probe)
        meter.hopeless = first_byte is None
        players = await _bearable(target, patience, meter, probe, players)
        pace = patience.measured(rtt, first_byte, character, players=players)
    results.pace = pace
    if "negotiate" in endpoint.claims.profiles and not meter.hopeless:
        first = await play(SCENARIOS[_NEGOTIATION], target, main, pace, meter)
        results.transcripts[_NEGOTIATION] = first
        target.endpoint = learned(endpoint, first)
        results.claims = target.endpoint.claims
    slow = players < options.players
    # Where all that is left is to wait in vain, it may as well be done at the same time.
    places = asyncio.Semaphore(_PLAYERS_WITHOUT_HOPE if meter.hopeless else players)
    waiting = asyncio.Semaphore(players if slow else _WAITERS)
    # An instance that loads a model takes the machine from the one that is judged.
    launching = asyncio.Semaphore(1) if slow else waiting

    async def one(scenario: Scenario) -> None:
        # Scenarios that mostly wait have places of their own.
        async with launching if scenario.launches else waiting if scenario.long else places:
            progress.begin(scenario.name)
            transcript = await play(scenario, target, main, pace, meter)
        progress.finish(scenario.name)
        results.transcripts[scenario.name] = transcript

    progress = options.progress
    to_play = [
        scenario
        for scenario in needed
        if scenario.name not in results.transcripts and (not scenario.launches or target.can_launch)
    ]
    progress.total = len(to_play)
    async with asyncio.TaskGroup() as group:
        for scenario in to_play:
            group.create_task(one(scenario))
    results.characters, results.sessions = meter.characters, meter.sessions
    if meter.places.learned:
        results.most_connections = meter.places.limit
        target.endpoint = replace(target.endpoint, max_concurrent_sessions=meter.places.limit)
    broken = [t for t in results.transcripts.values() if t.broken is not None]
    # A process that has just died takes a moment to be known as dead.
    if broken and await main.wait(0.5) is not None:
        last = main.log_tail().splitlines()[-1:] or ["(none)"]
        gone = f"the endpoint ended with status {main.returncode} in the middle of the run"
        for transcript in broken:
            transcript.broken = f"{gone}; its last words: {last[0]}"
    if options.fuzz is not None:
        progress.after = "fuzzing"
        results.fuzz = await _fuzz(target, options.fuzz, results, meter, progress)
        results.characters, results.sessions = meter.characters, meter.sessions


async def _bearable(
    target: Target, pace: Pace, meter: Meter, probe: Transcript, players: int
) -> int:
    """How many scenarios at a time the endpoint bears without being late for all of them.

    One that took long for the probe is asked the same by all players at once: if it speaks their
    texts one after the other, so many fewer play. Where the budget counts, it is not asked, and
    taken to do so.
    """
    alone = scenarios.spent(probe)
    if alone is None or alone <= _QUICK_S:
        return players
    if meter.budget.characters is not None or meter.budget.sessions is not None:
        return max(1, min(players, int(players * _QUICK_S / alone)))
    main = target.main
    assert main is not None
    async with asyncio.TaskGroup() as group:
        probes = [
            group.create_task(play(SCENARIOS[_PROBE], target, main, pace, meter))
            for _ in range(players)
        ]
    crowd = [scenarios.spent(each.result()) for each in probes]
    served = [each for each in crowd if each is not None]
    if len(served) < players:
        return max(1, len(served) // 2)
    slower = max(served) / alone
    return players if slower <= _SIDE_BY_SIDE else max(1, int(players / slower))


async def _fuzz(
    target: Target, plan: FuzzPlan, results: Results, meter: Meter, progress: Progress
) -> FuzzResults:
    """Fuzz, unless there is no hope; findings join the transcripts of the run."""
    main = target.main
    assert main is not None
    if meter.hopeless:
        return FuzzResults.left_out(plan, "no request was spoken to its end")
    if main.returncode is not None:
        return FuzzResults.left_out(plan, "the endpoint had ended before")
    if meter.until is not None:
        left, meter.until = meter.time_left, None
        if left < _LEAST_FUZZ_S:
            return FuzzResults.left_out(plan, meter.too_late)
        plan = replace(plan, seconds=min(left, plan.seconds or left))
    fuzzed = await fuzz(target, plan, pace=results.pace, meter=meter, progress=progress)
    for finding in fuzzed.findings:
        results.transcripts[finding.scenario] = replace(
            finding.transcript, scenario=finding.scenario
        )
    return fuzzed


def learned(endpoint: Endpoint, negotiation: Transcript) -> Endpoint:
    """The endpoint with what `session` stated in a transcript of the scenario `negotiation`.

    What the endpoint file says counts; what it does not say is learned.
    """
    stated = scenarios.stated(negotiation)
    return replace(endpoint, claims=endpoint.claims.completed_by(stated, voice=endpoint.voice))
