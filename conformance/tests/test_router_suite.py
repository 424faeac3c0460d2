"""The suite through the router says what it says directly."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance.driver import ConnectFailed, Recorder
from utterwire_conformance.endpoints import endpoint_at, find_endpoint
from utterwire_conformance.requirements import requirements
from utterwire_conformance.runner import Options, Results, run_checks
from utterwire_conformance.target import LaunchFailed, Target
from utterwire_conformance.transcript import Transcript
from utterwire_conformance.verdict import Verdict, worst
from utterwire_conformance.via import NOTE, SageMakerTarget, unseen

pytest.importorskip(
    "aws_sdk_sagemaker_runtime_http2", reason="the AWS SDK needs Python 3.12 and the extra aws"
)

from utterwire_conformance.driver.sagemaker import SageMakerSession
from utterwire_conformance.router.process import RouterLost, RouterProcess

MARKED = [
    row
    for row in requirements()
    if row.role == "endpoint" and row.checks and unseen(row) is None and row.profile != "load"
]


async def _judge(via: str, checks: list[str]) -> Results:
    endpoint = replace(find_endpoint("reference"), via=via)
    return await run_checks(Target(endpoint), checks, Options())


def _verdicts(results: Results) -> dict[str, str]:
    return {
        row.id: worst(results.judgements[name] for name in row.checks).verdict.value
        for row in MARKED
        if all(name in results.judgements for name in row.checks)
    }


@pytest.mark.slow
async def test_every_marked_requirement_gets_the_same_verdict() -> None:
    checks = [name for row in MARKED for name in row.checks]
    through = await _judge("sagemaker", checks)
    direct = await _judge("websocket", checks)
    assert through.unreachable is None
    assert direct.unreachable is None
    assert _verdicts(through) == _verdicts(direct)
    assert set(_verdicts(through)) == {row.id for row in MARKED}
    reds = [name for name, verdict in _verdicts(direct).items() if verdict in ("fail", "weak")]
    assert reds == []


async def test_a_few_requirements_through_the_router() -> None:
    wanted = ["order.fifo", "message.frame_kinds_alike", "message.fragmentation_invisible"]
    results = await _judge("sagemaker", [*wanted, "ws.ping"])
    found = {name: judgement.verdict for name, judgement in results.judgements.items()}
    assert found == {**dict.fromkeys(wanted, Verdict.PASS), "ws.ping": Verdict.NOT_EXERCISED}
    lines = [entry.text for t in results.transcripts.values() for entry in t.entries]
    assert NOTE in lines
    secret = "local-router-secret"
    assert not any(secret in str(e) for t in results.transcripts.values() for e in t.entries)


async def test_a_router_that_ends_at_once_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    mkdtemp = tempfile.mkdtemp

    def noted(*given: Any, **named: Any) -> str:
        made.append(Path(mkdtemp(*given, **named)))
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    with pytest.raises(RouterLost, match="ended at once: utterwire-router: 'ftp://x'"):
        await RouterProcess.start("ftp://x")
    assert made
    assert not any(folder.exists() for folder in made)


async def test_a_container_by_tls_is_no_container() -> None:
    target = Target(replace(endpoint_at("wss://localhost:1"), via="sagemaker"))
    with pytest.raises(LaunchFailed, match="as SageMaker does"):
        await target.start()


async def test_nothing_at_the_place_of_sagemaker_is_told() -> None:
    place = SageMakerTarget(
        "tts", region="us-east-1", endpoint_url="https://localhost:1", keys=("a", "b")
    )
    recorder = Recorder(Transcript("probe"))
    claims = find_endpoint("reference").claims
    with pytest.raises(ConnectFailed, match="cannot connect"):
        await SageMakerSession.reach(place, recorder, claims, within=5.0)
    for url in ("https://[", "https://localhost:x"):
        with pytest.raises(ConnectFailed, match="endpoint_url"):
            await SageMakerSession.reach(
                replace(place, endpoint_url=url), recorder, claims, within=5.0
            )


async def test_credentials_that_cannot_be_fetched_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(
        "[profile dev]\nregion = eu-west-1\nsso_session = one\nsso_account_id = 123456789012\n"
        "sso_role_name = reader\n[sso-session one]\nsso_region = eu-west-1\n"
        "sso_start_url = https://example.invalid/start\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    recorder = Recorder(Transcript("probe"))
    claims = find_endpoint("reference").claims
    place = SageMakerTarget("tts", profile="dev", endpoint_url="https://localhost:1")
    with pytest.raises(ConnectFailed, match="SSO"):
        await SageMakerSession.reach(place, recorder, claims, within=5.0)


async def test_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    recorder = Recorder(Transcript("probe"))
    claims = find_endpoint("reference").claims
    for place, words in (
        (SageMakerTarget("tts", region="us-east-1"), "no credentials"),
        (SageMakerTarget("tts", profile="nobody"), "nobody"),
    ):
        with pytest.raises(ConnectFailed, match=words):
            await SageMakerSession.reach(place, recorder, claims, within=5.0)
