"""Judges of the WebSocket binding (`websocket.md`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from utterwire_conformance.check import check, on_sessions
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.endpoints import SESSION_PATH
from utterwire_conformance.transcript import Entry
from utterwire_conformance.verdict import Judgement, fail, passed
from utterwire_conformance.wire import accept_key

from . import quote

__all__ = [
    "close_echo",
    "invalid_utf8_text",
    "message_too_big",
    "no_compression",
    "path",
    "ping",
    "protocol_error",
]


_OF_HANDSHAKE: Final = (
    "upgrade",
    "connection",
    "sec-websocket-accept",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
)


@check("ws.path", "probe", general=True, correlates=False)
@on_sessions("no handshake was answered")
def path(dialogue: Dialogue) -> Iterator[Judgement]:
    """A WebSocket handshake at the path opens a session."""
    if dialogue.opened is None or dialogue.scenario == "compression":
        return
    if _not_let_in(dialogue):
        return
    fault = _handshake_fault(dialogue)
    if dialogue.is_open and fault is None:
        yield passed()
        return
    if fault is not None:
        yield fail(
            f"The handshake was answered with HTTP 101, but {fault}: clients give up here.",
            sent="GET with `Upgrade: websocket`",
            received=f"HTTP 101, {_quoted(dialogue.opened)}",
            legal="what RFC 6455 section 4.2.2 asks for",
            advice="Let a WebSocket library answer the handshake.",
        )
        return
    yield fail(
        f"The handshake was answered with HTTP {dialogue.opened.status}.",
        sent=f"GET {dialogue.asked.target if dialogue.asked else SESSION_PATH} with"
        " `Upgrade: websocket`",
        received=f"HTTP {dialogue.opened.status}",
        legal="HTTP 101",
        advice=f"Serve WebSocket at {SESSION_PATH}.",
    )


def _broken_off(dialogue: Dialogue) -> bool:
    """Whether the suite left before it had sent any message, as where its budget is spent."""
    sent = any(e.dir == "out" and e.kind in ("text", "binary") for e in dialogue.entries)
    return dialogue.aborted and not sent


def _not_let_in(dialogue: Dialogue) -> bool:
    """Whether an endpoint refused for a reason it may always have: who asks, or no room."""
    return dialogue.opened is not None and dialogue.opened.status in (401, 403, 407, 429, 503)


def _handshake_fault(dialogue: Dialogue) -> str | None:
    """Why a client must fail a handshake that was answered with 101 (RFC 6455 section 4.1)."""
    asked, opened = dialogue.asked, dialogue.opened
    if asked is None or opened is None or opened.status != 101:
        return None
    key = _fields(asked).get("sec-websocket-key")
    if key is None:
        return None
    fields = _fields(opened)
    if fields.get("upgrade", "").strip().lower() != "websocket":
        return "without `Upgrade: websocket`"
    tokens = {token.strip().lower() for token in fields.get("connection", "").split(",")}
    if "upgrade" not in tokens:
        return "without `Connection: Upgrade`"
    if fields.get("sec-websocket-accept", "").strip() != accept_key(key):
        return "`Sec-WebSocket-Accept` is wrong"
    for name in ("sec-websocket-protocol", "sec-websocket-extensions"):
        if name in fields and name not in _fields(asked):
            return f"`{name}` was not offered"
    return None


def _quoted(entry: Entry) -> str:
    shown = [f"`{n}: {v}`" for n, v in _fields(entry).items() if n in _OF_HANDSHAKE]
    return ", ".join(shown) or "none of the headers of a handshake"


def _fields(entry: Entry) -> dict[str, str]:
    return {name.lower(): value for name, value in entry.headers}


@check("ws.no-compression", "compression", correlates=False)
@on_sessions("compression could not be offered")
def no_compression(dialogue: Dialogue) -> Iterator[Judgement]:
    """An offer of per-message compression is declined, and the session served."""
    opened = dialogue.opened
    if opened is None or _not_let_in(dialogue):
        return
    extensions = dict(opened.headers).get("sec-websocket-extensions", "")
    packed = [e for e in dialogue.broken_frames if e.dir == "in" and e.data and e.data[0] & 0x40]
    if opened.status == 101 and "deflate" not in extensions and not packed:
        yield passed()
        return
    yield fail(
        "Per-message compression was agreed to."
        if opened.status == 101
        else "The handshake was refused because compression was offered.",
        sent="`Sec-WebSocket-Extensions: permessage-deflate` in the handshake",
        received=f"HTTP {opened.status}, `Sec-WebSocket-Extensions: {extensions}`",
        legal="HTTP 101 without that extension",
        advice="Turn per-message compression off for this route; PCM only gets slower by it.",
    )


def _failed_with(
    dialogue: Dialogue, code: int, sent: str, reason: str, advice: str
) -> Iterator[Judgement]:
    close = dialogue.close_in
    if close is not None and close.code == code:
        yield passed()
        return
    received = quote.ending(dialogue)
    if dialogue.chunks and not dialogue.ended:
        received = quote.chunk(dialogue.chunks[-1])
    yield fail(
        reason,
        sent=sent,
        received=received,
        legal=f"a close frame with code {code}, then the end of the connection",
        advice=advice,
    )


@check("ws.invalid-utf8-text", "invalid-utf8-text", fuzzed=True, correlates=False)
@on_sessions("no such message could be sent")
def invalid_utf8_text(dialogue: Dialogue) -> Iterator[Judgement]:
    """Text that is not UTF-8 fails the connection with 1007."""
    if not dialogue.abused or not dialogue.is_open or _broken_off(dialogue):
        return
    yield from _failed_with(
        dialogue,
        1007,
        quote.sent(dialogue.sent[-1] if dialogue.sent else None),
        "Invalid UTF-8 in a text message did not fail the connection with 1007.",
        "Let the WebSocket library check text frames, and close with 1007.",
    )


@check("ws.protocol-error", "protocol-errors", correlates=False)
@on_sessions("no breach could be committed")
def protocol_error(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every breach of the framing fails the connection with 1002."""
    breach = dialogue.facts.get("breach")
    if breach is None or not dialogue.is_open:
        return
    yield from _failed_with(
        dialogue,
        1002,
        breach,
        f"A breach of RFC 6455 ({breach}) did not fail the connection with 1002.",
        "Use a WebSocket library that checks frames strictly.",
    )


