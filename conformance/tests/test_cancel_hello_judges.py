"""The judges of `interrupt` and `negotiate`, on transcripts made by hand.

A session is written as lines: `C(...)` a client message, `E(...)` a control message, a number that
many bytes of audio, a string a note, a float a pause in seconds, `END` the end of the transport.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.scenarios import stated
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict
from utterwire_conformance.wire import close_payload

CLAIMS = EndpointClaims(profiles=frozenset({"core", "interrupt", "negotiate"}))


@dataclass(frozen=True)
class C:
    """A client message; `case` is its case, `check: expected code` (or nothing for accept)."""

    message: Mapping[str, Any] | bytes
    case: Case | None = None


@dataclass(frozen=True)
class E:
    """A control message of the endpoint."""

    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Close:
    """A close frame of the endpoint, and the end."""

    code: int


def transcript(
    *lines: Any, scenario: str = "cancel-named", claims: EndpointClaims = CLAIMS
) -> Transcript:
    made = Transcript(scenario, claims=claims)
    now = 0.0
    path = "/invocations-bidirectional-stream"
    made.add(Entry(0.0, "out", "open", 1, target=path, method="GET"))
    made.add(Entry(0.001, "in", "open", 1, status=101, target=path))
    for line in lines:
        now += 0.002
        match line:
            case float():
                now += line
            case str():
                made.add(Entry(now, "note", "note", 1, text=line))
            case int():
                made.add(Entry(now, "in", "binary", 1, data=bytes(line)))
            case C(message, case):
                if case is not None:
                    made.add(Entry(now, "note", "note", 1, text=case.to_note()))
                data = message if isinstance(message, bytes) else json.dumps(message).encode()
                made.add(Entry(now, "out", "text", 1, data=data))
            case E(fields):
                data = json.dumps(fields).encode()
                made.add(Entry(now, "in", "text", 1, data=data))
            case Close(code):
                made.add(Entry(now, "in", "close", 1, code=code, data=close_payload(code)))
                made.add(Entry(now, "in", "eof", 1, reason="end of stream"))
    return made


def judge(check: str, *lines: Any, **how: Any) -> Judgement:
    return CHECKS[check].judge([Account.of(transcript(*lines, **how))])


def ask(request_id: str | None = None, **fields: Any) -> C:
    named = {} if request_id is None else {"request_id": request_id}
    return C({"text": "Hello.", **named, **fields})


def cancel(request_id: Any = ..., case: Case | None = None) -> C:
    named = {} if request_id is ... else {"request_id": request_id}
    return C({"type": "cancel", **named}, case)


def _named(request_id: str | None) -> dict[str, Any]:
    return {} if request_id is None else {"request_id": request_id}


def start(seq: int, request_id: str | None = None, **fields: Any) -> E:
    about = {"sample_rate": 24000, "format": "pcm_s16le", "voice": "v", **_named(request_id)}
    return E({"type": "synthesis_start", "seq": seq, **about, **fields})


def complete(seq: int, size: int, request_id: str | None = None, elapsed: float = 9.0) -> E:
    about = {"elapsed_s": elapsed, "audio_bytes": size, "characters": 6, **_named(request_id)}
    fields = {"type": "synthesis_complete", "seq": seq, "total_duration_s": size / 48000}
    return E({**fields, **about})


def cancelled(seq: int, size: int, request_id: str | None = None) -> E:
    return E({"type": "cancelled", "seq": seq, "audio_bytes": size, **_named(request_id)})


def done(seq: int, count: int, request_id: str | None = None) -> E:
    return E({"type": "cancel_done", "seq": seq, "count": count, **_named(request_id)})


def error(seq: int, code: str, **fields: Any) -> E:
    about = {"message": "no", "retryable": False, "rejected": True, **fields}
    return E({"type": "error", "seq": seq, "code": code, **about})


def failed(seq: int, request_id: str | None = None) -> E:
    return error(seq, "synthesis_failed", rejected=False, retryable=True, **_named(request_id))


def unknown(name: str = "never used") -> Case:
    return Case(name, "cancel.unknown_id", "accept")


def bad(check: str) -> Case:
    return Case("a bad id", check, "reject", ("invalid_request",))


LIMITS = {
    "max_text_chars": 4096,
    "max_message_bytes": 65536,
    "max_request_id_chars": 128,
    "max_waiting": 8,
    "idle_timeout_s": 300,
    "min_speed": 0.5,
    "max_speed": 2.0,
}
STATED = {
    "type": "session",
    "seq": 1,
    "protocol_version": 1,
    "session_id": "s",
    "profiles": ["core", "interrupt", "negotiate"],
    "limits": LIMITS,
    "voices": ["v"],
    "formats": ["pcm_s16le"],
    "sample_rates": [24000],
}


def hello(versions: Any = (1,), case: Case | None = None) -> C:
    listed = list(versions) if isinstance(versions, tuple) else versions
    return C({"type": "hello", "protocol_versions": listed}, case)


def session(**changes: Any) -> E:
    return E({**STATED, **changes})


def limits(**changes: Any) -> E:
    left = {name: value for name, value in {**LIMITS, **changes}.items() if value is not ...}
    return session(limits=left)


def spoken(seq: int) -> tuple[Any, ...]:
    return start(seq), 480, complete(seq, 480)


def late() -> Case:
    return Case("late", "hello.first_only", "reject", ("invalid_request",))


def version() -> Case:
    return Case("new", "hello.unsupported_version", "reject", ("unsupported_version",))


def malformed() -> Case:
    return Case("none", "hello.malformed", "reject", ("invalid_request",))


def holds(*codes: str) -> Case:
    return Case("a limit", "session.limits_hold", "reject" if codes else "accept", codes)


RUNNING = (ask("r"), start(1, "r"), 4800)
BOTH = (ask("r"), ask("w"), start(1, "r"), 4800)
STALL = (ask("r"), start(1, "r"), "stalled: begins", cancel("r"))
LONG = C({"text": "x" * 4096, "request_id": "long"})
TWIN = (ask(), start(1), 4800, complete(1, 4800))
READING = (*TWIN, LONG, start(2, "long"), 48_000, cancel("long"))

GOOD: list[tuple[str, tuple[Any, ...]]] = [
    ("cancel.running", (*RUNNING, cancel("r"), 4800, cancelled(1, 9600, "r"), done(2, 1, "r"))),
    ("cancel.running", (*RUNNING, cancel(), cancelled(1, 4800, "r"), done(2, 1))),
    ("cancel.waiting", (*BOTH, cancel("w"), cancelled(2, 0, "w"), done(3, 1, "w"))),
    ("cancel.all", (*BOTH, cancel(), cancelled(2, 0, "w"), cancelled(1, 4800, "r"), done(3, 2))),
    (
        "cancel.all",
        (
            *RUNNING,
            cancel(),
            ask("n"),
            cancelled(1, 4800, "r"),
            done(2, 1),
            start(3, "n"),
            480,
            cancel("n"),
            cancelled(3, 480, "n"),
            done(4, 1, "n"),
        ),
    ),
    (
        "cancel.only_named",
        (
            *BOTH,
            cancel("r"),
            cancelled(1, 4800, "r"),
            done(3, 1, "r"),
            start(2, "w"),
            480,
            complete(2, 480, "w"),
        ),
    ),
    ("cancel.done", (*BOTH, cancel(), cancelled(1, 4800, "r"), cancelled(2, 0, "w"), done(3, 2))),
    (
        "cancel.done",
        (
            *RUNNING,
            cancel("r"),
            cancel("r"),
            cancelled(1, 4800, "r"),
            done(2, 1, "r"),
            done(3, 0, "r"),
        ),
    ),
    ("cancel.done", (*RUNNING, cancel("r"), complete(1, 4800, "r"), done(2, 0, "r"))),
    ("cancel.unknown_id", (cancel("x", unknown()), done(1, 0, "x"))),
    ("cancel.null_id", (cancel(None, bad("cancel.null_id")), error(1, "invalid_request"))),
    ("cancel.invalid_id", (cancel(7, bad("cancel.invalid_id")), error(1, "invalid_request"))),
    (
        "cancel.invalid_id",
        (
            *RUNNING,
            cancel(7, bad("cancel.invalid_id")),
            error(2, "invalid_request"),
            cancel("r"),
            cancelled(1, 4800, "r"),
            done(3, 1, "r"),
        ),
    ),
    ("cancel.audio_bytes", (*RUNNING, cancel("r"), cancelled(1, 4800, "r"), done(2, 1, "r"))),
    ("cancel.saves_audio", (*READING, 48_000, cancelled(2, 96_000, "long"), done(3, 1, "long"))),
    ("cancel.prompt", (*RUNNING, cancel("r"), 0.4, cancelled(1, 4800, "r"), done(2, 1, "r"))),
    (
        "cancel.prompt",
        (*RUNNING, cancel("r"), 0.9, cancelled(1, 4800, "r"), done(2, 1, "r"), "lag: 0.500"),
    ),
    (
        "cancel.overtakes",
        (*BOTH, cancel("w"), cancelled(2, 0, "w"), done(3, 1, "w"), complete(1, 4800, "r")),
    ),
    (
        "cancel.overtakes",
        (*RUNNING, cancel(None), error(2, "invalid_request"), complete(1, 4800, "r")),
    ),
    (
        "cancel.session_goes_on",
        (*RUNNING, cancel("r"), cancelled(1, 4800, "r"), done(2, 1, "r"), ask(), *spoken(3)),
    ),
    (
        "cancel.after_close",
        (*RUNNING, C({"type": "close"}), cancel("r"), cancelled(1, 4800, "r"), done(3, 1, "r")),
    ),
    ("cancel.unsent_bound", (*STALL, 500_000, cancelled(1, 500_000, "r"), done(2, 1, "r"))),
    ("hello.session", (hello(), ask(), session(), *spoken(2))),
    ("hello.session", (hello((3, 1)), E({"type": "x_private"}), session())),
    ("hello.optional", (ask(), *spoken(1))),
    ("hello.first_only", (ask(), *spoken(1), hello(case=late()), error(2, "invalid_request"))),
    (
        "hello.first_only",
        (*RUNNING, hello(case=late()), error(2, "invalid_request"), complete(1, 4800, "r")),
    ),
    (
        "hello.unsupported_version",
        (hello((2,), version()), error(1, "unsupported_version"), ask(), *spoken(2)),
    ),
    ("hello.malformed", (hello("1", malformed()), error(1, "invalid_request"), ask(), *spoken(2))),
    ("session.limits", (hello(), session())),
    ("session.limits", (hello(), limits(min_speed=0.1, max_waiting=9))),
    ("session.matches_claims", (hello(), session())),
    ("session.matches_claims", ("ordinary voice: v", hello(), session())),
    (
        "session.offers_work",
        (C({"text": "a", "voice": "v"}, Case("v", "session.offers_work", "accept")), *spoken(1)),
    ),
    ("session.limits_hold", (C({"text": "a"}, holds()), *spoken(1))),
    ("session.limits_hold", (C({"text": "a"}, holds("queue_full")), error(1, "queue_full"))),
    (
        "session.limits_hold",
        (C({"text": "a"}, Case("more", "session.limits_hold", "reject")), Close(1009)),
    ),
    (
        "session.limits_hold",
        (
            "stated idle: 2",
            hello(),
            session(),
            2.1,
            E({"type": "session_closed", "reason": "idle", "last_seq": 1}),
            "idle: waited",
        ),
    ),
]

BAD: list[tuple[str, str, tuple[Any, ...]]] = [
    ("cancel.running", "spoken on", (*RUNNING, cancel("r"), done(2, 0), complete(1, 4800, "r"))),
    ("cancel.running", "no answer", (*RUNNING, cancel("r"), "unanswered: 2")),
    ("cancel.running", "refused", (*RUNNING, cancel("r"), error(2, "unknown_type"))),
    ("cancel.running", "hangs up", (*RUNNING, cancel("r"), Close(1011))),
    (
        "cancel.waiting",
        "begun",
        (
            *BOTH,
            cancel("w"),
            cancelled(1, 4800, "r"),
            start(2, "w"),
            cancelled(2, 0, "w"),
            done(3, 1, "w"),
        ),
    ),
    (
        "cancel.waiting",
        "kept",
        (*BOTH, cancel("w"), done(3, 0, "w"), complete(1, 4800, "r"), complete(2, 0, "w")),
    ),
    ("cancel.all", "spares one", (*BOTH, cancel(), cancelled(1, 4800, "r"), done(3, 1))),
    (
        "cancel.all",
        "stops what is behind",
        (*RUNNING, cancel(), ask("n"), cancelled(1, 4800, "r"), cancelled(3, 0, "n"), done(2, 2)),
    ),
    (
        "cancel.only_named",
        "stops all",
        (*BOTH, cancel("w"), cancelled(1, 4800, "r"), cancelled(2, 0, "w"), done(3, 2, "w")),
    ),
    (
        "cancel.only_named",
        "one without an id",
        (ask(), start(1), 480, cancel("x"), cancelled(1, 480), done(2, 1, "x")),
    ),
    ("cancel.done", "none", (*RUNNING, cancel("r"), cancelled(1, 4800, "r"), "unanswered: 2")),
    ("cancel.done", "wrong count", (*RUNNING, cancel(), cancelled(1, 4800, "r"), done(2, 2))),
    ("cancel.done", "too early", (*RUNNING, cancel(), done(2, 1), cancelled(1, 4800, "r"))),
    ("cancel.done", "twice", (cancel(), done(1, 0), done(1, 0))),
    ("cancel.done", "with an error", (cancel(), done(1, 0), error(1, "invalid_request"))),
    ("cancel.done", "an error", (cancel(), error(1, "unknown_type"))),
    ("cancel.unknown_id", "an error", (cancel("x", unknown()), error(1, "invalid_request"))),
    ("cancel.unknown_id", "counts", (cancel("x", unknown()), done(1, 1))),
    ("cancel.unknown_id", "silent", (cancel("x", unknown()), "unanswered: 1")),
    ("cancel.unknown_id", "hangs up", (cancel("x", unknown()), Close(1000))),
    ("cancel.null_id", "obeyed", (cancel(None, bad("cancel.null_id")), done(1, 0))),
    (
        "cancel.null_id",
        "stops",
        (
            *RUNNING,
            cancel(None, bad("cancel.null_id")),
            cancelled(1, 4800, "r"),
            error(2, "invalid_request"),
        ),
    ),
    (
        "cancel.invalid_id",
        "other code",
        (cancel(7, bad("cancel.invalid_id")), error(1, "internal")),
    ),
    ("cancel.invalid_id", "silent", (cancel(7, bad("cancel.invalid_id")), "unanswered: 1")),
    ("cancel.audio_bytes", "more", (*RUNNING, cancel("r"), cancelled(1, 9600, "r"))),
    ("cancel.audio_bytes", "none", (*RUNNING, cancel("r"), cancelled(1, 0, "r"))),
    (
        "cancel.saves_audio",
        "all of it",
        (*READING, *([65_536] * 45), cancelled(2, 48_000 + 45 * 65_536, "long"), done(3, 1)),
    ),
    ("cancel.prompt", "late", (*RUNNING, cancel("r"), 0.9, cancelled(1, 4800, "r"), done(2, 1))),
    (
        "cancel.overtakes",
        "in order",
        (*BOTH, cancel("w"), complete(1, 4800, "r"), cancelled(2, 0, "w"), done(3, 1, "w")),
    ),
    (
        "cancel.overtakes",
        "the error in order",
        (*RUNNING, cancel(None), complete(1, 4800, "r"), error(2, "invalid_request")),
    ),
    (
        "cancel.overtakes",
        "behind a later cancel",
        (
            *BOTH,
            cancel("w"),
            cancel("r"),
            cancelled(1, 4800, "r"),
            done(4, 1, "r"),
            cancelled(2, 0, "w"),
            done(3, 1, "w"),
        ),
    ),
    (
        "cancel.session_goes_on",
        "hangs up",
        (*RUNNING, cancel("r"), cancelled(1, 4800, "r"), done(2, 1, "r"), Close(1000)),
    ),
    (
        "cancel.session_goes_on",
        "silent",
        (*RUNNING, cancel("r"), cancelled(1, 4800, "r"), done(2, 1), ask(), "in vain: 3"),
    ),
    (
        "cancel.session_goes_on",
        "refuses",
        (
            *RUNNING,
            cancel("r"),
            cancelled(1, 4800, "r"),
            done(2, 1),
            ask(),
            error(3, "invalid_request"),
        ),
    ),
    (
        "cancel.after_close",
        "ignored",
        (
            *RUNNING,
            C({"type": "close"}),
            cancel("r"),
            complete(1, 4800, "r"),
            E({"type": "session_closed", "reason": "client_close", "seq": 2, "last_seq": 2}),
        ),
    ),
    ("cancel.unsent_bound", "hoards", (*STALL, 600_000, cancelled(1, 600_000, "r"), done(2, 1))),
    ("cancel.unsent_bound", "and ends", (*STALL, 600_000, complete(1, 600_000, "r"), done(2, 0))),
    ("hello.session", "refused", (hello(), error(1, "invalid_request"))),
    ("hello.session", "silent", (hello(), "unanswered: 1")),
    ("hello.session", "passed over", (hello(), ask(), *spoken(2))),
    ("hello.session", "version", (hello(), session(protocol_version=2))),
    ("hello.session", "seq", (hello(), session(seq=0))),
    ("hello.session", "an id", (hello(), session(request_id="x"))),
    ("hello.session", "late", (hello(), ask(), *spoken(2), session())),
    ("hello.session", "hangs up", (hello(), Close(1000))),
    ("hello.optional", "refused", (ask(), error(1, "invalid_request"))),
    ("hello.optional", "greets", (ask(), session(), *spoken(1))),
    ("hello.optional", "hangs up", (ask(), Close(1000))),
    ("hello.first_only", "obeyed", (ask(), *spoken(1), hello(case=late()), session(seq=2))),
    (
        "hello.first_only",
        "looked into",
        (ask(), *spoken(1), hello((2,), late()), error(2, "unsupported_version")),
    ),
    (
        "hello.first_only",
        "in order",
        (*RUNNING, hello(case=late()), complete(1, 4800, "r"), error(2, "invalid_request")),
    ),
    ("hello.unsupported_version", "obeyed", (hello((2,), version()), session())),
    (
        "hello.unsupported_version",
        "no more requests",
        (
            hello((2,), version()),
            error(1, "unsupported_version"),
            ask(),
            error(2, "invalid_request"),
        ),
    ),
    (
        "hello.unsupported_version",
        "hangs up",
        (hello((2,), version()), ask(), error(1, "unsupported_version"), Close(1002)),
    ),
    (
        "hello.unsupported_version",
        "not at once",
        (hello((2,), version()), ask(), *spoken(2), error(1, "unsupported_version")),
    ),
    ("hello.malformed", "obeyed", (hello((), malformed()), session())),
    ("hello.malformed", "code", (hello((), malformed()), error(1, "unsupported_version"))),
    ("session.limits", "none", (hello(), session(limits=None))),
    ("session.limits", "a key less", (hello(), limits(max_waiting=...))),
    ("session.limits", "a string", (hello(), limits(max_text_chars="4096"))),
    ("session.limits", "short", (hello(), limits(max_text_chars=4095))),
    ("session.limits", "slow", (hello(), limits(min_speed=0.6))),
    ("session.limits", "no idle time", (hello(), limits(idle_timeout_s=0))),
    ("session.matches_claims", "a profile less", (hello(), session(profiles=["core"]))),
    (
        "session.matches_claims",
        "a profile more",
        (hello(), session(profiles=["core", "interrupt", "negotiate", "http"])),
    ),
    ("session.matches_claims", "a voice less", ("ordinary voice: w", hello(), session())),
    (
        "session.offers_work",
        "refused",
        (
            C({"text": "a", "voice": "w"}, Case("w", "session.offers_work", "accept")),
            error(1, "invalid_voice"),
        ),
    ),
    (
        "session.offers_work",
        "another",
        (C({"text": "a", "voice": "w"}, Case("w", "session.offers_work", "accept")), *spoken(1)),
    ),
    ("session.limits_hold", "refused", (C({"text": "a"}, holds()), error(1, "text_too_long"))),
    ("session.limits_hold", "accepted", (C({"text": "a"}, holds("text_too_long")), *spoken(1))),
    (
        "session.limits_hold",
        "too big already",
        (hello(), session(), C({"text": "a"}, holds()), Close(1009)),
    ),
    (
        "session.limits_hold",
        "larger accepted",
        (C({"text": "a"}, Case("more", "session.limits_hold", "reject")), *spoken(1)),
    ),
    (
        "session.limits_hold",
        "never idle",
        ("stated idle: 2", hello(), session(), 5.0, "idle: waited"),
    ),
    (
        "session.limits_hold",
        "idle too early",
        (
            "stated idle: 2",
            hello(),
            session(),
            1.0,
            E({"type": "session_closed", "reason": "idle", "last_seq": 1}),
            "idle: waited",
        ),
    ),
]

# Judged with the close, and with the formats, by their faults.
ELSEWHERE = {"session.closed", "cancel.saves_audio_encoded"}
UNSEEN: list[tuple[str, str, tuple[Any, ...]]] = [
    (check, "nothing was cancelled", (ask(), *spoken(1)))
    for check in CHECKS
    if check.startswith("cancel.") and check not in ELSEWHERE
]
UNSEEN += [
    (
        "cancel.running",
        "it had ended",
        (*RUNNING, cancel("r"), complete(1, 4800, "r", 0.01), done(2, 0, "r")),
    ),
    ("cancel.running", "it failed", (*RUNNING, cancel("r"), failed(1, "r"), done(2, 0, "r"))),
    ("cancel.running", "no end of the record", (*RUNNING, cancel("r"))),
    (
        "cancel.waiting",
        "the one ahead had ended",
        (*BOTH, cancel("w"), complete(1, 4800, "r", 0.01), start(2, "w"), cancelled(2, 0, "w")),
    ),
    (
        "cancel.all",
        "the endpoint was far ahead",
        (
            *BOTH,
            cancel(),
            complete(1, 4800, "r", 0.01),
            start(2, "w"),
            complete(2, 0, "w"),
            done(3, 0),
        ),
    ),
    (
        "cancel.after_close",
        "the endpoint was far ahead",
        (
            *BOTH,
            C({"type": "close"}),
            cancel("w"),
            complete(1, 4800, "r", 0.01),
            start(2, "w"),
            complete(2, 0, "w"),
            done(4, 0, "w"),
        ),
    ),
    (
        "cancel.overtakes",
        "it had ended",
        (*BOTH, cancel("w"), complete(1, 4800, "r", 0.01), cancelled(2, 0, "w"), done(3, 1, "w")),
    ),
    (
        "cancel.saves_audio",
        "all of it was sent",
        (
            *TWIN,
            LONG,
            start(2, "long"),
            *([65536] * 50),
            cancel("long"),
            cancelled(2, 50 * 65536, "long"),
            done(3, 1),
        ),
    ),
    (
        "cancel.saves_audio",
        "it had ended",
        (*READING, *([65_536] * 49), complete(2, 0, "long", 0.01), done(3, 0)),
    ),
    (
        "cancel.prompt",
        "it had ended",
        (*RUNNING, cancel("r"), complete(1, 4800, "r", 0.01), done(2, 0, "r")),
    ),
    ("hello.session", "no hello", (ask(), *spoken(1))),
    ("hello.optional", "hello", (hello(), session())),
    ("hello.optional", "no room", (ask(), error(1, "overloaded", retryable=True))),
    ("hello.first_only", "none", (hello(), session())),
    ("hello.unsupported_version", "none", (hello(), session())),
    ("hello.malformed", "none", (hello(), session())),
    ("session.limits", "no session", (ask(), *spoken(1))),
    ("session.matches_claims", "no session", (ask(), *spoken(1))),
    ("session.offers_work", "no session", (ask(), *spoken(1))),
    ("session.limits_hold", "no limits", (ask(), *spoken(1))),
]


@pytest.mark.parametrize(
    ("check", "lines"), GOOD, ids=[f"{c}-{n}" for n, (c, _) in enumerate(GOOD)]
)
def test_what_is_legal_passes(check: str, lines: tuple[Any, ...]) -> None:
    judgement = judge(check, *lines)
    assert judgement.verdict is Verdict.PASS, judgement


@pytest.mark.parametrize(("check", "what", "lines"), BAD, ids=[f"{b[0]}: {b[1]}" for b in BAD])
def test_what_is_not_legal_fails(check: str, what: str, lines: tuple[Any, ...]) -> None:
    judgement = judge(check, *lines)
    assert judgement.verdict is Verdict.FAIL, judgement
    assert judgement.reason.endswith(".")
    assert judgement.received, what
    assert judgement.legal, what
    assert judgement.advice, what


@pytest.mark.parametrize(
    ("check", "what", "lines"), UNSEEN, ids=[f"{u[0]}: {u[1]}" for u in UNSEEN]
)
def test_what_was_not_seen_is_not_judged(check: str, what: str, lines: tuple[Any, ...]) -> None:
    judgement = judge(check, *lines)
    assert judgement.verdict is Verdict.NOT_EXERCISED, (what, judgement)
    assert judgement.reason


def test_every_check_has_its_tables() -> None:
    mine = {c for c in CHECKS if c.startswith(("cancel.", "hello."))}
    mine |= {c for c in CHECKS if c.startswith("session.") and c != "session.stays_open"}
    mine -= ELSEWHERE
    for table in ({g[0] for g in GOOD}, {b[0] for b in BAD}, {u[0] for u in UNSEEN}):
        assert table == mine


def test_the_better_of_two_tries_counts() -> None:
    slow = transcript(*RUNNING, cancel("r"), 0.9, cancelled(1, 4800, "r"), done(2, 1))
    quick = transcript(*RUNNING, cancel("r"), 0.1, cancelled(1, 4800, "r"), done(2, 1))
    accounts = [Account.of(slow), Account.of(quick)]
    assert CHECKS["cancel.prompt"].judge(accounts).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"max_waiting": 9}, "`max_waiting` is 8; 9 is claimed"),
        ({"idle_s": 4.0}, "`idle_timeout_s` is 300; 4 is claimed"),
        ({"formats": frozenset({"pcm_s16le", "mp3"})}, "lacks ['mp3']"),
        ({"voices": frozenset({"w"})}, "`voices` has ['v']"),
        ({"sample_rates": frozenset({16000, 24000})}, "lacks [16000]"),
    ],
)
def test_the_endpoint_file_is_compared(claims: dict[str, Any], words: str) -> None:
    known = EndpointClaims(profiles=CLAIMS.profiles, **claims)
    judgement = judge("session.matches_claims", hello(), session(), claims=known)
    assert judgement.verdict is Verdict.FAIL
    assert words in judgement.reason


def test_a_long_list_may_hold_some_of_the_voices() -> None:
    many = [f"voice number {number} of a great many" for number in range(2000)]
    known = EndpointClaims(profiles=CLAIMS.profiles, voices=frozenset({*many, "one more"}))
    offer = session(voices=many)
    lines = ("ordinary voice: one more", hello(), offer)
    assert judge("session.matches_claims", *lines, claims=known).verdict is Verdict.PASS
    assert CLAIMS.completed_by(offer.fields).voices is None


def test_what_session_states_is_learned() -> None:
    learned = CLAIMS.completed_by(stated(transcript(hello(), session())), voice="w")
    assert learned == EndpointClaims(
        profiles=CLAIMS.profiles,
        max_text_chars=4096,
        max_message_bytes=65536,
        max_request_id_chars=128,
        max_waiting=8,
        min_speed=0.5,
        max_speed=2.0,
        idle_s=300,
        voices=frozenset({"v", "w"}),
        formats=frozenset({"pcm_s16le"}),
        sample_rates=frozenset({24000}),
    )


def test_the_endpoint_file_wins() -> None:
    known = EndpointClaims(profiles=CLAIMS.profiles, max_waiting=16, idle_s=4.0)
    learned = known.completed_by(STATED)
    assert (learned.max_waiting, learned.idle_s, learned.max_text_chars) == (16, 4.0, 4096)


@pytest.mark.parametrize(
    "offer",
    [
        {},
        {"limits": 7, "voices": "v", "formats": [], "sample_rates": ["24000"]},
        {"limits": dict.fromkeys(LIMITS, "many")},
        {"limits": {**dict.fromkeys(LIMITS, 0), "min_speed": 0.9}},
        {"limits": {**dict.fromkeys(LIMITS, 0), "max_waiting": 8.5, "max_text_chars": True}},
    ],
)
def test_what_breaks_the_clause_is_not_learned(offer: dict[str, Any]) -> None:
    assert CLAIMS.completed_by(offer) == CLAIMS


def test_no_session_states_nothing() -> None:
    assert stated(transcript(ask(), *spoken(1))) == {}
