"""What an endpoint offers, and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from utterwire_protocol.classification import MAX_CHUNK_BYTES
from utterwire_protocol.jsontext import JsonObject

__all__ = ["EndpointOptions", "Limits"]

_PROFILES = frozenset(
    {
        "core",
        "formats",
        "http",
        "interrupt",
        "load",
        "negotiate",
        "sagemaker",
        "sse",
        "timing",
    }
)
_TELEPHONE_FORMATS = frozenset({"mulaw", "alaw"})


def _name(what: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a string that is not empty, not {value!r}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{what} must not hold a lone surrogate")


def _finite(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of an endpoint, none short of its floor (``protocol.md#limits``).

    Text and ids are counted in code points, messages in bytes, ``max_waiting`` in utterances
    behind the running one, ``idle_timeout_s`` in seconds; speeds are factors. Raises ``ValueError``
    for a value short of its floor.
    """

    max_text_chars: int = 4096
    max_message_bytes: int = 1_048_576
    max_request_id_chars: int = 128
    max_waiting: int = 16
    idle_timeout_s: float = 300.0
    min_speed: float = 0.5
    max_speed: float = 2.0

    def __post_init__(self) -> None:
        for name, floor in (
            ("max_text_chars", 4096),
            ("max_message_bytes", 65_536),
            ("max_request_id_chars", 128),
            ("max_waiting", 8),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < floor:
                raise ValueError(f"{name} must be an integer of {floor} or more, not {value!r}")
        # An id is echoed in control messages, which have a limit of their own.
        if self.max_request_id_chars > 4096:
            raise ValueError("max_request_id_chars must be 4096 or less")
        for name in ("idle_timeout_s", "min_speed", "max_speed"):
            _finite(name, getattr(self, name))
        if self.idle_timeout_s <= 0:
            raise ValueError("idle_timeout_s must be more than 0")
        if not 0 < self.min_speed <= 0.5:
            raise ValueError("min_speed must be more than 0, and 0.5 or less")
        if self.max_speed < 2.0:
            raise ValueError("max_speed must be 2.0 or more")

    def as_fields(self) -> JsonObject:
        """The members of ``limits`` in a ``session`` message."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """What an endpoint offers in one session.

    ``voices`` and ``default_voice``: names, compared exactly. ``formats``: names of
    ``protocol.md#encoded-audio``. ``sample_rates``: in Hz, for every format that
    ``format_sample_rates`` does not give rates of its own. ``profiles``: what is claimed; ``core``
    always is. ``shutdown_s``: seconds that a shutdown may drain. ``chunk_bytes``: audio is cut into
    chunks of at most this size, 2 to 65,536. ``session_id``: told in ``session``, for logs.

    Raises ``ValueError`` where these do not fit together.
    """

    voices: tuple[str, ...]
    default_voice: str = ""
    formats: tuple[str, ...] = ("pcm_s16le",)
    default_format: str = "pcm_s16le"
    sample_rates: tuple[int, ...] = (24_000,)
    default_sample_rate: int = 24_000
    format_sample_rates: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    profiles: frozenset[str] = frozenset({"core"})
    limits: Limits = field(default_factory=Limits)
    shutdown_s: float = 20.0
    chunk_bytes: int = 8192
    session_id: str = "session"

    def __post_init__(self) -> None:
        for what, names in (("voices", self.voices), ("formats", self.formats)):
            if not names or len(set(names)) != len(names):
                raise ValueError(f"{what} must name at least one, each once")
            for name in names:
                _name(f"each of {what}", name)
        if not self.default_voice:
            object.__setattr__(self, "default_voice", self.voices[0])
        if self.default_voice not in self.voices:
            raise ValueError(f"default_voice {self.default_voice!r} is not among voices")
        if self.default_format not in self.formats:
            raise ValueError(f"default_format {self.default_format!r} is not among formats")
        for rates in (self.sample_rates, *self.format_sample_rates.values()):
            if not rates or len(set(rates)) != len(rates):
                raise ValueError("sample rates must name at least one, each once")
            if any(isinstance(rate, bool) or not isinstance(rate, int) for rate in rates):
                raise ValueError("sample rates must be integers")
            if min(rates) < 1:
                raise ValueError("sample rates must be 1 Hz or more")
        if self.default_sample_rate not in self.sample_rates:
            raise ValueError(f"default_sample_rate {self.default_sample_rate} is not offered")
        object.__setattr__(self, "profiles", frozenset(self.profiles) | {"core"})
        if unknown := self.profiles - _PROFILES:
            raise ValueError(f"profiles: version 1 has no {sorted(unknown)[0]!r}")
        _finite("shutdown_s", self.shutdown_s)
        if self.shutdown_s < 0:
            raise ValueError("shutdown_s must be 0 or more")
        if isinstance(self.chunk_bytes, bool) or not 2 <= self.chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunk_bytes must be 2 to {MAX_CHUNK_BYTES}")
        _name("session_id", self.session_id)

    def rates_for(self, format: str) -> tuple[int, ...]:
        """The sample rates offered for ``format``, in Hz."""
        return self.format_sample_rates.get(format, self.sample_rates)

    def default_rate_for(self, format: str) -> int:
        """The sample rate of a request that names none: 8000 Hz for G.711 where offered."""
        rates = self.rates_for(format)
        preferred = 8_000 if format in _TELEPHONE_FORMATS else self.default_sample_rate
        return preferred if preferred in rates else rates[0]
