"""Judges of answers, over every session of a run: errors, `seq`, ids, order of rejections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from utterwire_schemas import ERROR_CODES

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.dialogue import Chunk, Dialogue, Sent, Utterance
from utterwire_conformance.verdict import Judgement, fail, passed

from . import quote

__all__ = [
    "echoed",
    "in_order",
    "message_text",
    "misnumbered",
    "no_harm",
    "one_error",
    "registered_code",
    "retryable",
    "seq_counts",
    "survives",
]

_REJECTIONS: Final = ("order", "reject-invalid-json", "reject-invalid-voice", "reject-field-types")
_ABOUT: Final = frozenset(
    {"synthesis_start", "synthesis_complete", "cancelled", "error", "marks", "cancel_done"}
)


def _errors(dialogue: Dialogue) -> list[Chunk]:
    return [chunk for chunk in dialogue.controls if chunk.type == "error"]


def _cause(dialogue: Dialogue, chunk: Chunk) -> str:
    utterance = dialogue.utterance(chunk.seq) if chunk.seq is not None else None
    return quote.sent(utterance.sent) if utterance is not None else ""


@check("error.registered-code", *_REJECTIONS, general=True, correlates=False)
@on_sessions("no error was received")
def registered_code(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every code is in the registry."""
    for chunk in _errors(dialogue):
        if chunk.code in ERROR_CODES:
            yield passed()
        else:
            yield fail(
                f"The code {chunk.fields.get('code')!r} is not in the registry.",
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal=", ".join(ERROR_CODES),
                advice="Use the code of the registry that fits; put the rest into `message`.",
            )


@check("error.retryable", *_REJECTIONS, general=True, correlates=False)
@on_sessions("no error with a registered code was received")
def retryable(dialogue: Dialogue) -> Iterator[Judgement]:
    """`retryable` is what the registry says."""
    for chunk in _errors(dialogue):
        if chunk.code is None or chunk.code not in ERROR_CODES:
            continue
        expected = ERROR_CODES[chunk.code].retryable
        if chunk.fields.get("retryable") is expected:
            yield passed()
        else:
            yield fail(
                f"`retryable` is {chunk.fields.get('retryable')!r} with `{chunk.code}`.",
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal=f"`retryable` {str(expected).lower()}",
                advice="Take `retryable` from the registry of error codes.",
            )


@check("error.message", *_REJECTIONS, general=True, correlates=False)
@on_sessions("no error was received")
def message_text(dialogue: Dialogue) -> Iterator[Judgement]:
    """`message` is a string that is not empty."""
    for chunk in _errors(dialogue):
        text = chunk.fields.get("message")
        if isinstance(text, str) and text.strip():
            yield passed()
        else:
            yield fail(
                "An error has no `message` that a person could read.",
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal="`message`: a string that is not empty",
                advice="Say in `message` what is wrong.",
            )


def _must_be_rejected(utterance: Utterance) -> bool:
    return utterance.sent.meaning.verdict == "reject" and not utterance.sent.after_close


@check("reject.one-error", *_REJECTIONS, general=True)
@on_sessions("no message was rejected")
def one_error(dialogue: Dialogue) -> Iterator[Judgement]:
    """Each rejected message has one `error`, marked, numbered and named."""
    legal = (
        "exactly one `error` with `rejected` true, the message's `seq`, and its `request_id` if it"
        " is valid"
    )
    advice = "Answer each rejected message with one `error`, built in one place."
    for utterance in dialogue.utterances.values():
        found = list(_fault_of_rejection(dialogue, utterance))
        for reason, chunk in found:
            yield fail(
                reason,
                sent=quote.sent(utterance.sent),
                received=quote.chunk(chunk),
                legal=legal,
                advice=advice,
            )
        if utterance.rejections and not found:
            yield passed()


