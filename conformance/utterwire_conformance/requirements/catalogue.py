"""The requirements of the specification as typed data, read from `spec/requirements.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml

__all__ = [
    "LEVELS",
    "PROFILES",
    "ROLES",
    "TRANSPORTS",
    "Requirement",
    "RequirementsError",
    "parse",
    "requirement",
    "requirements",
]

LEVELS: Final = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT")
ROLES: Final = ("endpoint", "client")
PROFILES: Final = (
    "core",
    "negotiate",
    "interrupt",
    "formats",
    "timing",
    "http",
    "sse",
    "sagemaker",
    "load",
)
TRANSPORTS: Final = ("websocket", "http", "sagemaker")

_ID: Final = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9]+(-[a-z0-9]+)*")
_CLAUSE: Final = re.compile(r"[a-z]+\.md#[a-z0-9_-]+")
_CHECK: Final = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+")
_FAULT: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_REQUIRED: Final = ("id", "level", "role", "profile", "clause", "text", "checks", "faults", "via")
_OPTIONAL: Final = ("excluded", "covered_by")
_TEST: Final = re.compile(r"[a-z_]+(/[a-z_]+)*/test_[a-z0-9_]+\.py::test_[a-z0-9_]+")
_TODO: Final = "todo"

# libyaml reads the file ten times faster than the loader in Python, where it was built in.
_LOADER: Final[type[yaml.SafeLoader] | type[yaml.CSafeLoader]] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)


class RequirementsError(ValueError):
    """The requirements file is wrong; the text names the file, the line and the fault."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of the specification, one row of `requirements.yaml`.

    Attributes:
        id: stable name, such as `audio.whole-samples`; never reused.
        level: BCP 14 keyword, one of `LEVELS`.
        role: who must meet it, one of `ROLES`.
        profile: where it applies, one of `PROFILES`.
        clause: where the prose says it, such as `protocol.md#audio`.
        text: the statement, one or two sentences.
        checks: ids of the suite's checks; empty while they are still to come, or if excluded.
        faults: names of the proxy's faults that break it.
        via: transports on which it can be seen, each one of `TRANSPORTS`.
        excluded: why no suite can judge it from outside, or None.
        covered_by: the test of the reference implementation that judges it from inside, as
            `path/to/test_file.py::test_name`; there for what is excluded, else None.

    Raises:
        ValueError: a field is malformed, checks stand beside an exclusion, or an exclusion
            has no test.
    """

    id: str
    level: str
    role: str
    profile: str
    clause: str
    text: str
    checks: tuple[str, ...]
    faults: tuple[str, ...]
    via: tuple[str, ...]
    excluded: str | None = None
    covered_by: str | None = None

    def __post_init__(self) -> None:
        _match("id", self.id, _ID)
        _one_of("level", self.level, LEVELS)
        _one_of("role", self.role, ROLES)
        _one_of("profile", self.profile, PROFILES)
        _match("clause", self.clause, _CLAUSE)
        if not self.text.endswith(".") or self.text != " ".join(self.text.split()):
            raise ValueError("text must be a statement on one line that ends in a full stop")
        _all_match("checks", self.checks, _CHECK)
        _all_match("faults", self.faults, _FAULT)
        if not self.via:
            raise ValueError("via must name at least one transport")
        for transport in self.via:
            _one_of("via", transport, TRANSPORTS)
        if self.excluded is not None:
            if not self.excluded.strip():
                raise ValueError("excluded must give the reason")
            if self.checks:
                raise ValueError("an excluded requirement can have no checks")
            if self.covered_by is None:
                raise ValueError("an excluded requirement names the test that covers it")
        if self.covered_by is not None:
            _match("covered_by", self.covered_by, _TEST)
            if self.excluded is None:
                raise ValueError("covered_by goes with excluded")

    @property
    def todo(self) -> bool:
        """Whether the checks of this requirement are still to come."""
        return not self.checks and self.excluded is None

    @property
    def mandatory(self) -> bool:
        """Whether not meeting it is a failure (MUST, MUST NOT) rather than a weakness."""
        return self.level in ("MUST", "MUST NOT")


def parse(text: str, source: str = "requirements.yaml") -> tuple[Requirement, ...]:
    """Read the requirements out of the YAML `text`; `source` is the name used in errors.

    Raises:
        RequirementsError: not YAML, or a row is malformed, unknown or repeated.
    """
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise RequirementsError(f"{source}:{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise RequirementsError(f"{source}:1: not YAML: {str(error).splitlines()[0]}") from None
    if root is None:
        raise RequirementsError(f"{source}:1: the file is empty")
    return _Reader(source).document(root)


@cache
def requirements() -> tuple[Requirement, ...]:
    """All requirements of version 1, in the file's order.

    They come from the installed package's data, or from `spec/` in a checkout.

    Raises:
        RequirementsError: the file is missing or malformed.
    """
    packaged = resources.files("utterwire_conformance") / "data" / "requirements.yaml"
    if packaged.is_file():
        return parse(packaged.read_text(encoding="utf-8"), "requirements.yaml")
    path = Path(__file__).resolve().parents[3] / "spec" / "requirements.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise RequirementsError(f"{path}: no requirements file: reinstall utterwire") from None
    return parse(text, "spec/requirements.yaml")


@cache
def _by_id() -> Mapping[str, Requirement]:
    return MappingProxyType({row.id: row for row in requirements()})


def requirement(id: str) -> Requirement:
    """The requirement called `id`.

    Raises:
        KeyError: there is none of that id.
    """
    return _by_id()[id]


def _match(field: str, value: str, pattern: re.Pattern[str]) -> None:
    if pattern.fullmatch(value) is None:
        raise ValueError(f"{field} {value!r} is not of the form {pattern.pattern}")


def _all_match(field: str, values: tuple[str, ...], pattern: re.Pattern[str]) -> None:
    for value in values:
        _match(field, value, pattern)
    if len(set(values)) != len(values):
        raise ValueError(f"{field} names something twice")


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} {value!r} is none of {', '.join(allowed)}")


class _Reader:
    """Walks the YAML nodes rather than plain values, since only nodes know their lines."""

    def __init__(self, source: str) -> None:
        self._source = source

    def document(self, root: yaml.Node) -> tuple[Requirement, ...]:
        fields = self._mapping(root, ("version", "requirements"), ())
        version = fields["version"]
        if not isinstance(version, yaml.ScalarNode) or version.value != "1":
            raise self._error(version, "version must be 1")
        rows = fields["requirements"]
        if not isinstance(rows, yaml.SequenceNode) or not rows.value:
            raise self._error(rows, "requirements must be a list of rows")
        result: dict[str, Requirement] = {}
        for node in rows.value:
            row = self._row(node)
            if row.id in result:
                raise self._error(node, f"the id {row.id!r} is used twice")
            result[row.id] = row
        return tuple(result.values())

    def _row(self, node: yaml.Node) -> Requirement:
        fields = self._mapping(node, _REQUIRED, _OPTIONAL)
        checks = fields["checks"]
        todo = isinstance(checks, yaml.ScalarNode) and checks.value == _TODO
        try:
            row = Requirement(
                id=self._string(fields["id"]),
                level=self._string(fields["level"]),
                role=self._string(fields["role"]),
                profile=self._string(fields["profile"]),
                clause=self._string(fields["clause"]),
                text=self._string(fields["text"]),
                checks=() if todo else self._strings(checks),
                faults=self._strings(fields["faults"]),
                via=self._strings(fields["via"]),
                excluded=self._optional(fields, "excluded"),
                covered_by=self._optional(fields, "covered_by"),
            )
        except RequirementsError:
            raise
        except ValueError as error:
            raise self._error(node, str(error)) from None
        if todo and row.excluded is not None:
            raise self._error(checks, "an excluded row has `checks: []`")
        if row.todo and not todo:
            raise self._error(checks, "checks is empty: name them, or write `todo` or `excluded`")
        return row

    def _mapping(
        self, node: yaml.Node, required: tuple[str, ...], optional: tuple[str, ...]
    ) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"expected a mapping with {', '.join(required)}")
        fields: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self._string(key)
            if name in fields:
                raise self._error(key, f"the field {name!r} is given twice")
            if name not in required + optional:
                raise self._error(key, f"unknown field {name!r}")
            fields[name] = value
        missing = [name for name in required if name not in fields]
        if missing:
            raise self._error(node, f"missing field {', '.join(missing)}")
        return fields

    def _optional(self, fields: dict[str, yaml.Node], name: str) -> str | None:
        return self._string(fields[name]) if name in fields else None

    def _string(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
            raise self._error(node, "expected a string")
        return str(node.value)

    def _strings(self, node: yaml.Node) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, "expected a list of strings")
        return tuple(self._string(item) for item in node.value)

    def _error(self, node: yaml.Node, fault: str) -> RequirementsError:
        return RequirementsError(f"{self._source}:{node.start_mark.line + 1}: {fault}")
