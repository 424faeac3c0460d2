"""Speech for LiveKit Agents: an endpoint as a ``tts.TTS`` (extra ``livekit``)."""

import asyncio
import weakref
from collections.abc import AsyncIterator

from livekit.agents import APIError, APITimeoutError, tts, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions, TimedString

from utterwire_client.errors import UtterwireError
from utterwire_client.events import Audio, Complete, Marks, Start
from utterwire_client.sentence import Spoken
from utterwire_client.shared_session import Opener, SharedSession
from utterwire_client.speech import Speech, SpeechOptions, Text

__all__ = ["TTS"]


class TTS(tts.TTS):
    """Speaks in one session, which is opened when it is first needed and lasts until ``aclose``.

    ``endpoint`` is an address, or what opens a session or another backend, as in
    ``lambda: connect(url, headers=...)``. By ``times_words`` LiveKit gets the text word by word
    (profile ``timing``). When a stream's ``aclose`` returns, the endpoint has stopped.
    """

    def __init__(
        self,
        endpoint: Opener,
        *,
        voice: str | None = None,
        speed: float | None = None,
        sample_rate: int = 24_000,
        times_words: bool = False,
    ) -> None:
        capabilities = tts.TTSCapabilities(streaming=True, aligned_transcript=times_words)
        super().__init__(capabilities=capabilities, sample_rate=sample_rate, num_channels=1)
        self._session = SharedSession(endpoint)
        self._options = SpeechOptions(
            voice=voice, speed=speed, sample_rate=sample_rate, marks=times_words
        )
        self._streams = weakref.WeakSet[_Stream]()

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.SynthesizeStream:
        self._streams.add(stream := _Stream(tts=self, conn_options=conn_options))
        return stream

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in self._streams))
        await self._session.aclose()

    async def speak(self, text: Text, timeout_s: float) -> Speech:
        """Begin to speak. Raises ``TimeoutError`` if the endpoint is not reached in time."""
        async with asyncio.timeout(timeout_s):
            session = await self._session.get()
        return session.speak(text, **self._options)


class _Stream(tts.SynthesizeStream):
    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        rate, ident = self._tts.sample_rate, utils.shortuuid()
        output_emitter.initialize(
            request_id=ident, sample_rate=rate, num_channels=1, mime_type="audio/pcm", stream=True
        )
        output_emitter.start_segment(segment_id=ident)
        try:
            speech = await self._tts.speak(self._fragments(), self._conn_options.timeout)
            try:
                await self._emit(speech, output_emitter, rate)
            finally:
                await speech.interrupt()
        except UtterwireError as exc:
            raise APIError(str(exc), retryable=exc.retryable) from exc
        except TimeoutError:
            raise APITimeoutError from None

    async def _fragments(self) -> AsyncIterator[str]:
        async for fragment in self._input_ch:
            if not isinstance(fragment, str):
                return  # the segment's end; LiveKit lets a stream have one
            self._mark_started()
            yield fragment

    async def _emit(self, speech: Speech, emitter: tts.AudioEmitter, rate: int) -> None:
        sent, place, begins_s = 0, 0, 0.0  # bytes of audio; of the sentence, code points told, time
        async for event in speech:
            match event:
                case Spoken(event=Start(hertz, form)) if (hertz, form) != (rate, "pcm_s16le"):
                    raise APIError(f"the endpoint sends {form} at {hertz} Hz", retryable=False)
                case Spoken(event=Start()):
                    place, begins_s = 0, sent / (2 * rate)
                case Spoken(sentence, _, Marks(words)):
                    for word in words:
                        end = max(place, word.char_end)
                        part, place = (sentence.spoken or "")[place:end], end
                        times = begins_s + word.start_s, begins_s + word.end_s
                        emitter.push_timed_transcript(TimedString(part, *times))
                case Spoken(event=Audio(data)):
                    sent += len(data)
                    emitter.push(data)
                case Spoken(sentence, _, Complete()) if self._tts.capabilities.aligned_transcript:
                    rest, end_s = (sentence.spoken or "")[place:] + " ", sent / (2 * rate)
                    emitter.push_timed_transcript(TimedString(rest, end_s, end_s))
        if not sent:
            # No audio is a failure to LiveKit; here there was nothing to say.
            emitter.push(bytes(2 * (rate // 100)))
