"""The router, called by the unmodified AWS SDKs."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

sdk = pytest.importorskip(
    "aws_sdk_sagemaker_runtime_http2", reason="the AWS SDK needs Python 3.12 and the extra aws"
)

import boto3  # noqa: E402
import botocore.exceptions  # noqa: E402
import h2.config  # noqa: E402
import h2.connection  # noqa: E402
import h2.events  # noqa: E402
from aws_sdk_sagemaker_runtime_http2 import models  # noqa: E402
from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client  # noqa: E402
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config  # noqa: E402
from botocore.config import Config  # noqa: E402
from smithy_aws_event_stream.events import EventMessage  # noqa: E402
from smithy_aws_event_stream.exceptions import UnmodeledEventError  # noqa: E402
from smithy_core.exceptions import CallError  # noqa: E402
from smithy_http.aio.crt import AWSCRTHTTPClient  # noqa: E402
from utterwire_conformance.router import cli  # noqa: E402
from utterwire_conformance.router.certificates import (  # noqa: E402
    CertificatesUnusable,
    tls_files,
    tls_server_context,
)
from utterwire_conformance.router.event_stream import (  # noqa: E402
    Deframer,
    Message,
    NotEvents,
    part,
)
from utterwire_conformance.router.faults import Plan  # noqa: E402
from utterwire_conformance.router.options import LOCAL_CREDENTIALS, Options  # noqa: E402
from utterwire_conformance.router.server import Router  # noqa: E402

# Where a stream is broken off the SDK sets futures that were cancelled, and says so on its way out.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_WITHIN_S = 20.0
KEYS = LOCAL_CREDENTIALS
VERIFIED = Options(credentials=KEYS, accept_s=5.0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssl.SSLContext]:
    """TLS for all routers of this module, trusted by all callers."""
    ca_file, ca = tls_files(tmp_path_factory.mktemp("router"))
    patch = pytest.MonkeyPatch()
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        patch.setenv(name, str(ca_file))
    for name, value in (
        ("AWS_ACCESS_KEY_ID", KEYS.access_key),
        ("AWS_SECRET_ACCESS_KEY", KEYS.secret_key),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        patch.setenv(name, value)
    yield tls_server_context(ca, "127.0.0.1")
    patch.undo()


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        match message:
            case str() if message.startswith("close:"):
                _, code, reason = message.split(":")
                await connection.close(int(code), reason)
            case "abort":
                connection.transport.abort()
            case "pieces":
                await connection.send(["Gene", "rating"])
            case "where":
                assert connection.request is not None
                await connection.send(connection.request.path)
            case "ping":
                await (await connection.ping())
                await connection.send("ponged")
            case _:
                await connection.send(message)


def _http(connection: ServerConnection, request: Request) -> Response | None:
    if request.path.startswith("/refuse"):
        return connection.respond(503, "full")
    return None


@asynccontextmanager
async def routed(
    authority: ssl.SSLContext, plan: Plan | None = None, options: Options = VERIFIED
) -> AsyncIterator[tuple[Router, list[str]]]:
    """A router before a container that echoes, and the lines it logs."""
    lines: list[str] = []
    container = serve(_echo, "127.0.0.1", 0, compression=None, max_size=None, process_request=_http)
    async with container as listening:
        port = listening.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with Router(url, authority, options=options, plan=plan, log=lines.append) as router:
            yield router, lines


@asynccontextmanager
async def sdk_client(
    url: str, secret: str = KEYS.secret_key
) -> AsyncIterator[AsyncSageMakerRuntimeHTTP2Client]:
    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        endpoint_uri=url,
        region="us-east-1",
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=secret,
        transport=AWSCRTHTTPClient(),
        max_attempts=1,
    )
    async with AsyncSageMakerRuntimeHTTP2Client(config=config) as client:
        yield client


class Talk:
    """One stream of the SDK."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.output: Any = None
        self.variant: str | None = None

    async def send(self, data: bytes, kind: str | None = None, state: str | None = None) -> None:
        value = models.RequestPayloadPart(bytes_=data, data_type=kind, completion_state=state)
        await self.stream.input_stream.send(models.RequestStreamEventPayloadPart(value=value))

    async def receive(self) -> tuple[bytes | None, str | None, str | None] | None:
        async with asyncio.timeout(_WITHIN_S):
            event = await self.output.receive()
        if event is None:
            return None
        return event.value.bytes_, event.value.data_type, event.value.completion_state


