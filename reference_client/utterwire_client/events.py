"""What an utterance yields, in order: one :class:`Start`, then :class:`Audio` and :class:`Marks`,
then one :class:`Complete`. Any other end is an exception (see :mod:`utterwire_client.errors`)."""

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["SAMPLE_BYTES", "Audio", "Complete", "EndpointInfo", "Event", "Marks", "Start", "Word"]

#: Bytes per sample of the formats whose length in seconds follows from their bytes.
SAMPLE_BYTES = {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}


@dataclass(frozen=True, slots=True)
class Start:
    """The utterance is running (``protocol.md#synthesis-start``).

    ``sample_rate`` in Hz. ``implied`` is True where the endpoint sent no ``synthesis_start``: the
    values are then what was asked for, or the defaults of the specification, and ``voice`` may be
    None.
    """

    sample_rate: int
    format: str
    voice: str | None
    implied: bool = False


@dataclass(frozen=True, slots=True)
class Audio:
    """A piece of audio, never empty; for PCM always whole samples, however it was cut."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word: its text, when it is heard (seconds of this utterance), and where it stands
    in the text (code points, end exclusive)."""

    text: str
    start_s: float
    end_s: float
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class Marks:
    """When words are spoken (``protocol.md#marks``); comes no later than their audio."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """The endpoint has sent all audio (``protocol.md#synthesis-complete``).

    ``received_bytes`` counts what arrived; the other numbers are the endpoint's own, None where it
    gave none. ``duration_s`` is the length of the speech in seconds: the endpoint's word, else
    reckoned from the bytes of 16-bit PCM, else None.
    """

    received_bytes: int
    duration_s: float | None = None
    elapsed_s: float | None = None
    audio_bytes: int | None = None
    characters: int | None = None

    @property
    def missing_bytes(self) -> int:
        """How much of the audio that the endpoint says it sent did not come."""
        return max(0, (self.audio_bytes or 0) - self.received_bytes)


#: What iterating over an utterance yields.
Event: TypeAlias = Start | Audio | Marks | Complete


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """What the endpoint said of itself in ``session`` (profile ``negotiate``).

    ``limits`` has the keys of ``protocol.md#session``; a missing key means no stated limit.
    """

    protocol_version: int
    session_id: str | None
    profiles: frozenset[str]
    limits: dict[str, float]
    voices: tuple[str, ...]
    formats: tuple[str, ...]
    sample_rates: tuple[int, ...]
