"""Addresses of endpoints (``websocket.md#path``)."""

import ipaddress
from urllib.parse import SplitResult, urlsplit, urlunsplit

from utterwire_client.errors import RequestInvalid

__all__ = ["HTTP_PATH", "SESSION_PATH", "display", "http_url", "is_loopback", "session_url"]

#: Where an endpoint serves sessions.
SESSION_PATH = "/invocations-bidirectional-stream"

#: Where it serves requests of HTTP.
HTTP_PATH = "/invocations"

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # an invalid port is found only when asked for
    except ValueError as exc:
        raise RequestInvalid(f"{_shorten(url)!r} is not an address: {exc}") from None
    return parts


def _shorten(url: str) -> str:
    # Of an address that cannot be taken apart, the part that may hold a password is left out.
    return url.rpartition("@")[2][:200]


def session_url(url: str) -> str:
    """The WebSocket address of an endpoint's sessions.

    ``http`` and ``https`` become ``ws`` and ``wss``; an address without a path gets
    :data:`SESSION_PATH`; a query is kept. Raises :class:`RequestInvalid` for anything that is not
    such an address.
    """
    url = url.strip()
    if any(character <= " " or character == "\x7f" for character in url):
        raise RequestInvalid(f"{_shorten(url)!r} is not an address: it has white space in it")
    parts = _split(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not url[len(parts.scheme) :].startswith("://"):
        raise RequestInvalid(
            f"{_shorten(url)!r} is not an endpoint's address: it should begin with ws:// or wss://"
        )
    if not parts.hostname:
        raise RequestInvalid(f"{_shorten(url)!r} has no host name")
    if "#" in url:
        raise RequestInvalid(
            f"{display(url)!r} has a fragment (#): leave it out (RFC 6455 section 3)"
        )
    path = SESSION_PATH if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def http_url(url: str) -> str:
    """The address of an endpoint's HTTP requests.

    ``ws`` and ``wss`` become ``http`` and ``https``; an address without a path, or with that of
    the sessions, gets :data:`HTTP_PATH`; a query is kept. Raises :class:`RequestInvalid` likewise.
    """
    parts = _split(session_url(url))
    scheme = "https" if parts.scheme == "wss" else "http"
    prefix = parts.path.removesuffix(SESSION_PATH)
    path = prefix + HTTP_PATH if prefix != parts.path else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def display(url: str) -> str:
    """The address as it may be shown: without user, password, query and fragment."""
    parts = _split(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_loopback(url: str) -> bool:
    """Whether the address names this machine by a loopback address or as ``localhost``."""
    host = (_split(url).hostname or "").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
