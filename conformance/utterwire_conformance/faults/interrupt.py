"""Faults in cancelling."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    CloseSession,
    Pause,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    control_frame,
)
from utterwire_conformance.wire import Frame

from .catalogue import Catalogue
from .rewriting import KEEPALIVE, ChangesMessages, MessageTest, error_frame, message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_NOBODY: Final = "an id that nobody has"
_LATE_S: Final = 1.5


def _is_cancel(message: ClientMessage) -> bool:
    return message.fields.get("type") == "cancel"


def _is_valid_cancel(message: ClientMessage) -> bool:
    return _is_cancel(message) and message.is_valid


def _named(message: ClientMessage, tap: Tap) -> list[int]:
    """The unended requests that a valid `cancel` is about."""
    everything = "request_id" not in message.fields
    return [
        seq
        for seq in tap.unended()
        if everything or tap.messages[seq].meaning.request_id == message.meaning.request_id
    ]


def _id_of(tap: Tap, seq: int) -> dict[str, Any]:
    message = tap.messages.get(seq)
    named = message.meaning.request_id if message is not None else None
    return {} if named is None else {"request_id": named}


def _done(message: ClientMessage, count: int) -> Frame:
    named = message.meaning.request_id
    fields = {"type": "cancel_done", "seq": message.seq, "count": count}
    return control_frame(fields if named is None else fields | {"request_id": named})


class _Unheard(SessionTamper):
    """Answers a `cancel` that is about certain utterances as if it had found nothing."""

    waiting = False

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        named = _named(message, self.tap) if _is_valid_cancel(message) else []
        meant = [seq for seq in named if (seq not in self.tap.started) is self.waiting]
        # Where it is alone, `cancel` has audio to save as well.
        alone = not self.waiting and len(self.tap.unended()) == 1
        if not meant or alone or "request_id" not in message.fields:
            return super().client_message(message)
        return [message_frame(KEEPALIVE, message), ToClient(_done(message, 0))]


class _WaitingUnheard(_Unheard):
    waiting = True


FAULTS.add(
    "cancel-passes-running",
    "A `cancel` does not stop what is being spoken while another waits.",
    "cancel.running",
    _Unheard,
)
FAULTS.add(
    "cancel-passes-waiting",
    "A `cancel` does not stop what waits.",
    "cancel.waiting",
    _WaitingUnheard,
)


def _begun(chunk: Chunk, tap: Tap) -> list[Frame] | None:
    if chunk.type != "cancelled" or chunk.seq is None or chunk.seq in tap.started:
        return None
    start = {"type": "synthesis_start", "seq": chunk.seq, **_id_of(tap, chunk.seq)}
    start |= {"sample_rate": 24_000, "format": "pcm_s16le", "voice": "any"}
    return [control_frame(start), chunk.frame]


FAULTS.chunks(
    "cancelled-waiting-starts",
    "A waiting utterance that is cancelled gets a `synthesis_start` first.",
    "cancel.waiting",
    _begun,
)


class _Readdresses(ChangesMessages):
    """Gives the endpoint a `cancel` of another id, and the answer the id of the one sent."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type != "cancel_done":
            return super().chunk(chunk)
        named = _id_of(self.tap, chunk.seq or 0).get("request_id", ...)
        return [ToClient(chunk.changed(request_id=named))]


FAULTS.add(
    "cancel-all-spares-waiting",
    "A `cancel` without an id stops only what is being spoken.",
    "cancel.all",
    lambda shared, tap: _Readdresses(
        shared,
        tap,
        lambda message, tap: (
            _is_valid_cancel(message)
            and "request_id" not in message.fields
            and bool(_id_of(tap, tap.running or 0))
        ),
        lambda _, tap: json.dumps({"type": "cancel", **_id_of(tap, tap.running or 0)}).encode(),
    ),
)


