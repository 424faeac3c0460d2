"""What the oracle, the proxy and the faults offer to others."""

from __future__ import annotations

import importlib

import pytest

EXPORTS = {
    "utterwire_conformance.oracle": {"Oracle", "Outlook"},
    "utterwire_conformance.faults": {
        "FAULTS",
        "ODDITIES",
        "Combined",
        "Fault",
        "Oddity",
        "main_proxy",
    },
    "utterwire_conformance.faults.matrix": {
        "Baseline",
        "Plan",
        "ProxiedTarget",
        "Row",
        "place_of",
        "play_behind",
        "run_baseline",
        "run_matrix",
        "run_row",
    },
    "utterwire_conformance.faults.expectation": {
        "NARROW",
        "Difference",
        "Expectation",
        "expectations",
        "from_json",
        "to_text",
    },
    "utterwire_conformance.faults.passage": {"Passage"},
    "utterwire_conformance.deployed_client": {"findings", "reads_as_control"},
    "utterwire_conformance.proxy": {
        "Action",
        "Chunk",
        "ClientMessage",
        "CloseSession",
        "CutSession",
        "ExchangeTamper",
        "FaultProxy",
        "Head",
        "Pause",
        "Request",
        "SessionTamper",
        "Shared",
        "Tampers",
        "Tap",
        "ToClient",
        "ToEndpoint",
        "control_frame",
        "rewritten",
    },
    "utterwire_conformance.strict_json": {
        "Document",
        "JsonValue",
        "MAX_LEVELS",
        "MAX_SIGNIFICANT_DIGITS",
        "NotJson",
        "NotUtf8",
        "Oddity",
        "has_lone_surrogate",
        "parse",
    },
}


@pytest.mark.parametrize(("name", "exports"), EXPORTS.items())
def test_exports(name: str, exports: set[str]) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) == exports
    assert all(hasattr(module, export) for export in exports)
