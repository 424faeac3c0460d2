"""How long classification, reading and writing take (pytest-benchmark)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from utterwire_protocol import (
    Audio,
    Connection,
    Control,
    Cutter,
    EndpointOptions,
    FrameKind,
    Role,
    Synthesize,
    Utterance,
    classify,
    encode_synthesis_complete,
    parse_message,
)

OPTIONS = EndpointOptions(voices=("v",), profiles=frozenset({"interrupt"}))
CONTROL = json.dumps(
    {
        "type": "synthesis_complete",
        "seq": 1,
        "total_duration_s": 1.25,
        "elapsed_s": 0.412,
        "audio_bytes": 60000,
        "characters": 13,
    }
).encode()
QUIET = bytes(range(0, 120, 2)) * 1100
REQUEST = json.dumps({"text": "Good morning. " * 20, "voice": "v", "request_id": "a"}).encode()
LONG = json.dumps({"text": "Good morning. " * 290}).encode()
# Deep enough in brackets for the levels to be counted.
BRACKETS = json.dumps({"text": "a", "x": [[]] * 10_000}).encode()
UTTERANCE = Utterance(1, "a", "Good morning.", "v", 1.0, 24_000, "pcm_s16le")


@pytest.mark.parametrize(
    ("chunk", "found"),
    [
        (b"\0" + QUIET[:65_535], Audio),
        (b"{" + QUIET[:65_535], Audio),
        # It looks like an object until it is parsed.
        (b'{"a":"' + b" " * 65_528 + b"}}", Audio),
        (b"{" + b"}" * 65_535, Audio),
        (CONTROL, Control),
        (CONTROL[:-1] + b',"x":"' + b"y" * 65_000 + b'"}', Control),
    ],
    ids=["audio", "brace-led", "nearly-json", "braces", "control", "long-control"],
)
def test_classify(benchmark: Any, chunk: bytes, found: type) -> None:
    assert isinstance(benchmark(classify, chunk, FrameKind.UNKNOWN), found)


@pytest.mark.parametrize("message", [REQUEST, LONG, BRACKETS], ids=["short", "long", "brackets"])
def test_parse_request(benchmark: Any, message: bytes) -> None:
    assert isinstance(benchmark(parse_message, message, OPTIONS), Synthesize)


def test_encode_complete(benchmark: Any) -> None:
    def encode() -> bytes:
        return encode_synthesis_complete(
            UTTERANCE, total_duration_s=1.25, elapsed_s=0.412, audio_bytes=60_000
        )

    assert benchmark(encode).startswith(b'{"type":"synthesis_complete"')


@pytest.mark.parametrize("audio", [QUIET, b"{a" * 33_000], ids=["speech", "braces"])
def test_cut(benchmark: Any, audio: bytes) -> None:
    chunks = benchmark(lambda: Cutter("pcm_s16le", 4800).cut(audio))
    assert sum(map(len, chunks)) == 66_000


def test_one_utterance_through_both_roles(benchmark: Any) -> None:
    """A request, 20 chunks of 100 ms, and the completion."""

    def speak() -> int:
        endpoint = Connection(Role.ENDPOINT, now=0.0, endpoint=OPTIONS)
        client = Connection(Role.CLIENT, now=0.0)
        seq = client.synthesize("Good morning.", 0.0)
        while (chunk := client.next_chunk()) is not None:
            endpoint.receive(chunk.data, 0.0)
        endpoint.start(seq, 0.0)
        for _ in range(20):
            endpoint.audio(seq, QUIET[:4800], 0.0)
        endpoint.complete(seq, 0.0)
        events = 0
        while (chunk := endpoint.next_chunk()) is not None:
            events += len(client.receive(chunk.data, 0.0, kind=chunk.kind))
        return events

    assert benchmark(speak) == 22
