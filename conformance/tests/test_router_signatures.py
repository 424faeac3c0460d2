"""Signatures are checked as AWS makes them: against botocore, and by the chain of events."""

from __future__ import annotations

import hashlib
import hmac
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from utterwire_conformance.router.errors import CallFailed
from utterwire_conformance.router.signatures import (
    EVENTS,
    ChainBroken,
    Credentials,
    EventChain,
    Signed,
    verify_request,
)

KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
PATH = "/endpoints/tts/invocations"


def signed(
    *,
    url: str = f"https://localhost:8443{PATH}",
    body: bytes = b'{"text": "Hello."}',
    keys: Credentials = KEYS,
    service: str = "sagemaker",
    headers: dict[str, str] | None = None,
) -> list[tuple[str, str]]:
    """The headers of a request that botocore signed just now."""
    request = AWSRequest("POST", url, data=body, headers={"Host": "localhost:8443"})
    for name, value in (headers or {}).items():
        request.headers[name] = value
    credentials = BotoCredentials(keys.access_key, keys.secret_key, keys.session_token)
    SigV4Auth(credentials, service, "eu-west-1").add_auth(request)
    return [(name.lower(), value) for name, value in request.headers.items()]


@pytest.mark.parametrize(
    "url",
    [
        f"https://localhost:8443{PATH}",
        f"https://localhost:8443{PATH}?b=2&a=1%20%2F&a=",
        "https://localhost:8443/",
        "https://localhost:8443/endpoints/a%20b/x~y",
    ],
)
def test_what_botocore_signs_is_accepted(url: str) -> None:
    body = b'{"text": "Hello."}'
    target = url.removeprefix("https://localhost:8443")
    found = verify_request("POST", target, signed(url=url), KEYS, body=body)
    assert (found.access_key, found.region) == ("AKIDEXAMPLE", "eu-west-1")
    assert found.scope.endswith("/eu-west-1/sagemaker/aws4_request")


def test_spaces_in_values_and_repeated_names_are_made_canonical() -> None:
    headers = signed(headers={"X-Amzn-SageMaker-Custom-Attributes": "  a   b "})
    verify_request("POST", PATH, headers, KEYS, body=b'{"text": "Hello."}')


def test_temporary_keys_carry_their_token() -> None:
    keys = Credentials("AKIDEXAMPLE", "secret", "token")
    headers = signed(keys=keys)
    verify_request("POST", PATH, headers, keys, body=b'{"text": "Hello."}')
    other = Credentials("AKIDEXAMPLE", "secret", "another")
    with pytest.raises(CallFailed, match="session token"):
        verify_request("POST", PATH, headers, other, body=b'{"text": "Hello."}')


def changed(headers: list[tuple[str, str]], name: str, value: str | None) -> Any:
    kept = [(n, v) for n, v in headers if n != name]
    return kept if value is None else [*kept, (name, value)]


def authorization(headers: list[tuple[str, str]], old: str, new: str) -> Any:
    value = dict(headers)["authorization"]
    assert old in value
    return changed(headers, "authorization", value.replace(old, new))


@pytest.mark.parametrize(
    ("spoil", "name", "words"),
    [
        (lambda h: changed(h, "authorization", None), "MissingAuthenticationToken", "not signed"),
        (lambda h: changed(h, "authorization", "Bearer x"), "IncompleteSignature", "begin with"),
        (lambda h: authorization(h, "SignedHeaders", "Other"), "Incomplete", "signedheaders"),
        (lambda h: authorization(h, "aws4_request", "other"), "Incomplete", "scope"),
        (lambda h: authorization(h, "AKIDEXAMPLE", "AKIDOTHER"), "UnrecognizedClient", "key"),
        (lambda h: authorization(h, "/sagemaker/", "/s3/"), "InvalidSignature", "service s3"),
        (lambda h: authorization(h, "/eu-west-1/", "/us-east-1/"), "InvalidSignature", "secret"),
        (lambda h: authorization(h, "host;", ""), "Incomplete", "host is not signed"),
        (lambda h: changed(h, "x-amz-date", None), "Incomplete", "x-amz-date"),
        (lambda h: changed(h, "x-amz-date", "19990101T000000Z"), "InvalidSignature", "day"),
        (lambda h: changed(h, "host", "elsewhere"), "InvalidSignature", "nothing between"),
        (lambda h: changed(h, "host", None), "Incomplete", "was not sent"),
        (
            lambda h: signed(headers={"X-Amz-Content-SHA256": "0" * 64}),
            "InvalidSignature",
            "digest of the body",
        ),
        (lambda h: changed(h, "x-amz-other", "a"), "Incomplete", "x-amz-other is not signed"),
        (lambda h: authorization(h, "Signature=", "Signature=\xe9"), "InvalidSignature", "secret"),
    ],
)
def test_what_is_wrong_is_refused_by_name(spoil: Any, name: str, words: str) -> None:
    with pytest.raises(CallFailed, match=words) as refused:
        verify_request("POST", PATH, spoil(signed()), KEYS, body=b'{"text": "Hello."}')
    assert refused.value.status == 403
    assert refused.value.kind.startswith(name)


