"""Judges of how sessions end: `close`, idling, shutdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = [
    "close_code",
    "close_drains",
    "close_ignores_later",
    "close_last_word",
    "endpoint_gives_up",
    "endpoint_waits",
    "idle_closed",
    "idle_reset",
    "last_seq",
    "session_closed",
    "shutdown_drains",
    "shutdown_going_away",
    "shutdown_session_closed",
]

_AT_LEAST_S: Final = 2.0
_AT_MOST_S: Final = 5.0
_SLACK_S: Final = 0.1
_HELD_UP_S: Final = 1.0
_NOT_THROUGH: Final = "What the endpoint sent to a slow reader did not come through in time."


def _before_close(dialogue: Dialogue) -> list[Utterance]:
    close = dialogue.close_sent
    if close is None:
        return []
    return [u for u in dialogue.utterances.values() if u.seq < close.seq]


def _blocked(dialogue: Dialogue) -> bool:
    """Whether the session ended before `close` could matter, for another rule's reason."""
    owed = dialogue.first_owed
    return dialogue.hung_up and owed is not None and bool(dialogue.chunks)


def _keeps_sessions(evidence: Sequence[Account]) -> bool:
    """Whether the endpoint was seen to go on after an utterance when there was no `close`.

    Then it is the `close` that made it hang up.
    """
    return any(
        dialogue.close_sent is None
        and sum(u.complete is not None for u in dialogue.utterances.values()) > 1
        for account in evidence
        for dialogue in account.dialogues
    )


@check("close.drains", "close-drains", "order")
def close_drains(evidence: Sequence[Account]) -> Judgement:
    """What was accepted before `close` is spoken to its end."""
    keeps = _keeps_sessions(evidence)
    found = (
        judgement
        for account in evidence
        for dialogue in account.dialogues
        if keeps or not _blocked(dialogue)
        for judgement in _drains(dialogue)
    )
    return settle(found, evidence, "no `close` could be sent behind requests")


def _drains(dialogue: Dialogue) -> Iterator[Judgement]:
    close = dialogue.close_sent
    if close is None:
        return
    farewell = dialogue.session_closed
    for utterance in _before_close(dialogue):
        if utterance.sent.meaning.verdict != "accept" or not utterance.sent.awaits_answer:
            continue
        complete = utterance.complete
        in_time = farewell is None or (complete is not None and complete.number < farewell.number)
        if complete is not None and in_time:
            yield passed()
        elif farewell is not None or dialogue.ended or "no session_closed" in dialogue.facts:
            yield fail(
                f"Message {utterance.seq}, sent before `close`, was not spoken to its end.",
                sent=f"{quote.sent(utterance.sent)}; then {quote.sent(close)}",
                received=quote.chunk(utterance.rejection or utterance.terminal)
                if utterance.ended
                else quote.ending(dialogue),
                legal="all of its audio and `synthesis_complete`, then `session_closed`",
                advice="On `close` stop accepting, but finish what was accepted.",
            )


@check("close.session-closed", "close-drains", "close-at-once", "order")
def session_closed(evidence: Sequence[Account]) -> Judgement:
    """`session_closed` answers `close`, with its `seq` and `last_seq`."""
    keeps = _keeps_sessions(evidence)
    found = (
        judgement
        for account in evidence
        for dialogue in account.dialogues
        if keeps or not _blocked(dialogue)
        for judgement in _answers_close(dialogue)
    )
    return settle(found, evidence, "no `close` could be sent")


def _answers_close(dialogue: Dialogue) -> Iterator[Judgement]:
    close, farewell = dialogue.close_sent, dialogue.session_closed
    if close is None:
        return
    legal = (
        f"`session_closed` with `reason` client_close, `seq` {close.seq} and `last_seq`"
        f" {close.seq}, when everything before it has ended"
    )
    advice = "After the last terminal message send `session_closed` with the `seq` of `close`."
    if farewell is None:
        yield fail(
            "`close` was not answered by `session_closed`.",
            sent=quote.sent(close),
            received=quote.ending(dialogue),
            legal=legal,
            advice=advice,
        )
        return
    wrong = [
        f"`{name}` is {farewell.fields.get(name)!r}"
        for name, value in (
            ("reason", "client_close"),
            ("seq", close.seq),
            ("last_seq", close.seq),
        )
        if farewell.fields.get(name) != value
    ]
    early = [
        u
        for u in _before_close(dialogue)
        if u.rejection is not None and u.rejection.number > farewell.number
    ]
    if early:
        wrong.append(f"the `error` for message {early[0].seq} had not been sent")
    if wrong:
        yield fail(
            f"`session_closed` is not right: {'; '.join(wrong)}.",
            sent=quote.sent(close),
            received=quote.chunk(farewell),
            legal=legal,
            advice=advice,
        )
    else:
        yield passed()


