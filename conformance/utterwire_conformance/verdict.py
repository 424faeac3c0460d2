"""What the suite finds about one check: a verdict and the words that explain it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

__all__ = ["Judgement", "Verdict", "fail", "not_exercised", "passed", "worst"]


class Verdict(Enum):
    """The honest answers; only `FAIL` says that a rule was broken."""

    PASS = "pass"
    FAIL = "fail"
    WEAK = "weak"
    NOT_CLAIMED = "not-claimed"
    NOT_EXERCISED = "not-exercised"
    HARNESS_ERROR = "harness-error"

    @property
    def judged(self) -> bool:
        """Whether the endpoint was seen to meet or break the rule."""
        return self in (Verdict.PASS, Verdict.FAIL, Verdict.WEAK)


_SEVERITY: Final = (
    Verdict.FAIL,
    Verdict.HARNESS_ERROR,
    Verdict.WEAK,
    Verdict.PASS,
    Verdict.NOT_EXERCISED,
    Verdict.NOT_CLAIMED,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reasons, each a sentence for somebody who has not read this code.

    `reason` says what was found; `sent` and `received` quote the wire, abridged; `legal` says what
    would have been legal; `advice` what to change. `scenarios` names the transcripts it rests on.
    """

    verdict: Verdict
    reason: str = ""
    sent: str = ""
    received: str = ""
    legal: str = ""
    advice: str = ""
    scenarios: tuple[str, ...] = ()

    def weakened(self) -> Judgement:
        """The same finding about a SHOULD: a failure becomes `WEAK`."""
        return replace(self, verdict=Verdict.WEAK) if self.verdict is Verdict.FAIL else self


def passed(reason: str = "", *, scenarios: Iterable[str] = ()) -> Judgement:
    """The rule was put to the test and kept."""
    if not reason and scenarios == ():
        return _PASSED
    return Judgement(Verdict.PASS, reason, scenarios=tuple(scenarios))


# There are hundreds of thousands of these in a run.
_PASSED: Final = Judgement(Verdict.PASS)


def fail(
    reason: str,
    *,
    sent: str = "",
    received: str = "",
    legal: str = "",
    advice: str = "",
    scenarios: Iterable[str] = (),
) -> Judgement:
    """The rule was broken."""
    return Judgement(Verdict.FAIL, reason, sent, received, legal, advice, tuple(scenarios))


def not_exercised(reason: str, *, scenarios: Iterable[str] = ()) -> Judgement:
    """The rule could not be put to the test; `reason` says why."""
    return Judgement(Verdict.NOT_EXERCISED, reason, scenarios=tuple(scenarios))


def worst(judgements: Iterable[Judgement]) -> Judgement:
    """The judgement that decides for all: the first of the most severe verdict.

    Raises:
        ValueError: there are none.
    """
    found = list(judgements)
    if not found:
        raise ValueError("no judgement to choose from")
    return min(found, key=lambda judgement: _SEVERITY.index(judgement.verdict))
