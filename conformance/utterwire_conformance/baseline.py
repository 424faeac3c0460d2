"""Known failures: a file that names them, each with its reason, and is held to be exact.

A failure that the file names does not fail the run. An entry whose requirement is met now does:
otherwise the file would go on to excuse what nobody has to excuse.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from utterwire_schemas import validator

from .requirements import requirements

__all__ = ["Baseline", "BaselineError"]

_CONTROL: Final = re.compile("[\x7f-\x9f]")


class BaselineError(ValueError):
    """A baseline file is wrong; the text is for people and names the file."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Requirements that are known to be broken, by id, each with the reason.

    Raises:
        ValueError: a reason is blank.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None

    def __post_init__(self) -> None:
        for name, reason in self.reasons.items():
            if not reason.strip():
                raise ValueError(f"{name} is listed without a reason")
        object.__setattr__(self, "reasons", MappingProxyType(dict(self.reasons)))

    def __contains__(self, requirement: object) -> bool:
        return requirement in self.reasons

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Read a file: JSON if its name ends in `.json`, else TOML (schema `baseline`).

        Raises:
            BaselineError: it cannot be read, is wrong, or names a requirement that endpoints do
                not have.
        """
        document = _document(path)
        for fault in validator("baseline").iter_errors(document):
            place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in fault.path)
            message = fault.message if len(fault.message) < 200 else "is not of the schema's shape"
            raise BaselineError(f"{path}: {place.removeprefix('.') or 'the file'}: {message}")
        known = {row.id for row in requirements() if row.role == "endpoint"}
        reasons: dict[str, str] = {}
        for entry in document["known"]:
            name = entry["requirement"]
            if name not in known:
                raise BaselineError(f"{path}: no requirement of endpoints is called {name}")
            if name in reasons:
                raise BaselineError(f"{path}: {name} is listed twice")
            # A lone surrogate, which JSON can spell, could not be written anywhere.
            reasons[name] = entry["reason"].encode("utf-8", "replace").decode("utf-8")
        return cls(reasons, path.name)

    def save(self, path: Path) -> None:
        """Write a file that `load` reads.

        Raises:
            OSError: it cannot be written.
        """
        known = [{"requirement": name, "reason": why} for name, why in self.reasons.items()]
        if path.suffix == ".json":
            document = {"utterwire_baseline": 1, "known": known}
            text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        else:
            text = "".join(_toml_lines(known))
        path.write_text(text, encoding="utf-8")

    @classmethod
    def of_failures(cls, failures: Iterable[tuple[str, str]], before: Baseline) -> Baseline:
        """A baseline of these failures (id and finding); reasons given `before` are kept."""
        return cls(
            {
                name: before.reasons.get(name, f"not explained yet: {_one_line(finding)}")
                for name, finding in failures
            }
        )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300] or "no more is known"


def _toml_lines(known: Iterable[Mapping[str, str]]) -> Iterable[str]:
    yield "# Known failures: requirement by requirement, with the reason why it may be so.\n"
    yield "# An entry whose requirement is met fails the run: take it out.\n"
    yield "utterwire_baseline = 1\n"
    empty = True
    for entry in known:
        empty = False
        yield f"\n[[known]]\nrequirement = {_toml(entry['requirement'])}\n"
        yield f"reason = {_toml(entry['reason'])}\n"
    if empty:
        yield "known = []\n"


def _toml(text: str) -> str:
    """A TOML basic string; it is that of JSON, but that DEL and its like are escaped, too."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted)


def _document(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BaselineError(f"{path}: is not UTF-8") from error
    try:
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise BaselineError(f"{path}: not {kind}: {error}") from error
    return found if isinstance(found, dict) else {"": found}
