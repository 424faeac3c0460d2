"""The report: verdicts by requirement, in a terminal and as files.

`report.json` (schema `report`) holds everything, `junit.xml` the same for build servers, and
`transcripts/` every line that the judges saw, so that all of it can be judged again.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from .archive import Stored, store
from .baseline import Baseline
from .check import CHECKS
from .claims import EndpointClaims
from .found_faults import fault_matrix
from .fuzz import Finding, FuzzResults
from .judging import Moments
from .junit import to_junit
from .latency import measure
from .page import render_page
from .redaction import redact
from .report_file import FORMAT
from .requirements import PROFILES, Requirement, requirements
from .requirements.text import revision
from .runner import Results
from .scenarios import spoke, stated
from .selection import Selection
from .transcript import Role, suite_name
from .verdict import Judgement, Verdict, worst

__all__ = ["Report", "Result", "Subject", "Summary", "judgeable", "results_of"]

_RED: Final = (Verdict.FAIL, Verdict.WEAK)
# What breaks most for others comes first.
_GRAVITY: Final = (
    "ws.path",
    "session",
    "order",
    "message",
    "accept",
    "audio",
    "control",
    "chunk",
    "read",
    "reject",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What was found about one requirement; `judgements` by check id."""

    requirement: Requirement
    verdict: Verdict
    reason: str = ""
    judgements: tuple[tuple[str, Judgement], ...] = ()

    @property
    def judgement(self) -> Judgement | None:
        """The judgement that decided."""
        return worst(j for _, j in self.judgements) if self.judgements else None

    @property
    def gravity(self) -> tuple[int, int, int]:
        """What to sort by, the worst first."""
        order = (Verdict.FAIL, Verdict.HARNESS_ERROR, Verdict.WEAK)
        kind = order.index(self.verdict) if self.verdict in order else len(order)
        name = self.requirement.id
        weight = next(
            (
                i
                for i, prefix in enumerate(_GRAVITY)
                if name == prefix or name.startswith(f"{prefix}.")
            ),
            len(_GRAVITY),
        )
        return kind, PROFILES.index(self.requirement.profile), weight


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of one profile; `applicable` is what could be judged."""

    passed: int
    failed: int
    weak: int
    not_exercised: int
    not_claimed: int
    harness_errors: int
    total: int

    @property
    def applicable(self) -> int:
        """passed + failed + weak."""
        return self.passed + self.failed + self.weak

    @classmethod
    def of(cls, results: Iterable[Result]) -> Summary:
        """Count the results of one profile."""
        verdicts = [result.verdict for result in results]
        count = verdicts.count
        return cls(
            count(Verdict.PASS),
            count(Verdict.FAIL),
            count(Verdict.WEAK),
            count(Verdict.NOT_EXERCISED),
            count(Verdict.NOT_CLAIMED),
            count(Verdict.HARNESS_ERROR),
            len(verdicts),
        )

    def to_json(self) -> dict[str, int]:
        """The counts as the schema names them."""
        return {
            "passed": self.passed,
            "failed": self.failed,
            "weak": self.weak,
            "applicable": self.applicable,
            "not_exercised": self.not_exercised,
            "not_claimed": self.not_claimed,
            "harness_errors": self.harness_errors,
            "total": self.total,
        }


class Subject(Protocol):
    """Who is judged: an endpoint, or a client."""

    @property
    def name(self) -> str:
        """What it is called; it may be shown."""

    @property
    def claims(self) -> EndpointClaims:
        """What was claimed for it before the run."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not reach a report."""

    def configuration(self) -> dict[str, Any]:
        """All that is known of it and may be shown, at least its `name`."""


def judgeable(profile: str, role: Role = "endpoint") -> bool:
    """Whether the suite has any check for the profile."""
    return any(r.profile == profile and r.role == role and r.checks for r in requirements())


