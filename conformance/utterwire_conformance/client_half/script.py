"""Scripts: what a scripted endpoint does to a client, and how one is played."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from utterwire_conformance.driver import Recorder
from utterwire_conformance.endpoints import SESSION_PATH
from utterwire_conformance.transcript import Transcript

from .contract import Client
from .peer import Allowance, Gone, Peer
from .subject import Launcher, Outcome, Subject
from .talk import Talk

__all__ = ["SCRIPTS", "OnExchange", "Scene", "Script", "add", "exchange", "play", "script"]

_LINES: Final = ("The first line.", "A second one.")
_DEADLINE_S: Final = 10.0
_SHORT_DEADLINE_S: Final = 1.0
_MOST_CONNECTIONS: Final = 50
_MOST_EVENTS: Final = 10_000
_LIMIT_S: Final = 60.0
_TO_HANG_UP_S: Final = 1.0
_WATCH_S: Final = 0.05
_SMALL: Final = 4_096
_LARGE: Final = 65_536

OnSession: TypeAlias = Callable[[Talk], Awaitable[None]]
OnExchange: TypeAlias = Callable[[Peer, int], Awaitable[None]]
OnPeer: TypeAlias = Callable[[Peer, int], Awaitable[bool]]
Drive: TypeAlias = Callable[["Scene"], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Script:
    """What is done to the client, and what it is asked to say.

    Attributes:
        name: also that of the transcript.
        profile: of `PROFILES_OF_CLIENTS`; what the client is told to use.
        lines: its stdin, where `drive` does not write it.
        on_session: plays a session.
        on_exchange: answers an HTTP request; gets the connection and its ordinal.
        on_peer: sees each connection first; whether it has dealt with it.
        drive: plays the part of the person at stdin.
        bare: the endpoint is one from before the specification.
        session_message: what answers `hello`.
        silent: the endpoint falls silent, so that only a deadline of the client ends it.
        small_buffer: the endpoint's receive buffer is as small as can be.
        patience_s: how long the client may take after its deadline to end, in seconds.
    """

    name: str
    profile: str
    lines: tuple[str, ...]
    on_session: OnSession | None = None
    on_exchange: OnExchange | None = None
    on_peer: OnPeer | None = None
    drive: Drive | None = None
    bare: bool = False
    session_message: Mapping[str, Any] | None = None
    silent: bool = False
    small_buffer: bool = False
    patience_s: float = 6.0

    @property
    def explanation(self) -> str:
        """What it is about, in a sentence."""
        plays = self.on_session or self.on_exchange or self.on_peer
        if self.on_peer is not None and self.on_peer.__doc__:
            plays = self.on_peer
        return ((plays.__doc__ if plays is not None else None) or "").strip().splitlines()[0]


SCRIPTS: Final[dict[str, Script]] = {}


def script(
    name: str, *, profile: str = "core", lines: tuple[str, ...] = _LINES, **more: Any
) -> Callable[[OnSession], OnSession]:
    """Register a script by the function that plays its sessions."""

    def register(play_session: OnSession) -> OnSession:
        add(Script(name, profile, lines, on_session=play_session, **more))
        return play_session

    return register


def exchange(
    name: str, *, profile: str, lines: tuple[str, ...] = _LINES, **more: Any
) -> Callable[[OnExchange], OnExchange]:
    """Register a script by the function that answers its HTTP requests."""

    def register(answer: OnExchange) -> OnExchange:
        add(Script(name, profile, lines, on_exchange=answer, **more))
        return answer

    return register


def add(made: Script) -> None:
    """Register a script.

    Raises:
        ValueError: there is one of that name.
    """
    if made.name in SCRIPTS:
        raise ValueError(f"two scripts are called {made.name}")
    SCRIPTS[made.name] = made


@dataclass(slots=True)
class Scene:
    """A script that is being played: the client on one side, the scripted endpoint on the other."""

    script: Script
    recorder: Recorder
    subject: Subject | None = None
    connections: int = 0
    allowance: Allowance = field(default_factory=Allowance)
    talk: asyncio.Future[Talk] | None = None
    faults: list[BaseException] = field(default_factory=list)

    async def say(self, line: str) -> None:
        """Write a line to the client's stdin."""
        assert self.subject is not None
        self.recorder.note(f"client line: {json.dumps(line)}")
        await self.subject.say(line)

    async def interrupt(self) -> None:
        """Write the empty line that says: stop speaking."""
        assert self.subject is not None
        self.recorder.note("client interrupted: true")
        await self.subject.say("")

    async def end_input(self) -> None:
        """End the client's stdin."""
        assert self.subject is not None
        self.recorder.note("client input-end: true")
        await self.subject.end_input()

    async def heard(self, at_least: int, within: float) -> bool:
        """Wait until so many bytes of audio have come out of the client; whether they have."""
        assert self.subject is not None
        return await self.subject.heard(at_least, within)

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Deal with one connection of the client."""
        self.connections += 1
        if self.connections > _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        peer = Peer(reader, writer, self.recorder, self.allowance)
        try:
            with contextlib.suppress(Gone):
                await self._meet(peer, self.connections)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.faults.append(error)
        finally:
            await peer.stop()

    async def _meet(self, peer: Peer, number: int) -> None:
        made = self.script
        if made.on_peer is not None and await made.on_peer(peer, number):
            return
        head = await peer.read_head()
        if head.target.partition("?")[0] == "/ping":
            self.connections -= 1
            await peer.respond(200, ("Content-Length", "0"), ("Connection", "close"))
            return
        if not head.opens_session:
            if made.on_exchange is not None and head.target.partition("?")[0] == "/invocations":
                await made.on_exchange(peer, number)
            else:
                await peer.respond(404, ("Content-Length", "0"), ("Connection", "close"))
            return
        if made.on_session is None or head.target.partition("?")[0] != SESSION_PATH:
            await peer.refuse(404)
            return
        await peer.accept()
        talk = Talk(
            peer,
            number,
            bare=made.bare,
            session_message=made.session_message,
            interrupts=made.profile == "interrupt",
        )
        if self.talk is not None and not self.talk.done():
            self.talk.set_result(talk)
        await made.on_session(talk)


async def play(
    made: Script, client: Client, launcher: Launcher, *, limit_s: float = _LIMIT_S
) -> Transcript:
    """Play a script on a client and give back what was recorded.

    Whatever the client does, this ends, and leaves nothing of it running.

    Raises:
        ContractError: the client cannot be started.
    """
    transcript = Transcript(
        made.name,
        client.name,
        client.claims,
        datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )
    transcript.role = "client"
    # By the clock that the script's own waits go by.
    recorder = Recorder(transcript, clock=asyncio.get_running_loop().time)
    scene = Scene(made, recorder)
    scene.talk = asyncio.get_running_loop().create_future()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(scene.meet(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # Also where it was cancelled before it had begun.
        task.add_done_callback(lambda _: writer.transport.abort())

    watch = _Watch()
    watching = asyncio.create_task(watch.run())
    limit = _SMALL if made.small_buffer else _LARGE
    server = await asyncio.start_server(connected, sock=_listener(made), limit=limit)
    port = server.sockets[0].getsockname()[1]
    try:
        await _play(scene, client, launcher, port, limit_s)
        # The end of its connections may be seen a moment after that of the process.
        if tasks:
            await asyncio.wait(tuple(tasks), timeout=_TO_HANG_UP_S)
    finally:
        watching.cancel()
        recorder.note(f"client lag: {watch.most_s:.3f}")
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks))
        scene.talk.cancel()
    for fault in scene.faults:
        transcript.broken = f"the script failed: {type(fault).__name__}: {fault}"
    return transcript


class _Watch:
    """Measures how late this machine is: what is judged by the clock can be no surer than that."""

    def __init__(self) -> None:
        self.most_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _WATCH_S
            await asyncio.sleep(_WATCH_S)
            self.most_s = max(self.most_s, loop.time() - due)


async def _play(
    scene: Scene, client: Client, launcher: Launcher, port: int, limit_s: float
) -> None:
    made, recorder = scene.script, scene.recorder
    told = _SHORT_DEADLINE_S if made.silent else _DEADLINE_S
    waits = told if client.takes_deadline else (client.deadline_s or _DEADLINE_S)
    recorder.note(f"client deadline: {json.dumps(waits if _knows_deadline(client) else None)}")
    values = {
        "url": _address(made.profile, port),
        "profile": made.profile,
        "deadline_s": f"{told:g}",
    }
    scene.subject = subject = await launcher(client, values)
    driving = asyncio.create_task(made.drive(scene) if made.drive is not None else _read_out(scene))
    try:
        # A client that says how long it waits is given that time, however long it is.
        outcome = await subject.finish(max(min(limit_s, waits + made.patience_s), waits + 1.0))
    except BaseException:
        await subject.kill("the run was broken off")
        raise
    finally:
        driving.cancel()
        await asyncio.wait({driving})
    fault = None if driving.cancelled() else driving.exception()
    if fault is not None:
        scene.faults.append(fault)
    _write_down(recorder, outcome)


def _knows_deadline(client: Client) -> bool:
    return client.takes_deadline or client.deadline_s is not None


async def _read_out(scene: Scene) -> None:
    for line in scene.script.lines:
        await scene.say(line)
    await scene.end_input()


def _write_down(recorder: Recorder, outcome: Outcome) -> None:
    events = [line for line in outcome.events.split("\n") if line.lstrip().startswith("{")]
    for line in events[:_MOST_EVENTS]:
        recorder.note(f"client event: {line.strip()}")
    if len(events) > _MOST_EVENTS:
        recorder.note(f"client flood: it wrote more than {_MOST_EVENTS} lines of events")
    elif outcome.cut is not None:
        recorder.note(f"client cut: {outcome.cut}")
    recorder.note(f"client audio: {base64.b64encode(outcome.audio).decode()}")
    if outcome.last_words:
        recorder.note(f"client words: {outcome.last_words.splitlines()[-1][:300]}")
    ended = {"status": outcome.status, "killed": outcome.killed}
    recorder.note(f"client exit: {json.dumps(ended)}")


def _address(profile: str, port: int) -> str:
    if profile in ("http", "sse"):
        return f"http://127.0.0.1:{port}/invocations"
    return f"ws://127.0.0.1:{port}{SESSION_PATH}"


def _listener(made: Script) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.small_buffer:
        # Inherited by the connections; set before the window is agreed on.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        # Small segments keep the buffer of the one who sends to us small, too: on loopback it
        # would grow to megabytes.
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_400)
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    sock.setblocking(False)
    return sock
