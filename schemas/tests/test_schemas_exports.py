"""What the package offers by name."""

import dataclasses
import json
from importlib.resources import files

import pytest
import utterwire_schemas


def test_exported_names() -> None:
    assert sorted(utterwire_schemas.__all__) == [
        "Cell",
        "ERROR_CODES",
        "ErrorCode",
        "REGISTRY",
        "SCHEMA_NAMES",
        "VECTOR_SETS",
        "asyncapi",
        "octets",
        "schema",
        "session_states",
        "utterance_states",
        "validator",
        "vectors",
    ]
    assert all(hasattr(utterwire_schemas, name) for name in utterwire_schemas.__all__)


def test_vector_sets() -> None:
    assert utterwire_schemas.VECTOR_SETS == (
        "accept-fields",
        "classification",
        "client-messages",
        "control-messages",
        "conversations",
        "event-streams",
        "http-requests",
    )


def test_schema_is_a_copy() -> None:
    utterwire_schemas.schema("close")["type"] = "array"
    assert utterwire_schemas.schema("close")["type"] == "object"
    assert utterwire_schemas.validator("close").is_valid({"type": "close"})


@pytest.mark.parametrize(
    "function", ["schema", "session_states", "utterance_states", "validator", "vectors"]
)
def test_unknown_name(function: str) -> None:
    with pytest.raises(KeyError, match="no-such"):
        getattr(utterwire_schemas, function)("no-such")


def test_error_code_is_frozen() -> None:
    code = utterwire_schemas.ERROR_CODES["queue_full"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        code.code = "other"  # type: ignore[misc]
    assert code == utterwire_schemas.ErrorCode(
        code="queue_full",
        meaning=code.meaning,
        retryable=True,
        http_status=503,
        rejection="always",
    )


def test_error_codes_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        utterwire_schemas.ERROR_CODES["x"] = 1  # type: ignore[index]


def test_registry_of_codes() -> None:
    document = json.loads((files("utterwire_schemas") / "error-codes.json").read_text("utf-8"))
    utterwire_schemas.validator("error-codes").validate(document)
    definitions = utterwire_schemas.schema("common")["$defs"]
    codes = utterwire_schemas.ERROR_CODES
    assert list(codes) == definitions["errorCode"]["enum"]
    assert [name for name, code in codes.items() if code.retryable] == definitions["retryableCode"][
        "enum"
    ]
    assert [name for name, code in codes.items() if code.rejection == "always"] == definitions[
        "rejectionCode"
    ]["enum"]
    # Told once, here and in protocol.md#error-codes: what a caller may try again.
    assert {name for name, code in codes.items() if code.retryable} == {
        "queue_full",
        "overloaded",
        "synthesis_failed",
        "going_away",
        "internal",
    }
    statuses = {name: code.http_status for name, code in codes.items() if code.http_status != 400}
    assert statuses == {
        "text_too_long": 413,
        "duplicate_request_id": 409,
        "queue_full": 503,
        "overloaded": 503,
        "going_away": 503,
        "synthesis_failed": 500,
        "internal": 500,
    }


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], b""),
        ([{"hex": "7b7d"}], b"{}"),
        ([{"utf8": "é"}, {"hex": "00", "times": 3}], b"\xc3\xa9\0\0\0"),
        ([{"utf8": "ab", "times": 2}], b"abab"),
    ],
)
def test_octets(parts: list[dict[str, object]], expected: bytes) -> None:
    assert utterwire_schemas.octets(parts) == expected


def test_states() -> None:
    document = json.loads((files("utterwire_schemas") / "states.json").read_text("utf-8"))
    utterwire_schemas.validator("states").validate(document)
    session = utterwire_schemas.session_states("endpoint")
    assert session["closing"]["synthesize"] == utterwire_schemas.Cell("closing", "ignore")
    assert session["open"]["hello"].code == "invalid_request"
    utterance = utterwire_schemas.utterance_states("endpoint")
    assert utterance["finishing"]["cancelled"] == "cancelled"
    assert utterance["completed"] == {}
