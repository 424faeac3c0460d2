"""A session as the prose has it: what was said, by whom, and whether that was legal.

The oracle sees what the client sees: its own messages when it sent them, the endpoint's chunks
when they came. When the endpoint read a message it cannot see. It knows only that a message was
read before anything that answers it, or a later one, was handed over. Where both readings of a
race are possible, both are legal here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from utterwire_schemas import ERROR_CODES

from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.classification import (
    Breach,
    FrameKind,
    audio_breaches,
    classify,
    control_breaches,
)
from utterwire_conformance.client_message import (
    Meaning,
    is_nothing_to_speak,
    read_client_message,
)
from utterwire_conformance.control_schema import satisfies_schema

from . import blame
from .marks import Words

__all__ = ["Oracle", "Outlook"]

_FLOOR_WAITING: Final = 8
_FLOOR_MESSAGE_BYTES: Final = 65_536
_PENDING_REJECTIONS: Final = 256
_CANCEL_S: Final = 0.5
_CLOSE_S: Final = (2.0, 5.0)
_TOLERANCE_S: Final = 0.001
# What a clock on the client's side of a network may be off by, before an order of events in
# seconds is held against an endpoint.
_SLACK_S: Final = 0.25
_DEFAULT_RATES: Final = {"mulaw": 8_000, "alaw": 8_000}
_IMMEDIATE: Final = frozenset({"cancel", "hello"})
_SHUTDOWN_CODES: Final = frozenset({1001, 1012})


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is legal for a message that has had no answer yet.

    `accept`: it may become an utterance (or, for `cancel` and `hello`, be obeyed). `codes`: it may
    be rejected with these. `silence`: no answer at all is right.
    """

    accept: bool
    codes: frozenset[str]
    silence: bool


@dataclass(slots=True)
class _Message:
    seq: int
    data: bytes
    is_text: bool
    frames: int
    t: float | None
    meaning: Meaning
    # It was sent after `close`, or after the session had ended.
    ignored: bool = False
    after_shutdown: bool = False
    # Others with its id that may have been unended when it was read.
    rivals: tuple[int, ...] = ()
    must_be_duplicate: bool = False
    started: bool = False
    ended: bool = False
    rejected: bool = False
    done: bool = False
    starts: int = 0
    start: dict[str, Any] = field(default_factory=dict)
    audio: int = 0
    stray_audio: bool = False
    # The requirement that is broken if it goes on, though `cancel_done` was about it.
    unstopped: str | None = None
    words: Words | None = None

    @property
    def is_request(self) -> bool:
        return self.meaning.type == "synthesize" and self.meaning.verdict != "reject"

    @property
    def owes_place(self) -> bool:
        """Whether what answers it has a place in the order, and it has not come to its end."""
        if self.ignored or self.ended or self.rejected or self.done:
            return False
        meaning = self.meaning
        if meaning.type in _IMMEDIATE:
            return False
        return meaning.type == "synthesize" or meaning.verdict == "reject"


