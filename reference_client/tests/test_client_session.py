"""A session with an endpoint that keeps the rules, or knows only the older ones."""

# ruff: noqa: PT012 - how a loop or a block is left is what is tested

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    Complete,
    Deadlines,
    Marks,
    PeerViolation,
    RequestInvalid,
    SessionLost,
    Start,
    Utterance,
    UtteranceFailed,
    UtteranceRejected,
    Word,
    connect,
)

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


LOOKS_LIKE_CONTROL = [
    # White space makes whole samples of it, and changes no verdict.
    audio + b" " * (len(audio) % 2)
    for audio in (
        b"{}",
        b"{\x00}\x00",
        b'{"type": 5}  ',
        b'{"a": 1}',
        b'{"type": "synthesis_complete"} {"',
        b'{"type": "synthesis_complete"\xff\xff}\x00',
        b"[1]\x00",
        b' {"type": "synthesis_complete"} ',
        b"{" * 4096,
        b"{" + bytes(4095),
    )
]


def untyped(message: dict[str, Any]) -> dict[str, Any]:
    """A request without its type, which may be left out."""
    return {name: value for name, value in message.items() if name != "type"}


async def events(utterance: Utterance) -> list[Any]:
    return [event async for event in utterance]


async def test_one_utterance(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        assert untyped(await peer.next("synthesize")) == {"text": "Hello."}
        await peer.speak(1, tone(100), tone(50, 2), elapsed_s=0.5, characters=6)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("Hello.")
        assert (utterance.seq, utterance.request_id) == (1, None)
        got = await events(utterance)
        assert utterance.received_bytes == 300
    assert got == [
        Start(sample_rate=24000, format="pcm_s16le", voice="test"),
        Audio(tone(100)),
        Audio(tone(50, 2)),
        Complete(
            received_bytes=300,
            duration_s=300 / 48000,
            elapsed_s=0.5,
            audio_bytes=300,
            characters=6,
        ),
    ]
    assert session.closed


async def test_every_field_is_sent(endpoint: Serve) -> None:
    fields: dict[str, Any] = {
        "voice": "anna",
        "speed": 1.5,
        "sample_rate": 8000,
        "format": "mulaw",
        "request_id": "a\U0001f600",
        "marks": ["word"],
    }

    async def script(peer: Any) -> None:
        message = untyped(await peer.next("synthesize"))
        assert message == {"text": "Grüße, 世界!\n", **fields}
        await peer.speak(1, b"\x01\x02\x03", sample_rate=8000, format="mulaw")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("Grüße, 世界!\n", **fields)
        start, audio, _ = await events(utterance)
    assert (start.sample_rate, start.format) == (8000, "mulaw")
    assert audio.data == b"\x01\x02\x03"
    assert utterance.request_id == "a\U0001f600"


async def test_text_with_nothing_to_speak(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        assert await session.synthesize("?!").read() == b""


async def test_requests_go_out_before_anything_is_read(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        texts = [(await peer.next())["text"] for _ in range(3)]
        assert texts == ["one", "two", "three"]
        for seq in (1, 2, 3):
            await peer.speak(seq, tone(10, seq))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterances = [session.synthesize(text) for text in ("one", "two", "three")]
        assert [utterance.seq for utterance in utterances] == [1, 2, 3]
        for number in (3, 1, 2):  # read in another order than they are spoken
            assert await utterances[number - 1].read() == tone(10, number)


async def test_many_readers_in_a_task_group(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for seq in range(1, 21):
            await peer.next("synthesize")
            await peer.speak(seq, tone(500, seq), tone(3, -seq))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session, asyncio.TaskGroup() as group:
        tasks = [group.create_task(session.synthesize(str(n)).read()) for n in range(1, 21)]
    assert [task.result() for task in tasks] == [tone(500, n) + tone(3, -n) for n in range(1, 21)]


async def test_answers_find_their_request_by_seq(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for _ in range(3):
            await peer.next()
        await peer.start(1)
        await peer.error(3, "queue_full", rejected=True, retryable=True)  # overtakes
        await peer.audio(tone(4))
        await peer.complete(1, 8)
        await peer.error(2, "invalid_voice", rejected=True)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterances = [session.synthesize("same") for _ in range(3)]
        with pytest.raises(UtteranceRejected) as full:
            await utterances[2].read()
        assert await utterances[0].read() == tone(4)
        with pytest.raises(UtteranceRejected) as voice:
            await utterances[1].read()
    assert (full.value.code, full.value.retryable) == ("queue_full", True)
    assert (voice.value.code, voice.value.retryable) == ("invalid_voice", False)


async def test_a_failure_ends_one_utterance_only(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1, request_id="a")
        await peer.audio(tone(5))
        await peer.error(
            1, "synthesis_failed", retryable=True, request_id="a", message="bad\x1b[2J"
        )
        await peer.next()
        await peer.speak(2, tone(6))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        got = []
        with pytest.raises(UtteranceFailed) as caught:
            async for event in session.synthesize("one", request_id="a"):
                got.append(event)  # noqa: PERF401 - what came before the failure counts
        assert got[1:] == [Audio(tone(5))]
        assert await session.synthesize("two").read() == tone(6)
    assert (caught.value.code, caught.value.retryable) == ("synthesis_failed", True)
    assert (caught.value.audio_bytes, caught.value.request_id) == (10, "a")
    assert str(caught.value).isprintable()


async def test_control_may_come_in_binary_frames(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        send = peer.connection.send
        await send(b'{"type":"synthesis_start","seq":1,"sample_rate":24000,"format":"pcm_s16le"}')
        for audio in LOOKS_LIKE_CONTROL:
            await send(audio)
        await send(b'{"type":"synthesis_complete","seq":1,"audio_bytes":1}')
        await peer.say_goodbye()

    violations: list[PeerViolation] = []
    async with connect(await endpoint(script), on_violation=violations.append) as session:
        assert await session.synthesize("x").read() == b"".join(LOOKS_LIKE_CONTROL)


async def test_what_is_not_known_is_skipped(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.send("prophecy", seq=1, deep={"a": [1, {"b": None}]})
        await peer.start(1, mood="cheerful", nested={"x": 1})
        await peer.send("marks_v2", seq=99)
        await peer.audio(tone(2))
        await peer.complete(1, 4, extra=[1, 2])
        await peer.say_goodbye()

    violations: list[PeerViolation] = []
    async with connect(await endpoint(script), on_violation=violations.append) as session:
        assert await session.synthesize("x").read() == tone(2)
    assert violations == []


async def test_marks(endpoint: Serve) -> None:
    word = {"text": "hi", "start_s": 0.1, "end_s": 0.4, "char_start": 0, "char_end": 2}

    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.send("marks", seq=1, words=[word, {**word, "char_start": 3, "char_end": 5}])
        await peer.audio(tone(2))
        await peer.complete(1, 4)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        got = await events(session.synthesize("hi hi", marks=["word"]))
    assert got[1] == Marks((Word("hi", 0.1, 0.4, 0, 2), Word("hi", 0.1, 0.4, 3, 5)))


async def test_an_endpoint_of_before(endpoint: Serve) -> None:
    """No `synthesis_start`, no `seq`, and the connection closed after one utterance."""

    async def script(peer: Any) -> None:
        assert untyped(await peer.next("synthesize")) == {"text": "x", "sample_rate": 16000}
        await peer.audio(tone(7))
        await peer.send("synthesis_complete")

    async with connect(await endpoint(script)) as session:
        got = await events(session.synthesize("x", sample_rate=16000))
        assert got[0] == Start(sample_rate=16000, format="pcm_s16le", voice=None, implied=True)
        assert got[1:] == [Audio(tone(7)), Complete(received_bytes=14, duration_s=7 / 16000)]
        await session.close()
        with pytest.raises(SessionLost):
            session.synthesize("y")


async def test_an_endpoint_of_before_that_stays(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for number in range(3):
            await peer.next("synthesize")
            await peer.start(None)
            await peer.audio(tone(number + 1))
            await peer.complete(None, 2 * number + 2)
        await peer.next()
        await peer.send("error", message="no voice today")
        await peer.gone()
        # Nothing that such an endpoint could take for a request was sent to it.
        assert [m["text"] for m in peer.received] == ["0", "1", "2", "3"]

    async with connect(await endpoint(script)) as session:
        utterances = [session.synthesize(str(number)) for number in range(3)]
        assert [await utterance.read() for utterance in utterances] == [tone(n) for n in (1, 2, 3)]
        with pytest.raises(UtteranceFailed, match="no voice today") as caught:
            await session.synthesize("3").read()
    assert caught.value.retryable is False


async def test_keepalive(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        assert await peer.next() == {"type": "keepalive"}
        await peer.next("synthesize")
        await peer.speak(2, tone(1))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        await session.keepalive()
        assert await session.synthesize("x").read() == tone(1)
    with pytest.raises(SessionLost):
        await session.keepalive()


@pytest.mark.parametrize(
    "request_",
    [
        {"text": ""},
        {"text": " \u2003\n"},
        {"text": "\ud800"},
        {"text": 5},
        {"text": "x", "speed": float("nan")},
        {"text": "x", "speed": "fast"},
        {"text": "x", "speed": True},
        {"text": "x", "sample_rate": 8000.5},
        {"text": "x", "request_id": ""},
        {"text": "x", "request_id": "\udfff"},
        {"text": "x", "voice": 5},
        {"text": "x", "voice": "\ud800"},
        {"text": "x", "format": 5},
        {"text": "x", "marks": [5]},
    ],
)
async def test_no_invalid_message_leaves(endpoint: Serve, request_: dict[str, Any]) -> None:
    async def script(peer: Any) -> None:
        assert (await peer.next())["text"] == "valid"
        await peer.speak(1, tone(1))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        with pytest.raises(RequestInvalid):
            session.synthesize(**request_)
        assert await session.synthesize("valid").read() == tone(1)


async def test_an_id_is_used_by_one_utterance_at_a_time(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for seq in (1, 2):
            await peer.next()
            await peer.speak(seq, tone(seq), request_id="a")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x", request_id="a")
        with pytest.raises(RequestInvalid):
            session.synthesize("y", request_id="a")
        assert await utterance.read() == tone(1)
        assert await session.synthesize("y", request_id="a").read() == tone(2)


async def test_one_reader_at_a_time(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.next("keepalive")
        await peer.speak(1, tone(1))
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x")
        first = asyncio.create_task(anext(utterance))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await anext(utterance)
        await session.keepalive()
        assert isinstance(await first, Start)
        assert await utterance.read() == tone(1)


# -- negotiate


def offer(**changes: Any) -> dict[str, Any]:
    limits = {
        "max_text_chars": 4096,
        "max_message_bytes": 65536,
        "max_request_id_chars": 128,
        "max_waiting": 8,
        "idle_timeout_s": 300,
        "min_speed": 0.5,
        "max_speed": 2.0,
    }
    return {
        "protocol_version": 1,
        "session_id": "s",
        "profiles": ["core", "negotiate"],
        "limits": {**limits, **changes},
        "voices": ["anna"],
        "formats": ["pcm_s16le"],
        "sample_rates": [24000],
    }


async def test_what_the_endpoint_offers(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        assert await peer.next() == {"type": "hello", "protocol_versions": [1]}
        await peer.send("session", seq=1, **offer())
        await peer.next("synthesize")
        await peer.speak(2, tone(1))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        assert session.info is not None
        assert session.info.profiles == {"core", "negotiate"}
        assert session.info.limits["max_waiting"] == 8
        assert session.info.voices == ("anna",)
        assert await session.synthesize("x").read() == tone(1)


@pytest.mark.parametrize("code", ["unknown_type", "unsupported_version"])
async def test_an_endpoint_that_does_not_negotiate(endpoint: Serve, code: str) -> None:
    async def script(peer: Any) -> None:
        await peer.next("hello")
        await peer.error(1, code, rejected=True)
        await peer.next("synthesize")
        await peer.speak(2, tone(1))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        assert session.info is None
        assert await session.synthesize("x").read() == tone(1)


async def test_what_goes_beyond_the_stated_limits_is_not_sent(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("hello")
        await peer.send("session", seq=1, **offer(max_text_chars=5000, max_request_id_chars=200))
        assert (await peer.next("synthesize"))["text"] == "x" * 5000
        await peer.speak(2, tone(1))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        for invalid in (
            {"text": "x" * 5001},
            {"text": "x", "speed": 2.5},
            {"text": "x", "speed": 0.25},
            {"text": "x", "request_id": "i" * 201},
        ):
            with pytest.raises(RequestInvalid):
                session.synthesize(**invalid)
        assert await session.synthesize("x" * 5000, speed=2.0).read() == tone(1)


async def test_no_more_wait_than_the_endpoint_lets(endpoint: Serve) -> None:
    waiting = 0

    async def script(peer: Any) -> None:
        nonlocal waiting
        await peer.next("hello")
        await peer.send("session", seq=1, **offer())
        for _ in range(9):
            await peer.next("synthesize")
        # One that runs and eight that wait: the tenth does not come before one has ended.
        tenth = asyncio.create_task(peer.next("synthesize"))
        await peer.connection.ping()
        waiting = int(not tenth.done())
        await peer.speak(2, tone(2))
        await tenth
        for seq in range(3, 12):
            await peer.speak(seq, tone(seq))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        utterances = [session.synthesize("x", request_id=f"{n}") for n in range(10)]
        assert utterances[9].seq is None
        with pytest.raises(RequestInvalid, match="in use"):
            session.synthesize("x", request_id="9")
        assert [await s.read() for s in utterances] == [tone(n) for n in range(2, 12)]
        assert utterances[9].seq == 11
    assert waiting == 1


async def test_what_is_too_big_once_it_is_written(endpoint: Serve) -> None:
    """Its size in bytes is known when it is sent, which is later for what has to wait."""

    async def script(peer: Any) -> None:
        await peer.next("hello")
        await peer.send("session", seq=1, **offer(max_text_chars=10**6, max_waiting=0))
        assert (await peer.next("synthesize"))["text"] == "x"
        await peer.speak(2, tone(2))
        assert (await peer.next("synthesize"))["text"] == "z"
        await peer.speak(3, tone(3))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        with pytest.raises(RequestInvalid, match="bytes"):
            session.synthesize("\U0001f600" * 65536)
        utterances = [session.synthesize(text) for text in ("x", "\U0001f600" * 65536, "z")]
        assert await utterances[0].read() == tone(2)
        with pytest.raises(RequestInvalid, match="bytes"):
            await utterances[1].read()
        assert await utterances[2].read() == tone(3)


async def test_the_sessions_own_ids_are_not_the_callers(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        ids = [(await peer.next("synthesize"))["request_id"] for _ in range(3)]
        assert ids[0] == "utterance-1"
        assert len(set(ids)) == 3
        for seq in (1, 2, 3):
            await peer.speak(seq, tone(seq))
        await peer.say_goodbye()

    async with connect(await endpoint(script), interrupt=True) as session:
        utterances = [
            session.synthesize("x", request_id="utterance-1"),
            *map(session.synthesize, "yz"),
        ]
        assert [await utterance.read() for utterance in utterances] == [tone(1), tone(2), tone(3)]


async def test_what_waits_is_spoken_before_the_end(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("hello")
        await peer.send("session", seq=1, **offer(max_waiting=0))
        for seq in (2, 3, 4):
            await peer.next("synthesize")
            await peer.speak(seq, tone(seq))
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        utterances = [session.synthesize("x") for _ in range(3)]
    assert [await utterance.read() for utterance in utterances] == [tone(2), tone(3), tone(4)]


async def test_deadlines_are_numbers_of_seconds() -> None:
    for wrong in (0, -1, float("nan"), "5", True, None):
        with pytest.raises(RequestInvalid, match="stall_s"):
            Deadlines(stall_s=wrong)  # type: ignore[arg-type]
