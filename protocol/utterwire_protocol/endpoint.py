"""The endpoint's side of a session."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from utterwire_protocol.admission import Admission
from utterwire_protocol.chunk import Chunk
from utterwire_protocol.classification import FrameKind
from utterwire_protocol.control import (
    PROTOCOL_VERSION,
    SESSION_END_REASONS,
    Word,
    encode_cancel_done,
    encode_cancelled,
    encode_error,
    encode_marks,
    encode_session,
    encode_session_closed,
    encode_synthesis_complete,
    encode_synthesis_start,
)
from utterwire_protocol.cutting import Cutter
from utterwire_protocol.errors import LocalProtocolError
from utterwire_protocol.events import (
    CancelReceived,
    CloseReceived,
    Event,
    HelloReceived,
    KeepaliveReceived,
    MessageIgnored,
    MessageRejected,
    SessionEnded,
    SynthesizeReceived,
    UtteranceEnded,
)
from utterwire_protocol.messages import (
    Cancel,
    ClientMessage,
    Close,
    Hello,
    Keepalive,
    Rejection,
    Synthesize,
    parse_message,
)
from utterwire_protocol.options import EndpointOptions
from utterwire_protocol.states import (
    TRANSITIONS,
    Role,
    SessionInput,
    SessionState,
    UtteranceInput,
    UtteranceState,
    Verdict,
)
from utterwire_protocol.utterance import Utterance

__all__ = ["MAX_HELD_REJECTIONS", "Endpoint"]

#: Rejections that wait for their place; further ones go at once (``load.rejections-bounded``).
MAX_HELD_REJECTIONS = 256

_MOVES = TRANSITIONS[Role.ENDPOINT]
_BYTES_PER_SAMPLE: dict[str | None, int] = {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}

_INPUTS: dict[type[ClientMessage | Rejection], SessionInput] = {
    Synthesize: SessionInput.SYNTHESIZE,
    Close: SessionInput.CLOSE,
    Keepalive: SessionInput.KEEPALIVE,
    Cancel: SessionInput.CANCEL,
    Hello: SessionInput.HELLO,
    Rejection: SessionInput.INVALID,
}


class _Part(Enum):
    """What a queued chunk is to the books."""

    START = "start"
    AUDIO = "audio"
    TERMINAL = "terminal"
    HELD_REJECTION = "held rejection"
    OTHER = "other"


class _Speech:
    """An unended utterance and what is kept for it."""

    def __init__(self, utterance: Utterance, cutter: Cutter) -> None:
        self.utterance = utterance
        self.cutter = cutter
        self.made_bytes = 0
        self.started_at: float | None = None
        # The terminal message, from the time it is decided, and whether it is an error.
        self.terminal: bytes | None = None
        self.failing = False

    def move(self, event: UtteranceInput) -> None:
        self.utterance = self.utterance.after(Role.ENDPOINT, event)


@dataclass(slots=True)
class _Queued:
    chunk: Chunk
    part: _Part = _Part.OTHER
    speech: _Speech | None = None


class Endpoint:
    """The endpoint's half of ``Connection``, which documents the methods."""

    def __init__(
        self, options: EndpointOptions, now: float, admission: Admission | None = None
    ) -> None:
        self.state = SessionState.FRESH
        self.end_reason: str | None = None
        self._options = options
        self._admission = admission
        self._now = now
        self._idle_since = now
        self._shutdown_at: float | None = None
        self._retry_after_s: float | None = None
        self._seq = 0
        self._answered = 0
        # The `seq` of `close`, where that is the cause.
        self._close_seq: int | None = None
        # The first cause that will end the session; empty while there is none.
        self._cause = ""
        # All that is unended, by seq, in message order.
        self._unended: dict[int, _Speech] = {}
        # Message order: utterances whose last chunk is not queued, and rejections behind them.
        self._line: deque[_Speech | _Queued] = deque()
        self._held = 0
        self._urgent: deque[_Queued] = deque()
        self._ordered: deque[_Queued] = deque()
        self._pending_bytes = 0
        self._events: list[Event] = []

    # Reading

    def receive(self, data: bytes, now: float) -> tuple[Event, ...]:
        self._tell(now)
        if self.state is not SessionState.CLOSED:
            if len(data) > self._options.limits.max_message_bytes:
                # Not counted: no part of it was taken (protocol.md#session-closed).
                return self.end("message_too_big", now)
            self._idle_since = self._now
        self._seq += 1
        message = parse_message(data, self._options)
        move = _MOVES[self.state][_INPUTS[type(message)]]
        self.state = move.to
        if move.verdict is Verdict.IGNORE:
            self._events.append(MessageIgnored(self._seq))
        elif isinstance(message, Rejection):
            self._reject(message)
        elif isinstance(message, (Synthesize, Hello)) and move.code is not None:
            self._refuse(message, move.code)
        else:
            self._act(message)
        self._settle()
        return self.poll_events()

    def _act(self, message: ClientMessage) -> None:
        if isinstance(message, Synthesize):
            self._accept(message)
        elif isinstance(message, Cancel):
            self._cancel(message)
        elif isinstance(message, Close):
            if not self._cause:
                self._cause = "client_close"
                self._close_seq = self._seq
            self._events.append(CloseReceived(self._seq))
        elif isinstance(message, Hello):
            self._hello(message)
        else:
            self._events.append(KeepaliveReceived(self._seq))

    def _refuse(self, message: Synthesize | Hello, code: str) -> None:
        """Reject a valid message that the state of the session does not allow."""
        if isinstance(message, Synthesize):
            self._reject(
                Rejection(
                    code,
                    "The endpoint is shutting down.",
                    message.request_id,
                    "shutdown.going-away",
                )
            )
        else:
            self._reject(
                Rejection(
                    code,
                    "`hello` must be the first message.",
                    message.request_id,
                    "hello.first-only",
                    at_once=True,
                )
            )

    def _accept(self, request: Synthesize) -> None:
        name = request.request_id
        if name is not None and self._named(name):
            self._reject(
                Rejection(
                    "duplicate_request_id",
                    "An utterance that has not ended has this `request_id`.",
                    name,
                    "reject.duplicate-request-id",
                )
            )
            return
        # The first unended utterance counts as running, whether or not it was started.
        if len(self._unended) > self._options.limits.max_waiting:
            self._reject(
                Rejection(
                    "queue_full",
                    f"{self._options.limits.max_waiting} utterances wait already.",
                    name,
                    "queue.full",
                    at_once=True,
                    retry_after_s=self._admission.turn_in_s() if self._admission else None,
                )
            )
            return
        room_in_s = self._admission.room_in_s(request) if self._admission else None
        if room_in_s is not None:
            self._reject(
                Rejection(
                    "overloaded",
                    "The endpoint has no room for more.",
                    name,
                    "queue.full",
                    retry_after_s=room_in_s,
                )
            )
            return
        utterance = Utterance(
            seq=self._seq,
            request_id=name,
            text=request.text,
            voice=request.voice,
            speed=request.speed,
            sample_rate=request.sample_rate,
            format=request.format,
            marks=request.marks,
        )
        speech = _Speech(utterance, Cutter(request.format, self._options.chunk_bytes))
        self._unended[self._seq] = speech
        self._line.append(speech)
        self._events.append(SynthesizeReceived(utterance))

    def _hello(self, hello: Hello) -> None:
        if PROTOCOL_VERSION not in hello.versions:
            self._reject(
                Rejection(
                    "unsupported_version",
                    f"Only protocol version {PROTOCOL_VERSION} is spoken here.",
                    hello.request_id,
                    # Nothing can stand before message 1, so that this goes at once anyway.
                    "hello.unsupported-version",
                )
            )
            return
        self._answer(encode_session(self._seq, self._options), self._seq)
        self._events.append(HelloReceived(self._seq, hello.versions))

    def _cancel(self, cancel: Cancel) -> None:
        if cancel.request_id is None:
            speeches = list(self._unended.values())
        else:
            speeches = self._named(cancel.request_id)
        for speech in speeches:
            speech.move(UtteranceInput.CANCELLED)
            self._forget(speech)
            self._answer(encode_cancelled(speech.utterance), speech.utterance.seq)
        self._answer(encode_cancel_done(self._seq, cancel.request_id, len(speeches)), self._seq)
        self._events.append(
            CancelReceived(self._seq, tuple(speech.utterance.seq for speech in speeches))
        )

    def _named(self, request_id: str) -> list[_Speech]:
        return [
            speech for speech in self._unended.values() if speech.utterance.request_id == request_id
        ]

    def _forget(self, speech: _Speech) -> None:
        """Take an utterance off the books, with all of it that was not handed over."""
        del self._unended[speech.utterance.seq]
        if speech in self._line:
            self._line.remove(speech)
        self._drop(speech)
        self._idle_since = self._now

    def _drop(self, speech: _Speech) -> None:
        kept = deque(item for item in self._ordered if item.speech is not speech)
        self._pending_bytes -= sum(
            len(item.chunk.data) for item in self._ordered if item.speech is speech
        )
        self._ordered = kept

    def _reject(self, rejection: Rejection) -> None:
        chunk = Chunk(
            FrameKind.TEXT,
            encode_error(
                rejection.code,
                rejection.message,
                seq=self._seq,
                request_id=rejection.request_id,
                rejected=True,
                retry_after_s=rejection.retry_after_s,
            ),
            self._seq,
        )
        if rejection.at_once or self._held >= MAX_HELD_REJECTIONS:
            self._queue(self._urgent, _Queued(chunk))
        else:
            self._held += 1
            self._pending_bytes += len(chunk.data)
            self._line.append(_Queued(chunk, _Part.HELD_REJECTION))
        self._answered = max(self._answered, self._seq)
        self._events.append(
            MessageRejected(
                self._seq,
                rejection.code,
                rejection.message,
                rejection.request_id,
                rejection.requirement,
            )
        )

    # Speaking

    def running(self) -> Utterance | None:
        for speech in self._unended.values():
            if speech.utterance.state is UtteranceState.RUNNING:
                return speech.utterance
        return None

    def next_waiting(self) -> Utterance | None:
        for speech in self._unended.values():
            if speech.utterance.state is UtteranceState.WAITING:
                return speech.utterance
        return None

    def utterance(self, seq: int) -> Utterance | None:
        speech = self._unended.get(seq)
        return speech.utterance if speech else None

    def _speech(self, seq: int) -> _Speech:
        speech = self._unended.get(seq)
        if speech is None:
            raise LocalProtocolError(f"there is no unended utterance {seq}")
        return speech

    def start(self, seq: int, now: float) -> None:
        self._tell(now)
        speech = self._speech(seq)
        # Whatever stands before it in line has a chunk still to come.
        if self._line and self._line[0] is not speech:
            raise LocalProtocolError(f"utterance {seq} is not the next in order")
        speech.move(UtteranceInput.START)
        self._send(encode_synthesis_start(speech.utterance), _Part.START, speech)

    def audio(self, seq: int, data: bytes, now: float) -> None:
        self._tell(now)
        speech = self._speech(seq)
        speech.move(UtteranceInput.AUDIO)
        for piece in speech.cutter.cut(data):
            speech.made_bytes += len(piece)
            chunk = Chunk(FrameKind.BINARY, piece, seq)
            self._queue(self._ordered, _Queued(chunk, _Part.AUDIO, speech))

    def marks(self, seq: int, words: Iterable[Word], now: float) -> None:
        self._tell(now)
        speech = self._speech(seq)
        speech.move(UtteranceInput.MARKS)
        if not speech.utterance.marks:
            raise LocalProtocolError(f"utterance {seq} did not ask for marks")
        for message in encode_marks(speech.utterance, words):
            self._send(message, _Part.OTHER, speech)

    def complete(self, seq: int, now: float, total_duration_s: float | None) -> None:
        self._tell(now)
        speech = self._speech(seq)
        if speech.cutter.rest:
            raise LocalProtocolError(
                f"the audio of utterance {seq} ends in {speech.cutter.rest} bytes of a sample"
            )
        utterance = speech.utterance
        sample_bytes = _BYTES_PER_SAMPLE.get(utterance.format)
        if sample_bytes is not None and utterance.sample_rate:
            duration = speech.made_bytes / (sample_bytes * utterance.sample_rate)
        elif total_duration_s is not None and 0 <= total_duration_s < math.inf:
            duration = total_duration_s
        else:
            raise LocalProtocolError(
                f"total_duration_s must be told for {utterance.format}, in seconds"
            )
        speech.move(UtteranceInput.COMPLETE)
        started_at = self._now if speech.started_at is None else speech.started_at
        self._finish(
            speech,
            encode_synthesis_complete(
                utterance,
                total_duration_s=duration,
                elapsed_s=self._now - started_at,
                audio_bytes=speech.made_bytes,
            ),
        )

    def fail(self, seq: int, code: str, message: str, now: float) -> None:
        self._tell(now)
        speech = self._speech(seq)
        terminal = encode_error(code, message, seq=seq, request_id=speech.utterance.request_id)
        speech.move(UtteranceInput.ERROR)
        speech.failing = True
        self._finish(speech, terminal)

    def _finish(self, speech: _Speech, terminal: bytes) -> None:
        speech.terminal = terminal
        self._answered = max(self._answered, speech.utterance.seq)
        self._advance()

    def _advance(self) -> None:
        """Queue what the head of the line was holding up."""
        while self._line:
            head = self._line[0]
            if isinstance(head, _Queued):
                self._ordered.append(head)
            elif head.terminal is not None:
                self._send(head.terminal, _Part.TERMINAL, head)
            else:
                return
            self._line.popleft()

    # Ending

    def shutdown(self, now: float, retry_after_s: float | None) -> tuple[Event, ...]:
        self._tell(now)
        move = _MOVES[self.state][SessionInput.SHUTDOWN]
        self.state = move.to
        if move.verdict is Verdict.ACT:
            if self._shutdown_at is None:
                self._shutdown_at = self._now + self._options.shutdown_s
            if not self._cause:
                self._cause = "going_away"
                self._retry_after_s = retry_after_s
            self._settle()
        return self.poll_events()

    def end(self, reason: str, now: float, retry_after_s: float | None = None) -> tuple[Event, ...]:
        self._tell(now)
        if reason not in SESSION_END_REASONS:
            raise LocalProtocolError(f"a session does not end with the reason {reason!r}")
        if _MOVES[self.state][SessionInput.ENDED].verdict is Verdict.ACT:
            # What the endpoint met first gives the reason (protocol.md#session-closed).
            if not self._cause:
                self._cause = reason
                self._retry_after_s = retry_after_s
            self._end_rest()
            self._close(SessionInput.ENDED)
        return self.poll_events()

    def transport_lost(self, now: float) -> tuple[Event, ...]:
        self._tell(now)
        # Also once closed: what was still to be handed over goes nowhere.
        self._urgent.clear()
        self._ordered.clear()
        self._line.clear()
        self._held = self._pending_bytes = 0
        for speech in self._unended.values():
            speech.move(UtteranceInput.TRANSPORT_LOST)
            self._ended_early(speech)
        self._unended.clear()
        move = _MOVES[self.state][SessionInput.TRANSPORT_LOST]
        if move.verdict is Verdict.ACT:
            self.state = move.to
            self.end_reason = "transport_lost"
            self._events.append(SessionEnded("transport_lost"))
        return self.poll_events()

    def tick(self, now: float) -> tuple[Event, ...]:
        self._tell(now)
        deadline = self.next_deadline()
        if deadline is not None and deadline <= self._now:
            if self._shutdown_at is not None:
                self._end_rest()
                self._close(SessionInput.DEADLINE)
            else:
                self._cause = "idle"
                self._close(SessionInput.IDLE)
        return self.poll_events()

    def next_deadline(self) -> float | None:
        if self.state is SessionState.CLOSED:
            return None
        if self._shutdown_at is not None:
            return self._shutdown_at
        if self._unended:
            return None
        return self._idle_since + self._options.limits.idle_timeout_s

    def _end_rest(self) -> None:
        """End by ``going_away`` all that is unended, except where only the terminal message is
        still to be handed over."""
        for speech in list(self._unended.values()):
            queued = [item for item in self._ordered if item.speech is speech]
            if speech.terminal is not None and [item.part for item in queued] == [_Part.TERMINAL]:
                continue
            seq = speech.utterance.seq
            error = encode_error(
                "going_away",
                "The session ended before this was spoken.",
                seq=seq,
                request_id=speech.utterance.request_id,
            )
            speech.move(UtteranceInput.SESSION_ENDS)
            self._answered = max(self._answered, seq)
            del self._unended[seq]
            item = _Queued(Chunk(FrameKind.TEXT, error, seq))
            self._pending_bytes += len(error)
            if speech in self._line:
                self._line[self._line.index(speech)] = item
                self._drop(speech)
            else:
                # Its terminal message is queued: the error takes that place.
                place = next(i for i in queued if i.part is _Part.TERMINAL)
                self._ordered[self._ordered.index(place)] = item
                self._pending_bytes -= len(place.chunk.data)
                self._drop(speech)
            self._ended_early(speech)
        self._advance()

    def _ended_early(self, speech: _Speech) -> None:
        utterance = speech.utterance
        self._events.append(
            UtteranceEnded(
                utterance.seq, utterance.state, utterance.request_id, utterance.audio_bytes
            )
        )

    def _settle(self) -> None:
        """Advance the line, and close the session once a drain is over."""
        self._advance()
        if self._cause and not self._unended and self.state is not SessionState.CLOSED:
            self._close(SessionInput.DRAINED)

    def _close(self, event: SessionInput) -> None:
        self.state = _MOVES[self.state][event].to
        seq = self._close_seq
        message = encode_session_closed(
            self._cause,
            self._answered if seq is None else seq,
            seq=seq,
            retry_after_s=self._retry_after_s,
        )
        self._queue(self._ordered, _Queued(Chunk(FrameKind.TEXT, message, seq)))
        self.end_reason = self._cause
        self._events.append(SessionEnded(self._cause))

    # Handing over

    def next_chunk(self, now: float | None) -> Chunk | None:
        if now is not None:
            self._tell(now)
        if self._urgent:
            item = self._urgent.popleft()
        elif self._ordered:
            item = self._ordered.popleft()
        else:
            return None
        self._pending_bytes -= len(item.chunk.data)
        self._account(item)
        return item.chunk

    def _account(self, item: _Queued) -> None:
        if item.part is _Part.HELD_REJECTION:
            self._held -= 1
        speech = item.speech
        if speech is None:
            return
        if item.part is _Part.START:
            speech.started_at = self._now
        elif item.part is _Part.AUDIO:
            speech.utterance = speech.utterance.with_audio(len(item.chunk.data))
        elif item.part is _Part.TERMINAL:
            speech.move(
                UtteranceInput.ERROR_SENT if speech.failing else UtteranceInput.COMPLETE_SENT
            )
            del self._unended[speech.utterance.seq]
            self._idle_since = self._now
            self._settle()

    def pending(self) -> int:
        return len(self._urgent) + len(self._ordered)

    def pending_bytes(self) -> int:
        return self._pending_bytes

    def poll_events(self) -> tuple[Event, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    def _answer(self, message: bytes, seq: int) -> None:
        """Queue an answer ahead of all that waits."""
        self._answered = max(self._answered, seq)
        self._queue(self._urgent, _Queued(Chunk(FrameKind.TEXT, message, seq)))

    def _send(self, message: bytes, part: _Part, speech: _Speech) -> None:
        chunk = Chunk(FrameKind.TEXT, message, speech.utterance.seq)
        self._queue(self._ordered, _Queued(chunk, part, speech))

    def _queue(self, queue: deque[_Queued], item: _Queued) -> None:
        self._pending_bytes += len(item.chunk.data)
        queue.append(item)

    def _tell(self, now: float) -> None:
        """Time goes on, never back."""
        self._now = max(self._now, now)
