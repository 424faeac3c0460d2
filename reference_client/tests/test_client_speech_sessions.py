"""Speeches over real sessions: opened anew when they are lost, stopped when they are told to."""

import asyncio
import random
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    ConnectFailed,
    Deadlines,
    Lost,
    Player,
    Session,
    SessionLost,
    Speech,
    SpeechIncomplete,
    Spoken,
    UtteranceCancelled,
    UtterwireError,
    connect,
)
from utterwire_client.events import Event, Start
from utterwire_client.http import HttpBackend
from utterwire_client.request_backend import RequestBackend
from utterwire_client.utterance import Request
from utterwire_client.websocket import open_websocket

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")

HASTY = Deadlines(answer_s=0.2, close_s=0.2)
TEXT = "One thing is here. Two things are there. Three things are nowhere."
THREE = ["One thing is here.", "Two things are there.", "Three things are nowhere."]


def tone(count: int, value: int = 1) -> bytes:
    return struct.pack("<h", value) * count


async def sentences(speech: Speech) -> list[str]:
    """What was said of each sentence of which audio came."""
    heard: dict[str, int] = {}
    async for event in speech:
        if isinstance(event, Spoken) and isinstance(event.event, Audio):
            assert event.sentence.spoken is not None
            size = heard.get(event.sentence.spoken, 0)
            heard[event.sentence.spoken] = size + len(event.event.data)
    return list(heard)


