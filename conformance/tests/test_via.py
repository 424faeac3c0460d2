"""What is judged through SageMaker, and why the rest is not; which needs no SDK."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from utterwire_conformance.check import CHECKS
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.endpoints import Endpoint, EndpointFileError, find_endpoint
from utterwire_conformance.fuzz import FuzzWish
from utterwire_conformance.judging import chosen_checks, judge_checks
from utterwire_conformance.requirements import requirement, requirements
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Verdict
from utterwire_conformance.via import NOTE, SageMakerTarget, unseen, was_by_sagemaker


def test_most_of_core_and_interrupt_is_seen_through_sagemaker() -> None:
    for profile in ("core", "interrupt"):
        rows = [
            row
            for row in requirements()
            if row.role == "endpoint" and row.profile == profile and row.mandatory
        ]
        seen = [row for row in rows if unseen(row) is None]
        assert len(seen) >= 0.8 * len(rows), profile


def test_what_is_not_seen_has_a_reason_of_its_own() -> None:
    reasons = {row.id: unseen(row) for row in requirements() if row.role == "endpoint"}
    for name, reason in reasons.items():
        assert (reason is None) == ("sagemaker" in requirement(name).via), name
        if reason is not None:
            assert "it cannot be seen through SageMaker" not in reason, name
    assert "pings stay between" in (reasons["ws.ping"] or "")
    assert "which code" in (reasons["close.code"] or "")


def _transcript(*notes: str) -> Transcript:
    lines = [Entry(0.0, "note", "note", 1, text=note) for note in notes]
    return Transcript("probe", entries=lines)


def test_transcripts_tell_what_carried_them() -> None:
    assert was_by_sagemaker([_transcript("something"), _transcript(NOTE)])
    assert not was_by_sagemaker([_transcript("something")])


def test_what_is_not_seen_is_not_exercised_whatever_was_recorded() -> None:
    checks = chosen_checks()
    found = judge_checks(checks, [_transcript(NOTE)])
    for name, judgement in found.items():
        reason = unseen(requirement(CHECKS[name].requirement))
        if reason is not None:
            assert (judgement.verdict, judgement.reason) == (Verdict.NOT_EXERCISED, reason)


@pytest.mark.parametrize(
    ("method", "status", "opened"),
    [("GET", 101, True), ("GET", 200, False), ("POST", 200, True), ("POST", 424, False)],
)
def test_a_call_opens_a_session_as_a_handshake_does(method: str, status: int, opened: bool) -> None:
    dialogue = Dialogue.__new__(Dialogue)
    dialogue.asked = Entry(0.0, "out", "open", 1, method=method)
    dialogue.opened = Entry(0.1, "in", "open", 1, status=status)
    assert dialogue.is_open is opened


FILE = """
[endpoint.cloud]
sagemaker = "my-tts"
region = "eu-west-1"
profile = "dev"
variant = "Second"
endpoint_url = "https://localhost:8443"
ca_file = "ca.pem"
profiles = ["core", "interrupt"]
"""


def test_an_endpoint_at_aws_is_one_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.toml"
    file.write_text(FILE)
    endpoint = find_endpoint("cloud", file=file)
    assert endpoint.sagemaker == SageMakerTarget(
        "my-tts", "eu-west-1", "dev", "Second", "https://localhost:8443", tmp_path / "ca.pem"
    )
    assert endpoint.via == "sagemaker"
    told = endpoint.configuration()
    assert told["via"] == "sagemaker"
    assert (told["sagemaker"], told["region"], told["variant"]) == (
        "my-tts", "eu-west-1", "Second",
    )  # fmt: skip
    assert "profile" not in told
    assert "through SageMaker" in (FuzzWish().reluctance(endpoint, narrowed=False) or "")


@pytest.mark.parametrize("other", ['url = "ws://x"', 'headers = { A = "b" }'])
def test_what_does_not_go_with_it(tmp_path: Path, other: str) -> None:
    file = tmp_path / "endpoints.toml"
    file.write_text(FILE + other + "\n")
    with pytest.raises(EndpointFileError, match=r"endpoints\.toml"):
        find_endpoint("cloud", file=file)


def test_an_endpoint_has_one_place() -> None:
    endpoint = Endpoint("x", url="ws://x")
    with pytest.raises(ValueError, match="a name at AWS"):
        replace(endpoint, sagemaker=SageMakerTarget("x"))
    with pytest.raises(ValueError, match="a name at AWS"):
        replace(endpoint, url=None)
