"""Speeches where each utterance is a request of its own."""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from utterwire_client.backend import Backend
from utterwire_client.bell import Bell
from utterwire_client.errors import SessionLost, UtterwireError
from utterwire_client.events import Audio, Event, Start
from utterwire_client.utterance import Inbox, Request, Utterance

__all__ = ["RequestBackend"]

# Audio of one utterance that may wait to be read.
_BUFFER_BYTES = 1024 * 1024


class RequestBackend(Backend):
    """Speaks texts by requests that know nothing of each other; several run at once.

    Use it as an async context manager: it owns a task for each request, and leaving the block ends
    them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._requests: dict[Inbox, asyncio.Task[None]] = {}
        self._taken = Bell()
        self._closed = False

    @abstractmethod
    def check(self, request: Request) -> None:
        """Raises :class:`RequestInvalid` for what cannot be asked for."""

    @abstractmethod
    def events(self, request: Request) -> AsyncGenerator[Event]:
        """Make the request; yields what comes of it. Closing it gives the request up."""

    async def open(self) -> None:
        if self._closed:
            raise SessionLost("the backend was closed", retryable=False, processed=False)

    def synthesize(
        self,
        text: str,
        *,
        voice: str | None = None,
        speed: float | None = None,
        sample_rate: int | None = None,
        format: str | None = None,
        marks: Sequence[str] = (),
    ) -> Utterance:
        """Ask for an utterance; iterate over what is returned. ``marks`` are not asked for."""
        request = Request(text, voice, speed, sample_rate, format)
        self.check(request)
        inbox = Inbox(request, taken=self._taken.ring)
        task = asyncio.create_task(self._fill(inbox), name="utterwire-request")
        self._requests[inbox] = task
        task.add_done_callback(partial(self._filled, inbox))
        return Utterance(inbox, self._abandon)

    async def _fill(self, inbox: Inbox) -> None:
        try:
            async with contextlib.aclosing(self.events(inbox.request)) as events:
                async for event in events:
                    if isinstance(event, Start):
                        inbox.start = event
                    elif isinstance(event, Audio):
                        inbox.received_bytes += len(event.data)
                    inbox.put(event)
                    while inbox.buffered_bytes > _BUFFER_BYTES:
                        await self._taken.wait()
            inbox.end()
        except UtterwireError as exc:
            inbox.end(exc)

    def _filled(self, inbox: Inbox, task: asyncio.Task[None]) -> None:
        del self._requests[inbox]
        failure = None if task.cancelled() else task.exception()
        if not inbox.ended:
            why = "was given up" if failure is None else f"failed: {failure!r}"
            size = inbox.received_bytes
            lost = SessionLost(f"the request {why}", retryable=False, audio_bytes=size)
            lost.__cause__ = failure
            inbox.end(lost)

    def _abandon(self, inbox: Inbox) -> None:
        inbox.abandon()
        if inbox in self._requests:
            self._requests[inbox].cancel()

    async def interrupt(self, utterances: Sequence[Utterance]) -> bool:
        """Give utterances up; returns when their requests have ended."""
        tasks = [self._requests[u.inbox] for u in utterances if u.inbox in self._requests]
        for utterance in utterances:
            utterance.give_up()
        if tasks:
            await asyncio.wait(tasks)
        return True

    async def close(self) -> None:
        """End all speeches and all requests."""
        self._closed = True
        await self.end_speeches()
        tasks = tuple(self._requests.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
