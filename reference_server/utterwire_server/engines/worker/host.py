"""The server's side: an engine that is a process of its own, started again when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from typing import Any, Final

from utterwire_server.engines.engine import Block, Engine, EngineError, SpeechRequest
from utterwire_server.engines.worker.messages import (
    BrokenMessage,
    Message,
    block_of,
    encode,
    open_message,
    read,
)
from utterwire_server.logs import log_event

__all__ = ["WorkerEngine"]

#: How often the first start is tried when the process dies in it.
START_ATTEMPTS: Final = 3
#: How long a worker that did no good keeps the next one waiting, in seconds: twice as long each
#: time.
FIRST_DELAY_S: Final = 0.5
MOST_DELAY_S: Final = 30.0
#: How long a worker may take to end by itself when it is told to.
STOP_S: Final = 2.0
#: How long one may take that is killed: a graphics driver first takes its memory back.
KILLED_S: Final = 30.0
#: What a worker says on its output is logged while it loads; later it might be a client's words.
MOST_LINES: Final = 100
MOST_LINE_CHARS: Final = 500
_READ_AHEAD: Final = 2**20
#: Signals are ignored from the first instruction on: see `process.main`.
_BOOT: Final = (
    "import signal; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN);"
    "from utterwire_server.engines.worker.process import main; main()"
)


class WorkerEngine(Engine):
    """Any engine, in a process of its own.

    A model that holds the interpreter's lock slows no session, and busy sessions do not slow the
    model. When the process dies, is killed, hangs or talks nonsense, the utterances it was
    speaking fail with `EngineError`, each once; others wait for the next process, which is started
    at once, or with growing delays where it did no good. `healthy` is False meanwhile. The process
    ends with the server, also with one that is killed.

    :param factory: ``package.module:function``, called in the process; it gives the engine. The
        modules that can be imported are those of the server.
    :param arguments: what ``factory`` is called with, by name; JSON holds them.
    :param like: an engine that is never started: what it offers (name, voices, rates,
        ``concurrency``, ``times_words``) the one in the process offers, too.
    :param block_timeout_s: a worker that makes no block for so long is killed.
    :param start_timeout_s: a worker that is not ready by then is killed.
    """

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, object] | None = None,
        *,
        like: Engine,
        block_timeout_s: float = 60.0,
        start_timeout_s: float = 480.0,
    ) -> None:
        self.name = like.name
        self.concurrency = like.concurrency
        self.times_words = like.times_words
        self._voices = tuple(like.voices)
        self._sample_rates = tuple(like.sample_rates)
        self._order = Message(
            "start", fields={"factory": factory, "arguments": dict(arguments or {})}
        )
        encode(self._order)  # Arguments that JSON does not hold are told at once.
        self._block_timeout_s = block_timeout_s
        self._start_timeout_s = start_timeout_s
        self._worker: _Worker | None = None
        self._started = self._stopping = False
        #: Set while a worker speaks, and for good once none will any more.
        self._settled = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def voices(self) -> tuple[str, ...]:
        return self._voices

    @property
    def sample_rates(self) -> tuple[int, ...]:
        return self._sample_rates

    @property
    def healthy(self) -> bool:
        return self._worker is not None and self._worker.is_ready

    @property
    def pid(self) -> int | None:
        """The process that speaks; None while there is none."""
        return self._worker.pid if self._worker is not None and self._worker.is_ready else None

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        :raises EngineError: if the engine cannot be made there, or the process dies in it each
            time.
        """
        supervisor = asyncio.create_task(self._supervise(), name="engine-worker")
        self._supervisor = supervisor
        while not (self.healthy or supervisor.done()):
            settled = asyncio.create_task(self._settled.wait())
            try:
                await asyncio.wait({supervisor, settled}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                settled.cancel()
        if not self.healthy:
            if supervisor.cancelled():
                raise EngineError("the engine was stopped while it started")
            supervisor.result()
        self._started = True

    async def stop(self) -> None:
        """End the process; it gets a moment to do so by itself."""
        self._stopping = True
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        if self._worker is not None and self._worker.is_ready:
            self._worker.send(Message("stop"))
            await asyncio.wait({supervisor}, timeout=STOP_S)
        supervisor.cancel()
        await asyncio.wait({supervisor})
        self._settled.set()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        worker = await self._ready_worker()
        stream = worker.open(request)
        try:
            while (block := await worker.next(stream)) is not None:
                yield block
        finally:
            # The engine is free when the worker has let go, and not before.
            await worker.close(stream)

    async def _ready_worker(self) -> _Worker:
        while not self.healthy:
            if self._supervisor is None or self._supervisor.done():
                raise EngineError("the engine is stopped")
            await self._settled.wait()
        assert self._worker is not None
        return self._worker

    async def _supervise(self) -> None:
        """Keep a worker running.

        :raises EngineError: if none becomes ready, or stays so until `start` has seen it.
        """
        useless = 0
        try:
            while True:
                worker = _Worker(self._order, self._settled, self._block_timeout_s)
                self._worker = worker
                reason = await worker.run(self._start_timeout_s)
                if self._stopping:
                    return
                useless = 0 if worker.blocks else useless + 1
                last = not self._started and (worker.refused or useless == START_ATTEMPTS)
                delay = _delay_s(useless)
                log_event(
                    "engine_worker_ended",
                    error=reason,
                    failed_utterances=worker.failed_streams,
                    restart_in_s=None if last else delay,
                )
                if last:
                    raise EngineError(reason)
                await asyncio.sleep(delay)
        finally:
            self._settled.set()


def _delay_s(useless: int) -> float:
    """How long to wait after so many workers in a row that did no good."""
    # The exponent stays small: this may go on for days.
    return min(FIRST_DELAY_S * 2 ** min(useless - 1, 16), MOST_DELAY_S) if useless else 0.0


class _Stream:
    """An utterance that a worker speaks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.answer: asyncio.Future[Block | None] | None = None
        self.released: asyncio.Future[None] | None = None
        self.alarm: asyncio.TimerHandle | None = None


class _Worker:
    """One process from its start to its end."""

    def __init__(self, order: Message, ready: asyncio.Event, block_timeout_s: float) -> None:
        self._order = order
        self._ready = ready
        self._block_timeout_s = block_timeout_s
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, _Stream] = {}
        self._opened = 0
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reason: str | None = None
        #: Whether it takes streams.
        self.is_ready = False
        #: Whether it ever did.
        self.was_ready = False
        #: Whether it said that its engine cannot be made.
        self.refused = False
        self.blocks = 0
        self.failed_streams = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    # What utterances ask for

    def open(self, request: SpeechRequest) -> _Stream:
        """Ask for a stream, of a worker that is ready."""
        self._opened += 1
        stream = self._streams[self._opened] = _Stream(self._opened)
        self.send(open_message(stream.number, request))
        return stream

    async def next(self, stream: _Stream) -> Block | None:
        """The next block of a stream, or None at its end.

        :raises EngineError: if the engine fails, or the worker dies.
        """
        if stream.number not in self._streams:
            raise EngineError(f"the worker {self._reason}")
        stream.answer = self._loop.create_future()
        self._watch(stream)
        self.send(Message("next", stream.number))
        return await stream.answer

    async def close(self, stream: _Stream) -> None:
        """Give a stream up, and return when the worker has let go of it."""
        if stream.number in self._streams:
            stream.released = self._loop.create_future()
            # One that is in the making has its time already.
            if stream.alarm is None:
                self._watch(stream)
            self.send(Message("close", stream.number))
            await stream.released

    def send(self, message: Message) -> None:
        """Send a message; the end of the worker shows elsewhere."""
        if self._writer is not None:
            self._writer.write(encode(message))

    def _watch(self, stream: _Stream) -> None:
        self._rest(stream)
        stream.alarm = self._loop.call_later(self._block_timeout_s, self._overdue)

    def _rest(self, stream: _Stream) -> None:
        if stream.alarm is not None:
            stream.alarm.cancel()
            stream.alarm = None

    def _overdue(self) -> None:
        self._kill(f"made no block within {self._block_timeout_s:g} s")

    # What the process does

    async def run(self, start_timeout_s: float) -> str:
        """Start the process and serve until it ends; why it ended.

        ``ready`` is set as long as it takes streams.
        """
        listening: asyncio.Task[None] | None = None
        held = ExitStack()
        try:
            ours, theirs = (held.enter_context(end) for end in socket.socketpair())
            heard, said = (held.enter_context(end) for end in socket.socketpair())
            with theirs, said:
                self._process = _spawn(theirs, said)
            listening = asyncio.create_task(self._listen(heard), name="engine-worker-output")
            reader, self._writer = await asyncio.open_connection(sock=ours, limit=_READ_AHEAD)
            self.send(self._order)
            await self._read(reader, start_timeout_s)
        except OSError as error:
            # One that ran is gone; its status says more.
            if self._process is None:
                self._reason = f"cannot be started: {error.strerror or error}"
        except asyncio.CancelledError:
            self._kill("was stopped")
            raise
        finally:
            self._shut()
            try:
                await self._bury()
            finally:
                if self._writer is not None:
                    self._writer.close()
                if listening is not None:
                    listening.cancel()
                    await asyncio.wait({listening})
                held.close()
                self._fail_all()
        assert self._reason is not None
        return f"the worker {self._reason}"

    async def _read(self, reader: asyncio.StreamReader, start_timeout_s: float) -> None:
        timeout = asyncio.timeout(start_timeout_s)
        try:
            async with timeout:
                while (message := await read(reader)) is not None:
                    if message.kind == "ready":
                        timeout.reschedule(None)
                        self._admit()
                        log_event("engine_worker_ready", pid=self.pid)
                    else:
                        self._take(message)
        except TimeoutError:
            self._kill(f"was not ready within {start_timeout_s:g} s")
        except BrokenMessage as error:
            self._kill(f"sent what is no message: {error}")

    def _admit(self) -> None:
        self.is_ready = self.was_ready = True
        self._ready.set()

    def _shut(self) -> None:
        self.is_ready = False
        self._ready.clear()

    def _take(self, message: Message) -> None:
        """Act on a message.

        :raises BrokenMessage: if it makes no sense.
        """
        fields = message.fields
        if message.kind == "failed":
            self.refused = True
            self._reason = f"cannot make the engine: {fields.get('error')}"
            return
        if message.kind == "log":
            _log(fields)
            return
        stream = self._streams.get(message.stream)
        if message.kind == "closed":
            if stream is not None:
                self._forget(stream)
            return
        if stream is None:
            return  # It was given up while this was on its way.
        answer, stream.answer = stream.answer, None
        if answer is None:
            raise BrokenMessage("it answers nothing")
        if stream.released is None:
            self._rest(stream)
        match message.kind:
            case "block":
                block = block_of(message)
                self.blocks += 1
                _resolve(answer, block)
            case "end":
                self._forget(stream)
                _resolve(answer, None)
            case "error":
                self._forget(stream)
                if fields.get("broken"):
                    self._shut()
                failure = f"{fields.get('error')} at {fields.get('at')} in the worker"
                _refuse(answer, failure)
            case _:
                raise BrokenMessage("its kind is none")

    def _forget(self, stream: _Stream) -> None:
        self._rest(stream)
        self._streams.pop(stream.number, None)
        if stream.released is not None and not stream.released.done():
            stream.released.set_result(None)

    def _fail_all(self) -> None:
        """The process is gone: so is what it was speaking."""
        for stream in tuple(self._streams.values()):
            self.failed_streams += stream.released is None
            self._forget(stream)
            if stream.answer is not None:
                _refuse(stream.answer, f"the worker {self._reason}")

    def _kill(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._process is not None:
            self._process.kill()

    async def _bury(self) -> None:
        """Wait for the process to end, and see to it that it does."""
        process = self._process
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._kill("did not end")
        finally:
            # Also where the waiting is cancelled. What is killed ends at once, unless a driver
            # holds it: then it is left behind.
            process.kill()
            try:
                status = await asyncio.to_thread(process.wait, KILLED_S)
            except subprocess.TimeoutExpired:
                log_event("engine_worker_left", pid=process.pid)
                self._reason = self._reason or "did not end when it was killed"
            else:
                self._reason = self._reason or _described(status)

    async def _listen(self, heard: socket.socket) -> None:
        """Log what the process says while it loads, and let nothing it says later hold it up."""
        reader, writer = await asyncio.open_connection(sock=heard)
        try:
            for _ in range(MOST_LINES):
                try:
                    line = (await reader.readline()).decode(errors="replace").rstrip()
                except ValueError:
                    # Longer than is kept: a bar that only returns its carriage, say.
                    continue
                if line and not self.was_ready:
                    log_event("engine_worker_said", line=line[:MOST_LINE_CHARS])
            while await reader.read(2**16):
                pass
        finally:
            writer.close()


def _spawn(theirs: socket.socket, said: socket.socket) -> subprocess.Popen[bytes]:
    # What can be imported here can be there, whatever was done to the path; and -P: nothing else.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    # Of the ways to start a process this one leaves nothing behind when it is cancelled: it
    # cannot be. It takes milliseconds.
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=said.fileno(),
        stderr=said.fileno(),
        pass_fds=(theirs.fileno(),),
        # A terminal's Ctrl-C is for the server, which drains first.
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def _log(fields: Mapping[str, Any]) -> None:
    event, rest = fields.get("event"), fields.get("fields")
    if isinstance(event, str) and isinstance(rest, dict):
        log_event(event, **{name: value for name, value in rest.items() if name != "event"})


def _resolve(answer: asyncio.Future[Block | None], block: Block | None) -> None:
    if not answer.done():
        answer.set_result(block)


def _refuse(answer: asyncio.Future[Block | None], failure: str) -> None:
    if not answer.done():
        answer.set_exception(EngineError(failure))


def _described(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
