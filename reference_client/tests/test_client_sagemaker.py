"""Sessions and invocations through a stand-in for SageMaker, by the unmodified AWS SDK."""

import asyncio
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    Complete,
    ConnectFailed,
    DeadlineExceeded,
    Deadlines,
    RequestInvalid,
    SessionLost,
    TransportClosed,
    UtteranceCancelled,
    UtteranceRejected,
    connect,
)
from utterwire_client import errors as client_errors
from utterwire_client.address import SageMakerAddress
from utterwire_client.http import HttpBackend, http_utterance

pytest.importorskip(
    "aws_sdk_sagemaker_runtime_http2", reason="the AWS SDK needs Python 3.12 and the extra aws"
)

from aws_sdk_sagemaker_runtime_http2 import models
from smithy_aws_event_stream.exceptions import UnmodeledEventError
from utterwire_client import sagemaker

_READY_S = 60


class Rig:
    """The reference server, and routers before it, as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.container = ""
        self.processes: list[subprocess.Popen[str]] = []
        self.readers: list[threading.Thread] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def line(self, process: subprocess.Popen[str], words: str) -> str:
        assert process.stdout is not None
        for line in process.stdout:
            if words in line:
                return line
        raise AssertionError(f"it never said {words!r}")

    def read_on(self, process: subprocess.Popen[str]) -> None:
        """Have what it still says read, since a pipe that is full would hold it up."""
        reader = threading.Thread(target=deque, args=(process.stdout, 0))
        reader.start()
        self.readers.append(reader)

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        for reader in self.readers:
            reader.join()
        for process in self.processes:
            assert process.stdout is not None
            process.stdout.close()

    def server(self) -> None:
        """Start the reference server."""
        process = self.start(
            "utterwire_server", "serve", "--engine", "tone", "--host", "127.0.0.1", "--port", "0"
        )
        port = json.loads(self.line(process, '"listening"'))["port"]
        self.line(process, '"ready"')
        self.read_on(process)
        self.container = f"http://127.0.0.1:{port}"

    def router(self, *arguments: str) -> str:
        """Start a router; the address of an endpoint behind it."""
        process = self.start(
            "utterwire_conformance.router.cli", "--verify", "--port", "0", "--quiet",
            "--to", self.container, "--certificates", str(self.folder), "--accept-ms", "5000",
            *arguments,
        )  # fmt: skip
        url = self.line(process, "SageMaker runtime at ").split(" at ")[1].split(",")[0]
        self.read_on(process)
        return f"sagemaker:tts?region=us-east-1&endpoint_url={url}"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("certificates"))
    patch = pytest.MonkeyPatch()
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        patch.setenv(name, str(made.folder / "ca.pem"))
    patch.setenv("AWS_ACCESS_KEY_ID", "AKIDLOCALROUTER")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "local-router-secret")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    try:
        made.server()
        yield made
    finally:
        made.end()
        patch.undo()


@pytest.fixture(scope="module")
def url(rig: Rig) -> str:
    return rig.router("--after", "1")


def _open(url: str, **rest: Any) -> connect:
    """A session, with time for a machine that has much to do."""
    return connect(url, deadlines=Deadlines(connect_s=60.0), **rest)


def _faulty(url: str, fault: str) -> str:
    """The address of an endpoint that the router has go wrong in this way."""
    return url.replace("sagemaker:tts", f"sagemaker:fault-{fault}")


@pytest.fixture(autouse=True)
def _not_seen() -> None:
    sagemaker._seen.clear()


async def test_many_utterances_on_one_stream(url: str) -> None:
    async with _open(url, negotiate=True) as session:
        assert session.info is not None
        speeches = [session.synthesize(f"Number {number}.") for number in range(20)]
        for speech in speeches:
            events = [event async for event in speech]
            assert isinstance(events[-1], Complete)
            audio = b"".join(event.data for event in events if isinstance(event, Audio))
            assert len(audio) == events[-1].audio_bytes


async def test_cancel_and_errors_leave_the_session(url: str) -> None:
    async with _open(url, interrupt=True) as session:
        with pytest.raises(UtteranceRejected) as refused:
            await session.synthesize("Hello.", voice="nobody at all").read()
        assert refused.value.code == "invalid_voice"
        long = session.synthesize("A long text, and more of it. " * 100)
        await anext(aiter(long))
        assert await session.cancel() == 1
        with pytest.raises(UtteranceCancelled):
            async for _ in long:
                pass
        assert await session.synthesize("And on.").read()


async def test_a_text_is_spoken_and_interrupted(url: str) -> None:
    text = "One thing is here. Two things are there."
    async with connect(url) as session:
        audio = await session.speak(text).read()
        speech = session.speak("It was a bright cold day in April. " * 20)
        for _ in range(5):
            await anext(speech)
        interruption = await speech.interrupt()
        assert not interruption.session_dropped
        assert await session.speak(text).read() == audio
    async with HttpBackend(url) as backend:
        assert await backend.speak(text).read() == audio


async def test_streams_side_by_side(url: str) -> None:
    async def one(number: int) -> int:
        async with _open(url) as session:
            return len(await session.synthesize(f"Stream {number}.").read())

    assert all(await asyncio.gather(*(one(number) for number in range(8))))


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_the_http_leg(url: str, transport: Any) -> None:
    events = [event async for event in http_utterance(url, "Hello there.", transport=transport)]
    assert isinstance(events[-1], Complete)
    assert events[-1].received_bytes > 10_000


async def test_the_http_leg_tells_a_refusal(url: str) -> None:
    with pytest.raises(UtteranceRejected) as refused:
        async for _ in http_utterance(url, "Hello.", voice="nobody at all"):
            pass
    assert refused.value.code == "invalid_voice"


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        ("throttled", "Throttled", True),
        ("input-validation-error", "InvocationInvalid", False),
        ("model-error", "ContainerRefused", False),
        ("internal-server-error", "PlatformFailed", True),
        ("service-unavailable", "PlatformUnavailable", True),
        ("access-denied", "AccessDenied", False),
        ("expired-token", "CredentialsUnusable", False),
        ("endpoint-missing", "EndpointMissing", False),
        ("endpoint-creating", "EndpointNotReady", True),
        ("endpoint-failed", "EndpointNotReady", False),
    ],
)
async def test_each_refusal_has_a_type(url: str, fault: str, kind: str, retryable: bool) -> None:
    faulty = _faulty(url, fault)
    with pytest.raises(getattr(client_errors, kind)) as refused:
        async with _open(faulty):
            pass
    assert refused.value.retryable == retryable
    assert "\n" not in str(refused.value)
    with pytest.raises(getattr(client_errors, kind)):
        async for _ in http_utterance(faulty, "Hello."):
            pass


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        ("model-stream-error", "ModelStreamError", 1011),
        ("internal-stream-failure", "InternalStreamFailure", None),
        ("connection-reset", None, None),
        ("stream-reset", None, None),
        ("goaway", None, None),
    ],
)
async def test_each_end_in_a_stream_is_told(
    url: str, fault: str, error: str | None, code: int | None
) -> None:
    faulty = _faulty(url, fault)
    with pytest.raises(SessionLost) as lost:
        async with _open(faulty) as session:
            await session.synthesize("A text that is long enough. " * 20).read()
    assert (lost.value.error, lost.value.code) == (error, code)
    assert lost.value.retryable


@pytest.mark.parametrize(
    "fault", ["model-stream-error", "internal-stream-failure", "connection-reset"]
)
async def test_a_body_that_is_cut_off_is_told(url: str, fault: str) -> None:
    faulty = _faulty(url, fault)
    with pytest.raises(SessionLost, match="cut off"):
        async for _ in http_utterance(faulty, "A text that is long enough. " * 20):
            pass


async def test_an_answer_that_nobody_waits_for_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answered, closed = threading.Event(), threading.Event(), threading.Event()

    class Body:
        def close(self) -> None:
            closed.set()

    class Api:
        def invoke_endpoint_with_response_stream(self, **_: Any) -> dict[str, Any]:
            asked.set()
            answered.wait(_READY_S)
            return {"Body": Body()}

        def close(self) -> None:
            pass

    monkeypatch.setattr(sagemaker, "_session", lambda address: None)
    monkeypatch.setattr(sagemaker, "_check_in_service", lambda session, address: None)
    monkeypatch.setattr(sagemaker, "_api", lambda *_, **__: Api())
    waiting = asyncio.create_task(
        sagemaker.invoke(SageMakerAddress("tts"), b"", accept="*/*", deadline_s=1.0)
    )
    await asyncio.to_thread(asked.wait, _READY_S)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    answered.set()
    assert await asyncio.to_thread(closed.wait, _READY_S)


async def test_describe(url: str) -> None:
    assert await sagemaker.describe(SageMakerAddress.parse(url)) == "InService"


async def test_who_may_not_ask_may_still_call(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(session: Any, address: SageMakerAddress) -> str:
        import botocore.exceptions

        error = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
        raise botocore.exceptions.ClientError(error, "DescribeEndpoint")

    monkeypatch.setattr(sagemaker, "_status", denied)
    async with _open(url) as session:
        assert await session.synthesize("Hello.").read()


async def test_a_wrong_secret(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guess")
    with pytest.raises(client_errors.CredentialsUnusable, match="InvalidSignature"):
        async with _open(url):
            pass
    sagemaker._seen.add(SageMakerAddress.parse(url))
    with pytest.raises(client_errors.CredentialsUnusable, match="InvalidSignature"):
        async with _open(url):
            pass


async def test_no_credentials_no_region_no_profile(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(client_errors.CredentialsUnusable, match="no AWS credentials"):
        async with _open(url):
            pass
    with pytest.raises(RequestInvalid, match="no region"):
        async with _open("sagemaker:tts"):
            pass
    with pytest.raises(RequestInvalid, match="no AWS profile 'nobody'"):
        async with _open("sagemaker:tts?profile=nobody"):
            pass


@pytest.mark.parametrize("seen", [False, True])
async def test_credentials_that_cannot_be_fetched_are_told(
    seen: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of a sign-in that has expired, which are fetched only when they are needed."""
    (tmp_path / "config").write_text(
        "[profile dev]\nregion = eu-west-1\nsso_session = one\nsso_account_id = 123456789012\n"
        "sso_role_name = reader\n[sso-session one]\nsso_region = eu-west-1\n"
        "sso_start_url = https://example.invalid/start\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    url = "sagemaker:tts?profile=dev&endpoint_url=https://localhost:1"
    if seen:
        sagemaker._seen.add(SageMakerAddress.parse(url))
    with pytest.raises(client_errors.CredentialsUnusable, match="sign in again") as failed:
        async with _open(url):
            pass
    assert not failed.value.retryable


async def test_nothing_listens(closed_port: int) -> None:
    address = f"sagemaker:tts?region=us-east-1&endpoint_url=https://localhost:{closed_port}"
    with pytest.raises(ConnectFailed, match="no way to sagemaker:tts") as failed:
        async with _open(address):
            pass
    assert failed.value.retryable
    sagemaker._seen.add(SageMakerAddress.parse(address))
    with pytest.raises(ConnectFailed, match="nothing listens"):
        async with _open(address):
            pass


async def test_an_authority_by_the_address(
    rig: Rig, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name)
    async with _open(f"{url}&ca_file={rig.folder / 'ca.pem'}") as session:
        assert await session.synthesize("Hello.").read()
    with pytest.raises(ConnectFailed, match="is its authority trusted"):
        async with _open(url):
            pass


async def test_a_deadline_bounds_the_opening(url: str) -> None:
    sagemaker._seen.add(SageMakerAddress.parse(url))
    with pytest.raises(DeadlineExceeded) as late:
        async with connect(url, deadlines=Deadlines(connect_s=0.0001)):
            pass
    assert late.value.which == "connect"


@asynccontextmanager
async def _scripted(*events: Any) -> AsyncIterator[sagemaker.SageMakerTransport]:
    """A transport over a stream that gives these events, then nothing."""

    class Stream:
        async def send(self, event: Any) -> None:
            raise OSError("gone")

        async def receive(self) -> Any:
            await asyncio.sleep(0)
            if not pending:
                return None
            event = pending.pop(0)
            if isinstance(event, Exception):
                raise event
            return event

        async def close(self) -> None:
            raise OSError("gone")

        async def __aexit__(self, *rest: Any) -> None:
            pass

        @property
        def input_stream(self) -> Any:
            return self

    pending = list(events)
    stream: Any = Stream()
    transport = sagemaker.SageMakerTransport(stream, stream, stream, close_s=1.0)
    try:
        yield transport
    finally:
        await transport.close()


def _part(data: bytes | None, kind: str | None = None, state: str | None = None) -> Any:
    value = models.ResponsePayloadPart(bytes_=data, data_type=kind, completion_state=state)
    return models.ResponseStreamEventPayloadPart(value=value)


async def test_parts_become_messages() -> None:
    parts = [
        _part(b"Hel", "UTF8", "PARTIAL"),
        _part(None, None, "PARTIAL"),
        _part(b"lo", "UTF8", "COMPLETE"),
        _part(b"\xff\x00", "BINARY"),
        _part(None, "BINARY", "COMPLETE"),
        object(),
        *(_part(b"%d" % number) for number in range(10)),
    ]
    async with _scripted(*parts) as transport:
        expected: list[str | bytes] = ["Hello", b"\xff\x00", b""]
        expected += [b"%d" % number for number in range(10)]
        assert [await transport.receive() for _ in expected] == expected
        for _ in range(2):
            with pytest.raises(TransportClosed, match="the stream ended"):
                await transport.receive()
        with pytest.raises(TransportClosed):
            await transport.send("x")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (_part, "no UTF-8"),
        (OSError("it broke"), "it broke"),
        (client_errors.UtterwireError, "UnmodeledEventError|Denied"),
    ],
)
async def test_what_comes_may_be_no_stream(event: Any, words: str) -> None:
    if event is _part:
        event = _part(b"\xff", "UTF8")
    elif event is client_errors.UtterwireError:
        event = UnmodeledEventError("Denied", "no")
    async with _scripted(event) as transport:
        with pytest.raises(TransportClosed, match=words):
            await transport.receive()


