"""Fuzzing one endpoint within limits: generate, play, judge, shrink, try again.

Hypothesis writes the programs, in a thread of its own; the sessions are played on the loop of the
caller. A failing program is kept the moment it fails, so that neither a time limit nor a failure
that comes only sometimes can lose it. Then it is made small (`reduction`) and tried again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, NoReturn

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from utterwire_conformance.check import FUZZ_PREFIX
from utterwire_conformance.progress import Progress
from utterwire_conformance.stage import Meter, Pace, Scenario, Stage, Texts, play
from utterwire_conformance.target import Instance, LaunchFailed, Target
from utterwire_conformance.transcript import Transcript
from utterwire_conformance.verdict import Judgement, Verdict

from .finding import KINDS, Finding, FuzzResults, KindResult
from .grammar import Ground, bodies, http_case, messages, tame
from .machine import CELLS, SESSIONS, session_machine
from .plan import FuzzPlan, Kind
from .player import perform
from .program import Exchange, Program, Say, Step, Wait
from .reduction import reduced
from .verdicts import JudgeFailed, broken

__all__ = ["fuzz"]

_ROUND: Final = 12
"""Programs of one seed; then comes the next, so that a long run does not dwell on one idea."""

_TRIES: Final = 3
_TO_CONFIRM_S: Final = 12.0
# How long one program may take, and by how much it may go beyond the end of the time.
_MOST_S: Final = 60.0
_GRACE_S: Final = 10.0
# How long the long text may take to be spoken.
_MOST_SPEECH_S: Final = 0.5
_STEPS: Final = (8, 14, 20)
# Some seconds of speech: enough that it is still being spoken when the next messages are read.
_LONG: Final = 240
_TURNS: Final[tuple[Kind, ...]] = (
    "sessions",
    "messages",
    "http",
    "sessions",
    "messages",
    "sessions",
)
_PROFILE: Final = {"http": "http"}


class _Stop(BaseException):
    """Ends Hypothesis at once; no `Exception`, which it would take for a failure."""


class _Enough(Exception):
    """There is no more time to make a program smaller."""


class _Broke(BaseException):
    """A program broke a rule: Hypothesis has done its part."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.requirement)
        self.finding = finding


async def fuzz(
    target: Target, plan: FuzzPlan, *, pace: Pace, meter: Meter, progress: Progress | None = None
) -> FuzzResults:
    """Fuzz an endpoint that is running.

    An instance that dies on the way is started anew, where the suite had launched it. Nothing is
    raised for what the endpoint does.
    """
    progress = progress or Progress()
    campaign = _Campaign(target, plan, pace, meter, asyncio.get_running_loop(), progress)
    worker = threading.Thread(target=campaign.work, name="utterwire-fuzz", daemon=True)
    worker.start()
    try:
        await campaign.done.wait()
    except asyncio.CancelledError:
        campaign.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(campaign.done.wait(), 2.0)
        raise
    worker.join()
    if campaign.failure is not None:
        raise campaign.failure
    return campaign.results


