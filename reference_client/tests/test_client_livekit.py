"""The plugin for LiveKit Agents, with the real package and the reference server."""

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from utterwire_client import connect

if not TYPE_CHECKING:
    pytest.importorskip("livekit.agents", reason="the extra `livekit` is not installed")

from livekit import rtc
from livekit.agents import Agent, AgentSession, APIConnectOptions, APIError, APITimeoutError, tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.voice import io
from utterwire_client.http import HttpBackend
from utterwire_client.livekit import TTS

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("uvicorn") is None, reason="the extra `server` is not installed"
    ),
    pytest.mark.usefixtures("no_leftover_tasks"),
]

TEXT = "Good morning. How are you today? The weather is fine."
SENTENCES = ("Good morning.", "How are you today?", "The weather is fine.")
ONCE = APIConnectOptions(max_retry=0)


@pytest.fixture(scope="module")
def server(reference_program: Callable[[float], str]) -> str:
    """A reference server that needs a tenth of the time of what it speaks."""
    return reference_program(0.1)


async def expected(server: str, *sentences: str, **fields: Any) -> bytes:
    async with connect(server) as session:
        return b"".join([await session.synthesize(text, **fields).read() for text in sentences])


async def heard(stream: tts.SynthesizeStream | tts.ChunkedStream) -> bytes:
    return b"".join([event.frame.data.tobytes() async for event in stream])


async def test_a_token_stream(server: str) -> None:
    async with TTS(server, voice="bass", speed=1.5) as speaker:
        for _ in range(2):  # in one session
            async with speaker.stream() as stream:
                for at in range(0, len(TEXT), 3):
                    stream.push_text(TEXT[at : at + 3])
                stream.end_input()
                spoken = await heard(stream)
            assert spoken == await expected(server, *SENTENCES, voice="bass", speed=1.5)


async def test_a_sentence_is_heard_before_the_text_has_ended(server: str) -> None:
    async with TTS(server) as speaker, speaker.stream() as stream:
        stream.push_text("Good morning. How")
        first = await anext(aiter(stream))
        assert first.frame.duration > 0
        stream.push_text(" are you?")
        stream.end_input()
        rest = await heard(stream)
        spoken = first.frame.data.tobytes() + rest
    assert spoken == await expected(server, "Good morning.", "How are you?")


async def test_words_come_with_times(server: str) -> None:
    async with TTS(server, times_words=True) as speaker, speaker.stream() as stream:
        assert speaker.capabilities.aligned_transcript
        stream.push_text(TEXT)
        stream.end_input()
        words = [
            word
            async for event in stream
            for word in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, ())
        ]
    assert "".join(words).split() == TEXT.split()
    assert len(words) == len(TEXT.split()) + len(SENTENCES)
    starts = [float(word.start_time) for word in words]
    assert starts == sorted(starts)
    # The second sentence begins where the audio of the first ends.
    first = len(await expected(server, SENTENCES[0])) / 48000
    assert words[3].lstrip() == "How"
    assert words[3].start_time == pytest.approx(first, abs=0.001)


async def test_words_out_of_order_are_told_once(endpoint: Any) -> None:
    async def script(peer: Any) -> None:
        asked = await peer.next()
        await peer.start(1, request_id=asked["request_id"])
        for begin, end in ((0, 3), (4, 12), (0, 3)):
            word = {"text": "x", "start_s": 0.0, "end_s": 0.1, "char_start": begin, "char_end": end}
            await peer.send("marks", seq=1, words=[word])
        await peer.audio(bytes(4800))
        await peer.complete(1, 4800, request_id=asked["request_id"])
        await peer.gone()

    url = await endpoint(script)
    async with TTS(url, times_words=True) as speaker, speaker.stream() as stream:
        stream.push_text("One sentence.")
        stream.end_input()
        words = [
            word
            async for event in stream
            for word in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, ())
        ]
    assert "".join(words).strip() == "One sentence."


@pytest.mark.parametrize("text", ["One sentence.", "..."])
async def test_a_text_that_is_whole(server: str, text: str) -> None:
    async with TTS(server) as speaker:
        frame = await speaker.synthesize(text, conn_options=ONCE).collect()
    wanted = await expected(server, text)
    # LiveKit closes a stream with 10 ms of silence where it has nothing left to send.
    assert frame.data.tobytes().rstrip(b"\0") == wanted.rstrip(b"\0")


async def test_another_backend(server: str) -> None:
    async with TTS(lambda: HttpBackend(server), sample_rate=16000) as speaker:
        frame = await speaker.synthesize("One sentence.", conn_options=ONCE).collect()
    assert frame.sample_rate == 16000
    wanted = await expected(server, "One sentence.", sample_rate=16000)
    assert frame.data.tobytes().rstrip(b"\0") == wanted.rstrip(b"\0")


