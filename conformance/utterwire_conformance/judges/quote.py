"""Quoting the wire in a report: short, on one line, and still telling."""

from __future__ import annotations

from typing import Final

from utterwire_conformance.dialogue import Chunk, Dialogue, Sent
from utterwire_conformance.exchange import Exchange

__all__ = ["answer", "chunk", "closing", "ending", "exchange_request", "octets", "sent"]

_WIDTH: Final = 160


def octets(data: bytes, kind: str = "text") -> str:
    """A payload: text if it is text, else hex; cut in the middle where it is long."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if kind != "text" and not data.startswith(b"{"):
        text = ""
    if not text and data:
        shown = data[:24].hex(" ")
        return f"{len(data)} bytes {shown}{' …' if len(data) > 24 else ''}"
    if len(text) > _WIDTH:
        text = f"{text[: _WIDTH - 40]} … {text[-30:]} ({len(data)} bytes)"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def sent(message: Sent | None) -> str:
    """A client message."""
    if message is None:
        return ""
    case = f" [{message.case.name}]" if message.case is not None else ""
    return f"message {message.seq}, {message.kind} frame{case}: {octets(message.data)}"


def chunk(received: Chunk | None) -> str:
    """A chunk from the endpoint."""
    if received is None:
        return "nothing"
    if received.is_control:
        return f"{octets(received.data)} ({received.kind} frame)"
    return f"{received.kind} frame of {octets(received.data, received.kind)}"


def closing(code: int | None) -> str:
    """A close frame."""
    return "a close frame without a code" if code is None else f"a close frame with code {code}"


def ending(dialogue: Dialogue) -> str:
    """How a session ended."""
    if dialogue.session_closed is not None:
        return chunk(dialogue.session_closed)
    if dialogue.close_in is not None:
        return closing(dialogue.close_in.code)
    if dialogue.eof is not None:
        return f"the connection ended without a close frame ({dialogue.eof.reason})"
    return "nothing: the session stayed open and silent"


def exchange_request(exchange: Exchange) -> str:
    """An HTTP request."""
    body = f" {octets(exchange.request_body)}" if exchange.request_body else ""
    return f"{exchange.method} {exchange.target}{body}"


def answer(exchange: Exchange) -> str:
    """An HTTP response."""
    if exchange.status is None:
        return "no response"
    kind = exchange.headers.get("content-type", "no content type")
    body = f": {octets(exchange.body[:400], 'binary')}" if exchange.body else ", no body"
    return f"HTTP {exchange.status}, {kind}{body}"
