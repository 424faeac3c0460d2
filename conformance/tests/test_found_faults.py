"""The matrix of faults as a report repeats it."""

from __future__ import annotations

import pytest
from utterwire_conformance import found_faults
from utterwire_conformance.check import CHECKS
from utterwire_conformance.faults import FAULTS
from utterwire_conformance.faults.expectation import Expectation


def test_the_matrix_is_turned_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "b-fault": Expectation("reference", frozenset({"y.b", "x.a"}), ("order",)),
        "a-fault": Expectation("reference", frozenset({"x.a"}), ("order",)),
    }
    monkeypatch.setattr(found_faults, "expectations", lambda: rows)
    assert found_faults.fault_matrix() == {
        "faults": 2,
        "checks": 2,
        "by_check": {"x.a": ["a-fault", "b-fault"], "y.b": ["b-fault"]},
    }


def test_a_matrix_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, Expectation]:
        raise FileNotFoundError

    monkeypatch.setattr(found_faults, "expectations", missing)
    assert found_faults.fault_matrix() is None


def test_the_matrix_that_is_shipped() -> None:
    matrix = found_faults.fault_matrix()
    assert matrix is not None
    assert matrix["faults"] == len(FAULTS)
    assert set(matrix["by_check"]) <= set(CHECKS)
