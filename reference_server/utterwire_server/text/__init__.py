"""The text front end: from a request's text to phonemes that keep the way back to it."""

from __future__ import annotations

from utterwire_server.text.front_end import FrontEnd, LanguageError
from utterwire_server.text.languages import LANGUAGES, Language
from utterwire_server.text.segment import MAX_PHONEMES, Segment, SpokenWord

__all__ = [
    "LANGUAGES",
    "MAX_PHONEMES",
    "FrontEnd",
    "Language",
    "LanguageError",
    "Segment",
    "SpokenWord",
]
