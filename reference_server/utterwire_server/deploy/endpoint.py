"""The endpoint as SageMaker AI has it, and what its container wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of, message_of
from utterwire_server.deploy.deployment import VARIANT, Deployment
from utterwire_server.deploy.failure import DeployFailed, step_for
from utterwire_server.deploy.watch import Watch

__all__ = [
    "Endpoint",
    "LogEnd",
    "describe_endpoint",
    "last_log",
    "log_lines",
    "remove_log",
    "wait_in_service",
]

_MOVING: Final = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What SageMaker AI says of an endpoint.

    :param reason: why it failed; empty if it did not.
    :param instances: how many there are, and how many there are to be.
    """

    status: str
    reason: str
    instances: tuple[int, int]
    image: str

    @property
    def moving(self) -> bool:
        """Whether its status will change by itself."""
        return self.status in _MOVING


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a container's log."""

    group: str
    stream: str
    lines: tuple[str, ...]

    def shown(self) -> tuple[str, ...]:
        """Lines for a person."""
        return (f"log stream: {self.group} {self.stream}", *(f"  | {line}" for line in self.lines))


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
                details=log_lines(account, deployment),
            )
        watch.pause()


def last_log(account: Account, deployment: Deployment, lines: int = 12) -> LogEnd | None:
    """The end of the log that was written last; None if the container never wrote one."""
    logs = account.client("logs")
    try:
        streams = logs.describe_log_streams(
            logGroupName=deployment.log_group, orderBy="LastEventTime", descending=True, limit=1
        )["logStreams"]
        if not streams:
            return None
        stream = streams[0]["logStreamName"]
        if not lines:
            return LogEnd(deployment.log_group, stream, ())
        events = logs.get_log_events(
            logGroupName=deployment.log_group,
            logStreamName=stream,
            limit=lines,
            startFromHead=False,
        )["events"]
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise
    return LogEnd(
        deployment.log_group, stream, tuple(event["message"].rstrip() for event in events)
    )


def log_lines(account: Account, deployment: Deployment) -> tuple[str, ...]:
    """The end of the log for a person, or why there is none. Never a failure of its own."""
    try:
        found = last_log(account, deployment)
    except ClientError as error:
        return (f"log group {deployment.log_group} cannot be read: {message_of(error)}",)
    if found is None:
        return (f"log group {deployment.log_group} is empty: the container never started",)
    return found.shown()


def remove_log(account: Account, deployment: Deployment) -> bool:
    """Remove the log group that SageMaker AI made. Whether there was one."""
    try:
        account.client("logs").delete_log_group(logGroupName=deployment.log_group)
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return False
        raise
    return True
