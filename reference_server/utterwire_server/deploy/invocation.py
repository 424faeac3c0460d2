"""One text spoken by the endpoint, as `POST /invocations` has it (`http.md`)."""

from __future__ import annotations

import json
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from botocore.exceptions import ClientError, EventStreamError, HTTPClientError
from urllib3.exceptions import HTTPError as TransportError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of, message_of
from utterwire_server.deploy.failure import DeployFailed

__all__ = ["Spoken", "invoke", "write_audio"]

_RATE: Final = 24_000


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came back: how much, and how long the first of it took, in seconds."""

    audio_bytes: int
    first_byte_s: float
    took_s: float
    content_type: str


def invoke(
    account: Account,
    name: str,
    text: str,
    take: Callable[[bytes], object],
    *,
    voice: str | None = None,
    format: str | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Spoken:
    """Have an endpoint speak, and pass on each part as it comes.

    :param take: is given the audio, part by part: without a ``format`` PCM of 16 bits at 24,000 Hz.
    :raises DeployFailed: if the endpoint is not there, refuses, or breaks off.
    """
    body = {"text": text, "voice": voice, "format": format}
    began = now()
    first: float | None = None
    total = 0
    try:
        answer = account.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
            EndpointName=name,
            ContentType="application/json",
            Body=json.dumps({key: value for key, value in body.items() if value is not None}),
        )
        with closing(answer["Body"]) as stream:
            for part in _parts(stream):
                if first is None:
                    first = now() - began
                total += len(part)
                take(part)
    except ClientError as error:
        raise _refused(name, error) or error from None
    except (HTTPClientError, TransportError) as error:
        raise DeployFailed(
            f"endpoint {name} broke off after {total} bytes: {error}",
            f"try again; utterwire-deploy status {name} shows how it is",
        ) from None
    if first is None:
        raise DeployFailed(
            f"endpoint {name} sent no audio", "give a text that has letters or digits"
        )
    return Spoken(total, first, now() - began, answer.get("ContentType", ""))


def _parts(stream: Any) -> Iterator[bytes]:
    """Bytes of a response stream; an exception in it is raised by the library itself."""
    for event in stream:
        part = event.get("PayloadPart", {}).get("Bytes", b"")
        if part:
            yield part


def _refused(name: str, error: ClientError) -> DeployFailed | None:
    """What an endpoint, or SageMaker AI in front of it, said; None if it is nothing of theirs."""
    code, words = code_of(error), message_of(error)
    if isinstance(error, EventStreamError):
        return DeployFailed(
            f"endpoint {name} broke off: {words} ({code})",
            f"utterwire-deploy status {name} shows the end of its log",
        )
    if code == "ModelError":
        status = error.response.get("OriginalStatusCode", "")
        told = error.response.get("OriginalMessage") or words
        return DeployFailed(
            f"endpoint {name} refused ({status}): {_told(told)}",
            "correct the text, voice or format; after a 503, try again",
        )
    if code in ("ValidationError", "ValidationException") and "not found" in words:
        return DeployFailed(
            f"there is no endpoint {name} in this region",
            f"utterwire-deploy up {name}, or another --region",
        )
    if code in ("ServiceUnavailable", "ServiceUnavailableException", "InternalFailure"):
        return DeployFailed(
            f"endpoint {name} is not available: {words}",
            f"try again; utterwire-deploy status {name} shows how it is",
        )
    return None


def _told(body: str) -> str:
    """The message in an error of `POST /invocations`, or the text as it is."""
    try:
        told = json.loads(body)
        return f"{told['message']} ({told['code']})"
    except (ValueError, TypeError, KeyError):
        return body


def write_audio(audio: bytes, out: Path | BinaryIO, format: str | None, rate: int = _RATE) -> None:
    """Write speech: PCM as a WAV file where it goes to a file ending in ``.wav``, else as it is.

    :param format: of the audio; None for PCM of 16 bits, one channel.
    :param rate: of PCM, in Hz.
    :raises DeployFailed: if it cannot be written.
    """
    try:
        if not isinstance(out, Path):
            out.write(audio)
            out.flush()
        elif format is None and out.suffix.lower() == ".wav":
            with wave.open(str(out), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes(audio)
        else:
            out.write_bytes(audio)
    except OSError as error:
        where = out if isinstance(out, Path) else "stdout"
        raise DeployFailed(
            f"{where}: {error.strerror or error}", "give another file with --output"
        ) from None
