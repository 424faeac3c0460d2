"""The way to what needs the AWS SDK, where that is installed."""

import sys
from types import ModuleType

from utterwire_client.errors import ExtraMissing

__all__ = ["sagemaker"]


def sagemaker() -> ModuleType:
    """The module of the SageMaker transport. Raises :class:`ExtraMissing`."""
    if sys.version_info < (3, 12):
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise ExtraMissing(
            f"SageMaker needs Python 3.12 or newer, as the AWS SDK does; this is {running}"
        )
    try:
        from utterwire_client import sagemaker as module
    except ModuleNotFoundError as exc:
        missing = (exc.name or "boto3").partition(".")[0]
        raise ExtraMissing(
            f"SageMaker needs the package {missing}: pip install 'utterwire[client,aws]'"
        ) from None
    return module
