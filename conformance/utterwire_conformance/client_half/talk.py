"""A session from the endpoint's side: what the client asked for, and the chunks that answer it.

By itself a `Talk` is an endpoint that keeps every rule. Scripts break some on purpose, or use a
freedom that the rules leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from utterwire_conformance.client_message import Claims, Meaning, read_client_message
from utterwire_conformance.wire import Opcode

from .peer import Peer

__all__ = ["ANY_CLAIMS", "Answer", "Request", "Talk", "pcm", "plain", "serve"]

ANY_CLAIMS: Final = Claims(profiles=frozenset({"core", "interrupt", "negotiate"}))
"""What a message is read by: at best, it is meant for an endpoint that serves every type."""

_RATE: Final = 24_000
_CHUNK: Final = 2_400
_GRACE_S: Final = 4.0
_TO_CLOSE_S: Final = 3.0


def pcm(seed: int, samples: int = 4_800) -> bytes:
    """Audio that no other seed gives, and that a reader of first bytes takes for audio."""
    state = seed * 2_654_435_761 % 2**32 or 1
    data = bytearray()
    for _ in range(samples):
        state = (state * 1_103_515_245 + 12_345) % 2**31
        low = (state >> 8) & 0xFF
        data += bytes((low if low != 0x7B else 0x7A, (state >> 16) & 0xFF))
    return bytes(data)


@dataclass(slots=True)
class Request:
    """A message of the client: `number` counts the requests to speak of the session from 0."""

    seq: int
    meaning: Meaning
    number: int = 0
    audio_bytes: int = 0

    @property
    def id(self) -> str | None:
        """Its `request_id`."""
        return self.meaning.request_id


class Talk:
    """One session with the client; `number` counts the connections of the script from 1.

    Attributes:
        bare: answer without `seq` and `request_id`, as endpoints did before the specification.
        kind: the opcode of control messages.
        session_message: what answers `hello`, or None where the endpoint does not know it.
        interrupts: whether `cancel` is known.
    """

    def __init__(
        self,
        peer: Peer,
        number: int,
        *,
        bare: bool = False,
        session_message: Mapping[str, Any] | None = None,
        interrupts: bool = False,
    ) -> None:
        self.peer = peer
        self.number = number
        self.bare = bare
        self.kind = Opcode.TEXT
        self.session_message = session_message
        self.interrupts = interrupts
        self.hello = asyncio.Event()
        self.cancel_read = asyncio.Event()
        """Set once a `cancel` has come."""
        self.close_seq: int | None = None
        self._count = 0
        self._asked = 0
        self._waiting: list[Request] = []
        self._changed = asyncio.Event()
        self._answers: list[Callable[[], Awaitable[None]]] = []
        peer.on_message = self._take

    # --- what the client says -----------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether `close` has come."""
        return self.close_seq is not None

    @property
    def over(self) -> bool:
        """Whether the client has left."""
        return self.peer.ended.is_set() or self.peer.close_read.is_set()

    @property
    def asked(self) -> int:
        """How many requests to speak have come."""
        return self._asked

    @property
    def last_seq(self) -> int:
        """How many messages have come."""
        return self._count

    def _take(self, data: bytes) -> None:
        self._count += 1
        request = Request(self._count, read_client_message(data, ANY_CLAIMS))
        kind = request.meaning.type
        if self.closing and kind != "cancel":
            return
        if kind == "close":
            self.close_seq = request.seq
        elif kind == "cancel":
            self.cancel_read.set()
            if self.interrupts:
                self._waiting.append(request)
            else:
                self._answers.append(partial(self.reject, request, "unknown_type"))
        elif kind == "hello":
            self.hello.set()
            self._answers.append(partial(self._greet, request))
        elif kind == "keepalive":
            pass
        elif kind != "synthesize" or not request.meaning.text:
            # A request with another fault is served all the same: whoever is refused at every
            # turn shows nothing else of itself.
            code = sorted(request.meaning.codes or {"invalid_request"})[0]
            self._answers.append(partial(self.reject, request, code))
        else:
            request.number = self._asked
            self._asked += 1
            self._waiting.append(request)
        self._changed.set()

    async def _greet(self, hello: Request) -> None:
        if self.session_message is None or hello.seq != 1:
            code = "unknown_type" if self.session_message is None else "invalid_request"
            await self.reject(hello, code)
        else:
            await self.control({"type": "session", "seq": hello.seq, **self.session_message})

    async def _settle(self) -> None:
        """Send the answers that do not wait for their turn."""
        while self._answers:
            await self._answers.pop(0)()

    async def next(self, within: float | None = None) -> Request | None:
        """The next request or `cancel`; None once the client says `close`, leaves, or says nothing.

        Raises:
            Gone: the client is not there any more.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    await self._settle()
                    if self._waiting:
                        return self._waiting.pop(0)
                    if self.closing or self.over:
                        return None
                    await self._change()
        return None

    async def requests(self) -> AsyncIterator[Request]:
        """The requests to speak, in order, until the client says `close` or leaves.

        Raises:
            Gone: as `next`.
        """
        while (request := await self.next()) is not None:
            if request.meaning.type == "synthesize":
                yield request
            else:
                await self.control({"type": "cancel_done", "count": 0, **self.about(request)})

    async def gathered(self, count: int, within: float) -> list[Request]:
        """Wait for so many requests, for `close`, or for the time to pass; what has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while len(self._waiting) < count and not self.closing and not self.over:
                    await self._settle()
                    await self._change()
        found, self._waiting = self._waiting, []
        return found

    async def until_close(self, within: float) -> bool:
        """Wait for `close`, at most so many seconds; whether it has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not self.closing and not self.over:
                    await self._settle()
                    await self._change()
        return self.closing

    async def _change(self) -> None:
        waits = [
            asyncio.create_task(event.wait())
            for event in (self._changed, self.peer.ended, self.peer.close_read)
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        self._changed.clear()

    # --- what the endpoint says ---------------------------------------------------------------

    def about(self, request: Request) -> dict[str, Any]:
        """`seq` and `request_id` of a message, as chunks about it carry them."""
        if self.bare:
            return {}
        fields: dict[str, Any] = {"seq": request.seq}
        if request.id is not None:
            fields["request_id"] = request.id
        return fields

    async def control(self, fields: Mapping[str, Any]) -> None:
        """Send a control message."""
        await self.peer.frame(self.kind, json.dumps(fields).encode())

    async def start(self, request: Request, **changes: Any) -> None:
        """Send `synthesis_start`; `changes` are other values for its fields."""
        described = {"sample_rate": _RATE, "format": "pcm_s16le", "voice": "script"} | changes
        await self.control({"type": "synthesis_start", **self.about(request), **described})

    async def audio(self, request: Request, data: bytes, *, each: int = _CHUNK) -> None:
        """Send audio in chunks of `each` bytes."""
        for place in range(0, len(data), each):
            chunk = data[place : place + each]
            request.audio_bytes += len(chunk)
            await self.peer.frame(Opcode.BINARY, chunk)

    async def complete(self, request: Request, **more: Any) -> None:
        """Send `synthesis_complete`."""
        numbers = {
            "total_duration_s": round(request.audio_bytes / (2 * _RATE), 6),
            "elapsed_s": 0.0,
            "audio_bytes": request.audio_bytes,
            "characters": len(request.meaning.text),
        }
        await self.control({"type": "synthesis_complete", **self.about(request), **numbers, **more})

    async def reject(self, request: Request, code: str, *, retryable: bool = False) -> None:
        """Reject a message."""
        await self.fail(request, code, retryable=retryable, rejected=True)

    async def fail(
        self, request: Request, code: str, *, retryable: bool = False, **more: Any
    ) -> None:
        """Send an `error`."""
        fields = {"code": code, "message": "The script says so.", "retryable": retryable}
        await self.control({"type": "error", **self.about(request), **fields, **more})

    async def session_closed(self, reason: str, last_seq: int, **more: Any) -> None:
        """Send `session_closed`."""
        seq = {"seq": self.close_seq} if reason == "client_close" else {}
        fields = {"type": "session_closed", **seq, "reason": reason, "last_seq": last_seq}
        await self.control({**fields, **more})

    async def farewell(self) -> None:
        """End the session as an endpoint does, with whatever the client asked for."""
        if self.close_seq is not None:
            if self.bare:
                await self.peer.close(1000)
            else:
                await self.session_closed("client_close", self.close_seq)
        await self.leave()

    async def leave(self, within: float = _TO_CLOSE_S) -> None:
        """Leave the closing to the client; past `within` seconds close by oneself."""
        if not await self.peer.wait_ended(within):
            self.peer.note("the client left the closing to the endpoint: yes")
            await self.peer.close(1000)
            await self.peer.wait_ended(_GRACE_S)


Answer: TypeAlias = Callable[[Talk, Request], Awaitable[None]]
"""How an utterance is answered."""


async def plain(talk: Talk, request: Request) -> None:
    """Answer an utterance as every endpoint should."""
    await talk.start(request)
    await talk.audio(request, pcm(talk.number * 1000 + request.seq))
    await talk.complete(request)


async def serve(talk: Talk, *answers: Answer) -> None:
    """Answer the utterances one by one, those past `answers` plainly, then end the session."""
    async for request in talk.requests():
        answer = answers[request.number] if request.number < len(answers) else plain
        await answer(talk, request)
    await talk.farewell()
