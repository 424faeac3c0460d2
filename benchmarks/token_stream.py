"""A text as a language model gives it, and what of its speech could be had at best, and when."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from utterwire_client.speech import Chunker

__all__ = ["Best", "PacedTokens", "Uncut", "decisive_token", "tokens"]

# About a token of a language model, in characters.
_TOKEN: Final = re.compile(r"\s*\S{1,5}|\s+")


def tokens(text: str) -> list[str]:
    """The text in pieces of about a token; joined, they are the text."""
    return _TOKEN.findall(text)


class PacedTokens:
    """An async iterable of tokens, ``per_s`` a second: the first at once, the end with the last.

    ``given_at`` tells when each was given, in the time of the event loop.
    """

    def __init__(self, pieces: Sequence[str], per_s: float) -> None:
        self._pieces = pieces
        self._per_s = per_s
        self.given_at: list[float] = []

    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, piece in enumerate(self._pieces):
            # From the beginning on, so that being late now and then does not add up.
            await asyncio.sleep(max(began + number / self._per_s - loop.time(), 0.0))
            self.given_at.append(loop.time())
            yield piece


class Uncut:
    """A chunker that waits for the whole text: what an application does that streams nothing."""

    def __init__(self) -> None:
        self._fragments: list[str] = []

    def feed(self, fragment: str) -> list[str]:
        """Nothing."""
        self._fragments.append(fragment)
        return []

    def flush(self) -> list[str]:
        """All of it."""
        text = "".join(self._fragments)
        self._fragments.clear()
        return [text] if text else []


def decisive_token(pieces: Sequence[str], chunker: Chunker) -> int:
    """The token, counted from 0, with which ``chunker`` has its first sentence; the last one where
    only the end of the text tells. Raises `ValueError` without tokens."""
    if not pieces:
        raise ValueError("there are no tokens")
    for number, piece in enumerate(pieces):
        if chunker.feed(piece):
            return number
    return len(pieces) - 1


@dataclass(frozen=True, slots=True)
class Best:
    """What the text alone allows: ``count`` tokens, ``per_s`` a second, the first piece told by the
    token ``decisive`` (from 0), and ``first_block_s`` for the engine's first audio."""

    count: int
    decisive: int
    per_s: float
    first_block_s: float

    @property
    def first_byte_s(self) -> float:
        """From the first token to the first byte."""
        return self.decisive / self.per_s + self.first_block_s

    @property
    def ratio(self) -> float | None:
        """How many times sooner it can be heard than if the whole text is waited for, at most: with
        an engine that takes no time. None where the first token decides."""
        return (self.count - 1) / self.decisive if self.decisive else None
