"""Where speech is heard: players that follow a clock, and can be silenced at once."""

import asyncio
import contextlib
import importlib
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from utterwire_client.bell import Bell
from utterwire_client.errors import ExtraMissing, RequestInvalid
from utterwire_client.events import SAMPLE_BYTES, Start
from utterwire_client.playback import Playback
from utterwire_client.side_thread import SideThread
from utterwire_client.sink import FileSink, Sink, WavContainer

__all__ = ["DevicePlayer", "Player", "StreamPlayer", "WavPlayer"]

#: Audio that may wait in a player, in seconds; past that, playing waits.
MAX_QUEUED_S = 60.0

# Silence of one sample, of the formats that have a fixed number of bytes for each.
_SILENCE = {"pcm_s16le": b"\0\0", "mulaw": b"\xff", "alaw": b"\xd5"}

# A device that does not say how it fares is looked at again after so long, in seconds.
_LOOK_S = 0.02


class Player:
    """A player without an output: whoever reads the audio plays it, at once and without a pause.

    It is the base of those that have one, and what a speech goes by if it is given none.
    ``playback`` is the model of what was heard. ``clock`` returns seconds; None takes the monotonic
    clock. ``lead_s`` holds back the first audio after silence, so that late pieces make no gap.
    Used as an async context manager, it plays the rest of what it has when the block is left, or
    falls silent if that is by an exception.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None, lead_s: float = 0.0) -> None:
        self.playback = Playback(lead_s=lead_s)
        self._clock = clock or time.monotonic
        self._changed = Bell()

    async def play(self, data: bytes, start: Start) -> None:
        """Play a piece of the utterance that began with ``start``; may wait for room, not for the
        sound.

        Raises :class:`RequestInvalid` for a format that this player does not play, ``OSError``.
        """
        self._queue(data, start)

    def _queue(self, data: bytes, start: Start) -> float:
        """Tell the model of audio; returns when it is scheduled."""
        width = SAMPLE_BYTES.get(start.format)
        # The length of anything else is not known before its end.
        seconds = len(data) / (width * start.sample_rate) if width else 0.0
        return self.playback.enqueue(seconds, self._clock())

    def queue(self, seconds: float) -> None:
        """Take so much audio for played, whose length :meth:`play` could not tell."""
        self.playback.enqueue(seconds, self._clock())

    def flush(self) -> float:
        """Fall silent: what was not heard is thrown away. Returns how many seconds that was."""
        dropped = self.playback.flush(self._clock())
        self._changed.ring()
        return dropped

    @property
    def heard_s(self) -> float:
        """How much was heard, in seconds of audio since the player was made."""
        return self.playback.heard_s(self._clock())

    @property
    def queued_s(self) -> float:
        """How much is still to be heard, in seconds."""
        return self.playback.queued_s(self._clock())

    async def drain(self) -> None:
        """Wait until everything was heard, or thrown away."""
        await self._wait_below(0.0)

    async def _wait_below(self, seconds: float) -> None:
        while (queued := self.queued_s) > seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(queued - seconds, 0.001)):
                    await self._changed.wait()

    async def aclose(self) -> None:
        """Play the rest, and let go of the output."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            await self.aclose()
        else:
            self.flush()
            await self._give_up()

    async def _give_up(self) -> None:
        """Let go of the output at once: nothing is queued any more."""
        await self.aclose()


