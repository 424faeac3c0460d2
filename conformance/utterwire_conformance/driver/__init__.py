"""The recording driver: it puts anything on the wire and writes down all that comes back."""

from __future__ import annotations

from .bare import BareConnection
from .connection import Address, ConnectFailed, tls_context
from .delay import OwnDelay
from .http import HttpConnection, fetch_status
from .recorder import Recorder
from .websocket import HandshakeRefused, NotCarried, WebSocketSession

__all__ = [
    "Address",
    "BareConnection",
    "ConnectFailed",
    "HandshakeRefused",
    "HttpConnection",
    "NotCarried",
    "OwnDelay",
    "Recorder",
    "WebSocketSession",
    "fetch_status",
    "tls_context",
]
