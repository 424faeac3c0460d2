"""Scripts for clients that ask the endpoint what it offers."""

from __future__ import annotations

from typing import Any, Final

from utterwire_conformance.client_half.script import script
from utterwire_conformance.client_half.talk import Request, Talk, pcm, plain, serve

__all__ = ["SESSION", "hello", "hello_refused", "limits"]

MAX_TEXT: Final = 4_096
MAX_WAITING: Final = 8

SESSION: Final[dict[str, Any]] = {
    "protocol_version": 1,
    "session_id": "script",
    "profiles": ["core", "negotiate"],
    "limits": {
        "max_text_chars": MAX_TEXT,
        "max_message_bytes": 65_536,
        "max_request_id_chars": 128,
        "max_waiting": MAX_WAITING,
        "idle_timeout_s": 300,
        "min_speed": 0.5,
        "max_speed": 2.0,
    },
    "voices": ["script"],
    "formats": ["pcm_s16le"],
    "sample_rates": [24_000],
}

_GRACE_S: Final = 0.6


@script("client-hello", profile="negotiate", session_message=SESSION)
async def hello(talk: Talk) -> None:
    """An endpoint that knows `hello`."""
    await serve(talk)


@script("client-hello-refused", profile="negotiate")
async def hello_refused(talk: Talk) -> None:
    """An endpoint that does not know `hello`: the session is at version 1 all the same."""
    await serve(talk)


@script(
    "client-limits",
    profile="negotiate",
    session_message=SESSION,
    lines=("Too long. " * 500, *(f"Number {number}." for number in range(1, 15))),
)
async def limits(talk: Talk) -> None:
    """A text beyond `max_text_chars`, and more utterances than may wait."""
    held: list[Request] = await talk.gathered(15, _GRACE_S)
    for request in held:
        await _judge(talk, request)
    async for request in talk.requests():
        await _judge(talk, request)
    await talk.farewell()


async def _judge(talk: Talk, request: Request) -> None:
    if len(request.meaning.text) > MAX_TEXT:
        await talk.reject(request, "text_too_long")
    elif request.number == 0:
        await plain(talk, request)
    else:
        await talk.start(request)
        await talk.audio(request, pcm(request.seq, 50))
        await talk.complete(request)
