"""From up to down on moto's AWS, with nothing left behind.

What moto lacks is said where it is made up for. It has no ``ml.g5``, every endpoint is in service
at once, policies of buckets and roles that stand alone are passed over, and scaling in stacks is
unknown to it: for those there are the scripts.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from moto.bedrockagentcorecontrol.models import bedrockagentcorecontrol_backends
from moto.cloudformation import parsing
from moto.cloudformation.models import ChangeSet
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.common_models import CloudFormationModel
from moto.ecr.models import Repository, ecr_backends
from moto.sagemaker.models import FakeEndpoint
from utterwire_server.deploy import agent as agents
from utterwire_server.deploy import commands
from utterwire_server.deploy.account import Account, open_account
from utterwire_server.deploy.deployment import AgentDeployment, Deployment
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.image import LABEL, Image, Login, Tool
from utterwire_server.deploy.weights import sync_weights, weights_prefix

pytestmark = pytest.mark.filterwarnings(
    "ignore:Tried to parse AWS..S3..BucketPolicy:UserWarning",
    "ignore:Tried to parse AWS..IAM..RolePolicy:UserWarning",
    "ignore::DeprecationWarning",
)
DEMO = Deployment("demo")


class OfAgentCore(CloudFormationModel):
    """Something of AgentCore in a stack, which moto knows by AgentCore's own API only."""

    def __init__(self, physical_resource_id: str, attributes: dict[str, str]) -> None:
        self.physical_resource_id = physical_resource_id
        self._attributes = attributes

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr.startswith("AgentRuntime")

    def get_cfn_attribute(self, name: str) -> str:
        return self._attributes[name]

    def is_created(self) -> bool:
        return True


class OfRuntime(OfAgentCore):
    """A runtime: an update makes its next version."""

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> OfRuntime:
        backend = bedrockagentcorecontrol_backends[account_id][region_name]
        given = cloudformation_json["Properties"]
        runtime = backend.create_agent_runtime(
            agent_runtime_name=given["AgentRuntimeName"], tags=None, **cls._settings(given)
        )
        return cls._made(runtime)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: OfRuntime,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> OfRuntime:
        backend = bedrockagentcorecontrol_backends[account_id][region_name]
        settings = cls._settings(cloudformation_json["Properties"])
        runtime = backend.update_agent_runtime(original_resource.physical_resource_id, **settings)
        return cls._made(runtime)

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        bedrockagentcorecontrol_backends[account_id][region_name].delete_agent_runtime(
            resource_name
        )

    @staticmethod
    def _settings(given: Any) -> dict[str, Any]:
        return {
            "agent_runtime_artifact": given["AgentRuntimeArtifact"],
            "role_arn": given["RoleArn"],
            "network_configuration": given["NetworkConfiguration"],
            "description": None,
            "authorizer_configuration": None,
            "request_header_configuration": None,
            "protocol_configuration": given["ProtocolConfiguration"],
            "lifecycle_configuration": given["LifecycleConfiguration"],
            "environment_variables": given["EnvironmentVariables"],
        }

    @classmethod
    def _made(cls, runtime: Any) -> OfRuntime:
        attributes = {
            "AgentRuntimeId": runtime.agent_runtime_id,
            "AgentRuntimeArn": runtime.agent_runtime_arn,
            "AgentRuntimeVersion": runtime.agent_runtime_version,
        }
        return cls(runtime.agent_runtime_id, attributes)


