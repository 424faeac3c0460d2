"""JSON logs, one line an event, that never hold what is spoken."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import TypeAlias

__all__ = ["Field", "JsonFormatter", "StreamWriter", "log_event", "logging_to", "whereabouts"]

Field: TypeAlias = str | int | float | bool | list[str] | list[int] | list[float] | None

logger = logging.getLogger("utterwire")


def log_event(event: str, **fields: Field) -> None:
    """Log ``event`` with its fields; one that has an ``error`` is logged as an error.

    Callers pass sizes, ids and codes, never a text, a request id or a header: those are the
    client's own words.
    """
    level = logging.ERROR if "error" in fields else logging.INFO
    logger.log(level, event, extra={"fields": fields})


def whereabouts(error: BaseException) -> dict[str, Field]:
    """The type of an error and the line that raised it.

    Its message is left out: an engine may well put the text into it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else None
    return {"error": type(error).__name__, "at": place}


class JsonFormatter(logging.Formatter):
    """One JSON object a record: `time` (UTC, RFC 3339), `level`, `event`, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            # asyncio goes on, from the second line, with the words of other people's errors.
            message = record.getMessage().strip().partition("\n")[0]
            line |= {"event": "library", "logger": record.name, "message": message}
        else:
            line |= {"event": record.getMessage(), **fields}
        if record.exc_info and record.exc_info[1] is not None:
            line |= whereabouts(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True, default=repr)


class StreamWriter(logging.Handler):
    """Writes lines to a file descriptor from a thread of its own.

    A pipe that nobody reads must not stop the event loop: when ``capacity`` lines wait, further
    ones are dropped, and their number is told once there is room.
    """

    def __init__(self, descriptor: int, *, capacity: int = 10_000) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(capacity)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                note = {"event": "log_lines_dropped", "count": self._dropped}
                self._lines.put_nowait(json.dumps(note))
                self._dropped = 0
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what waits, for at most a second, and stop."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(1.0)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            data = f"{line}\n".encode()
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except OSError:
                    # Nobody is left to read, and nowhere else to say so.
                    return


@contextlib.contextmanager
def logging_to(descriptor: int | None = None, level: int = logging.INFO) -> Iterator[None]:
    """Send every log record of the process to ``descriptor`` (stderr by default) as JSON.

    uvicorn's own lines pass from warnings upward: the ones below repeat each request line, with
    whatever secrets its query string holds.
    """
    handler = StreamWriter(_stderr() if descriptor is None else descriptor)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        handler.close()


def _stderr() -> int:
    # With stderr closed, its number may by now be that of a client's socket.
    if sys.stderr is None:
        return os.open(os.devnull, os.O_WRONLY)
    return sys.stderr.fileno()