def results_of(
    run: Results,
    endpoint: Subject,
    chosen: Iterable[str],
    *,
    selected: Iterable[str] | None = None,
    role: Role = "endpoint",
) -> list[Result]:
    """A result for each requirement of the role.

    `chosen` are the profiles that were judged; `selected` the ids of the requirements, where only
    some of them were.
    """
    chosen = set(chosen)
    wanted = set(selected) if selected is not None else None
    found = []
    for row in requirements():
        if row.role != role:
            continue
        if row.profile not in endpoint.claims.profiles:
            found.append(Result(row, Verdict.NOT_CLAIMED, f"`{row.profile}` is not claimed"))
        elif row.excluded is not None:
            found.append(Result(row, Verdict.NOT_EXERCISED, row.excluded))
        elif not any(name in CHECKS for name in row.checks):
            found.append(Result(row, Verdict.NOT_EXERCISED, "the suite has no check for it yet"))
        elif row.profile not in chosen or (wanted is not None and row.id not in wanted):
            found.append(Result(row, Verdict.NOT_EXERCISED, "it was not selected"))
        else:
            judgements = tuple(
                (name, run.judgements[name]) for name in row.checks if name in run.judgements
            )
            decided = worst(j for _, j in judgements)
            found.append(Result(row, decided.verdict, decided.reason, judgements))
    return found


