"""A speaking endpoint on SageMaker AI: made, watched, scaled and removed (extra ``deploy``).

Three CloudFormation stacks of each deployment: foundation, endpoint, scaling; and two of each agent
on AgentCore that speaks by one: images, and the agent. Nothing else knows what there is: no file is
kept here.
"""

from utterwire_server.deploy.deployment import AgentDeployment, Deployment
from utterwire_server.deploy.failure import DeployFailed

__all__ = ["AgentDeployment", "DeployFailed", "Deployment"]