@check("close.ignores-later", "close-drains")
@on_sessions("nothing could be sent after `close`")
def close_ignores_later(dialogue: Dialogue) -> Iterator[Judgement]:
    """Messages after `close` get no answer."""
    close = dialogue.close_sent
    if close is None or not any(s.after_close for s in dialogue.sent) or _blocked(dialogue):
        return
    late = {s.meaning.request_id for s in dialogue.sent if s.after_close} - {None}
    for chunk in dialogue.answers:
        said = chunk.said_seq
        if (said is not None and said > close.seq) or chunk.fields.get("request_id") in late:
            yield fail(
                "A message sent after `close` was answered.",
                sent=quote.sent(dialogue.sent[close.seq]),
                received=quote.chunk(chunk),
                legal="no answer: it is counted and ignored",
                advice="After `close` act on nothing but `cancel`.",
            )
            return
    if dialogue.session_closed is not None:
        yield passed()


@check("close.last-word", "close-drains", "close-at-once", "endpoint-closes", general=True)
@on_sessions("no `session_closed` was received")
def close_last_word(dialogue: Dialogue) -> Iterator[Judgement]:
    """Nothing follows `session_closed`."""
    farewell = dialogue.session_closed
    if farewell is None:
        return
    after = next((c for c in dialogue.chunks if c.number > farewell.number), None)
    if after is None:
        yield passed()
        return
    yield fail(
        "Something came after `session_closed`.",
        sent=quote.sent(dialogue.close_sent),
        received=f"{quote.chunk(farewell)}, then {quote.chunk(after)}",
        legal="nothing but the close of the transport",
        advice="Send `session_closed` when nothing else is left to send.",
    )


def _waited(dialogue: Dialogue) -> tuple[float, Chunk] | None:
    """How long the endpoint waited after `session_closed` before it ended the transport."""
    farewell = dialogue.session_closed
    if farewell is None or dialogue.aborted:
        return None
    ended = dialogue.close_in.t if dialogue.close_in else dialogue.eof.t if dialogue.eof else None
    index = dialogue.close_in.index if dialogue.close_in else dialogue.eof_index
    ours = dialogue.close_out
    if ended is None or index is None or (ours is not None and ours.index < index):
        return None
    if dialogue.stood_still(farewell.t, ended):
        return None
    return ended - farewell.t, farewell


@check("close.endpoint-waits", "endpoint-closes", general=True)
@on_sessions("the endpoint never had to wait for the client")
def endpoint_waits(dialogue: Dialogue) -> Iterator[Judgement]:
    """The endpoint leaves the closing to the client for two seconds."""
    if "too big" in dialogue.facts:
        return
    waited = _waited(dialogue)
    legal = "no close from the endpoint for 2 s after `session_closed`"
    if waited is not None:
        seconds, farewell = waited
        if seconds < _AT_LEAST_S - _SLACK_S - dialogue.rtt:
            yield fail(
                f"The endpoint ended the connection {seconds:.2f} s after `session_closed`.",
                sent=quote.sent(dialogue.close_sent),
                received=f"{quote.chunk(farewell)}, then {_how(dialogue)}",
                legal=legal,
                advice="Leave the closing to the client; some platforms report yours as an error.",
            )
        else:
            yield passed()
    elif "waited for the endpoint's close" in dialogue.facts:
        yield passed()


def _how(dialogue: Dialogue) -> str:
    if dialogue.close_in is not None:
        return quote.closing(dialogue.close_in.code)
    return "the end of the connection without a close frame"


