"""Faults in how an endpoint answers what it rejects, and in the order of its answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from unicodedata import normalize

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    CloseSession,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.strict_json import NotJson, NotUtf8, parse

from .catalogue import Catalogue
from .rewriting import error_frame, invalid_twin, message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()


FAULTS.chunks(
    "rejections-twice",
    "Each rejected message is answered by two errors.",
    "reject.one-error",
    lambda chunk, _: [chunk.frame, chunk.frame] if chunk.is_rejection else None,
)
FAULTS.chunks(
    "rejections-unanswered",
    "Rejected messages are not answered.",
    "reject.one-error",
    lambda chunk, _: [] if chunk.is_rejection else None,
)
FAULTS.chunks(
    "rejections-unmarked",
    "The error to a rejected message does not say `rejected`.",
    "reject.one-error",
    lambda chunk, _: [chunk.changed(rejected=...)] if chunk.is_rejection else None,
)
FAULTS.chunks(
    "rejections-without-id",
    "The error to a rejected message leaves out its `request_id`.",
    "reject.one-error",
    lambda chunk, _: [chunk.changed(request_id=...)] if chunk.is_rejection else None,
)
FAULTS.chunks(
    "rejections-without-foreign-ids",
    "The error to a rejected message leaves out a `request_id` that is not ASCII.",
    "reject.one-error",
    lambda chunk, _: (
        [chunk.changed(request_id=...)]
        if chunk.is_rejection and not str((chunk.fields or {}).get("request_id", "")).isascii()
        else None
    ),
)
FAULTS.chunks(
    "rejections-without-seq",
    "The error to a rejected message leaves out its `seq`.",
    "seq.counts-messages",
    lambda chunk, _: [chunk.changed(seq=...)] if chunk.is_rejection else None,
)


FAULTS.chunks(
    "rejections-of-the-message-before",
    "The error to a rejected message carries the `seq` of the message before it.",
    "seq.counts-messages",
    lambda chunk, _: (
        [chunk.changed(seq=(chunk.seq or 0) - 1)]
        if chunk.is_rejection and (chunk.seq or 0) > 1
        else None
    ),
)


class _ClosesOnRejection(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield from super().chunk(chunk)
        if chunk.is_rejection:
            yield CloseSession(1008, "bad message")


FAULTS.add(
    "rejection-closes",
    "After it has rejected a message the endpoint closes the session.",
    "reject.session-survives",
    _ClosesOnRejection,
)


class _ClosesOnUnknownVoice(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield from super().chunk(chunk)
        if chunk.is_rejection and _code(chunk) == "invalid_voice":
            yield CloseSession(1008, "no such voice")


FAULTS.add(
    "unknown-voice-closes",
    "After it has rejected a request for an unknown voice the endpoint closes the session.",
    "reject.session-survives",
    _ClosesOnUnknownVoice,
)


class _DeafAfterRejection(SessionTamper):
    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._deaf = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if self._deaf:
            return []
        self._deaf = chunk.is_rejection
        return super().chunk(chunk)


FAULTS.add(
    "rejection-silences",
    "After it has rejected a message the endpoint answers nothing more.",
    "reject.session-survives",
    _DeafAfterRejection,
)


class _RejectionsOvertake(SessionTamper):
    """Answers what is invalid when it is read, ahead of what is still to be spoken."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._answered: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        yield from super().client_message(message)
        meaning = message.meaning
        if meaning.verdict == "reject" and self.tap.unended() and not self.tap.closing:
            self._answered.add(message.seq)
            code = min(meaning.codes)
            yield ToClient(error_frame(code, message.seq, meaning.request_id, rejected=True))

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_rejection and chunk.seq in self._answered:
            return []
        return super().chunk(chunk)


FAULTS.add(
    "rejections-overtake",
    "A rejection is sent as soon as the message is read, ahead of utterances before it.",
    "reject.in-order",
    _RejectionsOvertake,
)


