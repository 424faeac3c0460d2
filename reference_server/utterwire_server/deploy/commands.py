"""What ``utterwire-deploy`` does: up, status, scale, down. Each can be run again at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import explained
from utterwire_server.deploy.deployment import Deployment
from utterwire_server.deploy.endpoint import Endpoint, describe_endpoint, wait_in_service
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.image import (
    SERVER_DEMANDS,
    EcrImage,
    Tool,
    find_tool,
    push_image,
    require_image,
)
from utterwire_server.deploy.log import last_log, log_lines, remove_log
from utterwire_server.deploy.scaling import Scaling
from utterwire_server.deploy.stack import Stack
from utterwire_server.deploy.template import ENDPOINT, FOUNDATION, SCALING
from utterwire_server.deploy.watch import Watch
from utterwire_server.deploy.weights import empty_bucket, sync_weights, weights_prefix

__all__ = ["Wanted", "described", "down", "scale", "shown", "status", "unscale", "up"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What ``up`` is to make.

    :param image: name of an image of this machine, which is pushed.
    :param image_uri: address of an image that is in ECR already, instead.
    :param model_dir: model folder that is sent to S3; None where the image has its model.
    :param ami: system of the host; empty for SageMaker AI's own choice.
    :param engine: of the server; empty for the image's own.
    :raises DeployFailed: if the address is none in ECR.
    """

    image: str
    instance_type: str
    ami: str
    image_uri: str | None = None
    model_dir: Path | None = None
    instances: int = 1
    engine: str = ""
    startup_timeout_s: int = 600
    download_timeout_s: int = 600

    def __post_init__(self) -> None:
        if self.image_uri is not None:
            EcrImage.parse(self.image_uri)

    def foundation(self, deployment: Deployment) -> dict[str, str]:
        """Parameters of the foundation."""
        other = "" if self.image_uri is None else EcrImage.parse(self.image_uri).grant
        return {
            "DeploymentName": deployment.name,
            "RepositoryName": deployment.repository,
            "OtherRepository": other,
        }

    def endpoint(
        self, deployment: Deployment, *, role: str, image: str, model: str, keep: bool
    ) -> dict[str, str]:
        """Parameters of the endpoint.

        :param keep: whether scaling has a say in how many instances there are.
        """
        return {
            "EndpointName": deployment.name,
            "ExecutionRoleArn": role,
            "ImageUri": image,
            "ModelDataUri": model,
            "InstanceType": self.instance_type,
            "InstanceCount": str(self.instances),
            "InferenceAmiVersion": self.ami,
            "StartupTimeout": str(self.startup_timeout_s),
            "DownloadTimeout": str(self.download_timeout_s),
            "Engine": self.engine,
            "KeepInstanceCount": "true" if keep else "false",
        }


def up(
    account: Account,
    watch: Watch,
    deployment: Deployment,
    wanted: Wanted,
    tools: Sequence[Tool] | None = None,
) -> Endpoint:
    """Make or update a deployment, and wait until it serves.

    :raises DeployFailed: if it does not come to that.
    """
    # What can be found out here is found out before anything is made there.
    local = None if wanted.image_uri is not None else find_tool(wanted.image, SERVER_DEMANDS, tools)
    if wanted.model_dir is not None:
        weights_prefix(wanted.model_dir)
    watch.say(f"as {account.identity()}, in {account.region}")
    if wanted.image_uri is not None:
        require_image(account, wanted.image_uri)

    foundation = Stack(account, watch, deployment.foundation)
    foundation.put(FOUNDATION, wanted.foundation(deployment))
    made = foundation.outputs()
    if local is None:
        assert wanted.image_uri is not None
        image = wanted.image_uri
    else:
        image = push_image(account, watch, *local, made["RepositoryUri"])
    model = ""
    if wanted.model_dir is not None:
        model = sync_weights(account, watch, made["ModelBucketName"], wanted.model_dir)

    stack = Stack(account, watch, deployment.endpoint)
    scaling = Stack(account, watch, deployment.scaling)
    scaled = scaling.parameters()
    before = stack.parameters().get("InstanceType", wanted.instance_type)
    # An endpoint that is scaled takes no other type of instance (Application Auto Scaling).
    paused = bool(scaled) and before != wanted.instance_type
    if paused:
        watch.say(f"scaling is taken off while {before} is replaced by {wanted.instance_type}")
        scaling.delete()
    parameters = wanted.endpoint(
        deployment,
        role=made["ExecutionRoleArn"],
        image=image,
        model=model,
        keep=bool(scaled) and not paused,
    )
    try:
        stack.put(ENDPOINT, parameters)
    except DeployFailed as error:
        # What was taken back serves again, and is to be scaled as before. What went wrong first is
        # what has to be told.
        if paused:
            try:
                _put_back(watch, deployment, scaling, scaled)
            except DeployFailed as second:
                watch.say(f"scaling was not put back: {second.problem}")
            except (ClientError, BotoCoreError) as second:
                watch.say(f"scaling was not put back: {explained(second).problem}")
        raise DeployFailed(
            error.problem, error.next_step, details=log_lines(account, deployment.log_group)
        ) from None
    except BaseException:
        if paused:
            watch.say(f"scaling is off; once the endpoint serves: {_by_hand(deployment, scaled)}")
        raise
    if paused:
        _put_back(watch, deployment, scaling, scaled)
    return wait_in_service(account, watch, deployment)


