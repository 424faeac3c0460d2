"""What is shared: engines that do not fit, capacity, and a server under another's transport."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message
from utterwire_server.app import create_app
from utterwire_server.engines import FaultyEngine, ToneEngine
from utterwire_server.http import Invocation, ResponseAborted
from utterwire_server.service import Service
from utterwire_server.settings import Settings


class OddEngine(ToneEngine):
    """A tone engine with some of its traits changed."""

    def __init__(self, **traits: Any) -> None:
        super().__init__()
        self.traits = traits
        self.concurrency = traits.get("concurrency", 1)

    @property
    def voices(self) -> tuple[str, ...]:
        return tuple(self.traits.get("voices", super().voices))

    @property
    def sample_rates(self) -> tuple[int, ...]:
        return tuple(self.traits.get("sample_rates", super().sample_rates))

    async def stop(self) -> None:
        if "stop" in self.traits:
            raise RuntimeError("cannot stop")


@pytest.mark.parametrize(
    "traits",
    [
        {"voices": ()},
        {"voices": ("a", "a")},
        {"voices": ("",)},
        {"voices": ("\ud800",)},
        {"sample_rates": ()},
        {"sample_rates": (24_000, -1)},
        {"concurrency": 0},
    ],
)
def test_an_engine_that_does_not_fit(traits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="engine 'tone' "):
        Service(Settings(), OddEngine(**traits))


async def test_an_engine_at_another_rate_is_resampled(start: Any, connect: Any) -> None:
    for profiles in (frozenset({"core"}), frozenset({"core", "formats"})):
        peer = await connect(await start(OddEngine(sample_rates=(22_050,)), profiles=profiles))
        peer.say(text="Hello.")
        assert (await peer.until("synthesis_start"))["sample_rate"] == 24_000
        # Five letters of 40 ms each.
        assert (await peer.until("synthesis_complete"))["total_duration_s"] == pytest.approx(
            0.2, abs=0.001
        )


def test_an_engine_at_another_rate_where_nothing_resamples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("utterwire_server.service.resamples", lambda: False)
    with pytest.raises(ValueError, match=r"lacks the sample rate 24000, .*utterwire\[encoders\]"):
        Service(Settings(), OddEngine(sample_rates=(16_000,)))


async def test_an_engine_that_cannot_stop_keeps_nobody(start: Any, log_lines: Any) -> None:
    server = await start(OddEngine(stop=True))
    server.runner.stop()
    assert await server.running == 0
    assert "engine_stop_failed" in [event for event, _ in log_lines]


async def test_a_guest_that_never_leaves_is_told_of(
    log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stayer:
        told: list[str]

        def __init__(self) -> None:
            self.told = []

        def shut_down(self) -> None:
            self.told.append("shut down")

        def cut_off(self) -> None:
            self.told.append("cut off")

    monkeypatch.setattr("utterwire_server.service.LEAVING_S", 0.01)
    service = Service(Settings(shutdown_timeout_s=0.0), ToneEngine())
    stayer = Stayer()
    with service.hosting(stayer):
        await service.drain()
    assert stayer.told == ["shut down", "cut off"]
    assert "guests_left" in [event for event, _ in log_lines]
    assert service.draining
    assert not service.ready


async def _call(app: Any, body: bytes, path: str = "/invocations") -> list[Message]:
    """Call an ASGI application as a server without our wire would."""
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "headers": [], "http_version": "1.1",
        "query_string": b"", "scheme": "http", "server": ("x", 80), "root_path": "",
    }  # fmt: skip
    try:
        await app(scope, incoming.get, send)
    except ResponseAborted:
        sent.append({"type": "aborted"})
    return sent


async def _ready(engine: ToneEngine) -> Service:
    service = Service(Settings(), engine)
    service.load()
    while not service.ready:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0)
    return service


async def test_under_another_server_audio_is_served() -> None:
    service = await _ready(ToneEngine())
    sent = await _call(create_app(service), b'{"text": "Hi."}')
    assert sent[0]["status"] == 200
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    await service.unload()


async def test_under_another_server_a_failure_breaks_the_body_off() -> None:
    service = await _ready(FaultyEngine(2))
    sent = await _call(create_app(service), b'{"text": "Hello there."}')
    assert sent[0]["status"] == 200
    assert sent[-1] == {"type": "aborted"}
    assert all(message.get("more_body", True) for message in sent)
    await service.unload()


async def test_a_fault_of_our_own_is_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Invocation) -> None:
        raise RuntimeError("spoken words")

    service = await _ready(ToneEngine())
    monkeypatch.setattr(Invocation, "run", fail)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/invocations", "headers": [],
        "http_version": "1.1", "query_string": b"", "scheme": "http", "root_path": "",
    }  # fmt: skip
    with pytest.raises(RuntimeError):
        await create_app(service)(scope, asyncio.Queue().get, send)
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["code"] == "internal"
    assert b"spoken" not in sent[1]["body"]
    await service.unload()
