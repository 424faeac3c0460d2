"""Text from a pipe or a terminal, as it comes."""

import asyncio
import codecs
from typing import Protocol, Self

from utterwire_client.errors import RequestInvalid
from utterwire_client.side_thread import SideThread

__all__ = ["TextReader", "Unbuffered"]

_MOST_BYTES = 64 * 1024


class Unbuffered(Protocol):
    """A stream whose ``read`` gives what is there, as that of ``io.RawIOBase``.

    A buffered one would be locked by a thread that waits in it, also when the program ends.
    """

    def read(self, size: int, /) -> bytes | None: ...


class TextReader:
    """Iterate over it for pieces of text, each as soon as it can be read; none is empty.

    ``name`` is what errors call the stream. A byte order mark is no part of the text. No more is
    read than is asked for. Raises :class:`RequestInvalid` for what is not UTF-8 or cannot be read.
    """

    def __init__(self, stream: Unbuffered, name: str = "stdin") -> None:
        self._stream = stream
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._thread = SideThread()
        self._read = 0
        self._begun = False
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while not self._ended:
            try:
                data = await self._thread.run(self._next)
            except OSError as exc:
                raise RequestInvalid(f"cannot read {self._name}: {exc.strerror or exc}") from None
            self._ended = not data
            pending = len(self._decoder.getstate()[0])
            try:
                text = self._decoder.decode(data, final=self._ended)
            except UnicodeDecodeError as exc:
                at = self._read - pending + exc.start
                raise RequestInvalid(f"the text in {self._name} is not UTF-8 (byte {at})") from None
            self._read += len(data)
            if text and not self._begun:
                self._begun = True
                text = text.removeprefix("\ufeff")
            if text:
                return text
        await self.aclose()
        raise StopAsyncIteration

    def _next(self) -> bytes:
        return self._stream.read(_MOST_BYTES) or b""

    async def aclose(self) -> None:
        """Let go of the thread; a read that waits goes on until something comes."""
        self._ended = True
        self._thread.stop()
        await asyncio.sleep(0)
