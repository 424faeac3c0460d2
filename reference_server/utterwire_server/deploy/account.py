"""Who asks AWS, and where: credentials, region, clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import NoRegionError

__all__ = ["Account", "open_account"]


@dataclass(slots=True)
class Account:
    """An AWS account in one region.

    :param region: such as ``eu-west-1``.
    :param make_client: makes boto3's client of a service.
    """

    region: str
    make_client: Callable[[str], Any]
    _clients: dict[str, Any] = field(default_factory=dict, init=False)

    def client(self, service: str) -> Any:
        """boto3's client of a service, made when it is first asked for."""
        if service not in self._clients:
            self._clients[service] = self.make_client(service)
        return self._clients[service]

    def identity(self) -> str:
        """The ARN of who is asking, which shows whether the credentials are good.

        :raises botocore.exceptions.ClientError: if they are not.
        """
        return str(self.client("sts").get_caller_identity()["Arn"])


def open_account(region: str | None, profile: str | None) -> Account:
    """The account of the credentials that boto3 finds: environment, profile, container, instance.

    :raises botocore.exceptions.BotoCoreError: if there is no such profile, or no region.
    """
    session = boto3.session.Session(profile_name=profile, region_name=region)
    if not session.region_name:
        raise NoRegionError()
    # A poll that is throttled is not worth giving up for; who sets the variable knows better.
    often = {} if "AWS_MAX_ATTEMPTS" in os.environ else {"total_max_attempts": 8}
    config = Config(
        retries={"mode": "standard", **often},
        user_agent_extra=f"utterwire/{metadata.version('utterwire')}",
    )
    return Account(session.region_name, lambda service: session.client(service, config=config))
