"""Whether all of a text is heard, whatever way it is asked for, on transcripts made by hand."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

SHORT = "See you there."
LONG = "Nobody could say where the music came from."
CHECK = CHECKS["audio.speaks_text"]


def tone(milliseconds: int, *, silence: int = 0) -> bytes:
    return struct.pack("<h", 9000) * (24 * milliseconds) + bytes(48 * silence)


def session(
    *spoken: tuple[str, bytes], scenario: str = "order", voice: str = "v", **fields: Any
) -> Transcript:
    transcript = Transcript(scenario)
    clock = iter(range(1_000))

    def add(direction: Any, kind: Any, **more: Any) -> None:
        transcript.add(Entry(next(clock) / 100, direction, kind, 1, **more))

    def hear(kind: str, seq: int, **more: Any) -> None:
        add("in", "text", data=json.dumps({"type": kind, "seq": seq, **more}).encode())

    add("out", "open", target="/invocations-bidirectional-stream", method="GET")
    add("in", "open", status=101)
    for seq, (text, pcm) in enumerate(spoken, 1):
        add("out", "text", data=json.dumps({"text": text, **fields}).encode())
        hear("synthesis_start", seq, sample_rate=24_000, format="pcm_s16le", voice=voice)
        add("in", "binary", data=pcm)
        hear("synthesis_complete", seq, audio_bytes=len(pcm), total_duration_s=0, elapsed_s=0)
    return transcript


def answer(
    text: str, body: bytes, kind: str, *, scenario: str, accept: str = "*/*", status: int = 200
) -> Transcript:
    transcript = Transcript(scenario)
    post: dict[str, Any] = {"method": "POST", "target": "/invocations"}
    sent = json.dumps({"text": text}).encode()
    transcript.add(
        Entry(0.0, "out", "http-request", 1, headers=(("Accept", accept),), data=sent, **post)
    )
    told = (("Content-Type", kind), ("Utterwire-Voice", "v"))
    transcript.add(Entry(0.1, "in", "http-response", 1, status=status, headers=told))
    transcript.add(Entry(0.2, "in", "http-body", 1, data=body, fin=False))
    transcript.add(Entry(0.3, "in", "http-body", 1, fin=True))
    return transcript


def body(text: str, pcm: bytes, kind: str = "audio/pcm;rate=24000", **more: Any) -> Transcript:
    return answer(text, pcm, kind, scenario="http-whole", **more)


def events(text: str, pcm: bytes, *, chunks: int = 1, rate: int = 24_000) -> Transcript:
    told = (
        ("audio_stream_start", {"format": "pcm_s16le", "voice": "v", "sample_rate": rate}),
        ("audio_chunk", {"seq": 0, "data": base64.b64encode(pcm).decode()}),
        ("audio_stream_end", {"total_chunks": chunks, "duration_s": 1}),
    )
    whole = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in told)
    medium = "text/event-stream"
    return answer(text, whole.encode(), medium, scenario="sse-streams", accept=medium)


def judge(*transcripts: Transcript) -> Judgement:
    return CHECK.judge([Account.of(transcript) for transcript in transcripts])


TWIN = session((SHORT, tone(400)))
RIGHT = tone(1_200)
CUT = tone(400)


@pytest.mark.parametrize(
    ("verdict", "transcripts"),
    [
        (Verdict.PASS, [session((SHORT, tone(400)), (LONG, RIGHT))]),
        (Verdict.FAIL, [session((SHORT, tone(400)), (LONG, CUT))]),
        # Silence behind it makes no text longer.
        (Verdict.FAIL, [session((SHORT, tone(400)), (LONG, tone(400, silence=800)))]),
        (Verdict.FAIL, [TWIN, session((LONG, CUT), scenario="close-drains")]),
        (Verdict.PASS, [TWIN, body(LONG, RIGHT)]),
        (Verdict.FAIL, [TWIN, body(LONG, CUT)]),
        (Verdict.FAIL, [TWIN, body(LONG, bytes(len(RIGHT)))]),
        (Verdict.PASS, [TWIN, events(LONG, RIGHT)]),
        (Verdict.FAIL, [TWIN, events(LONG, CUT)]),
        # What is no whole answer in plain PCM is another rule's affair.
        (Verdict.NOT_EXERCISED, [TWIN, body(LONG, CUT, "text/html")]),
        (Verdict.NOT_EXERCISED, [TWIN, body(LONG, CUT, status=500)]),
        (Verdict.NOT_EXERCISED, [TWIN, events(LONG, CUT, chunks=2)]),
        (Verdict.NOT_EXERCISED, [TWIN, events(LONG, CUT, rate=16_000)]),
        (Verdict.NOT_EXERCISED, [TWIN, answer(LONG, CUT, "x/y", scenario="sse-long", accept="*")]),
        # Other voices, speeds and scenarios are not compared.
        (Verdict.NOT_EXERCISED, [TWIN, session((LONG, CUT), voice="w")]),
        (Verdict.NOT_EXERCISED, [TWIN, session((LONG, CUT), speed=2.0)]),
        (Verdict.NOT_EXERCISED, [TWIN, session((LONG, CUT), scenario="shutdown")]),
        # Digits are no measure of letters.
        (Verdict.NOT_EXERCISED, [session(("1999999", tone(900)), (LONG, CUT))]),
        (Verdict.FAIL, [TWIN, session((LONG, CUT), scenario="text-floor")]),
        # Nor are letters that no endpoint is bound to know.
        (Verdict.NOT_EXERCISED, [TWIN, session((SHORT + "\U00020000" * 99, CUT))]),
        # Nor is a text of not quite half the letters.
        (Verdict.NOT_EXERCISED, [session((LONG, RIGHT), (LONG + SHORT, CUT))]),
    ],
)
def test_a_text_of_twice_the_letters_is_heard_for_longer(
    verdict: Verdict, transcripts: Sequence[Transcript]
) -> None:
    assert judge(*transcripts).verdict is verdict


def test_the_failure_shows_both_texts() -> None:
    found = judge(TWIN, body(LONG, CUT))
    assert LONG in found.sent
    assert SHORT in found.received
    assert found.scenarios == ("http-whole", "order")
    assert found.legal
    assert found.advice
