"""How clients in the field would read a session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from utterwire_conformance.deployed_client import findings, reads_as_control
from utterwire_conformance.transcript import Entry, Transcript

START: dict[str, Any] = {"sample_rate": 24000, "format": "pcm_s16le", "voice": "v"}
END: dict[str, Any] = {"total_duration_s": 0.1, "elapsed_s": 0.1, "audio_bytes": 2, "characters": 6}


def control(kind: str, seq: int = 1, **fields: Any) -> tuple[str, str, bytes]:
    return "in", "text", json.dumps({"type": kind, "seq": seq, **fields}).encode()


def audio(data: bytes = b"\1\0") -> tuple[str, str, bytes]:
    return "in", "binary", data


ASK = ("out", "text", b'{"text":"Hello."}')
BEGIN = control("synthesis_start", **START)
DONE = control("synthesis_complete", **END)
ERROR = control("error", code="internal", message="No.", retryable=True)
REJECTED = control("error", code="empty_text", message="No.", retryable=False, rejected=True)
IN_VAIN = ("note", "note", b"in vain: 1")


def transcript(lines: list[tuple[str, str, bytes]]) -> Transcript:
    record = Transcript("a scenario")
    record.add(Entry(0.0, "out", "open", 1, target="/x"))
    record.add(Entry(0.0, "in", "open", 1, status=101))
    for number, (way, kind, data) in enumerate(lines, 1):
        if kind == "note":
            record.add(Entry(number / 10, "note", "note", 1, text=data.decode()))
        else:
            record.add(Entry(number / 10, way, kind, 1, data=data))  # type: ignore[arg-type]
    return record


FINE = [
    [ASK, BEGIN, audio(), DONE],
    [ASK, BEGIN, audio(b"{\0\0\1"), DONE, ASK, control("synthesis_start", 2, **START)],
    [ASK, BEGIN, audio(), ERROR],
    [("out", "text", b'{"text":""}'), REJECTED],
    [ASK, control("x_note"), BEGIN, DONE],
    [ASK, ("out", "text", b'{"type":"cancel"}'), control("cancelled", audio_bytes=0)],
    [ASK, BEGIN, audio()],
    [],
]


@pytest.mark.parametrize("lines", FINE)
def test_nothing_is_said_of_a_good_session(lines: list[tuple[str, str, bytes]]) -> None:
    assert findings(transcript(lines)) == []


BAD = [
    ([ASK, BEGIN, audio(b"{}"), DONE], "lost-audio", "skipped"),
    ([ASK, BEGIN, audio(b'{"a":NaN}'), DONE], "lost-audio", "skipped"),
    ([ASK, BEGIN, audio(b'{"type":"synthesis_complete","x":NaN}'), DONE], "lost-audio", "stop"),
    ([ASK, BEGIN, audio(b'{"type":"error","x":NaN}'), DONE], "error", "give up"),
    ([ASK, BEGIN, audio(b'{"a":' + b"[" * 60_000), DONE], "error", "gives up"),
    ([ASK, BEGIN, audio(), DONE, audio()], "lost-audio", "no longer listens"),
    ([ASK, ("in", "text", b"AAAA"), BEGIN, audio(), DONE], "noise", "played"),
    (
        [ASK, BEGIN, ("in", "binary", b'{"type":"x","n":%s}' % (b"9" * 5000)), DONE],
        "noise",
        "binary frame",
    ),
    ([ASK, BEGIN, audio(), IN_VAIN], "hang", "no end"),
    ([ASK, IN_VAIN], "hang", "no end"),
    ([ASK, BEGIN, audio(), control("cancelled", audio_bytes=2)], "hang", "`cancelled`"),
]


@pytest.mark.parametrize(("lines", "effect", "words"), BAD)
def test_harm_is_told(lines: list[tuple[str, str, bytes]], effect: str, words: str) -> None:
    found = findings(transcript(lines))
    assert [finding["effect"] for finding in found] == [effect]
    assert words in found[0]["finding"]
    assert found[0]["transcript"] == "a scenario"


def test_each_finding_is_told_once() -> None:
    assert len(findings(transcript([ASK, BEGIN, audio(b"{}"), audio(b"{ }"), DONE]))) == 1


@pytest.mark.parametrize(
    ("chunk", "control"),
    [
        (b"", False),
        (b"[1]", False),
        (b" {}", False),
        (b"{}", True),
        (b'{"a":1}', True),
        (b'{"a":\xff}', False),
        (b"{\0}\0", False),
        (b'{"a":1}\0', False),
    ],
)
def test_what_it_takes_for_control(chunk: bytes, control: bool) -> None:
    assert (reads_as_control(chunk) is not None) is control
