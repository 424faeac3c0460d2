"""`cancel` in every state an utterance can be in (`protocol.md#cancel`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from utterwire_conformance.driver import WebSocketSession
from utterwire_conformance.stage import LONGEST_TEXT, SMALL_BUFFER, Stage, scenario
from utterwire_conformance.transcript import Case

__all__ = [
    "cancel_after_close",
    "cancel_all",
    "cancel_bad_ids",
    "cancel_named",
    "cancel_reading",
    "cancel_stalled",
]

_STALL_S: Final = 3.0
_PROMPT_S: Final = 0.5
_ATTEMPTS: Final = 2
_LAG_EVERY_S: Final = 0.02


def _cancel(request_id: Any = ...) -> dict[str, Any]:
    return {"type": "cancel"} if request_id is ... else {"type": "cancel", "request_id": request_id}


async def _after(stage: Stage, session: WebSocketSession, **fields: Any) -> None:
    """A request behind a `cancel`, if the session still is."""
    if not await stage.is_over(session):
        await stage.speak(session, stage.texts.shortest, **fields)


@scenario(profile="interrupt")
async def cancel_named(stage: Stage) -> None:
    """A waiting utterance is cancelled, then the running one, twice; the others are spoken.

    Before that ids that only look like the one that waits.
    """
    shortest = stage.texts.shortest
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        # Nothing can end while nobody reads, so that each message meets the state it is meant for.
        await stage.hold(session, request_id="running")
        await session.send(stage.request(shortest, request_id="first"))
        await session.send(stage.request(shortest, request_id="second"))
        third = await session.send(stage.request(shortest))
        others = [
            await session.send(_cancel(name), case=Case(what, "cancel.unknown_id", "accept"))
            for what, name in (
                ("an id in other letters", "Second"),
                ("an id with a space behind", "second "),
                ("the beginning of an id", "sec"),
            )
        ]
        waiting = await session.send(_cancel("second") | {"unknown": [None], "text": 7})
        await stage.let_it_read()
        running = await session.send(_cancel("running"), kind="binary")
        again = await session.send(_cancel("running"))
        await stage.let_it_read()
        session.resume()
        await stage.ended(session, 1, 2, 3, third, *others, waiting, running, again)
        await _after(stage, session, request_id="running")


@scenario(profile="interrupt")
async def cancel_all(stage: Stage) -> None:
    """All that is unended is cancelled, what is sent behind is not; then there is nothing left."""
    shortest = stage.texts.shortest
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session, request_id="running")
        await session.send(stage.request(shortest, request_id="one"))
        bad = await session.send(b"[]")
        await session.send(stage.request(shortest))
        everything = await session.send(_cancel())
        later = await session.send(stage.request(shortest, request_id="later"))
        await stage.let_it_read()
        session.resume()
        await stage.ended(session, 1, 2, bad, 4, everything, later)
        check = "cancel.unknown_id"
        for name, message in (
            ("an id whose utterance was cancelled", _cancel("running")),
            ("an id whose utterance is complete", _cancel("later")),
            ("an id that was never used", _cancel("never used")),
            ("no id, and nothing unended", _cancel()),
        ):
            if await stage.is_over(session):
                return
            seq = await session.send(message, case=Case(name, check, "accept"))
            await stage.ended(session, seq)
        await _after(stage, session, request_id="one")


@scenario(profile="interrupt")
async def cancel_bad_ids(stage: Stage) -> None:
    """Null and other ids that are none, while an utterance runs and one waits."""
    codes = ("invalid_request",)
    limit = stage.claims.max_request_id_chars
    bad: list[tuple[str, bytes]] = [
        ("an empty string", b'""'),
        ("a number", b"7"),
        ("zero", b"0"),
        ("false", b"false"),
        ("an array", b'["running"]'),
        ("an object", b"{}"),
        ("a lone surrogate", b'"\\ud800"'),
    ]
    if limit is not None and limit < 100_000:
        bad.append(("too long", b'"' + b"i" * (limit + 1) + b'"'))
    cases = [("null", b"null", "cancel.null_id")]
    cases += [(name, value, "cancel.invalid_id") for name, value in bad]
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session, request_id="running")
        await session.send(stage.request(stage.texts.shortest, request_id="waiting"))
        seqs = [
            await session.send(
                b'{"type": "cancel", "request_id": ' + value + b"}",
                case=Case(name, check, "reject", codes),
            )
            for name, value, check in cases
        ]
        await stage.let_it_read()
        session.resume()
        await stage.ended(session, *seqs)
        if await stage.is_over(session):
            return
        stop = await session.send(_cancel("running"))
        await stage.ended(session, 1, 2, stop)
        await _after(stage, session)


@scenario(profile="interrupt")
async def cancel_after_close(stage: Stage) -> None:
    """`close` behind three requests, then two of them are cancelled and the third is spoken."""
    shortest = stage.texts.shortest
    check = "cancel.after_close"
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session, request_id="running")
        await session.send(stage.request(shortest, request_id="waiting"))
        await session.send(stage.request(shortest, request_id="spoken"))
        await session.send({"type": "close"})
        for request_id in ("waiting", "running"):
            case = Case(f"the {request_id} one", check, "accept")
            await session.send(_cancel(request_id), case=case)
            await stage.let_it_read()
        session.resume()
        await stage.farewell(session)


@asynccontextmanager
async def _lag_noted(session: WebSocketSession) -> AsyncIterator[None]:
    """Note how late the suite itself was at its worst, in seconds, since its clock is the judge."""
    worst = 0.0
    loop = asyncio.get_running_loop()

    async def measure() -> None:
        nonlocal worst
        while True:
            before = loop.time()
            await asyncio.sleep(_LAG_EVERY_S)
            worst = max(worst, loop.time() - before - _LAG_EVERY_S)

    task = asyncio.create_task(measure())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        session.note(f"lag: {worst:.3f}")


@scenario(profile="interrupt", heavy=True)
async def cancel_reading(stage: Stage) -> None:
    """A client that reads cancels a long utterance at its first audio; once more if that is slow.

    A short one before it shows how many bytes a character makes.
    """
    text = stage.texts.of_length(LONGEST_TEXT)
    for _ in range(_ATTEMPTS):
        async with await stage.session() as session:
            await stage.speak(session, stage.texts.sample(0))
            seq = await session.send(stage.request(text, request_id="long"))
            utterance = session.utterance(seq)
            await session.until(
                lambda u=utterance: u.ended or bool(u.audio),  # type: ignore[misc]
                within=stage.pace.first,
                stall=stage.pace.stall,
            )
            if utterance.ended or not utterance.audio:
                continue
            async with _lag_noted(session):
                # The pong tells when the endpoint had read so far.
                await session.ping(b"before cancel")
                cancel = await session.send(_cancel("long"))
                await stage.ended(session, seq, cancel)
            await _after(stage, session)
            end = utterance.terminal
            sent = session.dialogue.sent[cancel - 1].t
            if end is None or end.type != "cancelled" or end.t - sent <= _PROMPT_S:
                return


@scenario(profile="interrupt", long=True)
async def cancel_stalled(stage: Stage) -> None:
    """A client reads nothing for three seconds, cancels, and reads what is left."""
    text = stage.texts.of_length(LONGEST_TEXT)
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        seq = await session.send(stage.request(text, request_id="long"))
        if not await stage.started(session, seq):
            return
        session.pause()
        session.note("stalled: begins")
        await asyncio.sleep(_STALL_S)
        cancel = await session.send(json.dumps(_cancel("long")))
        await stage.let_it_read()
        session.resume()
        await stage.ended(session, seq, cancel)
        await _after(stage, session)
