"""Hostile messages by the megabyte kill no session and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import statistics
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from utterwire_server.engines import ToneEngine
from utterwire_server.runner import Runner, listen
from utterwire_server.service import Service
from utterwire_server.session import Session
from utterwire_server.settings import Settings
from websockets.sync.client import ClientConnection, connect

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["synthesize", "cancel", "keepalive", "hello", "append", "pcm_s16le", "alto"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["type", "text", "voice", "speed", "sample_rate", "format", "request_id", "marks", "stream"]
)
OBJECTS = st.dictionaries(FIELDS | st.text(max_size=5), VALUES, max_size=6)
VALID = st.fixed_dictionaries(
    {"text": st.text(min_size=1, max_size=200)},
    optional={"request_id": st.sampled_from(["a", "b", "c"]), "speed": st.floats(0.4, 2.1)},
)
JSON = (OBJECTS | VALID).map(lambda fields: json.dumps(fields).encode())
BROKEN = st.tuples(JSON, st.integers(0, 200), st.binary(max_size=3)).map(
    lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 1 :]
)
REPEATED = st.tuples(
    st.sampled_from(
        [b"[", b"{", b'{"a":', b'"', b"9", b"\\u", b" ", b"\xff", b"{}", b'"\\ud800"', b"-", b"1e9"]
    ),
    st.sampled_from([1, 100, 5_000, 20_000]),
).map(lambda pair: pair[0] * pair[1])
MESSAGES = st.one_of(st.binary(max_size=300), JSON, BROKEN, REPEATED)

ROUND = 1_000
# One of every kind that is answered or ignored; all differ where they can, so that what is kept of
# them is not one object over and over.
KINDS = (
    b'{"text": 1, "n": %d}',
    b'{"type": "append %d"}',
    b'{"text": "", "request_id": "id %d"}',
    b'{"text": "a", "voice": "nobody %d"}',
    b'{"type": "cancel", "request_id": "id %d"}',
    b'{"type": "keepalive", "%d": 0}',
    b"\xff %d",
    b"[%d",
)
#: What a message may leave in memory. The least that can be kept of one, a reference to something
#: small of its own, is more; what a round varies by of itself, shared out, is less.
BYTES_A_MESSAGE = 12


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, Any]]:
    sock = listen("127.0.0.1", 0, send_buffer_bytes=65_536)
    handle: dict[str, Any] = {"port": sock.getsockname()[1]}
    started = threading.Event()

    async def main() -> None:
        service = Service(Settings(shutdown_timeout_s=0.0), ToneEngine())
        runner = Runner(service, sock)
        handle.update(loop=asyncio.get_running_loop(), service=service, runner=runner)
        running = asyncio.create_task(runner.run())
        while not service.ready:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)
        handle["tasks"] = len(asyncio.all_tasks())
        started.set()
        await running

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    started.wait()
    yield handle
    handle["loop"].call_soon_threadsafe(handle["runner"].stop)
    thread.join()


def _is_close(message: bytes) -> bool:
    return b"close" in message


@given(st.lists(MESSAGES.filter(lambda m: not _is_close(m)), min_size=20, max_size=60))
@settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_session_outlives_hostile_messages(server: dict[str, Any], messages: list[bytes]) -> None:
    with connect(_url(server), compression=None) as client:
        for index, message in enumerate(messages):
            text: str | bytes = message
            if index % 2:
                # In a text frame, bad UTF-8 rightly ends the connection (RFC 6455 section 8.1).
                text = message.decode("utf-8", "replace")
            client.send(text)
        client.send(json.dumps({"type": "cancel"}))
        client.send(json.dumps({"text": "Hi.", "request_id": "the last"}))
        own = len(messages) + 2
        while True:
            data = client.recv(timeout=60)
            if isinstance(data, str):
                told = json.loads(data)
                assert told["type"] != "session_closed"
                if told.get("seq") == own and told["type"] != "synthesis_start":
                    break
        assert told["type"] == "synthesis_complete"
        assert told["request_id"] == "the last"


def _round(client: ClientConnection, number: int) -> None:
    """Send `ROUND` hostile messages in an open session, and read until all have their answer."""
    base = number * ROUND
    for at in range(base, base + ROUND - 1):
        client.send(KINDS[at % len(KINDS)] % at)
        if at % 50 == 0:
            client.send(b"{" * 20_000)
    client.send(json.dumps({"text": "Hi.", "request_id": f"last {number}"}))
    while True:
        data = client.recv(timeout=60)
        if isinstance(data, str):
            told = json.loads(data)
            if told["type"] == "synthesis_complete":
                assert told["request_id"] == f"last {number}"
                return


async def _settled(server: dict[str, Any]) -> None:
    service, runner = server["service"], server["runner"]
    async with asyncio.timeout(50):
        while (  # noqa: ASYNC110
            service.guests or service.scheduler.speaking or runner._server.server_state.connections
        ):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)


def _url(server: dict[str, Any]) -> str:
    return f"ws://127.0.0.1:{server['port']}/invocations-bidirectional-stream"


@pytest.mark.slow
@pytest.mark.parametrize("sessions", ["one", "many"])
def test_messages_leave_nothing_in_memory(server: dict[str, Any], sessions: str) -> None:
    """Equal rounds after a warm-up: a leak grows in every one of them, noise now and then."""
    held: list[int] = []
    tracemalloc.start()
    try:
        with ExitStack() as stack:
            client = stack.enter_context(connect(_url(server), compression=None))
            for number in range(7):
                _round(client, number)
                if sessions == "many":
                    stack.close()
                    asyncio.run_coroutine_threadsafe(_settled(server), server["loop"]).result(60)
                    client = stack.enter_context(connect(_url(server), compression=None))
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    growth = [after - before for before, after in pairwise(held[2:])]
    assert statistics.median(growth) < ROUND * BYTES_A_MESSAGE, held


def test_nothing_is_left_behind(server: dict[str, Any]) -> None:
    service = server["service"]
    for number in range(3):
        with connect(_url(server), compression=None) as client:
            _round(client, number)
        # This one goes in the middle of everything, without a close frame.
        with connect(_url(server), compression=None) as vanishing:
            for at in range(50):
                vanishing.send(KINDS[at % len(KINDS)] % at)
                vanishing.send(json.dumps({"text": "A long story. " * 100}))
            vanishing.socket.shutdown(socket.SHUT_RDWR)

    async def left() -> tuple[int, int, int, int]:
        await _settled(server)
        gc.collect()
        # Not those that a test of another module has kept, by its traceback say.
        open_sessions = sum(
            type(thing) is Session and thing._service is service for thing in gc.get_objects()
        )
        # This probe is a task of the loop as well.
        return (
            len(asyncio.all_tasks()) - 1,
            service.scheduler.speaking,
            service.scheduler.computing,
            open_sessions,
        )

    tasks, speaking, computing, open_sessions = asyncio.run_coroutine_threadsafe(
        left(), server["loop"]
    ).result(60)
    assert (speaking, computing, open_sessions) == (0, 0, 0)
    assert tasks <= server["tasks"]
