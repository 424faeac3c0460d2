"""Other endpoints for the page: a browser cannot reach them by itself, or they would not let it in.

Only those that the operator allowed; what goes between is carried as it is.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from utterwire_server.http import ResponseAborted, error_response
from utterwire_server.logs import log_event
from utterwire_server.service import Service
from utterwire_server.wire import wire_of

__all__ = ["Relay", "http_transport", "relay_address"]

_SESSION: Final = "/invocations-bidirectional-stream"
_INVOCATIONS: Final = "/invocations"
_SCHEMES: Final = {"ws": "http", "http": "http", "wss": "https", "https": "https"}

CONNECT_S: Final = 10.0
CLOSE_S: Final = 2.0
#: Keeps middleboxes from forgetting the connection. No pong is demanded: it would wait unread
#: behind audio that the browser does not take.
PING_S: Final = 20.0
#: The endpoint has so long to begin its answer, and between two parts of it.
ANSWER_S: Final = 60.0
#: Deployed endpoints send a whole paragraph as one frame (1.26 MB was seen).
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
#: As many frames wait here before the endpoint is held up.
MAX_FRAMES: Final = 2
#: What of the head of an endpoint's answer the page is shown, besides what begins so.
_TOLD: Final = frozenset({"content-encoding", "content-type", "retry-after"})
_PREFIX: Final = "utterwire-"
#: Whatever an endpoint answers is no page of this server's.
_NO_PAGE: Final = [
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
]
_GONE: Final = 1001
_NOT_REACHED: Final = 1014  # As a gateway's 502 (registry of close codes, RFC 6455 section 11.7).

# Neither texts nor addresses belong into a log, and the library would write both.
_SILENT = logging.getLogger("utterwire.silent")
_SILENT.setLevel(logging.CRITICAL + 1)


def relay_address(url: str) -> str:
    """The address of an endpoint without the path of a session or of requests, by http or https.

    :raises ValueError: if it is none, or has what belongs into no address that is shown: a user, a
        password, a query.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{url!r} is no address of an endpoint") from None
    scheme = _SCHEMES.get(parts.scheme.lower())
    if scheme is None or not host or any(it.isspace() or not it.isprintable() for it in url):
        raise ValueError(
            f"{url!r} is no address of an endpoint; one looks like wss://tts.example.com"
        )
    if parts.query or parts.fragment or "@" in parts.netloc or "?" in url or "#" in url:
        raise ValueError(
            f"the address of an endpoint at {host} has a user, a query or a fragment; it is shown"
            " on the page, and may have none"
        )
    path = parts.path.rstrip("/")
    for ending in (_SESSION, _INVOCATIONS):
        path = path.removesuffix(ending)
    return f"{scheme}://{parts.netloc}{path.rstrip('/')}"


