"""What the platform asks of a container, as far as its socket shows it (`sagemaker.md`)."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any, Final

from utterwire_conformance.driver import HandshakeRefused, OwnDelay, WebSocketSession
from utterwire_conformance.stage import LONGEST_TEXT, SMALL_BUFFER, Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case
from utterwire_conformance.wire import Frame, Opcode

__all__ = [
    "sagemaker_busy",
    "sagemaker_invocation",
    "sagemaker_parts",
    "sagemaker_sigterm",
]

_SPEAKING: Final = 3
_ATTEMPTS: Final = 6
_PINGS: Final = 4
# SIGKILL comes 30 s after SIGTERM.
_KILLED_AFTER_S: Final = 30.0


@scenario(profile="sagemaker", heavy=True)
async def sagemaker_busy(stage: Stage) -> None:
    """Connections, `/ping` and pings while long texts are spoken, and in a session that is quiet.

    Each time is written down with what of it may have been the suite's own.
    """
    async with AsyncExitStack() as stack:
        quiet = await stack.enter_async_context(await stage.session())
        speaking: list[tuple[WebSocketSession, int]] = []
        for number in range(_SPEAKING):
            try:
                session = await stack.enter_async_context(await stage.session())
            except HandshakeRefused:
                break
            text = stage.texts.of_length(LONGEST_TEXT, first=number)
            speaking.append((session, await session.send(stage.request(text))))
        if not speaking or not await stage.started(*speaking[0]):
            raise Unplayable("no long utterance could be started")

        def busy() -> str:
            return "yes" if any(not s.utterance(seq).ended for s, seq in speaking) else "no"

        async with asyncio.TaskGroup() as pongs:
            for session in (quiet, speaking[0][0]):
                pongs.create_task(_pong(stage, session, busy()))
            for number in range(_ATTEMPTS):
                if busy() == "no":
                    break
                await _connect(stage, busy())
                if number < _PINGS:
                    await _ask_ping(stage, busy())
            began = stage.recorder.now
        # What comes with a pong that came too late must have been read, too.
        patience = 1.0 + 0.3 * (stage.recorder.now - began)
        await asyncio.gather(*(_until_ended(session, seq, patience) for session, seq in speaking))


async def _until_ended(session: WebSocketSession, seq: int, patience: float) -> None:
    await session.until(lambda: session.utterance(seq).ended, within=patience)


async def _pong(stage: Stage, session: WebSocketSession, busy: str) -> None:
    session.note(f"busy when pinged: {busy}")
    await session.ping(b"from the router")
    await session.until_pongs(1, stage.pace.first)
    session.note("pong: waited for")


async def _connect(stage: Stage, busy: str) -> None:
    """One more session, opened and left, with the time it took."""
    async with OwnDelay() as delay:
        try:
            session = await stage.session()
        except HandshakeRefused as error:
            stage.recorder.note(f"not accepted: HTTP {error.status}")
            return
    async with session:
        session.note(f"accepted: {_told(stage, delay, busy)}")


async def _ask_ping(stage: Stage, busy: str) -> None:
    async with await stage.http() as connection:
        async with OwnDelay() as delay:
            await connection.send("GET", "/ping")
            if await connection.head(within=stage.pace.first) is not None:
                await connection.read(within=stage.pace.stall)
        stage.recorder.note(f"answered: {_told(stage, delay, busy)}", connection.session)


def _told(stage: Stage, delay: OwnDelay, busy: str) -> str:
    times = {"took": delay.took, "own": delay.own, "rtt": stage.pace.rtt}
    return json.dumps({name: round(value, 4) for name, value in times.items()} | {"busy": busy})


@scenario(profile="sagemaker")
async def sagemaker_parts(stage: Stage) -> None:
    """A conversation in parts without a type, whole and cut anywhere, also while one is spoken."""
    async with await stage.session() as session:
        whole = await session.send(
            stage.request(stage.texts.shortest), case=Case("text", "sagemaker.twin", "accept")
        )
        await stage.ended(session, whole)
        await _untyped(stage, session, "")
        await _partial(stage, session, "")
        await stage.ended(session, *range(1, len(session.dialogue.sent) + 1))
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session)
        await _untyped(stage, session, ", while one is spoken")
        await _partial(stage, session, ", while one is spoken")
        session.resume()
        await stage.ended(session, *range(1, len(session.dialogue.sent) + 1))
    async with await stage.session() as session:
        await session.send_fragments([b'{"type": ', b'"close"}'], kind="binary")
        await stage.farewell(session)


async def _untyped(stage: Stage, session: WebSocketSession, when: str) -> None:
    check = "sagemaker.untyped_part"
    request = stage.request(stage.texts.shortest, request_id=stage.new_id())
    await session.send(request, kind="binary", case=Case(f"valid{when}", check, "accept"))
    bad = Case(f"of an unknown type{when}", check, "reject", ("unknown_type",))
    await session.send({"type": "utterwire-unknown"}, kind="binary", case=bad)


async def _partial(stage: Stage, session: WebSocketSession, when: str) -> None:
    check = "sagemaker.partial_parts"

    def octets() -> bytes:
        request = stage.request(stage.texts.shortest, request_id=f"{stage.new_id()} é\U0001f600")
        return json.dumps(request, ensure_ascii=False).encode()

    def ping(number: int) -> Frame | None:
        return Frame(Opcode.PING, b"between parts") if number == 0 else None

    data = octets()
    middle = data.index("\U0001f600".encode()) + 2
    cuts: dict[str, tuple[Any, list[bytes]]] = {
        "in two, inside a code point": ("binary", [data[:middle], data[middle:]]),
    }
    data = octets()
    cuts["of one byte each"] = ("binary", [data[at : at + 1] for at in range(len(data))])
    data = octets()
    cuts["with empty ones"] = ("binary", [b"", data[:9], b"", data[9:], b""])
    data = octets()
    cuts["of text"] = ("text", [data[:9], data[9:]])
    for name, (kind, pieces) in cuts.items():
        case = Case(f"parts {name}{when}", check, "accept")
        await session.send_fragments(pieces, kind=kind, between=ping, case=case)
    bad = Case(f"parts that are no JSON{when}", check, "reject", ("invalid_json",))
    await session.send_fragments([b'{"text": "Hel', b"lo."], kind="binary", case=bad)


@scenario(profile="sagemaker")
async def sagemaker_invocation(stage: Stage) -> None:
    """The platform's other two ways to invoke: whole, and as a stream of the response."""
    for stream in (False, True):
        request = stage.request(
            stage.texts.shortest, stream=stream, request_id=f"é {stage.new_id()}"
        )
        await stage.post(request, case=Case(f"stream {stream}", "sagemaker.headers", "accept"))


