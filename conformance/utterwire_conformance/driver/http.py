"""HTTP/1.1 exchanges, read piece by piece, recorded as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

import h11

from .connection import MOST_BYTES, MOST_FRAMES, SEND_S, Address, ConnectFailed, open_stream
from .recorder import Recorder

__all__ = ["HttpConnection", "fetch_status"]

_READ: Final = 65_536
_MOST_LINES: Final = 1_000_000
# Of a stream of events: an event has a few lines, and what is asked for takes some thousands.


class HttpConnection:
    """One connection, which carries any number of exchanges one after another.

    `status`, `headers` (names in lower case), `body` and `clean` are those of the latest exchange;
    `clean` is None until the body ends, then tells whether it ended as HTTP says it must.
    """

    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        recorder: Recorder | None,
        headers: tuple[tuple[str, str], ...],
    ) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._headers = headers
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=65_536)
        self.session = recorder.next_session() if recorder is not None else 0
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.clean: bool | None = None
        self.most_bytes = MOST_BYTES
        self.receive_buffer: int | None = None
        self._pieces = self._lines = 0
        self._asked = self._ended = False
        self.gate: Callable[[int], Awaitable[None]] | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        recorder: Recorder | None,
        *,
        headers: Iterable[tuple[str, str]] = (),
        context: ssl.SSLContext | None = None,
        within: float = 10.0,
        receive_buffer: int | None = None,
    ) -> Self:
        """Connect to the host of `url`.

        Raises:
            ConnectFailed: there is no transport.
        """
        address = Address.of(url)
        reader, writer = await open_stream(
            address, context=context, within=within, receive_buffer=receive_buffer
        )
        opened = cls(address, reader, writer, recorder, tuple(headers))
        opened.receive_buffer = receive_buffer
        return opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()

    @property
    def over(self) -> bool:
        """Whether it holds no place at the endpoint any more."""
        return self._ended or self.clean is False

    async def end(self) -> None:
        """End the transport; the transcript says so where an exchange is broken off by that."""
        if self._asked and self.clean is None and not self._ended:
            self._record("out", "eof", reason="broken off by the suite")
        self._ended = True
        self._writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another exchange, as far as the answer told."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        headers: Iterable[tuple[str, str]] = (),
        characters: int = 0,
    ) -> None:
        """Send a request; `target` is the path. What came before must have been read.

        Raises:
            ConnectFailed: the connection is not there any more.
        """
        if self.gate is not None:
            await self.gate(characters)
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        self.status, self.clean = None, None
        self.headers, self.body = {}, bytearray()
        self._pieces = self._lines = 0
        own = [("Host", self._address.authority), *headers]
        if body or method in ("POST", "PUT"):
            own.append(("Content-Length", str(len(body))))
        query = self._address.target.partition("?")[2]
        hidden = [(name, "***") for name, _ in self._headers]
        self._record(
            "out",
            "http-request",
            method=method,
            target=target,
            headers=(*own, *hidden),
            data=body,
        )
        if not self._asked and self.receive_buffer is not None and self._recorder is not None:
            self._recorder.note(f"receive buffer: {self.receive_buffer}", self.session)
        self._asked = True
        request = h11.Request(
            method=method,
            target=f"{target}?{query}" if query else target,
            headers=[*own, *self._headers],
        )
        try:
            octets = self._http.send(request) or b""
            if body:
                octets += self._http.send(h11.Data(data=body)) or b""
            octets += self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise ConnectFailed(f"the connection cannot carry a request: {error}") from error
        # An endpoint may answer before it has read all, and then read no further.
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(SEND_S):
                self._writer.write(octets)
                await self._writer.drain()

    async def head(self, *, within: float) -> int | None:
        """Wait for status and headers; None where the connection ends or the time runs out."""
        while self.status is None and self.clean is None:
            if not await self._step(within):
                break
        return self.status

    async def read(self, *, within: float, at_least: int | None = None) -> bytes:
        """Read the body to its end (or to `at_least` bytes); `within` is for each piece."""
        while self.clean is None and (at_least is None or len(self.body) < at_least):
            if not await self._step(within):
                break
        return bytes(self.body)

    async def _step(self, within: float) -> bool:
        """Take the next event; False where none came in time."""
        try:
            event = self._http.next_event()
            while event is h11.NEED_DATA:
                async with asyncio.timeout(within):
                    data = await self._reader.read(_READ)
                self._http.receive_data(data)
                event = self._http.next_event()
        except TimeoutError:
            return False
        except (h11.RemoteProtocolError, ConnectionError) as error:
            self._cut(str(error))
            return True
        if isinstance(event, h11.Response):
            self.status = event.status_code
            for raw_name, raw_value in event.headers:
                name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
                before = self.headers.get(name)
                self.headers[name] = f"{before}, {value}" if before is not None else value
            self._record(
                "in", "http-response", status=self.status, headers=tuple(self.headers.items())
            )
        elif isinstance(event, h11.Data):
            self.body += event.data
            self._record("in", "http-body", data=bytes(event.data), fin=False)
            self._pieces += 1
            if self.headers.get("content-type", "").startswith("text/event-stream"):
                self._lines += event.data.count(b"\n") + event.data.count(b"\r")
            if len(self.body) > self.most_bytes:
                self._cut(f"the body is of more than {self.most_bytes} bytes; nobody reads on")
            elif self._pieces > MOST_FRAMES:
                self._cut(f"the body is of more than {MOST_FRAMES} pieces; nobody reads on")
            elif self._lines > _MOST_LINES:
                self._cut(f"the body is of more than {_MOST_LINES} lines; nobody reads on")
        elif isinstance(event, h11.EndOfMessage):
            self.clean = True
            self._record("in", "http-body", fin=True)
        elif isinstance(event, h11.ConnectionClosed):
            self._cut("end of stream")
        return True

    def _cut(self, why: str) -> None:
        self.clean = False
        self._record("in", "eof", reason=why)

    def _record(self, direction: Any, kind: Any, **fields: Any) -> None:
        if self._recorder is not None:
            self._recorder.record(direction, kind, self.session, **fields)


async def fetch_status(
    url: str,
    *,
    headers: Iterable[tuple[str, str]] = (),
    context: ssl.SSLContext | None = None,
    within: float = 2.0,
) -> int | None:
    """The status of a GET, or None where nothing answers; not recorded."""
    try:
        async with (
            asyncio.timeout(2 * within),
            await HttpConnection.open(
                url, None, headers=headers, context=context, within=within
            ) as connection,
        ):
            await connection.send("GET", Address.of(url).target.partition("?")[0])
            return await connection.head(within=within)
    except (ConnectFailed, TimeoutError):
        return None
