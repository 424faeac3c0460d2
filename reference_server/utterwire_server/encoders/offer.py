"""The formats of version 1: at which rates each is offered, and what makes it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from utterwire_server.encoders.encoder import Encoder
from utterwire_server.encoders.g711 import ALAW, MULAW, G711Encoder
from utterwire_server.encoders.pcm import PcmEncoder, WavEncoder

__all__ = [
    "FORMATS",
    "RESAMPLED_RATES",
    "FormatMissing",
    "is_heavy",
    "make_encoder",
    "media_type",
    "offer",
    "resamples",
]

FORMATS: Final[tuple[str, ...]] = ("pcm_s16le", "wav", "mp3", "aac", "opus", "mulaw", "alaw")
"""Every format there is (`protocol.md#encoded-audio`)."""

RESAMPLED_RATES: Final[tuple[int, ...]] = (
    *(24_000, 8_000, 16_000, 48_000),
    *(11_025, 12_000, 22_050, 32_000, 44_100),
)
"""Rates in hertz that any engine's audio is brought to, the usual ones first."""

_BASE: Final = "pcm_s16le"
_EXTRA: Final = "pip install 'utterwire[encoders]'"
# What each encoder takes, where it does not take every rate: ISO/IEC 13818-3 and its extension
# to low rates, ISO/IEC 14496-3 table 1.18, RFC 6716 section 2.
_MPEG: Final = frozenset({8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000})
_TAKES: Final[Mapping[str, frozenset[int]]] = MappingProxyType(
    {
        "mp3": _MPEG,
        "aac": _MPEG | {7_350, 64_000, 88_200, 96_000},
        "opus": frozenset({8_000, 12_000, 16_000, 24_000, 48_000}),
    }
)
# The rate of a request that names none (`protocol.md#synthesize`).
_DEFAULT_RATE: Final = 24_000
_DEFAULT_RATES: Final[Mapping[str, int]] = MappingProxyType({"mulaw": 8_000, "alaw": 8_000})
_MEDIA_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pcm_s16le": "audio/pcm;rate={rate};channels=1",
        "wav": "audio/wav",
        "mp3": "audio/mpeg",
        "aac": "audio/aac",
        "opus": "audio/ogg;codecs=opus",
        "mulaw": "audio/PCMU;rate={rate}",
        "alaw": "audio/PCMA;rate={rate}",
    }
)


class FormatMissing(ValueError):
    """A format was asked for that cannot be made here; the message is one line for people."""


@cache
def _is_there(library: str) -> bool:
    try:
        importlib.import_module(library)
    except ImportError:
        return False
    return True


def resamples() -> bool:
    """Whether audio can be brought to a rate that the engine does not speak at."""
    return _is_there("soxr")


def offer(
    wanted: Iterable[str] | None, engine_rates: Iterable[int]
) -> Mapping[str, tuple[int, ...]]:
    """The rates, in hertz, of each format that can be offered; `pcm_s16le` is always among them.

    ``wanted`` names formats; None is all that this installation can make. ``engine_rates`` are
    what the engine speaks at by itself.

    :raises FormatMissing: if a format that is wanted cannot be made, saying what is missing.
    """
    engine = tuple(engine_rates)
    resampled = RESAMPLED_RATES if resamples() else ()
    rates = (*engine, *(rate for rate in resampled if rate not in engine))
    offered: dict[str, tuple[int, ...]] = {_BASE: rates}
    for name in FORMATS if wanted is None else wanted:
        missing = _missing(name, rates)
        if missing is None:
            takes = _TAKES.get(name)
            offered[name] = tuple(rate for rate in rates if takes is None or rate in takes)
        elif wanted is not None:
            raise FormatMissing(f"format {name} cannot be offered: {missing}")
    return MappingProxyType(offered)


def _missing(name: str, rates: tuple[int, ...]) -> str | None:
    """Why a format cannot be made; None if it can."""
    if name in _TAKES and not _is_there("av"):
        return f"av is not installed; {_EXTRA}"
    rate = _DEFAULT_RATES.get(name, _DEFAULT_RATE)
    if rate not in rates:
        return f"the engine has no {rate} Hz, and soxr is not installed; {_EXTRA}"
    return None


def make_encoder(name: str, sample_rate: int) -> Encoder:
    """An encoder of one utterance in the format ``name``, at ``sample_rate`` Hz."""
    match name:
        case "pcm_s16le":
            return PcmEncoder()
        case "wav":
            return WavEncoder(sample_rate)
        case "mulaw":
            return G711Encoder(MULAW)
        case "alaw":
            return G711Encoder(ALAW)
    # Only where it is installed is any of these offered.
    from utterwire_server.encoders.compressed import RECIPES, CompressedEncoder

    return CompressedEncoder(RECIPES[name], sample_rate)


def is_heavy(name: str) -> bool:
    """Whether encoding the format computes too much for an event loop."""
    return name in _TAKES


def media_type(name: str, sample_rate: int) -> str:
    """The `Content-Type` of a format (`http.md#response`)."""
    return _MEDIA_TYPES[name].format(rate=sample_rate)
