"""The AsyncAPI document against the schema of AsyncAPI 3.0.0, and its references."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7
from utterwire_schemas import SCHEMA_NAMES, asyncapi, schema

META = Path(__file__).with_name("data") / "asyncapi-3.0.0.schema.json.gz"
META_SHA256 = "d4571a420e6ffb7fcc7066c95a6db1202f299a3c51daa103d0706bf30f95e626"


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


@pytest.fixture(scope="module")
def meta() -> Draft7Validator:
    raw = gzip.decompress(META.read_bytes())
    assert hashlib.sha256(raw).hexdigest() == META_SHA256
    document = json.loads(raw)
    registry: Registry[Any] = Registry().with_resource(
        document["$id"], DRAFT7.create_resource(document)
    )
    return Draft7Validator(document, registry=registry)


def test_valid(meta: Draft7Validator) -> None:
    meta.validate(asyncapi())


def drop_action(document: dict[str, Any]) -> None:
    del document["operations"]["sendChunk"]["action"]


def misspell_channel(document: dict[str, Any]) -> None:
    document["chanels"] = document.pop("channels")


def wrong_version(document: dict[str, Any]) -> None:
    document["asyncapi"] = "2.6.0"


def number_for_title(document: dict[str, Any]) -> None:
    document["components"]["messages"]["close"]["title"] = 5


@pytest.mark.parametrize("spoil", [drop_action, misspell_channel, wrong_version, number_for_title])
def test_schema_sees_faults(meta: Draft7Validator, spoil: Any) -> None:
    document = asyncapi()
    spoil(document)
    assert not meta.is_valid(document)


def test_references_resolve() -> None:
    document = asyncapi()
    for reference in references(document):
        if reference.startswith("#/"):
            node = document
            for name in reference[2:].split("/"):
                node = node[name]
        else:
            assert (files("utterwire_schemas") / reference).is_file(), reference


def test_every_message_is_shown() -> None:
    messages = asyncapi()["components"]["messages"]
    shown = {
        reference.removeprefix("json/").removesuffix(".json") for reference in references(messages)
    }
    named = {
        name
        for name in SCHEMA_NAMES
        if schema(name).get("properties", {}).get("type", {}).get("const") is not None
    }
    named -= {"error-body"}
    named |= {"synthesize", "error", "http-request", "http-error"}
    named |= {name for name in SCHEMA_NAMES if name.startswith("sse-")}
    assert shown == named


def test_operations_send_what_the_channel_carries() -> None:
    document = asyncapi()
    for channel, described in document["channels"].items():
        carried = {f"#/channels/{channel}/messages/{name}" for name in described["messages"]}
        used: set[str] = set()
        for operation in document["operations"].values():
            parts = [operation, operation.get("reply", {"channel": {}, "messages": []})]
            for part in parts:
                if part["channel"] == {"$ref": f"#/channels/{channel}"}:
                    used |= {message["$ref"] for message in part["messages"]}
        assert used == carried
