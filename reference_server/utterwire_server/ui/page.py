"""The page's files, and what it has to know of the server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import metadata, resources
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from utterwire_player import modules
from utterwire_schemas import SCHEMA_NAMES, asyncapi, schema

from utterwire_server.service import Service
from utterwire_server.ui.relay import Relay, http_transport

__all__ = ["MESSAGES", "PAGE_PATHS", "STATE", "page_routes"]

STATE: Final = "/ui/state"
#: The protocol's messages, as AsyncAPI.
MESSAGES: Final = "/ui/asyncapi.json"
_FOLDER: Final = "/ui/"
_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "svg": "image/svg+xml",
}
#: Nothing but this server's own files, and nobody may frame it or be told where it came from.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@cache
def _files() -> Mapping[str, tuple[bytes, str, str]]:
    """By path: bytes, media type, entity tag."""
    folder = resources.files(__package__).joinpath("static")
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    found = {}
    for name, data in (files | dict(modules())).items():
        media_type = _MEDIA_TYPES.get(name.rpartition(".")[2])
        if media_type is not None:
            path = "/" if name == "index.html" else _FOLDER + name
            found[path] = data, media_type, _tag(data)
    documents = {MESSAGES: asyncapi()}
    # Where its references lead.
    documents |= {f"{_FOLDER}json/{name}.json": schema(name) for name in SCHEMA_NAMES}
    for path, document in documents.items():
        data = json.dumps(document, ensure_ascii=False, indent=2).encode()
        found[path] = data, "application/json", _tag(data)
    return found


def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


#: The page and its files. Whoever has no token may have them, to be asked for it there.
PAGE_PATHS: Final = frozenset(_files())


def page_routes(service: Service, relays: Mapping[str, Relay]) -> list[BaseRoute]:
    """Routes of the page's files and of `STATE`; ``relays`` are the other endpoints it can speak
    through, by name."""

    async def file(request: Request) -> Response:
        data, media_type, tag = _files()[request.scope["route"].path]
        headers = {**_HEADERS, "ETag": tag}
        if tag in [it.strip() for it in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type=media_type)

    async def state(_: Request) -> Response:
        return JSONResponse(_state(service, relays), headers=_HEADERS)

    # Of a POST browsers tell the origin, of a GET to what passes for their own they do not.
    return [
        Route(STATE, state, methods=["POST"]),
        *(Route(path, file) for path in sorted(_files())),
    ]


def _state(service: Service, relays: Mapping[str, Relay]) -> dict[str, Any]:
    options, scheduler = service.options(), service.scheduler
    limits = options.limits
    return {
        "status": service.status,
        "version": metadata.version("utterwire"),
        "engine": service.engine.name,
        "profiles": sorted(service.profiles),
        "voices": list(options.voices),
        "formats": {name: list(options.rates_for(name)) for name in options.formats},
        "default_format": options.default_format,
        "default_sample_rate": options.default_sample_rate,
        "speed": {"min": limits.min_speed, "max": limits.max_speed},
        "max_text_chars": limits.max_text_chars,
        "max_waiting": limits.max_waiting,
        "token": bool(service.access.tokens),
        "sessions": service.sessions,
        "guests": service.guests,
        "max_guests": service.settings.max_sessions,
        "queue": {
            "utterances": scheduler.backlog.places,
            "characters": scheduler.queued_chars,
            "seconds": round(scheduler.queued_s, 3),
        },
        "endpoints": [{"name": name, "url": it.address} for name, it in relays.items()],
        "http_relay": http_transport() is not None,
    }
