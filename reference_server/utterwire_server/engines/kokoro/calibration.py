"""Measuring the statistics of a voice: on a few sentences, beside the speech."""

# ruff: noqa: RUF001 - phonemes look like letters

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from utterwire_server.engines.kokoro.acoustics import Acoustics, Interrupted, Styles, tokens_of
from utterwire_server.engines.kokoro.statistics import Statistics, StatisticsStore, pooled
from utterwire_server.logs import log_event, whereabouts

__all__ = ["SENTENCES", "Calibration", "Uncalibrated", "measured"]

#: What every voice is measured on, in some 20 seconds of speech: a question, clauses, and all
#: vowels and consonants of English. Statistics belong to a voice more than to what it says.
SENTENCES: Final[tuple[str, ...]] = (
    "wi wˈɔkt əlˈɔŋ ðə ɹˈɪvəɹ əntˈɪl ði ˈivnɪŋ lˈIts kˈAm ˈɔn, ænd nˈObˌɑdi wˈɔntᵻd tə ɡˈO hˈOm.",
    "kˈʊd ju tˈɛl mi wˌɪʧ tɹˈAn lˈivz fˈɜɹst, ɔɹ ɪz ɪt ɔlɹˈɛdi tˈu lˈAt?",
    "ɐ smˈɔl bˈY wɪð ɐ blˈu ʤˈækɪt θɹˈu fˈIv smˈuð stˈOnz əkɹˈɔs ðə kwˈIət pˈɑnd.",
    "ðə ʤˈʌʤ θˈɔt əbˈWt ðə kˈAs fɔɹ wˈiks; hɜɹ ˈænsəɹ, wˌɛn ɪt kˈAm, səpɹˈIzd ðə hˈOl tˈWn.",
)
_LOWEST_PRIORITY: Final = 19
_INTERRUPT_EVERY_S: Final = 0.05


def measured(acoustics: Acoustics, vocabulary: Mapping[str, int], styles: Styles) -> Statistics:
    """The statistics of a voice, taken over `SENTENCES`. Blocks for as long as they take to speak.

    :raises Interrupted: if `Acoustics.interrupt` gave it up.
    """
    parts = []
    for sentence in SENTENCES:
        phonemes = "".join(phoneme for phoneme in sentence if phoneme in vocabulary)
        tokens, style = tokens_of(phonemes, vocabulary), styles[max(0, len(phonemes) - 1)]
        parts.append(acoustics.measure(acoustics.prepare(tokens, style, 1.0)))
    return pooled(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Uncalibrated:
    """A voice without statistics; ``fingerprint`` is what they are stored under."""

    name: str
    styles: Styles
    fingerprint: str


class Calibration:
    """Measures voices one after the other, beside the event loop and at the lowest priority.

    It has acoustics of its own, made when there is a voice to measure and let go when there is
    none any more: no utterance waits for it.

    :param make_acoustics: loads them; called in the thread that measures.
    :param found: is told the name and the statistics of each voice, on the event loop.
    """

    def __init__(
        self,
        make_acoustics: Callable[[], Acoustics],
        vocabulary: Mapping[str, int],
        store: StatisticsStore,
        found: Callable[[str, Statistics], None],
    ) -> None:
        self._make_acoustics = make_acoustics
        self._vocabulary = vocabulary
        self._store = store
        self._found = found
        self._asked: set[str] = set()
        self._wanted: list[Uncalibrated] = []
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._acoustics: Acoustics | None = None

    def want(self, voice: Uncalibrated) -> None:
        """Measure ``voice`` when those before it are done. Asked again, nothing happens."""
        if self._stopping or voice.name in self._asked:
            return
        self._asked.add(voice.name)
        self._wanted.append(voice)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="kokoro-calibration")

    async def finished(self) -> None:
        """Return when no voice is waiting to be measured."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Give up what is being measured, and measure nothing more."""
        self._stopping = True
        self._wanted.clear()
        while self._task is not None and not self._task.done():
            if self._acoustics is not None:
                self._acoustics.interrupt()
            await asyncio.wait({self._task}, timeout=_INTERRUPT_EVERY_S)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "kokoro-calibration", _yield_to_others)
        try:
            while self._wanted:
                voice = self._wanted.pop(0)
                try:
                    made, file = await loop.run_in_executor(thread, self._measure, voice)
                except Interrupted:
                    return
                except Exception as error:
                    # It is spoken by the sentence, as before.
                    log_event("calibration_failed", voice=voice.name, **whereabouts(error))
                else:
                    log_event("calibrated", voice=voice.name, stored=file is not None)
                    self._found(voice.name, made)
        finally:
            self._acoustics = None
            thread.shutdown(wait=False)

    def _measure(self, voice: Uncalibrated) -> tuple[Statistics, Path | None]:
        if self._acoustics is None:
            self._acoustics = self._make_acoustics()
        made = measured(self._acoustics, self._vocabulary, voice.styles)
        return made, self._store.save(voice.name, voice.fingerprint, made)


def _yield_to_others() -> None:
    """Compute only while nobody else wants to: Linux has a priority for each thread."""
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
