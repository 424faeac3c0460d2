"""How fast the engine is, learned from what it did."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["Pace"]

#: Speech of before so many seconds of it counts about a third.
MEMORY_S: Final = 60.0
#: So many blocks back count about a third.
MEMORY_BLOCKS: Final = 20.0
#: Until an utterance has told: about 15 characters a second, as English is spoken.
SPEECH_S_PER_CHARACTER: Final = 0.065
#: What a character may take on average: from quick English to Mandarin and Japanese, slowly.
SPEECH_S_BOUNDS: Final = (0.03, 0.4)


class Pace:
    """What speech costs. All times are in seconds; nothing is known before the first block."""

    __slots__ = ("_blocks", "_blocks_s", "_characters", "_made_s", "_speech_s", "_told_s")

    def __init__(self) -> None:
        self._made_s = self._speech_s = 0.0
        self._blocks = self._blocks_s = 0.0
        # As if so much text had been spoken before.
        self._characters = 100.0
        self._told_s = self._characters * SPEECH_S_PER_CHARACTER

    @property
    def real_time_factor(self) -> float:
        """Seconds of work for a second of speech; 0 while nothing is known."""
        return self._made_s / self._speech_s if self._speech_s else 0.0

    @property
    def block_s(self) -> float:
        """Seconds of work for one block; 0 while nothing is known."""
        return self._blocks_s / self._blocks if self._blocks else 0.0

    def speech_s(self, characters: float, speed: float = 1.0) -> float:
        """How long ``characters`` of text take to be heard."""
        return characters * self._told_s / self._characters / speed

    def work_s(self, characters: float, speed: float = 1.0) -> float:
        """How long the engine works on ``characters`` of text."""
        return self.speech_s(characters, speed) * self.real_time_factor

    def made(self, speech_s: float, work_s: float) -> None:
        """A block with ``speech_s`` of speech was made in ``work_s``."""
        kept = math.exp(-1 / MEMORY_BLOCKS)
        self._blocks = self._blocks * kept + 1
        self._blocks_s = self._blocks_s * kept + work_s
        kept = math.exp(-speech_s / MEMORY_S)
        self._speech_s = self._speech_s * kept + speech_s
        self._made_s = self._made_s * kept + work_s

    def spoke(self, characters: int, speech_s: float, speed: float) -> None:
        """A text was spoken to its end; one without a sound teaches nothing.

        One that is hardly text, or nothing but digits, teaches no more than text may cost.
        """
        if speech_s <= 0:
            return
        least, most = (characters * each for each in SPEECH_S_BOUNDS)
        heard_s = min(max(speech_s * speed, least), most)
        kept = math.exp(-heard_s / MEMORY_S)
        self._characters = self._characters * kept + characters
        self._told_s = self._told_s * kept + heard_s