@asynccontextmanager
async def talk(client: AsyncSageMakerRuntimeHTTP2Client, **rest: Any) -> AsyncIterator[Talk]:
    asked = models.InvokeEndpointWithBidirectionalStreamInput(**{"endpoint_name": "tts", **rest})
    stream = await client.invoke_endpoint_with_bidirectional_stream(asked)
    made = Talk(stream)
    try:
        async with asyncio.timeout(_WITHIN_S):
            head, made.output = await stream.await_output()
        made.variant = head.invoked_production_variant
        yield made
    finally:
        await stream.input_stream.close()
        if made.output is not None:
            # To the end: what the SDK has not read holds up the next stream on the connection.
            try:
                async with asyncio.timeout(_WITHIN_S):
                    while await made.output.receive() is not None:
                        pass
            except (OSError, models.ServiceError, UnmodeledEventError):
                pass


async def test_parts_are_frames_both_ways(authority: ssl.SSLContext) -> None:
    async with routed(authority) as (router, lines), sdk_client(router.url) as client:  # noqa: SIM117
        async with talk(client, target_variant="Second") as session:
            assert session.variant == "Second"
            for data, kind in ((b"text", "UTF8"), (b"\x00\xff", "BINARY"), (b"{}", None)):
                await session.send(data, kind)
                assert await session.receive() == (data, kind or "BINARY", "COMPLETE")
            await session.send(b"Hel", "UTF8", "PARTIAL")
            await session.send(b"lo", "UTF8", "COMPLETE")
            assert await session.receive() == (b"Hello", "UTF8", "COMPLETE")
            await session.send(b"pieces", "UTF8")
            found = [await session.receive() for _ in range(3)]
            assert found == [
                (b"Gene", "UTF8", "PARTIAL"),
                (b"rating", "UTF8", "PARTIAL"),
                # An empty payload arrives as None.
                (None, "UTF8", "COMPLETE"),
            ]
            await session.send(b"ping", "UTF8")
            assert await session.receive() == (b"ponged", "UTF8", "COMPLETE")
            await session.send(b"where", "UTF8")
            where = await session.receive()
            assert where == (b"/invocations-bidirectional-stream", "UTF8", "COMPLETE")
            await session.stream.input_stream.close()
            assert await session.receive() is None
    assert "8 parts in" in lines[-1]
    assert "the container closed after the caller had ended" in lines[-1]


async def test_paths_and_queries_reach_the_container(authority: ssl.SSLContext) -> None:
    async with routed(authority) as (router, _), sdk_client(router.url) as client:
        asked = {"model_invocation_path": "v1/speak", "model_query_string": "a=b&c=d"}
        async with talk(client, **asked) as session:
            await session.send(b"where", "UTF8")
            assert await session.receive() == (b"/v1/speak?a=b&c=d", "UTF8", "COMPLETE")


async def test_a_large_part_passes_whole(authority: ssl.SSLContext) -> None:
    async with (
        routed(authority) as (router, _),
        sdk_client(router.url) as client,
        talk(client) as session,
    ):
        data = os.urandom(3 * 1024 * 1024)
        await session.send(data)
        assert await session.receive() == (data, "BINARY", "COMPLETE")


async def test_fifty_streams_at_once(authority: ssl.SSLContext) -> None:
    async with routed(authority) as (router, _), sdk_client(router.url) as client:

        async def one(number: int) -> bool:
            async with talk(client) as session:
                await session.send(b"%d" % number, "UTF8")
                return await session.receive() == (b"%d" % number, "UTF8", "COMPLETE")

        assert all(await asyncio.gather(*(one(number) for number in range(50))))


