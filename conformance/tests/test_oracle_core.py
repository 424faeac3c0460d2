"""The protocol core and the suite's oracle over the same sessions.

Both were written from the prose by themselves. The core plays an endpoint, the oracle watches what
a client would see, with messages under way in both directions at once. Where they disagree, one of
them is wrong, or the prose is not clear.
"""

from __future__ import annotations

import json
import random
from collections import deque
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.client_message import read_client_message
from utterwire_conformance.oracle import Oracle
from utterwire_protocol import (
    Chunk,
    Connection,
    EndpointOptions,
    FrameKind,
    Limits,
    Role,
    SessionState,
    Utterance,
    Word,
)

MAX_WAITING = 8
IDLE_S = 30.0

REQUESTS: list[Any] = [
    {"text": "Hello."},
    {"text": "Hello.", "request_id": "a"},
    {"text": "Hello.", "request_id": "b", "marks": ["word"]},
    {"type": "synthesize", "text": "One two 😀.", "request_id": "a", "speed": 2},
    {"text": "...", "voice": None, "x": [1]},
    {"text": "Good.", "voice": "v", "sample_rate": 24000.0, "format": "pcm_s16le"},
]
OTHERS: list[Any] = [
    {"text": ""},
    {"text": None, "request_id": "a"},
    {"text": "Hello.", "voice": "nobody", "request_id": "c"},
    {"text": "Hello.", "speed": True},
    {"text": "Hello.", "speed": 9, "voice": 3},
    {"text": "Hello.", "request_id": ""},
    {"type": "nothing", "request_id": "a"},
    {"type": 7},
    {"type": "flush"},
    {"type": "keepalive"},
    {"type": "keepalive", "text": 1},
    {"type": "cancel"},
    {"type": "cancel", "request_id": "a"},
    {"type": "cancel", "request_id": "zz"},
    {"type": "cancel", "request_id": None},
    {"type": "cancel", "request_id": 7},
    {"type": "hello", "protocol_versions": [1, 2]},
    {"type": "hello", "protocol_versions": [2]},
    {"type": "hello", "protocol_versions": []},
    b"",
    b"{",
    b"[1]",
    b"\xff",
    b'{"text":"a","text":"b","request_id":"a"}',
    b'\xef\xbb\xbf{"text":"a"}',
    b'{"text":"a","x":1e999}',
    b'{"text":"\\ud800"}',
    b'{"text":NaN}',
]
CLOSE: list[Any] = [{"type": "close"}]


