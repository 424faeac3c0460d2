"""One connection of a client under test, from the endpoint's side: frames and octets, recorded.

The transcript is that of any session: `out` is what the client sent, `in` what the scripted
endpoint did. Nothing here knows what a message means.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import h11

from utterwire_conformance.driver import Recorder
from utterwire_conformance.transcript import Kind
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

__all__ = [
    "MOST_BYTES",
    "MOST_FRAMES",
    "MOST_MESSAGES",
    "MOST_MESSAGE_BYTES",
    "Allowance",
    "Flood",
    "Gone",
    "Head",
    "Peer",
]

MOST_BYTES: Final = 16 * 1024 * 1024
"""How much is read of a client in one script, on all its connections: some lines of text."""

MOST_MESSAGE_BYTES: Final = 1024 * 1024
"""The longest message or body of a request: sixteen times what every endpoint must take."""

MOST_FRAMES: Final = 20_000
"""How many frames are read of a client in one script."""

MOST_MESSAGES: Final = 500
"""How many messages are read of a client in one script; it has a few lines to ask for."""

_READ: Final = 65_536
_KINDS: Final[dict[int, Kind]] = {
    Opcode.CONTINUATION: "cont",
    Opcode.TEXT: "text",
    Opcode.BINARY: "binary",
    Opcode.CLOSE: "close",
    Opcode.PING: "ping",
    Opcode.PONG: "pong",
}
_HEAD_S: Final = 10.0
_SEND_S: Final = 20.0


class Gone(ConnectionError):
    """The client has ended the connection, or takes nothing any more."""


class Flood(ConnectionError):
    """The client sends more than anybody should read; the text says of what."""


@dataclass(slots=True)
class Allowance:
    """What a client may still send in a script, on whatever connection."""

    octets: int = MOST_BYTES
    frames: int = MOST_FRAMES
    messages: int = MOST_MESSAGES

    def take(self, *, octets: int = 0, frames: int = 0, messages: int = 0) -> None:
        """Use some of it up.

        Raises:
            Flood: so much was not left.
        """
        self.octets -= octets
        self.frames -= frames
        self.messages -= messages
        if self.octets < 0:
            raise Flood(f"more than {MOST_BYTES} bytes")
        if self.frames < 0:
            raise Flood(f"more than {MOST_FRAMES} frames")
        if self.messages < 0:
            raise Flood(f"more than {MOST_MESSAGES} messages")


class Head:
    """The request that a connection began with; header names are in lower case."""

    def __init__(self, request: h11.Request, body: bytes) -> None:
        self.method = request.method.decode("ascii", "replace")
        self.target = request.target.decode("ascii", "replace")
        self.fields = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in request.headers
        ]
        self.body = body

    def get(self, name: str) -> str:
        """The values of a header field, joined; empty where there is none."""
        return ", ".join(value for key, value in self.fields if key == name)

    @property
    def opens_session(self) -> bool:
        """Whether it asks for a WebSocket."""
        return self.get("upgrade").lower() == "websocket"


class Peer:
    """The endpoint's end of one connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        recorder: Recorder,
        allowance: Allowance | None = None,
    ) -> None:
        self._allowance = allowance or Allowance()
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self.session = recorder.next_session()
        self.head: Head | None = None
        self.ended = asyncio.Event()
        """Set once the client has ended its direction."""
        self.close_read = asyncio.Event()
        """Set once a close frame has come."""
        self.may_read = asyncio.Event()
        """While clear, nothing more is read."""
        self.may_read.set()
        self.on_message: Callable[[bytes], None] = lambda _: None
        """Called with each whole message."""
        self._early = b""
        self._message: bytearray | None = None
        self._close_sent = False
        self._task: asyncio.Task[None] | None = None

    # --- the beginning ------------------------------------------------------------------------

    async def read_head(self) -> Head:
        """Read the first request, with its body where it opens no session.

        Raises:
            Gone: none came.
        """
        http = h11.Connection(h11.SERVER)
        request: h11.Request | None = None
        body = bytearray()
        try:
            async with asyncio.timeout(_HEAD_S):
                while True:
                    event = http.next_event()
                    if event is h11.NEED_DATA:
                        if http.they_are_waiting_for_100_continue:
                            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                        data = await self._reader.read(_READ)
                        self._allowance.take(octets=len(data))
                        http.receive_data(data)
                    elif isinstance(event, h11.Request):
                        request = event
                    elif isinstance(event, h11.Data):
                        body += event.data
                        if len(body) > MOST_MESSAGE_BYTES:
                            raise Flood(f"a body of more than {MOST_MESSAGE_BYTES} bytes")
                    elif isinstance(event, h11.EndOfMessage):
                        break
                    else:
                        raise Gone("the client ended the connection before it had asked")
        except Gone:
            raise
        except Flood as error:
            self._tell_flood(error)
            raise Gone(str(error)) from error
        except (h11.RemoteProtocolError, OSError, TimeoutError) as error:
            why = str(error) or f"nothing more for {_HEAD_S:g} s"
            # Of no session: there never was one.
            self._recorder.note(f"no HTTP request: {why}")
            raise Gone(f"no HTTP request came: {why}") from error
        assert request is not None
        self.head = head = Head(request, bytes(body))
        self._early = http.trailing_data[0]
        shown = tuple(
            (name, "***" if name == "authorization" else value) for name, value in head.fields
        )
        if head.opens_session:
            self._record("out", "open", method=head.method, target=head.target, headers=shown)
        else:
            self._record(
                "out",
                "http-request",
                method=head.method,
                target=head.target,
                headers=shown,
                data=head.body,
            )
        return head

    async def accept(self, *, key: str | None = None) -> None:
        """Answer the handshake; `key` is a wrong `Sec-WebSocket-Accept`, for those who want one.

        Raises:
            Gone: the client is not there any more.
        """
        assert self.head is not None
        answer = key or accept_key(self.head.get("sec-websocket-key"))
        fields = (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", answer),
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        self._record("in", "open", status=101, target=self.head.target, headers=fields)
        await self.octets(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())
        self._task = asyncio.create_task(self._read_frames())

    async def refuse(self, status: int, *fields: tuple[str, str]) -> None:
        """Refuse the handshake with an HTTP status, and end the connection.

        Raises:
            Gone: as `accept`.
        """
        assert self.head is not None
        own = (*fields, ("Content-Length", "0"), ("Connection", "close"))
        lines = "".join(f"{name}: {value}\r\n" for name, value in own)
        self._record("in", "open", status=status, target=self.head.target, headers=own)
        await self.octets(f"HTTP/1.1 {status} Refused\r\n{lines}\r\n".encode())

    async def respond(self, status: int, *fields: tuple[str, str]) -> None:
        """Send the head of an HTTP response.

        Raises:
            Gone: as `accept`.
        """
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        self._record("in", "http-response", status=status, headers=fields)
        await self.octets(f"HTTP/1.1 {status} Answer\r\n{lines}\r\n".encode())

    async def body(self, data: bytes, *, chunked: bool = True) -> None:
        """Send a part of an HTTP body.

        Raises:
            Gone: as `accept`.
        """
        self._record("in", "http-body", data=data, fin=False)
        await self.octets(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)

    async def body_end(self, *, chunked: bool = True) -> None:
        """End an HTTP body as it should end.

        Raises:
            Gone: as `accept`.
        """
        self._record("in", "http-body", fin=True)
        if chunked:
            await self.octets(b"0\r\n\r\n")

    # --- what goes to the client --------------------------------------------------------------

    async def frame(self, opcode: int, payload: bytes = b"", *, fin: bool = True) -> None:
        """Send a frame.

        Raises:
            Gone: the client is not there any more, or reads nothing.
        """
        fields: dict[str, Any] = {"fin": fin, "data": payload}
        if opcode == Opcode.CLOSE:
            said = parse_close(payload)
            fields = {"code": said.code, "reason": said.reason or None}
            self._close_sent = True
        self._record("in", _KINDS[opcode], **fields)
        await self.octets(encode(Frame(opcode, payload, fin)))

    async def close(self, code: int | None = 1000) -> None:
        """Send a close frame.

        Raises:
            Gone: as `frame`.
        """
        if not self._close_sent:
            await self.frame(Opcode.CLOSE, close_payload(code))

    async def octets(self, data: bytes) -> None:
        """Send octets as they are.

        Raises:
            Gone: as `frame`.
        """
        try:
            async with asyncio.timeout(_SEND_S):
                self._writer.write(data)
                await self._writer.drain()
        except (OSError, RuntimeError, TimeoutError) as error:
            raise Gone(str(error) or "the client reads nothing") from error

    def note(self, text: str) -> None:
        """Write a remark about this connection into the transcript."""
        self._recorder.note(text, self.session)

    def raw(self, data: bytes, text: str) -> None:
        """Record octets that are no frame, sent with `octets`."""
        self._record("in", "raw", data=data, text=text)

    # --- the end ------------------------------------------------------------------------------

    def reset(self) -> None:
        """End the connection by a TCP reset."""
        self._record("in", "eof", reason="a TCP reset")
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def end(self) -> None:
        """End the connection by TCP's FIN, without a close frame."""
        self._record("in", "eof", reason="the end of TCP, without a close frame")
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    async def wait_ended(self, within: float) -> bool:
        """Wait until the client has ended its direction; whether it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.ended.wait()
        return self.ended.is_set()

    async def read_on(self) -> None:
        """Read and drop what comes until the client leaves; for those who never answer."""
        with contextlib.suppress(OSError):
            while await self._reader.read(_READ):
                pass
        self._record("out", "eof", reason="the client ended the connection")

    async def stop(self) -> None:
        """Let go of the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    # --- what comes from the client -----------------------------------------------------------

    async def _read_frames(self) -> None:
        decoder = FrameDecoder()
        data = self._early
        reason = "the client ended the connection"
        try:
            while True:
                self._allowance.take(octets=len(data))
                for frame in decoder.feed(data):
                    self._allowance.take(frames=1)
                    await self._take(frame)
                await self.may_read.wait()
                data = await self._reader.read(_READ)
                if not data:
                    break
        except (FrameTooLarge, Flood) as error:
            self._tell_flood(error)
            reason = f"{error}; the suite reads no further"
        except Gone:
            reason = "the client was not there any more"
        except OSError as error:
            reason = f"the client broke the connection off: {error.strerror or error}"
        finally:
            # Whatever was wrong: who waits for the client is not to wait for ever.
            self.ended.set()
        self._record("out", "eof", reason=reason)

    async def _take(self, frame: Frame) -> None:
        fields: dict[str, Any] = {"fin": frame.fin, "data": frame.payload}
        if frame.opcode == Opcode.CLOSE:
            said = parse_close(frame.payload)
            fields = {"code": said.code, "reason": said.reason or None}
        breach = self._breach(frame)
        if breach is not None or frame.opcode not in _KINDS:
            self.note(f"frame breach: {breach}")
        if frame.opcode in _KINDS:
            self._record("out", _KINDS[frame.opcode], **fields)
        if frame.opcode == Opcode.PING:
            await self.frame(Opcode.PONG, frame.payload)
        elif frame.opcode == Opcode.CLOSE:
            self.close_read.set()
            await self.close(said.code)
            self._hang_up()
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION):
            if frame.opcode != Opcode.CONTINUATION or self._message is None:
                self._message = bytearray()
            self._message += frame.payload
            if len(self._message) > MOST_MESSAGE_BYTES:
                raise Flood(f"a message of more than {MOST_MESSAGE_BYTES} bytes")
            if frame.fin:
                self._allowance.take(messages=1)
                message, self._message = bytes(self._message), None
                self.on_message(message)

    def _breach(self, frame: Frame) -> str | None:
        """What of RFC 6455 a frame breaks where it stands."""
        if frame.mask is None:
            return "a frame that is not masked (RFC 6455 section 5.1)"
        if frame.rsv:
            return "a reserved bit is set (RFC 6455 section 5.2)"
        if frame.opcode not in _KINDS:
            return f"opcode {frame.opcode} (RFC 6455 section 5.2)"
        if frame.is_control and (not frame.fin or len(frame.payload) > 125):
            return "a control frame in fragments or of over 125 bytes (RFC 6455 section 5.5)"
        if not frame.is_control and (frame.opcode == Opcode.CONTINUATION) != (
            self._message is not None
        ):
            return "a continuation of nothing, or a message inside another (RFC 6455 section 5.4)"
        return None

    def _tell_flood(self, error: Exception) -> None:
        self._recorder.note(f"client flood: it sent too much: {error}")

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    def _record(self, direction: Any, kind: Kind, **fields: Any) -> None:
        self._recorder.record(direction, kind, self.session, **fields)
