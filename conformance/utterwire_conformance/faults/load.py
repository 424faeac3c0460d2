"""Faults that show only with many sessions, slow readers, or those that leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    Head,
    Pause,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.wire import Frame, Opcode

from .catalogue import Catalogue
from .rewriting import error_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_AGAIN_S: Final = 0.02

# --- Slow readers --------------------------------------------------------------------------------


class _OneWriter(SessionTamper):
    """Writes to one session at a time, and waits until that has taken what it is sent."""

    def chunk(self, chunk: Chunk) -> Iterator[Action]:
        notes = self.shared.notes
        while notes.get("writing") not in (None, self):
            yield Pause(_AGAIN_S)
        notes["writing"] = self
        try:
            yield ToClient(chunk.frame)
            # What goes before a pause has left when the pause begins.
            yield Pause(0.0)
        finally:
            notes["writing"] = None


FAULTS.add(
    "stalled-reader-stops-all",
    "One writer serves all sessions, so that a reader that stalls stops them all.",
    "load.stalled-reader",
    _OneWriter,
)


def _reason(chunk: Chunk) -> object:
    return (chunk.fields or {}).get("reason") if chunk.type == "session_closed" else None


class _SlowReaderUntold(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return [] if _reason(chunk) == "slow_reader" else super().chunk(chunk)


FAULTS.add(
    "slow-reader-untold",
    "The session of a reader that stalled too long is closed without `session_closed`.",
    "load.slow-reader-closed",
    _SlowReaderUntold,
)
FAULTS.chunks(
    "slow-reader-called-policy",
    "The session of a reader that stalled too long is ended with the reason `policy`.",
    "load.slow-reader-closed",
    lambda chunk, _: [chunk.changed(reason="policy")] if _reason(chunk) == "slow_reader" else None,
)


class _StalledForEver(SessionTamper):
    """Bears a reader that stalls for as long as it likes."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return [] if _reason(chunk) == "slow_reader" else super().chunk(chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        return [] if frame.opcode == Opcode.CLOSE else super().endpoint_frame(frame)

    def endpoint_gone(self) -> bool:
        return False


FAULTS.add(
    "slow-reader-borne",
    "A reader may stall for ever.",
    "load.slow-reader-closed",
    _StalledForEver,
)

# --- Fairness and bounds -------------------------------------------------------------------------

_LONG: Final = 1_000


class _LongGoesFirst(SessionTamper):
    """Keeps the audio of others back while a long text is being spoken."""

    def chunk(self, chunk: Chunk) -> Iterator[Action]:
        notes = self.shared.notes
        message = self.tap.messages.get(chunk.seq or 0)
        if message is not None and len(message.meaning.text) >= _LONG:
            if chunk.type == "synthesis_start" and notes.get("long") is None:
                notes["long"] = self
            elif chunk.is_terminal and notes.get("long") is self:
                notes["long"] = None
        elif chunk.is_audio:
            while notes.get("long") not in (None, self):
                yield Pause(_AGAIN_S)
        yield ToClient(chunk.frame)

    def client_gone(self, *, clean: bool) -> bool:
        self._let_go()
        return True

    def endpoint_gone(self) -> bool:
        self._let_go()
        return True

    def _let_go(self) -> None:
        if self.shared.notes.get("long") is self:
            self.shared.notes["long"] = None


FAULTS.add(
    "long-text-goes-first",
    "While a long text is spoken in one session no other gets any audio.",
    "load.fair",
    _LongGoesFirst,
)


