"""One request to speak, and what has become of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from utterwire_protocol.errors import LocalProtocolError
from utterwire_protocol.states import (
    UTTERANCE_TRANSITIONS,
    Role,
    UtteranceInput,
    UtteranceState,
)

__all__ = ["Utterance"]

_UNENDED = frozenset({UtteranceState.WAITING, UtteranceState.RUNNING, UtteranceState.FINISHING})


@dataclass(frozen=True, slots=True)
class Utterance:
    """A request and its state, as it was when it was asked for.

    ``seq``: ordinal of the message that asked for it. ``speed``: a factor, None where the client
    left it to the endpoint, as ``voice``, ``sample_rate`` (Hz) and ``format``; at the endpoint all
    are filled in. ``marks``: kinds of marks wanted. ``audio_bytes``: payload bytes handed to the
    transport so far; at the client: read so far. The text is private and not shown in ``repr``.
    """

    seq: int
    request_id: str | None
    text: str = field(repr=False)
    voice: str | None
    speed: float | None
    sample_rate: int | None
    format: str | None
    marks: tuple[str, ...] = ()
    state: UtteranceState = UtteranceState.WAITING
    audio_bytes: int = 0

    def __post_init__(self) -> None:
        if self.seq < 1:
            raise ValueError(f"seq must be 1 or more, not {self.seq}")
        if self.audio_bytes < 0:
            raise ValueError("audio_bytes must be 0 or more")

    @property
    def unended(self) -> bool:
        """Whether its terminal message is still to come."""
        return self.state in _UNENDED

    def after(self, role: Role, event: UtteranceInput) -> Utterance:
        """The same utterance after ``event``.

        Raises ``LocalProtocolError`` where the table has no such move.
        """
        move = UTTERANCE_TRANSITIONS[role][self.state].get(event)
        if move is None:
            raise LocalProtocolError(
                f"utterance {self.seq} is {self.state.value}: {event.value} is not possible"
            )
        return self if move is self.state else replace(self, state=move)

    def with_audio(self, count: int) -> Utterance:
        """The same utterance with ``count`` more bytes of audio."""
        return replace(self, audio_bytes=self.audio_bytes + count)
