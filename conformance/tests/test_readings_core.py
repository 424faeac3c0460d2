"""The protocol core and the suite read the same octets: messages, HTTP bodies, chunks, PCM.

Both were written from the prose by themselves. The core makes one choice where the prose leaves
several; the suite has to hold that choice for legal, and every other for a breach.
"""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.classification import audio_breaches, classify, control_breaches
from utterwire_conformance.client_message import read_client_message
from utterwire_conformance.fuzz import Ground
from utterwire_conformance.fuzz.grammar import bodies, http_case, messages
from utterwire_conformance.transcript import Case
from utterwire_protocol import (
    Audio,
    Cancel,
    Close,
    Control,
    Cutter,
    EndpointOptions,
    FrameKind,
    Hello,
    Keepalive,
    Limits,
    Rejection,
    RemoteProtocolError,
    Synthesize,
    is_sendable_audio,
    parse_message,
    parse_request,
)
from utterwire_protocol import classify as core_classify

PROFILES = frozenset({"core", "http", "interrupt", "negotiate"})
TYPES = {Synthesize: "synthesize", Cancel: "cancel", Hello: "hello", Close: "close"}
OPTIONS = EndpointOptions(voices=("v", "w"), profiles=PROFILES, limits=Limits(max_waiting=8))
CLAIMS = EndpointClaims(
    profiles=PROFILES,
    voices=frozenset({"v", "w"}),
    formats=frozenset({"pcm_s16le"}),
    sample_rates=frozenset({24_000}),
    min_speed=0.5,
    max_speed=2.0,
    max_text_chars=4096,
    max_request_id_chars=128,
    max_waiting=8,
)
GROUND = Ground(CLAIMS, ("Hi", "Hi there."), "v")
CALM = settings(
    derandomize=True,
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def agree(data: bytes) -> None:
    """The suite holds for legal what the core makes of a message."""
    meaning = read_client_message(data, CLAIMS)
    told = parse_message(data, OPTIONS)
    if isinstance(told, Rejection):
        assert meaning.verdict != "accept", told
        assert told.code in meaning.codes, (told, meaning)
        if meaning.id_certain:
            assert told.request_id == meaning.request_id
        return
    if isinstance(told, Hello) and 1 not in told.versions:
        # That is for the session to say.
        assert "unsupported_version" in meaning.codes
        return
    assert meaning.verdict != "reject", (told, meaning)
    assert meaning.type == ("keepalive" if isinstance(told, Keepalive) else TYPES[type(told)])
    if isinstance(told, Synthesize) and meaning.id_certain:
        assert told.request_id == meaning.request_id
        assert told.text == meaning.text


@CALM
@given(messages(GROUND))
def test_messages(data: bytes) -> None:
    agree(data)


@CALM
@given(st.binary(max_size=24))
def test_octets_that_are_no_message(data: bytes) -> None:
    agree(data)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=[]), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["type", "text", "voice", "speed", "sample_rate", "format", "request_id", "protocol_versions"]
)


@CALM
@given(st.dictionaries(FIELDS, JSON, max_size=5), st.booleans())
def test_objects_with_any_values(fields: dict[str, object], plain: bool) -> None:
    agree(json.dumps(fields | ({"text": "Hi"} if plain else {})).encode())


@CALM
@given(bodies(GROUND))
def test_bodies(pair: tuple[bytes, Case]) -> None:
    body, case = pair
    told = parse_request(body, OPTIONS)
    assert http_case(body, GROUND) == case
    if isinstance(told, Rejection):
        assert case.expect != "accept"
        assert told.code in case.codes
    else:
        assert case.expect != "reject"


# --- chunks -----------------------------------------------------------------------------------


