"""Playing a program on an endpoint: every frame is recorded, nothing is judged."""

from __future__ import annotations

import asyncio
from typing import Final

from utterwire_conformance.driver import WebSocketSession
from utterwire_conformance.stage import SMALL_BUFFER, Stage
from utterwire_conformance.wire import Frame, Opcode

from .program import Exchange, Leave, Pause, Ping, Program, Resume, Say, Stall, Step, Wait

__all__ = ["PATIENT", "perform"]

PATIENT: Final = "quiet: every answer was waited for"
"""The note that a session ends with where all that is missing then is really missing."""

_ABUSE_S: Final = 3.0


class _Hand:
    """One session of a program, and what was done to it."""

    def __init__(self, session: WebSocketSession) -> None:
        self.session = session
        self.stalled = False
        self.left = False
        self.abused = False

    @property
    def over(self) -> bool:
        """Whether nothing more can be sent."""
        dialogue = self.session.dialogue
        return self.left or self.abused or dialogue.ended or dialogue.close_in is not None

    def resume(self) -> None:
        if self.stalled:
            self.stalled = False
            self.session.resume()


async def perform(program: Program, stage: Stage) -> None:
    """Play all steps, wait for all that is still due, and ask each session for one thing more.

    A session that the program itself did not end has to serve a last, valid request.
    """
    opened: dict[int, asyncio.Task[WebSocketSession]] = {}
    small = {step.session for step in program.steps if isinstance(step, Stall)}
    try:
        async with asyncio.TaskGroup() as opening:
            for number in program.sessions:
                opened[number] = opening.create_task(
                    stage.session(receive_buffer=SMALL_BUFFER if number in small else None)
                )
        hands = {number: _Hand(task.result()) for number, task in opened.items()}
        for step in program.steps:
            if isinstance(step, Exchange):
                await _exchange(stage, step)
            else:
                await _step(stage, hands[step.session], step)
        async with asyncio.TaskGroup() as settling:
            for hand in hands.values():
                settling.create_task(_settle(stage, hand))
    finally:
        for task in opened.values():
            # Where one was refused, the others may have been let in.
            if not task.cancelled() and task.exception() is None:
                await task.result().end()


async def _exchange(stage: Stage, step: Exchange) -> None:
    kind = step.content_type
    headers = () if kind is None else (("Content-Type", kind),)
    await stage.post(step.body, headers=headers, case=step.case)


async def _step(stage: Stage, hand: _Hand, step: Step) -> None:
    session = hand.session
    if hand.over:
        return
    match step:
        case Say():
            await _say(stage, hand, step)
        case Ping(payload=payload):
            await session.ping(payload)
        case Pause(milliseconds=milliseconds):
            await asyncio.sleep(milliseconds / 1000)
        case Stall():
            hand.stalled = True
            session.pause()
        case Resume():
            hand.resume()
        case Wait(until=until):
            await _wait(stage, hand, until)
        case Leave(how="abort"):
            hand.left = True
            await session.abort()
        case Leave():
            hand.resume()
            hand.left = True
            await session.say_goodbye(stage.pace.first)


async def _say(stage: Stage, hand: _Hand, step: Say) -> None:
    session = hand.session
    if step.kind == "text" and not _is_utf8(step.octets):
        # RFC 6455 section 8.1: the endpoint has to fail the connection.
        session.abuse()
        hand.abused = True
        hand.resume()
    pieces = step.pieces

    def between(number: int) -> Frame | None:
        return Frame(Opcode.PING, b"%d" % number) if step.pings else None

    await session.send_fragments(pieces, kind=step.kind, between=between)
    if hand.abused:
        await session.until(lambda: session.dialogue.close_in is not None, within=_ABUSE_S)


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


async def _wait(stage: Stage, hand: _Hand, until: str) -> None:
    session, dialogue = hand.session, hand.session.dialogue
    if until == "closed":
        if dialogue.close_sent is not None:
            hand.resume()
            await stage.farewell(session)
        return
    if until == "ended":
        hand.resume()
        await _all_ended(stage, session)
        return
    due = [u for u in dialogue.utterances.values() if u.sent.awaits_answer]
    # A reader that has stalled reads on when the time for a first answer is over.
    if due and not hand.stalled:
        await session.until(
            lambda: due[-1].answered or dialogue.session_closed is not None,
            within=stage.pace.first,
            stall=stage.pace.stall,
        )


async def _all_ended(stage: Stage, session: WebSocketSession) -> bool:
    due = [u.seq for u in session.dialogue.utterances.values() if u.sent.awaits_answer]
    return await stage.ended(session, *due)


async def _settle(stage: Stage, hand: _Hand) -> None:
    """Wait for what is due, and see that the session is still of use."""
    session, dialogue = hand.session, hand.session.dialogue
    hand.resume()
    if hand.left or hand.abused:
        return
    if dialogue.close_sent is not None:
        if dialogue.session_closed is None:
            await stage.farewell(session)
    elif not dialogue.ended and await _all_ended(stage, session):
        request = stage.request(stage.texts.shortest, request_id=stage.new_id())
        await stage.ended(session, await session.send(request))
    if dialogue.pings and not dialogue.ended and not _answered_last(session):
        await session.until(lambda: _answered_last(session), within=stage.pace.first)
    session.note(PATIENT)
    if not dialogue.ended:
        await session.say_goodbye()


def _answered_last(session: WebSocketSession) -> bool:
    """Whether the last ping has its pong; that is enough for those before it."""
    dialogue = session.dialogue
    _, index, payload = dialogue.pings[-1]
    return any(at > index and answer == payload for _, at, answer in dialogue.pongs)
