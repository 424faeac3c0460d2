"""Who is next: order, fairness between sessions, and a bound on every wait."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_server.line import PATIENCE_S, Ask, Line, Listener

SOON_S = 0.5


def listener(in_hand: float | None = None, *, heard: bool = True, now: float = 100.0) -> Listener:
    """One in the middle of an utterance with so much in hand, or at its beginning with nothing."""
    made = Listener(heard=heard)
    made.begin(0.0)
    if in_hand is not None:
        made.put(0.001, 0.0)
        made.dry_at = now + in_hand
    return made


def order(now: float, *asking: Listener, asked_at: float = 99.0) -> list[int]:
    line = Line()
    asks = [line.join(each, asked_at) for each in asking]
    taken = []
    while (ask := line.next(now, soon_s=SOON_S)) is not None:
        taken.append(asks.index(ask))
    return taken


@pytest.mark.parametrize(
    ("asking", "due"),
    [
        pytest.param([listener(2.0), listener(1.0)], [1, 0], id="who runs dry sooner"),
        pytest.param([listener(2.0), listener(None)], [1, 0], id="a first sound before the rest"),
        pytest.param([listener(5.5), listener(2.0)], [1, 0], id="five seconds in hand wait"),
        pytest.param([listener(9.0), listener(6.0)], [0, 1], id="plenty is plenty: as they came"),
        pytest.param(
            [listener(None, heard=False), listener(3.0)], [1, 0], id="nobody listens: last"
        ),
        pytest.param(
            [listener(None, heard=False), listener(7.0)], [0, 1], id="as pressed as who has plenty"
        ),
        pytest.param([listener(None), listener(None)], [0, 1], id="first sounds as they came"),
        pytest.param(
            [listener(0.1), listener(None), listener(0.2), listener(None)],
            [1, 0, 3, 2],
            id="first sounds and the nearly dry in turn",
        ),
        pytest.param(
            [listener(None), listener(None), listener(None), listener(0.3)],
            [0, 3, 1, 2],
            id="a flood of first sounds does not starve a listener",
        ),
    ],
)
def test_order(asking: list[Listener], due: list[int]) -> None:
    assert order(100.0, *asking) == due


def test_who_does_not_listen_becomes_pressed_in_time() -> None:
    whole, dry = listener(None, heard=False), listener(-1.0, now=99.0 + PATIENCE_S)
    assert order(99.0 + PATIENCE_S - 2 * SOON_S, whole, dry) == [1, 0]
    assert order(99.0 + PATIENCE_S + 0.1, whole, dry) == [1, 0]
    late = listener(0.2, now=99.0 + PATIENCE_S)
    assert order(99.0 + PATIENCE_S, whole, late) == [0, 1]


def test_many_utterances_gain_a_session_nothing() -> None:
    """It takes a first sound, cancels, and asks for the next, over and over."""
    line, now = Line(), 0.0
    greedy, steady = Listener(), [listener(-1.0, now=0.0) for _ in range(3)]
    turns = dict.fromkeys([greedy, *steady], 0)
    for each in steady:
        line.join(each, now)
    greedy.begin(now)
    line.join(greedy, now)
    for _ in range(400):
        now += 0.1
        ask = line.next(now, soon_s=SOON_S)
        assert ask is not None
        turns[ask.listener] += 1
        ask.listener.put(0.05, now)
        if ask.listener is greedy:
            greedy.flush()
            greedy.begin(now)
            assert greedy.awaits_sound
        line.join(ask.listener, now)
    assert max(turns.values()) - min(turns.values()) <= 2, turns.values()


def test_the_next_utterance_of_a_listener_with_speech_in_hand_is_not_pressed() -> None:
    busy = listener(3.0)
    busy.begin(100.0)
    assert not busy.awaits_sound
    busy.flush()
    busy.begin(100.0)
    assert busy.awaits_sound
    assert busy.ahead_s(100.0) == 0.0


def test_leaving() -> None:
    line = Line()
    first, second = line.join(Listener(), 0.0), line.join(Listener(), 0.0)
    line.leave(first)
    line.leave(first)
    assert len(line) == 1
    assert line.next(1.0, soon_s=0.0) is second
    line.leave(second)
    assert line.next(1.0, soon_s=0.0) is None


@dataclass
class Client:
    """One of a simulated crowd: how much a block gives it, and how soon it asks again."""

    listener: Listener
    block_s: float
    pause_s: float
    blocks: int
    ask: Ask | None = None
    returns_at: float = 0.0


CLIENTS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([0.0, 0.04, 0.5, 4.0]),
        st.sampled_from([0.0, 0.0, 0.3, 2.0]),
        st.integers(1, 6),
        st.sampled_from([0.0, 0.0, 1.0, 5.0]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(
    crowd=CLIENTS,
    block_takes_s=st.sampled_from([0.01, 0.3, 1.2]),
    soon_s=st.sampled_from([0.0, 0.02, 0.6, 2.4]),
)
def test_nobody_starves_and_nothing_idles(
    crowd: list[tuple[bool, float, float, int, float]], block_takes_s: float, soon_s: float
) -> None:
    """All of a crowd speak utterance after utterance; once overdue, the wait of each is bounded."""
    now, line = 0.0, Line()
    clients = [
        Client(Listener(heard=heard), block_s, pause_s, blocks, returns_at=begins)
        for heard, block_s, pause_s, blocks, begins in crowd
    ]
    left = {id(client): client.blocks for client in clients}
    overtaken: dict[Ask, int] = {}
    for client in clients:
        client.listener.begin(now)
    for _ in range(400):
        for client in clients:
            if client.ask is None and client.returns_at <= now:
                client.ask = line.join(client.listener, now)
        waiting = [client for client in clients if client.ask is not None]
        assert len(line) == len(waiting)
        ask = line.next(now, soon_s=soon_s)
        # Never idle while somebody waits.
        assert (ask is None) == (not waiting)
        now += block_takes_s
        if ask is None:
            continue
        overtaken.pop(ask, None)
        served = next(client for client in waiting if client.ask is ask)
        for client in waiting:
            other = client.ask
            if other is None or other is ask or other.deadline > now - block_takes_s:
                continue
            # Each of the others goes ahead at most once, and first sounds as often again.
            overtaken[other] = overtaken.get(other, 0) + 1
            assert overtaken[other] <= 2 * len(clients), (other, now)
        served.ask = None
        served.returns_at = now + served.pause_s
        served.listener.put(served.block_s, now)
        left[id(served)] -= 1
        if not left[id(served)]:
            left[id(served)] = served.blocks
            served.listener.begin(now)
