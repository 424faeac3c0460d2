"""What went wrong, in one line, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["DeployFailed", "one_line", "step_for"]


class DeployFailed(Exception):
    """A command cannot go on.

    :param problem: what is wrong, one line.
    :param next_step: what to do about it, one line.
    :param status: exit status of the command.
    :param details: lines that tell more, such as the end of a log.
    """

    def __init__(
        self, problem: str, next_step: str, *, status: int = 1, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(one_line(problem))
        self.problem = one_line(problem)
        self.next_step = next_step
        self.status = status
        self.details = details


#: Words in reasons of CloudFormation and SageMaker, and what helps.
_REASONS: Final[Mapping[str, str]] = {
    r"not authorized to perform|AccessDenied|access denied": (
        "have the action that it names allowed (DEPLOY.md lists what each command needs)"
    ),
    r"ResourceLimitExceeded|service limit|quota": (
        "ask for more in the Service Quotas console, or take another region or --instance-type"
    ),
    r"InsufficientInstanceCapacity|insufficient capacity|Unable to provision": (
        "AWS has no such instance free: try again later, or another --instance-type or region"
    ),
    r"ping health check|did not pass the": (
        "the container did not become ready: read its log; a larger --startup-timeout gives it more"
        " time"
    ),
    r"architecture|arm64": (
        "build the image for that processor: docker build --platform linux/arm64 for an agent,"
        " linux/amd64 for an endpoint"
    ),
    r"already exists": "take another NAME, or remove what has it, then run the same command again",
    r"role validation|assume the role|cannot be assumed": (
        "run the same command again: AWS takes a moment to know a new role"
    ),
    r"image.*(does not exist|not found)|Failed to pull": (
        "push the image again: utterwire-deploy up without --image-uri"
    ),
    r"model data|ModelData|S3": (
        "look whether the files are in the bucket; a larger --download-timeout gives more time"
    ),
}


def step_for(reason: str) -> str:
    """What to do about a reason that AWS gave."""
    for pattern, step in _REASONS.items():
        if re.search(pattern, reason, re.IGNORECASE):
            return step
    return "correct that, then run the same command again; the change was taken back"


def one_line(text: str) -> str:
    """The text with each stretch of white space as one space."""
    return " ".join(text.split())
