"""Where the audio goes: whole files only, true sizes, nothing in the way of the event loop."""

import asyncio
import io
import os
import stat
import threading
import wave
from pathlib import Path

import pytest
from utterwire_client import Start
from utterwire_client.side_thread import SideThread
from utterwire_client.sink import (
    FileSink,
    RawContainer,
    StreamSink,
    WavContainer,
)
from utterwire_client.wav import MAX_DATA_BYTES, wav_header

PCM = Start(sample_rate=16000, format="pcm_s16le", voice="v")


class Pipe(io.RawIOBase):
    """An unbuffered stream that takes only some bytes at a time."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        piece = bytes(data)[:7]  # type: ignore[call-overload]
        self.taken += piece
        return len(piece)


def frames(data: bytes) -> tuple[int, bytes]:
    with wave.open(io.BytesIO(data)) as read:
        return read.getframerate(), read.readframes(read.getnframes())


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "hello.wav"
    sink = FileSink(path, WavContainer())
    sink.begin(PCM)
    sink.write(b"\x01\x00" * 100)
    assert not path.exists()
    sink.write(b"\x02\x00" * 100)
    assert sink.finish() == str(path)
    assert frames(path.read_bytes()) == (16000, b"\x01\x00" * 100 + b"\x02\x00" * 100)
    assert os.listdir(tmp_path) == ["hello.wav"]


def test_no_audio_is_a_valid_file(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "silence.wav", WavContainer())
    sink.begin(PCM)
    sink.finish()
    assert frames((tmp_path / "silence.wav").read_bytes()) == (16000, b"")


def test_the_file_that_was_there_stays_until_then(tmp_path: Path) -> None:
    path = tmp_path / "hello.wav"
    path.write_bytes(b"old")
    path.chmod(0o640)
    sink = FileSink(path, WavContainer())
    sink.begin(PCM)
    sink.write(b"\x01\x00")
    assert path.read_bytes() == b"old"
    kept = sink.give_up()
    assert path.read_bytes() == b"old"
    assert kept == str(tmp_path / "hello.partial.wav")
    assert frames(Path(kept).read_bytes()) == (16000, b"\x01\x00")
    again = FileSink(path, WavContainer())
    again.begin(PCM)
    again.finish()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_is_as_readable_as_any(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    sink = FileSink(tmp_path / "hello.pcm", RawContainer())
    sink.finish()
    assert (tmp_path / "hello.pcm").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_nothing_that_came_leaves_nothing(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "hello.wav", WavContainer())
    sink.begin(PCM)
    assert sink.give_up() is None
    assert sink.give_up() is None
    assert os.listdir(tmp_path) == []


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    target, link = tmp_path / "to" / "real.pcm", tmp_path / "link.pcm"
    target.write_bytes(b"old")
    link.symlink_to(target)
    sink = FileSink(link, RawContainer())
    sink.write(b"new!")
    sink.finish()
    assert link.is_symlink()
    assert target.read_bytes() == b"new!"


def test_a_disk_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink(tmp_path / "hello.pcm", RawContainer())
    sink.write(b"x" * 100)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        sink.finish()
    assert sink.give_up() is None
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileSink(tmp_path / "none" / "hello.wav", WavContainer())


def test_a_pipe_gets_true_sizes() -> None:
    pipe = Pipe()
    sink = StreamSink(pipe, "stdout", WavContainer())
    sink.begin(PCM)
    sink.write(b"\x01\x00" * 50)
    assert pipe.taken == b""
    assert sink.finish() == "stdout"
    assert frames(bytes(pipe.taken)) == (16000, b"\x01\x00" * 50)


def test_a_pipe_gets_the_audio_alone_as_it_is_made() -> None:
    pipe = Pipe()
    sink = StreamSink(pipe, "stdout", RawContainer())
    sink.begin(PCM)
    sink.write(b"\x01\x00" * 50)
    assert pipe.taken == b"\x01\x00" * 50
    sink.finish()
    assert len(pipe.taken) == 100
    assert pipe.closed


def test_what_a_pipe_did_not_get_is_dropped() -> None:
    pipe = Pipe()
    sink = StreamSink(pipe, "stdout", WavContainer())
    sink.begin(PCM)
    sink.write(b"\x01\x00")
    assert sink.give_up() is None
    assert pipe.taken == b""


@pytest.mark.parametrize("format", ["mulaw", "alaw"])
def test_g711_is_padded_to_a_whole_number_of_words(tmp_path: Path, format: str) -> None:
    path = tmp_path / "hello.wav"
    sink = FileSink(path, WavContainer())
    sink.begin(Start(sample_rate=8000, format=format, voice=None))
    sink.write(b"abc")
    sink.finish()
    expected = wav_header(3, sample_rate=8000, format=format) + b"abc\0"
    assert path.read_bytes() == expected


def test_a_wav_stream_gets_its_length(tmp_path: Path) -> None:
    stream = bytearray(wav_header(0, sample_rate=22050))
    stream[4:8] = stream[40:44] = b"\xff" * 4
    path = tmp_path / "hello.wav"
    sink = FileSink(path, WavContainer())
    sink.begin(Start(sample_rate=22050, format="wav", voice="v"))
    for byte in bytes(stream) + b"\x05\x00" * 3:
        sink.write(bytes([byte]))
    sink.finish()
    assert path.read_bytes() == wav_header(6, sample_rate=22050) + b"\x05\x00" * 3


def test_what_no_wav_can_hold() -> None:
    with pytest.raises(ValueError, match="mp3"):
        WavContainer().begin(Start(sample_rate=24000, format="mp3", voice=None))
    container = WavContainer()
    container.begin(PCM)
    container._taken = MAX_DATA_BYTES
    with pytest.raises(ValueError, match="more audio"):
        container.feed(b"\0\0")


async def test_calls_run_in_order_beside_the_loop() -> None:
    thread = SideThread()
    order: list[tuple[int, bool]] = []

    def call(number: int) -> int:
        order.append((number, threading.current_thread() is threading.main_thread()))
        return number

    results = await asyncio.gather(*(thread.run(lambda n=n: call(n)) for n in range(5)))  # type: ignore[misc]
    thread.stop()
    assert results == [0, 1, 2, 3, 4]
    assert order == [(n, False) for n in range(5)]


async def test_what_a_call_raises_is_raised() -> None:
    thread = SideThread()

    def fail() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        await thread.run(fail)
    thread.stop()


async def test_a_call_that_blocks_holds_up_nobody_else() -> None:
    thread = SideThread()
    release, entered, done = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        release.wait(30)

    waiting = asyncio.create_task(thread.run(block))
    await asyncio.to_thread(entered.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    last = asyncio.create_task(thread.run(done.set))
    await asyncio.sleep(0)
    release.set()
    await last
    thread.stop()
    assert done.is_set()


def test_a_loop_that_is_gone() -> None:
    thread = SideThread()
    release, ended = threading.Event(), threading.Event()

    async def leave() -> None:
        asyncio.get_running_loop().create_task(thread.run(lambda: release.wait(30)))
        await asyncio.sleep(0)

    asyncio.run(leave())
    release.set()
    thread._calls.put(ended.set)
    thread.stop()
    assert ended.wait(30)
