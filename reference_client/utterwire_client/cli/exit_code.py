"""What the exit status of ``utterwire`` means."""

import signal
from enum import IntEnum

from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    ExtraMissing,
    RequestInvalid,
    SpeechIncomplete,
    UtteranceRejected,
    UtterwireError,
)

__all__ = ["ExitCode", "UsageError", "exit_code_of"]


class ExitCode(IntEnum):
    """What the exit status of ``utterwire`` means."""

    DONE = 0
    #: The endpoint failed, broke the protocol, or was lost before the end.
    FAILED = 1
    #: The command line, the endpoint file, the text or the output cannot be used.
    USAGE = 2
    #: There is no way to the endpoint.
    NO_CONNECTION = 3
    #: The endpoint does not accept the request.
    REJECTED = 4
    #: The endpoint kept silent for too long.
    TIMEOUT = 5
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM
    #: Nobody reads the output any more.
    BROKEN_PIPE = 128 + signal.SIGPIPE


class UsageError(Exception):
    """The command cannot be carried out as it was given."""


def exit_code_of(error: UtterwireError) -> ExitCode:
    """The exit status of a command that ended by ``error``."""
    match error:
        case SpeechIncomplete() if isinstance(error.__cause__, UtterwireError):
            return exit_code_of(error.__cause__)
        case RequestInvalid() | ExtraMissing():
            return ExitCode.USAGE
        case ConnectFailed() | DeadlineExceeded(which="connect"):
            return ExitCode.NO_CONNECTION
        case UtteranceRejected():
            return ExitCode.REJECTED
        case DeadlineExceeded():
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.FAILED
