"""Speech over HTTP and over server-sent events, from endpoints good and bad."""

import asyncio
import base64
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from utterwire_client.address import http_url
from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    PeerViolation,
    RequestInvalid,
    SessionLost,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, Event, Start
from utterwire_client.http import HttpTransport, http_utterance

AUDIO = struct.pack("<8h", *range(8))
HEAD = {
    "Content-Type": "audio/pcm;rate=24000;channels=1",
    "Utterwire-Sample-Rate": "16000",
    "Utterwire-Format": "pcm_s16le",
    "Utterwire-Voice": "h%C3%A9l%c3%a8ne",
}


class Exchange:
    """One request at the scripted server, and the way back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.line = ""
        self.headers: dict[str, str] = {}
        self.names: list[str] = []
        self.body = b""

    async def read(self) -> None:
        raw = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        self.line, *rows = raw.strip().split("\r\n")
        self.names = [row.partition(":")[0].lower() for row in rows]
        self.headers = {k.lower(): v.strip() for k, _, v in (row.partition(":") for row in rows)}
        self.body = await self._reader.readexactly(int(self.headers.get("content-length", "0")))

    def head(self, status: int, fields: dict[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")

    def answer(self, status: int, body: bytes, **fields: str) -> None:
        self.head(status, {"Content-Length": str(len(body)), **fields})
        self.writer.write(body)

    async def gone(self) -> None:
        """Wait until the client has disconnected, whichever way."""
        with contextlib.suppress(ConnectionError):
            await self._reader.read()


Script = Callable[[Exchange], Awaitable[None]]
Serve = Callable[[Script], Awaitable[str]]


@pytest.fixture
async def web() -> AsyncIterator[Serve]:
    """Starts a server that runs a script for each request; returns its address."""
    servers: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(script: Script) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            exchange = Exchange(reader, writer)
            try:
                # One that gave up before it had asked gets no answer.
                with contextlib.suppress(asyncio.IncompleteReadError):
                    await exchange.read()
                    await script(exchange)
            finally:
                writer.close()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(handle(reader, writer))
            tasks.add(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        servers.append(server)
        return f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    failures = [r for r in await asyncio.gather(*tasks, return_exceptions=True) if r]
    assert [f for f in failures if not isinstance(f, asyncio.CancelledError)] == []


async def gather(url: str, **options: Any) -> list[Event]:
    return [event async for event in http_utterance(url, "Hello.", **options)]


def sound(events: list[Event]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Audio))


async def spoken(exchange: Exchange) -> None:
    exchange.head(200, {**HEAD, "Transfer-Encoding": "chunked"})
    for place in range(0, len(AUDIO), 3):
        await exchange.chunk(AUDIO[place : place + 3])
    exchange.end()


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("ws://h:1", "http://h:1/invocations"),
        ("wss://h/", "https://h/invocations"),
        ("http://h/prefix/invocations?a=b", "http://h/prefix/invocations?a=b"),
        ("ws://h/p/invocations-bidirectional-stream", "http://h/p/invocations"),
    ],
)
def test_the_address_of_requests(given: str, address: str) -> None:
    assert http_url(given) == address


async def test_audio_as_it_comes(web: Serve) -> None:
    seen: list[Exchange] = []

    async def script(exchange: Exchange) -> None:
        seen.append(exchange)
        await spoken(exchange)

    events = await gather(
        await web(script), voice="nova", request_id="a", headers={"X-Token": "s3cret"}
    )
    assert events[0] == Start(sample_rate=16000, format="pcm_s16le", voice="hélène")
    assert sound(events) == AUDIO
    assert all(len(event.data) % 2 == 0 for event in events if isinstance(event, Audio))
    assert events[-1] == Complete(received_bytes=len(AUDIO), duration_s=8 / 16000)
    (exchange,) = seen
    assert exchange.line == "POST /invocations HTTP/1.1"
    assert exchange.headers["x-token"] == "s3cret"
    assert exchange.headers["content-type"] == "application/json"
    assert json.loads(exchange.body) == {
        "type": "synthesize",
        "text": "Hello.",
        "voice": "nova",
        "request_id": "a",
    }


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_each_field_is_sent_once(web: Serve, transport: HttpTransport) -> None:
    """Two `Content-Type` are taken for none, or for one that nobody knows (RFC 9110 5.3)."""
    seen: list[Exchange] = []

    async def script(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.answer(401, b"")

    given = [("user-agent", "mine"), ("X-Token", "a"), ("X-Token", "b")]
    with pytest.raises(ConnectFailed):
        await gather(await web(script), transport=transport, headers=given)
    (exchange,) = seen
    assert exchange.names.count("x-token") == 2
    assert {n for n in exchange.names if exchange.names.count(n) > 1} == {"x-token"}
    assert {"content-type", "accept"} <= set(exchange.names)
    assert exchange.headers["user-agent"] == "mine"
    assert exchange.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("rate", ["0", "-1", "1.5", "x", "9" * 5_000])
async def test_a_rate_that_is_none(web: Serve, rate: str) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(200, AUDIO, **{"Utterwire-Sample-Rate": rate})

    events = await gather(await web(script), sample_rate=8000)
    assert events[0] == Start(sample_rate=8000, format="pcm_s16le", voice=None, implied=True)


async def test_without_headers_it_is_what_was_asked_for(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(200, AUDIO)

    url = await web(script)
    events = await gather(url)
    assert events[0] == Start(sample_rate=24000, format="pcm_s16le", voice=None, implied=True)
    events = await gather(url, sample_rate=8000, format="mulaw", speed=1.5)
    assert events[0] == Start(sample_rate=8000, format="mulaw", voice=None, implied=True)


async def test_nothing_to_speak(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(200, b"", **HEAD)

    events = await gather(await web(script))
    assert [type(event) for event in events] == [Start, Complete]


async def test_half_a_sample_at_the_end_is_told(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(200, AUDIO[:5])

    told: list[PeerViolation] = []
    events = await gather(await web(script), on_violation=told.append)
    assert sound(events) == AUDIO[:4]
    assert [violation.requirement for violation in told] == ["audio.whole-samples"]
    assert sound(await gather(await web(script))) == AUDIO[:4]


@pytest.mark.parametrize("how", ["chunked", "length", "reset"])
async def test_a_body_that_is_cut_off_is_a_failure(web: Serve, how: str) -> None:
    async def script(exchange: Exchange) -> None:
        length = {"Content-Length": "100"} if how == "length" else {"Transfer-Encoding": "chunked"}
        exchange.head(200, HEAD | length)
        if how == "length":
            exchange.writer.write(AUDIO)
        else:
            await exchange.chunk(AUDIO)
        if how == "reset":
            exchange.writer.transport.abort()

    heard: list[Event] = []

    async def listen(url: str) -> None:
        async for event in http_utterance(url, "Hello."):
            heard.append(event)  # noqa: PERF401 - what came before the failure counts

    with pytest.raises(SessionLost) as raised:
        await listen(await web(script))
    assert raised.value.audio_bytes == len(sound(heard))
    assert raised.value.retryable
    assert sound(heard) in (AUDIO, b"")  # a reset may take what had not been read


ERRORS = [
    (400, {"code": "invalid_voice", "retryable": False, "rejected": True}, UtteranceRejected),
    (503, {"code": "overloaded", "retryable": True, "rejected": True}, UtteranceRejected),
    (500, {"code": "synthesis_failed", "retryable": True}, UtteranceFailed),
]


@pytest.mark.parametrize(("status", "fields", "kind"), ERRORS)
async def test_errors_by_status(
    web: Serve, status: int, fields: dict[str, Any], kind: type[UtterwireError]
) -> None:
    async def script(exchange: Exchange) -> None:
        body = json.dumps({"type": "error", "message": "No.\n", **fields}).encode()
        exchange.answer(status, body, **{"Retry-After": "7"})

    with pytest.raises(kind, match=rf"\({fields['code']}: No\. \)") as raised:
        await gather(await web(script))
    assert raised.value.retryable is fields["retryable"]
    assert getattr(raised.value, "retry_after_s", None) == 7.0
    assert getattr(raised.value, "code", None) == fields["code"]


@pytest.mark.parametrize(
    ("status", "body", "retryable"),
    [(401, b"", False), (404, b"<p>", False), (503, b"[1", True), (301, b"{}", False)],
)
async def test_statuses_without_an_error(
    web: Serve, status: int, body: bytes, retryable: bool
) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(status, body, Location="/elsewhere")

    with pytest.raises(ConnectFailed, match=f"answers HTTP {status}$") as raised:
        await gather(await web(script))
    assert (raised.value.status, raised.value.retryable) == (status, retryable)


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        ("text/html; charset=utf-8", b"<html><h1>Welcome</h1></html>", ConnectFailed),
        ("text/event-stream", b'event: audio_chunk\ndata: {"data": "AAAA"}\n\n', ConnectFailed),
        ("application/problem+json", b'{"title": "No"}', ConnectFailed),
        (
            "Application/JSON",
            b'{"type":"error","code":"invalid_voice","message":"","rejected":true}',
            UtteranceRejected,
        ),
    ],
)
async def test_words_are_not_played_as_audio(
    web: Serve, kind: str, body: bytes, error: type[UtterwireError]
) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(200, body, **{"Content-Type": kind})

    with pytest.raises(error):
        await gather(await web(script))


async def test_a_type_that_is_wrong_beside_a_format_that_is_told(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.answer(
            200, AUDIO, **{"Content-Type": "text/plain", "Utterwire-Format": "pcm_s16le"}
        )

    assert sound(await gather(await web(script))) == AUDIO


async def test_an_endless_error_is_not_read_to_its_end(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.head(500, {"Transfer-Encoding": "chunked"})
        while not exchange.writer.is_closing():
            try:
                await exchange.chunk(b"x" * 4096)
            except ConnectionError:
                return

    with pytest.raises(ConnectFailed, match="HTTP 500"):
        await gather(await web(script))


async def test_an_error_that_is_cut_off_still_has_its_status(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.head(500, {"Content-Length": "50"})
        exchange.writer.write(b'{"type": "error"')

    with pytest.raises(ConnectFailed, match="HTTP 500"):
        await gather(await web(script))


async def test_nobody_listens(closed_port: int) -> None:
    with pytest.raises(ConnectFailed, match=r"no connection to http://127\.0\.0\.1:") as raised:
        await gather(f"ws://127.0.0.1:{closed_port}")
    assert raised.value.retryable


async def test_what_is_not_http(web: Serve) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.writer.write(b"220 ready\r\n\r\n")

    with pytest.raises(SessionLost, match="0 bytes of audio came"):
        await gather(await web(script))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"voice": ""}, "voice"),
        ({"speed": 0}, "speed"),
        ({"headers": {"X": "a\nb"}}, "header field X"),
    ],
)
async def test_what_cannot_be_asked_is_not_sent(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestInvalid, match=reason):
        await gather("ws://127.0.0.1:9", **options)


@pytest.mark.parametrize(
    ("said", "which"), [("nothing", "first_chunk"), ("head", "first_chunk"), ("audio", "stall")]
)
async def test_a_silent_endpoint_is_given_up(web: Serve, said: str, which: str) -> None:
    async def script(exchange: Exchange) -> None:
        if said != "nothing":
            exchange.head(200, {**HEAD, "Transfer-Encoding": "chunked"})
        if said == "audio":
            await exchange.chunk(AUDIO)
        await exchange.gone()

    short = {"first_chunk": Deadlines(first_chunk_s=0.2), "stall": Deadlines(stall_s=0.1)}
    with pytest.raises(DeadlineExceeded) as raised:
        await gather(await web(script), deadlines=short[which])
    assert raised.value.which == which


@pytest.mark.parametrize("which", ["first_chunk", "stall"])
async def test_comments_are_no_audio(web: Serve, which: str) -> None:
    async def script(exchange: Exchange) -> None:
        kind = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        exchange.head(200, kind)
        if which == "stall":
            await exchange.chunk(event("audio_stream_start", sample_rate=24000) + chunk(0, AUDIO))
        leaving = asyncio.create_task(exchange.gone())
        with contextlib.suppress(ConnectionError):
            while not leaving.done():
                await exchange.chunk(b": still here\n\n")
                await asyncio.sleep(0.02)
        await leaving

    short = {"first_chunk": Deadlines(first_chunk_s=0.2), "stall": Deadlines(stall_s=0.1)}
    with pytest.raises(DeadlineExceeded) as raised:
        await gather(await web(script), transport="sse", deadlines=short[which])
    assert raised.value.which == which


async def test_letting_go_closes_the_connection(web: Serve) -> None:
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        exchange.head(200, {**HEAD, "Transfer-Encoding": "chunked"})
        await exchange.chunk(AUDIO)
        await exchange.gone()
        gone.set()

    events = http_utterance(await web(script), "Hello.")
    async for event in events:
        if isinstance(event, Audio):
            break
    await events.aclose()
    async with asyncio.timeout(60):
        await gone.wait()


# --- events ------------------------------------------------------------------------------------


def event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields, ensure_ascii=False)}\n\n".encode()


def chunk(seq: int, data: bytes) -> bytes:
    return event("audio_chunk", seq=seq, data=base64.b64encode(data).decode())


START = event("audio_stream_start", format="pcm_s16le", voice="nova", sample_rate=16000)
STREAM = [START, chunk(0, AUDIO[:8]), chunk(1, AUDIO[8:])]
END = event("audio_stream_end", total_chunks=2, duration_s=0.5)


def streaming(*pieces: bytes, kind: str = "text/event-stream; charset=utf-8") -> Script:
    async def script(exchange: Exchange) -> None:
        assert exchange.headers["accept"] == "text/event-stream"
        exchange.head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"})
        for piece in pieces:
            await exchange.chunk(piece)
        exchange.end()

    return script


WHOLE = b"".join([b": hi\n\n", event("agent_start"), *STREAM[:2], event("text_delta", text="ż")])
WHOLE += STREAM[2] + END + event("agent_end")


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_events_however_they_are_delivered(web: Serve, size: int) -> None:
    pieces = [WHOLE[place : place + size] for place in range(0, len(WHOLE), size)]
    events = await gather(await web(streaming(*pieces)), transport="sse")
    assert events[0] == Start(sample_rate=16000, format="pcm_s16le", voice="nova")
    assert sound(events) == AUDIO
    assert events[-1] == Complete(received_bytes=len(AUDIO), duration_s=0.5)


CUT = {
    "no end": STREAM,
    "an end without its blank line": [*STREAM, END[:-1]],
    "a chunk is missing": [START, STREAM[1], END],
    "no base64": [START, event("audio_chunk", seq=0, data="***"), END],
    "no data": [START, b"event: audio_chunk\ndata: [\n\n", END],
}


@pytest.mark.parametrize("pieces", CUT.values(), ids=CUT)
async def test_a_stream_that_is_not_whole_is_a_failure(web: Serve, pieces: list[bytes]) -> None:
    with pytest.raises(SessionLost):
        await gather(await web(streaming(*pieces)), transport="sse")


async def test_faults_that_can_be_lived_with(web: Serve) -> None:
    told: list[PeerViolation] = []
    pieces = [chunk(3, AUDIO), event("audio_stream_end", total_chunks=1)]
    events = await gather(await web(streaming(*pieces)), transport="sse", on_violation=told.append)
    assert events[0] == Start(sample_rate=24000, format="pcm_s16le", voice=None, implied=True)
    assert sound(events) == AUDIO
    assert [violation.requirement for violation in told] == ["sse.start", "sse.chunks"]


@pytest.mark.parametrize("value", ["-1", "NaN", "Infinity", "true", '"1"', 400 * "9"])
async def test_numbers_that_cannot_be(web: Serve, value: str) -> None:
    """What is told of the audio is made up for where it is nonsense; the audio is what counts."""
    told = f'event: audio_stream_start\ndata: {{"format": "pcm_s16le", "sample_rate": {value}}}\n\n'
    end = f'event: audio_stream_end\ndata: {{"total_chunks": 1, "duration_s": {value}}}\n\n'
    pieces = [told.encode(), chunk(0, AUDIO), end.encode()]
    events = await gather(await web(streaming(*pieces)), transport="sse", sample_rate=16000)
    assert sound(events) == AUDIO
    last = events[-1]
    assert isinstance(last, Complete)
    assert isinstance(events[0], Start)
    assert events[0].sample_rate == 16000
    assert last.duration_s == 8 / 16000


@pytest.mark.parametrize(
    ("code", "retryable"), [("synthesis_failed", True), ("invalid_voice", False), ("new", False)]
)
async def test_a_failure_told_by_an_event(web: Serve, code: str, retryable: bool) -> None:
    pieces = [*STREAM[:2], event("error", code=code, message="No.")]
    with pytest.raises(UtteranceFailed) as raised:
        await gather(await web(streaming(*pieces)), transport="sse")
    assert (raised.value.code, raised.value.retryable) == (code, retryable)
    assert raised.value.audio_bytes == 8


async def test_an_answer_that_is_no_stream_of_events(web: Serve) -> None:
    with pytest.raises(ConnectFailed, match="sends audio/pcm, and no events"):
        await gather(await web(streaming(AUDIO, kind="audio/pcm;rate=24000")), transport="sse")


async def test_no_tls_and_no_proxy_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectFailed, match="no connection"):
        await gather("https://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "smoke://signals")
    with pytest.raises(RequestInvalid, match="cannot be sent"):
        await gather("https://tts.example.com")
