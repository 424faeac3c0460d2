"""The plugin for Pipecat, with the real package and the reference server."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from utterwire_client import connect

if not TYPE_CHECKING:
    pytest.importorskip("pipecat", reason="the extra `pipecat` is not installed")

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import TTSSettings
from pipecat.tests.utils import run_test
from pipecat.workers.runner import WorkerRunner
from utterwire_client.pipecat import UtterwireTTSService

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("uvicorn") is None, reason="the extra `server` is not installed"
    ),
    pytest.mark.usefixtures("no_leftover_tasks"),
]

TEXT = "Good morning. How are you today? The weather is fine."
SENTENCES = ("Good morning.", "How are you today?", "The weather is fine.")


@pytest.fixture(scope="module")
def server(reference_program: Callable[[float], str]) -> str:
    """A reference server that needs a tenth of the time of what it speaks."""
    return reference_program(0.1)


async def expected(server: str, *sentences: str, **fields: Any) -> bytes:
    async with connect(server) as session:
        return b"".join([await session.synthesize(text, **fields).read() for text in sentences])


def turn(text: str, size: int = 3) -> list[Frame]:
    """What a language model sends down a pipeline."""
    tokens = [LLMTextFrame(text[at : at + size]) for at in range(0, len(text), size)]
    return [LLMFullResponseStartFrame(), *tokens, LLMFullResponseEndFrame()]


def heard(frames: Sequence[Frame]) -> bytes:
    return b"".join(frame.audio for frame in frames if isinstance(frame, TTSAudioRawFrame))


async def spoken(service: UtterwireTTSService, frames: list[Frame]) -> Sequence[Frame]:
    down: Sequence[Frame]
    down, up = await run_test(service, frames_to_send=frames, start_timeout=20)
    assert not [frame for frame in up if isinstance(frame, ErrorFrame)]
    return down


async def test_turns_are_spoken(server: str) -> None:
    service = UtterwireTTSService(server, voice="bass", speed=1.5)
    louder = TTSUpdateSettingsFrame(delta=TTSSettings(voice="alto"))
    down = await spoken(service, [*turn(TEXT), TTSSpeakFrame("One moment."), louder, *turn("Yes.")])
    ends = [i for i, frame in enumerate(down) if isinstance(frame, TTSStoppedFrame)]
    assert len(ends) == len([frame for frame in down if isinstance(frame, TTSStartedFrame)]) == 3
    first, second, third = down[: ends[0]], down[ends[0] : ends[1]], down[ends[1] : ends[2]]
    assert heard(first) == await expected(server, *SENTENCES, voice="bass", speed=1.5)
    assert heard(second) == await expected(server, "One moment.", voice="bass", speed=1.5)
    assert heard(third) == await expected(server, "Yes.", voice="alto", speed=1.5)
    texts = [frame.text for frame in first if isinstance(frame, TTSTextFrame)]
    assert "".join(texts) == TEXT


async def test_words_come_with_times(server: str) -> None:
    down = await spoken(UtterwireTTSService(server, times_words=True), turn(TEXT))
    assert heard(down) == await expected(server, *SENTENCES)
    words = [frame for frame in down if isinstance(frame, TTSTextFrame)]
    # What the history of the conversation gets is the text as it was.
    assert " ".join((word.raw_text or "").strip() for word in words) == TEXT
    times = [word.pts for word in words]
    assert times == sorted(times)
    between = (times[2] - times[0]) / 1e9
    first = len(await expected(server, SENTENCES[0])) / 48000
    assert between == pytest.approx(first, abs=0.001)


async def test_another_rate(server: str) -> None:
    down = await spoken(UtterwireTTSService(server, sample_rate=16000), turn("Yes."))
    rates = {frame.sample_rate for frame in down if isinstance(frame, TTSAudioRawFrame)}
    assert rates == {16000}
    assert heard(down) == await expected(server, "Yes.", sample_rate=16000)


async def test_a_request_that_is_refused(server: str) -> None:
    service = UtterwireTTSService(server, voice="nobody's")
    frames = [*turn(TEXT), TTSUpdateSettingsFrame(delta=TTSSettings(voice="alto")), *turn("Yes.")]
    down, up = await run_test(service, frames_to_send=frames, start_timeout=20)
    told = [frame.error for frame in up if isinstance(frame, ErrorFrame)]
    assert len([text for text in told if "invalid_voice" in text]) == len(SENTENCES)
    assert heard(down) == await expected(server, "Yes.", voice="alto")


async def test_an_opener_that_fails_by_itself() -> None:
    def opener() -> Any:
        raise KeyError("TTS_TOKEN")

    down, up = await run_test(
        UtterwireTTSService(opener), frames_to_send=turn(TEXT), start_timeout=20
    )
    told = [frame.error for frame in up if isinstance(frame, ErrorFrame)]
    assert [text for text in told if "TTS_TOKEN" in text]
    assert heard(down) == b""


async def test_nobody_is_there(closed_port: int) -> None:
    service = UtterwireTTSService(f"ws://127.0.0.1:{closed_port}")
    down, up = await run_test(service, frames_to_send=turn(TEXT), start_timeout=20)
    told = [frame.error for frame in up if isinstance(frame, ErrorFrame)]
    assert "nothing listens" in told[0]
    assert len([text for text in told if "nothing listens" in text]) == 1
    assert heard(down) == b""


class Ears(FrameProcessor):
    """The end of a pipeline: what came, and when something comes that is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = asyncio.Queue[Frame]()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.frames.put(frame)
        await self.push_frame(frame, direction)

    async def until(self, kind: type[Frame]) -> list[Frame]:
        """All frames up to the first of a kind."""
        frames = [await self.frames.get()]
        async with asyncio.timeout(30):
            while not isinstance(frames[-1], kind):
                frames.append(await self.frames.get())
        return frames


