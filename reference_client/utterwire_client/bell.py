"""Waking everybody who waits for something to change."""

import asyncio

__all__ = ["Bell"]


class Bell:
    """``wait`` returns at the next ``ring``; a ring that nobody waits for is forgotten.

    So a waiter first looks whether what it wants is there, and waits if not, without awaiting
    anything in between.
    """

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiters)

    def ring(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
