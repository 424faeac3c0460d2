"""The relay: events and sessions for browsers; one that does not read holds it up."""

import asyncio
import base64
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_client import Audio, Complete, RequestInvalid, Start, connect
from utterwire_client.audio_event import AudioEvent, audio_events, error_event
from utterwire_client.endpoints import Endpoint
from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    SessionLost,
    SpeechIncomplete,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.event_stream import EventStreamReader
from utterwire_client.http import http_utterance
from utterwire_client.relay import Relay
from utterwire_client.sentence import Lost, Sentence, Spoken
from utterwire_client.transport import TransportClosed
from utterwire_schemas import validator
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

Serve = Callable[..., Awaitable[str]]
TEXT = "Here is the first one. And here is the second one."
ONE, TWO = b"\x01\x00" * 600, b"\x02\x00" * 40_000


async def speaking(peer: Any) -> None:
    await peer.next()
    await peer.speak(1, ONE)
    await peer.next()
    await peer.speak(2, TWO[:60_000], TWO[60_000:])
    await peer.say_goodbye()


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """An application behind a real server, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Long kept alive: a connection that is closed just when the next request comes loses it.
        config = uvicorn.Config(
            app, log_config=None, lifespan="on", ws="websockets-sansio", timeout_keep_alive=600
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server.serve([listening]))
        try:
            while not server.started:  # noqa: ASYNC110 - it has nothing to wait for
                await asyncio.sleep(0.005)
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def relay(url: str, **options: Any) -> Relay:
    return Relay([Endpoint(name="voice", url=url)], **options)


# -- events


@pytest.mark.parametrize("style", ["event", "data"])
@pytest.mark.usefixtures("no_leftover_tasks")
async def test_a_text_as_one_stream_of_events(endpoint: Serve, style: str) -> None:
    app = relay(await endpoint(speaking))
    body = {"text": TEXT, "request_id": "a", "voice": None, "other": 1}
    async with served(app) as host, httpx.AsyncClient() as client:
        answer = await client.post(f"http://{host}/voice?style={style}", json=body)
    assert app.sessions == 0
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    events = EventStreamReader().feed(answer.content)
    told = [json.loads(event.data) for event in events]
    names = ["audio_stream_start", *["audio_chunk"] * 3, "audio_stream_end"]
    if style == "data":
        assert {event.name for event in events} == {"message"}
        assert [fields.pop("type") for fields in told] == names
        assert b"event:" not in answer.content
    else:
        assert [event.name for event in events] == names
    for name, fields in zip(names, told, strict=True):
        validator(f"sse-{name.replace('_', '-')}").validate(fields)
        assert fields["request_id"] == "a"
    assert [fields["seq"] for fields in told[1:-1]] == [0, 1, 2]
    assert b"".join(base64.b64decode(f["data"]) for f in told[1:-1]) == ONE + TWO
    assert told[-1]["total_chunks"] == 3
    assert told[-1]["duration_s"] == pytest.approx(len(ONE + TWO) / 48_000)


@pytest.mark.parametrize("style", ["event", "data"])
async def test_our_own_reader_reads_it(endpoint: Serve, style: str) -> None:
    async with served(relay(await endpoint(speaking))) as host:
        url = f"http://{host}/voice?style={style}"
        got = [event async for event in http_utterance(url, TEXT, transport="sse")]
    assert isinstance(got[0], Start)
    assert (got[0].sample_rate, got[0].format, got[0].voice) == (24000, "pcm_s16le", "test")
    assert b"".join(event.data for event in got if isinstance(event, Audio)) == ONE + TWO
    assert isinstance(got[-1], Complete)


BAD = "invalid_request"
REFUSED: dict[str, tuple[str, bytes, int, str]] = {
    "another endpoint": ("POST /other", b"{}", 404, "invalid_request"),
    "no endpoint": ("POST /", b"{}", 404, "invalid_request"),
    "another method": ("GET /voice", b"", 405, "invalid_request"),
    "another style": ("POST /voice?style=xml", b'{"text": "x"}', 400, "invalid_request"),
    "no JSON": ("POST /voice", b"{", 400, "invalid_json"),
    "too deep": ("POST /voice", b"[" * 60_000, 400, "invalid_json"),
    "no UTF-8": ("POST /voice", b"\xff", 400, "invalid_utf8"),
    "no object": ("POST /voice", b"[]", 400, "not_an_object"),
    "no text": ("POST /voice", b'{"text": null}', 400, "missing_text"),
    "a blank text": ("POST /voice", b'{"text": " \\n"}', 400, "empty_text"),
    "nothing to speak": ("POST /voice", b'{"text": "..."}', 400, "invalid_request"),
    "a number for a text": ("POST /voice", b'{"text": 1}', 400, "invalid_request"),
    "a truth for a speed": ("POST /voice", b'{"text": "x", "speed": true}', 400, "invalid_request"),
    "a speed of nothing": ("POST /voice", b'{"text": "x y.", "speed": 0}', 400, "invalid_request"),
    "half a character": ("POST /voice", b'{"text": "x", "request_id": "\\ud800"}', 400, BAD),
    "an empty id": ("POST /voice", b'{"text": "x", "request_id": ""}', 400, BAD),
    "a long id": ("POST /voice", b'{"text": "x", "request_id": "%s"}' % (b"x" * 129), 400, BAD),
    "half a voice": ("POST /voice", b'{"text": "x", "voice": "\\ud800"}', 400, BAD),
    "half a format": ("POST /voice", b'{"text": "x", "format": "\\ud800"}', 400, BAD),
    "no number": ("POST /voice", b'{"text": "x", "speed": NaN}', 400, BAD),
    "too long": ("POST /voice", b'{"text": "' + b"x" * 70_000 + b'"}', 413, "text_too_long"),
}


@pytest.fixture
async def quiet(endpoint: Serve) -> AsyncIterator[str]:
    async def script(peer: Any) -> None:
        await peer.gone()

    async with served(relay(await endpoint(script))) as host:
        yield host


async def test_what_is_refused(quiet: str) -> None:
    async with httpx.AsyncClient() as client:
        for name, (line, body, status, code) in REFUSED.items():
            method, path = line.split()
            answer = await client.request(method, f"http://{quiet}{path}", content=body)
            assert (answer.status_code, answer.json()["code"]) == (status, code), name
            validator("http-error").validate(answer.json())


async def test_origins(endpoint: Serve) -> None:
    async def ask(host: str, origin: str) -> int:
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"http://{host}/voice", headers={"Origin": origin})
        return 403 if answer.status_code == 403 else 200

    async with served(relay("ws://127.0.0.1:1", origins=["https://App.example"])) as host:
        assert await ask(host, f"http://{host}") == 200
        assert await ask(host, "https://app.example") == 200
        assert await ask(host, "https://evil.example") == 403
        assert await ask(host, "null") == 403
        with pytest.raises(InvalidStatus, match="403"):
            async with websocket(f"ws://{host}/voice", origin="https://evil.example"):  # type: ignore[arg-type]
                pass
    async with served(relay("ws://127.0.0.1:1", origins=["*"])) as host:
        assert await ask(host, "https://evil.example") == 200


async def test_a_page_of_a_welcome_origin_may_read_the_answer(endpoint: Serve) -> None:
    page = {"Origin": "https://app.example"}
    asks = {**page, "Access-Control-Request-Method": "POST"}
    app = relay(await endpoint(speaking), origins=["https://app.example"])
    async with served(app) as host, httpx.AsyncClient() as client:
        url = f"http://{host}/voice"
        preflight = await client.options(url, headers=asks)
        answer = await client.post(url, json={"text": TEXT}, headers=page)
        refused = await client.post(url, json={}, headers=page)
        stranger = await client.options(url, headers={**asks, "Origin": "https://evil.example"})
    assert (preflight.status_code, answer.status_code, refused.status_code) == (204, 200, 400)
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-headers"] == "content-type"
    for seen in (preflight, answer, refused):
        assert seen.headers["access-control-allow-origin"] == "https://app.example"
        assert seen.headers["vary"] == "origin"
    assert "access-control-allow-origin" not in stranger.headers


async def test_no_endpoint_there(caplog: pytest.LogCaptureFixture, closed_port: int) -> None:
    url = f"ws://user:secret@127.0.0.1:{closed_port}/?token=secret"
    async with served(relay(url)) as host, httpx.AsyncClient() as client:
        answer = await client.post(f"http://{host}/voice", json={"text": "Confidential words."})
        with pytest.raises(ConnectionClosed) as closed:
            async with websocket(f"ws://{host}/voice") as session:
                await session.recv()
    assert (answer.status_code, answer.json()["retryable"]) == (502, True)
    assert str(closed_port) not in answer.text
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013
    assert "voice: ConnectFailed" in caplog.text
    assert "secret" not in caplog.text
    assert "Confidential" not in caplog.text


async def test_failures(endpoint: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def rejecting(peer: Any) -> None:
        asked = await peer.next()
        await peer.error(1, "invalid_voice", rejected=True, message=f"no: {asked['text']}")
        await peer.gone()

    async def failing(peer: Any) -> None:
        asked = await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await peer.error(1, "synthesis_failed", message=f"no: {asked['text']}")
        await peer.gone()

    caplog.set_level(logging.INFO)
    async with httpx.AsyncClient() as client:
        async with served(relay(await endpoint(rejecting))) as host:
            answer = await client.post(f"http://{host}/voice", json={"text": "Private words."})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_voice")
        async with served(relay(await endpoint(failing))) as host:
            answer = await client.post(f"http://{host}/voice", json={"text": "Private words."})
            assert answer.status_code == 200
    events = EventStreamReader().feed(answer.content)
    assert [e.name for e in events] == ["audio_stream_start", "audio_chunk", "error"]
    assert json.loads(events[-1].data)["code"] == "synthesis_failed"
    assert "Private" not in caplog.text


@pytest.mark.usefixtures("no_leftover_tasks")
async def test_who_leaves_cancels(endpoint: Serve) -> None:
    left = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await peer.gone()
        left.set()

    app = relay(await endpoint(script))
    async with served(app) as host, httpx.AsyncClient() as client:
        body = {"text": "A long story."}
        async with client.stream("POST", f"http://{host}/voice", json=body) as answer:
            assert b"audio_stream_start" in await anext(answer.aiter_raw())
        await left.wait()
        while app.sessions:  # noqa: ASYNC110 - it has nothing to wait for
            await asyncio.sleep(0.005)


async def test_no_more_at_once_than_is_bearable(endpoint: Serve) -> None:
    held = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(ONE)
        await held.wait()
        await peer.complete(1, len(ONE))
        await peer.say_goodbye()

    async with (
        served(relay(await endpoint(script), max_sessions=1)) as host,
        httpx.AsyncClient() as client,
        client.stream("POST", f"http://{host}/voice", json={"text": "Story."}) as first,
    ):
        second = await client.post(f"http://{host}/voice", json={"text": "Story."})
        assert (second.status_code, second.json()["code"]) == (503, "overloaded")
        assert second.headers["retry-after"] == "1"
        held.set()
        assert b"audio_stream_end" in await first.aread()


# -- sessions


@pytest.mark.usefixtures("no_leftover_tasks")
async def test_a_session_as_it_is(endpoint: Serve) -> None:
    app = relay(await endpoint(speaking))
    async with served(app) as host:
        async with connect(f"ws://{host}/voice") as session:
            assert await session.synthesize("One.").read() == ONE
            assert await session.synthesize("Two.").read() == TWO
        while app.sessions:  # noqa: ASYNC110 - it has nothing to wait for
            await asyncio.sleep(0.005)


async def test_messages_as_bytes_and_the_end_of_the_endpoint(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.connection.close(1009, "told nobody")

    async with (
        served(relay(await endpoint(script))) as host,
        websocket(f"ws://{host}/voice") as session,
    ):
        await session.send('{"text": "ü"}'.encode())
        with pytest.raises(ConnectionClosed) as closed:
            await session.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize(("message", "code"), [(b"\xff", 1007), ("x" * 70_000, 1009)])
async def test_messages_that_are_not_carried(quiet: str, message: str | bytes, code: int) -> None:
    async with websocket(f"ws://{quiet}/voice") as session:
        await session.send(message)
        with pytest.raises(ConnectionClosed) as closed:
            await session.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


async def test_a_session_with_nobody(quiet: str) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        async with websocket(f"ws://{quiet}/other"):
            pass


# -- who does not read


class Endless:
    """An endpoint that speaks as fast as it is read, and never ends."""

    def __init__(self) -> None:
        self.given = 0
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.started = False

    async def send(self, message: str) -> None:
        self.asked.set()

    async def receive(self) -> str | bytes:
        await self.asked.wait()
        if self.closed.is_set():
            raise TransportClosed("closed")
        await asyncio.sleep(0)
        if not self.started:
            self.started = True
            start = {"type": "synthesis_start", "seq": 1, "sample_rate": 24000}
            return json.dumps({**start, "format": "pcm_s16le", "voice": "v"})
        self.given += 8192
        return b"\0\0" * 4096

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.closed.set()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    transport = Endless()

    async def open(self: connect) -> Endless:
        return transport

    monkeypatch.setattr(connect, "open", open)
    return transport


class Browser:
    """The other side of an application, which takes ``room`` messages and then no more."""

    def __init__(self, *received: dict[str, Any], room: int) -> None:
        self.received = list(received)
        self.taken: list[dict[str, Any]] = []
        self.room = asyncio.Semaphore(room)
        self.stuck = asyncio.Event()
        self.leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.received:
            return self.received.pop(0)
        await self.leaves.wait()
        return {"type": "websocket.disconnect" if self.socket else "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.room.locked():
            self.stuck.set()
        await self.room.acquire()
        self.taken.append(message)

    socket = False


BODY = {"type": "http.request", "body": b'{"text": "A long story."}'}
SCOPE = {"type": "http", "method": "POST", "path": "/tts/voice", "root_path": "/tts", "headers": []}


async def turns(count: int = 3000) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("no_leftover_tasks")
async def test_events_that_are_not_read_hold_up_the_endpoint(endless: Endless) -> None:
    browser = Browser(BODY, room=5)
    app = relay("ws://endpoint")
    serving = asyncio.create_task(app(dict(SCOPE), browser.receive, browser.send))
    await browser.stuck.wait()
    await turns()
    held = endless.given
    assert held < 512 * 1024
    for _ in range(100):
        browser.room.release()
    await turns()
    assert endless.given > held
    browser.leaves.set()
    await serving
    assert endless.closed.is_set()
    assert app.sessions == 0


@pytest.mark.usefixtures("no_leftover_tasks")
async def test_a_session_that_is_not_read_holds_up_the_endpoint(endless: Endless) -> None:
    asks = {"type": "websocket.receive", "bytes": b'{"text": "x"}', "text": None}
    browser = Browser({"type": "websocket.connect"}, asks, room=5)
    browser.socket = True
    scope = {**SCOPE, "type": "websocket"}
    serving = asyncio.create_task(relay("ws://endpoint")(scope, browser.receive, browser.send))
    await browser.stuck.wait()
    await turns()
    # The head and the start were taken; one more waits to be.
    assert endless.given == 8192 * 4
    browser.leaves.set()
    await serving
    assert endless.closed.is_set()
    assert [m["type"] for m in browser.taken] == ["websocket.accept", *["websocket.send"] * 4]


@pytest.mark.usefixtures("no_leftover_tasks")
async def test_an_endpoint_that_takes_nothing_holds_no_place(endless: Endless, clock: Any) -> None:
    async def send(message: str) -> None:
        blocked.set()
        await asyncio.Event().wait()

    blocked = asyncio.Event()
    endless.send = send  # type: ignore[method-assign]
    asks = {"type": "websocket.receive", "text": '{"text": "x"}'}
    browser = Browser({"type": "websocket.connect"}, asks, room=3)
    app = relay("ws://endpoint", stall_s=60)
    serving = asyncio.create_task(
        app({**SCOPE, "type": "websocket"}, browser.receive, browser.send)
    )
    await blocked.wait()
    browser.leaves.set()
    await clock.advance(61)
    await serving
    assert browser.taken[-1] == {
        "type": "websocket.close",
        "code": 1011,
        "reason": "the endpoint takes nothing",
    }
    assert app.sessions == 0
    assert endless.closed.is_set()


@pytest.mark.usefixtures("no_leftover_tasks")
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_whoever_is_gone_before_the_refusal_fails_nothing(kind: str) -> None:
    async def gone(message: Any) -> None:
        raise OSError("gone")

    browser = Browser({"type": "websocket.connect"}, room=0)
    await relay("ws://endpoint")(
        {**SCOPE, "type": kind, "path": "/tts/other"}, browser.receive, gone
    )


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.usefixtures("no_leftover_tasks")
async def test_who_takes_nothing_for_long_is_dropped(
    endless: Endless, clock: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    asks = {"type": "websocket.receive", "text": '{"text": "x"}'}
    first = [BODY] if kind == "http" else [{"type": "websocket.connect"}, asks]
    browser = Browser(*first, room=3)
    browser.socket = kind == "websocket"
    app = relay("ws://endpoint", stall_s=60)
    scope = {**SCOPE, "type": kind}
    serving = asyncio.create_task(app(scope, browser.receive, browser.send))
    await browser.stuck.wait()
    await clock.advance(61)
    await serving
    assert endless.closed.is_set()
    assert "voice: a listener took nothing for 60 s" in caplog.text


async def test_a_server_that_says_who_left(endless: Endless) -> None:
    browser = Browser(BODY, room=0)

    async def gone(message: Any) -> None:
        raise OSError

    await relay("ws://endpoint")(dict(SCOPE), browser.receive, gone)
    assert endless.closed.is_set()


# -- events, by themselves


SENTENCES = [Sentence(0, 0, "One. ", "One."), Sentence(1, 5, "Two.", "Two.")]


def spoken(index: int, *events: Any) -> Iterator[Spoken]:
    for event in events:
        yield Spoken(SENTENCES[index], Named(f"speech-{index + 1}"), event)  # type: ignore[arg-type]


class Named:
    def __init__(self, request_id: str) -> None:
        self.request_id = request_id


async def of(*parts: Any) -> AsyncIterator[Any]:
    for part in parts:
        yield part


BEGIN = Start(24000, "pcm_s16le", "v")


@pytest.mark.parametrize(("request_id", "ids"), [(None, "speech-{}"), ("a", "a-{}")])
async def test_a_stream_for_each_sentence(request_id: str | None, ids: str) -> None:
    speech = [
        *spoken(0, BEGIN, BEGIN, Audio(b"\1\0" * 40_000), Complete(80_000, 1.5)),
        *spoken(1, BEGIN, Complete(0, 0.0)),
    ]
    events = [event async for event in audio_events(of(*speech), request_id=request_id)]
    assert [(e.name, e.fields["request_id"]) for e in events] == [
        ("audio_stream_start", ids.format(1)),
        ("audio_chunk", ids.format(1)),
        ("audio_chunk", ids.format(1)),
        ("audio_stream_end", ids.format(1)),
        ("audio_stream_start", ids.format(2)),
        ("audio_stream_end", ids.format(2)),
    ]
    assert [len(base64.b64decode(e.fields["data"])) for e in events[1:3]] == [65_536, 14_464]
    assert events[3].message() == {
        "type": "audio_stream_end",
        "request_id": ids.format(1),
        "total_chunks": 2,
        "duration_s": 1.5,
    }


async def test_a_sentence_that_was_lost() -> None:
    lost = Lost(SENTENCES[0], SessionLost("x", retryable=True), 0)
    events = [event async for event in audio_events(of(lost), request_id="a")]
    assert [(e.name, e.fields["request_id"]) for e in events] == [("error", "a-1")]
    (event,) = [event async for event in audio_events(of(lost))]
    assert "request_id" not in event.fields


async def test_nothing_follows_an_error_in_a_joined_stream() -> None:
    lost = Lost(SENTENCES[0], SessionLost("x", retryable=True), 0)
    speech = [*spoken(0, BEGIN, Audio(b"\1\0")), lost, *spoken(1, BEGIN, Audio(b"\1\0"))]
    events = [e async for e in audio_events(of(*speech), joined=True, request_id="a")]
    assert [e.name for e in events] == ["audio_stream_start", "audio_chunk", "error"]
    assert {e.fields["request_id"] for e in events} == {"a"}
    apart = [e.name async for e in audio_events(of(*speech))]
    assert apart[2:] == ["error", "audio_stream_start", "audio_chunk"]


async def test_formats_that_differ() -> None:
    other = Start(16000, "pcm_s16le", "v")
    speech = [*spoken(0, BEGIN, Audio(b"\1\0")), *spoken(1, other, Audio(b"\1\0"))]
    with pytest.raises(RequestInvalid, match="the format changed"):
        _ = [event async for event in audio_events(of(*speech), joined=True)]


ERRORS: list[tuple[UtterwireError, str]] = [
    (UtteranceRejected("no", code="invalid_voice", retryable=False), "invalid_voice"),
    (UtteranceRejected("no", code="made_up", retryable=False), "internal"),
    (RequestInvalid("no"), "invalid_request"),
    (SessionLost("x", retryable=True, reason="going_away"), "going_away"),
    (SessionLost("ws://inside:1", retryable=True), "internal"),
    (ConnectFailed("ws://inside:1", retryable=True), "internal"),
    (DeadlineExceeded("ws://inside:1", which="stall", seconds=1), "internal"),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_errors_as_events(error: UtterwireError, code: str) -> None:
    event = error_event(error)
    validator("sse-error").validate(event.fields)
    assert event.fields["code"] == code
    assert "inside" not in event.fields["message"]
    wrapped = SpeechIncomplete("x", text="", unspoken="", audio_bytes=0, retryable=False)
    wrapped.__cause__ = error
    assert error_event(wrapped) == event


FIELDS = st.dictionaries(
    st.sampled_from(["request_id", "data", "message"]), st.text(max_size=12), max_size=3
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["audio_chunk", "text_delta"]), FIELDS), max_size=4),
    st.sampled_from(["event", "data"]),
    st.lists(st.integers(0, 300), max_size=8),
)
def test_events_survive_any_split_and_merge(
    told: list[tuple[str, dict[str, str]]], style: Any, cuts: list[int]
) -> None:
    events = [AudioEvent(name, fields) for name, fields in told]
    stream = b"".join(event.encode(style) for event in events)
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    reader = EventStreamReader()
    read = [e for a, b in pairwise(places) for e in reader.feed(stream[a:b])]
    if style == "data":
        assert [json.loads(e.data) for e in read] == [event.message() for event in events]
    else:
        assert [AudioEvent(e.name, json.loads(e.data)) for e in read] == events
