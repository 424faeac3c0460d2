"""Faults of containers that are busy with their model when the platform asks something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    CloseSession,
    ExchangeTamper,
    Head,
    Pause,
    Request,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.wire import Frame, Opcode

from .catalogue import Catalogue

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_AGAIN_S: Final = 0.02
# Short texts are made before anybody can find out what they hold up.
_LONG: Final = 1_000


def _speakers(shared: Shared) -> set[object]:
    speakers: set[object] = shared.notes.setdefault("speakers", set())
    return speakers


class _Speaks(SessionTamper):
    """Tells the proxy which sessions speak a long text."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        self.follow(chunk)
        return super().chunk(chunk)

    def follow(self, chunk: Chunk) -> None:
        """Take in what a chunk says of that."""
        message = self.tap.messages.get(chunk.seq or 0)
        if message is None or len(message.meaning.text) < _LONG:
            return
        if chunk.type == "synthesis_start":
            _speakers(self.shared).add(self)
        elif chunk.is_terminal:
            _speakers(self.shared).discard(self)

    def client_gone(self, *, clean: bool) -> bool:
        _speakers(self.shared).discard(self)
        return True

    def endpoint_gone(self) -> bool:
        _speakers(self.shared).discard(self)
        return True


class _OpensSlowly(_Speaks):
    def opens_after(self) -> float:
        return 1.0 if _speakers(self.shared) else 0.0


FAULTS.add(
    "accepts-slowly-when-busy",
    "While a text is spoken a connection is accepted only after a second.",
    "sagemaker.accept",
    _OpensSlowly,
)


class _PingsSlowly(ExchangeTamper):
    def passed_after(self, request: Request) -> float:
        return 3.2 if request.path.endswith("/ping") and _speakers(self.shared) else 0.0


FAULTS.add(
    "ping-slow-when-busy",
    "While a text is spoken `/ping` is answered only after three seconds.",
    "sagemaker.ping-fast",
    _Speaks,
    _PingsSlowly,
)


class _PingsOverloaded(ExchangeTamper):
    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        if request.path.endswith("/ping") and len(_speakers(self.shared)) > 1:
            return Head(503), b""
        return request


FAULTS.add(
    "ping-fails-under-load",
    "While texts are spoken in several sessions `/ping` answers 503.",
    "sagemaker.ping-fast",
    _Speaks,
    _PingsOverloaded,
)


class _QuietPongs(_Speaks):
    """Answers the pings of a session that is quiet only when no other speaks."""

    def endpoint_frame(self, frame: Frame) -> Iterator[Action]:
        if frame.opcode == Opcode.PONG and self not in _speakers(self.shared):
            while _speakers(self.shared):
                yield Pause(_AGAIN_S)
        yield ToClient(frame)


FAULTS.add(
    "quiet-sessions-unanswered-when-busy",
    "While a text is spoken in one session the pings of the others are not answered.",
    "sagemaker.pong",
    _QuietPongs,
)


FAULTS.refuses(
    "untyped-parts-refused-when-busy",
    "While a text is spoken, whole requests without a type are rejected.",
    ("sagemaker.untyped-part", "message.frame-kinds-alike"),
    lambda message, tap: (
        message.is_valid_request
        and not message.is_text
        and len(message.frames) == 1
        and tap.running is not None
    ),
    "invalid_json",
)
FAULTS.refuses(
    "untyped-parts-refused-in-pieces",
    "Requests in several parts without a type are rejected.",
    ("sagemaker.partial-parts", "message.fragmentation-invisible"),
    lambda message, _: message.is_valid_request and not message.is_text and len(message.frames) > 1,
    "invalid_json",
)


class _ClosesOnFarewell(SessionTamper):
    """Closes right behind `session_closed`."""

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        if chunk.type == "session_closed":
            yield CloseSession(1000)


FAULTS.add(
    "container-closes-first",
    "The container closes right behind `session_closed`.",
    ("sagemaker.client-closes", "close.endpoint-waits"),
    _ClosesOnFarewell,
)


class _Headless(ExchangeTamper):
    def head(self, request: Request, head: Head) -> Head:
        return head.without("Utterwire-Request-Id", "Utterwire-Sample-Rate")


FAULTS.add(
    "container-without-headers",
    "Neither the rate nor the request id of audio is told by headers.",
    ("sagemaker.headers", "http.headers"),
    exchange=_Headless,
)


class _Lingers(SessionTamper):
    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        shared.lingers = True


FAULTS.add(
    "process-lingers",
    "The process drains on SIGTERM, and then does not end.",
    "sagemaker.sigterm",
    _Lingers,
)
