"""Where the audio of ``utterwire say`` goes: a file that is only there when it is whole, or a
stream.

Writing may block (a slow disk, a full pipe), so that a
:class:`~utterwire_client.side_thread.SideThread` does it.
"""

import contextlib
import os
import stat
import tempfile
from io import RawIOBase
from pathlib import Path
from typing import IO, Protocol

from utterwire_client.events import Start
from utterwire_client.wav import MAX_DATA_BYTES, WAV_FORMATS, RiffStripper, wav_header

__all__ = [
    "Container",
    "FileSink",
    "RawContainer",
    "Sink",
    "StreamSink",
    "WavContainer",
]


class Container(Protocol):
    """What is put around the audio. Raises ``ValueError`` for audio it cannot hold."""

    def begin(self, start: Start) -> None:
        """The utterance begins."""
        ...

    def feed(self, data: bytes) -> bytes:
        """What to write of the next audio."""
        ...

    def header(self, body_bytes: int) -> bytes:
        """The header for that many bytes of body; its own length never changes."""
        ...

    def trailer(self, body_bytes: int) -> bytes:
        """What comes after the body."""
        ...

    #: Whether ``header`` is empty, so that the body may go out before its length is known.
    streams: bool


class RawContainer:
    """The audio as it came.

    ``only`` names the one format that the output can be taken for by its name; None takes all.
    """

    streams = True

    def __init__(self, only: str | None = None) -> None:
        self._only = only

    def begin(self, start: Start) -> None:
        if self._only is not None and start.format != self._only:
            raise ValueError(
                f"the endpoint sends {start.format}, which is not what the output is called after: "
                "give it another name, or --raw"
            )

    def feed(self, data: bytes) -> bytes:
        return data

    def header(self, body_bytes: int) -> bytes:
        return b""

    def trailer(self, body_bytes: int) -> bytes:
        return b""


class WavContainer:
    """A WAV file with true sizes, from PCM, G.711, or a WAV stream without a length."""

    streams = False

    def __init__(self) -> None:
        self._stripper: RiffStripper | None = None
        self._rate = 24000
        self._format = "pcm_s16le"
        self._taken = 0

    def begin(self, start: Start) -> None:
        if start.format == "wav":
            self._stripper = RiffStripper()
        elif start.format in WAV_FORMATS:
            self._format = start.format
        else:
            raise ValueError(
                f"the endpoint sends {start.format}, which a .wav file cannot hold: "
                "give the output another name (-o speech.pcm, -o speech.mp3, ...)"
            )
        self._rate = start.sample_rate

    def feed(self, data: bytes) -> bytes:
        if self._stripper is not None:
            data = self._stripper.feed(data)
            self._rate = self._stripper.sample_rate or self._rate
            self._format = self._stripper.format or self._format
        self._taken += len(data)
        if self._taken > MAX_DATA_BYTES:
            raise ValueError("more audio than a WAV file can hold: use -o speech.pcm")
        return data

    def header(self, body_bytes: int) -> bytes:
        return wav_header(body_bytes, sample_rate=self._rate, format=self._format)

    def trailer(self, body_bytes: int) -> bytes:
        return b"\0" * (body_bytes % 2)


class Sink(Protocol):
    """Takes the audio of one utterance. All of it may block; none of it is thread-safe."""

    def begin(self, start: Start) -> None: ...
    def write(self, data: bytes) -> None: ...
    def finish(self) -> str:
        """Everything has come; returns where it is now."""
        ...

    def give_up(self) -> str | None:
        """No more will come; returns the file in which the part that came was kept, if any."""
        ...


class FileSink:
    """Writes beside ``path`` and puts the file in its place once it is whole.

    What came of an utterance that failed is kept as ``NAME.partial.SUFFIX``, a valid file too.
    Raises ``OSError``.
    """

    def __init__(self, path: Path, container: Container) -> None:
        # Through a symbolic link, what it points to is replaced, not the link.
        self._path = path.resolve()
        self._shown = path
        self._container = container
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=self._path.parent)
        self._temporary = Path(name)
        self._file = os.fdopen(handle, "wb")
        self._body = 0

    def begin(self, start: Start) -> None:
        self._container.begin(start)

    def write(self, data: bytes) -> None:
        body = self._container.feed(data)
        if body and self._body == 0:
            self._file.write(self._container.header(0))
        self._file.write(body)
        self._body += len(body)

    def _move_to(self, path: Path) -> None:
        with self._file as file:
            if self._body == 0:
                file.write(self._container.header(0))
            file.write(self._container.trailer(self._body))
            file.seek(0)
            file.write(self._container.header(self._body))
        self._temporary.chmod(_mode_of(path))
        self._temporary.replace(path)

    def finish(self) -> str:
        self._move_to(self._path)
        return str(self._shown)

    def give_up(self) -> str | None:
        try:
            if self._body == 0 or self._file.closed:
                return None
            name = f"{self._path.stem}.partial{self._path.suffix}"
            self._move_to(self._path.with_name(name))
            return str(self._shown.with_name(name))
        finally:
            # Closing writes what is buffered, which fails again on a full disk.
            with contextlib.suppress(OSError):
                self._file.close()
            self._temporary.unlink(missing_ok=True)


def _mode_of(path: Path) -> int:
    # A temporary file is private to its owner; the file it becomes has the mode it would have had.
    with contextlib.suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


class StreamSink:
    """Writes to a pipe, a terminal or a device: nothing that can be gone back in.

    ``stream`` is unbuffered, and closed at the end. A container with a header is held in a
    temporary file until it is whole. Raises ``OSError``.
    """

    _HELD_IN_MEMORY = 8 * 1024 * 1024

    def __init__(self, stream: RawIOBase, name: str, container: Container) -> None:
        self._stream = stream
        self._name = name
        self._container = container
        self._held: IO[bytes] | None = (
            None if container.streams else tempfile.SpooledTemporaryFile(self._HELD_IN_MEMORY)  # noqa: SIM115 - see give_up
        )
        self._body = 0

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.write(rest) or 0 :]

    def begin(self, start: Start) -> None:
        self._container.begin(start)

    def write(self, data: bytes) -> None:
        body = self._container.feed(data)
        self._body += len(body)
        if self._held is not None:
            self._held.write(body)
        else:
            self._put(body)

    def finish(self) -> str:
        if self._held is not None:
            with self._held as held:
                self._put(self._container.header(self._body))
                held.seek(0)
                while block := held.read(64 * 1024):
                    self._put(block)
        self._put(self._container.trailer(self._body))
        self._stream.close()
        return self._name

    def give_up(self) -> str | None:
        if self._held is not None:
            self._held.close()
        self._stream.close()
        return None
