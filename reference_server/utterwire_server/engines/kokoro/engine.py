"""Kokoro as an engine: voices, workers and threads around a model that blocks."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from utterwire_server.engines.engine import Block, Engine, EngineError, SpeechRequest
from utterwire_server.engines.kokoro.acoustics import SAMPLE_RATE, Acoustics
from utterwire_server.engines.kokoro.calibration import (
    SENTENCES,
    Calibration,
    Uncalibrated,
    measured,
)
from utterwire_server.engines.kokoro.speech import STREAMING, Streaming, Utterance
from utterwire_server.engines.kokoro.statistics import Statistics, StatisticsStore, cache_folder
from utterwire_server.logs import log_event
from utterwire_server.text.segment import Segment

if TYPE_CHECKING:
    from utterwire_server.model.folder import ModelFolder

__all__ = ["DEFAULT_STREAMING", "DEFAULT_VOICE", "KokoroEngine", "TextFrontEnd", "streaming_of"]

DEFAULT_VOICE: Final = "af_heart"
DEFAULT_STREAMING: Final[Streaming] = "sentence"


_T = TypeVar("_T")


class TextFrontEnd(Protocol):
    """What is asked of a front end: `utterwire_server.text.FrontEnd` is one."""

    def languages(self) -> Mapping[str, str | None]:
        """Each language, by the first letter of its voices; None, or why it cannot be spoken."""

    def warm_up(self, language: str) -> None:
        """Load what ``language`` needs."""

    def segments(self, text: str, language: str) -> Iterator[Segment]:
        """``text``, one segment after the other, each worked out when it is asked for."""


def streaming_of(name: str) -> Streaming:
    """The way of streaming called ``name``.

    :raises ValueError: if there is none.
    """
    for streaming in STREAMING:
        if streaming == name:
            return streaming
    raise ValueError(f"no streaming {name!r}; choose {' or '.join(STREAMING)}")


class KokoroEngine(Engine):
    """Kokoro-82M with whatever computes it: `OnnxAcoustics` or another `Acoustics`.

    Making one loads nothing; `start` does. A voice is offered if its language can be spoken here;
    ``refused`` tells why the others are not.

    With ``streaming`` "window", a voice without stored statistics is spoken by the sentence until
    they have been measured on the side; those of the default voice are measured at the start.

    :param folder: where the model lies.
    :param name: that of the engine; statistics are stored under it.
    :param weights: the file in the folder that statistics depend on.
    :param make_acoustics: loads the model, once for each worker; called in a thread.
    :param make_spare_acoustics: loads it once more for measuring voices, to be slow and cheap.
    :param front_end: that of the folder's vocabulary, if there is one already.
    :param workers: how many blocks are made at once.
    :raises ValueError: if no voice can be offered, or a parameter cannot be; in one line.
    """

    times_words = True

    def __init__(
        self,
        folder: ModelFolder,
        *,
        name: str,
        weights: str,
        make_acoustics: Callable[[], Acoustics],
        make_spare_acoustics: Callable[[], Acoustics] | None = None,
        front_end: TextFrontEnd | None = None,
        streaming: Streaming = DEFAULT_STREAMING,
        workers: int = 1,
    ) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers; there must be 1 or more")
        self.name = name
        self.concurrency = workers
        self.streaming = streaming_of(streaming)
        self._folder = folder
        self._weights = folder.file(weights)
        self._make_acoustics = make_acoustics
        self._vocabulary = folder.vocabulary
        if front_end is None:
            from utterwire_server.text import FrontEnd

            front_end = FrontEnd(self._vocabulary)
        self._front_end = front_end
        self._voices, self.refused = _offer(folder, front_end.languages())
        self._store = StatisticsStore(
            [
                folder.path / "statistics" / name,
                cache_folder(os.environ) / "statistics" / name,
            ]
        )
        self._statistics: dict[str, Statistics] = {}
        self._calibration = Calibration(
            make_spare_acoustics or make_acoustics,
            self._vocabulary,
            self._store,
            self._statistics.__setitem__,
        )
        self._known: dict[str, Uncalibrated] = {}
        self._digest = b""
        self._threads: ThreadPoolExecutor | None = None
        self._free: asyncio.Queue[Acoustics] = asyncio.Queue()

    @property
    def voices(self) -> tuple[str, ...]:
        return self._voices

    @property
    def sample_rates(self) -> tuple[int, ...]:
        return (SAMPLE_RATE,)

    async def start(self) -> None:
        """Load the model, and speak once with each worker, so that no client is the first.

        :raises EngineError: if the model or the front end cannot be loaded.
        """
        for reason in sorted(set(self.refused.values())):
            voices = [voice for voice, why in self.refused.items() if why == reason]
            log_event("voices_refused", reason=reason, voices=voices)
        self._threads = ThreadPoolExecutor(self.concurrency, f"{self.name}-worker")
        await self._in_thread(self._load_front_end)
        every = [self._in_thread(self._load_acoustics) for _ in range(self.concurrency)]
        for acoustics in await asyncio.gather(*every):
            self._free.put_nowait(acoustics)

    async def calibrated(self) -> None:
        """Return when no voice is being measured."""
        await self._calibration.finished()

    async def stop(self) -> None:
        await self._calibration.stop()
        if self._threads is not None:
            # No stream is open any more: its threads have nothing to do.
            self._threads.shutdown(wait=False)
        while not self._free.empty():
            self._free.get_nowait()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        try:
            voice = await self._in_thread(partial(self._voice, request.voice))
        except (OSError, ValueError) as error:
            raise EngineError(f"the voice {request.voice!r} cannot be loaded: {error}") from error
        utterance = self._utterance(request, voice)
        while (block := await self._next_block(utterance)) is not None:
            yield block

    async def _next_block(self, utterance: Utterance) -> Block | None:
        acoustics = await self._free.get()

        def give_up() -> None:
            utterance.give_up()
            acoustics.interrupt()

        try:
            return await self._in_thread(partial(utterance.next_block, acoustics), give_up)
        finally:
            self._free.put_nowait(acoustics)

    async def _in_thread(
        self, work: Callable[[], _T], give_up: Callable[[], None] = lambda: None
    ) -> _T:
        """What ``work`` gives; cancelled, it is waited for after ``give_up`` was called."""
        if self._threads is None:
            raise EngineError("the engine was not started")
        future = asyncio.wrap_future(self._threads.submit(work))
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            give_up()
            while not future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({future})
            future.exception()
            raise
        return future.result()

    def _load_front_end(self) -> None:
        try:
            for language in dict.fromkeys(voice[0] for voice in self.voices):
                self._front_end.warm_up(language)
        except Exception as error:
            raise EngineError(f"{self.name} cannot read text: {error}") from error

    def _load_acoustics(self) -> Acoustics:
        acoustics = self._make_acoustics()
        voice = self._voice(self.voices[0])
        if self.streaming == "window" and voice.name not in self._statistics:
            made = measured(acoustics, self._vocabulary, voice.styles)
            self._store.save(voice.name, voice.fingerprint, made)
            self._statistics[voice.name] = made
        phonemes = "".join(phoneme for phoneme in SENTENCES[0] if phoneme in self._vocabulary)
        utterance = Utterance(
            "",
            [Segment(phonemes, (), 0, 0)],
            vocabulary=self._vocabulary,
            styles=voice.styles,
            speed=1.0,
            statistics=self._statistics.get(voice.name),
        )
        while utterance.next_block(acoustics) is not None:
            pass
        return acoustics

    def _voice(self, name: str) -> Uncalibrated:
        if (known := self._known.get(name)) is not None:
            return known
        styles = self._folder.styles(name)
        if not self._digest:
            with self._weights.open("rb") as file:
                self._digest = hashlib.file_digest(file, "sha256").digest()
        fingerprint = hashlib.sha256(self._digest + styles.tobytes()).hexdigest()
        voice = Uncalibrated(name, styles, fingerprint)
        if self.streaming == "window":
            stored = self._store.load(name, fingerprint)
            if stored is not None:
                self._statistics[name] = stored
        self._known[name] = voice
        return voice

    def _utterance(self, request: SpeechRequest, voice: Uncalibrated) -> Utterance:
        statistics = self._statistics.get(voice.name)
        if self.streaming == "window" and statistics is None:
            self._calibration.want(voice)
        return Utterance(
            request.text,
            self._front_end.segments(request.text, voice.name[0]),
            vocabulary=self._vocabulary,
            styles=voice.styles,
            speed=request.speed,
            statistics=statistics,
        )


def _offer(
    folder: ModelFolder, languages: Mapping[str, str | None]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The voices to offer, the default first; and why the others are not."""
    refused = {
        voice: languages.get(voice[0]) or f"there is no language {voice[0]!r}"
        for voice in folder.voices
        if languages.get(voice[0], "") is not None
    }
    offered = [voice for voice in folder.voices if voice not in refused]
    if not offered:
        why = "; ".join(sorted(set(refused.values()))) or f"there are none in {folder.path}"
        raise ValueError(f"no voice of Kokoro can speak here: {why}")
    return tuple(sorted(offered, key=lambda voice: (voice != DEFAULT_VOICE, voice))), refused
