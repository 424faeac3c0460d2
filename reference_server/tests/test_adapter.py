"""From a function that speaks to an endpoint."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from utterwire_server.access import Access
from utterwire_server.adapter import SpeakEngine, SpeechApp
from utterwire_server.engines import EngineError, SpeechRequest
from utterwire_server.observer import Observer, UtteranceRecord
from utterwire_server.settings import Settings

PCM = np.array([0, 1, -1, 257, 32_767, -32_767], dtype="<i2").tobytes()
REQUEST = SpeechRequest(text="Hello.", voice="v", speed=1.0, sample_rate=24_000)


def engine_of(speak: Callable[..., Any], **options: Any) -> SpeakEngine:
    return SpeakEngine(speak, voices=["v"], **options)


async def speech_of(engine: SpeakEngine, request: SpeechRequest = REQUEST) -> bytes:
    async with aclosing(engine.synthesize(request)) as blocks:
        parts = [np.rint(block.samples * 32_767).astype("<i2").tobytes() async for block in blocks]
    await engine.stop()
    return b"".join(parts)


async def in_async_pieces(text: str, voice: str, speed: float) -> AsyncIterator[bytes]:
    for at in range(0, len(PCM), 4):
        await asyncio.sleep(0)
        yield PCM[at : at + 4]


def in_pieces(text: str, voice: str, speed: float) -> Iterator[bytes]:
    for at in range(0, len(PCM), 4):
        yield PCM[at : at + 4]


def byte_by_byte(text: str, voice: str, speed: float) -> Iterator[bytes]:
    for at in range(len(PCM)):
        yield PCM[at : at + 1]


def with_empty_pieces(text: str, voice: str, speed: float) -> Iterator[bytes]:
    yield b""
    yield PCM
    yield b""


def as_views(text: str, voice: str, speed: float) -> Iterator[Any]:
    yield memoryview(PCM)[:5]
    yield bytearray(PCM[5:])


def an_iterator(text: str, voice: str, speed: float) -> Iterator[bytes]:
    return iter([PCM])


async def awaited(text: str, voice: str, speed: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(0)
    return in_async_pieces(text, voice, speed)


class Model:
    def __call__(self, text: str, voice: str, speed: float) -> Iterator[bytes]:
        yield PCM


@pytest.mark.parametrize(
    "speak",
    [
        in_async_pieces,
        in_pieces,
        byte_by_byte,
        with_empty_pieces,
        as_views,
        an_iterator,
        awaited,
        Model(),
    ],
)
async def test_samples_come_through_however_they_are_cut(speak: Callable[..., Any]) -> None:
    assert await speech_of(engine_of(speak)) == PCM


async def test_what_is_asked_for_is_handed_on() -> None:
    seen: list[object] = []

    def speak(*asked: object) -> Iterator[bytes]:
        seen.append(asked)
        yield PCM

    await speech_of(engine_of(speak), SpeechRequest("Hi.", "v", 1.5, 24_000))
    assert seen == [("Hi.", "v", 1.5)]


async def test_half_a_sample_at_the_end_is_dropped(log_lines: Any) -> None:
    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        yield PCM + b"x"

    assert await speech_of(engine_of(speak)) == PCM
    assert ("odd_byte_dropped", {"engine": "speak"}) in log_lines


async def test_minutes_at_once_are_handed_on_in_seconds() -> None:
    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        yield PCM * 20_000 + b"x"

    async with aclosing(engine_of(speak).synthesize(REQUEST)) as blocks:
        sizes = [block.samples.size async for block in blocks]
    assert sizes == [24_000] * 5


async def test_a_cancel_of_its_own_fails_the_utterance_alone() -> None:
    async def speak(text: str, voice: str, speed: float) -> AsyncIterator[bytes]:
        yield PCM
        raise asyncio.CancelledError

    with pytest.raises(EngineError, match="of its own"):
        await speech_of(engine_of(speak))


@pytest.mark.parametrize("text", ["...", "\u200b", "—?!", "🎉🎉"])
async def test_nothing_to_speak_is_not_asked_for(text: str) -> None:
    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        raise AssertionError("called")

    assert await speech_of(engine_of(speak), SpeechRequest(text, "v", 1.0, 24_000)) == b""


def returns_bytes(text: str, voice: str, speed: float) -> Any:
    return PCM


async def returns_bytes_later(text: str, voice: str, speed: float) -> Any:
    return PCM


def yields_arrays(text: str, voice: str, speed: float) -> Iterator[Any]:
    yield np.zeros(4, dtype=np.int16)


def yields_nothing_real(text: str, voice: str, speed: float) -> Iterator[Any]:
    yield None


@pytest.mark.parametrize(
    ("speak", "said"),
    [
        (returns_bytes, "gave back a bytes; it must be an iterator"),
        (returns_bytes_later, "gave back a bytes; it must be an iterator"),
        (yields_arrays, "yielded a ndarray; it must yield bytes"),
        (yields_nothing_real, "yielded a NoneType; it must yield bytes"),
    ],
)
async def test_what_is_not_audio_fails_with_a_hint(speak: Callable[..., Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        await speech_of(engine_of(speak))


async def exits_in_the_loop(text: str, voice: str, speed: float) -> AsyncIterator[bytes]:
    yield PCM
    raise SystemExit(3)


def exits_in_a_thread(text: str, voice: str, speed: float) -> Iterator[bytes]:
    yield PCM
    raise SystemExit(3)


def exits_when_called(text: str, voice: str, speed: float) -> Iterator[bytes]:
    raise SystemExit(3)


@pytest.mark.parametrize("speak", [exits_in_the_loop, exits_in_a_thread, exits_when_called])
async def test_a_speaker_that_would_end_the_process_ends_its_utterance(
    start: Any, connect: Any, speak: Callable[..., Any]
) -> None:
    peer = await connect(await start(engine_of(speak)))
    for _ in range(2):
        peer.say(text="Hello.", voice="v")
        assert (await peer.until("error"))["code"] == "synthesis_failed"


async def test_what_speak_raises_ends_the_utterance() -> None:
    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        yield PCM
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        await speech_of(engine_of(speak))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"voices": []}, ValueError, "at least one name"),
        ({"voices": "amy"}, ValueError, "must be a list"),
        ({"sample_rate": 0}, ValueError, "above 0"),
        ({"concurrency": 0}, ValueError, "above 0"),
        ({"speak": "say"}, TypeError, "must be a function"),
    ],
)
def test_a_mistake_is_told_when_it_is_made(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        SpeakEngine(**{"speak": in_pieces, "voices": ["v"], **options})


async def test_a_cancel_closes_an_asynchronous_speaker() -> None:
    closed = asyncio.Event()

    async def speak(text: str, voice: str, speed: float) -> AsyncIterator[bytes]:
        try:
            yield PCM
            await asyncio.Event().wait()
        finally:
            closed.set()

    blocks = engine_of(speak).synthesize(REQUEST)
    await anext(blocks)
    waiting = asyncio.create_task(anext(blocks))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await blocks.aclose()
    assert closed.is_set()


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_cancel_closes_a_plain_speaker_once_its_call_is_over(concurrency: int) -> None:
    computing, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        try:
            yield PCM
            computing.set()
            go_on.wait()
            yield PCM
        finally:
            closed.set()

    engine = engine_of(speak, concurrency=concurrency)
    blocks = engine.synthesize(REQUEST)
    await anext(blocks)
    waiting = asyncio.create_task(anext(blocks))
    await asyncio.to_thread(computing.wait)
    waiting.cancel()
    await asyncio.wait({waiting})
    await blocks.aclose()
    # Closing it now would fail with "generator already executing".
    assert not closed.is_set()
    go_on.set()
    await asyncio.to_thread(closed.wait)
    await engine.stop()


async def test_a_speaker_that_outlives_the_engine_is_closed_all_the_same() -> None:
    computing, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        try:
            computing.set()
            go_on.wait()
            yield PCM
        finally:
            closed.set()
            raise RuntimeError("not now")

    engine = engine_of(speak)
    blocks = engine.synthesize(REQUEST)
    waiting = asyncio.create_task(anext(blocks))
    await asyncio.to_thread(computing.wait)
    waiting.cancel()
    await asyncio.wait({waiting})
    await engine.stop()
    go_on.set()
    await asyncio.to_thread(closed.wait)


async def test_a_plain_speaker_does_not_hold_up_the_loop() -> None:
    go_on = threading.Event()

    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        go_on.wait()
        yield PCM

    engine = engine_of(speak)
    speech = asyncio.create_task(speech_of(engine))
    await asyncio.sleep(0)
    # Were it called on the loop, this line would never be reached.
    go_on.set()
    assert await speech == PCM


def app_of(speak: Callable[..., Any] = in_pieces, **options: Any) -> SpeechApp:
    return SpeechApp(speak, voices=["v"], **options)


async def test_it_serves_sessions_and_requests(start: Any, connect: Any) -> None:
    server = await start(engine_of(in_pieces))
    session = await connect(server)
    session.send(b'{"text": "Hi."}')
    assert (await session.until("synthesis_complete"))["audio_bytes"] == len(PCM)
    assert session.audio() == PCM
    async with httpx.AsyncClient(timeout=60, base_url=server.http) as client:
        assert (await client.post("/invocations", json={"text": "Hi."})).content == PCM


async def test_a_failing_speaker_leaves_the_session_alive(start: Any, connect: Any) -> None:
    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        yield PCM
        if text == "Bad.":
            raise RuntimeError("no more")

    session = await connect(await start(engine_of(speak)))
    session.say(text="Bad.")
    assert (await session.until("error"))["code"] == "synthesis_failed"
    session.say(text="Good.")
    assert (await session.until("synthesis_complete"))["seq"] == 2


async def test_it_starts_and_stops_with_the_server() -> None:
    app, told = app_of(), asyncio.Queue[dict[str, Any]]()
    heard: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan"}, told.get, heard.put))
    await told.put({"type": "lifespan.startup"})
    assert (await heard.get())["type"] == "lifespan.startup.complete"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        assert (await client.get("/ping")).status_code == 200
        await told.put({"type": "lifespan.shutdown"})
        assert (await heard.get())["type"] == "lifespan.shutdown.complete"
        await life
        assert (await client.get("/ping")).status_code == 503


async def test_mounted_in_another_application_it_starts_when_it_is_needed() -> None:
    # Starlette tells a mounted application nothing of the server's life.
    app = app_of()
    transport = httpx.ASGITransport(Starlette(routes=[Mount("/speech", app)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        answers = await asyncio.gather(
            *(client.post("/speech/invocations", json={"text": "Hi."}) for _ in range(3))
        )
    assert [(answer.status_code, answer.content) for answer in answers] == [(200, PCM)] * 3
    await app.service.unload()


def test_it_claims_what_does_not_depend_on_the_model() -> None:
    wanted = {"core", "http", "interrupt", "negotiate", "formats", "sse"}
    assert app_of().service.settings.profiles == wanted
    chosen = Settings(profiles=frozenset({"core", "load"}))
    assert app_of(settings=chosen).service.settings.profiles == {"core", "load"}


def test_an_address_that_is_taken_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert app_of().serve(port=taken.getsockname()[1]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot listen on 127.0.0.1 port" in said


async def test_who_is_let_in_and_who_is_told() -> None:
    class Notes(Observer):
        records: ClassVar[list[UtteranceRecord]] = []

        def ended(self, record: UtteranceRecord) -> None:
            self.records.append(record)

    def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
        yield bytes(480)

    app = SpeechApp(speak, voices=["one"], access=Access(tokens=("a-token",)), observers=[Notes()])
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        request = {"text": "Hello.", "stream": False}
        assert (await client.post("/invocations", json=request)).status_code == 401
        headers = {"Authorization": "Bearer a-token"}
        answer = await client.post("/invocations", json=request, headers=headers)
    assert answer.content == bytes(480)
    assert [record.outcome for record in Notes.records] == ["completed"]
    await app.service.unload()
