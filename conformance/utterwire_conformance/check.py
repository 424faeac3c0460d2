"""The registry of checks: which requirement each judges, and on what evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias, TypeVar

from .dialogue import Dialogue, dialogues
from .exchange import Exchange, exchanges
from .transcript import Transcript
from .verdict import Judgement, Verdict, not_exercised, worst

__all__ = [
    "CHECKS",
    "FUZZ_PREFIX",
    "Account",
    "Check",
    "Judge",
    "check",
    "on_each",
    "on_exchanges",
    "on_sessions",
    "settle",
]


@dataclass(frozen=True, slots=True)
class Account:
    """A transcript with its sessions and HTTP exchanges, read once for all judges.

    `own` tells whether it was recorded for the check in question, or for another and is looked at
    all the same.
    """

    transcript: Transcript
    dialogues: tuple[Dialogue, ...]
    exchanges: tuple[Exchange, ...]
    own: bool = True

    @classmethod
    def of(cls, transcript: Transcript) -> Self:
        """Read a transcript."""
        http = [s for s in transcript.sessions() if transcript.is_http(s)]
        return cls(
            transcript,
            tuple(dialogues([transcript])),
            tuple(e for session in http for e in exchanges(transcript.session(session))),
        )

    @property
    def scenario(self) -> str:
        """The name of the scenario that was played."""
        return self.transcript.scenario


Judge: TypeAlias = Callable[[Sequence[Account]], Judgement]
_Unit = TypeVar("_Unit")


@dataclass(frozen=True, slots=True)
class Check:
    """One judgement of the suite.

    `requirement` is the id it judges. `scenarios` are what must be played for it; a `general`
    check looks at every other transcript of the run as well, and a `fuzzed` one at what fuzzing
    recorded. `judge` is a pure function. A check
    that `correlates` needs to know what belongs to what: it does not see sessions in which `seq`
    is wrong, where nobody can tell.
    """

    id: str
    requirement: str
    scenarios: tuple[str, ...]
    general: bool
    judge: Judge
    fuzzed: bool = False
    correlates: bool = True

    def looks_at(self, scenario: str) -> bool:
        """Whether it has something to say of what that scenario recorded."""
        fuzz = self.fuzzed and scenario.startswith(FUZZ_PREFIX)
        return self.general or scenario in self.scenarios or fuzz


FUZZ_PREFIX: Final = "fuzz-"
"""How the scenarios of recorded fuzzing begin."""

CHECKS: Final[dict[str, Check]] = {}


def check(
    requirement: str,
    *scenarios: str,
    general: bool = False,
    fuzzed: bool = False,
    id: str | None = None,
    correlates: bool = True,
) -> Callable[[Judge], Judge]:
    """Register a judge for a requirement, under the requirement's id with `-` as `_`."""

    def register(judge: Judge) -> Judge:
        name = id or requirement.replace("-", "_")
        if name in CHECKS:
            raise ValueError(f"two checks are called {name}")
        CHECKS[name] = Check(name, requirement, scenarios, general, judge, fuzzed, correlates)
        return judge

    return register


def settle(found: Iterable[Judgement], evidence: Sequence[Account], otherwise: str) -> Judgement:
    """The one judgement to report: the worst; without any, that nothing was exercised.

    `otherwise` says what would have been needed. Where a scenario of the check's own could not be
    played to its end, that is the better reason.
    """
    judgements = list(found)
    if judgements:
        decided = [j for j in judgements if j.verdict is not Verdict.NOT_EXERCISED]
        judgement = worst(decided or judgements)
        own = tuple(account.scenario for account in evidence if account.own)
        return judgement if judgement.scenarios else replace(judgement, scenarios=own)
    reasons = [a.transcript.unfinished for a in evidence if a.own and a.transcript.unfinished]
    return not_exercised(reasons[0] if reasons else otherwise)


def _told(
    evidence: Sequence[Account],
    units: Callable[[Account], Iterable[_Unit]],
    find: Callable[[_Unit], Iterator[Judgement]],
) -> Iterator[Judgement]:
    """What is found, with where it was; of what passed only the first, which speaks for all."""
    has_passed = False
    for account in evidence:
        for unit in units(account):
            for judgement in find(unit):
                if judgement.verdict is Verdict.PASS:
                    if has_passed:
                        continue
                    has_passed = True
                yield replace(judgement, scenarios=(account.scenario,))


def on_each(
    units: Callable[[Account], Iterable[_Unit]], otherwise: str
) -> Callable[[Callable[[_Unit], Iterator[Judgement]]], Judge]:
    """Make a judge from a function that yields what it finds in one of `units`.

    `otherwise` says why nothing was exercised where nothing is found.
    """

    def build(find: Callable[[_Unit], Iterator[Judgement]]) -> Judge:
        def judge(evidence: Sequence[Account]) -> Judgement:
            return settle(_told(evidence, units, find), evidence, otherwise)

        judge.__doc__ = find.__doc__
        judge.__name__ = find.__name__
        return judge

    return build


def on_sessions(
    otherwise: str,
) -> Callable[[Callable[[Dialogue], Iterator[Judgement]]], Judge]:
    """Make a judge from a function that yields what it finds in one session."""
    return on_each(lambda account: account.dialogues, otherwise)


def on_exchanges(
    otherwise: str,
) -> Callable[[Callable[[Exchange], Iterator[Judgement]]], Judge]:
    """Make a judge from a function that yields what it finds in one HTTP exchange."""
    return on_each(lambda account: account.exchanges, otherwise)
