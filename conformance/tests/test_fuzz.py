"""Fuzzing, without an endpoint: what is generated, how it is made small, what it is judged by."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import utterwire_conformance.runner as runner
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from jsonschema import Draft202012Validator
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.driver import ConnectFailed
from utterwire_conformance.endpoints import Budget, Endpoint
from utterwire_conformance.fuzz import (
    CELLS,
    DEFAULT_S,
    Exchange,
    Finding,
    FuzzPlan,
    FuzzResults,
    FuzzWish,
    Ground,
    KindResult,
    Leave,
    Ping,
    Program,
    Resume,
    Say,
    Stall,
    Wait,
    broken,
    reduced,
    session_machine,
)
from utterwire_conformance.fuzz.grammar import bodies, http_case, messages, messages_for, tame
from utterwire_conformance.fuzz.player import perform
from utterwire_conformance.fuzz.program import Pause, Step
from utterwire_conformance.progress import Progress
from utterwire_conformance.stage import Meter, Stage
from utterwire_conformance.target import Instance, Target
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Verdict, fail
from utterwire_schemas import REGISTRY, session_states

CLAIMS = EndpointClaims(frozenset({"core", "http", "interrupt", "negotiate"}))
GROUND = Ground(CLAIMS, ("Hi", "Hi there."), "nova", "A long one. " * 20)
PLAIN = {"text": "Hi"}
CALM = settings(
    derandomize=True,
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def octets(**fields: object) -> bytes:
    return json.dumps(fields).encode()


# --- programs ---------------------------------------------------------------------------------


def written(number: int, *, claims: EndpointClaims = CLAIMS, examples: int = 40) -> list[Program]:
    """The programs of one seed."""
    programs: list[Program] = []
    machine = session_machine(replace(GROUND, claims=claims), programs.append)
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            stateful_step_count=16,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return programs


def test_the_same_seed_writes_the_same_programs() -> None:
    first = written(1, examples=10)
    assert first == written(1, examples=10)
    assert first != written(2, examples=10)


@pytest.mark.slow
def test_the_machine_tries_every_cell_of_the_table() -> None:
    table = session_states("endpoint")
    assert {state for state, _ in CELLS} == set(table) - {"going away"}
    assert all(event in table[state] for state, event in CELLS)
    # To get to a closed session takes long; there it is enough to try some.
    wanted = {cell for cell in CELLS if cell[0] != "closed"}
    tried: set[tuple[str, str]] = set()
    # What a seed makes depends on the modules that are loaded, from which Hypothesis takes values.
    for number in range(40):
        for program in written(number):
            tried.update(program.cells)
        closed = sum(state == "closed" for state, _ in tried)
        if tried >= wanted and closed > 2:
            break
    assert tried <= set(CELLS)
    assert tried >= wanted
    assert closed > 2


def test_states_follow_the_table() -> None:
    for program in written(3):
        state: dict[int, str] = {}
        events = iter(program.cells)
        for step in program.steps:
            if isinstance(step, Say):
                before, event = next(events)
                assert state.get(step.session, "fresh") == before
                state[step.session] = session_states("endpoint")[before][event].to
            elif isinstance(step, Wait) and step.until == "closed":
                assert state[step.session] == "closing"
                state[step.session] = "closed"


def test_nothing_is_done_to_a_session_that_was_left() -> None:
    kinds: set[type] = set()
    for program in written(4):
        left: set[int] = set()
        for step in program.steps:
            kinds.add(type(step))
            assert not isinstance(step, Exchange)
            assert step.session not in left
            if isinstance(step, Leave):
                left.add(step.session)
        assert len(left) < 3
    assert kinds == {Say, Ping, Wait, Pause, Stall, Resume, Leave}


async def test_who_was_let_in_is_let_go_where_another_was_refused() -> None:
    class Opened:
        ended = False

        async def end(self) -> None:
            self.ended = True

    session = Opened()
    let_in = asyncio.Event()

    class Crowded:
        count = 0

        async def session(self, **_: object) -> Opened:
            self.count += 1
            if self.count == 1:
                let_in.set()
                return session
            await let_in.wait()
            raise ConnectFailed("full")

    steps: list[Step] = [Say(0, b"{}"), Say(1, b"{}")]
    with pytest.raises(ExceptionGroup) as raised:
        await perform(Program.of("sessions", steps), cast(Stage, Crowded()))
    assert raised.group_contains(ConnectFailed)
    assert session.ended


def test_what_is_not_claimed_is_read_as_invalid() -> None:
    core = EndpointClaims(frozenset({"core"}))
    for program in written(5, claims=core, examples=20):
        for step in program.steps:
            if isinstance(step, Say) and b'"cancel"' in step.octets:
                assert replace(GROUND, claims=core).reading(step.octets).verdict != "accept"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Say(0, b"ab", cuts=(3,)),
        lambda: Say(0, b"abc", cuts=(2, 1)),
        lambda: FuzzPlan(None, None),
        lambda: FuzzPlan(0.0),
        lambda: FuzzPlan(None, -1),
        lambda: FuzzPlan(findings=0),
        lambda: FuzzWish(wanted=True, unwanted=True),
        lambda: FuzzWish(unwanted=True, seed=0),
    ],
)
def test_values_are_checked_when_made(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        wrong()


def test_pieces_join_to_the_message() -> None:
    say = Say(0, b"abcdef", cuts=(0, 2, 2, 6))
    assert say.pieces == [b"", b"ab", b"", b"cdef", b""]


# --- messages ---------------------------------------------------------------------------------


@CALM
@given(messages(GROUND))
def test_messages_can_be_judged(data: bytes) -> None:
    assert len(data) < 65_536
    assert tame(data, GROUND)


@pytest.mark.parametrize("event", ["synthesize", "hello", "cancel", "keepalive", "close"])
def test_messages_for_an_event_are_that(event: str) -> None:
    strategy = messages_for(event, GROUND)
    assert strategy is not None

    @CALM
    @given(strategy)
    def check(data: bytes) -> None:
        meaning = GROUND.reading(data)
        assert meaning.type == event
        assert meaning.verdict != "reject"

    check()


def test_invalid_messages_are_rejected() -> None:
    strategy = messages_for("an invalid message", GROUND)
    assert strategy is not None
    codes: set[str] = set()

    @CALM
    @given(strategy)
    def check(data: bytes) -> None:
        meaning = GROUND.reading(data)
        assert meaning.verdict == "reject"
        codes.update(meaning.codes)

    check()
    assert codes >= {"invalid_json", "invalid_request", "not_an_object", "invalid_utf8"}
    assert messages_for("shutdown begins", GROUND) is None


def test_messages_are_of_every_sort() -> None:
    verdicts: Counter[str] = Counter()

    @CALM
    @given(messages(GROUND))
    def check(data: bytes) -> None:
        verdicts[GROUND.reading(data).verdict] += 1

    check()
    assert min(verdicts[name] for name in ("accept", "reject", "either")) > 5


@pytest.mark.parametrize(
    "data",
    [
        b'\xef\xbb\xbf{"type":"close"}',
        b'{"type":"close","x":1e400}',
        b'{"type":"close","type":"synthesize","text":"Hi"}',
        b'{"type":"cancel","x":1e400}',
        b'{"x":"' + b"x" * 60_000 + b'"}',
    ],
)
def test_what_means_two_things_is_not_sent(data: bytes) -> None:
    assert not tame(data, GROUND)


@pytest.mark.parametrize(
    ("body", "expect", "codes"),
    [
        (octets(text="Hi"), "accept", ()),
        (octets(text="Hi", stream=False), "accept", ()),
        (octets(text="Hi", stream=1), "reject", ("invalid_request",)),
        (octets(type="close"), "reject", ("unknown_type",)),
        (octets(type="cancel"), "reject", ("unknown_type",)),
        (octets(type="hello", protocol_versions=[1]), "reject", ("unknown_type",)),
        (b"{", "reject", ("invalid_json",)),
        (b'\xef\xbb\xbf{"text":"Hi"}', "either", ("invalid_json", "invalid_request")),
        (b'{"text":"Hi","stream":1,"stream":true}', None, ()),
        (b'\xef\xbb\xbf{"type":"close"}', None, ()),
    ],
)
def test_what_is_legal_over_http(body: bytes, expect: str | None, codes: tuple[str, ...]) -> None:
    case = http_case(body, GROUND)
    assert (case and case.expect) == expect
    assert case is None or case.codes == codes


@CALM
@given(bodies(GROUND))
def test_bodies_come_with_their_case(pair: tuple[bytes, Case]) -> None:
    assert pair[1] == http_case(pair[0], GROUND)


# --- making it small --------------------------------------------------------------------------


def keep(step: Say | Exchange, data: bytes) -> Say | Exchange | None:
    return replace(step, octets=data, cuts=()) if isinstance(step, Say) else None


def rejections(program: Program) -> int:
    return sum(
        isinstance(step, Say) and GROUND.reading(step.octets).verdict == "reject"
        for step in program.steps
    )


def test_a_program_is_made_small() -> None:
    steps: list[Step] = []
    for number in range(8):
        bad = octets(text="", request_id="a", x=[number])
        steps += [Say(2, octets(text="Hi")), Ping(1, b"x"), Wait(2), Stall(0)]
        steps.append(Say(2, bad, "binary", (3, 4), pings=True))
    small = reduced(
        Program.of("sessions", steps), lambda program: rejections(program) >= 3, keep, (b"{",)
    )
    assert small.steps == (Say(0, b"{"),) * 3


def test_what_matters_is_kept() -> None:
    steps = [Say(0, octets(text="Hi")), Say(1, octets(text="Hi", x=["é"], y=1), "text", (9, 12))]

    def fails(program: Program) -> bool:
        return any(isinstance(s, Say) and b"\\u00e9" in s.octets and s.cuts for s in program.steps)

    def cut(step: Say | Exchange, data: bytes) -> Say | Exchange | None:
        return replace(step, octets=data, cuts=(1,)) if isinstance(step, Say) else None

    small = reduced(Program.of("messages", steps), fails, cut)
    assert small.steps == (Say(0, b'{"x": ["\\u00e9"]}', cuts=(1,)),)


def test_octets_that_are_no_object_are_cut_down() -> None:
    deep = Program.of("messages", [Say(0, b"\xff" + b"[" * 5_000)])
    small = reduced(deep, lambda p: p.steps[0].octets.count(b"[") > 1_000, keep)  # type: ignore[union-attr]
    (step,) = small.steps
    assert isinstance(step, Say)
    assert 1_001 <= len(step.octets) < 1_020


def test_bodies_are_made_small_too() -> None:
    case = Case("fuzz", "http.same_validation", "reject", ("invalid_json",))
    program = Program.of("http", [Exchange(b"{}", case), Exchange(b'{"text": nil}', case)])

    def fails(program: Program) -> bool:
        return any(isinstance(s, Exchange) and b"n" in s.body for s in program.steps)

    def rewrite(step: Say | Exchange, data: bytes) -> Say | Exchange | None:
        return replace(step, body=data) if isinstance(step, Exchange) else None

    assert reduced(program, fails, rewrite).steps == (Exchange(b"n", case),)


def test_the_end_of_time_ends_the_search() -> None:
    calls = 0

    def fails(program: Program) -> bool:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise TimeoutError
        return False

    with pytest.raises(TimeoutError):
        reduced(Program.of("sessions", [Wait(0), Wait(1), Ping(0)]), fails, keep)


@CALM
@given(st.lists(st.sampled_from([Wait(0), Ping(1), Stall(2)]), min_size=1, max_size=12))
def test_what_fails_fails_still(steps: list[Wait | Ping | Stall]) -> None:
    def fails(program: Program) -> bool:
        return any(isinstance(step, Ping) for step in program.steps)

    program = Program.of("sessions", steps)
    if fails(program):
        assert reduced(program, fails, keep).steps == (Ping(0),)


# --- judging ----------------------------------------------------------------------------------

OPEN = [
    Entry(0.0, "out", "open", 1, target="/invocations-bidirectional-stream"),
    Entry(0.01, "in", "open", 1, status=101),
]
START = {"sample_rate": 24_000, "format": "pcm_s16le", "voice": "nova"}
DONE = {"total_duration_s": 0.0, "elapsed_s": 0.0, "audio_bytes": 0}
QUIET = Entry(3.0, "note", "note", 1, text="quiet: every answer was waited for")


def line(direction: str, t: float, **fields: object) -> Entry:
    return Entry(t, direction, "text", 1, data=octets(**fields))  # type: ignore[arg-type]


def recorded(*entries: Entry, claims: EndpointClaims = CLAIMS) -> Transcript:
    return Transcript("fuzz-sessions", "e", claims, entries=[*OPEN, *entries])


def test_a_good_session_breaks_nothing() -> None:
    good = recorded(
        line("out", 1.0, text="..."),
        line("in", 1.1, type="synthesis_start", seq=1, **START),
        line("in", 1.2, type="synthesis_complete", seq=1, characters=3, **DONE),
        line("out", 1.3, type="cancel", request_id="a"),
        line("in", 1.4, type="cancel_done", seq=2, request_id="a", count=0),
        QUIET,
    )
    assert broken(good) == {}


@pytest.mark.parametrize(
    ("sent", "requirement"),
    [
        ({"text": "Hi"}, "order.one-terminal"),
        ({"type": "cancel"}, "cancel.done"),
        ({"type": "hello", "protocol_versions": [1]}, "hello.session"),
        ({"type": "close"}, "close.session-closed"),
        ({"type": "speak"}, "reject.one-error"),
    ],
)
def test_what_was_waited_for_with_patience_is_missing(
    sent: dict[str, object], requirement: str
) -> None:
    assert requirement in broken(recorded(line("out", 1.0, **sent), QUIET))
    assert broken(recorded(line("out", 1.0, **sent))) == {}


@pytest.mark.parametrize(
    ("sent", "requirement"),
    [
        ({"type": "keepalive"}, "session.stays-open"),
        ({"type": "close"}, "close.session-closed"),
        ({"type": "speak"}, "reject.session-survives"),
    ],
)
def test_a_connection_that_is_dropped_is_a_failure(
    sent: dict[str, object], requirement: str
) -> None:
    end = Entry(1.1, "in", "eof", 1, reason="end of stream")
    assert requirement in broken(recorded(line("out", 1.0, **sent), end, QUIET))


def test_what_is_not_claimed_or_only_recommended_is_no_finding() -> None:
    core = EndpointClaims(frozenset({"core"}))
    early = recorded(
        line("out", 1.0, type="cancel"),
        line("in", 1.1, type="cancel_done", seq=1, count=0),
        QUIET,
        claims=core,
    )
    assert all(not name.startswith("cancel.") for name in broken(early))


def test_pings_are_looked_at() -> None:
    ping = Entry(1.0, "out", "ping", 1, data=b"x")
    assert list(broken(recorded(ping, QUIET))) == ["ws.ping"]
    pong = Entry(1.1, "in", "pong", 1, data=b"x")
    assert broken(recorded(ping, pong, QUIET)) == {}
    assert broken(recorded(ping, Entry(1.1, "out", "eof", 1))) == {}


def test_an_id_in_odd_json_is_nobodys() -> None:
    odd = b'{"text":"Hi","request_id":"b","x":"\\ud800"}'
    refusal = {"code": "invalid_request", "message": "No.", "retryable": False, "rejected": True}
    transcript = recorded(
        Entry(1.0, "out", "text", 1, data=odd),
        line("out", 1.0, text="...", request_id="b"),
        line("in", 1.1, type="error", seq=1, request_id="b", **refusal),
        line("in", 1.1, type="synthesis_start", seq=2, request_id="b", **START),
        line("in", 1.2, type="synthesis_complete", seq=2, request_id="b", characters=3, **DONE),
        QUIET,
    )
    assert broken(transcript) == {}


def test_a_duplicate_after_a_cancel_may_be_refused() -> None:
    refusal = {"message": "No.", "retryable": False, "rejected": True}
    refusal["code"] = "duplicate_request_id"
    transcript = recorded(
        line("out", 1.0, text="...", request_id="b"),
        line("out", 1.0, type="cancel", request_id="a"),
        line("out", 1.0, text="...", request_id="b"),
        line("in", 1.1, type="cancel_done", seq=2, request_id="a", count=0),
        line("in", 1.1, type="synthesis_start", seq=1, request_id="b", **START),
        line("in", 1.2, type="synthesis_complete", seq=1, request_id="b", characters=3, **DONE),
        line("in", 1.2, type="error", seq=3, request_id="b", **refusal),
        QUIET,
    )
    assert broken(transcript) == {}


def test_what_overtakes_passes_nothing_over() -> None:
    transcript = recorded(
        line("out", 1.0, text="..."),
        line("out", 1.0, type="speak"),
        line("out", 1.0, type="cancel", request_id="a"),
        line("in", 1.1, type="cancel_done", seq=3, request_id="a", count=0),
        Entry(1.2, "out", "close", 1, data=b"\x03\xe8", code=1000),
        Entry(1.3, "in", "close", 1, data=b"\x03\xe8", code=1000),
    )
    assert broken(transcript) == {}


# --- results ----------------------------------------------------------------------------------


def finding(**changes: object) -> Finding:
    transcript = recorded(line("out", 1.0, text="Hi"), QUIET)
    program = Program.of("sessions", [Say(0, octets(text="Hi"))])
    judgements = {"order.one-terminal": fail("It never ended."), "order.fifo": fail("Mixed.")}
    found = Finding("order-one-terminal", program, transcript, judgements, "order.one-terminal")
    return replace(found, **changes)  # type: ignore[arg-type]


def test_a_finding_tells_what_broke() -> None:
    found = finding(tries=3, again=3)
    told = found.told()
    assert told.scenario == found.scenario == "fuzz-sessions-order-one-terminal"
    notes = [entry.text for entry in told.entries if entry.session == 0]
    assert notes[0] == "finding: order.one-terminal: It never ended."
    assert set(broken(told)) == set(broken(found.transcript)) == {"order.one-terminal"}
    body = found.to_json()
    assert body["requirement"] == "order.one-terminal"
    assert body["also"] == ["order.fifo"]
    assert body["flaky"] is False


@pytest.mark.parametrize(
    ("tries", "again", "flaky", "words"),
    [
        (0, 0, False, "no time"),
        (3, 3, False, "3 of 3"),
        (3, 1, True, "1 of 3"),
        (2, 0, True, "not again in 2"),
    ],
)
def test_how_often_it_came(tries: int, again: int, flaky: bool, words: str) -> None:
    found = finding(tries=tries, again=again)
    assert found.flaky is flaky
    assert words in found.seen


def test_results_as_json() -> None:
    results = FuzzResults(7, cells={("open", "close"): 3}, findings=[finding()])
    results.kinds["sessions"] = KindResult(Verdict.FAIL, "it broke", 12)
    assert results.examples == 12
    body = results.to_json()
    assert body["programs"] == 12
    assert body["cells"] == [{"state": "open", "event": "close", "count": 3}]
    rules = {"$ref": "https://utterwire.dev/schemas/1/report.json#/properties/fuzz"}
    Draft202012Validator(rules, registry=REGISTRY).validate(body)


def test_what_was_left_out_is_not_exercised() -> None:
    results = FuzzResults.left_out(FuzzPlan(), "why")
    assert {kind.verdict for kind in results.kinds.values()} == {Verdict.NOT_EXERCISED}
    assert results.stopped == "why"


# --- in a run that may take so many minutes ---------------------------------------------------


async def fuzzed_within(
    left_s: float | None, plan: FuzzPlan, monkeypatch: pytest.MonkeyPatch
) -> tuple[FuzzResults, list[FuzzPlan]]:
    """What comes of fuzzing where the run has so much time left, and the plans that were begun."""
    begun: list[FuzzPlan] = []
    meter = Meter(Budget())
    meter.too_late = "the run was to take 2 minutes at most"
    if left_s is not None:
        meter.until = asyncio.get_running_loop().time() + left_s

    async def begin(target: Target, plan: FuzzPlan, **_: object) -> FuzzResults:
        # What it plays is bounded by the plan alone: a finding is tried to its end.
        assert meter.until is None
        begun.append(plan)
        return FuzzResults(plan.seed, plan.random)

    monkeypatch.setattr(runner, "fuzz", begin)
    target = Target(NEAR)
    target.main = Instance("ws://h", "http://h")
    return await runner._fuzz(target, plan, runner.Results(), meter, Progress()), begun


@pytest.mark.parametrize(
    ("left_s", "asked_s", "most_s"),
    [(None, 30.0, 30.0), (9e6, 30.0, 30.0), (9e6, 9e7, 9e6), (9e6, None, 9e6)],
)
async def test_it_takes_no_longer_than_the_run_may(
    left_s: float | None, asked_s: float | None, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = FuzzPlan(asked_s, examples=7)
    _, (begun,) = await fuzzed_within(left_s, plan, monkeypatch)
    assert begun.seconds is not None
    assert most_s / 2 < begun.seconds <= most_s
    assert replace(begun, seconds=asked_s) == plan


async def test_when_the_run_is_over_nothing_is_fuzzed(monkeypatch: pytest.MonkeyPatch) -> None:
    results, begun = await fuzzed_within(0.0, FuzzPlan(), monkeypatch)
    assert begun == []
    assert results.stopped == "the run was to take 2 minutes at most"
    assert {kind.verdict for kind in results.kinds.values()} == {Verdict.NOT_EXERCISED}


# --- what is asked for ------------------------------------------------------------------------

LAUNCHED = Endpoint("e", launch=("server", "{port}"), ready_url="http://127.0.0.1:{port}/ping")
FAR = Endpoint("e", url="wss://tts.example.com/invocations-bidirectional-stream")
NEAR = Endpoint("e", url="ws://127.0.0.1:8080/invocations-bidirectional-stream")


@pytest.mark.parametrize(
    ("wish", "endpoint", "narrowed", "why"),
    [
        (FuzzWish(), LAUNCHED, False, None),
        (FuzzWish(), NEAR, False, None),
        (FuzzWish(), LAUNCHED, True, "only a part"),
        (FuzzWish(), FAR, False, "not on this machine"),
        (FuzzWish(), replace(LAUNCHED, budget=Budget(characters=5)), False, "a budget"),
        (FuzzWish(unwanted=True), LAUNCHED, False, "--no-fuzz"),
        (FuzzWish(wanted=True), FAR, True, None),
        (FuzzWish(examples=1), FAR, True, None),
        (FuzzWish(minutes=1), FAR, True, None),
        (FuzzWish(seed=0), FAR, True, None),
    ],
)
def test_whom_it_costs_something_is_not_fuzzed_unasked(
    wish: FuzzWish, endpoint: Endpoint, narrowed: bool, why: str | None
) -> None:
    found = wish.reluctance(endpoint, narrowed=narrowed)
    assert (found is None) is (why is None)
    assert why is None or why in str(found)


@pytest.mark.parametrize(
    ("wish", "plan"),
    [
        (FuzzWish(), FuzzPlan(DEFAULT_S, None, 0)),
        (FuzzWish(seed=9), FuzzPlan(DEFAULT_S, None, 9)),
        (FuzzWish(examples=5), FuzzPlan(None, 5, 0)),
        (FuzzWish(minutes=2, seed=9), FuzzPlan(120.0, None, 9)),
        (FuzzWish(minutes=2, seed=9, examples=5), FuzzPlan(120.0, 5, 9)),
    ],
)
def test_plans(wish: FuzzWish, plan: FuzzPlan) -> None:
    assert wish.plan() == plan


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        (FuzzPlan(), 6.0),
        (FuzzPlan(5.0), 4.0),
        (FuzzPlan(6_000.0), 60.0),
        (FuzzPlan(None, 5), 20.0),
        (FuzzPlan(None, 5, shrink_s=1.0), 1.0),
    ],
)
def test_how_long_a_finding_may_take(plan: FuzzPlan, seconds: float) -> None:
    assert plan.patience_s == seconds


def test_a_long_run_has_a_seed_of_its_own() -> None:
    plans = [FuzzWish(minutes=1).plan() for _ in range(3)]
    assert len({plan.seed for plan in plans}) == 3
    assert all(plan.random for plan in plans)
