"""`utterwire-conformance compare`: what changed between two reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .command import PROGRAM, Parser, complain, printable, show
from .report_file import ReportError, ReportFile

__all__ = ["Change", "Comparison", "main_compare"]

# From best to worst; what is not judged is neither.
_RANK: Final = {"pass": 0, "weak": 1, "harness-error": 2, "fail": 3}
_MEASURES: Final = {
    "first_byte_s": "first byte",
    "first_sound_s": "first sound",
    "gap_s": "gap",
}
_NOTABLE: Final = 0.10


@dataclass(frozen=True, slots=True)
class Change:
    """Another verdict on one requirement; None where a report says nothing of it."""

    requirement: str
    before: str | None
    after: str | None
    reason: str = ""

    @property
    def kind(self) -> str:
        """`worse` or `better`; `new` or `gone`, of a requirement or of a judgement on it."""
        old, new = _RANK.get(self.before or ""), _RANK.get(self.after or "")
        if new is not None and old is None:
            return "worse" if self.after == "fail" else "new"
        if old is not None and new is None:
            # What was kept before and cannot be seen any more is no progress.
            return "gone"
        if old is None or new is None:
            return "other"
        return "worse" if new > old else "better"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is different in the second of two reports; `facts` are not about verdicts."""

    changes: tuple[Change, ...]
    facts: tuple[tuple[str, Any, Any], ...] = ()
    latency: tuple[tuple[str, float, float], ...] = field(default=())

    @property
    def worse(self) -> bool:
        """Whether a requirement came out worse than before."""
        return any(change.kind == "worse" for change in self.changes)

    @classmethod
    def of(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
        """Compare two reports (documents of the schema `report`)."""
        old, new = _rows(before), _rows(after)
        changes = [
            Change(
                name,
                old[name]["verdict"] if name in old else None,
                new[name]["verdict"] if name in new else None,
                new.get(name, {}).get("reason", ""),
            )
            for name in (*old, *(name for name in new if name not in old))
        ]
        times = []
        for measure in _MEASURES:
            a, b = before["latency"].get(measure), after["latency"].get(measure)
            if a is not None and b is not None:
                times.append((measure, a["median"], b["median"]))
        return cls(
            tuple(change for change in changes if change.before != change.after),
            tuple(_facts(before, after)),
            tuple(times),
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison for a program."""
        return {
            "worse": self.worse,
            "changes": [
                {
                    "requirement": change.requirement,
                    "kind": change.kind,
                    "before": change.before,
                    "after": change.after,
                    "reason": change.reason,
                }
                for change in self.changes
            ],
            "facts": [{"name": n, "before": a, "after": b} for n, a, b in self.facts],
            "latency": [{"measure": n, "before_s": a, "after_s": b} for n, a, b in self.latency],
        }

    def lines(self) -> Iterator[str]:
        """The comparison for a person, what got worse first."""
        for name, before, after in self.facts:
            yield f"{name}: {_shown(before)} -> {_shown(after)}"
        for kind in ("worse", "new", "gone", "other", "better"):
            chosen = [change for change in self.changes if change.kind == kind]
            if chosen:
                yield f"{kind}:"
            for change in chosen:
                step = f"{change.before or 'not there'} -> {change.after or 'not there'}"
                why = f"  {printable(change.reason)}" if change.reason else ""
                yield f"   {change.requirement}: {step}{why}"
        for measure, before_s, after_s in self.latency:
            name = _MEASURES[measure]
            change_ = (after_s - before_s) / before_s if before_s else 0.0
            mark = f" ({change_:+.0%})" if abs(change_) >= _NOTABLE else ""
            yield f"{name}, median: {before_s * 1000:.1f} ms -> {after_s * 1000:.1f} ms{mark}"
        if not self.changes:
            yield "No verdict changed."
        else:
            kinds = [change.kind for change in self.changes]
            counts = [f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)]
            yield f"{len(kinds)} verdicts changed: {', '.join(counts)}."


def _rows(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["requirement"]: row for row in document["results"]}


def _facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    pairs = [
        ("subject", before["subject"]["name"], after["subject"]["name"]),
        ("suite version", before["suite_version"], after["suite_version"]),
        ("specification", before["spec"]["revision"], after["spec"]["revision"]),
        ("options", before["options"], after["options"]),
        ("exit status", before["exit_code"], after["exit_code"]),
    ]
    claims = (_claims(before), _claims(after))
    names = sorted({*claims[0], *claims[1]})
    pairs += [(f"claims.{name}", claims[0].get(name), claims[1].get(name)) for name in names]
    for name, old, new in pairs:
        if old != new:
            yield name, old, new


def _claims(document: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = document["claims"] | document["claims_learned"]
    return known


def _shown(value: Any) -> str:
    if value is None:
        return "not there"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text)
    return text if len(text) <= 200 else f"{text[:180]} … {text[-15:]}"


def main_compare(arguments: Sequence[str]) -> int:
    """`compare A B`: the exit status is 1 if something got worse, 2 if one is no report."""
    parser = Parser(
        prog=f"{PROGRAM} compare",
        description="Say what changed from one report to another.",
        epilog="Exit status: 0 nothing got worse, 1 something did, 2 one of them is no report.",
    )
    parser.add_argument("before", metavar="BEFORE", help="report.json, or the folder it lies in")
    parser.add_argument("after", metavar="AFTER", help="the same of the later run")
    parser.add_argument("--json", action="store_true", help="print it for a program")
    try:
        options = parser.parse_args(list(arguments))
        before, after = (
            ReportFile.load(Path(name)).document for name in (options.before, options.after)
        )
    except SystemExit as stop:
        return int(stop.code or 0)
    except ReportError as error:
        return complain(str(error))
    if before["role"] != after["role"]:
        return complain(f"one report judges a {before['role']}, the other a {after['role']}")
    found = Comparison.of(before, after)
    if options.json:
        show([json.dumps(found.to_json(), indent=2, ensure_ascii=False)])
    else:
        show(found.lines())
    return int(found.worse)
