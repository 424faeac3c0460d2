"""`agent invoke`: what comes back from an agent, and each way in which it can go wrong."""

from __future__ import annotations

import base64
import io
import json
import threading
import wave
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY
from utterwire_server.deploy.account import open_account
from utterwire_server.deploy.deployment import AgentDeployment
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.question import ask

STACK = "utterwire-demo-agent"
ARN = "arn:aws:bedrock-agentcore:eu-west-1:123456789012:runtime/utterwire_demo-AbCdEf1234"
OUTPUTS = [{"OutputKey": "RuntimeArn", "OutputValue": ARN}]
PCM = bytes(range(256)) * 20
LOG = "/aws/bedrock-agentcore/runtimes/utterwire_demo-AbCdEf1234-"

Event = dict[str, Any]


def start(format: str = "pcm_s16le") -> Event:
    return {
        "type": "audio_stream_start",
        "format": format,
        "voice": "af_heart",
        "sample_rate": 22_050,
    }


def chunk(data: bytes) -> Event:
    return {"type": "audio_chunk", "seq": 0, "data": base64.b64encode(data).decode()}


END: Event = {"type": "agent_end"}
TEXT: list[Event] = [{"type": "text_delta", "text": part} for part in ("Good ", "morning.")]
WHOLE = [{"type": "agent_start", "mode": "bidi"}, *TEXT, start(), chunk(PCM), END]
REFUSED = {"type": "error", "code": "synthesis_failed", "message": "no voice"}


def stream(*events: Event | str) -> bytes:
    """Events as AgentCore's library writes them."""
    told = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return b"".join(f"data: {each}\n\n".encode() for each in told)


def asked(
    script: Any, body: bytes, content_type: str = "text/event-stream", *, stops: bool = True
) -> Any:
    """A question, its answer, and the end of its session."""
    script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS)
    told = {
        "contentType": content_type,
        "statusCode": 200,
        "response": StreamingBody(io.BytesIO(body), len(body)),
    }
    parameters = {
        "agentRuntimeArn": ARN,
        "qualifier": "live",
        "runtimeSessionId": ANY,
        "contentType": "application/json",
        "accept": "text/event-stream",
        "payload": ANY,
    }
    script.answer("bedrock-agentcore", "invoke_agent_runtime", told, parameters)
    return stopped(script) if stops else script


def stopped(script: Any) -> Any:
    session = {"agentRuntimeArn": ARN, "qualifier": "live", "runtimeSessionId": ANY}
    return script.answer("bedrock-agentcore", "stop_runtime_session", {}, session)


