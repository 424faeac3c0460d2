"""What is to be known of each utterance, and who is told: metrics and tracing listen here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from utterwire_server.backlog import Place
from utterwire_server.line import Listener

__all__ = [
    "AUDIBLE_S",
    "OUTCOMES",
    "REFUSALS",
    "Observer",
    "Outcome",
    "Transport",
    "UtteranceRecord",
]

Outcome: TypeAlias = Literal["completed", "failed", "cancelled", "disconnected", "cut_off"]
"""How an utterance ended: all of it was made; the engine failed; the client cancelled it, or left;
the endpoint ended it, at shutdown or because its client did not read."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

REFUSALS: Final = ("unauthorized", "origin", "address")
"""Why somebody is not let in: no valid token, another site's page, too many from one address."""

Transport: TypeAlias = Literal["websocket", "http", "sse"]

#: A shorter gap is none: a player holds at least so much.
AUDIBLE_S: Final = 0.01


@dataclass(slots=True)
class UtteranceRecord:
    """One accepted utterance, from the message that asked for it to its end.

    Times are seconds of the event loop's clock, None for what has not happened. ``due_at`` is when
    its turn came in its own session: as it was accepted, or as the utterance before it had been
    made. ``begun_at`` is when the engine was first asked for it, ``computing_s`` how long the
    engine worked on it, ``speech_s`` how much of it was made. ``streamed`` is False for an answer
    that is sent when it is whole: nobody listens meanwhile.

    ``parent`` are the trace headers of the request (`traceparent`, `tracestate`). Never the text:
    what is kept here is shown to whoever reads metrics and traces.
    """

    transport: Transport
    voice: str
    format: str
    sample_rate: int
    characters: int
    accepted_at: float
    due_at: float
    streamed: bool = True
    parent: Mapping[str, str] = field(default_factory=dict)
    begun_at: float | None = None
    first_byte_at: float | None = None
    ended_at: float | None = None
    computing_s: float = 0.0
    speech_s: float = 0.0
    underruns: int = 0
    starved_s: float = 0.0
    outcome: Outcome | None = None
    code: str | None = None
    #: Who hears it, and what came before it in the same session.
    listener: Listener = field(default_factory=Listener)
    #: Its part of the backlog, given back at its end.
    place: Place | None = None

    def begin(self, now: float) -> None:
        """The engine is asked for its next block."""
        if self.begun_at is None:
            self.begun_at = now

    def made(self, speech_s: float, now: float) -> bool:
        """Speech up to ``speech_s`` seconds is ready to leave; whether it is the first."""
        gap = self.listener.put(speech_s - self.speech_s, now)
        self.speech_s = speech_s
        if not self.streamed:
            return False
        first = self.first_byte_at is None
        if gap > AUDIBLE_S and not first:
            self.underruns += 1
            self.starved_s += gap
        if first:
            self.first_byte_at = now
        return first

    def end(self, outcome: Outcome, now: float, code: str | None = None) -> None:
        """It has ended.

        :raises RuntimeError: if it had before: each accepted utterance ends exactly once.
        """
        if self.outcome is not None:
            raise RuntimeError(f"an utterance that had {self.outcome} has {outcome}")
        self.outcome, self.ended_at, self.code = outcome, now, code
        if self.place is not None:
            self.place.release()


class Observer:
    """Is told what happens. Here nothing is done with it; override what is of interest.

    Everything is called in the event loop and must return at once.
    """

    def session_opened(self) -> None:
        """A WebSocket session was accepted."""

    def session_closed(self, reason: str, duration_s: float) -> None:
        """A session is over: a reason of `session_closed`, `transport_lost` or `internal`."""

    def error(self, code: str) -> None:
        """An error was told to a client; ``code`` is one of the registry."""

    def refused(self, reason: str) -> None:
        """Somebody was not let in; one of `REFUSALS`."""

    def accepted(self, record: UtteranceRecord) -> None:
        """An utterance was accepted."""

    def first_byte(self, record: UtteranceRecord) -> None:
        """The first audio of a streamed utterance is on its way."""

    def ended(self, record: UtteranceRecord) -> None:
        """An accepted utterance has ended; once for each."""
