"""Places at an endpoint that takes only so many connections at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.driver import HandshakeRefused
from utterwire_conformance.endpoints import Budget, Endpoint
from utterwire_conformance.places import Places
from utterwire_conformance.stage import Meter, NoPlace, Pace, Scenario, Stage, play
from utterwire_conformance.target import Instance, Target
from utterwire_conformance.transcript import Transcript


@dataclass
class Held:
    over: bool = False


async def test_as_many_as_there_are_places_and_no_more() -> None:
    places = Places(2)
    most = now = 0

    async def one(count: int) -> None:
        nonlocal most, now
        async with places.reserved(count) as held:
            now += held
            most = max(most, now)
            await asyncio.sleep(0)
            now -= held

    async with asyncio.timeout(10.0):
        await asyncio.gather(*(one(1 + number % 2) for number in range(20)))
    assert most == 2
    assert now == 0


async def test_all_can_be_broken_off_at_once() -> None:
    """Who holds a place lets those go that wait for it, and they are cancelled already."""
    places = Places(1)

    async def one() -> None:
        async with places.reserved(1):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(one()) for _ in range(4)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == 4 * [asyncio.CancelledError]
    async with asyncio.timeout(10.0), places.reserved(1) as held:
        assert held == 1


@given(
    limit=st.one_of(st.none(), st.integers(1, 4)),
    wishes=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=12),
    learned=st.integers(1, 4),
)
@settings(derandomize=True, max_examples=80, deadline=None)
def test_nobody_waits_for_ever_and_nothing_is_lost(
    limit: int | None, wishes: list[tuple[int, bool]], learned: int
) -> None:
    async def main() -> None:
        places = Places(limit)

        async def one(count: int) -> None:
            async with places.reserved(count):
                for _ in range(3):
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(count)) for count, _ in wishes]
        await asyncio.sleep(0)
        places.learn(learned)
        for task, (_, cancelled) in zip(tasks, wishes, strict=True):
            if cancelled:
                task.cancel()
        async with asyncio.timeout(10.0):
            await asyncio.gather(*tasks, return_exceptions=True)
            async with places.reserved(99) as held:
                assert held == places.limit

    asyncio.run(main())


def test_what_is_learned_never_grows() -> None:
    places = Places()
    assert places.fitting(6) == 6
    places.learn(3)
    places.learn(5)
    assert (places.limit, places.learned) == (3, True)
    places.learn(0)
    assert places.fitting(6) == 1
    known = Places(1)
    known.learn(4)
    assert not known.learned


def test_connections_are_counted_until_they_are_over() -> None:
    places = Places()
    one, other = Held(), Held()
    places.occupy(one)
    places.occupy(other)
    assert places.open == 2
    one.over = True
    assert places.open == 1


# --- scenes on an endpoint that turns away --------------------------------------------------------


class Door:
    """Stands in for the driver: lets in `room` at a time, refuses with `status` beyond."""

    def __init__(self, room: int, *, status: int = 503, retry_after: float | None = 0.0) -> None:
        self.room = room
        self.status = status
        self.retry_after = retry_after
        self.inside: list[Visit] = []
        self.refusals = 0
        self.most = 0

    async def open(self, url: str, recorder: object, *rest: object, **more: object) -> Visit:
        recorder.next_session()  # type: ignore[attr-defined]
        self.inside = [visit for visit in self.inside if not visit.over]
        if len(self.inside) >= self.room:
            self.refusals += 1
            raise HandshakeRefused(self.status, f"HTTP {self.status}", self.retry_after)
        visit = Visit()
        self.inside.append(visit)
        self.most = max(self.most, len(self.inside))
        return visit


class Visit(Held):
    gate: object = None

    async def __aenter__(self) -> Visit:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.over = True


Scene = Callable[[Stage], Awaitable[None]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_DELAY_S", "_FOR_OTHERS_S", "_FOR_OWN_S", "_FOR_ROOM_S"):
        monkeypatch.setattr(f"utterwire_conformance.stage.{name}", 0.01)


async def run(
    door: Door, scenes: list[Scene], monkeypatch: pytest.MonkeyPatch, *, limit: int | None = None
) -> tuple[list[Transcript], Meter]:
    monkeypatch.setattr("utterwire_conformance.stage.WebSocketSession.open", door.open)
    target = Target(Endpoint("x", url="ws://h", claims=EndpointClaims()))
    target.main = Instance("ws://h", "http://h")
    main = target.main
    meter = Meter(Budget(), Places(limit))
    async with asyncio.timeout(20.0):
        made = await asyncio.gather(
            *(
                play(Scenario(f"scene-{n}", "core", scene), target, main, Pace(first=1.0), meter)
                for n, scene in enumerate(scenes)
            )
        )
    return list(made), meter


async def single(stage: Stage) -> None:
    async with await stage.session():
        await asyncio.sleep(0.02)


async def double(stage: Stage) -> None:
    async with await stage.session(), await stage.session():
        await asyncio.sleep(0.02)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("room", [1, 2, 3])
@pytest.mark.parametrize("known", [True, False])
async def test_few_places_are_shared(
    monkeypatch: pytest.MonkeyPatch, room: int, known: bool
) -> None:
    door = Door(room)
    scenes: list[Scene] = [single, double] * 4
    made, meter = await run(door, scenes, monkeypatch, limit=room if known else None)
    for transcript, scene in zip(made, scenes, strict=True):
        assert transcript.broken is None
        if scene is double and room == 1:
            assert transcript.unfinished == (
                "it needs 2 connections at a time, and the endpoint takes 1 connection"
            )
        else:
            assert transcript.unfinished is None
    assert meter.places.limit is not None
    assert meter.places.limit <= room
    assert door.most <= room
    assert not (known and door.refusals)
    assert meter.places.learned is not known


@pytest.mark.usefixtures("quick")
async def test_a_place_that_gets_free_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(0, retry_after=0.05)

    async def let_in() -> None:
        while door.refusals < 2:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0)
        door.room = 1

    (made, _), _ = await asyncio.gather(run(door, [single], monkeypatch), let_in())
    assert (made[0].unfinished, made[0].broken) == (None, None)
    notes = [entry.text for entry in made[0].entries if entry.kind == "note"]
    assert notes == ["turned away: HTTP 503, with 0 connections open"] * 2
    assert {entry.session for entry in made[0].entries} == {0}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [503, 429])
async def test_who_is_never_let_in_cannot_judge(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    made, meter = await run(Door(0, status=status), [single] * 5, monkeypatch)
    assert all(t.broken == f"the session was refused with HTTP {status}" for t in made)
    assert meter.refused == 5


@pytest.mark.usefixtures("quick")
async def test_other_refusals_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(0, status=404)
    made, _ = await run(door, [single], monkeypatch)
    assert door.refusals == 1
    assert made[0].unfinished == "no session could be opened: HTTP 404"


async def test_side_by_side_or_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(9)

    async def scene(stage: Stage) -> None:
        async def part() -> None:
            async with await stage.session():
                await asyncio.sleep(0.01)

        await stage.side_by_side(part, part)

    for limit, most in ((None, 2), (1, 1)):
        door.most = 0
        made, _ = await run(door, [scene], monkeypatch, limit=limit)
        assert made[0].unfinished is None
        assert door.most == most


def test_no_place_says_how_many() -> None:
    assert (
        str(NoPlace(3, 2))
        == "it needs 3 connections at a time, and the endpoint takes 2 connections"
    )


@pytest.mark.usefixtures("quick")
async def test_who_has_no_room_for_a_request_gets_fewer_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door(9)

    async def scene(stage: Stage) -> None:
        others = stage._others()
        async with await stage.session():
            await asyncio.sleep(0.01)
            if len([visit for visit in door.inside if not visit.over]) > 2:
                stage._share(max(others, stage._others()))

    made, meter = await run(door, [scene] * 6, monkeypatch)
    assert all((t.unfinished, t.broken) == (None, None) for t in made)
    assert meter.places.limit in (1, 2, 3)