@pytest.mark.parametrize(
    ("said", "options", "name", "code"),
    [
        (b"close:1000:bye", VERIFIED, "ModelStreamError", "1000"),
        (b"close:1011:boom", VERIFIED, "ModelStreamError", "1011"),
        (b"abort", VERIFIED, "InternalStreamFailure", None),
        (
            b"abort",
            Options(accept_s=5.0, lost_container="ModelStreamError"),
            "ModelStreamError",
            "1006",
        ),
        (b"close:1000:bye", Options(accept_s=5.0, normal_close="end"), None, None),
    ],
)
async def test_how_a_container_ends_a_stream(
    authority: ssl.SSLContext, said: bytes, options: Options, name: str | None, code: str | None
) -> None:
    async with routed(authority, options=options) as (router, _), sdk_client(router.url) as client:
        async with talk(client) as session:
            await session.send(said, "UTF8")
            if name is None:
                assert await session.receive() is None
                return
            with pytest.raises(getattr(models, name)) as failure:
                await session.receive()
            assert getattr(failure.value, "error_code", None) == code
        async with talk(client) as session:
            await session.send(b"again", "UTF8")
            assert await session.receive() == (b"again", "UTF8", "COMPLETE")


@pytest.mark.parametrize(
    ("asked", "name", "words"),
    [
        ({"model_invocation_path": "/slash"}, "InputValidationError", "malformed"),
        ({"model_query_string": "a=b c"}, "InputValidationError", "malformed"),
        ({"model_invocation_path": "refuse"}, "ModelError", "HTTP 503"),
    ],
)
async def test_calls_that_are_refused(
    authority: ssl.SSLContext, asked: dict[str, str], name: str, words: str
) -> None:
    async with routed(authority) as (router, _), sdk_client(router.url) as client:
        with pytest.raises(getattr(models, name), match=words):
            async with talk(client, **asked):
                pass


async def test_nobody_is_there(authority: ssl.SSLContext) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with (
            Router(url, authority, options=Options(accept_s=5.0)) as router,
            sdk_client(router.url) as client,
        ):
            with pytest.raises(models.ModelError, match="refused"):
                async with talk(client):
                    pass


async def test_a_container_that_accepts_too_late(authority: ssl.SSLContext) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Router(url, authority) as router, sdk_client(router.url) as client:
            with pytest.raises(models.ModelError, match="within 250 ms"):
                async with talk(client):
                    pass


async def test_a_wrong_secret_is_refused(authority: ssl.SSLContext) -> None:
    async with routed(authority) as (router, lines), sdk_client(router.url, "guess") as client:
        with pytest.raises(CallError, match="InvalidSignatureException"):
            async with talk(client):
                pass
        assert "check the secret key" in lines[-1]


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("input-validation-error", "InputValidationError"),
        ("model-error", "ModelError"),
        ("internal-server-error", "InternalServerError"),
        ("service-unavailable", "ServiceUnavailableError"),
        ("throttled", None),
        ("access-denied", None),
    ],
)
async def test_faults_that_refuse(authority: ssl.SSLContext, fault: str, name: str | None) -> None:
    plan = Plan(fault, times=1)
    async with routed(authority, plan) as (router, _), sdk_client(router.url) as client:
        with pytest.raises(CallError if name is None else getattr(models, name)):
            async with talk(client):
                pass
        async with talk(client) as session:
            await session.send(b"again", "UTF8")
            assert await session.receive() == (b"again", "UTF8", "COMPLETE")


async def test_an_endpoint_may_be_named_after_its_fault(authority: ssl.SSLContext) -> None:
    async with routed(authority) as (router, _), sdk_client(router.url) as client:
        with pytest.raises(models.ModelError):
            async with talk(client, endpoint_name="fault-model-error"):
                pass
        async with talk(client, endpoint_name="fault-of-nobody") as session:
            await session.send(b"fine", "UTF8")
            assert await session.receive() == (b"fine", "UTF8", "COMPLETE")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("model-stream-error", models.ModelStreamError),
        ("internal-stream-failure", models.InternalStreamFailure),
        ("stream-reset", OSError),
        ("connection-reset", OSError),
        ("goaway", OSError),
    ],
)
async def test_faults_in_a_stream(
    authority: ssl.SSLContext, fault: str, error: type[Exception]
) -> None:
    plan = Plan(fault, after=2, times=1)
    async with routed(authority, plan) as (router, _), sdk_client(router.url) as client:
        async with talk(client) as session:
            await session.send(b"one", "UTF8")
            assert await session.receive() == (b"one", "UTF8", "COMPLETE")
            await session.send(b"two", "UTF8")
            with pytest.raises(error):
                await _to_the_end(session)
        async with talk(client) as session:
            await session.send(b"again", "UTF8")
            assert await session.receive() == (b"again", "UTF8", "COMPLETE")


