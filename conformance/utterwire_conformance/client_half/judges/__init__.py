"""The judges of clients: pure functions from what a scripted endpoint recorded to a verdict."""

from __future__ import annotations

from . import ending, playing, sending, trying

__all__ = ["ending", "playing", "sending", "trying"]