@dataclass(slots=True)
class Report:
    """Everything a run found, ready to be shown and saved.

    `options` are those that shaped the run, as they stand in the report. `fuzzed` is what came of
    fuzzing, `unfuzzed` why there was none.
    """

    endpoint: Subject
    profiles: tuple[str, ...]
    results: list[Result]
    run: Results
    strict: bool = False
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    duration_s: float = 0.0
    deployed_client: list[dict[str, Any]] = field(default_factory=list)
    role: Role = "endpoint"
    options: dict[str, Any] = field(default_factory=dict)
    fuzzed: FuzzResults | None = None
    unfuzzed: str | None = None
    listed_findings: tuple[str, ...] = ()
    """The requirements that the findings of a stored report broke, where only those are known."""
    stored: dict[str, Stored] = field(default_factory=dict)
    """The files of the transcripts, by scenario, once they are saved."""
    found: dict[str, Stored] = field(default_factory=dict)
    """The same of what fuzzing found."""
    baseline: Baseline | None = None

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 does not, 2 could not be judged."""
        verdicts = {result.verdict for result in self.results}
        unjudged = Verdict.HARNESS_ERROR in verdicts or self._fuzz_failed is not None
        if unjudged or not any(v.judged for v in verdicts):
            return 2
        if any(self.fails(r) and not self.is_known(r) for r in self.results) or self.stale():
            return 1
        if self._unlisted:
            return 1
        return 2 if self._mute else 0

    @property
    def _broken_by_fuzzing(self) -> tuple[str, ...]:
        return self.listed_findings or tuple(f.requirement for f in self._findings)

    @property
    def _unlisted(self) -> list[str]:
        """What fuzzing broke and the baseline does not list."""
        baseline = self.baseline or Baseline()
        return [name for name in self._broken_by_fuzzing if name not in baseline]

    @property
    def _fuzz_failed(self) -> str | None:
        """Why fuzzing could not judge, if so."""
        kinds = self.fuzzed.kinds.values() if self.fuzzed is not None else ()
        reasons = [kind.reason for kind in kinds if kind.verdict is Verdict.HARNESS_ERROR]
        return reasons[0] if reasons else None

    @property
    def _findings(self) -> list[Finding]:
        return self.fuzzed.findings if self.fuzzed is not None else []

    def fails(self, result: Result) -> bool:
        """Whether the result is one that fails a run, unless it is known."""
        strict = self.strict and result.verdict is Verdict.WEAK
        return result.verdict is Verdict.FAIL or strict

    def is_known(self, result: Result) -> bool:
        """Whether it is a failure that the baseline lists."""
        return (
            self.baseline is not None
            and result.requirement.id in self.baseline
            and self.fails(result)
        )

    def known(self) -> list[Result]:
        """The failures that the baseline lists."""
        return [result for result in self.results if self.is_known(result)]

    def stale(self) -> list[Result]:
        """The requirements that the baseline lists and that are met all the same."""
        baseline = self.baseline or Baseline()
        return [
            r for r in self.results if r.requirement.id in baseline and r.verdict is Verdict.PASS
        ]

    def unseen(self) -> list[Result]:
        """What the baseline lists and this run cannot say anything about."""
        baseline = self.baseline or Baseline()
        return [r for r in self.results if r.requirement.id in baseline and not r.verdict.judged]

    @property
    def _mute(self) -> bool:
        """Whether the endpoint never spoke a first, plain request to its end.

        What was seen of such an endpoint is no ground to say that it conforms.
        """
        first = self.run.transcripts.get("probe")
        return first is not None and not spoke(first)

    def summaries(self) -> dict[str, Summary]:
        """The counts of every profile."""
        by_profile: dict[str, list[Result]] = {}
        for result in self.results:
            by_profile.setdefault(result.requirement.profile, []).append(result)
        return {name: Summary.of(by_profile[name]) for name in PROFILES if name in by_profile}

    def grave(self) -> list[Result]:
        """What is not as it should be, the worst first."""
        found = [
            r
            for r in self.results
            if r.verdict in (Verdict.FAIL, Verdict.WEAK, Verdict.HARNESS_ERROR)
        ]
        return sorted(found, key=lambda result: result.gravity)

    # --- for a person -------------------------------------------------------------------------

    def lines(self, saved: Path | None = None) -> list[str]:
        """The summary for a terminal."""
        lines = [f"{'profile':<12}{'passed':>8}{'applicable':>12}{'total':>8}"]
        for name, counts in self.summaries().items():
            if name in self.profiles:
                lines.append(
                    f"{name:<12}{counts.passed:>8}{counts.applicable:>12}{counts.total:>8}"
                    f"{_aside(counts)}"
                )
        rest = [
            p for p in PROFILES if p in self.endpoint.claims.profiles and p not in self.profiles
        ]
        later = [p for p in rest if not judgeable(p, self.role)]
        unselected = [p for p in rest if judgeable(p, self.role)]
        unclaimed = [p for p in self.summaries() if p not in self.endpoint.claims.profiles]
        for label, names in (
            ("claimed, but this suite has no checks for it yet", later),
            ("claimed, not selected", unselected),
            ("not claimed", unclaimed),
        ):
            if names:
                lines.append(f"{label}: {', '.join(names)}")
        lines += self._grave_lines(saved)
        lines += self._baseline_lines()
        lines += self._unexercised_lines()
        if self.run.most_connections is not None:
            most = self.run.most_connections
            kept = (
                f"only {_count(most, 'connection')} at a time let in: the suite kept to that"
                f" (--max-concurrent {most} says so beforehand)"
            )
            lines += ["", kept]
        lines += self._deployed_lines()
        lines += self._fuzz_lines(saved)
        if saved is not None:
            lines += ["", f"report: {saved / 'report.html'} (and report.json, junit.xml)"]
        return [*lines, self.verdict_line()]

    def verdict_line(self) -> str:
        """One sentence that says how it came out."""
        name = self.endpoint.name
        profiles = ", ".join(self.profiles)
        counts = [s for p, s in self.summaries().items() if p in self.profiles]
        failed, errors = sum(s.failed for s in counts), sum(s.harness_errors for s in counts)
        weak = sum(s.weak for s in counts)
        if self.exit_code == 2:
            what = "nothing was judged"
            if errors:
                what = (
                    f"{_count(errors, 'requirement')} {'was' if errors == 1 else 'were'} not judged"
                )
            elif self._fuzz_failed is not None:
                what = f"fuzzing came to no end: {self._fuzz_failed}"
            if self._mute and not errors:
                what = "no request was spoken to its end"
            return f"{name} COULD NOT BE JUDGED ({profiles}): {what}."
        known = len(self.known())
        listed = self.baseline.source if self.baseline is not None else None
        if self.exit_code == 1:
            new = sum(self.fails(r) and not self.is_known(r) for r in self.results)
            parts = []
            if new and failed:
                parts.append(f"{_count(new, 'requirement')} broken")
            elif new:
                parts.append(f"{_count(new, 'recommendation')} not met")
            if known:
                parts.append(_count(known, "known failure"))
            found = len(self._unlisted) if not new else 0
            if found:
                parts.append(f"{_count(found, 'finding')} of fuzzing")
            stale = len(self.stale())
            if stale:
                parts.append(
                    f"1 entry of {listed} is met now: take it out"
                    if stale == 1
                    else f"{stale} entries of {listed} are met now: take them out"
                )
            word = "DOES NOT CONFORM" if new or known or found else "IS BETTER THAN ITS BASELINE"
            return f"{name} {word} ({profiles}): {'; '.join(parts)}."
        if known:
            return (
                f"{name} DOES NOT CONFORM, as is known ({profiles}):"
                f" {_count(known, 'known failure')}, listed in {listed}; nothing else."
            )
        aside = f"; {_count(weak, 'recommendation')} not met" if weak else ""
        if self.options.get("quick"):
            return f"{name} LOOKS RIGHT at a quick glance ({profiles}){aside}: run all of it."
        return f"{name} CONFORMS ({profiles}), as far as it was judged{aside}."

    def _baseline_lines(self) -> list[str]:
        if self.baseline is None:
            return []
        lines = []
        stale, unseen = self.stale(), self.unseen()
        if stale:
            lines += ["", f"STALE  listed in {self.baseline.source} as known, and met now:"]
            lines += [f"   {result.requirement.id}" for result in stale]
        if unseen:
            lines += ["", f"listed in {self.baseline.source}, and not seen in this run:"]
            lines += [f"   {r.requirement.id}: {r.verdict.value}, {r.reason}" for r in unseen]
        return lines

    def _grave_lines(self, saved: Path | None) -> list[str]:
        lines: list[str] = []
        common: dict[str, list[str]] = {}
        for number, result in enumerate(self.grave(), 1):
            judgement = result.judgement
            row = result.requirement
            if result.verdict is Verdict.HARNESS_ERROR:
                # One cause mostly stops them all; tell it once.
                common.setdefault(result.reason, []).append(row.id)
                continue
            word = "FAIL" if result.verdict is Verdict.FAIL else "WEAK"
            known = self.is_known(result)
            if known and self.baseline is not None:
                word = f"KNOWN {word}"
            lines += ["", f"{number}. {word}  {row.id}  ({row.level}, spec/{row.clause})"]
            if known and self.baseline is not None:
                lines.append(f"   {'known:':<10} {self.baseline.reasons[row.id]}")
            lines.append(f"   rule:      {row.text}")
            if judgement is None:
                continue
            for label, text in (
                ("found:", judgement.reason),
                ("sent:", judgement.sent),
                ("received:", judgement.received),
                ("legal:", judgement.legal),
                ("change:", judgement.advice),
            ):
                if text:
                    lines.append(f"   {label:<10} {text}")
            files = self._files(judgement, saved)
            if files:
                lines.append(f"   {'see:':<10} {', '.join(files)}")
        for reason, names in common.items():
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            lines += ["", f"NOT JUDGED  {shown}", f"   {'because:':<10} {reason}"]
        return lines

    def _unexercised_lines(self) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for result in self.results:
            if (
                result.verdict is Verdict.NOT_EXERCISED
                and result.requirement.profile in self.profiles
                and result.reason != "it was not selected"
            ):
                reasons.setdefault(result.reason, []).append(result.requirement.id)
        lines = ["", "not exercised:"] if reasons else []
        for reason, names in reasons.items():
            if reason == Selection(quick=True).omission and len(names) > 8:
                lines.append(f"   {len(names)} requirements: {reason}")
                continue
            lines.append(f"   {', '.join(names)}: {reason}")
        return lines

    def _deployed_lines(self) -> list[str]:
        if not self.deployed_client:
            return []
        lines = ["", "clients in the field (they look at the first byte and stop at the end):"]
        seen = dict.fromkeys(str(finding["finding"]) for finding in self.deployed_client)
        return lines + [f"   {text}" for text in list(seen)[:5]]

    def _fuzz_lines(self, saved: Path | None) -> list[str]:
        fuzzed = self.fuzzed
        if fuzzed is None:
            return ["", f"no fuzzing: {self.unfuzzed}"] if self.unfuzzed else []
        found = _count(len(fuzzed.findings), "finding") if fuzzed.findings else "nothing found"
        played = f"{_count(fuzzed.examples, 'program')} in {fuzzed.duration_s:.0f} s"
        how = f"--fuzz-seed {fuzzed.seed}; {fuzzed.stopped}"
        lines = ["", f"fuzzing: {played}, {found} ({how})"]
        for finding in fuzzed.findings:
            steps = _count(len(finding.program.steps), "step")
            lines.append(f"   {finding.requirement}: {finding.judgement.reason}")
            lines.append(f"      {steps} ({finding.program.kind}); {finding.seen}")
            if saved is not None and finding.scenario in self.found:
                lines.append(f"      replay: {saved / self.found[finding.scenario].file}")
        for name, kind in fuzzed.kinds.items():
            if kind.verdict in (Verdict.NOT_EXERCISED, Verdict.HARNESS_ERROR):
                lines.append(f"   {name}: {kind.verdict.value}: {kind.reason}")
        return lines

    # --- for a program ------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The report as the schema has it, without secrets.

        It names the files of transcripts only once they have been saved.
        """
        judged = self.run.claims or self.endpoint.claims
        claimed, known = self.endpoint.claims.to_table(), judged.to_table()
        document: dict[str, Any] = {
            "utterwire_report": FORMAT,
            "suite_version": suite_name().rpartition(" ")[2],
            "spec": {"version": "1", "revision": revision()},
            "role": self.role,
            "started": self.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "duration_s": round(self.duration_s, 3),
            "subject": self.endpoint.configuration(),
            "claims": claimed,
            "claims_learned": {k: v for k, v in known.items() if claimed.get(k) != v},
            "claims_differ": self._differences(),
            "options": {"profiles": list(self.profiles), "strict": self.strict} | self.options,
            "environment": {
                "python": platform.python_version(),
                "platform": platform.system(),
                "rtt_s": round(self.run.pace.rtt, 6),
                "most_connections": self.run.most_connections,
            },
            "cost": {"characters": self.run.characters, "sessions": self.run.sessions},
            "summary": {name: counts.to_json() for name, counts in self.summaries().items()},
            "results": self._results(),
            "transcripts": {name: file.to_json() for name, file in sorted(self.stored.items())},
            "deployed_client": self.deployed_client,
            "latency": measure(self.run.transcripts.values()),
            "exit_code": self.exit_code,
        }
        if self.run.unreachable is not None:
            document["unreachable"] = self.run.unreachable
        matrix = fault_matrix()
        if matrix is not None:
            document["fault_matrix"] = matrix
        if self.fuzzed is not None:
            document["fuzz"] = self.fuzzed.to_json()
        elif self.unfuzzed is not None:
            document["fuzz"] = {"left_out": self.unfuzzed}
        if self.found:
            document["findings"] = [
                finding.to_json() | {"file": stored.file, "sha256": stored.sha256}
                for finding in self._findings
                if (stored := self.found.get(finding.scenario)) is not None
            ]
        if self.baseline is not None:
            document["baseline"] = self._baseline_to_json(self.baseline)
        clean: dict[str, Any] = redact(document, self.endpoint.secrets)
        return clean

    def _differences(self) -> list[dict[str, Any]]:
        """Where what `session` states is not what was claimed."""
        first = self.run.transcripts.get("negotiation")
        if first is None:
            return []
        said = stated(first)
        limits = said.get("limits")
        told = dict(limits) if isinstance(limits, Mapping) else {}
        told |= {k: v for k, v in said.items() if k in ("profiles", *_LISTS)}
        claimed = self.endpoint.claims.to_table()
        if self.endpoint.claims.idle_s is not None:
            claimed["idle_timeout_s"] = self.endpoint.claims.idle_s
        return [
            {"name": name, "claimed": value, "stated": told[name]}
            for name, value in claimed.items()
            if name in told and not _same(value, told[name])
        ]

    def _results(self) -> list[dict[str, Any]]:
        moments = Moments(self.run.transcripts.values())
        lines = []
        for result in self.results:
            line = _result_to_json(result, moments, self.stored)
            if self.baseline is not None and self.is_known(result):
                line["known"] = self.baseline.reasons[result.requirement.id]
            lines.append(line)
        return lines

    def _baseline_to_json(self, baseline: Baseline) -> dict[str, Any]:
        def ids(results: list[Result]) -> list[str]:
            return [result.requirement.id for result in results]

        return {
            "file": baseline.source or "",
            "known": ids(self.known()),
            "stale": ids(self.stale()),
            "unseen": ids(self.unseen()),
        }

    def save(self, folder: Path) -> None:
        """Write `report.json`, `report.html`, `junit.xml`, and beside them every transcript.

        Raises:
            OSError: the folder cannot be written.
        """
        for transcript in self.run.transcripts.values():
            # What an endpoint wrote into its log is quoted there.
            transcript.broken = redact(transcript.broken, self.endpoint.secrets)
            transcript.unfinished = redact(transcript.unfinished, self.endpoint.secrets)
        self.stored = store(folder, "transcripts", self.run.transcripts)
        self.found = store(folder, "findings", {f.scenario: f.told() for f in self._findings})
        document = self.to_json()
        text = json.dumps(document, indent=2, ensure_ascii=False)
        (folder / "report.json").write_text(text + "\n", encoding="utf-8", errors="replace")
        (folder / "junit.xml").write_text(to_junit(document), encoding="utf-8")
        page = render_page(document, folder)
        (folder / "report.html").write_text(page, encoding="utf-8")

    def _files(self, judgement: Judgement, saved: Path | None) -> list[str]:
        if saved is None:
            return []
        names = judgement.scenarios
        return [str(saved / self.stored[name].file) for name in names if name in self.stored]


