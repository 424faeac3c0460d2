"""What an endpoint is known to claim, as judges need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class EndpointClaims(Claims):
    """`Claims` with the limits that do not concern a single message.

    `max_message_bytes` in bytes; `idle_s` and `shutdown_s` in seconds, the endpoint's own limits.
    None means not known.
    """

    max_message_bytes: int | None = None
    idle_s: float | None = None
    shutdown_s: float | None = None

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
        )

    def to_table(self) -> dict[str, Any]:
        """The same claims as a table of the endpoint file."""
        table: dict[str, Any] = {"profiles": sorted(self.profiles)}
        table |= {name: sorted(getattr(self, name)) for name in _SETS if getattr(self, name)}
        for name in _NUMBERS:
            if getattr(self, name) is not None:
                table[name] = getattr(self, name)
        timeouts = {
            name: getattr(self, name)
            for name in ("idle_s", "shutdown_s")
            if getattr(self, name) is not None
        }
        if timeouts:
            table["timeouts"] = timeouts
        return table
