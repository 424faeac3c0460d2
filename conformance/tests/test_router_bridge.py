"""A stream between a caller and a container of whom one takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

pytest.importorskip(
    "smithy_aws_event_stream", reason="the AWS SDK needs Python 3.12 and the extra aws"
)

from utterwire_conformance.router.bridge import Bridge
from utterwire_conformance.router.call import CallerGone, Inflow
from utterwire_conformance.router.container import ContainerSocket
from utterwire_conformance.router.event_stream import Deframer, part
from utterwire_conformance.router.faults import Plan
from utterwire_conformance.router.options import Options
from utterwire_conformance.wire import Frame, FrameDecoder, Opcode, close_payload, encode

_WITHIN_S = 20.0


class _Writer:
    """The way to a container that takes nothing: whoever waits for it waits for ever."""

    def __init__(self) -> None:
        self.written = b""
        self.transport = self

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def wait_closed(self) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def opcodes(self) -> list[int]:
        """Of the frames that were sent."""
        return [frame.opcode for frame in FrameDecoder().feed(self.written)]


class _Call:
    """A caller, who takes octets one by one while `taking` is set."""

    method, target, version = "POST", "/", "2"
    headers: list[tuple[str, str]] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.inflow = Inflow()
        self.taking = asyncio.Event()
        self.taken = b""
        self.begun = asyncio.Event()

    async def receive(self) -> bytes | None:
        return await self.inflow.read()

    async def respond(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        pass

    async def send(self, data: bytes) -> None:
        for octet in data:
            self.begun.set()
            await self.taking.wait()
            await asyncio.sleep(0)
            self.taken += bytes([octet])

    async def end(self) -> None:
        pass

    def reset(self) -> None:
        pass

    def reset_connection(self) -> None:
        pass

    def go_away(self) -> None:
        pass


def _bridge(call: _Call, writer: _Writer, reader: asyncio.StreamReader, options: Options) -> Bridge:
    socket = ContainerSocket(reader, cast(Any, writer), b"")
    return Bridge(call, socket, options=options, plan=Plan())


async def test_a_container_that_takes_nothing_is_given_up() -> None:
    call, writer = _Call(), _Writer()
    call.taking.set()
    call.inflow.feed(part(b"more than it takes"))
    options = Options(ping_interval_s=0.001, missed_pongs=2)
    async with asyncio.timeout(_WITHIN_S):
        await _bridge(call, writer, asyncio.StreamReader(), options).run()
    (message,) = Deframer().feed(call.taken)
    assert message.text(":exception-type") == "InternalStreamFailure"
    assert writer.opcodes() == [Opcode.BINARY, Opcode.PING, Opcode.PING]


async def test_pongs_keep_a_stream() -> None:
    call, reader = _Call(), asyncio.StreamReader()
    call.taking.set()

    class Alive(_Writer):
        def write(self, data: bytes) -> None:
            super().write(data)
            (frame,) = FrameDecoder().feed(data)
            if frame.opcode == Opcode.PING:
                last = self.opcodes().count(Opcode.PING) == 10
                answer = Frame(Opcode.CLOSE, close_payload(1000)) if last else Frame(Opcode.PONG)
                reader.feed_data(encode(answer))

    options = Options(ping_interval_s=0.001, missed_pongs=2)
    async with asyncio.timeout(_WITHIN_S):
        await _bridge(call, Alive(), reader, options).run()
    (message,) = Deframer().feed(call.taken)
    assert message.text(":exception-type") == "ModelStreamError"


async def test_it_has_its_time_and_no_more_when_the_caller_ends_the_input() -> None:
    call, writer, reader = _Call(), _Writer(), asyncio.StreamReader()
    call.inflow.end()

    class Aborted(_Writer):
        def abort(self) -> None:
            reader.feed_eof()

    writer = Aborted()
    async with asyncio.timeout(_WITHIN_S):
        await _bridge(call, writer, reader, Options(close_s=0.001)).run()
    assert writer.opcodes() == [Opcode.CLOSE]


async def test_a_caller_may_go_while_it_takes_nothing() -> None:
    call, writer = _Call(), _Writer()
    call.inflow.lose()
    with pytest.raises(CallerGone):
        async with asyncio.timeout(_WITHIN_S):
            await _bridge(call, writer, asyncio.StreamReader(), Options()).run()
    assert writer.opcodes() == [Opcode.CLOSE]


async def test_an_error_waits_until_the_part_before_it_is_through() -> None:
    call, reader = _Call(), asyncio.StreamReader()
    reader.feed_data(encode(Frame(Opcode.BINARY, b"speech")))
    running = asyncio.create_task(_bridge(call, _Writer(), reader, Options()).run())
    async with asyncio.timeout(_WITHIN_S):
        # A part is on its way to a caller who does not take it now, and sends nonsense.
        await call.begun.wait()
        call.inflow.feed(b"\xff" * 64)
        for _ in range(5):
            await asyncio.sleep(0)
        call.taking.set()
        await running
    speech, error = Deframer().feed(call.taken)
    assert speech.payload == b"speech"
    assert error.text(":error-code") == "InputValidationError"
