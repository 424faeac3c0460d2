"""Sending transcripts again: the same again from the same endpoint, and the truth from another."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance import cli, playback, resend
from utterwire_conformance.check import CHECKS
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.exchange import exchanges
from utterwire_conformance.faults import FAULTS
from utterwire_conformance.faults.matrix import ProxiedTarget
from utterwire_conformance.fuzz.player import PATIENT
from utterwire_conformance.judging import chosen_checks
from utterwire_conformance.offline import judge_transcripts
from utterwire_conformance.playback import (
    MEASURED,
    REPEATED,
    Playback,
    PlaybackError,
    needs_launch,
)
from utterwire_conformance.resend import Again
from utterwire_conformance.runner import Options, run_checks
from utterwire_conformance.stage import Meter, Pace, play
from utterwire_conformance.target import Target
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict, fail, passed

ENDPOINT = find_endpoint("reference")
PACE = Pace(connect=10.0, first=20.0, stall=20.0)
RED = (Verdict.FAIL, Verdict.WEAK)
# A scenario of each kind: plain, fragments and pings, cancels, a reader that pauses, connections
# broken off, octets that are no frames, HTTP whole and broken off, many sessions, hello.
SCENARIOS = (
    "order",
    "fragments",
    "cancel-named",
    "cancel-stalled",
    "disconnect",
    "protocol-errors",
    "http-accepts",
    "http-streams",
    "queue-full",
    "hello-late",
)


@pytest.fixture
async def server() -> AsyncIterator[Target]:
    async with Target(ENDPOINT) as target:
        yield target


async def record(target: Target, fault: str | None, *checks: str) -> dict[str, Transcript]:
    assert target.main is not None
    tampers = FAULTS[fault] if fault is not None else None
    behind = ProxiedTarget(ENDPOINT, target.main, tampers)
    results = await run_checks(behind, checks, Options(pace=PACE))
    return results.transcripts


async def again(target: Target, recorded: Transcript, fault: str | None = None) -> Transcript:
    assert target.main is not None
    tampers = FAULTS[fault] if fault is not None else None
    async with ProxiedTarget(ENDPOINT, target.main, tampers) as proxied:
        assert proxied.main is not None
        patient = Playback(recorded, patience=10.0)
        meter = Meter(ENDPOINT.budget)
        return await play(patient.scenario, proxied, proxied.main, PACE, meter)


def sent(transcript: Transcript) -> list[tuple[Any, ...]]:
    """What the client's side put on the wire, by session; what answers by itself aside."""
    return [
        (session, [(e.kind, e.fin, e.data) for e in lines if e.kind not in ("pong", "eof")])
        for session in transcript.sessions()
        if (lines := [e for e in transcript.session(session) if e.dir == "out"])
    ]


@pytest.mark.slow
async def test_the_same_is_sent_and_judged_alike(server: Target) -> None:
    checks = [c.id for c in chosen_checks() if set(SCENARIOS) & set(c.scenarios)]
    recorded = await record(server, None, *checks)
    playing = [again(server, recorded[name]) for name in SCENARIOS]
    for name, now in zip(SCENARIOS, await asyncio.gather(*playing), strict=True):
        assert (now.broken, now.unfinished) == (None, None), name
        assert sent(now) == sent(recorded[name]), name
        before, after = judge_transcripts([recorded[name]]), judge_transcripts([now])
        assert not [c for c, j in after.items() if j.verdict is not Verdict.PASS], name
        own = {c for c in before if name in CHECKS[c].scenarios}
        assert own, name
        assert own <= after.keys(), name


# What breaks, and the check that finds it.
FAULTY = [
    ("seq-from-zero", "seq.counts_messages"),
    ("second-first", "order.fifo"),
    ("closes-after-utterance", "session.stays_open"),
    ("pongs-empty", "ws.ping"),
    ("null-fields-refused", "message.null_is_absent"),
    ("http-errors-as-500", "http.status"),
]


