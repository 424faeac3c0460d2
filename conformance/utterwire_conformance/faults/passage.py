"""What passed an honest proxy, kept so that a fault can be asked what it would have changed.

A tamper does no input or output. What a scenario sent and was sent can therefore be put before it
again: where nothing comes out otherwise than it went in, the fault has no part in that scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    ExchangeTamper,
    Head,
    Request,
    SessionTamper,
    Shared,
    Tampers,
    Tap,
)
from utterwire_conformance.wire import Frame

__all__ = ["Passage"]

_Tamper: TypeAlias = SessionTamper | ExchangeTamper


@dataclass(frozen=True, slots=True)
class _Event:
    """One call of a hook of one tamper, and what the proxy knew at that moment."""

    carrier: int
    hook: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    shutting_down: bool
    in_message: bool = False
    turn: int = 1


@dataclass(slots=True)
class Passage:
    """The hooks that were called while something was played, in order; makes the tampers that
    write them down. Use it in a proxy's place of a fault."""

    _events: list[_Event] = field(default_factory=list)
    _sessions: set[int] = field(default_factory=set)
    _carriers: int = 0

    def session(self, shared: Shared, tap: Tap) -> SessionTamper:
        """A tamper that changes nothing and writes down what passes."""
        self._carriers += 1
        self._sessions.add(self._carriers)
        return _SessionWitness(shared, tap, self, self._carriers)

    def exchange(self, shared: Shared) -> ExchangeTamper:
        """A tamper that changes nothing and writes down what passes."""
        self._carriers += 1
        return _ExchangeWitness(shared, self, self._carriers)

    def note(
        self,
        carrier: int,
        shared: Shared,
        hook: str,
        *arguments: Any,
        in_message: bool = False,
        turn: int = 1,
        **named: Any,
    ) -> None:
        """Write down the call of a hook."""
        event = _Event(carrier, hook, arguments, named, shared.shutting_down, in_message, turn)
        self._events.append(event)

    def changed_by(self, tampers: Mapping[str, Tampers]) -> set[str]:
        """The names of those tampers that would have had anything come out otherwise."""
        left = {name: _Carried(each) for name, each in tampers.items()}
        taps: dict[int, Tap] = {}
        changed: set[str] = set()
        tap: Tap | None
        for event in self._events:
            hook = event.hook
            if event.carrier in self._sessions:
                tap = taps.setdefault(event.carrier, Tap())
                tap.in_message = event.in_message
                arguments = event.arguments
                # Made anew, so that what a tap knows has come about as in a proxy.
                if hook == "client_message":
                    message = arguments[0]
                    arguments = (tap.client_message(message.data, message.frames),)
                elif hook == "chunk":
                    arguments = (tap.chunk(arguments[0].frame),)
            else:
                tap, arguments = None, event.arguments
            plain: _Tamper = (
                ExchangeTamper(Shared()) if tap is None else SessionTamper(Shared(), tap)
            )
            honest = type(plain)
            due: Any = ...
            for name, carried in left.items():
                tamper = carried.tamper(event, tap)
                if getattr(type(tamper), hook) is getattr(honest, hook):
                    continue
                if due is ...:
                    due = _settled(getattr(plain, hook)(*arguments, **event.named))
                settled = _settled(getattr(tamper, hook)(*arguments, **event.named))
                if settled != due or carried.remembers:
                    changed.add(name)
            for name in changed & left.keys():
                del left[name]
            if tap is not None and hook == "chunk":
                tap.after(arguments[0])
        return changed


class _Carried:
    """The tampers of one fault, one for each session and exchange as it comes."""

    def __init__(self, tampers: Tampers) -> None:
        self._tampers = tampers
        self._shared = Shared()
        self._made: dict[int, _Tamper] = {}

    def tamper(self, event: _Event, tap: Tap | None) -> _Tamper:
        """The tamper for the session or exchange of an event."""
        self._shared.shutting_down = event.shutting_down
        made = self._made.get(event.carrier)
        if made is None:
            if tap is not None:
                self._shared.sessions += 1
                made = self._tampers.session(self._shared, tap)
            else:
                self._shared.exchanges += 1
                made = self._tampers.exchange(self._shared)
                made.turn = event.turn
            self._made[event.carrier] = made
        return made

    @property
    def remembers(self) -> bool:
        """Whether something is kept or written that no frame shows."""
        return bool(self._shared.kept or self._shared.written or self._shared.lingers)


_WHOLE: Final = (str, bool, float, tuple, Head, Request)
# A tamper that waits for what another session does would wait for ever here.
_MOST_ACTIONS: Final = 10_000


def _settled(outcome: Any) -> Any:
    """What a hook gave back, in a form that can be compared."""
    return outcome if isinstance(outcome, _WHOLE) else list(islice(outcome, _MOST_ACTIONS))


class _SessionWitness(SessionTamper):
    def __init__(self, shared: Shared, tap: Tap, passage: Passage, carrier: int) -> None:
        super().__init__(shared, tap)
        self._passage = passage
        self._carrier = carrier

    def _note(self, hook: str, *arguments: Any, **named: Any) -> None:
        self._passage.note(
            self._carrier, self.shared, hook, *arguments, in_message=self.tap.in_message, **named
        )

    def opens_after(self) -> float:
        self._note("opens_after")
        return super().opens_after()

    def upgrade(self, target: str) -> str | Head:
        self._note("upgrade", target)
        return super().upgrade(target)

    def handshake(self, head: Head) -> Head:
        self._note("handshake", head)
        return super().handshake(head)

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        self._note("client_message", message)
        return super().client_message(message)

    def client_frame(self, frame: Frame) -> Iterable[Action]:
        self._note("client_frame", frame)
        return super().client_frame(frame)

    def client_bad_text(self, frames: tuple[Frame, ...]) -> Iterable[Action]:
        self._note("client_bad_text", frames)
        return super().client_bad_text(frames)

    def client_breach(self, frame: Frame) -> Iterable[Action]:
        self._note("client_breach", frame)
        return super().client_breach(frame)

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        self._note("chunk", chunk)
        return super().chunk(chunk)

    def endpoint_frame(self, frame: Frame) -> Iterable[Action]:
        self._note("endpoint_frame", frame)
        return super().endpoint_frame(frame)

    def client_gone(self, *, clean: bool) -> bool:
        self._note("client_gone", clean=clean)
        return super().client_gone(clean=clean)

    def endpoint_gone(self) -> bool:
        self._note("endpoint_gone")
        return super().endpoint_gone()


class _ExchangeWitness(ExchangeTamper):
    def __init__(self, shared: Shared, passage: Passage, carrier: int) -> None:
        super().__init__(shared)
        self._passage = passage
        self._carrier = carrier

    def _note(self, hook: str, *arguments: Any, **named: Any) -> None:
        passage = self._passage
        passage.note(self._carrier, self.shared, hook, *arguments, turn=self.turn, **named)

    def request(self, request: Request) -> Request | tuple[Head, bytes]:
        self._note("request", request)
        return super().request(request)

    def passed_after(self, request: Request) -> float:
        self._note("passed_after", request)
        return super().passed_after(request)

    def head(self, request: Request, head: Head) -> Head:
        self._note("head", request, head)
        return super().head(request, head)

    def body(self, data: bytes) -> Iterable[bytes | float]:
        self._note("body", data)
        return super().body(data)

    def end(self, *, clean: bool) -> tuple[bytes, bool]:
        self._note("end", clean=clean)
        return super().end(clean=clean)
