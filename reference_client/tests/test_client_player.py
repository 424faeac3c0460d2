"""Players: a file of what was heard, a pipe at the clock's pace, and a sound device."""

# ruff: noqa: PT012 - how a block is left is what is tested

import asyncio
import io
import os
import sys
import threading
import types
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from utterwire_client import (
    DevicePlayer,
    ExtraMissing,
    Player,
    RequestInvalid,
    Start,
    StreamPlayer,
    WavPlayer,
)

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")

START = Start(sample_rate=1000, format="pcm_s16le", voice="v")


def tone(milliseconds: int, value: int = 1) -> bytes:
    return value.to_bytes(2, "little") * milliseconds


class Time:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def frames(path: Path) -> bytes:
    with wave.open(str(path)) as read:
        assert (read.getframerate(), read.getsampwidth(), read.getnchannels()) == (1000, 2, 1)
        data: bytes = read.readframes(read.getnframes())
        return data


# -- a file


async def test_a_file_of_what_is_heard(tmp_path: Path) -> None:
    path, time = tmp_path / "heard.wav", Time()
    async with WavPlayer(path, clock=time) as player:
        await player.play(tone(100), START)
        await player.play(tone(100, 2), START)
        time.now = 0.25
        await player.play(tone(100, 3), START)
        time.now = 0.3
        assert player.heard_s == pytest.approx(0.25)
    assert frames(path) == tone(100) + tone(100, 2) + tone(50, 0) + tone(100, 3)


async def test_an_interruption_cuts_the_file(tmp_path: Path) -> None:
    path, time = tmp_path / "heard.wav", Time()
    async with WavPlayer(path, clock=time) as player:
        await player.play(tone(1000), START)
        time.now = 0.3
        assert player.flush() == pytest.approx(0.7)
        time.now = 0.4
        assert player.flush() == 0
        time.now = 5.0
        await player.play(tone(100, 2), START)
    assert frames(path) == tone(300) + tone(100, 2)
    assert os.listdir(tmp_path) == ["heard.wav"]


async def test_a_file_after_an_exception(tmp_path: Path) -> None:
    class Broke(Exception):
        pass

    time = Time()
    with pytest.raises(Broke):
        async with WavPlayer(tmp_path / "heard.wav", clock=time) as player:
            await player.play(tone(1000), START)
            time.now = 0.5
            raise Broke
    assert os.listdir(tmp_path) == ["heard.partial.wav"]
    assert frames(tmp_path / "heard.partial.wav") == tone(500)


async def test_a_file_of_nothing(tmp_path: Path) -> None:
    player = WavPlayer(str(tmp_path / "heard.wav"))
    await player.aclose()
    await player.aclose()
    with wave.open(str(tmp_path / "heard.wav")) as read:
        assert read.getnframes() == 0


async def test_a_file_that_cannot_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    player = WavPlayer(tmp_path / "heard.wav")
    await player.play(tone(10), START)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        await player.aclose()


async def test_other_formats(tmp_path: Path) -> None:
    time = Time()
    start = Start(sample_rate=1000, format="mulaw", voice=None)
    async with WavPlayer(tmp_path / "heard.wav", clock=time) as player:
        await player.play(b"abc", start)
        time.now = 0.005
        await player.play(b"de", start)
        with pytest.raises(RequestInvalid, match="pcm_s16le at 1000 Hz"):
            await player.play(tone(1), START)
    assert b"abc\xff\xffde" in (tmp_path / "heard.wav").read_bytes()
    async with WavPlayer(tmp_path / "no.wav") as player:
        with pytest.raises(RequestInvalid, match="mp3"):
            await player.play(b"abc", Start(sample_rate=24000, format="mp3", voice=None))


async def test_playing_waits_for_room(tmp_path: Path, clock: Any) -> None:
    loop = asyncio.get_running_loop()
    async with WavPlayer(tmp_path / "heard.wav", clock=loop.time, max_queued_s=100) as player:
        playing = asyncio.create_task(player.play(tone(150_000), START))
        await until(lambda: player.playback.enqueued_s > 0)
        await asyncio.sleep(0.01)
        assert not playing.done()
        await clock.advance(51)
        await playing
        again = asyncio.create_task(player.play(tone(150_000), START))
        await asyncio.sleep(0.01)
        assert not again.done()
        player.flush()
        await again


