"""One bidirectional stream: parts of the caller to frames of the container, and back.

`sagemaker.md#parts`: one part is one frame, both ways. What AWS does not document is an option.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from utterwire_conformance.wire import Frame, Opcode, parse_close

from .call import Call, CallerGone
from .container import ContainerSocket
from .errors import StreamFailed
from .event_stream import Deframer, Message, NotEvents, exception, part, refusal
from .faults import Fault, Plan
from .options import Options
from .signatures import ChainBroken, EventChain

__all__ = ["Bridge", "Tally"]

_STATES: Final = (None, "PARTIAL", "COMPLETE")
_TYPES: Final = (None, "UTF8", "BINARY")


@dataclass(slots=True)
class Tally:
    """What a stream carried, and how it ended."""

    parts_in: int = 0
    parts_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    ended: str = ""


class _Refused(Exception):
    """An event cannot be taken; the stream ends with an error that no model has."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class _Broken(Exception):
    """A fault ended the stream."""


class Bridge:
    """Carries one stream from its first part to its end."""

    def __init__(
        self,
        call: Call,
        socket: ContainerSocket,
        *,
        options: Options,
        plan: Plan,
        chain: EventChain | None = None,
    ) -> None:
        self.tally = Tally()
        self._call = call
        self._socket = socket
        self._options = options
        self._plan = plan
        self._chain = chain
        self._deframer = Deframer()
        self._inside = False
        self._input_ended = False
        self._missed = 0
        self._blocked = False
        self._type: str | None = None
        # A message goes out as a whole, whoever sends it.
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        """Carry until either side ends; the answer's head must have been sent.

        Raises:
            CallerGone: the caller broke the stream off.
        """
        up = asyncio.create_task(self._carry_up(), name="router-up")
        down = asyncio.create_task(self._carry_down(), name="router-down")
        pings = asyncio.create_task(self._ping(), name="router-pings")
        tasks = {up, down, pings}
        try:
            while not down.done():
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                ended = [task for task in tasks if task.done()]
                # A task that failed ends the stream; one that is through is just no longer there.
                for task in ended:
                    task.result()
                tasks.difference_update(ended)
            self.tally.ended = self.tally.ended or "the container closed after the caller had ended"
            await self._call.end()
        except StreamFailed as failure:
            self.tally.ended = str(failure)
            await self._send(exception(failure), last=True)
        except _Refused as refused:
            self.tally.ended = str(refused)
            await self._send(refusal(refused.code, refused.message), last=True)
        except _Broken as broken:
            self.tally.ended = str(broken)
        except CallerGone:
            self.tally.ended = self.tally.ended or "the caller broke it off"
            self._socket.send_close(1001)
            raise
        finally:
            for task in (up, down, pings):
                task.cancel()
            await asyncio.gather(up, down, pings, return_exceptions=True)
            await self._socket.close()

    # --- from the caller ----------------------------------------------------------------------

    async def _carry_up(self) -> None:
        while not self._input_ended:
            data = await self._call.receive()
            if data is None:
                if self._deframer.inside_a_message:
                    raise _Refused("InputValidationError", "the input ended inside an event")
                break
            try:
                for message in self._deframer.feed(data):
                    if await self._take(message):
                        self._input_ended = True
                        break
            except NotEvents as error:
                raise _Refused("InputValidationError", str(error)) from error
        self._input_ended = True
        if self._options.at_input_end == "close":
            self._socket.send_close(1000)
            # The container has so long to answer; then the stream is over all the same.
            await asyncio.sleep(self._options.close_s)
            self._socket.abort()

    async def _take(self, message: Message) -> bool:
        """Send on what a message holds; whether it was the end of the input."""
        if self._chain is not None:
            try:
                self._chain.verify(message.date, message.signature, message.payload)
            except ChainBroken as error:
                raise _Refused("InvalidSignatureException", str(error)) from error
        if message.ends_the_stream:
            return True
        event = message.unwrapped()
        kind = event.text(":event-type")
        if kind != "PayloadPart":
            raise _Refused("InputValidationError", f"an event of type {kind} was not expected")
        data_type, state = event.text("DataType"), event.text("CompletionState")
        if data_type not in _TYPES or state not in _STATES:
            raise _Refused(
                "InputValidationError", f"DataType {data_type}, CompletionState {state}: unknown"
            )
        if len(event.payload) > self._options.most_part_bytes:
            raise _Refused(
                "InputValidationError",
                f"a part of {len(event.payload)} bytes, more than {self._options.most_part_bytes}",
            )
        self.tally.parts_in += 1
        self.tally.bytes_in += len(event.payload)
        fin = state != "PARTIAL"
        opcode = Opcode.TEXT if data_type == "UTF8" else Opcode.BINARY
        if self._inside:
            opcode = Opcode.CONTINUATION
        self._inside = not fin
        await self._socket.send(opcode, event.payload, fin=fin)
        return False

    # --- from the container -------------------------------------------------------------------

    async def _carry_down(self) -> None:
        while True:
            frame = await self._socket.receive()
            if frame is None:
                if self._socket.close_sent:
                    return None
                raise StreamFailed(
                    self._options.lost_container,
                    "the container's connection ended without a close frame",
                    "1006" if self._options.lost_container == "ModelStreamError" else None,
                )
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION):
                await self._part(frame)
            elif frame.opcode == Opcode.PING:
                await self._socket.send(Opcode.PONG, frame.payload)
            elif frame.opcode == Opcode.PONG and not self._plan.has("missed-pongs"):
                self._missed = 0
            elif frame.opcode == Opcode.CLOSE:
                return await self._closed(frame)

    async def _part(self, frame: Frame) -> None:
        if frame.opcode != Opcode.CONTINUATION:
            self._type = "UTF8" if frame.opcode == Opcode.TEXT else "BINARY"
        state = "COMPLETE" if frame.fin else "PARTIAL"
        if self._plan.has("slow-parts"):
            await asyncio.sleep(self._options.slow_s)
        octets = part(frame.payload, data_type=self._type, completion_state=state)
        # While the caller takes nothing the container is not read, nor are its pongs.
        self._blocked = True
        await self._send(octets)
        self._blocked = False
        self.tally.parts_out += 1
        self.tally.bytes_out += len(frame.payload)
        fault = self._plan.breach(self.tally.parts_out)
        if fault is not None:
            self._break(fault)

    async def _send(self, octets: bytes, *, last: bool = False) -> None:
        async with self._sending:
            await self._call.send(octets)
            if last:
                await self._call.end()

    def _break(self, fault: Fault) -> None:
        if fault.breaks is not None:
            raise fault.breaks()
        {
            "connection-reset": self._call.reset_connection,
            "stream-reset": self._call.reset,
            "goaway": self._call.go_away,
        }[fault.name]()
        raise _Broken(f"fault {fault.name}")

    async def _closed(self, frame: Frame) -> None:
        if self._socket.close_sent:
            return
        said = parse_close(frame.payload)
        self._socket.send_close(said.code)
        if said.code == 1000 and self._options.normal_close == "end":
            self.tally.ended = "the container closed with code 1000"
            return
        # RFC 6455 section 7.1.5: a close frame without a code counts as 1005.
        code = 1005 if said.code is None else said.code
        raise StreamFailed("ModelStreamError", said.reason or "the container closed", str(code))

    async def _ping(self) -> None:
        options = self._options
        while True:
            await asyncio.sleep(options.ping_interval_s)
            if self._blocked:
                continue
            if self._missed >= options.missed_pongs:
                raise StreamFailed(
                    options.lost_container,
                    f"the container left {self._missed} pings unanswered",
                    "1006" if options.lost_container == "ModelStreamError" else None,
                )
            self._missed += 1
            self._socket.send_ping()
