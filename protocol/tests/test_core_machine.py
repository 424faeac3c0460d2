"""Both roles wired together in memory, driven at random; and the rules, judged on what crosses.

The judge below is written from ``spec/protocol.md`` alone: it sees messages and chunks, and knows
nothing of how the core keeps its books.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from utterwire_protocol import (
    MAX_CHUNK_BYTES,
    AudioChunk,
    Cancelled,
    CancelReceived,
    Chunk,
    Connection,
    EndpointOptions,
    ErrorReceived,
    Event,
    FrameKind,
    Limits,
    LocalProtocolError,
    ProtocolViolation,
    Role,
    SessionClosed,
    SessionState,
    SynthesisComplete,
    SynthesisStart,
    UtteranceEnded,
    UtteranceState,
    classify,
    is_sendable_audio,
)
from utterwire_schemas import validator

VALIDATOR = validator("control-message")


class Judge:
    """What ``protocol.md`` says of one session, chunk by chunk as the endpoint hands them over."""

    def __init__(self, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self.names: list[str | None] = []  # request_id of each message read, by seq - 1
        self.answered: set[int] = set()
        self.ended: set[int] = set()
        self.started: list[int] = []
        self.bytes: dict[int, int] = {}
        self.speaking: int | None = None
        self.closed: dict[str, Any] | None = None
        self.accepted: list[int] = []
        self.rejected: set[int] = set()
        self.close_seq: int | None = None
        # Ended by a decision whose message is still to be handed over, but cannot be taken back.
        self.settled: set[int] = set()

    def chunk(self, chunk: Chunk) -> None:
        assert self.closed is None, "close.last-word"
        assert len(chunk.data) <= MAX_CHUNK_BYTES, "control.size, audio.chunk-size"
        if chunk.kind is FrameKind.BINARY:
            self.audio(chunk.data)
            return
        classify(chunk.data, FrameKind.UNKNOWN)
        fields = json.loads(chunk.data)
        VALIDATOR.validate(fields)
        if fields["type"] == "session_closed":
            self.closed = fields
            return
        seq = fields["seq"]
        assert 1 <= seq <= len(self.names), "seq.counts-messages"
        assert seq not in self.ended, "order.nothing-after-terminal"
        getattr(self, fields["type"])(seq, fields)
        if fields["type"] != "session":
            assert fields.get("request_id") == self.names[seq - 1], "request-id.echoed"

    def audio(self, data: bytes) -> None:
        assert self.speaking is not None, "order.start-first"
        assert is_sendable_audio(data), "audio.never-json"
        assert not data.startswith(b"{"), "audio.no-leading-brace"
        assert len(data) % 2 == 0, "audio.whole-samples"
        self.bytes[self.speaking] = self.bytes.get(self.speaking, 0) + len(data)

    def in_order(self, seq: int) -> None:
        older = [each for each in self.accepted if each < seq and each not in self.ended]
        assert not older, "order.fifo, reject.in-order"

    def synthesis_start(self, seq: int, fields: dict[str, Any]) -> None:
        self.in_order(seq)
        assert seq in self.accepted
        assert seq not in self.started, "order.complete-had-start"
        assert self.speaking is None, "order.no-mixing"
        self.started.append(seq)
        self.speaking = seq

    def end(self, seq: int) -> None:
        assert seq in self.accepted, "order.one-terminal"
        self.ended.add(seq)
        self.answered.add(seq)
        if self.speaking == seq:
            self.speaking = None

    def synthesis_complete(self, seq: int, fields: dict[str, Any]) -> None:
        assert seq in self.started, "order.complete-had-start"
        self.in_order(seq)
        assert fields["audio_bytes"] == self.bytes.get(seq, 0), "complete.audio-bytes"
        assert abs(fields["total_duration_s"] - fields["audio_bytes"] / 48_000) <= 0.001
        assert fields["elapsed_s"] >= 0, "complete.elapsed"
        self.end(seq)

    def cancelled(self, seq: int, fields: dict[str, Any]) -> None:
        assert fields["audio_bytes"] == self.bytes.get(seq, 0), "cancel.audio-bytes"
        self.end(seq)

    def cancel_done(self, seq: int, fields: dict[str, Any]) -> None:
        self.answer(seq)

    def session(self, seq: int, fields: dict[str, Any]) -> None:
        assert seq == 1, "hello.session"
        self.answer(seq)

    def marks(self, seq: int, fields: dict[str, Any]) -> None:
        assert self.speaking == seq

    def answer(self, seq: int) -> None:
        assert seq not in self.answered, "reject.one-error, cancel.done"
        self.answered.add(seq)

    def error(self, seq: int, fields: dict[str, Any]) -> None:
        if "rejected" not in fields:
            self.in_order(seq)
            self.end(seq)
            return
        assert seq in self.rejected
        self.answer(seq)
        self.ended.add(seq)
        overtakes = fields["code"] == "queue_full" or fields["message"].startswith(
            ("`hello`", "`protocol_versions`", "Only protocol", "`request_id` of a cancel")
        )
        if not overtakes:
            self.in_order(seq)


class Session(RuleBasedStateMachine):
    """A client and an endpoint, a wire each way, and an engine that does as it likes."""

    @initialize(
        waiting=st.integers(8, 9), chunk_bytes=st.integers(2, 40), idle=st.sampled_from([5, 50])
    )
    def begin(self, waiting: int, chunk_bytes: int, idle: float) -> None:
        self.now = 0.0
        options = EndpointOptions(
            voices=("v", "w"),
            profiles=frozenset({"interrupt", "negotiate"}),
            limits=Limits(max_waiting=waiting, idle_timeout_s=idle),
            chunk_bytes=chunk_bytes,
            shutdown_s=4,
        )
        self.endpoint = Connection(Role.ENDPOINT, now=0.0, endpoint=options)
        self.client = Connection(Role.CLIENT, now=0.0)
        self.judge = Judge(waiting)
        self.upward: deque[Any] = deque()
        self.downward: deque[Chunk] = deque()
        self.told: list[Event] = []
        self.requests: dict[int, str | None] = {}
        self.heard: dict[int, bytes] = {}
        self.foreign = False
        self.lost = False

    # The client

    def submit(self, call: Any) -> int | None:
        try:
            seq: int = call()
        except LocalProtocolError:
            return None
        return seq

    @rule(
        text=st.sampled_from(["Hello.", "é", "\U0001f600", "a\u2028b"]),
        name=st.sampled_from([None, None, "a", "b", "c"]),
        voice=st.sampled_from([None, "w", "nobody"]),
    )
    def synthesize(self, text: str, name: str | None, voice: str | None) -> None:
        seq = self.submit(
            lambda: self.client.synthesize(text, self.now, request_id=name, voice=voice)
        )
        if seq is not None:
            self.requests[seq] = name

    @rule(name=st.sampled_from([None, "a", "b", "c"]))
    def cancel(self, name: str | None) -> None:
        self.submit(lambda: self.client.cancel(self.now, name))

    @rule(versions=st.sampled_from([(1,), (2,), (0, 1)]))
    def hello(self, versions: tuple[int, ...]) -> None:
        self.submit(lambda: self.client.hello(self.now, versions))

    @rule()
    def keepalive(self) -> None:
        self.submit(lambda: self.client.keepalive(self.now))

    @rule(sure=st.integers(0, 3))
    def close(self, sure: int) -> None:
        if sure == 0:
            self.submit(lambda: self.client.close(self.now))

    @rule(
        message=st.sampled_from(
            [
                b"",
                b"\xff",
                b"[]",
                b'{"type":"append"}',
                b'{"text":" ","request_id":"z"}',
                b'{"type":"cancel","request_id":null}',
                b'{"type":"hello","protocol_versions":[]}',
                b'{"type":"hello","protocol_versions":[1]}',
            ]
        )
    )
    def send_nonsense(self, message: bytes) -> None:
        """Another client than ours would send this; ours counts it, to keep its numbers."""
        if self.client.state in (SessionState.FRESH, SessionState.OPEN):
            half: Any = self.client._half
            half._seq += 1
            half.state = SessionState.OPEN
            self.foreign = True
            while (chunk := self.client.next_chunk()) is not None:
                self.upward.append(chunk.data)
            self.upward.append(message)

    # The wires

    @rule(count=st.integers(1, 12))
    def carry_up(self, count: int) -> None:
        while (chunk := self.client.next_chunk()) is not None:
            self.upward.append(chunk.data)
        for _ in range(min(count, len(self.upward))):
            self.read(self.upward.popleft())

    def read(self, message: bytes) -> None:
        judge = self.judge
        closed = self.endpoint.state is SessionState.CLOSED
        try:
            fields = json.loads(message.decode())
        except ValueError:
            fields = None
        name = fields.get("request_id") if isinstance(fields, dict) else None
        judge.names.append(name)
        seq = len(judge.names)
        unended = [each for each in judge.accepted if each not in judge.ended | judge.settled]
        events = self.endpoint.receive(message, self.now)
        kind = type(events[0]).__name__
        assert not closed or kind == "MessageIgnored"
        if kind == "SynthesizeReceived":
            assert len(unended) <= judge.max_waiting, "queue.full"
            assert name is None or name not in [judge.names[each - 1] for each in unended]
            judge.accepted.append(seq)
        elif kind == "MessageRejected":
            judge.rejected.add(seq)
            if events[0].code == "queue_full":  # type: ignore[union-attr]
                assert len(unended) > judge.max_waiting, "queue.full"
        elif isinstance(events[0], CancelReceived):
            stopped = [s for s in unended if name is None or judge.names[s - 1] == name]
            assert list(events[0].stopped) == stopped, "cancel.all, cancel.only-named"
            judge.settled.update(stopped)
        elif kind == "CloseReceived":
            judge.close_seq = seq
        self.after(events)

    @rule(count=st.integers(1, 6), carried=st.integers(0, 12))
    def carry_down(self, count: int, carried: int) -> None:
        for _ in range(count):
            chunk = self.endpoint.next_chunk(self.now)
            if chunk is None:
                break
            self.judge.chunk(chunk)
            self.downward.append(chunk)
        for _ in range(min(carried, len(self.downward))):
            chunk = self.downward.popleft()
            events = self.client.receive(chunk.data, self.now, kind=chunk.kind)
            self.hear(events)

    def hear(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.told.append(event)
            if isinstance(event, ProtocolViolation) and not self.foreign:
                raise AssertionError(event)
            if isinstance(event, AudioChunk):
                self.heard[event.seq] = self.heard.get(event.seq, b"") + event.data

    # The engine

    @rule()
    def start(self) -> None:
        utterance = self.endpoint.next_waiting()
        if utterance is not None and self.endpoint.running() is None:
            self.endpoint.start(utterance.seq, self.now)

    @rule(data=st.lists(st.sampled_from([b"{", b"}", b"{}", b"a", b"\0\0"]), max_size=30))
    def make_audio(self, data: list[bytes]) -> None:
        utterance = self.endpoint.running()
        if utterance is not None:
            audio = b"".join(data)
            self.endpoint.audio(utterance.seq, audio + b"\0" * (len(audio) % 2), self.now)

    @rule(fails=st.integers(0, 4))
    def finish(self, fails: int) -> None:
        utterance = self.endpoint.running()
        if utterance is None:
            return
        if fails == 0:
            self.endpoint.fail(utterance.seq, "synthesis_failed", "m", self.now)
        else:
            self.endpoint.complete(utterance.seq, self.now)

    @precondition(lambda self: self.endpoint.next_waiting() is not None)
    @rule(last=st.booleans())
    def fail_waiting(self, last: bool) -> None:
        waiting = [
            seq
            for seq in self.judge.accepted
            if (utterance := self.endpoint.utterance(seq)) is not None
            and utterance.state is UtteranceState.WAITING
        ]
        self.endpoint.fail(waiting[-1 if last else 0], "overloaded", "m", self.now)

    # Time and ends

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.endpoint.next_deadline()
        events = self.endpoint.tick(self.now)
        if deadline is not None and deadline <= self.now:
            assert self.endpoint.state is SessionState.CLOSED
        self.after(events)

    @rule(sure=st.integers(0, 5))
    def shut_down(self, sure: int) -> None:
        if sure == 0:
            self.after(self.endpoint.shutdown(self.now))

    @rule(sure=st.integers(0, 9))
    def end(self, sure: int) -> None:
        if sure == 0:
            self.after(self.endpoint.end("slow_reader", self.now))

    @rule(sure=st.integers(0, 9))
    def lose_transport(self, sure: int) -> None:
        if sure == 0:
            self.lost = True
            self.upward.clear()
            self.downward.clear()
            self.after(self.endpoint.transport_lost(self.now))
            self.hear(self.client.transport_lost(self.now))
            for seq in self.judge.accepted:
                assert self.endpoint.utterance(seq) is None
            for seq in self.requests:
                assert self.client.utterance(seq) is None

    def after(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, UtteranceEnded):
                assert event.seq in self.judge.accepted
                self.judge.settled.add(event.seq)
                assert event.audio_bytes == self.judge.bytes.get(event.seq, 0)

    # What always holds

    @invariant()
    def one_is_running_at_most(self) -> None:
        running = self.endpoint.running()
        unended = [s for s in self.judge.accepted if self.endpoint.utterance(s) is not None]
        states = [self.endpoint.utterance(s).state for s in unended]  # type: ignore[union-attr]
        assert states.count(UtteranceState.RUNNING) == (running is not None)

    @invariant()
    def queues_are_counted(self) -> None:
        half: Any = self.endpoint._half
        held = [each.chunk for each in half._line if hasattr(each, "chunk")]
        queued = [each.chunk for each in (*half._urgent, *half._ordered)]
        assert self.endpoint.pending() == len(queued)
        assert self.endpoint.pending_bytes() == sum(len(each.data) for each in held + queued)
        assert len(half._line) <= self.judge.max_waiting + 1 + 256

    def teardown(self) -> None:
        """Let everything come to its end, and see that nothing is missing."""
        self.hear(())
        if self.lost:
            return
        self.settle()
        judge = self.judge
        for seq in judge.accepted:
            assert seq in judge.ended, "order.one-terminal"
        for seq in judge.rejected:
            assert seq in judge.answered, "reject.one-error"
        if self.endpoint.state is SessionState.CLOSED:
            assert judge.closed is not None
            answered = max(judge.answered, default=0)
            if judge.closed["reason"] == "client_close":
                assert judge.closed["seq"] == judge.closed["last_seq"] == judge.close_seq
            else:
                assert "seq" not in judge.closed, "session-closed.last-seq"
                assert judge.closed["last_seq"] == answered, "session-closed.last-seq"
        for seq in self.requests:
            assert self.client.utterance(seq) is None or seq > len(judge.names)
        self.compare()

    def settle(self) -> None:
        """Speak and carry until nothing moves."""
        while True:
            self.carry_up(1000)
            self.start()
            if self.endpoint.running() is not None:
                self.make_audio([b"ab"])
                self.finish(1)
            before = len(self.told), self.endpoint.pending()
            self.carry_down(1000, 1000)
            if before == (len(self.told), self.endpoint.pending()) and not self.downward:
                break
        self.after(self.endpoint.poll_events())
        assert self.endpoint.pending() == self.endpoint.pending_bytes() == 0

    def compare(self) -> None:
        """Both sides saw the same."""
        judge = self.judge
        for event in self.told:
            if isinstance(event, (SynthesisComplete, Cancelled)):
                assert event.received_bytes == event.audio_bytes == judge.bytes.get(event.seq, 0)
                assert event.received_bytes == len(self.heard.get(event.seq, b""))
            elif isinstance(event, SynthesisStart):
                assert event.seq in judge.started
                assert not event.implied
            elif isinstance(event, ErrorReceived):
                assert event.seq in judge.answered
            elif isinstance(event, SessionClosed):
                assert judge.closed is not None


TestSession = Session.TestCase
TestSession.settings = settings(
    derandomize=True, max_examples=150, stateful_step_count=40, deadline=None, database=None
)