def _octets(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def _message(weighted: list[Any]) -> st.SearchStrategy[tuple[str, bytes]]:
    return st.tuples(st.just("send"), st.sampled_from([_octets(m) for m in weighted]))


# What goes on between two messages of the client, in longer strides than one move at a time.
STRIDES = [
    ["arrive"],
    ["arrive"] * 3,
    ["hand over", "read"],
    ["hand over"] * 3,
    ["read"] * 3,
    ["arrive", "speak", "hand over", "read", "speak", "hand over"],
    ["arrive", "speak", "speak", "hand over", "hand over", "read", "read"],
    ["speak", "hand over"],
    ["finish", "hand over"],
    ["finish"],
    ["fail"],
    ["wait"],
    ["shut down"],
    ["stall"],
]
STEPS = st.lists(
    st.one_of(
        _message(REQUESTS),
        _message(REQUESTS),
        _message(OTHERS),
        _message(OTHERS + CLOSE),
        *[st.sampled_from(STRIDES[:8]).map(lambda moves: ("move", moves)) for _ in range(4)],
        st.sampled_from(STRIDES).map(lambda moves: ("move", moves)),
    ),
    min_size=3,
    max_size=40,
)
PROFILES = st.sets(st.sampled_from(["interrupt", "negotiate", "timing"])).map(
    lambda chosen: frozenset({"core", *chosen})
)


class Spoil:
    """Loses or doubles the control message of that number, among those that may not be."""

    def __init__(self, number: int, *, double: bool) -> None:
        self.left = number
        self.double = double
        self.spoilt = ""

    def copies(self, chunk: Chunk) -> int:
        if chunk.kind is not FrameKind.TEXT:
            return 1
        fields = json.loads(chunk.data)
        # That others are missing can have a reason that a client does not see.
        needed = fields["type"] in ("synthesis_complete", "cancel_done", "session")
        if not self.double and not needed and not fields.get("rejected"):
            return 1
        self.left -= 1
        if self.left != -1:
            return 1
        self.spoilt = chunk.data.decode()
        return 2 if self.double else 0


class Vary(Spoil):
    """Writes what an endpoint says in another way that is as good."""

    def __init__(self, claims: EndpointClaims, seed: int) -> None:
        super().__init__(-1, double=False)
        self.claims = claims
        self.chance = random.Random(seed)
        self.sent: list[bytes] = []

    def variants(self, chunk: Chunk) -> list[tuple[bytes, bool]]:
        """The chunks to read in its place, and whether each is control."""
        if chunk.kind is not FrameKind.TEXT:
            middle = self.chance.randrange(0, len(chunk.data) // 2) * 2
            parts = [chunk.data[:middle], chunk.data[middle:]]
            if parts[1].startswith(b"{"):
                parts = [chunk.data]
            return [(part, False) for part in parts if part]
        fields = json.loads(chunk.data)
        if fields.get("rejected") and fields["code"] not in ("queue_full", "going_away"):
            meaning = read_client_message(self.sent[fields["seq"] - 1], self.claims)
            late_hello = meaning.type == "hello" and fields["seq"] != 1
            if fields["code"] in meaning.codes and not late_hello:
                fields["code"] = self.chance.choice(sorted(meaning.codes))
        if "seq" in fields and self.chance.random() < 0.3:
            fields["seq"] = float(fields["seq"])
        fields["x_more"] = [None]
        names = list(fields)
        self.chance.shuffle(names)
        told = json.dumps({name: fields[name] for name in names}, ensure_ascii=False, indent=1)
        private = json.dumps({"type": "x_note", "seq": 99}).encode()
        said = [(told.encode(), True)]
        return [(private, True), *said] if self.chance.random() < 0.2 else said


class Session:
    """A core, what is under way to and from it, and the oracle that watches the client's side."""

    def __init__(self, profiles: frozenset[str], spoil: Spoil | None = None) -> None:
        self.spoil = spoil
        options = EndpointOptions(
            voices=("v", "w"),
            default_voice="v",
            profiles=profiles,
            limits=Limits(max_waiting=MAX_WAITING, idle_timeout_s=IDLE_S),
            session_id="s",
            shutdown_s=5.0,
        )
        claims = EndpointClaims(
            profiles=profiles,
            voices=frozenset({"v", "w"}),
            formats=frozenset({"pcm_s16le"}),
            sample_rates=frozenset({24_000}),
            min_speed=0.5,
            max_speed=2.0,
            max_text_chars=4096,
            max_request_id_chars=128,
            max_waiting=MAX_WAITING,
            idle_s=IDLE_S,
        )
        self.now = 0.0
        self.core = Connection(Role.ENDPOINT, now=0.0, endpoint=options)
        self.oracle = Oracle(claims)
        self.to_core: deque[bytes] = deque()
        self.to_client: deque[Chunk] = deque()
        self.told: set[int] = set()

    def send(self, data: bytes) -> None:
        self.now += 0.001
        self.oracle.sent(data, t=self.now)
        if isinstance(self.spoil, Vary):
            self.spoil.sent.append(data)
        self.to_core.append(data)

    def move(self, name: str) -> None:
        self.now += 0.001
        {
            "arrive": self.arrive,
            "speak": self.speak,
            "finish": self.finish,
            "fail": self.fail,
            "hand over": self.hand_over,
            "read": self.read,
            "wait": self.wait,
            "shut down": self.shut_down,
            "stall": self.stall,
        }[name]()

    def arrive(self) -> None:
        if self.to_core:
            self.core.receive(self.to_core.popleft(), self.now)

    def _running(self) -> int | None:
        running = self.core.running()
        if running is not None:
            return running.seq
        waiting = self.core.next_waiting()
        if waiting is None or self.core.pending():
            return None
        self.core.start(waiting.seq, self.now)
        return None

    def speak(self) -> None:
        seq = self._running()
        utterance = None if seq is None else self.core.utterance(seq)
        if seq is None or utterance is None or utterance.text == "...":
            return
        self._tell_words(seq, utterance)
        self.core.audio(seq, b"{\x01" * 60, self.now)

    def finish(self) -> None:
        seq = self._running()
        utterance = None if seq is None else self.core.utterance(seq)
        if seq is None or utterance is None:
            return
        if seq not in self.told and utterance.marks:
            self.speak()
        self.core.complete(seq, self.now)

    def _tell_words(self, seq: int, utterance: Utterance) -> None:
        """Words that were asked for are told before the first audio."""
        if utterance.marks and seq not in self.told:
            self.told.add(seq)
            self.core.marks(seq, [Word(utterance.text[:5], 0.0, 0.002, 0, 5)], self.now)

    def fail(self) -> None:
        seq = self._running()
        if seq is not None:
            self.core.fail(seq, "synthesis_failed", "The engine failed.", self.now)

    def hand_over(self) -> None:
        chunk = self.core.next_chunk(self.now)
        if chunk is not None:
            self.to_client.append(chunk)

    def read(self) -> None:
        if not self.to_client:
            return
        chunk = self.to_client.popleft()
        if isinstance(self.spoil, Vary):
            for data, is_control in self.spoil.variants(chunk):
                self.oracle.received(data, "text" if is_control else "binary", t=self.now)
            return
        copies = 1 if self.spoil is None else self.spoil.copies(chunk)
        for _ in range(copies):
            is_text = chunk.kind is FrameKind.TEXT
            self.oracle.received(chunk.data, "text" if is_text else "binary", t=self.now)

    def wait(self) -> None:
        """A long time passes in which nothing is under way and nothing is to be said."""
        busy = self.to_core or self.to_client or self.core.pending() or self.core.running()
        if not busy and self.core.next_waiting() is None:
            self.now += IDLE_S + 1.0
            self.core.tick(self.now)

    def shut_down(self) -> None:
        # What the client sent before is read before: the oracle is told when it is certain.
        while self.to_core:
            self.arrive()
        self.core.shutdown(self.now)
        self.oracle.shutdown_told()

    def stall(self) -> None:
        """The deadline of a shutdown comes."""
        deadline = self.core.next_deadline()
        if deadline is not None and self.core.state is SessionState.GOING_AWAY:
            self.core.tick(deadline)

    def settle(self) -> None:
        """Let everything come to its end."""
        for _ in range(10_000):
            if self.to_core:
                self.arrive()
            elif self.core.pending():
                self.hand_over()
            elif self.to_client:
                self.read()
            elif self.core.running() is not None or self.core.next_waiting() is not None:
                self.now += 0.001
                self.finish()
            else:
                return
        raise AssertionError("the session does not come to rest")


def _play(session: Session, steps: list[tuple[str, Any]]) -> None:
    for kind, what in steps:
        if kind == "send":
            session.send(what)
        else:
            for name in what:
                session.move(name)
    session.settle()


CALM = settings(
    derandomize=True,
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@CALM
@given(PROFILES, STEPS)
def test_core_and_oracle_agree(profiles: frozenset[str], steps: list[tuple[str, Any]]) -> None:
    session = Session(profiles)
    _play(session, steps)
    breaches = session.oracle.finish(quiet=True)
    assert not breaches, breaches


@CALM
@given(PROFILES, STEPS, st.integers(0, 4), st.booleans())
def test_the_oracle_misses_no_control_message_lost_or_doubled(
    profiles: frozenset[str], steps: list[tuple[str, Any]], number: int, double: bool
) -> None:
    spoil = Spoil(number, double=double)
    session = Session(profiles, spoil)
    _play(session, steps)
    assert session.oracle.finish(quiet=True) or not spoil.spoilt, spoil.spoilt


@CALM
@given(PROFILES, STEPS, st.integers(0, 2**32))
def test_the_oracle_bears_what_is_said_in_another_way(
    profiles: frozenset[str], steps: list[tuple[str, Any]], seed: int
) -> None:
    session = Session(profiles)
    session.spoil = Vary(session.oracle.claims, seed)
    _play(session, steps)
    breaches = session.oracle.finish(quiet=True)
    assert not breaches, breaches
