"""``utterwire lines``: each line of stdin is spoken, audio goes to stdout, events beside it.

This is the contract of clients that the conformance suite judges (``conformance/README.md``), and
a way to speak from programs in any language.
"""

import asyncio
import contextlib
import json
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, TextIO

from utterwire_client.backoff import Backoff
from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import (
    ConnectFailed,
    ExtraMissing,
    PeerViolation,
    RequestInvalid,
    SessionLost,
    UtteranceCancelled,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, Event, Start
from utterwire_client.session import Session, connect
from utterwire_client.utterance import Utterance

__all__ = ["PROFILES", "EventWriter", "LineReader", "LineSpeaker", "Profile"]

#: What of the protocol may be used to speak lines.
Profile = Literal["core", "interrupt", "negotiate", "http", "sse"]
PROFILES: tuple[Profile, ...] = ("core", "interrupt", "negotiate", "http", "sse")

# Lines that the thread has read and nobody has taken yet.
_MOST_LINES = 64
# Lines whose audio was not written yet: enough for any text that somebody might interrupt.
_MOST_WAITING = 1024


class EventWriter:
    """Writes events as JSON lines; a stream that takes nothing any more is let go."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, event: str, **fields: Any) -> None:
        """Write one event; fields that are None are left out."""
        present = {name: value for name, value in fields.items() if value is not None}
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps({"event": event, **present}) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


class LineReader:
    """Reads lines in a thread of its own, since a pipe or a file may hold up whoever reads it.

    Iterate over it: text for each line, without its end; the end of the input ends it. What is not
    UTF-8 raises :class:`RequestInvalid`.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_MOST_LINES)
        self._loop = asyncio.get_running_loop()
        # One that waits for input must not keep the program from ending.
        threading.Thread(target=self._read, name="utterwire-lines", daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError, OSError, ValueError):  # the loop or the input ended
            for line in self._stream:
                self._put(line)
            self._put(None)

    def _put(self, line: bytes | None) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def __aiter__(self) -> "LineReader":
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        self._room.release()
        if line is None:
            raise StopAsyncIteration
        try:
            return line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as exc:
            raise RequestInvalid(f"a line is not UTF-8 (byte {exc.start})") from None


@dataclass(eq=False, slots=True)
class _Line:
    """One line; ``number`` counts from 1."""

    number: int
    text: str
    utterance: Utterance | None = None
    written: int = 0
    silenced: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    tries: int = 0


