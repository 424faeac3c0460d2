"""How a router behaves: what is documented by AWS by default, and what is not, to be chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .signatures import Credentials

__all__ = ["LOCAL_CREDENTIALS", "Options"]

LOCAL_CREDENTIALS = Credentials("AKIDLOCALROUTER", "local-router-secret")
"""What a router takes where it verifies signatures and is told no other; no secret at all."""


@dataclass(frozen=True, slots=True)
class Options:
    """Times in seconds.

    Documented: `accept_s` (a connection is accepted within 250 ms), `ping_interval_s` and
    `missed_pongs` (a ping every 60 s, closed after 5 that were not answered), and that a close of
    the container becomes a `ModelStreamError`.

    Not documented, so that they can be chosen: `normal_close` (whether that holds for code 1000
    as well: `error`, or `end` for a plain end), `lost_container` (what becomes of a container that
    goes without a close frame), `at_input_end` (`close`: the container gets a close frame when the
    caller ends its input; `nothing`: it does not), `close_s` (how long it then has),
    `most_part_bytes`.
    """

    credentials: Credentials | None = field(default=None)
    accept_s: float = 0.25
    ping_interval_s: float = 60.0
    missed_pongs: int = 5
    normal_close: Literal["error", "end"] = "error"
    lost_container: Literal["ModelStreamError", "InternalStreamFailure"] = "InternalStreamFailure"
    at_input_end: Literal["close", "nothing"] = "close"
    close_s: float = 5.0
    most_part_bytes: int = 15 * 1024 * 1024
    slow_s: float = 0.5
    variant: str = "AllTraffic"