async def _to_the_end(session: Talk) -> None:
    while await session.receive() is not None:
        pass
    # The SDK may tell a connection that broke from a stream that ended by nothing.
    raise ConnectionError


async def test_pongs_that_do_not_count_end_a_stream(authority: ssl.SSLContext) -> None:
    options = Options(accept_s=5.0, ping_interval_s=0.05, missed_pongs=2)
    async with (
        routed(authority, Plan("missed-pongs"), options) as (router, _),
        sdk_client(router.url) as client,
        talk(client) as session,
    ):
        with pytest.raises(models.InternalStreamFailure, match="2 pings unanswered"):
            await session.receive()


async def test_slow_parts_come_all_the_same(authority: ssl.SSLContext) -> None:
    options = Options(accept_s=5.0, slow_s=0.01)
    async with (
        routed(authority, Plan("slow-parts"), options) as (router, _),
        sdk_client(router.url) as client,
        talk(client) as session,
    ):
        for number in range(5):
            await session.send(b"%d" % number, "UTF8")
        found = [await session.receive() for _ in range(5)]
        assert [piece[0] for piece in found if piece] == [b"0", b"1", b"2", b"3", b"4"]


# --- what no SDK sends ----------------------------------------------------------------------------


class Raw:
    """HTTP/2 by hand, to a router that checks no signatures."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.http.initiate_connection()
        self.flush()

    @classmethod
    async def open(cls, router: Router) -> Raw:
        context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
        context.set_alpn_protocols(["h2"])
        return cls(*await asyncio.open_connection("localhost", router.port, ssl=context))

    def flush(self) -> None:
        self._writer.write(self.http.data_to_send())

    def ask(self, path: str, **headers: str) -> int:
        stream = self.http.get_next_available_stream_id()
        fields = {"content-type": "application/vnd.amazon.eventstream"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.http.send_headers(
            stream,
            [(":method", "POST"), (":path", path), (":scheme", "https"), (":authority", "x"),
             *fields.items()],
        )  # fmt: skip
        self.flush()
        return stream

    async def events(self, *until: type[h2.events.Event]) -> list[h2.events.Event]:
        """What comes until a stream or the connection ends, or one of these events."""
        found: list[h2.events.Event] = []
        async with asyncio.timeout(_WITHIN_S):
            while data := await self._reader.read(65_536):
                found += self.http.receive_data(data)
                self.flush()
                ends = (h2.events.StreamEnded, h2.events.StreamReset, *until)
                if any(isinstance(event, ends) for event in found):
                    break
        return found

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _status(events: list[h2.events.Event]) -> int:
    heads = [e for e in events if isinstance(e, h2.events.ResponseReceived)]
    return int(dict(heads[0].headers)[b":status"])


def _data(events: list[h2.events.Event]) -> bytes:
    return b"".join(e.data for e in events if isinstance(e, h2.events.DataReceived))


STREAM = "/endpoints/tts/invocations-bidirectional-stream"


@pytest.mark.parametrize(
    ("path", "headers", "status", "words"),
    [
        ("/nowhere", {}, 404, b"nowhere"),
        ("/endpoints/-bad-/invocations", {}, 404, b"bad"),
        (STREAM, {"content_type": "text/plain"}, 400, b"content type"),
    ],
)
async def test_odd_requests_are_answered(
    authority: ssl.SSLContext, path: str, headers: dict[str, str], status: int, words: bytes
) -> None:
    async with routed(authority, options=Options(accept_s=5.0)) as (router, _):
        raw = await Raw.open(router)
        raw.ask(path, **headers)
        events = await raw.events()
        assert _status(events) == status
        assert words in _data(events)
        await raw.close()


def _event(kind: str = "PayloadPart", payload: bytes = b"x", **headers: str) -> bytes:
    fields = {":message-type": "event", ":event-type": kind, **headers}
    octets: bytes = EventMessage(headers=fields, payload=payload).encode()
    return octets


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"\xff" * 64, b"is announced"),
        (_event()[:-1] + b"\x00", b"malformed"),
        (_event("Other"), b"of type Other"),
        (_event(DataType="ASCII"), b"DataType ASCII"),
        (_event(CompletionState="HALF"), b"CompletionState HALF"),
        (_event(payload=bytes(2000)), b"a part of 2000 bytes"),
    ],
)
async def test_events_that_cannot_be_taken(
    authority: ssl.SSLContext, octets: bytes, words: bytes
) -> None:
    options = Options(accept_s=5.0, most_part_bytes=1000)
    async with routed(authority, options=options) as (router, _):
        raw = await Raw.open(router)
        stream = raw.ask(STREAM)
        raw.http.send_data(stream, octets)
        raw.flush()
        (message,) = Deframer().feed(_data(await raw.events()))
        assert message.headers[":error-code"] == "InputValidationError"
        assert words in str(message.headers[":error-message"]).encode()
        await raw.close()


async def test_what_comes_before_a_bad_event_is_carried(authority: ssl.SSLContext) -> None:
    async with routed(authority, options=Options(accept_s=5.0)) as (router, lines):
        raw = await Raw.open(router)
        stream = raw.ask(STREAM)
        raw.http.send_data(stream, _event(payload=b"hi", DataType="UTF8") + b"\xff" * 64)
        raw.flush()
        *_, last = Deframer().feed(_data(await raw.events()))
        assert "is announced" in str(last.text(":error-message"))
        await raw.close()
    assert "1 parts in" in lines[-1]


async def test_input_that_ends_inside_an_event_is_told(authority: ssl.SSLContext) -> None:
    async with routed(authority, options=Options(accept_s=5.0)) as (router, _):
        raw = await Raw.open(router)
        stream = raw.ask(STREAM)
        raw.http.send_data(stream, _event()[:-1], end_stream=True)
        raw.flush()
        (message,) = Deframer().feed(_data(await raw.events()))
        assert message.text(":error-message") == "the input ended inside an event"
        await raw.close()


async def test_unsigned_events_are_refused_where_signatures_are_checked(
    authority: ssl.SSLContext,
) -> None:
    async with routed(authority) as (router, _):
        raw = await Raw.open(router)
        raw.ask(STREAM)
        events = await raw.events()
        assert _status(events) == 403
        assert b"not signed" in _data(events)
        await raw.close()


async def test_a_method_without_a_path_is_answered(authority: ssl.SSLContext) -> None:
    async with routed(authority) as (router, _):
        raw = await Raw.open(router)
        stream = raw.http.get_next_available_stream_id()
        raw.http.config.validate_outbound_headers = False
        raw.http.send_headers(stream, [(":method", "CONNECT"), (":authority", "x")])
        raw.flush()
        assert _status(await raw.events()) == 404
        await raw.close()


async def test_input_that_just_ends_is_an_end(authority: ssl.SSLContext) -> None:
    async with routed(authority, options=Options(accept_s=5.0)) as (router, lines):
        raw = await Raw.open(router)
        stream = raw.ask(STREAM)
        raw.http.send_data(stream, _event(payload=b"hi", DataType="UTF8"), end_stream=True)
        raw.flush()
        events = await raw.events()
        assert _status(events) == 200
        # The container may echo or not, now that it is told to close; but nothing has failed.
        messages = Deframer().feed(_data(events))
        assert all(message.text(":message-type") == "event" for message in messages)
        await raw.close()
    assert "1 parts in" in lines[-1]
    assert "after the caller had ended" in lines[-1]


async def test_a_caller_that_breaks_off_frees_the_container(authority: ssl.SSLContext) -> None:
    left = asyncio.Event()

    async def container(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send("heard")
        await connection.wait_closed()
        left.set()

    lines: list[str] = []
    async with serve(container, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        options = Options(accept_s=5.0)
        async with Router(url, authority, options=options, log=lines.append) as router:
            raw = await Raw.open(router)
            stream = raw.ask(STREAM)
            raw.http.send_data(stream, _event(payload=b"hi", DataType="UTF8"))
            raw.flush()
            await raw.events(h2.events.DataReceived)
            raw.http.reset_stream(stream)
            raw.flush()
            async with asyncio.timeout(_WITHIN_S):
                await left.wait()
            await raw.close()
    assert "the caller broke it off" in lines[-1]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_messages_come_out_however_they_were_cut(size: int) -> None:
    sent = [part(bytes([number]) * number * 100, data_type="BINARY") for number in range(5)]
    octets = b"".join(sent)
    deframer = Deframer()
    found: list[Message] = []
    for at in range(0, len(octets), size):
        found += deframer.feed(octets[at : at + size])
    assert [message.payload for message in found] == [
        bytes([number]) * number * 100 for number in range(5)
    ]
    assert not deframer.inside_a_message


def test_an_empty_envelope_is_no_event() -> None:
    octets = EventMessage(headers={":chunk-signature": b"x"}, payload=b"").encode()
    (message,) = Deframer().feed(octets)
    with pytest.raises(NotEvents):
        message.unwrapped()


# --- boto3 ----------------------------------------------------------------------------------------


def _boto(service: str, url: str, secret: str = KEYS.secret_key) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


@asynccontextmanager
async def http_container() -> AsyncIterator[str]:
    """A container with `POST /invocations` alone."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().partition("content-length: ")[2].partition("\r")[0])
        body = await reader.readexactly(size)
        if body == b"refuse":
            writer.write(b"HTTP/1.1 400 Bad\r\nContent-Length: 4\r\n\r\nbad!")
        else:
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nTransfer-Encoding: chunked\r\n"
                b"X-Amzn-SageMaker-Custom-Attributes: rate=24000\r\nOther: x\r\n\r\n"
            )
            for piece in (b"first", b"second"):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
            if body != b"cut":
                writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def http_routed(
    authority: ssl.SSLContext, plan: Plan | None = None, lines: list[str] | None = None
) -> AsyncIterator[str]:
    log = ([] if lines is None else lines).append
    async with (
        http_container() as url,
        Router(url, authority, options=VERIFIED, plan=plan, log=log) as router,
    ):
        yield router.url


