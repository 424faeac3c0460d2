"""AWS as a script: what must be asked, in which order, and what comes back."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from utterwire_server.deploy import account as account_module
from utterwire_server.deploy import watch as watch_module
from utterwire_server.deploy.account import Account
from utterwire_server.deploy.watch import Watch

REGION = "eu-west-1"
#: Stands for the stack itself among its resources.
STACK = "the stack"
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials but made-up ones, and none of the person's settings."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


class Script:
    """What AWS is asked, in one order over all services, and what it answers.

    Answers are checked against botocore's own models of the services, so that none is made up in
    shape; so are the parameters of each question.
    """

    def __init__(self, make_client: Callable[[str], Any]) -> None:
        self._make_client = make_client
        self._stubs: dict[str, Stubber] = {}
        self._lines: list[tuple[str, str]] = []
        self.asked: list[tuple[str, str]] = []
        self.account = Account(REGION, self.client)

    def client(self, service: str) -> Any:
        if service not in self._stubs:
            client = self._make_client(service)
            client.meta.events.register("before-parameter-build", self._ask)
            self._stubs[service] = Stubber(client)
            self._stubs[service].activate()
        return self._stubs[service].client

    def leave(self) -> None:
        for stub in self._stubs.values():
            stub.deactivate()
            stub.client.meta.events.unregister("before-parameter-build", self._ask)

    def _ask(self, model: Any, **_: Any) -> None:
        line = (model.service_model.signing_name, model.name)
        place = len(self.asked)
        expected = self._lines[place] if place < len(self._lines) else None
        assert line == expected, f"asked {line} at place {place}, and the script has {expected}"
        self.asked.append(line)

    def _line(self, service: str, operation: str) -> Stubber:
        client = self.client(service)
        signing_name = client.meta.service_model.signing_name
        self._lines.append((signing_name, client.meta.method_to_api_mapping[operation]))
        return self._stubs[service]

    def answer(
        self,
        service: str,
        operation: str,
        response: Mapping[str, Any] | None = None,
        expected: Mapping[str, Any] | None = None,
    ) -> Script:
        """The next question, and its answer."""
        self._line(service, operation).add_response(operation, dict(response or {}), expected)
        return self

    def refuse(self, service: str, operation: str, code: str, message: str, **more: Any) -> Script:
        """The next question, and the error that it gets."""
        self._line(service, operation).add_client_error(
            operation, code, message, service_error_meta=more or None
        )
        return self

    def done(self) -> None:
        """Whether all of it was asked for."""
        assert self.asked == self._lines
        for stub in self._stubs.values():
            stub.assert_no_pending_responses()

    # Stretches that come again.

    def stack(self, name: str, status: str | None, **more: Any) -> Script:
        """A look at a stack; None for one that is not there."""
        if status is None:
            words = f"Stack with id {name} does not exist"
            return self.refuse("cloudformation", "describe_stacks", "ValidationError", words)
        described = {
            "StackName": name.rpartition("/")[2],
            "StackId": arn(name),
            "CreationTime": NOW,
            "StackStatus": status,
            **more,
        }
        return self.answer("cloudformation", "describe_stacks", {"Stacks": [described]})

    def events(self, name: str, *events: tuple[str, str, str]) -> Script:
        """A look at the events: resource, state and reason, the oldest first; `STACK` for the stack
        itself."""
        told = [
            {
                "StackId": arn(name),
                "EventId": f"{resource}-{state}",
                "StackName": name,
                "Timestamp": NOW,
                "LogicalResourceId": resource,
                "PhysicalResourceId": arn(name) if resource == STACK else f"physical-{resource}",
                "ResourceStatus": state,
                "ResourceStatusReason": reason,
            }
            for resource, state, reason in events
        ]
        return self.answer("cloudformation", "describe_stack_events", {"StackEvents": told[::-1]})

    def change(
        self, name: str, kind: str, *changes: tuple[str, str], expected: Any = ANY
    ) -> Script:
        """A change set that is made and begun."""
        self.change_set(name, kind, expected)
        self.answer(
            "cloudformation",
            "describe_change_set",
            {
                "Status": "CREATE_COMPLETE",
                "Changes": [
                    {
                        "ResourceChange": {
                            "Action": action,
                            "LogicalResourceId": resource,
                            "ResourceType": f"AWS::Some::{resource}",
                            "Replacement": "True" if action == "Modify" else "False",
                        }
                    }
                    for action, resource in changes
                ],
            },
        )
        self.events(name)
        return self.answer("cloudformation", "execute_change_set")

    def change_set(self, name: str, kind: str, parameters: Any = ANY) -> Script:
        return self.answer(
            "cloudformation",
            "create_change_set",
            {"Id": f"{arn(name)}/change", "StackId": arn(name)},
            {
                "StackName": name,
                "ChangeSetName": ANY,
                "ChangeSetType": kind,
                "TemplateBody": ANY,
                "Parameters": parameters,
                "Capabilities": ANY,
                "Tags": ANY,
            },
        )

    def put(self, name: str, before: str | None, **more: Any) -> Script:
        """A stack that is created or updated without trouble."""
        kind = "CREATE" if before is None else "UPDATE"
        self.stack(name, before)
        self.change(name, kind, ("Add", "Thing"), expected=more.pop("expected", ANY))
        self.stack(name, f"{kind}_COMPLETE")
        return self.events(name)

    def removed(self, name: str, status: str | None = "CREATE_COMPLETE") -> Script:
        """A stack that is removed without trouble, if it is there."""
        self.stack(name, status)
        if status is not None:
            self.events(name)
            self.answer("cloudformation", "delete_stack", {}, {"StackName": arn(name)})
            self.stack(name, "DELETE_COMPLETE")
            self.events(name)
        return self

    def who(self) -> Script:
        arn = "arn:aws:iam::123456789012:user/somebody"
        return self.answer("sts", "get_caller_identity", {"Arn": arn})

    def endpoint(self, status: str | None, reason: str = "") -> Script:
        """A look at the endpoint; None for one that is not there."""
        if status is None:
            words = 'Could not find endpoint "arn:aws:sagemaker:...:endpoint/demo".'
            return self.refuse("sagemaker", "describe_endpoint", "ValidationException", words)
        told: dict[str, Any] = {
            "EndpointName": "demo",
            "EndpointArn": "arn:aws:sagemaker:eu-west-1:123456789012:endpoint/demo",
            "EndpointStatus": status,
            "CreationTime": NOW,
            "LastModifiedTime": NOW,
            "ProductionVariants": [
                {
                    "VariantName": "AllTraffic",
                    "CurrentInstanceCount": 1,
                    "DesiredInstanceCount": 2,
                    "DeployedImages": [{"SpecifiedImage": "repository@sha256:1"}],
                }
            ],
        }
        if reason:
            told["FailureReason"] = reason
        return self.answer("sagemaker", "describe_endpoint", told)

    def runtime(self, status: str | None, **more: str) -> Script:
        """A look at the endpoint of an agent; None for one that is not there."""
        service, operation = "bedrock-agentcore-control", "get_agent_runtime_endpoint"
        if status is None:
            return self.refuse(service, operation, "ResourceNotFoundException", "no such endpoint")
        arn = "arn:aws:bedrock-agentcore:eu-west-1:123456789012:runtime/utterwire_demo-AbCdEf1234"
        told = {
            "agentRuntimeEndpointArn": f"{arn}/runtime-endpoint/live",
            "agentRuntimeArn": arn,
            "status": status,
            "createdAt": NOW,
            "lastUpdatedAt": NOW,
            "name": "live",
            "id": "live-AbCdEf1234",
            **more,
        }
        asked = {"agentRuntimeId": "utterwire_demo-AbCdEf1234", "endpointName": "live"}
        return self.answer(service, operation, told, asked)

    def log_groups(self, *names: str) -> Script:
        """A look at which log groups an agent has."""
        groups = [{"logGroupName": name} for name in names]
        asked = {"logGroupNamePrefix": "/aws/bedrock-agentcore/runtimes/utterwire_demo-"}
        return self.answer("logs", "describe_log_groups", {"logGroups": groups}, asked)

    def log(self, *lines: str) -> Script:
        """A look at the end of the log."""
        self.answer("logs", "describe_log_streams", {"logStreams": [{"logStreamName": "all/i-1"}]})
        events = [{"timestamp": 1, "message": line, "ingestionTime": 1} for line in lines]
        return self.answer("logs", "get_log_events", {"events": events})


def arn(name: str) -> str:
    """The id of a stack, of its name or of its id."""
    if name.startswith("arn:"):
        return name
    return f"arn:aws:cloudformation:{REGION}:123456789012:stack/{name}"


@pytest.fixture(scope="session")
def make_client() -> Callable[[str], Any]:
    """boto3's clients of services; making one takes longer than most tests."""
    session = boto3.session.Session("AKIAIOSFODNN7EXAMPLE", "made-up", region_name=REGION)
    return functools.cache(lambda service: session.client(service))


