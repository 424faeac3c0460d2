"""`utterwire say`, as a process would be run: exit codes, files, pipes, one-line errors."""

import asyncio
import io
import os
import signal
import ssl
import stat
import struct
import subprocess
import sys
import threading
import wave
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from utterwire_client.cli import ExitCode, main

Serve = Callable[..., Awaitable[str]]


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


def frames(data: bytes) -> tuple[int, bytes]:
    with wave.open(io.BytesIO(data)) as read:
        return read.getframerate(), read.readframes(read.getnframes())


@dataclass
class Result:
    code: int
    out: bytes
    err: str

    def one_line(self) -> str:
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("utterwire: ")
        return self.err


class Say:
    """Runs `utterwire say` beside the test's event loop: in a thread, or as a process."""

    def __init__(self, directory: Path, captured: pytest.CaptureFixture[bytes]) -> None:
        self.directory = directory
        self._captured = captured
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    async def __call__(self, *arguments: str) -> Result:
        code = await asyncio.to_thread(main, ["say", *arguments])
        out, err = self._captured.readouterr()
        return Result(code, out, err.decode())

    async def start(self, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "utterwire_client", *arguments),
            cwd=self.directory,
            env=self.environ,
            **{**streams, **options},
        )

    async def run(self, *arguments: str, stdin: bytes = b"") -> Result:
        process = await self.start(*arguments, stdin=subprocess.PIPE)
        out, err = await process.communicate(stdin)
        assert process.returncode is not None
        assert b"Traceback" not in err
        return Result(process.returncode, out, err.decode())


