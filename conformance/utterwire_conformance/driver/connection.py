"""Opening a TCP or TLS connection to an endpoint."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = [
    "MOST_BYTES",
    "MOST_FRAMES",
    "SEND_S",
    "Address",
    "ConnectFailed",
    "connect_with_buffer",
    "open_stream",
    "tls_context",
]

MOST_BYTES: Final = 64 * 1024 * 1024
"""The most that is read of one connection: 23 minutes of speech, far more than is asked for."""

MOST_FRAMES: Final = 50_000
"""The most frames that are read of one session, so that a flood of small ones ends as well."""

SEND_S: Final = 10.0
"""How long to wait, in seconds, for a peer to take what is sent, before going on all the same."""

_DEFAULT_PORTS = {"ws": 80, "wss": 443, "http": 80, "https": 443}


class ConnectFailed(OSError):
    """No connection could be opened: nothing can be judged."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect, taken from a URL; `target` is the path with its query."""

    host: str
    port: int
    tls: bool
    target: str

    @classmethod
    def of(cls, url: str) -> Address:
        """The address in a ws, wss, http or https URL."""
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.hostname or "", port, parts.scheme in ("wss", "https"), target)

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def tls_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """The system's trust, or that of a file alone.

    Raises:
        ConnectFailed: the file cannot be read or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise ConnectFailed(f"ca_file {ca_file}: {error}") from error


async def open_stream(
    address: Address,
    *,
    context: ssl.SSLContext | None,
    within: float,
    receive_buffer: int | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; `receive_buffer` in bytes makes the kernel's (and the reader's) buffer small.

    Raises:
        ConnectFailed: nobody answers, or the certificate is not trusted.
    """
    options: dict[str, Any] = {
        "ssl": context if address.tls else None,
        "server_hostname": address.host if address.tls else None,
    }
    try:
        async with asyncio.timeout(within):
            if receive_buffer is None:
                return await asyncio.open_connection(address.host, address.port, **options)
            sock = await connect_with_buffer(address.host, address.port, receive_buffer)
            return await asyncio.open_connection(sock=sock, limit=receive_buffer, **options)
    except TimeoutError as error:
        raise ConnectFailed(f"{_place(address)}: no answer within {within:g} s") from error
    except ssl.SSLError as error:
        raise ConnectFailed(f"{_place(address)}: TLS failed: {error.reason or error}") from error
    except socket.gaierror as error:
        raise ConnectFailed(
            f"{_place(address)}: the name is not known ({error.args[-1]})"
        ) from error
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ConnectFailed(f"{_place(address)}: cannot connect: {why}") from error


def _place(address: Address) -> str:
    return f"{address.host}:{address.port}"


async def connect_with_buffer(host: str, port: int, receive_buffer: int) -> socket.socket:
    """A connected socket with a receive buffer of so many bytes.

    It is set before the connection is made, and the window agreed: shrunk later, it stalls the
    sender.

    Raises:
        OSError: there is no connection.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = ConnectFailed(f"{host}:{port}: the name has no address")
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            await loop.sock_connect(sock, place)
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure
