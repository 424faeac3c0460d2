"""What the core tells its user: frozen, validated when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from utterwire_protocol.control import Word
from utterwire_protocol.states import UtteranceState
from utterwire_protocol.utterance import Utterance

__all__ = [
    "AudioChunk",
    "CancelDone",
    "CancelReceived",
    "Cancelled",
    "CloseReceived",
    "ErrorReceived",
    "Event",
    "HelloReceived",
    "KeepaliveReceived",
    "MarksReceived",
    "MessageIgnored",
    "MessageRejected",
    "ProtocolViolation",
    "SessionClosed",
    "SessionEnded",
    "SessionReceived",
    "SynthesisComplete",
    "SynthesisStart",
    "SynthesizeReceived",
    "UnknownControl",
    "UtteranceEnded",
]


def _positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")


def _natural(name: str, value: float | None) -> None:
    if value is not None and not value >= 0:
        raise ValueError(f"{name} must be 0 or more, not {value}")


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Base of all events about one client message, ``seq`` its ordinal from 1."""

    seq: int

    def __post_init__(self) -> None:
        _positive("seq", self.seq)


# Endpoint


@dataclass(frozen=True, slots=True)
class SynthesizeReceived:
    """A request was accepted: the utterance waits to be started."""

    utterance: Utterance

    @property
    def seq(self) -> int:
        """Ordinal of the message."""
        return self.utterance.seq


@dataclass(frozen=True, slots=True)
class MessageRejected(_Numbered):
    """A message was rejected; its ``error`` is queued. ``requirement`` is the broken rule."""

    code: str
    message: str
    request_id: str | None
    requirement: str


@dataclass(frozen=True, slots=True)
class CancelReceived(_Numbered):
    """A ``cancel`` was carried out: the utterances of ``stopped`` have ended, and nothing more of
    them is wanted from the engine. All answers are queued."""

    stopped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CloseReceived(_Numbered):
    """``close``: what was accepted is to be finished, nothing more comes."""


@dataclass(frozen=True, slots=True)
class KeepaliveReceived(_Numbered):
    """``keepalive``: nothing to do."""


@dataclass(frozen=True, slots=True)
class HelloReceived(_Numbered):
    """A ``hello`` was accepted and answered; ``versions`` as it named them."""

    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessageIgnored(_Numbered):
    """A message after ``close``, or after the end: counted, not answered."""


# Both roles


@dataclass(frozen=True, slots=True)
class UtteranceEnded(_Numbered):
    """An utterance ended early, by the end of its session and not by a message about itself.

    ``state``: FAILED (ended by the endpoint, the error is queued), CANCELLED (the client is gone),
    or at the client LOST. ``audio_bytes``: handed over, or read. ``unprocessed``: the endpoint said
    that the request had no effect, so that it can be sent again elsewhere (``client.last-seq``).
    """

    state: UtteranceState
    request_id: str | None = None
    audio_bytes: int = 0
    unprocessed: bool = False

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        _natural("audio_bytes", self.audio_bytes)


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is over. ``reason`` is that of ``session_closed``, or ``transport_lost``."""

    reason: str


# Client


@dataclass(frozen=True, slots=True)
class SynthesisStart(_Numbered):
    """An utterance begins; ``sample_rate`` in Hz.

    ``implied``: the endpoint sent none; rate and format are those asked for, or the defaults, and
    ``voice`` may be unknown.
    """

    request_id: str | None
    sample_rate: int
    format: str
    voice: str | None
    implied: bool = False

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        _positive("sample_rate", self.sample_rate)


@dataclass(frozen=True, slots=True)
class AudioChunk(_Numbered):
    """Audio of an utterance, in its format; not empty."""

    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        if not self.data:
            raise ValueError("audio must not be empty")


@dataclass(frozen=True, slots=True)
class SynthesisComplete(_Numbered):
    """All audio of an utterance has come. What the endpoint left out is None; times in seconds.

    ``audio_bytes`` is what the endpoint says it sent, ``received_bytes`` what came.
    """

    request_id: str | None
    total_duration_s: float | None
    elapsed_s: float | None
    audio_bytes: int | None
    characters: int | None
    received_bytes: int

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        for name in (
            "total_duration_s",
            "elapsed_s",
            "audio_bytes",
            "characters",
            "received_bytes",
        ):
            _natural(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class ErrorReceived:
    """An utterance failed, or (``rejected``) a message was not accepted.

    ``seq`` is None where the error belongs to no message that could be told. ``retry_after_s``:
    seconds to wait before asking again, where the endpoint said so.
    """

    seq: int | None
    request_id: str | None
    code: str
    message: str
    retryable: bool
    rejected: bool
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        _natural("retry_after_s", self.retry_after_s)


@dataclass(frozen=True, slots=True)
class Cancelled(_Numbered):
    """An utterance was cut short; bytes as in ``SynthesisComplete``."""

    request_id: str | None
    audio_bytes: int | None
    received_bytes: int

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        _natural("audio_bytes", self.audio_bytes)
        _natural("received_bytes", self.received_bytes)


@dataclass(frozen=True, slots=True)
class CancelDone(_Numbered):
    """The ``cancel`` of this ``seq`` was carried out; it stopped ``count`` utterances."""

    request_id: str | None
    count: int | None

    def __post_init__(self) -> None:
        _positive("seq", self.seq)
        _natural("count", self.count)


@dataclass(frozen=True, slots=True)
class MarksReceived(_Numbered):
    """When words of an utterance are spoken."""

    request_id: str | None
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SessionReceived:
    """The answer to ``hello``. ``limits`` holds the numbers of ``protocol.md#limits`` that were
    given; what was left out of the lists is empty."""

    protocol_version: int
    session_id: str | None
    profiles: frozenset[str]
    limits: Mapping[str, float]
    voices: tuple[str, ...]
    formats: tuple[str, ...]
    sample_rates: tuple[int, ...]

    def __post_init__(self) -> None:
        _positive("protocol_version", self.protocol_version)


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The endpoint ended the session: nothing more comes, and the client closes the transport.

    Messages above ``last_seq`` that got no answer were not processed. ``retry_after_s``: seconds
    to wait before another session, where told.
    """

    reason: str
    last_seq: int | None
    retry_after_s: float | None

    def __post_init__(self) -> None:
        _natural("last_seq", self.last_seq)
        _natural("retry_after_s", self.retry_after_s)


@dataclass(frozen=True, slots=True)
class UnknownControl:
    """A control message of a type that version 1 does not know: to be skipped."""

    type: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """The endpoint broke a rule that the client can live with; the session goes on."""

    requirement: str
    message: str

    def __post_init__(self) -> None:
        if not self.requirement or not self.message:
            raise ValueError("a violation names its requirement and says what happened")


Event = (
    SynthesizeReceived
    | MessageRejected
    | CancelReceived
    | CloseReceived
    | KeepaliveReceived
    | HelloReceived
    | MessageIgnored
    | UtteranceEnded
    | SessionEnded
    | SynthesisStart
    | AudioChunk
    | SynthesisComplete
    | ErrorReceived
    | Cancelled
    | CancelDone
    | MarksReceived
    | SessionReceived
    | SessionClosed
    | UnknownControl
    | ProtocolViolation
)
