"""The oracle on whole conversations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.classification import FrameKind
from utterwire_conformance.oracle import Oracle
from utterwire_schemas import octets, vectors

VECTORS = vectors("conversations")


def claims_of(vector: dict[str, Any]) -> EndpointClaims:
    limits = dict(vector.get("limits", {}))
    idle = limits.pop("idle_timeout_s", None)
    table = {"profiles": vector["profiles"], **limits}
    if idle is not None:
        table["timeouts"] = {"idle_s": idle}
    return EndpointClaims.from_table(table)


def play(vector: dict[str, Any]) -> Oracle:
    oracle = Oracle(claims_of(vector))
    for step in vector["steps"]:
        t = step.get("t")
        is_client = step["from"] == "client"
        data = b""
        kind: FrameKind | None = None
        if "json" in step:
            data, kind = json.dumps(step["json"]).encode(), step.get("frame", "text")
        elif "text" in step:
            data, kind = step["text"].encode(), "text"
        elif "octets" in step:
            data, kind = octets(step["octets"]), "binary"
        elif "audio_bytes" in step:
            data, kind = bytes(step["audio_bytes"]), "binary"
        if kind is not None:
            take = oracle.sent if is_client else oracle.received
            take(data, kind, frames=step.get("fragments", 1), t=t)
        elif "close" in step and is_client:
            oracle.client_closed(t)
        elif "close" in step:
            oracle.closed(step["close"], t)
        elif "signal" in step:
            oracle.shutdown_told()
        elif is_client:
            oracle.client_lost(t)
        else:
            oracle.lost(t)
    oracle.finish(quiet=vector["ends"] == "quiet")
    return oracle


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vectors(vector: dict[str, Any]) -> None:
    oracle = play(vector)
    judged = oracle.client_breaches if vector.get("role") == "client" else oracle.breaches
    found = {breach.requirement for breach in judged}
    if vector["verdict"] == "legal":
        assert not found, judged
        return
    assert vector["breaks"][0] in found, judged
    assert found <= set(vector["breaks"]), judged
