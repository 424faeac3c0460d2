"""Scripts of endpoints that are worth another try, but not at once."""

from __future__ import annotations

from typing import Final

from utterwire_conformance.client_half.peer import Peer
from utterwire_conformance.client_half.script import Script, add, script
from utterwire_conformance.client_half.talk import Talk, plain, serve

__all__ = ["dismissed", "overloaded"]

_TIMES: Final = 3
_LINES: Final = ("Once more.",)


async def _full(peer: Peer, number: int) -> bool:
    """Refuse the first handshakes, without a word on when to come back."""
    if number > _TIMES:
        return False
    await peer.read_head()
    await peer.refuse(503)
    return True


async def _full_for_a_second(peer: Peer, number: int) -> bool:
    """Refuse the first handshake, and say when to come back."""
    if number > 1:
        return False
    await peer.read_head()
    await peer.refuse(503, ("Retry-After", "1"))
    return True


for _name, _how in (("client-full", _full), ("client-full-for-1-s", _full_for_a_second)):
    add(Script(_name, "core", _LINES, on_peer=_how, on_session=serve, patience_s=15.0))


@script("client-overloaded", lines=("Once more.", "And another."), patience_s=15.0)
async def overloaded(talk: Talk) -> None:
    """A request is rejected as long as the endpoint has no room, three times."""
    async for request in talk.requests():
        refused = request.meaning.text == "Once more." and request.number <= _TIMES
        if refused and talk.number <= _TIMES:
            await talk.reject(request, "overloaded", retryable=True)
        else:
            await plain(talk, request)
    await talk.farewell()


@script("client-dismissed-for-1-s", lines=_LINES, patience_s=15.0)
async def dismissed(talk: Talk) -> None:
    """The endpoint goes away before the first request, and says when to come back."""
    if talk.number > 1 or await talk.next() is None:
        await serve(talk)
        return
    await talk.session_closed("going_away", 0, retry_after_s=1)
    await talk.leave()