def test_text_goes_to_stdout_and_speech_to_a_file(
    script: Any,
    command: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    asked(script, stream(*WHOLE))
    out = tmp_path / "answer.wav"
    assert command("agent", "invoke", "demo", "Hello?", "-o", str(out)) == 0
    script.done()
    assert unlisted("agent invoke", map(":".join, script.asked)) == set()
    with wave.open(str(out), "rb") as file:
        assert file.getparams()[:3] == (1, 2, 22_050)
        assert file.readframes(file.getnframes()) == PCM
    printed = capsys.readouterr()
    assert printed.out == "Good morning.\n"
    assert printed.err.startswith(f"{out}: {len(PCM)} bytes (pcm_s16le, 22050 Hz), first text")


def test_another_format_is_written_as_it_comes(
    script: Any, command: Callable[..., int], tmp_path: Path
) -> None:
    asked(script, stream(*TEXT, start("mp3"), chunk(b"ID3"), chunk(b"more"), END))
    out = tmp_path / "answer.wav"
    assert command("agent", "invoke", "demo", "Hello?", "-o", str(out)) == 0
    assert out.read_bytes() == b"ID3more"


def test_speech_to_stdout_leaves_no_text_there(
    script: Any, command: Callable[..., int], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    asked(script, stream(*WHOLE))
    assert command("agent", "invoke", "demo", "Hello?", "-o", "-") == 0
    printed = capfdbinary.readouterr()
    assert printed.out == PCM
    assert printed.err.startswith(b"Good morning.\nstdout: ")


def test_what_could_be_read_and_not_heard_is_told_at_the_end(
    script: Any, command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(script, stream(TEXT[0], REFUSED, TEXT[1], END))
    assert command("agent", "invoke", "demo", "Hello?", "-o", str(tmp_path / "a.wav")) == 1
    printed = capsys.readouterr()
    assert printed.out == "Good morning.\n"
    problem, next_step = printed.err.splitlines()
    assert problem.endswith("agent demo was not heard whole: no voice (synthesis_failed)")
    assert "agent status demo" in next_step
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.parametrize(
    ("body", "content_type", "problem"),
    [
        (stream(*TEXT, END), "text/event-stream", "not heard whole: it sent no audio"),
        (stream(*TEXT), "text/event-stream", "broke off: the stream ended before the answer"),
        (stream(REFUSED), "text/event-stream", "broke off: no voice (synthesis_failed)"),
        (b'{"response": "hi"}', "application/json", 'than the one of examples/agentcore: {"resp'),
        (stream("not json"), "text/event-stream", "answers otherwise than the one of"),
        (stream("7"), "text/event-stream", "answers otherwise than the one of"),
        (stream({"error": "oops"}), "text/event-stream", "answers otherwise than the one of"),
        (stream({"type": "text_delta"}), "text/event-stream", "answers otherwise than"),
        (stream({"type": "audio_chunk", "data": "?"}), "text/event-stream", "otherwise than"),
        (b": ping\n\n" + stream(*TEXT), "text/event-stream; charset=utf-8", "stream ended before"),
    ],
)
def test_answers_that_are_none(
    body: bytes,
    content_type: str,
    problem: str,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked(script, body, content_type)
    assert command("agent", "invoke", "demo", "Hello?") == 1
    script.done()
    told, next_step = capsys.readouterr().err.splitlines()
    assert problem in told
    assert next_step.startswith("next: ")


def test_a_session_that_cannot_be_ended_ends_by_itself(
    script: Any, command: Callable[..., int], tmp_path: Path
) -> None:
    asked(script, stream(*WHOLE), stops=False)
    script.refuse("bedrock-agentcore", "stop_runtime_session", "AccessDeniedException", "no")
    assert command("agent", "invoke", "demo", "Hello?", "-o", str(tmp_path / "a.wav")) == 0
    script.done()


@pytest.mark.parametrize(
    ("code", "problem", "next_step"),
    [
        ("ResourceNotFoundException", "agent demo is gone, although its stack", "agent down demo"),
        ("AccessDeniedException", "no permission for InvokeAgentRuntime", "DEPLOY.md"),
        ("ThrottlingException", "AWS is asked too often", "wait a minute"),
    ],
)
def test_agentcore_refuses(
    code: str,
    problem: str,
    next_step: str,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS)
    stopped(script.refuse("bedrock-agentcore", "invoke_agent_runtime", code, "no"))
    assert command("agent", "invoke", "demo", "Hello?") == 1
    script.done()
    told, step = capsys.readouterr().err.splitlines()
    assert problem in told
    assert next_step in step


@pytest.mark.parametrize("there", [True, False, None])
def test_a_container_that_fails_shows_its_log(
    there: bool | None,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS)
    words = "Received error (500) from runtime."
    script.refuse("bedrock-agentcore", "invoke_agent_runtime", "RuntimeClientError", words)
    if there is None:
        script.refuse("logs", "describe_log_groups", "AccessDeniedException", "no")
    elif there:
        script.log_groups(f"{LOG}DEFAULT", f"{LOG}live").log("ModuleNotFoundError: strands")
    else:
        script.log_groups(f"{LOG}DEFAULT")
    stopped(script)
    assert command("agent", "invoke", "demo", "Hello?") == 1
    script.done()
    assert unlisted("agent invoke", map(":".join, script.asked)) == set()
    problem, *details, next_step = capsys.readouterr().err.splitlines()
    assert problem.endswith(f"the container of agent demo failed: {words}")
    assert "read its log" in next_step
    if there:
        assert details == [
            f"log stream: {LOG}live all/i-1",
            "  | ModuleNotFoundError: strands",
        ]
    else:
        assert len(details) == 1


def test_an_agent_that_was_never_made(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(STACK, None)
    assert command("agent", "invoke", "demo", "Hello?") == 1
    script.done()
    assert "there is no agent demo in eu-west-1" in capsys.readouterr().err


@pytest.mark.parametrize("breaks", [False, True])
def test_a_stream_that_comes_in_parts(breaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP, cut anywhere, as AgentCore may; and one whose connection breaks off."""
    sent: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            sent.append((self.path, self.rfile.read(length)))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            body = stream(*WHOLE) if "stopruntimesession" not in self.path else b"{}"
            if breaks:
                body = body[:200]
            for place in range(0, len(body), 997):
                part = body[place : place + 997]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            if not breaks:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    texts: list[str] = []
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", address)
        try:
            account, agent = open_account(None, None), AgentDeployment("demo")
            if breaks:
                with pytest.raises(DeployFailed, match="agent demo broke off"):
                    ask(account, agent, ARN, "Hello?", texts.append, mode="batch")
            else:
                answer = ask(account, agent, ARN, "Hello?", texts.append, mode="batch")
                assert bytes(answer.audio) == PCM
                assert answer.first_text_s is not None
        finally:
            server.shutdown()
            thread.join()
    (invoked, payload), (ended, _) = sent
    assert invoked.endswith("/invocations?qualifier=live")
    assert json.loads(payload) == {"prompt": "Hello?", "mode": "batch"}
    assert "/stopruntimesession" in ended
    assert breaks or "".join(texts) == "Good morning."
