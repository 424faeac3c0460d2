"""The options that say where the endpoint is, and how to get in."""

import argparse
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from utterwire_client.backend import Backend
from utterwire_client.cli.exit_code import UsageError
from utterwire_client.deadlines import Deadlines
from utterwire_client.endpoints import Endpoint, find_endpoint, tls_context
from utterwire_client.errors import ExtraMissing, PeerViolation
from utterwire_client.events import Event
from utterwire_client.session import Session, connect

__all__ = ["TRANSPORTS", "TransportName", "Where", "add_where", "import_http"]

TransportName = Literal["websocket", "http", "sse"]

#: The ways to an endpoint, as they are named on the command line.
TRANSPORTS: tuple[TransportName, ...] = ("websocket", "http", "sse")

# The audio is whole by then: an endpoint that does not say goodbye is not waited for.
_CLOSE_S = 1.0


def add_where(command: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--endpoint",
        metavar="NAME",
        help="an endpoint of the endpoint file; `reference` needs none (default: reference)",
    )
    where.add_argument("--url", help="the endpoint's address: ws://HOST:PORT or wss://HOST")
    command.add_argument(
        "--endpoints-file",
        type=Path,
        metavar="PATH",
        help="the endpoint file (default: $UTTERWIRE_ENDPOINTS, else ./endpoints.toml)",
    )
    command.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header field for the opening handshake or the request; may be repeated",
    )
    command.add_argument(
        "--ca-file", type=Path, metavar="PATH", help="authorities to trust for wss:// (PEM)"
    )
    command.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long the endpoint may keep silent: to connect, to the first audio, between "
        "chunks (defaults: 10, 30, 30)",
    )


@dataclass(frozen=True, slots=True)
class Where:
    """An endpoint, and what it takes to be let in."""

    endpoint: Endpoint
    tls: ssl.SSLContext | None
    headers: list[tuple[str, str]]
    deadlines: Deadlines

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Where":
        """What the options say. Raises ``UsageError``, :class:`RequestInvalid`."""
        if arguments.url is not None:
            endpoint = Endpoint(name=arguments.url, url=arguments.url)
        else:
            endpoint = find_endpoint(
                arguments.endpoint or "reference", file=arguments.endpoints_file
            )
        ca_file = arguments.ca_file or endpoint.ca_file
        return cls(
            endpoint=endpoint,
            tls=None if ca_file is None else tls_context(ca_file),
            headers=_headers(endpoint, [_header(given) for given in arguments.header]),
            deadlines=_deadlines(arguments.timeout, endpoint),
        )

    def connect(
        self,
        *,
        negotiate: bool = False,
        on_violation: Callable[[PeerViolation], None] | None = None,
    ) -> connect:
        """A session there."""
        return connect(
            self.endpoint.url,
            headers=self.headers,
            ssl=self.tls,
            deadlines=self.deadlines,
            negotiate=negotiate,
            on_violation=on_violation,
        )

    @asynccontextmanager
    async def speaker(
        self, transport: TransportName, on_violation: Callable[[PeerViolation], None]
    ) -> AsyncIterator[Session | Backend]:
        """Something there that speaks texts."""
        if transport == "websocket":
            async with self.connect(on_violation=on_violation) as session:
                yield session
            return
        import_http()
        from utterwire_client.http import HttpBackend

        async with HttpBackend(
            self.endpoint.url,
            transport=transport,
            headers=self.headers,
            ssl=self.tls,
            deadlines=self.deadlines,
            on_violation=on_violation,
        ) as backend:
            yield backend


def _headers(endpoint: Endpoint, given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    replaced = {name.lower() for name, _ in given}
    kept = [pair for pair in endpoint.headers.items() if pair[0].lower() not in replaced]
    return kept + given


def _header(given: str) -> tuple[str, str]:
    name, colon, value = given.partition(":")
    if not colon:
        # The value may be a secret: it is not repeated.
        raise UsageError("--header wants 'NAME: VALUE', with a colon")
    return name.strip(), value.strip()


def _deadlines(timeout: float | None, endpoint: Endpoint) -> Deadlines:
    standard = Deadlines()
    if timeout is not None:
        return Deadlines(
            connect_s=timeout, first_chunk_s=timeout, stall_s=timeout, close_s=_CLOSE_S
        )
    return Deadlines(
        close_s=_CLOSE_S,
        connect_s=endpoint.connect_s or standard.connect_s,
        first_chunk_s=endpoint.first_byte_s or standard.first_chunk_s,
        stall_s=endpoint.stall_s or standard.stall_s,
    )


def import_http() -> Callable[..., AsyncGenerator[Event]]:
    """What speaks over HTTP, which needs a package of its own. Raises :class:`ExtraMissing`."""
    try:
        from utterwire_client.http import http_utterance
    except ModuleNotFoundError as exc:
        missing = (exc.name or "httpx").partition(".")[0]
        raise ExtraMissing(
            f"HTTP needs the package {missing}: pip install 'utterwire[client]'"
        ) from None
    return http_utterance
