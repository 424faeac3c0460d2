"""The scenarios: what is played on an endpoint, so that judges have something to look at."""

from __future__ import annotations

from . import (
    accepted,
    audio,
    closing,
    conversation,
    formats,
    http,
    interrupt,
    load,
    negotiate,
    probe,
    rejected,
    sagemaker,
    security,
    sse,
    timing,
    websocket,
)
from .negotiate import stated
from .probe import out_of_order, probed, spent, spoke

__all__ = [
    "accepted",
    "audio",
    "closing",
    "conversation",
    "formats",
    "http",
    "interrupt",
    "load",
    "negotiate",
    "out_of_order",
    "probe",
    "probed",
    "rejected",
    "sagemaker",
    "security",
    "spent",
    "spoke",
    "sse",
    "stated",
    "timing",
    "websocket",
]
