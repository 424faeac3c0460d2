"""Where ``utterwire say --marks`` writes the words: one JSON object a line, as they come."""

import dataclasses
import io
import json
from collections.abc import Iterable

from utterwire_client.events import Word

__all__ = ["WordFile"]


class WordFile:
    """Writes words as lines with the fields of ``protocol.md#marks``. Its calls may block.

    ``path`` is a file, or ``-`` for stdout, whose descriptor is ``stdout``. Raises ``OSError``
    where it cannot be opened or written.
    """

    def __init__(self, path: str, stdout: int = 1) -> None:
        own = path != "-"
        self._stream = io.FileIO(path if own else stdout, "wb", closefd=own)
        self.count = 0

    def write(self, words: Iterable[Word]) -> None:
        """Write words, each at once: who follows the file sees it before it is heard."""
        for word in words:
            line = json.dumps(dataclasses.asdict(word), ensure_ascii=False).encode() + b"\n"
            while line:
                line = line[self._stream.write(line) :]
            self.count += 1

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
