"""What an oddity is: a legal choice made differently, on purpose; and several of them at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    ExchangeTamper,
    Head,
    Request,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)
from utterwire_conformance.wire import Frame, Opcode

__all__ = ["Combined", "Oddity"]

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Oddity:
    """One legal choice that few endpoints make: no check may turn red over it.

    `explanation` is one sentence on what the endpoint then does, and `clause` says where the
    specification allows it. `session` and `exchange` make the tamper for one session and one HTTP
    exchange; a session's tamper adds to what the client is sent, or changes it, and leaves what
    the client sends as it is. `lacks` names profiles that the endpoint may not claim.

    Raises:
        ValueError: the name is not kebab-case, or the explanation no sentence.
    """

    name: str
    explanation: str
    clause: str
    session: Callable[[Shared, Tap], SessionTamper] = SessionTamper
    exchange: Callable[[Shared], ExchangeTamper] = ExchangeTamper
    lacks: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a name in kebab-case")
        if not self.explanation.endswith("."):
            raise ValueError(f"oddity {self.name}: the explanation is a sentence")


class Combined:
    """Several oddities in one proxy, each on what the ones before it have made."""

    def __init__(self, oddities: Sequence[Oddity]) -> None:
        self._oddities = tuple(oddities)

    def as_one(self, name: str) -> Oddity:
        """All of them as one oddity of this name."""
        explanation = f"{len(self._oddities)} oddities at once."
        return Oddity(name, explanation, "protocol.md#extension", self.session, self.exchange)

    def session(self, shared: Shared, tap: Tap) -> SessionTamper:
        """A tamper for one session."""
        return _Session(shared, tap, [oddity.session(shared, tap) for oddity in self._oddities])

    def exchange(self, shared: Shared) -> ExchangeTamper:
        """A tamper for one HTTP exchange."""
        return _Exchange(shared, [oddity.exchange(shared) for oddity in self._oddities])


class _Session(SessionTamper):
    def __init__(self, shared: Shared, tap: Tap, tampers: Sequence[SessionTamper]) -> None:
        super().__init__(shared, tap)
        self._tampers = tampers

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        yield from super().client_message(message)
        for place, tamper in enumerate(self._tampers):
            added = [a for a in tamper.client_message(message) if isinstance(a, ToClient)]
            yield from self._onwards(added, place + 1)

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        outcomes = [list(tamper.client_frame(frame)) for tamper in self._tampers]
        # One that keeps a frame from the endpoint (the answer to a ping of its own) keeps it.
        return super().client_frame(frame) if all(outcomes) else []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        return self._onwards([ToClient(chunk.frame)], 0, chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        return self._onwards([ToClient(frame)], 0)

    def _onwards(
        self, actions: Iterable[Action], place: int, known: Chunk | None = None
    ) -> Iterator[Action]:
        """What the tampers from `place` on make of actions, in their order."""
        if place == len(self._tampers):
            yield from actions
            return
        for action in actions:
            if not isinstance(action, ToClient):
                yield action
            elif action.frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                chunk = known if known is not None and known.frame is action.frame else None
                chunk = chunk or self._read(action.frame)
                made = self._tampers[place].chunk(chunk)
                yield from self._onwards(made, place + 1, chunk)
            else:
                yield from self._onwards(
                    self._tampers[place].endpoint_frame(action.frame), place + 1
                )

    def _read(self, frame: Frame) -> Chunk:
        return Tap(running=self.tap.running).chunk(frame)


class _Exchange(ExchangeTamper):
    def __init__(self, shared: Shared, tampers: Sequence[ExchangeTamper]) -> None:
        super().__init__(shared)
        self._tampers = tampers

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        for tamper in self._tampers:
            changed = tamper.request(request)
            if isinstance(changed, tuple):
                return changed
            request = changed
        return request

    def head(self, request: Request, head: Head) -> Head:
        for tamper in self._tampers:
            head = tamper.head(request, head)
        return head

    def body(self, data: bytes) -> Iterable[bytes | float]:
        return self._onwards([data], 0)

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        rest = b""
        for place, tamper in enumerate(self._tampers):
            last, clean = tamper.end(clean=clean)
            parts = self._onwards([last] if last else [], place + 1)
            rest += b"".join(part for part in parts if isinstance(part, bytes))
        return rest, clean

    def _onwards(self, parts: Iterable[bytes | float], place: int) -> Iterator[bytes | float]:
        for part in parts:
            if place == len(self._tampers) or not isinstance(part, bytes):
                yield part
            else:
                yield from self._onwards(self._tampers[place].body(part), place + 1)
