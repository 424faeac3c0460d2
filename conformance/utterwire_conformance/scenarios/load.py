"""Many sessions, slow ones, vanishing ones and bad ones: what they leave for the others.

What strains an endpoint is done to an instance of its own, where the suite can launch one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Any, Final

from utterwire_conformance.driver import (
    BareConnection,
    ConnectFailed,
    HandshakeRefused,
    WebSocketSession,
)
from utterwire_conformance.stage import LONGEST_TEXT, SMALL_BUFFER, Stage, Unplayable, scenario
from utterwire_conformance.wire import Frame, Opcode, encode

from .rejected import REJECTED_GROUPS
from .websocket import BREACHES

__all__ = [
    "bad_input",
    "disconnects",
    "fair",
    "memory",
    "rejection_bound",
    "slow_reader",
    "stalled_readers",
]

_STALLED: Final = 3
# More than a kernel takes of what nobody reads, if it is left to itself (4 MB on Linux).
_STALLING_CHARACTERS: Final = 2_000
# An engine that speaks no faster than it is heard fills buffers of some hundred kilobytes in less.
_LONGEST_FILLING_S: Final = 45.0
_LONGEST_STALL_S: Final = 15.0
_MASK: Final = b"\x11\x22\x33\x44"


@asynccontextmanager
async def _apart(stage: Stage) -> AsyncIterator[bool]:
    """Give the scenario an instance that nobody else uses; whether there is one."""
    if not stage.target.can_launch:
        stage.recorder.note("apart: no")
        yield False
        return
    stage.recorder.note("apart: yes")
    stage.instance = await stage.target.launch()
    try:
        yield True
    finally:
        await stage.instance.stop()


# --- slow readers -------------------------------------------------------------------------------


@scenario(profile="load", sessions=2)
async def stalled_readers(stage: Stage) -> None:
    """Sessions that stop reading in mid-utterance, and one beside them that wants to be served."""
    async with AsyncExitStack() as stack:
        stalled: list[WebSocketSession] = []
        for number in range(stage.fitting(_STALLED + 1) - 1):
            try:
                session = await stage.session(receive_buffer=SMALL_BUFFER)
            except HandshakeRefused:
                if not stalled:
                    raise
                break
            await stack.enter_async_context(session)
            try:
                await stage.hold(
                    session, characters=_STALLING_CHARACTERS, request_id=f"stalled-{number}"
                )
            except Unplayable:
                # That those before it stall may be why; the one beside will tell.
                if not stalled:
                    raise
                break
            stalled.append(session)
        try:
            beside = await stack.enter_async_context(await stage.session())
        except HandshakeRefused as error:
            raise Unplayable(f"no further session could be opened beside them: {error}") from None
        await _awake(stage, beside, 0.3 + _filling(stage, sharing=_STALLED))
        request = stage.request(stage.texts.shortest, request_id="beside")
        seq = await beside.send(request)
        utterance = beside.utterance(seq)
        await beside.until(lambda: utterance.ended, within=stage.pace.first, stall=stage.pace.stall)
        beside.note("the others read again: yes")
        for session in stalled:
            session.resume()
        await stage.ended(beside, seq)


def _filling(stage: Stage, *, sharing: int, most: float = 6.0) -> float:
    """How long it takes, in seconds, until the buffers on the way are full and a reader stalls,
    where so many sessions share the engine."""
    return min(most, sharing * 100 * stage.pace.character)


async def _awake(stage: Stage, session: WebSocketSession, seconds: float) -> None:
    """Wait beside a session that has nothing to do, for no longer than it may be idle: with a slow
    engine buffers take longer to fill than that."""
    if stage.claims.idle_s is not None:
        while seconds > stage.claims.idle_s / 2:
            await asyncio.sleep(stage.claims.idle_s / 2)
            await session.send({"type": "keepalive"})
            seconds -= stage.claims.idle_s / 2
    await asyncio.sleep(seconds)


def _stall_limit(stage: Stage) -> float:
    limit = stage.claims.slow_reader_s
    if limit is None:
        raise Unplayable(
            "`timeouts.slow_reader_s` is not in the endpoint file, so the limit is not known"
        )
    if limit > _LONGEST_STALL_S:
        raise Unplayable(
            f"the endpoint bears a stalled reader for {limit:g} s; the suite stalls for"
            f" {_LONGEST_STALL_S:g} s at most"
        )
    return limit


@scenario(profile="load", long=True)
async def slow_reader(stage: Stage) -> None:
    """A reader that takes nothing for longer than the endpoint bears, and one not for so long."""
    limit = _stall_limit(stage)

    async def stalls(seconds: float) -> None:
        async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
            session.note(f"stall limit: {limit}")
            seq = await stage.hold(session, characters=_STALLING_CHARACTERS)
            await asyncio.sleep(seconds)
            session.note(f"stalled for: {seconds}")
            session.resume()
            dialogue = session.dialogue
            await session.until(
                lambda: (
                    session.utterance(seq).ended
                    and (seconds < limit or dialogue.session_closed is not None)
                ),
                within=stage.pace.first,
                stall=min(6.0, stage.pace.stall),
            )

    # Where others speak as well, each session's buffers fill more slowly.
    async with _apart(stage) as alone:
        filling = _filling(stage, sharing=2 if alone else 6, most=_LONGEST_FILLING_S)
        await stage.side_by_side(
            lambda: stalls(limit + filling + 2.0 + 2 * stage.pace.rtt),
            lambda: stalls(limit * 0.5),
        )


# --- fairness and bounds ------------------------------------------------------------------------


@scenario(profile="load", heavy=True, sessions=2)
async def fair(stage: Stage) -> None:
    """A short text in one session while a long one is spoken in another."""
    async with await stage.session() as short:
        await stage.speak(short, stage.texts.shortest, request_id="alone")
        async with await stage.session() as long:
            text = stage.texts.of_length(LONGEST_TEXT)
            seq = await long.send(stage.request(text, request_id="long"))
            if not await stage.started(long, seq):
                raise Unplayable("no long utterance could be started")
            await stage.speak(short, stage.texts.shortest, request_id="beside")
            await stage.ended(long, seq)


@scenario(profile="load")
async def rejection_bound(stage: Stage) -> None:
    """Three hundred bad messages behind an utterance that cannot end: how many are kept back."""
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        first = await stage.hold(session)
        # Who takes nothing at all may be read from no further.
        session.sip()
        for _ in range(300):
            last = await session.send(b"nonsense")
        await session.ping(b"after them all")
        await stage.let_it_read()
        session.resume()
        await stage.ended(session, first, last)


# --- what bad input costs -----------------------------------------------------------------------

_AT_ONCE: Final = 4
_STRANGERS: Final = 280


async def _several(stage: Stage, when: str) -> None:
    """Some sessions at once, each with a short text; `when` is written down with them."""

    async def one(number: int) -> None:
        try:
            session = await stage.session()
        except (HandshakeRefused, ConnectFailed) as error:
            stage.recorder.note(f"{when}: no session: {error}")
            return
        async with session:
            session.note(f"round: {when}")
            await stage.speak(session, stage.texts.shortest, request_id=f"{when}-{number}")

    # Open at the same time, so that each needs a place of its own.
    async with asyncio.TaskGroup() as group:
        for number in range(stage.fitting(_AT_ONCE)):
            group.create_task(one(number))


@scenario(profile="load", heavy=True, limit_s=90.0)
async def bad_input(stage: Stage) -> None:
    """Hundreds of bad messages, frames and handshakes; then several sessions are to be served."""
    async with _apart(stage):
        await _several(stage, "before")
        async with asyncio.TaskGroup() as group:
            for _ in range(stage.fitting(_AT_ONCE)):
                group.create_task(_rejections(stage))
        await _strangers(stage, _broken_session)
        await _strangers(stage, _broken_handshake)
        await _several(stage, "after")


async def _rejections(stage: Stage) -> None:
    """Every kind of message that must be rejected, in one session."""
    async with await stage.session() as session:
        seqs = []
        for special in itertools.chain.from_iterable(REJECTED_GROUPS.values()):
            message = special.make(stage.request(stage.texts.shortest))
            seqs.append(await session.send(message, kind=special.kind))
            if len(seqs) % 40 == 0:
                await stage.ended(session, *seqs)
        await stage.ended(session, *seqs)


async def _strangers(
    stage: Stage, meet: Callable[[BareConnection, int, float], Awaitable[None]]
) -> None:
    """Connections, a few at a time, on which `meet` does something bad."""
    await stage.meter.spend(sessions=_STRANGERS)
    numbers = iter(range(_STRANGERS))
    # An endpoint that lets bad connections hang is waited for all the same, but not 280 times.
    patience = min(1.0, 0.3 + 2 * stage.pace.rtt)

    async def meet_some() -> None:
        for number in numbers:
            try:
                opened = await _bare(stage)
            except ConnectFailed:
                stage.recorder.note("bad input: no connection")
                return
            async with opened as connection:
                await meet(connection, number, patience)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(meet_some())
    stage.recorder.note(f"bad input: {_STRANGERS} connections, {meet.__name__.strip('_')}")


async def _bare(stage: Stage, receive_buffer: int | None = None) -> BareConnection:
    return await BareConnection.open(
        stage.instance.ws_url,
        headers=stage.endpoint.headers,
        context=stage.context,
        within=stage.pace.connect,
        receive_buffer=receive_buffer,
    )


async def _broken_session(connection: BareConnection, number: int, patience: float) -> None:
    """Open a session and break RFC 6455 in it, or vanish in the middle of a message."""
    if not await connection.shake_hands(within=5.0):
        return
    breaches = [*BREACHES.values(), [Frame(Opcode.TEXT, b'{"text": "Hel', fin=False)]]
    frames = breaches[number % len(breaches)]
    octets = b"".join(
        encode(Frame(frame.opcode, frame.payload, frame.fin, frame.rsv, _MASK)) for frame in frames
    )
    await connection.write(octets, within=5.0)
    if frames is not breaches[-1]:
        await connection.read_some(within=patience)


async def _broken_handshake(connection: BareConnection, number: int, patience: float) -> None:
    """Send what opens no session."""
    kinds: list[bytes] = [
        connection.opening(sec_websocket_version="12"),
        connection.opening(sec_websocket_key=None),
        connection.opening(sec_websocket_key="short"),
        connection.opening(upgrade=None),
        connection.opening(connection="close"),
        connection.opening(target="/no-such-path"),
        connection.opening().replace(b"GET ", b"POST ", 1),
        connection.opening().replace(b"HTTP/1.1", b"HTTP/9.9", 1),
        connection.opening(x_long="x" * 70_000),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"nonsense\r\n\r\n",
        connection.opening()[:60],
        b"",
    ]
    octets = kinds[number % len(kinds)]
    await connection.write(octets, within=5.0)
    if octets.endswith(b"\r\n\r\n"):
        await connection.read_some(within=patience)


# --- who leaves ---------------------------------------------------------------------------------

# What is slower than this is tried again; the judge decides.
_SLOWER: Final = 3.0

_MEASURED: Final = 400
_LEAVERS: Final = 24
_UNSPOKEN_S: Final = 8.0
_LEAST_UNSPOKEN: Final = 100
_MOST_UNSPOKEN: Final = 60_000


@scenario(profile="load", heavy=True, limit_s=120.0)
async def disconnects(stage: Stage) -> None:
    """Sessions that vanish from long texts; then a text is timed against the time before."""
    async with _apart(stage):
        session = await stage.session()
        async with session:
            text = stage.texts.of_length(_MEASURED)
            times = []
            for number in range(5):
                before = await stage.speak(session, text, request_id=f"before-{number}")
                if before.complete is None:
                    raise Unplayable("a text to measure by was not spoken")
                times.append(before.complete.t - before.sent.t)
        for number in range(2):
            unspoken = await _vanish(stage, _UNSPOKEN_S * _MEASURED / min(times))
            after = await _timed(stage, text, f"after-{number}")
            if after is None or after <= _SLOWER * median(times) + 0.1:
                return
            # It may have been the machine. What is left of the abandoned texts passes.
            await asyncio.sleep(2 * unspoken * min(times) / _MEASURED)
            await _timed(stage, text, f"later-{number}")


async def _vanish(stage: Stage, characters: float) -> int:
    """Begin texts of so many characters in all in several sessions, and vanish from them."""
    each = max(_LEAST_UNSPOKEN, round(min(characters, _MOST_UNSPOKEN) / _LEAVERS))

    room = asyncio.Semaphore(stage.fitting(_LEAVERS))

    async def one(number: int) -> None:
        async with room:
            await vanish(number)

    async def vanish(number: int) -> None:
        try:
            session = await stage.session(receive_buffer=SMALL_BUFFER)
        except HandshakeRefused:
            return
        async with session:
            left = each
            while left > 0:
                length = min(left, LONGEST_TEXT)
                left -= length
                await session.send(stage.request(stage.texts.of_length(length, first=number)))
            await session.ping(b"read")
            await session.until_pongs(1, stage.pace.first)
            if number % 2:
                await session.send_close(1001)
                await session.say_goodbye(stage.pace.first)
            await session.abort()

    async with asyncio.TaskGroup() as group:
        for number in range(_LEAVERS):
            group.create_task(one(number))
    stage.recorder.note(f"vanished: {_LEAVERS} sessions of {each} characters each")
    return each * _LEAVERS


async def _timed(stage: Stage, text: str, name: str) -> float | None:
    """How long a text takes in a session of its own; None where it was not spoken."""
    try:
        session = await stage.session()
    except (HandshakeRefused, ConnectFailed) as error:
        stage.recorder.note(f"{name}: no session: {error}")
        return None
    async with session:
        utterance = await stage.speak(session, text, request_id=name)
        if utterance.complete is None:
            return None
        return utterance.complete.t - utterance.sent.t


# --- memory -------------------------------------------------------------------------------------

_ROUNDS: Final = 3
_MORE_ROUNDS: Final = 2
_BULK: Final = 30_000
_FLOOD: Final = 4 * 1024 * 1024
_FLOODERS: Final = 2
_FLOOD_S: Final = 3.0


@scenario(profile="load", heavy=True, launches=True, limit_s=120.0)
async def memory(stage: Stage) -> None:
    """The same load again and again, then clients that do not read: how the memory grows."""
    async with _apart(stage):
        readings: list[int] = []

        def read(when: str) -> None:
            held = stage.instance.memory()
            if held is None:
                raise Unplayable("the memory of the endpoint cannot be read on this machine")
            stage.recorder.note(f"memory {when}: {held}")
            readings.append(held)

        # To begin with, so that nothing is spent where nothing can be read.
        read("at first")
        await _round_of_load(stage)
        read("warm")
        size = 0
        for number in range(_ROUNDS + _MORE_ROUNDS):
            grown = [b - a > size / 4 for a, b in itertools.pairwise(readings[1:])]
            if number >= _ROUNDS and not all(grown):
                break
            size = await _round_of_load(stage)
            read(f"after round {number + 1} of {size} bytes")
        await _unread(stage, read)


async def _round_of_load(stage: Stage) -> int:
    """Messages spoken, rejected and abandoned, in many sessions; the bytes sent."""
    sent = 0

    async def one(number: int) -> None:
        nonlocal sent
        try:
            connection = await _bare(stage)
        except ConnectFailed:
            return
        async with connection:
            if not await connection.shake_hands(within=5.0):
                return
            octets = bytearray()
            for message in range(16):
                fields: dict[str, Any] = {"text": "...", "request_id": f"{number}-{message}"}
                if message % 2:
                    fields["type"] = "utterwire-unknown"
                padding = f"{number}-{message}-" + "x" * _BULK
                fields["utterwire_padding"] = padding
                octets += _message(fields)
            if number % 4 == 0:
                octets += _message(stage.request(stage.texts.of_length(400)))
            octets += encode(Frame(Opcode.CLOSE, b"\x03\xe8", mask=_MASK))
            sent += await connection.write(bytes(octets), within=10.0)
            await connection.read_to_end(within=5.0)

    await stage.meter.spend(sessions=16, characters=1_600)
    at_once = stage.fitting(_AT_ONCE)
    for start in range(0, 16, at_once):
        async with asyncio.TaskGroup() as group:
            for number in range(start, min(16, start + at_once)):
                group.create_task(one(number))
    return sent


def _message(fields: dict[str, Any]) -> bytes:
    return encode(Frame(Opcode.TEXT, json.dumps(fields, ensure_ascii=False).encode(), mask=_MASK))


async def _unread(stage: Stage, read: Callable[[str], None]) -> None:
    """Clients that send all the time and read nothing, and one that never ends its message."""
    async with AsyncExitStack() as stack:

        async def opened() -> BareConnection | None:
            await stage.meter.spend(sessions=1)
            connection = await stack.enter_async_context(await _bare(stage, SMALL_BUFFER))
            return connection if await connection.shake_hands(within=5.0) else None

        flooders = [c for c in [await opened() for _ in range(_FLOODERS)] if c is not None]
        # The answers, which echo the id, are long, and few are needed.
        bad = _message({"type": "utterwire-unknown", "request_id": "\U0001f600" * 128})
        flood = bad * (_FLOOD // len(bad))
        taken = sum(await asyncio.gather(*(c.write(flood, within=_FLOOD_S) for c in flooders)))
        limit = stage.claims.max_message_bytes
        endless = await opened() if limit is not None and limit * 2 <= _FLOOD else None
        if endless is not None:
            piece = encode(Frame(Opcode.CONTINUATION, bytes(_BULK), fin=False, mask=_MASK))
            begun = encode(Frame(Opcode.TEXT, b"{", fin=False, mask=_MASK))
            octets = begun + piece * (_FLOOD // len(piece))
            taken += await endless.write(octets, within=_FLOOD_S)
        stage.recorder.note(f"unread: {taken} bytes were taken of clients that read nothing")
        read("while nobody reads")
