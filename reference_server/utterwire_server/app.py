"""The Starlette application: routes, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from utterwire_server.access import gates
from utterwire_server.http import Invocation, error_response
from utterwire_server.service import Service
from utterwire_server.session import Session
from utterwire_server.ui import PAGE_PATHS, Relay, page_routes, relay_address

__all__ = ["INVOCATIONS", "METRICS", "PING", "SESSION", "create_app"]

SESSION = "/invocations-bidirectional-stream"
INVOCATIONS = "/invocations"
PING = "/ping"
METRICS = "/metrics"


def create_app(service: Service) -> Starlette:
    """The ASGI application that serves ``service``.

    It loads the engine when the server starts it and stops the engine when the server stops it.
    Shutting down in order is for who runs it: see `Service.drain`.

    :raises ValueError: if the address of an allowed endpoint is none.
    """
    addresses = sorted({relay_address(url) for url in service.settings.allowed_endpoints})
    relays = {
        str(number): Relay(service, str(number), address)
        for number, address in enumerate(addresses, 1)
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.load()
        try:
            yield
        finally:
            await service.unload()

    async def session(websocket: WebSocket) -> None:
        refusal = service.refusal()
        if refusal is None:
            await Session(websocket, service).run()
        else:
            service.tell("error", refusal[0])
            await websocket.send_denial_response(error_response(*refusal))

    async def ping(_: Request) -> Response:
        status = service.status
        return JSONResponse({"status": status}, 200 if status == "ready" else 503)

    async def metrics(request: Request) -> Response:
        if service.metrics is None:
            missing = "prometheus_client is not installed; pip install 'utterwire[metrics]'"
            return JSONResponse({"error": missing}, 501)
        body, content_type = service.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    async def upgrade_required(_: Request) -> Response:
        return JSONResponse(
            {"error": "this path speaks WebSocket (RFC 6455)"},
            426,
            {"Upgrade": "websocket", "Connection": "Upgrade"},
        )

    async def no_such_session(websocket: WebSocket) -> None:
        await websocket.send_denial_response(JSONResponse(_NOT_FOUND, 404))

    routes: list[BaseRoute] = [
        Route(PING, ping, methods=["GET", "POST"]),
        Route(SESSION, upgrade_required),
        WebSocketRoute(SESSION, session),
        WebSocketRoute("/{path:path}", no_such_session),
    ]
    if service.settings.profiles & {"http", "sse"}:
        routes.insert(0, Route(INVOCATIONS, _Invocations(service), methods=["POST"]))
    if service.settings.metrics:
        routes.insert(0, Route(METRICS, metrics))
    if service.settings.ui:
        for relay in relays.values():
            routes[:0] = relay.routes()
        routes += page_routes(service, relays)
    relayed = frozenset[str]().union(*(relay.paths for relay in relays.values()))
    app = Starlette(
        routes=routes,
        middleware=gates(
            lambda: service.access,
            lambda reason: service.tell("refused", reason),
            free=PAGE_PATHS | {PING} if service.settings.ui else frozenset({PING}),
            counted=relayed | {SESSION, INVOCATIONS},
        ),
        lifespan=lifespan,
        exception_handlers={HTTPException: _told_as_json, Exception: _told_as_internal},
    )
    app.router.redirect_slashes = False
    return app


_NOT_FOUND = {"error": f"no such path; there are {SESSION}, {INVOCATIONS}, {PING} and {METRICS}"}


class _Invocations:
    """`POST /invocations` as a bare ASGI application: its answer may break off."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Invocation(self._service, scope, receive, send).run()


async def _told_as_json(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405 and request.url.path == INVOCATIONS:
        answer = error_response("invalid_request", "only POST is served here")
        answer.status_code = 405
        answer.headers.update(error.headers or {})
        return answer
    body = _NOT_FOUND if error.status_code == 404 else {"error": error.detail}
    return JSONResponse(body, error.status_code, error.headers)


async def _told_as_internal(_: Request, __: Exception) -> Response:
    return error_response("internal", "the endpoint failed")
