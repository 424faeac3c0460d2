"""`utterwire say --marks`: words as JSON lines beside the audio (`protocol.md#marks`)."""

import asyncio
import json
import os
import struct
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from utterwire_client.cli import ExitCode, main
from utterwire_client.events import Word
from utterwire_client.word_file import WordFile

Serve = Callable[..., Awaitable[str]]
TONE = struct.pack("<h", 1) * 2_400
WORDS = [Word("Grüße,", 0.0, 0.05, 0, 6), Word("\U0001f600", 0.05, 0.1, 7, 8)]


async def timed(peer: Any) -> None:
    await tell(peer)
    await peer.say_goodbye()


async def abandoned(peer: Any) -> None:
    """The client leaves when it cannot write, with or without a `cancel` before."""
    await tell(peer)
    await peer.gone()


async def tell(peer: Any) -> None:
    asked = await peer.next()
    assert asked["marks"] == ["word"]
    await peer.send("synthesis_start", seq=1, sample_rate=24_000, format="pcm_s16le", voice="v")
    for word in WORDS:
        await peer.send("marks", seq=1, words=[asdict(word)])
        await peer.audio(TONE[: len(TONE) // 2])
    await peer.send(
        "synthesis_complete",
        seq=1,
        total_duration_s=0.1,
        elapsed_s=0.0,
        audio_bytes=len(TONE),
        characters=8,
    )


async def untimed(peer: Any) -> None:
    asked = await peer.next()
    assert asked["marks"] == ["word"]
    await peer.speak(1, TONE)
    await peer.say_goodbye()


@pytest.fixture
def say(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[tuple[int, bytes, str]]]:
    monkeypatch.chdir(tmp_path)

    async def run(*arguments: str) -> tuple[int, bytes, str]:
        code = await asyncio.to_thread(main, ["say", "Grüße, \U0001f600", "-q", *arguments])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


def lines(data: bytes) -> list[Word]:
    return [Word(**json.loads(line)) for line in data.splitlines()]


async def test_words_in_a_file(endpoint: Serve, say: Any, tmp_path: Path) -> None:
    url = await endpoint(timed)
    assert await say("--url", url, "-o", "a.wav", "--marks", "a.jsonl") == (0, b"", "")
    written = (tmp_path / "a.jsonl").read_bytes()
    assert lines(written) == WORDS
    assert "Grüße".encode() in written
    assert (tmp_path / "a.wav").stat().st_size == 44 + len(TONE)


async def test_words_on_stdout(endpoint: Serve, say: Any) -> None:
    code, out, err = await say("--url", await endpoint(timed), "-o", "a.wav", "--marks", "-")
    assert (code, err) == (0, "")
    assert lines(out) == WORDS


async def test_an_endpoint_that_tells_of_no_words(
    endpoint: Serve, say: Any, tmp_path: Path
) -> None:
    url = await endpoint(untimed)
    code, _, err = await say("--url", url, "-o", "a.wav", "--marks", "a.jsonl")
    assert (code, err) == (0, "utterwire: warning: the endpoint told of no words\n")
    assert (tmp_path / "a.jsonl").read_bytes() == b""


USAGE: list[tuple[list[str], str]] = [
    (["--marks", "-"], "cannot take both"),
    (["-o", "a.wav", "--marks", "no/such/folder"], "cannot write no/such/folder"),
    (["-o", "a.wav", "--marks", "."], "cannot write ."),
]


@pytest.mark.parametrize(("options", "words"), USAGE)
async def test_mistakes_are_told_in_a_line(say: Any, options: list[str], words: str) -> None:
    code, out, err = await say("--url", "ws://127.0.0.1:1", *options)
    assert (code, out) == (ExitCode.USAGE, b"")
    assert words in err
    assert err.count("\n") == 1


async def test_a_closed_stdout(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    code, _, err = await say("--url", "ws://127.0.0.1:1", "-o", "a.wav", "--marks", "-")
    assert code == ExitCode.USAGE
    assert "stdout is closed" in err


async def test_a_full_disk(endpoint: Serve, say: Any) -> None:
    url = await endpoint(abandoned)
    code, _, err = await say("--url", url, "-o", "a.wav", "--marks", "/dev/full")
    assert code == ExitCode.USAGE
    assert "cannot write /dev/full: No space left" in err


def test_nobody_reads_the_words(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = WordFile("-", writer)
    with pytest.raises(BrokenPipeError):
        words.write(WORDS)
    words.close()
    os.close(writer)


async def test_a_pipe_that_nobody_reads(endpoint: Serve, say: Any) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    url = await endpoint(abandoned)
    code, _, err = await say("--url", url, "-o", "a.wav", "--marks", f"/dev/fd/{writer}")
    os.close(writer)
    assert (code, err) == (ExitCode.BROKEN_PIPE, "")