@asynccontextmanager
async def pipeline(service: UtterwireTTSService) -> AsyncIterator[tuple[PipelineWorker, Ears]]:
    ears = Ears()
    worker = PipelineWorker(Pipeline([service, ears]), cancel_on_idle_timeout=False)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        await ears.until(StartFrame)
        yield worker, ears
    finally:
        await worker.queue_frame(EndFrame())
        await running


async def test_a_sentence_is_heard_before_the_text_has_ended(server: str) -> None:
    async with pipeline(UtterwireTTSService(server)) as (worker, ears):
        first, *rest = turn(TEXT, size=len("Good morning. How"))
        await worker.queue_frames([first, rest[0]])
        frames = await ears.until(TTSAudioRawFrame)
        await worker.queue_frames(rest[1:])
        frames += await ears.until(TTSStoppedFrame)
    assert heard(frames) == await expected(server, *SENTENCES)


@pytest.mark.parametrize("ended", [True, False])
async def test_an_interruption_stops_the_endpoint(endpoint: Any, ended: bool) -> None:
    stopped = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(bytes(48000))
        await peer.next("cancel")
        await peer.send("cancelled", seq=1, audio_bytes=48000)
        count = 1
        while peer.received[-1].get("type") == "cancel":
            await peer.send("cancel_done", seq=len(peer.received), count=count)
            count = 0
            stopped.set()
            await peer.next()
        await peer.speak(len(peer.received), b"\1\0" * 24000)
        await peer.say_goodbye()

    async with pipeline(UtterwireTTSService(await endpoint(script))) as (worker, ears):
        frames = turn("A long story" + "." * ended)
        await worker.queue_frames(frames if ended else [*frames[:-1], LLMTextFrame(". And")])
        await ears.until(TTSAudioRawFrame)
        await worker.queue_frame(InterruptionFrame())
        await ears.until(InterruptionFrame)
        async with asyncio.timeout(30):
            await stopped.wait()
        await worker.queue_frames(turn("Yes?"))
        again = await ears.until(TTSStoppedFrame)
    assert heard(again) == b"\1\0" * 24000
