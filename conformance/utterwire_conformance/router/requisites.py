"""What the router needs to run, and what to say where that is missing."""

from __future__ import annotations

import importlib.util
import sys
from typing import Final

__all__ = ["missing"]

_LEAST: Final = (3, 12)
_PACKAGES: Final = {
    "h2": "h2",
    "h11": "h11",
    "smithy_aws_event_stream": "smithy-aws-event-stream",
    "trustme": "trustme",
}


def missing() -> str | None:
    """Why there can be no router here, in one line, or None."""
    if sys.version_info < _LEAST:
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"it needs Python 3.12 or newer, as the AWS SDK does; this is {running}"
    lacking = [shown for name, shown in _PACKAGES.items() if not importlib.util.find_spec(name)]
    if lacking:
        return f"it needs {', '.join(lacking)}: pip install 'utterwire[aws]'"
    return None
