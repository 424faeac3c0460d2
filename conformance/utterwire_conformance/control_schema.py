"""Whether a control message satisfies its schema, found out once for all who ask."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from utterwire_schemas import validator

from .classification import classify

__all__ = ["satisfies_schema"]

_KEPT: Final = 8_192
_KEPT_BYTES: Final = 1_024


def satisfies_schema(data: bytes) -> bool:
    """Whether a chunk holds an object that is valid by the schema of control messages."""
    return _kept(data) if len(data) <= _KEPT_BYTES else _satisfies(data)


def _satisfies(data: bytes) -> bool:
    fields = classify(data, "text").fields
    return fields is not None and validator("control-message").is_valid(dict(fields))


# Validating takes long, and the oracle asks as well as the judges.
_kept = lru_cache(maxsize=_KEPT)(_satisfies)
