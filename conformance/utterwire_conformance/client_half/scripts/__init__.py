"""The scripts, by area; importing this registers them."""

from __future__ import annotations

from . import ending, http, interrupt, negotiate, silence, speaking, sse, trying

__all__ = ["ending", "http", "interrupt", "negotiate", "silence", "speaking", "sse", "trying"]
