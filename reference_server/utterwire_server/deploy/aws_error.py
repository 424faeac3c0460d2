"""What AWS's library raises, in one line and with what to do next."""

from __future__ import annotations

import re
from typing import Final

from botocore import exceptions as boto

from utterwire_server.deploy.failure import DeployFailed, one_line

__all__ = ["code_of", "explained", "message_of"]

_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_DENIED: Final = frozenset(
    {
        *("AccessDenied", "AccessDeniedException", "AuthorizationError", "403"),
        *("UnauthorizedOperation", "UnauthorizedAccess", "NotAuthorized"),
    }
)
_UNKNOWN_KEY: Final = frozenset(
    {
        *("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId"),
        *("SignatureDoesNotMatch", "AuthFailure", "InvalidSignatureException"),
    }
)
_THROTTLED: Final = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded"),
        *("TooManyRequestsException", "RequestThrottled", "SlowDown", "RequestThrottledException"),
    }
)
_QUOTA: Final = frozenset(
    {
        *("LimitExceeded", "LimitExceededException", "ResourceLimitExceeded", "LimitExceededFault"),
        *("ServiceQuotaExceededException", "TooManyBuckets", "InsufficientCapacityException"),
    }
)
_BUSY: Final = frozenset({"OperationInProgressException", "ConcurrentUpdateException"})
_ACTION = re.compile(r"not authorized to perform:? ([a-zA-Z0-9-]+:[a-zA-Z0-9*]+)")

_AGAIN = "run the same command again: it goes on where it stopped"
_SIGN_IN = "sign in again (such as `aws sso login`), then " + _AGAIN


def code_of(error: boto.ClientError) -> str:
    """AWS's code of an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def message_of(error: boto.ClientError) -> str:
    """AWS's words for an error, on one line."""
    return one_line(str(error.response.get("Error", {}).get("Message", "")) or str(error))


def explained(error: boto.BotoCoreError | boto.ClientError) -> DeployFailed:
    """An error of AWS's library as a person needs it."""
    if isinstance(error, boto.ClientError):
        return _answered(error)
    for kinds, problem, next_step in _LOCAL:
        if isinstance(error, kinds):
            return DeployFailed(problem.format(error=error), next_step)
    return DeployFailed(f"AWS could not be asked: {error}", _AGAIN)


#: What happens before AWS answers anything; the first kind that fits counts.
_LOCAL: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...]] = (
    (
        (boto.ProfileNotFound, boto.ConfigParseError, boto.ConfigNotFound),
        "the AWS profile cannot be used: {error}",
        "see `aws configure list-profiles`, and name one with --profile",
    ),
    (
        boto.NoRegionError,
        "no AWS region is set",
        "name one: --region eu-west-1, or AWS_REGION, or a region in the profile",
    ),
    (
        boto.InvalidRegionError,
        "the AWS region cannot be used: {error}",
        "name another: --region eu-west-1, or AWS_REGION, or a region in the profile",
    ),
    (
        (
            *(boto.UnauthorizedSSOTokenError, boto.SSOTokenLoadError, boto.TokenRetrievalError),
            boto.CredentialRetrievalError,
        ),
        "the AWS credentials have expired or cannot be fetched: {error}",
        _SIGN_IN,
    ),
    (
        (boto.NoCredentialsError, boto.PartialCredentialsError),
        "there are no AWS credentials here: {error}",
        "sign in (`aws sso login`, `aws configure`), or set AWS_PROFILE or --profile",
    ),
    (
        (boto.ParamValidationError,),
        "AWS's library refuses the request: {error}",
        "correct that value; if you did not give it, please report it",
    ),
    (
        boto.HTTPClientError,
        "AWS cannot be reached: {error}",
        "look at the network and the region (--region), then " + _AGAIN,
    ),
)


def _answered(error: boto.ClientError) -> DeployFailed:
    code, words = code_of(error), message_of(error)
    operation = error.operation_name
    if code in _EXPIRED:
        return DeployFailed(f"the AWS credentials have expired ({operation})", _SIGN_IN)
    if code in _UNKNOWN_KEY:
        return DeployFailed(
            f"AWS does not accept these credentials: {words}",
            "see `aws sts get-caller-identity`, and sign in as somebody who exists",
        )
    if code in _DENIED:
        return _denied(operation, words)
    if code in _THROTTLED:
        return DeployFailed(
            f"AWS is asked too often at the moment ({operation}: {words})",
            "wait a minute, then " + _AGAIN,
        )
    if code in _QUOTA:
        return DeployFailed(
            f"a quota of the account is used up: {words}",
            "ask for more in the Service Quotas console, or take another --instance-type or region",
        )
    if code in _BUSY:
        return DeployFailed(
            f"AWS is still busy with an earlier change ({operation}: {words})",
            "wait until `utterwire-deploy status` shows no change in progress",
        )
    return DeployFailed(
        f"AWS refused {operation}: {words} ({code})",
        "correct that, then " + _AGAIN,
    )


def _denied(operation: str, words: str) -> DeployFailed:
    found = _ACTION.search(words)
    what = found[1] if found else operation
    return DeployFailed(
        f"no permission for {what}: {words}",
        f"have {what} allowed for you (DEPLOY.md lists what each command needs), then " + _AGAIN,
    )
