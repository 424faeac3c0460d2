"""Sessions over real sockets: order, cancelling, closing, slow readers, floods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect
from utterwire_server import session as session_module
from utterwire_server.encoders.pcm import encode_pcm_s16le
from utterwire_server.engines import (
    Block,
    BraceEngine,
    FaultyEngine,
    LoudEngine,
    SpeechRequest,
    ToneEngine,
)
from utterwire_server.settings import PROFILES
from websockets.frames import Opcode

LONG = "A long story about nothing at all. " * 40
STORY = (LONG * 3)[:4_096]


async def spoken(text: str, voice: str = "alto", speed: float = 1.0, rate: int = 24_000) -> bytes:
    request = SpeechRequest(text, voice, speed, rate)
    return b"".join([encode_pcm_s16le(b.samples) async for b in ToneEngine().synthesize(request)])


def cut(message: bytes, size: int) -> list[bytes]:
    return [message[at : at + size] for at in range(0, len(message), size)]


@pytest.mark.parametrize("way", ["text", "binary", "bytewise", "bytewise-binary", "split", "empty"])
async def test_framing_is_invisible(start: Any, connect: Any, way: str) -> None:
    text = "Grüße, мир."
    peer = await connect(await start())
    message = json.dumps({"text": text, "request_timestamp": 1}, ensure_ascii=False).encode()
    kind = Opcode.BINARY if way in ("binary", "bytewise-binary") else Opcode.TEXT
    pieces = [message]
    if way.startswith("bytewise"):
        pieces = cut(message, 1)
    elif way == "split":
        middle = message.index("ü".encode()) + 1
        pieces = [message[:middle], message[middle:]]
    elif way == "empty":
        pieces = [b"", message[:5], b"", message[5:], b""]
    for index, piece in enumerate(pieces):
        peer.send(piece, opcode=Opcode.CONT if index else kind, fin=index == len(pieces) - 1)
        if index == 0:
            peer.send(b"between", opcode=Opcode.PING)
    assert (await peer.control())["type"] == "synthesis_start"
    complete = await peer.control()
    assert complete["type"] == "synthesis_complete"
    assert (Opcode.PONG, b"between") in peer.frames
    assert peer.audio() == await spoken(text)
    assert complete["audio_bytes"] == len(peer.audio())
    assert complete["characters"] == len(text)
    assert peer.audio() != await spoken("Another text.")


async def test_what_is_asked_for_is_what_comes(start: Any, connect: Any) -> None:
    peer = await connect(await start())
    peer.say(text="Hello.", voice="ténor", speed=1.5, sample_rate=8_000, request_id="ü 1")
    began = await peer.control()
    assert began == {
        "type": "synthesis_start", "seq": 1, "request_id": "ü 1",
        "sample_rate": 8_000, "format": "pcm_s16le", "voice": "ténor",
    }  # fmt: skip
    done = await peer.control()
    assert peer.audio() == await spoken("Hello.", "ténor", 1.5, 8_000)
    assert done["total_duration_s"] == pytest.approx(len(peer.audio()) / 16_000, abs=0.001)


async def test_utterances_come_in_order_and_the_session_stays(start: Any, connect: Any) -> None:
    peer = await connect(await start())
    for text in ("One.", "Two.", "..."):
        peer.say(text=text)
    peer.send("not json")
    peer.say(text="Four.", voice="nobody")
    seen = [await peer.control() for _ in range(8)]
    assert [(m["type"], m["seq"]) for m in seen] == [
        ("synthesis_start", 1), ("synthesis_complete", 1), ("synthesis_start", 2),
        ("synthesis_complete", 2), ("synthesis_start", 3), ("synthesis_complete", 3),
        ("error", 4), ("error", 5),
    ]  # fmt: skip
    assert seen[5]["audio_bytes"] == 0
    assert [m["code"] for m in seen[6:]] == ["invalid_json", "invalid_voice"]
    assert peer.audio() == await spoken("One.") + await spoken("Two.")
    peer.say(text="More.")
    assert (await peer.until("synthesis_complete"))["seq"] == 6


async def test_audio_that_spells_json_arrives_as_audio(start: Any, connect: Any) -> None:
    peer = await connect(await start(BraceEngine()))
    peer.say(text=LONG)
    done = await peer.until("synthesis_complete")
    chunks = [data for opcode, data in peer.frames if opcode is Opcode.BINARY]
    assert done["audio_bytes"] == sum(map(len, chunks)) > 0
    for chunk in chunks:
        assert len(chunk) % 2 == 0
        assert 0 < len(chunk) <= 65_536
        assert not (chunk.startswith(b"{") and chunk.rstrip(b" \t\r\n").endswith(b"}"))


async def test_overdriven_audio_is_clipped(start: Any, connect: Any) -> None:
    peer = await connect(await start(LoudEngine()))
    peer.say(text="Hello there.")
    await peer.until("synthesis_complete")
    samples = np.frombuffer(peer.audio(), "<i2")
    assert samples.max() == 32_767
    assert samples.min() == -32_767
    # A wrapped sample lies next to one of the other sign at full scale.
    quiet = np.frombuffer(await spoken("Hello there."), "<i2").astype(int)
    loud = np.abs(quiet) > 4_000
    assert (np.sign(samples[loud]) == np.sign(quiet[loud])).mean() > 0.99


@pytest.mark.parametrize("blocks", [0, 2])
async def test_a_failing_engine_fails_its_utterance_only(
    start: Any, connect: Any, log_lines: Any, blocks: int
) -> None:
    peer = await connect(await start(FaultyEngine(blocks)))
    peer.say(text="Hello there.", request_id="a")
    error = await peer.until("error")
    assert (error["code"], error["retryable"], error["request_id"]) == (
        "synthesis_failed",
        True,
        "a",
    )
    assert "rejected" not in error
    assert "purpose" not in error["message"]
    assert bool(peer.audio()) == bool(blocks)
    peer.say(text="Again.")
    assert (await peer.until("error"))["seq"] == 2
    logged = [fields for event, fields in log_lines if event == "synthesis_failed"]
    assert logged[0]["error"] == "EngineError"
    assert "Hello" not in repr(log_lines)


async def test_an_engine_that_runs_out_of_time_by_itself_fails(start: Any, connect: Any) -> None:
    class Impatient(ToneEngine):
        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
            raise TimeoutError("its own")
            yield Block(np.zeros(1, np.float32))

    peer = await connect(await start(Impatient()))
    peer.say(text="Hello.")
    assert (await peer.until("error"))["code"] == "synthesis_failed"


async def test_a_hanging_engine_fails_and_frees_the_others(start: Any, connect: Any) -> None:
    server = await start(FaultyEngine(1, hang=True), block_timeout_s=0.2)
    peers = [await connect(server) for _ in range(2)]
    for peer in peers:
        peer.say(text="Hello there.")
    for peer in peers:
        assert (await peer.until("error"))["code"] == "synthesis_failed"


async def test_cancel_stops_what_runs_and_what_waits(
    start: Any, connect: Any, held_engine: Any, eventually: Any
) -> None:
    server = await start(held_engine)
    peer = await connect(server)
    held_engine.gate.release()
    peer.say(text=LONG, request_id="a")
    peer.say(text=LONG, request_id="b")
    assert (await peer.until("synthesis_start"))["seq"] == 1
    assert (await peer.frame())[0] is Opcode.BINARY
    peer.say(type="cancel")
    first, second, done = [await peer.control() for _ in range(3)]
    assert [m["type"] for m in (first, second, done)] == ["cancelled", "cancelled", "cancel_done"]
    assert {m["seq"]: m["audio_bytes"] for m in (first, second)} == {1: len(peer.audio()), 2: 0}
    assert (done["seq"], done["count"]) == (3, 2)
    # The held_engine was in the middle of a block: it is free without making it.
    await eventually(lambda: held_engine.open_streams == 0)
    await eventually(lambda: server.service.scheduler.computing == 0)
    held_engine.open()
    peer.say(text="Next.")
    assert (await peer.until("synthesis_complete"))["seq"] == 4


async def test_cancel_of_one_leaves_the_other(start: Any, connect: Any, held_engine: Any) -> None:
    peer = await connect(await start(held_engine))
    peer.say(text="One.", request_id="a")
    peer.say(text="Two.", request_id="b")
    assert (await peer.until("synthesis_start"))["seq"] == 1
    peer.say(type="cancel", request_id="a")
    assert (await peer.until("cancel_done"))["count"] == 1
    held_engine.open()
    assert (await peer.until("synthesis_complete"))["seq"] == 2


async def test_a_long_text_keeps_nobody_from_the_engine(start: Any, connect: Any) -> None:
    server = await start(ToneEngine(0.05))
    long, short = await connect(server), await connect(server)
    # More than there is room for on its way to somebody who does not read on: it lasts.
    long.say(text=LONG * 2)
    await long.until("synthesis_start")
    short.say(text="Hi.")
    await short.until("synthesis_complete")
    assert server.service.scheduler.speaking == 1
    assert server.service.guests == 2


async def test_many_sessions_at_once(start: Any, connect: Any) -> None:
    server = await start()
    peers = [await connect(server) for _ in range(30)]
    for number, peer in enumerate(peers):
        peer.say(text=f"Session number {number}.")
    for number, peer in enumerate(peers):
        await peer.until("synthesis_complete")
        assert peer.audio() == await spoken(f"Session number {number}.")


@pytest.mark.parametrize("farewell", ["close", "eof", "reset"])
async def test_a_disconnect_frees_the_engine(
    start: Any, connect: Any, farewell: str, eventually: Any, held_engine: Any
) -> None:
    server = await start(held_engine)
    peer = await connect(server)
    for _ in range(3):
        peer.say(text=LONG)
    await peer.until("synthesis_start")
    await eventually(lambda: server.service.scheduler.computing)
    if farewell == "close":
        peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
        assert await peer.closed() == 1000
    elif farewell == "eof":
        peer.writer.write_eof()
        assert await peer.closed() is None
    else:
        peer.writer.transport.abort()
    async with asyncio.timeout(60):
        await eventually(lambda: not (server.service.guests or held_engine.open_streams))
    await eventually(lambda: server.service.scheduler.computing == 0)
    other = await connect(server)
    held_engine.open()
    other.say(text="Hi.")
    await other.until("synthesis_complete")


async def test_close_drains_and_leaves_the_closing_to_the_client(start: Any, connect: Any) -> None:
    peer = await connect(await start())
    peer.say(text="Goodbye.")
    peer.say(type="close")
    peer.say(text="Ignored.")
    closed = await peer.until("session_closed")
    assert (closed["reason"], closed["seq"], closed["last_seq"]) == ("client_close", 2, 2)
    assert peer.audio() == await spoken("Goodbye.")
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
    assert await peer.closed() == 1000


async def test_the_endpoint_closes_by_itself_at_last(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_AFTER_S", 0.05)
    server = await start()
    peer = await connect(server)
    peer.say(type="close")
    await peer.until("session_closed")
    # What comes in between is read and dropped.
    peer.say(text="Too late.")
    assert await peer.closed() == 1000
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
    assert await peer.closed() is None


async def test_an_idle_session_is_ended(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_AFTER_S", 0.05)
    peer = await connect(await start(idle_timeout_s=0.2))
    assert (await peer.control())["reason"] == "idle"
    assert await peer.closed() == 1000


async def test_a_slow_reader_can_cancel_nearly_everything(
    start: Any, connect: Any, eventually: Any
) -> None:
    """The bound of 256 KiB unsent, the kernel's buffer included (`protocol.md#backpressure`)."""
    server = await start()
    peer = await connect(server, receive_buffer=4_096)
    peer.say(text=STORY)
    await peer.until("synthesis_start")
    # The engine is far faster than real time: it stops when nothing more may wait.
    (session,) = server.service._guests
    await eventually(lambda: _handed_over(session) > 30_000 and not session._wire.is_writable)
    peer.say(type="cancel")
    cancelled = await peer.until("cancelled")
    total = len(await spoken(STORY))
    assert total > 2_000_000
    assert cancelled["audio_bytes"] == len(peer.audio()) <= 524_288
    assert (await peer.control())["type"] == "cancel_done"


