"""Judges of the form of chunks, over every session of a run."""

from __future__ import annotations

from collections.abc import Iterator

from utterwire_schemas import validator

from utterwire_conformance.check import check, on_sessions
from utterwire_conformance.classification import control_breaches
from utterwire_conformance.control_schema import satisfies_schema
from utterwire_conformance.dialogue import Chunk, Dialogue
from utterwire_conformance.verdict import Judgement, fail, passed

from . import quote

__all__ = ["audio_in_binary", "schema", "size", "strict_json", "text_frame", "unfragmented"]

_LEADING = b" \t\r\n\xef\xbb\xbf"


def _cause(dialogue: Dialogue, chunk: Chunk) -> str:
    utterance = dialogue.utterance(chunk.seq) if chunk.seq is not None else None
    return quote.sent(utterance.sent) if utterance is not None else ""


def _looks_like_control(chunk: Chunk) -> bool:
    return chunk.data.lstrip(_LEADING).startswith(b"{")


@check("control.schema", "probe", "order", general=True, correlates=False)
@on_sessions("no control message was received")
def schema(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every control message satisfies its schema."""
    # A flood of the same message is judged once, or it would be judged for minutes.
    seen: set[tuple[str, bytes]] = set()
    for chunk in dialogue.controls:
        if (chunk.kind, chunk.data) in seen:
            continue
        seen.add((chunk.kind, chunk.data))
        if satisfies_schema(chunk.data):
            yield passed()
            continue
        fault = min(
            validator("control-message").iter_errors(dict(chunk.fields)),
            key=lambda fault: list(fault.absolute_path),
        )
        while fault.context:
            fault = fault.context[0]
        place = "/".join(str(step) for step in fault.absolute_path)
        yield fail(
            f"A `{chunk.type}` does not satisfy its schema:"
            f" {f'`{place}`: ' if place else ''}{str(fault.message)[:200]}.",
            sent=_cause(dialogue, chunk),
            received=quote.chunk(chunk),
            legal="the fields, types and ranges of the clause",
            advice="Build each control message from its schema.",
        )
        return


@check("control.strict-json", "probe", "order", general=True, correlates=False)
@on_sessions("no control message was received")
def strict_json(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every control message begins with a brace and is strict JSON."""
    for chunk in dialogue.chunks:
        if chunk.kind != "text" or not _looks_like_control(chunk):
            continue
        breaches = [
            b for b in control_breaches(chunk.data) if b.requirement == "control.strict-json"
        ]
        if not breaches:
            yield passed()
            continue
        yield fail(
            f"A control message is not strict JSON: {breaches[0].reason}.",
            sent=_cause(dialogue, chunk),
            received=quote.chunk(chunk),
            legal="one JSON object from its first byte on, with unique names and finite numbers",
            advice="Write control messages with a strict JSON encoder.",
        )


@check("control.size", "probe", "order", general=True, correlates=False)
@on_sessions("no control message was received")
def size(dialogue: Dialogue) -> Iterator[Judgement]:
    """No control message is too long or too deep."""
    for chunk in dialogue.chunks:
        if chunk.kind != "text":
            continue
        breaches = [b for b in control_breaches(chunk.data) if b.requirement == "control.size"]
        if not breaches:
            yield passed()
            continue
        yield fail(
            f"A control message is too large: {breaches[0].reason}.",
            sent=_cause(dialogue, chunk),
            received=quote.chunk(chunk),
            legal="at most 65,536 bytes and 16 levels",
            advice="Keep control messages small; never put the client's input into them.",
        )


@check("control.text-frame", "probe", "order", general=True, correlates=False)
@on_sessions("no control message was received")
def text_frame(dialogue: Dialogue) -> Iterator[Judgement]:
    """Control comes in text frames."""
    for chunk in dialogue.controls:
        if chunk.kind == "text":
            yield passed()
        else:
            yield fail(
                f"A `{chunk.type}` was sent in a binary frame.",
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal="the same JSON in a text frame",
                advice="Send control messages as text, audio as binary.",
            )


@check("audio.binary-frame", "probe", "order", general=True, correlates=False)
@on_sessions("no audio was received")
def audio_in_binary(dialogue: Dialogue) -> Iterator[Judgement]:
    """Audio comes in binary frames, so that text frames hold control alone."""
    for chunk in dialogue.chunks:
        if chunk.is_audio:
            yield passed()
        elif chunk.kind == "text" and not _looks_like_control(chunk):
            yield fail(
                "A text frame holds something that is no control message.",
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal="audio in binary frames; nothing but control messages in text frames",
                advice="Send audio as binary frames.",
            )


@check("chunk.unfragmented", "probe", "order", general=True, correlates=False)
@on_sessions("no chunk was received")
def unfragmented(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every chunk is one frame."""
    for chunk in dialogue.chunks:
        if chunk.frames == 1:
            yield passed()
        else:
            yield fail(
                f"A chunk came in {chunk.frames} fragments.",
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal="one frame with FIN set",
                advice="Send each chunk as one frame; turn automatic fragmentation off.",
            )
