"""One session over one WebSocket (protocol.md, websocket.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import secrets
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from . import messages as m
from .voice import chunks
from .wire import Wire

LOG = logging.getLogger("spec_peer")
AUDIO_ROOM = 12_288  # while more is queued, the engine waits
READ_ROOM = 65_536  # while more is queued, reading pauses: only answers pile up so high
READ_PATIENCE_S = 5.0
HELD_REJECTIONS = 256
CLOSE_AFTER_S = (2.5, 4.0)
TICK_S = 0.2
RETRY_AFTER_S = 3


class Host(Protocol):
    """What a session needs to know of its endpoint."""

    idle_timeout: float
    stall_timeout: float
    rtf: float
    draining: bool


@dataclass(eq=False)
class Utterance:
    """An accepted, unended request."""

    seq: int
    job: m.Speak
    audio_bytes: int = 0
    task: asyncio.Task[None] | None = None


@dataclass(eq=False)
class Rejection:
    """An `error` that waits for its place in the order."""

    message: dict[str, Any]


class Session:
    """Reads, judges and acts on messages at once; a runner speaks what is in line."""

    def __init__(self, wire: Wire, host: Host, early: bytes) -> None:
        """Begin a session on a connection whose handshake is done."""
        self._wire = wire
        self._host = host
        self._early = early
        self._frames = FrameProtocol(client=False, extensions=[])
        self._parts = bytearray()
        self._seq = 0
        self._answered = 0
        self._line: deque[Utterance | Rejection] = deque()
        self._more = asyncio.Event()
        self._close_seq: int | None = None  # a `close` was read
        self._reason: str | None = None  # the first cause of the end
        self._closed = False  # session_closed is handed over
        self._close_sent = False
        self._idle_since = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Serve the session until the connection is to be released."""
        self._tasks += [asyncio.create_task(self._speak_all()), asyncio.create_task(self._watch())]
        if self._host.draining:
            self.shut_down()
        code: int | None = None
        try:
            code = await self._read_all()
        except ParseFailed as failure:
            code = int(failure.code)
        finally:
            self._forget()
        if code is not None and not self._wire.dead:
            self._wire.drop_unsent()
            if not self._close_sent:
                self._wire.write(self._frames.close(code))
            await self._wire.finish()

    def shut_down(self) -> None:
        """Drain: finish what was accepted, take no more."""
        if self._reason is None:
            self._reason = "going_away"
        self._settle()

    def deadline(self) -> None:
        """End what is left: the shutdown has taken too long."""
        self._end("going_away")

    # Reading

    async def _read_all(self) -> int | None:
        """Read until a close frame (its code is returned) or the loss of the transport (None)."""
        data = self._early
        while True:
            self._frames.receive_bytes(data)
            for frame in self._frames.received_frames():
                if isinstance(frame.payload, tuple):  # a close frame
                    return int(frame.payload[0])
                if frame.opcode is Opcode.PING:
                    if not self._close_sent:
                        self._wire.write_pong(self._frames.pong(_octets(frame.payload)))
                elif frame.opcode is not Opcode.PONG and not self._collect(frame):
                    return int(CloseReason.MESSAGE_TOO_BIG)
                if self._wire.buffered > READ_ROOM:
                    await self._let_read()
            data = await self._wire.recv()
            if not data or self._wire.dead:
                return None

    def _collect(self, frame: Frame) -> bool:
        """Join a piece to its message, and act on a whole one; false if the session must fail."""
        if self._closed:
            return True
        self._parts += _octets(frame.payload)
        if len(self._parts) > m.MAX_MESSAGE_BYTES:
            if self._reason is not None:
                return False
            self._parts.clear()
            self._end("message_too_big")
            return True
        if frame.message_finished:
            whole = bytes(self._parts)
            self._parts.clear()
            self._take(whole)
            self._settle()
        return True

    async def _let_read(self) -> None:
        """Let a client that sends read its answers, too; one that never does is sent away."""
        while self._wire.buffered > READ_ROOM and not self._wire.dead:
            if self._wire.stalled_for() > READ_PATIENCE_S:
                self._end("policy")
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wire.room(READ_ROOM), TICK_S)

    def _take(self, raw: bytes) -> None:
        """Count, judge and act on one message."""
        self._seq += 1
        self._idle_since = time.monotonic()
        try:
            message = m.judge(raw)
            if self._close_seq is None or isinstance(message, m.Cancel):
                self._act(message)
        except m.Refused as refusal:
            if self._close_seq is None:
                self._reject(refusal)

    def _act(self, message: m.Message) -> None:
        if isinstance(message, m.Speak):
            self._check_room(message)
            self._line.append(Utterance(self._seq, message))
            self._more.set()
        elif isinstance(message, m.Cancel):
            self._cancel(message.request_id)
        elif isinstance(message, m.Close):
            self._close_seq = self._seq
            self._reason = self._reason or "client_close"
        elif isinstance(message, m.Hello):
            if self._seq != 1:
                raise m.Refused("invalid_request", "", message.request_id, "hello")
            self._send(self._session())

    def _check_room(self, job: m.Speak) -> None:
        unended = self._unended()
        name = job.request_id
        if name is not None and any(u.job.request_id == name for u in unended):
            raise m.Refused("duplicate_request_id", "", name, "synthesize")
        if self._host.draining:
            raise m.Refused("going_away", "", name, "synthesize")
        if len(unended) > m.MAX_WAITING:
            raise m.Refused("queue_full", "", name, "synthesize")

    def _reject(self, refusal: m.Refused) -> None:
        """Answer a rejected message, in its place or at once."""
        if refusal.kind == "synthesize" and self._host.draining:
            refusal = m.Refused("going_away", "", refusal.request_id, "synthesize")
        if refusal.kind == "hello" and self._seq != 1:
            refusal = m.Refused("invalid_request", "", refusal.request_id, "hello")
        error = m.error_fields(refusal.code, refusal.message, refusal.request_id, rejected=True) | {
            "seq": self._seq
        }
        held = sum(isinstance(entry, Rejection) for entry in self._line)
        overtakes = refusal.kind in ("cancel", "hello") or refusal.code == "queue_full"
        if overtakes or not self._line or held >= HELD_REJECTIONS:
            self._send(error)
        else:
            self._line.append(Rejection(error))
            self._more.set()

    def _cancel(self, name: str | None) -> None:
        """Stop one utterance or all, and tell it at once."""
        stopped = [u for u in self._unended() if name is None or u.job.request_id == name]
        for utterance in stopped:
            self._send(self._about(utterance, "cancelled", audio_bytes=utterance.audio_bytes))
            self._remove(utterance)
        done: dict[str, Any] = {"type": "cancel_done", "seq": self._seq, "count": len(stopped)}
        if name is not None:
            done["request_id"] = name
        self._send(done)

    # Speaking

    async def _speak_all(self) -> None:
        """Serve the line, first in, first out."""
        while not self._closed:
            if not self._line:
                self._settle()
                self._more.clear()
                await self._more.wait()
                continue
            head = self._line[0]
            if isinstance(head, Utterance):
                head.task = task = asyncio.create_task(self._speak(head))
                await asyncio.wait({task})
                if not task.cancelled() and task.exception() and head in self._line:
                    LOG.error("seq %d failed", head.seq, exc_info=task.exception())
                    self._fail(head, "synthesis_failed")
                if self._wire.dead:
                    return
            elif await self._wire.room(AUDIO_ROOM) and self._line and self._line[0] is head:
                self._line.popleft()
                self._send(head.message)
            elif self._wire.dead:
                return

    async def _speak(self, utterance: Utterance) -> None:
        """Speak one utterance; a cancel ends this task at one of its awaits."""
        job, wire = utterance.job, self._wire
        await wire.room(AUDIO_ROOM)
        begun = time.monotonic()
        self._send(
            self._about(
                utterance,
                "synthesis_start",
                sample_rate=m.SAMPLE_RATE,
                format=m.FORMATS[0],
                voice=job.voice,
                x_peer={"speed": job.speed},
            )
        )
        count = 0
        async for chunk in chunks(job, self._host.rtf):
            if not await wire.room(AUDIO_ROOM):
                return
            if count % 50 == 1:
                self._send(self._about(utterance, "x_peer_progress", sent=utterance.audio_bytes))
            utterance.audio_bytes += len(chunk)
            wire.write(self._frames.send_data(chunk))
            count += 1
        await wire.room(AUDIO_ROOM)
        self._send(
            self._about(
                utterance,
                "synthesis_complete",
                total_duration_s=round(utterance.audio_bytes / (2 * m.SAMPLE_RATE), 6),
                elapsed_s=math.floor((time.monotonic() - begun) * 1e6) / 1e6,
                audio_bytes=utterance.audio_bytes,
                characters=len(job.text),
            )
        )
        utterance.task = None
        self._remove(utterance)
        self._settle()

    # The end

    def _settle(self) -> None:
        """End the session if nothing is left to do for it."""
        if self._reason is not None and not self._line:
            self._end(self._reason)

    def _end(self, reason: str) -> None:
        """Answer what is left, say `session_closed`, and see to the closing of the transport."""
        if self._closed:
            return
        self._reason = self._reason or reason
        while self._line:
            head = self._line[0]
            if isinstance(head, Utterance):
                self._fail(head, "going_away")
                continue
            self._line.popleft()
            if self._wire.buffered < 2 * READ_ROOM:
                self._send(head.message)
        last = self._answered
        closed: dict[str, Any] = {"type": "session_closed", "reason": self._reason}
        if self._reason == "client_close" and self._close_seq is not None:
            closed["seq"] = last = self._close_seq
        if self._reason == "going_away":
            closed["retry_after_s"] = RETRY_AFTER_S
        self._send(closed | {"last_seq": last})
        self._closed = True
        self._parts.clear()
        self._more.set()
        self._tasks.append(asyncio.create_task(self._part(reason)))

    async def _part(self, cause: str) -> None:
        """Leave the closing to the client for a while, then close."""
        if cause in ("slow_reader", "policy") or self._host.draining:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wire.room(0), CLOSE_AFTER_S[1])
        else:
            await self._wire.drained(self._host.stall_timeout)
        if self._wire.buffered or self._wire.dead:
            self._wire.abort()
            return
        await asyncio.sleep(random.uniform(*CLOSE_AFTER_S))
        code = {"going_away": 1001, "message_too_big": 1009}.get(self._reason or "", 1000)
        self._wire.write(self._frames.close(code))
        self._close_sent = True
        await asyncio.sleep(2.0)
        self._wire.abort()

    async def _watch(self) -> None:
        """Look after the idle clock and a stalled reader."""
        while not self._closed:
            left = self._idle_since + self._host.idle_timeout - time.monotonic()
            if self._unended():
                left = TICK_S
            if left <= 0:
                self._end("idle")
            elif self._wire.stalled_for() > self._host.stall_timeout:
                self._end("slow_reader")
            else:
                await asyncio.sleep(min(left, TICK_S))

    def _forget(self) -> None:
        """Cancel everything: the session is over."""
        self._closed = True
        for entry in self._line:
            if isinstance(entry, Utterance) and entry.task:
                entry.task.cancel()
        self._line.clear()
        for task in self._tasks:
            task.cancel()

    # Small parts

    def _unended(self) -> list[Utterance]:
        return [entry for entry in self._line if isinstance(entry, Utterance)]

    def _remove(self, utterance: Utterance) -> None:
        """Take an utterance that has ended out of the line."""
        self._line.remove(utterance)
        if utterance.task:
            utterance.task.cancel()
        self._more.set()
        self._idle_since = time.monotonic()

    def _fail(self, utterance: Utterance, code: str) -> None:
        name = utterance.job.request_id
        fields = m.error_fields(code, m.CODES[code][2], name, rejected=False)
        self._send(fields | {"seq": utterance.seq})
        self._remove(utterance)

    def _about(self, utterance: Utterance, kind: str, **fields: Any) -> dict[str, Any]:
        message: dict[str, Any] = {"type": kind, "seq": utterance.seq, **fields}
        if utterance.job.request_id is not None:
            message["request_id"] = utterance.job.request_id
        return message

    def _send(self, message: dict[str, Any]) -> None:
        """Hand a control message over, in one text frame."""
        if self._closed:
            return
        self._answered = max(self._answered, message.get("seq", 0))
        self._wire.write(self._frames.send_data(m.dump(message)))

    def _session(self) -> dict[str, Any]:
        return {
            "type": "session",
            "seq": 1,
            "protocol_version": 1,
            "session_id": secrets.token_urlsafe(9),
            "profiles": list(m.PROFILES),
            "limits": {
                "max_text_chars": m.MAX_TEXT_CHARS,
                "max_message_bytes": m.MAX_MESSAGE_BYTES,
                "max_request_id_chars": m.MAX_REQUEST_ID_CHARS,
                "max_waiting": m.MAX_WAITING,
                "idle_timeout_s": self._host.idle_timeout,
                "min_speed": m.MIN_SPEED,
                "max_speed": m.MAX_SPEED,
                "x_peer_limit": len(m.VOICES),
            },
            "voices": list(m.VOICES),
            "formats": list(m.FORMATS),
            "sample_rates": [m.SAMPLE_RATE],
            "x_peer_words": "from the specification alone",
        }


def _octets(payload: Any) -> bytes:
    """Give the bytes of a frame's payload; that of a text frame comes as a string."""
    return payload.encode() if isinstance(payload, str) else bytes(payload)
