"""What a session needs of the thing that carries it.

WebSocket is one such thing (:mod:`utterwire_client.websocket`); a session knows no other interface
than this, so that further bindings fit under it.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from utterwire_client.errors import RequestInvalid

__all__ = ["Headers", "Transport", "TransportClosed", "checked_headers"]

#: Header fields to send when a session is opened; pairs may repeat a name.
Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]


class TransportClosed(Exception):
    """The transport carries nothing more.

    ``code`` is the peer's close code where the binding has such codes and one came. ``error`` is
    the platform's name for the end, where the binding has such names.
    """

    def __init__(self, message: str, *, code: int | None = None, error: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.error = error


class Transport(Protocol):
    """One open session: whole messages both ways, in order."""

    async def send(self, message: str) -> None:
        """Send one message; returns when the transport has room for more.

        Raises :class:`TransportClosed`.
        """
        ...

    async def receive(self) -> str | bytes:
        """The next whole message: text as ``str``, binary as ``bytes``.

        May be cancelled without losing a message. Raises :class:`TransportClosed` once everything
        that had arrived was handed over.
        """
        ...

    async def close(self) -> None:
        """End the session in the binding's orderly way; bounded in time, never raises."""
        ...

    def abort(self) -> None:
        """Drop the session at once; a pending ``send`` or ``receive`` then raises."""
        ...


_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def checked_headers(headers: Headers | None) -> list[tuple[str, str]]:
    """The header fields as pairs. Raises :class:`RequestInvalid` for what HTTP cannot carry."""
    if headers is None:
        return []
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    for name, value in pairs:
        if not name or not _TOKEN.issuperset(name):
            raise RequestInvalid(f"{name!r} is not the name of a header field (RFC 9110)")
        if any(character < " " and character != "\t" for character in value) or "\x7f" in value:
            raise RequestInvalid(
                f"the value of header field {name} has control characters in it: take them out"
            )
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestInvalid(f"the value of header field {name} is not Unicode text") from None
    return pairs