# -- a pipe


class Pipe(io.RawIOBase):
    """Takes only some bytes at a time, and tells how many it has."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.broken = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self.broken:
            raise BrokenPipeError(32, "Broken pipe")
        piece = bytes(data)[:70]
        self.taken += piece
        return len(piece)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.001)


async def test_a_pipe_gets_audio_when_its_time_comes(clock: Any) -> None:
    pipe, loop = Pipe(), asyncio.get_running_loop()
    began = loop.time()
    async with StreamPlayer(pipe, ahead_s=100, clock=loop.time) as player:
        await player.play(tone(30_000, 1), START)
        playing = asyncio.create_task(player.play(tone(200_000, 2), START))
        await until(lambda: len(pipe.taken) >= 2 * 100_000)
        await clock.advance(50)
        await until(lambda: len(pipe.taken) >= 2 * 150_000)
        taken = len(pipe.taken)
        assert taken <= 2 * 1000 * (loop.time() - began + 100)
        player.flush()
        await playing
        before = len(pipe.taken)
        await player.play(tone(10_000, 3), START)
        await until(lambda: len(pipe.taken) > before)
    assert bytes(pipe.taken[-20_000:]) == tone(10_000, 3)


async def test_who_reads_a_pipe_waits_through_a_gap_once() -> None:
    pipe, time = Pipe(), Time()
    async with StreamPlayer(pipe, clock=time) as player:
        await player.play(tone(100), START)
        time.now = 0.35
        await player.play(tone(100, 3), START)
        assert player.playback.gap_s == pytest.approx(0.25)
    assert bytes(pipe.taken) == tone(100) + tone(100, 3)


async def test_a_pipe_gets_the_rest_at_the_end() -> None:
    pipe = Pipe()
    async with StreamPlayer(pipe) as player:
        await player.play(tone(5_000), START)
    assert pipe.taken == tone(5_000)
    await player.aclose()
    with pytest.raises(RuntimeError, match="async with"):
        await player.play(tone(1), START)


async def test_a_pipe_after_an_exception() -> None:
    class Broke(Exception):
        pass

    pipe = Pipe()
    with pytest.raises(Broke):
        async with StreamPlayer(pipe, ahead_s=0.001) as player:
            await player.play(tone(50_000), START)
            raise Broke
    assert len(pipe.taken) < 2 * 50_000
    await player.__aexit__(Broke, Broke(), None)


async def test_a_pipe_that_breaks() -> None:
    pipe = Pipe()
    pipe.broken = True
    player = StreamPlayer(pipe)
    with pytest.raises(BrokenPipeError):
        async with player:
            await player.play(tone(10), START)
            await until(lambda: player._task is not None and player._task.done())
            await player.play(tone(10), START)


# -- a device


class Output:
    """A stream of the sound library: the test asks for blocks as the device would."""

    made: "list[Output]" = []  # noqa: RUF012 - the module makes them

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.log: list[str] = []
        self.thread: int | None = None
        self.active = True
        self.broken = False
        if options["device"] == "none":
            raise sys.modules["sounddevice"].PortAudioError("no such device")
        Output.made.append(self)

    def start(self) -> None:
        self.thread = threading.get_ident()
        self.log.append("start")

    def stop(self) -> None:
        self._end("stop")

    def abort(self) -> None:
        self._end("abort")

    def _end(self, how: str) -> None:
        self.log.append(how)
        if self.broken:
            raise sys.modules["sounddevice"].PortAudioError("unplugged")

    def close(self) -> None:
        self.log.append("close")

    def block(self, count: int) -> bytes:
        data = bytearray(b"\x99" * (2 * count))
        self.options["callback"](memoryview(data), count, None, None)
        return bytes(data)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[Output]:
    """The sound library, without a sound device."""
    module = types.ModuleType("sounddevice")
    module.RawOutputStream = Output  # type: ignore[attr-defined]
    module.PortAudioError = type("PortAudioError", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    Output.made = []
    return Output


async def test_a_device_is_fed_as_it_asks(device: type[Output]) -> None:
    time = Time()
    async with DevicePlayer("speakers", clock=time) as player:
        await player.play(tone(30), START)
        await player.play(tone(30, 2), START)
        (output,) = device.made
        assert output.thread != threading.get_ident()
        described = {name: output.options[name] for name in ("samplerate", "channels", "dtype")}
        assert described == {"samplerate": 1000, "channels": 1, "dtype": "int16"}
        assert output.options["device"] == "speakers"
        assert output.block(20) == tone(20)
        assert output.block(20) == tone(10) + tone(10, 2)
        assert output.block(40) == tone(20, 2) + tone(20, 0)
        await player.play(tone(100, 3), START)
        assert output.block(10) == tone(10, 3)
        time.now = 0.07
        assert player.flush() > 0
        assert output.block(10) == tone(10, 0)
    assert output.log == ["start", "stop", "close"]


async def test_closing_a_device_waits_for_the_rest(device: type[Output], clock: Any) -> None:
    player = DevicePlayer(clock=asyncio.get_running_loop().time)
    await player.play(tone(50_000), START)
    closing = asyncio.create_task(player.aclose())
    await clock.advance(60)
    await asyncio.sleep(0.01)
    (output,) = device.made
    assert output.log == ["start"]
    output.block(50_000)
    await closing
    assert output.log == ["start", "stop", "close"]


async def test_a_device_after_an_exception(device: type[Output]) -> None:
    class Broke(Exception):
        pass

    with pytest.raises(Broke):
        async with DevicePlayer() as player:
            await player.play(tone(50_000), START)
            raise Broke
    assert device.made[0].log == ["start", "abort", "close"]
    with pytest.raises(Broke):
        async with DevicePlayer():
            raise Broke


@pytest.mark.parametrize(("broken", "said"), [(False, "before the end"), (True, "unplugged")])
async def test_a_device_that_goes_away(
    device: type[Output], clock: Any, broken: bool, said: str
) -> None:
    player = DevicePlayer(clock=asyncio.get_running_loop().time)
    await player.play(tone(50_000), START)
    closing = asyncio.create_task(player.aclose())
    device.made[0].active, device.made[0].broken = False, broken
    await clock.advance(60)
    with pytest.raises(RequestInvalid, match=f"the sound device cannot be used: .*{said}"):
        await closing


async def test_a_device_that_goes_away_in_an_exception(device: type[Output]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with DevicePlayer() as player:
            await player.play(tone(50), START)
            device.made[0].broken = True
            raise ZeroDivisionError


async def test_silenced_while_the_device_opens(device: type[Output]) -> None:
    opening, go = threading.Event(), threading.Event()
    start = device.start

    def slow(self: Output) -> None:
        opening.set()
        go.wait(20)
        start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "start", slow)
        async with DevicePlayer() as player:
            playing = asyncio.create_task(player.play(tone(50), START))
            await asyncio.to_thread(opening.wait, 20)
            player.flush()
            go.set()
            await playing
            assert player.queued_s == 0
            assert device.made[0].block(5) == tone(5, 0)


async def test_a_device_that_cannot_be_used(device: type[Output]) -> None:
    async with DevicePlayer("none") as player:
        with pytest.raises(RequestInvalid, match="'none' cannot be used: no such device"):
            await player.play(tone(1), START)
    async with DevicePlayer() as player:
        with pytest.raises(RequestInvalid, match="alaw"):
            await player.play(b"x", Start(sample_rate=8000, format="alaw", voice=None))


@pytest.mark.parametrize(
    ("error", "said"), [(ModuleNotFoundError, "utterwire\\[play\\]"), (OSError, "libportaudio2")]
)
def test_without_the_library(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], said: str
) -> None:
    def missing(name: str) -> None:
        raise error(f"no {name}")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ExtraMissing, match=said):
        DevicePlayer()


# -- no output


async def test_a_player_without_an_output(clock: Any) -> None:
    loop = asyncio.get_running_loop()
    async with Player(clock=loop.time) as player:
        await player.play(tone(100_000), START)
        draining = asyncio.create_task(player.drain())
        await clock.advance(50)
        assert not draining.done()
        player.flush()
        await draining
        assert 50 <= player.heard_s < 100
    with pytest.raises(ZeroDivisionError):
        async with Player(clock=loop.time) as player:
            await player.play(tone(100_000), START)
            raise ZeroDivisionError
    assert player.queued_s == 0