class OfRuntimeEndpoint(OfAgentCore):
    """Its endpoint. moto sees no change in it where only the version behind it is another."""

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> OfRuntimeEndpoint:
        given = cloudformation_json["Properties"]
        made = bedrockagentcorecontrol_backends[account_id][
            region_name
        ].create_agent_runtime_endpoint(
            given["AgentRuntimeId"], given["Name"], given["AgentRuntimeVersion"], None, None
        )
        return cls(made.agent_runtime_endpoint_arn, {})

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        """It goes with its runtime, in moto as at AWS."""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    known = {
        **parsing.get_model_map(),
        "AWS::BedrockAgentCore::Runtime": OfRuntime,
        "AWS::BedrockAgentCore::RuntimeEndpoint": OfRuntimeEndpoint,
    }
    monkeypatch.setattr(parsing, "get_model_map", lambda: known)
    apply = ChangeSet.apply

    def with_outputs(self: Any) -> None:
        # moto fills in outputs only where a stack is made without a change set.
        apply(self)
        self.stack.template = self.template
        self.stack._parse_template()
        self.stack.output_map = self.stack._create_output_map()

    monkeypatch.setattr(ChangeSet, "apply", with_outputs)
    # AWS answers a change set that changes nothing by one that fails, moto by an error.
    monkeypatch.setattr(CloudFormationResponse, "_validate_different_update", lambda *_: None)
    # moto gives an endpoint of a stack a name of its own.
    create = FakeEndpoint.create_from_cloudformation_json.__func__  # type: ignore[attr-defined]

    def named(
        cls: Any, resource_name: str, cloudformation_json: Any, *args: Any, **more: Any
    ) -> Any:
        name = cloudformation_json["Properties"]["EndpointName"]
        return create(cls, name, cloudformation_json, *args, **more)

    monkeypatch.setattr(FakeEndpoint, "create_from_cloudformation_json", classmethod(named))
    # It knows no `EmptyOnDelete`.
    monkeypatch.setattr(
        Repository,
        "delete",
        lambda self, account, region: ecr_backends[account][region].delete_repository(
            self.name, force=True
        ),
    )
    with mock_aws():
        yield open_account(None, None)


class FakeTool(Tool):
    """A tool whose pushes end in moto's ECR."""

    def __init__(
        self, account: Account, digest: str = "1" * 64, architecture: str = "amd64"
    ) -> None:
        super().__init__("docker")
        self._account = account
        self._digest = digest
        self._architecture = architecture
        self.pushes: list[tuple[str, str]] = []
        self.loses = False

    def working(self) -> bool:
        return True

    def image(self, name: str) -> Image | None:
        return Image(name, self._digest, self._architecture, {LABEL: "true"})

    def push(self, name: str, target: str, login: Login) -> None:
        assert login.user == "AWS"
        assert login.password
        self.pushes.append((name, target))
        repository, _, tag = target.partition("/")[2].partition(":")
        if not self.loses:
            self._account.client("ecr").put_image(
                repositoryName=repository,
                # Of a manifest without layers moto's digest is one of 101, by chance.
                imageManifest=json.dumps({"layers": [{"digest": f"sha256:{self._digest}"}]}),
                imageManifestMediaType="application/vnd.oci.image.manifest.v1+json",
                imageTag=tag,
            )


def wanted(model: Path | None = None) -> commands.Wanted:
    return commands.Wanted(
        image="utterwire-server:cpu", instance_type="ml.c5.xlarge", ami="", model_dir=model
    )


def left_over(account: Account) -> dict[str, list[Any]]:
    """All there is in the account that a deployment could have left."""
    stacks = account.client("cloudformation").describe_stacks()["Stacks"]
    sagemaker = account.client("sagemaker")
    return {
        "stacks": stacks,
        "buckets": account.client("s3").list_buckets()["Buckets"],
        "repositories": account.client("ecr").describe_repositories()["repositories"],
        "roles": account.client("iam").list_roles()["Roles"],
        "models": sagemaker.list_models()["Models"],
        "configs": sagemaker.list_endpoint_configs()["EndpointConfigs"],
        "endpoints": sagemaker.list_endpoints()["Endpoints"],
        "agents": account.client("bedrock-agentcore-control").list_agent_runtimes()[
            "agentRuntimes"
        ],
        "groups": account.client("logs").describe_log_groups()["logGroups"],
    }


