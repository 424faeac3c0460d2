"""The tone engine as models are that do not stream: an utterance is made whole before any of it is
sent. ``utterwire-server --engine whole_tone:whole_tone``."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from utterwire_server.engines import Block, Engine, SpeechRequest, ToneEngine

__all__ = ["REAL_TIME_FACTOR", "whole_tone"]

#: Seconds of computing for a second of audio, of every engine that the study starts.
REAL_TIME_FACTOR = 0.04


class WholeTone(ToneEngine):
    """Gives nothing of an utterance before all of it is made."""

    name = "whole-tone"

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        blocks = [block async for block in super().synthesize(request)]
        for block in blocks:
            yield block


def whole_tone() -> Engine:
    """The engine, as the server asks for it."""
    return WholeTone(REAL_TIME_FACTOR)
