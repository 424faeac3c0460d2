"""A rule-based machine made from the table of states: it writes programs, legal and illegal.

There is a rule for each row of the endpoint's table (`states.md`) whose input is a message: in
each state that a client can bring about, each kind of message is sent, whether the table has it
acted on, rejected or ignored there. The state of each session is kept by the table alone, never by
what the endpoint does, so that the same choices always make the same program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from utterwire_schemas import session_states

from .grammar import Ground, messages_for
from .program import Leave, Pause, Ping, Program, Resume, Say, Stall, Step, Wait

__all__ = ["CELLS", "SESSIONS", "session_machine"]

SESSIONS: Final = 3
"""How many sessions a program may interleave."""

_TABLE: Final = session_states("endpoint")
_EVENTS: Final = (
    "hello",
    "synthesize",
    "cancel",
    "keepalive",
    "close",
    "an invalid message",
)
# A client cannot make an endpoint shut down.
_STATES: Final = tuple(state for state in _TABLE if state != "going away")
_DRAINED: Final = "the last unended utterance ends"
_LOST: Final = "the transport is lost"

CELLS: Final = tuple(
    (state, event) for state in _STATES for event in _EVENTS if event in _TABLE[state]
)
"""The cells of the table that are put to the test: (state, message)."""

# What a conversation is made of comes more often than the rest.
_WEIGHTS: Final = {"synthesize": 3, "cancel": 2, "an invalid message": 2}
_PROFILE_OF: Final = {"hello": "negotiate", "cancel": "interrupt"}


class _Base(RuleBasedStateMachine):
    """What all machines share; `play` and `sessions` are set by `session_machine`."""

    play: Callable[[Program], None]
    sessions: int

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.states = ["fresh"] * self.sessions
        self.gone = [False] * self.sessions
        self.stalled = [False] * self.sessions
        self.cells: list[tuple[str, str]] = []
        self.ids: list[list[str]] = [[] for _ in range(self.sessions)]

    def pick(self, which: int) -> int:
        """One of the sessions that can still be used."""
        found = [number for number, gone in enumerate(self.gone) if not gone]
        return found[which % len(found)]

    def teardown(self) -> None:
        # A program that was not written to its end is not played.
        if sys.exc_info()[0] is None and self.steps:
            self.play(Program("sessions", tuple(self.steps), tuple(self.cells)))


def _framed(octets: bytes, framing: tuple[str, tuple[int, ...], bool]) -> dict[str, Any]:
    kind, places, pings = framing
    cuts = sorted({place % (len(octets) + 1) for place in places})
    try:
        octets.decode("utf-8")
    except UnicodeDecodeError:
        kind = "binary"
    return {"kind": kind, "cuts": tuple(cuts), "pings": pings and bool(cuts)}


_FRAMINGS: Final = st.one_of(
    st.just(("text", (), False)),
    st.just(("binary", (), False)),
    st.tuples(
        st.sampled_from(["text", "binary"]),
        st.lists(st.integers(0, 300), min_size=1, max_size=3).map(tuple),
        st.booleans(),
    ),
)
# Most is done to one session, so that it gets somewhere.
_WHICH: Final = st.sampled_from([0, 0, 0, 1, 1, 2])


def _messages(event: str, ground: Ground) -> st.SearchStrategy[bytes]:
    found = messages_for(event, ground)
    if found is None:
        raise ValueError(f"{event} is no message")
    return found


def _message_rule(event: str, ground: Ground) -> Any:
    """The rule for one row of the table: such a message, in whatever state a session is."""
    claimed = _PROFILE_OF.get(event, "core") in ground.claims.profiles
    # What is not claimed is an unknown type, which is read like any other invalid message.
    acts_as = event if claimed else "an invalid message"

    def send(
        self: _Base,
        which: int,
        octets: bytes,
        framing: tuple[str, tuple[int, ...], bool],
        aim: int | None,
    ) -> None:
        number = self.pick(which)
        state = self.states[number]
        self.cells.append((state, event))
        known = self.ids[number]
        if event == "cancel" and aim is not None and known:
            octets = json.dumps({"type": "cancel", "request_id": known[aim % len(known)]}).encode()
        if event == "synthesize":
            known += _id_of(octets, ground)
        self.steps.append(Say(number, octets, **_framed(octets, framing)))
        self.states[number] = _TABLE[state][acts_as].to

    send.__name__ = event.replace(" ", "_")
    aims = st.sampled_from([-1, 0, -2, None]) if event == "cancel" else st.none()
    messages = _messages(event, ground)
    return rule(which=_WHICH, octets=messages, framing=_FRAMINGS, aim=aims)(send)


def _id_of(octets: bytes, ground: Ground) -> list[str]:
    named = ground.reading(octets).request_id
    return [] if named is None else [named]


def _burst_rule(ground: Ground) -> Any:
    """Several plain requests at once, so that some wait when the next message is read."""

    def burst(self: _Base, which: int, count: int) -> None:
        number = self.pick(which)
        for place in range(count):
            state = self.states[number]
            self.cells.append((state, "synthesize"))
            self.steps.append(Say(number, ground.plain(request_id=f"n{place}")))
            self.ids[number].append(f"n{place}")
            self.states[number] = _TABLE[state]["synthesize"].to

    return rule(which=_WHICH, count=st.integers(2, 5))(burst)


def _closing(self: _Base) -> bool:
    return "closing" in self.states


def _other_rules() -> dict[str, Any]:
    def ping(self: _Base, which: int, payload: bytes) -> None:
        self.steps.append(Ping(self.pick(which), payload))

    def wait(self: _Base, which: int, until: Any) -> None:
        number = self.pick(which)
        self.stalled[number] = self.stalled[number] and until == "answered"
        self.steps.append(Wait(number, until))

    def drained(self: _Base) -> None:
        # The first that is closing, whichever was meant.
        number = next(n for n in range(self.sessions) if self.states[n] == "closing")
        self.steps.append(Wait(number, "closed"))
        self.states[number] = _TABLE["closing"][_DRAINED].to

    def pause(self: _Base, which: int, milliseconds: int) -> None:
        self.steps.append(Pause(self.pick(which), milliseconds))

    def stall(self: _Base, which: int) -> None:
        number = self.pick(which)
        self.steps.append(Resume(number) if self.stalled[number] else Stall(number))
        self.stalled[number] = not self.stalled[number]

    def leave(self: _Base, which: int, how: Any) -> None:
        number = self.pick(which)
        self.steps.append(Leave(number, how))
        self.states[number] = _TABLE[self.states[number]][_LOST].to
        self.gone[number] = True

    return {
        "wait_more": rule(which=_WHICH, until=st.sampled_from(["ended", "answered"]))(wait),
        "ping": rule(which=_WHICH, payload=st.binary(max_size=8))(ping),
        "wait": rule(which=_WHICH, until=st.sampled_from(["ended", "ended", "answered"]))(wait),
        # Seldom possible, so that it is offered more often.
        **{f"drained_{n}": precondition(_closing)(rule()(drained)) for n in range(3)},
        "pause": rule(which=_WHICH, milliseconds=st.sampled_from([1, 5, 20]))(pause),
        "stall": rule(which=_WHICH)(stall),
        # One session is left, so that there is always something to do.
        "leave": precondition(lambda self: self.gone.count(False) > 1)(
            rule(which=_WHICH, how=st.sampled_from(["close", "abort"]))(leave)
        ),
    }


def session_machine(
    ground: Ground, play: Callable[[Program], None], *, sessions: int = SESSIONS
) -> type[RuleBasedStateMachine]:
    """The machine for an endpoint; `play` is called with each program, and raises if it finds
    something. The programs have up to so many `sessions`."""
    members: dict[str, Any] = {
        f"{event.replace(' ', '_')}_{number}": _message_rule(event, ground)
        for event in _EVENTS
        for number in range(_WEIGHTS.get(event, 1))
    }
    members |= _other_rules() | {"burst": _burst_rule(ground)}
    members |= {"play": staticmethod(play), "sessions": sessions}
    return type("SessionMachine", (_Base,), members)