def test_from_up_to_down_with_nothing_left_behind(
    account: Account,
    patience: Any,
    model_folder: Path,
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    calls: set[str] = set()
    make = account.make_client

    def listening(service: str) -> Any:
        client = make(service)

        def note(model: Any, **_: Any) -> None:
            calls.add(f"{model.service_model.signing_name}:{model.name}")

        client.meta.events.register("before-parameter-build", note)
        return client

    mine = Account(account.region, listening)
    tool = FakeTool(account)

    def called(command: str) -> None:
        assert unlisted(command, calls) == set()
        calls.clear()

    # Made.
    made = commands.up(mine, patience.watch, DEMO, wanted(model_folder), [tool])
    assert made.status == "InService"
    called("up")
    model = account.client("sagemaker").list_models()["Models"][0]["ModelName"]
    container = account.client("sagemaker").describe_model(ModelName=model)["PrimaryContainer"]
    assert re.search(r"/utterwire/demo@sha256:[0-9a-f]{64}$", container["Image"])
    assert container["Environment"] == {"UTTERWIRE_MODEL_DIR": "/opt/ml/model"}
    source = container["ModelDataSource"]["S3DataSource"]
    assert (source["S3DataType"], source["CompressionType"]) == ("S3Prefix", "None")
    bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/")
    keys = {
        one["Key"].removeprefix(prefix)
        for one in account.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    }
    assert keys == {
        "config.json",
        "kokoro.onnx",
        "manifest.json",
        "statistics/af_heart.npz",
        "voices/af_heart.bin",
    }

    # Again: nothing is pushed, sent or changed.
    told = len(patience.told)
    commands.up(mine, patience.watch, DEMO, wanted(model_folder), [tool])
    assert len(tool.pushes) == 1
    again = patience.told[told:]
    assert "model: 5 files, 0 to send (0 MB)" in again
    assert sum("nothing to change" in line for line in again) == 2
    calls.clear()

    # Seen.
    account.client("logs").create_log_group(logGroupName=DEMO.log_group)
    serves, lines = commands.status(mine, patience.watch, DEMO)
    assert serves
    assert f"stack {DEMO.endpoint}: CREATE_COMPLETE" in lines
    called("status")

    # Removed.
    assert commands.down(mine, patience.watch, DEMO)
    called("down")
    assert not any(left_over(account).values()), left_over(account)
    assert not commands.down(mine, patience.watch, DEMO)


def test_an_agent_from_up_to_down_with_nothing_left_behind(account: Account, patience: Any) -> None:
    commands.up(account, patience.watch, DEMO, wanted(), [FakeTool(account)])
    before = left_over(account)
    control = account.client("bedrock-agentcore-control")
    agent = AgentDeployment("my-agent")
    given = agents.WantedAgent(image="utterwire-agent", endpoint="demo", voice="af_heart")
    tool = FakeTool(account, "3" * 64, "arm64")

    # Made.
    made = agents.up(account, patience.watch, agent, given, [tool])
    assert (made.status, made.version) == ("READY", "1")
    (found,) = control.list_agent_runtimes()["agentRuntimes"]
    runtime = control.get_agent_runtime(agentRuntimeId=found["agentRuntimeId"])
    assert runtime["agentRuntimeName"] == "utterwire_my_agent"
    assert runtime["environmentVariables"] == {
        "AWS_REGION": account.region,
        "AWS_DEFAULT_REGION": account.region,
        "AGENT_MODEL": "scripted",
        "UTTERWIRE_URL": "sagemaker:demo",
        "UTTERWIRE_VOICE": "af_heart",
    }
    role = account.client("iam").get_role(RoleName=runtime["roleArn"].rpartition("/")[2])["Role"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"]["Service"] == "bedrock-agentcore.amazonaws.com"
    policy = account.client("iam").get_role_policy(RoleName=role["RoleName"], PolicyName="run")
    repositories = account.client("ecr").describe_repositories()["repositories"]
    arns = {one["repositoryName"]: one["repositoryArn"] for one in repositories}
    # moto keeps it as Python, not as JSON.
    assert f"'{arns[agent.repository]}'" in policy["PolicyDocument"]
    assert arns[DEMO.repository] not in policy["PolicyDocument"]

    # Again: nothing is pushed or changed.
    told = len(patience.told)
    agents.up(account, patience.watch, agent, given, [tool])
    assert len(tool.pushes) == 1
    assert sum("nothing to change" in line for line in patience.told[told:]) == 2

    # Another image is another version of the same runtime.
    agents.up(account, patience.watch, agent, given, [FakeTool(account, "4" * 64, "arm64")])
    (updated,) = control.list_agent_runtimes()["agentRuntimes"]
    assert updated["agentRuntimeId"] == found["agentRuntimeId"]
    assert updated["agentRuntimeVersion"] == "2"
    assert agents.status(account, patience.watch, agent)[0]

    # Removed, and nothing else with it.
    logs = account.client("logs")
    ours = f"/aws/bedrock-agentcore/runtimes/utterwire_my_agent-{'a' * 10}-live"
    others = ours.replace("my_agent", "my_agent_2")
    for name in (ours, others):
        logs.create_log_group(logGroupName=name)
    assert agents.down(account, patience.watch, agent)
    after = left_over(account)
    assert [group["logGroupName"] for group in after.pop("groups")] == [others]
    before.pop("groups")
    assert after == before
    assert not agents.down(account, patience.watch, agent)


def test_another_image_is_an_update(account: Account, patience: Any) -> None:
    commands.up(account, patience.watch, DEMO, wanted(), [FakeTool(account)])
    before = left_over(account)["models"]
    tool = FakeTool(account, "2" * 64)
    told = len(patience.told)
    commands.up(account, patience.watch, DEMO, wanted(), [tool])
    assert tool.pushes[0][1].endswith(":" + "2" * 16)
    assert f"{DEMO.endpoint}: nothing to change" not in patience.told[told:]
    after = left_over(account)["models"]
    assert len(after) == 1
    assert after != before


def test_a_push_that_is_lost(account: Account, patience: Any) -> None:
    tool = FakeTool(account)
    tool.loses = True
    with pytest.raises(DeployFailed, match="although it was pushed"):
        commands.up(account, patience.watch, DEMO, wanted(), [tool])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), "is no model folder"),
        (lambda folder: (folder / "kokoro.onnx").write_bytes(b"weighty"), "sha256 is another"),
        (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
        (lambda folder: (folder / "secret.txt").write_bytes(b"x"), "is not in manifest.json"),
    ],
)
def test_a_model_folder_that_is_not_whole_is_found_before_aws_is_asked(
    damage: Callable[[Path], None], words: str, script: Any, patience: Any, model_folder: Path
) -> None:
    damage(model_folder)
    tool = FakeTool(script.account)
    with pytest.raises(DeployFailed, match=words) as failed:
        commands.up(script.account, patience.watch, DEMO, wanted(model_folder), [tool])
    assert "utterwire-server model" in failed.value.next_step
    script.done()


