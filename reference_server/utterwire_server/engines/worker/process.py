"""The worker's side: a process that holds one engine and speaks for the server that started it."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from utterwire_server.engines.engine import Block, Engine, EngineError
from utterwire_server.engines.worker.messages import (
    BrokenMessage,
    Message,
    block_message,
    encode,
    read,
    request_of,
)
from utterwire_server.logs import whereabouts

__all__ = ["main", "make_engine"]

#: So much of a message may be read ahead.
_READ_AHEAD: Final = 2**20
_ENGINE_BROKE: Final = 3


def make_engine(factory: str, arguments: Mapping[str, Any]) -> Engine:
    """Call ``package.module:function`` with keyword arguments; what it gives is the engine.

    :raises EngineError: if it cannot be called or gives no engine.
    """
    module, _, name = factory.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise EngineError(f"{factory} cannot be imported: {error}") from error
    engine = function(**arguments)
    if not isinstance(engine, Engine):
        raise EngineError(f"{factory} made a {type(engine).__name__}, not an Engine")
    return engine


class _Stream:
    """An utterance on its way through the engine."""

    def __init__(self, blocks: AsyncGenerator[Block]) -> None:
        self.blocks = blocks
        self.task: asyncio.Task[None] | None = None


class _Hosted:
    """Serves one engine over a socket until it is told to stop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streams: dict[int, _Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken = asyncio.Event()

    async def run(self) -> int:
        """The exit status of the process."""
        loop = asyncio.get_running_loop()
        logging.getLogger("utterwire").addHandler(_Forwarder(loop, self._send_soon))
        order = await read(self._reader)
        if order is None:
            return 0
        try:
            engine = make_engine(order.fields["factory"], order.fields["arguments"])
            await engine.start()
        except Exception as error:
            # Nothing has been spoken yet, so that the words cannot be a client's.
            line = " ".join(str(error).split())
            words = line if isinstance(error, EngineError) else f"{type(error).__name__}: {line}"
            await self._send(Message("failed", fields={"error": words}))
            return 1
        offers = {"voices": list(engine.voices), "sample_rates": list(engine.sample_rates)}
        await self._send(Message("ready", fields=offers))
        serving = asyncio.create_task(self._serve(engine))
        broken = asyncio.create_task(self._broken.wait())
        await asyncio.wait({serving, broken}, return_when=asyncio.FIRST_COMPLETED)
        for task in {serving, broken} | self._tasks:
            task.cancel()
        await asyncio.gather(serving, broken, *self._tasks, return_exceptions=True)
        if self._broken.is_set():
            return _ENGINE_BROKE
        await engine.stop()
        return 0

    async def _serve(self, engine: Engine) -> None:
        while (message := await read(self._reader)) is not None:
            match message.kind:
                case "open":
                    blocks = engine.synthesize(request_of(message))
                    self._streams[message.stream] = _Stream(blocks)
                case "next":
                    stream = self._streams[message.stream]
                    stream.task = self._spawn(self._next(engine, message.stream, stream))
                case "close":
                    self._spawn(self._close(message.stream))
                case "stop":
                    return

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _next(self, engine: Engine, number: int, stream: _Stream) -> None:
        try:
            block = await anext(stream.blocks, None)
        except Exception as error:
            self._streams.pop(number, None)
            broken = not engine.healthy
            await self._send(Message("error", number, {**whereabouts(error), "broken": broken}))
            if broken:
                # Such as a device that answers nothing any more: only another process mends it.
                self._broken.set()
        else:
            if block is not None:
                await self._send(block_message(number, block))
            else:
                self._streams.pop(number, None)
                await self._send(Message("end", number))

    async def _close(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            if stream.task is not None:
                stream.task.cancel()
                await asyncio.wait({stream.task})
            try:
                await stream.blocks.aclose()
            except Exception as error:
                fields = {"event": "engine_close_failed", "fields": whereabouts(error)}
                await self._send(Message("log", fields=fields))
        await self._send(Message("closed", number))

    async def _send(self, message: Message) -> None:
        self._writer.write(encode(message))
        await self._writer.drain()

    def _send_soon(self, message: Message) -> None:
        self._writer.write(encode(message))


class _Forwarder(logging.Handler):
    """Hands the log's events to the server, from whichever thread they come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Any) -> None:
        super().__init__()
        self._loop = loop
        self._thread = threading.get_ident()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", None)
        if fields is not None:
            message = Message("log", fields={"event": record.getMessage(), "fields": fields})
            if threading.get_ident() == self._thread:
                self._send(message)
            else:
                self._loop.call_soon_threadsafe(self._send, message)


def _leave_when_alone(sock: socket.socket) -> None:
    """End the process when the server's end of the socket is gone, whatever it is doing then."""
    watch = select.poll()
    # That the peer has hung up is told without being asked for.
    watch.register(sock.fileno(), 0)

    def wait() -> None:
        watch.poll()
        os._exit(0)

    threading.Thread(target=wait, name="alone", daemon=True).start()


async def _run(sock: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=sock, limit=_READ_AHEAD)
    try:
        return await _Hosted(reader, writer).run()
    except (BrokenMessage, ConnectionError):
        return 1
    finally:
        writer.close()


def main() -> None:
    """Serve the engine that the server asks for, over the socket whose descriptor is argument 1."""
    # The server drains first, and then says when it is over: a terminal's Ctrl-C, or a SIGTERM
    # to all processes of a unit, is not meant for the speech that is under way.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    _leave_when_alone(sock)
    logging.getLogger("utterwire").setLevel(logging.INFO)
    sys.exit(asyncio.run(_run(sock)))
