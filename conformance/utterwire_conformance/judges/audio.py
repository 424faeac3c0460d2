"""Judges of the audio itself (`protocol.md#audio`)."""

from __future__ import annotations

from collections.abc import Iterator

from utterwire_conformance.check import check, on_sessions
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.verdict import Judgement, fail, passed

from . import quote

__all__ = ["whole_samples"]


@check("audio.whole-samples", "probe", general=True)
@on_sessions("no PCM audio was received")
def whole_samples(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every chunk of PCM has an even number of bytes."""
    for utterance in dialogue.utterances.values():
        for chunk in utterance.audio:
            if len(chunk.data) % 2:
                yield fail(
                    f"An audio chunk has {len(chunk.data)} bytes, which is not a whole number of"
                    " 16-bit samples.",
                    sent=quote.sent(utterance.sent),
                    received=quote.chunk(chunk),
                    legal="an even number of bytes in every chunk",
                    advice="Cut the audio at sample boundaries only.",
                )
                return
        if utterance.audio:
            yield passed()
