"""Faults in WebSocket itself, in idling, in disconnects and in shutting down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    CloseSession,
    CutSession,
    Head,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    control_frame,
)
from utterwire_conformance.wire import Frame, Opcode, close_payload

from .catalogue import Catalogue
from .rewriting import KEEPALIVE, error_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

# --- Handshake -----------------------------------------------------------------------------------


class _PathMoved(SessionTamper):
    def upgrade(self, target: str) -> str | Head:
        return Head(404)


FAULTS.add(
    "path-moved",
    "There is nothing at `/invocations-bidirectional-stream`.",
    "ws.path",
    _PathMoved,
)


class _WrongAccept(SessionTamper):
    def handshake(self, head: Head) -> Head:
        return head.having("Sec-WebSocket-Accept", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")


FAULTS.add(
    "handshake-accepts-another",
    "The handshake is answered with the key of another.",
    "ws.path",
    _WrongAccept,
)


class _Compresses(SessionTamper):
    def handshake(self, head: Head) -> Head:
        return head.having("Sec-WebSocket-Extensions", "permessage-deflate")


FAULTS.add(
    "compression-negotiated",
    "Per-message compression is agreed to.",
    "ws.no-compression",
    _Compresses,
)

# --- Breaches of RFC 6455 ------------------------------------------------------------------------


class _OnBreach(SessionTamper):
    """Does something of its own where the client breaks the framing rules."""

    def __init__(self, shared: Shared, tap: Tap, instead: tuple[Action, ...]) -> None:
        super().__init__(shared, tap)
        self._instead = instead

    def client_breach(self, frame: Frame) -> Iterable[Action]:
        return self._instead


class _OnBadText(SessionTamper):
    """Does something of its own where a text message is not UTF-8."""

    def __init__(self, shared: Shared, tap: Tap, instead: tuple[Action, ...]) -> None:
        super().__init__(shared, tap)
        self._instead = instead

    def client_bad_text(self, frames: tuple[Frame, ...]) -> Iterable[Action]:
        return self._instead


FAULTS.add(
    "bad-utf8-text-ignored",
    "A text message that is not UTF-8 is passed over.",
    "ws.invalid-utf8-text",
    lambda shared, tap: _OnBadText(shared, tap, instead=()),
)
FAULTS.add(
    "bad-utf8-text-closes-with-1000",
    "A text message that is not UTF-8 is closed on with the code 1000.",
    "ws.invalid-utf8-text",
    lambda shared, tap: _OnBadText(shared, tap, instead=(CloseSession(1000),)),
)
FAULTS.add(
    "bad-framing-ignored",
    "Frames that break RFC 6455 are passed over.",
    "ws.protocol-error",
    lambda shared, tap: _OnBreach(shared, tap, instead=()),
)
FAULTS.add(
    "bad-framing-closes-with-1000",
    "Frames that break RFC 6455 are closed on with the code 1000.",
    "ws.protocol-error",
    lambda shared, tap: _OnBreach(shared, tap, instead=(CloseSession(1000),)),
)
FAULTS.rewrites(
    "big-messages-ignored",
    "A message beyond the endpoint's limit is passed over.",
    "ws.message-too-big",
    lambda message, _: len(message.data) > 65_536,
    lambda *_: KEEPALIVE,
)


class _BigMessagesCut(SessionTamper):
    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if len(message.data) > 65_536:
            return [CloseSession(1000)]
        return super().client_message(message)


FAULTS.add(
    "big-messages-close-with-1000",
    "A message beyond the endpoint's limit is closed on with the code 1000.",
    "ws.message-too-big",
    _BigMessagesCut,
)


class _NoPongs(SessionTamper):
    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        return [] if frame.opcode == Opcode.PONG else super().endpoint_frame(frame)


FAULTS.add("pings-unanswered", "Pings are not answered.", "ws.ping", _NoPongs)


class _EmptyPongs(SessionTamper):
    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode == Opcode.PONG:
            return [ToClient(Frame(Opcode.PONG))]
        return super().endpoint_frame(frame)


FAULTS.add("pongs-empty", "A pong does not carry the payload of its ping.", "ws.ping", _EmptyPongs)


class _NoPongsInMessages(SessionTamper):
    def client_frame(self, frame: Frame) -> Iterable[Action]:
        if frame.opcode == Opcode.PING and self.tap.in_message:
            return []
        return super().client_frame(frame)


FAULTS.add(
    "pings-between-fragments-unanswered",
    "A ping between the frames of a message is not answered.",
    "ws.ping",
    _NoPongsInMessages,
)


class _CloseNotEchoed(SessionTamper):
    """Drops TCP where a close frame is due in answer to the client's."""

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        return [CutSession()] if frame.opcode == Opcode.CLOSE else super().client_frame(frame)


FAULTS.add(
    "close-frame-unanswered",
    "A close frame is answered by ending TCP.",
    "ws.close-echo",
    _CloseNotEchoed,
)


class _CloseIgnored(SessionTamper):
    def client_frame(self, frame: Frame) -> Iterable[Action]:
        return [] if frame.opcode == Opcode.CLOSE else super().client_frame(frame)


FAULTS.add(
    "close-frame-ignored",
    "A close frame is not answered at all.",
    "ws.close-echo",
    _CloseIgnored,
)

# --- Disconnects ---------------------------------------------------------------------------------


class _DisconnectPoisons(SessionTamper):
    """Takes no session any more once a client has left in mid-utterance."""

    def upgrade(self, target: str) -> str | Head:
        return Head(503) if self.shared.notes.get("poisoned") else target

    def client_gone(self, *, clean: bool) -> bool:
        if self.tap.unended():
            self.shared.notes["poisoned"] = True
        return True


