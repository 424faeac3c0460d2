"""Judges of how a client takes the end of sessions, due or not."""

from __future__ import annotations

from collections.abc import Iterator

from utterwire_conformance.client_half.account import ClientAccount
from utterwire_conformance.client_half.scripts.ending import LOST
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.judges import quote
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from .finding import asked, came, own_session, rule, told

__all__ = [
    "deadline",
    "http_truncation",
    "incomplete_told",
    "keeps_sending_side",
    "last_seq",
]

_LOST_SCRIPTS = (
    *(f"client-lost-{name}" for name in LOST),
    *(f"client-lost-{name}" for name in ("garbage", "wrong-key", "unauthorised")),
)


@rule(
    "client.incomplete-told",
    *_LOST_SCRIPTS,
    otherwise="no session could be broken off",
)
def incomplete_told(account: ClientAccount) -> Iterator[Judgement]:
    """The end of a session before that of an utterance is reported."""
    points = account.facts("session lost")
    if not points:
        return
    for line in account.lines:
        yield told(
            account,
            line,
            what=f"The session was lost ({points[0]}) before utterance {line.number} had ended",
            advice="Report every request that has no terminal message when a session ends.",
        )


@rule(
    "client.last-seq",
    "client-last-seq",
    "client-going-away",
    "client-policy",
    otherwise="no `session_closed` crossed a request",
)
def last_seq(account: ClientAccount) -> Iterator[Judgement]:
    """What is above `last_seq` had no effect; of what is not, nothing is known."""
    line = account.lines[0] if account.lines else None
    dialogue = next(iter(own_session(account)), None)
    farewell = dialogue.session_closed if dialogue is not None else None
    if line is None or farewell is None or not line.attempts:
        return
    if farewell.fields.get("reason") == "client_close":
        return
    processed = line.ending.processed if line.ending is not None else None
    first = line.attempts[0].utterance
    above = first is not None and first.seq > int(str(farewell.fields.get("last_seq")))
    wrong = fail(
        f"A request that is {'above' if above else 'not above'} `last_seq` is told to have been"
        f" {'processed' if above else 'without effect'}.",
        sent=quote.chunk(farewell),
        received=came(account, line),
        legal="`failed` with processed false, or the same request in another session"
        if above
        else "`failed`, without processed false: it can have had its effect",
        advice="Compare the `seq` of each request that has no answer with `last_seq`.",
    )
    if not above:
        if processed is False:
            yield wrong
        return
    if line.kind == "complete" and line.fault() is not None:
        yield wrong
    elif len(line.attempts) > 1 or processed is False:
        yield passed()
    elif processed is True:
        yield wrong
    else:
        yield not_exercised(
            "The client did not tell whether its request had been processed (`processed` in the"
            " event `failed`), and did not send it again."
        )


@rule(
    "client.keeps-sending-side",
    "client-closing",
    "client-slow-goodbye",
    "client-plain",
    otherwise="the client never sent `close`: it disconnects when it has all, which loses nothing",
)
def keeps_sending_side(account: ClientAccount) -> Iterator[Judgement]:
    """The client closes when `session_closed` has come, and not before."""
    for dialogue in own_session(account):
        yield from _closing(account, dialogue)


def _closing(account: ClientAccount, dialogue: Dialogue) -> Iterator[Judgement]:
    left = _left_at(dialogue)
    farewell, close = dialogue.session_closed, dialogue.close_sent
    advice = "After `close` read on until `session_closed`; only then close the transport."
    if close is not None and left is not None and (farewell is None or left < farewell.index):
        yield fail(
            "The client closed after its `close`, before `session_closed` had been sent.",
            sent="nothing yet, or what was still to be spoken",
            received=f"{quote.sent(close)}, then the end of the connection",
            legal="an open connection until `session_closed`",
            advice=advice,
        )
    elif "the client left the closing to the endpoint" in dialogue.facts and farewell is not None:
        yield fail(
            "The client did not close after `session_closed`.",
            sent=quote.chunk(farewell),
            received=f"for 3 s nothing; {account.way_out}",
            legal="a close frame as soon as `session_closed` has been read",
            advice="Close the transport when `session_closed` has come: some platforms take an"
            " endpoint's close for an error.",
        )
    elif close is not None and farewell is not None and left is not None:
        yield passed()


def _left_at(dialogue: Dialogue) -> int | None:
    """The place at which the client closed, or ended its direction."""
    return next(
        (
            index
            for index, entry in enumerate(dialogue.entries)
            if entry.dir == "out" and entry.kind in ("close", "eof")
        ),
        None,
    )


@rule(
    "client.deadline",
    "client-silent-handshake",
    "client-silent-request",
    "client-silent-middle",
    "client-silent-close",
    otherwise="no point was reached at which the endpoint falls silent",
)
def deadline(account: ClientAccount) -> Iterator[Judgement]:
    """The client gives up on an endpoint that says nothing more."""
    points = account.facts("silent")
    if not points or not account.ended:
        return
    if account.killed is None:
        yield passed()
    elif account.deadline_s is None:
        yield not_exercised(
            "The client still waited when the suite gave up; how long it waits is not known: put"
            " {deadline_s} into the command, or say it with --deadline-s."
        )
    else:
        where = {"close": "after `close`", "handshake": "at the handshake"}.get(
            points[0], f"after the {points[0]}" if points[0] == "request" else "in the middle"
        )
        yield fail(
            f"The endpoint fell silent {where}, and the client waited without end.",
            sent="nothing more",
            received=f"{account.way_out}; its deadline is {account.deadline_s:g} s",
            legal="`failed`, or the end of the client, when its deadline has passed",
            advice="Set a deadline for the opening, the first audio, each pause and the goodbye.",
        )


@rule(
    "client.http-truncation",
    "client-http-cut-chunked",
    "client-http-cut-length",
    "client-http-cut-reset",
    "client-http-cut-empty",
    otherwise="no body could be cut off",
)
def http_truncation(account: ClientAccount) -> Iterator[Judgement]:
    """A body that was cut off is a failure."""
    if account.facts("body cut"):
        for line in asked(account)[:1]:
            yield told(
                account,
                line,
                what="The body of an answer was cut off",
                advice="Take a body without its last chunk, or short of its Content-Length, for a"
                " failure: most HTTP libraries raise an exception.",
            )
