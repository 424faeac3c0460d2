"""What can be seen through SageMaker, and the reason where something cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .requirements import Requirement
from .transcript import Transcript

__all__ = ["NOTE", "SAGEMAKER", "SageMakerTarget", "unseen", "was_by_sagemaker"]

SAGEMAKER: Final = "sagemaker"
"""The transport of `via` in `requirements.yaml`, and the value of `--via`."""

NOTE: Final = f"via: {SAGEMAKER}"
"""The remark that a session was carried by SageMaker."""

_PONGS: Final = "pings stay between the router and the container: the caller sees none of them"
_CLOSING: Final = (
    "who closes, when and with which code stays between the router and the container: the caller"
    " sees a `ModelStreamError`, or the end of the stream"
)
_FRAMES: Final = (
    "the router makes the frames: how the container cuts and marks its own is what it makes of them"
)
_STOP: Final = "a host behind SageMaker cannot be told to shut down"
_STALL: Final = "a reader that stalls is one of the router's, which has buffers of its own"
_TIMES: Final = "how soon the container accepts and answers is seen by the router alone"
_HTTP: Final = "HTTP has a leg of its own, which `--via` does not take"
_OTHER: Final = "it cannot be seen through SageMaker"
_REASONS: Final = (
    ("read.pong", _PONGS),
    ("ws.ping", _PONGS),
    ("sagemaker.pong", _PONGS),
    ("close.", _CLOSING),
    ("ws.close", _CLOSING),
    ("ws.message-too-big", _CLOSING),
    ("ws.invalid-utf8", _CLOSING),
    ("ws.protocol-error", _CLOSING),
    ("sagemaker.client-closes", _CLOSING),
    ("control.text-frame", _FRAMES),
    ("audio.binary-frame", _FRAMES),
    ("chunk.unfragmented", _FRAMES),
    ("sagemaker.untyped-part", _FRAMES),
    ("sagemaker.partial-parts", _FRAMES),
    ("ws.", "the router opens the WebSocket, not the caller"),
    ("shutdown.", _STOP),
    ("sagemaker.sigterm", _STOP),
    ("session-closed.last-seq", _STOP),
    ("cancel.unsent", _STALL),
    ("load.", _STALL),
    ("idle.", "the router ends an idle session by rules of its own"),
    ("sagemaker.accept", _TIMES),
    ("sagemaker.port", "the port is the container's: the caller sees none of it"),
    ("sagemaker.ping", _TIMES),
    ("http.", _HTTP),
    ("sse.", _HTTP),
    ("sagemaker.headers", _HTTP),
)


@dataclass(frozen=True, slots=True)
class SageMakerTarget:
    """An endpoint of SageMaker; what is None is that of the AWS configuration.

    `keys` are the access key and the secret of a router; without them boto3's chain is asked.
    """

    name: str
    region: str | None = None
    profile: str | None = None
    variant: str | None = None
    endpoint_url: str | None = None
    ca_file: Path | None = None
    keys: tuple[str, str] | None = field(default=None, repr=False)


def unseen(row: Requirement) -> str | None:
    """Why a requirement is not judged through SageMaker, or None if it is."""
    if SAGEMAKER in row.via:
        return None
    reason = next((words for start, words in _REASONS if row.id.startswith(start)), _OTHER)
    return f"not through SageMaker: {reason}"


def was_by_sagemaker(transcripts: Iterable[Transcript]) -> bool:
    """Whether sessions were carried by SageMaker, as the transcripts tell."""
    return any(entry.text == NOTE for t in transcripts for entry in t.entries[:8])
