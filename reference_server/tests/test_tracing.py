"""Each utterance is one span in the trace of whoever asked for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from utterwire_server import tracing
from utterwire_server.engines import FaultyEngine
from utterwire_server.tracing import Tracing, trace_headers

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(exported: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return Tracing(provider)


async def test_a_span_for_each_utterance_of_a_session(
    start: Any, connect: Any, eventually: Any, traced: Tracing, exported: InMemorySpanExporter
) -> None:
    headers = f"traceparent: {TRACEPARENT}\r\ntracestate: a=1\r\ntracestate: b=2\r\n"
    peer = await connect(await start(observers=[traced]), headers=headers)
    peer.say(text="Hello there.", voice="bass", request_id="mine")
    peer.say(text="A much longer text, of which there are many blocks. " * 20)
    await peer.until("synthesis_complete")
    await peer.until("synthesis_complete")
    await eventually(lambda: len(exported.get_finished_spans()) == 2)
    span, _ = exported.get_finished_spans()
    assert (span.name, span.kind) == ("synthesize", SpanKind.SERVER)
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.parent.is_remote
    assert span.context is not None
    assert span.context.trace_state.to_header() == "a=1,b=2"
    told = dict(span.attributes or {})
    assert told["utterwire.voice"] == "bass"
    assert told["utterwire.characters"] == 12
    assert told["utterwire.outcome"] == "completed"
    assert told["utterwire.speech_s"] == pytest.approx(0.44)
    assert span.status.status_code is StatusCode.UNSET
    assert [event.name for event in span.events] == ["begun", "first_byte"]
    assert span.start_time is not None
    assert span.end_time is not None
    times = [span.start_time, *(event.timestamp for event in span.events), span.end_time]
    assert times == sorted(times)
    # Neither the text nor an id that the client chose.
    assert "Hello" not in span.to_json()
    assert "mine" not in span.to_json()


async def test_a_failure_is_an_error(
    start: Any, eventually: Any, traced: Tracing, exported: InMemorySpanExporter
) -> None:
    server = await start(FaultyEngine(0), observers=[traced])
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        headers = {"traceparent": TRACEPARENT}
        await client.post("/invocations", json={"text": "Hi."}, headers=headers)
    await eventually(exported.get_finished_spans)
    (span,) = exported.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "synthesis_failed",
    )
    assert dict(span.attributes or {})["error.type"] == "synthesis_failed"
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE


@pytest.mark.parametrize("value", ["", "00-zz-zz-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_what_is_no_trace_begins_one(
    start: Any, eventually: Any, traced: Tracing, exported: InMemorySpanExporter, value: str
) -> None:
    server = await start(observers=[traced])
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http) as client:
        headers = {"traceparent": value}
        await client.post("/invocations", json={"text": "Hi."}, headers=headers)
    await eventually(exported.get_finished_spans)
    (span,) = exported.get_finished_spans()
    assert span.parent is None


def test_only_trace_headers_are_kept() -> None:
    headers = [(b"authorization", b"Bearer secret"), (b"traceparent", b"x"), (b"cookie", b"y")]
    assert trace_headers({"headers": headers}) == {"traceparent": "x"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> list[TracerProvider]:
    """What `export_spans` would make the process's own."""
    made: list[TracerProvider] = []
    monkeypatch.setattr("opentelemetry.trace.set_tracer_provider", made.append)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return made


async def test_spans_are_sent_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, provider: list[TracerProvider]
) -> None:
    heads: list[bytes] = []
    left = asyncio.Event()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    monkeypatch.setattr(tracing, "FLUSH_S", 20.0)
    async with await asyncio.start_server(collect, "127.0.0.1", 0, family=socket.AF_INET) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "a-service")
        finish = tracing.export_spans()
        assert provider[0].resource.attributes["service.name"] == "a-service"
        provider[0].get_tracer("x").start_span("y").end()
        await asyncio.get_running_loop().run_in_executor(None, finish)
        await left.wait()
    assert heads[0].startswith(b"POST /v1/traces ")


def test_nobody_waits_for_a_collector_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, provider: list[TracerProvider]
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    finish = tracing.export_spans()
    shutdown = provider[0].shutdown
    monkeypatch.setattr(provider[0], "shutdown", answered.wait)
    finish()
    assert not answered.is_set()
    answered.set()
    shutdown()
