"""Legal oddities turn no check red, alone or together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from utterwire_conformance.check import Account
from utterwire_conformance.classification import control_breaches
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.faults import ODDITIES, Combined, Oddity
from utterwire_conformance.faults.matrix import Plan, play_behind
from utterwire_conformance.judging import chosen_checks, judge_accounts
from utterwire_conformance.proxy import (
    Action,
    ClientMessage,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    control_frame,
)
from utterwire_conformance.requirements.text import clause_text
from utterwire_conformance.stage import SCENARIOS, Pace
from utterwire_conformance.target import Target
from utterwire_conformance.verdict import Judgement, Verdict
from utterwire_conformance.wire import Frame, Opcode

_PATIENT = Pace(connect=30.0, first=30.0, stall=30.0)
_UNWANTED = (Verdict.FAIL, Verdict.WEAK, Verdict.HARNESS_ERROR)
# A recommendation that is not kept by who gathers the largest chunks there may be.
_NOT_KEPT = {"formats.early"}
SAMPLES = bytes(range(1, 121)) * 40


def run(oddities: Sequence[Oddity], scenarios: Sequence[str]) -> dict[str, Judgement]:
    """What is red behind a proxy with these oddities."""

    async def play() -> dict[str, Judgement]:
        endpoint = find_endpoint("reference")
        async with Target(endpoint) as target:
            assert target.main is not None
            transcripts = await play_behind(
                endpoint,
                target.main,
                lambda _: Combined(oddities),
                scenarios,
                Plan(pace=_PATIENT),
            )
        accounts = [Account.of(transcript) for transcript in transcripts.values()]
        return judge_accounts(chosen_checks(), accounts)

    judged = asyncio.run(play())
    return {
        name: judgement
        for name, judgement in judged.items()
        if judgement.verdict in _UNWANTED and name not in _NOT_KEPT
    }


def test_a_few_scenarios_bear_all_oddities_at_once() -> None:
    some = ["probe", "order", "cancel-named", "keepalive", "http-whole", "pings", "close-frames"]
    assert run(list(ODDITIES.values()), some) == {}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_all_oddities_at_once_turn_nothing_red() -> None:
    endpoint = find_endpoint("reference")
    every = [s.name for s in SCENARIOS.values() if s.profile in endpoint.claims.profiles]
    found = run(list(ODDITIES.values()), every)
    for _ in range(2):
        # What showed where everything was played at once shows again where little is, if it is
        # the oddity and not the machine.
        again = {n for judgement in found.values() for n in judgement.scenarios or every}
        shown = run(list(ODDITIES.values()), sorted(again)) if found else {}
        found = {name: judgement for name, judgement in shown.items() if name in found}
    assert found == {}


# --- Each by itself, without a socket ------------------------------------------------------------


class Session:
    """One session's tamper and what it sends the client."""

    def __init__(self, *names: str) -> None:
        self.tap = Tap()
        self.shared = Shared()
        self.tamper: SessionTamper = Combined([ODDITIES[n] for n in names]).session(
            self.shared, self.tap
        )

    def says(self, **fields: object) -> ClientMessage:
        data = json.dumps(fields).encode()
        return self.tap.client_message(data, (Frame(Opcode.TEXT, data, mask=b"\0\0\0\0"),))

    def sends(self, frame: Frame) -> list[Frame]:
        chunk = self.tap.chunk(frame)
        actions: list[Action] = list(self.tamper.chunk(chunk))
        self.tap.after(chunk)
        return [action.frame for action in actions if isinstance(action, ToClient)]

    def control(self, **fields: object) -> list[Frame]:
        return self.sends(control_frame(fields))

    def speaks(self, pcm: bytes, size: int) -> list[Frame]:
        """An utterance in chunks of `size` bytes; what comes of it."""
        self.says(text="One.")
        rate = {"sample_rate": 24_000, "format": "pcm_s16le", "voice": "v"}
        found = self.control(type="synthesis_start", seq=1, **rate)
        for start in range(0, len(pcm), size):
            found += self.sends(Frame(Opcode.BINARY, pcm[start : start + size]))
        return found + self.control(
            type="synthesis_complete",
            seq=1,
            total_duration_s=len(pcm) / 48_000,
            elapsed_s=1.75,
            audio_bytes=len(pcm),
            characters=4,
        )


def audio(frames: list[Frame]) -> list[bytes]:
    return [frame.payload for frame in frames if frame.opcode == Opcode.BINARY]


def controls(frames: list[Frame]) -> list[dict[str, object]]:
    return [json.loads(f.payload) for f in frames if f.opcode == Opcode.TEXT]


