"""Blocking calls beside the event loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["SideThread"]

T = TypeVar("T")


class SideThread:
    """Runs one blocking call after the other beside the event loop.

    ``run`` waits for its call, so that nothing piles up. The thread is a daemon: a write that
    blocks for ever in a pipe that nobody reads does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="utterwire-side", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def run(self, function: Callable[[], T]) -> T:
        """What ``function`` returns or raises; if cancelled, it still runs to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(settle_future: Callable[[], None]) -> None:
            if not future.done():
                settle_future()

        def call() -> None:
            try:
                result = function()
            except Exception as exc:
                outcome = partial(future.set_exception, exc)
            else:
                outcome = partial(future.set_result, result)
            # The loop is closed where nobody waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, outcome)

        self._calls.put(call)
        return await future

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Let the thread end after the calls it was given and, if there is one, after ``last``."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)
