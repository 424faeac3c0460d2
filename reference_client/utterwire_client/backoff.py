"""How long to wait before trying again (``protocol.md#error-codes``)."""

import random
from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Waits that double with each try and are partly random, or as long as the endpoint says.

    ``first_s`` and ``most_s`` bound the waits of its own, in seconds. ``uniform`` returns a random
    number between its arguments.
    """

    def __init__(
        self,
        *,
        first_s: float = 0.25,
        most_s: float = 8.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._next_s = first_s
        self._most_s = most_s
        self._uniform = uniform

    def wait_s(self, told_s: float | None = None) -> float:
        """Seconds to wait before the next try; ``told_s`` is what the endpoint said, if it did."""
        if told_s is not None:
            # All that were told the same should not come back in the same moment.
            return told_s * self._uniform(1.0, 1.1)
        own = self._uniform(self._next_s / 2, self._next_s)
        self._next_s = min(2 * self._next_s, self._most_s)
        return own