class _KeepsRejections(SessionTamper):
    """Keeps every rejection back until it is its turn, however many there are."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._kept: dict[int, Frame] = {}

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        running, seq = self.tap.running, chunk.seq or 0
        if chunk.is_rejection and running is not None and seq > running + 256:
            self._kept[seq] = chunk.frame
            return
        yield ToClient(chunk.frame)
        if chunk.is_rejection:
            while (seq := seq + 1) in self._kept:
                yield ToClient(self._kept.pop(seq))


FAULTS.add(
    "rejections-kept",
    "However many rejections wait for their place, all are kept back.",
    "load.rejections-bounded",
    _KeepsRejections,
)

# --- What is used up -----------------------------------------------------------------------------

_CAPACITY: Final = 128
_PLACES: Final = 8


class _UsedUp(SessionTamper):
    """Takes no session any more once too much of something has come."""

    capacity = _CAPACITY

    def upgrade(self, target: str) -> str | Head:
        if self.shared.notes.get("used", 0) >= self.capacity:
            return Head(503, (("Retry-After", "1"),))
        return target

    def use(self) -> None:
        """Take one place, for good."""
        self.shared.notes["used"] = self.shared.notes.get("used", 0) + 1


class _BreachesUseUp(_UsedUp):
    def client_breach(self, frame: Frame) -> Iterable[Action]:
        self.use()
        return super().client_breach(frame)


FAULTS.add(
    "broken-frames-use-up-capacity",
    "Each session that was failed for a broken frame holds its place for good.",
    "load.bad-input-frees",
    _BreachesUseUp,
)


class _RejectionsUseUp(_UsedUp):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_rejection:
            self.use()
        return super().chunk(chunk)


FAULTS.add(
    "rejections-use-up-capacity",
    "Each rejected message holds a place for good.",
    "load.bad-input-frees",
    _RejectionsUseUp,
)


class _RejectionsDeafen(_UsedUp):
    """Hears nothing in a session opened after too many messages were rejected."""

    capacity = 1_000_000

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        # Sessions that are open already go on, so that what turns red does not hang on which of
        # several sessions came how far.
        self._deaf = shared.notes.get("used", 0) >= _CAPACITY

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        return [] if self._deaf else super().client_message(message)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.is_rejection:
            self.use()
        return super().chunk(chunk)


FAULTS.add(
    "rejections-wedge",
    "After too many rejected messages no session opened from then on is answered.",
    "load.bad-input-frees",
    _RejectionsDeafen,
)


class _SpokenToNobody(SessionTamper):
    """Goes on speaking when the client has gone."""

    def client_gone(self, *, clean: bool) -> bool:
        return False

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        # A close frame is answered, and the engine learns nothing of it.
        if frame.opcode == Opcode.CLOSE and self.tap.unended():
            return [ToClient(Frame(Opcode.CLOSE, frame.payload))]
        return super().client_frame(frame)


FAULTS.add(
    "disconnect-speaks-on",
    "What a client had waiting is spoken to its end though the client has gone.",
    "load.disconnect-frees",
    _SpokenToNobody,
)


class _DisconnectsUseUp(_UsedUp):
    capacity = _PLACES

    def client_gone(self, *, clean: bool) -> bool:
        if self.tap.unended():
            self.use()
        return True


FAULTS.add(
    "disconnects-use-up-places",
    "Each client that leaves in mid-utterance keeps its place for good, and there are eight.",
    "load.disconnect-frees",
    _DisconnectsUseUp,
)


class _KeepsMessages(SessionTamper):
    """Remembers all that it was ever sent."""

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        self.shared.kept += message.data
        return super().client_message(message)


FAULTS.add(
    "messages-kept-for-ever",
    "Every message is kept in memory for as long as the endpoint runs.",
    "load.memory",
    _KeepsMessages,
)


class _KeepsAnswers(SessionTamper):
    """Reads on for ever from a client that does not read, and keeps its answers."""

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if message.meaning.type not in ("synthesize", "close", "keepalive"):
            answer = error_frame("unknown_type", message.seq, message.meaning.request_id)
            self.shared.kept += answer.payload
        return super().client_message(message)


FAULTS.add(
    "answers-pile-up",
    "Whoever sends and does not read is read from all the same, and the answers pile up.",
    "load.memory",
    _KeepsAnswers,
)
