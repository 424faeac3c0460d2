"""Spans of OpenTelemetry, one for each utterance, with the trace of whoever asked for it.

Spans go where the process's tracer provider sends them: `configure` sets one up from the variables
of OpenTelemetry, and an application that has its own keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["trace_headers"]

_HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


def trace_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of an ASGI connection that tell its trace (W3C Trace Context)."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = _HEADERS.get(name)
        if key is not None:
            text = value.decode("latin-1")
            # `tracestate` may come in several parts, which are one list.
            found[key] = f"{found[key]},{text}" if key == "tracestate" and key in found else text
    return found