class _RejectionsLag(SessionTamper):
    """Keeps a rejection back until an utterance that was sent after it has ended."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        later = any(seq > (chunk.seq or 0) for seq in self.tap.unended())
        if chunk.is_rejection and later:
            self._held.append(ToClient(chunk.frame))
            return
        yield from super().chunk(chunk)
        if chunk.is_terminal and self._held:
            held, self._held = self._held, []
            yield from held


FAULTS.add(
    "rejections-lag",
    "A rejection is sent only when an utterance that was sent after it has ended.",
    "reject.in-order",
    _RejectionsLag,
)


class _RejectionEndsRunning(SessionTamper):
    """Breaks off the utterance that is being spoken when an invalid message is read."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._doomed: set[int] = set()
        self._dead: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if message.meaning.verdict == "reject":
            self._doomed.update(self.tap.unended()[:1])
        return super().client_message(message)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        seq = chunk.seq
        if seq in self._dead:
            return []
        if chunk.is_audio and seq is not None and seq in self._doomed:
            self._dead.add(seq)
            victim = self.tap.messages[seq]
            failure = error_frame("internal", seq, victim.meaning.request_id)
            return [ToClient(chunk.frame), ToClient(failure)]
        return super().chunk(chunk)


FAULTS.add(
    "rejection-ends-running",
    "A message that is rejected ends the utterance that is running.",
    "reject.no-harm",
    _RejectionEndsRunning,
)


