"""Real servers in the test's own loop, and a client with control of every frame."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from utterwire_server.access import Access
from utterwire_server.engines import Block, Engine, SpeechRequest, ToneEngine
from utterwire_server.engines.kokoro.acoustics import Interrupted, Prepared
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.observer import Observer
from utterwire_server.runner import Runner, listen
from utterwire_server.service import Service
from utterwire_server.settings import Settings
from websockets.frames import Frame, Opcode

#: For what takes milliseconds: who waits for longer hangs.
WAIT_S = 60.0


@dataclass
class Server:
    """A server that runs in this loop."""

    service: Service
    runner: Runner
    port: int
    running: asyncio.Task[int]
    failing_observers: tuple[Observer, ...] = ()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/invocations-bidirectional-stream"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class Peer:
    """A client that sends and receives single frames."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: str
    frames: list[tuple[Opcode, bytes]] = field(default_factory=list)

    def send(self, data: bytes | str, *, opcode: Opcode | None = None, fin: bool = True) -> None:
        if isinstance(data, str):
            opcode, data = opcode or Opcode.TEXT, data.encode()
        self.write(
            Frame(Opcode.BINARY if opcode is None else opcode, data, fin).serialize(mask=True)
        )

    def say(self, **fields: Any) -> None:
        self.send(json.dumps(fields))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> tuple[Opcode, bytes]:
        """The next frame; the end of the stream reads as a close frame without a code."""
        async with asyncio.timeout(WAIT_S):
            try:
                first, second = await self.reader.readexactly(2)
                length = second & 127
                if length > 125:
                    size = 2 if length == 126 else 8
                    length = int.from_bytes(await self.reader.readexactly(size))
                data = await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return Opcode.CLOSE, b"eof"
        assert first & 0x80, "chunks are never fragmented"
        got = Opcode(first & 15), data
        self.frames.append(got)
        return got

    async def control(self) -> dict[str, Any]:
        """The next control message; audio on the way is kept in ``frames``."""
        while True:
            opcode, data = await self.frame()
            assert opcode is not Opcode.CLOSE, f"closed: {data!r}"
            if opcode is Opcode.TEXT:
                message = json.loads(data)
                assert isinstance(message, dict)
                return message

    async def until(self, kind: str) -> dict[str, Any]:
        """The next control message of the given type."""
        while (message := await self.control())["type"] != kind:
            pass
        return message

    async def closed(self) -> int | None:
        """The code of the close frame that comes; None if the stream ends without one."""
        while True:
            opcode, data = await self.frame()
            if opcode is Opcode.CLOSE:
                return None if data == b"eof" else int.from_bytes(data[:2])

    def audio(self) -> bytes:
        """All audio received so far."""
        return b"".join(data for opcode, data in self.frames if opcode is Opcode.BINARY)

    async def leave(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Process:
    """``utterwire-server`` as a process of its own."""

    process: asyncio.subprocess.Process
    port: int
    lines: list[dict[str, Any]]
    reading: asyncio.Task[None]

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            status = await self.process.wait()
            await self.reading
        return status


class HeldEngine(ToneEngine):
    """Makes a block each time the test lets it."""

    name = "held"

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Semaphore(0)
        self.open_streams = 0

    def open(self) -> None:
        """From now on no block waits; those that are waiting go on, too."""
        for _ in range(10_000):
            self.gate.release()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        self.open_streams += 1
        try:
            async with aclosing(super().synthesize(request)) as stream:
                async for block in stream:
                    await self.gate.acquire()
                    yield block
        finally:
            self.open_streams -= 1


@pytest.fixture
def held_engine() -> HeldEngine:
    """An engine whose blocks wait for ``gate.release()``; ``open_streams`` counts utterances."""
    return HeldEngine()


class SoundingPositions:
    """Acoustics without a model: each sample tells its own position in the segment.

    A token takes as many frames as it says; even tokens sound, three frames ahead as in the real
    model, and odd ones are silent. Around the phonemes are ``lead`` and ``tail`` frames of silence.
    ``spoken`` is what is rendered, as (start, stop, whether with fixed statistics). Where ``gate``
    is an event, rendering waits for it.
    """

    STEP = 1e-6
    FLOOR = 0.1

    def __init__(self, lead: int = 12, tail: int = 20) -> None:
        self.lead = lead
        self.tail = tail
        self.prepared = 0
        self.spoken: list[tuple[int, int, bool]] = []
        self.gate: threading.Event | None = None
        self.rendering = threading.Event()
        self.failure: Exception | None = None
        self._interrupted = threading.Event()

    def prepare(
        self, tokens: Sequence[int], style: npt.NDArray[np.float32], speed: float
    ) -> Prepared:
        assert tokens[0] == tokens[-1] == 0
        assert style.shape == (256,)
        self.prepared += 1
        inner = [max(1, round(token / speed)) for token in tokens[1:-1]]
        durations = np.array([self.lead, *inner, self.tail], np.int64)
        sounds = np.array([token > 0 and token % 2 == 0 for token in tokens])
        loud = np.roll(np.repeat(np.repeat(sounds, durations), 600), -3 * 600)
        positions = self.FLOOR + self.STEP * np.arange(loud.size)
        return Prepared(durations, np.where(loud, positions, 0.0).astype(np.float32))

    def render(
        self, prepared: Prepared, start: int, stop: int, statistics: Statistics | None
    ) -> npt.NDArray[np.float32]:
        self._interrupted.clear()
        self.rendering.set()
        if self.gate is not None:
            while not self.gate.wait(0.001):
                if self._interrupted.is_set():
                    raise Interrupted
        if self.failure is not None:
            raise self.failure
        assert 0 <= start < stop <= prepared.frames
        assert statistics is not None or (start, stop) == (0, prepared.frames)
        self.spoken.append((start, stop, statistics is not None))
        samples: npt.NDArray[np.float32] = prepared.handle[600 * start : 600 * stop]
        return samples

    def measure(self, prepared: Prepared) -> Statistics:
        row = np.ones(4, np.float32)
        return Statistics(0 * row, row, prepared.frames)

    def interrupt(self) -> None:
        self._interrupted.set()


@pytest.fixture(scope="session")
def sounding_positions() -> type[SoundingPositions]:
    """Acoustics without a model, to make engines of."""
    return SoundingPositions


Start = Callable[..., Any]


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Any]:
    """``await eventually(condition)`` returns once the condition holds."""

    async def wait(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 - nothing announces these
                await asyncio.sleep(0.001)

    return wait


@pytest.fixture
async def start(eventually: Any) -> AsyncIterator[Start]:
    """``await start(engine, **settings)`` gives a running `Server`; it is stopped at the end.

    When all servers have stopped, no task that they made is left, and no observer
    of theirs has failed.
    """
    before = asyncio.all_tasks()
    servers: list[Server] = []

    async def begin(
        engine: Engine | None = None,
        *,
        ready: bool = True,
        access: Access | None = None,
        observers: Sequence[Observer] = (),
        **settings: Any,
    ) -> Server:
        # To a server that is held up for a moment its engine seems slow, and the queue too long.
        patient: dict[str, Any] = {"shutdown_timeout_s": 0.0, "max_queued_work_s": 1e6}
        made = Settings(**{**patient, **settings})
        service = Service(made, engine or ToneEngine(), access=access, observers=observers)
        sock = listen("127.0.0.1", 0, send_buffer_bytes=made.send_buffer_bytes)
        port = sock.getsockname()[1]
        runner = Runner(service, sock)
        server = Server(service, runner, port, asyncio.create_task(runner.run()))
        servers.append(server)
        if ready:
            await eventually(lambda: service.ready)
        return server

    yield begin
    for server in servers:
        server.runner.stop()
        async with asyncio.timeout(WAIT_S):
            await server.running
        assert server.service.guests == 0
        assert server.service.failing_observers == server.failing_observers
        scheduler = server.service.scheduler
        assert scheduler.speaking == scheduler.computing == scheduler.waiting == 0
        assert (scheduler.backlog.places, scheduler.queued_chars) == (0, 0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
    gc.collect()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Any]]:
    """``await connect(server)`` opens a session and gives a `Peer`."""
    peers: list[Peer] = []

    async def open_peer(
        server: Server,
        path: str = "/invocations-bidirectional-stream",
        *,
        headers: str = "",
        receive_buffer: int | None = None,
    ) -> Peer:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
        limit = 2**16 if receive_buffer is None else max(receive_buffer, 1_024)
        reader, writer = await asyncio.open_connection(sock=sock, limit=limit)
        peer = Peer(reader, writer, 0, "")
        peers.append(peer)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Version: 13\r\n{headers}\r\n".encode()
        )
        async with asyncio.timeout(WAIT_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        peer.status, peer.headers = int(head.split(" ", 2)[1]), head.lower()
        return peer

    yield open_peer
    for peer in peers:
        await peer.leave()


@pytest.fixture
def log_lines() -> Any:
    """Every event logged during the test, as (event, fields)."""
    lines: list[tuple[str, dict[str, Any]]] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.getMessage(), getattr(record, "fields", {})))

    logger = logging.getLogger("utterwire")
    keeper, level = Keeper(), logger.level
    logger.addHandler(keeper)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(keeper)
    logger.setLevel(level)


