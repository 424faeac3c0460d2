"""What an endpoint is known to claim, as judges need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from .client_message import Claims

__all__ = ["EndpointClaims"]

_SETS = ("voices", "formats", "sample_rates")
_NUMBERS = (
    "max_text_chars",
    "max_message_bytes",
    "max_request_id_chars",
    "max_waiting",
    "min_speed",
    "max_speed",
)
_FLOORS: Final = {
    "max_text_chars": 4096,
    "max_message_bytes": 65_536,
    "max_request_id_chars": 128,
    "max_waiting": 8,
}
# A list that nearly fills a control message (64 KiB) may hold some of the voices only.
_ALL_VOICES_CHARS: Final = 50_000


@dataclass(frozen=True, slots=True)
class EndpointClaims(Claims):
    """`Claims` with the limits that do not concern a single message.

    `max_message_bytes` in bytes; `idle_s`, `shutdown_s` and `slow_reader_s` in seconds, the
    endpoint's own limits. None means not known.
    """

    max_message_bytes: int | None = None
    idle_s: float | None = None
    shutdown_s: float | None = None
    slow_reader_s: float | None = None

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> EndpointClaims:
        """The claims in a table of the endpoint file (`endpoint-file.json`)."""
        timeouts = table.get("timeouts", {})
        known: dict[str, Any] = {name: frozenset(table[name]) for name in _SETS if name in table}
        known |= {name: table[name] for name in _NUMBERS if name in table}
        return cls(
            profiles=frozenset(table.get("profiles", ("core",))),
            **known,
            idle_s=timeouts.get("idle_s"),
            shutdown_s=timeouts.get("shutdown_s"),
            slow_reader_s=timeouts.get("slow_reader_s"),
        )

    def completed_by(self, stated: Mapping[str, Any], *, voice: str | None = None) -> Self:
        """These claims, and where they say nothing, what a `session` message states.

        What breaks the clause (short of its floor, of the wrong type) is not learned. `voice` is
        one that the endpoint is known to have, whatever the list says.
        """
        told: dict[str, Any] = {}
        limits = stated.get("limits")
        numbers = {
            name: value
            for name, value in (limits.items() if isinstance(limits, Mapping) else ())
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, floor in _FLOORS.items():
            if numbers.get(name, 0) >= floor and numbers[name] == int(numbers[name]):
                told[name] = int(numbers[name])
        if 0 < numbers.get("min_speed", 0) <= 0.5:
            told["min_speed"] = numbers["min_speed"]
        if numbers.get("max_speed", 0) >= 2.0:
            told["max_speed"] = numbers["max_speed"]
        if numbers.get("idle_timeout_s", 0) > 0:
            told["idle_s"] = numbers["idle_timeout_s"]
        for name, kind in (("voices", str), ("formats", str), ("sample_rates", int)):
            values = stated.get(name)
            if isinstance(values, list) and values and all(type(v) is kind for v in values):
                told[name] = frozenset(values)
        voices = told.get("voices", frozenset())
        if sum(map(len, voices)) > _ALL_VOICES_CHARS:
            del told["voices"]
        elif voices and voice is not None:
            told["voices"] = voices | {voice}
        return replace(self, **{k: v for k, v in told.items() if getattr(self, k) is None})

    def to_table(self) -> dict[str, Any]:
        """The same claims as a table of the endpoint file."""
        table: dict[str, Any] = {"profiles": sorted(self.profiles)}
        table |= {name: sorted(getattr(self, name)) for name in _SETS if getattr(self, name)}
        for name in _NUMBERS:
            if getattr(self, name) is not None:
                table[name] = getattr(self, name)
        timeouts = {
            name: getattr(self, name)
            for name in ("idle_s", "shutdown_s", "slow_reader_s")
            if getattr(self, name) is not None
        }
        if timeouts:
            table["timeouts"] = timeouts
        return table
