"""One session for all who speak in it, opened by the first of them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeAlias

from utterwire_client.backend import Backend
from utterwire_client.session import Session, connect

__all__ = ["Opener", "SharedSession"]

#: An address, or what opens a session or another backend: ``lambda: connect(url, headers=...)``.
Opener: TypeAlias = str | Callable[[], AbstractAsyncContextManager[Session | Backend]]


class SharedSession:
    """Opens a session when it is first asked for, and keeps it until :meth:`aclose`."""

    def __init__(self, endpoint: Opener) -> None:
        self._open = (lambda: connect(endpoint)) if isinstance(endpoint, str) else endpoint
        self._opening = asyncio.Lock()
        self._exit = AsyncExitStack()
        self._session: Session | Backend | None = None

    async def get(self) -> Session | Backend:
        """The session. Raises what opening it raises, and tries again when it is asked again."""
        async with self._opening:
            if self._session is None:
                self._session = await self._exit.enter_async_context(self._open())
            return self._session

    async def aclose(self) -> None:
        """End the session, if it was opened or is just being; it is opened anew for whoever asks
        after that."""
        async with self._opening:
            self._session = None
            await self._exit.aclose()
