"""Transcripts: what is written can be read, satisfies the schema and holds no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.driver import Recorder
from utterwire_conformance.transcript import Case, Entry, Transcript, suite_name
from utterwire_schemas import validator

CLAIMS = EndpointClaims(
    profiles=frozenset({"core", "http"}),
    max_waiting=9,
    voices=frozenset({"a", "b"}),
    max_message_bytes=70_000,
    idle_s=4,
)


def sample() -> Transcript:
    transcript = Transcript("demo", "mine", CLAIMS, "2026-01-01T00:00:00Z")
    case = Case("a case", "reject.x", "reject", ("invalid_json",))
    for entry in (
        Entry(0.0, "out", "open", 1, target="/p", method="GET", headers=(("A", "1"), ("A", "2"))),
        Entry(0.1, "in", "open", 1, status=101),
        Entry(0.2, "note", "note", 1, text=case.to_note()),
        Entry(0.3, "out", "text", 1, data='{"text": "Grüße \U0001f600"}'.encode()),
        Entry(0.4, "in", "binary", 1, data=b"\x00\x01"),
        Entry(0.5, "in", "binary", 1, data=bytes(2000)),
        Entry(0.6, "in", "text", 1, data=b'{"a": "\xff"}', fin=False),
        Entry(0.7, "in", "cont", 1, data=b""),
        Entry(0.8, "in", "close", 1, code=1000, reason="bye", data=b"\x03\xe8bye"),
        Entry(0.9, "in", "eof", 1, reason="end"),
        Entry(1.0, "out", "http-request", 2, method="POST", target="/invocations", data=b"{}"),
        Entry(1.1, "in", "http-response", 2, status=200, headers=(("x", "y"),)),
        Entry(1.2, "in", "http-body", 2, data=b"abc", fin=False),
    ):
        transcript.add(entry)
    transcript.unfinished = "the budget is spent"
    return transcript


def test_round_trip(tmp_path: Path) -> None:
    transcript = sample()
    path = tmp_path / "t.jsonl"
    transcript.save(path)
    again = Transcript.load(path)
    assert again.claims == CLAIMS
    assert (again.scenario, again.endpoint, again.started) == ("demo", "mine", transcript.started)
    assert again.unfinished == "the budget is spent"
    assert again.entries[1:] == transcript.entries[1:]
    assert again.entries[0].headers == (("A", "1, 2"),)
    assert again.sessions() == (1, 2)
    assert again.is_http(2)
    assert not again.is_http(1)


def test_every_line_satisfies_the_schema() -> None:
    import json

    for line in sample().to_lines():
        document = json.loads(line)
        assert list(validator("transcript").iter_errors(document)) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "the file is empty"),
        (["{}"], "the first line is not the header"),
        (["[]"], "the first line is not the header"),
        (['{"utterwire_transcript": 1, "endpoint": "x"}', "nonsense"], "line 2"),
        (['{"utterwire_transcript": 1, "endpoint": "x"}', '{"t": 1}'], "line 2"),
        *(
            (
                [
                    '{"utterwire_transcript": 1, "endpoint": "x"}',
                    f'{{"t": {t}, "dir": "in", "kind": "eof", "session": 1}}',
                ],
                "line 2",
            )
            for t in ("-1", "NaN", "Infinity", "true", 400 * "9")
        ),
    ],
)
def test_what_is_no_transcript_is_told(lines: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Transcript.from_lines(lines)


def test_broken_is_kept() -> None:
    transcript = Transcript("demo")
    transcript.broken = "nobody there"
    assert Transcript.from_lines(transcript.to_lines()).broken == "nobody there"


@pytest.mark.parametrize("note", ["case nonsense", 'case {"name": 1}', "another note"])
def test_other_notes_are_no_cases(note: str) -> None:
    assert Case.from_note(note) is None


def test_secrets_do_not_reach_a_transcript() -> None:
    transcript = Transcript("demo")
    recorder = Recorder(transcript, ("s3cret-token", ""))
    recorder.record("out", "open", 1, target="/?k=s3cret-token", headers=(("a", "s3cret-token"),))
    recorder.record("in", "text", 1, data=b"you sent s3cret-token")
    recorder.note("s3cret-token")
    assert "s3cret" not in "".join(transcript.to_lines())


def test_the_suite_has_a_name() -> None:
    assert suite_name().startswith("utterwire-conformance")
