"""Places at an endpoint that takes only so many connections at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

__all__ = ["Connection", "Places"]


class Connection(Protocol):
    """What is counted."""

    @property
    def over(self) -> bool:
        """Whether it holds no place any more."""


class Places:
    """Shared by all that is played at the same time, so that it keeps to the limit together.

    `limit` is how many connections may be open at once; None as long as nobody knows of one. Who
    plays reserves all the places it will need in one go, since two that each wait for one more
    would wait for each other.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.learned = False
        """Whether the limit was found by being turned away."""
        self._connections: list[Connection] = []
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def occupy(self, connection: Connection) -> None:
        """Count a connection until it is over."""
        self._connections.append(connection)

    @property
    def open(self) -> int:
        """How many connections are open now."""
        self._connections = [each for each in self._connections if not each.over]
        return len(self._connections)

    def learn(self, limit: int) -> None:
        """Take it that no more than so many are let in, if that is less than was known."""
        limit = max(1, limit)
        if self.limit is None or limit < self.limit:
            self.limit, self.learned = limit, True

    def fitting(self, most: int) -> int:
        """How many may be open at once where `most` would be wanted."""
        return most if self.limit is None else min(most, self.limit)

    @asynccontextmanager
    async def reserved(self, count: int) -> AsyncIterator[int]:
        """Hold places as long as it lasts; how many they are, no more than there are at all."""
        count = self.fitting(count)
        await self._take(count)
        try:
            yield count
        finally:
            self._reserved -= count
            self._admit()

    async def _take(self, count: int) -> None:
        if not self._waiting and self._fits(count):
            self._reserved += count
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._reserved -= count
            elif (count, turn) in self._waiting:
                # Who left before may have passed over it already.
                self._waiting.remove((count, turn))
            self._admit()
            raise

    def _fits(self, count: int) -> bool:
        # What was reserved before a limit became known may be above it for a while.
        return self.limit is None or not self._reserved or self._reserved + count <= self.limit

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            count, turn = self._waiting.popleft()
            if not turn.done():
                self._reserved += count
                turn.set_result(None)
