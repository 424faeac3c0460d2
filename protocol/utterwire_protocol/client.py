"""The client's side of a session."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from types import MappingProxyType

from utterwire_protocol.chunk import Chunk
from utterwire_protocol.classification import MAX_CHUNK_BYTES, Audio, FrameKind, classify
from utterwire_protocol.control import Word
from utterwire_protocol.errors import LocalProtocolError, RemoteProtocolError
from utterwire_protocol.events import (
    AudioChunk,
    CancelDone,
    Cancelled,
    ErrorReceived,
    Event,
    MarksReceived,
    ProtocolViolation,
    SessionClosed,
    SessionEnded,
    SessionReceived,
    SynthesisComplete,
    SynthesisStart,
    UnknownControl,
    UtteranceEnded,
)
from utterwire_protocol.jsontext import JsonObject
from utterwire_protocol.messages import encode_message, has_lone_surrogate, is_blank
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

__all__ = ["Client"]

_MOVES = TRANSITIONS[Role.CLIENT]
_DEFAULT_FORMAT = "pcm_s16le"
_DEFAULT_RATES = {"mulaw": 8_000, "alaw": 8_000}
_DEFAULT_RATE = 24_000
_LIMITS = (
    "max_text_chars",
    "max_message_bytes",
    "max_request_id_chars",
    "max_waiting",
    "idle_timeout_s",
    "min_speed",
    "max_speed",
)
# What every endpoint takes (protocol.md#limits), unless its `session` says more.
_REQUEST_ID_FLOOR = 128


def _integer(value: object, low: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or value != int(value) or value < low:
        return None
    return int(value)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(each for each in value if isinstance(each, str))


class Client:
    """The client's half of ``Connection``, which documents the methods."""

    def __init__(self) -> None:
        self.state = SessionState.FRESH
        self.end_reason: str | None = None
        self._seq = 0
        # Requests without a terminal message, in the order they were sent.
        self._unended: dict[int, Utterance] = {}
        # The utterance that audio belongs to.
        self._speaking: int | None = None
        self._cancels: dict[int, str | None] = {}
        # Utterances that a cancel of ours can have stopped.
        self._cancellable: set[int] = set()
        self._hello: int | None = None
        self._limits: dict[str, float] = {}
        self._queue: deque[Chunk] = deque()
        self._pending_bytes = 0
        self._events: list[Event] = []
        self._readers: dict[str, Callable[[JsonObject], None]] = {
            "synthesis_start": self._read_start,
            "synthesis_complete": self._read_complete,
            "error": self._read_error,
            "cancelled": self._read_cancelled,
            "cancel_done": self._read_cancel_done,
            "marks": self._read_marks,
            "session": self._read_session,
            "session_closed": self._read_session_closed,
        }

    # Sending

    def _check(self, event: SessionInput) -> None:
        if event not in _MOVES[self.state]:
            raise LocalProtocolError(f"the session is {self.state.value}: no {event.value} now")

    def _submit(self, event: SessionInput, fields: JsonObject) -> int:
        data = encode_message(event.value, fields)
        limit = self._limits.get("max_message_bytes")
        if limit is not None and len(data) > limit:
            raise LocalProtocolError(
                f"the message has {len(data)} bytes; the endpoint takes {limit:g}"
            )
        self.state = _MOVES[self.state][event].to
        self._seq += 1
        self._queue.append(Chunk(FrameKind.TEXT, data, self._seq))
        self._pending_bytes += len(data)
        return self._seq

    def hello(self, versions: tuple[int, ...]) -> int:
        self._check(SessionInput.HELLO)
        if not versions or any(
            isinstance(each, bool) or not isinstance(each, int) for each in versions
        ):
            raise LocalProtocolError("versions must be at least one integer")
        self._hello = self._submit(SessionInput.HELLO, {"protocol_versions": list(versions)})
        return self._hello

    def synthesize(
        self,
        text: str,
        *,
        voice: str | None,
        speed: float | None,
        sample_rate: int | None,
        format: str | None,
        request_id: str | None,
        marks: tuple[str, ...],
    ) -> int:
        self._check(SessionInput.SYNTHESIZE)
        self._check_text(text)
        for name, value in (("voice", voice), ("format", format)):
            if value is not None and (not value or has_lone_surrogate(value)):
                raise LocalProtocolError(f"{name} must not be empty or hold a lone surrogate")
        if speed is not None:
            self._check_speed(speed)
        if sample_rate is not None and _integer(sample_rate, 1) is None:
            raise LocalProtocolError(f"sample_rate must be an integer in Hz, not {sample_rate!r}")
        if request_id is not None:
            self._check_id(request_id)
            if any(each.request_id == request_id for each in self._unended.values()):
                raise LocalProtocolError(f"request_id {request_id!r} is in use")
        if any(mark != "word" for mark in marks):
            raise LocalProtocolError('marks can only be "word"')
        fields: JsonObject = {
            "text": text,
            "voice": voice,
            "speed": speed,
            "sample_rate": sample_rate,
            "format": format,
            "request_id": request_id,
            "marks": list(marks) or None,
        }
        seq = self._submit(SessionInput.SYNTHESIZE, fields)
        self._unended[seq] = Utterance(
            seq=seq,
            request_id=request_id,
            text=text,
            voice=voice,
            speed=speed,
            sample_rate=sample_rate,
            format=format,
            marks=marks,
        )
        return seq

    def _check_text(self, text: str) -> None:
        if is_blank(text):
            raise LocalProtocolError("text has nothing but white space")
        if has_lone_surrogate(text):
            raise LocalProtocolError("text holds a lone surrogate")
        limit = self._limits.get("max_text_chars")
        if limit is not None and len(text) > limit:
            raise LocalProtocolError(
                f"text has {len(text)} code points; the endpoint takes {limit:g}"
            )

    def _check_speed(self, speed: float) -> None:
        low = self._limits.get("min_speed", 0.0)
        high = self._limits.get("max_speed", math.inf)
        if isinstance(speed, bool) or not (0 < speed < math.inf and low <= speed <= high):
            raise LocalProtocolError(f"speed must be a number from {low:g} to {high:g}")

    def _check_id(self, request_id: str) -> None:
        limit = self._limits.get("max_request_id_chars", _REQUEST_ID_FLOOR)
        if not 1 <= len(request_id) <= limit or has_lone_surrogate(request_id):
            raise LocalProtocolError(
                f"request_id must have 1 to {limit:g} code points and no lone surrogate"
            )

    def cancel(self, request_id: str | None) -> int:
        self._check(SessionInput.CANCEL)
        if request_id is not None:
            self._check_id(request_id)
        seq = self._submit(SessionInput.CANCEL, {"request_id": request_id})
        self._cancels[seq] = request_id
        self._cancellable.update(
            utterance.seq
            for utterance in self._unended.values()
            if request_id is None or utterance.request_id == request_id
        )
        return seq

    def keepalive(self) -> int:
        self._check(SessionInput.KEEPALIVE)
        return self._submit(SessionInput.KEEPALIVE, {})

    def close(self) -> int:
        self._check(SessionInput.CLOSE)
        return self._submit(SessionInput.CLOSE, {})

    def next_chunk(self) -> Chunk | None:
        if not self._queue:
            return None
        chunk = self._queue.popleft()
        self._pending_bytes -= len(chunk.data)
        return chunk

    def pending(self) -> int:
        return len(self._queue)

    def pending_bytes(self) -> int:
        return self._pending_bytes

    def poll_events(self) -> tuple[Event, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    def utterance(self, seq: int) -> Utterance | None:
        return self._unended.get(seq)

    # Reading

    def receive(self, data: bytes, kind: FrameKind) -> tuple[Event, ...]:
        if _MOVES[self.state][SessionInput.CHUNK].verdict is Verdict.IGNORE:
            self._violation("close.last-word", "A chunk came after the end of the session.")
            return self.poll_events()
        try:
            chunk = classify(data, kind)
        except RemoteProtocolError as error:
            self._violation(error.requirement, error.message)
            return self.poll_events()
        if isinstance(chunk, Audio):
            self._read_audio(chunk.data)
        else:
            if kind is FrameKind.BINARY:
                self._violation("control.text-frame", "A control message came in a binary frame.")
            type = str(chunk.fields["type"])
            reader = self._readers.get(type)
            if reader is None:
                self._events.append(UnknownControl(type, MappingProxyType(chunk.fields)))
            else:
                reader(chunk.fields)
        return self.poll_events()

    def transport_lost(self) -> tuple[Event, ...]:
        self._queue.clear()
        self._pending_bytes = 0
        move = _MOVES[self.state][SessionInput.TRANSPORT_LOST]
        if move.verdict is Verdict.ACT:
            self.state = move.to
            self.end_reason = "transport_lost"
            self._lose_rest(UtteranceInput.TRANSPORT_LOST, None)
            self._events.append(SessionEnded("transport_lost"))
        return self.poll_events()

    def _violation(self, requirement: str, message: str) -> None:
        self._events.append(ProtocolViolation(requirement, message))

    def _move(self, utterance: Utterance, event: UtteranceInput) -> Utterance:
        moved = utterance.after(Role.CLIENT, event)
        if moved.unended:
            self._unended[moved.seq] = moved
        else:
            del self._unended[moved.seq]
            self._cancellable.discard(moved.seq)
            if self._speaking == moved.seq:
                self._speaking = None
        return moved

    def _read_audio(self, data: bytes) -> None:
        if not data:
            self._violation("audio.chunk-size", "An empty audio chunk came.")
            return
        if len(data) > MAX_CHUNK_BYTES:
            self._violation("audio.chunk-size", f"An audio chunk of {len(data)} bytes came.")
        utterance = self._unended.get(self._speaking or 0)
        if utterance is None:
            utterance = self._first(UtteranceState.WAITING)
            if utterance is None:
                self._violation(
                    "order.nothing-after-terminal", "Audio came that belongs to no utterance."
                )
                return
            self._imply_start(utterance)
        utterance = self._move(utterance.with_audio(len(data)), UtteranceInput.AUDIO)
        self._events.append(AudioChunk(utterance.seq, data))

    def _imply_start(self, utterance: Utterance) -> None:
        """Tell of the beginning of an utterance whose endpoint sent no ``synthesis_start``."""
        format = utterance.format or _DEFAULT_FORMAT
        rate = utterance.sample_rate or _DEFAULT_RATES.get(format, _DEFAULT_RATE)
        self._events.append(
            SynthesisStart(
                utterance.seq, utterance.request_id, rate, format, utterance.voice, implied=True
            )
        )
        self._speaking = utterance.seq

    def _first(self, *states: UtteranceState) -> Utterance | None:
        """The oldest unended utterance in the first of ``states`` that any is in."""
        for state in states:
            for utterance in self._unended.values():
                if utterance.state is state:
                    return utterance
        return None

    def _seq_of(self, fields: JsonObject) -> int | None:
        """The message's ``seq``; None where the endpoint sends none, as some in the field do."""
        value = fields.get("seq")
        if value is None:
            return None
        seq = _integer(value, 1)
        if seq is None:
            self._violation("control.schema", "`seq` is no integer of 1 or more.")
        return seq

    def _find(self, fields: JsonObject, *states: UtteranceState) -> Utterance | None:
        """The unended utterance that a control message is about.

        By its ``seq``; without one by ``request_id``, and else by counting: the oldest in the first
        of ``states`` that any is in (``client.correlates-by-seq``).
        """
        seq = self._seq_of(fields)
        if seq is not None:
            return self._unended.get(seq)
        name = _string(fields.get("request_id"))
        if name is not None:
            for utterance in self._unended.values():
                if utterance.request_id == name:
                    return utterance
        return self._first(*states)

    def _stray(self, fields: JsonObject) -> None:
        self._violation(
            "order.nothing-after-terminal",
            f"`{fields['type']}` came for no unended utterance.",
        )

    def _read_start(self, fields: JsonObject) -> None:
        utterance = self._find(fields, UtteranceState.WAITING)
        if utterance is None:
            self._stray(fields)
            return
        if utterance.state is not UtteranceState.WAITING:
            self._violation("order.complete-had-start", "A second `synthesis_start` came.")
            return
        if next(iter(self._unended)) != utterance.seq:
            self._violation(
                "order.fifo", f"Utterance {utterance.seq} was started before an older one ended."
            )
        format = _string(fields.get("format"))
        rate = _integer(fields.get("sample_rate"), 1)
        if format is None or rate is None:
            self._violation("start.fields", "`synthesis_start` lacks its format or sample rate.")
        format = format or utterance.format or _DEFAULT_FORMAT
        rate = rate or utterance.sample_rate or _DEFAULT_RATES.get(format, _DEFAULT_RATE)
        self._move(utterance, UtteranceInput.START)
        self._speaking = utterance.seq
        self._events.append(
            SynthesisStart(
                utterance.seq,
                utterance.request_id,
                rate,
                format,
                _string(fields.get("voice")) or utterance.voice,
            )
        )

    def _read_complete(self, fields: JsonObject) -> None:
        utterance = self._find(fields, UtteranceState.RUNNING, UtteranceState.WAITING)
        if utterance is None:
            self._stray(fields)
            return
        if utterance.state is UtteranceState.WAITING:
            self._imply_start(utterance)
        claimed = _integer(fields.get("audio_bytes"), 0)
        self._compare("complete.audio-bytes", utterance, claimed)
        self._move(utterance, UtteranceInput.COMPLETE)
        self._events.append(
            SynthesisComplete(
                utterance.seq,
                utterance.request_id,
                _seconds(fields.get("total_duration_s")),
                _seconds(fields.get("elapsed_s")),
                claimed,
                _integer(fields.get("characters"), 0),
                utterance.audio_bytes,
            )
        )

    def _compare(self, requirement: str, utterance: Utterance, claimed: int | None) -> None:
        if claimed is not None and claimed != utterance.audio_bytes:
            self._violation(
                requirement,
                f"Utterance {utterance.seq}: {claimed} bytes were sent, the endpoint says; "
                f"{utterance.audio_bytes} came.",
            )

    def _read_error(self, fields: JsonObject) -> None:
        rejected = fields.get("rejected") is True
        states = (UtteranceState.RUNNING, UtteranceState.WAITING)
        utterance = self._find(fields, *(reversed(states) if rejected else states))
        seq = utterance.seq if utterance else _integer(fields.get("seq"), 1)
        name = utterance.request_id if utterance else _string(fields.get("request_id"))
        code = _string(fields.get("code")) or "internal"
        # Left out, it is false (protocol.md#deployed-endpoints).
        retryable = fields.get("retryable") is True
        message = _string(fields.get("message")) or "The endpoint gave no reason."
        if utterance is not None:
            if rejected and utterance.state is UtteranceState.WAITING:
                self._move(utterance, UtteranceInput.REJECTION)
            else:
                if rejected:
                    self._violation(
                        "reject.no-harm", f"Utterance {utterance.seq} was rejected while running."
                    )
                self._move(utterance, UtteranceInput.ERROR)
        elif seq is not None and seq in self._cancels:
            name = self._cancels.pop(seq)
        elif seq is not None and seq == self._hello:
            self._hello = None
        else:
            self._violation(
                "order.nothing-after-terminal", "An `error` came that belongs to no message."
            )
        wait_s = _seconds(fields.get("retry_after_s"))
        self._events.append(ErrorReceived(seq, name, code, message, retryable, rejected, wait_s))

    def _read_cancelled(self, fields: JsonObject) -> None:
        utterance = self._find(fields, UtteranceState.RUNNING, UtteranceState.WAITING)
        if utterance is None:
            self._stray(fields)
            return
        if utterance.seq not in self._cancellable:
            self._violation(
                "order.one-terminal", f"Utterance {utterance.seq} was cancelled by nobody here."
            )
        claimed = _integer(fields.get("audio_bytes"), 0)
        self._compare("cancel.audio-bytes", utterance, claimed)
        self._move(utterance, UtteranceInput.CANCELLED)
        self._events.append(
            Cancelled(utterance.seq, utterance.request_id, claimed, utterance.audio_bytes)
        )

    def _read_cancel_done(self, fields: JsonObject) -> None:
        seq = self._seq_of(fields) or next(iter(self._cancels), None)
        if seq not in self._cancels:
            self._violation("cancel.done", "A `cancel_done` came that belongs to no `cancel`.")
            return
        assert seq is not None
        name = self._cancels.pop(seq)
        self._events.append(CancelDone(seq, name, _integer(fields.get("count"), 0)))

    def _read_marks(self, fields: JsonObject) -> None:
        utterance = self._find(fields, UtteranceState.RUNNING, UtteranceState.WAITING)
        if utterance is None:
            self._stray(fields)
            return
        entries = fields.get("words")
        words = []
        for entry in entries if isinstance(entries, list) else [None]:
            word = self._word(entry)
            if word is None:
                self._violation("control.schema", "`marks` holds a word that is none.")
            else:
                words.append(word)
        self._move(utterance, UtteranceInput.MARKS)
        self._events.append(MarksReceived(utterance.seq, utterance.request_id, tuple(words)))

    def _word(self, entry: object) -> Word | None:
        if not isinstance(entry, dict):
            return None
        text = _string(entry.get("text"))
        start_s, end_s = _seconds(entry.get("start_s")), _seconds(entry.get("end_s"))
        begin, end = _integer(entry.get("char_start"), 0), _integer(entry.get("char_end"), 1)
        if text is None or start_s is None or end_s is None or begin is None or end is None:
            return None
        if start_s > end_s or begin >= end:
            return None
        return Word(text, start_s, end_s, begin, end)

    def _read_session(self, fields: JsonObject) -> None:
        version = _integer(fields.get("protocol_version"), 1)
        if self._hello is None or version is None:
            self._violation("hello.session", "A `session` came that answers no `hello`.")
            return
        self._hello = None
        limits = fields.get("limits")
        if isinstance(limits, dict):
            for name in _LIMITS:
                value = _seconds(limits.get(name))
                if value is not None:
                    self._limits[name] = value
        rates = fields.get("sample_rates")
        self._events.append(
            SessionReceived(
                version,
                _string(fields.get("session_id")),
                frozenset(_strings(fields.get("profiles"))),
                MappingProxyType(dict(self._limits)),
                _strings(fields.get("voices")),
                _strings(fields.get("formats")),
                tuple(rate for each in rates if (rate := _integer(each, 1)) is not None)
                if isinstance(rates, list)
                else (),
            )
        )

    def _read_session_closed(self, fields: JsonObject) -> None:
        reason = _string(fields.get("reason")) or "unknown"
        last_seq = _integer(fields.get("last_seq"), 0)
        self.state = _MOVES[self.state][SessionInput.SESSION_CLOSED].to
        self.end_reason = reason
        self._queue.clear()
        self._pending_bytes = 0
        self._lose_rest(UtteranceInput.SESSION_ENDS, last_seq)
        self._events.append(SessionClosed(reason, last_seq, _seconds(fields.get("retry_after_s"))))

    def _lose_rest(self, event: UtteranceInput, last_seq: int | None) -> None:
        """End what is unended with the session; above ``last_seq`` it had no effect."""
        for utterance in list(self._unended.values()):
            lost = self._move(utterance, event)
            self._events.append(
                UtteranceEnded(
                    lost.seq,
                    lost.state,
                    lost.request_id,
                    lost.audio_bytes,
                    unprocessed=last_seq is not None and lost.seq > last_seq,
                )
            )
