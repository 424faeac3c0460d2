"""The judges of word marks, on transcripts made by hand."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.judges import second_opinion
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

CLAIMS = EndpointClaims(profiles=frozenset({"core", "interrupt", "timing"}))
RATE = 24_000
TEXT = "Good day."
# 0.4 s of a square wave, so that something is heard all the time.
TONE = struct.pack("<4h", 9000, 9000, -9000, -9000) * 2400
CHECK = "timing.sent_when_asked"
Words = list[dict[str, Any]]


def word(text: str, start_s: float, end_s: float, char_start: int, **more: Any) -> dict[str, Any]:
    end = char_start + len(text)
    told = {"text": text, "start_s": start_s, "end_s": end_s, "char_start": char_start}
    return told | {"char_end": end} | more


GOOD = word("Good", 0.0, 0.2, 0)
DAY = word("day", 0.2, 0.4, 5)


class Script:
    """A session written line by line."""

    def __init__(self) -> None:
        self.transcript = Transcript("word-marks", claims=CLAIMS)
        self.now = 0.0
        self.seq = 0
        self.came = 0
        self.text = ""
        self.line("out", "open", target="/invocations-bidirectional-stream", method="GET")
        self.line("in", "open", status=101)

    def line(self, direction: Any, kind: Any, **fields: Any) -> None:
        self.now += 0.01
        self.transcript.add(Entry(self.now, direction, kind, 1, **fields))

    def ask(
        self, text: str = TEXT, marks: Any = ("word",), name: str = "plain", **more: Any
    ) -> None:
        self.seq += 1
        self.came, self.text = 0, text
        if name:
            case = Case(name, CHECK, "accept")
            self.line("note", "note", text=case.to_note())
        fields = {"text": text} | ({} if marks is None else {"marks": marks}) | more
        self.line("out", "text", data=json.dumps(fields).encode())

    def tell(self, kind: str, **fields: Any) -> None:
        self.line("in", "text", data=json.dumps({"type": kind, "seq": self.seq} | fields).encode())

    def start(self, **fields: Any) -> None:
        told = {"sample_rate": RATE, "format": "pcm_s16le", "voice": "v"} | fields
        self.tell("synthesis_start", **told)

    def marks(self, *words: dict[str, Any]) -> None:
        self.tell("marks", words=list(words))

    def pcm(self, data: bytes = TONE) -> None:
        self.came += len(data)
        self.line("in", "binary", data=data)

    def complete(self, **fields: Any) -> None:
        told = {"total_duration_s": self.came / (2 * RATE), "elapsed_s": 0.0}
        told |= {"audio_bytes": self.came, "characters": len(self.text)}
        self.tell("synthesis_complete", **(told | fields))

    def judge(self, check: str) -> Judgement:
        evidence = [Account.of(self.transcript)]
        row = CHECKS[check]
        judgement = row.judge(evidence)
        if judgement.verdict is not Verdict.FAIL:
            judgement = second_opinion(row.requirement, "", evidence) or judgement
        return judgement


def spoken(*words: dict[str, Any], text: str = TEXT, data: bytes = TONE, **ask: Any) -> Script:
    script = Script()
    script.ask(text, **ask)
    script.start()
    script.marks(*words)
    script.pcm(data)
    script.complete()
    return script


def told_late() -> Script:
    script = Script()
    script.ask()
    script.start()
    script.marks(GOOD)
    script.pcm(TONE[: RATE // 2])
    script.pcm(TONE[RATE // 2 :])
    script.marks(DAY)
    script.complete()
    return script


def told_in_time() -> Script:
    script = Script()
    script.ask()
    script.start()
    script.marks(GOOD)
    script.pcm(TONE[: len(TONE) // 2])
    script.marks()
    script.marks(DAY)
    script.pcm(TONE[len(TONE) // 2 :])
    script.complete()
    return script


def before_start() -> Script:
    script = Script()
    script.ask()
    script.marks(GOOD, DAY)
    script.start()
    script.pcm()
    script.complete()
    return script


def unasked(marks: Any, name: str = "plain") -> Script:
    script = Script()
    script.ask(marks=marks, name=name)
    script.start()
    script.marks()
    script.pcm()
    script.complete()
    return script


def silent(marks: Any) -> Script:
    script = Script()
    script.ask(marks=marks)
    script.start()
    script.pcm()
    script.complete()
    return script


def cancelled() -> Script:
    script = Script()
    script.ask()
    script.start()
    script.marks(GOOD, word("day", 0.2, 9.0, 5))
    script.pcm()
    script.tell("cancelled", audio_bytes=len(TONE))
    return script


def encoded(format: str) -> Script:
    """Half a second in eight bytes: no byte tells when a word is heard."""
    script = Script()
    script.ask(format=format)
    script.start(format=format)
    script.marks(GOOD)
    script.pcm(TONE[: len(TONE) // 2])
    script.marks(DAY)
    script.pcm(b"\1" * 8)
    script.complete(total_duration_s=0.4)
    return script


HEARD = "Heard, then silence."
SPEEDS = ("plain", "plain, slow", "plain, fast")


def at_speeds(*scales: float, lengths: tuple[float, ...] = (0.4, 0.8, 0.2)) -> Script:
    """The same text at speeds 1.0, 0.5 and 2.0, its times scaled so."""
    script = Script()
    for name, scale, length in zip(SPEEDS, scales, lengths, strict=False):
        script.ask(name=name)
        script.start()
        script.marks(word("Good", 0.0, 0.2 * scale, 0), word("day", 0.2 * scale, 0.4 * scale, 5))
        data = (TONE * 2)[: int(length * RATE) * 2]
        script.pcm(data)
        script.complete()
    return script


WIDE = "\U0001f600 Good e\u0301a, \U00020000!"
P, F, N = Verdict.PASS, Verdict.FAIL, Verdict.NOT_EXERCISED
MARKED = [
    word("Good", 0.0, 0.1, 2),
    word("e\u0301a,", 0.1, 0.2, 7),
    word("\U00020000", 0.2, 0.3, 12),
]

ROWS: list[tuple[str, Verdict, Script]] = [
    ("sent_when_asked", P, spoken(GOOD, DAY)),
    ("sent_when_asked", P, told_in_time()),
    ("sent_when_asked", P, spoken(word("Good day.", 0.0, 0.4, 0))),
    ("sent_when_asked", P, spoken(word("Good", 0.0, 0.2, 0), word("day.", 0.2, 0.4, 5))),
    (
        "sent_when_asked",
        P,
        spoken(*[word(c, i / 10, i / 10 + 0.1, i) for i, c in enumerate("Goo")], text="Goo"),
    ),
    ("sent_when_asked", P, spoken(*MARKED, text=WIDE)),
    # What is in no plain text need not be speakable.
    ("sent_when_asked", P, spoken(MARKED[0], text=WIDE, name="outside the BMP")),
    ("sent_when_asked", P, spoken(text="...", data=b"")),
    ("sent_when_asked", P, silent(None)),
    ("sent_when_asked", P, silent([])),
    ("sent_when_asked", N, cancelled()),
    ("sent_when_asked", F, silent(["word"])),
    ("sent_when_asked", F, unasked(None)),
    ("sent_when_asked", F, unasked([])),
    ("sent_when_asked", F, unasked(None, name="")),
    ("sent_when_asked", F, spoken(GOOD)),
    ("sent_when_asked", F, spoken(word("Goo", 0.0, 0.2, 0), DAY)),
    ("sent_when_asked", F, spoken(GOOD, GOOD, DAY)),
    ("sent_when_asked", F, spoken(GOOD, word("day", 0.2, 0.3, 5), word(".", 0.3, 0.4, 8))),
    ("sent_when_asked", F, spoken(GOOD, word(" day", 0.2, 0.4, 4))),
    ("sent_when_asked", F, spoken(word("Good ", 0.0, 0.2, 0), DAY)),
    ("sent_when_asked", F, spoken(word("e", 0.0, 0.1, 0), text="e\u0301a", name="x")),
    ("sent_when_asked", F, spoken(word("\u0301a", 0.0, 0.1, 1), text="e\u0301a", name="x")),
    ("sent_when_asked", F, spoken(word("e\u0301", 0.0, 0.1, 0), text="e\u0301\u0302", name="x")),
    # A mark that stands on no letter parts nothing.
    ("sent_when_asked", P, spoken(word("a", 0.0, 0.1, 2), text=".\u0301a", name="x")),
    # Words that are not in the text are told by another rule.
    ("sent_when_asked", N, spoken(word("Gute", 0.0, 0.2, 0))),
    ("offsets", P, spoken(GOOD, DAY)),
    ("offsets", P, spoken(*MARKED, text=WIDE)),
    ("offsets", N, silent(["word"])),
    ("offsets", F, spoken(GOOD, word("day", 0.2, 0.4, 4))),
    ("offsets", F, spoken(word("good", 0.0, 0.2, 0), DAY)),
    ("offsets", F, spoken(GOOD, word("day.", 0.2, 0.4, 5, char_end=12))),
    ("offsets", F, spoken(word("Good", 0.0, 0.1, 3), text=WIDE)),
    ("before_audio", P, spoken(GOOD, DAY)),
    ("before_audio", P, told_in_time()),
    ("before_audio", N, encoded("mp3")),
    ("before_audio", F, told_late()),
    ("before_audio", F, before_start()),
    ("before_audio", F, encoded("mulaw")),
    ("ordered", P, spoken(GOOD, DAY)),
    ("ordered", P, spoken(GOOD, word("day", 0.1995, 0.4009, 5))),
    ("ordered", P, cancelled()),
    ("ordered", F, spoken(GOOD, word("day", 0.19, 0.4, 5))),
    ("ordered", F, spoken(GOOD, word("day", 0.2, 0.402, 5))),
    ("ordered", F, spoken(GOOD, word("day", 0.3, 0.3, 5))),
    ("ordered", F, spoken(GOOD, word("day", 0.3, 0.2, 5))),
    ("ordered", F, spoken(word("day", 0.0, 0.2, 5), word("Good", 0.2, 0.4, 0))),
    ("ordered", F, spoken(GOOD, word("d day", 0.2, 0.4, 3))),
    ("ordered", F, spoken(GOOD, word("day", 0.2, 0.4, 5, char_end=4))),
    ("heard", P, spoken(GOOD, DAY)),
    ("heard", P, spoken(GOOD, DAY, data=TONE[: len(TONE) // 2] + bytes(len(TONE) // 2))),
    ("heard", N, cancelled()),
    ("heard", N, encoded("mp3")),
    (
        "heard",
        F,
        spoken(
            GOOD, word("day", 0.31, 0.4, 5), data=TONE[: len(TONE) // 2] + bytes(len(TONE) // 2)
        ),
    ),
    ("speed", P, at_speeds(1.0, 2.0, 0.5)),
    ("speed", F, at_speeds(1.0, 1.0, 1.0)),
    ("speed", F, at_speeds(1.0, 1.0)),
    ("speed", N, at_speeds(1.0, 1.0, 1.0, lengths=(0.4, 0.4, 0.4))),
    ("speed", N, at_speeds(1.0)),
]


@pytest.mark.parametrize(
    ("check", "verdict", "script"),
    ROWS,
    ids=[f"{check}-{verdict.value}-{i}" for i, (check, verdict, _) in enumerate(ROWS)],
)
def test_verdicts(check: str, verdict: Verdict, script: Script) -> None:
    judgement = script.judge(f"timing.{check}")
    assert judgement.verdict is verdict, judgement
    if verdict is Verdict.FAIL and judgement.legal:
        assert judgement.sent
        assert judgement.received
        assert judgement.advice


def test_a_word_told_twice_is_one_mistake() -> None:
    script = spoken(GOOD, GOOD, DAY)
    assert script.judge("timing.ordered").verdict is P
    assert script.judge("timing.sent_when_asked").verdict is F


def test_marks_that_break_their_schema_are_judged_apart() -> None:
    script = spoken({"text": "Good"}, DAY, name="x")
    assert script.judge("timing.offsets").verdict is N
    assert script.judge("control.schema").verdict is F


INVALID: list[tuple[Verdict, dict[str, Any]]] = [
    (P, {"type": "error", "code": "invalid_request", "rejected": True}),
    (F, {"type": "error", "code": "unknown_type", "rejected": True}),
    (F, {"type": "synthesis_start", "sample_rate": RATE, "format": "pcm_s16le", "voice": "v"}),
]


@pytest.mark.parametrize(("verdict", "answer"), INVALID)
def test_invalid_marks(verdict: Verdict, answer: dict[str, Any]) -> None:
    script = Script()
    case = Case("a number", "timing.invalid", "reject", ("invalid_request",))
    script.line("note", "note", text=case.to_note())
    script.ask(marks=1, name="")
    more = {"message": "no", "retryable": False} if answer["type"] == "error" else {}
    script.tell(kind=answer["type"], **({k: v for k, v in answer.items() if k != "type"} | more))
    assert script.judge("timing.invalid").verdict is verdict


def test_the_oracle_reads_integers_however_they_are_written() -> None:
    script = spoken(GOOD | {"char_start": 0.0, "char_end": 4.0}, DAY)
    assert script.judge("timing.offsets").verdict is P
    for odd in (0.5, 10**399):
        script = spoken(GOOD | {"char_end": odd}, DAY, name="x")
        assert script.judge("timing.ordered").verdict is not P
