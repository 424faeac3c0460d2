from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_protocol import (
    Audio,
    Control,
    FrameKind,
    RemoteProtocolError,
    classify,
    is_sendable_audio,
)
from utterwire_schemas import octets, vectors

VECTORS = vectors("classification")


def test_vectors() -> None:
    wrong = {}
    for vector in VECTORS:
        chunk = octets(vector["chunk"])
        try:
            found = classify(chunk, FrameKind(vector["frame"]))
        except RemoteProtocolError:
            # A text frame without a control message is never audio.
            assert vector["frame"] == "text"
            found = Control({})
        verdict = "control" if isinstance(found, Control) else "audio"
        whole = isinstance(found, Control) or found.data == chunk
        sendable = is_sendable_audio(chunk)
        if vector["receiver"] not in (verdict, "either") or not whole:
            wrong[vector["id"]] = verdict
        elif sendable is not vector["sendable_as_audio"]:
            wrong[vector["id"]] = f"sendable: {sendable}"
    assert wrong == {}


def test_odd_control_messages_that_parse_are_taken_for_control() -> None:
    chunk = b'{"type":"x","a":1,"a":2,"b":"\\ud800","c":123456789012345678901}'
    fields = {"type": "x", "a": 2, "b": "\ud800", "c": 123456789012345678901.0}
    assert classify(chunk, FrameKind.BINARY) == Control(fields)
    # More white space than a chunk may have is no reason to play it.
    chunk = b'{"type":"x"}' + b" " * 65_536
    assert classify(chunk, FrameKind.UNKNOWN) == Control({"type": "x"})


BRACED = st.binary(max_size=40).map(lambda data: b"{" + data + b"}")
NEAR_JSON = st.text(alphabet='{}[]":,type0 \n\\u\ud800', max_size=40).map(
    lambda text: b"{" + text.encode("utf-8", "surrogatepass") + b"}"
)
CHUNKS = st.one_of(st.binary(max_size=60), BRACED, NEAR_JSON)


@given(CHUNKS, st.sampled_from(FrameKind))
@settings(derandomize=True, max_examples=400, deadline=None, database=None)
def test_no_chunk_makes_the_receiver_fail(chunk: bytes, kind: FrameKind) -> None:
    found: Audio | Control | RemoteProtocolError
    try:
        found = classify(chunk, kind)
    except RemoteProtocolError as error:
        found = error
    if isinstance(found, RemoteProtocolError):
        assert kind is FrameKind.TEXT
        assert found.requirement in ("control.strict-json", "control.schema")
    elif isinstance(found, Audio):
        assert kind is not FrameKind.TEXT
        assert found.data == chunk
    else:
        assert isinstance(found.fields["type"], str)


@given(CHUNKS)
@settings(derandomize=True, max_examples=400, deadline=None, database=None)
def test_what_may_be_sent_as_audio_is_never_taken_for_control(chunk: bytes) -> None:
    if is_sendable_audio(chunk):
        assert classify(chunk, FrameKind.BINARY) == Audio(chunk)
        # Nor by the clients of the field, whose parser guesses the encoding.
        try:
            lenient = json.loads(chunk)
        except (ValueError, RecursionError):
            lenient = None
        assert not (chunk[0] == 0x7B and isinstance(lenient, dict))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.text(max_size=10))
@settings(derandomize=True, max_examples=100, deadline=None, database=None)
def test_every_control_message_is_taken_for_one(fields: dict[str, Any], type: str) -> None:
    fields["type"] = type
    chunk = json.dumps(fields, ensure_ascii=True).encode()
    for kind in FrameKind:
        assert classify(chunk, kind) == Control(fields)