class _RejectionEndsWaiting(SessionTamper):
    """Loses the utterance that comes after a rejection in the same queue."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._lost: set[int] = set()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.seq in self._lost:
            return
        yield from super().chunk(chunk)
        waiting = [seq for seq in self.tap.waiting() if seq > (chunk.seq or 0)]
        if chunk.is_rejection and waiting:
            victim = self.tap.messages[waiting[0]]
            self._lost.add(victim.seq)
            yield ToClient(error_frame("internal", victim.seq, victim.meaning.request_id))


FAULTS.add(
    "rejection-ends-waiting",
    "A message that is rejected takes the utterance that waits behind it along.",
    "reject.no-harm",
    _RejectionEndsWaiting,
)


class _DuplicateIds(SessionTamper):
    """Lets two unended utterances share an id, by giving the second another on the way."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._ids: dict[int, str] = {}

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        request_id = message.meaning.request_id
        taken = [
            seq
            for seq in self.tap.unended()
            if seq != message.seq and self.tap.messages[seq].meaning.request_id == request_id
        ]
        if request_id is None or not message.is_valid_request or not taken:
            return super().client_message(message)
        self._ids[message.seq] = request_id
        renamed = message.changed(request_id=f"duplicate-{message.seq}")
        return [message_frame(renamed, message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if not chunk.is_audio and chunk.seq in self._ids:
            return [ToClient(chunk.changed(request_id=self._ids[chunk.seq]))]
        return super().chunk(chunk)


FAULTS.add(
    "duplicate-ids-accepted",
    "A request is accepted though an unended utterance has its `request_id`.",
    "reject.duplicate-request-id",
    _DuplicateIds,
)
FAULTS.chunks(
    "duplicate-ids-miscoded",
    "A duplicate `request_id` is rejected with the code `invalid_request`.",
    "reject.duplicate-request-id",
    lambda chunk, _: (
        [chunk.changed(code="invalid_request")]
        if chunk.fields is not None and chunk.fields.get("code") == "duplicate_request_id"
        else None
    ),
)


class _SharedIds(SessionTamper):
    """Knows the ids of all sessions together."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._refused: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        taps: list[Tap] = self.shared.notes.setdefault("taps", [])
        if all(tap is not self.tap for tap in taps):
            taps.append(self.tap)
        name = message.meaning.request_id
        elsewhere = (
            tap.messages[seq].meaning.request_id
            for tap in taps
            if tap is not self.tap
            for seq in tap.unended()
        )
        if name is None or not message.is_valid_request or name not in elsewhere:
            return super().client_message(message)
        self._refused.add(message.seq)
        return [message_frame(invalid_twin(message, "missing_text"), message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_rejection and chunk.seq in self._refused:
            return [ToClient(chunk.changed(code="duplicate_request_id"))]
        return super().chunk(chunk)


FAULTS.add(
    "ids-shared-by-sessions",
    "A `request_id` is rejected as a duplicate because another session has it.",
    "reject.duplicate-request-id",
    _SharedIds,
)


def _id_was_used(message: ClientMessage, tap: Tap) -> bool:
    return message.meaning.request_id is not None and any(
        tap.messages[seq].meaning.request_id == message.meaning.request_id
        for seq in tap.ended
        if seq in tap.messages and seq != message.seq
    )


FAULTS.refuses(
    "ids-once-only",
    "A `request_id` whose utterance has ended is rejected as a duplicate.",
    "request-id.reusable",
    lambda message, tap: message.is_valid_request and _id_was_used(message, tap),
    "duplicate_request_id",
)


def _looks_used(message: ClientMessage, tap: Tap) -> bool:
    name = message.meaning.request_id or ""
    return any(
        (other := tap.messages[seq].meaning.request_id or "") != name
        and normalize("NFC", other) == normalize("NFC", name)
        for seq in tap.unended()
        if seq != message.seq
    )


FAULTS.refuses(
    "ids-normalised",
    "A `request_id` is taken for a duplicate of one whose letters are composed otherwise.",
    "reject.duplicate-request-id",
    lambda message, tap: message.is_valid_request and _looks_used(message, tap),
    "duplicate_request_id",
)


class _KeepsCancelledIds(SessionTamper):
    """Rejects ids of utterances that were cancelled."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._kept: set[str] = set()
        self._refused: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not message.is_valid_request or message.meaning.request_id not in self._kept:
            return super().client_message(message)
        self._refused.add(message.seq)
        return [message_frame(invalid_twin(message, "missing_text"), message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        named = (chunk.fields or {}).get("request_id")
        if chunk.type == "cancelled" and isinstance(named, str):
            self._kept.add(named)
        if chunk.is_rejection and chunk.seq in self._refused:
            return [ToClient(chunk.changed(code="duplicate_request_id"))]
        return super().chunk(chunk)


FAULTS.add(
    "ids-kept-after-cancel",
    "The `request_id` of an utterance that was cancelled is rejected as a duplicate.",
    "request-id.reusable",
    _KeepsCancelledIds,
)


class _ClosesOnOddJson(SessionTamper):
    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if _is_odd(message.data):
            return [CloseSession(1011, "cannot parse")]
        return super().client_message(message)


def _is_odd(data: bytes) -> bool:
    try:
        return bool(parse(data).oddities)
    except (NotJson, NotUtf8):
        return False


FAULTS.add(
    "odd-json-closes",
    "JSON with odd parts, such as a name twice or a hundred levels, ends the session.",
    "reject.odd-json-survives",
    _ClosesOnOddJson,
)
FAULTS.renames(
    "odd-json-miscoded",
    "JSON with odd parts is rejected with the code `invalid_speed`.",
    "reject.odd-json-survives",
    lambda message, tap: message.meaning.verdict == "either" and _is_odd(message.data),
    "invalid_speed",
)


class _QueueFullWaits(SessionTamper):
    """Says `queue_full` only when the running utterance has ended."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if _code(chunk) == "queue_full" and self.tap.running is not None:
            self._held.append(ToClient(chunk.frame))
            return
        yield ToClient(chunk.frame)
        if chunk.is_terminal:
            held, self._held = self._held, []
            yield from held


FAULTS.add(
    "queue-full-waits",
    "`queue_full` comes only when the running utterance has ended.",
    "read.always",
    _QueueFullWaits,
)
FAULTS.chunks(
    "queue-full-unanswered",
    "A request to a full queue is dropped without an answer.",
    "queue.full",
    lambda chunk, _: [] if _code(chunk) == "queue_full" else None,
)
FAULTS.chunks(
    "queue-full-miscoded",
    "A request to a full queue is rejected with the code `internal`.",
    "queue.full",
    lambda chunk, _: [chunk.changed(code="internal")] if _code(chunk) == "queue_full" else None,
)


def _code(chunk: Chunk) -> object:
    return chunk.fields.get("code") if chunk.fields is not None else None


class _FullQueueLosesOne(SessionTamper):
    """When the queue overflows, an utterance that was accepted is never spoken."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._lost: set[int] = set()

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if _code(chunk) == "queue_full" and not self._lost:
            self._lost.update(self.tap.waiting()[:1])
        return [] if chunk.seq in self._lost else super().chunk(chunk)


FAULTS.add(
    "queue-full-loses-one",
    "When the queue is full, an utterance that was accepted before is never spoken.",
    "queue.full",
    _FullQueueLosesOne,
)
