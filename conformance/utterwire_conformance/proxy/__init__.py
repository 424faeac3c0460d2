"""A proxy that stands between a client and an endpoint and breaks one rule at a time."""

from .action import Action, CloseSession, CutSession, Pause, ToClient, ToEndpoint
from .server import FaultProxy, Tampers
from .tamper import ExchangeTamper, Head, Request, SessionTamper, Shared
from .tap import Chunk, ClientMessage, Tap, control_frame, rewritten

__all__ = [
    "Action",
    "Chunk",
    "ClientMessage",
    "CloseSession",
    "CutSession",
    "ExchangeTamper",
    "FaultProxy",
    "Head",
    "Pause",
    "Request",
    "SessionTamper",
    "Shared",
    "Tampers",
    "Tap",
    "ToClient",
    "ToEndpoint",
    "control_frame",
    "rewritten",
]
