"""Change sets: order, progress, updates, and every way in which a stack can fail."""

from __future__ import annotations

from typing import Any

import pytest
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.stack import Stack
from utterwire_server.deploy.template import FOUNDATION, SCALING

NAME = "utterwire-demo-scaling"
ITSELF = "the stack"


@pytest.fixture
def stack(script: Any, patience: Any) -> Stack:
    return Stack(script.account, patience.watch, NAME)


def test_a_new_stack_is_created_and_each_resource_told(
    script: Any, patience: Any, stack: Stack
) -> None:
    script.stack(NAME, None)
    script.change(
        NAME,
        "CREATE",
        ("Add", "Target"),
        ("Add", "ScaleOut"),
        expected=[{"ParameterKey": "MinInstances", "ParameterValue": "1"}],
    )
    first = ("Target", "CREATE_IN_PROGRESS", "")
    second = ("Target", "CREATE_COMPLETE", "")
    script.stack(NAME, "CREATE_IN_PROGRESS").events(NAME, first)
    script.stack(NAME, "CREATE_COMPLETE").events(NAME, first, second)
    assert stack.put(SCALING, {"MinInstances": "1"})
    script.done()
    assert patience.told == [
        f"{NAME}: will create Target (AWS::Some::Target)",
        f"{NAME}: will create ScaleOut (AWS::Some::ScaleOut)",
        f"{NAME}: Target CREATE_IN_PROGRESS",
        f"{NAME}: Target CREATE_COMPLETE",
    ]


