"""Who is let in: bearer tokens, origins, sessions for each address, and the server's certificate.

All of it is off unless it is asked for, but one thing: a page of another site is refused, which
any browser would otherwise let speak with a server on its own machine or network.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Access", "Gate", "gates", "read_tokens", "renew_tls", "tls_context"]

ANY: Final = "*"
RETRY_AFTER_S: Final = 5
#: Of IPv6 whoever has one address has the whole network.
IPV6_PREFIX: Final = 64
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ORIGIN: Final = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/\s@?#]+", re.IGNORECASE)
_EXPOSED: Final = (
    *("Utterwire-Sample-Rate", "Utterwire-Format", "Utterwire-Voice", "Utterwire-Request-Id"),
    *("Utterwire-Duration-S", "Utterwire-Audio-Bytes", "Utterwire-Characters", "Retry-After"),
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who is let in.

    ``tokens``: one of them must come as `Authorization: Bearer` (RFC 6750); with none, everybody
    may. ``origins``: sites whose pages may (RFC 6454, such as ``https://app.example.com``), besides
    the server's own; ``*`` is any. ``sessions_per_address``: sessions and requests that one address
    may have open; 0 is no limit.

    :raises ValueError: if a value cannot be; a token is never part of the message.
    """

    tokens: tuple[str, ...] = field(default=(), repr=False)
    origins: frozenset[str] = frozenset()
    sessions_per_address: int = 0

    def __post_init__(self) -> None:
        for place, token in enumerate(self.tokens, 1):
            if not _TOKEN.fullmatch(token):
                raise ValueError(
                    f"token {place} is none that a header can carry; it may have letters, digits"
                    " and -._~+/ and end in ="
                )
        for origin in self.origins:
            if origin != ANY and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is not an origin; one looks like https://app.example.com"
                )
        if self.sessions_per_address < 0:
            raise ValueError(
                f"max_sessions_per_address is {self.sessions_per_address}; it must be 0 or more"
            )

    def knows(self, authorization: str) -> bool:
        """Whether the `Authorization` header has one of the tokens; True if there are none.

        It takes as long for a wrong token as for a right one.
        """
        scheme, _, token = authorization.partition(" ")
        given = _digest(token.strip()) if scheme.lower() == "bearer" else b""
        known = [hmac.compare_digest(_digest(it), given) for it in self.tokens]
        return any(known) or not self.tokens

    def welcomes(self, origin: str | None, host: str) -> bool:
        """Whether a page of ``origin`` may; None is no browser, or no page of another site.

        ``host`` is the request's `Host`. The server's own pages may, where no name that somebody
        else has made to lead here can pass for its own (DNS rebinding): at an address, at
        `localhost`, by https, and where nobody is let in without a token.
        """
        if origin is None or ANY in self.origins:
            return True
        if origin in {it.lower() for it in self.origins}:
            return True
        # Browsers write an origin in one way (RFC 6454 section 6.2), a host as the page does.
        scheme, _, own = origin.partition("://")
        if not own or own != host.lower():
            return False
        return scheme == "https" or bool(self.tokens) or _leads_nowhere_else(own)


def _leads_nowhere_else(host: str) -> bool:
    """Whether nobody but this machine's owner says where `host`, maybe with a port, leads to."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True  # RFC 6761 section 6.3.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(token: str) -> bytes:
    # Of one length, so that comparing tells nothing of the token's.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens(path: str) -> tuple[str, ...]:
    """The tokens of a file, one a line; blank lines are skipped.

    :raises ValueError: if it cannot be read or has none; the message names the file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"token file {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"token file {path} is not text") from None
    tokens = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not tokens:
        raise ValueError(f"token file {path} has no token; write one a line")
    return tokens


