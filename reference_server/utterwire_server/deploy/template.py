"""The CloudFormation templates, as they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Final

__all__ = [
    "AGENT",
    "AGENT_IMAGES",
    "ENDPOINT",
    "FOUNDATION",
    "SCALING",
    "TEMPLATES",
    "Template",
]


@dataclass(frozen=True, slots=True)
class Template:
    """A template of this package.

    :param name: of the file, without its ending.
    :param capabilities: what CloudFormation wants to be acknowledged.
    """

    name: str
    capabilities: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The text of the template, YAML."""
        file = resources.files("utterwire_server.deploy") / "templates" / f"{self.name}.yaml"
        return file.read_text(encoding="utf-8")


#: Role, repository, bucket.
FOUNDATION: Final = Template("foundation", ("CAPABILITY_IAM",))
#: Model, endpoint configuration, endpoint.
ENDPOINT: Final = Template("endpoint")
#: Scalable target, policies, alarm.
SCALING: Final = Template("scaling")
#: Repository of an agent's images.
AGENT_IMAGES: Final = Template("agent-images")
#: Role, runtime and endpoint of an agent.
AGENT: Final = Template("agent", ("CAPABILITY_IAM",))
TEMPLATES: Final = (FOUNDATION, ENDPOINT, SCALING, AGENT_IMAGES, AGENT)
