"""Errors of the core, which say whose fault it is."""

from __future__ import annotations

__all__ = ["LocalProtocolError", "ProtocolError", "RemoteProtocolError"]


class ProtocolError(Exception):
    """The protocol was broken. Never raised itself: one of the two below tells by whom."""


class LocalProtocolError(ProtocolError):
    """The program that uses the core asked for something that the protocol does not allow here.

    Nothing was queued and no state has changed.
    """


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow.

    ``requirement`` is the id of the broken rule in ``spec/requirements.yaml``; ``code`` is the
    error code that tells the peer (``protocol.md#error-codes``).
    """

    def __init__(self, requirement: str, code: str, message: str) -> None:
        super().__init__(message)
        self.requirement = requirement
        self.code = code
        self.message = message
