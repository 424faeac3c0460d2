"""Sessions over WebSocket (``websocket.md``)."""

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from typing import Literal

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import (
    ConcurrencyError,
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)

from utterwire_client.address import display, is_loopback, session_url
from utterwire_client.errors import ConnectFailed, DeadlineExceeded, RequestInvalid
from utterwire_client.transport import Headers, TransportClosed, checked_headers

__all__ = ["WebSocketTransport", "open_websocket"]

_USER_AGENT = "utterwire-client/1"

# A chunk is at most 64 KiB, but deployed endpoints send whole paragraphs as one frame (1.26 MB
# was seen). With the few frames held below, this is what a hostile peer can make us keep.
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_MAX_FRAMES = 4

# Pings keep a path through middleboxes open. No pong is demanded: while the reader is held up
# by an unread utterance, pongs wait unread too, and the session's deadlines watch the peer.
_PING_INTERVAL_S = 20.0

# How long the closing handshake may take, after the session itself has ended.
_CLOSE_TIMEOUT_S = 2.0

_logger = logging.getLogger("utterwire_client.websocket")


class _Connect(websocket_connect):
    # A redirect would carry the caller's header fields, tokens among them, to another place.
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _Connection(ClientConnection):
    """A connection that ends though the peer does not close TCP.

    Once a close frame was sent, after the peer's or because what came was no valid traffic, TCP is
    the peer's to close (RFC 6455 section 7.1.1). One that does not is dropped: whoever waits for a
    message is told why by nothing else.
    """

    _drop_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._drop_timer is None and self.protocol.close_expected():
            self._drop_timer = self.loop.call_later(
                self.close_timeout or _CLOSE_TIMEOUT_S, self.transport.abort
            )

    def connection_lost(self, exc: Exception | None) -> None:
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        super().connection_lost(exc)