def same_reading(data: bytes) -> None:
    for kind in (FrameKind.BINARY, FrameKind.UNKNOWN):
        told = core_classify(data, kind)
        assert not isinstance(told, Audio) or told.data == data
        verdict = classify(data, kind.value).verdict
        wanted = "control" if isinstance(told, Control) else "audio"
        assert verdict in (wanted, "either")
    try:
        core_classify(data, FrameKind.TEXT)
    except RemoteProtocolError:
        assert control_breaches(data)
    assert is_sendable_audio(data) == (
        {b.requirement for b in audio_breaches(data)} <= {"audio.no-leading-brace"}
    )


# Octets that begin like control: braces, quotes, digits and what lies between.
NEARLY = st.lists(
    st.sampled_from([b'"type"', b":", b'"x"', b"{", b"}", b",", b"1", b"[", b"]", b" ", b"\0"])
    | st.binary(max_size=3),
    max_size=14,
).map(lambda parts: b"{" + b"".join(parts))


@CALM
@given(st.binary(max_size=40) | NEARLY)
def test_any_octets(data: bytes) -> None:
    same_reading(data)


@CALM
@given(
    st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from([b"", b" \r\n\t", b"\0\0", b"}", b"{}"]),
)
def test_objects_and_what_follows(
    fields: dict[str, object], kind: str, before: bytes, after: bytes
) -> None:
    data = json.dumps({**fields, "type": kind}).encode()
    same_reading(data)
    same_reading(data + after)
    same_reading(before + data)
    same_reading(data[:-1])


def speech(number: int, samples: int, *, loud: float) -> bytes:
    """PCM as speech has it: tones that swell and fade, a little noise, silence between."""
    chance = random.Random(number)
    pitch = chance.uniform(80, 400)
    out = bytearray()
    for n in range(samples):
        swell = max(0.0, math.sin(n / chance.choice((900, 901))))
        value = loud * swell * math.sin(n * pitch / 3800) + chance.uniform(-0.003, 0.003)
        out += max(-32768, min(32767, round(32767 * value))).to_bytes(2, "little", signed=True)
    return bytes(out)


@pytest.mark.parametrize("size", [2, 64, 960, 4_800, 65_536])
@pytest.mark.parametrize("loud", [0.0, 0.01, 0.6, 2.0])
def test_pcm_is_cut_into_chunks_that_break_nothing(size: int, loud: float) -> None:
    pcm = bytearray(speech(size, 1_500, loud=loud))
    # Quiet samples whose first octet is a brace, all over the place, and some that end in one.
    for at in range(0, len(pcm), 2 * 97):
        pcm[at : at + 2] = b"{\0" if at % 4 else b"{}"
    cutter = Cutter("pcm_s16le", size)
    cut: list[bytes] = []
    chance = random.Random(size)
    rest = bytes(pcm)
    while rest:
        length = chance.randrange(1, 3_000)
        cut += cutter.cut(rest[:length])
        rest = rest[length:]
    assert cutter.rest == 0
    for chunk in cut:
        assert audio_breaches(chunk, sample_bytes=2) == ()
        assert classify(chunk, "binary").verdict == "audio"
        assert isinstance(core_classify(chunk, FrameKind.UNKNOWN), Audio)
    sent = b"".join(cut)
    assert len(sent) == len(pcm)
    changed = [(a, b) for a, b in zip(pcm, sent, strict=True) if a != b]
    assert all(a == 0x7B and b == 0x7A for a, b in changed)


@CALM
@given(
    st.lists(st.sampled_from([b"{", b"}", b" ", b"\n", b"\0", b"x"]), max_size=60).map(b"".join),
    st.integers(1, 20),
    st.sampled_from(["pcm_s16le", "mulaw", "opus"]),
)
def test_the_worst_octets_are_cut_into_chunks_that_break_nothing(
    data: bytes, size: int, form: str
) -> None:
    cutter = Cutter(form, max(size, 2))
    pcm = form == "pcm_s16le"
    for chunk in cutter.cut(data):
        broken = {b.requirement for b in audio_breaches(chunk, sample_bytes=2 if pcm else None)}
        assert broken <= (set() if form != "opus" else {"audio.no-leading-brace"})
