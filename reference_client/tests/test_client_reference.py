"""The client and the reference server, each in a process of its own."""

# ruff: noqa: PT012 - how a session ends is what is tested

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from utterwire_client import (
    Audio,
    Complete,
    PeerViolation,
    SessionLost,
    Start,
    UtteranceCancelled,
    UtteranceRejected,
    connect,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("uvicorn") is None or importlib.util.find_spec("starlette") is None,
    reason="the extra `server` is not installed",
)


# What this process can import, others can.
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Server:
    """A running reference server."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url


Launch = Callable[..., Awaitable[Server]]


@pytest.fixture
async def server() -> AsyncIterator[Launch]:
    """Starts a reference server on a free port, with the options given."""
    started: list[tuple[Server, asyncio.Task[None]]] = []

    async def drain(stream: asyncio.StreamReader) -> None:
        while await stream.readline():
            pass

    async def start(*options: str) -> Server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "utterwire_server", "--port", "0", *options),
            env=ENVIRON,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        while line := await process.stderr.readline():
            event = json.loads(line)
            if event["event"] == "listening":
                server = Server(process, f"ws://127.0.0.1:{event['port']}")
            elif event["event"] == "ready":
                break
        else:
            pytest.fail("the reference server did not start")
        started.append((server, asyncio.create_task(drain(process.stderr))))
        return server

    try:
        yield start
    finally:
        for server, task in started:
            if server.process.returncode is None:
                server.process.kill()
            await server.process.wait()
            await task


async def test_what_is_asked_for_is_spoken(server: Launch) -> None:
    violations: list[PeerViolation] = []
    url = (await server()).url
    async with connect(url, negotiate=True, on_violation=violations.append) as session:
        assert session.info is not None
        assert "interrupt" in session.info.profiles
        got = [event async for event in session.synthesize("Hello.")]
        assert isinstance(got[0], Start)
        assert (got[0].sample_rate, got[0].format) == (24000, "pcm_s16le")
        audio = b"".join(event.data for event in got if isinstance(event, Audio))
        complete = got[-1]
        assert isinstance(complete, Complete)
        assert len(audio) == complete.audio_bytes == complete.received_bytes > 0
        assert complete.characters == 6
        utterances = [session.synthesize(text) for text in ("Hello.", "Something else.", "?!")]
        again, other, nothing = [await utterance.read() for utterance in utterances]
        assert again == audio != other
        assert nothing == b""
        with pytest.raises(UtteranceRejected) as caught:
            await session.synthesize("x", voice="nobody's").read()
        assert caught.value.code == "invalid_voice"
    assert violations == []


async def test_audio_that_spells_json(server: Launch) -> None:
    violations: list[PeerViolation] = []
    url = (await server("--engine", "brace")).url
    async with connect(url, on_violation=violations.append) as session:
        got = [event async for event in session.synthesize("Some words of no importance.")]
    complete = got[-1]
    assert isinstance(complete, Complete)
    assert complete.audio_bytes == complete.received_bytes > 0
    assert violations == []


async def test_an_interrupt(server: Launch) -> None:
    url = (await server("--rtf", "0.5")).url
    async with connect(url) as session:
        long = session.synthesize("A text that takes a while to be spoken. " * 20)
        waiting = session.synthesize("This one waits.")
        async for event in long:
            if isinstance(event, Audio):
                break
        assert await session.cancel() == 2
        for utterance in (long, waiting):
            with pytest.raises(UtteranceCancelled):
                await utterance.read()
        async for event in session.synthesize("A text that takes a while to be spoken. " * 20):
            if isinstance(event, Audio):
                break
        assert await session.synthesize("Then.").read()


async def test_a_shutdown_in_the_middle(server: Launch) -> None:
    running = await server("--rtf", "0.5")
    async with connect(running.url) as session:
        utterance = session.synthesize("A text that takes a while to be spoken.")
        audio = b""
        async for event in utterance:
            if isinstance(event, Audio):
                if not audio:
                    running.process.send_signal(signal.SIGTERM)
                audio += event.data
        assert isinstance(event, Complete)
        assert event.audio_bytes == len(audio)
        with pytest.raises((SessionLost, UtteranceRejected)) as caught:
            while True:
                await session.synthesize("More.").read()
        assert caught.value.retryable
    assert await running.process.wait() == 0


@pytest.mark.parametrize("transport", ["websocket", "http", "sse"])
async def test_say(server: Launch, tmp_path: Path, transport: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "utterwire_client", "say", "Hello."),
        *("--url", (await server()).url, "-o", "hello.wav", "--transport", transport),
        cwd=tmp_path,
        env=ENVIRON,
        stderr=subprocess.PIPE,
    )
    await process.communicate()
    assert process.returncode == 0
    with wave.open(str(tmp_path / "hello.wav")) as read:
        assert read.getframerate() == 24000
        assert len(read.readframes(read.getnframes())) == 2 * read.getnframes() > 0


@pytest.mark.parametrize("profile", ["core", "negotiate", "http", "sse"])
async def test_lines(server: Launch, profile: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "utterwire_client", "lines"),
        *("--url", (await server()).url, "--profile", profile),
        env=ENVIRON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate("Hello.\nZażółć gęślą jaźń!\n".encode())
    assert process.returncode == 0, err.decode()
    events = [json.loads(line) for line in err.splitlines()]
    assert [e["event"] for e in events] == ["start", "complete"] * 2
    assert sum(e["audio_bytes"] for e in events if e["event"] == "complete") == len(out) > 0


async def test_lines_of_a_voice_that_there_is_not(server: Launch) -> None:
    url = (await server()).url
    for profile in ("core", "http", "sse"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "utterwire_client", "lines", "--url", url),
            *("--profile", profile, "--voice", "nobody", "--retries", "3"),
            env=ENVIRON,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate(b"Hello.\n")
        assert (process.returncode, out) == (4, b"")
        failed = json.loads(err.splitlines()[0])
        assert (failed["event"], failed["code"]) == ("failed", "invalid_voice")


README = Path(__file__).parent.parent / "README.md"


def programs() -> list[str]:
    """The Python programs that the README shows."""
    blocks = README.read_text(encoding="utf-8").split("```python\n")[1:]
    return [block.partition("```")[0] for block in blocks]


def test_the_readme_has_programs() -> None:
    assert len(programs()) >= 4
    assert all("ws://127.0.0.1:8080" in program for program in programs() if "main()" in program)


@pytest.mark.slow
async def test_the_programs_of_the_readme_run(server: Launch, tmp_path: Path) -> None:
    url = (await server()).url
    for number, program in enumerate(programs()):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program.replace("ws://127.0.0.1:8080", url), encoding="utf-8")
        # Under another name than that of a main program, so that what serves for ever does not.
        run = "import runpy, sys; runpy.run_path(sys.argv[1])"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", run, str(path)),
            cwd=tmp_path,
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
