"""Judges of how messages are read: frames, fragments, keepalive, odd JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utterwire_conformance.check import check, on_sessions
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, passed

from . import quote
from .cases import judge_case

__all__ = ["fragmentation_invisible", "frame_kinds_alike", "keepalive", "odd_json_survives"]


def _of(dialogue: Dialogue, name: str) -> list[Utterance]:
    return [
        u
        for u in dialogue.utterances.values()
        if u.sent.case is not None and u.sent.case.check == name
    ]


def _same_audio(
    dialogue: Dialogue, name: str, first: str, again: str, advice: str
) -> Iterator[Judgement]:
    """Where the endpoint makes the same audio of `first` and `again`, all others must match it."""
    heard = {u.sent.case.name: u for u in _of(dialogue, name) if u.sent.case and u.complete}
    if first not in heard or again not in heard or heard[first].pcm != heard[again].pcm:
        return
    for case, utterance in heard.items():
        if utterance.pcm != heard[first].pcm:
            yield fail(
                f"The same message sounded different ({case}).",
                sent=quote.sent(utterance.sent),
                received=f"{len(utterance.pcm)} bytes of audio that differ from those of `{first}`",
                legal="the same audio: this endpoint makes the same audio of the same request",
                advice=advice,
            )


@check("message.frame-kinds-alike", "frame-kinds")
@on_sessions("no message could be sent in both kinds of frames")
def frame_kinds_alike(dialogue: Dialogue) -> Iterator[Judgement]:
    """The same message in a text and in a binary frame has the same effect."""
    name = "message.frame_kinds_alike"
    advice = "Read binary frames exactly as you read text frames."
    for utterance in _of(dialogue, name):
        assert utterance.sent.case is not None
        for judgement in judge_case(dialogue, utterance, utterance.sent.case):
            yield _advised(judgement, advice)
    yield from _same_audio(dialogue, name, "valid, text", "valid, text again", advice)
    close = dialogue.close_sent
    if close is not None and close.kind == "binary" and "no session_closed" in dialogue.facts:
        yield fail(
            "A `close` in a binary frame had no effect.",
            sent=quote.sent(close),
            received=quote.ending(dialogue),
            legal="`session_closed`",
            advice=advice,
        )


def _advised(judgement: Judgement, advice: str) -> Judgement:
    return replace(judgement, advice=advice)


@check("message.fragmentation-invisible", "fragments")
@on_sessions("no fragmented message could be sent")
def fragmentation_invisible(dialogue: Dialogue) -> Iterator[Judgement]:
    """However a message was cut, it means the same."""
    name = "message.fragmentation_invisible"
    advice = "Join the fragments of a message before you decode or parse anything."
    for utterance in _of(dialogue, name):
        assert utterance.sent.case is not None
        for judgement in judge_case(dialogue, utterance, utterance.sent.case):
            yield _advised(judgement, advice)
    for kind in ("text", "binary"):
        yield from _same_audio(dialogue, name, f"whole, {kind}", f"whole again, {kind}", advice)


@check("message.keepalive", "keepalive")
@on_sessions("no keepalive could be sent")
def keepalive(dialogue: Dialogue) -> Iterator[Judgement]:
    """A keepalive is not answered, and counts."""
    kept = [s for s in dialogue.sent if s.meaning.type == "keepalive"]
    if not kept:
        return
    advice = "Count a `keepalive` as a message, reset the idle clock, and send nothing."
    legal = "no answer to the keepalive; the request behind it keeps its place in the count"
    for message in kept:
        about = dialogue.utterances[message.seq]
        if about.chunks:
            yield fail(
                "A keepalive was answered.",
                sent=quote.sent(message),
                received=quote.chunk(about.chunks[0]),
                legal=legal,
                advice=advice,
            )
            return
    for utterance in dialogue.utterances.values():
        request_id = utterance.sent.meaning.request_id
        for chunk in dialogue.controls:
            if request_id is None or chunk.fields.get("request_id") != request_id:
                continue
            if chunk.said_seq is not None and chunk.said_seq != utterance.seq:
                yield fail(
                    "A keepalive before this request was not counted.",
                    sent=quote.sent(utterance.sent),
                    received=quote.chunk(chunk),
                    legal=f"`seq` {utterance.seq}",
                    advice=advice,
                )
                return
        if utterance.complete is not None:
            yield passed()
        elif utterance.seq == 2 and dialogue.hung_up and not dialogue.chunks:
            yield fail(
                "The endpoint ended the session on a keepalive.",
                sent=quote.sent(kept[0]),
                received=quote.ending(dialogue),
                legal=legal,
                advice=advice,
            )


@check("reject.odd-json-survives", "reject-odd-json")
@on_sessions("no odd JSON could be sent")
def odd_json_survives(dialogue: Dialogue) -> Iterator[Judgement]:
    """Odd JSON is accepted or rejected, and the session lives on."""
    advice = "Catch every failure of your JSON parser, recursion and digit limits included."
    for utterance in _of(dialogue, "reject.odd_json_survives"):
        assert utterance.sent.case is not None
        for judgement in judge_case(dialogue, utterance, utterance.sent.case):
            yield _advised(judgement, advice)
        last = max(dialogue.utterances) == utterance.seq
        if utterance.rejection is not None and last and dialogue.hung_up:
            yield fail(
                "The endpoint ended the session after it had rejected odd JSON.",
                sent=quote.sent(utterance.sent),
                received=quote.ending(dialogue),
                legal="the session goes on",
                advice=advice,
            )