def _handed_over(session: Any) -> int:
    return int(session._connection.utterance(1).audio_bytes)


async def test_a_stalled_reader_is_ended_and_dropped(
    start: Any, connect: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(session_module, "LAST_WORDS_S", 0.2)
    monkeypatch.setattr("utterwire_server.wire.LINGER_S", 0.2)
    server = await start(stall_timeout_s=0.3)
    stalled, other = await connect(server, receive_buffer=4_096), await connect(server)
    stalled.say(text=STORY)
    other.say(text="Hi.")
    await other.until("synthesis_complete")
    async with asyncio.timeout(60):
        await eventually(lambda: server.service.guests == 1)
    assert ("slow_reader") in [f["reason"] for e, f in log_lines if e == "session_closed"]
    async with asyncio.timeout(60):
        await eventually(lambda: len(server.runner._server.server_state.connections) == 1)


async def test_a_reader_that_stalled_too_long_is_told_where_it_reads_again(
    start: Any, connect: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LAST_WORDS_S", 60.0)
    server = await start(stall_timeout_s=0.3)
    peer = await connect(server, receive_buffer=4_096)
    peer.say(text=STORY)
    await peer.until("synthesis_start")
    await eventually(
        lambda: next(iter(server.service._guests))._connection.end_reason == "slow_reader"
    )
    assert (await peer.until("error"))["code"] == "going_away"
    assert (await peer.until("session_closed"))["reason"] == "slow_reader"


async def test_a_flood_that_is_never_read_ends_the_session(
    start: Any, connect: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "FLOOD_S", 0.2)
    monkeypatch.setattr(session_module, "HARD_PENDING_BYTES", 65_536)
    monkeypatch.setattr(session_module, "LAST_WORDS_S", 0.2)
    monkeypatch.setattr("utterwire_server.wire.LINGER_S", 0.2)
    server = await start()
    peer = await connect(server, receive_buffer=4_096)
    flood = asyncio.create_task(_flood(peer))
    most = 0
    async with asyncio.timeout(200):
        while not any(event == "session_closed" for event, _ in log_lines):
            for session in tuple(server.service._guests):
                most = max(most, session._connection.pending_bytes())
            await asyncio.sleep(0.005)
    flood.cancel()
    await asyncio.wait({flood})
    assert [f["reason"] for e, f in log_lines if e == "session_closed"] == ["policy"]
    assert 0 < most <= 65_536 + 8_192


async def _flood(peer: Any) -> None:
    try:
        while True:
            for _ in range(100):
                peer.send("[")
            await peer.writer.drain()
    except ConnectionError:
        pass


async def test_a_flood_that_is_read_is_answered_in_full(start: Any, connect: Any) -> None:
    peer = await connect(await start())
    count = 8_000
    sending = asyncio.create_task(_send_many(peer, count))
    seen = [await peer.control() for _ in range(count)]
    await sending
    assert sorted(m["seq"] for m in seen) == list(range(1, count + 1))
    assert {m["code"] for m in seen} == {"invalid_json"}
    peer.say(text="Still here.")
    assert (await peer.until("synthesis_complete"))["seq"] == count + 1


async def _send_many(peer: Any, count: int) -> None:
    for _ in range(count):
        peer.send("[")
        await peer.writer.drain()


async def test_a_fault_of_our_own_ends_the_session_with_1011(
    start: Any, connect: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("spoken words")

    peer = await connect(await start())
    monkeypatch.setattr("utterwire_protocol.Connection.receive", fail)
    peer.say(text="Hi.")
    assert await peer.closed() == 1011
    failed = [fields for event, fields in log_lines if event == "session_failed"]
    assert failed[0]["error"] == "RuntimeError"
    assert "spoken words" not in repr(log_lines)


async def test_logs_hold_no_text_and_no_id(
    start: Any, connect: Any, log_lines: Any, eventually: Any
) -> None:
    peer = await connect(await start(), headers="Authorization: Bearer s3cr3t\r\n")
    peer.say(text="Confidential words.", request_id="my-own-id", voice="alto")
    await peer.until("synthesis_complete")
    peer.say(text="Confidential again.", voice="private-voice", request_id="my-own-id")
    await peer.until("error")
    await peer.leave()
    await eventually(lambda: any(event == "session_closed" for event, _ in log_lines))
    told = repr(log_lines)
    for secret in ("Confidential", "my-own-id", "private-voice", "s3cr3t"):
        assert secret not in told
    assert {"session_opened", "utterance", "session_closed"} <= {event for event, _ in log_lines}


async def test_the_session_says_what_the_endpoint_offers(start: Any, connect: Any) -> None:
    peer = await connect(await start(max_waiting=9, idle_timeout_s=45.0))
    peer.say(type="hello", protocol_versions=[1])
    told = await peer.control()
    assert told["type"] == "session"
    assert frozenset(told["profiles"]) == PROFILES
    assert told["voices"] == list(ToneEngine().voices)
    assert told["formats"] == ["pcm_s16le", "wav", "mp3", "aac", "opus", "mulaw", "alaw"]
    assert told["sample_rates"][:4] == list(ToneEngine().sample_rates)
    assert {11_025, 22_050, 44_100} < set(told["sample_rates"])
    assert told["limits"]["max_waiting"] == 9
    assert told["limits"]["idle_timeout_s"] == 45


async def test_unclaimed_profiles_are_unknown(start: Any, connect: Any) -> None:
    peer = await connect(await start(profiles=frozenset({"core"})))
    peer.say(type="hello", protocol_versions=[1])
    peer.say(type="cancel")
    assert [(await peer.control())["code"] for _ in range(2)] == ["unknown_type"] * 2


async def test_a_client_that_is_gone_before_the_session_opens(
    start: Any, connect: Any, log_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: WebSocket) -> None:
        raise WebSocketDisconnect(1006)

    server = await start()
    monkeypatch.setattr(WebSocket, "accept", gone)
    assert (await connect(server)).status == 500
    assert server.service.guests == 0
    assert "session_opened" not in [event for event, _ in log_lines]


async def test_a_client_that_takes_no_close_frame_is_dropped(
    start: Any, connect: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck(*_: Any, **__: Any) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(session_module, "CLOSE_AFTER_S", 0.01)
    monkeypatch.setattr(session_module, "LAST_WORDS_S", 0.05)
    monkeypatch.setattr(WebSocket, "close", stuck)
    server = await start()
    peer = await connect(server)
    peer.say(type="close")
    assert (await peer.control())["type"] == "session_closed"
    assert await peer.closed() is None
    await eventually(lambda: not server.service.guests)