@pytest.mark.slow
async def test_what_broke_breaks_again_and_only_there(server: Target) -> None:
    async def one(fault: str, check: str) -> None:
        found = await record(server, fault, check)
        guilty = [t for t in found.values() if _is_red(t, check)]
        assert guilty, fault
        assert _is_red(await again(server, guilty[0], fault), check), fault
        assert not _is_red(await again(server, guilty[0]), check), fault

    await asyncio.gather(*(one(fault, check) for fault, check in FAULTY))


def _is_red(transcript: Transcript, check: str) -> bool:
    found = judge_transcripts([transcript])
    return check in found and found[check].verdict in RED


@pytest.mark.slow
async def test_silence_is_told_as_such(server: Target) -> None:
    """The recorded endpoint answered; the live one, which loses every end, is waited for."""
    recorded = (await record(server, None, "order.fifo"))["order"]
    async with asyncio.timeout(60):
        assert server.main is not None
        async with ProxiedTarget(ENDPOINT, server.main, FAULTS["complete-missing"]) as proxied:
            assert proxied.main is not None
            hasty = Playback(recorded, patience=1.0)
            meter = Meter(ENDPOINT.budget)
            now = await play(hasty.scenario, proxied, proxied.main, PACE, meter)
    dialogue = Dialogue.read(now, 1)
    assert dialogue.in_vain
    assert any(j.verdict in RED for j in judge_transcripts([now]).values())


PACKAGE = Path(playback.__file__).parent
# These tell what came of a wait, which the playback makes itself, a state, or how the client reads.
WAITED = (
    "busy: ",
    "in vain: ",
    "no session_closed: ",
    "reading: ",
    "receive buffer: ",
    "refused after a disconnect: ",
    "stream error: ",
    "the close frame was not answered",
    "unanswered: ",
    "what came was no event: ",
)


def test_every_note_is_either_repeated_or_not() -> None:
    """Who adds a note to a scenario has to say whether it holds when all is sent again."""
    found = {
        text
        for folder in ("scenarios", "fuzz", "driver", ".")
        for path in (PACKAGE / folder).glob("*.py")
        if path.name != "playback.py"
        for text in re.findall(r"\bnote\(\s*f?\"([^\"]+)\"", path.read_text("utf-8"))
        if not text.startswith("{")
    }
    assert len(found) > 20
    known = (*REPEATED, *MEASURED, *WAITED)
    # `draining` by itself says when the client asks; with a colon it says what came of it.
    assert sorted(text for text in found if not text.startswith(known) and text != "draining") == []
    assert PATIENT.startswith(REPEATED)


async def test_what_was_measured_then_is_not_taken_for_now(server: Target) -> None:
    recorded = made(
        Entry(0.2, "note", "note", 1, text="idle limit: 4"),
        Entry(0.2, "note", "note", 1, text="accepted: 9.0 s"),
        Entry(0.2, "note", "note", 0, text="exit status: 9"),
        Entry(0.2, "note", "note", 1, text="nobody knows: this"),
        Entry(0.3, "out", "close", 1, code=1000, data=b"\x03\xe8"),
    )
    now = await again(server, recorded)
    assert [e.text for e in now.entries if e.kind == "note"] == ["idle limit: 4"]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ({"a.b": passed()}, {"a.b": passed()}, 0),
        ({"a.b": fail("broken")}, {"a.b": passed()}, 0),
        ({"a.b": fail("broken")}, {"a.b": fail("broken")}, 1),
        ({"a.b": passed()}, {"a.b": fail("broken")}, 1),
        # What broke then was not seen now: nobody can say that it is mended.
        ({"a.b": fail("broken")}, {"c.d": passed()}, 2),
        ({}, {}, 2),
    ],
)
def test_exit_status_of_a_replay(
    before: dict[str, Judgement], after: dict[str, Judgement], status: int
) -> None:
    assert Again(Transcript("a"), Transcript("a"), before, after).exit_status == status


ASKED = Entry(0.2, "out", "text", 1, data=b'{"text": "See you there."}')


