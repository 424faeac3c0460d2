"""The hooks by which a fault takes part in a session or an exchange. No input, no output.

The base classes change nothing. A fault overrides what it needs; what it returns is done in order
before the next thing from the same side is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from utterwire_conformance.wire import Frame

from .action import Action, ToClient, ToEndpoint
from .tap import Chunk, ClientMessage, Tap

__all__ = ["ExchangeTamper", "Head", "Request", "SessionTamper", "Shared"]


@dataclass(slots=True)
class Shared:
    """What the sessions and exchanges of one proxy know of each other.

    `written` is what the faulty endpoint writes to its log, `kept` what it never frees, and
    `lingers` says that its process does not end when it is told to.
    """

    shutting_down: bool = False
    sessions: int = 0
    exchanges: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    written: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a response, names in the case they came in."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name."""
        for key, value in self.headers:
            if key.lower() == name.lower():
                return value
        return None

    def without(self, *names: str) -> Head:
        """The same head less some headers."""
        gone = {name.lower() for name in names}
        kept = tuple((key, value) for key, value in self.headers if key.lower() not in gone)
        return replace(self, headers=kept)

    def having(self, name: str, value: str) -> Head:
        """The same head with one header set."""
        return replace(self, headers=(*self.without(name).headers, (name, value)))


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request with its whole body."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class SessionTamper:
    """Takes part in one WebSocket session."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        self.shared = shared
        self.tap = tap

    def upgrade(self, target: str) -> str | Head:
        """The target to ask the endpoint for, or the answer to give in its place."""
        return target

    def opens_after(self) -> float:
        """How long, in seconds, to wait before the handshake is passed on."""
        return 0.0

    def handshake(self, head: Head) -> Head:
        """The endpoint's answer to the handshake, status 101 or not."""
        return head

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        """A whole message from the client."""
        return [ToEndpoint(frame) for frame in message.frames]

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        """A close, ping or pong of the client."""
        return [ToEndpoint(frame, as_is=True)]

    def client_bad_text(self, frames: tuple[Frame, ...]) -> Iterable[Action]:
        """A whole text message of the client that is not UTF-8; it is not counted."""
        return [ToEndpoint(frame, as_is=True) for frame in frames]

    def client_breach(self, frame: Frame) -> Iterable[Action]:
        """A frame of the client by which it breaks RFC 6455."""
        return [ToEndpoint(frame, as_is=True)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        """A data frame of the endpoint."""
        return [ToClient(chunk.frame)]

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        """A close, ping or pong of the endpoint."""
        return [ToClient(frame)]

    def client_gone(self, *, clean: bool) -> bool:
        """The client's transport ended; whether the endpoint is to learn of it."""
        return True

    def endpoint_gone(self) -> bool:
        """The endpoint's transport ended; whether the client is to learn of it."""
        return True


class ExchangeTamper:
    """Takes part in one HTTP exchange."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.request_sent: Request | None = None
        self.turn = 1
        """Which exchange of its connection it is."""

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        """The request to pass on, or a response to give in the endpoint's place."""
        return request

    def passed_after(self, request: Request) -> float:
        """How long, in seconds, to wait before the request is passed on."""
        return 0.0

    def head(self, request: Request, head: Head) -> Head:
        """Status and headers of the endpoint's response."""
        return head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        """A part of the response's body; a number is a wait in seconds."""
        return [data]

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        """The last bytes to send and whether to end the body as it should."""
        return b"", clean
