"""The HTTP request vectors against a second reading of the rules."""

from typing import Any
from urllib.parse import quote

import pytest
from utterwire_schemas import ERROR_CODES, octets, vectors

VECTORS = vectors("http-requests")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_verdict(vector: dict[str, Any], rules: Any) -> None:
    # To an endpoint without profiles, whatever is not `synthesize`, `close` or `keepalive` is
    # unknown; over HTTP these two are as well.
    judged = rules.judge_message(octets(vector["body"]), set(), rules.floors)
    codes, acceptable, rejectable = set(judged.codes), judged.acceptable, judged.rejectable
    if judged.type in ("close", "keepalive"):
        codes, acceptable, rejectable = {"unknown_type"}, False, True
    stream = judged.fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        codes, acceptable, rejectable = codes | {"invalid_request"}, False, True
    verdict = ("either" if rejectable else "accept") if acceptable else "reject"
    assert vector["verdict"] == verdict
    assert set(vector.get("codes", [])) == codes
    assert vector.get("statuses", []) == sorted({ERROR_CODES[code].http_status for code in codes})
    assert vector.get("request_id") == judged.request_id
    if acceptable:
        assert vector["stream"] == (stream is not False)


def test_headers(rules: Any) -> None:
    for vector in VECTORS:
        headers = vector.get("headers", {})
        if not headers:
            continue
        assert not set(headers) & set(vector.get("absent", [])), vector["id"]
        judged = rules.judge_message(octets(vector["body"]), set(), rules.floors)
        told = {
            "Content-Type": "audio/pcm;rate=24000;channels=1",
            "Utterwire-Sample-Rate": "24000",
            "Utterwire-Format": "pcm_s16le",
            "Utterwire-Request-Id": quote(judged.request_id or "", safe=""),
            "Utterwire-Characters": str(len(judged.fields.get("text", ""))),
            "Utterwire-Audio-Bytes": "0",
            "Content-Length": "0",
        }
        assert headers.items() <= told.items(), vector["id"]
        if "Content-Length" in headers or "Utterwire-Audio-Bytes" in headers:
            assert vector["unspeakable"], vector["id"]


def test_no_header_value_can_break_out() -> None:
    values = [value for vector in VECTORS for value in vector.get("headers", {}).values()]
    assert any("%0D%0A" in value for value in values)
    assert all(value.isascii() and value.isprintable() for value in values)


def test_bodies_are_within_every_limit() -> None:
    assert len(VECTORS) >= 40
    assert all(len(octets(vector["body"])) <= 65536 for vector in VECTORS)
