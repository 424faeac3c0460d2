"""Being interrupted: by `cancel`, by leaving a loop, by a cancelled task."""

# ruff: noqa: PT012 - how a loop or a block is left is what is tested

import asyncio
import contextlib
import gc
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    Complete,
    InterruptUnavailable,
    RequestInvalid,
    Session,
    SessionLost,
    Start,
    UtteranceCancelled,
    connect,
)

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


async def stop(peer: Any, seq: int, **fields: Any) -> None:
    """Answer a cancel that stopped utterance ``seq``."""
    await peer.send("cancelled", seq=seq, audio_bytes=0, **fields)
    await peer.send("cancel_done", seq=len(peer.received), count=1)


async def test_all_that_is_unended(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await peer.audio(tone(4))  # one more chunk was on its way
        await peer.send("cancelled", seq=1, audio_bytes=16)
        await peer.send("cancelled", seq=2, audio_bytes=0)
        await peer.send("cancel_done", seq=3, count=2)
        await peer.next()
        await peer.speak(4, tone(9))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        first, second = session.synthesize("x"), session.synthesize("y")
        async for event in first:
            if isinstance(event, Audio):
                break
        assert await session.cancel() == 2
        for utterance, size in ((first, 16), (second, 0)):
            with pytest.raises(UtteranceCancelled) as caught:
                await utterance.read()
            assert caught.value.audio_bytes == size
            assert [event async for event in utterance] == []
        assert await session.synthesize("z").read() == tone(9)


async def test_one_by_its_id(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next()
        assert await peer.next() == {"type": "cancel", "request_id": "b"}
        await stop(peer, 2, request_id="b")
        await peer.speak(1, tone(3), request_id="a")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        first = session.synthesize("x", request_id="a")
        second = session.synthesize("y", request_id="b")
        assert await session.cancel("b") == 1
        with pytest.raises(UtteranceCancelled) as caught:
            await second.read()
        assert caught.value.request_id == "b"
        assert await first.read() == tone(3)


async def test_one_that_has_ended_already(endpoint: Serve) -> None:
    """`cancel` and the completion cross: nothing is cancelled, and nothing is lost."""

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(3))
        await peer.next("cancel")
        await peer.send("cancel_done", seq=2, count=0)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x")
        assert await session.cancel() == 0
        assert await utterance.read() == tone(3)


async def test_a_cancelled_utterance_drops_what_was_not_read(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(100))
        await peer.next("cancel")
        await stop(peer, 1)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x")
        assert await session.cancel() == 1
        with pytest.raises(UtteranceCancelled) as caught:
            await anext(utterance)
        assert caught.value.audio_bytes == 200


@pytest.mark.parametrize("code", ["unknown_type", "invalid_request"])
async def test_an_endpoint_that_cannot_be_interrupted(endpoint: Serve, code: str) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.next("cancel")
        await peer.error(2, code, rejected=True)
        await peer.audio(tone(2))
        await peer.complete(1, 4)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x")
        with pytest.raises(InterruptUnavailable):
            await session.cancel()
        if code == "unknown_type":  # it is not asked again
            with pytest.raises(InterruptUnavailable):
                await session.cancel()
        assert await utterance.read() == tone(2)


async def test_what_is_no_id(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        with pytest.raises(RequestInvalid):
            await session.cancel("")


# -- leaving early


async def leave_by_break(session: Session, text: str) -> None:
    async for event in session.synthesize(text):
        if isinstance(event, Audio):
            break


async def leave_by_exception(session: Session, text: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async for event in session.synthesize(text):
            if isinstance(event, Audio):
                raise ZeroDivisionError


async def leave_by_return(session: Session, text: str) -> None:
    async def listen() -> None:
        async for event in session.synthesize(text):
            if isinstance(event, Audio):
                return

    await listen()


async def leave_by_cancelled_task(session: Session, text: str) -> None:
    heard = asyncio.Event()

    async def listen() -> None:
        async for event in session.synthesize(text):
            if isinstance(event, Audio):
                heard.set()

    task = asyncio.create_task(listen())
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def leave_by_aclose(session: Session, text: str) -> None:
    utterance = session.synthesize(text)
    async for event in utterance:
        if isinstance(event, Audio):
            await utterance.aclose()
            break
    with pytest.raises(UtteranceCancelled):
        await anext(utterance)


async def leave_by_block(session: Session, text: str) -> None:
    async with session.synthesize(text) as utterance:
        await anext(utterance)
        await anext(utterance)


async def leave_by_aclosing(session: Session, text: str) -> None:
    async with contextlib.aclosing(session.synthesize(text)) as utterance:
        await anext(utterance)
        await anext(utterance)


LEAVING = [
    leave_by_break,
    leave_by_exception,
    leave_by_return,
    leave_by_cancelled_task,
    leave_by_aclose,
    leave_by_block,
    leave_by_aclosing,
]


@pytest.mark.parametrize("leave", LEAVING)
async def test_who_leaves_stops_the_endpoint(
    endpoint: Serve, leave: Callable[[Session, str], Awaitable[None]]
) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await stop(peer, 1)
        await peer.next()
        await peer.speak(3, tone(9))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        await leave(session, "x")
        gc.collect()
        assert await session.synthesize("z").read() == tone(9)


@pytest.mark.parametrize("leave", LEAVING)
async def test_where_it_cannot_be_told_the_rest_is_thrown_away(
    endpoint: Serve, leave: Callable[[Session, str], Awaitable[None]]
) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        await peer.next("synthesize")
        for _ in range(100):  # more than the buffers hold
            await peer.audio(tone(10000))
        await peer.complete(1, 2000008)
        await peer.speak(2, tone(9))
        await peer.say_goodbye()

    url = await endpoint(script)
    async with connect(url, interrupt=False, buffer_bytes=1000, max_buffer_bytes=1000) as session:
        await leave(session, "x")
        gc.collect()
        assert await session.synthesize("z").read() == tone(9)


async def test_only_the_one_that_was_left_is_stopped(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(1))
        first, second = await peer.next(), await peer.next()
        await peer.start(2, request_id=first["request_id"])
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel", "request_id": first["request_id"]}
        await stop(peer, 2, request_id=first["request_id"])
        await peer.speak(3, tone(9), request_id=second["request_id"])
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        await session.synthesize("w").read()
        # It is a version 1 endpoint, as it has shown: requests get ids of the session's own.
        first, second = session.synthesize("x"), session.synthesize("y")
        async for event in first:
            if isinstance(event, Audio):
                break
        await first.aclose()
        assert await second.read() == tone(9)


async def test_without_ids_nobody_else_is_stopped(endpoint: Serve) -> None:
    """Two requests without ids: `cancel` would stop both, so it waits until one is left."""

    async def script(peer: Any) -> None:
        for _ in range(2):
            assert "request_id" not in await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        await peer.complete(1, 8)
        assert await peer.next() == {"type": "cancel"}
        await stop(peer, 2)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        first, second = session.synthesize("x"), session.synthesize("y")
        await second.aclose()
        assert await first.read() == tone(4)


async def test_before_it_is_known_whether_the_endpoint_understands(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next("close")
        await peer.start(1)  # this tells
        assert await peer.next() == {"type": "cancel"}
        await peer.send("cancelled", seq=1, audio_bytes=0)
        await peer.send("cancel_done", seq=3, count=1)
        await peer.send("session_closed", seq=2, reason="client_close", last_seq=2)
        await peer.gone()

    async with connect(await endpoint(script)) as session:
        await session.synthesize("x").aclose()


async def test_an_older_endpoint_is_sent_no_cancel(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(None)
        await peer.audio(tone(4))
        await peer.next("synthesize")
        await peer.complete(None, 8)
        await peer.speak(None, tone(9))
        await peer.gone()
        assert len(peer.received) == 2

    async with connect(await endpoint(script)) as session:
        await leave_by_break(session, "x")
        assert await session.synthesize("z").read() == tone(9)


async def test_what_the_endpoint_offers_decides(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("hello")
        await peer.send(
            "session",
            seq=1,
            protocol_version=1,
            session_id="s",
            profiles=["core", "negotiate"],
            limits={},
            voices=["v"],
            formats=["pcm_s16le"],
            sample_rates=[24000],
        )
        await peer.next()
        await peer.speak(2, tone(4))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        await leave_by_break(session, "x")


async def test_a_request_that_was_not_sent_yet(endpoint: Serve) -> None:
    limits = {"max_waiting": 0}

    async def script(peer: Any) -> None:
        await peer.next("hello")
        await peer.send(
            "session",
            seq=1,
            protocol_version=1,
            session_id="s",
            profiles=["core", "negotiate", "interrupt"],
            limits=limits,
            voices=["v"],
            formats=["pcm_s16le"],
            sample_rates=[24000],
        )
        await peer.next("synthesize")
        assert await peer.next() == {"type": "cancel", "request_id": "c"}
        await peer.send("cancel_done", seq=3, count=0)
        await peer.speak(2, tone(4))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        first = session.synthesize("x", request_id="a")
        left, stopped = (
            session.synthesize("y", request_id="b"),
            session.synthesize("z", request_id="c"),
        )
        await left.aclose()
        assert await session.cancel("c") == 1
        with pytest.raises(UtteranceCancelled):
            await stopped.read()
        assert await first.read() == tone(4)


async def test_who_reads_to_the_end_stops_nobody(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(1))
        await peer.say_goodbye()
        assert [m.get("type", "synthesize") for m in peer.received] == ["synthesize", "close"]

    async with connect(await endpoint(script)) as session:
        async with session.synthesize("x") as utterance:
            got = [event async for event in utterance]
        assert isinstance(got[0], Start)
        assert isinstance(got[-1], Complete)
        await utterance.aclose()
        assert [event async for event in utterance] == []


async def test_letting_go_of_it_in_another_thread(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await stop(peer, 1)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        kept = [session.synthesize("x")]
        await anext(kept[0])
        await asyncio.to_thread(kept.clear)


async def test_letting_go_of_what_was_not_read(endpoint: Serve) -> None:
    """What has ended needs no cancel, and its audio no memory."""

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(1000))
        await peer.next()
        await peer.speak(2, tone(1000))
        await peer.say_goodbye()

    async with connect(await endpoint(script), buffer_bytes=1, max_buffer_bytes=4000) as session:
        first, second = session.synthesize("x"), session.synthesize("y")
        await anext(first)
        del first
        assert await second.read() == tone(1000)


async def test_an_utterance_that_outlives_its_loop(endpoint: Serve) -> None:
    kept: list[object] = []

    async def elsewhere() -> None:
        class Nothing:
            async def send(self, message: str) -> None: ...

            async def receive(self) -> bytes:
                await asyncio.Event().wait()
                return b""

            async def close(self) -> None: ...

            def abort(self) -> None: ...

        session = Session(Nothing())
        await session.__aenter__()
        kept.append(session.synthesize("x"))

    await asyncio.to_thread(asyncio.run, elsewhere())
    kept.clear()
    gc.collect()


# -- leaving the session


async def test_an_exception_stops_what_is_spoken(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await stop(peer, 1)
        await peer.say_goodbye()

    url = await endpoint(script)
    with pytest.raises(ZeroDivisionError):
        async with connect(url) as session:
            utterance = session.synthesize("x")
            async for event in utterance:
                if isinstance(event, Audio):
                    raise ZeroDivisionError
    with pytest.raises(UtteranceCancelled):
        await utterance.read()


async def test_an_exception_disconnects_from_who_cannot_be_stopped(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        await peer.gone()
        assert len(peer.received) == 1

    url = await endpoint(script)
    with pytest.raises(ZeroDivisionError):
        async with connect(url, interrupt=False) as session:
            async for event in session.synthesize("x"):
                if isinstance(event, Audio):
                    raise ZeroDivisionError


async def test_an_exception_with_nothing_spoken_ends_the_session_in_order(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(4))
        await peer.say_goodbye()

    url = await endpoint(script)
    with pytest.raises(ZeroDivisionError):
        async with connect(url, interrupt=False) as session:
            await session.synthesize("x").read()
            raise ZeroDivisionError


async def test_an_exception_on_a_session_that_is_over(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()

    url = await endpoint(script)
    with pytest.raises(SessionLost):
        async with connect(url) as session:
            await session.synthesize("x").read()


async def test_a_task_that_is_cancelled_leaves_nothing_behind(endpoint: Serve) -> None:
    heard = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        await peer.next("cancel")
        await stop(peer, 1)
        await peer.say_goodbye()

    url = await endpoint(script)

    async def talk() -> None:
        async with connect(url) as session:
            async for event in session.synthesize("x"):
                if isinstance(event, Audio):
                    heard.set()

    task = asyncio.create_task(talk())
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
