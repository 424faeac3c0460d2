"""Scripts of endpoints that fall silent, each at another point."""

from __future__ import annotations

from typing import Final

from utterwire_conformance.client_half.peer import Peer
from utterwire_conformance.client_half.script import Script, add, script
from utterwire_conformance.client_half.talk import Talk, pcm, plain

__all__ = ["after_close", "before_audio", "in_the_middle"]

_LINES: Final = ("Is anybody there?",)
_FOR_GOOD_S: Final = 600.0
# A client may try again a few times before it gives up.
_PATIENCE_S: Final = 14.0


async def _hush(peer: Peer, point: str) -> None:
    peer.note(f"silent: {point}")
    await peer.wait_ended(_FOR_GOOD_S)


async def _at_the_door(peer: Peer, number: int) -> bool:
    """The handshake is never answered."""
    await peer.read_head()
    peer.note("silent: handshake")
    await peer.read_on()
    return True


add(
    Script(
        "client-silent-handshake",
        "core",
        _LINES,
        on_peer=_at_the_door,
        silent=True,
        patience_s=_PATIENCE_S,
    )
)


@script("client-silent-request", lines=_LINES, silent=True, patience_s=_PATIENCE_S)
async def before_audio(talk: Talk) -> None:
    """Nothing comes after the request."""
    if await talk.next() is not None:
        await _hush(talk.peer, "request")


@script("client-silent-middle", lines=_LINES, silent=True, patience_s=_PATIENCE_S)
async def in_the_middle(talk: Talk) -> None:
    """Nothing comes after the first audio; pings are answered."""
    request = await talk.next()
    if request is not None:
        await talk.start(request)
        await talk.audio(request, pcm(111)[:4800])
        await _hush(talk.peer, "middle")


@script("client-silent-close", lines=_LINES, silent=True, patience_s=_PATIENCE_S)
async def after_close(talk: Talk) -> None:
    """`close` is never answered."""
    async for request in talk.requests():
        await plain(talk, request)
    if talk.closing:
        await _hush(talk.peer, "close")
