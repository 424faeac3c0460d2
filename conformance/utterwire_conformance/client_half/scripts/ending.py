"""Scripts of how sessions end: in order, and at each point where they should not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from utterwire_conformance.client_half.peer import Gone, Peer
from utterwire_conformance.client_half.script import Script, add, script
from utterwire_conformance.client_half.talk import Request, Talk, pcm, plain, serve
from utterwire_conformance.wire import Frame, Opcode, encode

__all__ = ["LOST", "closing", "going_away", "last_seq", "policy", "slow_goodbye"]

_GRACE_S: Final = 0.5

End = Callable[[Talk], Awaitable[None]]


async def _closed(talk: Talk) -> None:
    """A close frame with the code 1000."""
    await talk.peer.close(1000)
    await talk.peer.wait_ended(2.0)


async def _failed(talk: Talk) -> None:
    """A close frame with the code 1011."""
    await talk.peer.close(1011)
    await talk.peer.wait_ended(2.0)


async def _bare_close(talk: Talk) -> None:
    """A close frame without a code."""
    await talk.peer.close(None)
    await talk.peer.wait_ended(2.0)


async def _ended(talk: Talk) -> None:
    """The end of TCP without a close frame."""
    talk.peer.end()
    await talk.peer.wait_ended(2.0)


async def _reset(talk: Talk) -> None:
    """A TCP reset."""
    talk.peer.reset()


async def _cut(talk: Talk) -> None:
    """TCP ends in the middle of a frame."""
    half = encode(Frame(Opcode.BINARY, pcm(99)))[:500]
    talk.peer.raw(half, "the beginning of a frame that never ends")
    await talk.peer.octets(half)
    await _ended(talk)


async def _dismissed(talk: Talk) -> None:
    """`session_closed` for a shutdown."""
    answered = 1 if talk.asked else 0
    await talk.session_closed("going_away", answered)
    await talk.leave()


# Where the session ends, and how. Each how stands at several points, each point has several hows.
LOST: Final[dict[str, tuple[str, End]]] = {
    "opened-close": ("opened", _closed),
    "asked-end": ("asked", _ended),
    "asked-close": ("asked", _closed),
    "asked-reset": ("asked", _reset),
    "started-close": ("started", _bare_close),
    "started-reset": ("started", _reset),
    "middle-close": ("middle", _failed),
    "middle-cut": ("middle", _cut),
    "middle-reset": ("middle", _reset),
    "middle-dismissed": ("middle", _dismissed),
    "spoken-close": ("spoken", _closed),
    "spoken-end": ("spoken", _ended),
    "spoken-reset": ("spoken", _reset),
    "between-close": ("between", _closed),
    "between-reset": ("between", _reset),
}
"""The points and ways of losing a session."""


def _losing(point: str, end: End) -> Callable[[Talk], Awaitable[None]]:
    async def session(talk: Talk) -> None:
        if talk.number > 1:
            await serve(talk)
            return
        if point != "opened":
            request = await talk.next()
            if request is None:
                await talk.farewell()
                return
            await _until(point, talk, request)
        talk.peer.note(f"session lost: {point}")
        await end(talk)

    session.__doc__ = f"The session is lost: {point}; {(end.__doc__ or '').strip()}"
    return session


async def _until(point: str, talk: Talk, request: Request) -> None:
    if point == "asked":
        return
    await talk.start(request)
    if point == "started":
        return
    data = pcm(81)
    await talk.audio(request, data[:4800] if point == "middle" else data)
    if point == "between":
        await talk.complete(request)


for _name, (_point, _end) in LOST.items():
    script(f"client-lost-{_name}")(_losing(_point, _end))


@script("client-closing")
async def closing(talk: Talk) -> None:
    """Utterances that outlast the client's `close`, and a `session_closed` that takes its time."""
    requests = await talk.gathered(2, _GRACE_S)
    await talk.until_close(_GRACE_S)
    for request in requests:
        data = pcm(request.seq + 90)
        await talk.start(request)
        await talk.audio(request, data[:4800])
        await asyncio.sleep(_GRACE_S)
        await talk.audio(request, data[4800:])
        await talk.complete(request)
    async for request in talk.requests():
        await plain(talk, request)
    await asyncio.sleep(_GRACE_S)
    await talk.farewell()


@script("client-slow-goodbye", lines=("Goodbye.",))
async def slow_goodbye(talk: Talk) -> None:
    """A `session_closed` that comes a second after all was said."""
    async for request in talk.requests():
        await plain(talk, request)
    await asyncio.sleep(1.0)
    await talk.farewell()


@script("client-last-seq", lines=("Never read.",))
async def last_seq(talk: Talk) -> None:
    """`session_closed` crosses the first request, which is above `last_seq`."""
    if talk.number > 1 or await talk.next() is None:
        await serve(talk)
        return
    await talk.session_closed("going_away", 0, retry_after_s=0)
    await talk.leave()


@script("client-going-away", lines=("Cut short.",))
async def going_away(talk: Talk) -> None:
    """`session_closed` in the middle of an utterance that it counts as answered."""
    request = await talk.next() if talk.number == 1 else None
    if request is None:
        await serve(talk)
        return
    await talk.start(request)
    await talk.audio(request, pcm(101)[:4800])
    await talk.session_closed("policy", 1)
    await talk.leave()


@script("client-policy", lines=("Read, perhaps spoken.", "Refused."))
async def policy(talk: Talk) -> None:
    """`session_closed` with a request below `last_seq` that got no answer."""
    requests = await talk.gathered(2, _GRACE_S) if talk.number == 1 else []
    if len(requests) < 2:
        for request in requests:
            await plain(talk, request)
        await serve(talk)
        return
    await talk.reject(requests[1], "queue_full", retryable=True)
    await talk.session_closed("slow_reader", requests[1].seq)
    await talk.leave()


async def _garbage(peer: Peer, number: int) -> bool:
    """The handshake is answered by what is not HTTP."""
    with contextlib.suppress(Gone):
        await peer.read_head()
        await peer.octets(b"\x16\x03\x01\x02\x00\x01\x00 220 ready\r\n\r\n")
    peer.note("session lost: garbage")
    peer.end()
    await asyncio.sleep(0.05)
    return True


async def _wrong_key(peer: Peer, number: int) -> bool:
    """The handshake is answered with a wrong `Sec-WebSocket-Accept`."""
    await peer.read_head()
    await peer.accept(key="AAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    peer.note("session lost: wrong key")
    await peer.wait_ended(3.0)
    return True


async def _unauthorised(peer: Peer, number: int) -> bool:
    """The handshake is refused with 401."""
    await peer.read_head()
    await peer.refuse(401, ("WWW-Authenticate", "Bearer"))
    peer.note("session lost: refused")
    return True


for _name, _how in (
    ("garbage", _garbage),
    ("wrong-key", _wrong_key),
    ("unauthorised", _unauthorised),
):
    add(Script(f"client-lost-{_name}", "core", ("Nobody there.",), on_peer=_how))
