"""A speaking endpoint on SageMaker AI: made, watched, scaled and removed (extra ``deploy``).

Three CloudFormation stacks of each deployment: foundation, endpoint, scaling. Nothing else knows
what there is: no file is kept here.
"""

from utterwire_server.deploy.deployment import Deployment
from utterwire_server.deploy.failure import DeployFailed

__all__ = ["DeployFailed", "Deployment"]