class _StopsLater(SessionTamper):
    """Lets a `cancel` of everything stop also the request that is sent next."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._hit: int | None = None
        self._armed = False
        self._bytes = 0

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if _is_valid_cancel(message) and "request_id" not in message.fields:
            self._armed = self._armed or bool(_named(message, self.tap))
        elif self._armed and message.is_valid_request and self._hit is None:
            self._hit = message.seq
        return super().client_message(message)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.seq is None or chunk.seq != self._hit:
            return super().chunk(chunk)
        if chunk.type != "synthesis_complete":
            return []
        fields = {"type": "cancelled", "seq": chunk.seq, "audio_bytes": 0}
        return [ToClient(control_frame(fields | _id_of(self.tap, chunk.seq)))]


FAULTS.add(
    "cancel-all-stops-later",
    "A `cancel` without an id stops also the request behind it.",
    "cancel.all",
    _StopsLater,
)


class _StopsTheLast(SessionTamper):
    """Lets the first `cancel` with an id stop also what waits last, and counts it."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._hit: int | None = None

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if self._hit is not None and chunk.seq == self._hit:
            return
        fields = chunk.fields or {}
        count = fields.get("count")
        if chunk.type == "cancel_done" and "request_id" in fields and isinstance(count, int):
            waiting = self.tap.waiting()
            cancels = [m.seq for m in self.tap.messages.values() if _is_cancel(m)]
            if count and waiting and cancels[0] == chunk.seq:
                self._hit = waiting[-1]
                stopped = {"type": "cancelled", "seq": self._hit, "audio_bytes": 0}
                yield ToClient(control_frame(stopped | _id_of(self.tap, self._hit)))
                yield ToClient(chunk.changed(count=count + 1))
                return
        yield ToClient(chunk.frame)


FAULTS.add(
    "cancel-stops-the-last",
    "The first `cancel` of a session, if it has an id, stops also what waits last.",
    "cancel.only-named",
    _StopsTheLast,
)
FAULTS.rewrites(
    "cancel-stops-all",
    "A `cancel` with an id stops everything.",
    "cancel.only-named",
    lambda message, tap: (
        _is_valid_cancel(message) and "request_id" in message.fields and len(tap.unended()) > 1
    ),
    lambda *_: b'{"type":"cancel"}',
)
FAULTS.chunks(
    "cancel-done-missing",
    "There is no `cancel_done`.",
    "cancel.done",
    lambda chunk, _: [] if chunk.type == "cancel_done" else None,
)
FAULTS.chunks(
    "cancel-done-twice",
    "`cancel_done` comes twice.",
    "cancel.done",
    lambda chunk, _: [chunk.frame] * 2 if chunk.type == "cancel_done" else None,
)
FAULTS.chunks(
    "cancelled-twice",
    "An utterance that is cancelled is told to be so twice.",
    "order.one-terminal",
    lambda chunk, _: [chunk.frame] * 2 if chunk.type == "cancelled" else None,
)
FAULTS.chunks(
    "cancel-done-other-seq",
    "`cancel_done` carries the `seq` of the message before the `cancel`.",
    "cancel.done",
    lambda chunk, _: (
        [chunk.changed(seq=chunk.seq - 1)] if chunk.type == "cancel_done" and chunk.seq else None
    ),
)


def _recounted(chunk: Chunk, tap: Tap) -> list[Frame] | None:
    count = (chunk.fields or {}).get("count")
    if chunk.type != "cancel_done" or not isinstance(count, int) or not count:
        return None
    return [chunk.changed(count=count - 1)]


FAULTS.chunks(
    "cancel-count-one-less",
    "`count` in `cancel_done` leaves one utterance out.",
    "cancel.done",
    _recounted,
)


