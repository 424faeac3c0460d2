"""Faults in the order of chunks, in reading while speaking, and in closing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from utterwire_conformance.client_message import is_nothing_to_speak
from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    CloseSession,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    ToEndpoint,
    control_frame,
)
from utterwire_conformance.wire import Frame, Opcode, close_payload

from .catalogue import Catalogue
from .rewriting import KEEPALIVE, error_frame, message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

# --- The order of one utterance ------------------------------------------------------------------


class _StartAfterAudio(SessionTamper):
    """Keeps `synthesis_start` back until the first audio has gone, or the end has come."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_start":
            self._held.append(ToClient(chunk.frame))
            return
        held, self._held = self._held, []
        if chunk.is_audio:
            yield ToClient(chunk.frame)
            yield from held
        else:
            yield from held
            yield ToClient(chunk.frame)


FAULTS.add(
    "start-after-audio",
    "`synthesis_start` comes after the first audio.",
    "order.start-first",
    _StartAfterAudio,
)


class _AudioBeforeFirstStart(SessionTamper):
    """Sends a moment of silence before anything else of a session that begins with a request."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._done = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        first = self.tap.messages.get(chunk.seq or 0)
        if (
            not self._done
            and chunk.type == "synthesis_start"
            and first is not None
            and "marks" not in first.fields
            and not is_nothing_to_speak(first.meaning.text)
        ):
            yield ToClient(Frame(Opcode.BINARY, bytes(96)))
        self._done = True
        yield ToClient(chunk.frame)


FAULTS.add(
    "audio-before-first-start",
    "A session begins with audio that belongs to no utterance.",
    "order.start-first",
    _AudioBeforeFirstStart,
)
FAULTS.chunks(
    "start-missing",
    "There is no `synthesis_start`.",
    ("order.start-first", "order.complete-had-start"),
    lambda chunk, _: [] if chunk.type == "synthesis_start" else None,
)
FAULTS.chunks(
    "start-twice",
    "`synthesis_start` comes twice.",
    "order.complete-had-start",
    lambda chunk, _: [chunk.frame] * 2 if chunk.type == "synthesis_start" else None,
)


class _AudioAfterTerminal(SessionTamper):
    """Always keeps one chunk of audio back, and sends the last one after the end."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._last: Frame | None = None

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_audio:
            last, self._last = self._last, chunk.frame
            if last is not None:
                yield ToClient(last)
            return
        yield ToClient(chunk.frame)
        if chunk.is_terminal and self._last is not None:
            last, self._last = self._last, None
            yield ToClient(last)


FAULTS.add(
    "audio-after-complete",
    "The last audio of an utterance comes after its `synthesis_complete`.",
    "order.nothing-after-terminal",
    _AudioAfterTerminal,
)


def _after_complete(fields: dict[str, object]) -> type[SessionTamper]:
    class SaysMore(SessionTamper):
        def chunk(self, chunk: Chunk) -> Iterable[Action]:
            yield ToClient(chunk.frame)
            if chunk.type == "synthesis_complete":
                request_id = (chunk.fields or {}).get("request_id")
                named = {} if request_id is None else {"request_id": request_id}
                yield ToClient(control_frame({**fields, "seq": chunk.seq, **named}))

    return SaysMore


FAULTS.add(
    "marks-after-complete",
    "A control message about an utterance comes after its `synthesis_complete`.",
    "order.nothing-after-terminal",
    _after_complete({"type": "marks", "words": []}),
)
FAULTS.chunks(
    "complete-twice",
    "Each utterance ends in two `synthesis_complete`.",
    "order.one-terminal",
    lambda chunk, _: [chunk.frame] * 2 if chunk.type == "synthesis_complete" else None,
)
FAULTS.add(
    "error-after-complete",
    "An utterance that was completed then ends again, in an error.",
    "order.one-terminal",
    _after_complete(
        {"type": "error", "code": "internal", "message": "It failed.", "retryable": True}
    ),
)
FAULTS.chunks(
    "cancelled-unasked",
    "Utterances end in `cancelled`, though nobody cancelled them.",
    "order.one-terminal",
    lambda chunk, tap: (
        [
            control_frame(
                {
                    name: value
                    for name, value in {**(chunk.fields or {}), "type": "cancelled"}.items()
                    if name in ("type", "seq", "request_id", "audio_bytes")
                }
            )
        ]
        if chunk.type == "synthesis_complete"
        else None
    ),
)
FAULTS.chunks(
    "complete-missing",
    "No utterance ends in a `synthesis_complete`, or in anything else.",
    "order.one-terminal",
    lambda chunk, _: [] if chunk.type == "synthesis_complete" else None,
)

