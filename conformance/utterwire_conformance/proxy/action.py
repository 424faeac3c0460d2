"""What a tamper can have done to a session: frames to either side, a pause, an end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from utterwire_conformance.wire import Frame

__all__ = ["Action", "CloseSession", "CutSession", "Pause", "ToClient", "ToEndpoint"]


@dataclass(frozen=True, slots=True)
class ToEndpoint:
    """Send `frame` to the endpoint. Without a mask it gets one, unless it goes `as_is`."""

    frame: Frame
    as_is: bool = False


@dataclass(frozen=True, slots=True)
class ToClient:
    """Send `frame` to the client."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait `seconds` before the next thing from the same side is looked at."""

    seconds: float

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise ValueError("a pause is not negative")


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Send the client a close frame, as if the endpoint had; the endpoint is hung up on."""

    code: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CutSession:
    """End both transports without a close frame."""


Action: TypeAlias = ToEndpoint | ToClient | Pause | CloseSession | CutSession