async def test_boto3_invokes_whole_and_as_a_stream(authority: ssl.SSLContext) -> None:
    lines: list[str] = []
    async with http_routed(authority, lines=lines) as url:

        def whole() -> tuple[bytes, str, str]:
            client = _boto("sagemaker-runtime", url)
            answer = client.invoke_endpoint(
                EndpointName="tts", Body=b"x" * 300_000, ContentType="application/json"
            )
            body = answer["Body"].read()
            client.close()
            return body, answer["ContentType"], answer["CustomAttributes"]

        def stream() -> list[bytes]:
            client = _boto("sagemaker-runtime", url)
            answer = client.invoke_endpoint_with_response_stream(EndpointName="tts", Body=b"x")
            pieces = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
            client.close()
            return pieces

        assert await asyncio.to_thread(whole) == (b"firstsecond", "audio/pcm", "rate=24000")
        assert b"".join(await asyncio.to_thread(stream)) == b"firstsecond"
    told = [line.partition(" bytes")[0] for line in lines]
    assert told == ["1: tts: invocation whole, 11", "2: tts: invocation as a stream, 11"]


@pytest.mark.parametrize(
    ("body", "operation", "code"),
    [
        (b"refuse", "invoke_endpoint", "ModelError"),
        (b"refuse", "invoke_endpoint_with_response_stream", "ModelError"),
        (b"cut", "invoke_endpoint", "ModelError"),
        (b"cut", "invoke_endpoint_with_response_stream", "ModelStreamError"),
    ],
)
async def test_boto3_is_told_what_failed(
    authority: ssl.SSLContext, body: bytes, operation: str, code: str
) -> None:
    async with http_routed(authority) as url:

        def call() -> None:
            client = _boto("sagemaker-runtime", url)
            try:
                answer = getattr(client, operation)(EndpointName="tts", Body=body)
                list(answer["Body"])
            finally:
                client.close()

        with pytest.raises(botocore.exceptions.ClientError) as failure:
            await asyncio.to_thread(call)
        assert code in str(failure.value)


