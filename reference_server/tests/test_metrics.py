"""`/metrics` tells Prometheus what happened, and nothing that a client chose."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from utterwire_server.engines import FaultyEngine, ToneEngine
from utterwire_server.observer import UtteranceRecord
from utterwire_server.service import Service
from utterwire_server.settings import Settings


async def scrape(server: Any, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        return await client.get("/metrics", headers=headers)


def values(text: str) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels, in the order of their names."""
    return {
        (sample.name.removeprefix("utterwire_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_a_session_leaves_behind(start: Any, connect: Any, eventually: Any) -> None:
    server = await start()
    before = values((await scrape(server)).text)
    assert before["utterances_total", "completed", "websocket"] == 0
    assert before["errors_total", "queue_full"] == 0
    peer = await connect(server)
    peer.say(text="Hello there.")
    await peer.until("synthesis_complete")
    peer.say(text=" ")
    await peer.until("error")
    during = values((await scrape(server)).text)
    assert (during["active_sessions",], during["guests",], during["ready",]) == (1, 1, 1)
    assert during["accepted_total", "websocket"] == 1
    assert during["errors_total", "empty_text"] == 1
    assert during["characters_total",] == 12
    assert during["speech_seconds_total",] == pytest.approx(0.44)
    assert during["computing_seconds_total",] > 0
    assert during["first_byte_seconds_count", "websocket"] == 1
    assert during["queue_wait_seconds_count", "websocket"] == 1
    assert during["real_time_factor_count",] == 1
    assert during["utterances_total", "completed", "websocket"] == 1
    await peer.leave()
    await eventually(lambda: server.service.sessions == 0)
    after = values((await scrape(server)).text)
    assert after["active_sessions",] == after["streams",] == after["blocks_computing",] == 0
    assert after["sessions_closed_total", "transport_lost"] == 1
    # The series are the same as before anything happened: no label came from a client.
    assert set(after) == set(before)


async def test_what_is_in_the_making(
    start: Any, connect: Any, held_engine: Any, eventually: Any
) -> None:
    server = await start(held_engine)
    peer = await connect(server)
    peer.say(text="Hello.")
    await eventually(lambda: server.service.scheduler.computing)
    told = values((await scrape(server)).text)
    assert (told["streams",], told["blocks_computing",]) == (1, 1)


async def test_failures(start: Any, connect: Any) -> None:
    server = await start(FaultyEngine(0))
    peer = await connect(server)
    peer.say(text="Hello.")
    await peer.until("error")
    told = values((await scrape(server)).text)
    assert told["utterances_total", "failed", "websocket"] == 1
    assert told["errors_total", "synthesis_failed"] == 1
    assert told["real_time_factor_count",] == 0


async def test_underruns(start: Any) -> None:
    server = await start()
    record = UtteranceRecord("sse", "alto", "wav", 24_000, 5, accepted_at=1.0, due_at=1.0)
    for speech_s, now in ((0.5, 1.1), (1.0, 2.0), (1.5, 2.1)):
        server.service.made(record, speech_s, now)
    server.service.ended(record, "completed", 3.0)
    told = values((await scrape(server)).text)
    assert told["underruns_total", "sse"] == 1
    assert told["starved_seconds_total", "sse"] == pytest.approx(0.4)
    assert told["first_byte_seconds_sum", "sse"] == pytest.approx(0.1)


async def test_openmetrics_is_given_to_who_asks(start: Any) -> None:
    server = await start()
    plain, asked = await scrape(server), await scrape(server, Accept="application/openmetrics-text")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n")


async def test_two_servers_share_nothing(start: Any, connect: Any) -> None:
    one, other = await start(), await start()
    peer = await connect(one)
    peer.say(text="Hello.")
    await peer.until("synthesis_complete")
    counted = [
        values((await scrape(it)).text)["accepted_total", "websocket"] for it in (one, other)
    ]
    assert counted == [1, 0]


async def test_it_can_be_turned_off(start: Any) -> None:
    server = await start(metrics=False)
    assert (await scrape(server)).status_code == 404
    assert server.service.metrics is None


async def test_without_the_extra_it_says_so(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "utterwire_server.metrics", raising=False)
    answer = await scrape(await start())
    assert answer.status_code == 501
    assert "pip install 'utterwire[metrics]'" in answer.json()["error"]


def test_a_fault_of_our_own_is_not_called_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module("utterwire_server.metrics")
    monkeypatch.setitem(sys.modules, real.__name__, None)
    with pytest.raises(ModuleNotFoundError):
        Service(Settings(), ToneEngine())


async def test_ping_tells_of_an_engine_that_mends_itself(
    start: Any, connect: Any, eventually: Any
) -> None:
    class Ailing(ToneEngine):
        well = True

        @property
        def healthy(self) -> bool:
            return self.well

    engine = Ailing()
    server = await start(engine)
    peer = await connect(server)
    engine.well = False
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        ping = await client.get("/ping")
        assert (ping.status_code, ping.json()) == (503, {"status": "unavailable"})
        refused = await client.post("/invocations", json={"text": "Hello."})
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert (await connect(server)).status == 503
        told = values((await scrape(server)).text)
        assert told["ready",] == 0
        assert told["errors_total", "overloaded"] == 2
        engine.well = True
        assert (await client.get("/ping")).status_code == 200
    # Who was there already is served.
    peer.say(text="Hello.")
    await peer.until("synthesis_complete")


async def test_ping_while_loading_and_draining(start: Any, connect: Any, eventually: Any) -> None:
    class Slow(ToneEngine):
        def __init__(self) -> None:
            super().__init__()
            self.gate = asyncio.Event()

        async def start(self) -> None:
            await self.gate.wait()

    engine = Slow()
    server = await start(engine, ready=False, shutdown_timeout_s=10.0)
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        ping = await client.get("/ping")
        assert (ping.status_code, ping.json()) == (503, {"status": "loading"})
        engine.gate.set()
        await eventually(lambda: server.service.ready)
        peer = await connect(server)
        server.runner.stop()
        await eventually(lambda: server.service.draining)
        ping = await client.get("/ping")
        assert (ping.status_code, ping.json()) == (503, {"status": "draining"})
    await peer.leave()
