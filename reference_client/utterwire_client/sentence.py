"""The sentences of a speech, and what befalls each."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from utterwire_client.errors import UtterwireError
from utterwire_client.events import Event
from utterwire_client.utterance import Utterance

__all__ = ["Lost", "Sentence", "Skipped", "SpeechEvent", "Spoken"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of what was given to ``speak``.

    ``text`` is the exact slice of the input, from the code point ``start`` on; all sentences
    joined are the input. ``spoken`` is what the endpoint is asked to say: without markup, and as
    the gate has it; None if it is asked for nothing. ``index`` counts from 0.
    """

    index: int
    start: int
    text: str
    spoken: str | None

    @property
    def end(self) -> int:
        """Where it ends in the input, in code points, exclusive."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came of a sentence's utterance: ``Start``, ``Audio``, ``Marks`` or ``Complete``.

    A ``Start`` that comes again belongs to the same sentence, asked for anew; no audio of it had
    been yielded.
    """

    sentence: Sentence
    utterance: Utterance
    event: Event


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sentence that is not spoken: ``unspeakable`` if there is nothing to say in it, ``dropped``
    if the gate said so."""

    sentence: Sentence
    reason: Literal["unspeakable", "dropped"]


@dataclass(frozen=True, slots=True)
class Lost:
    """A sentence that was to be spoken and was not, or not to its end, with the reason.

    ``audio_bytes`` counts what of it was yielded.
    """

    sentence: Sentence
    error: UtterwireError
    audio_bytes: int


#: What iterating over a speech yields.
SpeechEvent: TypeAlias = Spoken | Skipped | Lost
