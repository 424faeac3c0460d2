"""Observers are told of each accepted utterance once, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_server import session as session_module
from utterwire_server.engines import Block, Engine, FaultyEngine, SpeechRequest
from utterwire_server.observer import Observer, UtteranceRecord
from utterwire_server.playback import Playback

LONG = "A long story about nothing at all. " * 100


class Notes(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed: list[str] = []
        self.errors: list[str] = []
        self.heard: list[UtteranceRecord] = []
        self.records: list[UtteranceRecord] = []

    def session_opened(self) -> None:
        self.opened += 1

    def session_closed(self, reason: str, duration_s: float) -> None:
        assert duration_s >= 0
        self.closed.append(reason)

    def error(self, code: str) -> None:
        self.errors.append(code)

    def first_byte(self, record: UtteranceRecord) -> None:
        self.heard.append(record)

    def ended(self, record: UtteranceRecord) -> None:
        self.records.append(record)

    @property
    def outcomes(self) -> list[str | None]:
        return [record.outcome for record in self.records]


@pytest.fixture
def notes() -> Notes:
    return Notes()


async def test_what_is_spoken_in_a_session(
    start: Any, connect: Any, notes: Notes, eventually: Any
) -> None:
    peer = await connect(await start(observers=[notes]), headers="traceparent: 00-ab-cd-01\r\n")
    peer.say(text="Hello there.", voice="bass", format="mulaw")
    peer.say(text="And on.")
    peer.say(text=" ")
    peer.say(type="close")
    await peer.until("session_closed")
    await eventually(lambda: notes.opened == 1 and notes.outcomes == ["completed"] * 2)
    await peer.leave()
    await eventually(lambda: notes.closed == ["client_close"])
    first, second = notes.records
    assert (first.transport, first.voice, first.format, first.sample_rate, first.characters) == (
        "websocket", "bass", "mulaw", 8_000, 12,
    )  # fmt: skip
    assert notes.heard == notes.records
    for record in notes.records:
        times = (record.accepted_at, record.due_at, record.begun_at, record.first_byte_at)
        known = [time for time in (*times, record.ended_at) if time is not None]
        assert len(known) == 5
        assert known == sorted(known)
        assert record.parent == {"traceparent": "00-ab-cd-01"}
        assert record.computing_s > 0
    # The turn of the second came when the first had been made.
    assert second.due_at > first.due_at
    assert (round(first.speech_s, 2), round(second.speech_s, 2)) == (0.44, 0.24)
    assert notes.errors == ["empty_text"]


async def test_what_is_cancelled_or_given_up(
    start: Any, connect: Any, notes: Notes, held_engine: Any, eventually: Any
) -> None:
    server = await start(held_engine, observers=[notes])
    peer = await connect(server)
    for _ in range(3):
        peer.say(text=LONG)
    await peer.until("synthesis_start")
    peer.say(type="cancel")
    assert (await peer.until("cancel_done"))["count"] == 3
    await eventually(lambda: notes.outcomes == ["cancelled"] * 3)
    assert [record.begun_at is None for record in notes.records] == [False, True, True]
    peer.say(text=LONG)
    peer.say(text=LONG)
    await peer.until("synthesis_start")
    await peer.leave()
    await eventually(lambda: notes.outcomes[3:] == ["disconnected"] * 2)
    assert notes.errors == []


async def test_what_fails(start: Any, connect: Any, notes: Notes, eventually: Any) -> None:
    server = await start(FaultyEngine(2), observers=[notes])
    peer = await connect(server)
    peer.say(text="Hello there.")
    await peer.until("error")
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/invocations", json={"text": "Hello there."})
        whole = await client.post("/invocations", json={"text": "Hello there.", "stream": False})
        assert whole.status_code == 500
        events = {"Accept": "text/event-stream"}
        told = await client.post("/invocations", json={"text": "Hello there."}, headers=events)
        assert b"synthesis_failed" in told.content
    await eventually(lambda: notes.outcomes == ["failed"] * 4)
    assert [record.transport for record in notes.records] == ["websocket", "http", "http", "sse"]
    assert [record.streamed for record in notes.records] == [True, True, False, True]
    assert notes.errors == ["synthesis_failed"] * 4


@pytest.mark.parametrize("body", [{}, {"stream": False}])
async def test_what_is_spoken_by_http(
    start: Any, notes: Notes, eventually: Any, body: dict[str, Any]
) -> None:
    server = await start(observers=[notes])
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        await client.post("/invocations", json={"text": "Hello.", **body})
        assert (await client.post("/invocations", content=b"?")).status_code == 400
    await eventually(lambda: notes.outcomes == ["completed"])
    (record,) = notes.records
    assert round(record.speech_s, 2) == 0.2
    assert (record.first_byte_at is None) == (not record.streamed) == (body != {})
    assert notes.errors == ["invalid_json"]


async def test_an_http_client_that_leaves(
    start: Any, notes: Notes, held_engine: Any, eventually: Any
) -> None:
    server = await start(held_engine, observers=[notes])
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"text": "Hello."}'
    writer.write(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    await eventually(lambda: held_engine.open_streams == 1)
    writer.close()
    await eventually(lambda: notes.outcomes == ["disconnected"])


async def test_what_shutdown_cuts_off(
    start: Any,
    connect: Any,
    notes: Notes,
    held_engine: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_AFTER_S", 0.1)
    server = await start(held_engine, observers=[notes], shutdown_timeout_s=0.1)
    peer = await connect(server)
    peer.say(text="One.")
    peer.say(text="Two.")
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b'POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{"text": "Hi"}'
    )
    await eventually(lambda: server.service.scheduler.speaking == 2)
    server.runner.stop()
    await peer.until("session_closed")
    assert await server.running == 0
    writer.close()
    assert notes.outcomes == ["cut_off"] * 3
    assert notes.errors == ["going_away"] * 3
    assert notes.closed == ["going_away"]


async def test_an_observer_that_fails_is_told_on_and_logged_once(
    start: Any, connect: Any, notes: Notes, log_lines: Any
) -> None:
    class Broken(Notes):
        def first_byte(self, record: UtteranceRecord) -> None:
            super().first_byte(record)
            raise RuntimeError("a secret")

    broken = Broken()
    server = await start(observers=[broken, notes], metrics=False)
    server.failing_observers = (broken,)
    peer = await connect(server)
    peer.say(text="One.")
    peer.say(text="Two.")
    for _ in range(2):
        await peer.until("synthesis_complete")
    (told,) = [fields for event, fields in log_lines if event == "observer_failed"]
    assert (told["observer"], told["method"]) == ("Broken", "first_byte")
    assert "secret" not in str(told)
    assert len(broken.heard) == len(notes.heard) == 2


class LateEngine(Engine):
    """Makes the second of two blocks only when the listener has been dry for a while."""

    name = "late"
    voices = ("one",)
    sample_rates = (24_000,)

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        yield Block(np.zeros(240, np.float32))
        await self.gate.wait()
        yield Block(np.zeros(240, np.float32))


async def test_a_listener_who_runs_dry_is_told_of(
    start: Any, connect: Any, notes: Notes, eventually: Any
) -> None:
    engine = LateEngine()
    peer = await connect(await start(engine, observers=[notes]))
    peer.say(text="One.")
    await eventually(lambda: notes.heard)
    record = notes.heard[0]
    loop = asyncio.get_running_loop()
    # What was sent late is heard late, so that this may still move.
    await eventually(lambda: loop.time() > (record.listener.dry_at or loop.time()) + 0.06)
    engine.gate.set()
    await peer.until("synthesis_complete")
    await eventually(lambda: notes.records)
    assert record.underruns == 1
    assert record.starved_s >= 0.05


def test_an_utterance_ends_once() -> None:
    record = UtteranceRecord("http", "a", "mp3", 24_000, 1, accepted_at=0.0, due_at=0.0)
    record.end("completed", 1.0)
    with pytest.raises(RuntimeError, match="had completed has cancelled"):
        record.end("cancelled", 2.0)


def test_a_peer_that_takes_late_is_no_listener_who_waits() -> None:
    playback = Playback()
    assert playback.put(1.0, 10.0) == 0.0
    assert (playback.ahead_s(10.0), playback.ahead_s(10.25)) == (1.0, 0.75)
    # The transport had room again only at 15: four seconds that are not the engine's.
    playback.taken(15.0)
    assert playback.put(1.0, 15.5) == 0.5
    assert playback.ahead_s(15.5) == 1.0


def test_before_the_first_byte_nobody_waits() -> None:
    playback = Playback()
    playback.taken(5.0)
    assert not playback.begun
    assert playback.ahead_s(6.0) == 0.0
    assert playback.put(0.5, 7.0) == 0.0
    assert playback.begun


steps = st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 10)), min_size=1, max_size=30)


@given(steps)
def test_played_and_waited_make_up_the_time(steps: list[tuple[float, float]]) -> None:
    playback = Playback()
    now = spoken = waited = 0.0
    playback.put(0.0, now)
    for pause, seconds in steps:
        now += pause
        waited += playback.put(seconds, now)
        spoken += seconds
        # What was not played yet is what was put, less the time that was not spent waiting.
        assert playback.ahead_s(now) == pytest.approx(spoken - (now - waited), abs=1e-6)
