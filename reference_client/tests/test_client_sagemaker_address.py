"""Addresses of SageMaker endpoints, in the endpoint file and by themselves."""

import sys
from pathlib import Path

import pytest
from utterwire_client import ExtraMissing, RequestInvalid, connect, find_endpoint
from utterwire_client.address import SageMakerAddress, display, is_sagemaker
from utterwire_client.aws import sagemaker
from utterwire_client.http import http_utterance


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sagemaker:tts", SageMakerAddress("tts")),
        (
            "sagemaker:my-tts?region=eu-west-1&variant=Second",
            SageMakerAddress("my-tts", region="eu-west-1", variant="Second"),
        ),
        (
            "sagemaker:tts?profile=a%20b&endpoint_url=https://localhost:8443&ca_file=/ca.pem",
            SageMakerAddress(
                "tts",
                profile="a b",
                endpoint_url="https://localhost:8443",
                ca_file=Path("/ca.pem"),
            ),
        ),
    ],
)
def test_addresses_are_taken_apart_and_put_together(url: str, address: SageMakerAddress) -> None:
    assert is_sagemaker(url)
    assert SageMakerAddress.parse(url) == address
    assert SageMakerAddress.parse(address.url) == address
    assert display(url) == str(address)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sagemaker:", "no name of a SageMaker endpoint"),
        ("sagemaker://tts", "no name"),
        ("sagemaker:-tts", "no name"),
        ("sagemaker:" + "x" * 64, "no name"),
        ("sagemaker:tts?zone=a", "'zone' is not one of region"),
        ("sagemaker:tts?endpoint_url=http://localhost", "begin with https://"),
        ("sagemaker:tts?endpoint_url=https://", "and a host name"),
        ("sagemaker:tts?endpoint_url=https://[", "is not an address"),
        ("sagemaker:tts?endpoint_url=https://localhost:x", "is not an address"),
        ("sagemaker:tts?region=", "region is empty"),
        ("sagemaker:tts?profile=%20", "profile is empty"),
        ("sagemaker:tts?region=eu%20west", "'eu west' is no name of an AWS region"),
    ],
)
def test_what_is_no_address_is_said(url: str, words: str) -> None:
    with pytest.raises(RequestInvalid, match=words):
        SageMakerAddress.parse(url)
    with pytest.raises(RequestInvalid, match=words):
        find_endpoint(url)


def test_the_endpoint_file_names_one(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.toml"
    file.write_text(
        '[endpoint.cloud]\nsagemaker = "tts"\nregion = "eu-west-1"\nprofile = "dev"\n'
        'variant = "A"\nendpoint_url = "https://localhost:8443"\nca_file = "ca.pem"\n'
        'voice = "anna"\n'
    )
    found = find_endpoint("cloud", file=file)
    assert (found.name, found.voice, found.ca_file) == ("cloud", "anna", None)
    assert SageMakerAddress.parse(found.url) == SageMakerAddress(
        "tts", "eu-west-1", "dev", "A", "https://localhost:8443", tmp_path / "ca.pem"
    )


@pytest.mark.parametrize("other", ['url = "ws://x"', 'headers = { A = "b" }'])
def test_what_does_not_go_with_it(tmp_path: Path, other: str) -> None:
    file = tmp_path / "endpoints.toml"
    file.write_text(f'[endpoint.cloud]\nsagemaker = "tts"\n{other}\n')
    with pytest.raises(RequestInvalid, match="give one of url, sagemaker"):
        find_endpoint("cloud", file=file)


async def test_header_fields_cannot_be_sent() -> None:
    with pytest.raises(RequestInvalid, match="takes no header fields"):
        async with connect("sagemaker:tts", headers={"A": "b"}):
            pass
    with pytest.raises(RequestInvalid, match="takes no header fields"):
        async for _ in http_utterance("sagemaker:tts", "Hello.", headers={"A": "b"}):
            pass


def test_an_old_python_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    with pytest.raises(ExtraMissing, match=r"needs Python 3\.12 or newer.*this is 3\.11"):
        sagemaker()


def test_a_missing_sdk_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    monkeypatch.setitem(sys.modules, "utterwire_client.sagemaker", None)
    monkeypatch.delattr("utterwire_client.sagemaker", raising=False)
    with pytest.raises(ExtraMissing, match=r"pip install 'utterwire\[client,aws\]'"):
        sagemaker()