class LineSpeaker:
    """Speaks lines, in their order, and tries again where that is worth it.

    Over a session all lines are asked for as they come; over HTTP one after the other. An empty
    line is an interruption: what is being spoken and what waits is stopped, and none of its audio
    that was not written yet is written any more. A line is asked for again, ``retries`` times at
    most, if the failure was one that may pass and nothing of it was heard yet. While 1,024 lines
    wait, no more are read.

    ``write`` gets the audio. ``failures`` holds what befell the lines that were not spoken.
    """

    def __init__(
        self,
        url: str,
        *,
        profile: Profile,
        headers: Sequence[tuple[str, str]],
        tls: ssl.SSLContext | None,
        deadlines: Deadlines,
        retries: int,
        voice: str | None,
        write: Callable[[bytes], Awaitable[None]],
        events: EventWriter,
    ) -> None:
        self._url = url
        self._profile: Profile = profile
        self._headers = headers
        self._tls = tls
        self._deadlines = deadlines
        self._retries = retries
        self._voice = voice
        self._write = write
        self._events = events
        self._connection: connect | None = None
        self._session: Session | None = None
        self._lines: deque[_Line] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._stopped = asyncio.Event()
        self._ended = False
        self._warned: set[str] = set()
        self.failures: list[UtterwireError] = []

    @property
    def _by_session(self) -> bool:
        return self._profile not in ("http", "sse")

    async def speak(self, lines: AsyncIterator[str]) -> None:
        """Speak until the input ends and everything was spoken, then end the session.

        Raises what writing raises, and :class:`RequestInvalid` for input that is no text.
        """
        try:
            await self._speak(lines)
        except BaseException as exc:
            await self._leave(exc)
            raise
        await self._leave_quietly()

    async def _speak(self, lines: AsyncIterator[str]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(lines))
                group.create_task(self._play())
        except* (OSError, UtterwireError) as errors:
            failed = errors.exceptions[0]
        else:
            return
        raise failed

    async def _leave(self, exc: BaseException | None) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        kind = type(exc) if exc is not None else None
        await connection.__aexit__(kind, exc, None)

    # -- lines in

    async def _read(self, lines: AsyncIterator[str]) -> None:
        number = 0
        async for text in lines:
            if not text:
                await self._interrupt()
                continue
            number += 1
            line = _Line(number, text)
            self._lines.append(line)
            self._ask_ahead()
            self._changed.set()
            while len(self._lines) >= _MOST_WAITING:
                self._room.clear()
                await self._room.wait()
        self._ended = True
        self._changed.set()

    def _ask_ahead(self) -> None:
        """Ask for all lines, as far as there is a session to ask in."""
        session = self._session
        if session is None or session.closed:
            return
        for line in self._lines:
            if line.utterance is None and not line.tries and not line.silenced:
                # What is wrong with it is told when it is its turn.
                with contextlib.suppress(UtterwireError):
                    line.utterance = session.synthesize(line.text, voice=self._voice)

    async def _interrupt(self) -> None:
        for line in self._lines:
            line.silenced = True
        self._stopped.set()
        session = self._session
        if session is None or session.closed or all(line.utterance is None for line in self._lines):
            return
        try:
            await session.cancel()
        except UtterwireError:
            # It cannot be told to stop: what it still sends is dropped.
            for line in self._lines:
                if line.silenced and line.utterance is not None:
                    await line.utterance.aclose()

    # -- audio out

    async def _play(self) -> None:
        while True:
            while self._lines:
                await self._play_line(self._lines[0])
                self._lines.popleft()
                self._room.set()
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()

    async def _play_line(self, line: _Line) -> None:
        while True:
            try:
                if line.silenced:
                    raise UtteranceCancelled("interrupted")
                await self._hear(line)
                return
            except ExtraMissing:
                raise
            except UtteranceCancelled:
                self._events.write("cancelled", utterance=line.number, audio_bytes=line.written)
                return
            except UtterwireError as exc:
                if not await self._again(line, exc):
                    self._failed(line, exc)
                    return

    async def _hear(self, line: _Line) -> None:
        if self._by_session:
            utterance = await self._asked(line)
            async for event in utterance:
                await self._heard(line, event)
                if isinstance(event, Complete):
                    utterance.demand_whole(event)
        else:
            from utterwire_client.http import http_utterance

            events = http_utterance(
                self._url,
                line.text,
                transport="sse" if self._profile == "sse" else "http",
                voice=self._voice,
                headers=self._headers,
                ssl=self._tls,
                deadlines=self._deadlines,
                on_violation=self._warn,
            )
            async with contextlib.aclosing(events):
                async for event in events:
                    await self._heard(line, event)
        if line.silenced:
            raise UtteranceCancelled("interrupted")
        self._events.write("complete", utterance=line.number, audio_bytes=line.written)

    async def _heard(self, line: _Line, event: Event) -> None:
        if line.silenced:
            if not self._by_session:
                raise UtteranceCancelled("interrupted")
            return  # the endpoint was told, and will end it
        if isinstance(event, Start):
            self._events.write(
                "start",
                utterance=line.number,
                sample_rate=event.sample_rate,
                format=event.format,
            )
        elif isinstance(event, Audio):
            await self._write(event.data)
            line.written += len(event.data)

    async def _asked(self, line: _Line) -> Utterance:
        """The utterance of a line, in a session that is opened for it if there is none."""
        if self._session is None or self._session.closed:
            if line.utterance is not None:
                return line.utterance  # what came of it is told by reading it
            await self._leave_quietly()
            connection = connect(
                self._url,
                headers=self._headers,
                ssl=self._tls,
                deadlines=self._deadlines,
                negotiate=self._profile == "negotiate",
                on_violation=self._warn,
            )
            self._session = await connection.__aenter__()
            self._connection = connection
        if line.utterance is None:
            line.utterance = self._session.synthesize(line.text, voice=self._voice)
        self._ask_ahead()
        return line.utterance

    async def _leave_quietly(self) -> None:
        # Of a session that is over, all there was to tell was told by its utterances.
        with contextlib.suppress(UtterwireError):
            await self._leave(None)

    async def _again(self, line: _Line, exc: UtterwireError) -> bool:
        """Wait before the next try; False if there is to be none."""
        if not exc.retryable or line.tries >= self._retries or line.written or line.silenced:
            return False
        line.tries += 1
        line.utterance = None
        seconds = line.backoff.wait_s(getattr(exc, "retry_after_s", None))
        self._stopped.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return True

    def _failed(self, line: _Line, exc: UtterwireError) -> None:
        self.failures.append(exc)
        untouched = isinstance(exc, ConnectFailed | RequestInvalid) or (
            isinstance(exc, SessionLost) and exc.processed is False
        )
        self._events.write(
            "failed",
            utterance=line.number,
            audio_bytes=line.written,
            code=getattr(exc, "code", None) if not isinstance(exc, SessionLost) else None,
            processed=False if untouched else None,
            message=str(exc),
        )

    def _warn(self, violation: PeerViolation) -> None:
        if violation.requirement not in self._warned:
            self._warned.add(violation.requirement)
            self._events.write("warning", requirement=violation.requirement, message=str(violation))