class _Campaign:
    """One run of fuzzing; `work` runs in its own thread, all else on the loop."""

    def __init__(
        self,
        target: Target,
        plan: FuzzPlan,
        pace: Pace,
        meter: Meter,
        loop: asyncio.AbstractEventLoop,
        progress: Progress,
    ) -> None:
        self.target = target
        self.plan = plan
        self.meter = meter
        self.loop = loop
        self.progress = progress
        self.done = asyncio.Event()
        self.failure: BaseException | None = None
        self.results = FuzzResults(plan.seed, plan.random)
        assert target.main is not None
        self._instance: Instance = target.main
        self._patient = pace
        first = min(pace.first, max(0.6, 20.0 * (pace.rtt + 600 * pace.character)))
        self._hasty = replace(pace, first=first, stall=min(pace.stall, first))
        self._cells: Counter[tuple[str, str]] = Counter()
        self._examples: Counter[str] = Counter()
        self._known: set[str] = set()
        self._best: dict[str, Finding] = {}
        self._deadline = float("inf")
        self._cancelled = False
        self._playing: asyncio.Task[Transcript] | None = None
        self._stopped = ""
        self._lost: str | None = None
        self._ground = self._survey()
        room = target.endpoint.max_concurrent_sessions or SESSIONS
        self._sessions = min(SESSIONS, room)
        self._machine = session_machine(self._ground, self._try, sessions=self._sessions)
        self._messages = messages(self._ground)
        self._bodies = bodies(self._ground)
        self._mishaps = 0

    # --- on the loop --------------------------------------------------------------------------

    def cancel(self) -> None:
        """Break off what is being played, and let the thread end."""
        self._cancelled = True
        if self._playing is not None:
            self._playing.cancel()

    async def _play(self, program: Program, pace: Pace) -> Transcript:
        room = max(self._deadline - time.monotonic(), 0.0) + _GRACE_S
        if pace is self._hasty or room > _MOST_S:
            room = _MOST_S

        async def on(stage: Stage) -> None:
            async with asyncio.timeout(room):
                await perform(program, stage)

        if self._cancelled:
            raise asyncio.CancelledError
        # An endpoint that was waited for in vain is not given up for that.
        self.meter.vain = 0
        places = max(1, len(program.sessions))
        scenario = Scenario(FUZZ_PREFIX + program.kind, "core", on, sessions=places)
        playing = self._playing = asyncio.create_task(
            play(scenario, self.target, self._instance, pace, self.meter)
        )
        transcript = await playing
        # A process that has just died takes a moment to be known as dead.
        code = self._instance.returncode
        if _is_cut(transcript):
            code = await self._instance.wait(0.5 if pace is self._patient else 0.15)
        if code is not None:
            await self._revive(transcript, code)
        return transcript

    async def _revive(self, transcript: Transcript, code: int) -> None:
        """Start the endpoint anew, which died on this program."""
        last = self._instance.log_tail().splitlines()[-1:]
        words = f"; its last words: {last[0]}" if last else ""
        transcript.unfinished = f"the endpoint ended with status {code}{words}"
        self._instance = await self.target.launch()

    # --- in the thread ------------------------------------------------------------------------

    def work(self) -> None:
        """Fuzz until something ends it."""
        began = time.monotonic()
        before = (self.meter.sessions, self.meter.characters)
        if self.plan.seconds is not None:
            self._deadline = began + self.plan.seconds
        try:
            self._work()
        except _Stop:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            results = self.results
            results.duration_s = time.monotonic() - began
            results.sessions = self.meter.sessions - before[0]
            results.characters = self.meter.characters - before[1]
            results.cells = {cell: self._cells[cell] for cell in CELLS}
            results.stopped = self._stopped or "every program was played"
            results.findings = list(self._best.values())
            for kind in self._kinds():
                results.kinds[kind] = self._result(kind)
            with contextlib.suppress(RuntimeError):  # The loop is gone: nobody waits.
                self.loop.call_soon_threadsafe(self.done.set)

    def _kinds(self) -> list[Kind]:
        claimed = self.target.endpoint.claims.profiles
        return [kind for kind in self.plan.kinds if _PROFILE.get(kind, "core") in claimed]

    def _result(self, kind: str) -> KindResult:
        count = self._examples[kind]
        found = [f for f in self.results.findings if f.program.kind == kind]
        if found:
            rules = ", ".join(f.requirement for f in found)
            return KindResult(Verdict.FAIL, f"{KINDS[kind]} broke {rules}", count)
        if self._lost is not None:
            return KindResult(Verdict.HARNESS_ERROR, self._lost, count)
        if not count:
            return KindResult(Verdict.NOT_EXERCISED, self._stopped or "no program was played", 0)
        return KindResult(Verdict.PASS, "", count)

    def _work(self) -> None:
        """Rounds of each kind in turn."""
        kinds = self._kinds()
        turns = [kind for kind in _TURNS if kind in kinds]
        for number, kind in enumerate(itertools.cycle(turns)):
            if all(self._left(kind) <= 0 for kind in kinds):
                return
            if self._left(kind) > 0:
                self._check_time()
                self._round(kind, number)
            if len(self._best) >= self.plan.findings:
                self._stop(f"the most findings it was to make: {self.plan.findings}")

    def _left(self, kind: str) -> int:
        most = self.plan.examples
        return _ROUND if most is None else most - self._examples[kind]

    def _check_time(self) -> None:
        if self._cancelled:
            self._stop("it was broken off")
        if time.monotonic() >= self._deadline:
            self._stop(f"the time of {self.plan.seconds:g} s is over")

    def _stop(self, why: str) -> NoReturn:
        self._stopped = self._stopped or why
        raise _Stop

    def _round(self, kind: Kind, number: int) -> None:
        """Programs of one seed, up to the first that breaks something."""
        options = settings(
            max_examples=min(_ROUND, self._left(kind)),
            derandomize=False,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
            stateful_step_count=_STEPS[self._examples[kind] // _ROUND % len(_STEPS)],
        )
        chosen = seed(random.Random(f"{self.plan.seed} {kind} {number}").getrandbits(64))
        try:
            _RUNNERS[kind](self, options, chosen)
        except _Broke as broke:
            self._pursue(broke.finding)

    def run_sessions(self, options: settings, chosen: Callable[[Any], Any]) -> None:
        """A round of the machine."""
        run_state_machine_as_test(chosen(self._machine), settings=options)

    def run_messages(self, options: settings, chosen: Callable[[Any], Any]) -> None:
        """A round of odd messages: in session 0; session 1 is served before and after."""
        valid = Say(min(1, self._sessions - 1), self._ground.plain())
        kinds = st.sampled_from(["text", "binary"])

        def run(batch: list[tuple[bytes, Literal["text", "binary"]]]) -> None:
            steps: list[Step] = [valid]
            steps += [Say(0, octets, kind) for octets, kind in batch]
            self._try(Program.of("messages", [*steps, Wait(0), valid]))

        lists = st.lists(st.tuples(self._messages, kinds), min_size=1, max_size=8)
        chosen(options(given(lists)(run)))()

    def run_http(self, options: settings, chosen: Callable[[Any], Any]) -> None:
        """A round of odd bodies."""
        strategy = st.lists(self._bodies, min_size=1, max_size=4)

        def run(batch: list[Any]) -> None:
            steps = [Exchange(body, case) for body, case in batch]
            self._try(Program.of("http", steps))

        chosen(options(given(strategy)(run)))()

    def _survey(self) -> Ground:
        endpoint = self.target.endpoint
        texts = Texts(endpoint.text_samples)
        budget = endpoint.budget
        quick = self._patient.character * _LONG < _MOST_SPEECH_S
        free = budget.characters is None and self.target.can_launch and quick
        words = tuple(dict.fromkeys((texts.shortest.split()[0], texts.shortest)))
        long = texts.of_length(_LONG) if free else None
        return Ground(endpoint.claims, words, endpoint.voice, long)

    def _try(self, program: Program) -> None:
        """Play a program; raises `_Broke` if it breaks something new."""
        self._check_time()
        if self._left(program.kind) <= 0:
            return
        transcript, judgements = self._found(program, self._patient)
        self._examples[program.kind] += 1
        self._cells.update(program.cells)
        played, found = self._examples.total(), len(self._best)
        self.progress.after = f"fuzzing: {played} programs played, {found or 'nothing'} found"
        new = [name for name in judgements if name not in self._known]
        if new:
            name = new[0].replace(".", "-")
            raise _Broke(Finding(name, program, transcript, judgements, new[0]))

    def _found(self, program: Program, pace: Pace) -> tuple[Transcript, dict[str, Judgement]]:
        asked = asyncio.run_coroutine_threadsafe(self._play(program, pace), self.loop)
        try:
            transcript = asked.result()
        except concurrent.futures.CancelledError:
            self._stop("it was broken off")
        except LaunchFailed as error:
            self._give_up(str(error))
        if transcript.broken is not None:
            self._mishaps += 1
            # Once may be chance, again and again is the end.
            if self._mishaps >= _TRIES:
                self._give_up(transcript.broken)
            return transcript, {}
        self._mishaps = 0
        why = transcript.unfinished
        if why is not None and why.startswith("the budget of"):
            self._stop(why)
        try:
            return transcript, broken(transcript)
        except JudgeFailed as error:
            self._give_up(f"the suite failed: {error}")

    def _give_up(self, why: str) -> NoReturn:
        """No session can be had any more."""
        self._lost = why
        self._stop(why)

    def _pursue(self, finding: Finding) -> None:
        """Keep what was found, make it small, try it again, and look for other things from then on.

        Each step down is kept at once, so that nothing that ends this loses the finding.
        """
        requirement = finding.requirement
        self._best[requirement] = finding
        self._known.update(finding.judgements)
        latest = time.monotonic() + self.plan.patience_s

        def fails(program: Program) -> bool:
            if time.monotonic() >= latest or self._cancelled:
                raise _Enough
            transcript, judgements = self._found(program, self._hasty)
            if requirement not in judgements:
                return False
            self._best[requirement] = replace(
                finding, program=program, transcript=transcript, judgements=judgements
            )
            return True

        with contextlib.suppress(_Enough):
            reduced(finding.program, fails, self._rewrite, (b"{", self._ground.plain()))
        if not self._confirm(requirement, finding):
            # What was small came of haste, or of chance: the program as it was found tells more.
            self._best[requirement] = finding
            self._confirm(requirement, finding)

    def _confirm(self, requirement: str, first: Finding) -> bool:
        """Play the finding again, with patience; whether it came again."""
        latest = time.monotonic() + _TO_CONFIRM_S
        finding = self._best[requirement]
        tries = again = 0
        while tries < _TRIES and (time.monotonic() < latest or not tries) and not self._cancelled:
            transcript, judgements = self._found(finding.program, self._patient)
            tries += 1
            if requirement in judgements:
                again += 1
                finding = replace(finding, transcript=transcript, judgements=judgements)
        self._best[requirement] = replace(finding, tries=tries, again=again)
        self._known.update(finding.judgements)
        return again > 0 or finding.program == first.program

    def _rewrite(self, step: Say | Exchange, octets: bytes) -> Say | Exchange | None:
        """The step with other octets, where these may be sent."""
        if isinstance(step, Exchange):
            case = http_case(octets, self._ground)
            return replace(step, body=octets, case=case) if case is not None else None
        if not tame(octets, self._ground):
            return None
        cuts = tuple(sorted({min(cut, len(octets)) for cut in step.cuts}))
        return replace(step, octets=octets, cuts=cuts, pings=step.pings and bool(cuts))


def _is_cut(transcript: Transcript) -> bool:
    """Whether a connection ended though nobody had closed it, or none could be had."""
    closed = {e.session for e in transcript.entries if e.kind == "close"}
    cut = {e.session for e in transcript.entries if e.kind == "eof" and e.dir == "in"}
    return bool(cut - closed) or transcript.broken is not None


_RUNNERS: Final[dict[str, Callable[[_Campaign, settings, Callable[[Any], Any]], None]]] = {
    "sessions": _Campaign.run_sessions,
    "messages": _Campaign.run_messages,
    "http": _Campaign.run_http,
}