@scenario(profile="sagemaker", launches=True, limit_s=90.0)
async def sagemaker_sigterm(stage: Stage) -> None:
    """SIGTERM while one session speaks and another is quiet and never closes: when is it over."""
    instance = await stage.target.launch()
    try:
        async with AsyncExitStack() as stack:
            speaking = await stack.enter_async_context(await stage.session(instance=instance))
            quiet = await stack.enter_async_context(await stage.session(instance=instance))
            quiet.answers_close = False
            await stage.speak(quiet, stage.texts.shortest)
            text = stage.texts.of_length(LONGEST_TEXT)
            seq = await speaking.send(stage.request(text, request_id="speaking"))
            if not await stage.started(speaking, seq):
                raise Unplayable("no long utterance could be started")
            for session in (speaking, quiet):
                session.note("shutdown: begins")
            instance.terminate()
            told = stage.recorder.now

            async def well_behaved() -> None:
                await speaking.until_farewell(_KILLED_AFTER_S)
                if not speaking.dialogue.ended:
                    await speaking.say_goodbye()

            goodbye = asyncio.create_task(well_behaved())
            code = await instance.wait(_KILLED_AFTER_S + stage.pace.rtt)
            took = stage.recorder.now - told
            await goodbye
            gone = f"{took:.2f} s after SIGTERM, with status {code}"
            stage.recorder.note(f"exited: {gone}" if code is not None else "exited: no")
            for session in (speaking, quiet):
                await session.end()
    finally:
        await instance.stop()
