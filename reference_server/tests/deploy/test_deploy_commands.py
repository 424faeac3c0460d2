"""up, status, scale and down against scripts of AWS: order, updates, and each way to fail."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from utterwire_server.deploy import cli, commands
from utterwire_server.deploy.deployment import Deployment

FOUNDATION = "utterwire-demo-foundation"
ENDPOINT = "utterwire-demo-endpoint"
SCALING = "utterwire-demo-scaling"
DIGEST = "sha256:" + "a" * 64
REPOSITORY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/utterwire/demo"
URI = f"{REPOSITORY}@{DIGEST}"
UP = ("up", "demo", "--image-uri", URI)
OUTPUTS = [
    {"OutputKey": "ExecutionRoleArn", "OutputValue": "arn:aws:iam::123456789012:role/r"},
    {"OutputKey": "RepositoryUri", "OutputValue": REPOSITORY},
    {"OutputKey": "ModelBucketName", "OutputValue": "bucket"},
]


def begun(script: Any, *, before: str | None = None) -> Any:
    """`up` as far as the foundation, which is there or made."""
    script.who().answer("ecr", "describe_images", {"imageDetails": []})
    script.put(FOUNDATION, before)
    return script.stack(FOUNDATION, "CREATE_COMPLETE", Outputs=OUTPUTS)


def of_endpoint(**other: str) -> list[dict[str, str]]:
    """Parameters of the endpoint's stack."""
    values = {
        "EndpointName": "demo",
        "ExecutionRoleArn": "arn:aws:iam::123456789012:role/r",
        "ImageUri": URI,
        "ModelDataUri": "",
        "InstanceType": "ml.g5.xlarge",
        "InstanceCount": "1",
        "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
        "StartupTimeout": "600",
        "DownloadTimeout": "600",
        "Engine": "",
        "KeepInstanceCount": "false",
    }
    return [
        {"ParameterKey": key, "ParameterValue": value} for key, value in (values | other).items()
    ]


def one_line(capsys: pytest.CaptureFixture[str], command: str) -> tuple[str, str, list[str]]:
    """What was wrong, the next step, and what stands between; no more is printed."""
    first, *details, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"utterwire-deploy {command}: ")
    assert last.startswith("next: ")
    return first.partition(": ")[2], last.partition(": ")[2], details


def test_up_makes_foundation_then_endpoint_and_waits(
    script: Any,
    patience: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    begun(script).stack(SCALING, None).stack(ENDPOINT, None)
    script.put(ENDPOINT, None, expected=of_endpoint())
    script.endpoint("Creating").endpoint("Creating").endpoint("InService")
    assert command(*UP) == 0
    script.done()
    assert unlisted("up", map(":".join, script.asked)) == set()
    assert patience.told[-2:] == ["endpoint demo: Creating", "endpoint demo: InService"]
    assert patience.told[0] == "as arn:aws:iam::123456789012:user/somebody, in eu-west-1"
    assert capsys.readouterr().out.splitlines() == [
        "endpoint demo serves in eu-west-1",
        'Speak: utterwire-deploy invoke demo "Hello."',
    ]


def test_an_update_keeps_the_instances_that_scaling_has_come_to(
    script: Any, command: Callable[..., int]
) -> None:
    begun(script, before="CREATE_COMPLETE")
    type_ = [{"ParameterKey": "InstanceType", "ParameterValue": "ml.g5.xlarge"}]
    script.stack(SCALING, "CREATE_COMPLETE", Parameters=scaled())
    script.stack(ENDPOINT, "CREATE_COMPLETE", Parameters=type_)
    script.put(ENDPOINT, "CREATE_COMPLETE", expected=of_endpoint(KeepInstanceCount="true"))
    script.endpoint("InService")
    assert command(*UP) == 0
    script.done()


@pytest.mark.parametrize("state", ["ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"])
def test_scaling_that_was_never_made_has_no_say(
    state: str, script: Any, command: Callable[..., int]
) -> None:
    begun(script, before="CREATE_COMPLETE")
    type_ = [{"ParameterKey": "InstanceType", "ParameterValue": "ml.g5.2xlarge"}]
    script.stack(SCALING, state, Parameters=scaled())
    script.stack(ENDPOINT, "CREATE_COMPLETE", Parameters=type_)
    script.put(ENDPOINT, "CREATE_COMPLETE", expected=of_endpoint())
    script.endpoint("InService")
    assert command(*UP) == 0
    script.done()


def scaled() -> list[dict[str, str]]:
    values = {"MinInstances": "1", "MaxInstances": "4", "TargetRequests": "6"}
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()]


