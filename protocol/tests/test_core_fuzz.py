"""Whatever a peer sends, in whatever state: nothing is raised, and the session is kept or ended."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_protocol import (
    Connection,
    EndpointOptions,
    ErrorReceived,
    FrameKind,
    MessageRejected,
    Role,
    SessionState,
    SynthesizeReceived,
)

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 6)
    | st.sampled_from([10**20, 1e308, 0.5, "a", "x", "v", "word"])
    | st.floats(allow_nan=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=5,
)
CONTROL_TYPES = st.sampled_from(
    [
        "synthesis_start",
        "synthesis_complete",
        "error",
        "cancelled",
        "cancel_done",
        "marks",
        "session",
        "session_closed",
        "x_new",
    ]
)
CONTROL_NAMES = st.sampled_from(
    [
        "seq",
        "request_id",
        "sample_rate",
        "format",
        "voice",
        "total_duration_s",
        "elapsed_s",
        "audio_bytes",
        "characters",
        "code",
        "message",
        "retryable",
        "rejected",
        "count",
        "words",
        "protocol_version",
        "limits",
        "sample_rates",
        "profiles",
        "reason",
        "last_seq",
        "retry_after_s",
    ]
)
WORDS = st.fixed_dictionaries(
    {},
    optional={
        "text": VALUES,
        "start_s": VALUES,
        "end_s": VALUES,
        "char_start": VALUES,
        "char_end": VALUES,
    },
)


def message(types: st.SearchStrategy[str], names: st.SearchStrategy[str]) -> Any:
    fields = st.dictionaries(names, VALUES | st.lists(WORDS, max_size=2), max_size=6)
    return st.tuples(types, fields).map(lambda pair: json.dumps({"type": pair[0], **pair[1]}))


CHUNKS = st.lists(
    st.one_of(
        message(CONTROL_TYPES, CONTROL_NAMES).map(str.encode),
        st.binary(max_size=20),
        st.sampled_from([b"", b"{}", b'{"type":null}', b'{"type":"synthesis_complete"}', b"\0\0"]),
    ),
    max_size=12,
)


@given(CHUNKS, st.sampled_from(FrameKind), st.booleans())
@settings(derandomize=True, max_examples=120, deadline=None, database=None)
def test_a_client_bears_any_endpoint(chunks: list[bytes], kind: FrameKind, closing: bool) -> None:
    core = Connection(Role.CLIENT, now=0.0)
    core.hello(0.0)
    seqs = [core.synthesize("One.", 0.0, request_id="a"), core.synthesize("Two.", 0.0)]
    seqs.append(core.cancel(0.0, "x"))
    if closing:
        core.close(0.0)
    ended = False
    for chunk in chunks:
        events = core.receive(chunk, 0.0, kind=kind)
        assert events
        for event in events:
            assert not (ended and isinstance(event, ErrorReceived))
        ended = core.state is SessionState.CLOSED
    core.transport_lost(0.0)
    assert core.state is SessionState.CLOSED
    assert [seq for seq in seqs if core.utterance(seq)] == []


CLIENT_TYPES = st.sampled_from(["synthesize", "close", "keepalive", "cancel", "hello", "append"])
CLIENT_NAMES = st.sampled_from(
    ["text", "voice", "speed", "sample_rate", "format", "request_id", "marks", "protocol_versions"]
)
MESSAGES = st.lists(
    st.one_of(
        message(CLIENT_TYPES, CLIENT_NAMES).map(str.encode),
        st.binary(max_size=20),
        st.sampled_from([b'{"text":"a"}', b'{"text":"a","request_id":"x"}', b'{"type":"cancel"}']),
    ),
    max_size=30,
)


@given(MESSAGES, st.lists(st.integers(0, 3), max_size=30))
@settings(derandomize=True, max_examples=120, deadline=None, database=None)
def test_an_endpoint_bears_any_client(messages: list[bytes], taken: list[int]) -> None:
    options = EndpointOptions(
        voices=("v",), profiles=frozenset({"interrupt", "negotiate", "timing"})
    )
    core = Connection(Role.ENDPOINT, now=0.0, endpoint=options)
    answers: list[dict[str, Any]] = []

    def take(count: int) -> None:
        for _ in range(count):
            chunk = core.next_chunk(0.0)
            if chunk is not None and chunk.kind is FrameKind.TEXT:
                answers.append(json.loads(chunk.data))

    accepted, rejected = set(), set()
    for number, data in enumerate(messages, 1):
        (event, *_) = core.receive(data, 0.0)
        if isinstance(event, SynthesizeReceived):
            accepted.add(event.seq)
        elif isinstance(event, MessageRejected):
            rejected.add(event.seq)
        seq: int | None = getattr(event, "seq", None)
        assert seq == number
        utterance = core.next_waiting()
        if utterance is not None and core.running() is None:
            core.start(utterance.seq, 0.0)
            core.audio(utterance.seq, data, 0.0)
        take(taken[number - 1] if number <= len(taken) else 0)
    core.end("policy", 0.0)
    take(1000)
    # Each has exactly one answer that ends it.
    errors = [each for each in answers if each["type"] == "error"]
    assert sorted(each["seq"] for each in errors if "rejected" in each) == sorted(rejected)
    ended = [each["seq"] for each in errors if "rejected" not in each]
    ended += [each["seq"] for each in answers if each["type"] == "cancelled"]
    assert sorted(ended) == sorted(accepted)
    assert answers[-1]["type"] == "session_closed"