class WebSocketTransport:
    """A :class:`~utterwire_client.transport.Transport` over one WebSocket connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, message: str) -> None:
        try:
            await self._connection.send(message)
        except ConnectionClosed as exc:
            raise _closed(exc) from None

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.recv()
        except ConnectionClosed as exc:
            raise _closed(exc) from None

    async def close(self) -> None:
        # The peer's close frame stands behind all that it sent before: that is read, too.
        drain = asyncio.create_task(self._drain(), name="utterwire-drain")
        try:
            await self._connection.close()
        finally:
            drain.cancel()
            await asyncio.wait({drain})

    async def _drain(self) -> None:
        # Ends at the end of the connection; or at once, where another task is reading already.
        with contextlib.suppress(ConnectionClosed, ConcurrencyError):
            while True:
                await self._connection.recv()

    def abort(self) -> None:
        self._connection.transport.abort()


def _closed(exc: ConnectionClosed) -> TransportClosed:
    if exc.rcvd is not None:
        reason = f": {exc.rcvd.reason!r}" if exc.rcvd.reason else ""
        return TransportClosed(
            f"the endpoint closed the connection with code {exc.rcvd.code}{reason}",
            code=exc.rcvd.code,
        )
    if exc.sent is not None and exc.sent.code != 1000:
        # The library found a fault in what came, and said so to the peer (RFC 6455 section 7.1.7).
        return TransportClosed(
            f"what came was no valid WebSocket traffic ({exc.sent.code} {exc.sent.reason})".rstrip()
        )
    return TransportClosed("the connection broke without a closing handshake")


async def open_websocket(
    url: str,
    *,
    headers: Headers | None = None,
    ssl_context: ssl.SSLContext | None = None,
    proxy: str | Literal[True] | None = True,
    connect_s: float,
    close_s: float,
) -> WebSocketTransport:
    """Open a session at ``url`` (see :func:`~utterwire_client.address.session_url`).

    ``proxy`` is True for what the environment says (never for this machine's own addresses), None
    for none, or the address of one. ``connect_s`` bounds the whole of it, ``close_s`` the closing
    handshake later, in seconds.

    Raises :class:`RequestInvalid`, :class:`ConnectFailed`, :class:`DeadlineExceeded`.
    """
    address = session_url(url)
    shown = display(address)
    if ssl_context is not None and not address.startswith("wss:"):
        raise RequestInvalid(f"TLS settings were given, but {shown} is not a wss:// address")
    if proxy is True and is_loopback(address):
        proxy = None
    tls = (ssl_context or True) if address.startswith("wss:") else None
    try:
        connection = await _Connect(
            address,
            create_connection=_Connection,
            compression=None,
            additional_headers=checked_headers(headers),
            user_agent_header=_USER_AGENT,
            proxy=proxy,
            open_timeout=None if math.isinf(connect_s) else connect_s,
            ping_interval=_PING_INTERVAL_S,
            ping_timeout=None,
            close_timeout=min(close_s, _CLOSE_TIMEOUT_S),
            max_size=_MAX_MESSAGE_BYTES,
            max_queue=_MAX_FRAMES,
            logger=_logger,
            ssl=tls,
        )
    except TimeoutError as exc:
        # The operating system has a time limit of its own for TCP; the library wraps it up.
        if isinstance(exc.__cause__, OSError) and exc.__cause__.errno is not None:
            raise ConnectFailed(f"{shown} does not answer", retryable=True) from exc
        raise DeadlineExceeded(
            f"no connection to {shown} within {connect_s:g} s", which="connect", seconds=connect_s
        ) from None
    except UnicodeError:
        raise RequestInvalid(f"{shown} has no valid host name (RFC 3490)") from None
    except (OSError, InvalidHandshake, InvalidProxy, InvalidURI, ImportError) as exc:
        raise _connect_failed(shown, exc) from exc
    return WebSocketTransport(connection)


def _line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__


def _connect_failed(shown: str, exc: Exception) -> ConnectFailed:
    match exc:
        case InvalidStatus():
            return _refused(shown, exc)
        case InvalidMessage():
            return ConnectFailed(f"{shown} does not answer as HTTP: is it ws:// or wss://?")
        case InvalidProxy():  # its own words repeat the address, which may hold a password
            return ConnectFailed(f"no way to {shown}: the proxy's address is no good ({exc.msg})")
        case ProxyError() | ImportError():
            return ConnectFailed(f"no way to {shown} through the proxy: {_line(exc)}")
        case InvalidURI():
            return ConnectFailed(f"{shown} is no good as an address ({exc.msg})")
        case InvalidHandshake():
            return ConnectFailed(f"{shown} does not open a WebSocket: {_line(exc)}")
        case ssl.SSLCertVerificationError():
            return ConnectFailed(
                f"the certificate of {shown} is not trusted ({exc.verify_message}): "
                "name the authority that signed it (ca_file)"
            )
        case ssl.SSLError():
            return ConnectFailed(
                f"no TLS connection to {shown} ({exc.reason or _line(exc)}): "
                "does it speak TLS, or is it a ws:// address?"
            )
        case socket.gaierror():
            return ConnectFailed(f"the host of {shown} is not known ({exc.strerror})")
        case ConnectionRefusedError():
            return ConnectFailed(f"nothing listens at {shown}", retryable=True)
        case _:
            return ConnectFailed(f"no connection to {shown}: {_line(exc)}", retryable=True)


def _refused(shown: str, exc: InvalidStatus) -> ConnectFailed:
    response = exc.response
    status = response.status_code
    retry_after = response.headers.get("Retry-After", "")
    retry_after_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if 300 <= status < 400 and "Location" in response.headers:
        advice = "it redirects elsewhere, which is not followed: give the final address"
    elif status in (401, 403):
        advice = "check the credentials in the header fields"
    elif status == 404:
        advice = "check the path of the address"
    elif status in (408, 425, 429, 500, 502, 503, 504):
        advice = "try again later"
    else:
        advice = "it does not serve WebSocket sessions there"
    return ConnectFailed(
        f"{shown} answers HTTP {status} ({advice})",
        status=status,
        retry_after_s=retry_after_s,
        retryable=status in (408, 425, 429, 500, 502, 503, 504),
    )