def test_weights_of_other_bytes_have_another_prefix(model_folder: Path) -> None:
    first = weights_prefix(model_folder)[0]
    assert first == weights_prefix(model_folder)[0]
    (model_folder / "statistics" / "af_heart.npz").write_bytes(b"measured again")
    assert weights_prefix(model_folder)[0] != first


def test_only_what_did_not_arrive_is_sent_again(
    account: Account, patience: Any, model_folder: Path
) -> None:
    s3 = account.client("s3")
    s3.create_bucket(
        Bucket="some", CreateBucketConfiguration={"LocationConstraint": account.region}
    )
    uri = sync_weights(account, patience.watch, "some", model_folder)
    prefix = uri.removeprefix("s3://some/")
    s3.put_object(Bucket="some", Key=f"{prefix}kokoro.onnx", Body=b"half")
    sync_weights(account, patience.watch, "some", model_folder)
    assert "model: 5 files, 1 to send (0 MB)" in patience.told
    stored = s3.get_object(Bucket="some", Key=f"{prefix}kokoro.onnx", ChecksumMode="ENABLED")
    assert stored["Body"].read() == b"weights"
    digest = stored["ChecksumSHA256"]
    assert base64.b64decode(digest) == bytes.fromhex(
        json.loads((model_folder / "manifest.json").read_text())["files"]["kokoro.onnx"]["sha256"]
    )


def test_a_bucket_that_is_gone_is_told_in_amazons_words(
    account: Account, patience: Any, model_folder: Path
) -> None:
    from botocore.exceptions import ClientError
    from utterwire_server.deploy.aws_error import explained

    with pytest.raises(ClientError) as failed:
        sync_weights(account, patience.watch, "not-there", model_folder)
    assert "bucket does not exist" in explained(failed.value).problem


def test_an_upload_that_s3_refuses_is_told_in_amazons_words(
    account: Account, patience: Any, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    s3 = account.client("s3")
    s3.create_bucket(
        Bucket="some", CreateBucketConfiguration={"LocationConstraint": account.region}
    )

    def refuse(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")

    s3.meta.events.register("before-call.s3.PutObject", refuse)
    with pytest.raises(ClientError, match="AccessDenied"):
        sync_weights(account, patience.watch, "some", model_folder)