def _put_back(
    watch: Watch, deployment: Deployment, scaling: Stack, scaled: Mapping[str, str]
) -> None:
    """Scale as before; whatever hinders that, people learn how to do it."""
    try:
        scaling.put(SCALING, scaled)
    except BaseException:
        watch.say(f"scaling is off; once the endpoint serves: {_by_hand(deployment, scaled)}")
        raise


def _by_hand(deployment: Deployment, scaled: Mapping[str, str]) -> str:
    """The command that scales as before."""
    return (
        f"utterwire-deploy scale {deployment.name} --min {scaled['MinInstances']}"
        f" --max {scaled['MaxInstances']} --target {scaled['TargetRequests']}"
    )


def status(account: Account, watch: Watch, deployment: Deployment) -> tuple[bool, list[str]]:
    """Whether the endpoint serves, and what there is, a line each.

    :raises DeployFailed: if there is nothing.
    """
    stacks = {
        name: Stack(account, watch, name)
        for name in (deployment.foundation, deployment.endpoint, deployment.scaling)
    }
    states = {name: stack.status for name, stack in stacks.items()}
    endpoint = describe_endpoint(account, deployment.name)
    if endpoint is None and not any(states.values()):
        raise DeployFailed(
            f"there is no deployment {deployment.name} in {account.region}",
            f"utterwire-deploy up {deployment.name}, or another --region or --profile",
        )
    lines = [f"endpoint {deployment.name}: {_told(endpoint)}"]
    if endpoint is not None:
        lines += [f"image {endpoint.image}"] if endpoint.image else []
    lines += [f"stack {name}: {state or 'not there'}" for name, state in states.items()]
    scaled = stacks[deployment.scaling].parameters() if states[deployment.scaling] else {}
    if scaled:
        lines.append(
            f"scaling: {scaled['MinInstances']} to {scaled['MaxInstances']} instances,"
            f" {scaled['TargetRequests']} at once each"
        )
    serves = endpoint is not None and endpoint.status == "InService"
    if endpoint is not None:
        log = last_log(account, deployment.log_group, lines=0 if serves else 12)
        lines += () if log is None else log.shown()
    return serves, lines


def _told(endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return "not there"
    now, wanted = endpoint.instances
    reason = f": {endpoint.reason}" if endpoint.reason else ""
    return f"{endpoint.status}, {now} of {wanted} instances{reason}"


def scale(account: Account, watch: Watch, deployment: Deployment, scaling: Scaling) -> bool:
    """Scale an endpoint, or change how. Whether anything was changed.

    :raises DeployFailed: if there is no endpoint that serves.
    """
    endpoint = describe_endpoint(account, deployment.name)
    if endpoint is None or endpoint.status != "InService":
        raise DeployFailed(
            f"endpoint {deployment.name} cannot be scaled: {_told(endpoint)}",
            f"utterwire-deploy up {deployment.name} first",
        )
    stack = Stack(account, watch, deployment.scaling)
    return stack.put(SCALING, scaling.parameters(deployment))


def unscale(account: Account, watch: Watch, deployment: Deployment) -> bool:
    """Take scaling off; the instances stay as many as they are. Whether there was any."""
    return Stack(account, watch, deployment.scaling).delete()


def down(account: Account, watch: Watch, deployment: Deployment, *, keep: bool = False) -> bool:
    """Remove a deployment, what it kept included. Whether there was anything.

    :param keep: the foundation stays, with images, model files and the log.
    :raises DeployFailed: if something cannot be removed.
    """
    removed = unscale(account, watch, deployment)
    removed |= Stack(account, watch, deployment.endpoint).delete()
    if keep:
        return removed
    foundation = Stack(account, watch, deployment.foundation)
    bucket = foundation.outputs().get("ModelBucketName")
    if bucket is not None:
        empty_bucket(account, watch, bucket)
    removed |= foundation.delete()
    return remove_log(account, deployment.log_group) or removed


def shown(deployment: Deployment, wanted: Wanted) -> Iterator[str]:
    """What ``up`` would do, with templates and parameters; nothing is asked of AWS."""
    image = wanted.image_uri or f"{wanted.image}, pushed, by its digest"
    model = "" if wanted.model_dir is None else f"s3://BUCKET/{weights_prefix(wanted.model_dir)[0]}"
    steps = [
        f"stack {deployment.foundation}: create or update",
        f"image: {image}",
        f"model: {model or 'the one in the image'}",
        f"stack {deployment.endpoint}: create or update",
        f"endpoint {deployment.name}: wait until it is InService",
    ]
    yield from (f"{place}. {step}" for place, step in enumerate(steps, 1))
    endpoint = wanted.endpoint(
        deployment, role="of the foundation", image=image, model=model, keep=False
    )
    for template, name, parameters in (
        (FOUNDATION, deployment.foundation, wanted.foundation(deployment)),
        (ENDPOINT, deployment.endpoint, endpoint),
    ):
        yield from described(template.body, name, parameters)


def described(body: str, stack: str, parameters: dict[str, str]) -> Iterator[str]:
    """A stack's parameters and template, a line each."""
    yield f"\n# {stack}: parameters"
    yield from (f"#   {key}: {value}" for key, value in parameters.items())
    yield f"# {stack}: template"
    yield from body.splitlines()
