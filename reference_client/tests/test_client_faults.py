"""Endpoints that break the rules, fall silent, or go away: typed errors, and never a hang."""

# ruff: noqa: PT012 - how a loop or a block is left is what is tested

import asyncio
import contextlib
import gc
import math
import select
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    AudioMissing,
    Complete,
    DeadlineExceeded,
    Deadlines,
    PeerViolation,
    Session,
    SessionLost,
    TransportClosed,
    UtterwireError,
    connect,
)
from websockets.exceptions import ConnectionClosed

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")

SHORT = Deadlines(first_chunk_s=0.1, stall_s=0.1, answer_s=0.1, close_s=0.1)


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


async def outcome(utterance: Any) -> tuple[bytes, UtterwireError | None]:
    """What came of an utterance, and how it ended."""
    audio = b""
    try:
        async for event in utterance:
            if isinstance(event, Audio):
                audio += event.data
    except UtterwireError as exc:
        return audio, exc
    return audio, None


# -- silence


async def test_a_peer_that_says_nothing(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()

    async with connect(await endpoint(script), deadlines=SHORT) as session:
        first, second = session.synthesize("x", request_id="a"), session.synthesize("y")
        _, error = await outcome(first)
        assert isinstance(error, DeadlineExceeded)
        assert (error.which, error.seconds, error.request_id) == ("first_chunk", 0.1, "a")
        _, after = await outcome(second)
        assert isinstance(after, SessionLost)
        assert after.retryable
        with pytest.raises(UtterwireError):
            session.synthesize("z")


async def test_a_start_is_no_audio(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.gone()

    async with connect(await endpoint(script), deadlines=SHORT) as session:
        _, error = await outcome(session.synthesize("x"))
    assert isinstance(error, DeadlineExceeded)
    assert error.which == "first_chunk"


async def test_a_peer_that_falls_silent(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(3))
        await peer.gone()

    deadlines = Deadlines(stall_s=0.1, close_s=0.1)
    async with connect(await endpoint(script), deadlines=deadlines) as session:
        audio, error = await outcome(session.synthesize("x"))
    assert audio == tone(3)
    assert isinstance(error, DeadlineExceeded)
    assert (error.which, error.audio_bytes) == ("stall", 6)
    assert isinstance(error, TimeoutError)


async def test_waiting_behind_others_is_no_silence(endpoint: Serve, clock: Any) -> None:
    """Two that come first take longer than the third may be silent for in its own turn."""
    deadlines = Deadlines(first_chunk_s=1000, stall_s=1000)

    async def script(peer: Any) -> None:
        for _ in range(3):
            await peer.next()
        for seq in (1, 2, 3):
            await clock.advance(900)
            await peer.start(seq)
            await peer.audio(tone(seq))
            await (await peer.connection.ping())  # the client has read so far
            await clock.advance(900)
            await peer.complete(seq, 2 * seq)
            await (await peer.connection.ping())
        await peer.say_goodbye()

    async with connect(await endpoint(script), deadlines=deadlines) as session:
        utterances = [session.synthesize(text) for text in "xyz"]
        assert [await s.read() for s in utterances] == [tone(1), tone(2), tone(3)]


async def test_slow_chunks_are_no_silence(endpoint: Serve, clock: Any) -> None:
    deadlines = Deadlines(first_chunk_s=1000, stall_s=1000)
    arrived = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        for _ in range(4):
            await peer.audio(tone(1))
            await arrived.wait()
            arrived.clear()
            await clock.advance(900)
        await peer.complete(1, 8)
        await peer.say_goodbye()

    async with connect(await endpoint(script), deadlines=deadlines) as session:
        audio = b""
        async for event in session.synthesize("x"):
            if isinstance(event, Audio):
                audio += event.data
                arrived.set()
        assert audio == tone(4)


async def test_a_loop_that_is_held_up_is_no_silence(endpoint: Serve, clock: Any) -> None:
    deadlines = Deadlines(first_chunk_s=1000, stall_s=1000)

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        for _ in range(3):
            await peer.audio(tone(1))
            # It has come, for all that the loop knows nothing of it yet.
            assert select.select([client], [], [], 60)[0]
            clock.jump(1100)
            await (await peer.connection.ping())
        await peer.complete(1, 6)
        await peer.say_goodbye()

    async with connect(await endpoint(script), deadlines=deadlines) as session:
        transport: Any = session._transport
        client = transport._connection.transport.get_extra_info("socket")
        assert await session.synthesize("x").read() == tone(3)


async def test_a_pause_between_requests_is_no_silence(endpoint: Serve, clock: Any) -> None:
    async def script(peer: Any) -> None:
        for seq in (1, 2):
            await peer.next()
            await peer.speak(seq, tone(seq))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        assert await session.synthesize("x").read() == tone(1)
        await clock.advance(900)
        assert await session.synthesize("y").read() == tone(2)


async def test_no_deadline_at_all(endpoint: Serve) -> None:
    deadlines = Deadlines(*[math.inf] * 5)

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(4))
        await peer.say_goodbye()

    async with connect(await endpoint(script), deadlines=deadlines) as session:
        assert await session.synthesize("x").read() == tone(4)


async def test_a_peer_that_speaks_on_after_the_end(endpoint: Serve) -> None:
    """Whoever leaves gets the own exception, not one of what still arrives."""

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        while True:
            await peer.audio(tone(1))
            await asyncio.sleep(0)

    class Enough(Exception):
        pass

    with pytest.raises(Enough):
        async with connect(await endpoint(script), deadlines=Deadlines(close_s=0.05)) as session:
            async for event in session.synthesize("x", request_id="a"):
                if isinstance(event, Audio):
                    raise Enough


async def test_what_arrives_behind_a_deadline(endpoint: Serve) -> None:
    """The peer does not read, so that a message cannot be sent, and speaks on."""
    deadlines = Deadlines(stall_s=0.2, close_s=0.1)

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        peer.connection.transport.pause_reading()
        with contextlib.suppress(ConnectionClosed):
            while True:
                await peer.audio(tone(100))
                await asyncio.sleep(0)

    async with connect(await endpoint(script), deadlines=deadlines) as session:
        first = session.synthesize("x")
        listening = asyncio.create_task(outcome(first))
        while not first.received_bytes:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)
        for _ in range(100):
            session.synthesize("y" * 200_000)
        _, error = await listening
    assert isinstance(error, UtterwireError)


