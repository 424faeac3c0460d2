"""Where sound begins in audio: what makes of the first byte the first sound.

The definition: windows of 10 ms, one each millisecond, the mean taken out of each; sound begins
where their level reaches -40 dBFS and stays there for 50 ms. The moment is the middle of the first
such window, so that a sudden sound is found where it is, to half a window.
"""

import math
from array import array
from collections import deque
from typing import Final

__all__ = ["SoundFinder"]

_WINDOW_S: Final = 0.010
_HOP_S: Final = 0.001
_HELD_S: Final = 0.050
_LEVEL: Final = 10 ** (-40 / 20) * 32768


class SoundFinder:
    """Looks for the first sound in 16-bit PCM, fed in pieces of any size.

    ``at_s`` is where it begins, in seconds from the first sample; None as long as it is not
    decided. Audio that is fed after that costs nothing.
    """

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate
        self._hop = max(1, round(sample_rate * _HOP_S))
        self._hops = round(_WINDOW_S / _HOP_S)
        self._held = round(_HELD_S / _HOP_S)
        # Of each of the last hops: how many samples, their sum, and that of their squares.
        self._sums: deque[tuple[int, int]] = deque(maxlen=self._hops)
        self._rest = array("h")
        self._odd = b""
        self._count = 0  # hops
        self._loud = 0  # windows above the level, one after the other
        self.at_s: float | None = None

    def feed(self, data: bytes) -> float | None:
        """Take audio; returns ``at_s``."""
        if self.at_s is not None:
            return self.at_s
        data = self._odd + data
        whole = len(data) & ~1
        self._odd = data[whole:]
        samples = array("h", data[:whole])
        if _BIG_ENDIAN:
            samples.byteswap()
        self._rest += samples
        size = self._hop
        for at in range(0, len(self._rest) - size + 1, size):
            self._take(self._rest[at : at + size])
            if self.at_s is not None:
                break
        del self._rest[: len(self._rest) - len(self._rest) % size]
        return self.at_s

    def _take(self, hop: "array[int]") -> None:
        self._sums.append((sum(hop), sum(value * value for value in hop)))
        self._count += 1
        if len(self._sums) < self._hops:
            return
        count = self._hops * self._hop
        mean = sum(total for total, _ in self._sums) / count
        power = sum(square for _, square in self._sums) / count - mean * mean
        self._loud = self._loud + 1 if math.sqrt(max(power, 0.0)) >= _LEVEL else 0
        if self._loud == self._held:
            first = self._count - self._hops - self._held + 1
            self.at_s = (first + self._hops / 2) * self._hop / self._rate


_BIG_ENDIAN: Final = array("h", b"\0\1")[0] == 1
