"""Ladders: readable, harmless to a terminal, and marked where the rule broke."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance import cli
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.command import printable
from utterwire_conformance.ladder import ladder_lines, marks_of, rungs
from utterwire_conformance.latency import measure
from utterwire_conformance.offline import judge_transcripts
from utterwire_conformance.requirements import PROFILES
from utterwire_conformance.stage import SCENARIOS
from utterwire_conformance.transcript import Case, Entry, Transcript

ROOT = Path(__file__).resolve().parents[2]
START = (
    b'{"type": "synthesis_start", "seq": 1, "sample_rate": 24000, "format": "pcm_s16le",'
    b' "voice": "v"}'
)


def transcript(*chunks: bytes, session: int = 1) -> Transcript:
    made = Transcript("probe", "mine", started="2026-01-01T00:00:00Z")
    made.add(Entry(0.0, "out", "open", session, method="GET", target="/s?token=hidden-1"))
    made.add(Entry(0.1, "in", "open", session, status=101))
    made.add(Entry(0.2, "out", "text", session, data=b'{"text": "Hello."}'))
    made.add(Entry(0.3, "in", "text", session, data=START))
    for number, chunk in enumerate(chunks):
        made.add(Entry(0.4 + number / 100, "in", "binary", session, data=chunk))
    return made


def lines(made: Transcript, **options: Any) -> list[str]:
    return list(ladder_lines(made, judge_transcripts([made]), **options))


def test_a_ladder_has_a_line_for_each_message() -> None:
    shown = lines(transcript(b"\x01\x02", b"\x03\x04"))
    assert shown[0] == "probe: endpoint mine, 2026-01-01T00:00:00Z"
    assert shown[3].split() == ["4", "0.200", "-->", "text", "18", "B", '{"text":', '"Hello."}']
    assert shown[5].split() == ["6", "0.400", "<--", "binary", "2", "B", "01", "02"]
    assert len(shown) == 7


def test_runs_of_audio_are_drawn_together() -> None:
    made = transcript(*[b"\x01\x02" * n for n in range(1, 11)])
    shown = lines(made)
    assert len(shown) == 6
    assert "110 B  10 chunks of 2 to 20 bytes, the last at 0.490" in shown[-1]
    assert len(lines(made, every=True)) == 15
    (run,) = [rung for rung in rungs(made) if rung.count > 1]
    assert (run.first, run.last, run.octets) == (4, 13, 110)
    assert run.until == pytest.approx(0.49)


def test_the_moment_is_marked_between_the_chunks() -> None:
    """The seventh chunk has half a sample: the run of audio is drawn up to there."""
    made = transcript(*[b"\x01\x02"] * 6, b"\x01\x02\x03", *[b"\x01\x02"] * 5)
    assert 10 in marks_of(made, judge_transcripts([made]))
    shown = lines(made)
    at = next(i for i, line in enumerate(shown) if "FAIL audio.whole-samples" in line)
    marked = shown[at - 1]
    assert marked.split()[:6] == ["12", "0.460", "<--", "binary", "3", "B"]
    assert "6 chunks" in shown[at - 2]
    assert "legal: " in shown[at + 1]
    assert "5 chunks" in shown[at + 2]


def test_only_what_is_asked_for_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript(b"\x01\x02\x03").save(tmp_path / "t.jsonl")
    path = str(tmp_path / "t.jsonl")
    assert cli.main(["show", path]) == 0
    assert "^ FAIL audio.whole-samples" in capsys.readouterr().out
    assert cli.main(["show", path, "--check", "audio.whole_samples"]) == 0
    assert "^ FAIL audio.whole-samples" in capsys.readouterr().out
    for options in (["--check", "order.fifo"], ["--no-judge"]):
        assert cli.main(["show", path, *options]) == 0
        assert "^" not in capsys.readouterr().out
    assert cli.main(["show", path, "--check", "nobody.knows"]) == 2
    assert "no requirement or check of that name" in capsys.readouterr().err


NASTY = "\x1b[2J\x1b]0;title\x07\r\n\u202eesrever\u2066\x9b31m"


def test_nothing_reaches_the_terminal_raw() -> None:
    made = transcript()
    made.scenario = made.endpoint = NASTY
    made.unfinished = NASTY
    case = Case(NASTY, "a.b", "reject", (NASTY,))
    for entry in (
        Entry(1.0, "in", "text", 1, data=json.dumps({"m": NASTY}, ensure_ascii=False).encode()),
        Entry(1.0, "in", "text", 1, data=NASTY.encode()),
        Entry(1.1, "in", "close", 1, code=1000, reason=NASTY),
        Entry(1.2, "in", "eof", 1, reason=NASTY),
        Entry(1.3, "note", "note", 1, text=NASTY),
        Entry(1.4, "note", "note", 1, text=case.to_note()),
        Entry(1.5, "in", "http-response", 2, status=200, headers=(("Content-Type", NASTY),)),
        Entry(1.6, "in", "http-body", 2, data=NASTY.encode()),
        Entry(1.7, "out", "http-request", 2, method=NASTY, target=NASTY),
        Entry(1.8, "in", "ping", 1, data=NASTY.encode()),
    ):
        made.add(entry)
    shown = "".join(ladder_lines(made, {}, width=None))
    assert shown.isprintable()
    assert "\\x1b[2J" in shown
    assert "\\u202e" in shown


def test_secrets_are_masked_even_where_the_recorder_was_another() -> None:
    made = transcript()
    headers = (("Authorization", "Bearer tok-1"), ("Cookie", "id=1"), ("X-Api-Key", "k-1"))
    request = {"method": "POST", "target": "/invocations?key=k-2", "headers": headers}
    made.add(Entry(1.0, "out", "http-request", 2, **request))  # type: ignore[arg-type]
    shown = "\n".join(lines(made, width=None))
    for secret in ("tok-1", "id=1", "k-1", "k-2", "hidden-1"):
        assert secret not in shown
    assert "Authorization: ***" in shown
    assert "/invocations?***" in shown


def test_long_lines_are_cut_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = transcript()
    made.add(Entry(1.0, "out", "text", 1, data=json.dumps({"text": "x" * 5000}).encode()))
    made.save(tmp_path / "t.jsonl")
    assert cli.main(["show", str(tmp_path / "t.jsonl")]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 120
    assert cli.main(["show", "--full", str(tmp_path / "t.jsonl")]) == 0
    assert "x" * 5000 in capsys.readouterr().out


def test_several_sessions_are_told_apart() -> None:
    made = transcript()
    made.add(Entry(1.0, "out", "ping", 2, data=b"a"))
    assert [line.split()[2] for line in lines(made)[1:]] == ["1", "1", "1", "1", "2"]


def test_colours_are_for_terminals_alone(tmp_path: Path) -> None:
    transcript(b"\x01").save(tmp_path / "t.jsonl")
    command = [sys.executable, "-m", "utterwire_conformance", "show", str(tmp_path / "t.jsonl")]
    paths = [str(ROOT / name) for name in ("schemas", "conformance")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    piped = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"\x1b" not in piped.stdout
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, env=environment | variables, stdout=theirs) as process:
            os.close(theirs)
            said = b""
            while True:
                try:
                    said += os.read(ours, 65_536)
                except OSError:
                    break
        os.close(ours)
        assert process.returncode == 0
        assert (b"\x1b[31;1m" in said) is coloured


def test_who_reads_no_further_is_no_error(tmp_path: Path) -> None:
    made = transcript()
    for number in range(20_000):
        made.add(Entry(1.0 + number / 1000, "out", "ping", 1, data=b"ping"))
    made.save(tmp_path / "t.jsonl")
    paths = [str(ROOT / name) for name in ("schemas", "conformance")]
    done = subprocess.run(
        f'"{sys.executable}" -m utterwire_conformance show --no-judge t.jsonl | head -2',
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 語", "plain é 語"),
        ("a\tb\n", "a\\tb\\n"),
        ("\x1b\x00", "\\x1b\\x00"),
        ("\u202e\ud800", "\\u202e\\ud800"),
    ],
)
def test_what_a_terminal_may_act_on_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


FIELDS: dict[str, list[Any]] = {
    "seq": [1, 2, 0, 99, -1, "1", None, 1.0],
    "request_id": ["a", 5, None],
    "audio_bytes": [0, 4, -1, 1e9, "x", None],
    "count": [0, 1, "x"],
    "last_seq": [0, 1, 9, {}],
    "code": ["queue_full", "going_away", "invalid_json", 5, []],
    "rejected": [True, False, "x"],
    "sample_rate": [24_000, 0, -5, 0.5, 1e30, "x"],
    "format": ["pcm_s16le", "mp3", "opus", 5],
    "total_duration_s": [0, 1.5, 1e300, "x"],
    "elapsed_s": [0, 1e300, []],
    "characters": [6, "x"],
    "reason": ["idle", "going_away", "slow_reader", 1],
    "words": [[], [5], "x", [{"text": 5}], [{"text": "a", "start_s": "x", "char_end": 1e9}]],
    "limits": [{}, 5, {"max_waiting": "x"}, {"max_message_bytes": 1e300, "idle_timeout_s": 4}],
    "profiles": [["core"], [5], {}],
    "voices": [["v"], [[]], "x"],
    "sample_rates": [[24_000], ["x"]],
    "protocol_version": [1, "x"],
}
TYPES = ["synthesis_start", "synthesis_complete", "error", "cancelled", "cancel_done", "marks"]
MESSAGES = st.builds(
    lambda fields: json.dumps(fields).encode(),
    st.fixed_dictionaries(
        {"type": st.sampled_from([*TYPES, "session", "session_closed", "odd"])},
        optional={name: st.sampled_from(values) for name, values in FIELDS.items()},
    ),
)
PAYLOADS = MESSAGES | st.sampled_from(
    [
        b"",
        b"\x01\x02\x03",
        b"\x01\x02" * 20,
        b"{",
        START,
        b"\xff\xfb\x90\x00" * 40,
        b"OggS" + bytes(40),
        b"RIFF" + bytes(40),
        b"event: audio_chunk\ndata: {}\n\n",
        b'{"text": "Hello."}',
        b'{"text": "Hello.", "format": "mp3", "request_id": "a"}',
        b'{"text": "Hello.", "marks": ["word"]}',
        b'{"type": "cancel", "request_id": "a"}',
        b'{"type": "hello", "protocol_versions": [1]}',
        b'{"type": "close"}',
    ]
)
NOTES = st.sampled_from(
    [
        "in vain: x,,1,99999999999999999999",
        "unanswered: ",
        "idle limit: 4",
        "idle: waited",
        "stall limit: 6",
        "stated idle: 4.0",
        "lag: 0.125",
        "held for: 5.2",
        "kept for: 7.2",
        "reading: paused",
        "shutdown: begins",
        "deadline: over",
        "too big: begins",
        "abuse",
        "quiet: yes",
        'case {"name": 1, "check": [], "expect": {}, "codes": [5]}',
        Case("a", "reject.unknown-type", "reject", ("unknown_type",)).to_note(),
        ": ",
    ]
)
ENTRIES = st.one_of(
    st.builds(
        Entry,
        t=st.floats(0, 1e6),
        dir=st.sampled_from(["in", "out"]),
        kind=st.sampled_from(
            [
                *("text", "binary", "cont", "ping", "pong", "close", "raw", "open", "eof"),
                *("http-request", "http-response", "http-body"),
            ]
        ),
        session=st.integers(1, 3),
        fin=st.booleans(),
        data=PAYLOADS,
        code=st.sampled_from([None, 0, 1000, 65_535]),
        reason=st.sampled_from([None, "why", ""]),
        method=st.sampled_from([None, "GET", "POST"]),
        target=st.sampled_from([None, "/ping", "/invocations", "?"]),
        status=st.sampled_from([None, 101, 200, 400, 503]),
        headers=st.sampled_from([(), (("content-type", "text/event-stream"),), (("a", ""),)]),
    ),
    st.builds(
        Entry,
        t=st.floats(0, 1e6),
        dir=st.just("note"),
        kind=st.just("note"),
        session=st.integers(0, 3),
        text=NOTES,
    ),
)
CLAIMS = EndpointClaims(
    profiles=frozenset(PROFILES), max_waiting=8, idle_s=4.0, voices=frozenset({"v"})
)


@pytest.mark.slow
@given(st.lists(ENTRIES, max_size=25), st.sampled_from(sorted(SCENARIOS)))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_nothing_an_endpoint_says_makes_the_judges_fail(
    entries: list[Entry], scenario: str
) -> None:
    opened = [
        Entry(0.0, "out", "open", 1, method="GET", target="/"),
        Entry(0.1, "in", "open", 1, status=101),
    ]
    whole = Transcript(scenario, "mine", CLAIMS, entries=[*opened, *entries])
    made = Transcript.from_lines(whole.to_lines())
    found = judge_transcripts([made])
    assert [j.reason for j in found.values() if j.reason.startswith("the judge failed")] == []
    assert all(line.isprintable() for line in ladder_lines(made, found))
    assert measure([made]).keys() >= {"samples"}


# --- clauses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("order.fifo", ("order.fifo (MUST, protocol.md#order)", "## Order", "first in, first out")),
        ("protocol.md#order", ("## Order",)),
        ("spec/protocol.md#order", ("## Order",)),
        ("websocket.md", ("# ",)),
    ],
)
def test_clauses_are_printed(
    name: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["clause", name]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in words)


@pytest.mark.parametrize("name", ["order.nothing", "protocol.md#nothing", "../etc/passwd", "x#y"])
def test_clauses_that_there_are_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clause", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no requirement or clause" in line
    if name == "order.nothing":
        assert "order.fifo" in line
