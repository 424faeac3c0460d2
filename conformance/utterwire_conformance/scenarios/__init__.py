"""The scenarios: what is played on an endpoint, so that judges have something to look at."""

from __future__ import annotations

from . import probe
from .probe import probed

__all__ = ["probe", "probed"]
