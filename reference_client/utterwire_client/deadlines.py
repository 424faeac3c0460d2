"""How long a client waits for a peer that says nothing (``protocol.md#timeouts``)."""

import math
from dataclasses import dataclass, fields

from utterwire_client.errors import RequestInvalid

__all__ = ["Deadlines"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds, each greater than 0; ``math.inf`` waits for ever.

    ``connect_s``: name look-up, TCP, TLS and the opening handshake together.
    ``first_chunk_s``: from an utterance's turn (its request, or the end of the utterance before
    it) to its first audio or its end.
    ``stall_s``: between two chunks of an utterance; also for sending one message, and for how long
    audio that nobody reads may hold up others.
    ``answer_s``: the answer to ``hello`` and to ``cancel``.
    ``close_s``: how long a closing session waits for a peer with nothing left to say.

    Raises :class:`RequestInvalid` (a ``ValueError``) for anything else.
    """

    connect_s: float = 10.0
    first_chunk_s: float = 30.0
    stall_s: float = 30.0
    answer_s: float = 10.0
    close_s: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or math.isnan(value) or value <= 0:
                raise RequestInvalid(
                    f"{field.name} is {value!r}: give a number of seconds greater than 0"
                )
