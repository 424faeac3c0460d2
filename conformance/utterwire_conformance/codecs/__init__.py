"""Coded audio: readers of the framing of each format, and a decoder.

The readers are the suite's own and strict, where decoders are made to play whatever they get.
"""

from . import adts, g711, mpeg, ogg, riff
from .decoder import DECODER_MISSING, Heard, decode, decoder_is_there
from .framing import FramingError

__all__ = [
    "DECODER_MISSING",
    "FramingError",
    "Heard",
    "adts",
    "decode",
    "decoder_is_there",
    "g711",
    "mpeg",
    "ogg",
    "riff",
]
