"""The image on its way: docker, podman, buildah, and a real registry where there is one."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.image import (
    AGENT_DEMANDS,
    LABEL,
    SERVER_DEMANDS,
    EcrImage,
    Image,
    Login,
    Tool,
    find_tool,
    push_image,
    require_image,
)

REPOSITORY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/utterwire/demo"
LOGIN = Login("registry.example:5000", "AWS", "secret word")


class Machine:
    """What the programs of a machine answer; ``calls`` has each as program, words and input."""

    def __init__(self, answers: Mapping[str, tuple[int, str, str]]) -> None:
        self._answers = answers
        self.calls: list[tuple[tuple[str, ...], str, Mapping[str, str]]] = []

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append((tuple(command), options["input"], options["env"]))
        words = " ".join(command)
        for start, (code, out, err) in self._answers.items():
            if words.startswith(start):
                return subprocess.CompletedProcess(command, code, out, err)
        raise FileNotFoundError(command[0])

    def tools(self, *names: str) -> list[Tool]:
        return [Tool(name, self.run) for name in names]


def docker_image(label: str | None = "true", architecture: str = "amd64") -> str:
    labels = {} if label is None else {LABEL: label}
    one = {"Id": "sha256:" + "d" * 64, "Architecture": architecture, "Config": {"Labels": labels}}
    return json.dumps([one])


PODMAN_IMAGE = json.dumps([{"Id": "e" * 64, "Architecture": "amd64", "Labels": {LABEL: "true"}}])
BUILDAH_IMAGE = json.dumps(
    {
        "FromImageID": "f" * 64,
        "OCIv1": {"architecture": "amd64", "config": {"Labels": {LABEL: "true"}}},
    }
)


@pytest.mark.parametrize(
    ("answers", "tool", "digest"),
    [
        (
            {"docker version": (0, "", ""), "docker image inspect x": (0, docker_image(), "")},
            "docker",
            "d",
        ),
        # Its engine does not run.
        (
            {
                "docker version": (1, "", ""),
                "podman images": (0, "", ""),
                "podman image inspect x": (0, PODMAN_IMAGE, ""),
            },
            "podman",
            "e",
        ),
        # It works, but has no such image.
        (
            {
                "docker version": (0, "", ""),
                "docker image": (1, "[]", "no such image"),
                "buildah images": (0, "", ""),
                "buildah inspect --type image x": (0, BUILDAH_IMAGE, ""),
            },
            "buildah",
            "f",
        ),
    ],
)
def test_the_first_tool_that_has_the_image(
    answers: dict[str, tuple[int, str, str]], tool: str, digest: str
) -> None:
    machine = Machine(answers)
    found, image = find_tool("x", SERVER_DEMANDS, machine.tools("docker", "podman", "buildah"))
    assert (found.name, image.digest[0], image.name) == (tool, digest, "x")
    assert tool in repr(found)


@pytest.mark.parametrize(
    ("answers", "problem", "next_step"),
    [
        ({}, "none of docker, podman, buildah works here", "install buildah"),
        (
            {"docker version": (0, "", ""), "docker image": (1, "", "")},
            "image x is missing: docker does not have it",
            "docker build -f reference_server/Dockerfile -t x .",
        ),
        (
            {"docker version": (0, "", ""), "docker image": (0, docker_image(None), "")},
            "has no label com.amazonaws.sagemaker.capabilities.bidirectional-streaming=true",
            "reference_server/Dockerfile",
        ),
        (
            {
                "docker version": (0, "", ""),
                "docker image": (0, docker_image(architecture="arm64"), ""),
            },
            "image x is for arm64",
            "--platform linux/amd64",
        ),
    ],
)
def test_images_that_cannot_be_pushed(
    answers: dict[str, tuple[int, str, str]], problem: str, next_step: str
) -> None:
    with pytest.raises(DeployFailed) as failed:
        find_tool("x", SERVER_DEMANDS, Machine(answers).tools("docker", "podman", "buildah"))
    assert problem in failed.value.problem
    assert next_step in failed.value.next_step


def test_the_image_for_gpus_is_built_with_its_engine() -> None:
    answers = {"docker version": (0, "", ""), "docker image": (1, "", "")}
    with pytest.raises(DeployFailed) as failed:
        find_tool("utterwire-server:cuda", SERVER_DEMANDS, Machine(answers).tools("docker"))
    words = "--build-arg ENGINE=kokoro-torch -t utterwire-server:cuda ."
    assert words in failed.value.next_step


@pytest.mark.parametrize(
    ("image", "problem", "next_step"),
    [
        (docker_image(None), "is for amd64, and AgentCore runs arm64", "--platform linux/arm64"),
        (
            None,
            "image utterwire-agent is missing",
            "build --platform linux/arm64 -f examples/agentcore/Dockerfile -t utterwire-agent .",
        ),
    ],
)
def test_the_image_of_an_agent_is_for_arm64(
    image: str | None, problem: str, next_step: str
) -> None:
    told = (1, "", "") if image is None else (0, image, "")
    machine = Machine({"docker version": (0, "", ""), "docker image": told})
    with pytest.raises(DeployFailed) as failed:
        find_tool("utterwire-agent", AGENT_DEMANDS, machine.tools("docker"))
    assert problem in failed.value.problem
    assert next_step in failed.value.next_step


def test_the_image_of_an_agent_needs_no_label_of_sagemaker() -> None:
    image = docker_image(None, architecture="arm64")
    machine = Machine({"docker version": (0, "", ""), "docker image": (0, image, "")})
    _, found = find_tool("utterwire-agent", AGENT_DEMANDS, machine.tools("docker"))
    assert found.architecture == "arm64"


def test_docker_signs_in_and_out_and_its_settings_stay_the_persons_own() -> None:
    machine = Machine({"docker": (0, "", "")})
    machine.tools("docker")[0].push("x", "registry.example:5000/x:1", LOGIN)
    assert [words for words, _, _ in machine.calls] == [
        ("docker", "login", "--username", "AWS", "--password-stdin", "registry.example:5000"),
        ("docker", "tag", "x", "registry.example:5000/x:1"),
        ("docker", "push", "registry.example:5000/x:1"),
        ("docker", "logout", "registry.example:5000"),
    ]
    assert machine.calls[0][1] == "secret word"
    assert all("secret word" not in " ".join(words) for words, _, _ in machine.calls)


@pytest.mark.parametrize(
    ("name", "push"),
    [
        ("podman", ["tag x registry.example:5000/x:1", "push registry.example:5000/x:1"]),
        ("buildah", ["push x docker://registry.example:5000/x:1"]),
    ],
)
def test_podman_and_buildah_sign_in_in_a_file_that_is_removed(name: str, push: list[str]) -> None:
    machine = Machine({name: (0, "", "")})
    machine.tools(name)[0].push("x", "registry.example:5000/x:1", LOGIN)
    assert [" ".join(words[1:]) for words, _, _ in machine.calls][1:] == push
    files = {environment["REGISTRY_AUTH_FILE"] for _, _, environment in machine.calls}
    (file,) = files
    assert not Path(file).parent.exists()


@pytest.mark.parametrize("fails", ["login", "push"])
def test_a_push_that_fails_is_told_by_its_last_line(fails: str) -> None:
    answers = {f"docker {fails}": (1, "", "Preparing\ndenied: no\n"), "docker": (0, "", "")}
    machine = Machine(answers)
    with pytest.raises(DeployFailed, match=f"docker {fails} failed: denied: no"):
        machine.tools("docker")[0].push("x", "registry.example:5000/x:1", LOGIN)
    assert (machine.calls[-1][0][1] == "logout") is (fails == "push")


def test_a_failure_without_words() -> None:
    machine = Machine({"buildah": (125, "", "")})
    with pytest.raises(DeployFailed, match="buildah login failed: no reason was given"):
        machine.tools("buildah")[0].push("x", "r/x:1", LOGIN)


def test_only_an_image_that_is_missing_is_pushed(script: Any, patience: Any) -> None:
    image = Image("x", "d" * 64, "amd64", {})
    machine = Machine({"buildah": (0, "", "")})
    script.refuse("ecr", "describe_images", "ImageNotFoundException", "none")
    token = base64.b64encode(b"AWS:secret word").decode()
    script.answer(
        "ecr", "get_authorization_token", {"authorizationData": [{"authorizationToken": token}]}
    )
    details = {"imageDetails": [{"imageDigest": "sha256:" + "9" * 64}]}
    asked = {"repositoryName": "utterwire/demo", "imageIds": [{"imageTag": "d" * 16}]}
    script.answer("ecr", "describe_images", details, asked)
    script.answer("ecr", "describe_images", details, asked)
    (tool,) = machine.tools("buildah")
    for _ in range(2):
        address = push_image(script.account, patience.watch, tool, image, REPOSITORY)
        assert address == f"{REPOSITORY}@sha256:{'9' * 64}"
    script.done()
    assert [words[1] for words, _, _ in machine.calls] == ["login", "push"]
    assert machine.calls[0][1] == "secret word"
    assert patience.told[-1] == f"image x: {REPOSITORY} has it already"


@pytest.mark.parametrize(
    ("rest", "which"),
    [
        ("@sha256:" + "a" * 64, {"imageDigest": "sha256:" + "a" * 64}),
        (":2", {"imageTag": "2"}),
        ("", {"imageTag": "latest"}),
    ],
)
def test_an_image_in_ecr_is_looked_for(rest: str, which: dict[str, str], script: Any) -> None:
    asked = {
        "registryId": "123456789012",
        "repositoryName": "utterwire/demo",
        "imageIds": [which],
    }
    script.answer("ecr", "describe_images", {"imageDetails": []}, asked)
    require_image(script.account, REPOSITORY + rest)
    script.done()


@pytest.mark.parametrize("uri", ["x", "docker.io/x:1", "1.dkr.ecr.eu-west-1.amazonaws.com/x"])
def test_addresses_that_are_none_of_ecr(uri: str) -> None:
    with pytest.raises(DeployFailed, match="from ECR only"):
        EcrImage.parse(uri)


@pytest.mark.parametrize(
    "ask",
    [
        lambda account, watch: require_image(account, REPOSITORY),
        lambda account, watch: push_image(
            account, watch, Tool("none"), Image("x", "d" * 64, "amd64", {}), REPOSITORY
        ),
    ],
    ids=["require", "push"],
)
def test_what_else_ecr_refuses_is_passed_on(
    ask: Callable[[Any, Any], object], script: Any, patience: Any
) -> None:
    script.refuse("ecr", "describe_images", "AccessDeniedException", "no")
    with pytest.raises(ClientError, match="AccessDenied"):
        ask(script.account, patience.watch)


# With the real thing.


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry of this machine, at 127.0.0.1."""
    program = shutil.which("docker-registry")
    if program is None or shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("needs root, buildah and docker-registry (packages of Debian)")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    config = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    # JSON is YAML.
    (folder / "config.yml").write_text(json.dumps(config), encoding="utf-8")
    process = subprocess.Popen(
        [program, "serve", str(folder / "config.yml")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        answers(f"http://127.0.0.1:{port}/v2/")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def answers(url: str) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """buildah with a store of its own, as ``buildah("images")``."""
    folder = tmp_path_factory.mktemp("buildah")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/store"\n',
        encoding="utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        patch.setenv("BUILDAH_ISOLATION", "chroot")

        def buildah(*words: str) -> str:
            command = ["buildah", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        yield buildah


def test_buildah_pushes_into_a_registry(
    registry: str,
    storage: Callable[..., str],
    script: Any,
    patience: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tmp_path / ".config" / "containers" / "registries.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n', "utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    container = storage("from", "scratch")
    (tmp_path / "file").write_text("content", encoding="utf-8")
    storage("copy", container, str(tmp_path / "file"), "/file")
    storage("config", "--label", f"{LABEL}=true", "--entrypoint", '["/file"]', container)
    storage("commit", container, "utterwire-test:1")
    tool, image = find_tool("utterwire-test:1", SERVER_DEMANDS, [Tool("buildah")])

    script.refuse("ecr", "describe_images", "ImageNotFoundException", "none")
    token = base64.b64encode(b"AWS:anything").decode()
    script.answer(
        "ecr", "get_authorization_token", {"authorizationData": [{"authorizationToken": token}]}
    )
    details = {"imageDetails": [{"imageDigest": "sha256:" + "9" * 64}]}
    script.answer("ecr", "describe_images", details)
    push_image(script.account, patience.watch, tool, image, f"{registry}/utterwire/demo")
    script.done()

    manifest = f"http://{registry}/v2/utterwire/demo/manifests/{image.digest[:16]}"
    request = urllib.request.Request(
        manifest, headers={"Accept": "application/vnd.oci.image.manifest.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        pushed = json.load(answer)
    assert pushed["config"]["digest"] == f"sha256:{image.digest}"
    assert len(pushed["layers"]) == 1
