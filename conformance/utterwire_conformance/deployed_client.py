"""How clients in the field read an endpoint: a second oracle, kept as it was found.

They know nothing of this specification. They look at the first byte of a chunk; if it is an
opening brace they try `json.loads` on it, and take what gives a `dict` for control and all else
for audio. They stop at `synthesis_complete`, raise at `error`, and skip other types. Where such a
client would lose audio, play noise, break or wait for ever, that is a finding: not a breach of any
rule by itself, but what users would hear of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

from .dialogue import Chunk, Dialogue, Utterance, dialogues
from .transcript import Transcript

__all__ = ["findings", "reads_as_control"]

Effect: TypeAlias = Literal["lost-audio", "hang", "error", "noise"]

_STOP: Final = "synthesis_complete"
_RAISE: Final = "error"


def reads_as_control(chunk: bytes) -> dict[str, Any] | None:
    """What such a client takes for control; None is audio to it.

    Raises:
        RecursionError: so many levels that its parser gives up; it does not expect that.
    """
    if chunk[:1] != b"{":
        return None
    try:
        message = json.loads(chunk.decode())
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def findings(transcript: Transcript) -> list[dict[str, str]]:
    """Where a client in the field would come to harm, in the words of the schema `report`.

    Each finding is told once a transcript, however often it was seen.
    """
    found: dict[tuple[str, Effect], None] = {}
    for dialogue in dialogues([transcript]):
        for text, effect in _in_session(dialogue):
            found.setdefault((text, effect))
    return [
        {"finding": text, "effect": effect, "transcript": transcript.scenario}
        for text, effect in found
    ]


def _in_session(dialogue: Dialogue) -> Iterator[tuple[str, Effect]]:
    for chunk in dialogue.chunks:
        yield from _at_chunk(chunk)
    for utterance in dialogue.utterances.values():
        yield from _at_utterance(dialogue, utterance)


def _at_chunk(chunk: Chunk) -> Iterator[tuple[str, Effect]]:
    try:
        message = reads_as_control(chunk.data)
    except RecursionError:
        yield "A chunk nests so deeply that the client's JSON parser gives up.", "error"
        return
    if chunk.kind == "text":
        if message is None:
            yield "A text frame does not read as a JSON object; it would be played.", "noise"
    elif message is None and chunk.is_control:
        yield "A control message in a binary frame does not read as one for it.", "noise"
    elif message is not None and chunk.is_audio:
        kind = message.get("type")
        if kind == _STOP:
            yield (
                "A chunk of audio reads as `synthesis_complete`: it would stop there.",
                "lost-audio",
            )
        elif kind == _RAISE:
            yield "A chunk of audio reads as `error`: it would give up there.", "error"
        else:
            yield "A chunk of audio reads as a JSON object: it would be skipped.", "lost-audio"


def _at_utterance(dialogue: Dialogue, utterance: Utterance) -> Iterator[tuple[str, Effect]]:
    if utterance.late_audio:
        yield "Audio comes after `synthesis_complete`, where it no longer listens.", "lost-audio"
    if utterance.sent.meaning.verdict == "reject" or utterance.sent.meaning.type != "synthesize":
        return
    if any(message.meaning.fields.get("type") == "cancel" for message in dialogue.sent):
        return
    last = utterance.terminal or utterance.rejection
    if last is None:
        if utterance.seq in dialogue.in_vain:
            yield "An utterance comes to no end that it knows: it would wait for ever.", "hang"
    elif last.type not in (_STOP, _RAISE):
        yield f"An utterance ends in `{last.type}`, which it skips: it would wait for ever.", "hang"
