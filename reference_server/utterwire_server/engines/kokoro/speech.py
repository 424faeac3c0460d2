"""The driver: an utterance from its segments to blocks of sound with word marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from utterwire_server.engines.engine import Block
from utterwire_server.engines.kokoro.acoustics import Acoustics, Styles
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.text.segment import Segment

__all__ = ["STREAMING", "Streaming", "Utterance"]

Streaming = Literal["window", "sentence"]
STREAMING: tuple[Streaming, ...] = ("window", "sentence")


class Utterance:
    """One utterance in the making, block by block.

    :param text: what is spoken, for the marks.
    :param segments: of the front end; taken one at a time, when its turn comes.
    :param styles: the voice.
    :param speed: a factor, as in `SpeechRequest`.
    :param statistics: of the voice, for windows; None renders each segment whole and exactly.
    """

    def __init__(
        self,
        text: str,
        segments: Iterable[Segment],
        *,
        vocabulary: Mapping[str, int],
        styles: Styles,
        speed: float,
        statistics: Statistics | None,
    ) -> None:
        raise NotImplementedError

    def next_block(self, acoustics: Acoustics) -> Block | None:
        """Make the next block with ``acoustics``; None after the last one. Blocks the thread.

        :raises EngineError: if the model fails.
        :raises Interrupted: if the call was given up.
        """
        raise NotImplementedError
