"""The client under test as a running process, bounded in time, in output and in children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from .contract import Client, ContractError

__all__ = [
    "MOST_AUDIO_BYTES",
    "MOST_EVENT_BYTES",
    "Launcher",
    "Outcome",
    "ProcessSubject",
    "Subject",
    "launch",
]

MOST_AUDIO_BYTES: Final = 16 * 1024 * 1024
"""How much a client may write to stdout in one script: many times what any script sends."""

MOST_EVENT_BYTES: Final = 1024 * 1024
"""How much of its events, and of its stderr, is read."""

_READ: Final = 65_536
_AFTER_EXIT_S: Final = 1.0
_POLL_S: Final = 0.02
_TO_DIE_S: Final = 10.0
_LAST_WORDS: Final = 2_000


@dataclass(slots=True)
class Outcome:
    """What a client did, once it has ended.

    `status` is None where the suite ended it, and `killed` then says why.
    """

    status: int | None
    killed: str | None
    audio: bytes
    events: str
    last_words: str = ""
    cut: str | None = None
    """Why `events` may not be all of them."""


class Subject(Protocol):
    """A running client."""

    async def heard(self, at_least: int, within: float) -> bool:
        """Wait, at most so many seconds, until it has written so many bytes of audio."""
        ...

    async def say(self, line: str) -> None:
        """Write a line to its stdin."""
        ...

    async def end_input(self) -> None:
        """End its stdin."""
        ...

    async def finish(self, within: float) -> Outcome:
        """Wait for it to end, at most so many seconds; then end it, and all that it started."""
        ...

    async def kill(self, why: str) -> Outcome:
        """End it at once, and all that it started."""
        ...


class Launcher(Protocol):
    """Starts a client with the placeholders of its command filled in."""

    async def __call__(self, client: Client, values: Mapping[str, str]) -> Subject:
        """Start it.

        Raises:
            ContractError: it cannot be started.
        """
        ...


async def launch(client: Client, values: Mapping[str, str]) -> Subject:
    """Start the client as a process of its own; the `Launcher` of real runs.

    Raises:
        ContractError: there is no such command, or it cannot be run.
    """
    folder = tempfile.TemporaryDirectory(prefix="utterwire-client-", ignore_cleanup_errors=True)
    events = Path(folder.name) / "events.jsonl"
    command = client.filled({**values, "events": str(events)})
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A group of its own, so that whatever it starts can be ended with it.
            start_new_session=True,
        )
    except BaseException as error:
        # Also where the run is broken off while the process starts.
        folder.cleanup()
        if not isinstance(error, OSError | ValueError):
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ContractError(f"cannot run {command[0]}: {why}") from None
    return ProcessSubject(process, folder, events if client.names_events else None)


@dataclass(slots=True)
class _Gathered:
    """What came out of a pipe; beyond `most` bytes `over` is called and the rest is dropped."""

    most: int
    over: Callable[[], None]
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)

    ended: bool = False

    async def read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_READ):
            self.size += len(data)
            self.data += data[: max(0, self.most - len(self.data))]
            self.more.set()
            if self.size > self.most:
                self.over()
        self.ended = True
        self.more.set()


class ProcessSubject:
    """A `Subject` that is a process; see `launch`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        folder: tempfile.TemporaryDirectory[str],
        events: Path | None,
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._folder = folder
        self._events = events
        self._killed: str | None = None
        self._outcome: Outcome | None = None
        self._out = _Gathered(MOST_AUDIO_BYTES, self._floods)
        # A log may be long; its beginning holds the events, which are few.
        self._err = _Gathered(MOST_EVENT_BYTES, lambda: None)
        self._readers = (
            asyncio.create_task(self._out.read(process.stdout)),
            asyncio.create_task(self._err.read(process.stderr)),
        )

    async def heard(self, at_least: int, within: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._out.size < at_least and not self._out.ended:
                    await self._out.more.wait()
                    self._out.more.clear()
        return self._out.size >= at_least

    async def say(self, line: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # A client that reads nothing is found out by what it does not do.
        with contextlib.suppress(OSError, RuntimeError):
            stdin.write(line.encode() + b"\n")
            await stdin.drain()

    async def end_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()

    async def finish(self, within: float) -> Outcome:
        if not await self._exited(within):
            self._end(f"it was still running after {within:g} s")
        return await self._gather()

    async def kill(self, why: str) -> Outcome:
        self._end(why)
        return await self._gather()

    async def _exited(self, within: float) -> bool:
        """Wait for the process itself: `wait` waits for its pipes too, which a child may hold."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while self._process.returncode is None and loop.time() < until:
            if self._events is not None and _size(self._events) > MOST_AUDIO_BYTES:
                self._end(f"it wrote more than {MOST_AUDIO_BYTES} bytes of events")
            await asyncio.sleep(_POLL_S)
        return self._process.returncode is not None

    def _floods(self) -> None:
        self._end(f"it wrote more than {MOST_AUDIO_BYTES} bytes to stdout")

    def _end(self, why: str) -> None:
        if self._process.returncode is None and self._killed is None:
            self._killed = why
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _gather(self) -> Outcome:
        """What there is once the process has ended and its group is gone."""
        if self._outcome is not None:
            return self._outcome
        await self.end_input()
        await self._exited(_TO_DIE_S)
        status = self._process.returncode
        # What it wrote is in the pipes, which a child of its own may still hold open.
        _, late = await asyncio.wait(self._readers, timeout=0.1)
        self._kill_group()
        if late:
            _, late = await asyncio.wait(late, timeout=_AFTER_EXIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        # A child that left the group may hold the pipes for ever; they are closed from here.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()
        stderr = self._err.data.decode("utf-8", "replace")
        if self._events is None:
            place, events, over = "stderr", stderr, self._err.size > MOST_EVENT_BYTES
        else:
            place, over = "the file of events", _size(self._events) > MOST_EVENT_BYTES
            events = _read_events(self._events)
        self._folder.cleanup()
        self._outcome = Outcome(
            None if self._killed is not None else status,
            self._killed,
            bytes(self._out.data),
            events,
            stderr[-_LAST_WORDS:].strip(),
            f"it wrote more than {MOST_EVENT_BYTES} bytes to {place}" if over else None,
        )
        return self._outcome


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _read_events(path: Path) -> str:
    """The beginning of the file, if it is one: a pipe in its place would never end."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            return file.read(MOST_EVENT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
