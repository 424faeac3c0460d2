"""The suite's sessions through SageMaker, with a peer that answers in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from utterwire_conformance.driver import Recorder
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.transcript import Transcript
from utterwire_conformance.via import SageMakerTarget

pytest.importorskip(
    "aws_sdk_sagemaker_runtime_http2", reason="the AWS SDK needs Python 3.12 and the extra aws"
)

from utterwire_conformance.driver.sagemaker import SageMakerSession
from utterwire_conformance.router.call import Call
from utterwire_conformance.router.certificates import tls_files, tls_server_context
from utterwire_conformance.router.errors import StreamFailed
from utterwire_conformance.router.event_stream import exception, part
from utterwire_conformance.router.http2 import Http2Connection

_WITHIN_S = 20.0
PART = part(b"{}", data_type="UTF8")


class _Peer(asyncio.Protocol):
    def __init__(self, handler: Callable[[Call], Awaitable[None]]) -> None:
        self._handler = handler

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._http = Http2Connection(transport, self._handler)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._http.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.lose()


@asynccontextmanager
async def answered(folder: Path, octets: bytes, then: str) -> AsyncIterator[SageMakerSession]:
    """A session whose peer sends these octets, and then ends it in this way."""

    async def answer(call: Call) -> None:
        await call.respond(200, [])
        await call.send(octets)
        if then == "end":
            await call.end()
        elif then == "nothing":
            while await call.receive() is not None:
                pass
        else:
            getattr(call, then)()

    ca_file, authority = tls_files(folder)
    context = tls_server_context(authority, "127.0.0.1")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Peer(answer), "127.0.0.1", 0, ssl=context)
    async with server:
        place = SageMakerTarget(
            "tts",
            region="us-east-1",
            endpoint_url=f"https://localhost:{server.sockets[0].getsockname()[1]}",
            ca_file=ca_file,
            keys=("a", "b"),
        )
        claims = find_endpoint("reference").claims
        recorder = Recorder(Transcript("probe"))
        session = await SageMakerSession.reach(place, recorder, claims, within=_WITHIN_S)
        try:
            yield session
        finally:
            await session.end()


@pytest.mark.parametrize(
    ("octets", "then", "reason", "messages"),
    [
        (PART, "end", "end of stream", 1),
        (PART, "reset", "the stream was reset", 1),
        (PART, "go_away", "GOAWAY", 1),
        (PART + bytes(16), "nothing", "a message of 0 bytes", 1),
        (PART + b"\0\0\0\5" * 4, "nothing", "a message of 5 bytes", 1),
        (b"\xff" * 16, "nothing", "a message of 4294967295 bytes", 0),
        (PART[:-1] + b"\0", "nothing", "malformed", 0),
    ],
)
async def test_how_a_stream_ended_is_recorded(
    tmp_path: Path, octets: bytes, then: str, reason: str, messages: int
) -> None:
    async with answered(tmp_path, octets, then) as session:
        assert await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert session.dialogue.eof is not None
        assert reason in str(session.dialogue.eof.reason)
        entries = session._recorder.transcript.entries
        assert sum((e.dir, e.kind) == ("in", "text") for e in entries) == messages


@pytest.mark.parametrize(
    ("code", "recorded"), [("1011", 1011), ("1000", 1000), ("none", None), ("99999", None)]
)
async def test_the_close_code_of_the_container_is_recorded(
    tmp_path: Path, code: str, recorded: int | None
) -> None:
    failure = StreamFailed("ModelStreamError", 'it said "ErrorCode": 12', code)
    async with answered(tmp_path, exception(failure), "end") as session:
        assert await session.until(lambda: session.dialogue.ended, within=_WITHIN_S)
        assert session.dialogue.close_in is not None
        assert session.dialogue.close_in.code == recorded
