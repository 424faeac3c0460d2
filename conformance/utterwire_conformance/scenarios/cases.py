"""Messages in which one thing is special, and how they are played.

Each case names its check and what is legal, so that the transcript explains itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from utterwire_conformance.driver import WebSocketSession
from utterwire_conformance.stage import Stage, Unplayable
from utterwire_conformance.transcript import Case

__all__ = ["Special", "accepted", "either", "padded", "play_cases", "rejected"]


@dataclass(frozen=True, slots=True)
class Special:
    """A message to send: what it is a case of, how to make it, and the kind of its frame.

    `make` is given an ordinary valid request and returns the message, as an object or as octets.
    """

    case: Case
    make: Callable[[dict[str, Any]], dict[str, Any] | bytes]
    kind: Literal["text", "binary"] = "text"


def _make(change: Any) -> Callable[[dict[str, Any]], dict[str, Any] | bytes]:
    if callable(change):
        function: Callable[[dict[str, Any]], dict[str, Any] | bytes] = change
        return function
    if isinstance(change, dict):
        return lambda request: request | change
    octets = change.encode() if isinstance(change, str) else change
    return lambda _: octets


def rejected(
    check: str, codes: str, name: str, change: Any, *, kind: Literal["text", "binary"] = "text"
) -> Special:
    """A message that must be rejected; `codes` are the legal ones, with spaces between."""
    return Special(Case(name, check, "reject", tuple(codes.split())), _make(change), kind)


def accepted(
    check: str, name: str, change: Any, *, kind: Literal["text", "binary"] = "text"
) -> Special:
    """A message that must be accepted."""
    return Special(Case(name, check, "accept"), _make(change), kind)


def either(
    check: str, codes: str, name: str, change: Any, *, kind: Literal["text", "binary"] = "text"
) -> Special:
    """A message that may be accepted, or rejected with one of `codes`."""
    return Special(Case(name, check, "either", tuple(codes.split())), _make(change), kind)


async def play_cases(
    stage: Stage, specials: Sequence[Special], *, twin: Literal["text", "binary"] | None = "text"
) -> None:
    """Play the valid twin, then the cases one after the other, then a valid request again.

    `twin` is the kind of frame the twin comes in; None leaves it away, for cases that are valid
    themselves.

    Where a session ends on the way, the case that was not answered is played once more as the
    first message of a session of its own, so that nothing else can be to blame.
    """
    text = stage.texts.shortest
    session: WebSocketSession | None = await stage.session()
    assert session is not None
    try:
        if twin is not None:
            seq = await session.send(stage.request(text), kind=twin)
            await stage.ended(session, seq)
            first = session.utterance(seq)
            if first.rejections or not first.answered:
                raise Unplayable(
                    f"the valid request that goes before, in a {twin} frame, was not accepted"
                )
        for special in specials:
            if session is not None and await stage.is_over(session):
                await session.end()
                session = None
            if session is not None and await _one(stage, session, special):
                continue
            if session is not None:
                await session.end()
            session = await stage.session()
            if not await _one(stage, session, special):
                await session.end()
                session = None
        if session is not None and not await stage.is_over(session):
            await stage.speak(session, text)
            await session.say_goodbye()
    finally:
        if session is not None:
            await session.end()


async def _one(stage: Stage, session: WebSocketSession, special: Special) -> bool:
    """Send one case and wait for its answer; False where the session ended before that."""
    message = special.make(stage.request(stage.texts.shortest))
    seq = await session.send(message, kind=special.kind, case=special.case)
    utterance = session.utterance(seq)
    dialogue = session.dialogue

    def answered() -> bool:
        # To do what was asked is an answer, too, even if it is no legal one.
        done = ("cancel_done", "session")
        return utterance.answered or any(
            c.said_seq == seq and c.type in done for c in dialogue.controls
        )

    since = session.now
    await stage.until_unless_lost(
        session, lambda: answered() or dialogue.session_closed is not None, seq
    )
    if utterance.answered and not utterance.ended:
        await stage.ended(session, seq)
    elif not answered():
        stage.waited_in_vain(session, since)
    if not answered() and not dialogue.ended and dialogue.session_closed is None:
        # Silence: a valid request tells whether the endpoint passed the message over.
        request = stage.request(stage.texts.shortest, request_id=stage.new_id())
        fence = await session.send(request)
        if not await stage.ended(session, fence) and not session.dialogue.ended:
            raise Unplayable(f"after one case ({special.case.name}) nothing was answered any more")
    return answered() or not (dialogue.ended or dialogue.session_closed)


def padded(request: dict[str, Any], size: int) -> bytes:
    """The request as JSON of exactly `size` bytes, made so by an unknown field."""
    bare = json.dumps(request | {"padding": ""}, ensure_ascii=False).encode()
    return json.dumps(request | {"padding": "x" * (size - len(bare))}, ensure_ascii=False).encode()
