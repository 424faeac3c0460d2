"""Scripts in which somebody interrupts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from utterwire_conformance.client_half.script import Scene, script
from utterwire_conformance.client_half.talk import Request, Talk, pcm, plain

__all__ = ["cancelled"]

_LINES: Final = ("A long story.", "Yes?")
_HEARD_S: Final = 15.0
_STORY: Final = 48_000


async def _barge_in(scene: Scene) -> None:
    await scene.say(_LINES[0])
    await scene.heard(4_800, _HEARD_S)
    await scene.interrupt()
    assert scene.talk is not None
    talk = await asyncio.wait_for(asyncio.shield(scene.talk), _HEARD_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HEARD_S):
            await talk.cancel_read.wait()
    await scene.say(_LINES[1])
    await scene.end_input()


@script("client-cancel", profile="interrupt", lines=_LINES, drive=_barge_in, patience_s=20.0)
async def cancelled(talk: Talk) -> None:
    """A story that is interrupted; one more chunk is on its way when the `cancel` is read."""
    story: Request | None = None
    while (request := await talk.next()) is not None:
        if request.meaning.type != "synthesize":
            await talk.control({"type": "cancel_done", "count": 0, **talk.about(request)})
            continue
        if story is not None or request.meaning.text != _LINES[0]:
            await plain(talk, request)
            continue
        story = request
        await talk.start(request)
        await talk.audio(request, pcm(121, _STORY // 2)[:_STORY])
        await _wait_cancel(talk, request)
    await talk.farewell()


async def _wait_cancel(talk: Talk, story: Request) -> None:
    cancel = await talk.next()
    if cancel is None or cancel.meaning.type != "cancel":
        talk.peer.note("no cancel: the client asked for more, or left")
        await talk.complete(story)
        if cancel is not None:
            await plain(talk, cancel)
        return
    # At most one more chunk, as the clause allows; nobody wants to hear it any more.
    talk.peer.note("audio after cancel: yes")
    await talk.audio(story, pcm(122, 2_400), each=4_800)
    await talk.control({"type": "cancelled", **talk.about(story), "audio_bytes": story.audio_bytes})
    await talk.control({"type": "cancel_done", "count": 1, **talk.about(cancel)})
