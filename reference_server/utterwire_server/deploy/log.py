"""What containers wrote: log groups of CloudWatch, which AWS makes and nobody else removes."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of, message_of

__all__ = ["LogEnd", "last_log", "log_groups", "log_lines", "remove_log"]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a container's log."""

    group: str
    stream: str
    lines: tuple[str, ...]

    def shown(self) -> tuple[str, ...]:
        """Lines for a person."""
        return (f"log stream: {self.group} {self.stream}", *(f"  | {line}" for line in self.lines))


def last_log(account: Account, group: str, lines: int = 12) -> LogEnd | None:
    """The end of the stream that was written last; None if the container never wrote one."""
    logs = account.client("logs")
    try:
        streams = logs.describe_log_streams(
            logGroupName=group, orderBy="LastEventTime", descending=True, limit=1
        )["logStreams"]
        if not streams:
            return None
        stream = streams[0]["logStreamName"]
        if not lines:
            return LogEnd(group, stream, ())
        events = logs.get_log_events(
            logGroupName=group,
            logStreamName=stream,
            limit=lines,
            startFromHead=False,
        )["events"]
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise
    return LogEnd(group, stream, tuple(event["message"].rstrip() for event in events))


def log_lines(account: Account, group: str) -> tuple[str, ...]:
    """The end of the log for a person, or why there is none. Never a failure of its own."""
    try:
        found = last_log(account, group)
    except ClientError as error:
        return (f"log group {group} cannot be read: {message_of(error)}",)
    if found is None:
        return (f"log group {group} is empty: the container never started",)
    return found.shown()


def remove_log(account: Account, group: str) -> bool:
    """Remove a log group. Whether there was one."""
    try:
        account.client("logs").delete_log_group(logGroupName=group)
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return False
        raise
    return True


def log_groups(account: Account, prefix: str) -> list[str]:
    """Names of the log groups that begin so."""
    pages = account.client("logs").get_paginator("describe_log_groups")
    return [
        str(group["logGroupName"])
        for page in pages.paginate(logGroupNamePrefix=prefix)
        for group in page["logGroups"]
    ]