@pytest.mark.parametrize("what", ["cancel", "hello"])
async def test_a_question_without_an_answer(endpoint: Serve, what: str) -> None:
    async def script(peer: Any) -> None:
        await peer.gone()

    url = await endpoint(script)
    with pytest.raises(DeadlineExceeded) as caught:
        async with connect(url, deadlines=SHORT, negotiate=what == "hello") as session:
            await session.cancel()
    assert caught.value.which == "answer"


class Stuck:
    """A transport that takes one message and no more, and never says anything."""

    def __init__(self) -> None:
        self.aborted = asyncio.Event()
        self.sent = 0

    async def send(self, message: str) -> None:
        self.sent += 1
        if self.sent > 1:
            await self.aborted.wait()
            raise TransportClosed("aborted")

    async def receive(self) -> str | bytes:
        await self.aborted.wait()
        raise TransportClosed("aborted")

    async def close(self) -> None:
        self.aborted.set()

    def abort(self) -> None:
        self.aborted.set()


async def test_a_peer_that_reads_nothing() -> None:
    transport = Stuck()
    deadlines = Deadlines(first_chunk_s=30, stall_s=0.05, close_s=0.05)
    async with Session(transport, deadlines=deadlines) as session:
        utterance = session.synthesize("x")
        with pytest.raises(DeadlineExceeded) as caught:
            while True:
                await session.keepalive()
        assert caught.value.which == "send"
        _, error = await outcome(utterance)
        assert isinstance(error, DeadlineExceeded)
    assert transport.aborted.is_set()


