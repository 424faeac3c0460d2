"""A synthetic voice: one tone for each letter, made block by block (protocol.md#audio)."""

from __future__ import annotations

import asyncio
import random
import unicodedata
from collections.abc import AsyncIterator, Iterator

import numpy as np

from .messages import BLANK, SAMPLE_RATE, VOICES, Speak

LETTER_S, MARK_S, PAUSE_S = 0.04, 0.015, 0.02
BRACE = 0x7B
# Chunk sizes in bytes, drawn at random: from one sample to about 100 ms.
SIZES = (2, 34, 322, 962, 1_920, 4_802)
SHIFTS = 8


def _plan(char: str) -> tuple[float, bool]:
    """Give for how long a code point is heard, at speed 1, and whether it is a tone."""
    category = unicodedata.category(char)
    if category[0] in "LN":
        return LETTER_S, True
    if category[0] == "M" and char not in "\ufe0e\ufe0f":
        return MARK_S, True
    if category[0] in "PZ" or ord(char) in BLANK:
        return PAUSE_S, False
    return 0.0, False


def _tone(char: str, samples: int, pitch: float) -> bytes:
    """Make the tone of one code point, faded in and out, as PCM."""
    code = ord(char)
    low = pitch * (160.0 + (code * 37) % 241)
    high = pitch * (900.0 + (code * 101) % 1_187)
    t = np.arange(samples) / SAMPLE_RATE
    wave = 0.3 * np.sin(2 * np.pi * low * t) + 0.15 * np.sin(2 * np.pi * high * t)
    wave *= np.sin(np.pi * np.arange(samples) / samples)
    scaled = np.clip(np.nan_to_num(wave) * 32767.0, -32768, 32767)
    return scaled.astype("<i2").tobytes()


def blocks(job: Speak) -> Iterator[bytes]:
    """Make the audio of a text, one code point at a time; nothing if nothing is spoken."""
    plan = [(char, *_plan(char)) for char in job.text]
    if not any(tone for _, _, tone in plan):
        return
    pitch = 1.0 + 0.35 * VOICES.index(job.voice)
    for char, seconds, tone in plan:
        samples = round(seconds * SAMPLE_RATE / job.speed)
        if samples:
            yield _tone(char, samples, pitch) if tone else bytes(2 * samples)


async def chunks(job: Speak, rtf: float) -> AsyncIterator[bytes]:
    """Give the audio in chunks of uneven sizes, none of which begins with a brace."""
    made = bytearray()
    dice = random.Random()
    size = dice.choice(SIZES)
    for block in blocks(job):
        await asyncio.sleep(rtf * len(block) / (2 * SAMPLE_RATE))
        made += block
        while len(made) > size + 2 * SHIFTS:
            cut = next((n for n in range(size, size + 2 * SHIFTS, 2) if made[n] != BRACE), size)
            if made[cut] == BRACE:
                made[cut] -= 1
            yield bytes(made[:cut])
            del made[:cut]
            size = dice.choice(SIZES)
    if made:
        yield bytes(made)
