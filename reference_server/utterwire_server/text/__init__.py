"""The text front end: from a request's text to phonemes that keep the way back to it."""

from __future__ import annotations

from utterwire_server.text.segment import MAX_PHONEMES, Segment, SpokenWord

__all__ = ["MAX_PHONEMES", "Segment", "SpokenWord"]
