"""What of a played program breaks a rule: the same judges as everywhere, over one transcript."""

from __future__ import annotations

from functools import lru_cache

from utterwire_conformance.check import CHECKS, Check
from utterwire_conformance.judging import judge_checks
from utterwire_conformance.requirements import requirement, requirements
from utterwire_conformance.transcript import Transcript
from utterwire_conformance.verdict import Judgement, Verdict

__all__ = ["JudgeFailed", "broken"]


class JudgeFailed(Exception):
    """A judge could not bear what was recorded: a fault of the suite."""


def broken(transcript: Transcript) -> dict[str, Judgement]:
    """The failures in a transcript, by requirement id, in the order of `requirements.yaml`.

    Only what must be is looked at, in the profiles that the endpoint claims.

    Raises:
        JudgeFailed: a judge failed.
    """
    found: dict[str, Judgement] = {}
    checks = _checks(transcript.claims.profiles)
    for name, judgement in judge_checks(checks, [transcript]).items():
        if judgement.verdict is Verdict.HARNESS_ERROR:
            raise JudgeFailed(f"{name}: {judgement.reason}")
        if judgement.verdict is Verdict.FAIL:
            found.setdefault(CHECKS[name].requirement, judgement)
    return found


@lru_cache
def _checks(profiles: frozenset[str]) -> tuple[Check, ...]:
    """The checks that may fail an endpoint with these profiles."""
    order = {row.id: place for place, row in enumerate(requirements())}
    rows = {
        check.id: requirement(check.requirement)
        for check in CHECKS.values()
        if check.requirement in order
    }
    chosen = [
        CHECKS[name]
        for name, row in rows.items()
        if row.role == "endpoint" and row.profile in profiles and row.mandatory
    ]
    return tuple(sorted(chosen, key=lambda check: order[check.requirement]))
