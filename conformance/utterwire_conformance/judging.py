"""Judgements from transcripts alone: one way for live runs, files and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from . import judges, scenarios
from .check import CHECKS, FUZZ_PREFIX, Account, Check
from .client_half import judges as client_judges
from .requirements import requirement
from .selection import Selection
from .stage import SCENARIOS
from .transcript import Entry, Role, Transcript
from .verdict import Judgement, Verdict, not_exercised
from .via import unseen, was_by_sagemaker

__all__ = ["Moment", "Moments", "chosen_checks", "judge_accounts", "judge_checks"]

_LAUNCH_NEEDED: Final = (
    "the suite can only shut down an endpoint that it launched itself (`launch` in the endpoint"
    " file)"
)
_NUMBERS_WRONG: Final = (
    "in the sessions that would show it a `seq` is wrong (`seq.counts-messages`), so that nobody"
    " can tell what belongs to what"
)
_RED: Final = (Verdict.FAIL, Verdict.WEAK)

# Importing the packages registers what they hold.
_REGISTERED: Final = (judges, scenarios, client_judges)


def chosen_checks(names: Iterable[str] | None = None, *, role: Role = "endpoint") -> list[Check]:
    """The checks of these ids, all of the role where None.

    Raises:
        KeyError: there is no such check.
    """
    if names is not None:
        return [CHECKS[name] for name in names]
    return [c for c in CHECKS.values() if requirement(c.requirement).role == role]


def judge_checks(
    checks: Iterable[Check],
    transcripts: Iterable[Transcript],
    *,
    launched: bool = True,
    unreachable: str | None = None,
    selection: Selection | None = None,
) -> dict[str, Judgement]:
    """The judgement of each check, by its id, on what was recorded.

    It follows from the transcripts alone, in whatever order they come. `launched` tells whether
    the suite could stop the endpoint; `unreachable` says why nothing could be judged at all. What
    `selection` left out is never taken for met.
    """
    ordered = sorted(transcripts, key=lambda transcript: transcript.scenario)
    accounts = [Account.of(transcript) for transcript in ordered]
    found = judge_accounts(checks, accounts, launched=launched, unreachable=unreachable)
    if selection is not None and selection.scenarios is not None:
        found = {
            name: judgement
            if _shown(CHECKS[name], selection.scenarios)
            else _in_part(judgement, selection)
            for name, judgement in found.items()
        }
    return _through_sagemaker(found) if was_by_sagemaker(ordered) else found


def _through_sagemaker(found: dict[str, Judgement]) -> dict[str, Judgement]:
    """What may be said where SageMaker carried the sessions."""
    reasons = {name: unseen(requirement(CHECKS[name].requirement)) for name in found}
    return {
        name: judgement if (reason := reasons[name]) is None else not_exercised(reason)
        for name, judgement in found.items()
    }


def judge_accounts(
    checks: Iterable[Check],
    accounts: Sequence[Account],
    *,
    launched: bool = True,
    unreachable: str | None = None,
) -> dict[str, Judgement]:
    """The judgement of each check, by its id, on transcripts that were read before."""
    return {
        check.id: _judge(check, accounts, launched=launched, unreachable=unreachable)
        for check in checks
    }


def _shown(check: Check, played: frozenset[str]) -> bool:
    """Whether these scenarios show enough to say that the check's requirement is met."""
    if check.general and check.scenarios:
        # It holds of every session, and some of those that put it to the test were played.
        return bool(played.intersection(check.scenarios))
    return played.issuperset(check.scenarios)


def _in_part(judgement: Judgement, selection: Selection) -> Judgement:
    """What may be said where not all that the check needs was played: a failure is one."""
    if judgement.verdict in (Verdict.PASS, Verdict.NOT_EXERCISED):
        return not_exercised(selection.omission)
    return judgement


def _evidence(check: Check, accounts: Sequence[Account]) -> list[Account]:
    role = requirement(check.requirement).role
    seen = [account for account in accounts if account.transcript.role == role]
    if check.correlates:
        seen = [_numbered(account) for account in seen]
    own = [a for name in check.scenarios for a in seen if a.scenario == name]
    rest = [a for a in seen if a.scenario not in check.scenarios and check.looks_at(a.scenario)]
    return own + [replace(account, own=False) for account in rest]


def _fuzzed(accounts: Sequence[Account]) -> list[Account]:
    """What fuzzing recorded: the oracle looks at it, whatever the rule in question."""
    return [replace(a, own=False) for a in accounts if a.scenario.startswith(FUZZ_PREFIX)]


def _misnumbered(account: Account) -> bool:
    return any(judges.misnumbered(dialogue) for dialogue in account.dialogues)


