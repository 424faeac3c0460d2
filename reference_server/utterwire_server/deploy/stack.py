"""A CloudFormation stack: put there by change sets, watched by resource, removed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of, message_of
from utterwire_server.deploy.failure import DeployFailed, step_for
from utterwire_server.deploy.template import Template
from utterwire_server.deploy.watch import Watch

__all__ = ["Stack"]

#: States in which nothing can be updated: what a failed creation or removal left.
_REMAINS: Final = frozenset(
    {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"}
)
#: States of a stack that has no resources: only planned, or taken back when it was to be created.
_NEVER_MADE: Final = frozenset({"REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"})
_NO_CHANGES: Final = ("didn't contain changes", "No updates are to be performed")


class Stack:
    """A stack of the account, by its name.

    :param watch: is told of each resource.
    :param program: whose ``status`` and ``down`` are named where something goes wrong.
    """

    def __init__(
        self, account: Account, watch: Watch, name: str, program: str = "utterwire-deploy"
    ) -> None:
        self._cloudformation = account.client("cloudformation")
        self._watch = watch
        self._program = program
        self.name = name

    def describe(self) -> dict[str, Any] | None:
        """What CloudFormation says of it; None if there is none."""
        return self._describe(self.name)

    @property
    def status(self) -> str | None:
        """Its state, such as ``CREATE_COMPLETE``; None if there is none."""
        found = self.describe()
        return None if found is None else str(found["StackStatus"])

    def outputs(self) -> dict[str, str]:
        """Its outputs by name; none where it is not there."""
        found = self.describe() or {}
        return {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}

    def parameters(self) -> dict[str, str]:
        """Its parameters by name; none where it is not there, or was never made."""
        found = self.describe() or {}
        if found.get("StackStatus") in _NEVER_MADE:
            return {}
        return {one["ParameterKey"]: one["ParameterValue"] for one in found.get("Parameters", [])}

    def put(self, template: Template, parameters: Mapping[str, str]) -> bool:
        """Create or update it, and wait for the end. Whether anything was changed.

        :raises DeployFailed: if it is busy, or the change fails; CloudFormation then takes back
            what it had done.
        """
        kind, before = self._kind()
        change_set = f"utterwire-{secrets.token_hex(6)}"
        made = self._cloudformation.create_change_set(
            StackName=self.name,
            ChangeSetName=change_set,
            ChangeSetType=kind,
            TemplateBody=template.body,
            Parameters=[
                {"ParameterKey": name, "ParameterValue": value}
                for name, value in parameters.items()
            ],
            Capabilities=list(template.capabilities),
            Tags=[{"Key": "utterwire", "Value": template.name}],
        )
        change_set, stack = made["Id"], made["StackId"]
        changes = self._changes(change_set, stack, kind)
        if changes is None:
            self._watch.say(f"{self.name}: nothing to change")
            return False
        for change in changes:
            self._watch.say(f"{self.name}: will {change}")
        seen = {event["EventId"] for event in self._events(stack)}
        self._cloudformation.execute_change_set(ChangeSetName=change_set, StackName=stack)
        status, reason = self._follow(stack, seen, before)
        if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            raise DeployFailed(
                f"stack {self.name} was taken back ({status}): {reason}", step_for(reason)
            )
        return True

    def delete(self) -> bool:
        """Remove it and wait for the end. Whether there was one.

        :raises DeployFailed: if it is busy, or something of it cannot be removed.
        """
        found = self.describe()
        if found is None:
            return False
        status, stack = found["StackStatus"], found["StackId"]
        if status != "DELETE_IN_PROGRESS":
            self._refuse_if_busy(status)
        self._watch.say(f"{self.name}: removing")
        seen = {event["EventId"] for event in self._events(stack)}
        self._cloudformation.delete_stack(StackName=stack)
        status, reason = self._follow(stack, seen, status)
        if status != "DELETE_COMPLETE":
            raise DeployFailed(
                f"stack {self.name} could not be removed ({status}): {reason}",
                f"correct that, then run {self._program} down again",
            )
        return True

    def _describe(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._cloudformation.describe_stacks(StackName=name)["Stacks"][
                0
            ]
        except ClientError as error:
            if code_of(error) == "ValidationError" and "does not exist" in message_of(error):
                return None
            raise
        return None if found["StackStatus"] == "DELETE_COMPLETE" else found

    def _kind(self) -> tuple[str, str | None]:
        """CREATE or UPDATE, after what hinders has been removed, and the state before it."""
        status = self.status
        if status is None or status == "REVIEW_IN_PROGRESS":
            return "CREATE", status
        if status in _REMAINS:
            self._watch.say(f"{self.name}: removing what is left of an earlier try ({status})")
            self.delete()
            return "CREATE", None
        self._refuse_if_busy(status)
        if status == "UPDATE_ROLLBACK_FAILED":
            raise DeployFailed(
                f"stack {self.name} could not take an earlier update back ({status})",
                f"aws cloudformation continue-update-rollback --stack-name {self.name},"
                f" or {self._program} down",
            )
        return "UPDATE", status

    def _refuse_if_busy(self, status: str) -> None:
        if status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS":
            raise DeployFailed(
                f"stack {self.name} is busy with an earlier change ({status})",
                f"wait until {self._program} status shows no change in progress, then try again",
            )

    def _changes(self, change_set: str, stack: str, kind: str) -> list[str] | None:
        """What a change set would do, a line each; None if it would do nothing."""
        while True:
            told = self._cloudformation.describe_change_set(
                ChangeSetName=change_set, StackName=stack
            )
            if told["Status"] in ("CREATE_COMPLETE", "FAILED"):
                break
            self._watch.pause()
        if told["Status"] == "CREATE_COMPLETE":
            return [_shown(change["ResourceChange"]) for change in told.get("Changes", [])]
        reason = told.get("StatusReason", "no reason was given")
        # An empty stack, or a change set that never will be used: neither is left behind.
        if kind == "CREATE":
            self._cloudformation.delete_stack(StackName=stack)
        else:
            self._cloudformation.delete_change_set(ChangeSetName=change_set, StackName=stack)
            if any(words in reason for words in _NO_CHANGES):
                return None
        raise DeployFailed(f"stack {self.name} cannot be changed so: {reason}", step_for(reason))

    def _events(self, stack: str) -> Iterator[dict[str, Any]]:
        """Events of a stack, the newest first."""
        pages = self._cloudformation.get_paginator("describe_stack_events")
        for page in pages.paginate(StackName=stack):
            yield from page["StackEvents"]

    def _follow(self, stack: str, seen: set[str], before: str | None) -> tuple[str, str]:
        """Tell each resource's progress until the stack rests: its state, and the first reason
        for a failure.

        CloudFormation may answer with the state of ``before`` for a moment yet: that one counts
        only where an event says that the stack has come to it again.
        """
        first_failure = ""
        told = ""
        while True:
            # Asked first: what happened before the end is then among the events.
            found = self._describe(stack)
            status = "DELETE_COMPLETE" if found is None else str(found["StackStatus"])
            for event in self._unseen(stack, seen):
                first_failure = first_failure or _failure(event)
                if _of_stack(event):
                    told = event["ResourceStatus"]
                else:
                    self._tell(event)
            if not status.endswith("_IN_PROGRESS") and (status != before or status == told):
                reason = first_failure or (found or {}).get("StackStatusReason", "")
                return status, reason or "no reason was given"
            self._watch.pause()

    def _unseen(self, stack: str, seen: set[str]) -> list[dict[str, Any]]:
        """Events that were not told yet, the oldest first."""
        fresh: list[dict[str, Any]] = []
        for event in self._events(stack):
            if event["EventId"] in seen:
                break
            fresh.append(event)
        seen.update(event["EventId"] for event in fresh)
        return fresh[::-1]

    def _tell(self, event: Mapping[str, Any]) -> None:
        reason = event.get("ResourceStatusReason", "")
        why = f": {' '.join(reason.split())}" if reason else ""
        self._watch.say(f"{self.name}: {event['LogicalResourceId']} {event['ResourceStatus']}{why}")


def _of_stack(event: Mapping[str, Any]) -> bool:
    """Whether an event is about the stack itself, not about one of its resources."""
    return bool(event.get("PhysicalResourceId") == event["StackId"])


def _failure(event: Mapping[str, Any]) -> str:
    """Why a resource failed; nothing if it did not, or only since another one did."""
    reason = event.get("ResourceStatusReason", "")
    if not event["ResourceStatus"].endswith("_FAILED") or "cancelled" in reason:
        return ""
    return f"{event['LogicalResourceId']}: {reason or event['ResourceStatus']}"


def _shown(change: Mapping[str, Any]) -> str:
    replaces = change.get("Replacement") == "True"
    words = {"Add": "create", "Modify": "replace" if replaces else "update", "Remove": "remove"}
    action = words.get(change["Action"], change["Action"].lower())
    return f"{action} {change['LogicalResourceId']} ({change['ResourceType']})"