def _norm_steps(prefix: str, source: str, scale_first: bool) -> list[tuple[str, list[str], str]]:
    """Both orders of dividing and scaling, as they are found in the real graph."""
    steps = [
        ("ReduceMean", [source, "time"], f"{prefix}mean"),
        ("Sub", [source, f"{prefix}mean"], f"{prefix}sub"),
        ("Mul", [f"{prefix}sub", f"{prefix}sub"], f"{prefix}square"),
        ("ReduceMean", [f"{prefix}square", "time"], f"{prefix}variance"),
        ("Add", [f"{prefix}variance", "epsilon"], f"{prefix}sum"),
        ("Sqrt", [f"{prefix}sum"], f"{prefix}root"),
    ]
    if scale_first:
        return [
            *steps,
            ("Mul", ["gamma", f"{prefix}sub"], f"{prefix}scaled"),
            ("Div", [f"{prefix}scaled", f"{prefix}root"], f"{prefix}normal"),
        ]
    return [
        *steps,
        ("Div", [f"{prefix}sub", f"{prefix}root"], f"{prefix}scaled"),
        ("Mul", ["gamma", f"{prefix}scaled"], f"{prefix}normal"),
    ]


@pytest.fixture
def tiny_graph() -> Any:
    """A model with the joints of Kokoro's: `tokens, style, speed -> audio`.

    It has one column and one sample for each token, and two norms, of 4 and 3 channels.
    """
    onnx = pytest.importorskip("onnx", reason="the extra `model` is not installed")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    kinds = onnx.TensorProto
    random = np.random.default_rng(1)

    def weight(*shape: int) -> npt.NDArray[Any]:
        return random.normal(0, 0.5, shape).astype(np.float32)

    constants: dict[str, Any] = {
        "one": np.float32(1),
        "time": np.array([2]),
        "columns": np.array([1]),
        "epsilon": np.float32(1e-5),
        "w.x": weight(512, 1, 1),
        "w.har": weight(22, 1, 1),
        "w.style": weight(256, 1),
        "w.up": weight(4, 512, 1),
        "w.noise": weight(4, 22, 1),
        "w.mid": weight(3, 4, 1),
        "w.post": weight(1, 3, 1),
        "flat": np.array([-1]),
    }
    g = "/decoder/generator/"
    steps: list[tuple[str, list[str], str]] = [
        ("Cast", ["tokens"], "real"),
        ("Div", ["real", "speed"], "lengths"),
        ("Round", ["lengths"], "rounded"),
        ("Clip", ["rounded", "one"], "clipped"),
        ("Cast", ["clipped"], "frames"),
        ("Unsqueeze", ["lengths", "columns"], "row"),
        ("Conv", ["row", "w.x"], "trunk"),
        ("Conv", ["row", "w.har"], "source"),
        ("MatMul", ["style", "w.style"], "projected"),
        ("Unsqueeze", ["projected", "columns"], "gamma"),
        ("LeakyRelu", ["trunk"], f"{g}LeakyRelu"),
        ("Conv", [f"{g}LeakyRelu", "w.up"], f"{g}ups"),
        ("Conv", ["source", "w.noise"], f"{g}noise_convs.0/Conv"),
        *_norm_steps(f"{g}noise_res.0/", f"{g}noise_convs.0/Conv", scale_first=True),
        ("Add", [f"{g}ups", f"{g}noise_res.0/normal"], f"{g}sum"),
        ("Conv", [f"{g}sum", "w.mid"], f"{g}mid"),
        *_norm_steps(f"{g}resblocks.0/", f"{g}mid", scale_first=False),
        ("Conv", [f"{g}resblocks.0/normal", "w.post"], f"{g}post"),
        ("Reshape", [f"{g}post", "flat"], "audio"),
    ]
    attributes: dict[str, dict[str, int]] = {
        "real": {"to": kinds.FLOAT},
        "frames": {"to": kinds.INT64},
    }
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node(kind, inputs, [output], name=output, **attributes.get(output, {}))
                for kind, inputs, output in steps
            ],
            "tiny",
            [
                helper.make_tensor_value_info("tokens", kinds.INT64, [1, "n"]),
                helper.make_tensor_value_info("style", kinds.FLOAT, [1, 256]),
                helper.make_tensor_value_info("speed", kinds.FLOAT, [1]),
            ],
            [helper.make_tensor_value_info("audio", kinds.FLOAT, ["samples"])],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )


@pytest.fixture
async def launch() -> AsyncIterator[Any]:
    """``await launch(*flags)`` starts a server process and waits until it is ready."""
    processes: list[asyncio.subprocess.Process] = []
    servers: list[Process] = []

    async def begin(*flags: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "utterwire_server", "serve", "--port", "0", *flags,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )  # fmt: skip
        processes.append(process)
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        stream = process.stderr

        async def follow() -> None:
            async for line in stream:
                lines.append(json.loads(line))  # noqa: PERF401 - as they come

        while not lines or lines[-1]["event"] != "ready":
            line = await stream.readline()
            assert line, "the server ended before it was ready"
            lines.append(json.loads(line))
        started = Process(process, lines[0]["port"], lines, asyncio.create_task(follow()))
        servers.append(started)
        return started

    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
    for started in servers:
        await started.ended()
    # Of one that was never ready, nobody follows what it says.
    for process in processes:
        await process.communicate()