def _numbered(account: Account) -> Account:
    """The account without the sessions in which a `seq` is wrong: that is judged by itself, and
    what belongs to what cannot be told there."""
    if not _misnumbered(account):
        return account
    kept = tuple(d for d in account.dialogues if not judges.misnumbered(d))
    return replace(account, dialogues=kept)


def _opinion(
    check: Check, evidence: Sequence[Account], fuzzed: Sequence[Account] = ()
) -> Judgement:
    """What the check's judge says, or else the oracle."""
    row = requirement(check.requirement)
    try:
        judgement = check.judge(evidence)
        names = {account.scenario for account in evidence}
        if judgement.verdict is not Verdict.FAIL and row.role == "endpoint":
            more = [account for account in fuzzed if account.scenario not in names]
            seen = [*evidence, *more]
            judgement = judges.second_opinion(row.id, row.text, seen) or judgement
    except Exception as error:
        return Judgement(
            Verdict.HARNESS_ERROR, f"the judge failed: {type(error).__name__}: {error}"
        )
    if not row.mandatory:
        judgement = judgement.weakened()
    return judgement


def _judge(
    check: Check, accounts: Sequence[Account], *, launched: bool, unreachable: str | None
) -> Judgement:
    """The judgement on one check, honest about what is missing."""
    if unreachable is not None:
        return Judgement(Verdict.HARNESS_ERROR, unreachable)
    evidence = _evidence(check, accounts)
    own = [account for account in evidence if account.own]
    fuzzed = _fuzzed(accounts)
    if check.correlates:
        fuzzed = [_numbered(account) for account in fuzzed]
    judgement = _opinion(check, evidence, fuzzed)
    if judgement.verdict in (Verdict.PASS, Verdict.NOT_EXERCISED):
        broken = [a for a in own if a.transcript.broken]
        if broken:
            return Judgement(
                Verdict.HARNESS_ERROR,
                broken[0].transcript.broken or "",
                scenarios=tuple(a.scenario for a in broken),
            )
    unseen = judgement.verdict is Verdict.NOT_EXERCISED
    if unseen and check.correlates and any(map(_misnumbered, accounts)):
        return not_exercised(_NUMBERS_WRONG)
    needs_launch = any(SCENARIOS[n].launches for n in check.scenarios if n in SCENARIOS)
    if unseen and not own and needs_launch and not launched:
        return not_exercised(_LAUNCH_NEEDED)
    return judgement


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in the transcripts a rule broke: the line after which the check is red.

    `index` counts the entries of the transcript from 0, `t` is in seconds since its start.
    """

    scenario: str
    session: int
    index: int
    t: float

    @property
    def line(self) -> int:
        """The line of the file, from 1; the first is the header."""
        return self.index + 2


class Moments:
    """Finds the moment at which each red check turned red.

    Judges are pure, so that they can be asked about the beginning of a transcript as well: the
    moment is the line without which the judgement is not red, and with which it is. No judge has
    to know of it.
    """

    def __init__(self, transcripts: Iterable[Transcript]) -> None:
        self._transcripts = {t.scenario: t for t in transcripts}
        # Checks that fail on the same transcript ask about the same beginnings.
        self._account = lru_cache(maxsize=64)(self._account_of)

    def of(self, check: Check, judgement: Judgement) -> Moment | None:
        """The moment, or None where no transcript by itself shows it."""
        if judgement.verdict not in _RED:
            return None
        for name in judgement.scenarios:
            transcript = self._transcripts.get(name)
            if transcript is None:
                continue
            # One session by itself, where it tells, is far quicker to search than all.
            for session in (*transcript.sessions(), None):
                lines = self._lines(name, session)
                if lines and self._is_red(check, name, session, len(lines)):
                    index = self._search(check, name, session, len(lines))
                    entry = transcript.entries[index]
                    return Moment(name, entry.session, index, entry.t)
        return None

    def _lines(self, name: str, session: int | None) -> list[int]:
        entries = self._transcripts[name].entries
        wanted = (0, session)
        return [i for i, e in enumerate(entries) if session is None or e.session in wanted]

    def _search(self, check: Check, name: str, session: int | None, length: int) -> int:
        low, high = 0, length  # Not red after `low` lines, red after `high`.
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_red(check, name, session, middle):
                high = middle
            else:
                low = middle
        return self._lines(name, session)[high - 1]

    def _is_red(self, check: Check, name: str, session: int | None, length: int) -> bool:
        account = self._account(name, session, length)
        evidence, fuzzed = _evidence(check, [account]), _fuzzed([account])
        known = bool(evidence or fuzzed)
        return known and _opinion(check, evidence, fuzzed).verdict in _RED

    def _account_of(self, name: str, session: int | None, length: int) -> Account:
        whole = self._transcripts[name]
        entries: list[Entry] = [whole.entries[i] for i in self._lines(name, session)[:length]]
        part = Transcript(name, whole.endpoint, whole.claims, entries=entries, role=whole.role)
        return Account.of(part)