_LISTS: Final = ("voices", "formats", "sample_rates")


def _same(claimed: Any, said: Any) -> bool:
    if isinstance(claimed, list) and isinstance(said, list):
        return len(claimed) == len(said) and all(value in said for value in claimed)
    return bool(claimed == said)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _aside(counts: Summary) -> str:
    parts = [
        f"{number} {word}"
        for number, word in (
            (counts.failed, "failed"),
            (counts.weak, "weak"),
            (counts.harness_errors, "not judged"),
            (counts.not_exercised, "not exercised"),
        )
        if number
    ]
    return f"   {', '.join(parts)}" if parts else ""


def _result_to_json(
    result: Result, moments: Moments, stored: Mapping[str, Stored]
) -> dict[str, Any]:
    row = result.requirement
    checks = []
    for name, judgement in result.judgements:
        entry: dict[str, Any] = {"check": name, "verdict": judgement.verdict.value}
        for key in ("reason", "sent", "received", "legal", "advice"):
            if getattr(judgement, key):
                entry[key] = getattr(judgement, key)
        names = [scenario for scenario in judgement.scenarios if scenario in stored]
        if names:
            entry["transcripts"] = names
        moment = moments.of(CHECKS[name], judgement) if judgement.verdict in _RED else None
        if moment is not None:
            entry["at"] = {
                "transcript": moment.scenario,
                "session": moment.session,
                "line": moment.line,
                "t": round(moment.t, 6),
            }
        checks.append(entry)
    line: dict[str, Any] = {
        "requirement": row.id,
        "level": row.level,
        "profile": row.profile,
        "clause": row.clause,
        "text": row.text,
        "verdict": result.verdict.value,
        "checks": checks,
    }
    if result.reason:
        line["reason"] = result.reason
    return line
