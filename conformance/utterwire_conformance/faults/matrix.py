"""Every fault against every check: which turn red, and whether those are the ones that should."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.endpoints import SESSION_PATH, Endpoint
from utterwire_conformance.judging import chosen_checks, judge_accounts
from utterwire_conformance.proxy import FaultProxy, Tampers
from utterwire_conformance.runner import learned
from utterwire_conformance.stage import MOST_IN_VAIN, SCENARIOS, Meter, Pace, Scenario, play
from utterwire_conformance.target import Instance, Target
from utterwire_conformance.transcript import Transcript
from utterwire_conformance.verdict import Judgement, Verdict

from .expectation import Difference, Expectation
from .fault import Fault
from .oddity import Oddity
from .passage import Passage

__all__ = [
    "Baseline",
    "Plan",
    "ProxiedTarget",
    "Row",
    "place_of",
    "play_behind",
    "run_baseline",
    "run_matrix",
    "run_row",
]

_RED: Final = frozenset({Verdict.FAIL, Verdict.WEAK})
_UNWANTED: Final = _RED | {Verdict.HARNESS_ERROR}
_NEGOTIATION: Final = "negotiation"
# The endpoint of a matrix is known to be quick: who is silent for so long stays silent. It is less
# than the idle limit of the built-in endpoints, which would end the silence.
_PACE: Final = Pace(connect=10.0, first=2.5, stall=2.5)
_PATIENT: Final = Pace(connect=30.0, first=30.0, stall=30.0)
_TRIES: Final = 5
_BEAT_S: Final = 0.1
# A machine that stood still for longer than this can have made a clock tell a fault that is none.
_STANDSTILL_S: Final = 0.75
# A fault that silences an endpoint does so in every scenario: the suite's patience is short.
_WAITED_IN_VAIN: Final = MOST_IN_VAIN - 2


@dataclass(slots=True)
class _ProxiedInstance(Instance):
    """An instance behind a proxy, which learns when the instance is told to stop.

    Proxy and instance are one endpoint: what the proxy writes or keeps, the endpoint does.
    """

    proxy: FaultProxy | None = None
    upstream: Instance | None = None

    def memory(self) -> int | None:
        held = self.upstream.memory() if self.upstream is not None else None
        return held if held is None or self.proxy is None else held + len(self.proxy.shared.kept)

    def terminate(self) -> None:
        if self.proxy is not None:
            self.proxy.shared.shutting_down = True
        Instance.terminate(self)

    async def wait(self, within: float) -> int | None:
        if self.proxy is not None and self.proxy.shared.lingers:
            await asyncio.sleep(within)
            return None
        return await Instance.wait(self, within)

    def output(self) -> bytes:
        written = self.proxy.shared.written if self.proxy is not None else b""
        return Instance.output(self) + written


class ProxiedTarget(Target):
    """An endpoint seen through a faulty proxy; `upstream` is an instance that runs already.

    What a scenario launches for itself gets a proxy of its own, with the same fault.
    """

    def __init__(self, endpoint: Endpoint, upstream: Instance, tampers: Tampers | None) -> None:
        super().__init__(endpoint)
        self._upstream = upstream
        self._tampers = tampers
        self._proxies: list[FaultProxy] = []

    async def start(self) -> Instance:
        return await self._behind_proxy(self._upstream)

    async def launch(self) -> Instance:
        return await self._behind_proxy(await super().launch())

    async def close(self) -> None:
        proxies, self._proxies = self._proxies, []
        for proxy in proxies:
            await proxy.__aexit__(None, None, None)
        await super().close()

    async def _behind_proxy(self, instance: Instance) -> Instance:
        proxy = FaultProxy(instance.http_url, self._tampers)
        await proxy.__aenter__()
        self._proxies.append(proxy)
        return _ProxiedInstance(
            f"{proxy.ws_url}{SESSION_PATH}",
            proxy.http_url,
            instance.process,
            instance.log,
            None,
            proxy,
            instance,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a matrix.

    `scenarios` are those to play for each fault, to see what is expected of it; where None, all
    are that the fault changes anything in, and with `everything` simply all. `faults` and
    `players` say how many faults, and scenarios of each, are played at a time. `tries` is how
    often a fault is played if the machine stood still meanwhile; `rounds` how often everything is
    played without one.
    """

    scenarios: Callable[[Fault | Oddity], Iterable[str]] | None = None
    everything: bool = False
    covers: bool = False
    faults: int = 3
    players: int = 6
    tries: int = 2
    rounds: int = 2
    pace: Pace = _PACE


