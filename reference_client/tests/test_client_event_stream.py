"""Server-sent events, by the rules of the HTML standard and however they are delivered."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_client.event_stream import (
    MAX_EVENT_BYTES,
    EventStreamReader,
    EventTooLarge,
    ServerSentEvent,
)
from utterwire_schemas import octets, vectors

CASES = {
    "one event": (b"event: a\ndata: 1\n\n", [("a", "1")]),
    "no name": (b"data: 1\n\n", [("message", "1")]),
    "no space after the colon": (b"event:a\ndata:1\n\n", [("a", "1")]),
    "one space is taken off, and no more": (b"data:  1 \n\n", [("message", " 1 ")]),
    "data of several lines": (b"data: 1\ndata\ndata: 3\n\n", [("message", "1\n\n3")]),
    "a colon in a value": (b"data: {a: 1}\n\n", [("message", "{a: 1}")]),
    "comments": (b": hello\n\n:\ndata: 1\n: more\n\n", [("message", "1")]),
    "no data, no event": (b"event: a\n\ndata: 1\n\n", [("message", "1")]),
    "empty data": (b"data\n\n", [("message", "")]),
    "unknown fields": (b"id: 7\nretry: 10\nx: y\ndata: 1\n\n", [("message", "1")]),
    "the last name counts": (b"event: a\nevent: b\ndata: 1\n\n", [("b", "1")]),
    "a name is for one event": (
        b"event: a\ndata: 1\n\ndata: 2\n\n",
        [("a", "1"), ("message", "2")],
    ),
    "CR LF": (b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", [("a", "1"), ("message", "2")]),
    "CR": (b"event: a\rdata: 1\r\rdata: 2\r\r", [("a", "1"), ("message", "2")]),
    "mixed ends": (b"event: a\r\ndata: 1\n\rdata: 2\r\n\n", [("a", "1"), ("message", "2")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [("message", "1")]),
    "a byte order mark later": (
        b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n",
        [("message", "1")],
    ),
    "code points of several octets": (
        "data: ż\U0001f600\n\n".encode(),
        [("message", "ż\U0001f600")],
    ),
    "what is not UTF-8": (b"data: \xff\n\n", [("message", "\ufffd")]),
    "no blank line, no event": (b"data: 1\n\nevent: a\ndata: 2\n", [("message", "1")]),
    "half a line": (b"data: 1\n\ndata: 2", [("message", "1")]),
    "nothing": (b"", []),
}


def read(*pieces: bytes) -> list[tuple[str, str]]:
    reader = EventStreamReader()
    return [(event.name, event.data) for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize(("stream", "events"), CASES.values(), ids=CASES)
def test_events(stream: bytes, events: list[tuple[str, str]]) -> None:
    assert read(stream) == events
    assert read(*(bytes([octet]) for octet in stream)) == events


STREAMS = st.sampled_from([stream for stream, _ in CASES.values()])


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(STREAMS, max_size=4), st.lists(st.integers(0, 200), max_size=6))
def test_where_the_pieces_end_means_nothing(streams: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(streams)
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert read(*pieces) == read(stream)


@pytest.mark.parametrize("vector", vectors("event-streams"), ids=lambda vector: vector["id"])
def test_the_shared_vectors(vector: dict[str, Any]) -> None:
    body = octets(vector["body"])
    expected = [(event["event"], event["data"]) for event in vector["events"]]
    assert read(body) == expected
    reader = EventStreamReader()
    events = [each for octet in body for each in reader.feed(bytes([octet]))]
    assert [(event.name, event.data) for event in events] == expected
    assert reader.in_event is vector.get("left", False)


def test_what_is_not_whole_is_known() -> None:
    reader = EventStreamReader()
    assert not reader.in_event
    assert reader.feed(b"data: 1\n") == []
    assert reader.in_event
    assert reader.feed(b"\n") == [ServerSentEvent("message", "1")]
    assert not reader.in_event


@pytest.mark.parametrize(
    "piece",
    [b"data: " + b"x" * 65_536, b"data: " + b"x" * 65_536 + b"\n", b"data\n" * 65_536],
    ids=["a line", "lines", "empty lines"],
)
def test_an_event_has_a_bound(piece: bytes) -> None:
    reader = EventStreamReader()
    for _ in range(MAX_EVENT_BYTES // 65_536 - 1):
        assert reader.feed(piece) == []
    with pytest.raises(EventTooLarge):
        reader.feed(2 * piece)
