"""The image on its way from this machine to the repository."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.watch import Watch

__all__ = [
    "AGENT_DEMANDS",
    "LABEL",
    "SERVER_DEMANDS",
    "TOOLS",
    "Demands",
    "EcrImage",
    "Image",
    "Login",
    "Tool",
    "find_tool",
    "push_image",
    "require_image",
]

#: Without it SageMaker AI opens no bidirectional stream to a container.
LABEL: Final = "com.amazonaws.sagemaker.capabilities.bidirectional-streaming"

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True, slots=True)
class Login:
    """What a registry wants to hear.

    :param registry: its host, and its port if it has one.
    """

    registry: str
    user: str
    password: str


class Tool:
    """docker, podman or buildah, which take nearly the same words.

    :param name: of the program.
    :param run: starts it; as `subprocess.run`.
    """

    def __init__(self, name: str, run: Run = subprocess.run) -> None:
        self.name = name
        self._run = run

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def working(self) -> bool:
        """Whether it is there and can do anything: docker without its engine cannot."""
        command = ["version"] if self.name == "docker" else ["images", "--quiet"]
        try:
            return self._call(command, os.environ).returncode == 0
        except OSError:
            return False

    def image(self, name: str) -> Image | None:
        """The image of that name on this machine; None if it is not there."""
        words = ["inspect", "--type", "image"] if self.name == "buildah" else ["image", "inspect"]
        done = self._call([*words, name], os.environ)
        return Image.read(name, done.stdout) if done.returncode == 0 else None

    def push(self, name: str, target: str, login: Login) -> None:
        """Push an image of this machine as ``target``, and leave no password behind.

        :raises DeployFailed: if the registry does not take it.
        """
        with self._signed_in(login) as environment:
            if self.name == "buildah":
                self._must(["push", name, f"docker://{target}"], environment)
            else:
                self._must(["tag", name, target], environment)
                self._must(["push", target], environment)

    @contextmanager
    def _signed_in(self, login: Login) -> Iterator[Mapping[str, str]]:
        words = ["login", "--username", login.user, "--password-stdin", login.registry]
        if self.name == "docker":
            # Its configuration holds its contexts, too, and so must be the person's own.
            self._must(words, os.environ, login.password)
            try:
                yield os.environ
            finally:
                self._call(["logout", login.registry], os.environ)
            return
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "REGISTRY_AUTH_FILE": str(Path(folder, "auth.json"))}
            self._must(words, environment, login.password)
            yield environment

    def _must(
        self, words: Sequence[str], environment: Mapping[str, str], given: str | None = None
    ) -> None:
        done = self._call(words, environment, given)
        if done.returncode != 0:
            last = (
                done.stderr.strip() or done.stdout.strip() or "no reason was given"
            ).splitlines()
            raise DeployFailed(
                f"{self.name} {words[0]} failed: {last[-1]}",
                f"look whether `{self.name} {words[0]}` works by itself, then run the same again",
            )

    def _call(
        self, words: Sequence[str], environment: Mapping[str, str], given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [self.name, *words]
        stdin: dict[str, Any] = {"input": given or ""}
        return self._run(
            command, env=dict(environment), capture_output=True, text=True, check=False, **stdin
        )


@dataclass(frozen=True, slots=True)
class Image:
    """An image on this machine.

    :param digest: of its configuration, which tells one image from another.
    """

    name: str
    digest: str
    architecture: str
    labels: Mapping[str, str]

    @classmethod
    def read(cls, name: str, told: str) -> Image:
        """What docker, podman or buildah say of an image, each in its own way."""
        data = json.loads(told)
        if isinstance(data, dict):
            oci = data.get("OCIv1") or {}
            labels = (oci.get("config") or {}).get("Labels") or {}
            return cls(name, str(data["FromImageID"]), str(oci.get("architecture", "")), labels)
        one = data[0]
        labels = (one.get("Config") or {}).get("Labels") or one.get("Labels") or {}
        digest = str(one["Id"]).removeprefix("sha256:")
        return cls(name, digest, str(one.get("Architecture", "")), labels)


@dataclass(frozen=True, slots=True)
class Demands:
    """What a service asks of an image that it is to run.

    :param service: its name.
    :param architecture: as container tools name it.
    :param label: that has to be ``true``, and what nobody could do without it; empty for none.
    :param dockerfile: by which such an image is built, from the root of the repository.
    """

    service: str
    architecture: str
    label: str
    dockerfile: str

    def check(self, image: Image) -> None:
        """Look whether an image meets them.

        :raises DeployFailed: if it does not.
        """
        if self.label and image.labels.get(self.label) != "true":
            raise DeployFailed(
                f"image {image.name} has no label {self.label}=true, so that nobody could stream"
                " with it",
                f"build it from {self.dockerfile}, or add the label",
            )
        if image.architecture not in ("", self.architecture):
            raise DeployFailed(
                f"image {image.name} is for {image.architecture}, and {self.service} runs"
                f" {self.architecture}",
                f"build it with --platform linux/{self.architecture}",
            )

    def build(self, name: str) -> str:
        """What to say to a tool after ``build``."""
        platform = "" if self.architecture == "amd64" else f"--platform linux/{self.architecture} "
        engine = "--build-arg ENGINE=kokoro-torch " if name.endswith(":cuda") else ""
        return f"{platform}-f {self.dockerfile} {engine}-t {name} ."


#: Instances of SageMaker AI on which Kokoro runs have x86 processors.
SERVER_DEMANDS: Final = Demands("SageMaker AI", "amd64", LABEL, "reference_server/Dockerfile")
#: AgentCore's contract of containers: ARM64 only (AWS's guide, "HTTP protocol contract").
AGENT_DEMANDS: Final = Demands("AgentCore", "arm64", "", "examples/agentcore/Dockerfile")

#: In the order in which they are tried.
TOOLS: Final = ("docker", "podman", "buildah")


def find_tool(
    name: str, demands: Demands, tools: Sequence[Tool] | None = None
) -> tuple[Tool, Image]:
    """The first tool that has an image of this name, and the image.

    :raises DeployFailed: if none has, or the image is not what the service asks for.
    """
    tools = [Tool(each) for each in TOOLS] if tools is None else tools
    working = [tool for tool in tools if tool.working()]
    if not working:
        raise DeployFailed(
            f"none of {', '.join(tool.name for tool in tools)} works here, to push {name}",
            "start the engine of docker, or install buildah; or give --image-uri of one in ECR",
        )
    for tool in working:
        image = tool.image(name)
        if image is not None:
            demands.check(image)
            return tool, image
    raise DeployFailed(
        f"image {name} is missing: {', '.join(tool.name for tool in working)} does not have it",
        f"build it: {working[0].name} build {demands.build(name)} (DEPLOY.md), or name another"
        " with --image",
    )


def push_image(account: Account, watch: Watch, tool: Tool, image: Image, repository: str) -> str:
    """Push an image into a repository of ECR, unless it is there; its address by digest.

    :param repository: its address, ``ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME``.
    :raises DeployFailed: if it cannot be pushed.
    """
    registry, _, name = repository.partition("/")
    tag = image.digest[:16]
    digest = _digest(account, name, tag)
    if digest is None:
        told = account.client("ecr").get_authorization_token()["authorizationData"][0]
        user, _, password = base64.b64decode(told["authorizationToken"]).decode().partition(":")
        watch.say(f"{tool.name}: pushing {image.name} to {repository}:{tag}")
        tool.push(image.name, f"{repository}:{tag}", Login(registry, user, password))
        digest = _digest(account, name, tag)
        if digest is None:
            raise DeployFailed(
                f"{repository} does not have {tag}, although it was pushed",
                "run the same command again",
            )
    else:
        watch.say(f"image {image.name}: {repository} has it already")
    return f"{repository}@{digest}"


@dataclass(frozen=True, slots=True)
class EcrImage:
    """The address of an image in ECR, in its parts.

    :param reference: digest, as ``sha256:...``, or tag.
    """

    account: str
    region: str
    repository: str
    reference: str

    @classmethod
    def parse(cls, uri: str) -> EcrImage:
        """The parts of ``ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME``, with ``@DIGEST`` or ``:TAG``.

        :raises DeployFailed: if it is no such address.
        """
        found = _ECR.fullmatch(uri)
        if found is None:
            raise DeployFailed(
                f"--image-uri {uri}: images are taken from ECR only",
                "give ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME@DIGEST, or --image of this machine",
                status=2,
            )
        reference = found["digest"] or found["tag"] or "latest"
        return cls(found["account"], found["region"], found["name"], reference)

    @property
    def grant(self) -> str:
        """Its repository, as the templates take it."""
        return f"{self.region}:{self.account}:repository/{self.repository}"


_ECR: Final = re.compile(
    r"(?P<account>[0-9]{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?"
    r"/(?P<name>[a-z0-9._/-]+)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


def require_image(account: Account, uri: str) -> None:
    """Look whether an image is in ECR.

    :raises DeployFailed: if it is not, or not in this region.
    """
    image = EcrImage.parse(uri)
    if image.region != account.region:
        raise DeployFailed(
            f"--image-uri {uri} is in {image.region}, and this would be in {account.region}",
            f"push it to {account.region}, or deploy with --region {image.region}",
            status=2,
        )
    digest = image.reference.startswith("sha256:")
    try:
        account.client("ecr").describe_images(
            registryId=image.account,
            repositoryName=image.repository,
            imageIds=[{"imageDigest" if digest else "imageTag": image.reference}],
        )
    except ClientError as error:
        if code_of(error) in ("ImageNotFoundException", "RepositoryNotFoundException"):
            raise DeployFailed(
                f"image {uri} is missing: ECR does not have it",
                "push it, or leave --image-uri out to push one of this machine",
            ) from None
        raise


def _digest(account: Account, repository: str, tag: str) -> str | None:
    try:
        found = account.client("ecr").describe_images(
            repositoryName=repository, imageIds=[{"imageTag": tag}]
        )
    except ClientError as error:
        if code_of(error) == "ImageNotFoundException":
            return None
        raise
    return str(found["imageDetails"][0]["imageDigest"])