# -- the end of the transport


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (1000, True),
        (1001, True),
        (1011, True),
        (1012, True),
        (1008, False),
        (1009, False),
        (4000, True),
    ],
)
async def test_a_close_in_the_middle(endpoint: Serve, code: int, retryable: bool) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(3))
        await peer.connection.close(code, "so \u202eit is")

    async with connect(await endpoint(script)) as session:
        first, second = session.synthesize("x"), session.synthesize("y")
        audio, error = await outcome(first)
        assert audio == tone(3)
        assert isinstance(error, SessionLost)
        assert (error.code, error.audio_bytes, error.retryable) == (code, 6, retryable)
        assert "incomplete" in str(error)
        assert str(code) in str(error)
        assert str(error).isprintable()
        _, other = await outcome(second)
        assert isinstance(other, SessionLost)
        assert other.audio_bytes == 0


async def test_a_broken_connection(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(3))
        peer.connection.transport.abort()

    async with connect(await endpoint(script)) as session:
        _, error = await outcome(session.synthesize("x"))
        assert isinstance(error, SessionLost)
        assert (error.code, error.retryable) == (None, True)
        with pytest.raises(SessionLost):
            await session.cancel()


async def test_a_connection_that_breaks_while_nothing_is_spoken(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("keepalive")
        peer.connection.transport.abort()

    async with connect(await endpoint(script)) as session:
        with pytest.raises(SessionLost):
            while True:
                await session.keepalive()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x81\x02\xff\xff", id="text that is not UTF-8"),
        pytest.param(b"\x83\x00", id="reserved opcode"),
        pytest.param(b"\xc2\x00", id="reserved bit"),
        pytest.param(b"\x82\x81\0\0\0\0\0", id="masked"),
        pytest.param(b"\x82\x7f" + (17 * 1024 * 1024).to_bytes(8, "big"), id="too big"),
    ],
)
async def test_what_is_no_websocket_traffic(endpoint: Serve, frame: bytes) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(2))
        peer.connection.transport.write(frame)
        await peer.gone()

    async with connect(await endpoint(script)) as session:
        audio, error = await outcome(session.synthesize("x"))
    assert audio == tone(2)
    assert isinstance(error, SessionLost)
    assert "no valid WebSocket traffic" in str(error)


# -- the end of the session


@pytest.mark.parametrize(
    ("frame", "code", "said"),
    [
        (b"\x83\0", None, "no valid WebSocket traffic"),
        (b"\x82\x81\0\0\0\0x", None, "no valid WebSocket traffic"),
        (b"\x88\x02\x03\xf3", 1011, "with code 1011"),
    ],
)
async def test_a_peer_that_ends_the_session_and_keeps_the_line(
    endpoint: Serve, frame: bytes, code: int | None, said: str
) -> None:
    """No deadline of the session helps here, and none is needed."""
    deadlines = Deadlines(first_chunk_s=math.inf, stall_s=math.inf, close_s=0.05)
    left = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        transport = peer.connection.transport
        # The peer's own library would close: this one sees and does nothing any more.
        transport.pause_reading()
        transport.write(frame)
        await left.wait()
        transport.abort()

    async with connect(await endpoint(script), deadlines=deadlines) as session:
        async with asyncio.timeout(60):
            _, error = await outcome(session.synthesize("x"))
        left.set()
    assert isinstance(error, SessionLost)
    assert error.code == code
    assert said in str(error)


@pytest.mark.parametrize(
    ("reason", "retryable"),
    [("going_away", True), ("idle", True), ("slow_reader", True), ("policy", False), ("new", True)],
)
async def test_a_session_that_is_ended(endpoint: Serve, reason: str, retryable: bool) -> None:
    async def script(peer: Any) -> None:
        for _ in range(3):
            await peer.next()
        await peer.start(1)
        await peer.audio(tone(3))
        await peer.send(
            "session_closed", reason=reason, last_seq=2, retry_after_s=1.5 if retryable else None
        )
        await peer.gone()

    async with connect(await endpoint(script)) as session:
        utterances = [session.synthesize(text) for text in "xyz"]
        (audio, first), (_, second), (_, third) = [await outcome(s) for s in utterances]
    assert audio == tone(3)
    for error in (first, second, third):
        assert isinstance(error, SessionLost)
        assert (error.reason, error.retryable) == (reason, retryable)
        assert error.retry_after_s == (1.5 if retryable else None)
    assert isinstance(first, SessionLost)
    assert isinstance(third, SessionLost)
    assert (first.processed, first.audio_bytes) == (None, 6)
    assert third.processed is False
    assert "not looked at" in str(third)


