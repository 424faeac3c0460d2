"""What a speech needs of the thing that speaks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Unpack

from utterwire_client.speech import Speaking, Speech, SpeechOptions, Text
from utterwire_client.utterance import Utterance

__all__ = ["Backend"]


class Backend(ABC):
    """Something that makes utterances; with that it speaks texts.

    Three methods are to be written. What they make are :class:`Utterance` objects, each around an
    ``Inbox`` that the backend fills and ends. The speeches of a backend end with it: who writes
    one calls :meth:`end_speeches` when it is closed.
    """

    def __init__(self) -> None:
        self.speeches: set[Speaking] = set()
        #: Whether the endpoint was found to refuse requests for the times of words.
        self.refuses_marks = False

    @abstractmethod
    async def open(self) -> None:
        """See to it that :meth:`synthesize` can be called: connect, or connect again.

        Raises an :class:`~utterwire_client.errors.UtterwireError`, ``retryable`` or not.
        """

    @abstractmethod
    def synthesize(
        self,
        text: str,
        *,
        voice: str | None,
        speed: float | None,
        sample_rate: int | None,
        format: str | None,
        marks: Sequence[str],
    ) -> Utterance:
        """Ask for an utterance, without waiting; the fields are those of
        ``protocol.md#synthesize``.

        Raises :class:`RequestInvalid`, or another error if it was not asked for.
        """

    @abstractmethod
    async def interrupt(self, utterances: Sequence[Utterance]) -> bool:
        """Stop utterances that nobody reads any more; returns when they have stopped.

        False if the endpoint could not be told, and was disconnected from instead.
        """

    def speak(self, text: Text, **options: Unpack[SpeechOptions]) -> Speech:
        """Speak a text, or fragments of one as they come; iterate over what is returned.

        ``options`` are those of :class:`SpeechOptions`. Raises :class:`RequestInvalid`.
        """
        return Speech(self, text, options)

    async def end_speeches(self) -> None:
        """End every speech that still runs, and wait until it has. Whoever reads one that is not
        whole gets :class:`SpeechIncomplete`."""
        await asyncio.gather(*(speaking.end() for speaking in tuple(self.speeches)))