@pytest.fixture
def say(
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Say:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTTERWIRE_ENDPOINTS", raising=False)
    return Say(tmp_path, capfdbinary)


async def hello(peer: Any) -> None:
    await peer.next()
    await peer.speak(1, tone(12000), tone(12000, 2))
    await peer.say_goodbye()


async def test_a_wav_file(endpoint: Serve, say: Say) -> None:
    result = await say("Hello.", "--url", await endpoint(hello), "-o", "hello.wav")
    assert result.code == ExitCode.DONE
    assert frames((say.directory / "hello.wav").read_bytes()) == (
        24000,
        tone(12000) + tone(12000, 2),
    )
    assert result.out == b""
    first, done = result.err.splitlines()
    assert first.startswith("first audio after ")
    assert done.startswith("1.00 s of audio in hello.wav")


async def test_an_endpoint_by_name(
    endpoint: Serve, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    async def script(peer: Any) -> None:
        headers = peer.connection.request.headers
        seen.update(await peer.next(), token=headers["X-Token"], other=headers["X-Other"])
        await peer.speak(1, tone(4))
        await peer.say_goodbye()

    (tmp_path / "endpoints.toml").write_text(
        f'[endpoint.mine]\nurl = "{await endpoint(script)}"\nvoice = "anna"\n'
        'headers = { X-Token = "${TOKEN}", X-Other = "file" }\ntimeouts = { stall_s = 20 }\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("TOKEN", "s3cret")
    options = ("-o", "hello.wav", "--quiet", "--header", "x-other: flag")
    result = await say("Hello.", "--endpoint", "mine", *options)
    assert (result.code, result.err) == (0, "")
    assert (seen["text"], seen["voice"]) == ("Hello.", "anna")
    assert (seen["token"], seen["other"]) == ("s3cret", "flag")


async def test_every_option(endpoint: Serve, say: Say) -> None:
    seen: dict[str, Any] = {}

    async def script(peer: Any) -> None:
        seen.update(await peer.next(), header=peer.connection.request.headers["X-A"])
        await peer.speak(1, b"\x01\x02\x03", sample_rate=8000, format="mulaw")
        await peer.say_goodbye()

    result = await say(
        *("Hello.", "--url", await endpoint(script), "-o", "hello.wav", "--voice", "v"),
        *("--speed", "1.5", "--sample-rate", "8000", "--format", "mulaw"),
        *("--header", "X-A: b: c", "--timeout", "20"),
    )
    assert result.code == 0
    seen.pop("type", None)
    assert seen == {
        "text": "Hello.",
        "voice": "v",
        "speed": 1.5,
        "sample_rate": 8000,
        "format": "mulaw",
        "header": "b: c",
    }
    assert (say.directory / "hello.wav").read_bytes().endswith(b"\x01\x02\x03\0")


async def test_stdin_and_stdout(endpoint: Serve, say: Say) -> None:
    text = "Grüße,\n世界.\n"

    async def script(peer: Any) -> None:
        assert (await peer.next())["text"] == text
        await peer.speak(1, tone(100))
        await peer.say_goodbye()

    url = await endpoint(script)
    stdin = b"\xef\xbb\xbf" + text.encode()
    result = await say.run("say", "-", "--whole", "--url", url, "-o", "-", stdin=stdin)
    assert result.code == 0
    assert frames(result.out) == (24000, tone(100))


async def test_a_text_file(endpoint: Serve, say: Say, tmp_path: Path) -> None:
    async def script(peer: Any) -> None:
        assert (await peer.next())["text"] == "from a file"
        await peer.speak(1, tone(100))
        await peer.say_goodbye()

    (tmp_path / "text.txt").write_text("from a file", encoding="utf-8")
    result = await say("--file", "text.txt", "--url", await endpoint(script))
    assert result.code == 0
    assert frames(result.out) == (24000, tone(100))


async def test_the_audio_alone_leaves_as_it_is_made(endpoint: Serve, say: Say) -> None:
    read = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(100))
        await read.wait()
        await peer.audio(tone(50))
        await peer.complete(1, 300)
        await peer.say_goodbye()

    process = await say.start("say", "x", "--url", await endpoint(script), "--raw", "-q")
    assert process.stdout is not None
    assert await process.stdout.readexactly(200) == tone(100)
    read.set()
    assert await process.communicate() == (tone(50), b"")


@pytest.mark.parametrize(
    ("name", "format", "expected"),
    [
        ("hello.pcm", None, tone(4)),
        ("hello.raw", "pcm_s16le", tone(4)),
        ("hello.mp3", "mp3", tone(4)),
        ("hello", None, tone(4)),
    ],
)
async def test_the_audio_alone_in_a_file(
    endpoint: Serve, say: Say, name: str, format: str | None, expected: bytes
) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(4), format=format or "pcm_s16le")
        await peer.say_goodbye()

    options = () if format is None else ("--format", format)
    result = await say("x", "--url", await endpoint(script), "-o", name, *options)
    assert result.code == 0
    assert (say.directory / name).read_bytes() == expected


@pytest.mark.parametrize(
    ("name", "options", "asked"),
    [
        ("hello.mp3", (), "mp3"),
        ("hello.AAC", (), "aac"),
        ("hello.ogg", (), "opus"),
        ("hello.opus", ("--format", "opus"), "opus"),
        ("hello.mp3", ("--raw",), None),
        ("hello.wav", (), None),
        ("hello.pcm", (), None),
    ],
)
async def test_a_suffix_asks_for_its_format(
    endpoint: Serve, say: Say, name: str, options: tuple[str, ...], asked: str | None
) -> None:
    async def script(peer: Any) -> None:
        assert (await peer.next()).get("format") == asked
        await peer.speak(1, tone(4), format=asked or "pcm_s16le")
        await peer.say_goodbye()

    result = await say("x", "--url", await endpoint(script), "-o", name, *options)
    assert result.code == 0
    assert (say.directory / name).read_bytes().endswith(tone(4))


async def test_a_name_that_would_promise_another_format(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(4))
        await peer.gone()

    result = await say("x", "--url", await endpoint(script), "-o", "a.mp3")
    assert result.code == ExitCode.USAGE
    assert "sends pcm_s16le" in result.one_line()
    assert list(say.directory.iterdir()) == []


async def test_a_device(endpoint: Serve, say: Say) -> None:
    result = await say("x", "--url", await endpoint(hello), "-o", "/dev/null")
    assert result.code == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)  # not replaced by a file


