"""The Dockerfile and what it installs: what hadolint (environment `lint`) does not look at."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from utterwire_server.deploy.image import LABEL
from utterwire_server.model.folder import ENGINE_FILES

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "reference_server" / "Dockerfile").read_text(encoding="utf-8")
AGENT_DOCKERFILE = (ROOT / "examples" / "agentcore" / "Dockerfile").read_text(encoding="utf-8")
DOCKERFILES = {"server": DOCKERFILE, "agent": AGENT_DOCKERFILE}
FOLDER = ROOT / "reference_server" / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVER = ("server", "encoders", "metrics", "tracing", "kokoro")
ENGINES = {"kokoro-onnx": SERVER, "kokoro-torch": (*SERVER, "torch")}
EXTRAS = {**ENGINES, "agent": ("client", "agents", "aws")}
LOCKS = {name: FOLDER / f"{name}.txt" for name in ("build", *ENGINES)} | {
    "agent": ROOT / "examples" / "agentcore" / "requirements.txt"
}
# Where the images run, as far as requirements ask for it.
PLACE = {"python_version": "3.12", "sys_platform": "linux"}


def test_the_label_opens_streams() -> None:
    assert f'{LABEL}="true"' in DOCKERFILE


def test_the_entry_point_takes_serve_and_signals() -> None:
    """In exec form, so that SIGTERM reaches the server and no shell."""
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)
    assert json.loads(entrypoint) == ["/opt/utterwire/bin/utterwire-server"]
    assert json.loads(command) == ["serve"]
    assert "STOPSIGNAL SIGTERM" in DOCKERFILE


def test_the_engine_that_is_installed_is_the_one_that_speaks() -> None:
    assert set(re.findall(r"^ARG ENGINE=(.*)$", DOCKERFILE, re.MULTILINE)) == {"kokoro-onnx"}
    assert "requirements/${ENGINE}.txt" in DOCKERFILE
    assert "UTTERWIRE_ENGINE=${ENGINE}" in DOCKERFILE
    assert "UTTERWIRE_UI=off" in DOCKERFILE
    assert set(ENGINES) == set(ENGINE_FILES)


def test_the_base_can_be_chosen() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases == ["${BASE}", "${BASE}", "server", "server"]
    assert re.findall(r"^FROM (\S+)", AGENT_DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_the_agent_listens_where_agentcore_asks() -> None:
    """At 0.0.0.0:8080, as nobody but a user, and in exec form."""
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", AGENT_DOCKERFILE, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", AGENT_DOCKERFILE, re.MULTILINE)
    assert json.loads(entrypoint) == ["/opt/agent/bin/python", "/opt/agent/agent.py"]
    assert json.loads(command) == ["8080"]
    assert "DOCKER_CONTAINER=1" in AGENT_DOCKERFILE
    assert re.search(r"^USER [1-9]", AGENT_DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_only_what_is_hashed_is_installed(name: str) -> None:
    lines = DOCKERFILES[name].replace("\\\n", "")
    installs = re.findall(r"bin/pip (?:--python \S+ )?(?:install|wheel) ([^&\n]*)", lines)
    assert len(installs) == 4
    for words in installs:
        assert "--require-hashes" in words or "--no-deps" in words
        assert "--no-cache-dir" in words


def test_all_that_is_copied_is_let_in() -> None:
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = set()
    both = "\n".join(DOCKERFILES.values())
    for words in re.findall(r"^COPY (?!--from)(.*)$", both, re.MULTILINE):
        copied |= {source.rstrip("/") for source in words.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / each).exists() for each in copied - {"model"})


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each distribution of a lock."""
    text = LOCKS[name].read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        pinned = re.fullmatch(
            r"(\S+)==([^\s;]+)(?: *;[^-]*)?((?: +--hash=sha256:[0-9a-f]{64})+)", line
        )
        assert pinned is not None, line
        found[canonicalize_name(pinned[1])] = (pinned[2], pinned[3].split())
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_each_lock_pins_by_version_and_hash_and_names_no_host(name: str) -> None:
    assert len(locked(name)) > 2
    assert "://" not in LOCKS[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXTRAS)
def test_each_lock_has_what_the_extras_ask_for(name: str) -> None:
    there = locked(name)
    wanted = [Requirement(each) for each in PROJECT["dependencies"]]
    extras = list(EXTRAS[name])
    while extras:
        wanted += map(Requirement, PROJECT["optional-dependencies"][extras.pop()])
        extras += [extra for each in wanted if each.name == "utterwire" for extra in each.extras]
        wanted = [each for each in wanted if each.name != "utterwire"]
    for each in wanted:
        if each.marker is not None and not each.marker.evaluate(PLACE):
            continue
        version, _ = there[canonicalize_name(each.name)]
        assert each.specifier.contains(version, prereleases=True), each


def test_only_the_cuda_variant_has_torch_and_it_is_the_tested_one() -> None:
    assert not {"torch", "kokoro"} & set(locked("kokoro-onnx"))
    torch, _ = locked("kokoro-torch")["torch"]
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    assert f"torch=={torch}" in tox["testenv:torch"]["deps"]
    # The driver of the host that `up` asks for knows CUDA 13.0.
    assert locked("kokoro-torch")["nvidia-cuda-runtime"][0].startswith("13.0.")


def test_what_builds_the_wheel_is_pinned_too() -> None:
    build: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for each in map(Requirement, build["build-system"]["requires"]):
        assert each.specifier.contains(locked("build")[canonicalize_name(each.name)][0])