async def test_boto3_with_a_wrong_secret(authority: ssl.SSLContext) -> None:
    async with http_routed(authority) as url:

        def call() -> None:
            client = _boto("sagemaker-runtime", url, "guess")
            try:
                client.invoke_endpoint(EndpointName="tts", Body=b"x")
            finally:
                client.close()

        with pytest.raises(botocore.exceptions.ClientError, match="InvalidSignature"):
            await asyncio.to_thread(call)


@pytest.mark.parametrize(
    ("fault", "status"),
    [(None, "InService"), ("endpoint-creating", "Creating"), ("endpoint-failed", "Failed")],
)
async def test_boto3_describes_an_endpoint(
    authority: ssl.SSLContext, fault: str | None, status: str
) -> None:
    async with http_routed(authority, Plan(fault) if fault else None) as url:

        def call() -> Any:
            client = _boto("sagemaker", url)
            answer = client.describe_endpoint(EndpointName="tts")
            client.close()
            return answer

        answer = await asyncio.to_thread(call)
        assert answer["EndpointStatus"] == status
        assert ("FailureReason" in answer) == (status == "Failed")


async def test_boto3_finds_no_endpoint(authority: ssl.SSLContext) -> None:
    async with http_routed(authority, Plan("endpoint-missing")) as url:

        def call() -> None:
            client = _boto("sagemaker", url)
            try:
                client.describe_endpoint(EndpointName="tts")
            finally:
                client.close()

        with pytest.raises(botocore.exceptions.ClientError, match="Could not find endpoint"):
            await asyncio.to_thread(call)


