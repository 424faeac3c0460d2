"""What an endpoint must make of a client message, by the suite's own lights."""

from __future__ import annotations

from typing import Any

import pytest
from utterwire_conformance.client_message import (
    WHITE_SPACE,
    Claims,
    is_blank,
    is_nothing_to_speak,
    is_speakable,
    read_client_message,
)
from utterwire_schemas import octets, vectors

VECTORS = vectors("client-messages")
_LIMITS = frozenset(
    {"max_text_chars", "max_request_id_chars", "max_waiting", "min_speed", "max_speed"}
)


_OFFERED = {
    "voices": frozenset(
        voice
        for vector in VECTORS
        if vector["verdict"] == "accept"
        for voice in [read_client_message(octets(vector["message"])).fields.get("voice")]
        if isinstance(voice, str)
    ),
    "formats": frozenset({"pcm_s16le"}),
    "sample_rates": frozenset({24_000}),
    "min_speed": 0.5,
    "max_speed": 2.0,
}


def claims_of(vector: dict[str, Any]) -> Claims:
    needs = vector.get("needs", {})
    profiles = frozenset({"core", "interrupt", "negotiate", *needs.get("claims", ())})
    limits = {key: needs["limits"][key] for key in needs.get("limits", {}) if key in _LIMITS}
    known: dict[str, Any] = {**_OFFERED, **limits}
    return Claims(profiles=profiles - frozenset(needs.get("lacks", ())), **known)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vectors(vector: dict[str, Any]) -> None:
    meaning = read_client_message(octets(vector["message"]), claims_of(vector))
    assert meaning.verdict == vector["verdict"], meaning
    # Of odd JSON the suite lets a parser make anything it may read there.
    assert meaning.codes >= set(vector.get("codes", ()))
    if vector["verdict"] == "reject":
        assert meaning.codes == set(vector["codes"])
    if "type" in vector:
        assert meaning.type == vector["type"]
    if "request_id" in vector:
        assert meaning.request_id == vector["request_id"]
    elif meaning.id_certain:
        assert meaning.request_id is None or vector["verdict"] == "either"
    if vector.get("unspeakable"):
        assert is_nothing_to_speak(meaning.text)
    if "characters" in vector:
        assert len(meaning.text) == vector["characters"]


def test_there_are_25_white_space_characters() -> None:
    assert len(WHITE_SPACE) == 25
    assert is_blank("".join(WHITE_SPACE))
    assert is_blank("")
    assert not is_blank("\u200b")
    assert not is_blank("\x1c")


@pytest.mark.parametrize("text", ["a", "7", "\u4e00", "é", "२", "\U0001d7d9"])
def test_letters_and_numbers_are_speakable(text: str) -> None:
    assert is_speakable(text)
    assert not is_nothing_to_speak(text)


@pytest.mark.parametrize("text", ["...", "?!", "\u200b", "😀", "👍🏽", "🇩🇪", "…\n", "\ufe0f—"])
def test_nothing_to_speak(text: str) -> None:
    assert is_nothing_to_speak(text)
    assert not is_speakable(text)


@pytest.mark.parametrize("text", ["", " \n", "+", "©"])
def test_not_known_to_be_silent(text: str) -> None:
    assert not is_nothing_to_speak(text)


KNOWN = Claims(
    profiles=frozenset({"core", "timing", "interrupt", "negotiate"}),
    max_text_chars=5000,
    max_request_id_chars=200,
    min_speed=0.25,
    max_speed=4.0,
    voices=frozenset({"v"}),
    formats=frozenset({"pcm_s16le", "mp3"}),
    sample_rates=frozenset({24_000, 48_000}),
)


@pytest.mark.parametrize(
    ("message", "unknown", "known"),
    [
        (b'{"text":"a","voice":"v"}', "either", "accept"),
        (b'{"text":"a","voice":"w"}', "either", "reject"),
        (b'{"text":"a","format":"mp3"}', "either", "accept"),
        (b'{"text":"a","format":"wav"}', "either", "reject"),
        (b'{"text":"a","sample_rate":48000}', "either", "accept"),
        (b'{"text":"a","sample_rate":8000}', "either", "reject"),
        (b'{"text":"a","sample_rate":1e400}', "reject", "reject"),
        (b'{"text":"a","sample_rate":%s}' % (b"9" * 400), "reject", "reject"),
        (b'{"text":"a","speed":%s}' % (b"9" * 400), "reject", "reject"),
        (b'{"type":"hello","protocol_versions":[1,%s]}' % (b"9" * 400), "reject", "reject"),
        (b'{"text":"a","speed":3}', "either", "accept"),
        (b'{"text":"a","speed":5}', "either", "reject"),
        (b'{"text":"a","speed":0.3}', "either", "accept"),
        (b'{"text":"a","speed":0.2}', "either", "reject"),
        (b'{"text":"a","speed":0}', "reject", "reject"),
        (b'{"text":"a","marks":["word"]}', "accept", "accept"),
        (b'{"text":"a","marks":["line"]}', "accept", "reject"),
        (b'{"text":"a","marks":{}}', "accept", "reject"),
        (b'{"text":"a","x":{"y":["\\ud800"]}}', "either", "either"),
        (b'{"text":"a","x":{"\\ud800":[1]}}', "either", "either"),
        (b'{"text":"\\ud800","x":[{"y":["z"]}]}', "reject", "reject"),
        (b'{"text":"%s"}' % (b"x" * 4500), "either", "accept"),
        (b'{"text":"%s"}' % (b"x" * 5001), "either", "reject"),
        (b'{"text":"a","request_id":"%s"}' % (b"x" * 150), "either", "accept"),
        (b'{"text":"a","request_id":"%s"}' % (b"x" * 201), "either", "reject"),
        (b'{"type":"cancel"}', "reject", "accept"),
    ],
)
def test_what_is_known_decides(message: bytes, unknown: str, known: str) -> None:
    assert read_client_message(message).verdict == unknown
    assert read_client_message(message, KNOWN).verdict == known


def test_every_endpoint_claims_core() -> None:
    with pytest.raises(ValueError, match="core"):
        Claims(profiles=frozenset({"http"}))
