"""Speech for Pipecat: an endpoint as a ``TTSService`` (extra ``pipecat``)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from pipecat.frames.frames import Frame, InterruptionFrame, TTSAudioRawFrame
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService

from utterwire_client.events import Audio, Marks, Start
from utterwire_client.sentence import Lost, Spoken
from utterwire_client.shared_session import Opener, SharedSession
from utterwire_client.speech import SpeechOptions

__all__ = ["UtterwireTTSService"]


class _Tokens(asyncio.Queue[str | None]):  # of one audio context; None ends them
    over = False

    async def fragments(self) -> AsyncIterator[str]:
        while not self.over and (token := await self.get()) is not None:
            yield token
        self.over = True


class UtterwireTTSService(TTSService):
    """Speaks in one session, which is opened when it is first needed.

    ``endpoint`` is an address, or what opens a session or another backend, as in
    ``lambda: connect(url, headers=...)``. By ``times_words`` Pipecat gets the text word by word
    (profile ``timing``). ``options`` are those of ``TTSService``.
    """

    def __init__(
        self,
        endpoint: Opener,
        *,
        voice: str | None = None,
        speed: float | None = None,
        sample_rate: int | None = None,
        times_words: bool = False,
        **options: Any,
    ) -> None:
        settings = TTSSettings(model=None, voice=voice, language=None)
        defaults = {
            "text_aggregation_mode": TextAggregationMode.TOKEN,
            "push_start_frame": True,
            "push_text_frames": not times_words,
            "push_stop_frames": True,
            "stop_frame_timeout_s": 60.0,  # contexts are ended here, when all was said
            "max_consecutive_zero_audio_contexts": 0,  # an emoji has no sound; failures are told
        }
        super().__init__(sample_rate=sample_rate, settings=settings, **(defaults | options))
        self._session = SharedSession(endpoint)
        self._options = SpeechOptions(
            speed=speed, sample_rate=sample_rate, marks=times_words, on_loss="tell"
        )
        self._turns: dict[str, tuple[_Tokens, asyncio.Task[None]]] = {}

    def can_generate_metrics(self) -> bool:
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        if context_id not in self._turns:
            tokens, voice = _Tokens(1024), self._settings.voice
            speaking = self._play(context_id, tokens, {**self._options, "voice": voice})
            self._turns[context_id] = tokens, self.create_task(speaking)
        await self._turns[context_id][0].put(text)
        yield None

    async def on_turn_context_completed(self) -> None:
        if self._turn_context_id in self._turns:
            await self._turns[self._turn_context_id][0].put(None)
        await super().on_turn_context_completed()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            await self._end_turns([c for c in self._turns if not self.audio_context_available(c)])

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._end_turns(list(self._turns))
        await self._session.aclose()

    async def _end_turns(self, contexts: list[str]) -> None:
        for _, task in [self._turns.pop(context_id) for context_id in contexts]:
            await self.cancel_task(task, timeout=None)

    async def _play(self, context_id: str, tokens: _Tokens, options: SpeechOptions) -> None:
        rate, sent_s, begins_s = self.sample_rate, 0.0, 0.0
        try:
            speech = (await self._session.get()).speak(tokens.fragments(), **options)
            try:
                async for event in speech:
                    match event:
                        case Lost(_, error):
                            await self.push_error(str(error), exception=error)
                        case Spoken(event=Start(sample_rate=rate)):
                            begins_s = sent_s
                        case Spoken(event=Marks(words)):
                            times = [(word.text, begins_s + word.start_s) for word in words]
                            await self.add_word_timestamps(times, context_id)
                        case Spoken(event=Audio(data)):
                            sent_s += len(data) / (2 * rate)
                            frame = TTSAudioRawFrame(data, rate, 1, context_id=context_id)
                            await self.append_to_audio_context(context_id, frame)
            finally:
                await speech.interrupt()
        except Exception as exc:  # of the program's own opener too: it is told, and the turn ends
            await self.push_error(str(exc), exception=exc)
            async for _ in tokens.fragments():
                pass  # of this turn nothing more can be said
        self._turns.pop(context_id, None)
        await self.remove_audio_context(context_id)
