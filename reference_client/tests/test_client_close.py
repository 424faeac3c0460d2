"""The end of a session, by the client."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from utterwire_client import Audio, Deadlines, SessionLost, UtteranceCancelled, connect

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")

SHORT = Deadlines(close_s=0.1)


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


async def test_close_lets_everything_be_spoken(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for _ in range(2):
            await peer.next("synthesize")
        await peer.start(1)
        assert await peer.next() == {"type": "close"}
        # The sending side stays open until `session_closed`: a ping is answered.
        await peer.audio(tone(3))
        await peer.complete(1, 6)
        await (await peer.connection.ping())
        await peer.speak(2, tone(4))
        await peer.send("session_closed", seq=3, reason="client_close", last_seq=3)
        await peer.gone()
        assert len(peer.received) == 3
        assert peer.connection.close_code == 1000

    async with connect(await endpoint(script)) as session:
        first, second = session.synthesize("x"), session.synthesize("y")
        reading = asyncio.gather(first.read(), second.read())
        await session.close()
        assert list(await reading) == [tone(3), tone(4)]
        await session.close()
        assert session.closed
        with pytest.raises(SessionLost):
            session.synthesize("z")


async def test_what_was_not_read_can_be_read_after_it(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(3))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x")
    assert await utterance.read() == tone(3)


async def test_nothing_is_asked_for_while_it_closes(endpoint: Serve) -> None:
    closing = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("close")
        closing.set()
        await peer.send("session_closed", seq=1, reason="client_close", last_seq=1)
        await peer.gone()

    async with connect(await endpoint(script)) as session:
        task = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        with pytest.raises(SessionLost, match="being closed"):
            session.synthesize("x")
        with pytest.raises(SessionLost):
            await session.keepalive()
        await task
        assert closing.is_set()


async def test_two_may_close(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.say_goodbye()
        assert peer.received == [{"type": "close"}]

    async with connect(await endpoint(script)) as session:
        await asyncio.gather(session.close(), session.close())


async def test_a_cancel_while_it_closes(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.next("close")
        await peer.audio(tone(1))
        await peer.next("cancel")
        await peer.send("cancelled", seq=1, audio_bytes=2)
        await peer.send("cancel_done", seq=3, count=1)
        await peer.send("session_closed", seq=2, reason="client_close", last_seq=2)
        await peer.gone()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x")
        task = asyncio.create_task(session.close())
        async for event in utterance:
            if isinstance(event, Audio):
                break
        assert await session.cancel() == 1
        with pytest.raises(UtteranceCancelled):
            await utterance.read()
        await task


@pytest.mark.parametrize("spoken", [True, False])
async def test_a_peer_that_does_not_answer(endpoint: Serve, spoken: bool) -> None:
    """Everything was heard: an endpoint that does not say goodbye is no error."""

    async def script(peer: Any) -> None:
        if spoken:
            await peer.next("synthesize")
            await peer.speak(1, tone(1))
        await peer.gone()
        assert peer.received[-1] == {"type": "close"}

    async with connect(await endpoint(script), deadlines=SHORT) as session:
        if spoken:
            assert await session.synthesize("x").read() == tone(1)


async def test_a_peer_that_answers_no_close_frame(endpoint: Serve) -> None:
    release = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("close")
        await peer.send("session_closed", seq=1, reason="client_close", last_seq=1)
        peer.connection.transport.pause_reading()
        await release.wait()
        peer.connection.transport.resume_reading()

    async with connect(await endpoint(script), deadlines=SHORT):
        pass
    release.set()


async def test_a_peer_that_falls_silent_before_the_end(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(tone(1))
        await peer.gone()

    deadlines = Deadlines(stall_s=0.1, close_s=0.1)
    async with connect(await endpoint(script), deadlines=deadlines) as session:
        utterance = session.synthesize("x")
        await session.close()
        got = await anext(utterance)
        assert got.voice == "test"  # type: ignore[union-attr]
        assert await anext(utterance) == Audio(tone(1))
        with pytest.raises(TimeoutError):
            await anext(utterance)


async def test_a_session_that_ends_first(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("close")
        await peer.connection.close()

    async with connect(await endpoint(script)):
        pass


async def test_an_impatient_end(endpoint: Serve) -> None:
    asked = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("close")
        asked.set()
        await peer.gone()

    url = await endpoint(script)

    async def talk() -> None:
        async with connect(url):
            pass

    task = asyncio.create_task(talk())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_end_that_is_cancelled_twice(endpoint: Serve) -> None:
    asked = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1)
        await peer.next("close")
        asked.set()
        await peer.gone()

    url = await endpoint(script)

    async def talk() -> None:
        async with connect(url) as session:
            await session.synthesize("x").read()
            raise ZeroDivisionError

    task = asyncio.create_task(talk())
    await asked.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
