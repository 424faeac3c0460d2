"""`/metrics`: what Prometheus is told. Needs the extra ``metrics``."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from utterwire_schemas import ERROR_CODES

from utterwire_server.observer import OUTCOMES, REFUSALS, Observer, Transport, UtteranceRecord

if TYPE_CHECKING:
    from utterwire_server.service import Service

__all__ = ["Metrics"]

_SECONDS: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_FACTORS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 5.0)
_TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)
#: Reasons of ``session_closed``, and two of a session that had none.
_REASONS: Final = (
    *("client_close", "going_away", "idle", "slow_reader", "message_too_big", "policy"),
    *("transport_lost", "internal"),
)


class Metrics(Observer):
    """Counts and times of one server, in a registry of its own.

    No label has more values than are written down in the code: none holds a voice, a text, an id
    or an address.

    :param service: its state is read each time that metrics are asked for.
    """

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        counter, histogram = self._counter, self._histogram
        self._first_byte = histogram(
            "first_byte_seconds",
            "From when an utterance was due to its first audio, ready to leave.",
            _SECONDS,
            "transport",
        )
        self._queue_wait = histogram(
            "queue_wait_seconds",
            "From when an utterance was due until the engine began with it.",
            _SECONDS,
            "transport",
        )
        self._factor = histogram(
            "real_time_factor",
            "Seconds the engine worked for each second of speech, of completed utterances.",
            _FACTORS,
        )
        self._accepted = counter("accepted", "Utterances accepted.", "transport")
        self._utterances = counter("utterances", "Utterances ended.", "transport", "outcome")
        self._underruns = counter(
            "underruns",
            "Times that a listener who plays from the first byte had nothing left to play.",
            "transport",
        )
        self._starved = counter(
            "starved_seconds", "How long such listeners had nothing left to play.", "transport"
        )
        self._speech = counter("speech_seconds", "Speech made.")
        self._computing = counter("computing_seconds", "Time the engine worked.")
        self._characters = counter("characters", "Code points of text accepted.")
        self._errors = counter("errors", "Errors told to clients.", "code")
        self._refusals = counter("refusals", "Connections not let in.", "reason")
        self._opened = counter("sessions_opened", "WebSocket sessions accepted.")
        self._closed = counter("sessions_closed", "WebSocket sessions ended.", "reason")
        # Series that are there from the start can be told from what nobody counts.
        for transport in _TRANSPORTS:
            for labelled in (self._first_byte, self._queue_wait):
                labelled.labels(transport)
            for counted in (self._accepted, self._underruns, self._starved):
                counted.labels(transport)
            for outcome in OUTCOMES:
                self._utterances.labels(transport, outcome)
        for code in ERROR_CODES:
            self._errors.labels(code)
        for reason in REFUSALS:
            self._refusals.labels(reason)
        for reason in _REASONS:
            self._closed.labels(reason)
        self.registry.register(_State(service))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace="utterwire", registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
        return Histogram(
            name,
            text,
            labels,
            namespace="utterwire",
            registry=self.registry,
            buckets=tuple(buckets),
        )

    def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type they are in: OpenMetrics where ``accept`` asks for it,
        else Prometheus's own text. Call it in the server's event loop."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def session_opened(self) -> None:
        self._opened.inc()

    def session_closed(self, reason: str, duration_s: float) -> None:
        self._closed.labels(reason).inc()

    def error(self, code: str) -> None:
        self._errors.labels(code).inc()

    def refused(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def accepted(self, record: UtteranceRecord) -> None:
        self._accepted.labels(record.transport).inc()
        self._characters.inc(record.characters)

    def first_byte(self, record: UtteranceRecord) -> None:
        assert record.first_byte_at is not None
        self._first_byte.labels(record.transport).observe(record.first_byte_at - record.due_at)

    def ended(self, record: UtteranceRecord) -> None:
        transport = record.transport
        self._utterances.labels(transport, record.outcome).inc()
        self._underruns.labels(transport).inc(record.underruns)
        self._starved.labels(transport).inc(record.starved_s)
        self._speech.inc(record.speech_s)
        self._computing.inc(record.computing_s)
        if record.begun_at is not None:
            self._queue_wait.labels(transport).observe(record.begun_at - record.due_at)
        if record.outcome == "completed" and record.speech_s:
            self._factor.observe(record.computing_s / record.speech_s)


class _State(Collector):
    """What is true at the moment."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        scheduler = service.scheduler
        gauges: tuple[tuple[str, str, float], ...] = (
            ("ready", "1 while new sessions and requests are taken.", service.ready),
            ("guests", "Sessions and requests that are open.", service.guests),
            ("active_sessions", "WebSocket sessions that are open.", service.sessions),
            ("streams", "Utterances that the engine has been asked for.", scheduler.speaking),
            ("blocks_computing", "Blocks in the making.", scheduler.computing),
            ("queued_utterances", "Utterances that have not ended.", scheduler.backlog.places),
            ("queued_characters", "Characters still to be spoken.", scheduler.queued_chars),
            ("queued_seconds", "Seconds of work on them, as estimated.", scheduler.queued_s),
            ("tasks", "Tasks of the event loop.", len(asyncio.all_tasks())),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"utterwire_{name}", text, value=float(value))
        yield InfoMetricFamily(
            "utterwire",
            "What is running.",
            value={
                "version": metadata.version("utterwire"),
                "engine": service.engine.name,
                "python": platform.python_version(),
            },
        )
