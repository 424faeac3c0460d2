"""What the browser is given: a page for it alone, and a relay to the endpoint.

A browser gives a WebSocket no header fields, and endpoints let no pages of strangers in: so what it
asks goes through here, message by message and byte by byte. It is served on the loopback interface,
below a path that nobody else knows: whoever is let in speaks with the caller's credentials.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module, resources
from typing import Any, Final, TypeAlias

from utterwire_player import modules

from utterwire_client.address import http_url, is_loopback, is_sagemaker
from utterwire_client.endpoints import Endpoint, tls_context
from utterwire_client.errors import ExtraMissing
from utterwire_client.relay import Relay

__all__ = ["Site", "import_extra"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_ENDPOINT: Final = "endpoint"
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
#: Nothing but what is here. Isolated so, the page's clock ticks in 5 µs instead of 100.
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; img-src data:; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
#: What of the head of an endpoint's answer the page is shown, besides what begins so.
_TOLD: Final = frozenset({"content-type", "retry-after"})
_PREFIX: Final = "utterwire-"
_MOST_BYTES: Final = 1024 * 1024


def import_extra(name: str) -> Any:
    """A module of the extra ``browser``. Raises :class:`ExtraMissing`."""
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        missing = (exc.name or name).partition(".")[0]
        raise ExtraMissing(
            f"--browser needs the package {missing}: pip install 'utterwire[browser]'"
        ) from None


class Site:
    """An ASGI application: the page, and the endpoint at ``session`` and ``invocations``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._relay = Relay([replace(endpoint, name=_ENDPOINT)])
        self._headers = list(endpoint.headers.items())
        self._tls = None if endpoint.ca_file is None else tls_context(endpoint.ca_file)
        self._address = None if is_sagemaker(endpoint.url) else http_url(endpoint.url)
        self._connect_s = endpoint.connect_s or 10.0
        self._silence_s = endpoint.first_byte_s or 30.0
        self._files = _files()
        self._client: Any = None
        self.path = f"/{secrets.token_urlsafe(24)}/"

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve it on a free port of the loopback interface; gives the page's address. Raises
        :class:`ExtraMissing`."""
        server = _server(import_extra("uvicorn"), self)
        with _hushed("uvicorn.error"), socket.create_server(("127.0.0.1", 0)) as sock:
            self._client = await self._made()
            task = asyncio.create_task(server.serve([sock]), name="utterwire-site")
            try:
                yield f"http://127.0.0.1:{sock.getsockname()[1]}{self.path}"
            finally:
                server.should_exit = True
                await asyncio.wait({task})
                await self._client.aclose()
            task.result()

    async def _made(self) -> Any:
        httpx = import_extra("httpx")
        address = self._address or ""
        loopback = bool(address) and is_loopback(address)
        make = partial(
            httpx.AsyncClient,
            follow_redirects=False,
            trust_env=not loopback,
            timeout=httpx.Timeout(self._silence_s, connect=self._connect_s),
        )
        if not address.startswith("https:"):
            return make(verify=False)  # there is no TLS on this way
        # Reading the authorities that the system trusts takes a tenth of a second.
        return await asyncio.to_thread(make, verify=True if self._tls is None else self._tls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        known = scope["path"].startswith(self.path)
        name = scope["path"].removeprefix(self.path) if known else None
        if scope["type"] == "websocket":
            # A path that it does not know it refuses by itself.
            asked = f"/{_ENDPOINT}" if name == "session" else "/"
            await self._relay({**scope, "path": asked, "root_path": ""}, receive, send)
        elif name == "invocations" and scope["method"] == "POST":
            await self._pass(receive, send)
        elif name is not None and (name or "index.html") in self._files:
            media_type, data = self._files[name or "index.html"]
            await _answer(send, 200, data, {"content-type": media_type})
        else:
            await _answer(send, 404, b"", {})

    async def _pass(self, receive: Receive, send: Send) -> None:
        """A request to the endpoint, and its answer as it comes."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > _MOST_BYTES:
                await _answer(send, 413, b"", {})
                return
            more = message.get("more_body", False)
        if self._address is None:
            reason = b'{"message": "SageMaker endpoints are listened to by sessions alone"}'
            await _answer(send, 501, reason, {"content-type": "application/json"})
            return
        work = asyncio.create_task(self._ask(bytes(body), send), name="utterwire-site-request")
        gone = asyncio.create_task(_leaving(receive), name="utterwire-site-leaving")
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Who leaves cancels; and the endpoint sees it.
            work.cancel()
            gone.cancel()
            await asyncio.wait({work, gone})
        if not work.cancelled():
            work.result()

    async def _ask(self, body: bytes, send: Send) -> None:
        httpx = import_extra("httpx")
        fields = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            # What is packed comes late.
            "Accept-Encoding": "identity",
        }
        named = {name.lower() for name, _ in self._headers}
        own = [(name, value) for name, value in fields.items() if name.lower() not in named]
        begun = False
        try:
            async with self._client.stream(
                "POST", self._address, content=body, headers=[*own, *self._headers]
            ) as answer:
                told = {
                    name: value
                    for name, value in answer.headers.items()
                    if name in _TOLD or name.startswith(_PREFIX)
                }
                await _head(send, answer.status_code, told)
                begun = True
                async for part in answer.aiter_raw():
                    message = {"type": "http.response.body", "body": part, "more_body": True}
                    await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (httpx.HTTPError, OSError, ValueError) as exc:
            if not begun:
                reason = f'{{"message": "the endpoint cannot be reached ({type(exc).__name__})"}}'
                await _answer(send, 502, reason.encode(), {"content-type": "application/json"})
            # Otherwise it ends unfinished, which the browser sees as broken off.


async def _leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _files() -> Mapping[str, tuple[str, bytes]]:
    folder = resources.files(__package__).joinpath("static")
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return {
        name: (_MEDIA_TYPES[name.rpartition(".")[2]], data)
        for name, data in (files | dict(modules())).items()
        if name.rpartition(".")[2] in _MEDIA_TYPES
    }


async def _head(send: Send, status: int, fields: Mapping[str, str]) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
    safe = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
    start = {"type": "http.response.start", "status": status, "headers": [*headers, *safe]}
    await send(start)


async def _answer(send: Send, status: int, body: bytes, fields: Mapping[str, str]) -> None:
    await _head(send, status, {**fields, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def _hushed(name: str) -> Iterator[None]:
    """What goes wrong here is told where it is noticed."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _server(uvicorn: Any, application: Any) -> Any:
    class Server(uvicorn.Server):  # type: ignore[misc]
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            # They are the command's.
            yield

    return Server(
        uvicorn.Config(
            application,
            ws="websockets-sansio",
            ws_per_message_deflate=False,
            ws_ping_interval=None,
            lifespan="off",
            log_config=None,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
    )