@pytest.fixture
def script(make_client: Callable[[str], Any]) -> Iterator[Script]:
    made = Script(make_client)
    yield made
    made.leave()


class Patience:
    """A `Watch` that never waits; ``pauses`` counts, and ``at_pause`` may break in."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pauses = 0
        self.at_pause: Callable[[], object] = lambda: None
        self.watch = Watch(self.lines.append, self._sleep, lambda: 0.0)

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses += 1
        self.at_pause()

    @property
    def told(self) -> Sequence[str]:
        return [line.partition("] ")[2] for line in self.lines]


@pytest.fixture
def patience() -> Patience:
    return Patience()


@pytest.fixture
def command(
    script: Script, patience: Patience, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """``utterwire-deploy`` with the script in AWS's place."""
    from utterwire_server.deploy import cli

    monkeypatch.setattr(account_module, "open_account", lambda *_: script.account)
    monkeypatch.setattr(watch_module, "Watch", lambda: patience.watch)
    return lambda *arguments: cli.main(list(arguments))


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A model folder that is whole, and small."""
    folder = tmp_path / "model"
    (folder / "voices").mkdir(parents=True)
    contents = {
        "config.json": b"{}",
        "kokoro.onnx": b"weights",
        "voices/af_heart.bin": b"voice",
    }
    files = {}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        files[name] = {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "origin": "made up",
            "confirmed": True,
        }
    manifest = {
        "format": 1,
        "model": "Tiny",
        "licence": "none",
        "source": "test",
        "revision": "1",
        "made_with": {},
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "statistics").mkdir()
    (folder / "statistics" / "af_heart.npz").write_bytes(b"measured")
    return folder


@pytest.fixture
def unlisted() -> Callable[[str, Iterable[str]], set[str]]:
    """Calls of a command, as ``service:Operation``, whose permission DEPLOY.md does not list."""
    page = (Path(__file__).parents[2] / "DEPLOY.md").read_text(encoding="utf-8")
    table = page.partition("| command | calls |")[2].partition("\n\n")[0]
    # Most actions have the name of the call.
    named = {
        "s3:ListObjectsV2": "s3:ListBucket",
        "s3:ListObjectVersions": "s3:ListBucketVersions",
        "s3:DeleteObjects": "s3:DeleteObjectVersion",
    }

    def compare(command: str, calls: Iterable[str]) -> set[str]:
        (row,) = re.findall(rf"^\| `{command}` \|(.*)\|$", table, re.MULTILINE)
        listed = set(re.findall(r"`([a-z0-9-]+:\w+)`", row))
        return {named.get(call, call) for call in calls} - listed

    return compare