@check("close.endpoint-gives-up", "endpoint-closes")
@on_sessions("the session did not get as far as `session_closed`")
def endpoint_gives_up(dialogue: Dialogue) -> Iterator[Judgement]:
    """The endpoint closes by itself in the end."""
    legal = "a close frame from the endpoint 2 to 5 s after `session_closed`"
    advice = "Close by yourself when the client has not after 2 s."
    waited = _waited(dialogue)
    if waited is None and "waited for the endpoint's close" in dialogue.facts:
        yield fail(
            "The endpoint did not close a session that the client leaves open.",
            sent=quote.sent(dialogue.close_sent),
            received="nothing",
            legal=legal,
            advice=advice,
        )
    elif waited is not None and waited[0] > _AT_MOST_S + 0.5 + dialogue.rtt:
        yield fail(
            f"The endpoint closed only {waited[0]:.2f} s after `session_closed`.",
            sent=quote.sent(dialogue.close_sent),
            received=_how(dialogue),
            legal=legal,
            advice=advice,
        )
    elif waited is not None and waited[0] >= _AT_LEAST_S - _SLACK_S - dialogue.rtt:
        yield passed()


@check("close.code", "endpoint-closes", general=True)
@on_sessions("the endpoint never closed a session by itself")
def close_code(dialogue: Dialogue) -> Iterator[Judgement]:
    """The endpoint's own close has code 1000, or 1001 on shutdown."""
    if _waited(dialogue) is None:
        return
    farewell = dialogue.session_closed
    allowed = {1000}
    if "shutdown" in dialogue.facts:
        allowed.add(1001)
    told = farewell is not None and farewell.fields.get("reason") == "message_too_big"
    if told or "too big" in dialogue.facts:
        allowed.add(1009)
    close = dialogue.close_in
    if close is not None and close.code in allowed:
        yield passed()
        return
    codes = " or ".join(str(code) for code in sorted(allowed))
    yield fail(
        "The endpoint ended a session that was over "
        + (f"with code {close.code}." if close is not None else "without a close frame."),
        sent=quote.sent(dialogue.close_sent),
        received=_how(dialogue),
        legal=f"a close frame with code {codes}",
        advice="Close a session that ended well with code 1000.",
    )


def _idle_limit(dialogue: Dialogue) -> float | None:
    value = dialogue.facts.get("idle limit")
    return float(value) if value is not None else None


def _idle_since(dialogue: Dialogue, farewell: Chunk) -> float:
    """When the idle clock last started, as the suite saw it."""
    moments = [dialogue.opened.t if dialogue.opened is not None else 0.0]
    moments += [s.t for s in dialogue.sent if s.t <= farewell.t]
    moments += [c.t for c in dialogue.chunks if c.is_terminal and c.t <= farewell.t]
    return max(moments)


@check("idle.session-closed", "idle")
@on_sessions("no session could be left idle")
def idle_closed(dialogue: Dialogue) -> Iterator[Judgement]:
    """An idle session gets `session_closed` with reason `idle`, not earlier than its limit."""
    limit = _idle_limit(dialogue)
    if limit is None or (
        dialogue.hung_up
        and dialogue.session_closed is None
        and dialogue.chunks
        and dialogue.chunks[-1].is_terminal
        and _idle_time(dialogue) < limit / 2
    ):
        return
    legal = f"`session_closed` with `reason` idle after {limit:g} s without a message"
    advice = "Run one clock for each session; messages reset it, pings do not."
    farewell = dialogue.session_closed
    if farewell is None or farewell.fields.get("reason") != "idle":
        yield fail(
            "An idle session did not get `session_closed` with the reason `idle`.",
            sent=f"{len(dialogue.sent)} messages and {len(dialogue.pings)} pings, then nothing",
            received=quote.ending(dialogue),
            legal=legal,
            advice=advice,
        )
        return
    since = _idle_since(dialogue, farewell)
    if dialogue.stood_still(since, farewell.t):
        return
    waited = farewell.t - since
    if waited < limit - _SLACK_S - dialogue.rtt:
        yield fail(
            f"A session was ended as idle after {waited:.2f} s; its limit is {limit:g} s.",
            sent=quote.sent(dialogue.sent[-1] if dialogue.sent else None),
            received=quote.chunk(farewell),
            legal=legal,
            advice=advice,
        )
    else:
        yield passed()


