"""The states of a session and of an utterance, and every legal move between them.

The tables below are the whole of it: the code looks its moves up here, ``spec/states.md`` is
generated from here (``python -m utterwire_protocol.state_chart``), and a cell that is absent is an
illegal move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

__all__ = [
    "TRANSITIONS",
    "UTTERANCE_TRANSITIONS",
    "Move",
    "Role",
    "SessionInput",
    "SessionState",
    "UtteranceInput",
    "UtteranceState",
    "Verdict",
]


class Role(Enum):
    """The side of the session that the core plays."""

    CLIENT = "client"
    ENDPOINT = "endpoint"


class SessionState(Enum):
    """Where a session stands."""

    FRESH = "fresh"
    """No message yet: `hello` is allowed."""
    OPEN = "open"
    """Requests are taken."""
    CLOSING = "closing"
    """`close` was read or sent: what was accepted is finished."""
    GOING_AWAY = "going away"
    """The endpoint is shutting down: what was accepted is finished, nothing more is."""
    CLOSED = "closed"
    """Over: `session_closed` is on its way or read, or the transport is lost."""


class SessionInput(Enum):
    """What can meet a session. A message is read by the endpoint, and sent by the client."""

    HELLO = "hello"
    SYNTHESIZE = "synthesize"
    CANCEL = "cancel"
    KEEPALIVE = "keepalive"
    CLOSE = "close"
    INVALID = "an invalid message"
    SHUTDOWN = "shutdown begins"
    DEADLINE = "the shutdown deadline passes"
    DRAINED = "the last unended utterance ends"
    IDLE = "the idle limit passes"
    ENDED = "the endpoint ends the session"
    CHUNK = "a chunk"
    SESSION_CLOSED = "session_closed"
    TRANSPORT_LOST = "the transport is lost"


class UtteranceState(Enum):
    """Where an utterance stands. The first three are *unended*."""

    WAITING = "waiting"
    """Accepted, not started."""
    RUNNING = "running"
    """`synthesis_start` was queued, or read."""
    FINISHING = "finishing"
    """All is made; the terminal message has not been handed to the transport yet."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    """The client's view of a request that was not accepted."""
    LOST = "lost"
    """The client's view of an utterance whose session ended first."""


class UtteranceInput(Enum):
    """What can meet an utterance."""

    START = "synthesis_start"
    AUDIO = "audio"
    MARKS = "marks"
    COMPLETE = "synthesis_complete"
    ERROR = "error"
    REJECTION = "error, rejected"
    CANCELLED = "cancelled"
    COMPLETE_SENT = "synthesis_complete is handed over"
    ERROR_SENT = "error is handed over"
    SESSION_ENDS = "the session ends early"
    TRANSPORT_LOST = "the transport is lost"


class Verdict(Enum):
    """What becomes of an input."""

    ACT = "act"
    REJECT = "reject"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Move:
    """One cell: the state after the input, what becomes of it, and with which error code."""

    to: SessionState
    verdict: Verdict = Verdict.ACT
    code: str | None = None


_S = SessionState
_I = SessionInput
_REJECT, _IGNORE = Verdict.REJECT, Verdict.IGNORE