class _Scheduled(Player):
    """A player that keeps its audio until its time has come."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        lead_s: float = 0.0,
        max_queued_s: float = MAX_QUEUED_S,
    ) -> None:
        super().__init__(clock=clock, lead_s=lead_s)
        self._max_queued_s = max_queued_s
        self._start: Start | None = None
        self._bytes_per_s = 0
        self._waiting: deque[tuple[float, bytes]] = deque()  # audio, and when it is scheduled

    def _begin(self, start: Start) -> None:
        """The first audio of an utterance came."""
        if self._start is None:
            if start.format not in _SILENCE:
                raise RequestInvalid(
                    f"a player takes {', '.join(_SILENCE)}, not {start.format}: ask for another "
                    "format"
                )
            self._start = start
            self._bytes_per_s = SAMPLE_BYTES[start.format] * start.sample_rate
        elif (start.format, start.sample_rate) != (self._start.format, self._start.sample_rate):
            raise RequestInvalid(
                f"the player was begun with {self._start.format} at {self._start.sample_rate} Hz, "
                f"and the endpoint now sends {start.format} at {start.sample_rate} Hz"
            )

    def _hold(self, data: bytes, start: Start, *, fill_gap: bool) -> None:
        self._begin(start)
        gaps = self.playback.gap_s
        when = self._queue(data, start)
        if fill_gap and (gap := self.playback.gap_s - gaps) > 0:
            self._waiting.append((when - gap, self._silence(gap)))
        self._waiting.append((when, data))
        self._changed.ring()

    def _silence(self, seconds: float) -> bytes:
        assert self._start is not None
        return _SILENCE[self._start.format] * round(seconds * self._start.sample_rate)

    def _due(self, until: float) -> bytes:
        """Take what is to be heard before ``until``, whole samples."""
        due = []
        while self._waiting and self._waiting[0][0] < until:
            when, data = self._waiting.popleft()
            width = self._bytes_per_s // self._start.sample_rate if self._start else 1
            size = width * round((until - when) * self._bytes_per_s / width)
            due.append(data[:size])
            if size < len(data):
                self._waiting.appendleft((when + size / self._bytes_per_s, data[size:]))
                break
        return b"".join(due)

    def _rest(self) -> bytes:
        """Take all that waits."""
        rest = b"".join(data for _, data in self._waiting)
        self._waiting.clear()
        return rest


class WavPlayer(_Scheduled):
    """A WAV file of what a listener hears: gaps are silence in it, and an interruption cuts it.

    The file is there when the player is closed. It follows the clock like any player, except that
    closing does not wait: the rest is written at once. After an exception it is kept as
    ``NAME.partial.wav``. Raises ``OSError`` where ``path`` cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] | None = None,
        lead_s: float = 0.0,
        max_queued_s: float = MAX_QUEUED_S,
    ) -> None:
        super().__init__(clock=clock, lead_s=lead_s, max_queued_s=max_queued_s)
        self._sink: Sink = FileSink(Path(path), WavContainer())
        self._thread = SideThread()
        self._heard = bytearray()
        self._closed = False
        self._told = False

    async def play(self, data: bytes, start: Start) -> None:
        self._hold(data, start, fill_gap=True)
        if not self._told:
            self._told = True
            await self._thread.run(partial(self._sink.begin, start))
        self._heard += self._due(self._clock())
        await self._write()
        await self._wait_below(self._max_queued_s)

    async def _write(self) -> None:
        heard, self._heard = bytes(self._heard), bytearray()
        if heard:
            await self._thread.run(partial(self._sink.write, heard))

    def flush(self) -> float:
        self._heard += self._due(self._clock())
        self._waiting.clear()
        return super().flush()

    async def aclose(self) -> None:
        await self._end(self._sink.finish)

    async def _end(self, end: Callable[[], object]) -> None:
        if self._closed:
            return
        self._closed = True
        self._heard += self._rest()
        try:
            await self._write()
            await self._thread.run(end)
        except BaseException:
            self._thread.stop(self._forsake)
            raise
        self._thread.stop()

    def _forsake(self) -> None:
        with contextlib.suppress(OSError):
            self._sink.give_up()

    async def _give_up(self) -> None:
        await self._end(self._sink.give_up)