def _idle_time(dialogue: Dialogue) -> float:
    end = dialogue.close_in.t if dialogue.close_in else dialogue.eof.t if dialogue.eof else 0.0
    return end - dialogue.chunks[-1].t


@check("idle.reset-by-messages", "idle-reset")
@on_sessions("no session could be kept from idling")
def idle_reset(dialogue: Dialogue) -> Iterator[Judgement]:
    """Messages and an unended utterance keep a session."""
    limit = _idle_limit(dialogue)
    if limit is None:
        return
    farewell = dialogue.session_closed
    if farewell is not None and farewell.fields.get("reason") == "idle":
        if dialogue.stood_still(_idle_since(dialogue, farewell), farewell.t):
            # The messages that should have kept it were not sent in time.
            return
        held = "held for" in dialogue.facts
        if held and dialogue.had_ended(dialogue.utterances.get(1), farewell.t - limit):
            yield not_exercised(
                "Something on the way took the whole utterance, so that it ended though it was not"
                " read."
            )
            return
        yield fail(
            "A session was ended as idle "
            + ("while an utterance was unended." if held else "though messages had come."),
            sent=quote.sent(dialogue.sent[-1] if dialogue.sent else None),
            received=quote.chunk(farewell),
            legal="the session goes on: each message starts the idle clock again, and it stands"
            " still while an utterance is unended",
            advice="Reset the idle clock on every message; stop it while anything is unended.",
        )
    elif dialogue.utterances and dialogue.utterances[max(dialogue.utterances)].complete:
        yield passed()


@check("session-closed.last-seq", "idle", "shutdown", general=True)
@on_sessions("no session was ended by the endpoint's own limits")
def last_seq(dialogue: Dialogue) -> Iterator[Judgement]:
    """Without a `close`, `session_closed` has no `seq`, and `last_seq` is the highest answered."""
    farewell = dialogue.session_closed
    if farewell is None or dialogue.close_sent is not None:
        return
    answered = [
        c.said_seq
        for c in dialogue.answers
        if c.said_seq is not None and c.number < farewell.number and c.type != "session_closed"
    ]
    expected = max(answered, default=0)
    if "seq" not in farewell.fields and farewell.fields.get("last_seq") == expected:
        yield passed()
        return
    wrong = (
        "has a `seq`, though no `close` was sent"
        if "seq" in farewell.fields
        else f"has `last_seq` {farewell.fields.get('last_seq')!r}"
    )
    yield fail(
        f"`session_closed` {wrong}.",
        sent=quote.sent(dialogue.sent[-1] if dialogue.sent else None),
        received=quote.chunk(farewell),
        legal=f"no `seq`, and `last_seq` {expected}: the highest `seq` answered",
        advice="Tell in `last_seq` the highest `seq` you have answered, 0 if none.",
    )


def _shutdown_sessions(evidence: Sequence[Account]) -> dict[str, Dialogue]:
    """The sessions of the shutdown scenario by what they were doing."""
    found: dict[str, Dialogue] = {}
    for account in evidence:
        if account.scenario != "shutdown":
            continue
        for dialogue in account.dialogues:
            if "shutdown" not in dialogue.facts or not dialogue.sent:
                continue
            first = dialogue.sent[0].meaning.request_id
            begins = next(e.t for e in dialogue.entries if e.text == "shutdown: begins")
            if dialogue.session_closed is not None and dialogue.session_closed.t < begins:
                # It idled before; the shutdown had nothing to tell it.
                continue
            found[{"running": "draining", "stuck": "stuck"}.get(first or "", "quiet")] = dialogue
    return found


def _too_early(dialogue: Dialogue, t: float) -> bool:
    """Whether the endpoint gave up before its deadline; where that is not known, at once."""
    begins = next(e.t for e in dialogue.entries if e.text == "shutdown: begins")
    limit = dialogue.claims.shutdown_s
    return t - begins < (1.0 if limit is None else limit - _SLACK_S)


def _held_up(dialogue: Dialogue) -> bool:
    """Whether the transport brought nothing for long before it ended in the middle of a frame.

    Then the endpoint may have said all it had to, and it did not come through in time.
    """
    eof = dialogue.eof
    if eof is None or "ended in a frame" not in dialogue.facts:
        return False
    moments = [e.t for e in dialogue.entries if e.dir == "in" and e.kind != "eof"]
    moments += [e.t for e in dialogue.entries if e.text == "deadline: over"]
    return eof.t - max(moments, default=eof.t) > _HELD_UP_S