class Oracle:
    """Judges one session, step by step.

    Tell it of everything in the order the client saw it: `sent`, `received`, and how it ended.
    Times are seconds on one clock, or None where they are not known; then nothing is judged that
    needs a clock. `breaches` holds what the endpoint did wrong, `client_breaches` the client.
    """

    def __init__(self, claims: EndpointClaims | None = None) -> None:
        self.claims = claims or EndpointClaims()
        self.breaches: list[Breach] = []
        self.client_breaches: list[Breach] = []
        self._messages: dict[int, _Message] = {}
        self._running: _Message | None = None
        self._last_ended: _Message | None = None
        self._read_to = 0
        self._answered_to = 0
        self._default_voice: str | None = None
        self._close: _Message | None = None
        self._session_closed: dict[str, Any] | None = None
        self._session_closed_t: float | None = None
        self._shutdown = False
        self._ended_by_going_away: list[_Message] = []
        self._rejected_by_going_away = False
        self._client_close_sent = False
        self._over = False
        # A chunk could not be matched to a message: nothing more can be said of what is missing.
        self._blind = False
        self._queue_full_seen = False
        self._cancelled = 0
        self._stopped: list[_Message] = []
        self._counted = 0
        self._last_activity: float | None = 0.0
        # When something happened, and whether nothing was being spoken from then on.
        self._activities: list[tuple[float | None, bool]] = []
        self._last_was_rejection = False

    # --- What the client does ------------------------------------------------------------------

    def sent(
        self, data: bytes, kind: FrameKind = "text", *, frames: int = 1, t: float | None = None
    ) -> int:
        """The client sent a whole message; its `seq`."""
        meaning = read_client_message(data, self.claims)
        seq = len(self._messages) + 1
        message = _Message(seq, data, kind == "text", frames, t, meaning)
        message.ignored = self._close is not None and not (
            meaning.type == "cancel" and meaning.verdict != "reject"
        )
        if self._session_closed is not None or self._over:
            message.ignored = True
        message.after_shutdown = self._shutdown
        message.rivals = tuple(
            other.seq
            for other in self._messages.values()
            if meaning.request_id is not None
            and other.meaning.request_id == meaning.request_id
            and other.is_request
            and not (other.ended or other.rejected or other.ignored)
        )
        self._judge_client(message)
        if "timing" in self.claims.profiles and meaning.type == "synthesize":
            asked = None if meaning.verdict == "reject" else bool(meaning.fields.get("marks"))
            message.words = Words(meaning.text, asked=asked)
        self._messages[seq] = message
        if self._close is None and meaning.type == "close" and not message.ignored:
            self._close = message
        self._activity(t)
        self._last_was_rejection = False
        return seq

    def _judge_client(self, message: _Message) -> None:
        meaning = message.meaning
        blamed = self.client_breaches
        if meaning.verdict == "reject" or meaning.codes & {"invalid_json"}:
            reason = f"message {message.seq} is not valid"
            blamed.append(Breach("client.valid-messages", reason))
        if self._close is not None and meaning.type != "cancel":
            reason = f"message {message.seq} was sent after `close`"
            blamed.append(Breach("client.no-message-after-close", reason))
        if meaning.type == "synthesize" and message.rivals:
            reason = f"message {message.seq} has the `request_id` of one that is unended"
            blamed.append(Breach("client.unique-ids", reason))
        if meaning.type == "hello" and message.seq != 1:
            blamed.append(Breach("client.first-hello", f"`hello` is message {message.seq}"))

    def client_closed(self, t: float | None = None) -> None:
        """The client sent a close frame."""
        self._client_close_sent = True
        if self._session_closed is None and (self._close is not None or self._unended()):
            reason = "the client closed before `session_closed`"
            self.client_breaches.append(Breach("client.keeps-sending-side", reason))
        self._judge_late_end(t)

    def client_lost(self, t: float | None = None) -> None:
        """The client's side of the transport ended without a close frame."""
        if not self._over:
            self._judge_late_end(t)
        self._over = True

    def shutdown_told(self) -> None:
        """The endpoint was told to shut down."""
        self._shutdown = True

    # --- What the endpoint does ----------------------------------------------------------------

    def received(
        self, data: bytes, kind: FrameKind = "binary", *, frames: int = 1, t: float | None = None
    ) -> None:
        """The client read a whole chunk."""
        if frames > 1:
            self._found("chunk.unfragmented", f"a chunk came in {frames} frames")
        if self._session_closed is not None:
            self._found("close.last-word", "a chunk came after `session_closed`")
            return
        reading = classify(data, kind)
        if reading.verdict == "audio":
            self._audio(data, t)
            return
        if kind == "binary":
            self._found("control.text-frame", "a control message came in a binary frame")
        breaches = control_breaches(data)
        self.breaches.extend(breaches)
        fields = reading.fields
        if fields is None or reading.type is None:
            self._blind = True
            return
        self._control(reading.type, data, dict(fields), t)

    def closed(self, code: int | None, t: float | None = None) -> None:
        """The endpoint sent a close frame."""
        if self._client_close_sent:
            self._over = True
            return
        if self._session_closed is None:
            if not self._over:
                self._judge_close_without_word(code, t)
        else:
            self._judge_own_close(code, t)
        self._over = True

    def lost(self, t: float | None = None, *, unasked: bool = False) -> None:
        """The endpoint's side of the transport ended without a close frame.

        `unasked` says that the way between is beyond doubt, so that it was the endpoint's doing.
        """
        if self._over:
            return
        if self._client_close_sent:
            self._found("ws.close-echo", "the close frame of the client was not answered")
        elif self._session_closed is None:
            unanswered = [
                m for m in self._messages.values() if m.owes_place and m.meaning.verdict == "reject"
            ]
            if unanswered or self._last_was_rejection:
                reason = "the transport was dropped over a message that was to be rejected"
                self._found("reject.session-survives", reason)
            elif unasked:
                odd = any(
                    m.owes_place and not m.meaning.id_certain for m in self._messages.values()
                )
                what = "reject.odd-json-survives" if odd else "session.stays-open"
                if self._close is not None:
                    what = "close.session-closed"
                self._found(what, "the transport was dropped without a word")
        self._over = True

    def finish(self, *, quiet: bool) -> tuple[Breach, ...]:
        """The end of the record; all the breaches of the endpoint.

        `quiet` says that the endpoint had all the time it could want and the transport is still
        there: whatever is missing then is missing.
        """
        if quiet and not self._over and not self._blind:
            self._judge_missing()
        return tuple(self.breaches)

    def outlook(self, seq: int) -> Outlook:
        """What is legal for message `seq`, as far as that can be told now.

        Raises:
            KeyError: no such message was sent.
        """
        message = self._messages[seq]
        meaning = message.meaning
        if message.ignored:
            return Outlook(False, frozenset(), True)
        if message.ended or message.rejected or message.done:
            return Outlook(False, frozenset(), True)
        codes = set(meaning.codes)
        accept = meaning.verdict != "reject" and not message.must_be_duplicate
        if meaning.type == "synthesize":
            codes |= {"overloaded", "going_away"}
            if message.rivals:
                codes.add("duplicate_request_id")
            if self._may_be_full(message):
                codes.add("queue_full")
            accept = accept and not message.after_shutdown
        if meaning.type == "hello" and seq != 1:
            accept = False
            codes = _codes_of_late_hello(meaning)
        silent = meaning.type in ("keepalive", "close") and meaning.verdict != "reject"
        return Outlook(accept and not silent, frozenset(codes), silent)

    # --- Control messages ----------------------------------------------------------------------

    def _control(self, kind: str, data: bytes, fields: dict[str, Any], t: float | None) -> None:
        if kind.startswith("x_"):
            return
        valid = satisfies_schema(data)
        if not valid:
            self._found("control.schema", f"`{kind}` does not satisfy its schema")
        if kind == "session_closed":
            self._on_session_closed(fields, t)
            return
        handle = {
            "synthesis_start": self._on_start,
            "synthesis_complete": self._on_complete,
            "error": self._on_error,
            "cancelled": self._on_cancelled,
            "cancel_done": self._on_cancel_done,
            "session": self._on_session,
            "marks": self._on_marks,
        }.get(kind)
        if handle is None:
            return
        message = self._subject(kind, fields)
        if message is None:
            return
        immediate = kind in ("cancelled", "cancel_done", "session") or (
            kind == "error"
            and (message.meaning.type in _IMMEDIATE or fields.get("code") == "queue_full")
        )
        self._evidence(message, immediate=immediate)
        self._check_id(kind, fields, message)
        handle(message, fields, t)

    def _subject(self, kind: str, fields: dict[str, Any]) -> _Message | None:
        """The message that a control message says it is about, if that can be."""
        seq: Any = fields.get("seq")
        message = self._messages.get(int(seq)) if _is_integer(seq) else None
        why = ""
        if message is None:
            why = f"`{kind}` carries the `seq` {seq!r}, which no message has"
        elif kind != "error":
            wanted = {"cancel_done": "cancel", "session": "hello"}.get(kind, "synthesize")
            told = message.meaning.type
            if told is None and message.meaning.verdict == "reject":
                told = wanted if kind != "session" and not message.rejected else None
            spoken = kind in ("synthesis_start", "synthesis_complete")
            if told != wanted or (message.rejected and spoken):
                why = f"`{kind}` carries the `seq` of a message it cannot be about"
                if kind == "session" and message.seq != 1 and told == wanted:
                    why = ""
        if why:
            self._found("seq.counts-messages", why)
            self._blind = True
            return None
        return message

    def _evidence(self, message: _Message, *, immediate: bool) -> None:
        """An answer to `message` shows that it and all before it were read."""
        self._answered_to = max(self._answered_to, message.seq)
        if message.seq <= self._read_to:
            return
        for seq in range(self._read_to + 1, message.seq + 1):
            read = self._messages[seq]
            rivals = [self._messages[rival] for rival in read.rivals]
            # An answer that goes out at once was handed over while these were still unended.
            if immediate and any(
                rival.started and not rival.ended and not rival.rejected for rival in rivals
            ):
                read.must_be_duplicate = True
        self._read_to = message.seq

    def _check_id(self, kind: str, fields: dict[str, Any], message: _Message) -> None:
        meaning = message.meaning
        if not meaning.id_certain or kind == "session":
            return
        if fields.get("request_id") != meaning.request_id:
            requirement = (
                "reject.one-error"
                if kind == "error" and fields.get("rejected") is True
                else "request-id.echoed"
            )
            reason = (
                f"`{kind}` carries the `request_id` {fields.get('request_id')!r},"
                f" the message {meaning.request_id!r}"
            )
            self._found(requirement, reason)

    def _check_place(self, message: _Message, requirement: str) -> None:
        """What comes in message order may not come before what is due to earlier messages."""
        if any(self._is_uncounted(stopped) for stopped in self._stopped):
            reason = (
                f"an answer to message {message.seq} came between `cancelled` and `cancel_done`"
            )
            self._found("cancel.overtakes", reason)
        for earlier in self._messages.values():
            if earlier.seq >= message.seq:
                return
            if not earlier.owes_place:
                continue
            reason = f"message {earlier.seq} is to be answered first"
            if earlier.started and requirement == "order.fifo":
                self._found("order.no-mixing", f"utterance {earlier.seq} has not ended")
            if earlier.meaning.verdict == "reject":
                requirement = "reject.in-order"
            self._found(requirement, reason)
            return

    def _on_start(self, message: _Message, fields: dict[str, Any], t: float | None) -> None:
        message.starts += 1
        if message.starts > 1 and not message.ended:
            self._found("order.complete-had-start", f"utterance {message.seq} started twice")
            return
        if message.ended:
            reason = f"utterance {message.seq} started after its end"
            self._found("order.nothing-after-terminal", reason)
            return
        if self._must_not_start(message):
            message.started = True
            self._running = message
            message.start = fields
            return
        if any(
            self._names(cancel, message) and not cancel.done for cancel in self._cancels(message)
        ) and any(other.started and other.owes_place for other in self._before(message)):
            reason = f"utterance {message.seq} waited, was cancelled, and started"
            self._found("cancel.waiting", reason)
        self._check_place(message, "order.fifo")
        message.started = True
        message.start = fields
        self._running = message
        self._activity(t)
        self._check_start_fields(message, fields)

    def _must_not_start(self, message: _Message) -> bool:
        """Whether an utterance should never have come of `message`; says so."""
        meaning = message.meaning
        if message.ignored:
            self._found("close.ignores-later", f"message {message.seq} came after `close`")
        elif meaning.verdict == "reject":
            self._found(
                blame.of_acceptance(message.data, meaning, self.claims),
                f"message {message.seq} was accepted; right were {_listed(meaning.codes)}",
            )
        elif message.must_be_duplicate:
            reason = f"message {message.seq} was accepted with the id of an unended utterance"
            self._found("reject.duplicate-request-id", reason)
        elif message.after_shutdown:
            reason = f"message {message.seq}, sent after shutdown, was accepted"
            self._found("shutdown.going-away", reason)
        else:
            return False
        return True

    def _check_start_fields(self, message: _Message, fields: dict[str, Any]) -> None:
        meaning = message.meaning
        if not meaning.id_certain and meaning.verdict == "either":
            return
        asked = meaning.fields
        form = asked.get("format") or "pcm_s16le"
        rate = asked.get("sample_rate") or _DEFAULT_RATES.get(str(form), 24_000)
        voice = asked.get("voice")
        wrong = [
            f"{name} {fields.get(name)!r} in place of {right!r}"
            for name, right in (("sample_rate", rate), ("format", form), ("voice", voice))
            if right is not None and fields.get(name) != right
        ]
        if voice is None:
            named = fields.get("voice")
            if self._default_voice is not None and named != self._default_voice:
                wrong.append(f"the default voice {self._default_voice!r} is now {named!r}")
            elif isinstance(named, str):
                self._default_voice = named
        if wrong:
            self._found("start.fields", f"`synthesis_start` names {'; '.join(wrong)}")

    def _on_complete(self, message: _Message, fields: dict[str, Any], t: float | None) -> None:
        if self._already_ended(message):
            return
        if not message.started:
            if not self._must_not_start(message):
                reason = f"utterance {message.seq} had no `synthesis_start`"
                self._found("order.complete-had-start", reason)
            self._check_place(message, "order.fifo")
        self._check_uncancelled(message)
        self._end(message, t)
        count = fields.get("audio_bytes")
        if not message.stray_audio and count != message.audio:
            reason = f"`audio_bytes` is {count}; {message.audio} bytes came"
            self._found("complete.audio-bytes", reason)
        self._check_duration(message, fields)
        elapsed = fields.get("elapsed_s")
        if isinstance(elapsed, int | float) and t is not None and message.t is not None:
            seen = t - message.t
            if elapsed > seen + _TOLERANCE_S:
                reason = f"`elapsed_s` is {elapsed}; the utterance was seen to take {seen:.3f} s"
                self._found("complete.elapsed", reason)
        text = message.meaning.text
        certain = message.meaning.type == "synthesize" and message.meaning.id_certain
        if certain and fields.get("characters") != len(text):
            reason = f"`characters` is {fields.get('characters')}; the text has {len(text)}"
            self._found("complete.characters", reason)
        if message.audio and is_nothing_to_speak(text):
            reason = f"{message.audio} bytes came for text with nothing to speak"
            self._found("audio.unspeakable", reason)
        if message.words is not None:
            duration = fields.get("total_duration_s")
            self.breaches.extend(message.words.complete(duration, message.audio))

    def _check_duration(self, message: _Message, fields: dict[str, Any]) -> None:
        seconds = fields.get("total_duration_s")
        rate = message.start.get("sample_rate")
        if message.start.get("format") != "pcm_s16le" or not isinstance(rate, int) or rate <= 0:
            return
        heard = message.audio / (2 * rate)
        if isinstance(seconds, int | float) and abs(seconds - heard) > _TOLERANCE_S + 1e-9:
            reason = f"`total_duration_s` is {seconds}; {heard:.6f} s of audio came"
            self._found("complete.duration", reason)

    def _on_error(self, message: _Message, fields: dict[str, Any], t: float | None) -> None:
        code = fields.get("code")
        known = ERROR_CODES.get(code) if isinstance(code, str) else None
        if isinstance(code, str) and known is None:
            self._found("error.registered-code", f"the code {code!r} is not in the registry")
        if known is not None and fields.get("retryable") is not known.retryable:
            self._found("error.retryable", f"`retryable` is wrong for {code}")
        text = fields.get("message")
        if not isinstance(text, str) or not text:
            self._found("error.message", "`message` is empty or missing")
        if fields.get("rejected") is True:
            self._on_rejection(message, code if known is not None else None, t)
        else:
            self._on_failure(message, str(code), t)

    def _on_rejection(self, message: _Message, code: str | None, t: float | None) -> None:
        seq = message.seq
        self._last_was_rejection = True
        if message.ignored:
            self._found("close.ignores-later", f"message {seq} after `close` was answered")
            return
        if message.rejected:
            self._found("reject.one-error", f"message {seq} was rejected twice")
            return
        if message.started or message.ended:
            self._found("reject.one-error", f"message {seq} was rejected after it was accepted")
            return
        message.rejected = True
        self._activity(t)
        meaning = message.meaning
        # What is odd may be refused by a parser that knows neither type nor place.
        in_order = code != "queue_full" and meaning.type not in _IMMEDIATE and meaning.id_certain
        if in_order and self._pending_rejections(message) < _PENDING_REJECTIONS:
            self._check_place(message, "reject.in-order")
        if code is None:
            return
        if code == "queue_full" and meaning.type == "synthesize":
            self._check_queue_full(message)
            return
        if code == "going_away" and meaning.type == "synthesize":
            self._rejected_by_going_away = True
            return
        outlook_codes = set(meaning.codes)
        if meaning.type == "synthesize":
            outlook_codes.add("overloaded")
            if message.rivals:
                outlook_codes.add("duplicate_request_id")
        if meaning.type == "hello" and seq != 1:
            outlook_codes = _codes_of_late_hello(meaning)
        if code in outlook_codes:
            return
        if meaning.type == "hello" and seq != 1:
            reason = f"`hello` is message {seq} and was rejected with {code}"
            self._found("hello.first-only", reason)
            return
        if meaning.verdict == "accept":
            requirement = blame.of_rejection(
                meaning, code, is_text=message.is_text, frames=message.frames
            )
            self._found(requirement, f"message {seq} is valid and was rejected with {code}")
            if "negotiate" in self.claims.profiles and requirement == "accept.defaults":
                self._found("hello.optional", "no `hello` was sent, and a request was refused")
            if meaning.type == "cancel":
                message.done = True
        else:
            requirement = blame.of_acceptance(message.data, meaning, self.claims)
            right = _listed(meaning.codes)
            self._found(requirement, f"message {seq} was rejected with {code}; right were {right}")

    def _pending_rejections(self, message: _Message) -> int:
        return sum(
            earlier.owes_place and earlier.meaning.verdict != "accept"
            for earlier in self._before(message)
        )

    def _check_queue_full(self, message: _Message) -> None:
        self._queue_full_seen = True
        limit = self.claims.max_waiting or _FLOOR_WAITING
        if self._may_be_full(message):
            return
        unended = sum(other.is_request and other.owes_place for other in self._before(message))
        sent = sum(other.is_request for other in self._before(message))
        reason = f"{unended} requests were unended; the queue holds {limit} beside the running one"
        requirement = "accept.waiting-floor" if sent <= _FLOOR_WAITING else "queue.full"
        self._found(requirement, reason)

    def _may_be_full(self, message: _Message) -> bool:
        limit = self.claims.max_waiting or _FLOOR_WAITING
        unended = sum(other.is_request and other.owes_place for other in self._before(message))
        return unended > limit

    def _on_failure(self, message: _Message, code: str, t: float | None) -> None:
        meaning = message.meaning
        known = ERROR_CODES.get(code)
        if meaning.type == "keepalive" and meaning.verdict == "accept":
            self._found("message.keepalive", "a `keepalive` was answered")
            return
        if self._already_ended(message):
            return
        unmarked = not message.started and known is not None and known.rejection == "always"
        if unmarked or meaning.verdict == "reject" or meaning.type != "synthesize":
            reason = f"the error to message {message.seq} does not say `rejected`"
            self._found("reject.one-error", reason)
            message.rejected = True
            return
        self._check_place(message, "order.fifo")
        self._check_uncancelled(message)
        self._end(message, t)
        if code == "going_away":
            self._ended_by_going_away.append(message)

    def _already_ended(self, message: _Message) -> bool:
        if message.ended:
            self._found("order.one-terminal", f"utterance {message.seq} ended twice")
        return message.ended

    def _end(self, message: _Message, t: float | None) -> None:
        message.ended = True
        self._last_ended = message
        self._last_was_rejection = False
        if self._running is message:
            mixed = (m for m in self._messages.values() if m.started and not m.ended)
            self._running = next(mixed, None)
        self._activity(t)

    # --- Cancelling ----------------------------------------------------------------------------

    def _cancels(self, message: _Message) -> list[_Message]:
        """The messages of type `cancel` sent after `message`."""
        return [
            other
            for other in self._messages.values()
            if other.seq > message.seq and other.meaning.fields.get("type") == "cancel"
        ]

    @staticmethod
    def _names(cancel: _Message, message: _Message) -> bool:
        if cancel.meaning.verdict == "reject":
            return False
        if "request_id" not in cancel.meaning.fields:
            return True
        return cancel.meaning.request_id == message.meaning.request_id

    def _on_cancelled(self, message: _Message, fields: dict[str, Any], t: float | None) -> None:
        if self._already_ended(message):
            return
        self._cancelled += 1
        twins = [stopped for stopped in self._stopped if stopped.seq in message.rivals]
        self._stopped.append(message)
        cancels = self._cancels(message)
        naming = [cancel for cancel in cancels if self._names(cancel, message) and not cancel.done]
        if twins and len(naming) == 1:
            # One `cancel` stopped both, so that both were unended when it was read.
            reason = f"message {message.seq} was accepted with the id of utterance {twins[0].seq}"
            self._found("reject.duplicate-request-id", reason)
        if message.unstopped is not None:
            self._found("cancel.done", "`cancel_done` came before what it counts")
        elif not naming:
            self._blame_cancelled(message, cancels)
        elif t is not None and naming[0].t is not None and t - naming[0].t > _CANCEL_S + _SLACK_S:
            reason = f"`cancelled` came {t - naming[0].t:.2f} s after `cancel`"
            self._found("cancel.prompt", reason)
        self._end(message, t)
        if fields.get("audio_bytes") != message.audio:
            reason = f"`audio_bytes` is {fields.get('audio_bytes')}; {message.audio} bytes came"
            self._found("cancel.audio-bytes", reason)

    def _is_uncounted(self, stopped: _Message) -> bool:
        """Whether a `cancel` that names a cancelled utterance still owes its `cancel_done`."""
        return any(
            self._names(cancel, stopped) and not cancel.done for cancel in self._cancels(stopped)
        )

    def _blame_cancelled(self, message: _Message, cancels: list[_Message]) -> None:
        reason = f"utterance {message.seq} was cancelled, which no `cancel` names"
        refused = [cancel for cancel in cancels if cancel.meaning.verdict == "reject"]
        if refused:
            requirement = blame.of_acceptance(refused[0].data, refused[0].meaning, self.claims)
            self._found(requirement, reason)
        else:
            self._found("cancel.only-named" if cancels else "order.one-terminal", reason)

    def _check_uncancelled(self, message: _Message) -> None:
        """An utterance that a `cancel_done` was about may only end in `cancelled`."""
        requirement = message.unstopped
        if requirement is not None:
            message.unstopped = None
            self._found(requirement, f"utterance {message.seq} went on after its `cancel_done`")

    def _on_cancel_done(self, cancel: _Message, fields: dict[str, Any], t: float | None) -> None:
        if cancel.done:
            self._found("cancel.done", f"`cancel` {cancel.seq} was answered twice")
            return
        if cancel.meaning.verdict == "reject":
            requirement = blame.of_acceptance(cancel.data, cancel.meaning, self.claims)
            self._found(requirement, f"`cancel` {cancel.seq} is invalid and was obeyed")
            cancel.done = True
            return
        cancel.done = True
        self._stopped = [stopped for stopped in self._stopped if not self._names(cancel, stopped)]
        self._activity(t)
        left = 0
        for message in self._before(cancel):
            if message.is_request and message.owes_place and self._names(cancel, message):
                if "request_id" not in cancel.meaning.fields:
                    message.unstopped = "cancel.all"
                else:
                    message.unstopped = "cancel.running" if message.started else "cancel.waiting"
                left += 1
        count: Any = fields.get("count")
        if not _is_integer(count):
            return
        self._counted += int(count)
        if not left and self._counted != self._cancelled:
            several = any(not other.done for other in self._cancels_sent() if other is not cancel)
            if self._counted > self._cancelled or not several:
                reason = f"`count` is {count}; {self._cancelled} utterances were cancelled in all"
                named = cancel.meaning.request_id
                unknown = named is not None and all(
                    other.meaning.request_id != named for other in self._before(cancel)
                )
                self._found("cancel.unknown-id" if unknown else "cancel.done", reason)
        waited = 0.0 if t is None or cancel.t is None else t - cancel.t
        if not count and waited > _CANCEL_S + _SLACK_S:
            reason = f"`cancel_done` came {waited:.2f} s after `cancel`"
            self._found("cancel.overtakes", reason)

    def _cancels_sent(self) -> list[_Message]:
        return [m for m in self._messages.values() if m.meaning.type == "cancel"]

    # --- Session, marks, audio -----------------------------------------------------------------

    def _on_session(self, message: _Message, fields: dict[str, Any], t: float | None) -> None:
        if message.seq != 1 or message.done:
            self._found("hello.first-only", f"`hello` is message {message.seq} and was obeyed")
            message.done = True
            return
        if message.meaning.verdict == "reject":
            requirement = blame.of_acceptance(message.data, message.meaning, self.claims)
            self._found(requirement, "a `hello` that is to be rejected was obeyed")
            message.done = True
            return
        message.done = True
        if any(m.started or m.rejected for m in self._messages.values() if m.seq > 1):
            self._found("hello.session", "`session` came after answers to later messages")
        profiles = fields.get("profiles")
        if isinstance(profiles, list) and set(map(str, profiles)) != set(self.claims.profiles):
            reason = f"`session` names the profiles {profiles}"
            self._found("session.matches-claims", reason)
        self._check_limits(fields.get("limits"))

    def _check_limits(self, limits: object) -> None:
        floors = {
            "max_text_chars": 4096,
            "max_message_bytes": _FLOOR_MESSAGE_BYTES,
            "max_request_id_chars": 128,
            "max_waiting": _FLOOR_WAITING,
            "max_speed": 2.0,
        }
        told = limits if isinstance(limits, dict) else {}
        short = [
            name
            for name, floor in floors.items()
            if not isinstance(told.get(name), int | float) or told[name] < floor
        ]
        slow = told.get("min_speed")
        if not isinstance(slow, int | float) or not 0 < slow <= 0.5:
            short.append("min_speed")
        if not isinstance(told.get("idle_timeout_s"), int | float) or told["idle_timeout_s"] <= 0:
            short.append("idle_timeout_s")
        if short:
            self._found("session.limits", f"missing, or short of the floor: {', '.join(short)}")

    def _on_marks(self, message: _Message, fields: dict[str, Any], t: float | None) -> None:
        if "timing" not in self.claims.profiles:
            self._found("message.unclaimed-marks", "`timing` is not claimed, and `marks` came")
            return
        if message.ended:
            reason = f"`marks` came after the end of utterance {message.seq}"
            self._found("order.nothing-after-terminal", reason)
            return
        if not message.started:
            reason = f"`marks` came before the `synthesis_start` of utterance {message.seq}"
            self._found("timing.before-audio", reason)
        if message.words is None:
            return  # About a message that asked for no speech.
        rate = message.start.get("sample_rate")
        heard = 0.0
        # Of other formats the bytes do not say how much was heard.
        if message.start.get("format") == "pcm_s16le" and isinstance(rate, int) and rate > 0:
            heard = message.audio / (2 * rate)
        self.breaches.extend(message.words.told(fields.get("words"), heard))

    def _audio(self, data: bytes, t: float | None) -> None:
        message = self._running
        if message is None:
            self._stray_audio(data)
            self.breaches.extend(audio_breaches(data))
            return
        self._check_uncancelled(message)
        message.audio += len(data)
        pcm = message.start.get("format", "pcm_s16le") == "pcm_s16le"
        self.breaches.extend(audio_breaches(data, sample_bytes=2 if pcm else None, encoded=not pcm))

    def _stray_audio(self, data: bytes) -> None:
        if self._blind:
            return
        owed = [m for m in self._messages.values() if m.is_request and m.owes_place]
        if owed:
            if not owed[0].stray_audio:
                self._found("order.start-first", "audio came before a `synthesis_start`")
            owed[0].stray_audio = True
            owed[0].audio += len(data)
        elif self._last_ended is not None:
            reason = f"audio came after the end of utterance {self._last_ended.seq}"
            self._found("order.nothing-after-terminal", reason)
        else:
            self._found("order.start-first", "audio came that nobody asked for")

    # --- The end -------------------------------------------------------------------------------

    def _on_session_closed(self, fields: dict[str, Any], t: float | None) -> None:
        self._session_closed = fields
        self._session_closed_t = t
        reason = fields.get("reason")
        if reason == "client_close":
            self._check_client_close(fields, t)
        else:
            self._check_other_close(str(reason), fields, t)

    def _check_client_close(self, fields: dict[str, Any], t: float | None) -> None:
        close = self._close
        if close is None:
            self._found("session.stays-open", "`session_closed` came, and no `close` was sent")
            return
        if fields.get("seq") != close.seq or fields.get("last_seq") != close.seq:
            reason = (
                f"`seq` is {fields.get('seq')} and `last_seq` {fields.get('last_seq')};"
                f" that of `close` is {close.seq}"
            )
            self._found("close.session-closed", reason)
        if self._ended_by_going_away and not self._shutdown:
            seqs = _numbers(self._ended_by_going_away)
            self._found("close.drains", f"utterance {seqs} was not spoken to its end")
        if self._blind:
            return
        for message in self._before(close):
            if not message.owes_place:
                continue
            if message.meaning.verdict == "reject":
                what = f"message {message.seq} has not had its error"
                self._found("close.session-closed", what)
            else:
                self._found("close.drains", f"utterance {message.seq} has not ended")
        self._check_late_cancels(t)

    def _check_late_cancels(self, t: float | None) -> None:
        """A `cancel` after `close` that was not obeyed, though it cannot have crossed the end."""
        for cancel in self._messages.values():
            if cancel.meaning.type != "cancel" or cancel.done or cancel.rejected or cancel.ignored:
                continue
            if t is None or cancel.t is None or t - cancel.t <= _CANCEL_S + _SLACK_S:
                continue
            reason = f"`cancel` {cancel.seq} was not answered in {t - cancel.t:.2f} s"
            self._found("cancel.after-close", reason)

    def _check_other_close(self, reason: str, fields: dict[str, Any], t: float | None) -> None:
        if reason == "idle" and self._close is not None:
            if self.claims.idle_s is None or self._was_idle(t) is False:
                self._found("close.session-closed", "`close` was sent, and the reason is idle")
            return
        if "seq" in fields or fields.get("last_seq") != self._answered_to:
            what = f"`last_seq` is {fields.get('last_seq')}; the highest answered is"
            self._found("session-closed.last-seq", f"{what} {self._answered_to}")
        if reason == "idle":
            self._check_idle(t)
            return
        if reason == "going_away":
            self._check_drained()
        elif not self._blind:
            left = [m for m in self._messages.values() if m.started and not m.ended]
            if left:
                what = f"the session ended, and utterance {_numbers(left)} had no end"
                self._found("order.one-terminal", what)

    def _was_idle(self, until: float | None) -> bool | None:
        """Whether the session lay still for as long as the limit, at any time before `until`.

        What the client sent after that may have crossed the end. None: that cannot be known.
        """
        limit = self.claims.idle_s
        if limit is None or until is None:
            return None
        since: float = 0.0
        resting = True
        for when, rests in (*self._activities, (until, True)):
            if when is None:
                return None
            if resting and when - since >= limit - _SLACK_S:
                return True
            since, resting = when, rests
        return False

    def _check_idle(self, t: float | None) -> None:
        unended = [m for m in self._messages.values() if m.started and not m.ended]
        if unended or self._ended_by_going_away:
            self._found("idle.reset-by-messages", "the idle clock ran during an utterance")
            return
        if self._was_idle(t) is False:
            reason = f"the session was not idle for {self.claims.idle_s:g} s"
            self._found("idle.reset-by-messages", reason)

    def _check_drained(self) -> None:
        if self._blind:
            return
        left = [
            m
            for m in self._messages.values()
            if m.owes_place and not m.after_shutdown and (self._shutdown or m.started)
        ]
        if left:
            self._found("shutdown.drains", f"message {_numbers(left)} got no end")

    def _judge_close_without_word(self, code: int | None, t: float | None) -> None:
        if code == 1009 and self._is_too_big_sent():
            return
        if self._close is not None:
            self._found("close.session-closed", "the endpoint closed without `session_closed`")
        elif self._shutdown or code in _SHUTDOWN_CODES:
            reason = "the endpoint closed on shutdown without `session_closed`"
            self._found("shutdown.session-closed", reason)
            if self._unended():
                self._found("shutdown.drains", "an utterance was not ended")
        elif self._is_idle_too_long(t):
            self._found("idle.session-closed", "the endpoint closed without `session_closed`")
        elif self._last_was_rejection or any(
            m.owes_place and m.meaning.verdict == "reject" for m in self._messages.values()
        ):
            reason = "the endpoint closed over a message that was to be rejected"
            self._found("reject.session-survives", reason)
        else:
            self._found("session.stays-open", f"the endpoint closed with the code {code}")

    def _is_too_big_sent(self) -> bool:
        limit = self.claims.max_message_bytes or _FLOOR_MESSAGE_BYTES
        return any(len(message.data) > limit for message in self._messages.values())

    def _judge_own_close(self, code: int | None, t: float | None) -> None:
        reason = (self._session_closed or {}).get("reason")
        legal = {1000}
        if reason == "going_away" or self._shutdown:
            legal.add(1001)
        if reason == "message_too_big" or self._is_too_big_sent():
            legal.add(1009)
        if code not in legal:
            self._found("close.code", f"the endpoint's own close has the code {code}")
        if t is None or self._session_closed_t is None:
            return
        waited = t - self._session_closed_t
        if waited < _CLOSE_S[0] - _SLACK_S:
            self._found("close.endpoint-waits", f"the endpoint closed after {waited:.2f} s")
        elif waited > _CLOSE_S[1] + 1.0:
            self._found("close.endpoint-gives-up", f"the endpoint closed after {waited:.2f} s")
        reason_client = "the client did not close within 2 s of `session_closed`"
        self.client_breaches.append(Breach("client.keeps-sending-side", reason_client))

    def _judge_late_end(self, t: float | None) -> None:
        """The client ended it: had the endpoint not to do so long before?"""
        if t is None or self._over:
            return
        if self._session_closed_t is not None:
            waited = t - self._session_closed_t
            if waited > _CLOSE_S[1] + 1.0:
                reason = f"{waited:.0f} s after `session_closed` the endpoint had not closed"
                self._found("close.endpoint-gives-up", reason)
        elif self._session_closed is None and self._is_idle_too_long(t, grace=2.0):
            self._found("idle.session-closed", "the session was idle far beyond the limit")

    def _is_idle_too_long(self, t: float | None, *, grace: float = 0.0) -> bool:
        limit = self.claims.idle_s
        if limit is None or t is None or self._last_activity is None or self._unended():
            return False
        return t - self._last_activity > limit + grace - _SLACK_S

    def _judge_missing(self) -> None:
        # What `session_closed` does not speak of was not processed.
        last: Any = len(self._messages)
        if self._session_closed is not None:
            last = self._session_closed.get("last_seq")
        for message in self._messages.values():
            meaning = message.meaning
            seq = message.seq
            if not _is_integer(last) or seq > last:
                break
            if message.ignored or message.ended or message.rejected or message.done:
                continue
            if meaning.verdict == "reject":
                self._found("reject.one-error", f"message {seq} was never answered")
            elif meaning.type == "synthesize":
                self._missing_terminal(message)
            elif meaning.type == "cancel":
                self._found("cancel.done", f"`cancel` {seq} was never answered")
            elif meaning.type == "hello":
                self._found("hello.session", "`hello` was never answered")
        if self._close is not None and self._session_closed is None:
            self._found("close.session-closed", "`close` was never answered")

    def _missing_terminal(self, message: _Message) -> None:
        self._check_uncancelled(message)
        if self._queue_full_seen and not message.started:
            self._found("queue.full", f"request {message.seq} was lost when the queue was full")
        if any(cancel.done and cancel.seq < message.seq for cancel in self._messages.values()):
            self._found("cancel.session-goes-on", f"request {message.seq} was not served")
        self._found("order.one-terminal", f"utterance {message.seq} never ended")

    # --- Small things --------------------------------------------------------------------------

    def _before(self, message: _Message) -> list[_Message]:
        return [other for other in self._messages.values() if other.seq < message.seq]

    def _unended(self) -> list[_Message]:
        return [m for m in self._messages.values() if m.is_request and m.owes_place]

    def _activity(self, t: float | None) -> None:
        self._last_activity = t
        resting = not any(m.started and not m.ended for m in self._messages.values())
        self._activities.append((t, resting))

    def _found(self, requirement: str, reason: str) -> None:
        self.breaches.append(Breach(requirement, reason))


def _is_integer(value: Any) -> bool:
    """Whether a number is integral, however it is written."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _codes_of_late_hello(meaning: Meaning) -> set[str]:
    """The codes for a `hello` that is not message 1: it has no other fault but odd JSON."""
    odd = "invalid_json" in meaning.codes
    return {"invalid_request"} | (set(meaning.codes) if odd else set())


def _listed(codes: frozenset[str]) -> str:
    return ", ".join(sorted(codes))


def _numbers(messages: list[_Message]) -> str:
    return ", ".join(str(message.seq) for message in messages)
