"""A WebSocket session with every frame under control (RFC 6455), recorded as it happens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

import h11

from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.transcript import Case, Direction, Entry, Kind
from utterwire_conformance.wire import (
    Frame,
    FrameDecoder,
    FrameTooLarge,
    Opcode,
    accept_key,
    close_payload,
    encode,
    parse_close,
)

from .connection import MOST_BYTES, MOST_FRAMES, SEND_S, Address, ConnectFailed, open_stream
from .recorder import Recorder

__all__ = ["HandshakeRefused", "NotCarried", "WebSocketSession"]

_READ: Final = 65_536
_SIP: Final = 2_048
_SIP_EVERY_S: Final = 0.1
_KINDS: Final[dict[int, Kind]] = {
    Opcode.CONTINUATION: "cont",
    Opcode.TEXT: "text",
    Opcode.BINARY: "binary",
    Opcode.CLOSE: "close",
    Opcode.PING: "ping",
    Opcode.PONG: "pong",
}
_MESSAGES: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION)
_OPCODES: Final = {"text": Opcode.TEXT, "binary": Opcode.BINARY}


class HandshakeRefused(Exception):
    """The peer speaks HTTP but did not open a session.

    `status` is what it answered; `why` tells what is wrong where the status is 101 all the same.
    """

    def __init__(self, status: int, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.retry_after = retry_after
        """What `Retry-After` says, in seconds, if it says a number."""


class NotCarried(Exception):
    """What was to be sent cannot be sent by this transport."""


class WebSocketSession:
    """One connection. Reads all the time (unless paused) and answers pings and closes.

    Use `open`, as an asynchronous context manager; leaving it closes politely if that is still
    possible and then ends the transport in any case.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        recorder: Recorder,
        session: int,
        dialogue: Dialogue,
    ) -> None:
        self.dialogue = dialogue
        self.session = session
        self.answers_pings = True
        self.answers_close = True
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._decoder = FrameDecoder()
        self._early = b""
        self._changed: set[asyncio.Future[None]] = set()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._sips = False
        self._close_sent = False
        self._last_activity = recorder.now
        self._task: asyncio.Task[None] | None = None
        self._fresh: list[Entry] = []
        self.most_bytes = MOST_BYTES
        self.most_frames = MOST_FRAMES
        self._received = 0
        self._frames = 0
        self.gate: Callable[[int], Awaitable[None]] | None = None
        """Awaited before each message with the number of characters it asks to be spoken."""

    # --- opening and ending -------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        url: str,
        recorder: Recorder,
        claims: EndpointClaims,
        *,
        headers: Iterable[tuple[str, str]] = (),
        extensions: str | None = None,
        context: Any = None,
        within: float = 10.0,
        receive_buffer: int | None = None,
    ) -> Self:
        """Connect and shake hands.

        Raises:
            ConnectFailed: there is no transport.
            HandshakeRefused: an HTTP answer came that opens no session.
        """
        address = Address.of(url)
        session = recorder.next_session()
        dialogue = Dialogue(claims, recorder.transcript.scenario, session)
        reader, writer = await open_stream(
            address, context=context, within=within, receive_buffer=receive_buffer
        )
        opened = cls(reader, writer, recorder, session, dialogue)
        try:
            async with asyncio.timeout(within):
                await opened._shake_hands(address, tuple(headers), extensions)
        except TimeoutError as error:
            writer.transport.abort()
            raise ConnectFailed(f"the handshake was not answered within {within:g} s") from error
        except ConnectionError as error:
            writer.transport.abort()
            raise ConnectFailed(f"the connection broke during the handshake: {error}") from error
        except BaseException:
            writer.transport.abort()
            raise
        if receive_buffer is not None:
            opened.note(f"receive buffer: {receive_buffer}")
        opened._task = asyncio.create_task(opened._read_on())
        return opened

    async def _shake_hands(
        self, address: Address, headers: tuple[tuple[str, str], ...], extensions: str | None
    ) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        own = [
            ("Host", address.authority),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", key),
            ("Sec-WebSocket-Version", "13"),
        ]
        if extensions is not None:
            own.append(("Sec-WebSocket-Extensions", extensions))
        http = h11.Connection(h11.CLIENT)
        request = h11.Request(method="GET", target=address.target, headers=[*own, *headers])
        hidden = [(name, "***") for name, _ in headers]
        path = address.target.partition("?")[0]
        self._record("out", "open", target=path, method="GET", headers=(*own, *hidden))
        self._writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        await self._writer.drain()
        while True:
            try:
                event = http.next_event()
            except h11.RemoteProtocolError as error:
                raise ConnectFailed(f"the peer does not speak HTTP/1.1: {error}") from error
            if event is h11.NEED_DATA:
                data = await self._reader.read(_READ)
                if not data and http.their_state is h11.SEND_RESPONSE:
                    raise ConnectFailed("the peer closed the connection during the handshake")
                http.receive_data(data)
            elif isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                continue
            elif isinstance(event, h11.InformationalResponse | h11.Response):
                break
            else:  # pragma: no cover - h11 gives nothing else before a response
                raise ConnectFailed("the peer ended the handshake")
        answer = {name.decode().lower(): value.decode("latin-1") for name, value in event.headers}
        self._record(
            "in", "open", status=event.status_code, headers=tuple(answer.items()), target=path
        )
        if event.status_code != 101:
            raise HandshakeRefused(
                event.status_code,
                f"HTTP {event.status_code}",
                _seconds(answer.get("retry-after")),
            )
        if answer.get("sec-websocket-accept") != accept_key(key):
            raise HandshakeRefused(101, "`Sec-WebSocket-Accept` is wrong")
        # Frames that came on the heels of the answer are read with all the others.
        self._early = http.trailing_data[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self.dialogue.ended and not self.dialogue.aborted:
            await self.say_goodbye()
        await self.end()

    async def say_goodbye(self, within: float = 2.0) -> None:
        """Send a close frame (once) and wait for the answer and the end of the transport.

        The way there and back, as long as the handshake took, comes on top of `within`.
        """
        self.resume()
        way = 2 * self.dialogue.rtt
        if not self._close_sent:
            await self.send_close(1000)
        if not await self.until(lambda: self.dialogue.close_in is not None, within=within + way):
            self.note("the close frame was not answered")
            return
        await self.until(lambda: False, within=0.25 + way)

    async def end(self) -> None:
        """End the transport and the reading task, whatever state they are in."""
        if not self.dialogue.ended and not self.dialogue.aborted:
            self._record("out", "eof", reason="ended by the suite")
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    async def abort(self) -> None:
        """Break the connection off, as a client that crashes."""
        self._record("out", "eof", reason="broken off by the suite")
        await self.end()

    # --- sending ------------------------------------------------------------------------------

    async def send(
        self,
        message: dict[str, Any] | str | bytes,
        *,
        kind: Literal["text", "binary"] = "text",
        case: Case | None = None,
    ) -> int:
        """Send one message in one frame and give back its `seq`; an object is sent as JSON."""
        data = self._octets(message)
        await self._announce(data, case)
        await self.send_frame(Frame(_OPCODES[kind], data))
        return len(self.dialogue.sent)

    async def send_fragments(
        self,
        pieces: Sequence[bytes],
        *,
        kind: Literal["text", "binary"] = "text",
        between: Callable[[int], Frame | None] | None = None,
        case: Case | None = None,
    ) -> int:
        """Send one message in a frame for each piece.

        `between` gives the control frame, if any, to send after the piece of that number.
        """
        await self._announce(b"".join(pieces), case)
        last = len(pieces) - 1
        for number, piece in enumerate(pieces):
            opcode = _OPCODES[kind] if number == 0 else Opcode.CONTINUATION
            await self.send_frame(Frame(opcode, piece, fin=number == last))
            extra = between(number) if between is not None and number != last else None
            if extra is not None:
                await self.send_frame(extra)
        return len(self.dialogue.sent)

    async def send_frame(self, frame: Frame, *, masked: bool = True) -> None:
        """Send one frame, masked (unless told otherwise) as a client must."""
        known = frame.rsv == 0 and frame.opcode in _KINDS and masked
        if masked and frame.mask is None:
            frame = Frame(frame.opcode, frame.payload, frame.fin, frame.rsv, os.urandom(4))
        octets = encode(frame)
        if known:
            self._record("out", _KINDS[frame.opcode], **_fields(frame))
        else:
            self._record("out", "raw", data=octets, text="not a frame that RFC 6455 allows")
        await self._write(octets)

    async def send_raw(self, octets: bytes) -> None:
        """Put octets on the wire as they are."""
        self._record("out", "raw", data=octets)
        await self._write(octets)

    async def ping(self, payload: bytes = b"") -> None:
        """Send a ping."""
        await self.send_frame(Frame(Opcode.PING, payload))

    async def send_close(self, code: int | None = 1000, reason: str = "") -> None:
        """Send a close frame."""
        self._close_sent = True
        await self.send_frame(Frame(Opcode.CLOSE, close_payload(code, reason)))

    async def close_with(self, payload: bytes) -> None:
        """Send a close frame with this payload, whatever it is."""
        self._close_sent = True
        await self.send_frame(Frame(Opcode.CLOSE, payload))

    def abuse(self) -> None:
        """Note that what follows breaks RFC 6455 on purpose."""
        self.note("abuse")

    def _note_reading(self, how: str) -> None:
        """Say when the suite does not read at once: what comes late then is its own doing."""
        if not self.dialogue.ended and not self.dialogue.aborted:
            self.note(f"reading: {how}")

    def note(self, text: str) -> None:
        """Write a remark into the transcript."""
        self.dialogue.feed(self._recorder.note(text, self.session))

    async def _announce(self, data: bytes, case: Case | None) -> None:
        if self.gate is not None:
            await self.gate(_spoken(data))
        if case is not None:
            self.dialogue.feed(self._recorder.case(case, self.session))

    @staticmethod
    def _octets(message: dict[str, Any] | str | bytes) -> bytes:
        if isinstance(message, dict):
            message = json.dumps(message, ensure_ascii=False)
        return message.encode() if isinstance(message, str) else message

    async def _write(self, octets: bytes) -> None:
        try:
            self._writer.write(octets)
            # A peer that takes nothing must not keep the suite from reading.
            async with asyncio.timeout(SEND_S):
                await self._writer.drain()
        except (ConnectionError, RuntimeError, TimeoutError):
            # The reader sees the end as well and writes it down.
            await asyncio.sleep(0)

    # --- reading ------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading, as a client that is busy or stuck."""
        self._note_reading("paused")
        self._resumed.clear()

    def resume(self) -> None:
        """Read again, as fast as it comes."""
        if self._sips or not self._resumed.is_set():
            self._note_reading("on")
        self._sips = False
        self._resumed.set()

    def sip(self) -> None:
        """Read on, but slower (20 kB/s) than speech is heard.

        TCP tries ever more seldom to get data to a reader that takes none, so that what is sent may
        come seconds after the reader has resumed. A slow reader holds a sender as well, and keeps
        the transport moving.
        """
        self._note_reading("slowly")
        self._sips = True
        self._resumed.set()

    @property
    def over(self) -> bool:
        """Whether it holds no place at the endpoint any more."""
        return self.dialogue.ended or self.dialogue.aborted or self._task is None

    @property
    def now(self) -> float:
        """The time of the recording, in seconds."""
        return self._recorder.now

    async def until(
        self, done: Callable[[], bool], *, within: float, stall: float | None = None
    ) -> bool:
        """Wait until `done`, the end of the session, or the timeout; say whether it is done.

        With `stall`, the time starts again with every frame of a message that comes, `stall`
        seconds each.
        """
        deadline = self.now + within
        while not done():
            if self.dialogue.ended or self.dialogue.aborted:
                return done()
            if stall is not None and self._last_activity + stall > deadline:
                deadline = self._last_activity + stall
            left = deadline - self.now
            if left <= 0:
                return done()
            changed = asyncio.get_running_loop().create_future()
            self._changed.add(changed)
            try:
                await asyncio.wait((changed,), timeout=left)
            finally:
                self._changed.discard(changed)
                changed.cancel()
        return True

    async def until_close(self, within: float) -> bool:
        """Wait for the endpoint's close frame."""
        return await self.until(lambda: self.dialogue.close_in is not None, within=within)

    async def until_pongs(self, count: int, within: float) -> bool:
        """Wait until so many pongs have come in all."""
        return await self.until(lambda: len(self.dialogue.pongs) >= count, within=within)

    async def until_farewell(self, within: float) -> bool:
        """Wait for `session_closed`."""
        return await self.until(lambda: self.dialogue.session_closed is not None, within=within)

    def utterance(self, seq: int) -> Utterance:
        """What has come back about message `seq` so far."""
        return self.dialogue.utterances[seq]

    async def _read_on(self) -> None:
        reason = "end of stream"
        try:
            while True:
                await self._resumed.wait()
                data, self._early = self._early, b""
                data = data or await self._reader.read(_SIP if self._sips else _READ)
                if not self._resumed.is_set():
                    await self._resumed.wait()
                if not data:
                    break
                self._received += len(data)
                if (too_much := self._too_much()) is not None:
                    reason = too_much
                    break
                self._feed(data)
                await self._answer()
                if self._sips:
                    await asyncio.sleep(_SIP_EVERY_S)
        except FrameTooLarge as error:
            reason = str(error)
        except OSError as error:
            reason = f"the connection broke: {error.strerror or error}"
        if self._decoder.buffered:
            self.note("ended in a frame: yes")
        self._record("in", "eof", reason=reason)
        self._notify()

    def _too_much(self) -> str | None:
        """Why the suite reads no further, or None."""
        if self._received > self.most_bytes:
            return f"more than {self.most_bytes} bytes came; the suite reads no further"
        if self._frames > self.most_frames:
            return f"more than {self.most_frames} frames came; the suite reads no further"
        return None

    def _feed(self, data: bytes) -> None:
        frames = self._decoder.feed(data)
        while frames:
            self._record_frames(frames)
            frames = self._decoder.feed(b"")

    def _record_frames(self, frames: list[Frame]) -> None:
        self._frames += len(frames)
        for frame in frames:
            if frame.rsv or frame.opcode not in _KINDS or frame.mask is not None:
                self._record("in", "raw", data=encode(frame), text="not a frame RFC 6455 allows")
            else:
                self._record("in", _KINDS[frame.opcode], **_fields(frame))
        # A peer that does nothing but ping is no nearer to its end.
        if any(frame.opcode in _MESSAGES for frame in frames):
            self._last_activity = self.now
        self._notify()

    async def _answer(self) -> None:
        """Answer what RFC 6455 wants answered and has not been.

        Of several pings the last is answered (section 5.5.3), so that a flood of them is none of
        pongs.
        """
        fresh = self._unanswered()
        last = next((entry for entry in reversed(fresh) if entry.kind == "ping"), None)
        for entry in fresh:
            if entry.kind == "ping" and entry is not last:
                continue
            if entry.kind == "ping" and self.answers_pings and not self._close_sent:
                await self.send_frame(Frame(Opcode.PONG, entry.data))
            elif entry.kind == "close" and self.answers_close and not self._close_sent:
                await self.send_close(entry.code if entry.code is not None else None)

    def _unanswered(self) -> list[Entry]:
        fresh, self._fresh = self._fresh, []
        return fresh

    def _record(self, direction: Direction, kind: Kind, **fields: Any) -> None:
        entry = self._recorder.record(direction, kind, self.session, **fields)
        self.dialogue.feed(entry)
        if direction == "in" and kind in ("ping", "close"):
            self._fresh.append(entry)

    def _notify(self) -> None:
        for changed in self._changed:
            if not changed.done():
                changed.set_result(None)


def _fields(frame: Frame) -> dict[str, Any]:
    fields: dict[str, Any] = {"fin": frame.fin, "data": frame.payload}
    if frame.opcode == Opcode.CLOSE:
        said = parse_close(frame.payload)
        fields |= {"code": said.code, "reason": said.reason or None}
    return fields


def _seconds(text: str | None) -> float | None:
    """The value of `Retry-After` where it is a number of seconds (RFC 9110 section 10.2.3)."""
    plain = text is not None and text.strip().isascii() and text.strip().isdigit()
    return float(text or 0) if plain and len(text or "") < 10 else None


def _spoken(data: bytes) -> int:
    """How many characters a message asks to be spoken."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return 0
    text = body.get("text") if isinstance(body, dict) else None
    return len(text) if isinstance(text, str) else 0