async def test_an_endpoint_of_before(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.audio(tone(100)[:-1])
        await peer.audio(tone(1)[:1] + tone(1))
        await peer.send("synthesis_complete")

    result = await say("x", "--url", await endpoint(script), "-o", "hello.wav", "-q")
    assert result.code == 0
    assert "warning" in result.one_line()
    assert len(frames((say.directory / "hello.wav").read_bytes())[1]) == 202


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- failures


async def test_a_failure_keeps_what_came(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(2400))
        await peer.error(1, "synthesis_failed", message="out of \x1b[31mbreath", retryable=True)
        await peer.gone()

    (say.directory / "hello.wav").write_bytes(b"old")
    result = await say("x", "--url", await endpoint(script), "-o", "hello.wav", "-q")
    assert result.code == ExitCode.FAILED
    error, kept = result.err.splitlines()
    assert "synthesis_failed: out of" in error
    assert "\x1b" not in error
    assert kept == "utterwire: kept 0.10 s of audio in hello.partial.wav"
    assert (say.directory / "hello.wav").read_bytes() == b"old"
    assert frames((say.directory / "hello.partial.wav").read_bytes()) == (24000, tone(2400))
    assert len(list(say.directory.iterdir())) == 2


async def test_a_hole_is_a_failure(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(2400))
        await peer.connection.send(tone(2400).decode())  # audio in a text frame
        await peer.complete(1, 9600)
        await peer.say_goodbye()

    result = await say("x", "--url", await endpoint(script), "-o", "hello.wav", "-q")
    assert result.code == ExitCode.FAILED
    assert "4800 of 9600 bytes" in result.err
    assert os.listdir(say.directory) == ["hello.partial.wav"]


async def test_a_failure_on_a_pipe(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(2400))
        await peer.connection.close(1011)

    result = await say("x", "--url", await endpoint(script), "-q")
    assert (result.code, result.out) == (ExitCode.FAILED, b"")
    assert "1011" in result.one_line()


async def test_a_rejection(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.error(1, "invalid_voice", rejected=True, message="no such voice")
        await peer.say_goodbye()

    result = await say("x", "--url", await endpoint(script), "-o", "a.wav", "--voice", "nobody")
    assert result.code == ExitCode.REJECTED
    assert "no such voice" in result.one_line()
    assert list(say.directory.iterdir()) == []


async def test_a_silent_endpoint(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()

    result = await say("x", "--url", await endpoint(script), "-o", "a.wav", "--timeout", "0.2")
    assert result.code == ExitCode.TIMEOUT
    assert "0.2 s" in result.one_line()


async def test_nobody_there(say: Say, closed_port: int) -> None:
    url = f"ws://user:secret@127.0.0.1:{closed_port}/?token=secret"
    result = await say("x", "--url", url, "-o", "a.wav")
    assert result.code == ExitCode.NO_CONNECTION
    assert "secret" not in result.one_line()
    assert list(say.directory.iterdir()) == []


async def test_tls(endpoint: Serve, say: Say) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(say.directory / "ca.pem"))
    url = await endpoint(hello, tls=context)
    assert (await say("x", "--url", url, "--ca-file", "ca.pem", "-q")).code == 0
    refused = await say("x", "--url", url)
    assert refused.code == ExitCode.NO_CONNECTION
    assert "not trusted" in refused.one_line()


async def test_a_container_that_does_not_fit(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, b"ID3", format="mp3")
        await peer.gone()

    result = await say("x", "--url", await endpoint(script), "-o", "a.wav")
    assert result.code == ExitCode.USAGE
    assert "mp3" in result.one_line()


async def test_a_full_disk(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(12000), tone(12000, 2))
        # Whether the client says `cancel`, `close` or nothing depends on how far it has read.
        await peer.gone()

    result = await say("x", "--url", await endpoint(script), "-o", "/dev/full", "-q")
    assert result.code == ExitCode.USAGE
    assert "No space left" in result.one_line()


@pytest.mark.parametrize("raw", [(), ("--raw",)])
async def test_a_pipe_that_nobody_reads(endpoint: Serve, say: Say, raw: tuple[str, ...]) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        for _ in range(100):
            await peer.audio(tone(30000))
        await peer.complete(1, 100 * 60000)
        await peer.gone()

    read_end, write_end = os.pipe()
    process = await say.start("say", "x", "--url", await endpoint(script), *raw, stdout=write_end)
    os.close(write_end)
    os.close(read_end)
    _, err = await process.communicate()
    assert process.returncode == ExitCode.BROKEN_PIPE
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
@pytest.mark.parametrize("blocked", [False, True])
async def test_an_interrupt(
    endpoint: Serve, say: Say, blocked: bool, number: signal.Signals, code: ExitCode
) -> None:
    """Ctrl-C in the middle, also while a pipe that is full and not read holds up the writing."""
    half = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(24000))
        # Not after the last: how much the transport takes of what nobody reads is its own affair.
        half.set()
        for _ in range(19 if blocked else 0):
            await peer.audio(tone(24000))
        await peer.gone()

    url = await endpoint(script)
    where = ("--raw", "-o", "-") if blocked else ("-o", "hello.wav")
    process = await say.start("say", "x", "--url", url, *where)
    await half.wait()
    assert process.stderr is not None
    assert (await process.stderr.readline()).startswith(b"first audio")
    process.send_signal(number)
    err = await process.stderr.read()
    assert process.stdout is not None
    await process.stdout.read()
    assert await process.wait() == code
    assert err.startswith(b"utterwire: interrupted\n")
    assert b"Traceback" not in err
    if not blocked:
        assert frames((say.directory / "hello.partial.wav").read_bytes()) == (24000, tone(24000))


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("x", "--file", "y", "-o", "a.wav"), None, "give a text"),
        (("--file", "none.txt", "-o", "a.wav"), None, "cannot read none.txt"),
        (("x", "--play", "--format", "mp3"), None, "a sound device plays pcm_s16le, not mp3"),
        (("-", "--whole", "-o", "a.wav"), b"\xff", "not UTF-8"),
        (("x", "-o", "none/a.wav"), None, "cannot write none/a.wav"),
        (("x", "-o", "a.wav", "--format", "mp3"), None, "cannot hold mp3"),
        (("x", "-o", "a.MP3", "--format", "opus"), None, "a .mp3 file cannot hold opus"),
        (("x", "-o", "sub/"), None, "-o sub/ is a folder"),
        (("x", "-o", "."), None, "-o . is a folder"),
        (("x", "-o", ""), None, "-o (nothing) is a folder"),
        (("x", "-o", ".wav"), None, "-o .wav is a suffix without a name"),
        (("x", "-o", "sub/.mp3"), None, "write -o NAME.mp3"),
        (("x", "-o", "a.wav", "--header", "secret"), None, "--header"),
        (("x", "-o", "a.wav", "--header", "a b: c"), None, "header field"),
        (("x", "-o", "a.wav", "--timeout", "0"), None, "greater than 0"),
        (("x", "-o", "a.wav", "--timeout", "nan"), None, "greater than 0"),
        (("x", "-o", "a.wav", "--endpoint", "nobody"), None, "no endpoint 'nobody'"),
        (("x", "-o", "a.wav", "--endpoints-file", "none.toml"), None, "no endpoint file"),
        (("x", "-o", "a.wav", "--url", "localhost:8080"), None, "ws://"),
        (("x", "-o", "a.wav", "--ca-file", "none.pem"), None, "none.pem"),
    ],
)
def test_what_cannot_be_done(
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    stdin: bytes | None,
    words: str,
) -> None:
    monkeypatch.delenv("UTTERWIRE_ENDPOINTS", raising=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin or b"")))
    code = main(["say", *arguments])
    result = Result(code, b"", capsys.readouterr().err)
    assert result.code == ExitCode.USAGE
    assert words in result.one_line()
    assert "secret" not in result.err
    assert os.listdir() == []


