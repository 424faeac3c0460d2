"""Scripts of endpoints that speak: plainly, oddly, slowly, in disorder."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from utterwire_schemas import octets, vectors

from utterwire_conformance.client_half.script import script
from utterwire_conformance.client_half.talk import Request, Talk, pcm, plain, serve
from utterwire_conformance.wire import Opcode

__all__ = [
    "audio_like_control",
    "binary_control",
    "errors",
    "flood",
    "fragments",
    "no_seq",
    "odd_chunks",
    "other_start",
    "overtaking",
    "pauses",
    "plain_session",
    "texts",
    "unknown_control",
]

_PAUSE_S: Final = 0.7
_GRACE_S: Final = 0.6
_LARGEST: Final = 65_536
_FLOOD_CHUNK: Final = 500
_FLOOD_BYTES: Final = 600_000
_NO_PROGRESS_S: Final = 8.0
# Long enough that no buffer of an operating system takes all of them.
_LONG: Final = tuple(f"Line {number}. {'La ' * 1_300}" for number in range(80))


@script("client-plain")
async def plain_session(talk: Talk) -> None:
    """Two utterances, as every endpoint should speak them; a ping between two chunks."""

    async def pinged(talk: Talk, request: Request) -> None:
        data = pcm(request.seq)
        await talk.start(request)
        await talk.audio(request, data[:2400])
        await talk.peer.frame(Opcode.PING, b"still there?")
        await talk.audio(request, data[2400:])
        await talk.complete(request)

    await serve(talk, plain, pinged)


@script(
    "client-texts",
    lines=(
        'She said "no", and left.',
        "C:\\temp\\new \\u0041 \\ud83d",
        '{"type": "close"}',
        "Zażółć gęślą jaźń, \U0001f600 and 你好.",
        "tab\there, and NaN",
        "A long one. " * 300,
    ),
)
async def texts(talk: Talk) -> None:
    """Texts that must be written as JSON with care."""
    await serve(talk)


@script("client-binary-control")
async def binary_control(talk: Talk) -> None:
    """All control in binary frames, as some relays deliver it."""
    talk.kind = Opcode.BINARY
    await serve(talk)


@script("client-fragments")
async def fragments(talk: Talk) -> None:
    """Chunks in fragments, with a ping between two of them (RFC 6455 section 5.4)."""

    async def cut(talk: Talk, request: Request) -> None:
        data = pcm(request.seq)
        request.audio_bytes = len(data)
        fields = {"sample_rate": 24_000, "format": "pcm_s16le", "voice": "script"}
        text = json.dumps({"type": "synthesis_start", **talk.about(request), **fields}).encode()
        await talk.peer.frame(Opcode.TEXT, text[:7], fin=False)
        await talk.peer.frame(Opcode.CONTINUATION, text[7:])
        await talk.peer.frame(Opcode.BINARY, data[:1001], fin=False)
        await talk.peer.frame(Opcode.PING, b"between")
        await talk.peer.frame(Opcode.CONTINUATION, data[1001:1002], fin=False)
        await talk.peer.frame(Opcode.CONTINUATION, data[1002:])
        await talk.complete(request)

    await serve(talk, cut)


def _like_control() -> list[bytes]:
    """Chunks of whole samples from the shared vectors that a receiver must take for audio."""
    found = []
    for vector in vectors("classification"):
        if vector["frame"] != "binary" or vector["receiver"] != "audio":
            continue
        data = octets(vector["chunk"])
        if data[:1] == b"{" and len(data) % 2 == 0 and len(data) <= _LARGEST:
            found.append(data)
    return found


@script("client-audio-like-control")
async def audio_like_control(talk: Talk) -> None:
    """Audio that begins with a brace, or that a careless parser takes for JSON."""

    async def braces(talk: Talk, request: Request) -> None:
        await talk.start(request)
        await talk.audio(request, pcm(request.seq, 1200))
        for data in _like_control():
            await talk.audio(request, data, each=_LARGEST)
        await talk.audio(request, pcm(request.seq + 1, 1200))
        await talk.complete(request)

    await serve(talk, braces)


@script("client-other-start", lines=("At another rate.", "In another format.", "As ever."))
async def other_start(talk: Talk) -> None:
    """Audio at a rate and in a format that nobody asked for, and as `synthesis_start` says."""

    async def slower(talk: Talk, request: Request) -> None:
        await talk.start(request, sample_rate=16_000)
        await talk.audio(request, pcm(11))
        await talk.complete(request, total_duration_s=0.3)

    async def telephone(talk: Talk, request: Request) -> None:
        await talk.start(request, sample_rate=8_000, format="mulaw")
        await talk.audio(request, pcm(12))
        await talk.complete(request, total_duration_s=1.2)

    await serve(talk, slower, telephone)


@script("client-unknown-control")
async def unknown_control(talk: Talk) -> None:
    """Control of types and with fields that no version 1 knows, wherever they may stand."""

    async def chatty(talk: Talk, request: Request) -> None:
        data = pcm(request.seq)
        odd: dict[str, Any] = {"x_load": {"queue": [1, 2]}, "hint": None, "text": "x", "words": 7}
        await talk.control({"type": "x_hello"})
        await talk.control({"type": "x_progress", **talk.about(request), "percent": 0})
        await talk.start(request, **odd)
        await talk.audio(request, data[:4800])
        await talk.control({"type": "viseme", **talk.about(request), "id": 3, "at_s": 0.1})
        await talk.control({"type": "x_log", "code": "x", "message": "", "retryable": "no"})
        await talk.audio(request, data[4800:])
        await talk.complete(request, **odd, cost={"credits": 1.5})
        await talk.control({"type": "x_bill", **talk.about(request), "total": 1})

    await serve(talk, chatty, chatty)


@script("client-overtaking", lines=("One.", "Two.", "Three.", "Four."))
async def overtaking(talk: Talk) -> None:
    """The last of several requests in flight is refused while the first is being spoken."""
    waiting = await talk.gathered(4, _GRACE_S)
    first, refused = waiting[:1], waiting[1:][-1:]
    for request in first:
        await talk.start(request)
        await talk.audio(request, pcm(21)[:4800])
    for request in refused:
        await talk.reject(request, "queue_full", retryable=True)
    for request in first:
        await talk.audio(request, pcm(21)[4800:])
        await talk.complete(request)
    for request in waiting[1:]:
        if request not in refused:
            await plain(talk, request)
    await serve(talk)


@script("client-no-seq", bare=True, lines=("The first.", "Refused.", "The third."))
async def no_seq(talk: Talk) -> None:
    """An endpoint from before the specification: no `seq`, and an `error` of a message alone."""

    async def refused(talk: Talk, request: Request) -> None:
        await talk.control({"type": "error", "message": "I cannot say this."})

    await serve(talk, plain, refused)


@script("client-no-start", bare=True)
async def no_start(talk: Talk) -> None:
    """An endpoint from before the specification that sends no `synthesis_start`."""

    async def at_once(talk: Talk, request: Request) -> None:
        await talk.audio(request, pcm(request.seq + 30))
        await talk.complete(request)

    await serve(talk, at_once, at_once)


@script("client-pauses", lines=("A pause in it.", "One before it.", "…!", "In crumbs."))
async def pauses(talk: Talk) -> None:
    """Pauses within and before utterances, one of no audio, and one in the smallest chunks."""

    async def halting(talk: Talk, request: Request) -> None:
        data = pcm(41)
        await talk.start(request)
        await talk.audio(request, data[:4800])
        await asyncio.sleep(_PAUSE_S)
        await talk.audio(request, data[4800:])
        await asyncio.sleep(_PAUSE_S)
        await talk.complete(request)

    async def late(talk: Talk, request: Request) -> None:
        await talk.start(request)
        await asyncio.sleep(_PAUSE_S)
        await talk.audio(request, pcm(42))
        await talk.complete(request)

    async def nothing(talk: Talk, request: Request) -> None:
        await talk.start(request)
        await talk.complete(request)

    async def crumbs(talk: Talk, request: Request) -> None:
        await talk.start(request)
        await talk.audio(request, pcm(43, 300), each=2)
        await talk.complete(request)

    await serve(talk, halting, late, nothing, crumbs)


@script(
    "client-errors",
    lines=("Well.", "No such voice.", "It breaks.", "A code of tomorrow.", "Well again."),
)
async def errors(talk: Talk) -> None:
    """Refusals and failures between utterances that are spoken."""

    async def refused(talk: Talk, request: Request) -> None:
        await talk.reject(request, "invalid_voice")

    async def breaks(talk: Talk, request: Request) -> None:
        await talk.start(request)
        await talk.audio(request, pcm(51)[:4800])
        await talk.fail(request, "synthesis_failed", retryable=True)

    async def unheard_of(talk: Talk, request: Request) -> None:
        await talk.reject(request, "x_of_tomorrow")

    # A client that tries again asks anew, so that the text decides, not the place.
    answers = {"No such voice.": refused, "It breaks.": breaks, "A code of tomorrow.": unheard_of}
    async for request in talk.requests():
        await answers.get(request.meaning.text, plain)(talk, request)
    await talk.farewell()


@script("client-odd-chunks")
async def odd_chunks(talk: Talk) -> None:
    """PCM in chunks that split samples."""

    async def split(talk: Talk, request: Request) -> None:
        await talk.start(request)
        await talk.audio(request, pcm(request.seq + 60), each=1_001)
        await talk.complete(request)

    await serve(talk, split)


@script("client-flood", lines=_LONG, small_buffer=True, patience_s=20.0)
async def flood(talk: Talk) -> None:
    """An endpoint that reads no further until its audio has been taken."""
    first = await talk.next()
    if first is None:
        await talk.farewell()
        return
    talk.peer.may_read.clear()
    data = pcm(71, 4_800)
    await talk.start(first)
    drained = True
    for number in range(_FLOOD_BYTES // _FLOOD_CHUNK):
        chunk = data[(number * 2) % 2_000 :][:_FLOOD_CHUNK]
        try:
            async with asyncio.timeout(_NO_PROGRESS_S if drained else None):
                await talk.audio(first, chunk)
        except TimeoutError:
            # Read on all the same, so that the client comes to its end.
            drained = False
            talk.peer.may_read.set()
    asked = talk.asked
    talk.peer.may_read.set()
    more = await talk.gathered(2, _GRACE_S)
    talk.peer.note(f"audio taken: {'yes' if drained else 'no'}")
    talk.peer.note(f"unread requests: {len(more) + talk.asked - asked}")
    await talk.complete(first)
    for request in more:
        await brief(talk, request)
    async for request in talk.requests():
        await brief(talk, request)
    await talk.farewell()


async def brief(talk: Talk, request: Request) -> None:
    """Answer with next to no audio."""
    await talk.start(request)
    await talk.audio(request, pcm(request.seq, 20))
    await talk.complete(request)
