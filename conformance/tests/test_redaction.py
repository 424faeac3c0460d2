"""Secrets are masked wherever they stand; what is no secret stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance.endpoints import endpoint_at, read_endpoints
from utterwire_conformance.redaction import (
    public_command,
    public_url,
    redact,
    secret_words,
    secrets_of_command,
    secrets_of_url,
)


@pytest.mark.parametrize(
    ("headers", "secrets"),
    [
        ([("Authorization", "Bearer tok-12345")], {"Bearer tok-12345", "tok-12345"}),
        ([("X-Api-Key", "abcdef")], {"abcdef"}),
        # Short ones stand in every other message; nobody's secret is so short.
        ([("X-Version", "1"), ("X-Language", "en")], set()),
        # They stand in ordinary answers as well.
        ([("Content-Type", "application/json"), ("User-Agent", "somebody/1.0")], set()),
        ([("accept-language", "de-CH, de")], set()),
    ],
)
def test_secrets_of_headers(headers: list[tuple[str, str]], secrets: set[str]) -> None:
    assert secret_words(headers) == secrets


@pytest.mark.parametrize(
    ("url", "secrets", "shown"),
    [
        ("wss://h/p", set(), "wss://h/p"),
        ("wss://u:pa%20ssword@h/p", {"pa%20ssword", "pa ssword"}, "wss://h/p"),
        (
            "wss://h:1/p?token=abc%2Fdef&v=1#x",
            {"token=abc%2Fdef&v=1", "abc/def"},
            "wss://h:1/p",
        ),
    ],
)
def test_secrets_of_addresses(url: str, secrets: set[str], shown: str) -> None:
    assert secrets_of_url(url) == secrets
    assert public_url(url) == shown


@pytest.mark.parametrize(
    ("command", "secrets", "shown"),
    [
        (["run", "--port", "{port}"], set(), ["run", "--port", "{port}"]),
        (["run", "--api-key=abcdefgh"], {"abcdefgh"}, ["run", "--api-key=***"]),
        (["run", "--token", "abcdefgh", "x"], {"abcdefgh"}, ["run", "--token", "***", "x"]),
        (["env", "HF_TOKEN=abcdefgh", "run"], {"abcdefgh"}, ["env", "HF_TOKEN=***", "run"]),
        # A flag that takes no value hides nothing of the next option.
        (["run", "--no-auth", "--quiet"], set(), ["run", "--no-auth", "--quiet"]),
        (["run", "--password", "abc"], set(), ["run", "--password", "***"]),
    ],
)
def test_secrets_of_commands(command: list[str], secrets: set[str], shown: list[str]) -> None:
    assert secrets_of_command(command) == secrets
    assert public_command(command) == shown


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ("a secret-1 b", "a *** b"),
        ({"secret-1": ["x secret-1", {"k": "secret-1"}]}, {"secret-1": ["x ***", {"k": "***"}]}),
        ((1, None, True, "secret-1"), [1, None, True, "***"]),
        (None, None),
    ],
)
def test_redaction_reaches_every_string(value: Any, clean: Any) -> None:
    assert redact(value, ["secret-1"]) == clean


def test_what_the_environment_puts_into_an_address_is_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH_TOKEN", "deep-in-the-path")
    (tmp_path / "endpoints.toml").write_text('[endpoint.mine]\nurl = "wss://h/v1/${PATH_TOKEN}"\n')
    endpoint = read_endpoints(tmp_path / "endpoints.toml")["mine"]
    assert "deep-in-the-path" in endpoint.secrets
    assert endpoint.public_url == "wss://h/v1/***/invocations-bidirectional-stream"
    assert "deep-in-the-path" not in repr(endpoint.configuration())


def test_the_configuration_names_all_and_tells_no_secret() -> None:
    found = replace(
        endpoint_at("wss://u:pass-word-1@h/x?key=query-word", headers=[("X-Key", "header-word")]),
        ca_file=Path("/private/place/ca.pem"),
        voice="nova",
    )
    table = found.configuration()
    assert table["url"] == "wss://h/x/invocations-bidirectional-stream"
    assert table["headers"] == {"X-Key": "***"}
    assert table["ca_file"] == "ca.pem"
    assert table["voice"] == "nova"
    for secret in ("pass-word-1", "query-word", "header-word", "/private"):
        assert secret not in repr(table)