@pytest.mark.parametrize("fails", [False, True])
def test_another_instance_type_takes_scaling_off_meanwhile(
    fails: bool, script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(script, before="CREATE_COMPLETE")
    type_ = [{"ParameterKey": "InstanceType", "ParameterValue": "ml.g5.2xlarge"}]
    script.stack(SCALING, "CREATE_COMPLETE", Parameters=scaled())
    script.stack(ENDPOINT, "CREATE_COMPLETE", Parameters=type_)
    script.removed(SCALING)
    if fails:
        script.stack(ENDPOINT, "CREATE_COMPLETE").change(ENDPOINT, "UPDATE")
        script.stack(ENDPOINT, "UPDATE_ROLLBACK_COMPLETE")
        script.events(ENDPOINT, ("Endpoint", "UPDATE_FAILED", "no InsufficientInstanceCapacity"))
    else:
        script.put(ENDPOINT, "CREATE_COMPLETE")
    script.put(SCALING, None, expected=scaled())
    if fails:
        script.log("listening")
    else:
        script.endpoint("InService")
    assert command(*UP) == int(fails)
    script.done()
    if fails:
        problem, next_step, _ = one_line(capsys, "up")
        assert "was taken back (UPDATE_ROLLBACK_COMPLETE): Endpoint" in problem
        assert "try again later" in next_step


@pytest.mark.parametrize("how", ["by AWS", "by the stack"])
def test_scaling_that_is_not_put_back_hides_nothing(
    how: str,
    script: Any,
    patience: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun(script, before="CREATE_COMPLETE")
    type_ = [{"ParameterKey": "InstanceType", "ParameterValue": "ml.g5.2xlarge"}]
    script.stack(SCALING, "CREATE_COMPLETE", Parameters=scaled())
    script.stack(ENDPOINT, "CREATE_COMPLETE", Parameters=type_)
    script.removed(SCALING)
    script.stack(ENDPOINT, "CREATE_COMPLETE").change(ENDPOINT, "UPDATE")
    script.stack(ENDPOINT, "UPDATE_ROLLBACK_COMPLETE")
    script.events(ENDPOINT, ("Endpoint", "UPDATE_FAILED", "no InsufficientInstanceCapacity"))
    script.stack(SCALING, None)
    if how == "by AWS":
        script.refuse("cloudformation", "create_change_set", "ExpiredToken", "old")
        second = "the AWS credentials have expired (CreateChangeSet)"
    else:
        script.change(SCALING, "CREATE").stack(SCALING, "ROLLBACK_COMPLETE")
        script.events(SCALING, ("Target", "CREATE_FAILED", "for a reason"))
        second = f"stack {SCALING} was taken back (ROLLBACK_COMPLETE): Target: for a reason"
    script.log("listening")
    assert command(*UP) == 1
    script.done()
    problem, _, _ = one_line(capsys, "up")
    assert "was taken back (UPDATE_ROLLBACK_COMPLETE): Endpoint" in problem
    by_hand, why = patience.told[-2:]
    assert by_hand.endswith(": utterwire-deploy scale demo --min 1 --max 4 --target 6")
    assert why == f"scaling was not put back: {second}"


def test_who_breaks_off_meanwhile_is_told_how_to_scale_as_before(
    script: Any, patience: Any, command: Callable[..., int]
) -> None:
    begun(script, before="CREATE_COMPLETE")
    type_ = [{"ParameterKey": "InstanceType", "ParameterValue": "ml.g5.2xlarge"}]
    script.stack(SCALING, "CREATE_COMPLETE", Parameters=scaled())
    script.stack(ENDPOINT, "CREATE_COMPLETE", Parameters=type_)
    script.removed(SCALING).stack(ENDPOINT, "CREATE_COMPLETE")
    script.refuse("cloudformation", "create_change_set", "ExpiredToken", "old")
    assert command(*UP) == 1
    script.done()
    assert patience.told[-1] == (
        "scaling is off; once the endpoint serves:"
        " utterwire-deploy scale demo --min 1 --max 4 --target 6"
    )


def test_a_stack_that_is_taken_back_shows_the_log(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(script).stack(SCALING, None).stack(ENDPOINT, None).stack(ENDPOINT, None)
    script.change(ENDPOINT, "CREATE", ("Add", "Endpoint"))
    script.stack(ENDPOINT, "ROLLBACK_COMPLETE")
    reason = "The primary container did not pass the ping health check."
    script.events(ENDPOINT, ("Endpoint", "CREATE_FAILED", reason))
    script.log("utterwire-server: /opt/ml/model is no model folder\n")
    assert command(*UP) == 1
    script.done()
    problem, next_step, details = one_line(capsys, "up")
    assert problem == (f"stack {ENDPOINT} was taken back (ROLLBACK_COMPLETE): Endpoint: {reason}")
    assert next_step.startswith("the container did not become ready: read its log")
    assert details == [
        "log stream: /aws/sagemaker/Endpoints/demo all/i-1",
        "  | utterwire-server: /opt/ml/model is no model folder",
    ]


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (None, "is empty: the container never started"),
        ("AccessDeniedException", "cannot be read: no logs for you"),
    ],
)
def test_an_endpoint_that_failed(
    log: str | None,
    told: str,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun(script).stack(SCALING, None).stack(ENDPOINT, None).put(ENDPOINT, None)
    script.endpoint("Creating").endpoint("Failed", "CannotStartContainerError: no such file")
    if log is None:
        script.answer("logs", "describe_log_streams", {"logStreams": []})
    else:
        script.refuse("logs", "describe_log_streams", log, "no logs for you")
    assert command(*UP) == 1
    script.done()
    problem, next_step, (detail,) = one_line(capsys, "up")
    assert problem == "endpoint demo is Failed: CannotStartContainerError: no such file"
    assert "correct that" in next_step
    assert told in detail


def test_an_endpoint_that_is_gone(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(script).stack(SCALING, None).stack(ENDPOINT, None).put(ENDPOINT, None).endpoint(None)
    assert command(*UP) == 1
    assert one_line(capsys, "up")[0] == "endpoint demo is gone, although its stack is there"


def test_an_image_that_ecr_does_not_have(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.who().refuse("ecr", "describe_images", "ImageNotFoundException", "no such image")
    assert command(*UP) == 1
    script.done()
    problem, next_step, _ = one_line(capsys, "up")
    assert problem == f"image {URI} is missing: ECR does not have it"
    assert next_step.startswith("push it")


DENIED = (
    "User: arn:aws:iam::1:user/x is not authorized to perform: cloudformation:CreateChangeSet on"
    " resource: arn:aws:cloudformation:eu-west-1:1:stack/utterwire-demo-foundation"
)


@pytest.mark.parametrize(
    ("code", "message", "problem", "next_step"),
    [
        ("AccessDenied", DENIED, "no permission for cloudformation:CreateChangeSet", "DEPLOY.md"),
        ("AccessDeniedException", "No.", "no permission for CreateChangeSet", "have CreateChangeS"),
        ("ExpiredToken", "old", "the AWS credentials have expired", "sign in again"),
        ("InvalidClientTokenId", "who", "AWS does not accept these credentials", "get-caller"),
        ("Throttling", "Rate exceeded", "AWS is asked too often", "wait a minute"),
        ("LimitExceededException", "200 stacks", "a quota of the account is used up", "Quotas"),
        ("OperationInProgressException", "busy", "AWS is still busy", "no change in progress"),
        ("InternalFailure", "Oops", "AWS refused CreateChangeSet: Oops", "run the same command"),
    ],
)
def test_aws_refuses_in_one_line(
    code: str,
    message: str,
    problem: str,
    next_step: str,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.who().answer("ecr", "describe_images", {"imageDetails": []})
    script.stack(FOUNDATION, None)
    script.refuse("cloudformation", "create_change_set", code, message)
    assert command(*UP) == 1
    script.done()
    told, step, _ = one_line(capsys, "up")
    assert told.startswith(problem)
    assert next_step in step


def test_credentials_that_expire_while_waiting(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(script).stack(SCALING, None).stack(ENDPOINT, None).put(ENDPOINT, None)
    script.endpoint("Creating")
    script.refuse("sagemaker", "describe_endpoint", "ExpiredTokenException", "old")
    assert command(*UP) == 1
    problem, next_step, _ = one_line(capsys, "up")
    assert problem == "the AWS credentials have expired (DescribeEndpoint)"
    assert "goes on where it stopped" in next_step


def test_ctrl_c_while_waiting_leaves_aws_at_work(
    script: Any, patience: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def break_in() -> None:
        raise KeyboardInterrupt

    begun(script).stack(SCALING, None).stack(ENDPOINT, None).put(ENDPOINT, None)
    script.endpoint("Creating")
    patience.at_pause = break_in
    assert command(*UP) == 130
    script.done()
    problem, next_step, _ = one_line(capsys, "up")
    assert problem == "stopped; what AWS has begun goes on"
    assert next_step.startswith("utterwire-deploy status demo")


def test_status_of_one_that_serves(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(FOUNDATION, "CREATE_COMPLETE").stack(ENDPOINT, "UPDATE_COMPLETE")
    script.stack(SCALING, "CREATE_COMPLETE").endpoint("InService")
    script.stack(SCALING, "CREATE_COMPLETE", Parameters=scaled())
    script.answer("logs", "describe_log_streams", {"logStreams": [{"logStreamName": "all/i-1"}]})
    assert command("status", "demo") == 0
    script.done()
    assert capsys.readouterr().out.splitlines() == [
        "endpoint demo: InService, 1 of 2 instances",
        "image repository@sha256:1",
        f"stack {FOUNDATION}: CREATE_COMPLETE",
        f"stack {ENDPOINT}: UPDATE_COMPLETE",
        f"stack {SCALING}: CREATE_COMPLETE",
        "scaling: 1 to 4 instances, 6 at once each",
        "log stream: /aws/sagemaker/Endpoints/demo all/i-1",
    ]


@pytest.mark.parametrize("now", ["ROLLBACK_COMPLETE", None])
def test_status_tells_of_no_scaling_that_is_not_there(
    now: str | None, script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(FOUNDATION, "CREATE_COMPLETE").stack(ENDPOINT, "UPDATE_COMPLETE")
    script.stack(SCALING, "ROLLBACK_COMPLETE").endpoint("InService")
    script.stack(SCALING, now, **({"Parameters": scaled()} if now else {}))
    script.answer("logs", "describe_log_streams", {"logStreams": []})
    assert command("status", "demo") == 0
    script.done()
    assert "at once each" not in capsys.readouterr().out


def test_status_of_one_that_failed_has_its_log(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(FOUNDATION, "CREATE_COMPLETE").stack(ENDPOINT, "CREATE_COMPLETE")
    script.stack(SCALING, None).endpoint("Failed", "why").log("last words")
    assert command("status", "demo", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["in_service"]) == ("demo", False)
    assert told["lines"][0] == "endpoint demo: Failed, 1 of 2 instances: why"
    assert told["lines"][-1] == "  | last words"


def test_status_of_one_that_was_never_made(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (FOUNDATION, ENDPOINT, SCALING):
        script.stack(name, None)
    script.endpoint(None)
    assert command("status", "demo") == 1
    problem, next_step, _ = one_line(capsys, "status")
    assert problem == "there is no deployment demo in eu-west-1"
    assert next_step.startswith("utterwire-deploy up demo")


def test_status_while_the_endpoint_is_not_there_yet(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.stack(FOUNDATION, "CREATE_IN_PROGRESS").stack(ENDPOINT, None).stack(SCALING, None)
    script.endpoint(None)
    assert command("status", "demo") == 1
    assert capsys.readouterr().out.splitlines() == [
        "endpoint demo: not there",
        f"stack {FOUNDATION}: CREATE_IN_PROGRESS",
        f"stack {ENDPOINT}: not there",
        f"stack {SCALING}: not there",
    ]


def test_scale_by_hand(
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    unlisted: Callable[[str, Iterable[str]], set[str]],
) -> None:
    expected = [
        {"ParameterKey": key, "ParameterValue": value}
        for key, value in {
            "EndpointName": "demo",
            "MinInstances": "2",
            "MaxInstances": "5",
            "TargetRequests": "8",
            "ScaleInRequests": "4",
            "ScaleOutCooldown": "300",
            "ScaleInCooldown": "600",
            "ScaleInMinutes": "10",
        }.items()
    ]
    script.endpoint("InService").put(SCALING, None, expected=expected)
    assert command("scale", "demo", "--min", "2", "--max", "5", "--target", "8") == 0
    script.done()
    assert unlisted("scale", map(":".join, script.asked)) == set()
    assert capsys.readouterr().out == (
        "endpoint demo is scaled: 2 to 5 instances, 8 at once each\n"
    )


def test_scale_by_a_plan_that_holds_already(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from utterwire_server.deploy.scaling import Scaling

    plan = tmp_path / "scaling.json"
    plan.write_text(Scaling(1, 4, 6, 2).as_json(["why"]), encoding="utf-8")
    script.endpoint("InService").stack(SCALING, "CREATE_COMPLETE").change_set(SCALING, "UPDATE")
    told = {"Status": "FAILED", "StatusReason": "No updates are to be performed."}
    script.answer("cloudformation", "describe_change_set", told)
    script.answer("cloudformation", "delete_change_set")
    assert command("scale", "demo", "--plan", str(plan)) == 0
    script.done()
    assert "is scaled so already: 1 to 4 instances" in capsys.readouterr().out


@pytest.mark.parametrize(("there", "words"), [("CREATE_COMPLETE", "is off"), (None, "was off")])
def test_scale_off(
    there: str | None,
    words: str,
    script: Any,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.removed(SCALING, there)
    assert command("scale", "demo", "--off") == 0
    script.done()
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("status", [None, "Updating"])
def test_only_an_endpoint_that_serves_is_scaled(
    status: str | None, script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.endpoint(status)
    assert command("scale", "demo", "--max", "2", "--target", "3") == 1
    script.done()
    problem, next_step, _ = one_line(capsys, "scale")
    assert problem.startswith("endpoint demo cannot be scaled: ")
    assert next_step == "utterwire-deploy up demo first"


def test_down_removes_in_the_order_in_which_things_depend(
    script: Any, patience: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.removed(SCALING).removed(ENDPOINT)
    script.stack(FOUNDATION, "CREATE_COMPLETE", Outputs=OUTPUTS)
    version = {"Key": "models/1/a", "VersionId": "null", "Size": 1}
    script.answer("s3", "list_object_versions", {"Versions": [version], "IsTruncated": False})
    script.answer(
        "s3",
        "delete_objects",
        {},
        {
            "Bucket": "bucket",
            "Delete": {"Objects": [{"Key": "models/1/a", "VersionId": "null"}], "Quiet": True},
        },
    )
    script.removed(FOUNDATION)
    script.answer("logs", "delete_log_group")
    assert command("down", "demo") == 0
    script.done()
    assert "s3://bucket: 1 objects removed" in patience.told
    assert capsys.readouterr().out == "deployment demo is removed\n"


def test_down_goes_on_where_the_bucket_went_before_the_rest(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.removed(SCALING, None).removed(ENDPOINT, None)
    script.stack(FOUNDATION, "DELETE_FAILED", Outputs=OUTPUTS)
    script.refuse("s3", "list_object_versions", "NoSuchBucket", "no such bucket")
    script.removed(FOUNDATION, "DELETE_FAILED")
    script.answer("logs", "delete_log_group")
    assert command("down", "demo") == 0
    script.done()
    assert capsys.readouterr().out == "deployment demo is removed\n"


def test_down_of_nothing(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.removed(SCALING, None).removed(ENDPOINT, None)
    script.stack(FOUNDATION, None).removed(FOUNDATION, None)
    script.refuse("logs", "delete_log_group", "ResourceNotFoundException", "no such group")
    assert command("down", "demo") == 0
    script.done()
    assert capsys.readouterr().out == "deployment demo was not there\n"


def test_down_can_leave_the_foundation(script: Any, command: Callable[..., int]) -> None:
    script.removed(SCALING, None).removed(ENDPOINT)
    assert command("down", "demo", "--keep-foundation") == 0
    script.done()


def test_down_tells_what_it_cannot_remove(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.removed(SCALING, None).removed(ENDPOINT, None)
    script.stack(FOUNDATION, "CREATE_COMPLETE", Outputs=OUTPUTS)
    marker = {"Key": "a", "VersionId": "1"}
    script.answer("s3", "list_object_versions", {"DeleteMarkers": [marker]})
    error = {"Key": "a", "Code": "AccessDenied", "Message": "Access Denied"}
    script.answer("s3", "delete_objects", {"Errors": [error]})
    assert command("down", "demo") == 1
    script.done()
    problem, next_step, _ = one_line(capsys, "down")
    assert problem == "s3://bucket/a could not be removed: Access Denied"
    assert "s3:DeleteObjectVersion" in next_step


def test_what_went_wrong_while_the_log_is_removed_is_told(
    script: Any, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    script.removed(SCALING, None).removed(ENDPOINT, None)
    script.stack(FOUNDATION, None).removed(FOUNDATION, None)
    script.refuse("logs", "delete_log_group", "AccessDeniedException", "no")
    assert command("down", "demo") == 1
    assert one_line(capsys, "down")[0].startswith("no permission for DeleteLogGroup")


# What is seen without AWS.


@pytest.mark.parametrize("flags", [[], ["--image-uri", URI], ["--instance-type", "ml.c5.xlarge"]])
def test_a_dry_run_shows_plan_and_templates(
    flags: list[str], command: Callable[..., int], script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("up", "demo", "--dry-run", *flags) == 0
    shown = capsys.readouterr().out
    script.done()
    assert next(line for line in shown.splitlines() if line[:1].isdigit()) == (
        f"1. stack {FOUNDATION}: create or update"
    )
    for words in (
        "AWS::SageMaker::EndpointConfig",
        "AWS::ECR::Repository",
        "#   EndpointName: demo",
    ):
        assert words in shown
    gpu = "ml.c5.xlarge" not in flags
    assert (f"InferenceAmiVersion: {'al2023' if gpu else chr(10)}" in shown) is True
    image = URI if "--image-uri" in flags else f"utterwire-server:{'cuda' if gpu else 'cpu'}"
    assert f"2. image: {image}" in shown


def test_a_dry_run_names_the_prefix_of_the_weights(
    command: Callable[..., int], model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("up", "demo", "--dry-run", "--model-dir", str(model_folder)) == 0
    assert "3. model: s3://BUCKET/models/" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["scale", "demo", "--off"], [f"1. stack {SCALING}: remove"]),
        (
            ["scale", "demo", "--max", "2", "--target", "4"],
            [f"1. stack {SCALING}: create or update", "#   TargetRequests: 4"],
        ),
        (["down", "demo"], [f"2. stack {ENDPOINT}: remove", f"4. stack {FOUNDATION}: remove"]),
        (["down", "demo", "--keep-foundation"], [f"2. stack {ENDPOINT}: remove"]),
    ],
)
def test_other_dry_runs(
    arguments: list[str],
    lines: list[str],
    command: Callable[..., int],
    script: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(*arguments, "--dry-run") == 0
    shown = capsys.readouterr().out
    script.done()
    for line in lines:
        assert line in shown
    assert (f"stack {FOUNDATION}" in shown) is (arguments == ["down", "demo"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["up", "demo", "--instances", "0"], "'0' is not a whole number above 0"),
        (["up", "demo", "--startup-timeout", "59"], "'59' is not 60 to 3600 seconds"),
        (["up", "a_b"], "'a_b' cannot be the name of an endpoint"),
        (["up", "a" * 64], "cannot be the name of an endpoint"),
        (["up", "demo", "--image-uri", "docker.io/x"], "images are taken from ECR only"),
        (["scale", "demo"], "how to scale has to be said in one way"),
        (["scale", "demo", "--off", "--max", "2"], "how to scale has to be said in one way"),
        (["scale", "demo", "--max", "2"], "--target and --max go together"),
        (["scale", "demo", "--max", "1", "--min", "2", "--target", "3"], "at most 1 instances are"),
        (["scale", "demo", "--plan", "none.json"], "none.json is no plan"),
    ],
)
def test_mistakes_in_arguments_are_one_line(
    arguments: list[str],
    words: str,
    command: Callable[..., int],
    script: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(*arguments) == 2
    script.done()
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.splitlines()) <= 2


def test_a_plan_that_is_nested_too_deeply_is_one_line(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text("[" * 100_000)
    assert command("scale", "demo", "--plan", str(tmp_path / "plan.json")) == 2
    assert "is no plan: RecursionError" in one_line(capsys, "scale")[0]


def test_another_region_than_the_image(
    command: Callable[..., int], script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    script.who()
    assert command("up", "demo", "--image-uri", URI.replace("eu-west-1", "us-east-1")) == 2
    problem, next_step, _ = one_line(capsys, "up")
    assert "is in us-east-1, and this would be in eu-west-1" in problem
    assert "--region us-east-1" in next_step


@pytest.mark.parametrize(
    ("profile", "environment", "problem", "next_step"),
    [
        ("nobody", {}, "the AWS profile cannot be used", "list-profiles"),
        (None, {"AWS_DEFAULT_REGION": ""}, "no AWS region is set", "--region"),
        (None, {"AWS_ACCESS_KEY_ID": ""}, "there are no AWS credentials here", "sign in"),
    ],
)
def test_without_credentials_region_or_profile(
    profile: str | None,
    environment: dict[str, str],
    problem: str,
    next_step: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
            monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    flags = [] if profile is None else ["--profile", profile]
    assert cli.main(["status", "demo", *flags]) == 1
    told, step, _ = one_line(capsys, "status")
    assert told.startswith(problem)
    assert next_step in step


@pytest.mark.parametrize(
    ("region", "problem"), [("", "no AWS region is set"), ("eu_west", "region cannot be used")]
)
def test_a_region_that_is_none(
    region: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "demo", "--region", region]) == 1
    told, step, _ = one_line(capsys, "status")
    assert problem in told
    assert "--region" in step


def test_without_boto3_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['botocore'] = None; from utterwire_server.deploy.cli import main;"
        "sys.exit(main(['status', 'demo']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "utterwire-deploy: botocore is not installed; pip install 'utterwire[deploy]'\n"
    )


def test_names_of_one_deployment_are_of_that_one_only() -> None:
    one, other = Deployment("Demo--2"), Deployment("demo-3")
    assert one.repository == "utterwire/demo-2"
    assert not {one.foundation, one.endpoint, one.scaling} & {
        other.foundation,
        other.endpoint,
        other.scaling,
    }
    assert len({one.foundation, one.endpoint, one.scaling}) == 3


def test_wanted_has_each_parameter_of_the_foundation() -> None:
    wanted = commands.Wanted(image="x", instance_type="ml.g5.xlarge", ami="", image_uri=URI)
    assert wanted.foundation(Deployment("demo"))["OtherRepository"] == (
        "eu-west-1:123456789012:repository/utterwire/demo"
    )
    without = dataclasses.replace(wanted, image_uri=None)
    assert without.foundation(Deployment("demo"))["OtherRepository"] == ""