_ENDPOINT: dict[SessionState, dict[SessionInput, Move]] = {
    _S.FRESH: {
        _I.HELLO: Move(_S.OPEN),
        _I.SYNTHESIZE: Move(_S.OPEN),
        _I.CANCEL: Move(_S.OPEN),
        _I.KEEPALIVE: Move(_S.OPEN),
        _I.CLOSE: Move(_S.CLOSING),
        _I.INVALID: Move(_S.OPEN, _REJECT),
        _I.SHUTDOWN: Move(_S.GOING_AWAY),
        _I.IDLE: Move(_S.CLOSED),
        _I.ENDED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.OPEN: {
        _I.HELLO: Move(_S.OPEN, _REJECT, "invalid_request"),
        _I.SYNTHESIZE: Move(_S.OPEN),
        _I.CANCEL: Move(_S.OPEN),
        _I.KEEPALIVE: Move(_S.OPEN),
        _I.CLOSE: Move(_S.CLOSING),
        _I.INVALID: Move(_S.OPEN, _REJECT),
        _I.SHUTDOWN: Move(_S.GOING_AWAY),
        _I.IDLE: Move(_S.CLOSED),
        _I.ENDED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.CLOSING: {
        _I.CANCEL: Move(_S.CLOSING),
        _I.HELLO: Move(_S.CLOSING, _IGNORE),
        _I.SYNTHESIZE: Move(_S.CLOSING, _IGNORE),
        _I.KEEPALIVE: Move(_S.CLOSING, _IGNORE),
        _I.CLOSE: Move(_S.CLOSING, _IGNORE),
        _I.INVALID: Move(_S.CLOSING, _IGNORE),
        _I.SHUTDOWN: Move(_S.CLOSING),
        _I.DEADLINE: Move(_S.CLOSED),
        _I.DRAINED: Move(_S.CLOSED),
        _I.ENDED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.GOING_AWAY: {
        _I.HELLO: Move(_S.GOING_AWAY, _REJECT, "invalid_request"),
        _I.SYNTHESIZE: Move(_S.GOING_AWAY, _REJECT, "going_away"),
        _I.CANCEL: Move(_S.GOING_AWAY),
        _I.KEEPALIVE: Move(_S.GOING_AWAY),
        _I.CLOSE: Move(_S.CLOSING),
        _I.INVALID: Move(_S.GOING_AWAY, _REJECT),
        _I.SHUTDOWN: Move(_S.GOING_AWAY, _IGNORE),
        _I.DEADLINE: Move(_S.CLOSED),
        _I.DRAINED: Move(_S.CLOSED),
        _I.ENDED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.CLOSED: {
        _I.HELLO: Move(_S.CLOSED, _IGNORE),
        _I.SYNTHESIZE: Move(_S.CLOSED, _IGNORE),
        _I.CANCEL: Move(_S.CLOSED, _IGNORE),
        _I.KEEPALIVE: Move(_S.CLOSED, _IGNORE),
        _I.CLOSE: Move(_S.CLOSED, _IGNORE),
        _I.INVALID: Move(_S.CLOSED, _IGNORE),
        _I.SHUTDOWN: Move(_S.CLOSED, _IGNORE),
        _I.ENDED: Move(_S.CLOSED, _IGNORE),
        _I.TRANSPORT_LOST: Move(_S.CLOSED, _IGNORE),
    },
}

_CLIENT: dict[SessionState, dict[SessionInput, Move]] = {
    _S.FRESH: {
        _I.HELLO: Move(_S.OPEN),
        _I.SYNTHESIZE: Move(_S.OPEN),
        _I.CANCEL: Move(_S.OPEN),
        _I.KEEPALIVE: Move(_S.OPEN),
        _I.CLOSE: Move(_S.CLOSING),
        _I.CHUNK: Move(_S.FRESH),
        _I.SESSION_CLOSED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.OPEN: {
        _I.SYNTHESIZE: Move(_S.OPEN),
        _I.CANCEL: Move(_S.OPEN),
        _I.KEEPALIVE: Move(_S.OPEN),
        _I.CLOSE: Move(_S.CLOSING),
        _I.CHUNK: Move(_S.OPEN),
        _I.SESSION_CLOSED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.CLOSING: {
        _I.CANCEL: Move(_S.CLOSING),
        _I.CHUNK: Move(_S.CLOSING),
        _I.SESSION_CLOSED: Move(_S.CLOSED),
        _I.TRANSPORT_LOST: Move(_S.CLOSED),
    },
    _S.CLOSED: {
        _I.CHUNK: Move(_S.CLOSED, _IGNORE),
        _I.SESSION_CLOSED: Move(_S.CLOSED, _IGNORE),
        _I.TRANSPORT_LOST: Move(_S.CLOSED, _IGNORE),
    },
}

_U = UtteranceState
_V = UtteranceInput

_ENDPOINT_UTTERANCE: dict[UtteranceState, dict[UtteranceInput, UtteranceState]] = {
    _U.WAITING: {
        _V.START: _U.RUNNING,
        _V.ERROR: _U.FINISHING,
        _V.CANCELLED: _U.CANCELLED,
        _V.SESSION_ENDS: _U.FAILED,
        _V.TRANSPORT_LOST: _U.CANCELLED,
    },
    _U.RUNNING: {
        _V.AUDIO: _U.RUNNING,
        _V.MARKS: _U.RUNNING,
        _V.COMPLETE: _U.FINISHING,
        _V.ERROR: _U.FINISHING,
        _V.CANCELLED: _U.CANCELLED,
        _V.SESSION_ENDS: _U.FAILED,
        _V.TRANSPORT_LOST: _U.CANCELLED,
    },
    _U.FINISHING: {
        _V.COMPLETE_SENT: _U.COMPLETED,
        _V.ERROR_SENT: _U.FAILED,
        _V.CANCELLED: _U.CANCELLED,
        _V.SESSION_ENDS: _U.FAILED,
        _V.TRANSPORT_LOST: _U.CANCELLED,
    },
    _U.COMPLETED: {},
    _U.FAILED: {},
    _U.CANCELLED: {},
}

_CLIENT_UTTERANCE: dict[UtteranceState, dict[UtteranceInput, UtteranceState]] = {
    _U.WAITING: {
        _V.START: _U.RUNNING,
        # An endpoint that sends no synthesis_start is served too (client.tolerates-no-start).
        _V.AUDIO: _U.RUNNING,
        _V.MARKS: _U.WAITING,
        _V.COMPLETE: _U.COMPLETED,
        _V.ERROR: _U.FAILED,
        _V.REJECTION: _U.REJECTED,
        _V.CANCELLED: _U.CANCELLED,
        _V.SESSION_ENDS: _U.LOST,
        _V.TRANSPORT_LOST: _U.LOST,
    },
    _U.RUNNING: {
        _V.AUDIO: _U.RUNNING,
        _V.MARKS: _U.RUNNING,
        _V.COMPLETE: _U.COMPLETED,
        _V.ERROR: _U.FAILED,
        _V.CANCELLED: _U.CANCELLED,
        _V.SESSION_ENDS: _U.LOST,
        _V.TRANSPORT_LOST: _U.LOST,
    },
    _U.COMPLETED: {},
    _U.FAILED: {},
    _U.CANCELLED: {},
    _U.REJECTED: {},
    _U.LOST: {},
}

#: The moves of a session: by role, state and input.
TRANSITIONS: Mapping[Role, Mapping[SessionState, Mapping[SessionInput, Move]]] = MappingProxyType(
    {
        role: MappingProxyType({state: MappingProxyType(row) for state, row in table.items()})
        for role, table in ((Role.ENDPOINT, _ENDPOINT), (Role.CLIENT, _CLIENT))
    }
)

#: The moves of an utterance: by role, state and input.
UTTERANCE_TRANSITIONS: Mapping[
    Role, Mapping[UtteranceState, Mapping[UtteranceInput, UtteranceState]]
] = MappingProxyType(
    {
        role: MappingProxyType({state: MappingProxyType(row) for state, row in table.items()})
        for role, table in (
            (Role.ENDPOINT, _ENDPOINT_UTTERANCE),
            (Role.CLIENT, _CLIENT_UTTERANCE),
        )
    }
)
