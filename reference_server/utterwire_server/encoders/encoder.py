"""What an encoder is: samples go in, the bytes of one format come out."""

from __future__ import annotations

from abc import ABC, abstractmethod

from utterwire_server.engines.engine import Samples

__all__ = ["Encoder"]


class Encoder(ABC):
    """Encodes one utterance, in order, at one sample rate. It is used by one thread at a time."""

    @abstractmethod
    def encode(self, samples: Samples) -> bytes:
        """The bytes that ``samples``, mono float32 of shape ``(n,)``, complete; often none yet.

        Samples beyond full scale are clipped; one that is not a number is silence.
        """

    def finish(self) -> bytes:
        """The tail: all that is left when no more samples follow. Called once, at the end."""
        return b""

    def close(self) -> None:  # noqa: B027 - most encoders hold nothing
        """Free what the encoder holds, finished or not."""
