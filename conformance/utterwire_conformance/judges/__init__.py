"""The judges: pure functions from what was recorded to a verdict and its reasons."""

from __future__ import annotations

from . import audio

__all__ = ["audio"]
