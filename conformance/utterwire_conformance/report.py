"""The report: verdicts by requirement, in a terminal and as `report.json` (schema `report`)."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from .check import CHECKS
from .endpoints import Endpoint
from .requirements import PROFILES, Requirement, requirements
from .runner import Results
from .scenarios import spoke
from .transcript import suite_name
from .verdict import Judgement, Verdict, worst

__all__ = ["Report", "Result", "Summary", "judgeable", "results_of"]

_WIDTH: Final = 100
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


def judgeable(profile: str) -> bool:
    """Whether the suite has any check for the profile."""
    return any(r.profile == profile and r.role == "endpoint" and r.checks for r in requirements())


def results_of(
    run: Results,
    endpoint: Endpoint,
    chosen: Iterable[str],
    *,
    selected: Iterable[str] | None = None,
) -> list[Result]:
    """A result for each endpoint requirement.

    `chosen` are the profiles that were judged; `selected` the ids of the requirements, where only
    some of them were.
    """
    chosen = set(chosen)
    wanted = set(selected) if selected is not None else None
    found = []
    for row in requirements():
        if row.role != "endpoint":
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
    """Everything a run found, ready to be shown and saved."""

    endpoint: Endpoint
    profiles: tuple[str, ...]
    results: list[Result]
    run: Results
    strict: bool = False
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    duration_s: float = 0.0
    deployed_client: list[dict[str, Any]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 does not, 2 could not be judged."""
        verdicts = {result.verdict for result in self.results}
        if Verdict.HARNESS_ERROR in verdicts or not any(v.judged for v in verdicts):
            return 2
        bad = {Verdict.FAIL, Verdict.WEAK} if self.strict else {Verdict.FAIL}
        if verdicts & bad:
            return 1
        return 2 if self._mute else 0

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
        later = [p for p in rest if not judgeable(p)]
        unselected = [p for p in rest if judgeable(p)]
        unclaimed = [p for p in self.summaries() if p not in self.endpoint.claims.profiles]
        for label, names in (
            ("claimed, but this suite has no checks for it yet", later),
            ("claimed, not selected", unselected),
            ("not claimed", unclaimed),
        ):
            if names:
                lines.append(f"{label}: {', '.join(names)}")
        lines += self._grave_lines(saved)
        lines += self._unexercised_lines()
        lines += self._deployed_lines()
        if saved is not None:
            lines += ["", f"report: {saved / 'report.json'}"]
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
            if self._mute and not errors:
                what = "no request was spoken to its end"
            return f"{name} COULD NOT BE JUDGED ({profiles}): {what}."
        if self.exit_code == 1:
            what = f"{_count(weak, 'recommendation')} not met"
            if failed:
                what = f"{_count(failed, 'requirement')} broken"
            return f"{name} DOES NOT CONFORM ({profiles}): {what}."
        aside = f"; {_count(weak, 'recommendation')} not met" if weak else ""
        return f"{name} CONFORMS ({profiles}), as far as it was judged{aside}."

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
            lines += ["", f"{number}. {word}  {row.id}  ({row.level}, spec/{row.clause})"]
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
            files = _files(judgement, saved)
            if files:
                lines.append(f"   {'replay:':<10} {', '.join(files)}")
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
            lines.append(f"   {', '.join(names)}: {reason}")
        return lines

    def _deployed_lines(self) -> list[str]:
        if not self.deployed_client:
            return []
        lines = ["", "clients in the field (they look at the first byte and stop at the end):"]
        seen = dict.fromkeys(str(finding["finding"]) for finding in self.deployed_client)
        return lines + [f"   {text}" for text in list(seen)[:5]]

    # --- for a program ------------------------------------------------------------------------

    def to_json(self, saved: Path | None = None) -> dict[str, Any]:
        """The report as the schema has it."""
        endpoint: dict[str, Any] = {
            "name": self.endpoint.name.partition("?")[0],
            "profiles": sorted(self.endpoint.claims.profiles),
        }
        if self.endpoint.public_url is not None:
            endpoint["url"] = self.endpoint.public_url
        document = {
            "utterwire_report": 1,
            "suite_version": suite_name().rpartition(" ")[2],
            "spec_version": "1",
            "started": self.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "duration_s": round(self.duration_s, 3),
            "endpoint": endpoint,
            "environment": {
                "python": platform.python_version(),
                "platform": platform.system(),
                "rtt_s": round(self.run.pace.rtt, 6),
                "characters": self.run.characters,
                "sessions": self.run.sessions,
            },
            "summary": {name: counts.to_json() for name, counts in self.summaries().items()},
            "results": [_result_to_json(result, saved) for result in self.results],
            "deployed_client": self.deployed_client,
            "exit_code": self.exit_code,
        }
        cleaned = json.dumps(document, ensure_ascii=False)
        for secret in self.endpoint.secrets:
            cleaned = cleaned.replace(json.dumps(secret, ensure_ascii=False)[1:-1], "***")
        clean: dict[str, Any] = json.loads(cleaned)
        return clean

    def save(self, folder: Path) -> None:
        """Write `report.json`, and beside it the transcripts that a finding rests on.

        Raises:
            OSError: the folder cannot be written.
        """
        transcripts = folder / "transcripts"
        transcripts.mkdir(parents=True, exist_ok=True)
        for old in transcripts.glob("*.jsonl"):
            old.unlink()
        for name in self._telling():
            self.run.transcripts[name].save(transcripts / f"{name}.jsonl")
        text = json.dumps(self.to_json(folder), indent=2, ensure_ascii=False)
        (folder / "report.json").write_text(text + "\n", encoding="utf-8")

    def _telling(self) -> list[str]:
        names = {
            name
            for result in self.grave()
            for _, judgement in result.judgements
            for name in judgement.scenarios
        }
        names |= {name for name, t in self.run.transcripts.items() if t.broken is not None}
        return sorted(names & set(self.run.transcripts))


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


def _files(judgement: Judgement, saved: Path | None) -> list[str]:
    if saved is None:
        return []
    return [str(saved / "transcripts" / f"{name}.jsonl") for name in judgement.scenarios]


def _result_to_json(result: Result, saved: Path | None) -> dict[str, Any]:
    row = result.requirement
    checks = []
    for name, judgement in result.judgements:
        entry: dict[str, Any] = {"check": name, "verdict": judgement.verdict.value}
        for key in ("reason", "sent", "received", "legal", "advice"):
            if getattr(judgement, key):
                entry[key] = getattr(judgement, key)
        if (
            judgement.scenarios
            and judgement.verdict
            in (
                Verdict.FAIL,
                Verdict.WEAK,
                Verdict.HARNESS_ERROR,
            )
            and saved is not None
        ):
            entry["transcripts"] = [f"transcripts/{name}.jsonl" for name in judgement.scenarios]
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
