"""HTTP exchanges as data: what was asked, what was answered, how the body ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .event_stream import names_events
from .strict_json import NotJson, NotUtf8, parse
from .transcript import Case, Entry

__all__ = ["Exchange", "exchanges"]


@dataclass(slots=True)
class Exchange:
    """One request and its response; `headers` of the response by name in lower case.

    `clean` is None where the end of the body was not seen, else whether it ended as HTTP says.
    `first_byte_t` and `end_t` are times of the transcript.
    """

    method: str
    target: str
    request_headers: dict[str, str]
    request_body: bytes
    sent_t: float
    session: int
    case: Case | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    clean: bool | None = None
    head_t: float | None = None
    first_byte_t: float | None = None
    end_t: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def request(self) -> dict[str, Any]:
        """The fields of the request's body, or nothing where it is not an object."""
        return _object(self.request_body) or {}

    @property
    def json(self) -> dict[str, Any] | None:
        """The object that is the response's body, if it is one."""
        return _object(self.body)

    @property
    def is_synthesis(self) -> bool:
        """Whether speech was asked for."""
        return self.method == "POST" and self.target == "/invocations"

    @property
    def asks_for_events(self) -> bool:
        """Whether its `Accept` names server-sent events (`sse.md#opening`)."""
        return names_events(self.request_headers.get("accept", ""))


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = parse(data).value
    except (NotJson, NotUtf8):
        return None
    return value if isinstance(value, dict) else None


def exchanges(entries: Sequence[Entry]) -> list[Exchange]:
    """The exchanges in the lines of one connection."""
    found: list[Exchange] = []
    bodies: list[bytearray] = []
    case: Case | None = None
    for entry in entries:
        if entry.kind == "note":
            case = Case.from_note(entry.text or "") or case
            if found and not (entry.text or "").startswith("case "):
                found[-1].notes.append(entry.text or "")
        elif entry.kind == "http-request":
            bodies.append(bytearray())
            headers: dict[str, str] = {}
            for name, value in entry.headers:
                before = headers.get(name.lower())
                headers[name.lower()] = value if before is None else f"{before}, {value}"
            found.append(
                Exchange(
                    entry.method or "",
                    entry.target or "",
                    headers,
                    entry.data,
                    entry.t,
                    entry.session,
                    case,
                )
            )
            case = None
        elif found:
            _answer(found[-1], entry, bodies[-1])
    for exchange, body in zip(found, bodies, strict=True):
        exchange.body = bytes(body)
    return found


def _answer(exchange: Exchange, entry: Entry, body: bytearray) -> None:
    if entry.kind == "http-response":
        exchange.status = entry.status
        exchange.headers = {name.lower(): value for name, value in entry.headers}
        exchange.head_t = entry.t
    elif entry.kind == "http-body":
        body += entry.data
        if entry.data and exchange.first_byte_t is None:
            exchange.first_byte_t = entry.t
        if entry.fin:
            exchange.clean, exchange.end_t = True, entry.t
    elif entry.kind == "eof" and entry.dir == "in" and exchange.clean is None:
        exchange.clean, exchange.end_t = False, entry.t