# --- the command ----------------------------------------------------------------------------------


def test_the_authority_is_made_once(tmp_path: Path) -> None:
    first, _ = tls_files(tmp_path / "new")
    before = first.read_bytes()
    again, ca = tls_files(tmp_path / "new")
    assert again.read_bytes() == before
    assert ca.cert_pem.bytes() == before
    assert (tmp_path / "new" / "ca.key").stat().st_mode & 0o077 == 0


def test_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(CertificatesUnusable, match="remove it"):
        tls_files(tmp_path)
    with pytest.raises(CertificatesUnusable):
        tls_files(tmp_path / "ca.pem" / "below")


def test_list_and_snippet(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list"]) == 0
    assert "goaway" in capsys.readouterr().out
    assert cli.main(["--snippet", "--port", "9443"]) == 0
    assert "https://localhost:9443" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "nonsense"], "no fault is called nonsense"),
        (["--to", "ftp://x"], "no address of a container"),
        (["--to", "http://localhost:8080/speech"], "leave it out"),
        (["--host", "203.0.113.1"], "203.0.113.1:8443"),
        (["--host", "nobody.invalid"], "nobody.invalid:8443: "),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments, "--certificates", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Unknown error" not in err
    assert err.count("\n") == 1


def test_a_port_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--port", "65536"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "https://localhost:1"),
        ("::", "https://localhost:1"),
        ("::1", "https://localhost:1"),
        ("fe80::1", "https://[fe80::1]:1"),
        ("router.test", "https://router.test:1"),
    ],
)
def test_the_address_of_a_router(authority: ssl.SSLContext, host: str, url: str) -> None:
    assert Router("http://localhost", authority, host=host, port=1).url == url


def test_routers_that_start_together_have_one_authority(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: tls_files(tmp_path)[1].cert_pem.bytes(), range(8)))
    assert set(made) == {(tmp_path / "ca.pem").read_bytes()}
    # Whichever of the two is lost, what is left still fits.
    (tmp_path / "ca.pem").write_bytes(b"of another key")
    assert tls_files(tmp_path)[0].read_bytes() == made[0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ca.key", "ca.pem"]


async def test_the_command_and_its_snippet(tmp_path: Path, authority: ssl.SSLContext) -> None:
    """What it prints is enough to speak: the snippet runs as it stands."""

    async def speak(connection: ServerConnection) -> None:
        async for message in connection:
            if b"close" in (message.encode() if isinstance(message, str) else message):
                await connection.send('{"type": "session_closed"}')
            else:
                await connection.send(b"\x00\x01" * 20)

    async with serve(speak, "127.0.0.1", 0, compression=None) as listening:
        port = listening.sockets[0].getsockname()[1]
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "utterwire_conformance.router.cli", "--verify", "--port", "0",
            "--to", f"http://127.0.0.1:{port}", "--certificates", str(tmp_path),
            "--accept-ms", "5000",
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert command.stdout is not None
            async with asyncio.timeout(60):
                greeting = (await command.stdout.readuntil(b"asyncio.run(main())\n")).decode()
            code = greeting.partition("this program):\n")[2]
            assert f"SSL_CERT_FILE={tmp_path}/ca.pem" in greeting
            environ = os.environ | {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
            program = "\n".join(line.removeprefix("  ") for line in code.splitlines())
            caller = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, env=environ,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            async with asyncio.timeout(60):
                told, problems = await caller.communicate()
            assert b"BINARY 40" in told, problems.decode()
            assert b"session_closed" in told
        finally:
            command.terminate()
            rest, _ = await command.communicate()
        assert command.returncode == 0
        assert b"2 parts in" in rest
