"""An engine in a process of its own: it speaks the same, and whatever befalls it ends there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_server.engines import Block, EngineError, SpeechRequest, ToneEngine, WordMark
from utterwire_server.engines.worker import WorkerEngine, host, messages
from utterwire_server.engines.worker.messages import BrokenMessage, Message

HERE = Path(__file__).parent
TEXT = "Hello there, naïve 世界 and a \U0001f600!"
LONG = "and then it goes on for quite a while, as long texts do"


def asked(text: str) -> SpeechRequest:
    return SpeechRequest(text=text, voice="alto", speed=1.0, sample_rate=24_000)


async def spoken(engine: Any, text: str) -> list[Block]:
    return [block async for block in engine.synthesize(asked(text))]


async def the_rest(stream: AsyncGenerator[Block]) -> None:
    async for _ in stream:
        pass


@pytest.fixture
async def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Any]:
    """``await worker()`` gives a running `WorkerEngine`; at the end nothing is left of it."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setattr(host, "FIRST_DELAY_S", 0.01)
    engines: list[WorkerEngine] = []

    async def begin(
        factory: str = "ObedientEngine",
        arguments: dict[str, object] | None = None,
        *,
        start: bool = True,
        **options: Any,
    ) -> WorkerEngine:
        if arguments is None and factory == "ObedientEngine":
            arguments = {"folder": str(tmp_path)}
        engine = WorkerEngine(f"worker_engines:{factory}", arguments, like=ToneEngine(), **options)
        engines.append(engine)
        if start:
            await engine.start()
        return engine

    before = asyncio.all_tasks()
    descriptors = set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()
    yield begin
    for engine in engines:
        (tmp_path / "gate").touch()
        await engine.stop()
        assert not engine.healthy
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left
    if sys.platform == "linux":
        assert set(os.listdir("/proc/self/fd")) <= descriptors


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie that waits for a parent that has gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_it_speaks_as_the_engine_does(worker: Any) -> None:
    engine = await worker()
    assert (engine.name, engine.voices, engine.sample_rates) == (
        "tone",
        ToneEngine().voices,
        ToneEngine().sample_rates,
    )
    there, here = await spoken(engine, TEXT), await spoken(ToneEngine(), TEXT)
    assert len(there) == len(here) > 3
    for ours, theirs in zip(there, here, strict=True):
        np.testing.assert_array_equal(ours.samples, theirs.samples)
        assert ours.samples.dtype == np.float32
        assert ours.marks == theirs.marks
    assert await spoken(engine, "...") == []


async def test_streams_are_spoken_side_by_side(worker: Any) -> None:
    engine = await worker()
    texts = [f"{number} {TEXT}" for number in range(5)]
    many = await asyncio.gather(*(spoken(engine, text) for text in texts))
    for text, blocks in zip(texts, many, strict=True):
        alone = await spoken(ToneEngine(), text)
        np.testing.assert_array_equal(
            np.concatenate([block.samples for block in blocks]),
            np.concatenate([block.samples for block in alone]),
        )


async def test_an_engine_that_fails_fails_alone(worker: Any, log_lines: Any) -> None:
    engine = await worker()
    pid = engine.pid
    with pytest.raises(EngineError, match=r"EngineError at worker_engines.py:\d+ in the worker"):
        await spoken(engine, "fail at this")
    assert await spoken(engine, TEXT)
    assert engine.pid == pid
    assert "will not say" not in repr(log_lines)


def hasten(engine: Any, block_timeout_s: float) -> None:
    """Have the worker that runs now, and none after it, make its blocks in so short a time."""
    assert engine._worker._block_timeout_s == 77.0
    engine._worker._block_timeout_s = block_timeout_s


DEATHS = {
    "die": "ended by SIGKILL",
    "exit": "exited with status 7",
    "garble": "sent what is no message: its head is none",
    "hang": "made no block within 0.5 s",
}


