"""The judges of HTTP exchanges, on transcripts made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

AUDIO = b"\x10\x20" * 2400
HEADERS = {
    "content-type": "audio/pcm;rate=24000;channels=1",
    "utterwire-sample-rate": "24000",
    "utterwire-format": "pcm_s16le",
    "utterwire-voice": "v%20w",
}
WHOLE = {
    "content-length": str(len(AUDIO)),
    "utterwire-duration-s": "0.1",
    "utterwire-audio-bytes": str(len(AUDIO)),
    "utterwire-characters": "6",
}


def exchange(
    *,
    case: Case | None = None,
    method: str = "POST",
    target: str = "/invocations",
    request: dict[str, Any] | None = None,
    status: int | None = 200,
    headers: dict[str, str] | None = None,
    body: bytes = AUDIO,
    clean: bool | None = True,
    notes: tuple[str, ...] = (),
    first_after: float = 0.01,
) -> Transcript:
    transcript = Transcript("http")
    add = transcript.add
    if case is not None:
        add(Entry(0.0, "note", "note", 1, text=case.to_note()))
    octets = b"" if method != "POST" else json.dumps(request or {"text": "Hello."}).encode()
    add(Entry(0.0, "out", "http-request", 1, method=method, target=target, data=octets))
    for note in notes:
        add(Entry(0.0, "note", "note", 1, text=note))
    if status is not None:
        told = HEADERS if headers is None else headers
        add(Entry(0.01, "in", "http-response", 1, status=status, headers=tuple(told.items())))
        if body:
            add(Entry(first_after, "in", "http-body", 1, data=body, fin=False))
    if clean is True:
        add(Entry(1.0, "in", "http-body", 1, fin=True))
    elif clean is False:
        add(Entry(1.0, "in", "eof", 1, reason="reset"))
    return transcript


def error(code: str, status: int, *, case: Case | None = None, **more: Any) -> Transcript:
    body = {"type": "error", "code": code, "message": "no", "retryable": False, "rejected": True}
    headers = more.pop("headers", {"content-type": "application/json"})
    request = more.pop("request", {"text": 7})
    return exchange(
        case=case,
        status=status,
        headers=headers,
        request=request,
        body=json.dumps(body | more).encode(),
    )


def test_the_way_is_no_time_that_audio_is_held_back() -> None:
    case = Case("a long text", "http.streams", "accept")
    held = exchange(case=case, first_after=0.5)
    assert judge("http.streams", held).verdict is Verdict.FAIL
    far = exchange(case=case, first_after=0.5)
    short = exchange(case=Case("text alone", "http.streams", "accept"), first_after=0.45)
    for entry in short.entries:
        far.add(replace(entry, session=2))
    assert judge("http.streams", far).verdict is Verdict.PASS


def judge(check: str, *transcripts: Transcript) -> Judgement:
    return CHECKS[check].judge([Account.of(t) for t in transcripts])


def must(check: str, expect: Any = "accept", *codes: str, name: str = "a case") -> Case:
    return Case(name, check, expect, codes)


STALLED = ("stalls until shutdown is over",)
LONG = {"text": "x" * 4096}

ROWS: list[tuple[str, Verdict, Transcript]] = [
    ("http.streams", Verdict.PASS, exchange(case=must("http.streams"))),
    ("http.streams", Verdict.FAIL, exchange(case=must("http.streams"), status=None, clean=None)),
    ("http.streams", Verdict.FAIL, exchange(case=must("http.streams"), clean=False)),
    ("http.streams", Verdict.FAIL, exchange(case=must("http.streams"), body=b"")),
    ("http.streams", Verdict.FAIL, exchange(case=must("http.streams"), body=b"RIFF" + AUDIO)),
    ("http.streams", Verdict.FAIL, exchange(case=must("http.streams"), body=AUDIO[1:])),
    (
        "http.streams",
        Verdict.FAIL,
        exchange(case=must("http.streams"), headers=HEADERS | {"content-length": "4800"}),
    ),
    (
        "http.streams",
        Verdict.FAIL,
        exchange(case=must("http.streams", name="a long text"), first_after=0.9),
    ),
    (
        "http.streams",
        Verdict.PASS,
        exchange(case=must("http.streams", name="a long text"), first_after=0.1),
    ),
    ("http.streams", Verdict.FAIL, error("internal", 500, case=must("http.streams"))),
    ("http.streams", Verdict.NOT_EXERCISED, error("overloaded", 503, case=must("http.streams"))),
    ("http.content_type", Verdict.PASS, exchange()),
    (
        "http.content_type",
        Verdict.PASS,
        exchange(headers={"content-type": "Audio/PCM; channels=1; rate=24000"}),
    ),
    ("http.content_type", Verdict.FAIL, exchange(headers={"content-type": "audio/wav"})),
    ("http.content_type", Verdict.FAIL, exchange(headers={})),
    ("http.headers", Verdict.PASS, exchange()),
    ("http.headers", Verdict.FAIL, exchange(headers=HEADERS | {"utterwire-voice": ""})),
    ("http.headers", Verdict.FAIL, exchange(headers=HEADERS | {"utterwire-voice": "v w"})),
    ("http.headers", Verdict.FAIL, exchange(headers=HEADERS | {"utterwire-request-id": "x"})),
    ("http.headers", Verdict.FAIL, exchange(request={"text": "Hello.", "request_id": "é"})),
    (
        "http.headers",
        Verdict.PASS,
        exchange(
            request={"text": "Hello.", "request_id": "é", "voice": "v w"},
            headers=HEADERS | {"utterwire-request-id": "%c3%a9"},
        ),
    ),
    (
        "http.whole",
        Verdict.FAIL,
        exchange(
            case=must("http.whole"),
            request={"text": "Hello.", "stream": False},
            headers={"content-type": "text/html", "content-length": "4"},
            body=b"Hi!\n",
        ),
    ),
    (
        "http.request_content_type",
        Verdict.FAIL,
        exchange(
            case=must("http.request_content_type"),
            headers={"content-type": "application/json; charset=utf-8"},
            body=b"{}",
        ),
    ),
    (
        "http.whole",
        Verdict.PASS,
        exchange(
            case=must("http.whole"),
            request={"text": "Hello.", "stream": False},
            headers=HEADERS | WHOLE,
        ),
    ),
    (
        "http.whole",
        Verdict.FAIL,
        exchange(case=must("http.whole"), request={"text": "Hello.", "stream": False}),
    ),
    (
        "http.whole",
        Verdict.FAIL,
        exchange(
            case=must("http.whole"),
            request={"text": "Hello.", "stream": False},
            headers=HEADERS | {"content-length": "1"},
        ),
    ),
    (
        "http.whole_headers",
        Verdict.PASS,
        exchange(request={"text": "Hello.", "stream": False}, headers=HEADERS | WHOLE),
    ),
    (
        "http.whole_headers",
        Verdict.FAIL,
        exchange(
            request={"text": "Hello.", "stream": False},
            headers=HEADERS | WHOLE | {"utterwire-duration-s": "1e-1"},
        ),
    ),
    ("http.status", Verdict.PASS, error("invalid_voice", 400)),
    ("http.status", Verdict.FAIL, error("invalid_voice", 404)),
    (
        "http.status",
        Verdict.FAIL,
        exchange(case=must("http.same_validation", "reject", "invalid_json"), status=200),
    ),
    (
        "http.status",
        Verdict.PASS,
        error("invalid_request", 413, case=must("http.body_limit", "reject", "invalid_request")),
    ),
    ("http.error_body", Verdict.PASS, error("invalid_voice", 400)),
    ("http.error_body", Verdict.FAIL, error("invalid_voice", 400, seq=1)),
    ("http.error_body", Verdict.FAIL, error("invalid_voice", 400, message="")),
    ("http.error_body", Verdict.FAIL, error("invalid_voice", 400, request_id="x")),
    (
        "http.error_body",
        Verdict.FAIL,
        error("invalid_voice", 400, headers={"content-type": "text/html"}),
    ),
    (
        "http.error_body",
        Verdict.FAIL,
        error("invalid_voice", 400, case=must("x", "reject", "y"), rejected=False),
    ),
    (
        "http.error_body",
        Verdict.FAIL,
        exchange(status=400, headers={"content-type": "application/json"}, body=b"<html>"),
    ),
    (
        "http.same_validation",
        Verdict.PASS,
        error("invalid_voice", 400, case=must("http.same_validation", "reject", "invalid_voice")),
    ),
    (
        "http.same_validation",
        Verdict.FAIL,
        error("internal", 500, case=must("http.same_validation", "reject", "invalid_voice")),
    ),
    (
        "http.same_validation",
        Verdict.FAIL,
        exchange(case=must("http.same_validation", "reject", "invalid_voice")),
    ),
    (
        "http.same_validation",
        Verdict.FAIL,
        exchange(
            case=must("http.same_validation", "reject", "invalid_voice"), status=None, clean=False
        ),
    ),
    (
        "http.same_validation",
        Verdict.NOT_EXERCISED,
        error("overloaded", 503, case=must("http.same_validation", "reject", "invalid_voice")),
    ),
    ("http.same_validation", Verdict.PASS, exchange(case=must("http.same_validation"))),
    ("http.unknown_type", Verdict.FAIL, exchange(case=must("http.unknown_type", "reject", "x"))),
    ("http.stream_type", Verdict.FAIL, exchange(case=must("http.stream_type", "reject", "x"))),
    (
        "http.request_content_type",
        Verdict.FAIL,
        error("invalid_json", 415, case=must("http.request_content_type")),
    ),
    (
        "http.request_content_type",
        Verdict.PASS,
        exchange(case=must("http.request_content_type")),
    ),
    ("http.retry_after", Verdict.FAIL, error("going_away", 503)),
    ("http.retry_after", Verdict.PASS, error("going_away", 503, headers={"retry-after": "1"})),
    ("http.unspeakable", Verdict.PASS, exchange(case=must("http.unspeakable"), body=b"")),
    ("http.unspeakable", Verdict.FAIL, exchange(case=must("http.unspeakable"))),
    ("http.abort", Verdict.PASS, exchange(request=LONG, notes=STALLED, clean=False)),
    ("http.abort", Verdict.FAIL, exchange(request=LONG, notes=STALLED)),
    (
        "http.abort",
        Verdict.NOT_EXERCISED,
        exchange(request=LONG, notes=STALLED, body=bytes(5_000_000)),
    ),
    ("http.abort", Verdict.NOT_EXERCISED, exchange(request=LONG, notes=STALLED, status=503)),
    (
        "http.body_limit",
        Verdict.PASS,
        error("text_too_long", 413, case=must("http.body_limit", "reject", "text_too_long")),
    ),
    (
        "http.body_limit",
        Verdict.FAIL,
        error("invalid_json", 400, case=must("http.body_limit", "reject", "text_too_long")),
    ),
    ("http.body_limit", Verdict.NOT_EXERCISED, exchange(case=must("http.body_limit"))),
    (
        "http.method",
        Verdict.PASS,
        exchange(
            case=must("http.method", "reject"), method="GET", status=405, headers={"allow": "POST"}
        ),
    ),
    (
        "http.method",
        Verdict.FAIL,
        exchange(case=must("http.method", "reject"), method="GET", status=405),
    ),
    ("http.ping", Verdict.PASS, exchange(method="GET", target="/ping")),
    ("http.ping", Verdict.FAIL, exchange(method="GET", target="/ping", status=503)),
    ("http.ping_post", Verdict.PASS, exchange(target="/ping")),
    ("http.ping_post", Verdict.FAIL, exchange(target="/ping", status=405)),
    (
        "http.ping_busy",
        Verdict.PASS,
        exchange(method="GET", target="/ping", notes=("busy: running",)),
    ),
    (
        "http.ping_busy",
        Verdict.FAIL,
        exchange(method="GET", target="/ping", notes=("busy: ended",)),
    ),
    ("http.ping_busy", Verdict.FAIL, exchange(method="GET", target="/ping", status=None)),
    (
        "http.ping_draining",
        Verdict.PASS,
        exchange(method="GET", target="/ping", status=503, notes=("draining",)),
    ),
    (
        "http.ping_draining",
        Verdict.FAIL,
        exchange(method="GET", target="/ping", notes=("draining",)),
    ),
    # A port that is closed while it drains is as right.
    (
        "http.ping_draining",
        Verdict.NOT_EXERCISED,
        exchange(method="GET", target="/x", notes=("draining: no new connection is taken",)),
    ),
    ("http.survives", Verdict.PASS, exchange(case=must("http.survives", name="a valid one"))),
    (
        "http.survives",
        Verdict.FAIL,
        error("internal", 500, case=must("http.survives", name="a valid one")),
    ),
]


@pytest.mark.parametrize(
    ("check", "verdict", "transcript"),
    ROWS,
    ids=[f"{i} {r[0]} {r[1].value}" for i, r in enumerate(ROWS)],
)
def test_exchanges(check: str, verdict: Verdict, transcript: Transcript) -> None:
    judgement = judge(check, transcript)
    assert judgement.verdict is verdict, judgement
    if verdict is Verdict.FAIL:
        assert judgement.legal
        assert judgement.advice


def test_whole_and_streamed_bodies_are_compared() -> None:
    whole = exchange(
        case=must("http.whole"),
        request={"text": "Hello.", "stream": False},
        headers=HEADERS | WHOLE,
    )
    assert judge("http.whole", whole, exchange()).verdict is Verdict.PASS
    assert judge("http.whole", whole, exchange(body=AUDIO * 3)).verdict is Verdict.FAIL


def test_nothing_asked_nothing_judged() -> None:
    for name in CHECKS:
        if name.startswith("http."):
            assert judge(name).verdict is Verdict.NOT_EXERCISED


def connection(*answers: tuple[int | None, bool | None]) -> Transcript:
    """Exchanges on one connection: status and how the body ended; the third is a bad request."""
    transcript = Transcript("http-persistent")
    for number, (status, clean) in enumerate(answers):
        expect: Any = "reject" if number == 2 else "either" if number == 3 else "accept"
        case = Case(f"number {number}", "http.persistent", expect, ("missing_text",))
        code = "missing_text" if status == 400 else "internal"
        body = AUDIO if status == 200 else json.dumps({"code": code}).encode()
        transcript.entries += exchange(
            case=case, status=status, clean=clean, body=body, target="/invocations"
        ).entries
    return transcript


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        (((200, True), (200, True), (400, True), (200, True)), Verdict.PASS),
        (((200, True), (400, True)), Verdict.FAIL),
        (((200, True), (200, False)), Verdict.FAIL),
        (((200, True), (None, None)), Verdict.FAIL),
        (((200, True), (200, True), (500, True)), Verdict.FAIL),
        (((200, True), (200, True), (400, True), (None, None)), Verdict.FAIL),
        (((200, True), (None, False)), Verdict.NOT_EXERCISED),
        (((200, True),), Verdict.NOT_EXERCISED),
        # A first exchange that fails is not the connection's fault.
        (((400, True), (400, True)), Verdict.NOT_EXERCISED),
    ],
)
def test_a_connection_that_stays_open(answers: Any, verdict: Verdict) -> None:
    found = judge("http.persistent", connection(*answers))
    assert found.verdict is verdict, found