def _is_here(address: str) -> bool:
    """Whether it is this machine, to which no proxy leads."""
    host = (urlsplit(address).hostname or "").rstrip(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def http_transport() -> ModuleType | None:
    """httpx; None where it is not installed."""
    try:
        return importlib.import_module("httpx")
    except ModuleNotFoundError:
        return None


@cache
def _tls() -> ssl.SSLContext:
    # Reading all authorities takes a while, in which nobody else is served.
    return ssl.create_default_context()


class _Connect(websocket_connect):
    # Whoever is allowed must not send us to somebody who is not.
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _Visit:
    """Somebody whom the relay serves; shutdown ends it."""

    def __init__(self) -> None:
        self._guard = asyncio.timeout(None)
        self.ended = False

    def shut_down(self) -> None:
        """End it: what the endpoint still has to say is not known here."""
        self.cut_off()

    def cut_off(self) -> None:
        self.ended = True
        with suppress(RuntimeError):
            self._guard.reschedule(asyncio.get_running_loop().time())

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it until shutdown stops it."""
        if self.ended:
            work.close()
            return
        try:
            async with self._guard:
                await work
        except TimeoutError:
            if not self.ended:
                raise


class Relay:
    """One endpoint that the page can speak through.

    :param address: as `relay_address` gives it.
    """

    def __init__(self, service: Service, name: str, address: str) -> None:
        self._service = service
        self._name = name
        self.address = address

    @property
    def paths(self) -> frozenset[str]:
        """Where the endpoint is to be had here: a session and requests."""
        return frozenset({self._path(_SESSION), self._path(_INVOCATIONS)})

    def _path(self, path: str) -> str:
        return f"/ui/relay/{self._name}{path}"

    def routes(self) -> list[BaseRoute]:
        """Routes of `paths`."""
        return [
            WebSocketRoute(self._path(_SESSION), self._session),
            Route(self._path(_INVOCATIONS), _Bare(self._request), methods=["POST"]),
        ]

    # Sessions

    async def _session(self, browser: WebSocket) -> None:
        if refusal := self._service.refusal():
            await browser.send_denial_response(error_response(*refusal))
            return
        visit = _Visit()
        with self._service.hosting(visit):
            await browser.accept()
            code, reason = _GONE, "the server is shutting down"

            async def work() -> None:
                nonlocal code, reason
                code, reason = await self._converse(browser)

            await visit.run(work())
            with suppress(WebSocketDisconnect, RuntimeError):
                await browser.close(code, reason)

    async def _converse(self, browser: WebSocket) -> tuple[int, str]:
        """Carry a session until either side ends it; how to close toward the browser."""
        try:
            endpoint = await _Connect(
                "ws" + self.address.removeprefix("http") + _SESSION,
                compression=None,
                open_timeout=CONNECT_S,
                close_timeout=CLOSE_S,
                ping_interval=PING_S,
                ping_timeout=None,
                ssl=_tls() if self.address.startswith("https:") else None,
                proxy=None if _is_here(self.address) else True,
                max_size=MAX_FRAME_BYTES,
                max_queue=MAX_FRAMES,
                logger=_SILENT,
            )
        except (OSError, WebSocketException, ValueError, ImportError) as error:
            log_event("relay_failed", endpoint=self._name, error=type(error).__name__)
            return _NOT_REACHED, f"the endpoint cannot be reached ({_kind(error)})"
        try:
            stall_s = self._service.settings.stall_timeout_s
            quiet = _Quiet(self._service.settings.idle_timeout_s)
            down = asyncio.create_task(_down(endpoint, browser, stall_s, quiet), name="relay-down")
            up = asyncio.create_task(_up(endpoint, browser, stall_s, quiet), name="relay-up")
            try:
                async with quiet.bound:
                    await asyncio.wait({down, up}, return_when=asyncio.FIRST_COMPLETED)
                    if up.done() and not up.result():
                        # The endpoint ended it: what it said before that is still on its way.
                        await asyncio.wait({down})
            except TimeoutError:
                # A visit that is ended raises none here.
                return _GONE, f"nothing was said for {quiet.after_s:g} s"
            finally:
                told = down.done()
                down.cancel()
                up.cancel()
                await asyncio.wait({down, up})
            return down.result() if told else (_GONE, "")
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await endpoint.close()
            endpoint.transport.abort()

    # Requests

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._service.refusal():
            await error_response(*refusal)(scope, receive, send)
            return
        httpx = http_transport()
        if httpx is None:
            missing = "the relay's HTTP needs httpx; pip install 'utterwire[page]' on the server"
            response = error_response("internal", missing)
            response.status_code = 501
            await response(scope, receive, send)
            return
        visit = _Visit()
        answer = _Answer(scope, receive, send)
        with self._service.hosting(visit), suppress(ClientDisconnect):
            await visit.run(self._serve(httpx, Request(scope, receive), answer))
            await answer.end()

    async def _serve(self, httpx: ModuleType, request: Request, answer: _Answer) -> None:
        limit = self._service.settings.max_message_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(self._service.settings.body_timeout_s):
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        answer.refuse("text_too_long", f"the body is larger than {limit} bytes")
                        return
        except TimeoutError:
            answer.refuse("invalid_request", "the body did not come in time")
            return
        headers = {
            "Content-Type": b"application/json",
            # As bytes: what a browser may put there need not be ASCII.
            "Accept": request.headers.get("accept", "*/*").encode("latin-1"),
            # What is compressed comes late.
            "Accept-Encoding": b"identity",
        }
        await _while_there(request.receive, self._ask(httpx, bytes(body), headers, answer))

    async def _ask(
        self, httpx: ModuleType, body: bytes, headers: dict[str, bytes], answer: _Answer
    ) -> None:
        url = self.address + _INVOCATIONS
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        try:
            async with (
                httpx.AsyncClient(
                    timeout=timeout,
                    verify=_tls(),
                    follow_redirects=False,
                    trust_env=not _is_here(self.address),
                ) as client,
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                told = [
                    (name.lower().encode(), value.encode("latin-1", "replace"))
                    for name, value in response.headers.items()
                    if name.lower() in _TOLD or name.lower().startswith(_PREFIX)
                ]
                await answer.begin(response.status_code, told + _NO_PAGE)
                # As it came: unpacked, a little could be more than there is room for.
                async for part in response.aiter_raw():
                    await answer.put(part)
                answer.complete = True
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
            log_event("relay_failed", endpoint=self._name, error=type(error).__name__)
            answer.refuse("internal", f"the endpoint cannot be reached ({_kind(error)})", 502)


class _Answer:
    """An answer on its way to the browser: it ends cleanly only if the endpoint's did."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._wire = wire_of(scope)
        self._begun = False
        self._refusal = error_response("going_away", "the server is shutting down")
        self.complete = False

    def refuse(self, code: str, message: str, status: int | None = None) -> None:
        """Say this at the end, if nothing has been said by then."""
        self._refusal = error_response(code, message, close=True)
        self._refusal.status_code = status or self._refusal.status_code

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def put(self, part: bytes) -> None:
        await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._wire.drained()

    async def end(self) -> None:
        if self.complete:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self._begun:
            await self._refusal(self._scope, self._receive, self._send)
        elif not self._wire.hang_up():
            raise ResponseAborted("the endpoint's answer broke off")


class _Bare:
    """A bare ASGI application: its answer may break off."""

    def __init__(self, run: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._run(scope, receive, send)


class _Quiet:
    """Ends a session in which neither side says anything: who sleeps does not hang up."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self._loop = asyncio.get_running_loop()
        self.bound = asyncio.timeout(after_s)

    def heard(self) -> None:
        """Something was said."""
        with suppress(RuntimeError):  # It has just ended, or not begun.
            self.bound.reschedule(self._loop.time() + self.after_s)


async def _down(
    endpoint: ClientConnection, browser: WebSocket, stall_s: float, quiet: _Quiet
) -> tuple[int, str]:
    """Carry what the endpoint says; how to close toward the browser."""
    try:
        while True:
            message = await endpoint.recv()
            quiet.heard()
            async with asyncio.timeout(stall_s):
                if isinstance(message, str):
                    await browser.send_text(message)
                else:
                    await browser.send_bytes(message)
    except TimeoutError:
        # It would not take a close frame either.
        wire_of(browser.scope).hang_up(at_once=True)
        return _GONE, ""
    except (WebSocketDisconnect, RuntimeError):
        return _GONE, ""
    except ConnectionClosed as closed:
        if closed.rcvd is None or not 1000 <= closed.rcvd.code < 5000:
            return 1011, "the endpoint broke the connection off"
        told = closed.rcvd.code
        # 1005 and 1006 say that there was none; they cannot be sent (RFC 6455 section 7.4.1).
        return (1000, "") if told in (1005, 1006, 1015) else (told, closed.rcvd.reason)


async def _up(
    endpoint: ClientConnection, browser: WebSocket, stall_s: float, quiet: _Quiet
) -> bool:
    """Carry what the browser says; whether it was the browser that ended it."""
    try:
        while True:
            message = await browser.receive()
            if message["type"] == "websocket.disconnect":
                return True
            quiet.heard()
            text = message.get("text")
            async with asyncio.timeout(stall_s):
                await endpoint.send(message["bytes"] if text is None else text)
    except TimeoutError:
        # It takes nothing: it would not take a close frame either.
        endpoint.transport.abort()
        return False
    except ConnectionClosed:
        return False


async def _while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end, or until the browser leaves, which cancels it.

    :raises ClientDisconnect: if it left.
    """
    async with _cancelled_at_end(_gone(receive)) as gone, _cancelled_at_end(work) as working:
        await asyncio.wait({gone, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        await working


@asynccontextmanager
async def _cancelled_at_end(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work, name="relay-request")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


def _kind(error: BaseException) -> str:
    """What went wrong, without what a peer may have written into it."""
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return "it does not answer in time"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"HTTP status {status}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return type(error).__name__
