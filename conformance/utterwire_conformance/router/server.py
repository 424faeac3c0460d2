"""The router itself: where calls arrive, and which way they go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from .bridge import Bridge
from .call import Call, CallerGone
from .container import Container, HttpAnswer
from .errors import (
    BIDIRECTIONAL,
    CLASSIC,
    CONTROL,
    CallFailed,
    StreamFailed,
    container_refused,
    internal,
    invalid_input,
)
from .event_stream import MEDIA_TYPE, exception, part
from .faults import FAULTS, Plan
from .http1 import Http1Connection
from .http2 import Http2Connection
from .options import Options
from .promptness import acknowledge_at_once
from .signatures import EventChain, Signed, verify_request

__all__ = ["Router"]

_ENDPOINT: Final = re.compile(
    r"/endpoints/(?P<name>[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62})/"
    r"(?P<leg>invocations|invocations-response-stream|invocations-bidirectional-stream)"
)
_PATH: Final = re.compile(r"[A-Za-z0-9\-._]+(?:/[A-Za-z0-9\-._]+)*")
_QUERY: Final = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:@/?]*")
_SESSION: Final = "invocations-bidirectional-stream"
_LEGS: Final = {
    "invocations": CLASSIC,
    "invocations-response-stream": CLASSIC,
    _SESSION: BIDIRECTIONAL,
}
_HEADER: Final = "x-amzn-sagemaker-"
_MOST_BODY: Final = 25 * 1024 * 1024
_MOST_ANSWER: Final = 64 * 1024 * 1024
_BACKLOG: Final = 256
_FAULTY: Final = "fault-"
_CLOSE_S: Final = 0.5


class Router:
    """A stand-in for the SageMaker runtime before one container. An asynchronous context manager.

    `log` is given a line for each call and stream. `container_url` is the container's address,
    `plan` what is to go wrong; an endpoint called `fault-NAME` has that fault, and no other.
    """

    def __init__(
        self,
        container_url: str,
        context: ssl.SSLContext,
        *,
        options: Options | None = None,
        plan: Plan | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.options = options or Options()
        self.plan = plan or Plan()
        self._container = Container.at(container_url, accept_s=self.options.accept_s)
        self._context = context
        self._host = host
        self._port = port
        self._log = log or _silent
        self._numbers = count(1)
        self._by_name: dict[str, Plan] = {}
        self._server: asyncio.Server | None = None
        self._protocols: set[_Protocol] = set()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def url(self) -> str:
        """Its address; by a name, so that certificates are checked as usual."""
        host = self._host
        if host in ("", "127.0.0.1", "0.0.0.0", "::", "::1"):
            host = "localhost"
        return f"https://{f'[{host}]' if ':' in host else host}:{self._port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Protocol(self._answer, self._protocols),
            self._host,
            self._port,
            ssl=self._context,
            backlog=_BACKLOG,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*(protocol.close() for protocol in tuple(self._protocols)))

    # --- calls --------------------------------------------------------------------------------

    async def _answer(self, call: Call) -> None:
        number = next(self._numbers)
        operation = CLASSIC
        try:
            path = call.target.partition("?")[0]
            found = _ENDPOINT.fullmatch(path)
            if call.method == "POST" and path == "/":
                operation = CONTROL
                await self._describe(call)
            elif call.method == "POST" and found is not None:
                operation = _LEGS[found["leg"]]
                if operation == BIDIRECTIONAL:
                    await self._bidirectional(call, found["name"], number)
                else:
                    stream = found["leg"] != "invocations"
                    await self._invoke(call, found["name"], number, stream=stream)
            else:
                raise CallFailed("UnknownOperationException", 404, f"{call.method} {path[:200]}")
        except CallFailed as failure:
            self._log(f"{number}: refused: {failure.name(operation)}: {failure.message}")
            status, headers, body = failure.answer(operation)
            await call.respond(status, headers)
            await call.send(body)
            await call.end()

    def _verified(self, call: Call, *, body: bytes | None = None) -> Signed | None:
        credentials = self.options.credentials
        if credentials is None:
            return None
        return verify_request(call.method, call.target, call.headers, credentials, body=body)

    async def _body(self, call: Call) -> bytes:
        body = bytearray()
        while (data := await call.receive()) is not None:
            body += data
            if len(body) > _MOST_BODY:
                raise invalid_input(f"a body of more than {_MOST_BODY} bytes")
        return bytes(body)

    def _plan(self, name: str) -> Plan:
        """What is to go wrong with calls to the endpoint of this name."""
        fault = name.lower().removeprefix(_FAULTY)
        if fault == name.lower() or fault not in FAULTS:
            return self.plan
        plan = Plan(fault, after=self.plan.after, times=self.plan.times)
        return self._by_name.setdefault(fault, plan)

    @staticmethod
    def _refuse_by(plan: Plan) -> None:
        refusal = plan.refusal()
        if refusal is not None:
            raise refusal

    # --- the bidirectional leg ----------------------------------------------------------------

    async def _bidirectional(self, call: Call, name: str, number: int) -> None:
        if call.version != "2":
            raise invalid_input("this operation wants HTTP/2 (ALPN h2)")
        headers = dict(call.headers)
        signed = self._verified(call)
        if headers.get("content-type", "").partition(";")[0].strip() != MEDIA_TYPE:
            raise invalid_input(f"the content type is not {MEDIA_TYPE}")
        plan = self._plan(name)
        self._refuse_by(plan)
        path = headers.get(f"{_HEADER}model-invocation-path", _SESSION)
        if _PATH.fullmatch(path) is None:
            raise invalid_input("ModelInvocationPath is malformed: it begins with no slash")
        query = headers.get(f"{_HEADER}model-query-string")
        if query is not None and _QUERY.fullmatch(query) is None:
            raise invalid_input("ModelQueryString is malformed: no query has such characters")
        variant = headers.get(f"{_HEADER}target-variant", self.options.variant)
        began = time.monotonic()
        opened = await self._container.open_socket(f"/{path}" + (f"?{query}" if query else ""))
        took = (time.monotonic() - began) * 1000
        self._log(f"{number}: {name}: stream to /{path}, accepted after {took:.0f} ms")
        credentials = self.options.credentials
        chain = None
        if signed is not None and credentials is not None:
            chain = EventChain(signed, credentials.secret_key)
        bridge = Bridge(call, opened, options=self.options, plan=plan, chain=chain)
        try:
            # Before any input: the SDK waits for the answer's head. And no initial-response.
            await call.respond(
                200,
                [
                    ("content-type", MEDIA_TYPE),
                    ("x-amzn-invoked-production-variant", variant),
                ],
            )
            await bridge.run()
        except CallerGone:
            opened.abort()
            raise
        finally:
            tally = bridge.tally
            self._log(
                f"{number}: {name}: {tally.parts_in} parts in ({tally.bytes_in} bytes),"
                f" {tally.parts_out} out ({tally.bytes_out} bytes)"
                f" in {time.monotonic() - began:.1f} s; {tally.ended or 'ended by the router'}"
            )

    # --- the HTTP legs ------------------------------------------------------------------------

    async def _invoke(self, call: Call, name: str, number: int, *, stream: bool) -> None:
        body = await self._body(call)
        self._verified(call, body=body)
        plan = self._plan(name)
        self._refuse_by(plan)
        given = dict(call.headers)
        passed = [("Content-Type", given.get("content-type", "application/octet-stream"))]
        accept = given.get(f"{_HEADER}accept" if stream else "accept")
        if accept is not None:
            passed.append(("Accept", accept))
        custom = given.get(f"{_HEADER}custom-attributes")
        if custom is not None:
            passed.append(("X-Amzn-SageMaker-Custom-Attributes", custom))
        for header, value in passed:
            if not value.isascii():
                raise invalid_input(f"{header} is not of ASCII alone")
        began = time.monotonic()
        async with self._container.invoke("/invocations", passed, body) as (head, pieces):
            if head.status // 100 != 2:
                raise await _model_error(head, pieces)
            # What AWS passes of the container's headers: its content type and this one.
            kind = head.headers.get("content-type", "application/octet-stream")
            headers = [("x-amzn-invoked-production-variant", self.options.variant)]
            attributes = head.headers.get("x-amzn-sagemaker-custom-attributes")
            if attributes is not None:
                headers.append(("x-amzn-sagemaker-custom-attributes", attributes))
            if stream:
                headers.append((f"{_HEADER}content-type", kind))
                size = await self._stream(call, headers, pieces, plan)
            else:
                size = await self._whole(call, [*headers, ("content-type", kind)], pieces)
        self._log(
            f"{number}: {name}: invocation {'as a stream' if stream else 'whole'}, {size} bytes"
            f" in {time.monotonic() - began:.1f} s"
        )

    async def _stream(
        self, call: Call, headers: list[tuple[str, str]], pieces: Any, plan: Plan
    ) -> int:
        size = parts = 0
        await call.respond(200, [*headers, ("content-type", MEDIA_TYPE)])
        try:
            async for piece in pieces:
                if plan.has("slow-parts"):
                    await asyncio.sleep(self.options.slow_s)
                await call.send(part(piece))
                size, parts = size + len(piece), parts + 1
                fault = plan.breach(parts)
                if fault is not None:
                    if fault.breaks is None:
                        call.reset_connection()
                        return size
                    raise fault.breaks()
        except ConnectionError as error:
            # Not documented: the model of this operation has both of the names.
            await call.send(exception(StreamFailed("ModelStreamError", str(error), "1006")))
        except StreamFailed as failure:
            await call.send(exception(failure))
        await call.end()
        return size

    async def _whole(self, call: Call, headers: list[tuple[str, str]], pieces: Any) -> int:
        body = bytearray()
        try:
            async for piece in pieces:
                body += piece
                if len(body) > _MOST_ANSWER:
                    raise container_refused(f"an answer of more than {_MOST_ANSWER} bytes")
        except ConnectionError as error:
            raise container_refused(str(error)) from error
        await call.respond(200, [*headers, ("content-length", str(len(body)))])
        await call.send(bytes(body))
        await call.end()
        return len(body)

    # --- DescribeEndpoint ---------------------------------------------------------------------

    async def _describe(self, call: Call) -> None:
        body = await self._body(call)
        self._verified(call, body=body)
        headers = dict(call.headers)
        if headers.get("x-amz-target") != "SageMaker.DescribeEndpoint":
            raise CallFailed("UnknownOperationException", 400, "only DescribeEndpoint is here")
        try:
            name = str(json.loads(body)["EndpointName"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise invalid_input("EndpointName is missing") from None
        plan = self._plan(name)
        refusal = next(
            (f.refuses for f in plan.faults if f.name in ("access-denied", "expired-token")),
            None,
        )
        if refusal is not None:
            raise refusal()
        arn = f"arn:aws:sagemaker:us-east-1:000000000000:endpoint/{name}".lower()
        if plan.status == "missing":
            raise invalid_input(f'Could not find endpoint "{arn}".')
        now = time.time()
        answer: dict[str, Any] = {
            "EndpointName": name,
            "EndpointArn": arn,
            "EndpointConfigName": f"{name}-config",
            "EndpointStatus": plan.status or "InService",
            "ProductionVariants": [{"VariantName": self.options.variant}],
            "CreationTime": now,
            "LastModifiedTime": now,
        }
        if plan.status == "Failed":
            answer["FailureReason"] = "The primary container did not pass the ping health check."
        data = json.dumps(answer).encode()
        kind = "application/x-amz-json-1.1"
        await call.respond(200, [("content-type", kind), ("content-length", str(len(data)))])
        await call.send(data)
        await call.end()


async def _model_error(head: HttpAnswer, pieces: Any) -> CallFailed:
    body = bytearray()
    try:
        async for piece in pieces:
            body += piece
            if len(body) > 1024:
                break
    except ConnectionError as error:
        return container_refused(str(error), status=head.status)
    said = bytes(body[:1024]).decode("utf-8", "replace")
    return container_refused(said or "(no body)", status=head.status)


class _Protocol(asyncio.Protocol):
    """A connection, before and after it is known which HTTP it speaks."""

    def __init__(self, handler: Any, living: set[_Protocol]) -> None:
        self._handler = handler
        self._living = living
        self._http: Http1Connection | Http2Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.Event()
        self._socket: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._living.add(self)
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        acknowledge_at_once(self._socket)
        tls = transport.get_extra_info("ssl_object")
        spoken = tls.selected_alpn_protocol() if tls is not None else None
        kind = Http2Connection if spoken == "h2" else Http1Connection
        self._http = kind(transport, self._guarded)

    async def _guarded(self, call: Call) -> None:
        try:
            await self._handler(call)
        except (CallerGone, asyncio.CancelledError):
            raise
        except Exception as error:
            failure = internal(f"the router failed: {type(error).__name__}: {error}")
            status, headers, body = failure.answer(CLASSIC)
            await call.respond(status, headers)
            await call.send(body)
            await call.end()

    def data_received(self, data: bytes) -> None:
        acknowledge_at_once(self._socket)
        assert self._http is not None
        self._http.receive(data)

    def pause_writing(self) -> None:
        assert self._http is not None
        self._http.pause()

    def resume_writing(self) -> None:
        assert self._http is not None
        self._http.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._living.discard(self)
        self._gone.set()
        if self._http is not None:
            self._http.lose()

    async def close(self) -> None:
        """End it; a caller that does not end TLS in return is not waited for."""
        if self._http is None or self._transport is None:
            return
        await self._http.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()
        self._transport.abort()
        await self._gone.wait()


def _silent(line: str) -> None:
    pass