def _fault_of_rejection(
    dialogue: Dialogue, utterance: Utterance
) -> Iterator[tuple[str, Chunk | None]]:
    meaning = utterance.sent.meaning
    if len(utterance.rejections) > 1:
        yield "A message was rejected more than once.", utterance.rejections[1]
    for chunk in utterance.rejections[:1]:
        if utterance.starts:
            yield "A message was rejected, and spoken all the same.", chunk
        if chunk.said_seq is None:
            yield "The `error` of a rejected message has no `seq`.", chunk
        named = chunk.fields.get("request_id")
        if meaning.id_certain and named != meaning.request_id and not _swapped(dialogue, chunk):
            yield "The `error` does not echo the message's valid `request_id` exactly.", chunk
    if utterance.rejections or not _must_be_rejected(utterance):
        return
    bare = next((c for c in utterance.terminals if c.type == "error"), None)
    if bare is not None and not utterance.starts:
        yield "The `error` of a rejected message lacks `rejected` true.", bare
    elif any(chunk.seq == utterance.seq for chunk in dialogue.answers):
        return
    elif dialogue.passed_over(utterance):
        yield "A message that must be rejected got no `error`.", None


def _swapped(dialogue: Dialogue, chunk: Chunk) -> bool:
    """Whether the id is that of another message, so that the `seq` is what is wrong."""
    named = chunk.fields.get("request_id")
    return named is not None and any(
        s.meaning.request_id == named and s.seq != chunk.said_seq for s in dialogue.sent
    )


@check("reject.session-survives", *_REJECTIONS, general=True)
@on_sessions("no message was rejected and followed by another")
def survives(dialogue: Dialogue) -> Iterator[Judgement]:
    """After a rejected message the session serves a valid one."""
    rejected = [u for u in dialogue.utterances.values() if u.rejections or _must_be_rejected(u)]
    if not rejected or dialogue.abused:
        return
    legal = "an `error`, and then the session goes on"
    advice = "Answer a bad message with an `error` and read the next; never close because of it."
    last = dialogue.chunks[-1] if dialogue.chunks else None
    owed = dialogue.first_owed
    if dialogue.hung_up:
        if owed is not None and owed.meaning.verdict == "reject":
            if owed.seq == 1 or (last is not None and not last.is_terminal):
                yield fail(
                    "The endpoint ended the session on a bad message.",
                    sent=quote.sent(owed),
                    received=quote.ending(dialogue),
                    legal=legal,
                    advice=advice,
                )
        elif last is not None and (last.rejects or (last.type == "error" and not last.seq)):
            yield fail(
                "The endpoint ended the session after it had rejected a message.",
                sent=_cause(dialogue, last),
                received=f"{quote.chunk(last)}, then {quote.ending(dialogue)}",
                legal=legal,
                advice=advice,
            )
    elif last is not None and last.rejects and _silent(dialogue):
        yield fail(
            "After a rejected message nothing was answered any more.",
            sent=quote.sent(dialogue.utterances[min(_silent(dialogue))].sent),
            received="no answer",
            legal="the answer to the next request",
            advice=advice,
        )
    first = rejected[0].seq
    if any(u.complete is not None for u in dialogue.utterances.values() if u.seq > first):
        yield passed()


def _silent(dialogue: Dialogue) -> set[int]:
    """Messages that were waited for and got no answer at all."""
    return {seq for seq in dialogue.in_vain if not dialogue.utterances[seq].answered}


def _overtakes(dialogue: Dialogue, utterance: Utterance, chunk: Chunk) -> bool:
    """Whether this chunk is one of those that go out at once."""
    if chunk.type in ("cancelled", "cancel_done", "session"):
        return True
    if not chunk.rejects:
        return False
    kind = utterance.sent.meaning.type
    return chunk.code == "queue_full" or kind in ("cancel", "hello") or dialogue.crowded


@check("reject.in-order", *_REJECTIONS, general=True)
@on_sessions("no rejected message stood between others")
def in_order(dialogue: Dialogue) -> Iterator[Judgement]:
    """The `error` of a rejected message takes its place in message order."""
    everyone = dialogue.utterances.values()
    legal = "each `error` after the end of what was sent before, and before what was sent after"
    advice = "Queue rejections with the utterances, and send them when their turn has come."
    for utterance in everyone:
        chunk = utterance.rejection
        if chunk is None or _overtakes(dialogue, utterance, chunk):
            continue
        early = next(
            (
                c
                for u in everyone
                if u.seq < utterance.seq
                for c in u.chunks
                if c.number > chunk.number and not _overtakes(dialogue, u, c)
            ),
            None,
        )
        late = next(
            (
                c
                for u in everyone
                if u.seq > utterance.seq
                for c in u.chunks
                if c.number < chunk.number and not _overtakes(dialogue, u, c)
            ),
            None,
        )
        other = early or late
        if other is not None:
            where = "before the end of an earlier message" if early else "after a later message"
            yield fail(
                f"The `error` of message {utterance.seq} came {where}.",
                sent=quote.sent(utterance.sent),
                received=f"{quote.chunk(chunk)}; and {'then' if early else 'before it'}"
                f" {quote.chunk(other)}",
                legal=legal,
                advice=advice,
            )
        elif any(u.answered for u in everyone if u.seq != utterance.seq):
            yield passed()


