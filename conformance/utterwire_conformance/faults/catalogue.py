"""Where the faults of one area are gathered, each under a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from utterwire_conformance.proxy import ExchangeTamper, SessionTamper, Shared, Tap

from .fault import Fault
from .rewriting import (
    Accepts,
    ChangesChunks,
    ChangesMessages,
    ChunkChange,
    MessageChange,
    MessageTest,
    Refuses,
    RenamesCode,
)

__all__ = ["Catalogue"]

Breaks = str | tuple[str, ...]

_UNSEEN_BY: Final = {
    "reject.unclaimed-types": frozenset({"interrupt", "negotiate"}),
    "message.unclaimed-marks": frozenset({"timing"}),
}


class Catalogue:
    """A list of faults, with a short way to add each common kind.

    `breaks` is one requirement id, or several where none can be broken without the others.
    """

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults.values())

    def add(
        self,
        name: str,
        explanation: str,
        breaks: Breaks,
        session: Callable[[Shared, Tap], SessionTamper] = SessionTamper,
        exchange: Callable[[Shared], ExchangeTamper] = ExchangeTamper,
    ) -> None:
        """Add a fault with tampers of its own.

        Raises:
            ValueError: the name is taken, or `Fault` refuses what it is given.
        """
        if name in self._faults:
            raise ValueError(f"there are two faults {name}")
        ids = (breaks,) if isinstance(breaks, str) else breaks
        lacks = _UNSEEN_BY.get(ids[0], frozenset())
        self._faults[name] = Fault(name, explanation, ids, session, exchange, lacks)

    def accepts(self, name: str, explanation: str, breaks: Breaks, when: MessageTest) -> None:
        """Messages that `when` picks are accepted."""
        self.add(name, explanation, breaks, partial(Accepts, when=when))

    def refuses(
        self, name: str, explanation: str, breaks: Breaks, when: MessageTest, code: str
    ) -> None:
        """Messages that `when` picks are rejected with `code`."""
        self.add(name, explanation, breaks, partial(Refuses, when=when, code=code))

    def renames(
        self, name: str, explanation: str, breaks: Breaks, when: MessageTest, code: str
    ) -> None:
        """Messages that `when` picks are rejected with the wrong code."""
        self.add(name, explanation, breaks, partial(RenamesCode, when=when, code=code))

    def rewrites(
        self, name: str, explanation: str, breaks: Breaks, when: MessageTest, into: MessageChange
    ) -> None:
        """Messages that `when` picks are taken for others."""
        self.add(name, explanation, breaks, partial(ChangesMessages, when=when, into=into))

    def chunks(self, name: str, explanation: str, breaks: Breaks, change: ChunkChange) -> None:
        """Chunks come back changed; `change` sees each by itself."""
        self.add(name, explanation, breaks, partial(ChangesChunks, change=change))
