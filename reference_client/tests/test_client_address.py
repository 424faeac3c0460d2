"""Addresses: what becomes of each, and that no password is shown."""

import pytest
from utterwire_client import RequestInvalid
from utterwire_client.address import SESSION_PATH, display, is_loopback, session_url


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ws://127.0.0.1:8080", f"ws://127.0.0.1:8080{SESSION_PATH}"),
        ("ws://127.0.0.1:8080/", f"ws://127.0.0.1:8080{SESSION_PATH}"),
        (" wss://tts.example.com\n", f"wss://tts.example.com{SESSION_PATH}"),
        ("http://host", f"ws://host{SESSION_PATH}"),
        ("HTTPS://host?key=1", f"wss://host{SESSION_PATH}?key=1"),
        ("ws://host/other", "ws://host/other"),
        ("ws://host/a/b/?x=%20", "ws://host/a/b/?x=%20"),
        ("ws://[::1]:9000", f"ws://[::1]:9000{SESSION_PATH}"),
        ("wss://user:secret@host", f"wss://user:secret@host{SESSION_PATH}"),
    ],
)
def test_the_address_of_sessions(given: str, expected: str) -> None:
    assert session_url(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "",
        "host",
        "host:8080",
        "localhost:8080/path",
        "ftp://host",
        "ws:host",
        "ws://",
        "ws:///path",
        "ws://:8080",
        "ws://host:port",
        "ws://host:99999",
        "ws://[::1",
        "ws://host/#part",
        "ws://ho st",
        "ws://user:secret@host:port",
        "ftp://user:secret@host",
        "ws://host/\x00",
    ],
)
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        session_url(given)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_shown_has_no_secret() -> None:
    assert display("wss://user:secret@host:1/p?token=secret#secret") == "wss://host:1/p"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://localhost:1", True),
        ("ws://tts.localhost", True),
        ("ws://127.8.8.8", True),
        ("ws://[::1]", True),
        ("ws://127.example.com", False),
        ("ws://example.com", False),
        ("ws://10.0.0.1", False),
    ],
)
def test_this_machine(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
