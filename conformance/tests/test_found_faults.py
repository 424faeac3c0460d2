"""The matrix of faults as a report repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest
from utterwire_conformance import found_faults
from utterwire_conformance.faults.expectation import Expectation, to_text


def test_the_shipped_matrix_is_turned_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_faults, "files", lambda _: tmp_path)
    assert found_faults.fault_matrix() is None
    rows = {
        "b-fault": Expectation("reference", frozenset({"y.b", "x.a"}), ("order",)),
        "a-fault": Expectation("reference", frozenset({"x.a"}), ("order",)),
    }
    (tmp_path / "faults").mkdir()
    (tmp_path / found_faults.EXPECTED_FILE).write_text(to_text(rows), "utf-8")
    assert found_faults.fault_matrix() == {
        "faults": 2,
        "checks": 2,
        "by_check": {"x.a": ["a-fault", "b-fault"], "y.b": ["b-fault"]},
    }
