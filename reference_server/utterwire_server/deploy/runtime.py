"""The endpoint of an agent's runtime, as AgentCore has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of
from utterwire_server.deploy.deployment import AgentDeployment
from utterwire_server.deploy.failure import DeployFailed, step_for
from utterwire_server.deploy.watch import Watch

__all__ = ["QUALIFIER", "RuntimeEndpoint", "describe_runtime", "wait_ready"]

#: Name of the endpoint, as the template has it.
QUALIFIER: Final = "live"
_MOVING: Final = frozenset({"CREATING", "UPDATING", "DELETING"})


@dataclass(frozen=True, slots=True)
class RuntimeEndpoint:
    """What AgentCore says of an endpoint.

    :param reason: why it failed; empty if it did not.
    :param version: of the runtime that answers; empty before there is one.
    """

    status: str
    reason: str
    version: str

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        return self.status == "READY"


def describe_runtime(account: Account, runtime_id: str) -> RuntimeEndpoint | None:
    """The endpoint of a runtime; None if there is none."""
    try:
        told = account.client("bedrock-agentcore-control").get_agent_runtime_endpoint(
            agentRuntimeId=runtime_id, endpointName=QUALIFIER
        )
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise
    return RuntimeEndpoint(
        told["status"], told.get("failureReason", ""), told.get("liveVersion", "")
    )


def wait_ready(
    account: Account, watch: Watch, agent: AgentDeployment, runtime_id: str
) -> RuntimeEndpoint:
    """Wait until an agent answers.

    :raises DeployFailed: if it fails, with the reason.
    """
    before = ""
    while True:
        endpoint = describe_runtime(account, runtime_id)
        if endpoint is None:
            raise DeployFailed(
                f"agent {agent.name} is gone, although its stack is there",
                f"utterwire-deploy agent down {agent.name}, then up again",
            )
        if endpoint.status != before:
            watch.say(f"agent {agent.name}: {endpoint.status}")
            before = endpoint.status
        if endpoint.ready:
            return endpoint
        if endpoint.status not in _MOVING:
            reason = endpoint.reason or "no reason was given"
            raise DeployFailed(
                f"agent {agent.name} is {endpoint.status}: {reason}", step_for(reason)
            )
        watch.pause()
