"""Agents against scripts of AWS: up, status and down, and each way to fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from utterwire_server.deploy import agent as agents
from utterwire_server.deploy.agent import WantedAgent
from utterwire_server.deploy.deployment import AgentDeployment
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.image import Image, Login, Tool
from utterwire_server.deploy.runtime import QUALIFIER

IMAGES = "utterwire-demo-agent-images"
STACK = "utterwire-demo-agent"
DIGEST = "sha256:" + "a" * 64
REPOSITORY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/utterwire-agent/demo"
URI = f"{REPOSITORY}@{DIGEST}"
SPEAKS = "arn:aws:sagemaker:eu-west-1:123456789012:endpoint/demo"
UP = ("agent", "up", "demo", "--endpoint", "demo", "--image-uri", URI)
LOG = "/aws/bedrock-agentcore/runtimes/utterwire_demo-AbCdEf1234-"
OUTPUTS = [
    {"OutputKey": "RuntimeId", "OutputValue": "utterwire_demo-AbCdEf1234"},
    {"OutputKey": "RuntimeArn", "OutputValue": "arn:aws:bedrock-agentcore:..."},
]


def parameters(**other: str) -> list[dict[str, str]]:
    """Parameters of the agent's stack."""
    values = {
        "RuntimeName": "utterwire_demo",
        "ImageUri": URI,
        "ImageRepository": "eu-west-1:123456789012:repository/utterwire-agent/demo",
        "SpeechUrl": "sagemaker:demo",
        "SpeechEndpointArn": SPEAKS,
        "Voice": "",
        "ModelId": "",
        "FoundationModel": "",
        "IdleTimeout": "300",
    }
    return [
        {"ParameterKey": key, "ParameterValue": value} for key, value in (values | other).items()
    ]


def begun(script: Any, *, before: str | None = None, expected: Any = None) -> Any:
    """`up` of an image in ECR, as far as its stack."""
    script.who().answer("ecr", "describe_images", {"imageDetails": []}).endpoint("InService")
    script.put(STACK, before, expected=parameters() if expected is None else expected)
    return script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS)


def one_line(capsys: pytest.CaptureFixture[str], command: str) -> tuple[str, str]:
    """What was wrong and the next step; no more is printed."""
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"utterwire-deploy agent {command}: ")
    assert last.startswith("next: ")
    return first.partition(": ")[2], last.partition(": ")[2]


class FakeTool(Tool):
    """A tool that has the image and pushes it nowhere."""

    def __init__(self) -> None:
        super().__init__("docker")
        self.pushes: list[tuple[str, str]] = []

    def working(self) -> bool:
        return True

    def image(self, name: str) -> Image | None:
        return Image(name, "d" * 64, "arm64", {})

    def push(self, name: str, target: str, login: Login) -> None:
        self.pushes.append((name, target))


