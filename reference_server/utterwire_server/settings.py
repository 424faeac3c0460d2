"""What an operator may set, with the values that hold otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from utterwire_server.encoders import FORMATS

__all__ = ["PROFILES", "Settings"]

PROFILES: frozenset[str] = frozenset(
    {"core", "formats", "http", "interrupt", "load", "negotiate", "sagemaker", "sse", "timing"}
)

# Below these an endpoint does not conform (`protocol.md#limits`).
_FLOORS: dict[str, int] = {
    "max_text_chars": 4_096,
    "max_message_bytes": 65_536,
    "max_request_id_chars": 128,
    "max_waiting": 8,
}
_MOST: dict[str, int] = {
    "max_text_chars": 1_000_000,
    "max_message_bytes": 16_777_216,
    "max_request_id_chars": 4_096,
    "max_waiting": 10_000,
    "max_sessions": 100_000,
    "max_queued_chars": 1_000_000_000,
    # Twice that in the kernel and one chunk of 64 KiB make the 256 KiB that may wait unsent.
    "send_buffer_bytes": 98_304,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits and timeouts of one server. Names ending in ``_s`` are seconds.

    ``formats`` are offered besides `pcm_s16le`; None is all that this installation can make.

    ``max_sessions`` counts WebSocket sessions and HTTP requests together, these once they have come
    whole. ``max_queued_chars`` and ``max_queued_work_s`` bound what all of them together have had
    accepted and is not spoken yet: in characters, and in seconds that the engine will probably
    work on it, of which one session's count up to an eighth of the bound. ``send_buffer_bytes``
    is asked of the kernel, which on Linux takes twice as much.

    ``metrics``: whether there is a `/metrics`. ``ui``: whether there is a page at `/`, and
    ``allowed_endpoints``: addresses of other endpoints that it may speak through.

    :raises ValueError: if a value cannot be, naming it and what it may be.
    """

    profiles: frozenset[str] = field(default=PROFILES)
    formats: tuple[str, ...] | None = None
    max_text_chars: int = 4_096
    max_message_bytes: int = 1_048_576
    max_request_id_chars: int = 128
    max_waiting: int = 16
    max_sessions: int = 256
    max_queued_chars: int = 1_000_000
    max_queued_work_s: float = 120.0
    idle_timeout_s: float = 300.0
    stall_timeout_s: float = 60.0
    shutdown_timeout_s: float = 20.0
    block_timeout_s: float = 60.0
    body_timeout_s: float = 30.0
    send_buffer_bytes: int = 65_536
    metrics: bool = True
    ui: bool = True
    allowed_endpoints: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = sorted(self.profiles - PROFILES)
        if unknown:
            known = ", ".join(sorted(PROFILES))
            raise ValueError(f"no profile {unknown[0]!r}; this server has {known}")
        if "core" not in self.profiles:
            raise ValueError("profiles without core; every endpoint has it")
        for format in self.formats or ():
            if format not in FORMATS:
                raise ValueError(f"no format {format!r}; there are {', '.join(FORMATS)}")
        if self.formats is not None and "formats" not in self.profiles:
            raise ValueError("formats are named, but the profile formats is not claimed")
        for name, most in _MOST.items():
            value = getattr(self, name)
            least = _FLOORS.get(name, 1)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}; it must be {least} to {most}")
        if self.max_queued_chars < self.max_text_chars:
            raise ValueError(
                f"max_queued_chars is {self.max_queued_chars}; it must be at least max_text_chars,"
                f" {self.max_text_chars}"
            )
        if not 0 < self.max_queued_work_s < math.inf:
            raise ValueError(f"max_queued_work_s is {self.max_queued_work_s:g}; it must be above 0")
        for name in ("idle", "stall", "block", "body"):
            value = getattr(self, f"{name}_timeout_s")
            if not 0 < value < math.inf:
                raise ValueError(f"{name}_timeout_s is {value:g}; it must be above 0")
        if self.allowed_endpoints and not self.ui:
            raise ValueError("endpoints are allowed for the page, but there is no page")
        if not 0 <= self.shutdown_timeout_s < math.inf:
            raise ValueError(
                f"shutdown_timeout_s is {self.shutdown_timeout_s:g}; it must be 0 or more"
            )