async def test_an_abort_wakes_who_waits(url: str) -> None:
    address = SageMakerAddress.parse(url)
    transport = await sagemaker.open_sagemaker(address, connect_s=30.0, close_s=1.0)
    waiting = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    transport.abort()
    with pytest.raises(TransportClosed, match="dropped"):
        await waiting
    await transport.close()


async def test_a_session_that_is_dropped_while_it_speaks(url: str) -> None:
    """The SDK prints nothing (which would be a warning): what it waits for is never cancelled."""
    address = SageMakerAddress.parse(url)
    for _ in range(5):
        transport = await sagemaker.open_sagemaker(address, connect_s=60.0, close_s=1.0)
        await transport.send(json.dumps({"text": "A long text, and more of it. " * 85}))
        while not isinstance(await transport.receive(), bytes):
            pass
        transport.abort()
        await transport.close()


class Silent:
    """A stream of which nothing comes, until the connection has ended."""

    def __init__(self) -> None:
        self.body: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.closed = asyncio.Event()

    async def receive(self) -> None:
        return await asyncio.wrap_future(self.body)

    async def close(self) -> None:
        self.closed.set()

    async def __aexit__(self, *rest: Any) -> None:
        self.body.set_result(None)  # as the SDK does, which minds one that was cancelled

    @property
    def input_stream(self) -> Any:
        return self


@pytest.mark.parametrize("gently", [True, False])
async def test_the_end_of_the_connection_ends_the_reading(gently: bool) -> None:
    stream: Any = Silent()
    transport = sagemaker.SageMakerTransport(stream, stream, stream, close_s=0.01)
    await asyncio.sleep(0)
    if not gently:
        transport.abort()
    await transport.close()
    assert not stream.body.cancelled()
    with pytest.raises(TransportClosed):
        await transport.receive()


async def test_a_drop_ends_a_gentle_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "_CLOSE_S", 600.0)
    stream: Any = Silent()
    transport = sagemaker.SageMakerTransport(stream, stream, stream, close_s=600.0)
    ending = asyncio.create_task(transport.close())
    await stream.closed.wait()
    transport.abort()
    await ending


async def test_the_command_line_speaks(url: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "utterwire_client", "say", "Hello there.", "--endpoint", url,
        "--timeout", "60", "-o", str(tmp_path / "hello.wav"), env=dict(os.environ),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    _, told = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert b"Traceback" not in told
    assert (tmp_path / "hello.wav").stat().st_size > 10_000
