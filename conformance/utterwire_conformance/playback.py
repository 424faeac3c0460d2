"""Sending again what a transcript recorded: the client's side, to a live endpoint.

The same messages in the same frames, pings, closes, broken connections and HTTP exchanges are sent
over as many sessions. What the recorded client waited for is waited for again: each step comes
once the live endpoint has done what the recorded one had done by then, and after the pause that
the recorded client made. An endpoint that does less is waited for in vain, once, and told so in
the new transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from .dialogue import Dialogue, Utterance
from .driver import ConnectFailed, HandshakeRefused, HttpConnection, WebSocketSession
from .stage import Scenario, Stage, Unplayable
from .target import Instance
from .transcript import Entry, Transcript
from .wire import Frame, Opcode

__all__ = ["MEASURED", "REPEATED", "Playback", "PlaybackError", "needs_launch"]

_OPCODES: Final = {
    "text": Opcode.TEXT,
    "binary": Opcode.BINARY,
    "cont": Opcode.CONTINUATION,
    "ping": Opcode.PING,
    "pong": Opcode.PONG,
}
# A pause shorter than this is no more than the time that the recorder itself took.
_LEAST_PAUSE_S: Final = 0.05
_MOST_PAUSE_S: Final = 300.0
# How much longer than the recorded endpoint a live one may take to hang up for no reason.
_TO_HANG_UP_S: Final = 2.0
_SHUTDOWN: Final = "shutdown: begins"
_READING: Final = "reading: "
_QUIET: Final = "quiet: "
_DRAINING: Final = "draining"
_BUSY: Final = "busy: "
_LASTING: Final = ("held for", "stalled for")
_BUFFER: Final = "receive buffer: "
_UNANSWERED_CLOSE: Final = "the close frame was not answered"
_REFUSED: Final = "refused after a disconnect"
# Headers that the driver writes by itself.
_OWN_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "sec-websocket-key",
        "sec-websocket-version",
        "transfer-encoding",
        "upgrade",
    }
)
_HIDDEN: Final = "***"

REPEATED: Final = (
    "abuse",
    "breach: ",
    "case ",
    "deadline: over",
    "events until shutdown is over",
    "held for: ",
    "idle limit: ",
    "idle: waited",
    "kept for: ",
    "ordinary voice: ",
    "pong: waited for",
    "quiet: ",
    "round: ",
    "shutdown: begins",
    "stall limit: ",
    "stalled for: ",
    "stalled: begins",
    "stalls until shutdown is over",
    "stated idle: ",
    "the others read again: ",
    "too big: begins",
    "vanished: ",
    "waited for the endpoint's close: ",
)
"""How notes begin that say what the client does, and so hold when it does the same again."""

MEASURED: Final = (
    "accepted: ",
    "answered: ",
    "apart: ",
    "bad input: ",
    "busy when pinged: ",
    "draining: ",
    "ended in a frame: ",
    "exit status: ",
    "exited: ",
    "finding: ",
    "lag: ",
    "log: ",
    "memory ",
    "not accepted: ",
    "played again: ",
    "stood still: ",
    "turned away: ",
    "unread: ",
)
"""How notes begin that say what was found then, which tells nothing of now; they are left out, so
that what depends on them is not exercised. Any other note is left out as well."""

Step: TypeAlias = tuple[Literal["answered", "started", "ended", "bytes", "hangup"], int, int]
"""Something that the recorded endpoint had done: what, about which message, and how much of it."""


class PlaybackError(ValueError):
    """A transcript that cannot be sent again; the text is one line for people."""


@dataclass(slots=True)
class _Http:
    """What of the latest HTTP exchange of a connection had come by now, in the recording."""

    connection: HttpConnection
    head: bool = False
    octets: int = 0
    over: bool = False
    lost: bool = False


@dataclass(slots=True)
class _Socket:
    """A session: as it is now, and as it had been recorded by now.

    `live` is None where it could not be opened. `missed` are the steps that were waited for in
    vain; `quiet` is how long the recorded endpoint had been silent before it hung up.
    """

    recorded: Dialogue
    live: WebSocketSession | None = None
    missed: set[Step] = field(default_factory=set)
    quiet: float = 0.0
    paused: bool = False
    acted: float = 0.0


def needs_launch(recorded: Transcript) -> bool:
    """Whether it tells of a shutdown, which only an endpoint that the suite launched can have."""
    return any(entry.text == _SHUTDOWN for entry in recorded.entries)


class Playback:
    """One transcript to be sent again; `scenario` is to be played like any other.

    `patience` is how long to wait, in seconds, for what the recorded endpoint had done.

    Raises:
        PlaybackError: there is nothing in it that could be sent.
    """

    def __init__(self, recorded: Transcript, *, patience: float = 15.0) -> None:
        if recorded.role != "endpoint":
            raise PlaybackError("what a client sent cannot be sent again: run the client itself")
        if not any(entry.dir == "out" for entry in recorded.entries):
            raise PlaybackError("nothing was sent in it")
        self.recorded = recorded
        self.patience = patience
        self._sockets: dict[int, _Socket] = {}
        self._http: dict[int, _Http] = {}
        self._last: dict[int, float] = {}
        self._before = 0.0
        self._refusal: Exception | None = None
        self._instance: Instance | None = None

    @property
    def scenario(self) -> Scenario:
        """What is to be played, under the name of what was recorded."""
        entries = self.recorded.entries
        limit = 2.0 * entries[-1].t + 10.0 * self.patience + 60.0
        return Scenario(self.recorded.scenario, "core", self._play, limit_s=limit)

    async def _play(self, stage: Stage) -> None:
        if needs_launch(self.recorded):
            self._instance = await stage.target.launch()
        try:
            for index, entry in enumerate(self.recorded.entries):
                await self._step(stage, index, entry)
                self._last[entry.session] = self._before = entry.t
            await self._catch_up(None)
            if self._instance is not None and self._instance.process is not None:
                stage.recorder.note(f"exit status: {await self._instance.wait(10.0)}")
        finally:
            for socket in self._sockets.values():
                if socket.live is not None:
                    await socket.live.end()
            for http in self._http.values():
                await http.connection.end()
            if self._instance is not None:
                await self._instance.stop()
        if self.recorded.unfinished is not None:
            raise Unplayable(self.recorded.unfinished)

    # --- step by step -------------------------------------------------------------------------

    async def _step(self, stage: Stage, index: int, entry: Entry) -> None:
        if entry.kind == "note":
            await self._note(stage, entry)
        elif entry.dir == "in":
            self._came(entry)
        elif entry.kind == "http-request":
            await self._request(stage, index, entry)
        elif entry.kind == "open":
            await self._open(stage, index, entry)
        elif entry.kind == "eof" and entry.session in self._http:
            await self._catch_up(entry)
            await self._http[entry.session].connection.end()
        elif entry.session in self._sockets:
            await self._send(index, entry)
        if entry.session in self._sockets and entry.dir != "in":
            self._sockets[entry.session].recorded.feed(entry)

    def _came(self, entry: Entry) -> None:
        """Take down what the recorded endpoint did."""
        socket, http = self._sockets.get(entry.session), self._http.get(entry.session)
        if socket is not None:
            farewell = socket.recorded.session_closed
            before = self._last.get(entry.session, entry.t)
            socket.recorded.feed(entry)
            told = socket.recorded.session_closed is not farewell
            if entry.kind in ("close", "eof") or told:
                socket.quiet = max(socket.quiet, entry.t - before)
        elif http is not None:
            http.head = http.head or entry.kind == "http-response"
            http.octets += len(entry.data) if entry.kind == "http-body" else 0
            http.over = (
                http.over or entry.kind == "eof" or (entry.kind == "http-body" and entry.fin)
            )

    async def _open(self, stage: Stage, index: int, entry: Entry) -> None:
        await self._catch_up(entry)
        socket = _Socket(Dialogue(self.recorded.claims, self.recorded.scenario, entry.session))
        self._sockets[entry.session] = socket
        headers = {name.lower(): value for name, value in entry.headers}
        stage.recorder.begin_at(entry.session)
        try:
            socket.live = await stage.session(
                instance=self._instance,
                extensions=headers.get("sec-websocket-extensions"),
                receive_buffer=self._buffer(index, entry.session),
            )
        except (ConnectFailed, HandshakeRefused) as error:
            self._refusal = error
            if self._was_opened(index, entry.session):
                raise
            return
        rest = [e for e in self.recorded.entries[index:] if e.session == entry.session]
        socket.live.answers_pings = _answers(rest, "ping", "pong")
        socket.live.answers_close = _answers(rest, "close", "close")
        socket.acted = stage.recorder.now

    def _was_opened(self, index: int, session: int) -> bool:
        return any(
            e.session == session and e.dir == "in" and e.kind == "open" and e.status == 101
            for e in self.recorded.entries[index:]
        )

    def _buffer(self, index: int, session: int) -> int | None:
        for entry in self.recorded.entries[index:]:
            text = entry.text or ""
            if entry.session == session and text.startswith(_BUFFER):
                size = text.removeprefix(_BUFFER)
                return int(size) if size.isdecimal() and 0 < int(size) < 2**31 else None
        return None

    async def _send(self, index: int, entry: Entry) -> None:
        socket = self._sockets[entry.session]
        live = socket.live
        if live is None or self._is_automatic(socket.recorded, entry):
            return
        await self._catch_up(entry)
        if entry.kind in _OPCODES:
            await live.send_frame(Frame(_OPCODES[entry.kind], entry.data, entry.fin))
        elif entry.kind == "raw":
            await live.send_raw(entry.data)
        elif entry.kind == "close":
            # The driver answers the endpoint's close unless it knows that one was sent; whether
            # it did then shows in whether another followed.
            later = self.recorded.entries[index + 1 :]
            if any(e.kind == "close" and e.dir == "out" for e in later if _same(e, entry)):
                await live.send_frame(Frame(Opcode.CLOSE, entry.data))
            else:
                await live.close_with(entry.data)
        elif entry.kind == "eof":
            broken_off = (entry.reason or "").startswith("broken off")
            await (live.abort() if broken_off else live.end())
        socket.acted = live.now

    @staticmethod
    def _is_automatic(recorded: Dialogue, entry: Entry) -> bool:
        """Whether the driver sends this by itself, as it did then: answers to pings and closes."""
        if entry.kind == "pong":
            return any(e.kind == "ping" and e.dir == "in" and e.data == entry.data
                       for e in recorded.entries)  # fmt: skip
        return entry.kind == "close" and recorded.close_in is not None

    async def _request(self, stage: Stage, index: int, entry: Entry) -> None:
        await self._catch_up(entry)
        http = self._http.get(entry.session)
        if http is None:
            stage.recorder.begin_at(entry.session)
            connection = await stage.http(
                instance=self._instance, receive_buffer=self._buffer(index, entry.session)
            )
        else:
            connection = http.connection
        self._http[entry.session] = _Http(connection)
        await connection.send(
            entry.method or "GET",
            entry.target or "/",
            entry.data,
            headers=[
                (name, value)
                for name, value in entry.headers
                if name.lower() not in _OWN_HEADERS and value != _HIDDEN
            ],
        )

    # --- notes --------------------------------------------------------------------------------

    async def _note(self, stage: Stage, entry: Entry) -> None:
        text = entry.text or ""
        socket = self._sockets.get(entry.session)
        live = socket.live if socket is not None else None
        if text.startswith(_REFUSED):
            if self._refusal is not None:
                stage.recorder.note(f"{_REFUSED}: {self._refusal}")
            return
        if socket is not None and text.partition(": ")[0] in ("in vain", "unanswered"):
            await self._await_in_vain(socket, text)
            return
        if live is not None and text.startswith("no session_closed"):
            dialogue = live.dialogue
            if not await live.until_farewell(self.patience) and not dialogue.ended:
                live.note(text)
            return
        if live is not None and text == _UNANSWERED_CLOSE:
            if not await live.until_close(self.patience):
                live.note(text)
            return
        if not text.startswith((*REPEATED, _READING, _BUSY)) and text != _DRAINING:
            return
        await self._catch_up(entry)
        text = self._as_it_is(text, live)
        if socket is not None and live is not None and text.startswith(_READING):
            how = text.removeprefix(_READING)
            {"paused": live.pause, "slowly": live.sip}.get(how, live.resume)()
            socket.paused = how == "paused"
        elif live is not None:
            if text.startswith(_QUIET):
                await self._ask_once_more(stage, live)
            live.note(text)
        elif socket is None:
            stage.recorder.note(text, entry.session)
        if text == _SHUTDOWN and self._instance is not None and self._is_last_told(entry):
            self._instance.terminate()

    @staticmethod
    async def _ask_once_more(stage: Stage, live: WebSocketSession) -> None:
        """Send the last request that fuzzing asks of a session that lives, where the recorded one
        did not live so long: otherwise nobody could tell that it does."""
        dialogue = live.dialogue
        over = dialogue.ended or dialogue.close_in is not None or dialogue.aborted
        if over or dialogue.close_sent is not None or dialogue.session_closed is not None:
            return
        due = [u for u in dialogue.utterances.values() if u.sent.awaits_answer]
        if due and due[-1].complete is not None:
            return
        if await stage.ended(live, *(utterance.seq for utterance in due)):
            request = stage.request(stage.texts.shortest, request_id=stage.new_id())
            await stage.ended(live, await live.send(request))

    def _as_it_is(self, text: str, live: WebSocketSession | None) -> str:
        """A note that tells a state or a time, with that of now."""
        if text.startswith(_BUSY):
            running = any(s.live is not None and s.live.dialogue.running for s in self._all())
            return f"{_BUSY}{'running' if running else 'ended'}"
        name, _, value = text.partition(": ")
        if name in _LASTING and live is not None and value.replace(".", "", 1).isdecimal():
            paused = [e.t for e in live.dialogue.entries if e.text == f"{_READING}paused"]
            lasted = live.now - paused[-1] if paused else 0.0
            # What took longer on this machine was stalled for longer.
            return f"{name}: {max(float(value), round(lasted, 3))}"
        return text

    def _all(self) -> Iterable[_Socket]:
        return self._sockets.values()

    def _is_last_told(self, entry: Entry) -> bool:
        """Whether the shutdown is noted in no other session after this one."""
        return [e for e in self.recorded.entries if e.text == _SHUTDOWN][-1] is entry

    async def _await_in_vain(self, socket: _Socket, text: str) -> None:
        """Wait for the ends that the recorded endpoint owed; perhaps they come now."""
        live = socket.live
        if live is None:
            return
        seqs = [int(seq) for seq in text.partition(": ")[2].split(",") if seq.strip().isdecimal()]
        known = [live.utterance(seq) for seq in seqs if seq in live.dialogue.utterances]
        await live.until(
            lambda: all(u.ended for u in known) or live.dialogue.session_closed is not None,
            within=self.patience,
            stall=self.patience,
        )
        self._tell_missing(live, known)

    @staticmethod
    def _tell_missing(live: WebSocketSession, utterances: list[Utterance]) -> None:
        dialogue = live.dialogue
        if dialogue.ended or dialogue.session_closed is not None:
            return
        told = dialogue.in_vain | dialogue.unanswered
        left = [u for u in utterances if not u.ended and u.seq not in told]
        asked = [u.seq for u in left if u.sent.meaning.type in ("cancel", "hello")]
        spoken = [u.seq for u in left if u.seq not in asked]
        for remark, seqs in (("in vain", spoken), ("unanswered", asked)):
            if seqs:
                live.note(f"{remark}: {','.join(map(str, seqs))}")

    # --- waiting ------------------------------------------------------------------------------

    async def _catch_up(self, entry: Entry | None) -> None:
        """Wait until all is done that had been done by now, and as long as was waited then.

        Of other sessions than the entry's own only what began and ended is waited for, not every
        byte. Without an entry it is the end, where everything counts.
        """
        for ordinal, socket in self._sockets.items():
            await self._await_steps(socket, every=entry is None or entry.session == ordinal)
        for http in self._http.values():
            await self._await_http(http)
        if entry is not None:
            await self._pause(entry)

    async def _pause(self, entry: Entry) -> None:
        before = self._last.get(entry.session, self._before)
        gap = min(entry.t - before, _MOST_PAUSE_S)
        if gap < _LEAST_PAUSE_S:
            return
        socket = self._sockets.get(entry.session)
        if socket is None or socket.live is None:
            await asyncio.sleep(gap)
            return
        # What came while something else was waited for was not paused for then either.
        entries = socket.live.dialogue.entries
        last = max(socket.acted, entries[-1].t if entries else 0.0)
        await asyncio.sleep(max(0.0, last + gap - socket.live.now))

    async def _await_http(self, http: _Http) -> None:
        connection = http.connection
        if http.lost or not (http.head or http.over):
            return
        if await connection.head(within=self.patience) is None:
            http.lost = True
        elif http.over:
            await connection.read(within=self.patience)
            http.lost = connection.clean is None
        elif http.octets:
            await connection.read(within=self.patience, at_least=http.octets)

    async def _await_steps(self, socket: _Socket, *, every: bool) -> None:
        live = socket.live
        if live is None or socket.paused:
            return

        def owed(hangups: bool) -> set[Step]:
            steps = _steps(socket.recorded, live.dialogue, every=every)
            return {s for s in steps - socket.missed if (s[0] == "hangup") == hangups}

        waits = ((False, self.patience, self.patience), (True, socket.quiet + _TO_HANG_UP_S, None))
        for hangups, within, stall in waits:
            await live.until(lambda h=hangups: not owed(h), within=within, stall=stall)  # type: ignore[misc]
            if live.dialogue.ended or live.dialogue.aborted:
                return
            left = owed(hangups)
            socket.missed |= left
            seqs = {step[1] for step in left if step[1] > 0}
            self._tell_missing(live, [live.utterance(seq) for seq in sorted(seqs)])


def _same(one: Entry, other: Entry) -> bool:
    return one.session == other.session


def _answers(entries: list[Entry], asked: str, answer: str) -> bool:
    """Whether the recorded client answered such frames; where none came it would have."""
    came = next((i for i, e in enumerate(entries) if e.dir == "in" and e.kind == asked), None)
    if came is None:
        return True
    return any(e.dir == "out" and e.kind == answer for e in entries[came:]) or any(
        e.dir == "out" and e.kind == "close" for e in entries[:came]
    )


def _steps(recorded: Dialogue, live: Dialogue, *, every: bool) -> set[Step]:
    """What the recorded endpoint had done and the live one has not; `every` counts bytes, too."""
    return set(_all_steps(recorded, live, every=every))


def _all_steps(recorded: Dialogue, live: Dialogue, *, every: bool) -> Iterator[Step]:
    if recorded.is_open and not live.is_open:
        return
    for seq, then in recorded.utterances.items():
        now = live.utterances.get(seq)
        if now is None or now.ended:
            continue
        if then.ended:
            yield "ended", seq, 0
        elif then.starts and not now.answered:
            yield "started", seq, 0
        elif then.answered and not now.answered:
            yield "answered", seq, 0
        if every and (octets := _audio(then)) > _audio(now):
            yield "bytes", seq, octets
    if every and len(recorded.pongs) > len(live.pongs):
        yield "answered", 0, len(recorded.pongs)
    asked = recorded.close_sent is not None or recorded.close_out is not None
    hung_up: Literal["answered", "hangup"] = "answered" if asked else "hangup"
    for number, (then_, now_) in enumerate(
        (
            (recorded.session_closed, live.session_closed),
            (recorded.close_in, live.close_in),
            (recorded.eof, live.eof),
        ),
        1,
    ):
        if then_ is not None and now_ is None:
            yield hung_up, -number, 0


def _audio(utterance: Utterance) -> int:
    return sum(len(chunk.data) for chunk in utterance.audio)