async def test_closing_a_stream_stops_the_endpoint(endpoint: Any) -> None:
    stopped = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(bytes(48000))
        await peer.next("cancel")
        await peer.send("cancelled", seq=1, audio_bytes=48000)
        stopped.set()
        count = 1
        while peer.received[-1].get("type") == "cancel":
            await peer.send("cancel_done", seq=len(peer.received), count=count)
            count = 0
            await peer.next()
        await peer.speak(len(peer.received), b"\1\0" * 24000)
        await peer.say_goodbye()

    async with TTS(await endpoint(script)) as speaker:
        async with speaker.stream() as stream:
            stream.push_text("A long story. And")
            await anext(aiter(stream))
        assert stopped.is_set()
        frame = await speaker.synthesize("Yes?", conn_options=ONCE).collect()
        assert frame.data.tobytes().rstrip(b"\0") + b"\0" == b"\1\0" * 24000


async def test_closing_the_plugin_stops_its_streams(server: str) -> None:
    speaker = TTS(server)
    stream = speaker.stream()
    stream.push_text(TEXT * 20)
    await anext(aiter(stream))
    await speaker.aclose()
    await stream.aclose()


async def test_a_request_that_is_refused(server: str) -> None:
    async with TTS(server, voice="nobody's") as speaker:
        with pytest.raises(APIError, match="invalid_voice") as caught:
            await speaker.synthesize("Hello.").collect()
    assert not caught.value.retryable


async def test_audio_of_another_rate(endpoint: Any) -> None:
    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1, sample_rate=8000)
        await peer.next("cancel")
        await peer.send("cancelled", seq=1, audio_bytes=0)
        await peer.send("cancel_done", seq=2, count=1)
        await peer.say_goodbye()

    async with TTS(await endpoint(script)) as speaker:
        with pytest.raises(APIError, match="pcm_s16le at 8000 Hz"):
            await speaker.synthesize("Hello.").collect()


async def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        speaker = TTS(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        options = APIConnectOptions(max_retry=0, timeout=0.1)
        with pytest.raises(APITimeoutError):
            await speaker.synthesize("Hello.", conn_options=options).collect()
        await speaker.aclose()


async def test_nobody_is_there(closed_port: int) -> None:
    async with TTS(f"ws://127.0.0.1:{closed_port}") as speaker:
        with pytest.raises(APIError, match="nothing listens") as caught:
            await speaker.synthesize("Hello.", conn_options=ONCE).collect()
    assert caught.value.retryable


class Speaker(io.AudioOutput):
    """Where a LiveKit session plays, faster than sound."""

    def __init__(self) -> None:
        super().__init__(
            label="test", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=24000
        )
        self.audio = b""
        self.playing = asyncio.Event()
        self.held = False

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.audio += frame.data.tobytes()
        if not self.playing.is_set():
            self.playing.set()
            self.on_playback_started(created_at=0.0)

    def flush(self) -> None:
        super().flush()
        if not self.held:
            self._finish(interrupted=False)

    def clear_buffer(self) -> None:
        self._finish(interrupted=True)

    def _finish(self, *, interrupted: bool) -> None:
        self.playing.clear()
        position = len(self.audio) / 48000
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


@pytest.fixture
async def session(server: str) -> AsyncIterator[tuple[AgentSession[None], Speaker]]:
    speaker = Speaker()
    async with TTS(server) as voice, AgentSession[None](tts=voice) as session:
        session.output.audio = speaker
        await session.start(Agent(instructions=""), record=False)
        yield session, speaker


async def test_an_agent_speaks(session: tuple[AgentSession[None], Speaker], server: str) -> None:
    agent, speaker = session

    async def tokens() -> AsyncIterator[str]:
        for word in TEXT.split():
            yield word + " "

    await agent.say(tokens())
    assert speaker.audio.rstrip(b"\0") == (await expected(server, *SENTENCES)).rstrip(b"\0")


async def test_an_agent_is_interrupted(
    session: tuple[AgentSession[None], Speaker], server: str
) -> None:
    agent, speaker = session
    speaker.held = True
    handle = agent.say(TEXT * 50)
    await speaker.playing.wait()
    await agent.interrupt()
    await handle
    assert handle.interrupted
    assert len(speaker.audio) < len(await expected(server, *SENTENCES)) * 25
    speaker.held, speaker.audio = False, b""
    await agent.say("Yes?")
    assert speaker.audio.rstrip(b"\0") == (await expected(server, "Yes?")).rstrip(b"\0")
