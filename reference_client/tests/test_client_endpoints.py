"""The endpoint file: what is found, and the one line that says what is wrong."""

from pathlib import Path

import pytest
import trustme
from utterwire_client import Endpoint, RequestInvalid, find_endpoint
from utterwire_client.endpoints import ENDPOINTS_VARIABLE, tls_context

FULL = """
[endpoint.mine]
url = "wss://tts.example.com"
profiles = ["core", "http"]
headers = { Authorization = "Bearer ${TOKEN}", X-Plain = "as it is: $TOKEN {TOKEN}" }
ca_file = "ca.pem"
voice = "anna"
timeouts = { connect_s = 1.5, first_byte_s = 20, stall_s = 5, ready_s = 60 }
budget = { characters = 100 }

[endpoint.templated]
url = "${SCHEME}://host"

[endpoint.launched]
launch = ["server", "--port", "{port}"]
ready_url = "http://127.0.0.1:{port}/ping"

[endpoint.reference]
url = "ws://elsewhere:1"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.toml"
    path.write_text(FULL, encoding="utf-8")
    return path


def test_everything_the_client_reads(file: Path) -> None:
    assert find_endpoint("mine", file=file, environ={"TOKEN": "s3cret"}) == Endpoint(
        name="mine",
        url="wss://tts.example.com",
        headers={"Authorization": "Bearer s3cret", "X-Plain": "as it is: $TOKEN {TOKEN}"},
        ca_file=file.parent / "ca.pem",
        voice="anna",
        connect_s=1.5,
        first_byte_s=20,
        stall_s=5,
    )


def test_a_url_may_have_variables(file: Path) -> None:
    assert find_endpoint("templated", file=file, environ={"SCHEME": "wss"}).url == "wss://host"


def test_credentials_are_not_in_the_repr(file: Path) -> None:
    assert "s3cret" not in repr(find_endpoint("mine", file=file, environ={"TOKEN": "s3cret"}))


def test_the_flag_goes_before_the_environment(file: Path, tmp_path: Path) -> None:
    environ = {ENDPOINTS_VARIABLE: str(tmp_path / "none.toml")}
    assert find_endpoint("reference", file=file, environ=environ).url == "ws://elsewhere:1"


def test_the_environment_goes_before_the_working_directory(
    file: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "endpoints.toml").write_text("not read", encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    environ = {ENDPOINTS_VARIABLE: str(file)}
    assert find_endpoint("reference", environ=environ).url == "ws://elsewhere:1"


def test_the_working_directory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv(ENDPOINTS_VARIABLE, "")
    assert find_endpoint("reference").url == "ws://elsewhere:1"


def test_the_reference_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_endpoint("reference", environ={}).url == "ws://127.0.0.1:8080"
    other = tmp_path / "other.toml"
    other.write_text('[endpoint.mine]\nurl = "ws://h"\n', encoding="utf-8")
    assert find_endpoint("reference", file=other, environ={}).url == "ws://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (None, "mine", "there is no endpoint file"),
        ("[endpoint.mine\n", "mine", "line 1"),
        ("\xff", "mine", "not TOML"),
        ("a = " + "[" * 5_000, "mine", "too deeply"),
        ("", "mine", "the file"),
        ("[endpoint.mine]\nurl = 5\n", "mine", "endpoint.mine.url"),
        ('[endpoint.mine]\nurl = "ws://h"\nurll = 1\n', "mine", "urll"),
        ("[endpoint.mine]\n", "mine", "one of url, sagemaker, or launch and ready_url"),
        ('[endpoint.mine]\nurl = "ws://h"\n', "yours", "it has mine"),
        (FULL, "mine", "TOKEN"),
        (FULL, "launched", "give --url"),
    ],
)
def test_what_is_wrong(tmp_path: Path, content: str | None, name: str, words: str) -> None:
    path = tmp_path / "endpoints.toml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(RequestInvalid) as caught:
        find_endpoint(name, file=path, environ={})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestInvalid, match=r"no endpoint 'mine': there is no endpoints\.toml"):
        find_endpoint("mine", environ={})


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match="cannot read the endpoint file"):
        find_endpoint("mine", file=tmp_path, environ={})


def test_authorities(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.pem", tmp_path / "bad.pem"
    trustme.CA().cert_pem.write_to_path(str(good))
    bad.write_text("no certificate", encoding="utf-8")
    assert len(tls_context(good).get_ca_certs()) == 1
    with pytest.raises(RequestInvalid, match="not a PEM file"):
        tls_context(bad)
    with pytest.raises(RequestInvalid, match="cannot read"):
        tls_context(tmp_path / "none.pem")
