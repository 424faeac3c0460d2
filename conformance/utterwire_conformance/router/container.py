"""The router's side toward the container: WebSocket frames, and plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11

from utterwire_conformance.driver.connection import connect_with_buffer
from utterwire_conformance.wire import (
    Frame,
    FrameDecoder,
    FrameTooLarge,
    Opcode,
    accept_key,
    close_payload,
    encode,
)

from .errors import container_refused
from .promptness import acknowledge_at_once

__all__ = ["Container", "ContainerSocket", "HttpAnswer"]

_READ: Final = 65_536
# A caller who reads nothing is to hold up the container, as the kernel's own buffer would not: it
# grows to megabytes, which is minutes of speech.
_RECEIVE_BUFFER: Final = 131_072
_HANDSHAKE_HEADERS: Final = 65_536


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The head of an answer of the container; names of headers in lower case."""

    status: int
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Container:
    """Where the container listens. Times are in seconds."""

    host: str
    port: int
    accept_s: float

    @classmethod
    def at(cls, url: str, *, accept_s: float) -> Container:
        """The container at an http or ws address.

        Raises:
            ValueError: it is no such address.
        """
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.scheme not in ("", "http", "ws") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a container: write http://HOST:PORT")
        if parts.path not in ("", "/") or parts.query:
            raise ValueError(f"{url!r}: the paths of a container are SageMaker's: leave it out")
        return cls(parts.hostname, parts.port or 8080, accept_s)

    @property
    def authority(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def open_socket(
        self, path: str, headers: Iterable[tuple[str, str]] = ()
    ) -> ContainerSocket:
        """Open a WebSocket at `path`, which begins with a slash.

        Raises:
            CallFailed: ModelError, since the container did not take it, or not in time.
        """
        try:
            async with asyncio.timeout(self.accept_s):
                sock = await connect_with_buffer(self.host, self.port, _RECEIVE_BUFFER)
                reader, writer = await asyncio.open_connection(sock=sock)
                try:
                    early = await _shake_hands(reader, writer, self.authority, path, headers)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError:
            raise container_refused(
                f"the container did not accept the connection within {self.accept_s * 1000:g} ms"
            ) from None
        except (OSError, h11.RemoteProtocolError) as error:
            raise container_refused(f"{self.authority}: {_why(error)}") from error
        return ContainerSocket(reader, writer, early)

    @contextlib.asynccontextmanager
    async def invoke(
        self, target: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> AsyncIterator[tuple[HttpAnswer, AsyncIterator[bytes]]]:
        """POST to the container; the head of its answer, and its body as it comes.

        Raises:
            CallFailed: ModelError, since nobody answers.
            ConnectionError: while reading the body, where it was cut off.
        """
        try:
            async with asyncio.timeout(self.accept_s):
                reader, writer = await asyncio.open_connection(self.host, self.port)
        except TimeoutError:
            raise container_refused(
                f"the container did not accept the connection within {self.accept_s * 1000:g} ms"
            ) from None
        except OSError as error:
            raise container_refused(f"{self.authority}: {_why(error)}") from error
        try:
            http = h11.Connection(h11.CLIENT)
            fields = [
                ("Host", self.authority),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
                *headers,
            ]
            request = h11.Request(method="POST", target=target, headers=fields)
            events = (request, h11.Data(data=body), h11.EndOfMessage())
            writer.write(b"".join(http.send(event) or b"" for event in events))
            try:
                await writer.drain()
                head = await _head(http, reader)
            except (OSError, h11.RemoteProtocolError) as error:
                raise container_refused(f"{self.authority}: {_why(error)}") from error
            yield head, _body(http, reader)
        finally:
            writer.transport.abort()


class ContainerSocket:
    """An open WebSocket to the container, frame by frame.

    Any task may send; reading is for one.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, early: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._early = early
        self._socket = writer.get_extra_info("socket")
        self._decoder = FrameDecoder()
        self._waiting: list[Frame] = []
        self.close_sent = False

    async def send(self, opcode: int, payload: bytes = b"", *, fin: bool = True) -> None:
        """Send a frame, masked, and wait until the container takes more.

        A container that has gone is noticed by who reads.
        """
        self._write(opcode, payload, fin=fin)
        with contextlib.suppress(OSError):
            await self._writer.drain()

    # What tells whether the container is alive, or that it is to go, must not wait for one that
    # takes nothing.

    def send_ping(self) -> None:
        """Send a ping."""
        self._write(Opcode.PING)

    def send_close(self, code: int | None) -> None:
        """Send a close frame, once."""
        self._write(Opcode.CLOSE, close_payload(code))

    def _write(self, opcode: int, payload: bytes = b"", *, fin: bool = True) -> None:
        if self.close_sent:
            return
        self.close_sent = opcode == Opcode.CLOSE
        self._writer.write(encode(Frame(opcode, payload, fin, 0, os.urandom(4))))

    async def receive(self) -> Frame | None:
        """The next frame; None where the connection ended. May be cancelled."""
        while not self._waiting:
            acknowledge_at_once(self._socket)
            data, self._early = self._early, b""
            try:
                data = data or await self._reader.read(_READ)
                if not data:
                    return None
                self._waiting = self._decoder.feed(data)
            except (OSError, FrameTooLarge):
                return None
        return self._waiting.pop(0)

    def abort(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End the connection, after what was sent."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        self._writer.transport.abort()


async def _shake_hands(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    authority: str,
    path: str,
    headers: Iterable[tuple[str, str]],
) -> bytes:
    """Open a WebSocket on a connection; what came on the heels of the answer.

    Raises:
        CallFailed: the container answers something else.
    """
    key = base64.b64encode(os.urandom(16)).decode()
    fields = [
        ("Host", authority),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", "13"),
        *headers,
    ]
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HANDSHAKE_HEADERS)
    request = h11.Request(method="GET", target=path, headers=fields)
    writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    await writer.drain()
    answer = await _head(http, reader)
    if answer.status != 101:
        raise container_refused(
            f"the container answers HTTP {answer.status} at {path.partition('?')[0]},"
            " where a WebSocket was asked for",
            status=answer.status,
        )
    if answer.headers.get("sec-websocket-accept") != accept_key(key):
        raise container_refused("the container's Sec-WebSocket-Accept is wrong", status=101)
    early: bytes = http.trailing_data[0]
    return early


async def _head(http: h11.Connection, reader: asyncio.StreamReader) -> HttpAnswer:
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_READ)
            if not data and http.their_state is h11.SEND_RESPONSE:
                raise ConnectionResetError("the container closed the connection without an answer")
            http.receive_data(data)
        elif isinstance(event, h11.Response) or (
            isinstance(event, h11.InformationalResponse) and event.status_code == 101
        ):
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in event.headers
            }
            return HttpAnswer(event.status_code, headers)


async def _body(http: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_READ))
                continue
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError("the container cut its answer off") from error
        if isinstance(event, h11.Data):
            yield bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error)
