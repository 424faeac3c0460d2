"""Kokoro-82M: speech in windows, so that the first sound comes before a sentence is finished."""

from utterwire_server.engines.kokoro.acoustics import Acoustics, Prepared
from utterwire_server.engines.kokoro.statistics import Statistics

__all__ = ["Acoustics", "Prepared", "Statistics"]
