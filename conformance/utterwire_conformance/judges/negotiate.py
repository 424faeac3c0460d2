"""Judges of `hello` and of what `session` states (`protocol.md#hello`, `protocol.md#session`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from utterwire_conformance.check import Account, Judge, check, on_sessions, settle
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote
from .cases import judge_case, judge_cases

__all__ = [
    "first_only",
    "hello_session",
    "limits",
    "limits_hold",
    "matches_claims",
    "offers_work",
    "optional",
    "refused",
]

_FLOORS: Final = {
    "max_text_chars": 4096,
    "max_message_bytes": 65_536,
    "max_request_id_chars": 128,
    "max_waiting": 8,
    "max_speed": 2.0,
}
_SLACK_S: Final = 0.1
_TIMELY_S: Final = 0.25
_LATE_S: Final = 1.0
# A list that nearly fills a control message (64 KiB) may hold some of the voices only.
_ALL_VOICES_BYTES: Final = 50_000


def _first(dialogue: Dialogue) -> Utterance | None:
    """The `hello` that is message 1."""
    first = dialogue.utterances.get(1)
    return first if first is not None and first.sent.meaning.type == "hello" else None


def _sessions(dialogue: Dialogue) -> list[Chunk]:
    return [chunk for chunk in dialogue.controls if chunk.type == "session"]


def _spoken_before(dialogue: Dialogue, chunk: Chunk) -> Chunk | None:
    """Something about a later message that came before this answer to message 1."""
    return next(
        (c for c in dialogue.chunks if c.number < chunk.number and not _private(c)),
        None,
    )


def _private(chunk: Chunk) -> bool:
    return (chunk.type or "").startswith("x_")


@check("hello.session", "negotiation", "hello-versions", correlates=False)
@on_sessions("no `hello` could be sent as message 1")
def hello_session(dialogue: Dialogue) -> Iterator[Judgement]:
    """A valid `hello` as message 1 is answered at once by one `session`."""
    hello = _first(dialogue)
    if hello is None or hello.sent.meaning.verdict != "accept":
        return
    legal = "one `session` with `seq` 1 and `protocol_version` 1, ahead of all other answers"
    answers = _sessions(dialogue)
    reason = ""
    shown: Chunk | None = answers[0] if answers else hello.rejection
    if hello.rejection is not None:
        reason = f"A valid `hello` was rejected with `{hello.rejection.code}`."
    elif not answers:
        over = dialogue.passed_over(hello) or dialogue.hung_up
        reason = "`hello` was not answered by `session`." if over else ""
    elif answers[0].fields.get("seq") != 1:
        reason = f"`seq` of `session` is {answers[0].fields.get('seq')!r}."
    elif answers[0].fields.get("protocol_version") != 1:
        reason = f"`protocol_version` is {answers[0].fields.get('protocol_version')!r}."
    elif "request_id" in answers[0].fields:
        reason = "`session` carries a `request_id`."
    elif _spoken_before(dialogue, answers[0]) is not None:
        reason = "Something else was sent before `session`."
        shown = _spoken_before(dialogue, answers[0])
    if reason:
        yield fail(
            reason,
            sent=quote.sent(hello.sent),
            received=quote.chunk(shown) if shown else quote.ending(dialogue),
            legal=legal,
            advice="Answer `hello` before you look at the next message; pass over versions that"
            " you do not know.",
        )
    elif answers:
        yield passed()


@check("hello.optional", "without-hello")
@on_sessions("no request could be sent without `hello`")
def optional(dialogue: Dialogue) -> Iterator[Judgement]:
    """A session without `hello` works, at version 1."""
    if any(s.meaning.type == "hello" for s in dialogue.sent):
        return
    legal = "`synthesis_start`, audio, `synthesis_complete`, and no `session`"
    advice = "Do not wait for `hello`: without one the session is at version 1."
    for chunk in _sessions(dialogue):
        yield fail(
            "`session` came, and nobody had said `hello`.",
            sent=quote.sent(dialogue.sent[0] if dialogue.sent else None),
            received=quote.chunk(chunk),
            legal=legal,
            advice=advice,
        )
        return
    for utterance in dialogue.utterances.values():
        if utterance.sent.meaning.type != "synthesize":
            continue
        refusal = utterance.rejection
        if utterance.complete is not None:
            yield passed()
        elif refusal is not None and refusal.code in ("overloaded", "going_away"):
            yield not_exercised(f"The endpoint refused a request with {refusal.code}.")
        elif refusal is not None or dialogue.passed_over(utterance) or not dialogue.chunks:
            yield fail(
                "A request in a session without `hello` was not served.",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(refusal) if refusal else quote.ending(dialogue),
                legal=legal,
                advice=advice,
            )
            return


def _had_ended(dialogue: Dialogue, utterance: Utterance, sent: float) -> bool:
    start, complete = utterance.start, utterance.complete
    asked, opened = dialogue.asked, dialogue.opened
    rtt = opened.t - asked.t if asked is not None and opened is not None else 0.0
    elapsed = complete.fields.get("elapsed_s") if complete is not None else None
    if start is None or not isinstance(elapsed, int | float):
        return False
    return start.t + elapsed <= sent + _SLACK_S + 2 * rtt


def _waited(dialogue: Dialogue, hello: Utterance) -> Utterance | None:
    """An utterance that a rejection, due at once, was kept back for."""
    refusal = hello.rejection
    if refusal is None:
        return None
    return next(
        (
            u
            for u in dialogue.utterances.values()
            if u.start is not None
            and u.start.index < hello.sent.index
            and u.terminal is not None
            and hello.sent.index < u.terminal.index < refusal.index
            and u.complete is not None
            and not _had_ended(dialogue, u, hello.sent.t)
        ),
        None,
    )


@check("hello.first-only", "hello-late", "negotiation", "hello-unsupported", "hello-malformed")
@on_sessions("no `hello` could be sent as a later message")
def first_only(dialogue: Dialogue) -> Iterator[Judgement]:
    """A `hello` that is not message 1 is rejected at once, whatever it holds."""
    advice = "Reject a `hello` that is not message 1 with `invalid_request`, without looking at it."
    for utterance in dialogue.utterances.values():
        case = utterance.sent.case
        if case is None or case.check != "hello.first_only":
            continue
        for judgement in judge_case(dialogue, utterance, case):
            yield replace(judgement, advice=advice)
        kept = _waited(dialogue, utterance)
        if kept is not None:
            yield fail(
                "The rejection of a late `hello` came only after an utterance had ended.",
                sent=f"{quote.sent(kept.sent)}; then {quote.sent(utterance.sent)}",
                received=quote.chunk(utterance.rejection),
                legal="the `error` at once, ahead of all that waits",
                advice="Send what rejects a `hello` ahead of all that waits.",
            )


def refused(requirement: str, scenario: str, advice: str) -> Judge:
    """A judge of `hello` as message 1 that must be rejected at once, and of what follows it."""
    name = requirement.replace("-", "_")
    by_case = judge_cases(name, advice)

    def judge(evidence: Sequence[Account]) -> Judgement:
        own = [a for a in evidence if a.own]
        rest = (j for a in own for d in a.dialogues for j in _goes_on(d, name))
        return settle([by_case(evidence), *rest], evidence, "no such `hello` could be sent")

    return check(requirement, scenario)(judge)


def _goes_on(dialogue: Dialogue, name: str) -> Iterator[Judgement]:
    """After a refused `hello` requests are served, and none was answered before the refusal."""
    hello = dialogue.utterances.get(1)
    case = hello.sent.case if hello is not None else None
    if hello is None or case is None or case.check != name or hello.rejection is None:
        return
    early = _spoken_before(dialogue, hello.rejection)
    if early is not None:
        yield fail(
            "The answer to a later message came before the rejection of `hello`.",
            sent=quote.sent(hello.sent),
            received=f"{quote.chunk(early)}, then {quote.chunk(hello.rejection)}",
            legal="the `error` at once",
            advice="Answer `hello` before you look at the next message.",
        )
    for utterance in dialogue.utterances.values():
        meaning = utterance.sent.meaning
        if meaning.type != "synthesize" or meaning.verdict == "reject":
            continue
        bad = utterance.rejection
        lost = dialogue.passed_over(utterance) or (dialogue.hung_up and not utterance.ended)
        if (bad is not None and bad.code not in ("overloaded", "going_away")) or lost:
            yield fail(
                "After a refused `hello` the session did not go on at version 1.",
                sent=f"{quote.sent(hello.sent)}; then {quote.sent(utterance.sent)}",
                received=quote.chunk(bad) if bad else quote.ending(dialogue),
                legal="the request is served",
                advice="A refused `hello` changes nothing: go on at version 1.",
            )
            return


refused(
    "hello.unsupported-version",
    "hello-unsupported",
    "Answer a `hello` without a version that you speak with `unsupported_version`, and go on.",
)
refused(
    "hello.malformed",
    "hello-malformed",
    "Check that `protocol_versions` is an array of integers, and not empty.",
)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _short(stated: Mapping[str, Any]) -> list[str]:
    """What is wrong with the `limits` of a `session`."""
    found = []
    for name, floor in _FLOORS.items():
        value = _number(stated.get(name))
        if value is None:
            found.append(f"`{name}` is missing or no number")
        elif value < floor:
            found.append(f"`{name}` is {value:g}, less than {floor:g}")
    slow, idle = _number(stated.get("min_speed")), _number(stated.get("idle_timeout_s"))
    if slow is None or not 0 < slow <= 0.5:
        found.append(f"`min_speed` is {stated.get('min_speed')!r}")
    if idle is None or idle <= 0:
        found.append(f"`idle_timeout_s` is {stated.get('idle_timeout_s')!r}")
    return found


@check("session.limits", "negotiation", general=True)
@on_sessions("no `session` was received")
def limits(dialogue: Dialogue) -> Iterator[Judgement]:
    """`limits` holds every key, none short of its floor."""
    for chunk in _sessions(dialogue):
        stated = chunk.fields.get("limits")
        wrong = _short(stated) if isinstance(stated, Mapping) else ["`limits` is no object"]
        if wrong:
            yield fail(
                f"The limits in `session` are not right: {'; '.join(wrong)}.",
                sent=quote.sent(dialogue.sent[0] if dialogue.sent else None),
                received=quote.chunk(chunk),
                legal="every key of `protocol.md#limits`, none short of its floor",
                advice="State all seven limits, as they are enforced.",
            )
            return
        yield passed()


def _disagreements(
    claims: EndpointClaims, stated: Mapping[str, Any], voice: str | None
) -> list[str]:
    """Where `session` says something else than the endpoint file."""
    found = []
    sets: list[tuple[str, frozenset[Any] | None]] = [
        ("profiles", claims.profiles),
        ("formats", claims.formats),
        ("sample_rates", claims.sample_rates),
        ("voices", claims.voices),
    ]
    for name, claimed in sets:
        told = stated.get(name)
        if claimed is None or not isinstance(told, list):
            continue
        some = name == "voices" and sum(len(str(v).encode()) for v in told) > _ALL_VOICES_BYTES
        extra = [v for v in told if v not in claimed]
        missing = [] if some else sorted(claimed - {v for v in told if isinstance(v, str | int)})
        if extra:
            found.append(f"`{name}` has {extra}, which is not claimed")
        if missing:
            found.append(f"`{name}` lacks {missing}, which is claimed")
    limits = stated.get("limits")
    limits = limits if isinstance(limits, Mapping) else {}
    for name, number in (
        ("max_text_chars", claims.max_text_chars),
        ("max_message_bytes", claims.max_message_bytes),
        ("max_request_id_chars", claims.max_request_id_chars),
        ("max_waiting", claims.max_waiting),
        ("min_speed", claims.min_speed),
        ("max_speed", claims.max_speed),
        ("idle_timeout_s", claims.idle_s),
    ):
        if number is not None and name in limits and limits[name] != number:
            found.append(f"`{name}` is {limits[name]!r}; {number:g} is claimed")
    voices = stated.get("voices")
    listed = isinstance(voices, list) and voice in voices
    whole = isinstance(voices, list) and sum(len(str(v)) for v in voices) <= _ALL_VOICES_BYTES
    if voice is not None and whole and not listed:
        found.append(f"`voices` lacks {voice!r}, the voice for ordinary requests")
    return found


@check("session.matches-claims", "negotiation")
def matches_claims(evidence: Sequence[Account]) -> Judgement:
    """`session` agrees with the endpoint file."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for dialogue in account.dialogues:
                for chunk in _sessions(dialogue):
                    voice = dialogue.facts.get("ordinary voice")
                    wrong = _disagreements(account.transcript.claims, chunk.fields, voice)
                    if wrong:
                        yield fail(
                            f"`session` and the endpoint file disagree: {'; '.join(wrong)}.",
                            sent=quote.sent(dialogue.sent[0] if dialogue.sent else None),
                            received=quote.chunk(chunk),
                            legal="the profiles, formats, voices, rates and limits claimed",
                            advice="Correct the one that is wrong: the endpoint or its file.",
                        )
                    else:
                        yield passed()

    return settle(find(), evidence, "no `session` was received")


