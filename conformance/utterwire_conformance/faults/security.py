"""Faults of endpoints that trust texts, or tell too much."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
)

from .catalogue import Catalogue
from .rewriting import message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()


class _Interprets(SessionTamper):
    """Speaks what a text stands for, and counts the characters that were sent."""

    def __init__(self, shared: Shared, tap: Tap, sign: str, meaning: str) -> None:
        super().__init__(shared, tap)
        self._sign = sign
        self._meaning = meaning

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not (message.is_valid_request and self._sign in message.meaning.text):
            return super().client_message(message)
        return [message_frame(message.changed(text=self._meaning), message)]

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        if chunk.type == "synthesis_complete" and message is not None:
            return [ToClient(chunk.changed(characters=len(message.meaning.text)))]
        return super().chunk(chunk)


FAULTS.add(
    "templates-evaluated",
    "What stands between double braces in a text is evaluated, and the result is spoken.",
    "security.text-is-plain",
    lambda shared, tap: _Interprets(shared, tap, "{{", "la " * 900),
)
FAULTS.add(
    "files-read-out",
    "A text that is the path of a file is taken for it, and the file is read out.",
    "security.text-is-plain",
    lambda shared, tap: _Interprets(shared, tap, "/etc/passwd", "root x 0 0 " * 100),
)
FAULTS.refuses(
    "markup-refused",
    "A text with a tag in it is taken for markup, and rejected where it is not well-formed.",
    "security.text-is-plain",
    lambda message, _: message.is_valid_request and "<!DOCTYPE" in message.meaning.text,
    "invalid_request",
)

_TRACE: Final = (
    'Traceback (most recent call last): File "app.py", line 12, in handle: ValueError: bad speed'
)
FAULTS.chunks(
    "errors-with-stack-trace",
    "The `message` of an `error` holds a stack trace.",
    "security.no-internals",
    lambda chunk, _: [chunk.changed(message=_TRACE)] if chunk.type == "error" else None,
)
FAULTS.chunks(
    "errors-with-path",
    "The `message` of an `error` names a file of the endpoint.",
    "security.no-internals",
    lambda chunk, _: (
        [chunk.changed(message="cannot open /opt/models/voices/nobody.bin")]
        if chunk.type == "error"
        else None
    ),
)


class _Logs(SessionTamper):
    """Writes every message to the log."""

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        self.shared.written += message.data + b"\n"
        return super().client_message(message)


FAULTS.add(
    "texts-logged",
    "Every message is written to the log as it came.",
    "security.text-not-logged",
    _Logs,
)
