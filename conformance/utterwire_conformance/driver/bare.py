"""A connection whose octets nobody writes down: for floods, and for what is no HTTP at all."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from .connection import Address, open_stream

__all__ = ["BareConnection"]

_READ: Final = 65_536
_PIECE: Final = 65_536
_MOST_HEAD: Final = 65_536


class BareConnection:
    """Octets over TCP or TLS. An asynchronous context manager, which breaks the connection off."""

    def __init__(
        self,
        address: Address,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        headers: tuple[tuple[str, str], ...],
    ) -> None:
        self._address = address
        self._reader, self._writer = streams
        self._headers = headers

    @classmethod
    async def open(
        cls,
        url: str,
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
        streams = await open_stream(
            address, context=context, within=within, receive_buffer=receive_buffer
        )
        return cls(address, streams, tuple(headers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    def opening(self, *, target: str | None = None, **changes: str | None) -> bytes:
        """The head of a handshake; `changes` are fields by name (`_` for `-`), None drops one."""
        fields: dict[str, str | None] = {
            "host": self._address.authority,
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
            "sec-websocket-version": "13",
        }
        fields |= {name.replace("_", "-"): value for name, value in changes.items()}
        lines = [f"GET {target or self._address.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
        lines += [f"{name}: {value}" for name, value in self._headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def shake_hands(self, *, within: float) -> bool:
        """Open a session; whether the endpoint agreed to it."""
        await self.write(self.opening(), within=within)
        try:
            async with asyncio.timeout(within):
                head = await self._reader.readuntil(b"\r\n\r\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False
        return head.split(b" ", 2)[1:2] == [b"101"]

    async def write(self, octets: bytes, *, within: float) -> int:
        """Send octets; how many of them this side got rid of in `within` seconds."""
        taken = 0
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(within):
                for at in range(0, len(octets), _PIECE):
                    piece = octets[at : at + _PIECE]
                    self._writer.write(piece)
                    await self._writer.drain()
                    taken += len(piece)
        return taken

    async def read_to_end(self, *, within: float) -> bool:
        """Read and drop what comes; whether the peer ended the connection in that time."""
        try:
            async with asyncio.timeout(within):
                while await self._reader.read(_READ):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    async def read_some(self, *, within: float) -> bytes:
        """The first octets that come, at most 64 KiB; none where the peer ends or is silent."""
        try:
            async with asyncio.timeout(within):
                return await self._reader.read(_MOST_HEAD)
        except (OSError, TimeoutError):
            return b""
