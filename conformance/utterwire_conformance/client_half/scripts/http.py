"""Scripts of `POST /invocations`."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from utterwire_conformance.client_half.peer import Peer
from utterwire_conformance.client_half.script import OnExchange, Script, add, exchange
from utterwire_conformance.client_half.talk import pcm

__all__ = ["failing", "full", "plainly"]

_AUDIO: Final = (
    ("Content-Type", "audio/pcm;rate=24000;channels=1"),
    ("Utterwire-Sample-Rate", "24000"),
    ("Utterwire-Format", "pcm_s16le"),
    ("Utterwire-Voice", "script"),
    ("Connection", "close"),
)
_CHUNKED: Final = ("Transfer-Encoding", "chunked")
_PIECE: Final = 2_400


async def speak(peer: Peer, number: int, each: int = _PIECE) -> None:
    """Answer with audio, in pieces of `each` bytes."""
    data = pcm(200 + number)
    await peer.respond(200, *_AUDIO, _CHUNKED)
    for place in range(0, len(data), each):
        await peer.body(data[place : place + each])
    await peer.body_end()


async def tell(peer: Peer, status: int, code: str, *fields: tuple[str, str], **more: bool) -> None:
    """Answer with an `error`."""
    error = {"type": "error", "code": code, "message": "The script says so.", **more}
    body = json.dumps(error).encode()
    own = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
    await peer.respond(status, *own, ("Connection", "close"), *fields)
    await peer.body(body, chunked=False)
    await peer.body_end(chunked=False)


@exchange("client-http-plain", profile="http")
async def plainly(peer: Peer, number: int) -> None:
    """Audio, as every endpoint should send it."""
    await speak(peer, number)


@exchange("client-http-errors", profile="http", lines=("Refused.", "Spoken."))
async def failing(peer: Peer, number: int) -> None:
    """A refusal, then audio in pieces that split samples."""
    if number == 1:
        await tell(peer, 400, "invalid_voice", retryable=False, rejected=True)
    else:
        await speak(peer, number, each=1_001)


@exchange("client-http-full", profile="http", lines=("Later.",), patience_s=15.0)
async def full(peer: Peer, number: int) -> None:
    """No room for a second."""
    if number == 1:
        refused = {"retryable": True, "rejected": True}
        await tell(peer, 503, "overloaded", ("Retry-After", "1"), **refused)
    else:
        await speak(peer, number)


def _cutting(*, chunked: bool, reset: bool, at_once: bool) -> OnExchange:
    async def cut(peer: Peer, number: int) -> None:
        if number != 1:
            await speak(peer, number)
            return
        data = pcm(210)
        length = ("Content-Length", str(len(data)))
        await peer.respond(200, *_AUDIO, _CHUNKED if chunked else length)
        if not at_once:
            await peer.body(data[:4800], chunked=chunked)
            # What is still in the buffers would be lost by a reset.
            await asyncio.sleep(0.1)
        peer.note("body cut: yes")
        if reset:
            peer.reset()
        else:
            peer.end()
            await asyncio.sleep(0.1)

    how = "by a reset" if reset else "by the end of TCP"
    cut.__doc__ = f"A body {'in chunks' if chunked else 'of a stated length'} is cut off {how}."
    return cut


for _name, _how in (
    ("chunked", _cutting(chunked=True, reset=False, at_once=False)),
    ("length", _cutting(chunked=False, reset=False, at_once=False)),
    ("reset", _cutting(chunked=True, reset=True, at_once=False)),
    ("empty", _cutting(chunked=True, reset=False, at_once=True)),
):
    add(
        Script(
            f"client-http-cut-{_name}",
            "http",
            ("It is cut off.", "Whole again."),
            on_exchange=_how,
        )
    )
