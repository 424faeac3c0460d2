"""The schemas themselves: valid, complete, exemplified, and resolved without a network."""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from utterwire_schemas import REGISTRY, SCHEMA_NAMES, asyncapi, schema, validator

BASE = "https://utterwire.dev/schemas/1/"
MESSAGES = {
    "synthesize",
    "close",
    "keepalive",
    "cancel",
    "hello",
    "synthesis-start",
    "synthesis-complete",
    "error",
    "cancelled",
    "cancel-done",
    "marks",
    "session",
    "session-closed",
}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def test_every_message_has_a_schema() -> None:
    rest = {"client-message", "control-message", "common", "endpoint-file", "transcript", "report"}
    assert set(SCHEMA_NAMES) >= MESSAGES | rest


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schema(name: str) -> None:
    document = schema(name)
    Draft202012Validator.check_schema(document)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["$id"] == f"{BASE}{name}.json"
    assert document["title"]
    assert document["description"]
    resolver = REGISTRY.resolver(document["$id"])
    for node in walk(document):
        if isinstance(node.get("$ref"), str):
            resolver.lookup(node["$ref"])


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_examples(name: str) -> None:
    examples = schema(name).get("examples", [])
    if name in MESSAGES:
        assert examples
    for example in examples:
        validator(name).validate(example)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_messages_may_have_more_fields(name: str) -> None:
    document = schema(name)
    for node in walk(document):
        assert "additionalProperties" not in node
        assert "unevaluatedProperties" not in node
    for example in document["examples"]:
        validator(name).validate({**example, "x_more": [None]})


def test_files_are_written_alike() -> None:
    # One form on disk, so that a change shows as what it is.
    for path in (files("utterwire_schemas") / "json").iterdir():
        text = path.read_text("utf-8")
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n", path.name


CLIENT = [
    ("none", {}, False),
    ("no-type", {"text": "Hi."}, True),
    ("null-type", {"type": None, "text": "Hi."}, True),
    ("synthesize", {"type": "synthesize", "text": "Hi."}, True),
    ("unknown", {"type": "speak", "text": "Hi."}, False),
    ("number", {"type": 1, "text": "Hi."}, False),
    ("close", {"type": "close"}, True),
    ("cancel", {"type": "cancel"}, True),
    ("cancel-null", {"type": "cancel", "request_id": None}, False),
    ("hello", {"type": "hello", "protocol_versions": [1]}, True),
    ("hello-empty", {"type": "hello", "protocol_versions": []}, False),
    ("keepalive", {"type": "keepalive", "text": 5}, True),
    ("blank", {"text": " \u3000"}, False),
    ("zero-width", {"text": "\u200b"}, True),
    ("boolean", {"text": "Hi.", "speed": True}, False),
    ("array", [], False),
]


@pytest.mark.parametrize(
    ("value", "valid"), [row[1:] for row in CLIENT], ids=[r[0] for r in CLIENT]
)
def test_client_message(value: object, valid: bool) -> None:
    assert validator("client-message").is_valid(value) == valid


