"""The requirements of the specification: typed data, their clause tables, and the prose."""

from __future__ import annotations

from .catalogue import (
    LEVELS,
    PROFILES,
    ROLES,
    TRANSPORTS,
    Requirement,
    RequirementsError,
    parse,
    requirement,
    requirements,
)

__all__ = [
    "LEVELS",
    "PROFILES",
    "ROLES",
    "TRANSPORTS",
    "Requirement",
    "RequirementsError",
    "parse",
    "requirement",
    "requirements",
]
