"""The endpoint as SageMaker AI has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of, message_of
from utterwire_server.deploy.deployment import VARIANT, Deployment
from utterwire_server.deploy.failure import DeployFailed, step_for
from utterwire_server.deploy.log import log_lines
from utterwire_server.deploy.watch import Watch

__all__ = ["Endpoint", "describe_endpoint", "wait_in_service"]

_MOVING: Final = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What SageMaker AI says of an endpoint.

    :param arn: its name to other services of AWS.
    :param reason: why it failed; empty if it did not.
    :param instances: how many there are, and how many there are to be.
    """

    status: str
    reason: str
    instances: tuple[int, int]
    image: str
    arn: str

    @property
    def moving(self) -> bool:
        """Whether its status will change by itself."""
        return self.status in _MOVING


def describe_endpoint(account: Account, name: str) -> Endpoint | None:
    """The endpoint; None if there is none."""
    try:
        told = account.client("sagemaker").describe_endpoint(EndpointName=name)
    except ClientError as error:
        if code_of(error) == "ValidationException" and "ould not find" in message_of(error):
            return None
        raise
    variants: list[Mapping[str, Any]] = told.get("ProductionVariants") or [{}]
    variant = next((one for one in variants if one.get("VariantName") == VARIANT), variants[0])
    images = variant.get("DeployedImages") or [{}]
    return Endpoint(
        status=told["EndpointStatus"],
        reason=told.get("FailureReason", ""),
        instances=(variant.get("CurrentInstanceCount", 0), variant.get("DesiredInstanceCount", 0)),
        image=images[0].get("ResolvedImage") or images[0].get("SpecifiedImage", ""),
        arn=told["EndpointArn"],
    )


def wait_in_service(account: Account, watch: Watch, deployment: Deployment) -> Endpoint:
    """Wait until the endpoint serves.

    :raises DeployFailed: if it fails, with the reason and the end of the log.
    """
    before = ""
    while True:
        endpoint = describe_endpoint(account, deployment.name)
        if endpoint is None:
            raise DeployFailed(
                f"endpoint {deployment.name} is gone, although its stack is there",
                f"utterwire-deploy down {deployment.name}, then up again",
            )
        if endpoint.status != before:
            watch.say(f"endpoint {deployment.name}: {endpoint.status}")
            before = endpoint.status
        if endpoint.status == "InService":
            return endpoint
        if not endpoint.moving:
            reason = endpoint.reason or "no reason was given"
            raise DeployFailed(
                f"endpoint {deployment.name} is {endpoint.status}: {reason}",
                step_for(reason),
                details=log_lines(account, deployment.log_group),
            )
        watch.pause()