# --- The order of several ------------------------------------------------------------------------


class _SecondFirst(SessionTamper):
    """Serves an utterance after the one that waits behind it."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []
        self._late: int | None = None

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_start" and self._late is None and self.tap.waiting():
            self._late = chunk.seq
        if chunk.seq is not None and chunk.seq == self._late:
            self._held.append(ToClient(chunk.frame))
            return
        yield ToClient(chunk.frame)
        if chunk.is_terminal and self._late is not None:
            held, self._held, self._late = self._held, [], None
            yield from held


FAULTS.add(
    "second-first",
    "Of two utterances in the queue the second is spoken first.",
    "order.fifo",
    _SecondFirst,
)


class _Mixes(SessionTamper):
    """Sends the end of an utterance after the beginning of the next."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._last: Frame | None = None
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_audio:
            held, self._held = self._held, []
            if held:
                yield ToClient(chunk.frame)
                yield from held
                return
            last, self._last = self._last, chunk.frame
            if last is not None:
                yield ToClient(last)
            return
        rest: list[Action] = [] if self._last is None else [ToClient(self._last)]
        if chunk.type == "synthesis_complete" and self.tap.waiting() and not self._held:
            self._held = [*rest, ToClient(chunk.frame)]
            self._last = None
            return
        if chunk.type == "synthesis_complete":
            yield from rest
            self._last = None
            yield from self._held
            self._held = []
        yield ToClient(chunk.frame)


FAULTS.add(
    "utterances-mixed",
    "The last audio of an utterance comes after the first of the next.",
    "order.no-mixing",
    _Mixes,
)


class _NextStartFirst(SessionTamper):
    """Sends the end of an utterance just after the start of the one that waits behind it."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "synthesis_complete" and self.tap.waiting() and not self._held:
            self._held.append(ToClient(chunk.frame))
            return
        held, self._held = self._held, []
        if chunk.type == "synthesis_start":
            yield ToClient(chunk.frame)
            yield from held
        else:
            yield from held
            yield ToClient(chunk.frame)


FAULTS.add(
    "next-start-before-end",
    "An utterance that waits is started just before the end of the running one is told.",
    "order.no-mixing",
    _NextStartFirst,
)


class _ClosesAfterUtterance(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.is_terminal:
            yield CloseSession(1000)


FAULTS.add(
    "closes-after-utterance",
    "The endpoint closes the session after one utterance.",
    "session.stays-open",
    _ClosesAfterUtterance,
)


class _OneUtterance(SessionTamper):
    """Says nothing more once an utterance has ended."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        first = min(self.tap.started, default=chunk.seq)
        return [] if chunk.seq != first and first in self.tap.ended else super().chunk(chunk)


FAULTS.add(
    "silent-after-utterance",
    "The session stays open after an utterance, but nothing more is answered.",
    "session.stays-open",
    _OneUtterance,
)

# --- Reading while speaking ----------------------------------------------------------------------