@check("reject.no-harm", "order", "spoken-texts", "reject-field-types")
def no_harm(evidence: Sequence[Account]) -> Judgement:
    """Utterances beside a rejection end as they would have without it."""
    legal = "the other utterances are spoken to their end, unchanged"
    advice = "A rejection must touch neither the queue nor the running utterance."
    alone = _heard_alone(evidence)

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for dialogue in account.dialogues:
                yield from beside(dialogue)

    def beside(dialogue: Dialogue) -> Iterator[Judgement]:
        if not any(u.rejections for u in dialogue.utterances.values()):
            return
        for utterance in dialogue.utterances.values():
            if utterance.rejections or utterance.sent.meaning.verdict != "accept":
                continue
            failed = next((c for c in utterance.terminals if c.type == "error"), None)
            if failed is not None:
                yield fail(
                    f"An utterance failed with `{failed.code}` beside a rejected message.",
                    sent=quote.sent(utterance.sent),
                    received=quote.chunk(failed),
                    legal=legal,
                    advice=advice,
                )
            elif utterance.complete is not None:
                twin = alone.get(_as_spoken(utterance))
                # Who waited may be spoken otherwise, with a pause before it for one.
                if twin not in (None, utterance.pcm) and not _waited(dialogue, utterance):
                    yield fail(
                        "An utterance sounded different beside a rejected message.",
                        sent=quote.sent(utterance.sent),
                        received=f"{len(utterance.pcm)} bytes of audio",
                        legal=f"the same {len(twin or b'')} bytes as when nothing was rejected",
                        advice=advice,
                    )
                else:
                    yield passed()

    return settle(find(), evidence, "no utterance was spoken beside a rejected message")


def _as_spoken(utterance: Utterance) -> tuple[str, object]:
    """The text, and the voice that speaks it: by default each session can have another."""
    start = utterance.start
    return utterance.sent.meaning.text, start.fields.get("voice") if start is not None else None


def _waited(dialogue: Dialogue, utterance: Utterance) -> bool:
    """Whether another utterance was unended when this one was asked for."""
    return any(
        other.seq < utterance.seq
        and other.terminal is not None
        and other.terminal.index > utterance.sent.index
        for other in dialogue.utterances.values()
    )


def _heard_alone(evidence: Sequence[Account]) -> dict[tuple[str, object], bytes]:
    """Audio by text and voice, where the endpoint made the same of the same plain request twice."""
    heard: dict[tuple[str, object], list[bytes]] = {}
    for account in evidence:
        if account.scenario != "spoken-texts":
            continue
        for dialogue in account.dialogues:
            for utterance in dialogue.utterances.values():
                plain = "speed" not in utterance.sent.meaning.fields
                if utterance.complete is not None and plain:
                    heard.setdefault(_as_spoken(utterance), []).append(utterance.pcm)
    first = next((spoken for spoken, audio in heard.items() if len(audio) > 1), None)
    if first is None or heard[first][0] != heard[first][1]:
        return {}
    return {spoken: audio[0] for spoken, audio in heard.items()}


