"""`utterwire lines`: lines in, audio and events out; the contract that the suite judges."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from utterwire_client import lines
from utterwire_client.backoff import Backoff
from utterwire_client.cli import ExitCode
from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import RequestInvalid, UtterwireError
from utterwire_client.lines import EventWriter, LineReader, LineSpeaker

Serve = Callable[..., Awaitable[str]]
# For sessions that are not said goodbye to.
HASTY = Deadlines(close_s=0.1)
ONE, TWO, THREE = b"\x01\x00" * 50, b"\x02\x00" * 60, b"\x03\x00" * 70


class Lines:
    """Lines that a test says, one at a time or all at once."""

    def __init__(self, *lines: str) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        for line in lines:
            self.say(line)

    def say(self, line: str | None) -> None:
        self._queue.put_nowait(line)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        return line


class Told:
    """What a speaker wrote."""

    def __init__(self) -> None:
        self.audio = bytearray()
        self.stream = io.StringIO()
        self.heard = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.audio += data
        self.heard.set()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    @property
    def endings(self) -> list[tuple[str, int, int]]:
        kinds = ("complete", "failed", "cancelled")
        return [
            (e["event"], e["utterance"], e["audio_bytes"])
            for e in self.events
            if e["event"] in kinds
        ]


def speaker(url: str, told: Told, **options: Any) -> LineSpeaker:
    return LineSpeaker(
        url,
        **{
            "profile": "core",
            "headers": [],
            "tls": None,
            "deadlines": Deadlines(),
            "retries": 0,
            "voice": None,
            "write": told.write,
            "events": EventWriter(told.stream),
            **options,
        },
    )


def ended(*lines: str) -> Lines:
    said = Lines(*lines)
    said.say(None)
    return said


async def run(url: str, *lines: str, **options: Any) -> tuple[Told, list[UtterwireError]]:
    told = Told()
    speaking = speaker(url, told, **options)
    async with asyncio.timeout(30):
        await speaking.speak(ended(*lines))
    return told, speaking.failures


async def test_lines_are_asked_for_at_once_and_spoken_in_order(
    endpoint: Serve, no_leftover_tasks: None
) -> None:
    async def script(peer: Any) -> None:
        assert [(await peer.next())["text"] for _ in range(3)] == ["One.", "Two.", "Three."]
        await peer.speak(1, ONE)
        await peer.speak(2, TWO, sample_rate=16000)
        await peer.speak(3)
        await peer.say_goodbye()

    told, failures = await run(await endpoint(script), "One.", "Two.", "Three.")
    assert failures == []
    assert bytes(told.audio) == ONE + TWO
    assert told.endings == [("complete", 1, 100), ("complete", 2, 120), ("complete", 3, 0)]
    start = {"event": "start", "utterance": 2, "sample_rate": 16000, "format": "pcm_s16le"}
    assert start in told.events


async def test_no_more_is_read_than_can_wait(
    endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_MOST_WAITING", 2)
    told, taken, ahead = Told(), 0, []

    async def script(peer: Any) -> None:
        for number in range(1, 6):
            await peer.next()
            await peer.speak(number, ONE)
        assert (await peer.next())["type"] == "close"

    async def said() -> AsyncIterator[str]:
        nonlocal taken
        for number in range(5):
            taken += 1
            yield f"Line {number}."

    async def write(data: bytes) -> None:
        ahead.append(taken - len(told.endings))
        await told.write(data)

    speaking = speaker(await endpoint(script), told, deadlines=HASTY, write=write)
    async with asyncio.timeout(30):
        await speaking.speak(said())
    assert told.endings == [("complete", number, len(ONE)) for number in range(1, 6)]
    assert max(ahead) <= 2


async def test_no_line_no_session() -> None:
    told, failures = await run("ws://127.0.0.1:9")
    assert (told.events, failures) == ([], [])


async def test_one_that_fails_leaves_the_others(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for _ in range(3):
            await peer.next()
        await peer.error(1, "invalid_voice", rejected=True)
        await peer.start(2)
        await peer.audio(TWO)
        await peer.error(2, "synthesis_failed", retryable=True)
        await peer.speak(3, THREE)
        await peer.say_goodbye()

    told, failures = await run(await endpoint(script), "One.", "Two.", "Three.", retries=3)
    # What was heard in part is not said again.
    assert told.endings == [("failed", 1, 0), ("failed", 2, 120), ("complete", 3, 140)]
    codes = {e["utterance"]: e["code"] for e in told.events if e["event"] == "failed"}
    assert codes == {1: "invalid_voice", 2: "synthesis_failed"}
    assert len(failures) == 2


async def test_a_text_that_nobody_may_be_asked_for(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, ONE)
        await peer.say_goodbye()

    told, failures = await run(await endpoint(script), "One.", "  \u3000")
    assert told.endings == [("complete", 1, 100), ("failed", 2, 0)]
    assert told.events[-1]["processed"] is False
    assert isinstance(failures[0], RequestInvalid)


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    told: list[float | None] = []

    def wait_s(self: Backoff, told_s: float | None = None) -> float:
        told.append(told_s)
        return 0.0

    monkeypatch.setattr(Backoff, "wait_s", wait_s)
    return told


async def test_what_may_pass_is_tried_again(
    endpoint: Serve, no_waits: list[float | None], no_leftover_tasks: None
) -> None:
    sessions = 0

    async def script(peer: Any) -> None:
        nonlocal sessions
        sessions += 1
        first = await peer.next()
        if sessions == 1:
            await peer.next()
            await peer.send("session_closed", reason="going_away", last_seq=0, retry_after_s=3)
            await peer.gone()
            return
        assert first["text"] == "One."
        await peer.error(1, "overloaded", retryable=True, rejected=True)
        await peer.next()
        again = 2 if sessions == 2 else 3
        assert again == 2
        second = peer.received[-1]["text"]
        assert second == "One."
        await peer.speak(2, ONE)
        await peer.next()
        await peer.speak(3, TWO)
        await peer.say_goodbye()

    told, failures = await run(await endpoint(script), "One.", "Two.", retries=2)
    assert failures == []
    assert told.endings == [("complete", 1, 100), ("complete", 2, 120)]
    # Twice for the first (told once), once for the second, which the first session took along.
    assert no_waits == [3, None, 3]


async def test_tries_have_an_end(no_waits: list[float | None], closed_port: int) -> None:
    told, failures = await run(f"ws://127.0.0.1:{closed_port}", "One.", retries=3)
    assert len(no_waits) == 3
    assert told.endings == [("failed", 1, 0)]
    assert told.events[-1]["processed"] is False
    assert len(failures) == 1


async def test_after_a_lost_session_the_next_line_gets_another(endpoint: Serve) -> None:
    sessions = 0
    gone = asyncio.Event()

    async def script(peer: Any) -> None:
        nonlocal sessions
        sessions += 1
        await peer.next()
        if sessions == 1:
            await peer.start(1)
            await peer.audio(ONE)
            await peer.send("session_closed", reason="policy", last_seq=1)
            await peer.gone()
            gone.set()
            return
        await peer.speak(1, TWO)
        await peer.say_goodbye()

    told = Told()
    speaking = speaker(await endpoint(script), told)
    lines = Lines("One.")
    task = asyncio.create_task(speaking.speak(lines))
    async with asyncio.timeout(30):
        await told.heard.wait()
        await gone.wait()
        lines.say("Two.")
        lines.say(None)
        await task
    assert told.endings == [("failed", 1, 100), ("complete", 2, 120)]
    assert "processed" not in told.events[1]


async def test_an_interruption_stops_all_and_drops_what_comes_after(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await peer.next("cancel")
        await peer.audio(THREE)
        await peer.send("cancelled", seq=1, audio_bytes=240)
        await peer.send("cancelled", seq=2, audio_bytes=0)
        await peer.send("cancel_done", seq=3, count=2)
        await peer.next()
        await peer.speak(4, TWO)
        await peer.say_goodbye()

    told = Told()
    lines = Lines("One.", "Other.")
    task = asyncio.create_task(speaker(await endpoint(script), told).speak(lines))
    async with asyncio.timeout(30):
        await told.heard.wait()
        lines.say("")
        lines.say("Yes?")
        lines.say(None)
        await task
    assert bytes(told.audio) == ONE + TWO
    assert told.endings == [("cancelled", 1, 100), ("cancelled", 2, 0), ("complete", 3, 120)]


async def test_an_endpoint_that_cannot_be_interrupted_is_not_listened_to(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await peer.next("cancel")
        await peer.error(2, "unknown_type", rejected=True)
        await peer.audio(THREE)
        await peer.complete(1, 240)
        await peer.next()
        await peer.speak(3, TWO)
        await peer.say_goodbye()

    told = Told()
    lines = Lines("One.")
    task = asyncio.create_task(speaker(await endpoint(script), told).speak(lines))
    async with asyncio.timeout(30):
        await told.heard.wait()
        for line in ("", "Yes?", None):
            lines.say(line)
        await task
    assert bytes(told.audio) == ONE + TWO
    assert told.endings == [("cancelled", 1, 100), ("complete", 2, 120)]


async def test_an_interruption_ends_the_wait_for_another_try(
    endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    def wait_s(self: Backoff, told_s: float | None = None) -> float:
        waiting.set()
        return 600.0

    monkeypatch.setattr(Backoff, "wait_s", wait_s)

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.error(1, "overloaded", retryable=True, rejected=True)
        await peer.gone()

    told = Told()
    lines = Lines("One.")
    speaking = speaker(await endpoint(script), told, retries=2, deadlines=HASTY)
    task = asyncio.create_task(speaking.speak(lines))
    async with asyncio.timeout(30):
        await waiting.wait()
        await asyncio.sleep(0)
        lines.say("")
        lines.say(None)
        await task
    assert told.endings == [("cancelled", 1, 0)]


async def test_nothing_to_interrupt(endpoint: Serve) -> None:
    told, failures = await run("ws://127.0.0.1:9", "", "")
    assert (told.events, failures) == ([], [])


async def test_warnings_come_once(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next()
        await peer.speak(1, ONE[:1], ONE[1:])
        await peer.speak(2, TWO[:3], TWO[3:])
        await peer.say_goodbye()

    told, _ = await run(await endpoint(script), "One.", "Two.")
    assert bytes(told.audio) == ONE + TWO
    warnings = [e["requirement"] for e in told.events if e["event"] == "warning"]
    assert warnings == ["audio.whole-samples"]


async def test_a_writer_that_fails_ends_it(endpoint: Serve, no_leftover_tasks: None) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await peer.gone()

    async def broken(data: bytes) -> None:
        raise BrokenPipeError

    speaking = speaker(await endpoint(script), Told(), write=broken, deadlines=HASTY)
    with pytest.raises(BrokenPipeError):
        await speaking.speak(Lines("One."))


async def test_cancelling_it_disconnects(endpoint: Serve, no_leftover_tasks: None) -> None:
    gone = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await peer.gone()
        gone.set()

    told = Told()
    speaking = speaker(await endpoint(script), told, deadlines=HASTY)
    task = asyncio.create_task(speaking.speak(Lines("One.")))
    async with asyncio.timeout(30):
        await told.heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone.wait()


def test_events_nobody_takes_are_lost_and_nothing_else() -> None:
    EventWriter(None).write("start", utterance=1)

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError

    writer = EventWriter(Full())
    writer.write("start", utterance=1)
    writer.write("start", utterance=2)


async def test_lines_of_a_pipe() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, "Zażółć\r\n\ntwo\x85parts\nlast".encode())
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        reader = LineReader(stream)
        assert [line async for line in reader] == ["Zażółć", "", "two\x85parts", "last"]


async def test_lines_that_are_no_text() -> None:
    reader = LineReader(io.BytesIO(b"\xff\n"))
    with pytest.raises(RequestInvalid, match="not UTF-8"):
        await anext(reader)


# --- the command -------------------------------------------------------------------------------


async def command(*arguments: str, stdin: bytes, cwd: Path) -> tuple[int | None, bytes, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "utterwire_client", "lines", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    out, err = await process.communicate(stdin)
    assert b"Traceback" not in err
    return process.returncode, out, err.decode()


async def two(peer: Any) -> None:
    await peer.next()
    await peer.next()
    await peer.speak(1, ONE)
    await peer.speak(2, TWO)
    await peer.say_goodbye()


async def test_the_command(endpoint: Serve, tmp_path: Path) -> None:
    url = await endpoint(two)
    code, out, err = await command("--url", url, stdin=b"One.\nTwo.\n", cwd=tmp_path)
    assert (code, out) == (ExitCode.DONE, ONE + TWO)
    assert [json.loads(line)["event"] for line in err.splitlines()] == [
        "start",
        "complete",
    ] * 2


async def test_the_command_with_a_file_for_events(endpoint: Serve, tmp_path: Path) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.error(1, "invalid_voice", rejected=True)
        await peer.say_goodbye()

    arguments = ("--url", await endpoint(script), "--events", "e.jsonl", "--timeout", "60")
    code, out, err = await command(*arguments, stdin=b"One.\n", cwd=tmp_path)
    assert (code, out) == (ExitCode.REJECTED, b"")
    assert err.startswith("utterwire: the endpoint does not accept the request")
    (line,) = (tmp_path / "e.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["code"] == "invalid_voice"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--retries", "-1"), "--retries wants"),
        (("--events", "no/such/folder"), "cannot write"),
        (("--timeout", "0"), "greater than 0"),
        (("--endpoint", "nobody"), "no endpoint 'nobody'"),
        (("--profile", "load"), "invalid choice"),
    ],
)
async def test_a_command_that_cannot_be_carried_out(
    arguments: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    code, out, err = await command(*arguments, stdin=b"One.\n", cwd=tmp_path)
    assert (code, out) == (ExitCode.USAGE, b"")
    assert err.count("\n") == 1
    assert reason in err


async def test_input_that_is_no_text(tmp_path: Path) -> None:
    code, _, err = await command("--url", "ws://127.0.0.1:9", stdin=b"\xff\n", cwd=tmp_path)
    assert code == ExitCode.USAGE
    assert "not UTF-8" in err
