"""What every reader of a coded stream has to say when the stream is not what it should be."""

from __future__ import annotations

__all__ = ["FramingError"]


class FramingError(ValueError):
    """A stream is not framed as its format asks; `offset` is the byte where that shows.

    The message is a clause that can follow "at byte N ".
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset

    def __str__(self) -> str:
        return f"at byte {self.offset} {self.args[0]}"