@check("shutdown.drains", "shutdown")
def shutdown_drains(evidence: Sequence[Account]) -> Judgement:
    """On shutdown everything accepted gets its terminal message, and what can be is finished."""
    legal = (
        "`synthesis_complete` for what can be finished before the deadline, `error` `going_away`"
        " for the rest"
    )
    advice = "On SIGTERM stop accepting, finish what runs and waits, then tell the rest."

    def find() -> Iterator[Judgement]:
        sessions = _shutdown_sessions(evidence)
        draining = sessions.get("draining")
        if draining is not None:
            for utterance in draining.utterances.values():
                if utterance.sent.meaning.request_id in ("running", "waiting"):
                    yield from judge(draining, utterance, finish=True)
        stuck = sessions.get("stuck")
        if stuck is not None and "deadline" in stuck.facts:
            yield from judge(stuck, stuck.utterances[1], finish=False)

    def judge(dialogue: Dialogue, utterance: Utterance, *, finish: bool) -> Iterator[Judgement]:
        ended = utterance.terminal
        failed = ended is not None and ended.type == "error"
        reason = None
        if ended is None and _held_up(dialogue):
            yield not_exercised(_NOT_THROUGH)
            return
        if ended is None:
            reason = f"Message {utterance.seq} had no terminal message when the endpoint was gone."
        elif failed and ended.code != "going_away":
            reason = f"On shutdown an utterance failed with `{ended.code}`."
        elif failed and finish and _too_early(dialogue, ended.t):
            reason = "An utterance was given up, though there was time to finish it."
        if reason is None:
            yield passed()
            return
        yield fail(
            reason,
            sent=f"{quote.sent(utterance.sent)}; then SIGTERM",
            received=quote.chunk(ended) if ended is not None else quote.ending(dialogue),
            legal=legal,
            advice=advice,
        )

    return settle(find(), evidence, "no endpoint could be shut down")


@check("shutdown.going-away", "shutdown")
def shutdown_going_away(evidence: Sequence[Account]) -> Judgement:
    """A request after the signal is rejected with `going_away`."""
    legal = "one `error` with `rejected` true and the code going_away"
    advice = "From SIGTERM on reject every new request with `going_away`."

    def find() -> Iterator[Judgement]:
        dialogue = _shutdown_sessions(evidence).get("draining")
        if dialogue is None:
            return
        late = [u for u in dialogue.utterances.values() if u.sent.meaning.request_id == "late"]
        for utterance in late:
            chunk = utterance.rejection
            if chunk is not None and chunk.code == "going_away":
                yield passed()
                continue
            yield fail(
                "A request sent after SIGTERM was not rejected with `going_away`.",
                sent=f"SIGTERM; then {quote.sent(utterance.sent)}",
                received=quote.chunk(utterance.chunks[0])
                if utterance.chunks
                else quote.ending(dialogue),
                legal=legal,
                advice=advice,
            )

    return settle(find(), evidence, "no endpoint could be shut down")


@check("shutdown.session-closed", "shutdown")
def shutdown_session_closed(evidence: Sequence[Account]) -> Judgement:
    """Each session is told `session_closed` with reason `going_away` before it is closed."""

    def find() -> Iterator[Judgement]:
        sessions = _shutdown_sessions(evidence)
        for name in ("draining", "quiet"):
            dialogue = sessions.get(name)
            if dialogue is None:
                continue
            farewell = dialogue.session_closed
            if farewell is not None and farewell.fields.get("reason") == "going_away":
                yield passed()
                continue
            if farewell is None and _held_up(dialogue):
                yield not_exercised(_NOT_THROUGH)
                continue
            yield fail(
                f"On shutdown a session ({name}) was not told `session_closed` with the reason"
                " `going_away`.",
                sent="SIGTERM",
                received=quote.ending(dialogue),
                legal="`session_closed` with `reason` going_away, then the close of the transport",
                advice="Take SIGTERM before your web server does; it may close every WebSocket.",
            )

    return settle(find(), evidence, "no endpoint could be shut down")