class _PongsWait(SessionTamper):
    """Answers no ping while an utterance is being spoken."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode == Opcode.PONG and self.tap.unended():
            self._held.append(ToClient(frame))
            return []
        return super().endpoint_frame(frame)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.is_terminal and self.tap.waiting() == ():
            held, self._held = self._held, []
            yield from held


FAULTS.add(
    "pongs-wait-for-the-end",
    "Pings are answered only when nothing is being spoken.",
    "read.pong-while-busy",
    _PongsWait,
)


class _PongsLost(SessionTamper):
    """Loses the answers to pings that come while an utterance is being spoken."""

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        busy = frame.opcode == Opcode.PONG and self.tap.unended()
        return [] if busy else super().endpoint_frame(frame)


FAULTS.add(
    "pongs-lost-while-busy",
    "Pings are not answered while an utterance is being spoken, nor afterwards.",
    "read.pong-while-busy",
    _PongsLost,
)


class _ReadsBetween(SessionTamper):
    """Reads the next message only when the utterance before it has ended."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._unread: list[tuple[int | None, list[Action]]] = []
        self._busy_with: int | None = None

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        seq = message.seq if message.is_valid_request else None
        self._unread.append((seq, list(super().client_message(message))))
        return self._read()

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        self._unread.append((None, list(super().client_frame(frame))))
        return self._read()

    def _read(self) -> list[Action]:
        actions: list[Action] = []
        while self._unread and self._busy_with is None:
            self._busy_with, onwards = self._unread.pop(0)
            actions.extend(onwards)
        return actions

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.seq == self._busy_with and (chunk.is_terminal or chunk.is_rejection):
            self._busy_with = None
            yield from self._read()


FAULTS.add(
    "reads-between-utterances",
    "The endpoint reads nothing while it speaks.",
    ("read.always", "read.pong-while-busy"),
    _ReadsBetween,
)

# --- Closing -------------------------------------------------------------------------------------


class _CloseCutsShort(SessionTamper):
    """Ends the session at `close`, whatever is still to be spoken."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._closed = False

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        yield from super().client_message(message)
        if message.meaning.type == "close" and not self._closed:
            self._closed = True
            yield ToClient(_session_closed(message.seq))

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return [] if self._closed else super().chunk(chunk)


def _session_closed(seq: int) -> Frame:
    return control_frame(
        {"type": "session_closed", "reason": "client_close", "seq": seq, "last_seq": seq}
    )


FAULTS.add(
    "close-cuts-short",
    "At `close` the endpoint drops what it still had to speak.",
    "close.drains",
    _CloseCutsShort,
)
FAULTS.chunks(
    "close-unanswered",
    "There is no `session_closed` after a `close`.",
    "close.session-closed",
    lambda chunk, _: [] if chunk.type == "session_closed" else None,
)


class _CloseForgets(SessionTamper):
    """After `close`, loses the rejections and the utterances `lost` picks."""

    def __init__(self, shared: Shared, tap: Tap, lost: Callable[[Chunk, Tap], bool]) -> None:
        super().__init__(shared, tap)
        self._lost = lost

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if self.tap.closing and self._lost(chunk, self.tap):
            return []
        return super().chunk(chunk)


class _ClosesWhenClosing(SessionTamper):
    """After `close`, closes the session at the next end of an utterance."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if self.tap.closing and chunk.is_terminal:
            yield CloseSession(1000)


FAULTS.add(
    "close-forgets-rejections",
    "After `close` rejections that are still due are not sent.",
    "close.session-closed",
    lambda shared, tap: _CloseForgets(shared, tap, lambda chunk, _: chunk.is_rejection),
)
FAULTS.add(
    "close-forgets-what-waits",
    "After `close` the running utterance is finished and what waits is dropped.",
    "close.drains",
    lambda shared, tap: _CloseForgets(shared, tap, _is_of_a_later_utterance),
)


def _is_of_a_later_utterance(chunk: Chunk, tap: Tap) -> bool:
    return chunk.seq in tap.started and chunk.seq != min(tap.started)


FAULTS.add(
    "close-ends-after-the-running",
    "After `close` the running utterance is finished, and then the endpoint hangs up.",
    ("close.drains", "close.session-closed"),
    _ClosesWhenClosing,
)
FAULTS.chunks(
    "session-closed-twice",
    "`session_closed` comes twice.",
    "close.last-word",
    lambda chunk, _: [chunk.frame] * 2 if chunk.type == "session_closed" else None,
)


