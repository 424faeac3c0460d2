"""The judges: pure functions from what was recorded to a verdict and its reasons."""

from __future__ import annotations

from . import (
    answers,
    audio,
    cases,
    closing,
    control,
    formats,
    http,
    interrupt,
    load,
    messages,
    negotiate,
    order,
    quote,
    reading,
    sagemaker,
    second,
    security,
    speech,
    sse,
    timing,
    websocket,
)
from .answers import misnumbered
from .second import second_opinion

__all__ = [
    "answers",
    "audio",
    "cases",
    "closing",
    "control",
    "formats",
    "http",
    "interrupt",
    "load",
    "messages",
    "misnumbered",
    "negotiate",
    "order",
    "quote",
    "reading",
    "sagemaker",
    "second",
    "second_opinion",
    "security",
    "speech",
    "sse",
    "timing",
    "websocket",
]
