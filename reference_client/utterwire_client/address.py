"""Addresses of endpoints (``websocket.md#path``)."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from utterwire_client.errors import RequestInvalid

__all__ = [
    "HTTP_PATH",
    "SESSION_PATH",
    "SageMakerAddress",
    "display",
    "http_url",
    "is_loopback",
    "is_sagemaker",
    "session_url",
]

#: Where an endpoint serves sessions.
SESSION_PATH = "/invocations-bidirectional-stream"

#: Where it serves requests of HTTP.
HTTP_PATH = "/invocations"

_SAGEMAKER = "sagemaker:"
_SAGEMAKER_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}")
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SAGEMAKER_KEYS = ("region", "profile", "variant", "endpoint_url", "ca_file")

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


def is_sagemaker(url: str) -> bool:
    """Whether it is the address of a SageMaker endpoint, ``sagemaker:NAME``."""
    return url.strip().startswith(_SAGEMAKER)


@dataclass(frozen=True, slots=True)
class SageMakerAddress:
    """An endpoint of SageMaker: ``sagemaker:NAME?region=...&variant=...``.

    ``region`` and ``profile`` are those of the AWS configuration where they are None. ``variant``
    is the production variant to ask for. ``endpoint_url`` is where the platform is, for a router
    on one's own machine; ``ca_file`` a PEM file of the authorities to trust there.
    """

    name: str
    region: str | None = None
    profile: str | None = None
    variant: str | None = None
    endpoint_url: str | None = None
    ca_file: Path | None = None

    def __str__(self) -> str:
        return f"{_SAGEMAKER}{self.name}"

    @property
    def url(self) -> str:
        """The whole of it as one address."""
        given = {key: str(getattr(self, key)) for key in _SAGEMAKER_KEYS if getattr(self, key)}
        return f"{self}?{urlencode(given, safe='/:')}" if given else str(self)

    @classmethod
    def parse(cls, url: str) -> "SageMakerAddress":
        """Take an address apart. Raises :class:`RequestInvalid`."""
        name, _, query = url.strip().removeprefix(_SAGEMAKER).partition("?")
        if _SAGEMAKER_NAME.fullmatch(name) is None:
            raise RequestInvalid(
                f"{name!r} is no name of a SageMaker endpoint: write sagemaker:NAME, of letters, "
                "digits and hyphens"
            )
        fields = dict(parse_qsl(query, keep_blank_values=True))
        unknown = [key for key in fields if key not in _SAGEMAKER_KEYS]
        if unknown:
            known = ", ".join(_SAGEMAKER_KEYS)
            raise RequestInvalid(f"sagemaker:{name}: {unknown[0]!r} is not one of {known}")
        empty = next((key for key, value in fields.items() if not value.strip()), None)
        if empty is not None:
            raise RequestInvalid(f"sagemaker:{name}: {empty} is empty: leave it out")
        region = fields.get("region", "us-east-1")
        if _REGION.fullmatch(region) is None:
            raise RequestInvalid(f"sagemaker:{name}: {region!r} is no name of an AWS region")
        where = fields.get("endpoint_url", "https://localhost")
        if not where.startswith("https://") or not _split(where).hostname:
            # The SDK speaks HTTP/2 over TLS alone.
            raise RequestInvalid(
                f"sagemaker:{name}: endpoint_url has to begin with https:// and a host name"
            )
        ca_file = fields.pop("ca_file", None)
        return cls(name, **fields, ca_file=Path(ca_file) if ca_file else None)