async def test_text_that_nobody_may_be_asked_to_speak(endpoint: Serve, say: Say) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()
        assert [m["type"] for m in peer.received] in ([], ["close"])

    result = await say(" \n", "--url", await endpoint(script), "-o", "a.wav")
    assert result.code == ExitCode.USAGE
    assert "text" in result.one_line()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "COMMAND"),
        (("sing",), "sing"),
        (("say", "--nonsense", "x"), "--nonsense"),
        (("say", "x", "--speed", "fast"), "--speed"),
        (("say", "x", "--sample-rate", "24000.5"), "--sample-rate"),
        (("say", "x", "--two\nlines"), "lines"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == ExitCode.USAGE
    err = capsys.readouterr().err
    assert err.startswith("utterwire")
    assert named in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["", "say", "lines", "latency", "doctor"])
def test_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: utterwire {command}".rstrip())


async def test_version(say: Say) -> None:
    assert (await say.run("--version")).out.startswith(b"utterwire ")


@pytest.mark.parametrize(
    ("arguments", "closed"), [("say -", "<&-"), ("say x", ">&-"), ("say - -q", "<&- >&-")]
)
async def test_standard_streams_that_are_closed(say: Say, arguments: str, closed: str) -> None:
    command = f"exec {sys.executable} -m utterwire_client {arguments} --url ws://127.0.0.1:1"
    process = await asyncio.create_subprocess_shell(
        f"{command} {closed}",
        stderr=subprocess.PIPE,
        cwd=say.directory,
        env=say.environ,
    )
    _, err = await process.communicate()
    assert Result(process.returncode or 0, b"", err.decode()).one_line().endswith("\n")
    assert process.returncode == ExitCode.USAGE


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
async def test_a_stderr_that_takes_nothing(endpoint: Serve, say: Say, stderr: str) -> None:
    url = await endpoint(hello)
    process = await asyncio.create_subprocess_shell(
        f"exec {sys.executable} -m utterwire_client say x --url {url} -o hello.wav {stderr}",
        cwd=say.directory,
        env=say.environ,
    )
    assert await process.wait() == ExitCode.DONE
    assert frames((say.directory / "hello.wav").read_bytes())[1]


# -- in this process, for what a terminal does


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_audio_is_not_for_a_terminal(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["say", "x", "--url", "ws://127.0.0.1:1"]) == ExitCode.USAGE
    assert "terminal" in err.getvalue()


@pytest.fixture
async def background(endpoint: Serve) -> str:
    return await endpoint(hello)


async def test_progress_on_a_terminal(
    background: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    code = await asyncio.to_thread(main, ["say", "x", "--url", background, "-o", "hello.wav"])
    assert code == 0
    assert "\x1b[K" in err.getvalue()
    assert err.getvalue().splitlines()[-1].endswith(")")


@pytest.fixture
def threads() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "utterwire-side":
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.usefixtures("threads")
async def test_no_thread_is_left_behind(background: str, elsewhere: Path) -> None:
    code = await asyncio.to_thread(main, ["say", "x", "--url", background, "-o", "hello.wav", "-q"])
    assert code == 0