def test_up_looks_whether_the_endpoint_speaks_and_waits_until_the_agent_answers(
    script: Any,
    patience: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    begun(script).runtime("CREATING").runtime("CREATING").runtime("READY", liveVersion="1")
    assert command(*UP) == 0
    script.done()
    assert unlisted("agent up", map(":".join, script.asked)) == set()
    # What it costs is told before anything is made.
    charges = [line for line in patience.told if line.startswith("AWS charges: ")]
    assert len(charges) == 3
    assert patience.told.index(charges[-1]) < patience.told.index(
        f"{STACK}: will create Thing (AWS::Some::Thing)"
    )
    assert patience.told[-2:] == ["agent demo: CREATING", "agent demo: READY"]
    assert capsys.readouterr().out.splitlines() == [
        "agent demo, version 1, answers in eu-west-1",
        'Ask: utterwire-deploy agent invoke demo "How is the weather?"',
    ]


def test_an_image_of_this_machine_is_pushed_into_a_repository_of_the_agents_own(
    script: Any, patience: Any, unlisted: Callable[[str, Iterable[str]], set[str]]
) -> None:
    script.who().endpoint("InService")
    name = [{"ParameterKey": "RepositoryName", "ParameterValue": "utterwire-agent/demo"}]
    script.put(IMAGES, None, expected=name)
    output = {"OutputKey": "RepositoryUri", "OutputValue": REPOSITORY}
    script.stack(IMAGES, "CREATE_COMPLETE", Outputs=[output])
    script.refuse("ecr", "describe_images", "ImageNotFoundException", "none")
    token = {"authorizationToken": "QVdTOmFueXRoaW5n"}
    script.answer("ecr", "get_authorization_token", {"authorizationData": [token]})
    script.answer("ecr", "describe_images", {"imageDetails": [{"imageDigest": DIGEST}]})
    script.put(STACK, None, expected=parameters())
    script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS).runtime("READY")
    tool = FakeTool()
    wanted = WantedAgent(image="utterwire-agent", endpoint="demo")
    made = agents.up(script.account, patience.watch, AgentDeployment("demo"), wanted, [tool])
    script.done()
    assert made.ready
    assert tool.pushes == [("utterwire-agent", f"{REPOSITORY}:{'d' * 16}")]
    assert unlisted("agent up", map(":".join, script.asked)) == set()


def test_up_again_changes_nothing(script: Any, patience: Any, command: Callable[..., int]) -> None:
    script.who().answer("ecr", "describe_images", {"imageDetails": []}).endpoint("InService")
    script.stack(STACK, "UPDATE_COMPLETE").change_set(STACK, "UPDATE", parameters())
    told = {"Status": "FAILED", "StatusReason": "No updates are to be performed."}
    script.answer("cloudformation", "describe_change_set", told)
    script.answer("cloudformation", "delete_change_set")
    script.stack(STACK, "UPDATE_COMPLETE", Outputs=OUTPUTS).runtime("READY")
    assert command(*UP) == 0
    script.done()
    assert f"{STACK}: nothing to change" in patience.told


def test_an_update_moves_the_endpoint_to_the_new_version(
    script: Any, patience: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = parameters(
        Voice="af_heart",
        ModelId="eu.amazon.nova-lite-v1:0",
        FoundationModel="amazon.nova-lite-v1:0",
        IdleTimeout="60",
    )
    begun(script, before="CREATE_COMPLETE", expected=expected)
    script.runtime("UPDATING", liveVersion="1").runtime("READY", liveVersion="2")
    flags = ("--voice", "af_heart", "--model", "eu.amazon.nova-lite-v1:0", "--idle-timeout", "60")
    assert command(*UP, *flags) == 0
    script.done()
    assert "AWS charges: tokens of eu.amazon.nova-lite-v1:0" in patience.told
    assert "agent demo, version 2, answers" in capsys.readouterr().out


def test_an_endpoint_elsewhere_needs_no_right(script: Any, command: Callable[..., int]) -> None:
    script.who().answer("ecr", "describe_images", {"imageDetails": []})
    expected = parameters(SpeechUrl="wss://tts.example.com", SpeechEndpointArn="")
    script.put(STACK, None, expected=expected)
    script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS).runtime("READY")
    url = ("--url", "wss://tts.example.com")
    assert command("agent", "up", "demo", *url, "--image-uri", URI) == 0
    script.done()


