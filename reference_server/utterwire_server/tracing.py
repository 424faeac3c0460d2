"""Spans of OpenTelemetry, one for each utterance, in the trace of whoever asked for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from utterwire_server.observer import Observer, UtteranceRecord

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["Tracing", "export_spans", "trace_headers"]

#: How long, at the end, what was not sent yet may take: after the drain there is little time left.
FLUSH_S = 2.0
_HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


def trace_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of an ASGI connection that tell its trace (W3C Trace Context)."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = _HEADERS.get(name)
        if key is not None:
            text = value.decode("latin-1")
            # `tracestate` may come in several parts, which are one list.
            found[key] = f"{found[key]},{text}" if key == "tracestate" and key in found else text
    return found


class Tracing(Observer):
    """Makes a span of each utterance when it has ended; nothing is done for each block.

    The span runs from the message that asked for it to its end, with the events `begun` and
    `first_byte`, and is a child of the `traceparent` that came with the session or request. It
    holds sizes, times, voice and format, and never a text.

    :param provider: makes the tracer; without one, OpenTelemetry's global provider does, which an
        application sets, or `export_spans`.
    :raises ModuleNotFoundError: if OpenTelemetry is not installed.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._tracer = trace.get_tracer("utterwire_server", tracer_provider=provider)
        self._extract = TraceContextTextMapPropagator().extract

    def ended(self, record: UtteranceRecord) -> None:
        # Records have the loop's clock, spans that of the calendar.
        epoch_s = time.time() - asyncio.get_running_loop().time()

        def wall(seconds: float) -> int:
            return round((epoch_s + seconds) * 1e9)

        assert record.ended_at is not None
        trace = self._trace
        span = self._tracer.start_span(
            "synthesize",
            context=self._extract(dict(record.parent)),
            kind=trace.SpanKind.SERVER,
            start_time=wall(record.accepted_at),
            attributes={
                f"utterwire.{name}": getattr(record, name)
                for name in (
                    *("transport", "voice", "format", "sample_rate", "characters", "outcome"),
                    *("speech_s", "computing_s", "underruns", "starved_s"),
                )
            },
        )
        for event, at in (("begun", record.begun_at), ("first_byte", record.first_byte_at)):
            if at is not None:
                span.set_attribute(f"utterwire.{event}_s", at - record.due_at)
                span.add_event(event, timestamp=wall(at))
        if record.code is not None:
            span.set_attribute("error.type", record.code)
            span.set_status(trace.StatusCode.ERROR, record.code)
        span.end(wall(record.ended_at))


def export_spans() -> Callable[[], None]:
    """Send spans by OTLP over HTTP, as the variables of OpenTelemetry say
    (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``, ``OTEL_TRACES_SAMPLER``).

    Returns what sends the rest at the end, for no longer than `FLUSH_S`.

    :raises ModuleNotFoundError: if the extra ``tracing`` is not installed.
    """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "utterwire-server"}).merge(
        OTELResourceDetector().detect()
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

    def finish() -> None:
        # A collector that does not answer must not keep the process.
        thread = threading.Thread(target=provider.shutdown, name="spans", daemon=True)
        thread.start()
        thread.join(FLUSH_S)

    return finish