@pytest.mark.parametrize("order", DEATHS)
async def test_its_death_fails_what_it_held_and_nothing_else(
    worker: Any, log_lines: Any, order: str
) -> None:
    engine = await worker(block_timeout_s=77.0)
    pid = engine.pid
    streams = [engine.synthesize(asked(text)) for text in (LONG, LONG, f"{order} now, please")]
    for stream in streams:
        assert (await anext(stream)).samples.size
    if order == "hang":
        hasten(engine, 0.5)
    for stream in reversed(streams):
        with pytest.raises(EngineError, match=DEATHS[order]):
            await the_rest(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert not engine.healthy
    assert not is_running(pid)
    # Who comes meanwhile waits for the next one, of another process.
    assert len(await spoken(engine, TEXT)) > 3
    assert engine.healthy
    assert engine.pid not in (pid, None)
    (ended,) = [fields for event, fields in log_lines if event == "engine_worker_ended"]
    assert DEATHS[order] in ended["error"]
    assert ended["failed_utterances"] == 3
    assert ended["restart_in_s"] == 0.0


async def test_one_whose_engine_is_broken_for_good_is_replaced(worker: Any) -> None:
    engine = await worker()
    pid = engine.pid
    with pytest.raises(EngineError, match="in the worker"):
        await spoken(engine, "break now, please")
    assert await spoken(engine, TEXT)
    assert engine.pid != pid


async def test_what_is_not_asked_for_at_its_death_fails_when_it_is(
    worker: Any, eventually: Any
) -> None:
    engine = await worker()
    stream = engine.synthesize(asked(LONG))
    await anext(stream)
    os.kill(engine.pid, signal.SIGKILL)
    await eventually(lambda: not engine.healthy)
    with pytest.raises(EngineError, match="ended by SIGKILL"):
        await anext(stream)


async def test_closing_waits_until_it_has_let_go(
    worker: Any, tmp_path: Path, eventually: Any
) -> None:
    engine = await worker()
    stream = engine.synthesize(asked("hold this, please"))
    await anext(stream)
    await anext(stream)
    asking = asyncio.create_task(anext(stream))
    other = engine.synthesize(asked(LONG))
    await anext(other)
    await eventually((tmp_path / "held").exists)
    asking.cancel()
    assert not (await asyncio.wait({asking}, timeout=0.05))[0]
    # Others speak on.
    await anext(other)
    (tmp_path / "gate").touch()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await stream.aclose()
    await other.aclose()
    assert await spoken(engine, TEXT)


async def test_one_that_does_not_let_go_is_killed(
    worker: Any, tmp_path: Path, eventually: Any
) -> None:
    engine = await worker(block_timeout_s=77.0)
    pid = engine.pid
    stream = engine.synthesize(asked("hold this, please"))
    await anext(stream)
    await anext(stream)
    asking = asyncio.create_task(anext(stream))
    await eventually((tmp_path / "held").exists)
    (held,) = engine._worker._streams.values()
    hasten(engine, 0.5)
    engine._worker._watch(held)
    asking.cancel()
    await asyncio.wait({asking})
    assert not is_running(pid)
    assert await spoken(engine, TEXT)


async def test_an_abandoned_stream_frees_the_worker(worker: Any) -> None:
    engine = await worker()
    async for _ in engine.synthesize(asked(LONG)):
        break
    assert await spoken(engine, TEXT)


REFUSALS = {
    "refusing": "the worker cannot make the engine: no model in /nowhere",
    "raising": "the worker cannot make the engine: OSError: no such device",
    "nothing": "the worker cannot make the engine: worker_engines:nothing made a NoneType",
    "missing": "the worker cannot make the engine: worker_engines:missing cannot be imported",
}


@pytest.mark.parametrize("factory", REFUSALS)
async def test_an_engine_that_cannot_be_made_is_tried_once(
    worker: Any, log_lines: Any, factory: str
) -> None:
    engine = await worker(factory, start=False)
    with pytest.raises(EngineError) as caught:
        await engine.start()
    assert str(caught.value).startswith(REFUSALS[factory])
    (ended,) = [fields for event, fields in log_lines if event == "engine_worker_ended"]
    assert ended["error"] == str(caught.value)
    assert ended["restart_in_s"] is None
    with pytest.raises(EngineError, match="stopped"):
        await spoken(engine, TEXT)


@pytest.mark.parametrize("times", [2, 3])
async def test_one_that_dies_as_it_starts_is_tried_a_few_times(
    worker: Any, tmp_path: Path, times: int
) -> None:
    tries = tmp_path / "tries"
    arguments = {"tries": str(tries), "times": times}
    engine = await worker("CrashingEngine", arguments, start=False)
    if times < host.START_ATTEMPTS:
        await engine.start()
        assert await spoken(engine, TEXT)
    else:
        with pytest.raises(EngineError, match="SIGSEGV"):
            await engine.start()
    assert tries.stat().st_size == host.START_ATTEMPTS


async def test_one_that_dies_before_anybody_sees_it_ready_is_tried_a_few_times(
    worker: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = host._Worker._admit

    def admit_for_a_moment(self: Any) -> None:
        admit(self)
        self._kill("was killed")
        self._shut()

    monkeypatch.setattr(host._Worker, "_admit", admit_for_a_moment)
    engine = await worker(start=False)
    with pytest.raises(EngineError, match="was killed"):
        await engine.start()
    ended = [event for event, _ in log_lines if event == "engine_worker_ended"]
    assert len(ended) == host.START_ATTEMPTS


async def test_one_that_does_not_end_when_it_is_killed_is_left_behind(
    worker: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await worker()
    process = engine._worker._process

    def wait(timeout: float | None = None) -> int:
        raise subprocess.TimeoutExpired("worker", timeout or 0.0)

    with monkeypatch.context() as held:
        held.setattr(process, "wait", wait)
        await engine.stop()
    process.wait()
    assert ("engine_worker_left", {"pid": process.pid}) in log_lines


async def test_once_it_has_run_it_is_started_again_and_again(
    worker: Any, tmp_path: Path, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "START_ATTEMPTS", 1)
    tries = tmp_path / "tries"
    engine = await worker("CrashingEngine", {"tries": str(tries), "times": 0})
    assert await spoken(engine, TEXT)
    # From now on it dies as it starts, more often than a first start may.
    pid, size = engine.pid, tries.stat().st_size
    os.truncate(tries, 0)
    engine._order.fields["arguments"]["times"] = host.START_ATTEMPTS + 1
    os.kill(pid, signal.SIGKILL)
    while engine.healthy:  # noqa: ASYNC110 - its death is not announced
        await asyncio.sleep(0.001)
    assert await spoken(engine, TEXT)
    assert tries.stat().st_size == host.START_ATTEMPTS + 2 > size
    delays = [f["restart_in_s"] for event, f in log_lines if event == "engine_worker_ended"]
    assert delays == [0.0, 0.01, 0.02]


@pytest.mark.parametrize(
    ("useless", "delay"), [(0, 0.0), (1, 0.5), (2, 1.0), (6, 16.0), (7, 30.0), (100_000, 30.0)]
)
def test_how_long_the_next_one_waits(useless: int, delay: float) -> None:
    assert host._delay_s(useless) == delay


async def test_a_slow_start_is_waited_for(worker: Any, tmp_path: Path, eventually: Any) -> None:
    gate = tmp_path / "gate"
    engine = await worker("SlowEngine", {"gate": str(gate)}, start=False)
    starting = asyncio.create_task(engine.start())
    await eventually((tmp_path / "loading").exists)
    assert not starting.done()
    assert not engine.healthy
    gate.touch()
    await starting
    assert engine.healthy


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_start_can_be_given_up(
    worker: Any, tmp_path: Path, eventually: Any, how: str
) -> None:
    engine = await worker("SlowEngine", {"gate": str(tmp_path / "never")}, start=False)
    starting = asyncio.create_task(engine.start())
    await eventually((tmp_path / "loading").exists)
    pid = engine._worker.pid
    if how == "cancel":
        starting.cancel()
        await asyncio.wait({starting})
    await engine.stop()
    assert not is_running(pid)
    await asyncio.wait({starting})


async def test_a_start_that_never_ends_is_ended(worker: Any, tmp_path: Path) -> None:
    arguments = {"gate": str(tmp_path / "never")}
    engine = await worker("SlowEngine", arguments, start=False, start_timeout_s=0.05)
    with pytest.raises(EngineError, match=r"not ready within 0\.05 s"):
        await engine.start()


async def test_a_process_that_cannot_be_started(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await worker(start=False)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EngineError, match="cannot be started: No such file"):
        await engine.start()


async def test_it_ends_when_it_is_told_to(worker: Any) -> None:
    engine = await worker()
    pid = engine.pid
    await engine.stop()
    assert not is_running(pid)
    with pytest.raises(EngineError, match="stopped"):
        await spoken(engine, TEXT)


async def test_signals_of_a_terminal_do_not_end_it(worker: Any) -> None:
    engine = await worker()
    assert os.getsid(engine.pid) != os.getsid(0)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(engine.pid, number)
    assert await spoken(engine, TEXT)
    (pid,) = {engine.pid}
    assert is_running(pid)


async def test_its_log_is_the_servers_and_holds_no_text(worker: Any, log_lines: Any) -> None:
    engine = await worker()
    with pytest.raises(EngineError):
        await spoken(engine, "fail to say that secret")
    assert await spoken(engine, TEXT)
    assert ("loaded", {"size": 3}) in log_lines
    assert ("engine_worker_said", {"line": "loading the model"}) in log_lines
    assert "secret" not in repr(log_lines)


async def test_arguments_that_json_does_not_hold() -> None:
    with pytest.raises(TypeError):
        WorkerEngine("a:b", {"c": object()}, like=ToneEngine())


SERVER = """
import asyncio
import sys
from utterwire_server.engines import SpeechRequest, ToneEngine
from utterwire_server.engines.worker import WorkerEngine

async def main(text, folder):
    arguments = {"folder": folder}
    engine = WorkerEngine("worker_engines:ObedientEngine", arguments, like=ToneEngine())
    await engine.start()
    print(engine.pid, flush=True)
    async for _ in engine.synthesize(SpeechRequest(text, "alto", 1.0, 24_000)):
        pass

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("text", ["hold on, nothing happens", "hang in there, please"])
async def test_it_does_not_outlive_a_server_that_is_killed(
    eventually: Any, tmp_path: Path, text: str
) -> None:
    path = os.pathsep.join([str(HERE), *sys.path])
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, text, str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert server.stdout is not None
    pid = int(await server.stdout.readline())
    await eventually((tmp_path / "held").exists)
    assert is_running(pid)
    server.kill()
    await eventually(lambda: not is_running(pid))
    await server.communicate()


# Through a server


async def test_killed_in_mid_speech_of_several_sessions(
    launch: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """One typed error for each utterance it held, nothing else, and no restart of the server."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path]))
    server = await launch("--engine", "worker_engines:served")
    (pid,) = [line["pid"] for line in server.lines if line["event"] == "engine_worker_ready"]
    speaking = [await connect(server) for _ in range(3)]
    idle = await connect(server)
    for peer in speaking:
        # More than there is room for on its way to somebody who does not read: it is still being
        # spoken when the worker is killed, however late that is.
        peer.say(text=LONG * 20, request_id="held")
        peer.say(text="After that.", request_id="waiting")
    for peer in speaking:
        await peer.until("synthesis_start")
        while not peer.audio():
            await peer.frame()
    async with httpx.AsyncClient(
        trust_env=False, timeout=60, base_url=f"http://127.0.0.1:{server.port}"
    ) as http:
        assert (await http.get("/ping")).status_code == 200
        os.kill(pid, signal.SIGKILL)
        for peer in speaking:
            error = await peer.until("error")
            assert (error["request_id"], error["code"], error["retryable"]) == (
                "held",
                "synthesis_failed",
                True,
            )
            assert "rejected" not in error
        seen = set()
        while 200 not in seen:
            seen.add((await http.get("/ping")).status_code)
    for peer in speaking:
        done = await peer.until("synthesis_complete")
        assert done["request_id"] == "waiting"
        peer.say(text="And more.", request_id="more")
        assert (await peer.until("synthesis_complete"))["request_id"] == "more"
    idle.say(text="Never bothered.")
    kinds = [(await idle.control())["type"] for _ in range(2)]
    assert kinds == ["synthesis_start", "synthesis_complete"]
    for peer in (*speaking, idle):
        await peer.leave()
    # What it logs comes whenever it comes, and all of it by its end.
    server.process.send_signal(signal.SIGTERM)
    assert await server.ended() == 0
    ended = [line for line in server.lines if line["event"] == "engine_worker_ended"]
    assert [line["failed_utterances"] for line in ended] == [3]
    failed = [line for line in server.lines if line.get("outcome") == "failed"]
    assert len(failed) == 3


# What they say to each other

BROKEN = {
    "no head": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a head": messages.encode(Message("x"))[:7],
    "half a body": messages.encode(Message("x", 1, {"a": 1}))[:-3],
    "half a payload": messages.encode(Message("x", 1, {}, b"12345678"))[:-3],
    "far too long": messages._HEAD.pack(b"UWwk", 2**31, 0),
    "no JSON": messages._HEAD.pack(b"UWwk", 3, 0) + b"{]}",
    "no object": messages._HEAD.pack(b"UWwk", 2, 0) + b"[]",
    "no kind": messages._HEAD.pack(b"UWwk", 12, 0) + b'{"stream":1}',
    "a kind that is none": messages._HEAD.pack(b"UWwk", 21, 0) + b'{"kind":1,"stream":1}',
    "a stream that is none": messages._HEAD.pack(b"UWwk", 25, 0) + b'{"kind":"x","stream":"1"}',
    "too deep": messages._HEAD.pack(b"UWwk", 99_999, 0) + b"[" * 99_999,
}


def feed(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_no_message(name: str) -> None:
    with pytest.raises(BrokenMessage):
        await messages.read(feed(BROKEN[name]))


@settings(deadline=None)
@given(
    text=st.text(min_size=1),
    stream=st.integers(0, 2**63),
    speed=st.floats(0.1, 10.0),
    samples=st.lists(st.floats(-2, 2, width=32), max_size=50),
    times=st.lists(st.floats(0, 1e6), max_size=4),
)
async def test_what_is_sent_is_what_comes(
    text: str, stream: int, speed: float, samples: list[float], times: list[float]
) -> None:
    request = SpeechRequest(text=text, voice=text, speed=speed, sample_rate=8_000)
    marks = tuple(WordMark(text, at, at, 3, 4) for at in times)
    block = Block(np.array(samples, np.float32), marks)
    sent = [messages.open_message(stream, request), messages.block_message(stream, block)]
    reader = feed(b"".join(map(messages.encode, sent)))
    first, second = await messages.read(reader), await messages.read(reader)
    assert await messages.read(reader) is None
    assert first is not None
    assert second is not None
    assert first.stream == second.stream == stream
    assert messages.request_of(first) == request
    came = messages.block_of(second)
    np.testing.assert_array_equal(came.samples, block.samples)
    assert came.marks == marks


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({}, b""),
        ({"marks": 3}, b""),
        ({"marks": [[1]]}, b""),
        ({"marks": [["a", 2.0, 1.0, 0, 1]]}, b""),
        ({"marks": []}, b"123"),
    ],
)
def test_what_carries_no_block(fields: dict[str, object], payload: bytes) -> None:
    with pytest.raises(BrokenMessage):
        messages.block_of(Message("block", 1, fields, payload))
