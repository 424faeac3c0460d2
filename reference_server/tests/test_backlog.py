"""What waits is counted, estimated by what the engine did, bounded, and given back."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_server.backlog import LATEST_S, SOONEST_S, Backlog
from utterwire_server.pace import Pace


def backlog(pace: Pace | None = None, *, chars: int = 1_000, seconds: float = 10.0) -> Backlog:
    return Backlog(pace or Pace(), workers=1, max_characters=chars, max_s=seconds)


def known(real_time_factor: float) -> Pace:
    """A pace that has seen speech of ten characters a second for a long time."""
    pace = Pace()
    for _ in range(200):
        pace.made(1.0, real_time_factor)
        pace.spoke(100, 10.0, 1.0)
    return pace


def test_nothing_is_known_before_the_first_block() -> None:
    pace = Pace()
    assert (pace.real_time_factor, pace.block_s, pace.work_s(10_000)) == (0.0, 0.0, 0.0)
    with backlog(pace).place(900, 1.0):
        assert backlog(pace).overload(1_000) is None


def test_pace_is_learned() -> None:
    pace = known(0.3)
    assert pace.real_time_factor == pytest.approx(0.3)
    assert pace.block_s == pytest.approx(0.3)
    assert pace.speech_s(100) == pytest.approx(10.0, rel=0.01)
    assert pace.speech_s(100, speed=2.0) == pytest.approx(5.0, rel=0.01)
    assert pace.work_s(100) == pytest.approx(3.0, rel=0.01)
    for _ in range(300):
        pace.made(1.0, 0.6)
    assert pace.real_time_factor == pytest.approx(0.6, rel=0.02)


def test_speed_and_silence_do_not_spoil_it() -> None:
    fast = known(0.3)
    for _ in range(200):
        fast.spoke(100, 5.0, 2.0)
    assert fast.speech_s(100) == pytest.approx(10.0, rel=0.01)
    silent = Pace()
    for _ in range(1_000):
        silent.spoke(1, 0.0, 1.0)
    assert silent.speech_s(100) == Pace().speech_s(100)


def test_what_is_spoken_makes_room() -> None:
    held = backlog(known(0.5), seconds=20.0)
    place = held.place(1_000, 1.0)
    assert held.seconds == pytest.approx(50.0, rel=0.01)
    assert place.left_s == pytest.approx(50.0, rel=0.01)
    for _ in range(60):
        place.made(1.0)
    assert held.characters == pytest.approx(400, rel=0.02)
    assert held.overload(10) is None
    # The estimate was too low: it never falls below nothing.
    for _ in range(100):
        place.made(1.0)
    assert held.characters == 0.0
    place.release()
    place.release()
    assert (held.places, held.characters, held.seconds) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("waiting", "asked", "wait"),
    [
        pytest.param(0, 1_000, None, id="all of the room"),
        pytest.param(900, 101, SOONEST_S, id="one character too many"),
        pytest.param(900, 100, None, id="just enough"),
        pytest.param(1_000, 400, 20.0, id="as long as it takes to speak 400 characters"),
    ],
)
def test_the_bound_on_characters(waiting: int, asked: int, wait: float | None) -> None:
    held = backlog(known(0.5), seconds=1e9)
    with held.place(waiting, 1.0):
        told = held.overload(asked)
        assert told == (None if wait is None else pytest.approx(wait, rel=0.01))
    assert held.places == 0


def test_the_bound_on_seconds() -> None:
    """Who comes to a queue within the bound is let in, whatever its own length."""
    held = backlog(known(0.5), chars=10**9, seconds=10.0)
    with held.place(150, 1.0, "a"):
        assert held.overload(100_000, "a") is None
        with held.place(150, 1.0, "a"):
            assert held.overload(1, "a") == pytest.approx(5.0, rel=0.02)
            with held.place(10**6, 1.0, "a"):
                assert held.overload(1, "a") == LATEST_S
    two = Backlog(known(0.5), workers=2, max_characters=10**9, max_s=10.0)
    with two.place(300, 1.0, "a"):
        assert two.overload(1, "a") is None


def test_no_long_text_takes_everybodys_room() -> None:
    held = backlog(known(0.5), chars=10**9, seconds=8.0)
    with ExitStack() as places:
        for owner in range(8):
            assert held.overload(1, "new") is None
            places.enter_context(held.place(10_000, 1.0, owner))
            places.enter_context(held.place(10_000, 1.0, owner))
            assert held.overload(1, owner) == LATEST_S
        assert held.seconds == pytest.approx(8_000, rel=0.02)
        places.enter_context(held.place(10_000, 1.0, "one too many"))
        assert held.overload(1, "new") == SOONEST_S
    assert held.overload(1, "new") is None


@pytest.mark.parametrize(("speech_s", "heard_s"), [(1e-6, 3.0), (5.0, 5.0), (1e6, 40.0)])
def test_a_text_that_is_none_does_not_spoil_it(speech_s: float, heard_s: float) -> None:
    pace = Pace()
    for _ in range(500):
        pace.spoke(100, speech_s, 1.0)
    assert pace.speech_s(100) == pytest.approx(heard_s, rel=0.02)


def test_a_place_is_given_back_on_an_error() -> None:
    held = backlog()
    with pytest.raises(RuntimeError, match="out"), held.place(10, 1.0):
        raise RuntimeError("out")
    assert held.places == 0


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5_000), st.floats(0.5, 2.0), st.lists(st.floats(0, 50), max_size=5)
        ),
        max_size=12,
    )
)
def test_the_sums_are_those_of_the_places(texts: list[tuple[int, float, list[float]]]) -> None:
    held = backlog(known(0.4), chars=10**9, seconds=1e9)
    places = []
    for characters, speed, blocks in texts:
        place = held.place(characters, speed)
        places.append(place)
        before = held.characters
        for block in blocks:
            place.made(block)
            assert -1e-6 <= held.characters <= before + 1e-6
            before = held.characters
    assert held.seconds == pytest.approx(sum(place.left_s for place in places), abs=1e-6)
    for place in places:
        place.release()
    assert (held.places, held.characters, held.seconds) == (0, 0.0, 0.0)