async def test_a_session_that_is_ended_while_nothing_is_spoken(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(1))
        await peer.send("session_closed", reason="idle", last_seq=1)
        await peer.gone()

    async with connect(await endpoint(script)) as session:
        assert await session.synthesize("x").read() == tone(1)
        with pytest.raises(SessionLost) as caught:
            while True:
                await session.keepalive()
        assert (caught.value.reason, caught.value.retryable) == ("idle", True)


# -- rules that are broken


async def test_pcm_stays_aligned_over_odd_chunks(endpoint: Serve) -> None:
    audio = bytes(range(1, 16)) + b"\x10"

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        for piece in (audio[:1], audio[1:4], audio[4:9], audio[9:]):
            await peer.audio(piece)
        await peer.complete(1, len(audio))
        await peer.next()
        await peer.start(2)
        await peer.audio(b"\x01\x02\x03")
        await peer.complete(2, 3)
        await peer.next()
        await peer.speak(3, tone(2))
        await peer.say_goodbye()

    violations: list[PeerViolation] = []
    async with connect(await endpoint(script), on_violation=violations.append) as session:
        pieces = []
        async for event in session.synthesize("x"):
            if isinstance(event, Audio):
                assert len(event.data) % 2 == 0
                assert event.data
                pieces.append(event.data)
        assert b"".join(pieces) == audio
        assert {v.requirement for v in violations} == {"audio.whole-samples"}
        before = len(violations)
        assert await session.synthesize("y").read() == b"\x01\x02"
        assert any("dropped" in str(v) for v in violations[before:])
        # The byte that was left over is not the next utterance's.
        assert await session.synthesize("z").read() == tone(2)


async def test_marks_before_the_start(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.send("marks", seq=1, words=[])
        await peer.speak(1, tone(2))
        await peer.say_goodbye()

    violations: list[PeerViolation] = []
    async with connect(await endpoint(script), on_violation=violations.append) as session:
        got = [type(event).__name__ async for event in session.synthesize("x")]
    assert got == ["Start", "Audio", "Complete"]
    assert [v.requirement for v in violations] == ["order.start-first"]


async def test_audio_that_is_missing(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for seq, claimed in ((1, 10), (2, 10), (3, 2)):
            await peer.next()
            await peer.start(seq)
            await peer.audio(tone(3))
            await peer.complete(seq, claimed)
        await peer.say_goodbye()

    violations: list[PeerViolation] = []
    async with connect(await endpoint(script), on_violation=violations.append) as session:
        with pytest.raises(AudioMissing, match="6 of 10 bytes") as caught:
            await session.synthesize("x").read()
        assert (caught.value.audio_bytes, caught.value.missing_bytes) == (6, 4)
        last = [event async for event in session.synthesize("y")][-1]
        assert isinstance(last, Complete)
        assert last.missing_bytes == 4
        assert await session.synthesize("z").read() == tone(3)  # more than was said is no loss
    assert [v.requirement for v in violations] == ["complete.audio-bytes"] * 3


@pytest.mark.parametrize(
    "text",
    ["", "hello", "[1]", "{}", '{"type": 5}', '{"type": "error"', '{"type": "cancel_done"}'],
)
async def test_a_text_frame_that_is_no_control_message(endpoint: Serve, text: str) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.connection.send(text)
        await peer.audio(tone(2))
        await peer.complete(1, 4)
        await peer.say_goodbye()

    violations: list[PeerViolation] = []
    async with connect(await endpoint(script), on_violation=violations.append) as session:
        assert await session.synthesize("x").read() == tone(2)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "synthesis_complete", "seq": 99},
        {"type": "synthesis_complete", "seq": "1"},
        {"type": "synthesis_start", "seq": 1, "sample_rate": -5, "format": 7},
        {"type": "error", "seq": 77, "code": "internal", "message": "?"},
        {"type": "error", "seq": 77, "code": 9, "message": 9, "retryable": 9, "rejected": 9},
        {"type": "cancelled", "seq": 5},
        {"type": "cancel_done", "seq": 5, "count": 1},
        {"type": "session", "seq": 5, "protocol_version": 7},
        {"type": "marks", "seq": 1, "words": [{"text": 5}]},
        {"type": "marks", "seq": 1, "words": "no"},
    ],
)
async def test_control_messages_that_belong_nowhere(
    endpoint: Serve, fields: dict[str, Any]
) -> None:
    """Whatever the session makes of them, it makes it at once, and hangs for none."""

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.send(**fields)
        await peer.audio(tone(2))
        await peer.complete(1, 4)
        await peer.gone()

    violations: list[PeerViolation] = []
    url = await endpoint(script)
    async with connect(url, deadlines=SHORT, on_violation=violations.append) as session:
        _, error = await outcome(session.synthesize("x"))
    assert error is None or isinstance(error, UtterwireError)