@check("session.offers-work", "offers")
@on_sessions("no `session` was received")
def offers_work(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every voice, format and rate that is listed is accepted, and is what is started."""
    advice = "List what you serve, and nothing else."
    for utterance in dialogue.utterances.values():
        case = utterance.sent.case
        if case is None or case.check != "session.offers_work":
            continue
        for judgement in judge_case(dialogue, utterance, case):
            yield replace(judgement, advice=advice)
        name, value = next(
            ((n, v) for n, v in utterance.sent.meaning.fields.items() if n not in ("text", "type")),
            ("", None),
        )
        start = utterance.start
        if start is not None and name and start.fields.get(name) != value:
            yield fail(
                f"What `session` lists was accepted, and something else was started ({case.name}).",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(start),
                legal=f"`synthesis_start` with `{name}` {value!r}",
                advice=advice,
            )


@check("session.limits-hold", "stated-limits", "stated-idle")
@on_sessions("none of the limits that `session` states could be reached")
def limits_hold(dialogue: Dialogue) -> Iterator[Judgement]:
    """What keeps to the stated limits is not refused for them; what goes past them is."""
    advice = "State the limits that you enforce, exactly."
    for utterance in dialogue.utterances.values():
        case = utterance.sent.case
        if case is None or case.check != "session.limits_hold":
            continue
        if case.expect == "accept" and not utterance.answered and _too_big(dialogue):
            yield fail(
                "The session was ended over a message of the stated `max_message_bytes`.",
                sent=f"message {utterance.seq}, {len(utterance.sent.data)} bytes",
                received=quote.ending(dialogue),
                legal="the message is accepted",
                advice=advice,
            )
        elif "queue_full" in case.codes and dialogue.had_ended(
            next((u for u in dialogue.utterances.values() if u.starts), None), utterance.sent.t
        ):
            yield not_exercised(
                "something on the way took the whole utterance that was to hold up the queue"
            )
        elif case.codes or case.expect == "accept":
            for judgement in judge_case(dialogue, utterance, case):
                yield replace(judgement, advice=advice)
        elif utterance.starts:
            yield fail(
                "A message larger than the stated `max_message_bytes` was accepted.",
                sent=f"message {utterance.seq}, {len(utterance.sent.data)} bytes",
                received=quote.chunk(utterance.start),
                legal="the session ends with code 1009",
                advice=advice,
            )
        elif dialogue.close_in is not None or dialogue.eof is not None:
            yield passed()
    limit = _number_of(dialogue.facts.get("stated idle"))
    opened = dialogue.opened
    if limit is None or opened is None or "idle" not in dialogue.facts:
        return
    since = max([s.t for s in dialogue.sent], default=opened.t)
    farewell = dialogue.session_closed
    if farewell is not None and dialogue.stood_still(since, farewell.t):
        return
    waited = farewell.t - since if farewell is not None else None
    if farewell is None or farewell.fields.get("reason") != "idle":
        reason = f"After the stated {limit:g} s of silence the session did not end as idle."
    elif waited is not None and not limit - _TIMELY_S <= waited <= limit * 1.25 + _LATE_S:
        reason = f"The session ended as idle after {waited:.2f} s; {limit:g} s is stated."
    else:
        yield passed()
        return
    yield fail(
        reason,
        sent=quote.sent(dialogue.sent[0] if dialogue.sent else None),
        received=quote.ending(dialogue),
        legal="`session_closed` with the reason idle when the stated time is over",
        advice=advice,
    )


def _too_big(dialogue: Dialogue) -> bool:
    """Whether the endpoint ended the session because of the size of a message."""
    farewell, close = dialogue.session_closed, dialogue.close_in
    told = farewell is not None and farewell.fields.get("reason") == "message_too_big"
    return told or (close is not None and close.code == 1009)


def _number_of(text: str | None) -> float | None:
    return float(text) if text is not None else None
