"""One WebSocket session: the protocol core between a socket and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect
from utterwire_protocol import (
    CancelReceived,
    Connection,
    Event,
    FrameKind,
    MessageRejected,
    Role,
    SessionState,
    Synthesize,
    SynthesizeReceived,
    Utterance,
    UtteranceEnded,
    UtteranceState,
)

from utterwire_server.backlog import SOONEST_S
from utterwire_server.line import Listener
from utterwire_server.logs import log_event, whereabouts
from utterwire_server.marks import WordTimes
from utterwire_server.observer import Outcome, UtteranceRecord
from utterwire_server.service import CLOSE_AFTER_S, Service
from utterwire_server.tracing import trace_headers
from utterwire_server.wire import wire_of

__all__ = ["Session"]

#: Past so many chunks the reader lets the writer go first, as long as the peer reads.
SOFT_PENDING: Final = 64
#: Past either of these nothing more is read until the peer has taken some of it.
HARD_PENDING: Final = 4_096
HARD_PENDING_BYTES: Final = 1_048_576
#: How long a peer that reads nothing may go on sending past the hard bound.
FLOOD_S: Final = 10.0
#: How long a peer that reads nothing may keep the last messages of a session waiting
#: (`protocol.md#timeouts`: 5 seconds at most).
LAST_WORDS_S: Final = 4.5
#: How long a task works before it lets others have the loop.
TURN_S: Final = 0.005


class Session:
    """A session from the accepted socket to its end.

    Three tasks share the core: one reads messages, one asks for audio, one writes
    chunks. The core says what comes next; the tasks only wait for each other. The engine is asked
    for a block only when all that went before has reached the kernel, so a slow reader slows
    nobody but itself.
    """

    def __init__(self, websocket: WebSocket, service: Service) -> None:
        self._websocket = websocket
        self._service = service
        self._wire = wire_of(websocket.scope)
        self._loop = asyncio.get_running_loop()
        self._options = service.options()
        self._id = self._options.session_id
        self._connection = Connection(
            Role.ENDPOINT, now=self._now(), endpoint=self._options, admission=self
        )
        self._listener = Listener()
        self._to_write = asyncio.Event()
        self._to_speak = asyncio.Event()
        self._written = asyncio.Event()
        self._speaking: tuple[int, asyncio.Timeout] | None = None
        self._stall: asyncio.Timeout | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None
        self._failed = False
        self._delivered = False
        self._rejected = 0
        # Of each accepted utterance that has not ended.
        self._records: dict[int, UtteranceRecord] = {}
        # All of them is made; their last message is still to leave.
        self._finishing: set[int] = set()
        self._free_at = 0.0

    async def run(self) -> None:
        """Serve the session until its socket is closed."""
        began = self._now()
        with self._service.hosting(self):
            try:
                await self._websocket.accept()
            except WebSocketDisconnect:
                return
            log_event("session_opened", session=self._id)
            self._service.session_opened()
            try:
                for error in await self._serve():
                    self._failed = True
                    log_event("session_failed", session=self._id, **whereabouts(error))
                if self._failed:
                    await self._close(1011)
            finally:
                self._closed(began)

    def _closed(self, began: float) -> None:
        reason = "internal" if self._failed else str(self._connection.end_reason)
        duration_s = round(self._now() - began, 3)
        self._service.session_closed(reason, duration_s)
        log_event(
            "session_closed",
            session=self._id,
            reason=reason,
            # Whether the message of that name got as far as the kernel.
            delivered=self._delivered,
            rejected=self._rejected,
            duration_s=duration_s,
        )

    async def _serve(self) -> list[Exception]:
        """Run the three tasks until one is done; the errors that none of them should have."""
        tasks = [
            asyncio.create_task(work, name=f"{name}-{self._id}")
            for name, work in (
                ("read", self._read()),
                ("speak", self._speak()),
                ("write", self._write()),
            )
        ]
        try:
            self._settle()
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            self._note(self._connection.transport_lost(self._now()))
            if self._alarm is not None:
                self._alarm.cancel()
        return [
            outcome
            for outcome in outcomes
            if isinstance(outcome, Exception) and not isinstance(outcome, WebSocketDisconnect)
        ]

    def shut_down(self) -> None:
        """Speak what was accepted within the deadline, then end the session."""
        self._note(self._connection.shutdown(self._now()))

    def cut_off(self) -> None:
        """The deadline has passed: the core has seen to it by its own clock."""

    def room_in_s(self, request: Synthesize) -> float | None:
        """After how many seconds there may be room for ``request``; None if there is."""
        return self._service.overload_s(request, self._listener)

    def turn_in_s(self) -> float | None:
        """After how many seconds the running utterance will probably have ended."""
        running = next(iter(self._records.values()), None)
        if running is None or running.place is None:
            return None
        return max(SOONEST_S, running.place.left_s)

    def _now(self) -> float:
        return self._loop.time()

    async def _breathe(self, since: float) -> float:
        """Let others have the loop after a long turn; when the present turn began."""
        if self._now() - since <= TURN_S:
            return since
        await asyncio.sleep(0)
        return self._now()

    # Reading

    async def _read(self) -> None:
        turn = self._now()
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data, kind = message.get("bytes"), FrameKind.BINARY
            if data is None:
                data, kind = message["text"].encode(), FrameKind.TEXT
            if self._connection.state is not SessionState.CLOSED:
                self._note(self._connection.receive(data, self._now(), kind=kind))
            await self._relief()
            turn = await self._breathe(turn)

    async def _relief(self) -> None:
        """Wait for the writer where answers pile up."""
        connection = self._connection
        if connection.state is SessionState.CLOSED:
            return
        while connection.pending() > SOFT_PENDING and self._wire.is_writable:
            self._written.clear()
            await self._written.wait()
        try:
            async with asyncio.timeout(FLOOD_S):
                while (
                    connection.pending() > HARD_PENDING
                    or connection.pending_bytes() > HARD_PENDING_BYTES
                ):
                    self._written.clear()
                    await self._written.wait()
        except TimeoutError:
            self._end("policy")

    # Speaking

    async def _speak(self) -> None:
        while True:
            utterance = self._connection.next_waiting()
            if utterance is None:
                self._to_speak.clear()
                await self._to_speak.wait()
            else:
                await self._utter(utterance)

    async def _utter(self, utterance: Utterance) -> None:
        connection, seq = self._connection, utterance.seq
        record = self._records[seq]
        record.due_at = max(record.accepted_at, self._free_at)
        # The core has filled in every default.
        assert utterance.speed is not None
        rendering = self._service.rendering(utterance.text, utterance.speed, record)
        began = self._now()
        connection.start(seq, began)
        # A timeout without a time: rescheduling it to now stops the utterance at any await.
        scope = asyncio.timeout(None)
        self._speaking = (seq, scope)
        times = WordTimes(utterance.text) if utterance.marks else None
        outcome = "stopped"
        try:
            async with scope:
                self._settle()
                async with aclosing(rendering.pieces()) as pieces:
                    async for piece in pieces:
                        if connection.utterance(seq) is None:
                            return
                        if times is not None and piece.marks:
                            words = times.words(piece.marks, piece.begins_s)
                            connection.marks(seq, words, self._now())
                        now = self._now()
                        connection.audio(seq, piece.data, now)
                        self._settle()
                        if piece.data:
                            self._service.made(record, rendering.duration_s, now)
                        await self._all_written()
                        record.listener.taken(self._now())
            if connection.utterance(seq) is not None:
                outcome = "completed"
                self._finishing.add(seq)
                connection.complete(seq, self._now(), rendering.duration_s)
        except Exception as error:
            # With the scope's own timeout the utterance has ended already.
            if connection.utterance(seq) is not None:
                outcome = self._fail(seq, error)
        finally:
            self._speaking = None
            self._free_at = self._now()
            log_event(
                "utterance",
                session=self._id,
                seq=seq,
                outcome=outcome,
                characters=len(utterance.text),
                audio_s=round(rendering.duration_s, 3),
                elapsed_s=round(self._now() - began, 3),
            )
        self._settle()

    def _fail(self, seq: int, error: Exception) -> str:
        log_event("synthesis_failed", session=self._id, seq=seq, **whereabouts(error))
        now = self._now()
        self._connection.fail(seq, "synthesis_failed", "the engine failed", now)
        self._service.ended(self._records.pop(seq), "failed", now, "synthesis_failed")
        return "failed"

    async def _all_written(self) -> None:
        while self._connection.pending():
            self._written.clear()
            await self._written.wait()
        await self._wire.drained()

    # Writing

    async def _write(self) -> None:
        connection, websocket = self._connection, self._websocket
        turn = self._now()
        while await self._drained():
            chunk = connection.next_chunk(self._now())
            if chunk is None:
                if connection.state is SessionState.CLOSED:
                    break
                self._to_write.clear()
                await self._to_write.wait()
                continue
            if chunk.kind is FrameKind.TEXT:
                await websocket.send_text(chunk.data.decode())
            else:
                await websocket.send_bytes(chunk.data)
            self._written.set()
            # Handing over the last chunk of an utterance can end the session, or start its clock.
            self._note(connection.poll_events())
            turn = await self._breathe(turn)
        else:
            return
        self._delivered = self._wire.is_open
        # The client closes; for one that does not, the reader never returns.
        await asyncio.sleep(CLOSE_AFTER_S)
        await self._close(1001 if connection.end_reason == "going_away" else 1000)

    async def _drained(self) -> bool:
        """Wait until the peer has taken what was written; False if it never does."""
        while not self._wire.is_writable:
            self._stall = asyncio.timeout(self._patience())
            try:
                async with self._stall:
                    await self._wire.drained()
            except TimeoutError:
                if self._wire.is_writable:
                    break
                if self._connection.state is SessionState.CLOSED:
                    self._wire.hang_up(at_once=True)
                    return False
                self._end("slow_reader")
            finally:
                self._stall = None
        return True

    def _patience(self) -> float:
        if self._connection.state is SessionState.CLOSED:
            return LAST_WORDS_S
        return self._service.settings.stall_timeout_s

    async def _close(self, code: int) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._websocket.close(code)
        except (TimeoutError, WebSocketDisconnect, RuntimeError):
            self._wire.hang_up()

    # What every step ends with

    def _end(self, reason: str) -> None:
        self._note(self._connection.end(reason, self._now()))

    def _tick(self) -> None:
        self._alarm = self._alarm_at = None
        self._note(self._connection.tick(self._now()))

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, MessageRejected):
                self._rejected += 1
                self._service.tell("error", event.code)
            elif isinstance(event, SynthesizeReceived):
                record = self._records[event.seq] = self._record(event.utterance)
                self._service.tell("accepted", record)
            elif isinstance(event, CancelReceived):
                for seq in event.stopped:
                    self._ended(seq, "cancelled")
                if self._connection.running() is None:
                    self._listener.flush()
            elif isinstance(event, UtteranceEnded):
                if event.state is UtteranceState.CANCELLED:
                    self._ended(event.seq, "disconnected")
                else:
                    self._ended(event.seq, "cut_off", "going_away")
        self._settle()

    def _record(self, utterance: Utterance) -> UtteranceRecord:
        # The core has filled in every default.
        assert utterance.voice is not None
        assert utterance.speed is not None
        assert utterance.sample_rate is not None
        assert utterance.format is not None
        now = self._now()
        return UtteranceRecord(
            transport="websocket",
            voice=utterance.voice,
            format=utterance.format,
            sample_rate=utterance.sample_rate,
            characters=len(utterance.text),
            accepted_at=now,
            due_at=now,
            parent=trace_headers(self._websocket.scope),
            listener=self._listener,
            place=self._service.scheduler.backlog.place(
                len(utterance.text), utterance.speed, self._listener
            ),
        )

    def _ended(self, seq: int, outcome: Outcome, code: str | None = None) -> None:
        record = self._records.pop(seq, None)
        # One that failed has ended before its error has left.
        if record is not None:
            self._service.ended(record, outcome, self._now(), code)
        self._finishing.discard(seq)

    def _settle(self) -> None:
        """Wake whoever has something to do after the core has moved."""
        connection = self._connection
        closed = connection.state is SessionState.CLOSED
        if closed or connection.pending():
            self._to_write.set()
        if connection.next_waiting() is not None:
            self._to_speak.set()
        if self._speaking is not None:
            seq, scope = self._speaking
            if connection.utterance(seq) is None and not scope.expired():
                scope.reschedule(self._now())
        if closed and self._stall is not None:
            when = self._now() + LAST_WORDS_S
            if (self._stall.when() or when) > when:
                self._stall.reschedule(when)
        for seq in [seq for seq in self._finishing if connection.utterance(seq) is None]:
            self._ended(seq, "completed")
        deadline = connection.next_deadline()
        if deadline != self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            self._alarm = None if deadline is None else self._loop.call_at(deadline, self._tick)
