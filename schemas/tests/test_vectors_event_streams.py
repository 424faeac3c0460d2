"""The vectors of event streams and of `Accept` against a second reading of the rules."""

import json
import re
from typing import Any

import pytest
from utterwire_schemas import octets, vectors

STREAMS = vectors("event-streams")
ACCEPTS = vectors("accept-fields")


def dispatched(body: bytes) -> tuple[list[tuple[str, str]], bool, list[tuple[str | None, bool]]]:
    """The events of a body, whether something is left, and for each block whether it has a name
    and data; written after the standard's own steps."""
    text = body.decode("utf-8", "replace")
    text = text[1:] if text.startswith("\ufeff") else text
    lines = re.split("\r\n|\r|\n", text)
    last = lines.pop()
    events: list[tuple[str, str]] = []
    blocks: list[tuple[str | None, bool]] = []
    kind, data, touched = "", "", False
    for line in [*lines, *([last] if last else [])]:
        if line == "":
            if touched:
                blocks.append((kind or None, data != ""))
            if data != "":
                events.append((kind or "message", data[:-1]))
            kind, data, touched = "", "", False
            continue
        field, colon, value = line.partition(":")
        if colon and value[:1] == " ":
            value = value[1:]
        if field == "event":
            kind, touched = value, True
        elif field == "data":
            data, touched = data + value + "\n", True
    return events, touched, blocks


def is_object(data: str) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("vector", STREAMS, ids=lambda vector: vector["id"])
def test_events(vector: dict[str, Any]) -> None:
    body = octets(vector["body"])
    events, left, blocks = dispatched(body)
    assert [(e["event"], e["data"]) for e in vector["events"]] == events
    assert vector.get("left", False) is left
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        clean = False
    else:
        clean = True
    whole = all(name and data for name, data in blocks)
    legal = clean and not left and whole and bool(events) and all(is_object(d) for _, d in events)
    assert vector["verdict"] == ("legal" if legal else "illegal")


@pytest.mark.parametrize("vector", ACCEPTS, ids=lambda vector: vector["id"])
def test_accept(vector: dict[str, Any]) -> None:
    joined = re.sub(r'"[^"]*"', "", ",".join(vector["fields"])).lower().replace(" ", "")
    ranges = [part.split(";") for part in joined.split(",")]
    named = any(
        kind == "text/event-stream"
        and not any(float(p[2:]) == 0 for p in parameters if p.startswith("q="))
        for kind, *parameters in ranges
    )
    assert vector["events"] is named


def test_both_verdicts_are_there() -> None:
    assert {vector["verdict"] for vector in STREAMS} == {"legal", "illegal"}
    assert {vector["events"] for vector in ACCEPTS} == {True, False}
    assert len(STREAMS) >= 30
