"""Speeches over sessions: one after the other, where one is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from utterwire_client.backend import Backend
from utterwire_client.errors import UtterwireError
from utterwire_client.utterance import Utterance

if TYPE_CHECKING:
    from utterwire_client.session import Session

__all__ = ["SessionBackend"]


class SessionBackend(Backend):
    """Speaks in ``session``, and when that is over, in sessions that ``reopen`` makes.

    Those it owns: :meth:`leave` ends the last of them.
    """

    def __init__(
        self, session: "Session", reopen: Callable[[], Awaitable["Session"]] | None
    ) -> None:
        super().__init__()
        self._first = session
        self._session = session
        self._reopen = reopen
        self._opening = asyncio.Lock()
        self._left = False
        self._asked = 0

    async def open(self) -> None:
        async with self._opening:
            if self._session.usable or self._reopen is None or self._left:
                # A session that cannot be used says why when it is asked for something.
                return
            await self._end_successor()
            self._session = await self._reopen()

    def synthesize(
        self,
        text: str,
        *,
        voice: str | None,
        speed: float | None,
        sample_rate: int | None,
        format: str | None,
        marks: Sequence[str],
    ) -> Utterance:
        # By an id of its own each can be stopped alone, also before the endpoint has said anything.
        own = self._own_id() if self._session.interruptible is not False else None
        return self._session.synthesize(
            text,
            voice=voice,
            speed=speed,
            sample_rate=sample_rate,
            format=format,
            request_id=own,
            marks=marks if self._session.times_words is not False else (),
        )

    def _own_id(self) -> str:
        self._asked += 1
        while (own := f"speech-{self._asked}") in self._session.request_ids:
            self._asked += 1
        return own

    async def interrupt(self, utterances: Sequence[Utterance]) -> bool:
        return await self._session.interrupt(utterances)

    async def leave(self) -> None:
        """End all speeches, and the session that was opened here last."""
        self._left = True
        await self.end_speeches()
        await self._end_successor()

    async def _end_successor(self) -> None:
        session, self._session = self._session, self._first
        if session is not self._first:
            # Of a session that is over, all there was to tell was told by its utterances.
            with suppress(UtterwireError):
                await session.close()