async def hasty(
    target: Target, recorded: Transcript, fault: str | None = None, patience: float = 2.0
) -> list[str]:
    """The notes of a playback without much patience."""
    assert target.main is not None
    tampers = FAULTS[fault] if fault is not None else None
    async with ProxiedTarget(ENDPOINT, target.main, tampers) as proxied:
        assert proxied.main is not None
        scenario = Playback(recorded, patience=patience).scenario
        now = await play(scenario, proxied, proxied.main, PACE, Meter(ENDPOINT.budget))
    assert now.broken is None
    return [entry.text or "" for entry in now.entries if entry.kind == "note"]


# What was recorded, the fault of the live endpoint, and the notes of the playback.
WAITS: list[tuple[list[Entry], str | None, list[str]]] = [
    # What never came then comes now, or does not.
    ([ASKED, Entry(0.3, "note", "note", 1, text="in vain: 1")], None, []),
    (
        [ASKED, Entry(0.3, "note", "note", 1, text="in vain: 1")],
        "complete-missing",
        ["in vain: 1"],
    ),
    # A `hello` that comes late is answered; nobody answers a request that was never sent.
    ([ASKED, Entry(0.3, "note", "note", 1, text="unanswered: 7,x")], None, []),
    (
        [
            Entry(0.2, "out", "text", 1, data=b'{"type": "close"}'),
            Entry(0.3, "note", "note", 1, text="no session_closed: waited in vain"),
        ],
        None,
        [],
    ),
    (
        [ASKED, Entry(0.3, "note", "note", 1, text="no session_closed: waited in vain")],
        None,
        ["no session_closed: waited in vain"],
    ),
    (
        [
            Entry(0.2, "out", "close", 1, code=1000, data=b"\x03\xe8"),
            Entry(0.3, "note", "note", 1, text="the close frame was not answered"),
        ],
        None,
        [],
    ),
    (
        [ASKED, Entry(0.3, "note", "note", 1, text="the close frame was not answered")],
        None,
        ["the close frame was not answered"],
    ),
    # What lasted longer than then is told as it was now.
    (
        [
            Entry(0.2, "note", "note", 1, text="reading: paused"),
            Entry(0.5, "note", "note", 1, text="stalled for: 0.1"),
            Entry(0.5, "note", "note", 1, text="held for: 7.5"),
            Entry(0.5, "note", "note", 1, text="held for: long"),
            Entry(0.5, "note", "note", 1, text="busy: running"),
        ],
        None,
        ["reading: paused", "stalled for: N", "held for: 7.5", "held for: long", "busy: ended"],
    ),
    # It was waited for an end that does not come; and for a hanging up that nobody owes.
    (
        [ASKED, Entry(0.3, "in", "text", 1, data=b'{"type":"synthesis_complete","seq":1}')],
        "complete-missing",
        ["in vain: 1"],
    ),
    ([ASKED, Entry(0.3, "in", "eof", 1, reason="end of stream")], None, []),
    (
        [
            Entry(0.2, "note", "note", 1, text="reading: paused"),
            ASKED,
            Entry(0.3, "note", "note", 1, text="reading: slowly"),
            Entry(0.3, "note", "note", 1, text="reading: on"),
        ],
        None,
        ["reading: paused", "reading: slowly", "reading: on"],
    ),
]


async def test_waits_of_then_are_made_again(server: Target) -> None:
    # Only what does not come is waited for in vain; all else comes, on a slow machine late.
    playing = (
        hasty(server, made(*entries), fault, patience=2.0 if notes else 60.0)
        for entries, fault, notes in WAITS
    )
    for found, (entries, _, notes) in zip(await asyncio.gather(*playing), WAITS, strict=True):
        told = [re.sub(r"^(stalled for: )(0\.[3-9]|[1-9]).*", r"\1N", text) for text in found]
        assert told == notes, entries


