"""An engine without a model: every letter is a short tone, so that audio follows the text."""

from __future__ import annotations

import asyncio
import unicodedata
import zlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import numpy as np

from utterwire_server.engines.engine import Block, Engine, Samples, SpeechRequest, WordMark

__all__ = ["ToneEngine", "is_spoken"]

BLOCK_S = 0.04
LETTER_S = 0.04
GAP_S = 0.04
PAUSE_S = 0.12
EDGE_S = 0.005
LEVEL = 0.35

VARIATION_SELECTOR_16 = "\ufe0f"
ENCLOSING_KEYCAP = "\u20e3"
INFORMATION_SOURCE = "\u2139"  # category Ll, yet an emoji

# Voice: (lowest frequency in hertz, span in octaves, share of the second harmonic).
VOICES: dict[str, tuple[float, float, float]] = {
    "alto": (220.0, 1.6, 0.30),
    "ténor": (165.0, 1.6, 0.45),
    "bass": (98.0, 1.4, 0.60),
}


@dataclass(frozen=True, slots=True)
class _Note:
    """One stretch of sound or, at ``hertz`` 0, of silence; ``samples`` long."""

    hertz: float
    samples: int
    mark: WordMark | None = None


def is_spoken(text: str, index: int) -> bool:
    """Whether the code point at ``index`` is heard: a letter or a number that is no emoji.

    Keycaps, and anything asked to look like an emoji by U+FE0F, are not heard.
    """
    character = text[index]
    if unicodedata.category(character)[0] not in "LN" or character == INFORMATION_SOURCE:
        return False
    following = text[index + 1 : index + 2]
    return following not in (VARIATION_SELECTOR_16, ENCLOSING_KEYCAP)


class ToneEngine(Engine):
    """Speaks any script as tones: one for each letter or number, a gap between words.

    The audio depends on text, voice, speed and sample rate, and on nothing else: sample for
    sample the same each time. Any change of the text changes the pitch of all of it, so no two
    texts sound alike.

    :param real_time_factor: seconds of waiting for each second of audio made, as if a model
        computed it; 0.0 makes audio as fast as it goes.
    """

    name = "tone"
    times_words = True

    def __init__(self, real_time_factor: float = 0.0) -> None:
        if not 0 <= real_time_factor < float("inf"):
            raise ValueError(f"the real-time factor is {real_time_factor!r}; it must be 0 or more")
        self.real_time_factor = real_time_factor

    @property
    def voices(self) -> tuple[str, ...]:
        return tuple(VOICES)

    @property
    def sample_rates(self) -> tuple[int, ...]:
        return (24_000, 8_000, 16_000, 48_000)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        size = max(1, round(BLOCK_S * request.sample_rate))
        held: list[Samples] = []
        marks: list[WordMark] = []
        length = 0
        for note in _score(request):
            held.append(_render(note, request))
            length += note.samples
            if note.mark is not None:
                marks.append(note.mark)
            while length >= size:
                samples = np.concatenate(held)
                held, length = [samples[size:]], length - size
                yield await self._compute(Block(samples[:size], tuple(marks)), request)
                marks.clear()
        if length:
            yield await self._compute(Block(np.concatenate(held), tuple(marks)), request)

    async def _compute(self, block: Block, request: SpeechRequest) -> Block:
        # sleep(0) still gives the others their turn of the loop.
        await asyncio.sleep(self.real_time_factor * block.samples.size / request.sample_rate)
        return block


def _score(request: SpeechRequest) -> Iterator[_Note]:
    """The notes of a text, lazily: a long text costs nothing before its turn comes."""
    text, rate = request.text, request.sample_rate
    base, octaves, _ = VOICES[request.voice]
    # 3 % at most: the whole text colours every note.
    colour = 1.0 + 0.03 * (zlib.crc32(text.encode("utf-8", "surrogatepass")) / 2**32)
    letter = max(1, round(LETTER_S * rate / request.speed))
    spoken = 0
    gap = 0.0
    index = 0
    while index < len(text):
        if not is_spoken(text, index):
            if spoken:
                pause = unicodedata.category(text[index])[0] == "P"
                gap = max(gap, PAUSE_S if pause else GAP_S)
            index += 1
            continue
        end = index + 1
        while end < len(text) and _joins(text, end):
            end += 1
        if gap:
            silence = max(1, round(gap * rate / request.speed))
            yield _Note(0.0, silence)
            spoken += silence
            gap = 0.0
        heard = [at for at in range(index, end) if is_spoken(text, at)]
        mark: WordMark | None = WordMark(
            text[index:end],
            spoken / rate,
            (spoken + letter * len(heard)) / rate,
            index,
            end,
        )
        for at in heard:
            # The golden ratio spreads neighbouring code points over the whole span.
            place = (ord(text[at]) * 0.6180339887498949) % 1.0
            yield _Note(base * colour * 2 ** (octaves * place), letter, mark)
            spoken += letter
            # Only the first letter carries it.
            mark = None
        index = end


def _joins(text: str, index: int) -> bool:
    """Whether the code point at ``index`` goes on with the word before it."""
    return is_spoken(text, index) or unicodedata.category(text[index])[0] == "M"


def _render(note: _Note, request: SpeechRequest) -> Samples:
    if not note.hertz:
        return np.zeros(note.samples, dtype=np.float32)
    share = VOICES[request.voice][2]
    time = np.arange(note.samples, dtype=np.float64)
    angle = (2 * np.pi * note.hertz / request.sample_rate) * time
    wave = (1 - share) * np.sin(angle) + share * np.sin(2 * angle)
    # Smooth edges: no clicks, and every note begins and ends in silence.
    edge = max(1.0, min(EDGE_S * request.sample_rate, note.samples / 2))
    reach = np.minimum(np.minimum(time, time[::-1]) / edge, 1.0)
    envelope = 0.5 - 0.5 * np.cos(np.pi * reach)
    return (LEVEL * envelope * wave).astype(np.float32)
