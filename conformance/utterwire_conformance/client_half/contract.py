"""The contract between the suite and a client under test, as it stands in the README.

The client reads lines on stdin, each an utterance to be spoken, and writes the audio to stdout and
what befalls each utterance as JSON lines to a file or to stderr. Nothing of it depends on the
language that the client is written in.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from utterwire_conformance.claims import EndpointClaims

__all__ = [
    "PLACEHOLDERS",
    "PROFILES_OF_CLIENTS",
    "Client",
    "ContractError",
    "Ending",
    "Start",
    "Warned",
    "read_event",
]

PLACEHOLDERS: Final = ("url", "events", "profile", "deadline_s")
"""What stands in braces in the command and is filled in for each script."""

PROFILES_OF_CLIENTS: Final = ("core", "interrupt", "negotiate", "http", "sse")
"""The profiles that have requirements for clients."""

_LEAST_S: Final = 1
_MOST_S: Final = 600
_ENDINGS: Final = ("complete", "failed", "cancelled")
_SESSIONS: Final = frozenset({"core", "interrupt", "negotiate"})


class ContractError(ValueError):
    """A command, or what a client wrote, does not keep the contract; the text is for people."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client to be judged: how it is started and what it claims.

    `profiles` are those of `PROFILES_OF_CLIENTS` that it can do; only these are judged.
    `deadline_s` is the longest that it waits for a silent endpoint, in seconds, where the command
    has no `{deadline_s}`; None means that nobody said.

    Raises:
        ContractError: there is no command or no `{url}` in it, or a profile is unknown.
    """

    name: str
    command: tuple[str, ...]
    profiles: frozenset[str] = frozenset({"core"})
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not any("{url}" in word for word in self.command):
            raise ContractError(
                "the command has no {url} in it, where the address to connect to is filled in"
            )
        unknown = sorted(self.profiles - set(PROFILES_OF_CLIENTS))
        if unknown:
            raise ContractError(
                f"profile {unknown[0]}: no rule for clients is in it; those that have some are"
                f" {', '.join(PROFILES_OF_CLIENTS)}"
            )
        if not self.profiles:
            raise ContractError("no profile: what is to be judged?")
        if self.deadline_s is not None and not _LEAST_S <= self.deadline_s <= _MOST_S:
            raise ContractError(
                f"the deadline is to be {_LEAST_S} to {_MOST_S} seconds: endpoints may pause"
            )

    @classmethod
    def of(cls, name: str, command: str, **more: Any) -> Client:
        """A client from a command line as a shell would split it.

        Raises:
            ContractError: it cannot be split, or see above.
        """
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise ContractError(f"the command cannot be read: {error}") from None
        return cls(name, words, **more)

    @property
    def takes_deadline(self) -> bool:
        """Whether the client is told how long to wait."""
        return any("{deadline_s}" in word for word in self.command)

    @property
    def names_events(self) -> bool:
        """Whether events go to a file, not to stderr."""
        return any("{events}" in word for word in self.command)

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """The command with the placeholders filled in."""
        words = []
        for word in self.command:
            for name, value in values.items():
                word = word.replace(f"{{{name}}}", value)
            words.append(word)
        return words

    # What a report tells of its subject.

    @property
    def claims(self) -> EndpointClaims:
        """The profiles as a report has them: those that go over a session rest on `core`."""
        return EndpointClaims(profiles=self.profiles | {"core"})

    @property
    def secrets(self) -> tuple[str, ...]:
        """None: the command itself is in no report."""
        return ()

    @property
    def public_url(self) -> None:
        """None: a client has no address."""
        return

    def configuration(self) -> dict[str, Any]:
        """What shaped the run, for the report; the command is left out, it can hold secrets."""
        table: dict[str, Any] = {"name": self.name}
        if self.deadline_s is not None:
            table["deadline_s"] = self.deadline_s
        return table


@dataclass(frozen=True, slots=True)
class Start:
    """`start`: the client begins to play an utterance at a rate (in Hz) and in a format."""

    utterance: int
    sample_rate: int
    format: str


@dataclass(frozen=True, slots=True)
class Ending:
    """`complete`, `failed` or `cancelled`: how an utterance came out.

    `audio_bytes` is how much of it went to stdout. Of a failure, `code` is the endpoint's, where
    it gave one; `processed` is False where the client knows that its request had no effect.
    """

    kind: Literal["complete", "failed", "cancelled"]
    utterance: int
    audio_bytes: int
    code: str | None = None
    processed: bool | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """`warning`: the client met a fault of the endpoint that it could live with."""

    message: str = field(default="")


Event: TypeAlias = Start | Ending | Warned


def read_event(line: str) -> Event | None:
    """What one line tells; None where it is no event of the contract, such as a line of a log.

    Raises:
        ContractError: it is one of the contract's events and has a field missing or wrong.
    """
    if not line.lstrip().startswith("{"):
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kind = fields.get("event") if isinstance(fields, dict) else None
    if kind == "warning":
        return Warned(str(fields.get("message", "")))
    if kind == "start":
        name = fields.get("format")
        if not isinstance(name, str):
            raise ContractError(f"the event `start` has no string `format`: {line.strip()[:200]}")
        return Start(
            _number(fields, "utterance", line, 1), _number(fields, "sample_rate", line, 1), name
        )
    if kind not in _ENDINGS:
        return None
    code, processed = fields.get("code"), fields.get("processed")
    return Ending(
        kind,
        _number(fields, "utterance", line, 1),
        _number(fields, "audio_bytes", line, 0),
        code if isinstance(code, str) else None,
        processed if isinstance(processed, bool) else None,
    )


def _number(fields: Mapping[str, Any], name: str, line: str, least: int) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(
            f"the event `{fields['event']}` needs an integer `{name}` of {least} or more:"
            f" {line.strip()[:200]}"
        )
    return value
