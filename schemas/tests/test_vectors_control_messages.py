"""The control message vectors against the schemas, and their form against a second reading."""

import json
from typing import Any

import pytest
from utterwire_schemas import SCHEMA_NAMES, octets, validator, vectors

VECTORS = vectors("control-messages")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_verdict(vector: dict[str, Any], rules: Any) -> None:
    raw = octets(vector["message"])
    try:
        text = raw.decode("utf-8")
        reading = rules.read_json(text)
    except UnicodeDecodeError:
        assert vector.get("form")
        assert not vector["valid"]
        return
    well_formed = (
        raw[:1] == b"{"
        and len(raw) <= 65536
        and not (
            reading.failed
            or reading.duplicates
            or reading.long
            or reading.infinite
            or reading.surrogates
            or reading.depth > 16
        )
    )
    if vector["valid"]:
        assert well_formed
        value = json.loads(text)
        validator("control-message").validate(value)
        validator(vector["type"]).validate(value)
        assert vector["type"] in (value["type"].replace("_", "-"), "control-message")
    elif vector.get("form"):
        assert not well_formed
    else:
        assert well_formed or not isinstance(json.loads(text), dict)
        assert not validator("control-message").is_valid(json.loads(text))


def test_every_control_message_is_there_both_ways() -> None:
    kinds = {
        "synthesis-start",
        "synthesis-complete",
        "error",
        "cancelled",
        "cancel-done",
        "marks",
        "session",
        "session-closed",
    }
    assert kinds <= set(SCHEMA_NAMES)
    assert kinds <= {vector["type"] for vector in VECTORS if vector["valid"]}
    names = {kind.replace("-", "_") for kind in kinds}
    spoilt = {
        json.loads(octets(vector["message"])).get("type")
        for vector in VECTORS
        if not vector["valid"] and not vector.get("form") and vector["id"].split("-")[0] != "value"
    }
    assert names <= {name for name in spoilt if isinstance(name, str)}
