"""Scripts of server-sent events, delivered in every way that TCP may deliver them."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Final

from utterwire_conformance.client_half.peer import Peer
from utterwire_conformance.client_half.script import exchange
from utterwire_conformance.client_half.talk import pcm

__all__ = ["byte_by_byte", "cut_off", "in_one", "plainly", "split"]

_HEAD: Final = (
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-store"),
    ("Transfer-Encoding", "chunked"),
    ("Connection", "close"),
)
_RATE: Final = 24_000


def event(name: str, fields: dict[str, Any]) -> bytes:
    """One event, with its blank line."""
    return f"event: {name}\ndata: {json.dumps(fields, ensure_ascii=False)}\n\n".encode()


def stream(data: bytes, *, each: int = 2_400) -> list[bytes]:
    """The events of an utterance."""
    start = {"format": "pcm_s16le", "voice": "script", "sample_rate": _RATE}
    pieces = [data[place : place + each] for place in range(0, len(data), each)]
    found = [event("audio_stream_start", start)]
    for seq, piece in enumerate(pieces):
        fields = {"seq": seq, "data": base64.b64encode(piece).decode()}
        found.append(event("audio_chunk", fields))
    duration = round(len(data) / (2 * _RATE), 6)
    found.append(event("audio_stream_end", {"total_chunks": len(pieces), "duration_s": duration}))
    return found


async def _deliver(peer: Peer, *parts: bytes, apart_s: float = 0.0) -> None:
    for part in parts:
        await peer.body(part)
        await asyncio.sleep(apart_s)
    await peer.body_end()


@exchange("client-sse-plain", profile="sse")
async def plainly(peer: Peer, number: int) -> None:
    """An event in each delivery."""
    await peer.respond(200, *_HEAD)
    await _deliver(peer, *stream(pcm(220 + number)))


@exchange("client-sse-bytes", profile="sse", lines=("Byte by byte.",))
async def byte_by_byte(peer: Peer, number: int) -> None:
    """One octet in each delivery, with code points of several octets among them."""
    await peer.respond(200, *_HEAD)
    # A few hundred deliveries: each takes a moment of its own.
    events = stream(pcm(230, 24), each=16)
    events.insert(1, event("text_delta", {"text": "zażółć \U0001f600"}))
    octets = b"".join(events)
    await _deliver(peer, *(octets[place : place + 1] for place in range(len(octets))))


@exchange("client-sse-one", profile="sse", lines=("All in one.",))
async def in_one(peer: Peer, number: int) -> None:
    """Every event in one delivery; comments, and `data` of several lines, among them."""
    await peer.respond(200, *_HEAD)
    events = stream(pcm(240))
    events.insert(0, b": welcome\n\n")
    events.insert(2, event("agent_start", {"agent": "script"}))
    events.insert(3, b":\n\n:keep: alive\n\n")
    lines = events[5].decode().replace(', "data"', ',\ndata: "data"')
    events[5] = lines.replace("data: {", "data:{").encode()
    events.append(event("agent_end", {}))
    await _deliver(peer, b"".join(events))


@exchange("client-sse-split", profile="sse", lines=("Split anywhere.", "Again."))
async def split(peer: Peer, number: int) -> None:
    """Deliveries that end in the middle of lines, of events and between the two line ends."""
    await peer.respond(200, *_HEAD)
    octets = b"".join(stream(pcm(250 + number)))
    end = octets.index(b"\n\n") + 1
    cuts = [3, end, end + 1, end + 5, len(octets) // 2, len(octets) - 40, len(octets) - 1]
    parts = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    await _deliver(peer, *parts, apart_s=0.03)


@exchange("client-sse-cut", profile="sse", lines=("Cut off.", "Whole."))
async def cut_off(peer: Peer, number: int) -> None:
    """A stream that ends before the blank line of its last event: that event never was."""
    await peer.respond(200, *_HEAD)
    events = stream(pcm(260 + number))
    if number == 1:
        events[-1] = events[-1].removesuffix(b"\n")
        peer.note("stream cut: yes")
    await _deliver(peer, *events)
