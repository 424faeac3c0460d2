"""One WebSocket session carried through the proxy, frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from utterwire_conformance.wire import (
    Frame,
    FrameDecoder,
    FrameTooLarge,
    Opcode,
    close_payload,
    encode,
)

from .action import Action, CloseSession, CutSession, Pause, ToClient, ToEndpoint
from .tamper import SessionTamper
from .tap import Tap

__all__ = ["SessionRelay"]

_READ_BYTES: Final = 65_536
# Any four bytes will do: the key protects proxies from clients, and here both ends are known.
_MASK: Final = b"\x1f\x2e\x3d\x4c"
_DATA: Final = (Opcode.TEXT, Opcode.BINARY)


class _ClientMessages:
    """Puts the client's frames together into messages and tells those that break RFC 6455."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def breach(self, frame: Frame) -> bool:
        """Whether `frame` breaks the framing rules, in the place where it stands."""
        if frame.mask is None or frame.rsv:
            return True
        if frame.is_control:
            return (
                not frame.fin
                or len(frame.payload) > 125
                or frame.opcode not in (Opcode.CLOSE, Opcode.PING, Opcode.PONG)
            )
        if frame.opcode == Opcode.CONTINUATION:
            return not self._frames
        return frame.opcode not in _DATA or bool(self._frames)

    def add(self, frame: Frame) -> tuple[Frame, ...] | None:
        """Take a data frame; the frames of the message that it completes."""
        self._frames.append(frame)
        if not frame.fin:
            return None
        return self.drop()

    def drop(self) -> tuple[Frame, ...]:
        """The frames of the message that was begun, which is given up."""
        frames = tuple(self._frames)
        self._frames.clear()
        return frames


class SessionRelay:
    """Carries frames both ways until both transports have ended.

    A tamper that does not touch what the client sends lets those bytes through as they come, so
    that nothing a client can send is lost on the way; else frames are read and written anew.
    """

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        endpoint: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        tamper: SessionTamper,
        tap: Tap,
    ) -> None:
        self._client_reader, self._client_writer = client
        self._endpoint_reader, self._endpoint_writer = endpoint
        self._tamper = tamper
        self._tap = tap
        kind = type(tamper)
        self._whole_messages = (
            kind.client_message is not SessionTamper.client_message
            or kind.client_bad_text is not SessionTamper.client_bad_text
        )
        self._verbatim = not self._whole_messages and (
            kind.client_frame is SessionTamper.client_frame
            and kind.client_breach is SessionTamper.client_breach
        )
        self._messages = _ClientMessages()
        self._over = False

    async def run(self, from_client: bytes, from_endpoint: bytes) -> None:
        """Relay until the end; the arguments are bytes that came with the handshake."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._from_client(from_client))
            tasks.create_task(self._from_endpoint(from_endpoint))

    async def _from_client(self, data: bytes) -> None:
        decoder: FrameDecoder | None = FrameDecoder()
        clean = True
        while True:
            if data and not self._over:
                decoder = await self._take_client_bytes(decoder, data)
            try:
                data = await self._client_reader.read(_READ_BYTES)
            except OSError:
                clean = False
                break
            if not data:
                break
        if self._over:
            return
        if decoder is not None and decoder.buffered and not self._verbatim:
            await _send(self._endpoint_writer, decoder.buffered)
        if not self._tamper.client_gone(clean=clean):
            return
        if clean:
            _half_close(self._endpoint_writer)
        else:
            _abort(self._endpoint_writer)

    async def _take_client_bytes(
        self, decoder: FrameDecoder | None, data: bytes
    ) -> FrameDecoder | None:
        """Deal with bytes of the client; None once they can no longer be cut into frames."""
        if self._verbatim:
            await _send(self._endpoint_writer, data)
        if decoder is None:
            if not self._verbatim:
                await _send(self._endpoint_writer, data)
            return None
        unread = decoder.buffered + data
        try:
            frames = decoder.feed(data)
        except FrameTooLarge:
            if not self._verbatim:
                await _send(self._endpoint_writer, unread)
            return None
        for frame in frames:
            actions = self._on_client_frame(frame)
            if not self._verbatim:
                await self._do(actions, from_client=True)
        return decoder

    def _on_client_frame(self, frame: Frame) -> Iterable[Action]:
        if self._messages.breach(frame):
            # The beginning of a message that waits for its end may be what makes it a breach.
            begun = self._messages.drop() if self._whole_messages else ()
            return [
                *(ToEndpoint(part, as_is=True) for part in begun),
                *self._tamper.client_breach(frame),
            ]
        if frame.is_control:
            return self._tamper.client_frame(frame)
        onwards = [] if self._whole_messages else [ToEndpoint(frame, as_is=True)]
        frames = self._messages.add(frame)
        self._tap.in_message = frames is None
        if frames is None:
            return onwards
        data = b"".join(part.payload for part in frames)
        if frames[0].opcode == Opcode.TEXT and not _is_utf8(data):
            return self._tamper.client_bad_text(frames) if self._whole_messages else onwards
        message = self._tap.client_message(data, frames)
        return self._tamper.client_message(message) if self._whole_messages else onwards

    async def _from_endpoint(self, data: bytes) -> None:
        decoder = FrameDecoder()
        while not self._over:
            for frame in decoder.feed(data):
                if not self._over:
                    await self._take_endpoint_frame(frame)
            try:
                data = await self._endpoint_reader.read(_READ_BYTES)
            except OSError:
                data = b""
            if not data:
                break
        if self._over:
            return
        if decoder.buffered:
            await _send(self._client_writer, decoder.buffered)
        if self._tamper.endpoint_gone():
            _half_close(self._client_writer)

    async def _take_endpoint_frame(self, frame: Frame) -> None:
        if frame.opcode not in _DATA or not frame.fin:
            await self._do(self._tamper.endpoint_frame(frame))
            return
        chunk = self._tap.chunk(frame)
        await self._do(self._tamper.chunk(chunk))
        self._tap.after(chunk)

    async def _do(self, actions: Iterable[Action], *, from_client: bool = False) -> None:
        to_client = bytearray()

        async def flush() -> None:
            # A client that does not read must not keep its own messages from the endpoint.
            data, to_client[:] = bytes(to_client), b""
            await _send(self._client_writer, data, drain=not from_client)

        for action in actions:
            if self._over:
                return
            if isinstance(action, ToClient):
                to_client += encode(action.frame)
                continue
            await flush()
            match action:
                case ToEndpoint(frame, as_is):
                    if frame.mask is None and not as_is:
                        frame = replace(frame, mask=_MASK)
                    await _send(self._endpoint_writer, encode(frame), drain=from_client)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case CloseSession(code, reason):
                    # What the client still sends is read and dropped: to close a socket with
                    # unread bytes resets it, and the close frame would be lost with it.
                    self._over = True
                    goodbye = Frame(Opcode.CLOSE, close_payload(code, reason))
                    await _send(self._client_writer, encode(goodbye))
                    _half_close(self._client_writer)
                    _abort(self._endpoint_writer)
                case CutSession():
                    self._over = True
                    _abort(self._client_writer)
                    _abort(self._endpoint_writer)
        await flush()


async def _send(writer: asyncio.StreamWriter, data: bytes, *, drain: bool = True) -> None:
    # Who has hung up is found out by the side that reads from it.
    with suppress(OSError, RuntimeError):
        if data and not writer.is_closing():
            writer.write(data)
            if drain:
                await writer.drain()


def _half_close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        writer.transport.abort()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