async def test_a_session_of_other_frames(server: Target) -> None:
    """Octets that are no frame, a connection broken off, and a small buffer."""
    recorded = made(
        Entry(0.2, "note", "note", 1, text="receive buffer: 16384"),
        Entry(0.2, "note", "note", 1, text="abuse"),
        Entry(0.2, "out", "raw", 1, data=b"\x83\x80\x00\x00\x00\x00"),
        Entry(0.3, "in", "close", 1, code=1002, data=b"\x03\xea"),
        Entry(0.3, "out", "close", 1, code=1002, data=b"\x03\xea"),
    )
    recorded.add(Entry(0.4, "out", "open", 2, method="GET", target="/"))
    recorded.add(Entry(0.5, "in", "open", 2, status=101))
    recorded.add(Entry(0.6, "out", "eof", 2, reason="broken off by the suite"))
    now = await again(server, recorded)
    kinds = [(e.session, e.kind) for e in now.entries if e.dir == "out"]
    assert kinds == [(1, "open"), (1, "raw"), (1, "close"), (2, "open"), (2, "eof")]
    assert [e.text for e in now.entries if e.kind == "note"] == ["receive buffer: 16384", "abuse"]
    assert [e.code for e in now.entries if e.kind == "close" and e.dir == "in"] == [1002]


@pytest.mark.slow
async def test_a_shutdown_is_made_again() -> None:
    """An instance of its own is told to stop where the recorded one was."""
    recorded = made(
        Entry(0.3, "note", "note", 1, text="shutdown: begins"),
        Entry(0.4, "in", "text", 1, data=b'{"type":"session_closed","reason":"going_away"}'),
        Entry(2.5, "in", "close", 1, code=1001, data=b"\x03\xe9"),
        Entry(2.5, "out", "close", 1, code=1001, data=b"\x03\xe9"),
        Entry(2.5, "in", "eof", 1, reason="end of stream"),
    )
    async with Target(ENDPOINT) as target:
        assert target.main is not None
        scenario = Playback(recorded).scenario
        now = await play(scenario, target, target.main, PACE, Meter(ENDPOINT.budget))
        assert target.main.returncode is None
    assert (now.broken, now.unfinished) == (None, None)
    dialogue = Dialogue.read(now, 1)
    assert dialogue.session_closed is not None
    assert dialogue.session_closed.fields["reason"] == "going_away"
    assert "exit status: 0" in [e.text for e in now.entries]


def test_what_cannot_be_sent_again() -> None:
    with pytest.raises(PlaybackError, match="nothing was sent"):
        Playback(Transcript("probe"))
    client = Transcript("client-plain", role="client")
    client.add(Entry(0.0, "out", "text", 1, data=b"{}"))
    with pytest.raises(PlaybackError, match="run the client itself"):
        Playback(client)


def made(*entries: Entry) -> Transcript:
    transcript = Transcript("fuzz-1", "mine")
    transcript.add(Entry(0.0, "out", "open", 1, method="GET", target="/"))
    transcript.add(Entry(0.1, "in", "open", 1, status=101))
    for entry in entries:
        transcript.add(entry)
    return transcript


async def test_pauses_and_answers_by_itself(server: Target) -> None:
    """A pause of the client is made again; its pong and its close were answers, sent once."""
    recorded = made(
        Entry(0.2, "in", "ping", 1, data=b"there?"),
        Entry(0.2, "out", "pong", 1, data=b"there?"),
        Entry(0.2, "out", "pong", 1, data=b"unasked"),
        Entry(0.8, "out", "text", 1, data=b'{"type": "close"}'),
        Entry(0.9, "in", "text", 1, data=b'{"type":"session_closed","reason":"client_close"}'),
        Entry(0.9, "in", "close", 1, code=1000, data=b"\x03\xe8"),
        Entry(0.9, "out", "close", 1, code=1000, data=b"\x03\xe8"),
        Entry(0.9, "in", "eof", 1, reason="end of stream"),
    )
    now = await again(server, recorded)
    out = [e for e in now.entries if e.dir == "out"]
    assert [e.kind for e in out] == ["open", "pong", "text", "close"]
    assert out[1].data == b"unasked"
    assert out[2].t - out[1].t >= 0.6
    assert now.entries[-1].kind == "eof"


async def test_a_refused_handshake_is_no_end(server: Target) -> None:
    """The recorded endpoint refused the second session; the live one opens it, and all goes on."""
    recorded = made(Entry(0.2, "out", "close", 1, code=1000, data=b"\x03\xe8"))
    recorded.add(Entry(0.3, "out", "open", 2, method="GET", target="/"))
    recorded.add(Entry(0.4, "in", "open", 2, status=503))
    recorded.add(Entry(0.5, "note", "note", 0, text="refused after a disconnect: HTTP 503"))
    now = await again(server, recorded)
    assert now.broken is None
    assert [e.status for e in now.entries if e.kind == "open" and e.dir == "in"] == [101, 101]
    assert not [e for e in now.entries if (e.text or "").startswith("refused")]


