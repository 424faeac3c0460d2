"""Logs are JSON, never hold a text, and never hold up the server."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest
from utterwire_server import logs
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


def test_what_a_library_says_over_and_over_is_told_once_a_second() -> None:
    reading, writing = os.pipe()
    library = logging.getLogger("asyncio")
    with logging_to(writing):
        for seconds, message in (
            *((0.0, "no file"), (0.2, "no file"), (0.3, "no task"), (0.9, "no file")),
            *((1.1, "no file"), (1.2, "no file"), (1.4, "no task"), (0.0, "no task")),
        ):
            record = {"name": "asyncio", "levelno": logging.ERROR, "msg": message}
            line = logging.makeLogRecord(record)
            line.created = 1_000.0 + seconds
            library.handle(line)
            log_event("session_opened", session="abc")
        for number in range(150):
            library.error("line %d of many", number)
    os.close(writing)
    lines = lines_written(reading)
    messages = [str(line["message"]) for line in lines if line["event"] == "library"]
    # A clock that was set back holds nothing back.
    assert messages[:5] == ["no file", "no task", "no file", "no task", "no task"]
    assert len(messages) == 155
    assert sum(line["event"] == "session_opened" for line in lines) == 8


def test_levels_are_put_back() -> None:
    loggers = [logging.getLogger(name) for name in (None, "utterwire", "uvicorn")]
    before = [each.level for each in loggers]
    reading, writing = os.pipe()
    with logging_to(writing, level=logging.ERROR):
        assert [each.level for each in loggers] != before
    os.close(writing)
    os.close(reading)
    assert [each.level for each in loggers] == before


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


@pytest.fixture(autouse=True, scope="module")
def _nothing_left_to_say() -> None:
    """What other tests of this process have left may log, once it is collected."""
    gc.collect()


@pytest.fixture(autouse=True)
def _all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the machine comes to it."""
    monkeypatch.setattr(logs, "CLOSING_S", 60.0)


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


def test_a_full_disk_costs_the_lines_that_it_does_not_take() -> None:
    reading, writing = os.pipe()
    target = os.open("/dev/full", os.O_WRONLY)
    with logging_to(target):
        (handler,) = logging.getLogger().handlers
        assert isinstance(handler, StreamWriter)
        log_event("session_opened", session="lost")
        while not handler._dropped:
            time.sleep(0.001)
        os.dup2(writing, target)
        log_event("session_opened", session="told")
    for descriptor in (target, writing):
        os.close(descriptor)
    lines = lines_written(reading)
    assert lines[0] == {"event": "log_lines_dropped", "count": 1}
    assert [line.get("session") for line in lines[1:]] == ["told"]


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    """One that the server shares with another program, which wants it so."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    received: list[dict[str, object]] = []
    reader = threading.Thread(target=lambda: received.extend(lines_written(reading)))
    with logging_to(writing):
        for number in range(2_000):
            log_event("session_opened", session=str(number), rejected=0)
            if number == 1_000:
                reader.start()
        (handler,) = logging.getLogger().handlers
        assert isinstance(handler, StreamWriter)
        while not handler._lines.empty():
            time.sleep(0.001)
    os.close(writing)
    reader.join()
    assert [line["session"] for line in received] == [str(number) for number in range(2_000)]
