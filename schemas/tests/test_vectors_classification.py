"""The classification vectors against a second reading of the two rules."""

from typing import Any

import pytest
from utterwire_schemas import octets, vectors

VECTORS = vectors("classification")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_verdict(vector: dict[str, Any], rules: Any) -> None:
    chunk = octets(vector["chunk"])
    receiver, control = rules.classify(chunk, vector["frame"])
    assert receiver == vector["receiver"]
    assert control == vector["sendable_as_control"]
    why = rules.unsendable(chunk)
    assert why == vector.get("unsendable")
    assert (why is None) == vector["sendable_as_audio"]


def test_what_may_be_sent_as_audio_is_read_as_audio() -> None:
    for vector in VECTORS:
        if vector["sendable_as_audio"] and vector["frame"] != "text":
            assert vector["receiver"] == "audio", vector["id"]


def test_what_may_be_sent_as_control_is_read_as_control() -> None:
    for vector in VECTORS:
        if vector["sendable_as_control"]:
            assert vector["receiver"] == "control", vector["id"]
            assert not vector["sendable_as_audio"], vector["id"]


def test_every_kind_of_trap_is_there() -> None:
    assert len(VECTORS) >= 80
    chunks = [octets(vector["chunk"]) for vector in VECTORS]
    assert any(len(chunk) == 65536 for chunk in chunks)
    assert any(chunk.count(b"[") >= 100_000 for chunk in chunks)
    assert any(chunk.count(b"9") >= 5000 for chunk in chunks)
    for needed in (b"\x7b\x00\x7d\x00", b"{}", b'{"type":null}', b"\xef\xbb\xbf", b"NaN"):
        assert any(needed in chunk for chunk in chunks), needed
    assert {vector["frame"] for vector in VECTORS} == {"text", "binary", "unknown"}
    assert {vector["receiver"] for vector in VECTORS} == {"control", "audio", "either"}
