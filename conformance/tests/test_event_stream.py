"""Server-sent events are read as the standard says, however they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.event_stream import Event, names_events, read_events
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Verdict
from utterwire_schemas import octets, vectors

STREAMS = vectors("event-streams")


@pytest.mark.parametrize("vector", STREAMS, ids=lambda vector: vector["id"])
def test_vectors_of_streams(vector: dict[str, Any]) -> None:
    body = octets(vector["body"])
    stream = read_events(body)
    heard = [(e.name or "message", e.data) for e in stream.events if e.data is not None]
    assert heard == [(e["event"], e["data"]) for e in vector["events"]]
    assert (stream.unended is not None) is vector.get("left", False)
    account = Transcript("sse-streams")
    request: dict[str, Any] = {"method": "POST", "target": "/invocations", "data": b'{"text": "a"}'}
    accept = (("Accept", "text/event-stream"),)
    account.add(Entry(0.0, "out", "http-request", 1, headers=accept, **request))
    kind = (("content-type", "text/event-stream"),)
    account.add(Entry(0.1, "in", "http-response", 1, status=200, headers=kind))
    account.add(Entry(0.2, "in", "http-body", 1, data=body, fin=False))
    account.add(Entry(0.3, "in", "http-body", 1, fin=True))
    judged = CHECKS["sse.whole_events"].judge([Account.of(account)])
    assert judged.verdict is (Verdict.PASS if vector["verdict"] == "legal" else Verdict.FAIL)


@pytest.mark.parametrize("vector", vectors("accept-fields"), ids=lambda vector: vector["id"])
def test_vectors_of_accept(vector: dict[str, Any]) -> None:
    assert names_events(", ".join(vector["fields"])) is vector["events"]


WHOLE = b'event: a\ndata: {"n": 1}\n\nevent: b\ndata: {"n": 2}\n\n'
SAME: list[tuple[str, bytes]] = [
    ("as it is", WHOLE),
    ("CRLF", WHOLE.replace(b"\n", b"\r\n")),
    ("CR", WHOLE.replace(b"\n", b"\r")),
    ("all three", b'event: a\r\ndata: {"n": 1}\r\rdata: {"n": 2}\nevent: b\r\n\n'),
    ("byte order mark", b"\xef\xbb\xbf" + WHOLE),
    ("comments", b": hello\n\n:\n" + WHOLE.replace(b"data:", b":x\ndata:") + b": bye\n\n"),
    ("blank lines", b"\n\n\n" + WHOLE.replace(b"\n\n", b"\n\n\n\n")),
    ("no space", WHOLE.replace(b": ", b":").replace(b'"n":', b'"n": ')),
    ("data in lines", WHOLE.replace(b'{"n"', b'{\ndata:"n"')),
    ("fields that mean nothing", WHOLE.replace(b"event", b"id: 7\nretry: 1\nfoo\nevent")),
    ("the last name counts", WHOLE.replace(b"event: a", b"event: z\nevent: a")),
]


@pytest.mark.parametrize("body", [row[1] for row in SAME], ids=[row[0] for row in SAME])
def test_legal_ways_to_write_the_same(body: bytes) -> None:
    stream = read_events(body)
    assert [(event.name, event.fields) for event in stream.events] == [
        ("a", {"n": 1}),
        ("b", {"n": 2}),
    ]
    assert stream.unended is None
    assert stream.is_utf8


ODD: list[tuple[bytes, list[tuple[str, str | None]], tuple[str, str | None] | None]] = [
    (b"", [], None),
    (b"\n", [], None),
    (b":\n\n", [], None),
    (b"retry: 5\n\n", [], None),
    (b"data: x\n\n", [("", "x")], None),
    (b"data\n\n", [("", "")], None),
    (b"data:  x\n\n", [("", " x")], None),
    (b"data: a\ndata: b\ndata:\n\n", [("", "a\nb\n")], None),
    (b"event: a\n\n", [("a", None)], None),
    (b"event\ndata: x\n\n", [("", "x")], None),
    (b"Event: a\ndata : x\n\n", [], None),
    (b"event: a\ndata: x\n", [], ("a", "x")),
    (b"event: a\ndata: x", [], ("a", "x")),
    (b"event: a\r\ndata: x\r\n\r", [("a", "x")], None),
    (b"event: a\ndata: x\n\n: left\n", [("a", "x")], None),
]


@pytest.mark.parametrize(("body", "events", "unended"), ODD)
def test_what_else_can_stand_there(
    body: bytes,
    events: list[tuple[str, str | None]],
    unended: tuple[str, str | None] | None,
) -> None:
    stream = read_events(body)
    assert [(event.name, event.data) for event in stream.events] == events
    left = stream.unended
    assert (None if left is None else (left.name, left.data)) == unended


def test_bytes_that_are_no_text() -> None:
    stream = read_events(b'event: a\ndata: {"v": "\xe9"}\n\n')
    assert not stream.is_utf8
    assert stream.events[0].fields == {"v": "\ufffd"}


@pytest.mark.parametrize("data", [None, "", "x", "[]", "1", "{} {}", '{"a": NaN}', "{}\n{}"])
def test_data_that_is_no_object(data: str | None) -> None:
    assert Event("a", data, "").fields is None


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.dictionaries(st.text(), st.text()))),
    st.sampled_from(["\n", "\r", "\r\n"]),
)
def test_what_is_written_is_read(events: list[tuple[str, dict[str, str]]], end: str) -> None:
    written = [f"event: {name}{end}data: {json.dumps(data)}{end}{end}" for name, data in events]
    stream = read_events("".join(written).encode())
    assert [(event.name, event.fields) for event in stream.events] == events


ACCEPTS: list[tuple[str, bool]] = [
    ("", False),
    ("*/*", False),
    ("text/*", False),
    ("text/event-streams", False),
    ("text/event-stream", True),
    ("TEXT/EVENT-STREAM", True),
    (" audio/x ;q=1 , text/event-stream ; charset=utf-8 ;q=0.3", True),
    ("text/event-stream;q=0", False),
    ("text/event-stream;Q=0.00", False),
    ("text/event-stream;q=0.001", True),
    ("text/event-stream;q=0, text/event-stream", True),
    ('a/b;x=", text/event-stream"', False),
]


@pytest.mark.parametrize(("accept", "named"), ACCEPTS)
def test_who_asks_for_events(accept: str, named: bool) -> None:
    assert names_events(accept) is named