@check("ws.message-too-big", "too-big", correlates=False)
@on_sessions("no message beyond the limit could be sent")
def message_too_big(dialogue: Dialogue) -> Iterator[Judgement]:
    """A message beyond the limit ends the session, with 1009 or the reason told."""
    if "too big" not in dialogue.facts or _broken_off(dialogue):
        return
    close, farewell = dialogue.close_in, dialogue.session_closed
    told = farewell is not None and farewell.fields.get("reason") == "message_too_big"
    if told:
        legal = close is None or close.code in (1000, 1009)
    else:
        legal = close is not None and close.code == 1009
    if legal:
        yield passed()
    else:
        received = quote.ending(dialogue)
        if close is None and farewell is None and dialogue.chunks:
            received = quote.chunk(dialogue.chunks[0])
        yield fail(
            "A message beyond `max_message_bytes` did not end the session as it must.",
            sent=quote.sent(dialogue.sent[-1]) if dialogue.sent else "a message, not to its end",
            received=received,
            legal="a close frame with code 1009, or `session_closed` with `reason`"
            " message_too_big and then a close frame",
            advice="Bound the size of messages while you receive them.",
        )


@check("ws.ping", "pings", "fragments", fuzzed=True, correlates=False)
@on_sessions("no ping could be sent")
def ping(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every ping has a pong with its payload."""
    if not dialogue.is_open:
        return
    for number, (_, index, payload) in enumerate(dialogue.pings):
        # The answer to a later ping will do, but not to one sent when what was asked after this
        # one had been done: by then this one does not wait any more.
        until = min(
            (
                chunk.index
                for utterance in dialogue.utterances.values()
                for chunk in (*utterance.terminals, *utterance.rejections)
                if utterance.sent.index > index
            ),
            default=None,
        )
        later = {
            other for _, at, other in dialogue.pings[number:] if until is None or at < until
        } | {payload}
        if any(at > index and answer in later for _, at, answer in dialogue.pongs):
            yield passed()
            continue
        if dialogue.hung_up or dialogue.aborted:
            continue
        got = [answer for _, at, answer in dialogue.pongs if at > index]
        yield fail(
            "A ping had no pong with the same payload.",
            sent=f"a ping with {len(payload)} bytes: {payload[:20]!r}",
            received=f"a pong with {got[0][:20]!r}" if got else "no pong",
            legal="a pong with the same payload",
            advice="Answer every ping with its own payload, also between fragments.",
        )
        return


@check("ws.close-echo", "close-frames", "pings", general=True, correlates=False)
@on_sessions("the client never closed first")
def close_echo(dialogue: Dialogue) -> Iterator[Judgement]:
    """The client's close frame is answered by a close frame."""
    ours, theirs = dialogue.close_out, dialogue.close_in
    if ours is None or dialogue.abused or dialogue.hung_up:
        return
    if theirs is not None and theirs.index < ours.index:
        return
    if theirs is not None:
        yield passed()
        return
    ended_later = dialogue.eof_index is not None and dialogue.eof_index > ours.index
    # Only there is an answer waited for as long as any.
    in_vain = dialogue.eof is None and dialogue.scenario == "close-frames"
    if ended_later or in_vain:
        yield fail(
            "A close frame was not answered by a close frame.",
            sent=quote.closing(ours.code),
            received=quote.ending(dialogue),
            legal="a close frame, then the end of the connection",
            advice="Answer a close frame before you close TCP.",
        )
