"""`junit.xml` has the shape that build servers read, whatever an endpoint said."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.junit import to_junit
from xmlschema import XMLSchema

SCHEMA: Final = XMLSchema(Path(__file__).with_name("junit.xsd"))
VERDICTS: Final = ("pass", "fail", "weak", "not-exercised", "not-claimed", "harness-error")


def row(name: str, verdict: str, text: str = "It is broken.", **more: Any) -> dict[str, Any]:
    check = {
        "verdict": verdict,
        "reason": text,
        "sent": text,
        "received": text,
        "legal": text,
        "advice": text,
        "transcripts": ["order"],
    }
    found = {"requirement": name, "profile": "core", "level": "MUST", "clause": "protocol.md#order"}
    return found | {"verdict": verdict, "text": text, "reason": text, "checks": [check]} | more


def document(*rows: dict[str, Any], subject: str = "mine", **more: Any) -> dict[str, Any]:
    found = {
        "results": list(rows),
        "subject": {"name": subject},
        "options": {"strict": False},
        "duration_s": 1.25,
        "started": "2026-05-01T10:00:00Z",
        "suite_version": "0.1.0",
        "spec": {"version": 1, "revision": "sha256:0"},
    }
    return found | more


def valid(report: dict[str, Any]) -> ET.Element:
    # As it lies on the disk, so that what cannot be encoded is found as well.
    octets = to_junit(report).encode("utf-8")
    root = ET.fromstring(octets)
    assert [str(error) for error in SCHEMA.iter_errors(root)] == []
    return root


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict(verdict: str, strict: bool) -> None:
    report = document(row("order.fifo", verdict), row("audio.level", "pass", level="SHOULD"))
    valid(report | {"options": {"strict": strict}})


def test_known_failures_and_those_met_now() -> None:
    report = document(
        row("order.fifo", "fail", known="in May"),
        row("audio.level", "pass", profile="http"),
        baseline={"stale": ["audio.level"]},
    )
    root = valid(report)
    assert [suite.get("name") for suite in root] == ["utterwire.core", "utterwire.http"]


ANY_TEXT: Final = st.text(st.characters(), max_size=40) | st.text(
    st.sampled_from("\x00\x08\t\n\r\x1b\x7f\x85\u2028\ud800\udfff\ufffe\uffff\U0001f600<>&\"']]>"),
    max_size=20,
)


@given(text=ANY_TEXT, subject=ANY_TEXT, verdict=st.sampled_from(VERDICTS))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_whatever_an_endpoint_says(text: str, subject: str, verdict: str) -> None:
    valid(document(row("order.fifo", verdict, text), subject=subject))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('skipped="0"', 'skipped="-1"'),
        ('time="0.000"', 'time="soon"'),
        ("T10:00:00", "T10:00:00Z"),
        ('type="MUST"', 'type=""'),
        ("<failure", "<skipped message='x'/><failure"),
        ('name="audio.level"', 'name="order.fifo"'),
        ('hostname="localhost"', 'host="localhost"'),
        ("<properties>", "<properties><other/>"),
    ],
)
def test_the_schema_finds_what_is_wrong(wrong: str, right: str) -> None:
    text = to_junit(document(row("order.fifo", "fail"), row("audio.level", "pass")))
    assert wrong in text
    assert list(SCHEMA.iter_errors(ET.fromstring(text.replace(wrong, right))))