@pytest.mark.parametrize("state", [None, "Creating", "Failed", "Deleting"])
def test_without_an_endpoint_that_speaks_nothing_is_made(
    state: str | None, script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.who().answer("ecr", "describe_images", {"imageDetails": []}).endpoint(state)
    assert command(*UP) == 1
    script.done()
    problem, next_step = one_line(capsys, "up")
    assert problem == (f"endpoint demo, by which the agent would speak, is {state or 'not there'}")
    assert next_step.startswith("utterwire-deploy up demo first")


@pytest.mark.parametrize(
    ("reason", "next_step"),
    [
        ("Architecture incompatible for uri ... Supported: [arm64]", "--platform linux/arm64"),
        ("AgentRuntime named utterwire_demo already exists", "take another NAME"),
        ("Role validation failed for 'arn:aws:iam::1:role/r'", "run the same command again"),
        ("maxAgents quota exceeded", "Service Quotas"),
        ("is not authorized to perform: iam:PassRole", "DEPLOY.md"),
    ],
)
def test_a_runtime_that_is_taken_back_tells_what_helps(
    reason: str,
    next_step: str,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.who().answer("ecr", "describe_images", {"imageDetails": []}).endpoint("InService")
    script.stack(STACK, None).change(STACK, "CREATE", ("Add", "Runtime"), expected=parameters())
    script.stack(STACK, "ROLLBACK_COMPLETE").events(STACK, ("Runtime", "CREATE_FAILED", reason))
    assert command(*UP) == 1
    script.done()
    problem, step = one_line(capsys, "up")
    assert problem == f"stack {STACK} was taken back (ROLLBACK_COMPLETE): Runtime: {reason}"
    assert next_step in step


def test_an_agent_that_failed_or_is_gone(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(script).runtime("UPDATING").runtime("UPDATE_FAILED", failureReason="for a reason")
    assert command(*UP) == 1
    assert one_line(capsys, "up")[0] == "agent demo is UPDATE_FAILED: for a reason"
    begun(script, before="CREATE_COMPLETE").runtime(None)
    assert command(*UP) == 1
    script.done()
    problem, next_step = one_line(capsys, "up")
    assert problem == "agent demo is gone, although its stack is there"
    assert next_step == "utterwire-deploy agent down demo, then up again"


def test_ctrl_c_names_the_commands_of_agents(
    script: Any, patience: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def break_in() -> None:
        raise KeyboardInterrupt

    begun(script).runtime("CREATING")
    patience.at_pause = break_in
    assert command(*UP) == 130
    script.done()
    assert one_line(capsys, "up")[1].startswith("utterwire-deploy agent status demo shows")


def test_a_busy_stack_names_the_commands_of_agents(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(STACK, "UPDATE_IN_PROGRESS")
    assert command("agent", "down", "demo") == 1
    script.done()
    assert "wait until utterwire-deploy agent status" in one_line(capsys, "down")[1]


def test_what_aws_denies_while_it_waits_is_one_line(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(script)
    service, operation = "bedrock-agentcore-control", "get_agent_runtime_endpoint"
    script.refuse(service, operation, "AccessDeniedException", "no")
    assert command(*UP) == 1
    script.done()
    assert one_line(capsys, "up")[0].startswith("no permission for GetAgentRuntimeEndpoint")


def test_status_of_one_that_answers(
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    script.stack(IMAGES, "CREATE_COMPLETE").stack(STACK, "UPDATE_COMPLETE")
    script.stack(STACK, "UPDATE_COMPLETE", Outputs=OUTPUTS).runtime("READY", liveVersion="3")
    script.stack(STACK, "UPDATE_COMPLETE", Parameters=parameters())
    script.log_groups(f"{LOG}live")
    assert command("agent", "status", "demo") == 0
    script.done()
    assert unlisted("agent status", map(":".join, script.asked)) == set()
    assert capsys.readouterr().out.splitlines() == [
        "agent demo: READY, version 3",
        f"image {URI}",
        "speaks by sagemaker:demo",
        "model scripted",
        f"stack {IMAGES}: CREATE_COMPLETE",
        f"stack {STACK}: UPDATE_COMPLETE",
        f"log group {LOG}live",
    ]


def test_status_of_one_that_failed_and_of_one_that_is_half_made(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(IMAGES, None).stack(STACK, "CREATE_COMPLETE")
    script.stack(STACK, "CREATE_COMPLETE", Outputs=OUTPUTS)
    script.runtime("CREATE_FAILED", failureReason="why")
    script.stack(STACK, "CREATE_COMPLETE", Parameters=parameters()).log_groups()
    assert command("agent", "status", "demo", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["ready"]) == ("demo", False)
    assert told["lines"][0] == "agent demo: CREATE_FAILED: why"
    script.stack(IMAGES, "CREATE_COMPLETE").stack(STACK, None).stack(STACK, None).stack(STACK, None)
    script.log_groups()
    assert command("agent", "status", "demo") == 1
    script.done()
    assert capsys.readouterr().out.splitlines() == [
        "agent demo: not there",
        f"stack {IMAGES}: CREATE_COMPLETE",
        f"stack {STACK}: not there",
    ]


def test_status_of_one_that_was_never_made(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(IMAGES, None).stack(STACK, None)
    assert command("agent", "status", "demo") == 1
    script.done()
    problem, next_step = one_line(capsys, "status")
    assert problem == "there is no agent demo in eu-west-1"
    assert next_step.startswith("utterwire-deploy agent up demo")


def test_down_removes_the_agent_then_its_images_then_its_logs(
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    script.removed(STACK).removed(IMAGES).log_groups(f"{LOG}DEFAULT", f"{LOG}live")
    for name in ("DEFAULT", "live"):
        script.answer("logs", "delete_log_group", {}, {"logGroupName": f"{LOG}{name}"})
    assert command("agent", "down", "demo") == 0
    script.done()
    assert unlisted("agent down", map(":".join, script.asked)) == set()
    assert capsys.readouterr().out == "agent demo is removed\n"


def test_down_of_nothing(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.removed(STACK, None).removed(IMAGES, None).log_groups()
    assert command("agent", "down", "demo") == 0
    script.done()
    assert capsys.readouterr().out == "agent demo was not there\n"


def test_down_goes_on_where_only_a_log_was_left(script: Any, command: Callable[..., int]) -> None:
    script.removed(STACK, None).removed(IMAGES, None).log_groups(f"{LOG}live")
    script.answer("logs", "delete_log_group")
    assert command("agent", "down", "demo") == 0
    script.done()


# What is seen without AWS.


def test_a_dry_run_shows_steps_charges_and_templates(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("agent", "up", "demo", "--endpoint", "my-voice", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "1. endpoint my-voice: look whether it speaks",
        f"2. stack {IMAGES}: create or update",
        "3. image: utterwire-agent, pushed, by its digest",
        f"4. stack {STACK}: create or update",
        "5. agent demo: wait until it is READY",
    ]
    assert lines[5].startswith("AWS charges: processor and memory")
    assert "#   SpeechEndpointArn: of endpoint my-voice" in lines
    assert "    Type: AWS::BedrockAgentCore::RuntimeEndpoint" in lines
    assert "    Type: AWS::ECR::Repository" in lines
    assert command("agent", "up", "demo", "--url", "wss://h", "--image-uri", URI, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    script.done()
    assert lines[0] == f"1. image: {URI}"
    assert "#   SpeechUrl: wss://h" in lines
    assert "    Type: AWS::ECR::Repository" not in lines


def test_a_dry_run_of_down(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("agent", "down", "demo", "--dry-run") == 0
    script.done()
    assert capsys.readouterr().out.splitlines() == [
        f"1. stack {STACK}: remove",
        f"2. stack {IMAGES}: remove, with its images",
        "3. log groups /aws/bedrock-agentcore/runtimes/utterwire_demo-...: remove",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["agent"], "required: COMMAND"),
        (["agent", "up", "demo"], "what is to speak has to be said in one way"),
        (
            ["agent", "up", "demo", "--endpoint", "a", "--url", "wss://h"],
            "what is to speak has to be said in one way",
        ),
        (["agent", "up", "demo", "--endpoint", "a?region=b"], "cannot be the name of an endpoint"),
        (["agent", "up", "demo", "--url", "h:8080"], "'h:8080' is no address of an endpoint"),
        (["agent", "up", "demo", "--url", "wss://u:p@h"], "is no address of an endpoint"),
        (["agent", "up", "demo", "--url", "wss://h", "--model", "arn:aws:x"], "no id of Amazon"),
        (["agent", "up", "demo", "--url", "wss://h", "--model", "a b"], "is no id of Amazon"),
        (["agent", "up", "demo", "--url", "wss://h", "--model", "a" * 121], "is no id of Amazon"),
        (["agent", "up", "demo", "--url", "wss://h", "--image-uri", "x"], "from ECR only"),
        (["agent", "up", "demo", "--endpoint", "a", "--idle-timeout", "9"], "60 to 28800 seconds"),
        (["agent", "up", "a_b", "--endpoint", "a"], "'a_b' cannot be the name of an agent"),
        (["agent", "down", "a--b"], "'a--b' cannot be the name of an agent"),
        (["agent", "down", "a" * 39], "cannot be the name of an agent"),
        (["agent", "invoke", "demo", "Hello", "--mode", "x"], "invalid choice"),
    ],
)
def test_mistakes_in_arguments_are_one_line(
    arguments: list[str],
    words: str,
    command: Callable[..., int],
    script: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(*arguments) == 2
    script.done()
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.splitlines()) <= 2


@pytest.mark.parametrize(
    ("model", "foundation"),
    [
        ("", ""),
        ("amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0"),
        ("eu.amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0"),
        ("us-gov.amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0"),
        ("apac.amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0"),
        ("global.anthropic.claude-haiku-4-5", "anthropic.claude-haiku-4-5"),
        ("ai21.jamba-1-5-large-v1:0", "ai21.jamba-1-5-large-v1:0"),
        ("moonshotai.kimi-k2.5", "moonshotai.kimi-k2.5"),
    ],
)
def test_the_model_of_an_inference_profile(model: str, foundation: str) -> None:
    wanted = WantedAgent(image="x", endpoint="demo", model=model)
    made = wanted.parameters(AgentDeployment("demo"), image="i", grant="g", speaks="s")
    assert made["FoundationModel"] == foundation


def test_an_image_for_another_processor_is_found_before_aws_is_asked(
    script: Any, patience: Any
) -> None:
    class Wrong(FakeTool):
        def image(self, name: str) -> Image | None:
            return Image(name, "d" * 64, "amd64", {})

    wanted = WantedAgent(image="utterwire-agent", endpoint="demo")
    with pytest.raises(DeployFailed, match="is for amd64, and AgentCore runs arm64"):
        agents.up(script.account, patience.watch, AgentDeployment("demo"), wanted, [Wrong()])
    script.done()


def test_names_of_an_agent_are_of_that_one_only() -> None:
    """Whatever endpoints and other agents are called."""
    from utterwire_server.deploy.deployment import Deployment

    taken: set[str] = set()
    for name in ("demo", "demo-agent", "demo-agent-images", "demo-foundation"):
        endpoint, agent = Deployment(name), AgentDeployment(name)
        names = {endpoint.foundation, endpoint.endpoint, endpoint.scaling, endpoint.repository}
        names |= {agent.stack, agent.images, agent.repository, agent.runtime}
        assert not names & taken
        taken |= names
    assert len(AgentDeployment("a" * 38).runtime) == 48


def test_names_fit_the_rules_of_agentcore(make_client: Callable[[str], Any]) -> None:
    model = make_client("bedrock-agentcore-control").meta.service_model
    rules = {name: model.shape_for(name).metadata["pattern"] for name in RULED}
    assert re.fullmatch(rules["AgentRuntimeName"], AgentDeployment("a" * 37 + "Z").runtime)
    assert re.fullmatch(rules["AgentRuntimeName"], AgentDeployment("1-a").runtime)
    assert re.fullmatch(rules["EndpointName"], QUALIFIER)
    assert re.fullmatch(rules["RuntimeContainerUri"], URI)


RULED = ("AgentRuntimeName", "EndpointName", "RuntimeContainerUri")
