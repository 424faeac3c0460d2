"""Clients that come, cancel, break off and go, all at once: every promise kept, nothing left."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from utterwire_server.engines import ToneEngine
from websockets.frames import Opcode

WORDS = ("one", "two", "three", "quattro", "cinq", "sechs", "七", "...")


async def _converse(peer: Any, chance: random.Random) -> None:
    """One client: sends at random while it reads, and ends in one of several ways."""
    asked: dict[int, str] = {}
    cancels: list[int] = []
    bad: list[int] = []
    seq = 0
    for _ in range(chance.randrange(1, 25)):
        action = chance.random()
        seq += 1
        if action < 0.55:
            text = " ".join(chance.choices(WORDS, k=chance.randrange(1, 12)))
            asked[seq] = text
            peer.say(text=text)
        elif action < 0.7:
            cancels.append(seq)
            peer.say(type="cancel")
        elif action < 0.8:
            bad.append(seq)
            peer.send(chance.choice(["", "{", "[]", '{"type": "x"}']))
        elif action < 0.9:
            peer.say(type="keepalive")
        else:
            seq -= 1
            peer.send(b"?", opcode=Opcode.PING)
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    ending = chance.random()
    if ending < 0.2:
        peer.writer.transport.abort()
        return
    if ending < 0.4:
        peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
        await peer.closed()
        return
    peer.say(type="close")
    messages = []
    while (message := await peer.control())["type"] != "session_closed":
        messages.append(message)
    assert message["reason"] == "client_close"
    assert message["last_seq"] == seq + 1
    _judge(messages, peer, asked, cancels, bad)
    peer.send(b"\x03\xe8", opcode=Opcode.CLOSE)
    assert await peer.closed() == 1000


def _judge(
    messages: list[dict[str, Any]],
    peer: Any,
    asked: dict[int, str],
    cancels: list[int],
    bad: list[int],
) -> None:
    ended = Counter(
        m["seq"] for m in messages if m["type"] in ("synthesis_complete", "error", "cancelled")
    )
    assert ended == Counter([*asked, *bad])
    assert [m["seq"] for m in messages if m["type"] == "cancel_done"] == cancels
    assert sum(m["count"] for m in messages if m["type"] == "cancel_done") == sum(
        m["type"] == "cancelled" for m in messages
    )
    started = [m["seq"] for m in messages if m["type"] == "synthesis_start"]
    assert started == sorted(started)
    told = sum(m["audio_bytes"] for m in messages if "audio_bytes" in m)
    assert told == len(peer.audio())
    # Audio comes only between the start and the end of one utterance.
    running = None
    for opcode, data in peer.frames:
        if opcode is Opcode.BINARY:
            assert running is not None
        elif opcode is Opcode.TEXT:
            message = json.loads(data)
            if message["type"] == "synthesis_start":
                assert running is None
                running = message["seq"]
            elif message.get("seq") == running and message["type"] != "marks":
                running = None


@pytest.mark.parametrize("seed", range(3))
async def test_sessions_come_and_go(start: Any, connect: Any, eventually: Any, seed: int) -> None:
    server = await start(ToneEngine(0.01))
    chance = random.Random(seed)
    async with asyncio.timeout(200), asyncio.TaskGroup() as group:
        for _ in range(25):
            peer = await connect(server)
            group.create_task(_converse(peer, random.Random(chance.random())))
    await eventually(lambda: not server.service.guests)
    scheduler = server.service.scheduler
    await eventually(lambda: not scheduler.speaking and not scheduler.computing)
    assert (scheduler.backlog.places, scheduler.queued_chars) == (0, 0)


async def test_requests_come_and_go(start: Any, eventually: Any) -> None:
    server = await start(ToneEngine(0.01))
    chance = random.Random(7)
    outcomes: Counter[str] = Counter()

    async def ask(stream: bool, leave: bool, text: str) -> None:
        body = json.dumps({"text": text, "stream": stream}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        if leave:
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            writer.transport.abort()
            outcomes["left"] += 1
            return
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200")
        if stream:
            assert answer.endswith(b"0\r\n\r\n")
        outcomes["served"] += 1

    async with asyncio.timeout(200), asyncio.TaskGroup() as group:
        for number in range(60):
            text = " ".join(chance.choices(WORDS, k=8))
            group.create_task(ask(number % 2 == 0, number % 3 == 0, text))
    assert outcomes == {"left": 20, "served": 40}
    await eventually(lambda: not server.service.guests)
    scheduler = server.service.scheduler
    await eventually(lambda: not scheduler.speaking and not scheduler.computing)
    assert (scheduler.backlog.places, scheduler.queued_chars) == (0, 0)
