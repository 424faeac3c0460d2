"""Encoded speech over real sockets: whole, early, and nothing left behind when it breaks off."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import av
import httpx
import numpy as np
import pytest
from utterwire_server.encoders import FORMATS
from utterwire_server.encoders.compressed import CompressedEncoder
from utterwire_server.engines import Block, FaultyEngine, SpeechRequest, ToneEngine
from utterwire_server.observer import UtteranceRecord
from utterwire_server.service import Service
from utterwire_server.settings import Settings
from websockets.frames import Opcode

LONG = "A long story about nothing at all. " * 100
ENCODED = [name for name in FORMATS if name != "pcm_s16le"]
COMPRESSED = ["mp3", "aac", "opus"]
# Decoders play Opus at this rate, whatever the rate of the speech.
OPUS_RATE = 48_000


def seconds(name: str, rate: int, data: bytes) -> float:
    known = {"opus": "ogg", "pcm_s16le": "s16le"}.get(name, name)
    options = {"sample_rate": str(rate)} if known in ("s16le", "mulaw", "alaw") else {}
    with av.open(io.BytesIO(data), "r", format=known, options=options) as container:
        heard = sum(frame.samples for frame in container.decode(audio=0))
    return heard / (OPUS_RATE if name == "opus" else rate)


def recorded(name: str, rate: int) -> UtteranceRecord:
    return UtteranceRecord("http", "alto", name, rate, 6, accepted_at=0.0, due_at=0.0)


def workers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("utterwire-encode")]


@pytest.fixture
async def no_worker_left(eventually: Any, start: Any) -> AsyncGenerator[None]:
    """When the server of the test has stopped, so have the threads that encode."""
    servers = []
    begin = start

    async def remember(*args: Any, **settings: Any) -> Any:
        server = await begin(*args, **settings)
        servers.append(server)
        return server

    yield remember  # type: ignore[misc]
    for server in servers:
        server.runner.stop()
        await server.running
    await eventually(lambda: not workers())


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("rate", [None, 12_000])
async def test_a_format_is_spoken_whole(
    no_worker_left: Any, connect: Any, name: str, rate: int | None
) -> None:
    peer = await connect(await no_worker_left())
    for _ in range(2):  # each utterance decodes by itself
        peer.frames.clear()
        peer.say(text="Hello there.", format=name, sample_rate=rate)
        begun = await peer.control()
        told = await peer.until("synthesis_complete")
        heard = peer.audio()
        expected = rate or (8_000 if name.endswith("law") else 24_000)
        assert (begun["format"], begun["sample_rate"]) == (name, expected)
        assert told["audio_bytes"] == len(heard)
        # The tone engine's length of these letters, with an encoder's delay left out.
        assert told["total_duration_s"] == pytest.approx(0.44, abs=0.001)
        excess = seconds(name, expected, heard) - told["total_duration_s"]
        assert -0.001 <= excess <= (3 * 1_024 / expected if name in ("mp3", "aac") else 0.001)
        sizes = [len(data) for opcode, data in peer.frames if opcode is Opcode.BINARY]
        assert all(0 < size <= 65_536 for size in sizes)


@pytest.mark.parametrize("name", ENCODED)
async def test_nothing_to_speak_has_no_bytes(start: Any, connect: Any, name: str) -> None:
    server = await start()
    peer = await connect(server)
    peer.say(text="...", format=name)
    told = await peer.until("synthesis_complete")
    assert (told["audio_bytes"], told["total_duration_s"], peer.audio()) == (0, 0, b"")
    async with httpx.AsyncClient(timeout=60, base_url=server.http) as client:
        for stream in (True, False):
            request = {"text": "...", "format": name, "stream": stream}
            answer = await client.post("/invocations", json=request)
            assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("name", ENCODED)
async def test_http_carries_every_format(start: Any, name: str) -> None:
    server = await start()
    rate = 16_000
    async with httpx.AsyncClient(timeout=60, base_url=server.http) as client:
        request = {"text": "Hello there.", "format": name, "sample_rate": rate}
        streamed = await client.post("/invocations", json=request)
        whole = await client.post("/invocations", json=request | {"stream": False})
    for answer in (streamed, whole):
        assert answer.status_code == 200
        assert answer.headers["utterwire-format"] == name
        assert answer.headers["utterwire-sample-rate"] == str(rate)
    assert (
        streamed.headers["content-type"]
        == {
            "wav": "audio/wav",
            "mp3": "audio/mpeg",
            "aac": "audio/aac",
            "opus": "audio/ogg;codecs=opus",
            "mulaw": "audio/PCMU;rate=16000",
            "alaw": "audio/PCMA;rate=16000",
        }[name]
    )
    assert float(whole.headers["utterwire-duration-s"]) == pytest.approx(0.44, abs=0.001)
    assert int(whole.headers["utterwire-audio-bytes"]) == len(whole.content)
    if name == "opus":  # the serial number of the stream differs
        assert len(streamed.content) == len(whole.content)
    else:
        assert streamed.content == whole.content


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"format": "opus", "sample_rate": 44_100}, "unsupported_sample_rate"),
        ({"format": "mp3", "sample_rate": 7_000}, "unsupported_sample_rate"),
        ({"format": "flac"}, "unsupported_format"),
        ({"format": "MP3"}, "unsupported_format"),
    ],
)
async def test_what_is_not_offered(
    start: Any, connect: Any, fields: dict[str, Any], code: str
) -> None:
    peer = await connect(await start())
    peer.say(text="Hello.", **fields)
    assert (await peer.until("error"))["code"] == code


async def test_only_what_the_settings_name_is_offered(start: Any, connect: Any) -> None:
    peer = await connect(await start(formats=("wav",)))
    peer.say(text="Hello.", format="mp3")
    assert (await peer.until("error"))["code"] == "unsupported_format"
    peer.say(text="Hello.", format="wav")
    assert (await peer.until("synthesis_complete"))["audio_bytes"] > 44


async def test_without_the_profile_there_is_one_format_and_one_rate(
    start: Any, connect: Any
) -> None:
    peer = await connect(await start(profiles=frozenset({"core"})))
    peer.say(text="Hello.", format="wav")
    assert (await peer.until("error"))["code"] == "unsupported_format"
    peer.say(text="Hello.", sample_rate=16_000)
    assert (await peer.until("error"))["code"] == "unsupported_sample_rate"


@pytest.mark.parametrize("name", COMPRESSED)
async def test_a_cancel_in_mid_encode_leaves_nothing(
    no_worker_left: Any, connect: Any, name: str
) -> None:
    peer = await connect(await no_worker_left())
    peer.say(text=LONG, format=name, sample_rate=16_000)
    while (await peer.frame())[0] is not Opcode.BINARY:
        pass
    peer.say(type="cancel")
    told = await peer.until("cancelled")
    assert told["audio_bytes"] == len(peer.audio())
    peer.say(text="Hello there.", format=name)
    assert (await peer.until("synthesis_complete"))["total_duration_s"] == pytest.approx(0.44)


@pytest.mark.parametrize("name", COMPRESSED)
async def test_a_client_that_vanishes_in_mid_encode_leaves_nothing(
    no_worker_left: Any, connect: Any, name: str, eventually: Any
) -> None:
    server = await no_worker_left()
    peer = await connect(server)
    peer.say(text=LONG, format=name)
    while (await peer.frame())[0] is not Opcode.BINARY:
        pass
    peer.writer.transport.abort()
    await eventually(lambda: not server.service.guests)


@pytest.mark.parametrize("name", COMPRESSED)
async def test_an_engine_that_fails_in_mid_encode(
    no_worker_left: Any, connect: Any, name: str
) -> None:
    peer = await connect(await no_worker_left(FaultyEngine(5)))
    for _ in range(2):
        peer.say(text=LONG, format=name)
        assert (await peer.until("error"))["code"] == "synthesis_failed"


@pytest.mark.parametrize("name", COMPRESSED)
async def test_shutdown_in_mid_encode(no_worker_left: Any, connect: Any, name: str) -> None:
    server = await no_worker_left()
    peer = await connect(server)
    peer.say(text=LONG, format=name)
    while (await peer.frame())[0] is not Opcode.BINARY:
        pass
    server.runner.stop()
    assert (await peer.until("session_closed"))["reason"] == "going_away"


async def test_an_encoder_that_fails(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: CompressedEncoder, samples: Any) -> bytes:
        raise av.FFmpegError(1, "no")

    monkeypatch.setattr(CompressedEncoder, "encode", refuse)
    peer = await connect(await start())
    peer.say(text="Hello.", format="mp3")
    assert (await peer.until("error"))["code"] == "synthesis_failed"
    peer.say(text="Hello.")
    assert (await peer.until("synthesis_complete"))["audio_bytes"] > 0


class Held(CompressedEncoder):
    """An encoder whose first work takes until it is let go."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.closed_in: str | None = None

    def encode(self, samples: Any) -> bytes:
        Held.begun.set()
        Held.release.wait(60.0)
        return super().encode(samples)

    def close(self) -> None:
        super().close()
        self.closed_in = threading.current_thread().name

    begun = threading.Event()
    release = threading.Event()