class _DoneFirst(SessionTamper):
    """Keeps `cancelled` back until `cancel_done` has gone."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "cancelled":
            self._held.append(ToClient(chunk.frame))
            return
        yield ToClient(chunk.frame)
        if chunk.type == "cancel_done":
            held, self._held = self._held, []
            yield from held


FAULTS.add(
    "cancel-done-first",
    "`cancel_done` comes before the `cancelled` that it counts.",
    "cancel.done",
    _DoneFirst,
)


def _unknown_is_error(chunk: Chunk, tap: Tap) -> list[Frame] | None:
    if chunk.type != "cancel_done" or (chunk.fields or {}).get("count") != 0 or chunk.seq is None:
        return None
    named = _id_of(tap, chunk.seq).get("request_id")
    return [error_frame("invalid_request", chunk.seq, named, rejected=True)]


FAULTS.chunks(
    "unknown-cancel-is-error",
    "A `cancel` that finds nothing is rejected.",
    "cancel.unknown-id",
    _unknown_is_error,
)
FAULTS.chunks(
    "unknown-cancel-counts-one",
    "A `cancel` that finds nothing says that it stopped something.",
    "cancel.unknown-id",
    lambda chunk, _: (
        [chunk.changed(count=1)]
        if chunk.type == "cancel_done" and (chunk.fields or {}).get("count") == 0
        else None
    ),
)


def _loosely(message: ClientMessage, tap: Tap) -> str | None:
    """The id of an unended request that is like the one in a `cancel`, though not the same."""
    named = message.meaning.request_id
    if not _is_valid_cancel(message) or named is None or _named(message, tap):
        return None
    ids = (tap.messages[seq].meaning.request_id for seq in tap.unended())
    alike = named.strip().casefold()
    return next((known for known in ids if known and known.casefold() == alike), None)


FAULTS.add(
    "cancel-compares-loosely",
    "A `cancel` finds an id that differs in letter case, or in white space at its ends.",
    "cancel.unknown-id",
    lambda shared, tap: _Readdresses(
        shared,
        tap,
        lambda message, tap: _loosely(message, tap) is not None,
        lambda message, tap: json.dumps(
            {"type": "cancel", "request_id": _loosely(message, tap)}
        ).encode(),
    ),
)


def _has_null_id(message: ClientMessage, _: Tap) -> bool:
    fields = message.fields
    return _is_cancel(message) and "request_id" in fields and fields["request_id"] is None


def _has_bad_id(message: ClientMessage, tap: Tap) -> bool:
    return _is_cancel(message) and not message.is_valid and not _has_null_id(message, tap)


def _of_nobody(*_: object) -> bytes:
    return json.dumps({"type": "cancel", "request_id": _NOBODY}).encode()


FAULTS.rewrites(
    "cancel-null-stops-all",
    "A `cancel` whose id is null stops everything.",
    "cancel.null-id",
    _has_null_id,
    lambda *_: b'{"type":"cancel"}',
)
FAULTS.rewrites(
    "cancel-null-is-unknown",
    "A `cancel` whose id is null gets `cancel_done`.",
    "cancel.null-id",
    _has_null_id,
    _of_nobody,
)
FAULTS.rewrites(
    "cancel-bad-id-is-unknown",
    "A `cancel` whose id is none gets `cancel_done`.",
    "cancel.invalid-id",
    _has_bad_id,
    _of_nobody,
)
FAULTS.rewrites(
    "cancel-bad-id-stops-all",
    "A `cancel` whose id is none stops everything.",
    "cancel.invalid-id",
    _has_bad_id,
    lambda *_: b'{"type":"cancel"}',
)
FAULTS.renames(
    "cancel-bad-id-other-code",
    "A `cancel` whose id is none is rejected with `unknown_type`.",
    "cancel.invalid-id",
    _has_bad_id,
    "unknown_type",
)


def _miscounted(chunk: Chunk, _: Tap) -> list[Frame] | None:
    size = (chunk.fields or {}).get("audio_bytes")
    if chunk.type != "cancelled" or not isinstance(size, int) or not size:
        return None
    return [chunk.changed(audio_bytes=size + 2)]


FAULTS.chunks(
    "cancelled-bytes-as-made",
    "`audio_bytes` in `cancelled` counts a sample that was made and not sent.",
    "cancel.audio-bytes",
    _miscounted,
)


class _SpeaksOn(SessionTamper):
    """Obeys a `cancel` of what is being spoken only when all of it has been sent."""

    def __init__(self, shared: Shared, tap: Tap, when: MessageTest = lambda *_: True) -> None:
        super().__init__(shared, tap)
        self._when = when
        self._cancel: ClientMessage | None = None
        self._stopping: int | None = None

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        named = _named(message, self.tap) if _is_valid_cancel(message) else []
        if self._cancel is not None or self.tap.running not in named:
            return super().client_message(message)
        if not self._when(self.tap.messages[self.tap.running or 0], self.tap):
            return super().client_message(message)
        self._cancel, self._stopping = message, self.tap.running
        return [message_frame(KEEPALIVE, message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        late = chunk.seq == self._stopping and chunk.type == "synthesis_complete"
        if self._cancel is None or not late or chunk.seq is None:
            yield ToClient(chunk.frame)
            return
        size = self.tap.audio_bytes.get(chunk.seq, 0)
        fields = {"type": "cancelled", "seq": chunk.seq, "audio_bytes": size}
        yield ToClient(control_frame(fields | _id_of(self.tap, chunk.seq)))
        yield ToClient(_done(self._cancel, 1))
        self._cancel = self._stopping = None


FAULTS.add(
    "cancelled-at-the-end",
    "What is cancelled is spoken to its end all the same, and then called `cancelled`.",
    "cancel.saves-audio",
    _SpeaksOn,
)
FAULTS.add(
    "second-cancelled-at-the-end",
    "A `cancel` of a long utterance that is not the first is obeyed when all of it has been sent.",
    "cancel.saves-audio",
    partial(
        _SpeaksOn,
        when=lambda message, tap: (
            "format" not in message.fields and len(message.meaning.text) > 1_000 and bool(tap.ended)
        ),
    ),
)
FAULTS.add(
    "encoded-cancelled-at-the-end",
    "A `cancel` of encoded audio is obeyed when all of it has been sent.",
    "cancel.saves-audio",
    partial(_SpeaksOn, when=lambda message, _: "format" in message.fields),
)


class _Dawdles(SessionTamper):
    """Takes its time before `cancelled`."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "cancelled":
            yield Pause(_LATE_S)
        yield ToClient(chunk.frame)


