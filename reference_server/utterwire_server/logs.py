"""JSON logs, one line an event, that never hold what is spoken."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import queue
import select
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import TypeAlias

__all__ = ["Field", "JsonFormatter", "StreamWriter", "log_event", "logging_to", "whereabouts"]

Field: TypeAlias = str | int | float | bool | list[str] | list[int] | list[float] | None

logger = logging.getLogger("utterwire")

#: What waits to be written at the end has so long, in seconds.
CLOSING_S = 1.0
_MOST_LINES_KEPT = 100
_GONE = (errno.EPIPE, errno.EBADF)


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


class _Repeats(logging.Filter):
    """Passes the same line of a library once a second: some tell one thing over and over."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "fields"):
            return True
        line = record.name, record.getMessage()
        if 0 <= record.created - self._told.get(line, -math.inf) < 1:
            return False
        if len(self._told) >= _MOST_LINES_KEPT:
            self._told.clear()
        self._told[line] = record.created
        return True


class StreamWriter(logging.Handler):
    """Writes lines to a file descriptor from a thread of its own.

    A pipe that nobody reads must not stop the event loop: when ``capacity`` lines wait, further
    ones are dropped, and their number is told once there is room. So are lines that a full disk
    does not take.
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
        """Write what waits, for at most `CLOSING_S`, and stop."""
        until = time.monotonic() + CLOSING_S
        # Where as much waits as may, the writer learns of the end once there is room.
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSING_S)
        self._thread.join(max(0.0, until - time.monotonic()))
        super().close()

    def _write(self) -> None:
        torn = False
        while (line := self._lines.get()) is not None:
            whole = data = f"{line}\n".encode()
            if torn:
                data = b"\n" + data
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:
                    # Whoever shares the pipe has made it so.
                    writable = select.poll()
                    writable.register(self._descriptor, select.POLLOUT)
                    writable.poll()
                except OSError as error:
                    if error.errno in _GONE:
                        # Nobody is left to read, and nowhere else to say so.
                        return
                    self._dropped += 1
                    torn = torn or len(data) < len(whole)
                    break
            else:
                torn = False


@contextlib.contextmanager
def logging_to(descriptor: int | None = None, level: int = logging.INFO) -> Iterator[None]:
    """Send every log record of the process to ``descriptor`` (stderr by default) as JSON.

    uvicorn's own lines pass from warnings upward: the ones below repeat each request line, with
    whatever secrets its query string holds.
    """
    handler = StreamWriter(_stderr() if descriptor is None else descriptor)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(_Repeats())
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {root: logging.WARNING, logger: level, logging.getLogger("uvicorn"): logging.WARNING}
    before = {each: each.level for each in levels}
    root.handlers[:] = [handler]
    for each, passed in levels.items():
        each.setLevel(passed)
    try:
        yield
    finally:
        for each, passed in before.items():
            each.setLevel(passed)
        root.handlers[:] = handlers
        handler.close()


def _stderr() -> int:
    # With stderr closed, its number may by now be that of a client's socket.
    if sys.stderr is None:
        return os.open(os.devnull, os.O_WRONLY)
    return sys.stderr.fileno()