def tls_context(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """What a server needs to speak TLS 1.2 or newer.

    :param certificate: a PEM file with the certificate and those that lead to its root.
    :param key: a PEM file with the private key; None if it is in the same file.
    :raises ValueError: if they cannot be used; the message names the file.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> NoReturn:
        raise ValueError(
            f"the key in {key or certificate} is encrypted; give it without a password"
        )

    for path in (certificate,) if key is None else (certificate, key):
        # OpenSSL would not say which of the two it is.
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"TLS file {path}: {error.strerror or error}") from None
    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        files = certificate if key is None else f"{certificate} and {key}"
        reason = (error.reason or "not usable").replace("_", " ").lower()
        raise ValueError(f"TLS files {files} are no certificate and its key: {reason}") from None
    return context


def renew_tls(context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
    """Have ``context`` use what is in the files now, for who connects from now on.

    :raises ValueError: as `tls_context`; then nothing has changed.
    """
    # Half a pair would be left behind in the context by one that does not fit.
    tls_context(certificate, key)
    context.load_cert_chain(certificate, key)


def gates(
    access: Callable[[], Access],
    told: Callable[[str], None],
    *,
    free: frozenset[str],
    counted: frozenset[str],
) -> list[Middleware]:
    """What stands before an application: see `Gate`. Where origins are allowed, CORS for HTTP."""
    kept = [Middleware(Gate, access=access, told=told, free=free, counted=counted)]
    if origins := access().origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[it.lower() for it in sorted(origins)],
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "traceparent", "tracestate"],
            expose_headers=_EXPOSED,
        )
        # Outside: a preflight has no token, and a page wants to read why it was refused.
        kept.insert(0, cors)
    return kept


class Gate:
    """Lets in whoever may, as an ASGI application before another.

    Refusals are 401, 403 and 429, each with one line that says why.

    :param access: gives who may, each time that somebody comes.
    :param told: called with the reason of each refusal, one of `REFUSALS`.
    :param free: paths that everybody may have: whoever asks for health has no token.
    :param counted: paths that count for their address while they are open.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Callable[[], Access],
        told: Callable[[str], None],
        free: frozenset[str],
        counted: frozenset[str],
    ) -> None:
        self._app = app
        self._access = access
        self._told = told
        self._free = free
        self._counted = counted
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] not in ("http", "websocket") or path in self._free:
            await self._app(scope, receive, send)
            return
        address = _network(scope) if path in self._counted else None
        refusal = self._refusal(scope, address)
        if refusal is not None:
            reason, response = refusal
            self._told(reason)
            await _refuse(response, scope, receive, send)
            return
        if address is None:
            await self._app(scope, receive, send)
            return
        self._open[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _refusal(self, scope: Scope, address: str | None) -> tuple[str, Response] | None:
        access = self._access()
        if not access.knows(_header(scope, b"authorization") or ""):
            return "unauthorized", JSONResponse(
                {"error": "a valid token is needed: Authorization: Bearer TOKEN"},
                401,
                {"WWW-Authenticate": "Bearer"},
            )
        if not access.welcomes(_header(scope, b"origin"), _header(scope, b"host") or ""):
            return "origin", JSONResponse({"error": "pages of this origin are not let in"}, 403)
        most = access.sessions_per_address
        if address is not None and most and self._open[address] >= most:
            return "address", JSONResponse(
                {"error": f"your address has {most} sessions and requests open, which is the most"},
                429,
                {"Retry-After": str(RETRY_AFTER_S)},
            )
        return None


def _header(scope: Scope, name: bytes) -> str | None:
    found: list[bytes] = [value for key, value in scope["headers"] if key == name]
    # What stands there twice is nobody's token and no page's origin.
    return b", ".join(found).decode("latin-1") if found else None


def _network(scope: Scope) -> str | None:
    """The address that a connection comes from; of IPv6, its network."""
    client: Any = scope.get("client")
    if not client:
        return None
    try:
        address = ipaddress.ip_address(str(client[0]).partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return str(address)


async def _refuse(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http" or "websocket.http.response" in (scope.get("extensions") or {}):
        await response(scope, receive, send)
    else:
        # A server without that extension answers 403 to this.
        await receive()
        await send({"type": "websocket.close"})
