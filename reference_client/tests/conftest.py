"""A scripted endpoint: each test writes what it does, down to the frame."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed


class Peer:
    """One session as the endpoint sees it."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.received: list[dict[str, Any]] = []

    async def next(self, type: str | None = None) -> dict[str, Any]:
        """The next message; its type must be the one named ("synthesize" if it has none)."""
        message = json.loads(await self.connection.recv())
        self.received.append(message)
        if type is not None:
            assert message.get("type", "synthesize") == type, message
        return dict(message)

    async def send(self, type: str, **fields: Any) -> None:
        present = {name: value for name, value in fields.items() if value is not None}
        await self.connection.send(json.dumps({"type": type, **present}))

    async def start(self, seq: int | None = 1, **fields: Any) -> None:
        described = {"sample_rate": 24000, "format": "pcm_s16le", "voice": "test", **fields}
        await self.send("synthesis_start", seq=seq, **described)

    async def audio(self, data: bytes) -> None:
        await self.connection.send(data)

    async def complete(self, seq: int | None = 1, audio_bytes: int = 0, **fields: Any) -> None:
        described = {
            "total_duration_s": audio_bytes / 48000,
            "elapsed_s": 0.0,
            "audio_bytes": audio_bytes,
            "characters": 1,
            **fields,
        }
        await self.send("synthesis_complete", seq=seq, **described)

    async def speak(self, seq: int | None = 1, *chunks: bytes, **fields: Any) -> None:
        await self.start(seq, **fields)
        for chunk in chunks:
            await self.audio(chunk)
        await self.complete(seq, sum(map(len, chunks)), **fields)

    async def error(self, seq: int | None, code: str | None, **fields: Any) -> None:
        described = {"message": "no", "retryable": False, **fields}
        await self.send("error", seq=seq, code=code, **described)

    async def say_goodbye(self) -> None:
        """Read `close` and answer it as the protocol has it."""
        await self.next("close")
        seq = len(self.received)
        await self.send("session_closed", seq=seq, reason="client_close", last_seq=seq)
        await self.gone()

    async def gone(self) -> None:
        """Wait until the client has disconnected; what it still sends is kept."""
        try:
            while True:
                await self.next()
        except ConnectionClosed:
            pass


Script = Callable[[Peer], Awaitable[None]]
Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def endpoint() -> AsyncIterator[Serve]:
    """Starts an endpoint that runs a script for each session; returns its address.

    A script that fails fails the test; a script that the client disconnects from does not.
    """
    servers: list[Server] = []
    failures: list[BaseException] = []

    async def start(script: Script, *, tls: ssl.SSLContext | None = None, **options: Any) -> str:
        async def handle(connection: ServerConnection) -> None:
            try:
                await script(Peer(connection))
            except ConnectionClosed:
                pass
            except Exception as exc:
                failures.append(exc)
                raise

        server = await serve(handle, "127.0.0.1", 0, ssl=tls, ping_interval=None, **options)
        servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return f"{'wss' if tls else 'ws'}://{'localhost' if tls else host}:{port}"

    try:
        yield start
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()
        if failures:
            raise failures[0]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nothing listens, and at which nobody else comes to meanwhile."""
    with socket.socket() as holding:
        holding.bind(("127.0.0.1", 0))
        yield holding.getsockname()[1]


@pytest.fixture
async def no_leftover_tasks() -> AsyncIterator[None]:
    """Every task that a test started has ended when it ends."""
    before = asyncio.all_tasks()
    yield
    leftover = {task for task in asyncio.all_tasks() - before if "utterwire" in task.get_name()}
    assert not leftover


@pytest.fixture(scope="module")
def reference_program() -> Iterator[Callable[[float], str]]:
    """``reference_program(real_time_factor)`` starts the reference server as a program of its own;
    returns its address."""
    processes: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []

    def start(real_time_factor: float) -> str:
        options = ("--port", "0", "--rtf", str(real_time_factor))
        process = subprocess.Popen(
            [sys.executable, "-m", "utterwire_server", *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            told = json.loads(line)
            port = told.get("port", port)
            if told["event"] == "ready":
                # A pipe that is full would hold it up.
                reader = threading.Thread(target=deque, args=(process.stderr, 0))
                reader.start()
                readers.append(reader)
                return f"ws://127.0.0.1:{port}"
        raise AssertionError("the server ended before it was ready")

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
        for process in processes:
            assert process.stderr is not None
            process.stderr.close()


@dataclass
class Reference:
    """The reference server, in this process."""

    url: str
    service: Any


StartReference = Callable[..., Awaitable[Reference]]


@pytest.fixture
async def reference() -> AsyncIterator[StartReference]:
    """``await reference(real_time_factor, **settings)`` starts the reference server with the tone
    engine."""
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    pytest.importorskip("starlette", reason="the extra `server` is not installed")
    from utterwire_server.engines import ToneEngine
    from utterwire_server.runner import Runner, listen
    from utterwire_server.service import Service
    from utterwire_server.settings import Settings

    running: list[tuple[Runner, asyncio.Task[int]]] = []

    async def start(real_time_factor: float = 0.0, **fields: Any) -> Reference:
        settings = Settings(**{"shutdown_timeout_s": 0.0, **fields})
        service = Service(settings, ToneEngine(real_time_factor))
        sock = listen("127.0.0.1", 0, send_buffer_bytes=settings.send_buffer_bytes)
        url = f"ws://127.0.0.1:{sock.getsockname()[1]}"
        runner = Runner(service, sock)
        running.append((runner, asyncio.create_task(runner.run())))
        async with asyncio.timeout(60):
            while not service.ready:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.001)
        return Reference(url, service)

    yield start
    for runner, task in running:
        runner.stop()
        async with asyncio.timeout(60):
            await task


class Clock:
    """The loop's clock, which can be put forward: for deadlines, time has then passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._ahead)

    async def advance(self, seconds: float) -> None:
        await self._rounds()  # what has arrived was dealt with before
        self._ahead += seconds
        await self._rounds()  # and timers that are due have run after

    def jump(self, seconds: float) -> None:
        """Time passes in which the loop does nothing, as if the program held it up."""
        self._ahead += seconds

    async def _rounds(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clock]:
    with monkeypatch.context() as patch:
        yield Clock(asyncio.get_running_loop(), patch)