class StreamPlayer(_Scheduled):
    """Raw audio to a pipe, such as the stdout that a player of the system reads.

    What was written cannot be taken back, so that it is written no more than ``ahead_s`` before its
    time: so long goes on what is interrupted. ``stream`` is unbuffered; whoever reads it is taken
    to play at the clock's pace. Use it as an async context manager: it owns a task.
    """

    def __init__(
        self,
        stream: RawIOBase,
        *,
        ahead_s: float = 0.1,
        clock: Callable[[], float] | None = None,
        lead_s: float = 0.0,
        max_queued_s: float = MAX_QUEUED_S,
    ) -> None:
        super().__init__(clock=clock, lead_s=lead_s, max_queued_s=max_queued_s)
        self._stream = stream
        self._ahead_s = ahead_s
        self._thread = SideThread()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._pace(), name="utterwire-play")
        return self

    async def play(self, data: bytes, start: Start) -> None:
        if self._task is None:
            raise RuntimeError("a StreamPlayer plays inside of its `async with` block")
        if self._task.done():
            self._task.result()
        # Whoever reads the pipe has waited through a gap: silence now would be another.
        self._hold(data, start, fill_gap=False)
        await self._wait_below(self._max_queued_s)

    async def _pace(self) -> None:
        while True:
            until = float("inf") if self._closing else self._clock() + self._ahead_s
            if due := self._rest() if self._closing else self._due(until):
                await self._thread.run(partial(self._put, due))
            elif self._waiting:
                wait = self._waiting[0][0] - until
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(wait, 0.001)):
                        await self._changed.wait()
            elif self._closing:
                return
            else:
                await self._changed.wait()

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.write(rest) or 0 :]

    def flush(self) -> float:
        self._waiting.clear()
        return super().flush()

    async def aclose(self) -> None:
        """Write the rest; whoever reads the pipe plays it. Raises ``OSError``."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing = True
        self._changed.ring()
        try:
            await task
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._thread.stop()

    async def _give_up(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self._thread.stop()


class DevicePlayer(_Scheduled):
    """A sound device, by the package `sounddevice` (extra ``play``).

    ``device`` is a number or a part of a name as `sounddevice.query_devices` lists them; None takes
    the system's own. The device is opened with the first audio, at its rate. It asks for some
    milliseconds at a time, so that :meth:`flush` is heard with the next such block, and what was
    heard is known to the length of one. Closing waits until the rest was heard.

    Raises :class:`ExtraMissing`, and :class:`RequestInvalid` where the device cannot be had.
    """

    def __init__(
        self,
        device: int | str | None = None,
        *,
        clock: Callable[[], float] | None = None,
        lead_s: float = 0.0,
        max_queued_s: float = MAX_QUEUED_S,
    ) -> None:
        super().__init__(clock=clock, lead_s=lead_s, max_queued_s=max_queued_s)
        try:
            self._module: Any = importlib.import_module("sounddevice")
        except (ModuleNotFoundError, OSError) as exc:
            # Its wheel for Linux comes without the library it stands on.
            what = "sounddevice" if isinstance(exc, ModuleNotFoundError) else "PortAudio"
            raise ExtraMissing(
                f"a sound device needs {what}: pip install 'utterwire[play]'"
                + ("" if what == "sounddevice" else ", apt install libportaudio2")
            ) from None
        self._device = device
        self._output: Any = None
        self._thread = SideThread()
        self._lock = threading.Lock()
        self._ready: deque[bytes] = deque()
        self._flushes = 0

    async def play(self, data: bytes, start: Start) -> None:
        if start.format != "pcm_s16le":
            raise RequestInvalid(f"a sound device takes pcm_s16le, not {start.format}")
        self._begin(start)
        if self._output is None:
            flushes = self._flushes
            self._output = await self._thread.run(self._open)
            if flushes != self._flushes:
                return  # silenced meanwhile
        self._queue(data, start)
        with self._lock:
            self._ready.append(data)
        await self._wait_below(self._max_queued_s)

    def _unusable(self, why: object) -> RequestInvalid:
        name = "the sound device" if self._device is None else f"sound device {self._device!r}"
        return RequestInvalid(f"{name} cannot be used: {why}")

    def _open(self) -> Any:
        assert self._start is not None
        try:
            output = self._module.RawOutputStream(
                samplerate=self._start.sample_rate,
                channels=1,
                dtype="int16",
                device=self._device,
                latency="low",
                callback=self._fill,
            )
            output.start()
        except (self._module.PortAudioError, ValueError) as exc:
            raise self._unusable(exc) from None
        return output

    def _fill(self, block: Any, frames: int, moment: object, status: object) -> None:
        """Called by the device's own thread, for each block that it is about to play."""
        size = 2 * frames
        taken = bytearray()
        with self._lock:
            while self._ready and len(taken) < size:
                piece = self._ready.popleft()
                room = size - len(taken)
                taken += piece[:room]
                if len(piece) > room:
                    self._ready.appendleft(piece[room:])
        block[:size] = bytes(taken.ljust(size, b"\0"))

    def flush(self) -> float:
        self._flushes += 1
        with self._lock:
            self._ready.clear()
        return super().flush()

    async def aclose(self) -> None:
        """Play the rest. Raises :class:`RequestInvalid` where the device went away before that."""
        await self.drain()
        output, self._output = self._output, None
        try:
            if output is not None:
                # The device takes it in a thread of its own.
                while self._ready and output.active:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
                # Stopping waits for what the device still holds.
                await self._thread.run(lambda: (output.stop(), output.close()))
                if self._ready:
                    raise self._unusable("it stopped before the end")
        except self._module.PortAudioError as exc:
            raise self._unusable(exc) from None
        finally:
            self._thread.stop()

    async def _give_up(self) -> None:
        output, self._output = self._output, None
        try:
            if output is not None:
                with contextlib.suppress(self._module.PortAudioError):
                    await self._thread.run(lambda: (output.abort(), output.close()))
        finally:
            self._thread.stop()
