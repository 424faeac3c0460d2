"""The JSON files of the package."""

import json
from importlib.resources import files
from typing import Any

__all__ = ["names_in", "read"]

_ROOT = files("utterwire_schemas")


def read(path: str) -> Any:
    """The JSON value of the file at ``path``, a path inside the package."""
    return json.loads(_ROOT.joinpath(path).read_text(encoding="utf-8"))


def names_in(folder: str) -> tuple[str, ...]:
    """The names, without ``.json``, of the JSON files in a folder of the package, sorted."""
    found = (item.name for item in _ROOT.joinpath(folder).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))
