"""The ways for an endpoint to be wrong, each of which some check must find."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from . import (
    audio,
    control,
    formats,
    http,
    interrupt,
    load,
    messages,
    negotiate,
    ordering,
    rejections,
    sagemaker,
    security,
    sse,
    timing,
    transport,
)
from .command import main_proxy
from .fault import Fault
from .oddities import ODDITIES
from .oddity import Combined, Oddity

__all__ = ["FAULTS", "ODDITIES", "Combined", "Fault", "Oddity", "main_proxy"]

FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        fault.name: fault
        for catalogue in (
            messages.FAULTS,
            rejections.FAULTS,
            control.FAULTS,
            ordering.FAULTS,
            audio.FAULTS,
            transport.FAULTS,
            http.FAULTS,
            formats.FAULTS,
            interrupt.FAULTS,
            negotiate.FAULTS,
            timing.FAULTS,
            sse.FAULTS,
            sagemaker.FAULTS,
            security.FAULTS,
            load.FAULTS,
        )
        for fault in catalogue
    }
)
"""Every fault by its name."""
