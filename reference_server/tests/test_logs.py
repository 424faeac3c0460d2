"""Logs are JSON, never hold a text, and never hold up the server."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest
from utterwire_server.logs import JsonFormatter, StreamWriter, log_event, logging_to, whereabouts


def lines_written(descriptor: int) -> list[dict[str, object]]:
    with os.fdopen(descriptor) as stream:
        return [json.loads(line) for line in stream]


def test_events_and_library_records_are_lines_of_json() -> None:
    reading, writing = os.pipe()
    with logging_to(writing):
        log_event("session_opened", session="abc", rejected=2)
        log_event("engine_failed", error="ValueError")
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        logging.getLogger("uvicorn.error").info("127.0.0.1 - GET /?token=secret")
        logging.getLogger("asyncio").error("Task failed\nexception=ValueError('spoken words')")
    os.close(writing)
    first, second, third, fourth = lines_written(reading)
    assert first["event"] == "session_opened"
    assert (first["session"], first["rejected"], first["level"]) == ("abc", 2, "info")
    assert str(first["time"]).endswith("Z")
    assert (second["event"], second["level"]) == ("engine_failed", "error")
    assert third["event"] == "library"
    assert third["message"] == "Invalid HTTP request received."
    assert fourth["message"] == "Task failed"


def test_an_error_is_told_by_type_and_place_only() -> None:
    try:
        raise ValueError("cannot speak 'spoken words'")
    except ValueError as error:
        told = whereabouts(error)
        record = logging.LogRecord(
            "x", logging.ERROR, "f", 1, "failed", (), (type(error), error, None)
        )
    assert told["error"] == "ValueError"
    assert str(told["at"]).startswith("test_logs.py:")
    assert "spoken words" not in JsonFormatter().format(record)
    assert whereabouts(ValueError())["at"] is None


def test_a_pipe_that_nobody_reads_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, True)
    handler = StreamWriter(writing, capacity=4)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("stuck")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        for number in range(3_000):
            logger.warning("%d %s", number, "x" * 100)
        # Whoever reads at last is told what is missing.
        received = bytearray()

        def read() -> None:
            while data := os.read(reading, 65_536):
                received.extend(data)

        reader = threading.Thread(target=read)
        reader.start()
        while b"log_lines_dropped" not in received:
            logger.warning("more")
    finally:
        logger.removeHandler(handler)
        handler.close()
        os.close(writing)
    reader.join()
    os.close(reading)
    lines = [json.loads(line) for line in received.decode().splitlines()]
    dropped = sum(line["count"] for line in lines if line["event"] == "log_lines_dropped")
    assert 0 < dropped < 3_000_000


def test_a_closed_pipe_ends_the_logs_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = StreamWriter(writing)
    handler.setFormatter(JsonFormatter())
    handler.emit(logging.LogRecord("x", logging.ERROR, "f", 1, "gone", (), None))
    handler.close()
    handler.emit(logging.LogRecord("x", logging.ERROR, "f", 1, "gone", (), None))
    os.close(writing)


def test_without_stderr_there_are_no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with logging_to():
        log_event("session_opened", session="abc")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Whatever levels other tests of this process have left behind, these see none of them."""
    loggers = [logging.getLogger(name) for name in ("asyncio", "uvicorn", "uvicorn.error")]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.NOTSET)
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)
