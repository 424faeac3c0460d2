"""What can go wrong, as types.

Every exception here is an :class:`UtterwireError`, says in one line what is wrong and what to do,
and carries what a program needs to decide whether to try again. Nothing of the header fields or of
the user part of an address is ever in a message.
"""

from typing import Literal

__all__ = [
    "AccessDenied",
    "AudioMissing",
    "ConnectFailed",
    "ContainerRefused",
    "CredentialsUnusable",
    "DeadlineExceeded",
    "EndpointMissing",
    "EndpointNotReady",
    "ExtraMissing",
    "InterruptUnavailable",
    "InvocationInvalid",
    "PeerViolation",
    "PlatformFailed",
    "PlatformUnavailable",
    "RequestInvalid",
    "SessionLost",
    "SpeechIncomplete",
    "UtteranceCancelled",
    "UtteranceFailed",
    "UtteranceRejected",
    "UtterwireError",
    "Waiting",
]

#: What was being waited for when a deadline passed.
Waiting = Literal["connect", "first_chunk", "stall", "send", "answer", "unread"]


class UtterwireError(Exception):
    """The base of all of them; ``retryable`` tells whether the same thing may work later."""

    retryable: bool = False


class RequestInvalid(UtterwireError, ValueError):
    """The caller asked for something that no endpoint may be asked for; nothing was sent."""


class ExtraMissing(UtterwireError):
    """A package is missing that this needs; the message says what to install."""


class ConnectFailed(UtterwireError):
    """No session could be opened.

    ``status`` is the HTTP status of the answer, where there was one; ``retry_after_s`` is what its
    ``Retry-After`` said, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.status = status
        self.retry_after_s = retry_after_s


class CredentialsUnusable(ConnectFailed):
    """AWS: there are no credentials, or they are wrong or expired."""


class AccessDenied(ConnectFailed):
    """AWS: these credentials may not do that."""


class EndpointMissing(ConnectFailed):
    """SageMaker: there is no endpoint of that name in this region and account."""


class EndpointNotReady(ConnectFailed):
    """SageMaker: the endpoint takes no calls; ``state`` is its status, as ``Creating``."""

    def __init__(self, message: str, *, state: str, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.state = state


class InvocationInvalid(ConnectFailed):
    """SageMaker: the call was malformed (``InputValidationError``)."""


class ContainerRefused(ConnectFailed):
    """SageMaker: the container did not take the call (``ModelError``).

    ``original_status`` is the HTTP status that the container answered, where there was one, and
    ``original_message`` the body of that.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        original_status: int | None = None,
        original_message: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, retryable=retryable, status=status)
        self.original_status = original_status
        self.original_message = original_message


class PlatformFailed(ConnectFailed):
    """SageMaker: the platform failed (``InternalServerError``)."""


class PlatformUnavailable(ConnectFailed):
    """SageMaker: the platform has no room (``ServiceUnavailableError``)."""


class Throttled(ConnectFailed):
    """AWS: too many calls."""


class DeadlineExceeded(UtterwireError, TimeoutError):
    """The peer kept silent for longer than a deadline of the client allows.

    ``which`` names the deadline; ``seconds`` is its length; ``audio_bytes`` counts what of this
    utterance had arrived. After ``connect`` there is no session; after any other the session is
    over, for a peer that went silent cannot be relied on (``protocol.md#timeouts``). ``retryable``
    is False where the peer had mixed up utterances before: the audio of this one may have come as
    that of another.
    """

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        which: Waiting,
        seconds: float,
        request_id: str | None = None,
        audio_bytes: int = 0,
    ) -> None:
        super().__init__(message)
        self.which: Waiting = which
        self.seconds = seconds
        self.request_id = request_id
        self.audio_bytes = audio_bytes


class SessionLost(UtterwireError):
    """The session ended before this utterance did, or was over when it was asked for.

    ``reason`` is that of ``session_closed``, or None where the transport broke or was closed
    without one; ``code`` is the WebSocket close code, where there was one; ``error`` is
    ``ModelStreamError`` or ``InternalStreamFailure`` where SageMaker said so. ``audio_bytes``
    counts what of this utterance had arrived: it is not the whole of it. ``processed`` is False
    where the endpoint said that it never looked at the request (its ``seq`` is above
    ``last_seq``), so that sending it again cannot speak it twice, and None where nobody knows.
    ``retryable`` is False, too, where the endpoint had mixed up utterances before: the audio of
    this one may have come as that of another.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        reason: str | None = None,
        code: int | None = None,
        error: str | None = None,
        request_id: str | None = None,
        audio_bytes: int = 0,
        processed: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.reason = reason
        self.code = code
        self.error = error
        self.request_id = request_id
        self.audio_bytes = audio_bytes
        self.processed = processed
        self.retry_after_s = retry_after_s


class UtteranceRejected(UtterwireError):
    """The endpoint did not accept the request (``error`` with ``rejected``); the session lives on.

    ``code`` is from the registry of ``protocol.md#error-codes``, or one of a later version.
    ``retry_after_s`` is what the ``error``, or HTTP's ``Retry-After``, said, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retryable: bool,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class UtteranceFailed(UtterwireError):
    """The endpoint gave up on an utterance it had accepted; the session lives on.

    ``audio_bytes`` counts what had arrived: it is not the whole of it. ``code`` is ``internal``
    where the endpoint gave none. ``retry_after_s`` is what the ``error``, or HTTP's
    ``Retry-After``, said, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retryable: bool,
        request_id: str | None = None,
        audio_bytes: int = 0,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.request_id = request_id
        self.audio_bytes = audio_bytes
        self.retry_after_s = retry_after_s


class AudioMissing(UtterwireError):
    """The endpoint completed an utterance, but says that it sent more audio than came.

    ``audio_bytes`` counts what came, ``missing_bytes`` what did not. Raised by what wants the
    whole of the audio; who iterates gets ``Complete``, with ``missing_bytes``.
    """

    retryable = True

    def __init__(
        self, message: str, *, audio_bytes: int, missing_bytes: int, request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.audio_bytes = audio_bytes
        self.missing_bytes = missing_bytes
        self.request_id = request_id


class UtteranceCancelled(UtterwireError):
    """The utterance was cut short by a ``cancel``, or given up by its reader.

    ``audio_bytes`` counts what had arrived; what of it had not been read yet was dropped.
    """

    def __init__(
        self, message: str, *, request_id: str | None = None, audio_bytes: int = 0
    ) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.audio_bytes = audio_bytes


class SpeechIncomplete(UtterwireError):
    """A speech ended before all of it was spoken.

    ``text`` is the sentence that was not spoken, or not to its end, as it stands in the input;
    ``audio_bytes`` counts what of it was yielded. ``unspoken`` is all that had been taken from the
    input and was not spoken, from the beginning of that sentence on. The reason is ``__cause__``,
    and what it says of ``retryable`` holds.
    """

    def __init__(
        self, message: str, *, text: str, unspoken: str, audio_bytes: int, retryable: bool
    ) -> None:
        super().__init__(message)
        self.text = text
        self.unspoken = unspoken
        self.audio_bytes = audio_bytes
        self.retryable = retryable


class InterruptUnavailable(UtterwireError):
    """The endpoint does not understand ``cancel`` (profile ``interrupt``)."""


class PeerViolation(UtterwireError):
    """The endpoint broke a rule of the specification that the session can live with.

    ``requirement`` is the id of the rule. Passed to ``on_violation``, not raised.
    """

    def __init__(self, message: str, *, requirement: str) -> None:
        super().__init__(message)
        self.requirement = requirement
