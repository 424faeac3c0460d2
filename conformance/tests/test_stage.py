"""Texts, patience and budget of a run."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance import runner, scenarios
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.driver import ConnectFailed, HandshakeRefused
from utterwire_conformance.endpoints import Budget, Endpoint
from utterwire_conformance.stage import Meter, Pace, Scenario, Stage, Texts, Unplayable, play
from utterwire_conformance.target import Instance, Target
from utterwire_conformance.transcript import Transcript

SAMPLES = st.lists(
    st.text(st.characters(categories=["L", "P", "Zs"]), min_size=1).filter(str.strip),
    min_size=3,
    max_size=5,
).map(tuple)


@given(samples=SAMPLES, size=st.integers(1, 500))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_texts_have_the_length_asked_for(samples: tuple[str, ...], size: int) -> None:
    text = Texts(samples).of_length(size)
    assert len(text) == size


def test_samples() -> None:
    texts = Texts(("one is long", "two", "three"))
    assert texts.shortest == "two"
    assert texts.sample(4) == "two"
    assert texts.of_length(6).startswith("one is")


@pytest.mark.parametrize(
    ("rtt", "first_byte", "character", "pace"),
    [
        (0.001, 0.01, 0.0001, Pace(10, 5.0, 5.0, 0.001, 0.0001)),
        (0.2, 0.3, 0.0001, Pace(10, 30.0, 30.0, 0.2, 0.0001)),
        (0.001, 0.01, 0.0005, Pace(10, 12.288, 12.288, 0.001, 0.0005)),
        (0.001, None, 0.0, Pace(10, 1.004, 1.004, 0.001)),
    ],
)
def test_patience_follows_what_was_measured(
    rtt: float, first_byte: float | None, character: float, pace: Pace
) -> None:
    found = Pace().measured(rtt, first_byte, character, players=6)
    assert found.first == pytest.approx(pace.first)
    assert found.stall == pytest.approx(pace.stall)
    assert (found.rtt, found.character) == (pace.rtt, pace.character)
    # However short of patience, it is never so short as an ordinary answer of this endpoint.
    assert found.brief >= 2 * (first_byte or 0.0)
    assert found.brief <= found.first
    assert found.whole(100) == pytest.approx(found.first + 1200 * character)


async def test_a_budget_ends_a_run() -> None:
    meter = Meter(Budget(characters=10, sessions=1))
    await meter.spend(characters=10, sessions=1)
    with pytest.raises(Unplayable, match="10 characters"):
        await meter.spend(characters=1)
    with pytest.raises(Unplayable, match="1 sessions"):
        await meter.spend(sessions=1)


async def test_requests_keep_to_their_rate() -> None:
    loop = asyncio.get_running_loop()
    meter = Meter(Budget(requests_per_second=50))
    began = loop.time()
    for _ in range(3):
        await meter.spend(characters=1)
    assert loop.time() - began >= 0.04


async def _play(error: BaseException | None, limit_s: float = 1.0) -> tuple[str | None, str | None]:
    async def scene(stage: Stage) -> None:
        if error is None:
            await asyncio.sleep(60)
        else:
            raise error

    endpoint = Endpoint("x", url="ws://h")
    scenario = Scenario("scene", "core", scene, limit_s=limit_s)
    transcript = await play(
        scenario, Target(endpoint), Instance("ws://h", "http://h"), Pace(first=1.0), Meter(Budget())
    )
    return transcript.unfinished, transcript.broken


@pytest.mark.parametrize(
    ("error", "unfinished", "broken"),
    [
        (Unplayable("no limits"), "no limits", None),
        (HandshakeRefused(404, "HTTP 404"), "no session could be opened: HTTP 404", None),
        (HandshakeRefused(503, "HTTP 503"), None, "the session was refused with HTTP 503"),
        (HandshakeRefused(401, "HTTP 401"), None, "the session was refused with HTTP 401"),
        (ConnectFailed("nobody"), None, "nobody"),
        (KeyError("x"), None, "the suite failed: KeyError: 'x'"),
        (ExceptionGroup("both", [Unplayable("spent"), Unplayable("too")]), "spent", None),
        (ExceptionGroup("a", [ExceptionGroup("b", [ConnectFailed("gone")])]), None, "gone"),
    ],
)
async def test_what_a_scenario_can_run_into(
    error: Exception, unfinished: str | None, broken: str | None
) -> None:
    said, bad = await _play(error)
    assert said == unfinished
    assert (bad or "").startswith(broken or "")
    assert (bad is None) == (broken is None)


async def test_a_scenario_does_not_last_for_ever() -> None:
    assert await _play(None, 0.01) == ("it was not over after 0.01 s", None)


@pytest.mark.parametrize("left_s", [-1.0, 0.01])
async def test_what_there_is_no_time_for_is_not_exercised(
    left_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what has not begun, nor what is in its middle: it would look like a silence."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The clock stands still until it has begun, and is far on then.
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + 60.0 if begun.is_set() else now)

    async def scene(stage: Stage) -> None:
        begun.set()
        stage.recorder.record("out", "open", stage.recorder.next_session())
        await asyncio.Event().wait()

    meter = Meter(Budget())
    meter.until = now + left_s
    meter.too_late = "the run was to take 2 minutes at most"
    transcript = await play(
        Scenario("scene", "core", scene),
        Target(Endpoint("x", url="ws://h")),
        Instance("ws://h", "http://h"),
        Pace(first=1.0),
        meter,
    )
    assert begun.is_set() == (left_s > 0)
    assert transcript.unfinished == meter.too_late
    assert (transcript.entries, transcript.broken) == ([], None)
    assert meter.time_left == 0


async def test_a_run_without_a_limit_has_all_time() -> None:
    meter = Meter(Budget())
    assert meter.time_left == float("inf")
    assert await _play(Unplayable("no limits")) == ("no limits", None)


async def test_a_standstill_of_the_suite_is_written_down() -> None:
    async def scene(stage: Stage) -> None:
        stage.recorder.record("out", "open", stage.recorder.next_session())
        time.sleep(0.7)  # noqa: ASYNC251 - this is the standstill

    endpoint = Endpoint("x", url="ws://h")
    transcript = await play(
        Scenario("scene", "core", scene),
        Target(endpoint),
        Instance("ws://h", "http://h"),
        Pace(first=1.0),
        Meter(Budget()),
    )
    assert transcript.unfinished is transcript.broken is None
    notes = [entry for entry in transcript.entries if entry.dir == "note"]
    assert {note.session for note in notes} == {1}
    lasted = []
    for note in notes:
        text = note.text or ""
        assert text.startswith("stood still: ")
        since, until = map(float, text.removeprefix("stood still: ").split())
        lasted.append(until - since)
    # The machine may have stood still of its own accord, too.
    assert max(lasted) >= 0.6


@pytest.mark.parametrize(
    ("alone", "crowd", "budget", "players"),
    [
        pytest.param(0.2, [], Budget(), 6, id="quick"),
        pytest.param(3.0, [3.0, 3.1, 3.3, 3.0, 3.2, 3.1], Budget(), 6, id="side by side"),
        pytest.param(3.0, [4.0, 6.0, 9.0, 12.0, 15.0, 18.0], Budget(), 1, id="one by one"),
        pytest.param(3.0, [6.0] * 6, Budget(), 3, id="two at a time"),
        pytest.param(3.0, [3.0, 3.0, None, None, None, None], Budget(), 1, id="some not at all"),
        pytest.param(3.0, [None] * 6, Budget(), 1, id="nobody"),
        pytest.param(1.5, [], Budget(characters=500), 4, id="not asked for money"),
        pytest.param(30.0, [], Budget(sessions=9), 1, id="nor for sessions"),
    ],
)
async def test_as_many_play_at_a_time_as_the_endpoint_bears(
    monkeypatch: pytest.MonkeyPatch,
    alone: float,
    crowd: list[float | None],
    budget: Budget,
    players: int,
) -> None:
    class Up:
        main = object()

    def probe(spent: float | None) -> Transcript:
        return Transcript(str(spent), "slow", EndpointClaims(), "")

    left = [probe(spent) for spent in crowd]

    async def played(*_: object) -> Transcript:
        return left.pop()

    monkeypatch.setattr(runner, "play", played)
    monkeypatch.setattr(
        scenarios,
        "spent",
        lambda transcript: None if transcript.scenario == "None" else float(transcript.scenario),
    )
    found = await runner._bearable(Up(), Pace(), Meter(budget), probe(alone), 6)  # type: ignore[arg-type]
    assert found == players
    assert not left, "all players ask at once"
