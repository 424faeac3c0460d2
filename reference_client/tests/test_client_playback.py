"""The model of a player: what was scheduled when, what was heard, and where it was silent."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_client import Gap, Playback


def test_pieces_are_played_one_behind_the_other() -> None:
    playback = Playback()
    assert playback.enqueue(2.0, 10.0) == 10.0
    assert playback.enqueue(1.0, 10.5) == 12.0
    assert playback.enqueue(0.0, 10.5) == 13.0
    assert playback.enqueued_s == 3.0
    assert [playback.heard_s(now) for now in (9.0, 10.0, 11.0, 12.5, 13.0, 99.0)] == [
        *(0.0, 0.0, 1.0, 2.5, 3.0, 3.0)
    ]
    assert [playback.queued_s(now) for now in (10.0, 12.5, 99.0)] == [3.0, 0.5, 0.0]
    assert playback.gaps == ()


def test_audio_that_comes_late_makes_a_gap() -> None:
    playback = Playback()
    playback.enqueue(1.0, 0.0)
    assert playback.enqueue(1.0, 1.5) == 1.5
    assert playback.enqueue(1.0, 2.75) == 2.75
    assert playback.gaps == (Gap(at_s=1.0, seconds=0.5), Gap(at_s=2.0, seconds=0.25))
    assert (playback.gap_count, playback.gap_s) == (2, 0.75)
    assert playback.heard_s(3.0) == 2.25
    # Between, the heard position stood still.
    assert Playback().heard_s(5.0) == 0.0


def test_just_in_time_is_no_gap() -> None:
    playback = Playback()
    playback.enqueue(1.0, 0.0)
    assert playback.enqueue(1.0, 1.0) == 1.0
    assert playback.gaps == ()


def test_silence_after_the_end_is_no_gap() -> None:
    playback = Playback()
    playback.enqueue(1.0, 0.0)
    playback.finish()
    assert playback.enqueue(1.0, 5.0) == 5.0
    playback.finish()
    assert playback.enqueue(1.0, 5.5) == 6.0  # the next speech does not wait for silence
    assert playback.gaps == ()
    assert playback.heard_s(6.25) == 2.25


def test_a_lead_holds_back_what_comes_first() -> None:
    playback = Playback(lead_s=0.25)
    assert playback.enqueue(1.0, 0.0) == 0.25
    assert playback.heard_s(0.2) == 0.0
    assert playback.enqueue(1.0, 1.2) == 1.25
    assert playback.gap_count == 0
    assert playback.enqueue(1.0, 3.0) == 3.25
    assert playback.gaps == (Gap(2.0, 1.0),)


def test_what_was_not_heard_is_thrown_away() -> None:
    playback = Playback()
    assert playback.flush(0.0) == 0.0
    playback.enqueue(2.0, 0.0)
    assert playback.flush(0.5) == 1.5
    assert playback.heard_s(9.0) == playback.enqueued_s == 0.5
    assert playback.queued_s(0.5) == 0.0
    assert playback.enqueue(1.0, 0.75) == 0.75
    assert playback.heard_s(1.0) == 0.75
    assert playback.gaps == ()
    assert playback.flush(99.0) == 0.0


def test_a_flush_before_the_first_sound() -> None:
    playback = Playback(lead_s=0.5)
    playback.enqueue(1.0, 0.0)
    assert playback.flush(0.25) == 1.0
    assert playback.heard_s(9.0) == 0.0
    assert playback.enqueue(1.0, 0.3) == 0.8


def test_only_the_last_gaps_are_kept() -> None:
    playback = Playback()
    for number in range(1000):
        playback.enqueue(1.0, 2.0 * number)
    assert (playback.gap_count, len(playback.gaps)) == (999, 256)


@pytest.mark.parametrize("wrong", [-0.1, math.inf, math.nan])
def test_lengths_are_lengths(wrong: float) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        Playback().enqueue(wrong, 0.0)
    with pytest.raises(ValueError, match="number of seconds"):
        Playback(lead_s=wrong)


step = st.tuples(
    st.sampled_from(["enqueue", "flush", "finish", "wait"]), st.integers(0, 8).map(lambda n: n / 4)
)


@given(st.lists(step, max_size=40), st.integers(0, 2).map(lambda n: n / 2))
def test_a_sample_by_sample_player_hears_the_same(
    steps: list[tuple[str, float]], lead_s: float
) -> None:
    """Against a player that moves on a quarter of a second at a time."""
    playback = Playback(lead_s=lead_s)
    now, heard, queued, held, dropped = 0.0, 0.0, 0.0, 0.0, 0.0
    for what, seconds in steps:
        if what == "enqueue":
            if seconds and not queued:
                held = lead_s
            queued += seconds
            playback.enqueue(seconds, now)
        elif what == "flush":
            assert playback.flush(now) == queued
            dropped += queued
            queued = held = 0.0
        elif what == "finish":
            playback.finish()
        else:
            for _ in range(int(seconds * 4)):
                now += 0.25
                if held:
                    held -= 0.25
                elif queued:
                    queued -= 0.25
                    heard += 0.25
        assert playback.heard_s(now) == heard
        assert playback.queued_s(now) == queued
        assert playback.enqueued_s == heard + queued
