"""Every module says what it exports, and exports what it says."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import utterwire_conformance

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(
        utterwire_conformance.__path__, prefix="utterwire_conformance."
    )
)


@pytest.mark.parametrize("name", MODULES)
def test_exports(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("utterwire"):
            raise
        pytest.skip(f"{missing.name} is not installed: {name} needs the extra aws")
    exported = module.__all__
    assert len(set(exported)) == len(exported)
    for item in exported:
        assert hasattr(module, item), item


def test_the_package_itself_imports_nothing() -> None:
    assert utterwire_conformance.__all__ == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("utterwire_conformance.cli", {"main"}),
        ("utterwire_conformance.runner", {"Options", "Results", "learned", "run_checks"}),
        ("utterwire_conformance.target", {"Child", "Instance", "LaunchFailed", "Target"}),
        ("utterwire_conformance.client_half", {
            "SCRIPTS", "Client", "ContractError", "main_client",
        }),
        ("utterwire_conformance.verdict", {
            "Judgement", "Verdict", "fail", "not_exercised", "passed", "worst",
        }),
        ("utterwire_conformance.transcript", {
                "BULKY_BYTES", "MOST_FILE_BYTES", "Case", "Direction", "Entry", "Kind", "Role",
                "Transcript", "merged", "suite_name",
        }),
    ],
)  # fmt: skip
def test_what_others_build_on(module: str, names: set[str]) -> None:
    assert set(importlib.import_module(module).__all__) == names
