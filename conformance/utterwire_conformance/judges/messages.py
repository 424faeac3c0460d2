"""Judges of how messages are read: frames, fragments, keepalive, odd JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, Verdict, fail, passed

from . import quote
from .cases import judge_case

__all__ = ["fragmentation_invisible", "frame_kinds_alike", "keepalive", "odd_json_survives"]


def _of(dialogues: Iterable[Dialogue], name: str) -> dict[str, tuple[Dialogue, Utterance]]:
    """The messages whose cases serve a check, by the case's name; the last of each."""
    return {
        u.sent.case.name: (dialogue, u)
        for dialogue in dialogues
        for u in dialogue.utterances.values()
        if u.sent.case is not None and u.sent.case.check == name
    }


def _judged(dialogue: Dialogue, utterance: Utterance, advice: str) -> Iterator[Judgement]:
    assert utterance.sent.case is not None
    for judgement in judge_case(dialogue, utterance, utterance.sent.case):
        yield replace(judgement, advice=advice)


def _same_audio(
    cases: Mapping[str, tuple[Dialogue, Utterance]], first: str, again: str, advice: str
) -> Iterator[Judgement]:
    """Where the endpoint makes the same audio of `first` and `again`, all others must match it.

    All others of that voice: by default each session can have another. And none that had to wait:
    it may be spoken otherwise, with a pause before it for one.
    """
    heard = {
        name: u
        for name, (_, u) in cases.items()
        if u.complete is not None and not name.endswith("while an utterance runs")
    }
    if first not in heard or again not in heard or heard[first].pcm != heard[again].pcm:
        return
    for name, utterance in heard.items():
        if _voice(utterance) == _voice(heard[first]) and utterance.pcm != heard[first].pcm:
            yield fail(
                f"The same message sounded different ({name}).",
                sent=quote.sent(utterance.sent),
                received=f"{len(utterance.pcm)} bytes of audio that differ from those of `{first}`",
                legal="the same audio: this endpoint makes the same audio of the same request",
                advice=advice,
            )


def _voice(utterance: Utterance) -> object:
    return utterance.start.fields.get("voice") if utterance.start is not None else None


def _right_as_text(cases: Mapping[str, tuple[Dialogue, Utterance]], name: str) -> bool:
    """Whether the message called so was answered rightly in a text frame."""
    twin = cases.get(f"{name.partition(',')[0]}, text")
    found = list(_judged(*twin, "")) if twin is not None else []
    return bool(found) and all(j.verdict is Verdict.PASS for j in found)


@check("message.frame-kinds-alike", "frame-kinds")
def frame_kinds_alike(evidence: Sequence[Account]) -> Judgement:
    """The same message in a text and in a binary frame has the same effect."""
    advice = "Read binary frames exactly as you read text frames."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            cases = _of(account.dialogues, "message.frame_kinds_alike")
            for name, (dialogue, utterance) in cases.items():
                case = utterance.sent.case
                # What is right in no kind of frame is another rule's affair.
                if (case and case.expect == "accept") or _right_as_text(cases, name):
                    yield from _judged(dialogue, utterance, advice)
            yield from _same_audio(cases, "valid, text", "valid, text again", advice)
            for dialogue in account.dialogues:
                close = dialogue.close_sent
                if close is not None and "no session_closed" in dialogue.facts:
                    yield fail(
                        "A `close` in a binary frame had no effect.",
                        sent=quote.sent(close),
                        received=quote.ending(dialogue),
                        legal="`session_closed`",
                        advice=advice,
                    )

    return settle(find(), evidence, "no message could be sent in both kinds of frames")


@check("message.fragmentation-invisible", "fragments")
def fragmentation_invisible(evidence: Sequence[Account]) -> Judgement:
    """However a message was cut, it means the same."""
    advice = "Join the fragments of a message before you decode or parse anything."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            cases = _of(account.dialogues, "message.fragmentation_invisible")
            for name, (dialogue, utterance) in cases.items():
                # The whole message is the twin: where that is not accepted, fragments are not
                # to blame.
                whole = cases.get(f"whole, {utterance.sent.kind}")
                if not name.startswith("whole") and whole is not None and whole[1].answered:
                    yield from _judged(dialogue, utterance, advice)
            yield from _same_audio(cases, "whole, text", "whole again, text", advice)

    return settle(find(), evidence, "no fragmented message could be sent")


@check("message.keepalive", "keepalive", correlates=False)
@on_sessions("no keepalive could be sent")
def keepalive(dialogue: Dialogue) -> Iterator[Judgement]:
    """A keepalive is not answered, and counts."""
    kept = [s for s in dialogue.sent if s.meaning.type == "keepalive"]
    if not kept:
        return
    advice = "Count a `keepalive` as a message, reset the idle clock, and send nothing."
    legal = "no answer to the keepalive; the request behind it keeps its place in the count"
    for message in kept:
        answer = next((c for c in dialogue.answers if c.seq == message.seq), None)
        if answer is not None:
            yield fail(
                "A keepalive was answered.",
                sent=quote.sent(message),
                received=quote.chunk(answer),
                legal=legal,
                advice=advice,
            )
            return
    for utterance in dialogue.utterances.values():
        request_id = utterance.sent.meaning.request_id
        for chunk in dialogue.answers:
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
    for _, utterance in _of([dialogue], "reject.odd_json_survives").values():
        yield from _judged(dialogue, utterance, advice)
        last = max(dialogue.utterances) == utterance.seq
        if utterance.rejection is not None and last and dialogue.hung_up:
            yield fail(
                "The endpoint ended the session after it had rejected odd JSON.",
                sent=quote.sent(utterance.sent),
                received=quote.ending(dialogue),
                legal="the session goes on",
                advice=advice,
            )