async def test_audio_for_nobody(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.audio(tone(9))
        await peer.next()
        await peer.speak(1, tone(2))
        await peer.audio(tone(9))
        await peer.next("keepalive")
        await peer.next()
        await peer.speak(3, tone(3))
        await peer.say_goodbye()

    reported = asyncio.Event()
    url = await endpoint(script)
    async with connect(url, on_violation=lambda _: reported.set()) as session:
        await reported.wait()
        reported.clear()
        assert await session.synthesize("x").read() == tone(2)
        await reported.wait()
        await session.keepalive()
        assert await session.synthesize("y").read() == tone(3)


async def test_violations_are_logged(endpoint: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, *[b"\x01\x02\x03"] * 9)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        await session.synthesize("x").read()
    assert caplog.text.count("audio.whole-samples") == 1


async def test_a_listener_for_violations_that_fails(
    endpoint: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(violation: PeerViolation) -> None:
        raise ZeroDivisionError

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, b"\x01")
        await peer.say_goodbye()

    async with connect(await endpoint(script), on_violation=fail) as session:
        assert await session.synthesize("x").read() == b""
    assert "ZeroDivisionError" in caplog.text


class Deaf(Stuck):
    """A transport that breaks when something is sent, and tells the reader later."""

    async def send(self, message: str) -> None:
        self.aborted.set()
        raise TransportClosed("broken")


async def test_a_transport_that_breaks_when_something_is_sent() -> None:
    async with Session(Deaf(), deadlines=SHORT) as session:
        _, error = await outcome(session.synthesize("x"))
        assert isinstance(error, SessionLost)
        with pytest.raises(SessionLost):
            await session.keepalive()


class Broken(Stuck):
    """A transport with a fault of its own."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    async def send(self, message: str) -> None:
        if self._where == "send":
            raise ZeroDivisionError

    async def receive(self) -> str | bytes:
        if self._where == "receive":
            raise ZeroDivisionError
        return await super().receive()


@pytest.mark.parametrize("where", ["send", "receive"])
async def test_a_fault_of_ours_is_not_hidden(where: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Session(Broken(where), deadlines=SHORT) as session:
            await outcome(session.synthesize("x"))


async def test_who_asked_may_be_gone_when_the_answer_comes(
    endpoint: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("cancel")
        asked.set()
        await peer.gone()

    async with connect(await endpoint(script), deadlines=Deadlines(close_s=0.1)) as session:
        asking = asyncio.create_task(session.cancel())
        await asked.wait()
        session._answers[1].set_exception(SessionLost("over", retryable=True))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    gc.collect()
    assert "never retrieved" not in caplog.text