class _ServesAfterClose(SessionTamper):
    """Serves the first request that comes after `close`, and only then closes."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._close: ClientMessage | None = None
        self._passed = False

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        onwards = list(super().client_message(message))
        if message.meaning.type == "close" and self._close is None:
            self._close = message
            return [message_frame(KEEPALIVE, message)]
        if self._close is not None and message.is_valid_request and not self._passed:
            self._passed = True
            return [*onwards, *[ToEndpoint(frame) for frame in self._close.frames]]
        return onwards

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "session_closed" and self._close is not None:
            seq = self._close.seq
            return [ToClient(chunk.changed(seq=seq, last_seq=seq))]
        return super().chunk(chunk)


FAULTS.add(
    "serves-after-close",
    "A request after `close` is served.",
    "close.ignores-later",
    _ServesAfterClose,
)


class _AnswersAfterClose(SessionTamper):
    """Answers messages other than `cancel` that come after `close`, before `session_closed`."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._late: list[Action] = []

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        closing = any(
            other.meaning.type == "close"
            for other in self.tap.messages.values()
            if other.seq < message.seq
        )
        if closing and message.meaning.type not in ("cancel", "keepalive"):
            named = message.meaning.request_id
            late = error_frame("going_away", message.seq, named, rejected=True)
            self._late.append(ToClient(late))
        return super().client_message(message)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "session_closed":
            late, self._late = self._late, []
            yield from late
        yield ToClient(chunk.frame)


FAULTS.add(
    "answers-after-close",
    "A message after `close` is rejected with `going_away`.",
    "close.ignores-later",
    _AnswersAfterClose,
)


class _TalksAfterSessionClosed(SessionTamper):
    def __init__(self, shared: Shared, tap: Tap, more: Frame) -> None:
        super().__init__(shared, tap)
        self._more = more

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.type == "session_closed":
            yield ToClient(self._more)


FAULTS.add(
    "control-after-session-closed",
    "A control message comes after `session_closed`.",
    "close.last-word",
    lambda shared, tap: _TalksAfterSessionClosed(shared, tap, control_frame({"type": "x_goodbye"})),
)
FAULTS.add(
    "audio-after-session-closed",
    "Audio comes after `session_closed`.",
    "close.last-word",
    lambda shared, tap: _TalksAfterSessionClosed(shared, tap, Frame(Opcode.BINARY, bytes(960))),
)


class _ClosesWithSessionClosed(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.type == "session_closed":
            yield CloseSession(1000)


FAULTS.add(
    "closes-with-session-closed",
    "The endpoint closes at once after `session_closed`.",
    "close.endpoint-waits",
    _ClosesWithSessionClosed,
)


class _NeverCloses(SessionTamper):
    """Leaves the closing to the client for ever, once `session_closed` has gone out."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._over = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        self._over = self._over or chunk.type == "session_closed"
        return super().chunk(chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if self._over and frame.opcode == Opcode.CLOSE:
            return []
        return super().endpoint_frame(frame)

    def endpoint_gone(self) -> bool:
        return not self._over


FAULTS.add(
    "never-closes",
    "If the client does not close after `session_closed`, nobody does.",
    "close.endpoint-gives-up",
    _NeverCloses,
)


class _ClosesWithAnotherCode(SessionTamper):
    """Closes with 1011 where the client leaves that to it after `session_closed`."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._asked = self._over = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        self._over = self._over or chunk.type == "session_closed"
        return super().chunk(chunk)

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        self._asked = self._asked or frame.opcode == Opcode.CLOSE
        return super().client_frame(frame)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode == Opcode.CLOSE and self._over and not self._asked:
            return [ToClient(Frame(Opcode.CLOSE, close_payload(1011)))]
        return super().endpoint_frame(frame)


FAULTS.add(
    "closes-with-1011",
    "The endpoint's own close after `session_closed` has the code 1011.",
    "close.code",
    _ClosesWithAnotherCode,
)