async def test_ids_and_marks_go_with_each_sentence(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for seq, text in enumerate(THREE, 1):
            message = await peer.next("synthesize")
            assert message["text"] == text
            assert message["request_id"] == f"speech-{seq}"
            assert message["marks"] == ["word"]
            assert message["voice"] == "anna"
        for seq in (1, 2, 3):
            await peer.speak(seq, tone(4, seq), request_id=f"speech-{seq}")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        assert session.interruptible is None
        assert session.times_words is None
        speech = session.speak(TEXT, voice="anna")
        assert await speech.read() == tone(4, 1) + tone(4, 2) + tone(4, 3)
        assert session.interruptible is True


async def test_an_id_that_the_program_has_taken(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        asked = [(await peer.next())["request_id"] for _ in range(2)]
        assert asked == ["speech-1", "speech-2"]
        for seq, own in enumerate(asked, 1):
            await peer.speak(seq, tone(seq), request_id=own)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        mine = session.synthesize("Mine.", request_id="speech-1")
        speech = session.speak(THREE[0])
        assert await mine.read() == tone(1)
        assert await speech.read() == tone(2)
        assert session.request_ids == set()


async def test_a_session_that_ended_while_nothing_was_said(endpoint: Serve) -> None:
    """The endpoint found it idle; nobody need know."""
    texts = []

    async def script(peer: Any) -> None:
        message = await peer.next()
        texts.append(message["text"])
        await peer.speak(1, tone(4), request_id=message["request_id"])
        await peer.send("session_closed", reason="idle", last_seq=1)

    async with connect(await endpoint(script)) as session:
        assert await session.speak("One thing.").read() == tone(4)
        while not session.closed:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)
        assert not session.usable
        with pytest.raises(SessionLost):
            session.synthesize("x")
        assert await session.speak("Another.").read() == tone(4)
        assert await session.speak("A third.").read() == tone(4)
    assert texts == ["One thing.", "Another.", "A third."]


async def test_what_was_in_flight_goes_on_in_another_session(endpoint: Serve) -> None:
    asked: list[list[str]] = []

    async def script(peer: Any) -> None:
        asked.append([])
        for _ in THREE[len(asked) - 1 :]:
            message = await peer.next("synthesize")
            asked[-1].append(message["text"])
        await peer.speak(1, tone(4), request_id=f"speech-{(1, 4)[len(asked) - 1]}")
        if len(asked) == 1:
            await peer.start(2)
            peer.connection.transport.abort()
        else:
            await peer.speak(2, tone(4))
            await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        assert await sentences(session.speak(TEXT)) == THREE
    assert asked == [THREE, THREE[1:]]


async def test_a_deployed_endpoint_that_closes_after_each_utterance(endpoint: Serve) -> None:
    """It sends no `seq` either, and does not understand `cancel`."""
    spoken = []

    async def script(peer: Any) -> None:
        message = await peer.next("synthesize")
        spoken.append(message["text"])
        await peer.start(None)
        await peer.audio(tone(4))
        await peer.complete(None, 8)
        await peer.connection.close()

    async with connect(await endpoint(script)) as session:
        assert await sentences(session.speak(TEXT, retries=1)) == THREE
    assert spoken == THREE


async def test_what_was_heard_is_not_said_again(endpoint: Serve) -> None:
    sessions = 0

    async def script(peer: Any) -> None:
        nonlocal sessions
        sessions += 1
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        if sessions == 1:
            await heard.wait()
            peer.connection.transport.abort()
        else:
            await peer.next()
            await peer.complete(1, 8)
            await peer.speak(2, tone(4))
            await peer.say_goodbye()

    heard = asyncio.Event()
    async with connect(await endpoint(script)) as session:
        speech = session.speak(TEXT, on_loss="tell")
        got = []
        async for event in speech:
            got.append(event)
            if isinstance(event, Spoken) and isinstance(event.event, Audio):
                heard.set()
    lost = [event for event in got if isinstance(event, Lost)]
    assert [(e.sentence.text, e.audio_bytes) for e in lost] == [(THREE[0], 8)]
    assert isinstance(lost[0].error, SessionLost)
    assert sessions == 2


async def test_an_endpoint_that_is_gone_for_good(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.speak(1, tone(4), request_id="speech-1")
        serving.clear()
        await peer.connection.close()

    serving = {"yes"}

    def refuse(connection: Any, request: Any) -> Any:
        return None if serving else connection.respond(403, "no more")

    async with connect(await endpoint(script, process_request=refuse)) as session:
        speech = session.speak(TEXT, depth=1)
        with pytest.raises(SpeechIncomplete) as caught:
            await sentences(speech)
        assert isinstance(caught.value.__cause__, ConnectFailed)
        assert caught.value.unspoken == TEXT[len(THREE[0]) :]
        assert not caught.value.retryable


async def test_a_session_that_cannot_be_opened_anew(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.connection.close()

    url = await endpoint(script)
    session = Session(await open_websocket(url, connect_s=10, close_s=1))
    async with session:
        with pytest.raises(SpeechIncomplete) as caught:
            await session.speak(TEXT).read()
        assert isinstance(caught.value.__cause__, SessionLost)
        with pytest.raises(SessionLost):
            session.speak("x")


async def test_leaving_the_session_ends_its_speeches(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.start(1)
        await peer.audio(tone(4))
        message = await peer.next("cancel")
        await peer.send("cancelled", seq=1, request_id=message["request_id"], audio_bytes=8)
        await peer.send("cancel_done", seq=2, request_id=message["request_id"], count=1)
        await peer.next("close")
        await peer.send("session_closed", seq=3, reason="client_close", last_seq=3)
        await peer.gone()

    async def endless() -> AsyncIterator[str]:
        yield "One thing is here. And "
        await asyncio.Event().wait()

    async with connect(await endpoint(script)) as session:
        speech = session.speak(endless())
        await anext(speech)
    # Whoever reads it elsewhere does not take it for whole.
    with pytest.raises(SpeechIncomplete, match="was closed before its end"):
        await sentences(speech)
    with pytest.raises(SessionLost):
        session.speak("x")


# -- interruption


async def test_one_message_stops_all_of_a_speech(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        for _ in THREE:
            await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await peer.audio(tone(4, 2))
        for seq in (1, 2, 3):
            await peer.send(
                "cancelled", seq=seq, request_id=f"speech-{seq}", audio_bytes=16 * (seq == 1)
            )
        await peer.send("cancel_done", seq=4, count=3)
        assert (await peer.next("synthesize"))["text"] == "Yes?"
        await peer.speak(5, tone(9), request_id="speech-4")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        speech = session.speak(TEXT)
        audio = b""
        async for event in speech:
            if isinstance(event, Spoken) and isinstance(event.event, Audio):
                audio += event.event.data
                interruption = await speech.interrupt()
        assert audio == tone(4)
        assert interruption.unheard == TEXT[interruption.position :]
        assert not interruption.session_dropped
        assert await session.speak("Yes?").read() == tone(9)


async def test_a_gate_that_interrupts_stops_the_endpoint(endpoint: Serve) -> None:
    """It is cancelled by that itself, and the endpoint has to be told all the same."""
    speeches: list[Speech] = []

    async def gate(sentence: str) -> str:
        if sentence == THREE[2]:
            await heard.wait()
            await speeches[0].interrupt()
        return sentence

    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        for seq in (1, 2):
            await peer.send(
                "cancelled", seq=seq, request_id=f"speech-{seq}", audio_bytes=8 * (seq == 1)
            )
        await peer.send("cancel_done", seq=3, count=2)
        await peer.next("synthesize")
        await peer.speak(4, tone(9), request_id="speech-3")
        await peer.say_goodbye()

    heard = asyncio.Event()
    async with connect(await endpoint(script)) as session:
        speeches.append(session.speak(TEXT, approve=gate))
        async for event in speeches[0]:
            if isinstance(event, Spoken) and isinstance(event.event, Audio):
                heard.set()
        assert await session.speak("Yes?").read() == tone(9)
        assert speeches[0].interruption is not None
        assert not speeches[0].interruption.session_dropped


async def test_what_is_asked_for_right_after_an_interruption_is_spoken(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await peer.send("cancelled", seq=1, request_id="speech-1", audio_bytes=8)
        await peer.send("cancel_done", seq=2, count=1)
        await peer.next("synthesize")
        await peer.speak(3, tone(9), request_id="utterance-1")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        speech = session.speak(THREE[0])
        async for event in speech:
            if isinstance(event, Spoken) and isinstance(event.event, Audio):
                break
        assert isinstance(event, Spoken)
        stopping = asyncio.create_task(session.interrupt([event.utterance]))
        await asyncio.sleep(0)
        assert await session.synthesize("Yes?").read() == tone(9)
        assert await stopping


async def test_other_utterances_of_the_session_go_on(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.next("synthesize")
        message = await peer.next("cancel")
        assert message == {"type": "cancel", "request_id": "speech-1"}
        await peer.send("cancelled", seq=2, request_id="speech-1", audio_bytes=0)
        await peer.send("cancel_done", seq=3, request_id="speech-1", count=1)
        await peer.speak(1, tone(7), request_id="mine")
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        utterance = session.synthesize("x", request_id="mine")
        speech = session.speak("Only this.")
        first = asyncio.create_task(anext(speech))
        while not first.done() and session._conn.pending():  # noqa: ASYNC110
            await asyncio.sleep(0)
        await speech.interrupt()
        with pytest.raises(StopAsyncIteration):
            await first
        assert await utterance.read() == tone(7)


async def test_sentences_that_wait_for_the_endpoint_to_have_room(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("hello")
        offer = {
            "protocol_version": 1,
            "session_id": "s",
            "profiles": ["core", "negotiate", "interrupt"],
            "limits": {"max_waiting": 0},
            "voices": ["v"],
            "formats": ["pcm_s16le"],
            "sample_rates": [24000],
        }
        await peer.send("session", seq=1, **offer)
        message = await peer.next("synthesize")
        assert "marks" not in message  # it does not time words
        await peer.start(2)
        await peer.audio(tone(4))
        assert await peer.next() == {"type": "cancel"}
        await peer.send("cancelled", seq=2, request_id="speech-1", audio_bytes=8)
        await peer.send("cancel_done", seq=3, count=1)
        await peer.say_goodbye()

    async with connect(await endpoint(script), negotiate=True) as session:
        assert session.interruptible is True
        assert session.times_words is False
        speech = session.speak(TEXT)
        await anext(speech)
        await anext(speech)
        assert not (await speech.interrupt()).session_dropped


@pytest.mark.parametrize("how", ["claims-none", "refuses", "deaf", "old"])
async def test_an_endpoint_that_cannot_be_interrupted(endpoint: Serve, how: str) -> None:
    """The session is dropped, that is told, and the next speech opens another."""
    sessions = 0

    async def script(peer: Any) -> None:
        nonlocal sessions
        sessions += 1
        seq = None if how == "old" else 1
        await peer.next("synthesize")
        await peer.start(seq)
        await peer.audio(tone(4))
        if sessions == 2:
            await peer.complete(seq, 8)
        elif how == "refuses":
            await peer.next("cancel")
            await peer.error(2, "unknown_type", rejected=True)
        await peer.gone()

    url = await endpoint(script)
    known = False if how == "claims-none" else None
    async with connect(url, interrupt=known, deadlines=HASTY) as session:
        speech = session.speak("One thing is here.")
        await anext(speech)
        await anext(speech)
        assert (await speech.interrupt()).session_dropped
        assert session.closed
        assert await session.speak("Yes?").read() == tone(4)
    assert sessions == 2


async def test_an_interruption_of_a_session_that_is_gone(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.next("cancel")
        await peer.connection.close()

    async with connect(await endpoint(script)) as session:
        speech = session.speak("One thing is here.")
        await anext(speech)
        assert not (await speech.interrupt()).session_dropped
        utterance_given_up = session.closed
        assert utterance_given_up
        assert await session.interrupt([]) is True


async def test_a_cancel_of_the_session_ends_the_speech(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.next("cancel")
        await peer.send("cancelled", seq=1, request_id="speech-1", audio_bytes=0)
        await peer.send("cancel_done", seq=2, count=1)
        await peer.say_goodbye()

    async with connect(await endpoint(script)) as session:
        speech = session.speak("One thing is here.")
        await anext(speech)
        await session.cancel()
        with pytest.raises(SpeechIncomplete) as caught:
            await anext(speech)
        assert isinstance(caught.value.__cause__, UtteranceCancelled)


# -- the reference server


class Recording:
    """A transport that keeps what went over it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.log: list[str] = []

    async def send(self, message: str) -> None:
        self.log.append("cancel" if '"cancel"' in message else "request")
        await self._transport.send(message)

    async def receive(self) -> str | bytes:
        message: str | bytes = await self._transport.receive()
        if isinstance(message, bytes):
            self.log.append("audio")
        elif '"cancel_done"' in message:
            self.log.append("acknowledged")
        return message

    async def close(self) -> None:
        await self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 6


async def tokens(random: random.Random) -> AsyncIterator[str]:
    for word in LONG.split():
        yield word + " "
        if random.random() < 0.2:
            await asyncio.sleep(0)


class Moment:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
async def test_interrupting_a_hundred_times(reference: Any) -> None:
    server = await reference(0.01)
    chance = random.Random(6)
    transport = Recording(await open_websocket(server.url, connect_s=10, close_s=2))
    before = asyncio.all_tasks()
    cuts: set[str] = set()
    async with Session(transport) as session:
        session_tasks = asyncio.all_tasks() - before
        yes = await session.speak("Yes?").read()
        for _ in range(100):
            moment = Moment()
            player = Player(clock=moment)
            speech = session.speak(
                tokens(chance), player=player, depth=chance.randint(1, 4), max_unheard_s=1000
            )
            got: list[Any] = []
            enough = asyncio.Event()
            count = round(chance.choice((0, 2, 20, 200)) * chance.random())

            async def listen(
                speech: Speech = speech,
                got: list[Any] = got,
                enough: asyncio.Event = enough,
                count: int = count,
            ) -> None:
                async for event in speech:
                    got.append(event)
                    if len(got) == count:
                        enough.set()

            listener = asyncio.create_task(listen())
            if count:
                await enough.wait()
            for _ in range(chance.randint(0, 20)):
                await asyncio.sleep(0)
            moment.now = chance.random() * player.playback.enqueued_s
            interrupting = asyncio.create_task(speech.interrupt())
            await asyncio.sleep(0)
            assert player.queued_s == 0  # silent, whatever the endpoint says
            until_then = len(got)
            interruption = await interrupting
            await listener
            assert len(got) <= until_then + 1
            assert interruption.heard_s == pytest.approx(moment.now)
            assert server.service.scheduler.speaking == 0
            assert not interruption.session_dropped
            assert LONG.startswith(interruption.text + interruption.unheard)
            cuts.add(interruption.text)
            left = asyncio.all_tasks() - before - session_tasks
            assert not [task for task in left if "utterwire-speech" in task.get_name()]
            assert await session.speak("Yes?").read() == yes
        # After the acknowledgement, nothing came that had not been asked for since.
        place = 0
        while "acknowledged" in transport.log[place:]:
            place = transport.log.index("acknowledged", place) + 1
            following = [what for what in transport.log[place:] if what != "acknowledged"]
            assert following[0] == "request"
        assert transport.log.count("acknowledged") > 50
    assert len(cuts) > 10


async def test_what_was_heard_of_the_reference_server(reference: Any) -> None:
    server = await reference()

    moment = Moment()
    player = Player(clock=moment)
    async with connect(server.url) as session:
        speech = session.speak(TEXT, player=player, max_unheard_s=1000)
        assert len(await sentences(speech)) == 3
        first_s = 16 * 0.04 + 3 * 0.04  # letters and gaps of the tone engine
        moment.now = first_s + 3 * 0.04 + 0.04 + 6 * 0.04 + 0.01
        interruption = await speech.interrupt()
    assert interruption.precision == "word"
    assert interruption.text == "One thing is here. Two things"
    assert interruption.unheard == " are there. Three things are nowhere."


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_the_same_call_over_http(reference: Any, transport: Any) -> None:
    server = await reference(0.001)
    async with HttpBackend(server.url, transport=transport) as backend, connect(server.url) as same:
        assert await backend.speak(TEXT).read() == await same.speak(TEXT).read()
        for number in range(0, 10, 3):
            speech = backend.speak(LONG)
            for _ in range(number):
                await anext(speech)
            interruption = await speech.interrupt()
            assert not interruption.session_dropped
            assert LONG.startswith(interruption.text)
            async with asyncio.timeout(60):
                while server.service.scheduler.speaking:  # noqa: ASYNC110 - told by nothing
                    await asyncio.sleep(0.001)
            assert await backend.speak("Yes?").read()
        left = backend.speak(LONG)
        await anext(left)
    with pytest.raises(SpeechIncomplete, match="closed"):
        await backend.speak("x y z").read()


async def test_http_that_fails(reference: Any) -> None:
    server = await reference()
    async with HttpBackend(server.url) as backend:
        with pytest.raises(SpeechIncomplete) as caught:
            await backend.speak(TEXT, voice="nobody's").read()
        assert caught.value.text == THREE[0]
        assert isinstance(caught.value.__cause__, UtterwireError)
        # Half a character is left out.
        assert await backend.speak("\ud800 is no text").read()


async def test_http_audio_that_nobody_reads_holds_up_the_endpoint(reference: Any) -> None:
    server = await reference()
    async with HttpBackend(server.url) as backend:
        speech = backend.speak("word " * 300, chunker=Whole(), max_unheard_s=10000)
        await anext(speech)
        last = -1
        utterance = next(iter(backend._requests))
        while utterance.received_bytes != last:
            last = utterance.received_bytes
            await asyncio.sleep(0.02)
        assert last < 1.5 * 1024 * 1024
        assert len(await speech.read()) > last


async def test_a_request_that_fails_in_a_way_of_its_own() -> None:
    class Odd(RequestBackend):
        def check(self, request: Request) -> None:
            pass

        async def events(self, request: Request) -> AsyncGenerator[Event]:
            yield Start(sample_rate=1000, format="pcm_s16le", voice=None)
            yield Audio(bytes(2))
            raise ZeroDivisionError("odd")

    async with Odd() as backend:
        with pytest.raises(SessionLost, match=r"failed: ZeroDivisionError\('odd'\)") as told:
            await backend.synthesize("x").read()
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert told.value.audio_bytes == 2


class Whole:
    """Cuts nothing."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, fragment: str) -> list[str]:
        self._text += fragment
        return []

    def flush(self) -> list[str]:
        return [self._text]


async def test_a_transport_is_opened_anew_for_any_session(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        message = await peer.next()
        await peer.speak(1, tone(4), request_id=message["request_id"])
        await peer.connection.close()

    url = await endpoint(script)
    opened = 0

    async def reopen() -> Any:
        nonlocal opened
        opened += 1
        if opened == 1:
            raise ConnectFailed("busy", retryable=True, retry_after_s=0.001)
        return await open_websocket(url, connect_s=10, close_s=1)

    first = await open_websocket(url, connect_s=10, close_s=1)
    async with Session(first, reopen=reopen) as session:
        assert len(await sentences(session.speak(TEXT, depth=1))) == 3
    assert opened == 3