async def test_an_encoder_is_not_freed_under_the_thread_that_works_with_it(
    monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    made: list[Held] = []

    def make(recipe: Any, rate: int) -> Held:
        made.append(Held(recipe, rate))
        return made[-1]

    monkeypatch.setattr("utterwire_server.encoders.compressed.CompressedEncoder", make)
    service = Service(Settings(), ToneEngine())
    rendering = service.rendering("Hello.", 1.0, recorded("mp3", 24_000))
    Held.begun.clear()
    Held.release.clear()

    async def listen() -> None:
        async with aclosing(rendering.pieces()) as pieces:
            async for _ in pieces:
                pass

    task = asyncio.create_task(listen())
    await eventually(Held.begun.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert made[0].closed_in is None
    Held.release.set()
    await eventually(lambda: made[0].closed_in is not None)
    assert (made[0].closed_in or "").startswith("utterwire-encode")
    await service.unload()
    await eventually(lambda: not workers())


class LumpEngine(ToneEngine):
    """Makes all of an utterance in one block."""

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        parts = [block.samples async for block in super().synthesize(request)]
        yield Block(np.concatenate(parts))


@pytest.mark.parametrize("name", ["mp3", "pcm_s16le"])
async def test_a_large_block_leaves_piece_by_piece(name: str) -> None:
    service = Service(Settings(), LumpEngine())
    rendering = service.rendering(LONG, 1.0, recorded(name, 24_000))
    sizes = [len(piece.data) async for piece in rendering.pieces()]
    assert len(sizes) > rendering.duration_s
    await service.unload()


@pytest.mark.parametrize(
    ("rate", "engine_rate"), [(22_050, 24_000), (44_100, 48_000), (11_025, 16_000), (8_000, 8_000)]
)
async def test_the_engine_speaks_at_the_next_higher_rate(rate: int, engine_rate: int) -> None:
    asked: list[int] = []

    class Asked(ToneEngine):
        def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            asked.append(request.sample_rate)
            return super().synthesize(request)

    service = Service(Settings(), Asked())
    rendering = service.rendering("Hello.", 1.0, recorded("wav", rate))
    data = b"".join([piece.data async for piece in rendering.pieces()])
    assert asked == [engine_rate]
    assert (len(data) - 44) / 2 / rate == pytest.approx(rendering.duration_s)
    await service.unload()


async def test_an_engine_of_low_rates_is_brought_up() -> None:
    class Low(ToneEngine):
        sample_rates = (24_000,)

    service = Service(Settings(), Low())
    rendering = service.rendering("Hello.", 1.0, recorded("pcm_s16le", 48_000))
    data = b"".join([piece.data async for piece in rendering.pieces()])
    assert len(data) == pytest.approx(2 * 48_000 * rendering.duration_s)
    await service.unload()
