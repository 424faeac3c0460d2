"""An Utterwire endpoint written from the specification alone: HTTP and WebSocket on one port."""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, cast
from urllib.parse import quote

import h11

from . import messages as m
from .session import AUDIO_ROOM, RETRY_AFTER_S, Session
from .voice import chunks
from .wire import KERNEL_BUFFER, Wire

__all__ = ["Endpoint", "main"]

_MIGHT_SWITCH = cast(Any, h11).MIGHT_SWITCH_PROTOCOL
LOG = logging.getLogger("spec_peer")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SESSION_PATH = b"/invocations-bidirectional-stream"
REQUEST_TIMEOUT_S = 30.0
KEEP_ALIVE_S = 75.0
PIPELINED_BYTES = 65_536
MAX_SESSIONS = 1_024
STALL_TIMEOUT_S = 60.0
PLAIN = [("Content-Type", "text/plain; charset=utf-8")]
Headers = list[tuple[str, str]]


class Broken(Exception):
    """The connection is of no more use."""


class Endpoint:
    """The state that all connections share."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Take the settings of the command line."""
        self.idle_timeout: float = options.idle_timeout
        self.rtf: float = options.rtf
        self.stall_timeout: float = options.stall_timeout
        self.shutdown_timeout: float = options.shutdown_timeout
        self.draining = False
        self.out_of_time = asyncio.Event()
        self.sessions: set[Session] = set()
        self.requests = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Accept connections until told to stop, then drain; refusals go on meanwhile."""
        accepting = asyncio.create_task(self._accept(listener))
        await stop.wait()
        self.draining = True
        end = time.monotonic() + self.shutdown_timeout
        for session in list(self.sessions):
            session.shut_down()
        while self._busy() and time.monotonic() < end:  # noqa: ASYNC110 - many conditions
            await asyncio.sleep(0.05)
        self.out_of_time.set()
        for session in list(self.sessions):
            session.deadline()
        end = time.monotonic() + 8.0
        while (self.sessions or self.requests) and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        accepting.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(accepting, *self._tasks, return_exceptions=True)

    def _busy(self) -> bool:
        return bool(self.requests) or bool(self.sessions)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._connection(Wire(sock)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connection(self, wire: Wire) -> None:
        http = HttpConnection(wire, self)
        try:
            early = await http.run()
            if early is not None:
                session = Session(wire, self, early)
                self.sessions.add(session)
                try:
                    await session.run()
                finally:
                    self.sessions.discard(session)
        except Exception:
            LOG.exception("a connection failed")
        finally:
            await http.stop_reading()
            wire.release(reset=http.failed)


class HttpConnection:
    """HTTP/1.1 on one connection, until it ends or becomes a WebSocket (http.md)."""

    def __init__(self, wire: Wire, endpoint: Endpoint) -> None:
        """Begin on a fresh connection."""
        self._wire = wire
        self._endpoint = endpoint
        self._h11 = h11.Connection(h11.SERVER)
        self._reading: asyncio.Task[bytes] | None = None
        self._ahead = 0
        self._head = False
        self.failed = False

    async def run(self) -> bytes | None:
        """Serve requests; what came after a WebSocket handshake is returned, None at the end."""
        try:
            patience = KEEP_ALIVE_S
            while True:
                try:
                    async with asyncio.timeout(patience):
                        event = await self._event()
                except TimeoutError:
                    return None
                if not isinstance(event, h11.Request):
                    return None
                if await self._route(event):
                    return self._h11.trailing_data[0]
                if not await self._wire.drained(self._endpoint.stall_timeout):
                    raise Broken
                if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                    await self._wire.finish()
                    return None
                self._h11.start_next_cycle()
                self._ahead = 0
        except h11.RemoteProtocolError as error:
            if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                status = error.error_status_hint
                self._respond(status, [*PLAIN, ("Connection", "close")], b"Malformed request.\n")
                await self._wire.finish()
        except (h11.LocalProtocolError, Broken):
            # A body that only the end of the connection ends must not seem whole.
            self.failed = self._h11.their_http_version != b"1.1"
        return None

    async def stop_reading(self) -> None:
        """Leave nobody reading from the socket."""
        if self._reading:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    # Reading

    async def _receive(self) -> bytes:
        """Read once; a cancelled wait loses nothing."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._wire.recv())
        await asyncio.wait({self._reading})
        data = self._reading.result()
        self._reading = None
        return data

    async def _event(self) -> Any:
        while True:
            event = self._h11.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._h11.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._wire.write(self._h11.send(go_on) or b"")
            self._h11.receive_data(await self._receive())

    async def _body(self) -> bytes | None:
        """Read the body; None if it is beyond the limit."""
        body = bytearray()
        while True:
            event = await self._event()
            if not isinstance(event, h11.Data):
                return bytes(body)
            body += event.data
            if len(body) > m.MAX_MESSAGE_BYTES:
                return None

    async def _disconnected(self) -> None:
        """Come back when the client is gone; what it sends ahead is kept, to a bound."""
        while self._ahead < PIPELINED_BYTES:
            data = await self._receive()
            if not data:
                return
            self._ahead += len(data)
            self._h11.receive_data(data)
        await asyncio.get_running_loop().create_future()

    # Answering

    def _respond(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Send a whole answer."""
        if self._endpoint.draining:
            headers = [*headers, ("Connection", "close")]
        if status not in (204, 304):
            headers = [*headers, ("Content-Length", str(len(body)))]
        self._send(h11.Response(status_code=status, headers=headers))
        if body and not self._head:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        self._wire.write(self._h11.send(event) or b"")

    async def _route(self, request: h11.Request) -> bool:
        """Answer one request; true if the connection is a WebSocket now."""
        path = bytes(request.target).partition(b"?")[0]
        method = bytes(request.method)
        self._head = method == b"HEAD"
        if path == SESSION_PATH:
            return await self._handshake(request)
        if path == b"/invocations" and method == b"POST":
            self._endpoint.requests += 1
            try:
                await self._invoke(request)
            finally:
                self._endpoint.requests -= 1
            return False
        await self._discard()
        if path == b"/invocations":
            status = 204 if method == b"OPTIONS" else 405
            self._respond(status, [("Allow", "POST, OPTIONS")])
        elif path == b"/ping":
            if method not in (b"GET", b"POST", b"HEAD"):
                self._respond(405, [("Allow", "GET, HEAD, POST")])
            elif self._endpoint.draining:
                self._respond(503, [("Retry-After", str(RETRY_AFTER_S))])
            else:
                self._respond(200, [])
        else:
            self._respond(404, PLAIN, b"Nothing is here.\n")
        return False

    async def _discard(self) -> None:
        """Read a body nobody wants, within the limit and the time for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._body()

    async def _handshake(self, request: h11.Request) -> bool:
        """Answer the opening handshake (websocket.md#opening)."""
        await self._discard()
        fields: dict[bytes, bytes] = {}
        for name, value in request.headers:
            fields[name] = fields[name] + b"," + value if name in fields else value
        tokens = {token.strip().lower() for token in fields.get(b"connection", b"").split(b",")}
        upgrades = {token.strip().lower() for token in fields.get(b"upgrade", b"").split(b",")}
        key = fields.get(b"sec-websocket-key", b"").strip()
        asked = b"upgrade" in tokens and b"websocket" in upgrades
        if request.method != b"GET":
            self._respond(405, [("Allow", "GET")])
        elif not asked or fields.get(b"sec-websocket-version", b"").strip() != b"13":
            upgrade = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
            self._respond(426, [*upgrade, *PLAIN], b"A WebSocket of version 13 is due here.\n")
        elif (
            request.http_version != b"1.1"
            or not _is_key(key)
            or self._h11.their_state is not _MIGHT_SWITCH
        ):
            self._respond(400, PLAIN, b"The handshake is malformed.\n")
        elif self._endpoint.draining or len(self._endpoint.sessions) >= MAX_SESSIONS:
            self._respond(503, [*PLAIN, ("Retry-After", str(RETRY_AFTER_S))], b"Not now.\n")
        else:
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
            headers = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
            headers.append(("Sec-WebSocket-Accept", accept))
            self._send(h11.InformationalResponse(status_code=101, headers=headers))
            return True
        return False

    async def _invoke(self, request: h11.Request) -> None:
        """Answer `POST /invocations`."""
        length = next((v for n, v in request.headers if n == b"content-length"), b"0")
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = None if int(length) > m.MAX_MESSAGE_BYTES else await self._body()
        except TimeoutError:
            self._respond(408, [*PLAIN, ("Connection", "close")], b"The body did not come.\n")
            return
        if body is None:
            words = f"The body is beyond {m.MAX_MESSAGE_BYTES} bytes."
            self._refuse(m.Refused("invalid_request", words), status=413)
            return
        try:
            job = m.judge(body, http=True)
        except m.Refused as refusal:
            if self._endpoint.draining and refusal.kind == "synthesize":
                refusal = m.Refused("going_away", "", refusal.request_id)
            self._refuse(refusal)
            return
        assert isinstance(job, m.Speak)
        if self._endpoint.draining:
            self._refuse(m.Refused("going_away", "", job.request_id))
            return
        await self._race(job)

    def _refuse(
        self, refusal: m.Refused, status: int | None = None, *, rejected: bool = True
    ) -> None:
        """Send an `error` as the answer."""
        status = status or m.CODES[refusal.code][1]
        fields = m.error_fields(
            refusal.code, refusal.message, refusal.request_id, rejected=rejected
        )
        headers = [("Content-Type", "application/json; charset=utf-8")]
        if status == 503:
            headers.append(("Retry-After", str(RETRY_AFTER_S)))
        if self._h11.their_state is h11.SEND_BODY:
            headers.append(("Connection", "close"))
        self._respond(status, headers, m.dump(fields).encode())

    async def _race(self, job: m.Speak) -> None:
        """Speak, unless the client goes, stalls, or the shutdown runs out of time."""
        answer = self._answer_whole(job) if not job.stream else self._answer_stream(job)
        async with (
            _started(answer) as speaking,
            _started(self._disconnected()) as gone,
            _started(self._endpoint.out_of_time.wait()) as late,
        ):
            while not speaking.done():
                await asyncio.wait(
                    {speaking, gone, late}, timeout=0.5, return_when=asyncio.FIRST_COMPLETED
                )
                stalled = self._wire.stalled_for() > self._endpoint.stall_timeout
                if speaking.done():
                    break
                if gone.done() or self._wire.dead or stalled:
                    raise Broken
                if late.done():
                    speaking.cancel()
                    self._fail("going_away", job)
                    return
            if speaking.exception():
                LOG.error("an utterance failed", exc_info=speaking.exception())
                self._fail("synthesis_failed", job)

    def _fail(self, code: str, job: m.Speak) -> None:
        """Tell a failure by a status, or abort the body if that is gone."""
        if self._h11.our_state is not h11.SEND_RESPONSE:
            raise Broken
        self._refuse(m.Refused(code, "", job.request_id), rejected=False)

    def _audio_headers(self, job: m.Speak) -> Headers:
        headers = [
            ("Content-Type", f"Audio/PCM; channels=1; Rate={m.SAMPLE_RATE}"),
            ("Utterwire-Sample-Rate", str(m.SAMPLE_RATE)),
            ("Utterwire-Format", m.FORMATS[0]),
            ("Utterwire-Voice", quote(job.voice, safe="")),
        ]
        if job.request_id is not None:
            headers.append(("Utterwire-Request-Id", quote(job.request_id, safe="")))
        return headers

    async def _answer_stream(self, job: m.Speak) -> None:
        """Send status and headers with the first audio, and each part as it is made."""
        head = h11.Response(status_code=200, headers=self._audio_headers(job))
        begun = False
        async for chunk in chunks(job, self._endpoint.rtf):
            if not await self._wire.room(AUDIO_ROOM):
                return
            if not begun:
                self._send(head)
                begun = True
            self._send(h11.Data(data=chunk))
        if not begun:
            self._send(head)
        self._send(h11.EndOfMessage())

    async def _answer_whole(self, job: m.Speak) -> None:
        """Make all of the audio, then send it as one body."""
        audio = bytearray()
        async for chunk in chunks(job, self._endpoint.rtf):
            audio += chunk
        headers = [
            *self._audio_headers(job),
            ("Utterwire-Duration-S", f"{len(audio) / (2 * m.SAMPLE_RATE):.6f}"),
            ("Utterwire-Audio-Bytes", str(len(audio))),
            ("Utterwire-Characters", str(len(job.text))),
            ("Content-Length", str(len(audio))),
        ]
        self._send(h11.Response(status_code=200, headers=headers))
        for start in range(0, len(audio), AUDIO_ROOM):
            if not await self._wire.room(AUDIO_ROOM):
                return
            self._send(h11.Data(data=bytes(audio[start : start + AUDIO_ROOM])))
        self._send(h11.EndOfMessage())


@contextlib.asynccontextmanager
async def _started(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a coroutine beside others; leaving ends it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _positive(value: str) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError("a number above 0 is due")
    return number


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spec_peer", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--idle-timeout", type=_positive, default=300.0, help="seconds")
    parser.add_argument("--rtf", type=float, default=0.0, help="seconds a second of audio takes")
    parser.add_argument("--shutdown-timeout", type=_positive, default=20.0, help="seconds")
    parser.add_argument("--stall-timeout", type=_positive, default=STALL_TIMEOUT_S, help="seconds")
    return parser.parse_args()


async def _main(options: argparse.Namespace) -> None:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.create_server((options.host, options.port), family=family, backlog=512)
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    print(f"spec_peer listens on {options.host}:{listener.getsockname()[1]}", flush=True)
    with listener:
        await Endpoint(options).serve(listener, stop)


def main() -> None:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(_main(_options()))
