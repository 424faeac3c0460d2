"""Whether an endpoint as a whole has room for one more request."""

from __future__ import annotations

from typing import Protocol

from utterwire_protocol.messages import Synthesize

__all__ = ["Admission"]


class Admission(Protocol):
    """What a session asks of its endpoint when a valid request has come (``protocol.md#queue``)."""

    def room_in_s(self, request: Synthesize) -> float | None:
        """None if there is room for ``request``, which is accepted then; else after how many
        seconds there may be."""

    def turn_in_s(self) -> float | None:
        """After how many seconds one of this session's utterances will probably end; None if
        nobody can tell."""