async def test_an_http_exchange_that_was_broken_off(server: Target) -> None:
    recorded = Transcript("http-streams", "mine")
    body = json.dumps({"text": "Hello there. " * 200}).encode()
    target = "/invocations"
    recorded.add(Entry(0.0, "out", "http-request", 3, method="POST", target=target, data=body))
    recorded.add(Entry(0.1, "in", "http-response", 3, status=200))
    recorded.add(Entry(0.2, "in", "http-body", 3, data=bytes(2000), fin=False))
    recorded.add(Entry(0.3, "out", "eof", 3, reason="broken off by the suite"))
    now = await again(server, recorded)
    (exchange,) = exchanges(now.session(3))
    assert (exchange.status, exchange.clean) == (200, None)
    assert len(exchange.body) >= 2000
    assert (now.entries[-1].kind, now.entries[-1].dir) == ("eof", "out")


SHUTDOWN = made(Entry(0.2, "note", "note", 1, text="shutdown: begins"))


def test_a_shutdown_needs_an_endpoint_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert needs_launch(SHUTDOWN)
    SHUTDOWN.save(tmp_path / "t.jsonl")
    assert cli.main(["replay", str(tmp_path / "t.jsonl"), "--endpoint-url", "ws://h"]) == 2
    assert "needs an endpoint with `launch`" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_shows_what_broke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def both() -> None:
        async with Target(ENDPOINT) as target:
            found = await record(target, "seq-from-zero", "seq.counts_messages")
            found["order"].save(tmp_path / "bad.jsonl")

    asyncio.run(both())
    options = ["--endpoint", "reference", "--output", str(tmp_path / "out")]
    assert cli.main(["replay", str(tmp_path / "bad.jsonl"), *options]) == 0
    said = capsys.readouterr().out
    assert "no more: seq.counts-messages (pass now)" in said
    assert "saved: " in said
    (file,) = (tmp_path / "out" / "transcripts").iterdir()
    assert Transcript.load(file).scenario == "order"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give --endpoint NAME or --endpoint-url URL"),
        (["--endpoint", "a", "--endpoint-url", "ws://h"], "give --endpoint NAME or"),
        (["--endpoint", "nobody"], "no endpoint is called 'nobody'"),
        (["--endpoint-url", "http://h"], "--endpoint-url http://h"),
        (["--endpoint-url", "ws://127.0.0.1:1", "--header", "x"], "--header"),
        (["--endpoint-url", "ws://127.0.0.1:1", "--patience", "-1"], "--patience"),
    ],
)
def test_wrong_usage_of_replay(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made().save(tmp_path / "t.jsonl")
    assert cli.main(["replay", str(tmp_path / "t.jsonl"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("utterwire-conformance: ")
    assert said in line


def test_nobody_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made().save(tmp_path / "t.jsonl")
    options = ["--endpoint-url", "ws://127.0.0.1:1"]
    assert cli.main(["replay", str(tmp_path / "t.jsonl"), *options]) == 2
    assert "cannot connect: Connection refused" in capsys.readouterr().out


@pytest.fixture
def signals() -> Iterator[None]:
    """Those that stop a replay, not ignored as in the background of some shells; after one they
    stay taken, and are given back here."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_replay_that_is_told_to_stop_stops_what_it_launched(
    number: signal.Signals,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped: list[bool] = []

    async def replay(*_: Any, **__: Any) -> list[Again]:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        raise AssertionError("nobody sets the event")

    monkeypatch.setattr(resend, "replay", replay)
    Transcript("order").save(tmp_path / "order.jsonl")
    assert cli.main(["replay", str(tmp_path / "order.jsonl"), "--endpoint", "reference"]) == 2
    assert stopped == [True]
    assert capsys.readouterr().err == "utterwire-conformance: terminated\n"
