"""The round trip of one utterance, beside a bare Starlette WebSocket echo.

Run with ``pytest reference_server/tests/bench_roundtrip.py``; it prints how many times longer an
utterance of one word takes than an echo of as many bytes in as many frames.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from utterwire_server.engines import ToneEngine
from utterwire_server.runner import Runner, listen
from utterwire_server.service import Service
from utterwire_server.settings import Settings
from websockets.sync.client import connect

TEXT = "Hi"
ROUNDS = 200
_means: dict[str, float] = {}


def _in_thread(main: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    return thread


@pytest.fixture
def server_port() -> Iterator[int]:
    sock = listen("127.0.0.1", 0, send_buffer_bytes=65_536)
    port = sock.getsockname()[1]
    started = threading.Event()
    handle: dict[str, Any] = {}

    async def main() -> None:
        runner = Runner(Service(Settings(shutdown_timeout_s=0.0), ToneEngine()), sock)
        handle.update(loop=asyncio.get_running_loop(), stop=runner.stop)
        started.set()
        await runner.run()

    thread = _in_thread(main)
    started.wait()
    yield port
    handle["loop"].call_soon_threadsafe(handle["stop"])
    thread.join(10)


@pytest.fixture
def echo_port() -> Iterator[int]:
    async def echo(websocket: WebSocket) -> None:
        """Answer as an utterance would: as many frames, as many bytes, nothing computed."""
        await websocket.accept()
        async for sizes in websocket.iter_json():
            for size in sizes:
                await websocket.send_bytes(bytes(size))

    sock = listen("127.0.0.1", 0, send_buffer_bytes=65_536)
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=[WebSocketRoute("/", echo)]),
            ws="websockets-sansio",
            ws_per_message_deflate=False,
            log_config=None,
            lifespan="off",
        )
    )
    thread = _in_thread(lambda: server.serve([sock]))
    yield sock.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def _connect(port: int, path: str) -> Any:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
    return connect(f"ws://127.0.0.1:{port}{path}", compression=None)


def _sizes(socket_: Any) -> list[int]:
    socket_.send(json.dumps({"text": TEXT}))
    sizes = []
    while True:
        data = socket_.recv()
        sizes.append(len(data))
        if isinstance(data, str) and '"synthesis_complete"' in data:
            return sizes


def test_utterance(benchmark: Any, server_port: int) -> None:
    with _connect(server_port, "/invocations-bidirectional-stream") as client:
        benchmark.pedantic(lambda: _sizes(client), rounds=ROUNDS, warmup_rounds=10)
    _means["utterance"] = benchmark.stats.stats.median


def test_bare_echo(benchmark: Any, server_port: int, echo_port: int) -> None:
    with _connect(server_port, "/invocations-bidirectional-stream") as client:
        sizes = _sizes(client)
    asked = json.dumps(sizes)
    with _connect(echo_port, "/") as client:

        def trip() -> None:
            client.send(asked)
            for _ in sizes:
                client.recv()

        benchmark.pedantic(trip, rounds=ROUNDS, warmup_rounds=10)
    _means["echo"] = benchmark.stats.stats.median
    if "utterance" in _means:
        ratio = _means["utterance"] / _means["echo"]
        benchmark.extra_info["ratio"] = round(ratio, 2)
        print(f"\nan utterance takes {ratio:.2f} times as long as a bare echo of the same frames")
