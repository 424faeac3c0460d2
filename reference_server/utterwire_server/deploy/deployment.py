"""What a deployment is called, and its parts with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from utterwire_server.deploy.failure import DeployFailed

__all__ = [
    "DEFAULT_INSTANCE_TYPE",
    "GPU_AMI",
    "VARIANT",
    "AgentDeployment",
    "Deployment",
    "ami_for",
    "has_gpu",
]

#: The only variant of an endpoint, as the templates have it.
VARIANT: Final = "AllTraffic"
DEFAULT_INSTANCE_TYPE: Final = "ml.g5.xlarge"
#: System of the host whose NVIDIA driver carries bidirectional streaming on GPUs.
GPU_AMI: Final = "al2023-ami-sagemaker-inference-gpu-4-1"

# SageMaker's own rule for names of endpoints (CreateEndpoint).
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
# AgentCore's rule for names of runtimes (CreateAgentRuntime), less `utterwire_` and with hyphens.
_AGENT_NAME = re.compile(r"[a-zA-Z0-9](-?[a-zA-Z0-9])*")
_MOST_AGENT_NAME = 38
_GPU_FAMILIES = re.compile(r"ml\.(?:g[0-9]|gr[0-9]|p[0-9])[a-z0-9-]*\.")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One endpoint with all that belongs to it.

    :param name: of the endpoint: letters, digits and inner hyphens, 63 at most.
    :raises DeployFailed: if it cannot be one.
    """

    name: str

    def __post_init__(self) -> None:
        if len(self.name) > 63 or _NAME.fullmatch(self.name) is None:
            raise DeployFailed(
                f"{self.name!r} cannot be the name of an endpoint",
                "use letters, digits and hyphens inside, 63 characters at most",
                status=2,
            )

    @property
    def foundation(self) -> str:
        """Name of the stack of role, repository and bucket."""
        return f"utterwire-{self.name}-foundation"

    @property
    def endpoint(self) -> str:
        """Name of the stack of model and endpoint."""
        return f"utterwire-{self.name}-endpoint"

    @property
    def scaling(self) -> str:
        """Name of the stack of scaling."""
        return f"utterwire-{self.name}-scaling"

    @property
    def repository(self) -> str:
        """Name of the repository, which has to be in lower case; hyphens stand alone there."""
        return "utterwire/" + re.sub("-+", "-", self.name.lower())

    @property
    def log_group(self) -> str:
        """Where SageMaker AI writes what the container prints."""
        return f"/aws/sagemaker/Endpoints/{self.name}"


@dataclass(frozen=True, slots=True)
class AgentDeployment:
    """One agent on AgentCore with all that belongs to it.

    :param name: letters, digits and single hyphens inside, 38 at most.
    :raises DeployFailed: if it cannot be one.
    """

    name: str

    def __post_init__(self) -> None:
        if len(self.name) > _MOST_AGENT_NAME or _AGENT_NAME.fullmatch(self.name) is None:
            raise DeployFailed(
                f"{self.name!r} cannot be the name of an agent",
                "use letters, digits and single hyphens inside,"
                f" {_MOST_AGENT_NAME} characters at most",
                status=2,
            )

    # No stack of an endpoint ends so, whatever that one is called.

    @property
    def images(self) -> str:
        """Name of the stack of the repository."""
        return f"utterwire-{self.name}-agent-images"

    @property
    def stack(self) -> str:
        """Name of the stack of role, runtime and endpoint."""
        return f"utterwire-{self.name}-agent"

    @property
    def repository(self) -> str:
        """Name of the repository, which has to be in lower case."""
        return f"utterwire-agent/{self.name.lower()}"

    @property
    def runtime(self) -> str:
        """Name of the runtime, where hyphens are not allowed."""
        return f"utterwire_{self.name.replace('-', '_')}"

    @property
    def log_prefix(self) -> str:
        """How the names of the log groups begin that AgentCore makes, one for each endpoint.

        The id of a runtime is its name, a hyphen, and more; no name has a hyphen.
        """
        return f"/aws/bedrock-agentcore/runtimes/{self.runtime}-"


def has_gpu(instance_type: str) -> bool:
    """Whether instances of this type have an NVIDIA GPU, by the name of their family."""
    return _GPU_FAMILIES.match(instance_type) is not None


def ami_for(instance_type: str) -> str:
    """The system that a host of this type needs; empty for SageMaker AI's own choice."""
    return GPU_AMI if has_gpu(instance_type) else ""
