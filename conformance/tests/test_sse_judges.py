"""The judges of server-sent events, on transcripts made by hand."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

AUDIO = b"\x10\x20" * 2400
START = {"format": "pcm_s16le", "voice": "v", "sample_rate": 24_000}
END = {"total_chunks": 2, "duration_s": 0.2}
EVENTS = "text/event-stream"
P, F, N = Verdict.PASS, Verdict.FAIL, Verdict.NOT_EXERCISED


def event(name: str, fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode()


def start(**fields: Any) -> bytes:
    return event("audio_stream_start", START | fields)


def chunk(seq: Any, audio: bytes = AUDIO, **fields: Any) -> bytes:
    data = base64.b64encode(audio).decode()
    return event("audio_chunk", {"seq": seq, "data": data} | fields)


def end(**fields: Any) -> bytes:
    return event("audio_stream_end", END | fields)


def error(**fields: Any) -> bytes:
    return event("error", {"code": "synthesis_failed", "message": "no"} | fields)


GOOD = start() + chunk(0) + chunk(1) + end()


def answered(
    body: bytes = GOOD,
    *,
    case: Case | None = None,
    request: Any = None,
    accept: tuple[str, ...] = (EVENTS,),
    kind: str | None = EVENTS,
    status: int | None = 200,
    clean: bool | None = True,
    notes: tuple[str, ...] = (),
    late: float = 0.02,
    ends: float = 1.0,
) -> Transcript:
    transcript = Transcript("sse-streams")
    add = transcript.add
    case = case or Case("text alone", "sse.start", "accept")
    add(Entry(0.0, "note", "note", 1, text=case.to_note()))
    octets = json.dumps(request or {"text": "Hello."}).encode()
    headers = tuple(("Accept", value) for value in accept)
    add(
        Entry(
            0.0,
            "out",
            "http-request",
            1,
            method="POST",
            target="/invocations",
            headers=headers,
            data=octets,
        )
    )
    for note in notes:
        add(Entry(0.0, "note", "note", 1, text=note))
    if status is not None:
        told = (("content-type", kind),) if kind is not None else ()
        add(Entry(0.01, "in", "http-response", 1, status=status, headers=told))
        # Where the body is cut means nothing.
        for at in range(0, len(body), 1000):
            t = late if at else 0.02
            add(Entry(t, "in", "http-body", 1, data=body[at : at + 1000], fin=False))
    if clean is True:
        add(Entry(ends, "in", "http-body", 1, fin=True))
    elif clean is False:
        add(Entry(1.0, "in", "eof", 1, reason="reset"))
    return transcript


def refused(code: str, status: int, **more: Any) -> Transcript:
    fields = {"type": "error", "code": code, "message": "no", "retryable": False, "rejected": True}
    more = {"kind": "application/json", "request": {"text": 7}} | more
    return answered(json.dumps(fields).encode(), status=status, **more)


def judge(check: str, transcript: Transcript) -> Judgement:
    return CHECKS[check].judge([Account.of(transcript)])


NAMED = Case("named", "sse.content_type", "accept")
BAD = Case("bad speed", "sse.refusal", "reject", ("invalid_request", "invalid_speed"))
TWIN = Case("the valid twin", "sse.refusal", "accept")
OWN = {"text": "Hello.", "request_id": "é", "voice": "w", "sample_rate": 8_000}
MINE: dict[str, Any] = {"request_id": "é"}
FULL = (
    start(**MINE, voice="w", sample_rate=8_000)
    + chunk(0, **MINE)
    + end(**MINE, total_chunks=1, duration_s=0.3)
)
LONG = Case("a long text", "sse.streamed", "accept")
# The first thousand bytes hold no chunk.
COMMENTED = start() + b":" * 1000 + b"\n\n" + chunk(0) + chunk(1) + end()
DOWN = ("events until shutdown is over",)

ROWS: list[tuple[str, Verdict, Transcript]] = [
    ("content_type", P, answered()),
    ("content_type", P, answered(kind="Text/Event-Stream; charset=utf-8")),
    ("content_type", P, answered(case=NAMED, accept=("audio/pcm", "text/event-stream;q=0.1"))),
    ("content_type", P, answered(AUDIO, case=NAMED, accept=(), kind="audio/pcm")),
    ("content_type", P, answered(AUDIO, case=NAMED, accept=("*/*",), kind="audio/pcm")),
    ("content_type", F, answered(AUDIO, kind="audio/pcm")),
    ("content_type", F, answered(kind=None)),
    ("content_type", F, answered(case=NAMED, accept=())),
    ("content_type", F, answered(case=NAMED, accept=("text/event-stream;q=0",))),
    ("content_type", F, answered(status=None, clean=False)),
    ("content_type", F, refused("internal", 500)),
    ("content_type", N, refused("overloaded", 503)),
    ("content_type", N, answered(case=BAD)),
    ("content_type", N, refused("invalid_request", 406, case=NAMED, accept=())),
    ("content_type", F, refused("invalid_request", 406, case=NAMED)),
    ("refusal", P, refused("invalid_speed", 400, case=BAD)),
    ("refusal", N, answered(case=TWIN)),
    ("refusal", F, refused("missing_text", 400, case=TWIN)),
    ("refusal", F, answered(status=None, clean=None, case=TWIN)),
    ("refusal", N, refused("overloaded", 503, case=TWIN)),
    ("refusal", F, answered(error(code="invalid_speed"), case=BAD)),
    ("refusal", F, answered(case=BAD)),
    ("refusal", F, answered(AUDIO, kind="audio/pcm", case=BAD)),
    ("refusal", F, refused("internal", 500, case=BAD)),
    ("refusal", F, refused("invalid_speed", 400, case=BAD, kind="text/plain")),
    ("refusal", F, answered(b"<html>", status=404, kind="text/html", case=BAD)),
    ("refusal", F, answered(status=None, clean=False, case=BAD)),
    ("refusal", N, refused("going_away", 503, case=BAD)),
    ("whole_events", P, answered()),
    ("whole_events", P, answered(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"))),
    ("whole_events", P, answered(b":\n\n" + GOOD.replace(b"}\n", b"}\n:\nid: 1\n") + b":\n")),
    ("whole_events", P, answered(GOOD + event("x_more", {}))),
    ("whole_events", P, answered(GOOD + b"event: au", clean=None)),
    ("whole_events", P, answered(GOOD + b"event: au", clean=False)),
    ("whole_events", N, answered(b"", clean=None)),
    ("whole_events", N, answered(kind="text/plain")),
    ("whole_events", F, answered(b"")),
    ("whole_events", F, answered(GOOD[:-1])),
    ("whole_events", F, answered(GOOD[:-2])),
    ("whole_events", F, answered(GOOD.replace(b"event: audio_chunk\n", b""))),
    ("whole_events", F, answered(GOOD.replace(b"event: audio_chunk\n", b"event:\n"))),
    (
        "whole_events",
        F,
        answered(GOOD.replace(b"}\n\nevent: audio_chunk", b"}\nevent: audio_chunk")),
    ),
    ("whole_events", F, answered(start() + b"event: audio_stream_end\n\n")),
    ("whole_events", F, answered(GOOD + b"data: [DONE]\n\n")),
    ("whole_events", F, answered(start() + event("audio_stream_end", [END]))),
    ("whole_events", F, answered(start(voice="v\u00e9").replace(b"\\u00e9", b"\xe9"))),
    ("start", P, answered()),
    ("start", P, answered(FULL, request=OWN)),
    ("start", P, answered(event("agent_start", {}) + GOOD)),
    ("start", P, answered(start(), clean=None)),
    ("start", N, answered(error())),
    ("start", N, answered(GOOD[:-1])),
    ("start", F, answered(chunk(0) + chunk(1) + end())),
    ("start", F, answered(chunk(0) + start() + chunk(1) + end())),
    ("start", F, answered(start() + GOOD)),
    ("start", F, answered(start(sample_rate=8_000) + end(total_chunks=0, duration_s=0))),
    ("start", F, answered(start(voice="") + end(total_chunks=0, duration_s=0))),
    ("start", F, answered(start(format="wav") + end(total_chunks=0, duration_s=0))),
    ("start", F, answered(start(request_id="x") + end(total_chunks=0, duration_s=0))),
    ("start", F, answered(GOOD, request=OWN)),
    ("start", F, answered(start(**MINE, voice="w", sample_rate=24_000), request=OWN, clean=None)),
    ("start", F, answered(start(**MINE, voice="v", sample_rate=8_000), request=OWN, clean=None)),
    ("start", F, answered(start(voice="w", sample_rate=8_000), request=OWN, clean=None)),
    ("start", P, answered(start(format="mulaw", sample_rate=8_000), request={"format": "mulaw"})),
    ("chunks", P, answered()),
    ("chunks", P, answered(FULL, request=OWN)),
    ("chunks", P, answered(start() + chunk(0), clean=None)),
    ("chunks", P, answered(start() + end(), request={"text": "..."})),
    ("chunks", N, answered(start(), clean=None)),
    ("chunks", F, answered(start() + end())),
    ("chunks", F, answered(GOOD, request={"text": "..."})),
    ("chunks", F, answered(start() + chunk(1) + end())),
    ("chunks", F, answered(start() + chunk(0) + chunk(2) + end())),
    ("chunks", F, answered(start() + chunk(0) + chunk(0) + end())),
    ("chunks", F, answered(start() + chunk("0") + end())),
    ("chunks", F, answered(start() + chunk(0, b"") + end())),
    ("chunks", F, answered(start() + chunk(0, AUDIO[1:]) + end())),
    ("chunks", F, answered(start() + chunk(0, AUDIO * 14) + end())),
    ("chunks", F, answered(start() + chunk(0, b"RIFF" + AUDIO) + end())),
    ("chunks", F, answered(start() + chunk(0, data="AAA") + end())),
    ("chunks", F, answered(start() + chunk(0, data="AA-_") + end())),
    ("chunks", F, answered(start() + chunk(0, data="AAAA\nAAAA") + end())),
    ("chunks", F, answered(start() + chunk(0, data=7) + end())),
    ("chunks", F, answered(start() + chunk(0, request_id="x") + end())),
    ("chunks", P, answered(start(format="mulaw") + chunk(0, AUDIO[1:]), clean=None)),
    ("end", P, answered()),
    ("end", P, answered(FULL, request=OWN)),
    ("end", P, answered(GOOD + event("agent_end", {}))),
    ("end", P, answered(start(format="mp3") + chunk(0) + end(total_chunks=1, duration_s=9))),
    (
        "end",
        P,
        answered(
            start(format="mulaw", sample_rate=8_000)
            + chunk(0)
            + end(total_chunks=1, duration_s=0.6)
        ),
    ),
    ("end", N, answered(start() + chunk(0), clean=None)),
    ("end", N, answered(start() + chunk(0), clean=False)),
    ("end", N, answered(start() + chunk(0) + error())),
    ("end", N, answered(start() + error() + end())),
    ("end", F, answered(start() + chunk(0))),
    ("end", F, answered(GOOD + end())),
    ("end", F, answered(GOOD + error())),
    ("end", F, answered(start() + chunk(0) + end(total_chunks=1, duration_s=0.1) + chunk(1))),
    ("end", F, answered(start() + chunk(0) + end(duration_s=0.1))),
    ("end", F, answered(start() + chunk(0) + end(total_chunks=1, duration_s=0.102))),
    ("end", F, answered(GOOD.replace(b'"duration_s": 0.2', b'"duration_s": "0.2"'))),
    ("end", F, answered(GOOD.replace(b', "duration_s": 0.2', b""))),
    ("end", F, answered(start() + chunk(0) + chunk(1) + end(request_id="x"))),
    ("streamed", P, answered(case=LONG)),
    ("streamed", P, answered(case=LONG, late=0.9)),
    ("streamed", P, answered(COMMENTED, case=LONG, late=0.05, ends=0.09)),
    ("streamed", P, answered(COMMENTED, case=LONG, late=0.5)),
    ("streamed", F, answered(COMMENTED, case=LONG, late=0.6)),
    ("streamed", F, answered(start() + chunk(0) + end(total_chunks=1, duration_s=0.1), case=LONG)),
    ("streamed", N, answered(case=LONG, clean=False)),
    ("streamed", N, answered(start() + end(), case=LONG)),
    ("streamed", N, answered(AUDIO, kind="audio/pcm", case=LONG)),
    ("streamed", N, answered()),
    ("error", P, answered(start() + chunk(0) + error())),
    ("error", P, answered(error())),
    ("error", P, answered(start(**MINE) + error(**MINE), request={"text": "a", "request_id": "é"})),
    ("error", N, answered()),
    ("error", N, answered(start(), clean=None)),
    ("error", N, answered(GOOD, clean=False)),
    ("error", N, answered(GOOD, notes=DOWN)),
    ("error", N, answered(GOOD + error())),
    ("error", N, answered(start() + b"data: x\n\n" + error())),
    ("error", F, answered(start() + chunk(0), clean=False)),
    ("error", F, answered(b"", clean=False)),
    ("error", F, answered(start() + chunk(0), notes=DOWN)),
    ("error", F, answered(start() + chunk(0) + error() + end())),
    ("error", F, answered(start() + error() + error())),
    ("error", F, answered(start() + error() + event("x_note", {}))),
    ("error", F, answered(start() + error(code="oops"))),
    ("error", F, answered(start() + error(message=""))),
    ("error", F, answered(start() + error(request_id="x"))),
    ("error", F, answered(start() + error(), request={"text": "a", "request_id": "é"})),
    ("error", F, answered(start() + error(), clean=False)),
    ("error", N, answered(start() + error(), clean=None)),
]


@pytest.mark.parametrize(
    ("check", "verdict", "transcript"),
    ROWS,
    ids=[f"{check}-{verdict.value}-{i}" for i, (check, verdict, _) in enumerate(ROWS)],
)
def test_verdicts(check: str, verdict: Verdict, transcript: Transcript) -> None:
    judgement = judge(f"sse.{check}", transcript)
    assert judgement.verdict is verdict, judgement
    if verdict is F:
        assert judgement.sent
        assert judgement.received
        assert judgement.legal
        assert judgement.advice


def test_http_rules_look_at_raw_audio_alone() -> None:
    assert judge("http.headers", answered()).verdict is N
    assert judge("http.content_type", answered(case=NAMED, accept=())).verdict is N
    unnamed = Case("text alone", "http.streams", "accept")
    assert judge("http.content_type", answered(case=unnamed, accept=())).verdict is F