@check("seq.counts-messages", "order", "keepalive", general=True, correlates=False)
@on_sessions("no control message about a message was received")
def seq_counts(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every control message carries the `seq` of the message it is about."""
    advice = "Count every client message from 1, and keep the number with what becomes of it."
    for chunk, reason in _numbering(dialogue):
        if reason:
            yield fail(
                reason,
                sent=_cause(dialogue, chunk),
                received=quote.chunk(chunk),
                legal="the ordinal, from 1, of the message this is about; every message counts",
                advice=advice,
            )
        else:
            yield passed()


def misnumbered(dialogue: Dialogue) -> bool:
    """Whether a `seq` of the session is wrong, so that nobody can tell what belongs to what.

    The answer is kept with the dialogue: every check asks.
    """
    if dialogue.misnumbered is None:
        dialogue.misnumbered = any(reason for _, reason in _numbering(dialogue))
    return dialogue.misnumbered


def _numbering(dialogue: Dialogue) -> Iterator[tuple[Chunk, str | None]]:
    """Each control message about another, and what is wrong with its `seq`."""
    running: int | None = None
    begun: set[int] = set()
    for chunk in dialogue.controls:
        asked = any(sent.meaning.type == "hello" for sent in dialogue.sent)
        if chunk.type == "session" and asked and not _is_hello(dialogue, chunk.said_seq):
            yield chunk, f"`seq` of a `session` is {chunk.said_seq}, which is no `hello`."
        if chunk.type not in _ABOUT:
            continue
        # The end of what was begun before is that, also where another was begun meanwhile.
        due = None if chunk.said_seq in begun else running
        yield chunk, _wrong_seq(dialogue, chunk, due)
        if chunk.said_seq is not None and chunk.type == "synthesis_start":
            running = chunk.said_seq
            begun.add(running)


def _wrong_seq(dialogue: Dialogue, chunk: Chunk, running: int | None) -> str | None:
    said = chunk.said_seq
    sent = [s for s in dialogue.sent if s.index < chunk.index]
    if said is None:
        return f"A `{chunk.type}` has no `seq`."
    if not 1 <= said <= len(sent):
        return f"`seq` is {said}, but {len(sent)} messages had been sent."
    message = dialogue.sent[said - 1]
    if message.after_close or (chunk.type == "cancel_done" and message.meaning.type == "cancel"):
        return None
    named = chunk.fields.get("request_id")
    others = [s.seq for s in sent if s.meaning.request_id == named and s.meaning.id_certain]
    # Of odd JSON nobody knows which id, if any, it has.
    known = message.meaning.id_certain
    if isinstance(named, str) and known and others and said not in others:
        return f"`seq` is {said}, but the `request_id` is that of message {others[0]}."
    if chunk.type == "synthesis_complete" and running is not None and said != running:
        return f"`seq` is {said}, but message {running} was being spoken."
    if message.meaning.verdict == "accept" and message.meaning.type in ("keepalive", "close"):
        return f"`seq` is {said}, which is a `{message.meaning.type}`."
    meant = _meant(dialogue, chunk, said) if chunk.rejects else None
    if meant is not None:
        return f"`seq` is {said}, a valid message; the code is that of message {meant.seq}."
    return None


def _is_hello(dialogue: Dialogue, seq: int | None) -> bool:
    known = seq is not None and 1 <= seq <= len(dialogue.sent)
    return known and dialogue.sent[(seq or 1) - 1].meaning.type == "hello"


def _meant(dialogue: Dialogue, chunk: Chunk, said: int) -> Sent | None:
    """The message that a rejection must have been meant for, by its code: one that no answer
    names, where what it does name is valid and was answered before."""
    answered = any(c.said_seq == said and c.number < chunk.number for c in dialogue.answers)
    if dialogue.sent[said - 1].meaning.verdict != "accept" or not answered:
        return None
    named = {c.said_seq for c in dialogue.answers}
    return next(
        (
            sent
            for sent in dialogue.sent
            if sent.index < chunk.index
            and sent.seq not in named
            and not sent.after_close
            and sent.meaning.verdict == "reject"
            and chunk.code in sent.meaning.codes
        ),
        None,
    )


@check(
    "request-id.echoed", "order", "keepalive", "request-id-floor", "accept-defaults", general=True
)
@on_sessions("no control message about an utterance was received")
def echoed(dialogue: Dialogue) -> Iterator[Judgement]:
    """Ids come back exactly as they were sent, and not where none was."""
    for chunk in dialogue.controls:
        message = dialogue.utterance(chunk.seq) if chunk.seq is not None else None
        if chunk.type not in _ABOUT or message is None or not message.sent.meaning.id_certain:
            continue
        expected = message.sent.meaning.request_id
        named = chunk.fields.get("request_id")
        if ("request_id" in chunk.fields) == (expected is not None) and named == expected:
            yield passed()
        elif not _swapped(dialogue, chunk):
            yield fail(
                "The `request_id` is not the one that was sent."
                if expected is not None
                else "There is a `request_id`, though none that is valid was sent.",
                sent=quote.sent(message.sent),
                received=quote.chunk(chunk),
                legal=f"`request_id` {quote.octets(expected.encode())}"
                if expected is not None
                else "no `request_id`",
                advice="Keep the id as a string, untouched, and send it with everything about it.",
            )
