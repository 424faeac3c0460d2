"""The templates: linted against AWS's own schemas, and in step with code and pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cfnlint import decode
from cfnlint.api import lint_file
from utterwire_server.deploy import cli
from utterwire_server.deploy import template as templates
from utterwire_server.deploy.agent import WantedAgent
from utterwire_server.deploy.commands import Wanted
from utterwire_server.deploy.deployment import (
    DEFAULT_INSTANCE_TYPE,
    GPU_AMI,
    VARIANT,
    AgentDeployment,
    Deployment,
    ami_for,
    has_gpu,
)
from utterwire_server.deploy.runtime import QUALIFIER
from utterwire_server.deploy.scaling import Scaling

FOLDER = Path(templates.__file__).with_name("templates")
DEPLOY = (Path(__file__).parents[2] / "DEPLOY.md").read_text(encoding="utf-8")
DEMO = Deployment("demo")
WANTED = Wanted(image="x", instance_type=DEFAULT_INSTANCE_TYPE, ami=GPU_AMI)
AGENT = AgentDeployment("my-Agent")
WANTED_AGENT = WantedAgent(image="x", endpoint="demo", model="eu.amazon.nova-lite-v1:0")
PARAMETERS = {
    "foundation": WANTED.foundation(DEMO),
    "endpoint": WANTED.endpoint(DEMO, role="r", image="i", model="", keep=False),
    "scaling": Scaling(1, 2, 4, 1).parameters(DEMO),
    "agent-images": {"RepositoryName": AGENT.repository},
    "agent": WANTED_AGENT.parameters(AGENT, image="i", grant="g", speaks="a"),
}


def read(name: str) -> dict[str, Any]:
    decoded, problems = decode.decode(str(FOLDER / f"{name}.yaml"))
    assert not problems
    read: dict[str, Any] = decoded
    return read


def test_each_file_is_a_template_that_is_used() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {
        template.name for template in templates.TEMPLATES
    }


@pytest.mark.parametrize("template", templates.TEMPLATES, ids=lambda template: template.name)
def test_cfn_lint_finds_nothing(template: templates.Template) -> None:
    found = lint_file(FOLDER / f"{template.name}.yaml")
    assert [str(match) for match in found] == []


def test_cfn_lint_would_find_something(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        templates.SCALING.body.replace("TargetTrackingScaling\n", "TargetTrackingScalingX\n"),
        encoding="utf-8",
    )
    assert lint_file(wrong)


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_is_sent_is_what_the_template_takes(name: str) -> None:
    taken = read(name)["Parameters"]
    sent = PARAMETERS[name]
    assert set(sent) <= set(taken)
    # What is not sent has a default.
    assert all("Default" in taken[each] for each in set(taken) - set(sent))
    for each, value in sent.items():
        if (values := taken[each].get("AllowedValues")) is not None:
            assert value in values
        if (pattern := taken[each].get("AllowedPattern")) is not None:
            assert re.fullmatch(pattern, value)


def test_defaults_of_the_template_are_those_of_the_code() -> None:
    taken = read("endpoint")["Parameters"]
    assert taken["InstanceType"]["Default"] == DEFAULT_INSTANCE_TYPE
    assert taken["InferenceAmiVersion"]["Default"] == GPU_AMI == ami_for(DEFAULT_INSTANCE_TYPE)
    variants = read("endpoint")["Resources"]["EndpointConfig"]["Properties"]["ProductionVariants"]
    assert [variant["VariantName"] for variant in variants] == [VARIANT]


def statements(resource: str) -> list[dict[str, Any]]:
    """What a policy of an agent allows."""
    properties = read("agent")["Resources"][resource]["Properties"]
    policies = properties.get("Policies", [properties])
    return [one for policy in policies for one in policy["PolicyDocument"]["Statement"]]


def test_an_agent_may_do_what_it_does_and_no_more() -> None:
    speak, write = statements("Speak"), statements("Write")
    assert [one["Action"] for one in (*speak, *write)] == [
        ["sagemaker:InvokeEndpoint", "sagemaker:InvokeEndpointWithBidirectionalStream"],
        "bedrock:InvokeModelWithResponseStream",
    ]
    assert speak[0]["Resource"] == {"Ref": "SpeechEndpointArn"}
    everywhere = [
        one["Action"]
        for resource in ("ExecutionRole", "Speak", "Write")
        for one in statements(resource)
        if one["Resource"] == "*"
    ]
    # It has no resource to be narrowed to.
    assert everywhere == ["ecr:GetAuthorizationToken"]
    for one in (each for resource in ("ExecutionRole", "Speak") for each in statements(resource)):
        assert "*" not in "".join(one["Action"])


def test_only_agentcore_of_this_account_takes_the_role() -> None:
    role = read("agent")["Resources"]["ExecutionRole"]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "bedrock-agentcore.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}


def test_each_right_of_an_agent_has_the_name_of_what_it_allows() -> None:
    """So that an update makes a new one beside the old one, which a version still needs."""
    for resource, parameter in (("Speak", "SpeechEndpointArn"), ("Write", "ModelId")):
        properties = read("agent")["Resources"][resource]["Properties"]
        assert parameter in str(properties["PolicyName"])


def test_the_endpoint_of_an_agent_is_the_one_that_is_asked() -> None:
    there = read("agent")["Resources"]
    assert there["Endpoint"]["Properties"]["Name"] == QUALIFIER
    idle = read("agent")["Parameters"]["IdleTimeout"]["Default"]
    assert idle == WANTED_AGENT.idle_timeout_s


def test_what_is_written_is_read_by_the_example() -> None:
    variables = read("agent")["Resources"]["Runtime"]["Properties"]["EnvironmentVariables"]
    example = Path(__file__).parents[3] / "examples" / "agentcore" / "agent.py"
    known = set(re.findall(r'environ\.get\("(\w+)"', example.read_text(encoding="utf-8")))
    assert {name for name in variables if not name.startswith("AWS_")} <= known


def test_nothing_that_is_spoken_is_captured() -> None:
    assert "DataCaptureConfig" not in read("endpoint")["Resources"]["EndpointConfig"]["Properties"]


def test_only_what_makes_roles_needs_a_capability() -> None:
    for template in templates.TEMPLATES:
        iam = any("IAM" in one["Type"] for one in read(template.name)["Resources"].values())
        assert bool(template.capabilities) is iam


def test_the_page_tells_of_each_resource_how_it_was_checked() -> None:
    table = DEPLOY.partition("## What was checked by what")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(AWS::\w+::\w+)` \|", table, re.MULTILINE)
    there = [
        one["Type"]
        for template in templates.TEMPLATES
        for one in read(template.name)["Resources"].values()
    ]
    assert sorted(set(there)) == sorted(told)


def test_the_page_tells_of_each_command_and_each_flag_of_up() -> None:
    parser: Any = cli._parser()
    (commands,) = (one.choices for one in parser._subparsers._group_actions)
    table = DEPLOY.partition("## Commands")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `utterwire-deploy (\w+)", table, re.MULTILINE) == list(commands)
    told = set(re.findall(r"`(--[a-z-]+)`", DEPLOY.partition("| flag of `up` |")[2]))
    flags = {flag for one in commands["up"]._actions for flag in one.option_strings}
    assert flags - {"-h", "--help", "--region", "--profile", "--dry-run"} <= told


def test_the_page_tells_of_each_command_and_each_flag_of_agents() -> None:
    parser: Any = cli._parser()
    (commands,) = (one.choices for one in parser._subparsers._group_actions)
    (of_agents,) = (one.choices for one in commands["agent"]._subparsers._group_actions)
    page = DEPLOY.partition("## Agent")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `utterwire-deploy agent (\w+)", page, re.MULTILINE) == list(of_agents)
    told = set(re.findall(r"`(--[a-z-]+)`", page.partition("| flag of `agent up` |")[2]))
    flags = {flag for one in of_agents["up"]._actions for flag in one.option_strings}
    assert flags - {"-h", "--help", "--region", "--profile", "--dry-run"} <= told


@pytest.mark.parametrize(
    ("instance_type", "gpu"),
    [
        ("ml.g5.xlarge", True),
        ("ml.g4dn.xlarge", True),
        ("ml.g6e.2xlarge", True),
        ("ml.gr6.4xlarge", True),
        ("ml.p4d.24xlarge", True),
        ("ml.c5.xlarge", False),
        ("ml.m5.large", False),
        ("ml.inf2.xlarge", False),
    ],
)
def test_instances_with_a_gpu(instance_type: str, gpu: bool) -> None:
    assert has_gpu(instance_type) is gpu
    assert bool(ami_for(instance_type)) is gpu
