"""What a caller of the router is told when something fails, as AWS names it.

Sources: the models of `sagemaker-runtime` and `sagemaker-runtime-http2` for names and statuses,
`sagemaker.md#closing` for what they mean. What AWS does not document is said so where it is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "BIDIRECTIONAL",
    "CLASSIC",
    "CONTROL",
    "CallFailed",
    "StreamFailed",
    "access_denied",
    "container_refused",
    "internal",
    "invalid_input",
    "throttled",
    "unavailable",
]

BIDIRECTIONAL: Final = "bidirectional"
"""The HTTP/2 operation, `InvokeEndpointWithBidirectionalStream`."""

CLASSIC: Final = "classic"
"""`InvokeEndpoint` and `InvokeEndpointWithResponseStream`."""

CONTROL: Final = "control"
"""`DescribeEndpoint`, which belongs to another service."""

# The three services name the same failures differently.
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "invalid-input": {
        BIDIRECTIONAL: "InputValidationError",
        CLASSIC: "ValidationError",
        CONTROL: "ValidationException",
    },
    "internal": {
        BIDIRECTIONAL: "InternalServerError",
        CLASSIC: "InternalFailure",
        CONTROL: "InternalFailure",
    },
    "unavailable": {
        BIDIRECTIONAL: "ServiceUnavailableError",
        CLASSIC: "ServiceUnavailable",
        CONTROL: "ServiceUnavailable",
    },
}


@dataclass(eq=False)
class CallFailed(Exception):
    """A call is answered with an error instead of a stream.

    `kind` is a key of the table of names, or itself the name, alike in all operations. `status` is
    that of HTTP; `fields` stand in the body beside the message.
    """

    kind: str
    status: int
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    def name(self, operation: str) -> str:
        """What the error is called in answers of this operation."""
        return _NAMES.get(self.kind, {}).get(operation, self.kind)

    def answer(self, operation: str) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body of the answer."""
        name = self.name(operation)
        body: dict[str, Any] = {"Message": self.message, **self.fields}
        if operation == CONTROL:
            body = {"__type": name, "message": self.message}
        headers = [("content-type", "application/json"), ("x-amzn-errortype", name)]
        return self.status, headers, json.dumps(body).encode()


@dataclass(eq=False)
class StreamFailed(Exception):
    """A stream that had begun ends with an exception of its model.

    `name` is `ModelStreamError` or `InternalStreamFailure`; `code` is there with the first: the
    close code of the container (`sagemaker.md#closing`).
    """

    name: str
    message: str
    code: str | None = None

    def __str__(self) -> str:
        told = self.name if self.code is None else f"{self.name} {self.code}"
        return f"{told}: {self.message}" if self.message else told

    def body(self) -> dict[str, str]:
        """The payload of the exception."""
        body = {"Message": self.message}
        return body if self.code is None else body | {"ErrorCode": self.code}


def invalid_input(message: str) -> CallFailed:
    """400: the call was malformed."""
    return CallFailed("invalid-input", 400, message, {"ErrorCode": "VALIDATION_ERROR"})


def access_denied(name: str, message: str) -> CallFailed:
    """403: who calls may not, or is not who they say."""
    return CallFailed(name, 403, message)


def throttled(message: str = "Rate exceeded") -> CallFailed:
    """429: too many calls. AWS documents throttling for all APIs, and no shape of it here."""
    return CallFailed("ThrottlingException", 429, message)


def container_refused(message: str, *, status: int = 0, log: str = "") -> CallFailed:
    """424: the container did not take the call, or failed before it answered."""
    fields = {"OriginalStatusCode": status, "OriginalMessage": message, "LogStreamArn": log}
    return CallFailed("ModelError", 424, message, fields)


def internal(message: str) -> CallFailed:
    """500: the platform failed."""
    return CallFailed("internal", 500, message)


def unavailable(message: str) -> CallFailed:
    """503: the platform has no room."""
    return CallFailed("unavailable", 503, message)