FAULTS.add(
    "disconnect-locks-out",
    "After a client has left in mid-utterance no session is taken any more.",
    "disconnect.isolated",
    _DisconnectPoisons,
)


class _DisconnectSilences(SessionTamper):
    """Speaks in no session any more once a client has left in mid-utterance."""

    def client_gone(self, *, clean: bool) -> bool:
        if self.tap.unended():
            self.shared.notes["silenced"] = True
        return True

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return [] if self.shared.notes.get("silenced") else super().chunk(chunk)


FAULTS.add(
    "disconnect-silences",
    "After a client has left in mid-utterance no session is answered any more.",
    "disconnect.isolated",
    _DisconnectSilences,
)

# --- Idling --------------------------------------------------------------------------------------


class _LosesMessages(SessionTamper):
    """Keeps some messages from the endpoint, and puts the numbers right in what it answers."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._passed: list[int] = []

    def lost(self, message: ClientMessage) -> bool:
        """Whether the endpoint never sees `message`."""
        return message.meaning.type == "keepalive"

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if self.lost(message):
            return []
        self._passed.append(message.seq)
        return super().client_message(message)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        fields = chunk.fields or {}
        changes = {}
        for name in ("seq", "last_seq"):
            value = fields.get(name)
            if isinstance(value, int) and 0 < value <= len(self._passed):
                changes[name] = self._passed[value - 1]
        return [ToClient(chunk.changed(**changes))] if changes else super().chunk(chunk)


FAULTS.add(
    "keepalives-let-idle-run",
    "A keepalive does not start the idle clock again.",
    "idle.reset-by-messages",
    _LosesMessages,
)


class _IdleWhileSpeaking(SessionTamper):
    """Calls a session idle in the middle of a long utterance."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        is_long = message is not None and len(message.meaning.text) > 300
        yield ToClient(chunk.frame)
        if chunk.is_audio and is_long and self.tap.audio_bytes.get(chunk.seq or 0, 0) > 100_000:
            yield ToClient(
                control_frame({"type": "session_closed", "reason": "idle", "last_seq": chunk.seq})
            )
            yield CloseSession(1000)


FAULTS.add(
    "idle-while-speaking",
    "The idle clock runs while an utterance is being spoken.",
    "idle.reset-by-messages",
    _IdleWhileSpeaking,
)
FAULTS.chunks(
    "idle-untold",
    "A session that was idle too long is closed without `session_closed`.",
    "idle.session-closed",
    lambda chunk, _: [] if _reason(chunk) == "idle" else None,
)
FAULTS.chunks(
    "idle-called-policy",
    "A session that was idle too long is closed with the reason `policy`.",
    "idle.session-closed",
    lambda chunk, _: [chunk.changed(reason="policy")] if _reason(chunk) == "idle" else None,
)


class _NeverIdle(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return [] if _reason(chunk) == "idle" else super().chunk(chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        return [] if frame.opcode == Opcode.CLOSE else super().endpoint_frame(frame)

    def endpoint_gone(self) -> bool:
        return False


FAULTS.add(
    "idle-without-end",
    "A session may be idle for ever.",
    "idle.session-closed",
    _NeverIdle,
)


def _reason(chunk: Chunk) -> object:
    return (chunk.fields or {}).get("reason") if chunk.type == "session_closed" else None


# --- Shutting down -------------------------------------------------------------------------------


class _ShutdownDrops(SessionTamper):
    """Speaks nothing and ends nothing once the endpoint has been told to stop."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        dropped = self.shared.shutting_down and chunk.type != "session_closed"
        return [] if dropped and not chunk.is_rejection else super().chunk(chunk)


FAULTS.add(
    "shutdown-drops-utterances",
    "On shutdown what was accepted is dropped without a word.",
    "shutdown.drains",
    _ShutdownDrops,
)


class _ShutdownFails(SessionTamper):
    """Fails what it could finish once the endpoint has been told to stop."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if not self.shared.shutting_down or chunk.type != "synthesis_complete":
            return super().chunk(chunk)
        message = self.tap.messages.get(chunk.seq or 0)
        named = message.meaning.request_id if message is not None else None
        return [ToClient(error_frame("internal", chunk.seq or 0, named))]


FAULTS.add(
    "shutdown-fails-utterances",
    "On shutdown what was accepted ends in the error `internal`.",
    "shutdown.drains",
    _ShutdownFails,
)
FAULTS.chunks(
    "shutdown-called-internal",
    "From shutdown on a request is rejected with `internal`.",
    "shutdown.going-away",
    lambda chunk, _: (
        [chunk.changed(code="internal")]
        if chunk.is_rejection and (chunk.fields or {}).get("code") == "going_away"
        else None
    ),
)
FAULTS.chunks(
    "shutdown-ignores-requests",
    "From shutdown on requests are not answered.",
    "shutdown.going-away",
    lambda chunk, _: (
        [] if chunk.is_rejection and (chunk.fields or {}).get("code") == "going_away" else None
    ),
)
FAULTS.chunks(
    "shutdown-untold",
    "On shutdown sessions are closed without `session_closed`.",
    "shutdown.session-closed",
    lambda chunk, _: [] if _reason(chunk) == "going_away" else None,
)


class _ShutdownCuts(SessionTamper):
    """Closes with 1012 when the endpoint has been told to stop, as an unprepared server does."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return [CloseSession(1012)] if self.shared.shutting_down else super().chunk(chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        if self.shared.shutting_down and frame.opcode == Opcode.CLOSE:
            return [ToClient(Frame(Opcode.CLOSE, close_payload(1012)))]
        return super().endpoint_frame(frame)


FAULTS.add(
    "shutdown-closes-with-1012",
    "On shutdown sessions are closed at once, with the code 1012.",
    ("shutdown.session-closed", "shutdown.drains"),
    _ShutdownCuts,
)
