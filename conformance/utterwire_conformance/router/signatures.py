"""Signature Version 4: of a request, and of the chain of events that follows it.

Written from AWS's description ("Create a signed AWS API request"; "Signature calculations" with
`STREAMING-AWS4-HMAC-SHA256-EVENTS`). Nothing here does input or output.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote, unquote

from .errors import CallFailed, access_denied

__all__ = ["EVENTS", "ChainBroken", "Credentials", "EventChain", "Signed", "verify_request"]

EVENTS: Final = "STREAMING-AWS4-HMAC-SHA256-EVENTS"
"""What `x-amz-content-sha256` says of a body of signed events."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "sagemaker"
_MOST_SKEW: Final = timedelta(minutes=5)
_SCOPE: Final = re.compile(r"([^/\s]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
_UNRESERVED: Final = "-_.~"
_MUST_SIGN: Final = re.compile(r"host$|x-amz-")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A pair of keys, with the token that temporary ones come with."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Signed:
    """What a request's signature fixed: by whom, for which day and region; and itself, in hex."""

    access_key: str
    date: str
    region: str
    signature: str

    @property
    def scope(self) -> str:
        """The credential scope."""
        return _scope(self.date, self.region)


class ChainBroken(Exception):
    """An event is not signed, or not by who signed the request."""


def verify_request(
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    credentials: Credentials,
    *,
    body: bytes | None = None,
    now: datetime | None = None,
) -> Signed:
    """Check the signature of a request; `headers` by name in lower case, `host` among them.

    `body` is None where events follow, which are signed one by one.

    Raises:
        CallFailed: with 403 and the name by which AWS refuses; the text tells what to look at.
    """
    now = now or datetime.now(UTC)
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        fields.setdefault(name.lower(), []).append(value)
    given = fields.get("authorization")
    if given is None:
        raise access_denied("MissingAuthenticationTokenException", "the request is not signed")
    parts = _authorization(given[0])
    scope = _SCOPE.fullmatch(parts["credential"])
    if scope is None:
        raise _incomplete("its Credential is no scope of aws4_request")
    access_key, date, region, service = scope.groups()
    if service != _SERVICE:
        raise _wrong(f"it is scoped to the service {service}, and should be to {_SERVICE}")
    if access_key != credentials.access_key:
        raise access_denied(
            "UnrecognizedClientException", "the access key is not the one that this router takes"
        )
    if credentials.session_token is not None:
        token = fields.get("x-amz-security-token", [""])[0]
        if not hmac.compare_digest(token.encode(), credentials.session_token.encode()):
            raise access_denied("UnrecognizedClientException", "the session token is another one")
    timestamp = fields.get("x-amz-date", [""])[0]
    _check_time(timestamp, date, now)
    names = parts["signedheaders"].split(";")
    missing = [name for name in names if name not in fields]
    if missing:
        raise _incomplete(f"{missing[0]} is signed and was not sent")
    unsigned = [name for name in ("host", *fields) if name not in names and _MUST_SIGN.match(name)]
    if unsigned:
        raise _incomplete(f"{unsigned[0]} is not signed")
    declared = fields.get("x-amz-content-sha256", [""])[0]
    if body is not None:
        actual = hashlib.sha256(body).hexdigest()
        if declared not in ("", "UNSIGNED-PAYLOAD", actual):
            raise _wrong("x-amz-content-sha256 is not the digest of the body")
        declared = declared or actual
    elif declared != EVENTS:
        raise _wrong(f"x-amz-content-sha256 is not {EVENTS}, as it is where events are signed")
    canonical = _canonical(method, target, fields, names, declared)
    to_sign = "\n".join((_ALGORITHM, timestamp, _scope(date, region), _digest(canonical.encode())))
    key = _signing_key(credentials.secret_key, date, region)
    expected = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), parts["signature"].encode()):
        raise _wrong("check the secret key, and that nothing between changed the request")
    return Signed(access_key, date, region, expected)


