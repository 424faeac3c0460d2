"""The endpoint file: every mistake is told in one line, with the file and the line in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.endpoints import (
    ENVIRONMENT_VARIABLE,
    Endpoint,
    EndpointFileError,
    endpoint_at,
    find_endpoint,
    parse_header,
    read_endpoints,
)

GOOD = """
[endpoint.mine]
url = "wss://user:pw-of-user@tts.example.com/prefix?key=query-secret"
profiles = ["core", "http"]
ca_file = "ca.pem"
voice = "nova"
language = "ja"
text_samples = ["一つ目の文です。", "二つ目の文です。", "三つ目の文です。"]
max_waiting = 9
sample_rates = [24000, 16000]
timeouts = { connect_s = 3, first_byte_s = 7, idle_s = 5 }
budget = { characters = 1000, requests_per_second = 2.5 }

[endpoint.mine.headers]
Authorization = "Bearer ${UTTERWIRE_TEST_TOKEN}"

[endpoint."local one"]
"""


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("UTTERWIRE_TEST_TOKEN", "tok-12345678")
    return "tok-12345678"


def write(folder: Path, text: str) -> Path:
    path = folder / "endpoints.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_file(tmp_path: Path, token: str) -> None:
    path = write(tmp_path, GOOD.replace('[endpoint."local one"]', ""))
    endpoint = read_endpoints(path)["mine"]
    assert endpoint.url is not None
    assert endpoint.url.endswith("/prefix/invocations-bidirectional-stream?key=query-secret")
    assert endpoint.http_url == "https://user:pw-of-user@tts.example.com/prefix?key=query-secret"
    assert endpoint.public_url == "wss://tts.example.com/prefix/invocations-bidirectional-stream"
    assert endpoint.headers == (("Authorization", f"Bearer {token}"),)
    assert {token, "pw-of-user", "key=query-secret"} <= set(endpoint.secrets)
    assert token not in repr(endpoint)
    assert endpoint.ca_file == tmp_path / "ca.pem"
    assert endpoint.claims.max_waiting == 9
    assert endpoint.claims.idle_s == 5
    assert endpoint.timeouts.first_byte_s == 7
    assert endpoint.budget.characters == 1000
    assert EndpointClaims.from_table(endpoint.claims.to_table()) == endpoint.claims


MISTAKES = [
    ("[endpoint.a]\nurl = ", 2, "not TOML"),
    ('[endpoint.a]\nurl = "wss://x"\n\nvoise = "x"', 4, "unknown key"),
    ('[endpoint.a]\nvoice = "x"', 1, "one of `url`"),
    ('[endpoint.a]\nlaunch = ["x", "{port}"]', 1, "one of `url`"),
    (
        '[endpoint.a]\nurl = "wss://x"\nlaunch = ["x", "{port}"]\nready_url = "http://x:{port}/"',
        1,
        "one of `url`",
    ),
    ('[endpoint.a]\nlaunch = ["x"]\nready_url = "http://x:{port}/"', 2, "{port}"),
    ('[endpoint.a]\nurl = "https://x"', 2, "ws://HOST"),
    ('[endpoint.a]\nurl = "wss://[::1"', 2, "IPv6"),
    ('[endpoint.a]\nurl = "wss://x:99999"', 2, "port"),
    ('[endpoint.a]\nurl = "wss://x:abc"', 2, "port"),
    ('[endpoint.a]\nurl = "wss://x"\nhttp_url = "http://x:0"', 3, "port"),
    ('[endpoint.a]\nurl = "wss://x"\nheaders = { "A B" = "c" }', 3, "name of a header"),
    ('[endpoint.a]\nurl = "wss://x"\nprofiles = ["core", "cor"]', 3, "cor"),
    ('[endpoint.a]\nurl = "wss://x"\nprofiles = ["http"]', 3, "core"),
    ('[endpoint.a]\nurl = "wss://x"\nmax_waiting = 2', 3, "2"),
    ('[endpoint.a]\nurl = "wss://x"\n[endpoint.a.timeouts]\nconnect_s = 0', 4, "0"),
    ('[endpoint.a]\nurl = "wss://x"\n[endpoint.a.headers]\nA = "${NOT_SET_AT_ALL}"', 4, "NOT_SET"),
    ('[endpoint.a]\nurl = "wss://${NOT_SET_AT_ALL}"', 2, "NOT_SET_AT_ALL"),
    ('[endpoint.a]\nurl = "wss://x"\nheaders = { A = "b\\r\\nc" }', 3, "line end"),
    ('[endpoint.a]\nurl = "wss://x"\ntext_samples = ["one", "two"]', 3, ""),
    ('[endpoint."ä"]\nurl = "wss://x"', 1, ""),
    ("[other]\nx = 1", 1, ""),
    ('[endpoint.a]\nurl = "wss://:80"', 2, "host"),
]


@pytest.mark.parametrize(("text", "line", "what"), MISTAKES)
def test_mistakes(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(EndpointFileError) as caught:
        read_endpoints(path)
    said = str(caught.value)
    assert said.startswith(f"{path}:{line}: ")
    assert what in said
    assert "\n" not in said


def test_a_scheme_out_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTTERWIRE_TEST_URL", "gopher://x")
    path = write(tmp_path, '[endpoint.a]\nurl = "${UTTERWIRE_TEST_URL}"')
    with pytest.raises(EndpointFileError, match="gopher"):
        read_endpoints(path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeff[endpoint.a]\nurl = "wss://x"')
    assert list(read_endpoints(path)) == ["a"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EndpointFileError, match="cannot be read"):
        read_endpoints(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(EndpointFileError, match="UTF-8"):
        read_endpoints(tmp_path / "latin.toml")


def test_where_a_name_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert find_endpoint("reference", cwd=tmp_path).launch[0] == sys.executable
    write(tmp_path, '[endpoint.here]\nurl = "ws://here"')
    assert find_endpoint("here", cwd=tmp_path).url == ("ws://here/invocations-bidirectional-stream")
    other = tmp_path / "other"
    other.mkdir()
    path = write(other, '[endpoint.there]\nurl = "ws://there"')
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(path))
    assert find_endpoint("there", cwd=tmp_path).name == "there"
    with pytest.raises(EndpointFileError, match="no endpoint is called 'here'"):
        find_endpoint("here", cwd=tmp_path)
    assert find_endpoint("here", file=tmp_path / "endpoints.toml").name == "here"


def test_an_address_is_enough() -> None:
    endpoint = endpoint_at("ws://h:1/x", profiles=["http"], headers=[("A", "b")])
    assert endpoint.claims.profiles == {"core", "http"}
    assert endpoint.http_url == "http://h:1/x"
    assert endpoint.name == "ws://h:1/x/invocations-bidirectional-stream"
    assert endpoint.claims_known
    whole = endpoint_at("ws://h/invocations-bidirectional-stream")
    assert not whole.claims_known
    assert whole.url == "ws://h/invocations-bidirectional-stream"


@pytest.mark.parametrize(
    ("url", "profiles"), [("http://h", []), ("nothing", []), ("ws://h", ["x"])]
)
def test_addresses_that_are_none(url: str, profiles: list[str]) -> None:
    with pytest.raises(EndpointFileError, match="--endpoint-url"):
        endpoint_at(url, profiles=profiles)


def test_headers_of_the_command_line(token: str) -> None:
    assert parse_header("A: b: c") == ("A", "b: c")
    assert parse_header("A:${UTTERWIRE_TEST_TOKEN}") == ("A", token)
    for wrong in ("A", ": b", "A: ${NOT_SET_AT_ALL}"):
        with pytest.raises(EndpointFileError):
            parse_header(wrong)


@pytest.mark.parametrize(
    "fields",
    [{}, {"url": "ws://x", "launch": ("x",)}, {"launch": ("x",)}],
)
def test_endpoints_that_cannot_be(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"url|ready"):
        Endpoint("x", **fields)  # type: ignore[arg-type]
