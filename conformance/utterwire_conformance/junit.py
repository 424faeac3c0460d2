"""The report as JUnit XML, as build servers read it: one test case for each requirement."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["to_junit"]

_PARTS: Final = (
    ("reason", "found"),
    ("sent", "sent"),
    ("received", "received"),
    ("legal", "legal"),
    ("advice", "change"),
)
_SKIPPED: Final = ("not-exercised", "not-claimed")

_UNCARRIED: Final = re.compile("[^\\t\\n\\r\\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(document: Mapping[str, Any]) -> str:
    """A report (schema `report`) as JUnit XML: a suite for each profile.

    A failure carries what was sent, received and legal; what was not exercised or is not claimed
    is skipped, with the reason; where the suite could not judge is an error. A recommendation
    that is not met passes, with a property that says so, unless the run was strict. A failure that
    the baseline lists is skipped, with the reason given there; an entry of it that is met now is a
    failure, since it fails the run.
    """
    by_profile: dict[str, list[Mapping[str, Any]]] = {}
    for row in document["results"]:
        by_profile.setdefault(row["profile"], []).append(row)
    root = ET.Element("testsuites", {"name": _clean(f"utterwire {document['subject']['name']}")})
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for profile, rows in by_profile.items():
        suite = _suite(profile, rows, document)
        for name in totals:
            totals[name] += int(suite.get(name, "0"))
        root.append(suite)
    for name in ("tests", "failures", "errors"):
        root.set(name, str(totals[name]))
    root.set("time", f"{document['duration_s']:.3f}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(
    profile: str, rows: Sequence[Mapping[str, Any]], document: Mapping[str, Any]
) -> ET.Element:
    strict = bool(document["options"].get("strict"))
    stale = frozenset(document.get("baseline", {}).get("stale", ()))
    cases = [_case(profile, row, strict=strict, stale=row["requirement"] in stale) for row in rows]
    tags = [child.tag for case in cases for child in case]
    suite = ET.Element(
        "testsuite",
        {
            "name": f"utterwire.{profile}",
            "tests": str(len(rows)),
            "failures": str(tags.count("failure")),
            "errors": str(tags.count("error")),
            "skipped": str(tags.count("skipped")),
            "time": "0.000",
            "timestamp": document["started"].removesuffix("Z"),
            "hostname": "localhost",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("subject", document["subject"]["name"]),
        ("suite_version", document["suite_version"]),
        ("spec_version", document["spec"]["version"]),
        ("spec_revision", document["spec"]["revision"]),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _clean(str(value))})
    suite.extend(cases)
    return suite


def _case(profile: str, row: Mapping[str, Any], *, strict: bool, stale: bool) -> ET.Element:
    case = ET.Element(
        "testcase",
        {"classname": f"utterwire.{profile}", "name": row["requirement"], "time": "0.000"},
    )
    verdict = row["verdict"]
    reason = row.get("reason") or verdict
    told = _told(row)
    if stale:
        why = "the baseline lists it as a known failure, and it is met now"
        ET.SubElement(case, "failure", {"message": why, "type": "stale"})
    elif "known" in row:
        message = _clean(f"known failure: {row['known']}")
        ET.SubElement(case, "skipped", {"message": message}).text = _clean(told)
    elif verdict in _SKIPPED:
        ET.SubElement(case, "skipped", {"message": _clean(f"{verdict}: {reason}")})
    elif verdict == "harness-error":
        error = ET.SubElement(case, "error", {"message": _clean(reason), "type": verdict})
        error.text = _clean(told)
    elif verdict == "fail" or (verdict == "weak" and strict):
        failure = ET.SubElement(case, "failure", {"message": _clean(reason), "type": row["level"]})
        failure.text = _clean(told)
    elif verdict == "weak":
        ET.SubElement(case, "system-out").text = _clean(
            f"weak: a {row['level']} is not met\n{told}"
        )
    return case


def _told(row: Mapping[str, Any]) -> str:
    lines = [f"{row['level']}, spec/{row['clause']}", row.get("text", "")]
    for check in row["checks"]:
        if check["verdict"] in ("pass", *_SKIPPED):
            continue
        lines += [f"{label}: {check[key]}" for key, label in _PARTS if check.get(key)]
        lines += [f"transcript: {name}" for name in check.get("transcripts", ())]
    return "\n".join(line for line in lines if line)


def _clean(text: str) -> str:
    """The text with what XML 1.0 cannot carry (section 2.2) written out as an escape."""
    return _UNCARRIED.sub(lambda found: _escape(found.group()), text)


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"