ENDPOINT: dict[str, Any] = {"url": "ws://h:1"}
LAUNCH: dict[str, Any] = {"launch": ["s", "{port}"], "ready_url": "http://h:{port}/ping"}
ENDPOINTS = [
    ("url", ENDPOINT, True),
    ("url-full", {"url": "wss://h/x/invocations-bidirectional-stream"}, True),
    ("url-environment", {"url": "${TTS_URL}"}, True),
    ("url-http", {"url": "http://h"}, False),
    ("launch", LAUNCH, True),
    ("launch-no-port", {**LAUNCH, "launch": ["s"]}, False),
    ("launch-not-ready", {"launch": ["s", "{port}"]}, False),
    ("ready-no-port", {**LAUNCH, "ready_url": "http://h:1/ping"}, False),
    ("ready-alone", {**ENDPOINT, "ready_url": LAUNCH["ready_url"]}, False),
    ("both", {**ENDPOINT, **LAUNCH}, False),
    ("neither", {"profiles": ["core"]}, False),
    ("profiles", {**ENDPOINT, "profiles": ["core", "load"]}, True),
    ("profile-unknown", {**ENDPOINT, "profiles": ["core", "speed"]}, False),
    ("profile-no-core", {**ENDPOINT, "profiles": ["http"]}, False),
    ("header", {**ENDPOINT, "headers": {"Authorization": "Bearer ${T}"}}, True),
    ("header-split", {**ENDPOINT, "headers": {"X": "a\r\nY: b"}}, False),
    ("header-name", {**ENDPOINT, "headers": {"X Y": "a"}}, False),
    ("samples", {**ENDPOINT, "language": "de-CH", "text_samples": ["A.", "B.", "C."]}, True),
    ("samples-two", {**ENDPOINT, "text_samples": ["A.", "B."]}, False),
    ("samples-blank", {**ENDPOINT, "text_samples": ["A.", "B.", " "]}, False),
    ("waiting", {**ENDPOINT, "max_waiting": 7}, False),
    ("timeouts", {**ENDPOINT, "timeouts": {"connect_s": 1, "idle_s": 2.5}}, True),
    ("timeout-zero", {**ENDPOINT, "timeouts": {"connect_s": 0}}, False),
    ("timeout-unknown", {**ENDPOINT, "timeouts": {"connect": 1}}, False),
    ("budget", {**ENDPOINT, "budget": {"characters": 100, "requests_per_second": 0.5}}, True),
    ("budget-unknown", {**ENDPOINT, "budget": {"euros": 1}}, False),
    ("unknown", {**ENDPOINT, "insecure": True}, False),
    ("typo", {**ENDPOINT, "profile": ["core"]}, False),
    ("sagemaker", {"sagemaker": "tts", "region": "eu-west-1", "profile": "dev"}, True),
    ("sagemaker-local", {"sagemaker": "tts", "endpoint_url": "https://localhost:8443"}, True),
    ("sagemaker-plain", {"sagemaker": "tts", "endpoint_url": "http://localhost:8443"}, False),
    ("sagemaker-name", {"sagemaker": "my tts"}, False),
    ("sagemaker-url", {**ENDPOINT, "sagemaker": "tts"}, False),
    ("sagemaker-launch", {**LAUNCH, "sagemaker": "tts"}, False),
    ("aws-profile-alone", {**ENDPOINT, "profile": "core"}, False),
]


@pytest.mark.parametrize(
    ("table", "valid"), [row[1:] for row in ENDPOINTS], ids=[row[0] for row in ENDPOINTS]
)
def test_endpoint_file(table: dict[str, Any], valid: bool) -> None:
    assert validator("endpoint-file").is_valid({"endpoint": {"mine": table}}) == valid


FRAME: dict[str, Any] = {"t": 0.5, "dir": "in", "kind": "text", "session": 1, "fin": True}
LINES = [
    ("header", {"utterwire_transcript": 1, "suite": "s 1", "endpoint": "e"}, True),
    ("header-later", {"utterwire_transcript": 2, "suite": "s 1", "endpoint": "e"}, False),
    ("frame", {**FRAME, "data": {"text": "{}"}}, True),
    ("frame-empty", FRAME, True),
    ("frame-hex", {**FRAME, "kind": "binary", "data": {"hex": "00ff"}}, True),
    ("frame-odd-hex", {**FRAME, "kind": "binary", "data": {"hex": "00f"}}, False),
    ("frame-base64", {**FRAME, "kind": "cont", "data": {"b64": "AAE="}}, True),
    ("frame-bad-base64", {**FRAME, "data": {"b64": "AAE"}}, False),
    ("frame-two", {**FRAME, "data": {"text": "", "hex": ""}}, False),
    ("frame-no-fin", {"t": 0, "dir": "in", "kind": "text", "session": 1}, False),
    ("close", {"t": 0, "dir": "out", "kind": "close", "session": 1, "code": 1000}, True),
    ("note", {"t": 0, "dir": "note", "kind": "note", "session": 0, "text": "hm"}, True),
    ("note-from-peer", {"t": 0, "dir": "in", "kind": "note", "session": 0, "text": "hm"}, False),
    ("frame-as-note", {**FRAME, "dir": "note"}, False),
    ("http", {"t": 0, "dir": "in", "kind": "http-response", "session": 1, "status": 200}, True),
    ("http-no-status", {"t": 0, "dir": "in", "kind": "http-response", "session": 1}, False),
    ("before", {**FRAME, "t": -1}, False),
]


@pytest.mark.parametrize(("line", "valid"), [row[1:] for row in LINES], ids=[r[0] for r in LINES])
def test_transcript_line(line: dict[str, Any], valid: bool) -> None:
    assert validator("transcript").is_valid(line) == valid


def test_report_names_no_secret_in_its_url() -> None:
    report = schema("report")["examples"][0]
    for url in ("wss://user:word@h", "wss://h/?token=1", "wss://h/#t"):
        broken = {**report, "subject": {**report["subject"], "url": url}}
        assert not validator("report").is_valid(broken)


def test_asyncapi_is_in_the_package() -> None:
    assert asyncapi()["asyncapi"] == "3.0.0"