def test_another_secret_another_body_and_another_hour_are_refused() -> None:
    headers, body = signed(), b'{"text": "Hello."}'
    with pytest.raises(CallFailed, match="secret key"):
        verify_request("POST", PATH, headers, Credentials("AKIDEXAMPLE", "guess"), body=body)
    with pytest.raises(CallFailed, match="does not match"):
        verify_request("POST", PATH, headers, KEYS, body=b"other")
    later = datetime.now(UTC) + timedelta(hours=1)
    with pytest.raises(CallFailed, match=r"clock|another day"):
        verify_request("POST", PATH, headers, KEYS, body=body, now=later)


def test_events_are_declared_and_not_hashed() -> None:
    headers = signed(body=b"", headers={"X-Amz-Content-SHA256": EVENTS})
    found = verify_request("POST", PATH, headers, KEYS)
    assert len(found.signature) == 64
    with pytest.raises(CallFailed, match=EVENTS):
        verify_request("POST", PATH, signed(body=b""), KEYS)


# By hand from AWS's description, in another way than the code does it.
SIGNED = Signed("AKIDEXAMPLE", "20261130", "us-east-1", "ab" * 32)


def by_hand(date: datetime, prior: str, payload: bytes, secret: str) -> bytes:
    day, stamp = date.strftime("%Y%m%d"), date.strftime("%Y%m%dT%H%M%SZ")
    header = b"\x05:date\x08" + struct.pack("!q", round(date.timestamp() * 1000))
    text = (
        f"AWS4-HMAC-SHA256-PAYLOAD\n{stamp}\n{day}/us-east-1/sagemaker/aws4_request\n{prior}\n"
        f"{hashlib.sha256(header).hexdigest()}\n{hashlib.sha256(payload).hexdigest()}"
    )

    def step(key: bytes, word: str) -> bytes:
        return hmac.digest(key, word.encode(), "sha256")

    key = step(step(step(step(f"AWS4{secret}".encode(), day), "us-east-1"), "sagemaker"),
               "aws4_request")  # fmt: skip
    return step(key, text)


def test_each_event_is_signed_over_the_one_before() -> None:
    chain = EventChain(SIGNED, "secret")
    prior = SIGNED.signature
    for number in range(3):
        date = datetime(2026, 11, 30, 12, 0, number, 123_000, tzinfo=UTC)
        payload = f"event {number}".encode()
        signature = by_hand(date, prior, payload, "secret")
        chain.verify(date, signature, payload)
        prior = signature.hex()


@pytest.mark.parametrize("spoiled", ["payload", "signature", "date", "secret", "order", "absent"])
def test_a_broken_chain_is_noticed(spoiled: str) -> None:
    date = datetime(2026, 11, 30, 12, 0, 0, 123_000, tzinfo=UTC)
    chain = EventChain(SIGNED, "other" if spoiled == "secret" else "secret")
    payload = b"event"
    prior = "cd" * 32 if spoiled == "order" else SIGNED.signature
    signature: bytes | None = by_hand(date, prior, payload, "secret")
    if spoiled == "payload":
        payload = b"another"
    elif spoiled == "signature":
        signature = bytes(32)
    elif spoiled == "date":
        date += timedelta(milliseconds=1)
    elif spoiled == "absent":
        signature = None
    with pytest.raises(ChainBroken):
        chain.verify(date, signature, payload)
