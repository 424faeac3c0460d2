"""`utterwire say` of a text that comes as it is typed: sentence by sentence, kept or played."""

import asyncio
import io
import json
import math
import os
import subprocess
import sys
import threading
import types
import wave
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_client.cli import ExitCode, main
from utterwire_client.errors import RequestInvalid
from utterwire_client.sound import SoundFinder
from utterwire_client.text_reader import TextReader

Serve = Callable[..., Awaitable[str]]

ONE, TWO = b"\x01\x00" * 2400, b"\x02\x00" * 2400


def speaking(*audio: bytes, **fields: Any) -> Any:
    """An endpoint that speaks a sentence for each piece of audio, and keeps what it was asked."""

    async def script(peer: Any) -> None:
        for number, data in enumerate(audio, 1):
            await peer.next("synthesize")
            await peer.speak(number, data, elapsed_s=0.01, **fields)
        # Kept before the client is gone: its thread may end first.
        script.asked = [m for m in peer.received if m["type"] == "synthesize"]  # type: ignore[attr-defined]
        await peer.say_goodbye()

    return script


@pytest.fixture
def say(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTTERWIRE_ENDPOINTS", raising=False)

    async def run(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = await asyncio.to_thread(main, ["say", *arguments])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


def samples(path: Path) -> bytes:
    with wave.open(str(path)) as file:
        return bytes(file.readframes(file.getnframes()))


async def test_what_is_typed_is_spoken_before_it_ends(endpoint: Serve, tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def script(peer: Any) -> None:
        assert (await peer.next())["text"] == "One is here."
        asked.set()
        await peer.speak(1, ONE)
        assert (await peer.next())["text"] == "Two is he"
        await peer.speak(2, TWO)
        await peer.say_goodbye()

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "utterwire_client", "say", "--url", await endpoint(script)),
        *("-o", "-", "--raw"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\ufeffOne is here. Two is".encode())
    await asked.wait()
    assert await process.stdout.readexactly(len(ONE)) == ONE
    process.stdin.write(b" he")
    process.stdin.close()
    out, err = await process.communicate()
    assert (process.returncode, out) == (0, TWO)
    first, done = err.decode().splitlines()
    assert first.startswith("first audio after ")
    assert done.startswith("0.20 s of audio in stdout (")


async def test_a_wav_file_of_sentences(endpoint: Serve, say: Any, tmp_path: Path) -> None:
    script = speaking(ONE, TWO)
    (tmp_path / "text.md").write_text("# The **one**\n\n`x` is Mr. Two.", encoding="utf-8")
    code, out, err = await say(
        "--file", "text.md", "--url", await endpoint(script), "-o", "a.wav", "--voice", "v"
    )
    assert (code, out) == (0, b"")
    assert samples(tmp_path / "a.wav") == ONE + TWO
    assert "real-time factor 0.100)" in err
    assert [m["text"] for m in script.asked] == ["The one", "x is Mr. Two."]
    assert {m["voice"] for m in script.asked} == {"v"}
    assert not any("marks" in m for m in script.asked)


@pytest.mark.parametrize("given", ["text", "stdin"])
async def test_a_file_is_not_waited_for_as_if_it_were_heard(
    endpoint: Serve, say: Any, tmp_path: Path, given: str
) -> None:
    hour = bytes(3_600_000)
    pieces = [hour[at : at + 60_000] for at in range(0, len(hour), 60_000)]

    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.speak(1, *pieces, format="mulaw", sample_rate=1000)
        await peer.say_goodbye()

    text = ["Here is one."] if given == "text" else []
    options = ("--url", await endpoint(script), "-o", "a.raw", "-q")
    code, _, err = await say(*text, *options, stdin=b"Here is one.")
    assert (code, err) == (0, "")
    assert (tmp_path / "a.raw").read_bytes() == hour


async def test_sentences_of_mp3_stand_in_one_file(
    endpoint: Serve, say: Any, tmp_path: Path
) -> None:
    script = speaking(b"first", b"second", format="mp3")
    options = ("--url", await endpoint(script), "-o", "a.mp3", "-q")
    assert await say("-", *options, stdin=b"Here is one. Here is two.") == (0, b"", "")
    assert (tmp_path / "a.mp3").read_bytes() == b"firstsecond"
    assert [m["format"] for m in script.asked] == ["mp3", "mp3"]


async def test_words_stand_in_all_of_the_text_and_of_the_audio(
    endpoint: Serve, say: Any, tmp_path: Path
) -> None:
    async def script(peer: Any) -> None:
        for seq, (word, data) in enumerate((("One", ONE), ("Two", TWO)), 1):
            assert (await peer.next())["marks"] == ["word"]
            await peer.start(seq)
            timed = {"text": word, "start_s": 0.01, "end_s": 0.05, "char_start": 0, "char_end": 3}
            await peer.send("marks", seq=seq, words=[timed])
            await peer.audio(data)
            await peer.complete(seq, len(data))
        await peer.say_goodbye()

    url = await endpoint(script)
    text = b"**One** it is. **Two** it is."
    code, _, err = await say("--url", url, "-o", "a.wav", "--marks", "w.jsonl", "-q", stdin=text)
    assert (code, err) == (0, "")
    words = [json.loads(line) for line in (tmp_path / "w.jsonl").read_bytes().splitlines()]
    assert [text[w["char_start"] : w["char_end"]].strip(b"*_ ") for w in words] == [b"One", b"Two"]
    assert [(w["start_s"], w["end_s"]) for w in words] == [
        (0.01, 0.05),
        (0.11, pytest.approx(0.15)),
    ]


@pytest.mark.parametrize("stdin", [b"", b" \n", "*** 🙂".encode()])
async def test_nothing_to_speak(endpoint: Serve, say: Any, stdin: bytes) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()

    code, _, err = await say("--url", await endpoint(script), "-o", "a.wav", stdin=stdin)
    assert (code, err) == (
        ExitCode.USAGE,
        "utterwire: there is nothing to speak in the text\n",
    )
    assert os.listdir() == []


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_what_is_not_utf8(endpoint: Serve, say: Any, transport: str) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()

    options = ("--url", await endpoint(script), "-o", "a.wav", "--transport", transport)
    code, _, err = await say(*options, stdin=b"Gr\xc3\xbc\xff")
    assert (code, err) == (ExitCode.USAGE, "utterwire: the text in stdin is not UTF-8 (byte 4)\n")


async def test_a_sentence_that_fails_ends_it(endpoint: Serve, say: Any, tmp_path: Path) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, ONE)
        await peer.next()
        await peer.error(2, "invalid_voice", rejected=True, message="no such voice")
        await peer.gone()

    options = ("--url", await endpoint(script), "-o", "a.wav", "-q")
    code, _, err = await say(*options, stdin=b"Here is one. Here is two.")
    assert code == ExitCode.REJECTED
    error, kept = err.splitlines()
    assert error.startswith("utterwire: sentence 2 was not spoken: ")
    assert kept == "utterwire: kept 0.10 s of audio in a.partial.wav"
    assert samples(tmp_path / "a.partial.wav") == ONE


async def test_a_rate_that_changes_between_sentences(endpoint: Serve, say: Any) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, ONE)
        await peer.next()
        await peer.speak(2, TWO, sample_rate=16000)
        await peer.gone()

    options = ("--url", await endpoint(script), "-o", "a.wav", "-q")
    code, _, err = await say(*options, stdin=b"Here is one. Here is two.")
    assert code == ExitCode.USAGE
    assert "goes on with pcm_s16le at 16000 Hz" in err


async def test_text_and_a_file_at_once(say: Any) -> None:
    code, _, err = await say("x", "--file", "y", "-o", "a.wav")
    assert code == ExitCode.USAGE
    assert "not both" in err


class Device:
    """What of `sounddevice` is used; plays at once whatever it is given."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.module = types.ModuleType("sounddevice")
        self.module.PortAudioError = OSError  # type: ignore[attr-defined]
        self.module.RawOutputStream = self.open  # type: ignore[attr-defined]

    def open(self, *, callback: Any, **options: Any) -> "Device":
        self.callback = callback
        self.rate = options["samplerate"]
        return self

    active = True

    def start(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.over.wait(0.002):
            block = bytearray(480)
            self.callback(block, 240, None, None)
            self.heard += block

    def stop(self) -> None:
        self.over.set()
        self.thread.join()

    def close(self) -> None:
        pass

    abort = stop


@pytest.mark.parametrize("text", ["x", None])
async def test_on_a_sound_device(
    endpoint: Serve, say: Any, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    device = Device()
    monkeypatch.setitem(sys.modules, "sounddevice", device.module)
    where = ("--url", await endpoint(speaking(ONE)), "--play")
    code, out, err = await say(*([text] if text else []), *where, stdin=b"Here is one.")
    assert (code, out) == (0, b"")
    assert device.rate == 24000
    assert device.heard.strip(b"\0") == ONE.strip(b"\0")
    assert err.splitlines()[-1].startswith("0.10 s of audio played (")
    assert os.listdir() == []


async def test_without_a_sound_device(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    code, _, err = await say("x", "--url", "ws://127.0.0.1:1", "--play")
    assert code == ExitCode.USAGE
    assert "utterwire[play]" in err


# -- text as it comes


class Pieces:
    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def read(self, size: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


@given(text=st.text(max_size=20), cuts=st.lists(st.integers(0, 80), max_size=6))
@settings(derandomize=True, max_examples=60, deadline=None)
async def test_where_text_is_cut_means_nothing(text: str, cuts: list[int]) -> None:
    data = text.encode()
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    got = [piece async for piece in TextReader(Pieces(*pieces))]
    assert "".join(got) == text.removeprefix("\ufeff")
    assert all(got)


@pytest.mark.parametrize(
    ("pieces", "at"), [((b"ab\xff",), 2), ((b"a\xe2", b"\x82x"), 1), ((b"ab", b"c\xe2\x82"), 3)]
)
async def test_where_text_is_not_utf8(pieces: tuple[bytes, ...], at: int) -> None:
    with pytest.raises(RequestInvalid, match=rf"pipe is not UTF-8 \(byte {at}\)"):
        _ = [piece async for piece in TextReader(Pieces(*pieces), "pipe")]


async def test_a_stream_that_cannot_be_read(tmp_path: Path) -> None:
    class Broken(Pieces):
        def read(self, size: int) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(RequestInvalid, match="cannot read it: Input/output error"):
        _ = [piece async for piece in TextReader(Broken(), "it")]


# -- where sound begins


def pcm(*parts: tuple[float, float], rate: int = 24000, offset: int = 0) -> bytes:
    """Tones of 440 Hz: seconds and level (1 is full scale) of each."""
    values = [
        offset + round(32767 * level * math.sqrt(2) * math.sin(2 * math.pi * 440 * n / rate))
        for seconds, level in parts
        for n in range(round(seconds * rate))
    ]
    return b"".join(value.to_bytes(2, "little", signed=True) for value in values)


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 44100])
@pytest.mark.parametrize(
    ("parts", "at_s"),
    [
        ([(0.2, 0.1)], 0.0),
        ([(0.3, 0.0), (0.2, 0.1)], 0.3),
        ([(0.3, 0.005), (0.2, 0.1)], 0.3),  # noise under the level
        ([(0.1, 0.0), (0.03, 0.1), (0.1, 0.0), (0.2, 0.1)], 0.23),  # a click is no sound
        ([(0.5, 0.005)], None),
        ([(0.3, 0.0), (0.03, 0.1)], None),  # too short to be decided
    ],
)
def test_first_sound(parts: list[tuple[float, float]], at_s: float | None, rate: int) -> None:
    for offset in (0, 3000):  # a constant is silence
        data = pcm(*parts, rate=rate, offset=offset)
        whole, bit = SoundFinder(rate), SoundFinder(rate)
        found = whole.feed(data)
        assert found == (None if at_s is None else pytest.approx(at_s, abs=0.006))
        for at in range(0, len(data), 333):
            bit.feed(data[at : at + 333])
        assert bit.at_s == found
        assert whole.feed(data) == found
