"""The registry of error codes (``protocol.md#error-codes``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from utterwire_schemas.resource import read

__all__ = ["ERROR_CODES", "ErrorCode"]


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row of the registry.

    ``code`` is the name on the wire; ``meaning`` is one sentence; ``retryable`` tells whether the
    same request may succeed later; ``http_status`` is the status of the answer over HTTP
    (``http.md#errors``). ``rejection`` tells whether the code is about a message that was not
    accepted: always, never (an accepted utterance failed), or either.
    """

    code: str
    meaning: str
    retryable: bool
    http_status: int
    rejection: Literal["always", "never", "either"]


#: Every code of version 1, by name, in the order of the registry.
ERROR_CODES: Mapping[str, ErrorCode] = MappingProxyType(
    {row["code"]: ErrorCode(**row) for row in read("error-codes.json")["codes"]}
)
