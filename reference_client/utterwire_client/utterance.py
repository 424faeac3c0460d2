"""One utterance, from the side of who listens to it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from utterwire_client.bell import Bell
from utterwire_client.errors import AudioMissing, UtteranceCancelled, UtterwireError
from utterwire_client.events import Audio, Complete, Event, Start

__all__ = ["Inbox", "Request", "Utterance"]

# What one event weighs beside its audio, so that a peer which sends single samples is held up too.
_EVENT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Request:
    """The fields of one ``synthesize`` (``protocol.md#synthesize``); None is absent."""

    text: str
    voice: str | None = None
    speed: float | None = None
    sample_rate: int | None = None
    format: str | None = None
    request_id: str | None = None
    marks: tuple[str, ...] = ()


class Inbox:
    """What has arrived of an utterance and was not read yet: the session puts, one reader takes.

    ``taken`` is called when the reader took an event, began to wait or went away; the session
    keeps the size bounded by not reading on (see :class:`~utterwire_client.session.Session`).
    ``watch``, where it is set, is called when the utterance has ended. ``submitted_at`` and
    ``first_audio_at`` are times of the event loop: when it was asked for (made, unless the backend
    says later), and when its first audio came, None before that.
    """

    def __init__(self, request: Request, *, taken: Callable[[], None]) -> None:
        self.request = request
        self.request_id = request.request_id
        self.seq: int | None = None
        self.submitted_at = asyncio.get_running_loop().time()
        self.first_audio_at: float | None = None
        self.start: Start | None = None
        self.received_bytes = 0
        self.buffered_bytes = 0
        self.ended = False
        self.abandoned = False
        self.cancel_sent = False
        self.carry = b""
        self.misaligned = False
        self._events: deque[tuple[Event, int]] = deque()
        self.failure: UtterwireError | None = None
        self.watch: Callable[[], None] | None = None
        self._error: UtterwireError | None = None
        self._bell = Bell()
        self._taken = taken

    @property
    def starving(self) -> bool:
        """Whether the reader waits for something that has not arrived."""
        return bool(self._bell)

    def put(self, event: Event) -> None:
        if self.first_audio_at is None and isinstance(event, Audio):
            self.first_audio_at = asyncio.get_running_loop().time()
        if self.abandoned:
            return
        weight = _EVENT_BYTES + (len(event.data) if isinstance(event, Audio) else 0)
        self.buffered_bytes += weight
        self._events.append((event, weight))
        self._bell.ring()

    def end(self, error: UtterwireError | None = None, *, drop: bool = False) -> None:
        """Nothing more will be put; ``error`` is raised to the reader after what is there.

        ``drop`` throws away what was not read yet.
        """
        self.ended = True
        self.failure = error
        if drop:
            self._drop()
        if not self.abandoned:
            self._error = error
        self._bell.ring()
        if self.watch is not None:
            self.watch()

    def abandon(self) -> None:
        """The reader is gone: what is there and what will come is thrown away."""
        if self.abandoned:
            return
        if not self.ended:
            self._error = UtteranceCancelled(
                "the utterance was given up before its end",
                request_id=self.request_id,
                audio_bytes=self.received_bytes,
            )
        self.abandoned = True
        self._drop()
        self._bell.ring()
        self._taken()

    def _drop(self) -> None:
        self._events.clear()
        self.buffered_bytes = 0

    async def take(self) -> Event:
        while not self._events:
            if self.ended or self.abandoned:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            if self._bell:
                raise RuntimeError("another task is already reading this utterance")
            self._taken()
            await self._bell.wait()
        event, weight = self._events.popleft()
        self.buffered_bytes -= weight
        self._taken()
        return event


class Utterance:
    """One utterance: iterate over it for its events.

    ``async for event in utterance`` yields ``Start``, ``Audio``, ``Marks`` and ``Complete`` and
    ends after ``Complete``; any other end raises an
    :class:`~utterwire_client.errors.UtterwireError`. Whoever stops before the end gives the
    utterance up: by leaving the loop and letting go of this object, by ``aclose``, at the end of an
    ``async with`` block, or by having the read cancelled. The endpoint is then told to stop, if it
    can be; what it still sends is thrown away, and the session's other utterances go on.
    """

    def __init__(self, inbox: Inbox, abandon: Callable[[Inbox], None]) -> None:
        self._inbox = inbox
        self._abandon = abandon
        self._loop = asyncio.get_running_loop()

    @property
    def request_id(self) -> str | None:
        """The id it was sent with: the caller's, else the session's own, if any."""
        return self._inbox.request_id

    @property
    def seq(self) -> int | None:
        """Which message of the session asked for it (``protocol.md#seq``); None while it waits for
        the endpoint to have room."""
        return self._inbox.seq

    @property
    def received_bytes(self) -> int:
        """How much of its audio has arrived so far, read or not."""
        return self._inbox.received_bytes

    @property
    def inbox(self) -> Inbox:
        """What has arrived of it: for who makes utterances, not for who reads them."""
        return self._inbox

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self._inbox.take()
        except asyncio.CancelledError:
            self._abandon(self._inbox)
            raise

    async def read(self) -> bytes:
        """All of its audio at once. Raises what iterating raises, and :class:`AudioMissing`."""
        pieces = []
        async for event in self:
            if isinstance(event, Audio):
                pieces.append(event.data)
            elif isinstance(event, Complete):
                self.demand_whole(event)
        return b"".join(pieces)

    def demand_whole(self, complete: Complete) -> None:
        """Raises :class:`AudioMissing` if less came than the endpoint says it sent."""
        if complete.missing_bytes:
            raise AudioMissing(
                f"the audio has a hole: {complete.received_bytes} of "
                f"{complete.audio_bytes} bytes came",
                audio_bytes=complete.received_bytes,
                missing_bytes=complete.missing_bytes,
                request_id=self.request_id,
            )

    def give_up(self) -> None:
        """Give up what is left of it; does nothing after its end."""
        self._abandon(self._inbox)

    async def aclose(self) -> None:
        """The same, for ``contextlib.aclosing``."""
        self.give_up()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # `break` leaves no other trace than the loss of the last reference.
        inbox = getattr(self, "_inbox", None)
        if inbox is None or inbox.abandoned or (inbox.ended and not inbox.buffered_bytes):
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._abandon(inbox)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: so is the session
                self._loop.call_soon_threadsafe(self._abandon, inbox)
