"""Judges of single messages: was each accepted or rejected as it must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from utterwire_conformance.check import Judge, check, on_sessions
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.transcript import Case
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = ["judge_case", "judge_cases"]

_DONE: Final = frozenset({"cancel_done", "session"})
_EXCUSES: Final = frozenset({"overloaded", "going_away"})

_ACCEPTED: Final[dict[str, tuple[str, str]]] = {
    "accept.defaults": ("accept-defaults", "Give every field but `text` a default."),
    "message.type-absent": ("type-absent", "Take a missing or null `type` for `synthesize`."),
    "message.unknown-fields-ignored": (
        "unknown-fields",
        "Ignore fields that you do not know, whatever they hold.",
    ),
    "message.reserved-fields-ignored": (
        "reserved-fields",
        "Ignore `language` and `model`, whatever they hold.",
    ),
    "message.null-is-absent": ("null-fields", "Treat a field that is null as if it were absent."),
    "message.integral-floats": (
        "integral-floats",
        "Go by the value of a number, not by how it is written.",
    ),
    "message.request-timestamp": (
        "request-timestamp",
        "Do not look at `request_timestamp` when you validate.",
    ),
    "message.unclaimed-marks": (
        "unclaimed-marks",
        "Ignore `marks` as long as you do not claim the profile `timing`.",
    ),
    "accept.speed-range": ("speed-range", "Accept every speed from 0.5 to 2.0."),
    "accept.text-floor": ("text-floor", "Accept text of 4,096 code points (not bytes)."),
    "accept.message-floor": ("message-floor", "Accept messages of 65,536 bytes."),
    "accept.request-id-floor": (
        "request-id-floor",
        "Accept every `request_id` of 1 to 128 code points, whatever its characters.",
    ),
    "accept.waiting-floor": (
        "waiting-floor many",
        "Let eight requests wait behind the running one.",
    ),
}

_REJECTED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "reject.invalid-json": (
        ("reject-invalid-json",),
        "Answer what is not JSON with one `error` of code `invalid_json`, and read on.",
    ),
    "reject.empty-frame": (
        ("reject-empty-frame",),
        "Answer an empty message like any other that is not JSON.",
    ),
    "reject.not-an-object": (
        ("reject-not-an-object",),
        "Answer JSON that is no object with `not_an_object`.",
    ),
    "reject.invalid-utf8": (
        ("reject-invalid-utf8",),
        "Decode binary messages as strict UTF-8, and answer a failure with `invalid_utf8`.",
    ),
    "reject.unknown-type": (
        ("reject-unknown-type",),
        "Answer a `type` that you do not know with `unknown_type`.",
    ),
    "reject.type-not-string": (
        ("reject-type-not-string",),
        "Answer a `type` that is no string with `invalid_request`.",
    ),
    "reject.reserved-types": (
        ("reject-reserved-types",),
        "Answer `append` and `flush` with `unknown_type`.",
    ),
    "reject.unclaimed-types": (
        ("reject-unclaimed-types",),
        "Answer types of profiles you do not claim with `unknown_type`, or claim the profile.",
    ),
    "reject.missing-text": (
        ("reject-missing-text",),
        "Answer a request without `text` with `missing_text`.",
    ),
    "reject.text-type": (
        ("reject-text-type",),
        "Answer a `text` that is no string with `invalid_request` or `missing_text`.",
    ),
    "reject.empty-text": (
        ("reject-empty-text",),
        "Answer text of nothing but Unicode White_Space with `empty_text`.",
    ),
    "reject.lone-surrogate": (
        ("reject-lone-surrogate",),
        "Answer text with a lone surrogate with `invalid_request`.",
    ),
    "reject.text-too-long": (
        ("reject-text-too-long",),
        "Answer text beyond your limit, counted in code points, with `text_too_long`.",
    ),
    "reject.invalid-voice": (
        ("reject-invalid-voice", "audio-fields"),
        "Answer a `voice` that you do not have with `invalid_voice`.",
    ),
    "reject.invalid-speed": (
        ("reject-invalid-speed", "reject-beyond-limits"),
        "Answer a `speed` outside your range with `invalid_speed`.",
    ),
    "reject.unsupported-sample-rate": (
        ("reject-unsupported-sample-rate",),
        "Answer a `sample_rate` that you do not offer with `unsupported_sample_rate`.",
    ),
    "reject.unsupported-format": (
        ("reject-unsupported-format",),
        "Answer a `format` that you do not offer with `unsupported_format`.",
    ),
    "reject.field-types": (
        ("reject-field-types",),
        "Check the JSON type of every field, and answer `invalid_request` or the field's code.",
    ),
    "reject.boolean-is-not-number": (
        ("reject-boolean-is-not-number",),
        "Do not take true and false for numbers; in many languages they pass for 1 and 0.",
    ),
    "reject.request-id": (
        ("reject-request-id", "reject-beyond-limits"),
        "Answer a `request_id` that is no string of 1 to the limit with `invalid_request`.",
    ),
    "reject.duplicate-request-id": (
        ("duplicate-id",),
        "Answer an id that an unended utterance has with `duplicate_request_id`.",
    ),
}


def judge_case(dialogue: Dialogue, utterance: Utterance, case: Case) -> Iterator[Judgement]:
    """Judge one message against what its case says is legal."""
    if case.expect == "accept":
        yield from _accepted(dialogue, utterance)
    else:
        yield from _rejected(dialogue, utterance, case)


def judge_cases(name: str, advice: str) -> Judge:
    """A judge of every message whose case serves the check of that name."""

    @on_sessions("no such message could be sent")
    def judge(dialogue: Dialogue) -> Iterator[Judgement]:
        for utterance in dialogue.utterances.values():
            case = utterance.sent.case
            if case is not None and case.check == name:
                for judgement in judge_case(dialogue, utterance, case):
                    yield replace(judgement, advice=advice)

    return judge


@check("request-id.reusable", "duplicate-id", "cancel-named", "cancel-all")
@on_sessions("no id could be used again")
def id_reusable(dialogue: Dialogue) -> Iterator[Judgement]:
    """An id is free when its utterance has ended, in whatever way."""
    advice = "Free a `request_id` when its utterance has ended, and never keep that of a rejection."
    for utterance in dialogue.utterances.values():
        case, refusal = utterance.sent.case, utterance.rejection
        if case is not None and case.check == "request_id.reusable":
            for judgement in judge_case(dialogue, utterance, case):
                yield replace(judgement, advice=advice)
        elif (cancelled := _cancelled_before(dialogue, utterance)) is not None:
            if utterance.complete is not None:
                yield passed()
            elif refusal is not None and refusal.code == "duplicate_request_id":
                yield fail(
                    "The id of an utterance that was cancelled was taken for one in use.",
                    sent=f"{quote.sent(utterance.sent)}; before it came {quote.chunk(cancelled)}",
                    received=quote.chunk(refusal),
                    legal="`synthesis_start`, audio, `synthesis_complete`",
                    advice=advice,
                )


def _cancelled_before(dialogue: Dialogue, utterance: Utterance) -> Chunk | None:
    """The `cancelled` that freed the id of a request before it was sent; None if none did, or if
    anything else may have the id."""
    named, sent = utterance.sent.meaning.request_id, utterance.sent
    if named is None or sent.meaning.type != "synthesize" or sent.meaning.verdict != "accept":
        return None
    earlier = [
        other.terminal
        for other in dialogue.utterances.values()
        if other.seq < utterance.seq
        and other.sent.meaning.type == "synthesize"
        and other.sent.meaning.request_id == named
    ]
    if not earlier or any(end is None or end.index > sent.index for end in earlier):
        return None
    return earlier[-1] if earlier[-1] is not None and earlier[-1].type == "cancelled" else None


def _code(refusal: Chunk) -> str:
    return f"with `{refusal.code}`" if refusal.code is not None else "without a code"


def _unanswered(dialogue: Dialogue, utterance: Utterance, legal: str) -> Iterator[Judgement]:
    sent = quote.sent(utterance.sent)
    if dialogue.passed_over(utterance):
        yield fail(
            "The message was not answered at all.", sent=sent, received="no answer", legal=legal
        )
    elif dialogue.hung_up and utterance.seq == 1:
        how = quote.ending(dialogue)
        yield fail(
            "The endpoint ended the session instead of answering.",
            sent=sent,
            received=how,
            legal=legal,
        )


def _accepted(dialogue: Dialogue, utterance: Utterance) -> Iterator[Judgement]:
    legal = "`synthesis_start`, audio, `synthesis_complete`"
    refusal = utterance.rejection or next(
        (c for c in utterance.terminals if c.type == "error" and not utterance.starts), None
    )
    if refusal is not None and refusal.code in _EXCUSES:
        yield not_exercised(f"The endpoint refused a valid request with {refusal.code}.")
    elif refusal is not None:
        yield fail(
            f"A valid message was rejected {_code(refusal)}.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(refusal),
            legal=legal,
        )
    elif utterance.answered:
        yield passed()
    else:
        yield from _unanswered(dialogue, utterance, legal)


def _id_was_free(dialogue: Dialogue, utterance: Utterance) -> bool:
    """Whether the utterance that had the id had ended before, by its own account."""
    named = utterance.sent.meaning.request_id
    twin = next(
        (
            u
            for u in dialogue.utterances.values()
            if named is not None and u.sent.meaning.request_id == named and u.seq < utterance.seq
        ),
        None,
    )
    return dialogue.had_ended(twin, utterance.sent.t)


def _rejected(dialogue: Dialogue, utterance: Utterance, case: Case) -> Iterator[Judgement]:
    legal = f"one `error` with `rejected` true and the code {' or '.join(case.codes)}"
    if case.expect == "either":
        legal = f"either speech, or {legal}"
    sent = quote.sent(utterance.sent)
    refusal = utterance.rejection or next(
        (c for c in utterance.terminals if c.type == "error" and not utterance.starts), None
    )
    if refusal is not None and refusal.code in case.codes:
        yield passed()
    elif refusal is not None and refusal.code in _EXCUSES:
        yield not_exercised(f"The endpoint refused the message with {refusal.code}.")
    elif refusal is not None:
        yield fail(
            f"The message was rejected {_code(refusal)}.",
            sent=sent,
            received=quote.chunk(refusal),
            legal=legal,
        )
    elif utterance.answered and case.expect == "either":
        yield passed()
    elif utterance.answered and _id_was_free(dialogue, utterance):
        yield not_exercised("The first utterance had ended before its id was used again.")
    elif utterance.answered:
        yield fail(
            "The message was accepted.",
            sent=sent,
            received=quote.chunk(utterance.chunks[0]),
            legal=legal,
        )
    elif (done := _carried_out(dialogue, utterance)) is not None:
        yield fail(
            "The message was carried out.", sent=sent, received=quote.chunk(done), legal=legal
        )
    else:
        yield from _unanswered(dialogue, utterance, legal)


def _carried_out(dialogue: Dialogue, utterance: Utterance) -> Chunk | None:
    """What answers a message as if it were of a type that the endpoint claims."""
    seq = utterance.seq
    return next((c for c in dialogue.controls if c.said_seq == seq and c.type in _DONE), None)


for _requirement, (_names, _advice) in _ACCEPTED.items():
    check(_requirement, *_names.split())(judge_cases(_requirement.replace("-", "_"), _advice))
for _requirement, (_scenarios, _advice) in _REJECTED.items():
    check(_requirement, *_scenarios)(judge_cases(_requirement.replace("-", "_"), _advice))
