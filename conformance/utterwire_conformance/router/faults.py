"""What can be made to go wrong on purpose, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .errors import (
    CallFailed,
    StreamFailed,
    access_denied,
    container_refused,
    internal,
    invalid_input,
    throttled,
    unavailable,
)

__all__ = ["FAULTS", "Fault", "Plan", "UnknownFault"]

_RESETS: Final = ("connection-reset", "stream-reset", "goaway")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `refuses` makes the answer of a call that is not let in; `breaks` the exception
    that ends a stream; `status` is what `DescribeEndpoint` says. The others are known by name."""

    name: str
    what: str
    refuses: Callable[[], CallFailed] | None = None
    breaks: Callable[[], StreamFailed] | None = None
    status: str | None = None

    @property
    def comes_in_a_stream(self) -> bool:
        """Whether it comes after some parts of a stream, not when the stream is opened."""
        return self.breaks is not None or self.name in _RESETS


def _fault_list() -> tuple[Fault, ...]:
    return (
        Fault("throttled", "each call is answered with 429 ThrottlingException", refuses=throttled),
        Fault(
            "input-validation-error",
            "each call is answered with 400 InputValidationError",
            refuses=lambda: invalid_input("the input fails to satisfy the constraints (made up)"),
        ),
        Fault(
            "model-error",
            "each call is answered with 424 ModelError",
            refuses=lambda: container_refused("the container failed (made up)", status=500),
        ),
        Fault(
            "internal-server-error",
            "each call is answered with 500 InternalServerError",
            refuses=lambda: internal("the request processing has failed (made up)"),
        ),
        Fault(
            "service-unavailable",
            "each call is answered with 503 ServiceUnavailableError",
            refuses=lambda: unavailable("the service is unavailable, call again (made up)"),
        ),
        Fault(
            "access-denied",
            "each call is answered with 403 AccessDeniedException",
            refuses=lambda: access_denied(
                "AccessDeniedException", "not authorized to perform: sagemaker:InvokeEndpoint"
            ),
        ),
        Fault(
            "expired-token",
            "each call is answered with 403 ExpiredTokenException",
            refuses=lambda: access_denied(
                "ExpiredTokenException", "The security token included in the request is expired"
            ),
        ),
        Fault(
            "model-stream-error",
            "a stream ends with ModelStreamError, code 1011, as if the container had closed",
            breaks=lambda: StreamFailed("ModelStreamError", "made up", "1011"),
        ),
        Fault(
            "internal-stream-failure",
            "a stream ends with InternalStreamFailure",
            breaks=lambda: StreamFailed("InternalStreamFailure", "made up"),
        ),
        Fault("connection-reset", "the TCP connection of a stream is reset"),
        Fault("stream-reset", "a stream is reset, and its connection lives on"),
        Fault("goaway", "the connection gets GOAWAY and is then closed, streams and all"),
        Fault(
            "missed-pongs",
            "the container's pongs count as missed: closed after so many (see --ping-interval)",
        ),
        Fault("slow-parts", "each part waits before it goes to the caller (see --slow-ms)"),
        Fault(
            "endpoint-missing",
            "DescribeEndpoint knows no endpoint, calls to it get 400",
            refuses=lambda: invalid_input("Endpoint of account 000000000000 not found."),
            status="missing",
        ),
        Fault(
            "endpoint-creating",
            "DescribeEndpoint says Creating, calls to it get 400",
            refuses=lambda: invalid_input("Endpoint of account 000000000000 is not InService."),
            status="Creating",
        ),
        Fault(
            "endpoint-failed",
            "DescribeEndpoint says Failed with a reason, calls to it get 400",
            refuses=lambda: invalid_input("Endpoint of account 000000000000 is not InService."),
            status="Failed",
        ),
    )


FAULTS: Final[dict[str, Fault]] = {fault.name: fault for fault in _fault_list()}
"""Every fault by its name."""


class UnknownFault(ValueError):
    """There is no fault of that name."""


class Plan:
    """Which faults come, after how many parts of a stream, and how often.

    `times` is how many calls or streams a fault hits; None for all.
    """

    def __init__(self, *names: str, after: int = 3, times: int | None = None) -> None:
        for name in names:
            if name not in FAULTS:
                raise UnknownFault(f"no fault is called {name}; --list shows them all")
        self.faults = tuple(FAULTS[name] for name in dict.fromkeys(names))
        self.after = after
        self.times = times
        self._hits = 0

    def has(self, name: str) -> bool:
        """Whether this fault is on, however often it has come."""
        return any(fault.name == name for fault in self.faults)

    def refusal(self) -> CallFailed | None:
        """What to answer to a call, where it is not to be let in."""
        for fault in self.faults:
            if fault.refuses is not None and self._take():
                return fault.refuses()
        return None

    def breach(self, parts: int) -> Fault | None:
        """The fault that ends a stream which has carried so many parts to the caller."""
        if parts < self.after:
            return None
        return next((f for f in self.faults if f.comes_in_a_stream and self._take()), None)

    @property
    def status(self) -> str | None:
        """What `DescribeEndpoint` says, where that is made up; `missing` for no endpoint."""
        return next((fault.status for fault in self.faults if fault.status is not None), None)

    def _take(self) -> bool:
        if self.times is not None and self._hits >= self.times:
            return False
        self._hits += 1
        return True
