"""One call of the router, whatever version of HTTP it came by."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from typing import Protocol

__all__ = ["Call", "CallerGone", "Inflow", "WebHandler"]


class CallerGone(Exception):
    """Who called has gone, so that nothing can be read or answered any more."""


class Inflow:
    """The body of a call as it comes: one reader, bounded by the window that the protocol gave.

    A reader that is cancelled loses nothing.
    """

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._ended = self._lost = False
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """More has come."""
        self._pieces.append(data)
        self._changed.set()

    def end(self) -> None:
        """The body has come to its end."""
        self._ended = True
        self._changed.set()

    def lose(self) -> None:
        """The caller is gone; what had come is not read either."""
        self._lost = True
        self._changed.set()

    @property
    def lost(self) -> bool:
        """Whether the caller is gone."""
        return self._lost

    @property
    def at_end(self) -> bool:
        """Whether all of the body has come."""
        return self._ended

    async def drain(self) -> None:
        """Read and drop what comes, to the end or until the caller is gone."""
        with contextlib.suppress(CallerGone):
            while await self.read() is not None:
                pass

    async def read(self) -> bytes | None:
        """The next piece, None at the end.

        Raises:
            CallerGone: before the end.
        """
        while True:
            if self._lost:
                raise CallerGone
            if self._pieces:
                return self._pieces.popleft()
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()


class Call(Protocol):
    """A request that is being answered. Everything but `reset` may raise `CallerGone`."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    """By name in lower case; `host` is among them."""
    version: str

    async def receive(self) -> bytes | None:
        """The next piece of the body, None at its end; may be cancelled."""
        ...

    async def respond(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head of the answer."""
        ...

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer; waits until it was taken."""
        ...

    async def end(self) -> None:
        """End the answer."""
        ...

    def reset(self) -> None:
        """Break this call off, and leave the connection, where the protocol can."""
        ...

    def reset_connection(self) -> None:
        """Break the connection off (TCP reset)."""
        ...

    def go_away(self) -> None:
        """Tell the caller that the connection ends (GOAWAY), and end it."""
        ...


class WebHandler(Protocol):
    """What answers calls."""

    async def __call__(self, call: Call) -> None:
        """Answer one call."""
        ...