@dataclass(slots=True)
class Baseline:
    """What an endpoint does without a fault: transcripts, and what passed, by scenario.

    `touched` are the scenarios in which a fault changes anything, by the names of those faults
    for which that was found out.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    judgements: dict[str, Judgement] = field(default_factory=dict)
    passages: dict[str, list[Passage]] = field(default_factory=dict)
    touched: dict[str, list[str]] = field(default_factory=dict)

    def touch(self, faults: Iterable[Fault | Oddity]) -> None:
        """Find out in which scenarios each fault changes anything."""
        tampers: dict[str, Tampers] = {fault.name: fault for fault in faults}
        self.touched |= {name: [] for name in tampers}
        for scenario, passages in self.passages.items():
            for name in set().union(*(passage.changed_by(tampers) for passage in passages)):
                self.touched[name].append(scenario)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one fault before one endpoint: the judgement of every check.

    `played` are the scenarios that were, `standstill_s` the longest time for which the machine
    stood still meanwhile. `cover` is a small choice of scenarios by which each red check is red
    already; it is empty where the plan does not ask for it.
    """

    fault: str
    endpoint: str
    judgements: Mapping[str, Judgement]
    played: tuple[str, ...]
    standstill_s: float = 0.0
    cover: tuple[str, ...] = ()

    @property
    def red(self) -> frozenset[str]:
        """The checks that found it."""
        return _red(self.judgements)

    @property
    def broken(self) -> frozenset[str]:
        """The checks that could not judge."""
        return frozenset(
            c for c, j in self.judgements.items() if j.verdict is Verdict.HARNESS_ERROR
        )

    def against(self, expected: Expectation) -> Difference:
        """How this differs from what is expected, both ways."""
        return Difference.between(self.fault, self.red | self.broken, expected)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the kept result: the red checks with their reasons, and the unseen."""
        unseen = sorted(c for c, j in self.judgements.items() if j.verdict is Verdict.NOT_EXERCISED)
        return {
            "fault": self.fault,
            "endpoint": self.endpoint,
            "red": {c: self.judgements[c].reason for c in sorted(self.red)},
            "broken": {c: self.judgements[c].reason for c in sorted(self.broken)},
            "not_exercised": unseen,
            "cover": list(self.cover),
            "standstill_s": round(self.standstill_s, 2),
        }


@dataclass(slots=True)
class _Pulse:
    """Tells for how long the machine stood still, as far as this loop could see."""

    worst: float = 0.0
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    async def __aenter__(self) -> _Pulse:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _beat(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.worst = max(self.worst, clock() - due)


def place_of(fault: Fault | Oddity, endpoints: Sequence[Endpoint]) -> int:
    """The first of the endpoints before which the fault can be seen.

    Raises:
        ValueError: there is none.
    """
    for place, endpoint in enumerate(endpoints):
        if not fault.lacks & endpoint.claims.profiles:
            return place
    raise ValueError(f"the fault {fault.name} can be seen on none of the endpoints")


async def run_matrix(
    endpoints: Sequence[Endpoint],
    faults: Iterable[Fault | Oddity],
    plan: Plan | None = None,
    *,
    each: Callable[[Row], None] = lambda _: None,
) -> dict[str, Row]:
    """Play every fault and judge it by every check; the rows by fault.

    A fault is put before the first of `endpoints` that it can be seen on; of each one instance is
    launched for all. `each` is told of every row as it comes.

    Raises:
        LaunchFailed: an endpoint cannot be launched.
        ValueError: a fault can be seen on none of them, or something is red without any fault.
    """
    plan = plan or Plan()
    rows: dict[str, Row] = {}
    places = asyncio.Semaphore(plan.faults)
    queues: dict[int, list[Fault | Oddity]] = {}
    for fault in faults:
        queues.setdefault(place_of(fault, endpoints), []).append(fault)

    async def one(
        fault: Fault | Oddity, endpoint: Endpoint, upstream: Instance, baseline: Baseline | None
    ) -> None:
        async with places:
            rows[fault.name] = await run_row(endpoint, upstream, fault, plan, baseline)
        each(rows[fault.name])

    for place, queue in queues.items():
        endpoint = endpoints[place]
        async with Target(endpoint) as target, asyncio.TaskGroup() as tasks:
            assert target.main is not None
            baseline = None
            if plan.scenarios is None:
                baseline = await run_baseline(endpoint, target.main, plan)
                baseline.touch(queue)
                # Millions of objects that stay: the collector, looking through them again and
                # again, would hold up the clocks of what is played for seconds.
                gc.collect()
                gc.freeze()
            for fault in queue:
                tasks.create_task(one(fault, endpoint, target.main, baseline))
        gc.unfreeze()
    return rows


async def run_baseline(
    endpoint: Endpoint, upstream: Instance, plan: Plan | None = None
) -> Baseline:
    """Play everything without a fault, twice or so: what crosses on the way need not do so alike.

    Raises:
        ValueError: something is red, so that no fault could be told by it.
    """
    # Nothing is waited for in vain here, so that a machine that is slow may be.
    plan = replace(plan or Plan(), pace=_PATIENT)
    names = [s.name for s in SCENARIOS.values() if s.profile in endpoint.claims.profiles]
    baseline = Baseline(passages={name: [] for name in names})
    for _ in range(plan.rounds):
        baseline.accounts, left, tries = {}, names, _TRIES
        while left:
            kept = {name: Passage() for name in names}
            transcripts = await play_behind(endpoint, upstream, kept.__getitem__, left, plan)
            baseline.accounts |= {name: Account.of(transcripts[name]) for name in transcripts}
            for name in transcripts:
                baseline.passages[name].append(kept[name])
            baseline.judgements = _judged(baseline.accounts)
            bad = {c: j for c, j in baseline.judgements.items() if j.verdict in _UNWANTED}
            tries -= 1
            if bad and not tries:
                told = "; ".join(f"{check}: {j.reason}" for check, j in sorted(bad.items()))
                raise ValueError(f"red without a fault: {told}")
            # A machine that is too slow for one of them may be quicker the next time.
            left = sorted({name for j in bad.values() for name in j.scenarios})
    return baseline


async def run_row(
    endpoint: Endpoint,
    upstream: Instance,
    fault: Fault | Oddity,
    plan: Plan | None = None,
    baseline: Baseline | None = None,
) -> Row:
    """Play one fault before an instance that runs already, and judge it by every check.

    What the fault changes nothing in is taken from the baseline, where there is one.
    """
    plan = plan or Plan()
    chosen: list[str] = []
    if plan.scenarios is not None:
        profiles = endpoint.claims.profiles
        chosen = [n for n in plan.scenarios(fault) if SCENARIOS[n].profile in profiles]
    elif baseline is not None:
        if not plan.everything and fault.name not in baseline.touched:
            baseline.touch([fault])
        chosen = list(baseline.passages) if plan.everything else baseline.touched[fault.name]
    tries = plan.tries
    while True:
        tries -= 1
        async with _Pulse() as pulse:
            transcripts = await play_behind(endpoint, upstream, lambda _: fault, chosen, plan)
        if pulse.worst < _STANDSTILL_S or tries <= 0:
            break
    # In a thread of its own: who judges must not keep the other faults from their clocks.
    return await asyncio.to_thread(_row, fault, endpoint, transcripts, pulse.worst, plan, baseline)


def _row(
    fault: Fault | Oddity,
    endpoint: Endpoint,
    transcripts: Mapping[str, Transcript],
    standstill: float,
    plan: Plan,
    baseline: Baseline | None,
) -> Row:
    accounts = {name: Account.of(transcript) for name, transcript in transcripts.items()}
    played = tuple(sorted(accounts))
    judgements = _judged(accounts) if baseline is None else _judged_beside(accounts, baseline)
    row = Row(fault.name, endpoint.name, judgements, played, standstill)
    if not plan.covers:
        return row
    known = {**baseline.accounts, **accounts} if baseline is not None else accounts
    return replace(row, cover=_cover(row.red, known, played))


def _judged(accounts: Mapping[str, Account]) -> dict[str, Judgement]:
    """The judgement of every check, by id."""
    return judge_accounts(chosen_checks(), list(accounts.values()))


def _judged_beside(accounts: Mapping[str, Account], baseline: Baseline) -> dict[str, Judgement]:
    """The judgement of every check, by id, where only some scenarios came out otherwise.

    What came out as without a fault is green: a general check is shown of it only what is its own.
    """
    judgements = dict(baseline.judgements)
    every = {**baseline.accounts, **accounts}
    for check in chosen_checks():
        own = set(check.scenarios)
        if check.general or own & accounts.keys():
            seen = [every[name] for name in sorted(own & every.keys() | accounts.keys())]
            judgements |= judge_accounts([check], seen)
    return judgements


async def play_behind(
    endpoint: Endpoint,
    upstream: Instance,
    tampers: Callable[[str], Tampers | None],
    names: Iterable[str],
    plan: Plan | None = None,
) -> dict[str, Transcript]:
    """Play scenarios on an instance that stands behind a proxy; the transcripts by scenario.

    Each scenario has a proxy and a patience of its own, so that none is disturbed by what another
    has found. `tampers` gives what its proxy does.
    """
    plan = plan or Plan()
    transcripts: dict[str, Transcript] = {}
    places = asyncio.Semaphore(plan.players)
    waiting = asyncio.Semaphore(plan.players)

    async def one(scenario: Scenario) -> None:
        async with (
            waiting if scenario.long or scenario.launches else places,
            ProxiedTarget(endpoint, upstream, tampers(scenario.name)) as target,
        ):
            assert target.main is not None
            meter = Meter(endpoint.budget)
            meter.vain = _WAITED_IN_VAIN
            transcripts[scenario.name] = await play(scenario, target, target.main, plan.pace, meter)

    if "negotiate" in endpoint.claims.profiles:
        await one(SCENARIOS[_NEGOTIATION])
        endpoint = learned(endpoint, transcripts[_NEGOTIATION])
    left = [SCENARIOS[name] for name in dict.fromkeys(names) if name not in transcripts]
    async with asyncio.TaskGroup() as group:
        for scenario in sorted(left, key=_cost):
            group.create_task(one(scenario))
    return dict(sorted(transcripts.items()))


def _cost(scenario: Scenario) -> tuple[bool, bool, bool, str]:
    """What waits long is begun first, what costs much comes last."""
    return (not scenario.launches, not scenario.long, scenario.heavy, scenario.name)


def _price(name: str) -> tuple[bool, bool, bool, str]:
    scenario = SCENARIOS[name]
    return (scenario.launches, scenario.long, scenario.heavy, name)


def _cover(
    red: frozenset[str], accounts: Mapping[str, Account], played: Iterable[str]
) -> tuple[str, ...]:
    """A small choice of scenarios by which every red check is red; cheap ones are preferred."""
    checks = [CHECKS[check] for check in sorted(red)]
    shown = {name: _red(judge_accounts(checks, [accounts[name]])) for name in played}
    chosen: list[str] = []
    # What no single scenario shows takes all of the check's own.
    for check in sorted(red - frozenset().union(*shown.values())):
        chosen += [n for n in CHECKS[check].scenarios if n in accounts and n not in chosen]
    left = red - _red(judge_accounts(checks, [accounts[name] for name in chosen]))
    while left:
        best = min(shown, key=lambda name: (-len(shown[name] & left), _price(name)))
        if not shown[best] & left:
            break
        chosen.append(best)
        left -= shown[best]
    return tuple(sorted(chosen))


def _red(judgements: Mapping[str, Judgement]) -> frozenset[str]:
    return frozenset(c for c, j in judgements.items() if j.verdict in _RED)