def test_an_update_waits_for_what_it_replaces_to_be_removed(
    script: Any, patience: Any, stack: Stack
) -> None:
    script.stack(NAME, "UPDATE_ROLLBACK_COMPLETE")
    script.change(NAME, "UPDATE", ("Modify", "Target"), ("Remove", "Quiet"))
    script.stack(NAME, "UPDATE_IN_PROGRESS").events(NAME)
    script.stack(NAME, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS").events(NAME)
    script.stack(NAME, "UPDATE_COMPLETE").events(NAME)
    assert stack.put(SCALING, {})
    script.done()
    assert patience.pauses == 2
    assert patience.told[:2] == [
        f"{NAME}: will replace Target (AWS::Some::Target)",
        f"{NAME}: will remove Quiet (AWS::Some::Quiet)",
    ]


def test_the_state_of_before_is_no_result(script: Any, patience: Any, stack: Stack) -> None:
    """CloudFormation may tell it for a moment after an update has begun."""
    script.stack(NAME, "UPDATE_COMPLETE").change(NAME, "UPDATE", ("Modify", "Target"))
    begun = (ITSELF, "UPDATE_IN_PROGRESS", "User Initiated")
    script.stack(NAME, "UPDATE_COMPLETE").events(NAME)
    script.stack(NAME, "UPDATE_COMPLETE").events(NAME, begun)
    script.stack(NAME, "UPDATE_IN_PROGRESS").events(NAME, begun)
    ended = (ITSELF, "UPDATE_COMPLETE", "")
    script.stack(NAME, "UPDATE_COMPLETE").events(NAME, begun, ended)
    assert stack.put(SCALING, {})
    script.done()
    assert patience.pauses == 3
    assert patience.told == [f"{NAME}: will replace Target (AWS::Some::Target)"]


def test_a_failure_of_before_is_no_result(script: Any, stack: Stack) -> None:
    script.stack(NAME, "UPDATE_ROLLBACK_COMPLETE").change(NAME, "UPDATE")
    script.stack(NAME, "UPDATE_ROLLBACK_COMPLETE").events(NAME)
    script.stack(NAME, "UPDATE_COMPLETE").events(NAME)
    assert stack.put(SCALING, {})
    script.done()


def test_a_stack_that_is_about_to_be_removed_is_waited_for(script: Any, stack: Stack) -> None:
    script.stack(NAME, "DELETE_FAILED").events(NAME)
    script.answer("cloudformation", "delete_stack")
    script.stack(NAME, "DELETE_FAILED").events(NAME)
    failed = [("Bucket", "DELETE_FAILED", "not empty"), (ITSELF, "DELETE_FAILED", "")]
    script.stack(NAME, "DELETE_FAILED").events(NAME, *failed)
    with pytest.raises(DeployFailed, match=r"could not be removed .*: Bucket: not empty"):
        stack.delete()
    script.done()


def test_an_update_that_changes_nothing_leaves_no_change_set(script: Any, stack: Stack) -> None:
    script.stack(NAME, "CREATE_COMPLETE").change_set(NAME, "UPDATE")
    script.answer("cloudformation", "describe_change_set", {"Status": "CREATE_PENDING"})
    script.answer(
        "cloudformation",
        "describe_change_set",
        {"Status": "FAILED", "StatusReason": "The submitted information didn't contain changes."},
    )
    script.answer("cloudformation", "delete_change_set")
    assert not stack.put(SCALING, {})
    script.done()


@pytest.mark.parametrize(
    ("before", "kind", "cleared"),
    [(None, "CREATE", "delete_stack"), ("CREATE_COMPLETE", "UPDATE", "delete_change_set")],
)
def test_a_change_set_that_fails_leaves_nothing(
    before: str | None, kind: str, cleared: str, script: Any, stack: Stack
) -> None:
    script.stack(NAME, before).change_set(NAME, kind)
    script.answer(
        "cloudformation",
        "describe_change_set",
        {"Status": "FAILED", "StatusReason": "Parameters: [X] must have values"},
    )
    script.answer("cloudformation", cleared)
    with pytest.raises(DeployFailed, match=r"cannot be changed so: Parameters: \[X\]"):
        stack.put(SCALING, {})
    script.done()


def test_a_stack_taken_back_tells_what_failed_first(
    script: Any, patience: Any, stack: Stack
) -> None:
    script.stack(NAME, None).change(NAME, "CREATE", ("Add", "Target"))
    events = [
        ("ScaleOut", "CREATE_FAILED", "Resource creation cancelled"),
        ("Target", "CREATE_FAILED", "User: x is not authorized to perform: iam:PassRole"),
        ("Quiet", "CREATE_FAILED", "later"),
    ]
    script.stack(NAME, "ROLLBACK_IN_PROGRESS").events(NAME, *events)
    script.stack(NAME, "ROLLBACK_COMPLETE").events(NAME, *events)
    with pytest.raises(DeployFailed) as failed:
        stack.put(SCALING, {})
    script.done()
    assert failed.value.problem == (
        f"stack {NAME} was taken back (ROLLBACK_COMPLETE):"
        " Target: User: x is not authorized to perform: iam:PassRole"
    )
    assert "have the action that it names allowed" in failed.value.next_step
    assert f"{NAME}: Quiet CREATE_FAILED: later" in patience.told


def test_a_stack_taken_back_without_a_reason(script: Any, stack: Stack) -> None:
    script.stack(NAME, "CREATE_COMPLETE").change(NAME, "UPDATE")
    script.stack(NAME, "UPDATE_ROLLBACK_COMPLETE", StackStatusReason="Because.").events(NAME)
    with pytest.raises(DeployFailed, match=r"UPDATE_ROLLBACK_COMPLETE\): Because"):
        stack.put(SCALING, {})


@pytest.mark.parametrize("remains", ["ROLLBACK_COMPLETE", "CREATE_FAILED", "DELETE_FAILED"])
def test_what_a_failed_creation_left_is_removed_first(
    remains: str, script: Any, stack: Stack
) -> None:
    script.stack(NAME, remains).removed(NAME, remains)
    script.change(NAME, "CREATE").stack(NAME, "CREATE_COMPLETE").events(NAME)
    assert stack.put(SCALING, {})
    script.done()


def test_an_empty_stack_of_an_earlier_change_set_is_filled(script: Any, stack: Stack) -> None:
    script.stack(NAME, "REVIEW_IN_PROGRESS").change(NAME, "CREATE")
    script.stack(NAME, "CREATE_COMPLETE").events(NAME)
    assert stack.put(FOUNDATION, {})
    script.done()


@pytest.mark.parametrize(
    ("status", "words", "next_step"),
    [
        ("UPDATE_IN_PROGRESS", "is busy with an earlier change", "utterwire-deploy status"),
        ("UPDATE_ROLLBACK_FAILED", "could not take an earlier update back", "continue-update"),
    ],
)
def test_a_stack_that_cannot_be_changed_now(
    status: str, words: str, next_step: str, script: Any, stack: Stack
) -> None:
    script.stack(NAME, status)
    with pytest.raises(DeployFailed, match=words) as failed:
        stack.put(SCALING, {})
    assert next_step in failed.value.next_step
    script.done()


def test_a_stack_in_removal_is_waited_for(script: Any, patience: Any, stack: Stack) -> None:
    script.stack(NAME, "DELETE_IN_PROGRESS").events(NAME)
    script.answer("cloudformation", "delete_stack")
    script.stack(NAME, "DELETE_IN_PROGRESS").events(NAME, ("Target", "DELETE_COMPLETE", ""))
    script.stack(NAME, None).events(NAME, ("Target", "DELETE_COMPLETE", ""))
    assert stack.delete()
    script.done()
    assert patience.told == [f"{NAME}: removing", f"{NAME}: Target DELETE_COMPLETE"]


def test_what_is_not_there_needs_no_removal(script: Any, stack: Stack) -> None:
    script.removed(NAME, None)
    assert not stack.delete()
    script.done()


def test_a_removal_that_fails_tells_why(script: Any, stack: Stack) -> None:
    script.stack(NAME, "CREATE_COMPLETE").events(NAME)
    script.answer("cloudformation", "delete_stack")
    script.stack(NAME, "DELETE_FAILED").events(NAME, ("Bucket", "DELETE_FAILED", "not empty"))
    with pytest.raises(DeployFailed, match=r"could not be removed .*: Bucket: not empty"):
        stack.delete()
    script.done()


def test_a_busy_stack_is_not_removed(script: Any, stack: Stack) -> None:
    script.stack(NAME, "CREATE_IN_PROGRESS")
    with pytest.raises(DeployFailed, match="busy"):
        stack.delete()


def test_outputs_and_parameters(script: Any, stack: Stack) -> None:
    script.stack(NAME, "CREATE_COMPLETE", Outputs=[{"OutputKey": "A", "OutputValue": "1"}])
    script.stack(NAME, "CREATE_COMPLETE", Parameters=[{"ParameterKey": "B", "ParameterValue": "2"}])
    assert (stack.outputs(), stack.parameters()) == ({"A": "1"}, {"B": "2"})
    script.stack(NAME, None).stack(NAME, None)
    assert (stack.outputs(), stack.parameters()) == ({}, {})
