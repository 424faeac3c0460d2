"""What pytest collects: one item for each requirement of the profiles judged.

The node ids read `…/suite.py::core::order.fifo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from .check import CHECKS
from .requirements import Requirement, requirements
from .verdict import Judgement, Verdict

__all__ = ["HarnessError", "NonConformance", "ProfileCollector", "RequirementItem", "SuiteFile"]


class NonConformance(Exception):
    """A requirement is broken."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(judgement.reason)
        self.judgement = judgement


class HarnessError(Exception):
    """A requirement could not be judged."""


class SuiteFile(pytest.File):
    """This file, as the root of the suite."""

    def collect(self) -> Iterator[ProfileCollector]:
        """One collector for each profile judged."""
        for profile in self.config.stash[PROFILES_KEY]:
            yield ProfileCollector.from_parent(self, name=profile)


class ProfileCollector(pytest.Collector):
    """The requirements of one profile."""

    def collect(self) -> Iterator[RequirementItem]:
        """One item for each requirement that endpoints have to meet."""
        for row in requirements():
            if row.role == "endpoint" and row.profile == self.name:
                yield RequirementItem.from_parent(self, name=row.id, row=row)


class RequirementItem(pytest.Item):
    """One requirement; it waits for the run and tells what was found."""

    def __init__(self, *, row: Requirement, **rest: Any) -> None:
        super().__init__(**rest)
        self.row = row
        self.verdict: Verdict | None = None

    @property
    def checks(self) -> tuple[str, ...]:
        """The checks that there are for it."""
        return tuple(name for name in self.row.checks if name in CHECKS)

    def setup(self) -> None:
        """Wait for the judgement; without one there is nothing to run."""
        if self.row.excluded is not None:
            pytest.skip(self.row.excluded)
        if not self.checks:
            pytest.skip("the suite has no check for it yet")
        judgement = self.config.stash[RUN_KEY].judgement(self.checks)
        self.verdict = judgement.verdict
        if judgement.verdict is Verdict.HARNESS_ERROR:
            raise HarnessError(judgement.reason)
        if judgement.verdict in (Verdict.NOT_EXERCISED, Verdict.NOT_CLAIMED):
            pytest.skip(judgement.reason or judgement.verdict.value)

    def runtest(self) -> None:
        """Fail where the requirement is broken (or, with --strict, only recommended)."""
        judgement = self.config.stash[RUN_KEY].judgement(self.checks)
        self.user_properties.append(("verdict", judgement.verdict.value))
        strict = self.config.stash.get(STRICT_KEY, False)
        if judgement.verdict is Verdict.FAIL or (strict and judgement.verdict is Verdict.WEAK):
            reason = self.config.stash.get(KNOWN_KEY, {}).get(self.row.id)
            if reason is not None:
                pytest.xfail(f"known: {reason}")
            raise NonConformance(judgement)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """One line: the summary says the rest."""
        if isinstance(excinfo.value, NonConformance | HarnessError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the requirement stands."""
        return self.path, 0, f"{self.row.profile}::{self.row.id} (spec/{self.row.clause})"


class Judged:
    """What items ask for judgements; the plugin's run fills it."""

    def judgement(self, checks: Iterable[str]) -> Judgement:
        """The judgement that decides for these checks; waits until there is one."""
        raise NotImplementedError


KNOWN_KEY: pytest.StashKey[Mapping[str, str]] = pytest.StashKey()
STRICT_KEY: pytest.StashKey[bool] = pytest.StashKey()
PROFILES_KEY: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
RUN_KEY: pytest.StashKey[Judged] = pytest.StashKey()
