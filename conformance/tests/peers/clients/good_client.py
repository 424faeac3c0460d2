"""A small client that keeps the rules, and breaks one at a time where it is told to.

Written on nothing but sockets and the suite's own frames. `FAULTS` explains each way to break it;
`run` plays the contract of `conformance/README.md`, in the same process or, as a program, in one
of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from utterwire_conformance.classification import classify
from utterwire_conformance.wire import (
    Frame,
    FrameDecoder,
    Opcode,
    accept_key,
    close_payload,
    encode,
)

FAULTS = {
    "json-by-hand": "writes JSON with an f-string, so that a quote in a text ends it",
    "wrong-type": "sends the speed as a string",
    "stray-message": "sends a message of a reserved type after each request",
    "unmasked": "sends frames without a mask",
    "same-id": "gives every request the same id",
    "first-byte": "takes every chunk that begins with a brace for JSON",
    "loads-bytes": "asks a JSON parser that guesses encodings whether a chunk is control",
    "text-only": "takes binary frames for audio, whatever they hold",
    "frames-as-chunks": "takes every frame for a chunk",
    "fixed-rate": "plays at 24,000 Hz, whatever `synthesis_start` says",
    "unknown-fatal": "gives up at a control message it does not know",
    "unknown-field-fatal": "gives up at a field it does not know",
    "by-order": "takes every answer for that of the oldest request",
    "seq-demanded": "drops answers without `seq`",
    "start-demanded": "drops audio that no `synthesis_start` came before",
    "pause-ends": "takes a pause for the end of an utterance",
    "stops-at-error": "ends at the first `error`",
    "error-completes": "takes an `error` for the end of an utterance like any other",
    "error-code-lost": "reports every `error` with the code of the first",
    "retries-everything": "tries again whatever the `error`",
    "retries-at-once": "tries again without waiting",
    "constant-wait": "tries again after the same time, each time",
    "hasty": "comes back before the time it was told",
    "loss-completes": "takes the end of a session for that of its utterances",
    "loss-untold": "ends with status 0 and no word when a session is lost",
    "all-processed": "says of every lost request that it was processed",
    "none-processed": "says of every lost request that it was not processed",
    "drops-odd-byte": "drops the last byte of an odd chunk",
    "odd-untold": "does not warn of odd chunks",
    "closes-early": "closes right after its `close`",
    "half-closes": "ends its direction of TCP right after its `close`",
    "never-closes": "leaves the closing to the endpoint",
    "talks-after-close": "sends `keepalive` after `close`",
    "plays-on": "plays what still comes after its `cancel`",
    "cancel-completes": "takes `cancelled` for `synthesis_complete`",
    "sends-first": "sends all it has before it reads",
    "no-deadline": "waits without end",
    "no-handshake-deadline": "waits without end for the handshake",
    "no-goodbye-deadline": "waits without end for `session_closed`",
    "offers-deflate": "offers compression",
    "late-hello": "sends `hello` after its first request",
    "hello-again": "sends `hello` again when it was refused",
    "text-limit": "sends texts of any length",
    "waiting-limit": "sends all its requests at once, whatever may wait",
    "http-eof-ends": "takes the end of the connection for that of the body",
    "event-per-delivery": "takes each delivery for the events in it",
    "half-event": "takes what the stream ends with for an event",
}

ODDITIES = {
    "one-at-a-time": "asks for a line when the one before it has ended",
    "session-per-line": "opens a session for each line",
    "no-goodbye": "disconnects when it has all, without `close`",
    "binary-messages": "sends its messages in binary frames",
    "fragments": "sends its messages in fragments, with pings between",
    "names-all": "names the type and every field, with ids of its own",
    "same-id-later": "uses an id again once its utterance has ended",
    "keepalives": "sends `keepalive` before each request",
    "early-close": "sends `close` as soon as the input has ended",
    "late-close": "takes half a second to close after `session_closed`",
    "cancels-by-id": "stops utterances by their id",
    "asks-nothing-twice": "never tries again",
    "cannot-decode": "refuses to play what is not PCM",
    "chatty": "writes more events and fields than the contract has",
    "slow": "takes its time with all that comes",
    "pings-first": "asks `GET /ping` before it opens a session",
}
"""What the rules leave to a client: none of it may turn a check red."""

_PAUSE_S = 0.35
_TICK_S = 0.05
_TRIES = 4


class Lost(Exception):
    """The session ended before an utterance did."""

    def __init__(self, told_s: float | None = None, *, retryable: bool = True) -> None:
        super().__init__("the session is lost")
        self.told_s = told_s
        self.retryable = retryable


@dataclass
class Line:
    """One line and what became of it."""

    number: int
    text: str
    seq: int | None = None
    written: int = 0
    carry: bytes = b""
    started: bool = False
    format: str = "pcm_s16le"
    ended: bool = False
    silenced: bool = False
    tries: int = 0
    answered: bool = False


@dataclass
class GoodClient:
    """One run of the client; `lines` gives None at the end of the input."""

    url: str
    profile: str
    deadline_s: float
    lines: asyncio.Queue[str | None]
    write: Callable[[bytes], None]
    emit: Callable[[dict[str, Any]], None]
    faults: frozenset[str] = frozenset()
    asked: list[Line] = field(default_factory=list)
    failed: bool = False
    warned: bool = False
    cancelling: bool = False
    input_ended: bool = False
    first_code: str | None = None
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has(self, fault: str) -> bool:
        """Whether it is to be broken, or odd, in this way."""
        return fault in self.faults

    @property
    def tries(self) -> int:
        """How often a line is tried again."""
        return 0 if self.has("asks-nothing-twice") else _TRIES

    @property
    def patience(self) -> float | None:
        return None if self.has("no-deadline") else self.deadline_s

    async def run(self) -> int:
        """Speak all lines; the exit status."""
        try:
            if self.profile in ("http", "sse"):
                await self._over_http()
            else:
                await self._over_sessions()
        except _Stop:
            return 1
        except _Quiet:
            return 0
        return 1 if self.failed else 0

    # --- events -------------------------------------------------------------------------------

    def _end(self, line: Line, event: str, **more: Any) -> None:
        if line.ended:
            return
        line.ended = True
        self._changed.set()
        self.failed = self.failed or event == "failed"
        fields = {"event": event, "utterance": line.number, "audio_bytes": line.written}
        if self.has("chatty"):
            self.emit({"event": "bytes", "utterance": "all", "audio_bytes": -1})
            self.emit({"level": "info", "message": "an event of a log"})
            more["took_s"] = 1.5
        self.emit(fields | {k: v for k, v in more.items() if v is not None})

    def _start(self, line: Line, rate: int, name: str) -> None:
        line.started, line.answered, line.format = True, True, name
        if self.has("cannot-decode") and name != "pcm_s16le":
            self._end(line, "failed", reason="no decoder")
            return
        if self.has("fixed-rate"):
            rate, name = 24_000, "pcm_s16le"
        told = {"utterance": line.number, "sample_rate": rate, "format": name}
        self.emit({"event": "start", **told})

    def _audio(self, line: Line, data: bytes) -> None:
        line.answered = True
        if line.ended:
            return
        if line.silenced and not self.has("plays-on"):
            return
        if not line.started:
            if self.has("start-demanded"):
                return
            self._start(line, 24_000, "pcm_s16le")
        if line.format == "pcm_s16le":
            if len(data) % 2 and self.profile not in ("http", "sse"):
                self._warn()
            data = line.carry + data
            whole = len(data) - len(data) % 2
            line.carry = b"" if self.has("drops-odd-byte") else data[whole:]
            data = data[:whole]
        self.write(data)
        line.written += len(data)

    def _warn(self) -> None:
        if not self.warned and not self.has("odd-untold"):
            self.emit({"event": "warning", "message": "a chunk splits a sample"})
        self.warned = True

    # --- over sessions ------------------------------------------------------------------------

    async def _over_sessions(self) -> None:
        feeding = asyncio.create_task(self._feed())
        try:
            tries = 0
            while not self.input_ended or any(not line.ended for line in self.asked):
                if not self.asked or all(line.ended for line in self.asked):
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                session = Session(self)
                wait = await session.run()
                pending = [line for line in self.asked if not line.ended]
                if not pending or wait is None:
                    continue
                tries += 1
                await self._back_off(tries, wait if wait > 0 else None)
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})

    async def _back_off(self, tries: int, told: float | None) -> None:
        if self.has("retries-at-once"):
            return
        if told is not None and not self.has("hasty"):
            await asyncio.sleep(told)
        elif self.has("constant-wait"):
            await asyncio.sleep(1.0)
        else:
            await asyncio.sleep(random.uniform(0.5, 1) * 0.15 * 2**tries)

    async def _feed(self) -> None:
        number = 0
        while (text := await self.lines.get()) is not None:
            if text:
                number += 1
                self.asked.append(Line(number, text))
            else:
                self.cancelling = True
            self._changed.set()
        self.input_ended = True
        self._changed.set()

    # --- over HTTP ----------------------------------------------------------------------------

    async def _over_http(self) -> None:
        number = 0
        while (text := await self.lines.get()) is not None:
            number += 1
            line = Line(number, text)
            while not line.ended:
                told = await self._exchange(line)
                if told is None or line.ended:
                    break
                line.tries += 1
                await self._back_off(line.tries, told)

    async def _exchange(self, line: Line) -> float | None:
        """One request; how long to wait before the next, or None for no next."""
        parts = urlsplit(self.url)
        body = json.dumps({"text": line.text}).encode()
        accept = "text/event-stream" if self.profile == "sse" else "*/*"
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: {accept}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(head.encode() + body)
            async with asyncio.timeout(self.patience):
                return await self._answer(line, reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            if self.has("http-eof-ends") and self.profile == "http":
                self._end(line, "complete")
            else:
                self._end(line, "failed")
            return None
        finally:
            writer.transport.abort()

    async def _answer(self, line: Line, reader: asyncio.StreamReader) -> float | None:
        raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(raw[0].split()[1])
        names = (row.partition(":") for row in raw[1:] if row)
        headers = {name.lower(): value.strip() for name, _, value in names}
        pieces = self._pieces(reader, headers)
        if status != 200:
            error = json.loads(b"".join([piece async for piece in pieces]))
            again = error.get("retryable") or self.has("retries-everything")
            if again and line.tries < self.tries:
                return float(headers.get("retry-after", "0.2"))
            self._end(line, "failed", code=error.get("code"))
        elif self.profile == "sse":
            await self._stream(line, pieces)
        else:
            rate = int(headers["utterwire-sample-rate"])
            self._start(line, rate, headers["utterwire-format"])
            async for piece in pieces:
                self._audio(line, piece)
            self._end(line, "complete")
        return None

    async def _pieces(
        self, reader: asyncio.StreamReader, headers: dict[str, str]
    ) -> AsyncIterator[bytes]:
        if "content-length" in headers:
            left = int(headers["content-length"])
            while left:
                data = await reader.read(left)
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(data)
                yield data
            return
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)

    async def _stream(self, line: Line, pieces: AsyncIterator[bytes]) -> None:
        buffer = b""
        async for piece in pieces:
            buffer = piece if self.has("event-per-delivery") else buffer + piece
            while b"\n\n" in buffer:
                event, _, buffer = buffer.partition(b"\n\n")
                self._event(line, event)
        if self.has("half-event") and buffer:
            self._event(line, buffer)
        self._end(line, "failed")

    def _event(self, line: Line, event: bytes) -> None:
        name, data = "", []
        for row in event.decode("utf-8").split("\n"):
            key, _, value = row.partition(":")
            if key == "event":
                name = value.strip()
            elif key == "data":
                data.append(value.removeprefix(" "))
        fields = json.loads("\n".join(data)) if data else {}
        if name == "audio_stream_start":
            self._start(line, fields["sample_rate"], fields["format"])
        elif name == "audio_chunk":
            self._audio(line, base64.b64decode(fields["data"]))
        elif name == "audio_stream_end":
            self._end(line, "complete")


class _Stop(Exception):
    """The client gives up altogether."""


class _Quiet(Exception):
    """The client ends as if nothing had happened."""


class Session:
    """One session of a `GoodClient`; `run` says how long to wait before another, 0 for any time,
    None if none is needed."""

    def __init__(self, client: GoodClient) -> None:
        self.client = client
        self.has = client.has
        self.decoder = FrameDecoder()
        self.count = 0
        self.flight: dict[int, Line] = {}
        self.running: Line | None = None
        self.limits: dict[str, int] = {}
        self.told_s: float | None = None
        self.last_seq: int | None = None
        self.close_sent = False
        self.goodbye = False
        self.bare = False
        self.message: list[bytes] = []
        self.kind = 0
        self.greeted = client.profile != "negotiate"
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def run(self) -> float | None:
        client = self.client
        try:
            wait = await self._open()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            self._hang_up()
            return self._over(None)
        except BaseException:
            self._hang_up()
            raise
        if wait is not None:
            return wait
        sending = asyncio.create_task(self._send_all())
        try:
            await self._read()
        except (OSError, TimeoutError):
            pass
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            self.writer.transport.abort()
        if sending.done() and not sending.cancelled() and sending.exception() is not None:
            failure = sending.exception()
            if not isinstance(failure, OSError):
                raise failure or AssertionError
        for line in client.asked:
            line.carry = b""
        return self._over(self.told_s)

    def _hang_up(self) -> None:
        writer = getattr(self, "writer", None)
        if writer is not None:
            writer.transport.abort()

    # --- the handshake ------------------------------------------------------------------------

    async def _open(self) -> float | None:
        client = self.client
        parts = urlsplit(client.url)
        if self.has("pings-first"):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(f"GET /ping HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
                async with asyncio.timeout(client.patience):
                    answer = await reader.read()
            finally:
                writer.transport.abort()
            if client.url and b" 200 " not in answer and b" 503 " in answer:
                raise ValueError("not ready")
        self.reader, self.writer = await asyncio.open_connection(
            parts.hostname, parts.port, limit=16_384
        )
        key = base64.b64encode(os.urandom(16)).decode()
        more = "Sec-WebSocket-Extensions: permessage-deflate\r\n" * self.has("offers-deflate")
        self.writer.write(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n{more}\r\n".encode()
        )
        patience = None if self.has("no-handshake-deadline") else client.patience
        async with asyncio.timeout(patience):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        rows = raw.decode("latin-1").split("\r\n")
        names = (row.partition(":") for row in rows[1:] if row)
        headers = {name.lower(): value.strip() for name, _, value in names}
        status = int(rows[0].split()[1])
        if status == 101 and headers.get("sec-websocket-accept") == accept_key(key):
            return None
        self.writer.transport.abort()
        if status in (429, 503):
            told = headers.get("retry-after")
            for line in client.asked:
                line.tries += 1
            if any(line.tries <= client.tries for line in client.asked):
                return float(told) if told else 0.0
        raise ValueError("refused")

    # --- what is sent -------------------------------------------------------------------------

    async def _send(self, fields: dict[str, Any]) -> int:
        await self._send_octets(json.dumps(fields).encode())
        return self.count

    async def _send_octets(self, data: bytes) -> None:
        self.count += 1
        mask = None if self.has("unmasked") else os.urandom(4)
        kind = Opcode.BINARY if self.has("binary-messages") else Opcode.TEXT
        if self.has("fragments"):
            for place, octet in enumerate(data[:3]):
                part = Frame(Opcode.CONTINUATION if place else kind, bytes([octet]), fin=False)
                self._put(part)
                self._put(Frame(Opcode.PING, b"?"))
            self._put(Frame(Opcode.CONTINUATION, data[3:]))
        else:
            self.writer.write(encode(Frame(kind, data, mask=mask)))
        await self.writer.drain()

    def _put(self, frame: Frame) -> None:
        self.writer.write(encode(replace(frame, mask=os.urandom(4))))

    async def _send_all(self) -> None:
        client = self.client
        hello = {"type": "hello", "protocol_versions": [1]}
        if client.profile == "negotiate" and not self.has("late-hello"):
            await self._send(hello)
        while True:
            client._changed.clear()
            if client.cancelling and self.flight:
                client.cancelling = False
                for line in self.flight.values():
                    line.silenced = True
                if self.has("cancels-by-id"):
                    for line in self.flight.values():
                        await self._send({"type": "cancel", "request_id": str(line.number)})
                else:
                    await self._send({"type": "cancel"})
            for line in client.asked:
                if line.ended or line.seq is not None or not self._room(line):
                    continue
                if (self.has("one-at-a-time") or self.has("session-per-line")) and self.flight:
                    break
                if self.has("keepalives"):
                    await self._send({"type": "keepalive"})
                # So that an answer cannot be there before it is known what it answers.
                line.seq = self.count + 1
                self.flight[line.seq] = line
                await self._ask(line)
                client.sent.set()
                if self.has("late-hello") and self.count == 1:
                    await self._send(hello)
                if self.has("stray-message"):
                    await self._send({"type": "flush"})
            over = all(line.ended for line in client.asked)
            sent = all(line.ended or line.seq is not None for line in client.asked)
            if client.input_ended and (over or (self.has("early-close") and sent)):
                break
            if self.has("session-per-line") and self.count and not self.flight:
                break
            await client._changed.wait()
        self.close_sent = True
        if self.has("no-goodbye"):
            await self._close()
            return
        if not self.bare:
            await self._send({"type": "close"})
            if self.has("talks-after-close"):
                await self._send({"type": "keepalive"})
        if self.bare or self.has("closes-early"):
            await self._close()
        elif self.has("half-closes"):
            self.writer.write_eof()

    def _room(self, line: Line) -> bool:
        if not self.greeted:
            return False
        most = self.limits.get("max_text_chars")
        if most is not None and len(line.text) > most and not self.has("text-limit"):
            self.client._end(line, "failed", processed=False)
            return False
        waiting = self.limits.get("max_waiting")
        return waiting is None or len(self.flight) <= waiting or self.has("waiting-limit")

    async def _ask(self, line: Line) -> None:
        fields: dict[str, Any] = {"text": line.text}
        if self.has("names-all"):
            fields |= {"type": "synthesize", "voice": None, "speed": 1, "sample_rate": 24_000.0}
            fields |= {"request_id": f"\u00fc {line.number}.{line.tries}", "format": "pcm_s16le"}
            fields |= {"request_timestamp": [1e9], "x_note": {"a": []}}
        if self.has("cancels-by-id"):
            fields["request_id"] = str(line.number)
        if self.has("same-id-later"):
            fields["request_id"] = "once" if len(self.flight) < 2 else str(line.number)
        if self.has("wrong-type"):
            fields["speed"] = "1"
        if self.has("same-id"):
            fields["request_id"] = "utterance"
        if self.has("json-by-hand"):
            await self._send_octets(f'{{"text": "{line.text}"}}'.encode())
        else:
            await self._send(fields)

    async def _close(self) -> None:
        mask = os.urandom(4)
        self.writer.write(encode(Frame(Opcode.CLOSE, close_payload(1000), mask=mask)))
        await self.writer.drain()

    # --- what comes ---------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            if self.has("sends-first"):
                await self._until_sent()
            data = await self._receive()
            if not data:
                return
            await asyncio.sleep(0.02 if self.has("slow") else 0)
            for frame in self.decoder.feed(data):
                await self._frame(frame)
                if self.goodbye and not self.has("never-closes"):
                    await asyncio.sleep(0.5 if self.has("late-close") else 0)
                    await self._close()
                    return

    async def _receive(self) -> bytes:
        """What comes next; OSError once the endpoint has been silent for too long."""
        began = asyncio.get_running_loop().time()
        while True:
            # What is waited for changes while it is: a request goes out, the last one ends.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    return await self.reader.read(4_096)
            silent = asyncio.get_running_loop().time() - began
            running, patience = self.running, self._patience()
            if self.has("pause-ends") and running is not None and silent > _PAUSE_S:
                self.client._end(running, "complete")
                self._drop(running)
            elif patience is None:
                began += silent
            elif silent > patience:
                raise OSError("the endpoint is silent")

    async def _until_sent(self) -> None:
        client = self.client
        while not client.input_ended or any(
            line.seq is None and not line.ended for line in client.asked
        ):
            await client.sent.wait()
            client.sent.clear()
        await self.writer.drain()

    def _patience(self) -> float | None:
        if self.close_sent and self.has("no-goodbye-deadline"):
            return None
        idle = not self.flight and not self.close_sent
        return None if idle else self.client.patience

    async def _frame(self, frame: Frame) -> None:
        if frame.opcode == Opcode.PING:
            mask = os.urandom(4)
            self.writer.write(encode(Frame(Opcode.PONG, frame.payload, mask=mask)))
        elif frame.opcode == Opcode.CLOSE:
            await self._close()
            raise OSError("closed by the endpoint")
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION):
            if frame.opcode != Opcode.CONTINUATION:
                self.message, self.kind = [], frame.opcode
            if self.has("frames-as-chunks"):
                await self._chunk(frame.payload, frame.opcode == Opcode.TEXT)
                return
            self.message.append(frame.payload)
            if frame.fin:
                await self._chunk(b"".join(self.message), self.kind == Opcode.TEXT)

    async def _chunk(self, data: bytes, text: bool) -> None:
        fields = self._control(data, text)
        if fields is None:
            line = self.running or next(iter(self.flight.values()), None)
            if line is not None:
                self.client._audio(line, data)
            return
        await self._take(fields)
        self.client._changed.set()

    def _control(self, data: bytes, text: bool) -> dict[str, Any] | None:
        if self.has("text-only"):
            return json.loads(data) if text else None
        if self.has("first-byte") and data[:1] == b"{":
            try:
                return dict(json.loads(data))
            except (ValueError, RecursionError):
                return {"type": "broken"}
        if self.has("loads-bytes") and not text:
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                return None
            return value if isinstance(value, dict) else None
        reading = classify(data, "text" if text else "binary")
        return dict(reading.fields or {}) if reading.verdict != "audio" else None

    async def _take(self, fields: dict[str, Any]) -> None:
        client, kind = self.client, fields.get("type")
        known = {"synthesis_start", "synthesis_complete", "error", "cancelled", "session"}
        known |= {"cancel_done", "session_closed"}
        if self.has("unknown-fatal") and kind not in known:
            raise OSError(f"unknown control {kind}")
        if self.has("unknown-field-fatal") and "hint" in fields:
            raise OSError("unknown field")
        self.bare = self.bare or (
            kind in known and "seq" not in fields and kind != "session_closed"
        )
        if kind == "session":
            self.limits, self.greeted = fields["limits"], True
        elif kind == "session_closed":
            self.goodbye = True
            self.last_seq = fields["last_seq"]
            self.told_s = fields.get("retry_after_s")
        elif kind in known:
            line = self._about(fields)
            if line is not None:
                self._told(line, kind or "", fields)
            elif kind == "error" and not self.greeted:
                self.greeted = True
                if self.has("hello-again"):
                    await self._send({"type": "hello", "protocol_versions": [1]})
        client._changed.set()

    def _about(self, fields: dict[str, Any]) -> Line | None:
        oldest = next(iter(self.flight.values()), None)
        if self.has("by-order"):
            return self.running or oldest
        if "seq" not in fields:
            return None if self.has("seq-demanded") else self.running or oldest
        return self.flight.get(fields["seq"])

    def _told(self, line: Line, kind: str, fields: dict[str, Any]) -> None:
        client = self.client
        line.answered = True
        if kind == "synthesis_start":
            self.running = line
            client._start(line, fields["sample_rate"], fields["format"])
        elif kind == "synthesis_complete":
            client._end(line, "complete")
            self._drop(line)
        elif kind == "cancelled":
            client._end(line, "complete" if self.has("cancel-completes") else "cancelled")
            self._drop(line)
        elif kind == "error":
            self._error(line, fields)

    def _error(self, line: Line, fields: dict[str, Any]) -> None:
        client = self.client
        self._drop(line)
        code = fields.get("code")
        client.first_code = client.first_code or code
        again = fields.get("retryable") is True or self.has("retries-everything")
        if self.has("stops-at-error"):
            client._end(line, "failed", code=code)
            raise _Stop
        if self.has("error-completes"):
            client._end(line, "complete")
        elif again and not line.written and line.tries < client.tries:
            line.tries += 1
            line.started = False
            task = asyncio.create_task(self._again(line))
            task.add_done_callback(lambda _: client._changed.set())
        else:
            client._end(
                line, "failed", code=client.first_code if self.has("error-code-lost") else code
            )

    async def _again(self, line: Line) -> None:
        await self.client._back_off(line.tries, None)
        line.seq = None

    def _drop(self, line: Line) -> None:
        self.flight.pop(line.seq or 0, None)
        if self.running is line:
            self.running = None

    # --- the end ------------------------------------------------------------------------------

    def _over(self, told_s: float | None) -> float | None:
        """The session is over; say so of what had not ended, or leave it for another session."""
        client = self.client
        if self.has("loss-untold") and any(not line.ended for line in client.asked):
            raise _Quiet
        again = False
        for line in client.asked:
            if line.ended:
                continue
            untouched = self._untouched(line)
            if self.has("loss-completes"):
                client._end(line, "complete")
            elif line.written or line.tries >= client.tries or not untouched:
                processed: bool | None = False if untouched else None
                if self.has("all-processed"):
                    processed = True
                elif self.has("none-processed"):
                    processed = False
                client._end(line, "failed", processed=processed)
            else:
                line.seq, line.started, line.answered = None, False, False
                line.tries += 1
                again = True
        self.flight.clear()
        return (told_s or 0.0) if again else None

    def _untouched(self, line: Line) -> bool:
        """Whether a request certainly had no effect."""
        if self.has("all-processed"):
            return False
        if line.seq is None:
            return bool(self.count)
        above = self.last_seq is not None and line.seq > self.last_seq
        return above and not line.answered


async def _main(arguments: list[str]) -> int:
    url, profile, deadline, *faults = arguments
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(lines.put_nowait, line.decode().rstrip("\n"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    threading.Thread(target=read, daemon=True).start()
    emit: Callable[[dict[str, Any]], None] = lambda e: print(json.dumps(e), file=sys.stderr)  # noqa: E731
    client = GoodClient(url, profile, float(deadline), lines, write, emit, frozenset(faults))
    return await client.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(_main(sys.argv[1:])))