FAULTS.add(
    "cancelled-late",
    "`cancelled` comes a second and a half late.",
    "cancel.prompt",
    _Dawdles,
)


class _InOrder(SessionTamper):
    """Keeps what answers a `cancel` back until what is being spoken has ended."""

    kinds: frozenset[str] = frozenset({"cancelled", "cancel_done"})

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        running = self.tap.running
        if running is not None and chunk.seq != running and self._answers_cancel(chunk):
            self._held.append(ToClient(chunk.frame))
            return
        yield ToClient(chunk.frame)
        if chunk.is_terminal and chunk.seq == running:
            held, self._held = self._held, []
            yield from held

    def _answers_cancel(self, chunk: Chunk) -> bool:
        message = self.tap.messages.get(chunk.seq or 0)
        refused = chunk.is_rejection and message is not None and _is_cancel(message)
        return (chunk.type in self.kinds) or ("error" in self.kinds and refused)


class _ErrorsInOrder(_InOrder):
    kinds = frozenset({"error"})


FAULTS.add(
    "cancel-done-in-order",
    "What answers a `cancel` waits until the running utterance has ended.",
    "cancel.overtakes",
    _InOrder,
)
FAULTS.add(
    "cancel-error-in-order",
    "The rejection of a `cancel` waits until the running utterance has ended.",
    "cancel.overtakes",
    _ErrorsInOrder,
)


class _MuteAfter(SessionTamper):
    """Says nothing more after a `cancel_done` that stopped something."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._mute = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if self._mute:
            return
        yield ToClient(chunk.frame)
        self._mute = chunk.type == "cancel_done" and bool((chunk.fields or {}).get("count"))


class _ClosesAfter(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.type == "cancel_done" and not self.tap.closing:
            yield CloseSession(1000)


class _RefusesAfter(SessionTamper):
    """Rejects the request that is sent next after a `cancel`."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._cancelled = 0
        self._failed: int | None = None

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if _is_valid_cancel(message):
            self._cancelled = message.seq
        elif self._cancelled and message.is_valid_request and self._failed is None:
            self._failed = message.seq
        return super().client_message(message)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.seq is None or chunk.seq != self._failed:
            return super().chunk(chunk)
        if chunk.type != "synthesis_start":
            return []
        named = _id_of(self.tap, chunk.seq).get("request_id")
        return [ToClient(error_frame("internal", chunk.seq, named, rejected=True))]


FAULTS.add(
    "next-after-cancel-refused",
    "The first request after a `cancel` is rejected.",
    "cancel.session-goes-on",
    _RefusesAfter,
)
FAULTS.add(
    "mute-after-cancel",
    "After a `cancel` nothing is answered any more.",
    "cancel.session-goes-on",
    _MuteAfter,
)
FAULTS.add(
    "closes-after-cancel",
    "The endpoint closes the session after a `cancel`.",
    "cancel.session-goes-on",
    _ClosesAfter,
)
FAULTS.rewrites(
    "cancel-after-close-ignored",
    "A `cancel` after `close` is ignored.",
    "cancel.after-close",
    lambda message, tap: _is_valid_cancel(message) and tap.closing,
    lambda *_: KEEPALIVE,
)


class _Hoards(SessionTamper):
    """Keeps all that is made of a long utterance until the `cancel`, and then sends all of it.

    The first second passes, so that the client has something to stall on.
    """

    _FIRST_BYTES: Final = 48_000

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        long = self.tap.audio_bytes.get(chunk.seq or 0, 0) > self._FIRST_BYTES
        if self._held or (chunk.is_audio and long):
            self._held.append(ToClient(chunk.frame))
            if not chunk.is_terminal:
                return
        else:
            yield ToClient(chunk.frame)
            return
        yield from self._released()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        yield from self._released() if _is_cancel(message) else ()
        yield from super().client_message(message)

    def _released(self) -> list[Action]:
        held, self._held = self._held, []
        return held


FAULTS.add(
    "unsent-unbounded",
    "What is made while the client does not read is kept in full, and cannot be cancelled.",
    "cancel.unsent-bound",
    _Hoards,
)
