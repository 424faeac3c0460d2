"""Audio that nobody reads: bounded, and in nobody else's way."""

# ruff: noqa: PT012 - how a loop or a block is left is what is tested

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    DeadlineExceeded,
    Deadlines,
    Session,
    SessionLost,
    TransportClosed,
    connect,
)

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


class Tape:
    """A transport that plays messages as they are asked for, and counts them."""

    def __init__(self, messages: list[str | bytes]) -> None:
        self._messages = messages
        self._closed = asyncio.Event()
        self.taken = 0
        self.sent: list[str] = []

    async def send(self, message: str) -> None:
        self.sent.append(message)
        if self.taken == len(self._messages) and '"close"' in message:
            self._closed.set()

    async def receive(self) -> str | bytes:
        if self.taken == len(self._messages):
            await self._closed.wait()
            raise TransportClosed("closed")
        self.taken += 1
        await asyncio.sleep(0)
        return self._messages[self.taken - 1]

    async def close(self) -> None:
        self._closed.set()

    def abort(self) -> None:
        self._closed.set()


async def settle() -> None:
    """Let every task run as far as it can without anything new."""
    for _ in range(2000):
        await asyncio.sleep(0)


def spoken(seq: int, chunks: int, size: int = 1000) -> list[str | bytes]:
    start = f'{{"type":"synthesis_start","seq":{seq},"sample_rate":24000,"format":"pcm_s16le"}}'
    complete = f'{{"type":"synthesis_complete","seq":{seq},"audio_bytes":{chunks * size}}}'
    return [start, *[tone(size // 2, seq)] * chunks, complete]


async def test_what_nobody_reads_is_not_read_on() -> None:
    tape = Tape(spoken(1, 1000))
    async with Session(tape, buffer_bytes=10_000, interrupt=False) as session:
        utterance = session.synthesize("x")
        await settle()
        before = tape.taken
        assert before < 20
        assert await utterance.read() == tone(500, 1) * 1000
        assert tape.taken == 1002


async def test_single_samples_count_too() -> None:
    tape = Tape(spoken(1, 1000, size=2))
    async with Session(tape, buffer_bytes=10_000) as session:
        utterance = session.synthesize("x")
        await settle()
        assert tape.taken < 60
        assert await utterance.read() == tone(1) * 1000


async def test_the_order_of_reading_is_free() -> None:
    tape = Tape([*spoken(1, 1000), *spoken(2, 1000)])
    async with Session(tape, buffer_bytes=10_000, max_buffer_bytes=2_000_000) as session:
        first, second = session.synthesize("x"), session.synthesize("y")
        assert await second.read() == tone(500, 2) * 1000
        assert await first.read() == tone(500, 1) * 1000


async def test_all_utterances_together_are_bounded() -> None:
    tape = Tape([message for seq in range(1, 101) for message in spoken(seq, 5)])
    async with Session(tape, buffer_bytes=10_000, max_buffer_bytes=50_000) as session:
        utterances = [session.synthesize("x") for _ in range(100)]
        await settle()
        assert tape.taken < 80
        for number, utterance in enumerate(utterances, 1):
            assert await utterance.read() == tone(500, number) * 5


async def test_who_waits_behind_what_nobody_reads_is_told() -> None:
    tape = Tape([*spoken(1, 1000), *spoken(2, 1)])
    deadlines = Deadlines(stall_s=0.1)
    session = Session(tape, buffer_bytes=10_000, max_buffer_bytes=20_000, deadlines=deadlines)
    async with session:
        first, second = session.synthesize("x"), session.synthesize("y")
        with pytest.raises(DeadlineExceeded, match="nobody reads") as caught:
            await second.read()
        assert caught.value.which == "unread"
        heard = 0
        with pytest.raises(DeadlineExceeded):
            async for event in first:
                heard += isinstance(event, Audio)
        assert 0 < heard < 30


async def test_a_slow_reader_lets_nobody_down(clock: Any) -> None:
    """As long as something is read now and then, whoever waits goes on waiting."""
    tape = Tape([*spoken(1, 50), *spoken(2, 1)])
    deadlines = Deadlines(first_chunk_s=1000, stall_s=1000)
    session = Session(tape, buffer_bytes=2_000, max_buffer_bytes=4_000, deadlines=deadlines)
    async with session:
        first, second = session.synthesize("x"), session.synthesize("y")
        waiting = asyncio.create_task(second.read())
        heard = b""
        async for event in first:
            if isinstance(event, Audio):
                heard += event.data
            await clock.advance(900)
        assert heard == tone(500, 1) * 50
        assert await waiting == tone(500, 2)


async def test_a_pause_of_the_reader_is_not_the_peers_silence(clock: Any) -> None:
    tape = Tape(spoken(1, 100))
    deadlines = Deadlines(first_chunk_s=10, stall_s=10)
    async with Session(tape, buffer_bytes=5_000, deadlines=deadlines) as session:
        utterance = session.synthesize("x")
        await settle()
        await clock.advance(10_000)
        assert await utterance.read() == tone(500, 1) * 100


async def test_an_answer_is_waited_for_past_unread_audio() -> None:
    done = '{"type":"cancel_done","seq":2,"count":0}'
    tape = Tape([*spoken(1, 100), done])
    async with Session(tape, buffer_bytes=5_000) as session:
        utterance = session.synthesize("x")
        await settle()
        assert tape.taken < 20
        assert await session.cancel() == 0
        assert await utterance.read() == tone(500, 1) * 100


async def test_closing_reads_past_unread_audio() -> None:
    closed = '{"type":"session_closed","seq":2,"reason":"client_close","last_seq":2}'
    tape = Tape([*spoken(1, 100), closed])
    async with Session(tape, buffer_bytes=5_000) as session:
        utterance = session.synthesize("x")
        await settle()
        assert tape.taken < 20
    assert await utterance.read() == tone(500, 1) * 100


async def test_a_socket_that_is_not_read_holds_up_the_endpoint(endpoint: Serve) -> None:
    sent = 0
    begun = asyncio.Event()

    async def script(peer: Any) -> None:
        nonlocal sent
        await peer.next()
        await peer.start(1)
        for _ in range(400):
            await peer.audio(bytes(65536))
            sent += 1
            begun.set()
        await peer.complete(1, 400 * 65536)
        await peer.say_goodbye()

    async def watch() -> None:
        last = -1
        while sent != last:
            last = sent
            for _ in range(500):
                await asyncio.sleep(0)

    async with connect(await endpoint(script), buffer_bytes=100_000) as session:
        utterance = session.synthesize("x")
        await begun.wait()
        await watch()
        assert sent < 400
        assert len(await utterance.read()) == 400 * 65536


async def test_a_lost_session_does_not_wait_for_readers(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        for _ in range(10):
            await peer.audio(bytes(10_000))
        await peer.connection.close(1011)

    async with connect(await endpoint(script), buffer_bytes=20_000) as session:
        utterance = session.synthesize("x")
    heard = 0
    with pytest.raises(SessionLost):
        async for event in utterance:
            heard += len(event.data) if isinstance(event, Audio) else 0
    assert heard == 100_000
