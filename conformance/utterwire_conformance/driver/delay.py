"""How late the suite itself was, so that its own delays are no fault of an endpoint."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Final, Self

__all__ = ["OwnDelay"]

_EVERY_S: Final = 0.01
# Connecting, sending, reading.
_STEPS: Final = 3


class OwnDelay:
    """Watches the event loop while the block runs.

    `took` is how long the block ran. `own` is how much of that, at most, the suite was late with
    what it had to do in the block: the loop was busy with something else, or the machine did not
    let it run. An exchange is a few steps, each late once. Both are in seconds.
    """

    def __init__(self) -> None:
        self.took = 0.0
        self._delays: list[float] = []
        self._began = 0.0
        self._watcher: asyncio.Task[None] | None = None

    @property
    def own(self) -> float:
        """The part of `took` that may be the suite's."""
        # The last delay ends after the block did.
        return min(self.took, sum(sorted(self._delays)[-_STEPS:]))

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.took = time.monotonic() - self._began
        assert self._watcher is not None
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await asyncio.sleep(_EVERY_S)
            finally:
                self._delays.append(max(0.0, time.monotonic() - began - _EVERY_S))