@pytest.mark.parametrize("name", ["chunks-tiny", "chunks-largest"])
def test_audio_is_cut_otherwise_and_stays_what_it_is(name: str) -> None:
    pcm = SAMPLES + b"\x7b\x00" * 50 + SAMPLES * 40
    chunks = audio(Session(name).speaks(pcm, 960))
    assert b"".join(chunks) == pcm
    assert all(0 < len(chunk) <= 65_536 and not len(chunk) % 2 for chunk in chunks)
    assert (min if name == "chunks-tiny" else max)(map(len, chunks)) == (
        2 if name == "chunks-tiny" else 65_280
    )


def test_tiny_chunks_do_not_begin_with_a_brace() -> None:
    pcm = b"\x01\x02\x7b\x7d\x7b\x00\x03\x04" * 10
    chunks = audio(Session("chunks-tiny").speaks(pcm, 80))
    assert b"".join(chunks) == pcm
    assert not any(chunk.startswith(b"\x7b") for chunk in chunks)


def test_samples_differ_from_time_to_time_in_the_middle_of_chunks() -> None:
    session = Session("audio-never-twice-alike")
    first = audio(session.speaks(SAMPLES, 960))
    again = audio(session.speaks(SAMPLES, 960))
    assert first != again
    for made in (*first, *again):
        assert (made[:2], made[-2:]) == (SAMPLES[:2], (SAMPLES * 2)[len(made) - 2 : len(made)])


def test_a_silence_at_the_end_is_counted() -> None:
    frames = Session("lengths-vary").speaks(SAMPLES, 960)
    size = sum(map(len, audio(frames)))
    assert size > len(SAMPLES)
    complete = controls(frames)[-1]
    assert complete["audio_bytes"] == size
    assert complete["total_duration_s"] == pytest.approx(size / 48_000, abs=1e-3)


@pytest.mark.parametrize("name", ["extra-fields", "json-oddly-written", "private-messages"])
def test_control_stays_control_of_the_same_meaning(name: str) -> None:
    frames = Session(name).speaks(SAMPLES, 960)
    texts = [frame for frame in frames if frame.opcode == Opcode.TEXT]
    assert not [breach for frame in texts for breach in control_breaches(frame.payload)]
    known = [c for c in controls(frames) if not str(c["type"]).startswith("x_")]
    plain = controls(Session().speaks(SAMPLES, 960))
    assert [
        {field: value for field, value in c.items() if not field.startswith("x_")} for c in known
    ] == plain
    assert len(texts) > len(plain) or texts[0].payload != control_frame(plain[0]).payload


def test_another_code_that_applies_is_chosen() -> None:
    session = Session("other-codes")
    message = session.says(text=5)
    assert len(message.meaning.codes) > 1
    given = min(message.meaning.codes)
    rejected = {"type": "error", "code": given, "message": "No.", "retryable": False}
    (error,) = controls(session.control(**rejected, seq=1, rejected=True))
    assert error["code"] in message.meaning.codes - {given}


def test_of_several_pings_the_last_is_answered() -> None:
    session = Session("pongs-coalesced")
    for payload in (b"1", b"2", b"3"):
        assert list(session.tamper.client_frame(Frame(Opcode.PING, payload)))
    answers = [
        action.frame.payload
        for payload in (b"1", b"2", b"3")
        for action in session.tamper.endpoint_frame(Frame(Opcode.PONG, payload))
        if isinstance(action, ToClient)
    ]
    assert answers == [b"3"]


def test_pongs_to_pings_of_its_own_go_no_further() -> None:
    session = Session("pings-from-the-endpoint")
    session.says(text="One.")
    frames = session.control(type="synthesis_start", seq=1)
    ping = next(frame for frame in frames if frame.opcode == Opcode.PING)
    assert list(session.tamper.client_frame(Frame(Opcode.PONG, ping.payload))) == []
    assert list(session.tamper.client_frame(Frame(Opcode.PONG, b"another")))


@pytest.mark.parametrize("name", ODDITIES)
def test_an_oddity_says_where_it_is_allowed(name: str) -> None:
    oddity = ODDITIES[name]
    assert oddity.explanation[0].isupper() or oddity.explanation[0] == "`"
    assert clause_text(oddity.clause)


@pytest.mark.parametrize(
    ("name", "explanation"), [("Not kebab", "It is."), ("a-name", "no sentence")]
)
def test_what_is_no_oddity_is_refused(name: str, explanation: str) -> None:
    with pytest.raises(ValueError, match=r"kebab|sentence"):
        Oddity(name, explanation, "protocol.md#audio")
