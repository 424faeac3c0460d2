"""The names that the package promises."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import utterwire_server
from utterwire_server import engines


def test_the_engine_interface() -> None:
    assert sorted(engines.__all__) == [
        "Block",
        "BraceEngine",
        "ENGINE_NAMES",
        "Engine",
        "EngineError",
        "FaultyEngine",
        "LoudEngine",
        "ModelOptions",
        "Samples",
        "SpeechRequest",
        "ToneEngine",
        "WordMark",
        "load_engine",
    ]


def test_the_package() -> None:
    assert utterwire_server.__all__ == [
        "Runner",
        "Service",
        "Settings",
        "create_app",
        "listen",
        "serve",
    ]
    for name in utterwire_server.__all__:
        assert getattr(utterwire_server, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = utterwire_server.nothing


MODULES = [
    found.name
    for found in pkgutil.walk_packages(utterwire_server.__path__, "utterwire_server.")
    if not found.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_each_module_has_what_it_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__all__, name
    for exported in module.__all__:
        assert getattr(module, exported) is not None
    assert module.__doc__