class EventChain:
    """The signatures of the events of one stream, each over the one before."""

    def __init__(self, signed: Signed, secret_key: str) -> None:
        self._signed = signed
        self._secret_key = secret_key
        self._prior = signed.signature

    def verify(self, date: datetime | None, signature: bytes | None, payload: bytes) -> None:
        """Check the next event by its `:date`, its `:chunk-signature` and its payload.

        Raises:
            ChainBroken: it is not the signature that it should be.
        """
        if date is None or signature is None:
            raise ChainBroken("an event carries no :date and :chunk-signature")
        expected = self.sign(date, payload)
        if not hmac.compare_digest(expected, signature):
            raise ChainBroken("an event's :chunk-signature is not that of its payload")
        self._prior = expected.hex()

    def sign(self, date: datetime, payload: bytes) -> bytes:
        """The signature that the next event should carry."""
        moment = date.astimezone(UTC)
        timestamp = moment.strftime("%Y%m%dT%H%M%SZ")
        day = timestamp[:8]
        to_sign = "\n".join(
            (
                f"{_ALGORITHM}-PAYLOAD",
                timestamp,
                _scope(day, self._signed.region),
                self._prior,
                _digest(_date_header(moment)),
                _digest(payload),
            )
        )
        key = _signing_key(self._secret_key, day, self._signed.region)
        return hmac.new(key, to_sign.encode(), hashlib.sha256).digest()


def _authorization(value: str) -> dict[str, str]:
    algorithm, _, rest = value.partition(" ")
    if algorithm != _ALGORITHM:
        raise _incomplete(f"Authorization does not begin with {_ALGORITHM}")
    parts: dict[str, str] = {}
    for item in rest.split(","):
        name, equals, text = item.strip().partition("=")
        if equals:
            parts[name.lower()] = text
    for name in ("credential", "signedheaders", "signature"):
        if not parts.get(name):
            raise _incomplete(f"Authorization has no {name}")
    return parts


def _check_time(timestamp: str, date: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise _incomplete("x-amz-date is missing or no timestamp") from None
    if timestamp[:8] != date:
        raise _wrong("x-amz-date is of another day than the credential scope")
    if abs(signed_at - now) > _MOST_SKEW:
        raise _wrong(f"it was signed at {timestamp}, more than 5 minutes from now: check the clock")


def _canonical(
    method: str, target: str, fields: dict[str, list[str]], names: list[str], digest: str
) -> str:
    path, _, query = target.partition("?")
    pairs = sorted(
        (quote(unquote(name), safe=_UNRESERVED), quote(unquote(value), safe=_UNRESERVED))
        for name, _, value in (item.partition("=") for item in query.split("&") if item)
    )
    lines = [
        method,
        # What is in the path is encoded once more (all services but S3).
        quote(path or "/", safe="/" + _UNRESERVED),
        "&".join(f"{name}={value}" for name, value in pairs),
        *(f"{name}:{','.join(' '.join(v.split()) for v in fields[name])}" for name in names),
        "",
        ";".join(names),
        digest,
    ]
    return "\n".join(lines)


def _signing_key(secret_key: str, date: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, _SERVICE, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _scope(date: str, region: str) -> str:
    return f"{date}/{region}/{_SERVICE}/aws4_request"


def _date_header(moment: datetime) -> bytes:
    """The header `:date` as it is encoded in an event: a name, type 8, milliseconds."""
    name = b":date"
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = (moment - epoch) // timedelta(milliseconds=1)
    return struct.pack("!B", len(name)) + name + struct.pack("!Bq", 8, milliseconds)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _incomplete(why: str) -> CallFailed:
    return access_denied("IncompleteSignatureException", f"the signature is incomplete: {why}")


def _wrong(why: str) -> CallFailed:
    return access_denied("InvalidSignatureException", f"the signature does not match: {why}")
