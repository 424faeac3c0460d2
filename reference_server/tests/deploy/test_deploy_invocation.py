"""`invoke` against a server of this machine that answers as SageMaker AI does."""

from __future__ import annotations

import binascii
import errno
import io
import json
import struct
import sys
import threading
import wave
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from utterwire_server.deploy import cli

PCM = bytes(range(256)) * 40


def event(headers: dict[str, str], payload: bytes) -> bytes:
    """A message of `application/vnd.amazon.eventstream`."""
    encoded = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", len(encoded) + len(payload) + 16, len(encoded))
    head = prelude + struct.pack(">I", binascii.crc32(prelude))
    return head + encoded + payload + struct.pack(">I", binascii.crc32(head + encoded + payload))


def part(payload: bytes) -> bytes:
    return event({":message-type": "event", ":event-type": "PayloadPart"}, payload)


class Runtime:
    """What the server answers, and what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b""
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.breaks = False


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    told = Runtime()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            signed = self.headers["Authorization"].partition(" ")[0]
            told.asked.append((self.path, json.loads(body), signed))
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(told.body), told.body))
            if not told.breaks:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv(
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", f"http://127.0.0.1:{server.server_port}"
        )
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        yield told
        server.shutdown()
        thread.join()


def spoken(runtime: Runtime, *more: bytes) -> None:
    runtime.headers = {
        "Content-Type": "application/vnd.amazon.eventstream",
        "X-Amzn-SageMaker-Content-Type": "audio/L16;rate=24000",
    }
    runtime.body = part(PCM[:7]) + part(b"") + part(PCM[7:]) + b"".join(more)


def test_speech_becomes_a_wav_file(
    runtime: Runtime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken(runtime)
    out = tmp_path / "hello.wav"
    assert cli.main(["invoke", "demo", "Hello.", "--voice", "af_heart", "-o", str(out)]) == 0
    with wave.open(str(out), "rb") as file:
        assert file.getparams()[:3] == (1, 2, 24_000)
        assert file.readframes(file.getnframes()) == PCM
    ((path, body, signed),) = runtime.asked
    assert path == "/endpoints/demo/invocations-response-stream"
    assert body == {"text": "Hello.", "voice": "af_heart"}
    assert signed == "AWS4-HMAC-SHA256"
    told = capsys.readouterr().err
    assert f"{out}: {len(PCM)} bytes (audio/L16;rate=24000), first byte after" in told


def test_another_format_is_written_as_it_comes(runtime: Runtime, tmp_path: Path) -> None:
    spoken(runtime)
    out = tmp_path / "hello.wav"
    assert cli.main(["invoke", "demo", "Hello.", "--format", "wav", "-o", str(out)]) == 0
    assert out.read_bytes() == PCM
    assert runtime.asked[0][1] == {"text": "Hello.", "format": "wav"}


def test_speech_goes_to_stdout(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken(runtime)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw))
    assert cli.main(["invoke", "demo", "Hello.", "-o", "-"]) == 0
    assert raw.getvalue() == PCM


def test_a_reader_of_stdout_that_goes_is_one_line(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    spoken(runtime)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=Gone()))
    assert cli.main(["invoke", "demo", "Hello.", "-o", "-"]) == 1
    assert capsys.readouterr().err.startswith("utterwire-deploy invoke: stdout: Broken pipe\n")


def breaks_off(runtime: Runtime) -> None:
    headers = {":message-type": "exception", ":exception-type": "ModelStreamError"}
    spoken(runtime, event(headers, b'{"Message": "container closed", "ErrorCode": "x"}'))


def cut_short(runtime: Runtime) -> None:
    spoken(runtime)
    runtime.breaks = True


def silent(runtime: Runtime) -> None:
    spoken(runtime)
    runtime.body = part(b"")


def refuses(status: int, code: str, **told: Any) -> Callable[[Runtime], None]:
    def answer(runtime: Runtime) -> None:
        runtime.status = status
        runtime.headers = {"X-Amzn-ErrorType": code, "Content-Type": "application/json"}
        runtime.body = json.dumps(told).encode()

    return answer


REJECTED = json.dumps({"code": "invalid_voice", "message": "no such voice"})


@pytest.mark.parametrize(
    ("answer", "problem", "next_step"),
    [
        (breaks_off, "endpoint demo broke off: ", "shows the end of its log"),
        (cut_short, f"endpoint demo broke off after {len(PCM)} bytes", "try again"),
        (silent, "endpoint demo sent no audio", "letters or digits"),
        (
            refuses(424, "ModelError", OriginalStatusCode=400, OriginalMessage=REJECTED),
            "endpoint demo refused (400): no such voice (invalid_voice)",
            "correct the text",
        ),
        (
            refuses(424, "ModelError", OriginalStatusCode=500, OriginalMessage="<html>"),
            "endpoint demo refused (500): <html>",
            "correct the text",
        ),
        (
            refuses(400, "ValidationError", Message="Endpoint demo of account 1 not found."),
            "there is no endpoint demo in this region",
            "utterwire-deploy up demo",
        ),
        (
            refuses(503, "ServiceUnavailable", Message="busy"),
            "endpoint demo is not available: busy",
            "try again",
        ),
        (
            refuses(403, "AccessDeniedException", Message="no"),
            "no permission for InvokeEndpointWithResponseStream: no",
            "DEPLOY.md",
        ),
    ],
)
def test_what_goes_wrong_is_one_line(
    answer: Callable[[Runtime], None],
    problem: str,
    next_step: str,
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    answer(runtime)
    assert cli.main(["invoke", "demo", "Hello."]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"utterwire-deploy invoke: {problem}")
    assert last.startswith("next: ")
    assert next_step in last
    assert not (tmp_path / "speech.wav").exists()


def test_a_file_that_cannot_be_written(
    runtime: Runtime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken(runtime)
    assert cli.main(["invoke", "demo", "Hello.", "-o", str(tmp_path / "none" / "a.mp3")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_nobody_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert cli.main(["invoke", "demo", "Hello."]) == 1
    assert "next: " in capsys.readouterr().err
