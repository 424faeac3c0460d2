"""What ``utterwire-deploy agent`` does: up, status, down. Each can be run again at any time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.commands import described
from utterwire_server.deploy.deployment import AgentDeployment, Deployment
from utterwire_server.deploy.endpoint import describe_endpoint
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.image import (
    AGENT_DEMANDS,
    EcrImage,
    Tool,
    find_tool,
    push_image,
    require_image,
)
from utterwire_server.deploy.log import log_groups, remove_log
from utterwire_server.deploy.runtime import RuntimeEndpoint, describe_runtime, wait_ready
from utterwire_server.deploy.stack import Stack
from utterwire_server.deploy.template import AGENT, AGENT_IMAGES
from utterwire_server.deploy.watch import Watch

__all__ = ["PROGRAM", "WantedAgent", "agent_stack", "down", "shown", "status", "up"]

#: How people call this.
PROGRAM: Final = "utterwire-deploy agent"

# A policy has its name, which IAM bounds at 128 characters.
_MODEL: Final = re.compile(r"(?!arn:)[a-zA-Z0-9][a-zA-Z0-9.:_-]{0,119}")
# Geographies of Bedrock's own inference profiles, such as `eu.` and `us-gov.`; no maker of models
# has a name of two letters.
_GEOGRAPHY: Final = re.compile(r"^(?:[a-z]{2}(?:-gov)?|apac|global)\.")
_URL: Final = re.compile(r"(?:wss?|https?)://[^\s?#@]+")


@dataclass(frozen=True, slots=True)
class WantedAgent:
    """What ``up`` is to make.

    :param image: name of an image of this machine, which is pushed.
    :param image_uri: address of an image that is in ECR already, instead.
    :param endpoint: endpoint of SageMaker AI that speaks, by its name; else ``url`` is one.
    :param model: model or inference profile of Bedrock; empty for the scripted model.
    :param idle_timeout_s: after its last call, until AgentCore ends a session.
    :raises DeployFailed: if something of it cannot be.
    """

    image: str
    image_uri: str | None = None
    endpoint: str = ""
    url: str = ""
    voice: str = ""
    model: str = ""
    idle_timeout_s: int = 300

    def __post_init__(self) -> None:
        if self.image_uri is not None:
            EcrImage.parse(self.image_uri)
        if bool(self.endpoint) == bool(self.url):
            raise DeployFailed(
                "what is to speak has to be said in one way",
                "give --endpoint NAME (of `utterwire-deploy up NAME`), or --url ADDRESS",
                status=2,
            )
        if self.endpoint:
            Deployment(self.endpoint)
        if self.url and _URL.fullmatch(self.url) is None:
            raise DeployFailed(
                f"--url {self.url!r} is no address of an endpoint",
                "give wss://HOST, without a question mark, a user or a password",
                status=2,
            )
        if self.model and _MODEL.fullmatch(self.model) is None:
            raise DeployFailed(
                f"--model {self.model!r} is no id of Amazon Bedrock",
                "give the id of a model or of an inference profile, such as"
                " eu.amazon.nova-lite-v1:0; not an ARN",
                status=2,
            )

    def parameters(
        self, agent: AgentDeployment, *, image: str, grant: str, speaks: str
    ) -> dict[str, str]:
        """Parameters of the stack.

        :param image: its address in ECR.
        :param grant: its repository, as `EcrImage.grant` has it.
        :param speaks: ARN of the endpoint; empty if that is none of SageMaker AI.
        """
        return {
            "RuntimeName": agent.runtime,
            "ImageUri": image,
            "ImageRepository": grant,
            "SpeechUrl": self.url or f"sagemaker:{self.endpoint}",
            "SpeechEndpointArn": speaks,
            "Voice": self.voice,
            "ModelId": self.model,
            "FoundationModel": _GEOGRAPHY.sub("", self.model),
            "IdleTimeout": str(self.idle_timeout_s),
        }

    def charges(self) -> Iterator[str]:
        """What AWS takes money for, a line each (AWS's pages on prices of AgentCore and ECR)."""
        yield (
            "AWS charges: processor and memory of each session of the agent, from its first call"
            f" until {self.idle_timeout_s} s after its last one; nothing while there is none"
        )
        yield "AWS charges: the image in ECR and the log in CloudWatch, by size"
        if self.model:
            yield f"AWS charges: tokens of {self.model}"
        if self.endpoint:
            yield f"AWS charges: endpoint {self.endpoint} as before"


def agent_stack(account: Account, watch: Watch, agent: AgentDeployment) -> Stack:
    """The stack of role, runtime and endpoint."""
    return Stack(account, watch, agent.stack, PROGRAM)


def up(
    account: Account,
    watch: Watch,
    agent: AgentDeployment,
    wanted: WantedAgent,
    tools: Sequence[Tool] | None = None,
) -> RuntimeEndpoint:
    """Make or update an agent, and wait until it answers.

    :raises DeployFailed: if it does not come to that.
    """
    # What can be found out here is found out before anything is made there.
    local = None if wanted.image_uri is not None else find_tool(wanted.image, AGENT_DEMANDS, tools)
    watch.say(f"as {account.identity()}, in {account.region}")
    if wanted.image_uri is not None:
        require_image(account, wanted.image_uri)
    speaks = _arn(account, wanted.endpoint) if wanted.endpoint else ""
    for line in wanted.charges():
        watch.say(line)

    if local is None:
        assert wanted.image_uri is not None
        image = wanted.image_uri
    else:
        images = Stack(account, watch, agent.images, PROGRAM)
        images.put(AGENT_IMAGES, {"RepositoryName": agent.repository})
        image = push_image(account, watch, *local, images.outputs()["RepositoryUri"])
    stack = agent_stack(account, watch, agent)
    grant = EcrImage.parse(image).grant
    stack.put(AGENT, wanted.parameters(agent, image=image, grant=grant, speaks=speaks))
    return wait_ready(account, watch, agent, stack.outputs()["RuntimeId"])


def _arn(account: Account, name: str) -> str:
    """The ARN of an endpoint that speaks; AWS writes names otherwise there than elsewhere."""
    endpoint = describe_endpoint(account, name)
    if endpoint is None or endpoint.status in ("Creating", "Failed", "Deleting"):
        told = "not there" if endpoint is None else endpoint.status
        raise DeployFailed(
            f"endpoint {name}, by which the agent would speak, is {told}",
            f"utterwire-deploy up {name} first, or name another with --endpoint or --url",
        )
    return endpoint.arn


def status(account: Account, watch: Watch, agent: AgentDeployment) -> tuple[bool, list[str]]:
    """Whether the agent answers, and what there is, a line each.

    :raises DeployFailed: if there is nothing.
    """
    stack = agent_stack(account, watch, agent)
    images = Stack(account, watch, agent.images, PROGRAM)
    states = {one.name: one.status for one in (images, stack)}
    if not any(states.values()):
        raise DeployFailed(
            f"there is no agent {agent.name} in {account.region}",
            f"{PROGRAM} up {agent.name}, or another --region or --profile",
        )
    runtime_id = stack.outputs().get("RuntimeId")
    endpoint = None if runtime_id is None else describe_runtime(account, runtime_id)
    lines = [f"agent {agent.name}: {_told(endpoint)}"]
    given = stack.parameters()
    if given:
        lines += [
            f"image {given['ImageUri']}",
            f"speaks by {given['SpeechUrl']}",
            f"model {given['ModelId'] or 'scripted'}",
        ]
    lines += [f"stack {name}: {state or 'not there'}" for name, state in states.items()]
    lines += [f"log group {name}" for name in log_groups(account, agent.log_prefix)]
    return endpoint is not None and endpoint.ready, lines


def _told(endpoint: RuntimeEndpoint | None) -> str:
    if endpoint is None:
        return "not there"
    version = f", version {endpoint.version}" if endpoint.version else ""
    reason = f": {endpoint.reason}" if endpoint.reason else ""
    return f"{endpoint.status}{version}{reason}"


def down(account: Account, watch: Watch, agent: AgentDeployment) -> bool:
    """Remove an agent, its images and logs included. Whether there was anything.

    The endpoint by which it speaks stays.

    :raises DeployFailed: if something cannot be removed.
    """
    removed = agent_stack(account, watch, agent).delete()
    removed |= Stack(account, watch, agent.images, PROGRAM).delete()
    for group in log_groups(account, agent.log_prefix):
        removed |= remove_log(account, group)
    return removed


def shown(agent: AgentDeployment, wanted: WantedAgent) -> Iterator[str]:
    """What ``up`` would do, with templates and parameters; nothing is asked of AWS."""
    steps = [] if wanted.endpoint == "" else [f"endpoint {wanted.endpoint}: look whether it speaks"]
    if wanted.image_uri is None:
        steps += [
            f"stack {agent.images}: create or update",
            f"image: {wanted.image}, pushed, by its digest",
        ]
    else:
        steps += [f"image: {wanted.image_uri}"]
    steps += [
        f"stack {agent.stack}: create or update",
        f"agent {agent.name}: wait until it is READY",
    ]
    yield from (f"{place}. {step}" for place, step in enumerate(steps, 1))
    yield from wanted.charges()
    if wanted.image_uri is None:
        repository = {"RepositoryName": agent.repository}
        yield from described(AGENT_IMAGES.body, agent.images, repository)
        image, grant = "of the step before", "of the step before"
    else:
        image, grant = wanted.image_uri, EcrImage.parse(wanted.image_uri).grant
    speaks = f"of endpoint {wanted.endpoint}" if wanted.endpoint else ""
    parameters = wanted.parameters(agent, image=image, grant=grant, speaks=speaks)
    yield from described(AGENT.body, agent.stack, parameters)
