"""`utterwire doctor`: what is found of endpoints that are well, old, slow or broken."""

import asyncio
import importlib.util
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trustme
from utterwire_client.cli import ExitCode, main
from utterwire_client.endpoints import Endpoint
from utterwire_client.examination import Examination, Finding

Serve = Callable[..., Awaitable[str]]
TONE = (b"\0\x40" * 12 + b"\0\xc0" * 12) * 100  # 0.1 s


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast this machine is with a first byte is not looked at."""
    monkeypatch.setattr("utterwire_client.examination._SLOW_FIRST_BYTE_S", 600.0)


@pytest.fixture
def doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTTERWIRE_ENDPOINTS", raising=False)
    unhurried(monkeypatch)

    async def run(*arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["doctor", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def graded(out: str) -> dict[str, str]:
    """The grade of each subject."""
    found = re.findall(r"^  (ok|!|BAD|-) +(\S+(?: \S+)*)  ", out, re.M)
    return {subject: grade for grade, subject in found}


def endpoint_of(
    *chunks: bytes,
    rate: int = 24000,
    profiles: tuple[str, ...] = ("core", "interrupt", "negotiate", "timing"),
    interrupts: bool = True,
    elapsed_s: float = 0.01,
) -> Any:
    """An endpoint of version 1 that speaks these chunks; it never ends what is to be stopped, if
    there is any of it."""

    async def script(peer: Any) -> None:
        seq, asked, size = 0, None, sum(map(len, chunks))
        while True:
            message = await peer.next()
            seq += 1
            match message.get("type", "synthesize"):
                case "hello":
                    offer: dict[str, Any] = {"voices": ["v"], "formats": ["pcm_s16le"]}
                    offer |= {"session_id": "s", "limits": {}, "sample_rates": [rate]}
                    told = {"protocol_version": 1, "profiles": list(profiles), **offer}
                    await peer.send("session", seq=seq, **told)
                case "cancel" if interrupts:
                    await peer.send("cancelled", seq=seq - 1, request_id=asked, audio_bytes=size)
                    await peer.send("cancel_done", seq=seq, count=1)
                case "cancel":
                    await peer.error(seq, "unknown_type", rejected=True)
                case "close":
                    told = {"reason": "client_close", "last_seq": seq}
                    await peer.send("session_closed", seq=seq, **told)
                    await peer.gone()
                    return
                case _:
                    asked = message.get("request_id")
                    ids = {"request_id": asked}
                    await peer.start(seq, sample_rate=rate, **ids)
                    if "timing" in profiles and message.get("marks"):
                        word = {"text": "Good", "start_s": 0, "end_s": 0.05}
                        words = [{**word, "char_start": 0, "char_end": 4}]
                        await peer.send("marks", seq=seq, words=words, **ids)
                    for chunk in chunks:
                        await peer.audio(chunk)
                    if not chunks or not message["text"].startswith("This is a longer"):
                        told = {"total_duration_s": size / 2 / rate, "elapsed_s": elapsed_s}
                        await peer.complete(seq, size, **told, **ids)

    return script


async def test_an_endpoint_that_is_well(endpoint: Serve, doctor: Any) -> None:
    url = await endpoint(endpoint_of(TONE, TONE), compression=None)
    code, out, err = await doctor("--url", url)
    assert (code, err) == (ExitCode.DONE, ""), out
    assert out.splitlines()[0] == url
    assert graded(out) == {
        "reachable": "ok",
        "first byte": "ok",
        "first sound": "ok",
        "real-time factor": "ok",
        "chunks": "ok",
        "claims": "ok",
        "offers": "ok",
        "interrupt": "ok",
        "timing": "ok",
        "http": "-",
        "sse": "-",
        "TLS": "-",
        "ping": "!",
        "clock": "ok",
        "compression": "ok",
    }
    assert len(out.splitlines()) < 25  # one screen


async def test_an_endpoint_that_is_not(endpoint: Serve, doctor: Any, tmp_path: Path) -> None:
    silence = b"\0\0" * 24000
    script = endpoint_of(
        silence + TONE + silence + b"\0",
        b"\0",
        profiles=("core", "interrupt", "negotiate", "timing", "http"),
        interrupts=False,
        elapsed_s=5,
    )
    (tmp_path / "endpoints.toml").write_text(
        f'[endpoint.mine]\nurl = "{await endpoint(script)}"\nvoice = "v"\n', encoding="utf-8"
    )
    code, out, err = await doctor("--endpoint", "mine")
    assert (code, err) == (ExitCode.FAILED, "")
    assert out.startswith("mine: ws://127.0.0.1:")
    grades = graded(out)
    assert grades["chunks"] == grades["claims"] == grades["rules"] == "BAD"
    assert grades["real-time factor"] == "BAD"
    assert grades["first sound"] == grades["interrupt"] == grades["compression"] == "!"
    assert "it claims `http`, which does not work" in out
    assert "it claims `interrupt`, which does not work" in out
    assert "things are broken" in out
    assert "turn permessage-deflate off" in out


async def test_an_endpoint_from_before(endpoint: Serve, doctor: Any) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.audio(TONE)
        await peer.send("synthesis_complete")

    code, out, _ = await doctor("--url", await endpoint(script, compression=None))
    assert code == ExitCode.DONE
    grades = graded(out)
    assert grades["session"] == grades["version"] == "!"
    assert "claims" not in grades
    assert "could be better" in out


async def test_an_endpoint_that_rejects(endpoint: Serve, doctor: Any) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.error(1, "invalid_voice", rejected=True, message="no \x1b[31msuch voice")
        await peer.say_goodbye()

    code, out, _ = await doctor("--url", await endpoint(script))
    assert code == ExitCode.FAILED
    assert graded(out)["speech"] == "BAD"
    assert "such voice" in out
    assert "\x1b" not in out
    assert "1 thing is broken" in out


async def test_an_endpoint_that_is_silent(endpoint: Serve, doctor: Any, tmp_path: Path) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()

    url = await endpoint(script)
    (tmp_path / "endpoints.toml").write_text(
        f'[endpoint.mine]\nurl = "{url}"\ntimeouts = {{ first_byte_s = 0.3 }}\n', encoding="utf-8"
    )
    code, out, _ = await doctor("--endpoint", "mine")
    assert code == ExitCode.FAILED
    assert "give it more time by --timeout" in out


async def test_an_endpoint_without_a_sound(endpoint: Serve, doctor: Any) -> None:
    code, out, _ = await doctor("--url", await endpoint(endpoint_of()))
    assert code == ExitCode.FAILED
    assert "no audio came" in out


async def test_nobody_there(doctor: Any, closed_port: int) -> None:
    code, _, err = await doctor("--url", f"ws://u:secret@127.0.0.1:{closed_port}")
    assert code == ExitCode.NO_CONNECTION
    assert err.count("\n") == 1
    assert "secret" not in err


async def test_a_command_line_that_cannot_be_used(doctor: Any) -> None:
    code, _, err = await doctor("--endpoint", "nobody")
    assert (code, err.count("\n")) == (ExitCode.USAGE, 1)


async def found_at(url: str, **options: Any) -> dict[str, Finding]:
    examination = Examination(Endpoint(name="e", url=url), **options)
    return {finding.subject: finding async for finding in examination.run()}


@pytest.mark.parametrize(
    ("days", "grade"), [(90, "ok"), (5, "note")], ids=["lasting", "soon expired"]
)
async def test_tls_and_a_clock_that_is_wrong(endpoint: Serve, days: int, grade: str) -> None:
    now = datetime.now(UTC)

    def ping(connection: Any, request: Any) -> Any:
        if not request.path.startswith("/ping"):
            return None
        answer = connection.respond(HTTPStatus.OK, "")
        del answer.headers["Date"]
        answer.headers["Date"] = format_datetime(now - timedelta(seconds=90), usegmt=True)
        return answer

    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", not_after=now + timedelta(days=days, hours=1))
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    certificate.configure_cert(server)
    authority.configure_trust(client)
    url = await endpoint(endpoint_of(TONE), tls=server, process_request=ping, compression=None)
    found = await found_at(url, ssl=client)
    assert found["TLS"].grade == grade
    assert f"TLSv1.3, certificate good for {days} days" in found["TLS"].told
    assert (found["ping"].grade, found["ping"].told) == ("ok", "200")
    assert found["clock"].grade == "note"
    assert re.fullmatch(r"(89|9\d|1\d\d) s behind this machine's", found["clock"].told)


async def test_a_way_that_can_be_read(endpoint: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utterwire_client.examination.is_loopback", lambda address: False)
    monkeypatch.setenv("NO_PROXY", "*")
    found = await found_at(await endpoint(endpoint_of(TONE)))
    assert found["TLS"].grade == "note"
    assert "wss://" in (found["TLS"].advice or "")


async def test_a_pipe_that_nobody_reads(endpoint: Serve, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "utterwire_client", "doctor"),
        *("--url", await endpoint(endpoint_of(TONE))),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=write_end,
        stderr=subprocess.PIPE,
    )
    os.close(write_end)
    os.close(read_end)
    _, err = await process.communicate()
    assert (process.returncode, err) == (ExitCode.BROKEN_PIPE, b"")


@pytest.mark.skipif(
    importlib.util.find_spec("uvicorn") is None or importlib.util.find_spec("starlette") is None,
    reason="the extra `server` is not installed",
)
async def test_the_reference_server(doctor: Any) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "utterwire_server", "--port", "0", "--engine", "tone"),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    port = None
    try:
        while event := json.loads(await process.stderr.readline()):
            port = event.get("port", port)
            if event["event"] == "ready":
                break
        draining = asyncio.create_task(process.stderr.read())
        code, out, err = await doctor("--url", f"ws://127.0.0.1:{port}")
    finally:
        process.terminate()
        await process.wait()
    await draining
    grades = graded(out)
    # How fast it is says more of the machine than of the server.
    slow = grades["real-time factor"] == "BAD"
    assert (code, err) == (ExitCode.FAILED if slow else ExitCode.DONE, ""), out
    for subject in ("interrupt", "timing", "http", "sse", "ping", "clock", "compression", "claims"):
        assert grades[subject] == "ok", out


async def test_a_first_byte_that_is_slow(endpoint: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utterwire_client.examination._SLOW_FIRST_BYTE_S", 0.0)
    found = await found_at(await endpoint(endpoint_of(TONE)))
    assert found["first byte"].grade == "note"
    assert "it should stream" in (found["first byte"].advice or "")


async def test_large_chunks_and_little_said(
    endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    unhurried(monkeypatch)

    def ping(connection: Any, request: Any) -> Any:
        if not request.path.startswith("/ping"):
            return None
        answer = connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "")
        del answer.headers["Date"]
        return answer

    script = endpoint_of(TONE * 6, profiles=(), elapsed_s=0.5)
    found = await found_at(await endpoint(script, process_request=ping, compression=None))
    assert {subject: f.grade for subject, f in found.items()} == {
        "reachable": "ok",
        "first byte": "ok",
        "first sound": "ok",
        "real-time factor": "note",
        "chunks": "note",
        "claims": "ok",
        "offers": "ok",
        "interrupt": "ok",
        "timing": "none",
        "http": "none",
        "sse": "none",
        "TLS": "none",
        "ping": "note",
        "clock": "none",
        "compression": "ok",
    }
    assert found["ping"].told == "HTTP 503"


async def test_an_endpoint_that_is_gone_after_the_first_look(endpoint: Serve) -> None:
    """Each look stands by itself: what it cannot see is said, or left out."""
    sessions = 0

    async def script(peer: Any) -> None:
        nonlocal sessions
        sessions += 1
        if sessions > 1:
            await peer.connection.close(1011)
            return
        await endpoint_of(TONE)(peer)

    def ping(connection: Any, request: Any) -> Any:
        if request.path.startswith("/ping"):
            connection.transport.abort()
        return None

    url = await endpoint(script, process_request=ping, compression=None)
    found = await found_at(url)
    assert found["negotiate"].grade == "note"
    assert found["interrupt"].grade == found["timing"].grade == "bad"
    assert found["ping"].grade == "none"


async def test_a_clock_that_agrees_without_a_zone(endpoint: Serve) -> None:
    def ping(connection: Any, request: Any) -> Any:
        if not request.path.startswith("/ping"):
            return None
        answer = connection.respond(HTTPStatus.OK, "")
        del answer.headers["Date"]
        answer.headers["Date"] = format_datetime(datetime.now(UTC).replace(tzinfo=None))
        return answer

    found = await found_at(await endpoint(endpoint_of(TONE), process_request=ping))
    assert found["clock"].grade == "ok"


@pytest.mark.parametrize("date", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "soon"])
async def test_a_date_that_is_none_and_a_body_that_never_ends(endpoint: Serve, date: str) -> None:
    def ping(connection: Any, request: Any) -> Any:
        if not request.path.startswith("/ping"):
            return None
        answer = connection.respond(200, "ok")
        for name, value in {"Date": date, "Content-Length": str(2**40)}.items():
            del answer.headers[name]
            answer.headers[name] = value
        return answer

    found = await found_at(await endpoint(endpoint_of(TONE), process_request=ping))
    assert (found["ping"].grade, found["clock"].grade) == ("ok", "none")
