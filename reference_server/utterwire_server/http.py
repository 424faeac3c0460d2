"""`POST /invocations`: one utterance by HTTP, as raw audio or as events (`http.md`, `sse.md`)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from utterwire_protocol import Rejection, Request, Synthesize, parse_request
from utterwire_schemas import ERROR_CODES

from utterwire_server.encoders import media_type
from utterwire_server.events import COMMENT, EventWriter, accepts_events
from utterwire_server.line import Listener
from utterwire_server.logs import log_event, whereabouts
from utterwire_server.observer import UtteranceRecord
from utterwire_server.rendering import Piece
from utterwire_server.service import Service
from utterwire_server.tracing import trace_headers
from utterwire_server.wire import wire_of

__all__ = ["Invocation", "ResponseAborted", "error_response"]

#: Of a body beyond the limit, so much is read and thrown away, so that the client gets to see the
#: answer: closing a socket with unread data resets it.
DISCARD_BYTES: Final = 16_777_216
DISCARD_S: Final = 2.0
RETRY_AFTER_S: Final = 1
#: So much is given to the transport at once: whoever takes it within the stall timeout is slow,
#: not stalled.
PIECE_BYTES: Final = 65_536
ABORT_S: Final = 5.0
#: How long the event that tells of a failure may wait for a client that does not read.
LAST_WORDS_S: Final = 7.0
#: A stream of events that has had nothing to say for so long sends a comment.
KEEP_ALIVE_S: Final = 15.0


# By the reason of an interruption: what the event says of it.
_FAILURES: Final = {
    "failed": ("synthesis_failed", "the engine failed"),
    "going_away": ("going_away", "the endpoint is shutting down"),
}


class _TooLarge(Exception):
    """The body is beyond the limit."""


class _Stalled(Exception):
    """The client has stopped reading."""


class ResponseAborted(Exception):
    """Breaks off a response whose first bytes are out; an ASGI server then drops the connection."""


def error_response(
    code: str,
    message: str,
    *,
    rejected: bool = True,
    request_id: str | None = None,
    retry_after_s: float | None = None,
    close: bool = False,
) -> JSONResponse:
    """The answer to a request that is not served: an `error` message (`http.md#errors`)."""
    row = ERROR_CODES[code]
    body: dict[str, object] = {
        "type": "error",
        "code": code,
        "message": message,
        "retryable": row.retryable,
    }
    if rejected:
        body["rejected"] = True
    if request_id is not None:
        body["request_id"] = request_id
    headers = {"Connection": "close"} if close else {}
    if row.http_status == 503:
        retry_after_s = retry_after_s or RETRY_AFTER_S
        headers["Retry-After"] = str(math.ceil(retry_after_s))
    if retry_after_s is not None:
        body["retry_after_s"] = round(retry_after_s, 3)
    return JSONResponse(body, row.http_status, headers)


class Invocation:
    """One request, from its head to the last byte of its answer."""

    def __init__(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        self._service = service
        self._scope = scope
        self._receive = receive
        self._send = send
        self._wire = wire_of(scope)
        self._loop = asyncio.get_running_loop()
        # A timeout without a time: rescheduling it to now stops the request at any await.
        self._guard = asyncio.timeout(None)
        self._interruption = ""
        # Of the utterance, from the time it is accepted, and the code of the error it ends in.
        self._record: UtteranceRecord | None = None
        self._code: str | None = None
        self._completed = False
        self._started = False
        self._ended = False
        self._request_id: str | None = None
        # Where the answer is a stream of events.
        self._events: EventWriter | None = None

    async def run(self) -> None:
        """Answer the request.

        :raises ResponseAborted: if the answer broke off under a server that is not ours.
        """
        if refusal := self._service.refusal_to_receive():
            await self._refuse(*refusal)
            return
        with self._service.hosting(self):
            try:
                await self._answer()
            finally:
                self._conclude()

    async def _answer(self) -> None:
        try:
            async with self._guard:
                await self._serve()
        except TimeoutError:
            if not self._guard.expired():
                raise
        except _Stalled:
            self._interruption = "stalled"
        if self._interruption == "going_away" and not self._started:
            await self._refuse(
                "going_away", "the endpoint is shutting down", rejected=self._record is None
            )
        elif self._interruption:
            log_event("request_cut_off", reason=self._interruption)
            if self._interruption != "disconnected" and not await self._told():
                await self._abort()

    def _conclude(self) -> None:
        """Tell how the utterance ended, if there was one."""
        record, now = self._record, self._loop.time()
        if record is None:
            return
        if self._completed:
            self._service.ended(record, "completed", now)
        elif self._code == "synthesis_failed":
            self._service.ended(record, "failed", now, self._code)
        elif self._interruption == "disconnected":
            self._service.ended(record, "disconnected", now)
        else:
            self._service.ended(record, "cut_off", now, self._code)

    def shut_down(self) -> None:
        """Let the request finish."""

    def cut_off(self) -> None:
        """Break the answer off."""
        self._interrupt("going_away")

    def _interrupt(self, reason: str) -> None:
        if not self._interruption:
            self._interruption = reason
            self._guard.reschedule(self._loop.time())

    async def _serve(self) -> None:
        try:
            with self._service.receiving():
                body = await self._body()
        except ClientDisconnect:
            return
        except _TooLarge as error:
            await self._refuse("text_too_long", str(error), close=True)
            return
        except TimeoutError:
            await self._refuse("invalid_request", "the body did not come in time", close=True)
            return
        request = parse_request(body, self._service.options())
        if isinstance(request, Rejection):
            log_event("request_rejected", code=request.code)
            self._request_id = request.request_id
            await self._refuse(request.code, request.message)
            return
        self._request_id = request.synthesize.request_id
        if self._wants_events():
            self._events = EventWriter(request.synthesize)
        if refusal := self._service.refusal(inside=True):
            await self._refuse(*refusal)
            return
        if (wait_s := self._service.overload_s(request.synthesize)) is not None:
            await self._refuse("overloaded", "the endpoint has no room", retry_after_s=wait_s)
            return
        self._record = self._begun(request)
        self._service.tell("accepted", self._record)
        listener = asyncio.create_task(self._listen(), name="http-disconnect")
        try:
            await self._speak(request, self._record)
        finally:
            listener.cancel()
            await asyncio.wait({listener})

    async def _body(self) -> bytes:
        """The whole body.

        :raises _TooLarge: if it is beyond the limit; what came of it was thrown away.
        :raises TimeoutError: if it does not come in time.
        :raises ClientDisconnect: if the client left before its end.
        """
        settings = self._service.settings
        limit = settings.max_message_bytes
        too_large = _TooLarge(f"the body is larger than {limit} bytes")
        if self._expects_continue() and self._declared_length() > limit:
            raise too_large
        body = bytearray()
        size = 0
        more = True
        patience = asyncio.timeout(settings.body_timeout_s)
        try:
            async with patience:
                while more and size <= max(limit, DISCARD_BYTES):
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    part = message.get("body", b"")
                    more = message.get("more_body", False)
                    if size <= limit < size + len(part):
                        body.clear()
                        patience.reschedule(self._loop.time() + DISCARD_S)
                    size += len(part)
                    if size <= limit:
                        body += part
        except TimeoutError:
            if size <= limit:
                raise
        if size > limit:
            raise too_large
        return bytes(body)

    def _header(self, name: bytes) -> bytes:
        return next((value for key, value in self._scope["headers"] if key == name), b"")

    def _wants_events(self) -> bool:
        if "sse" not in self._service.settings.profiles:
            return False
        headers = self._scope["headers"]
        return accepts_events(value.decode("latin-1") for key, value in headers if key == b"accept")

    def _expects_continue(self) -> bool:
        return self._header(b"expect").lower() == b"100-continue"

    def _declared_length(self) -> int:
        digits = self._header(b"content-length")
        return int(digits) if digits.isdigit() and len(digits) < 19 else 0

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._interrupt("disconnected")

    def _begun(self, asked: Request) -> UtteranceRecord:
        request, now = asked.synthesize, self._loop.time()
        streamed = self._is_streamed(asked)
        listener = Listener(heard=streamed)
        return UtteranceRecord(
            transport="http" if self._events is None else "sse",
            voice=request.voice,
            format=request.format,
            sample_rate=request.sample_rate,
            characters=len(request.text),
            accepted_at=now,
            due_at=now,
            streamed=streamed,
            parent=trace_headers(self._scope),
            listener=listener,
            place=self._service.scheduler.backlog.place(len(request.text), request.speed, listener),
        )

    def _is_streamed(self, asked: Request) -> bool:
        # HTTP/1.0 knows no chunks; a body that is cut off would pass for a whole one.
        chunked = self._scope["http_version"] != "1.0"
        return bool(chunked and (asked.stream or self._events is not None))

    async def _speak(self, asked: Request, record: UtteranceRecord) -> None:
        request = asked.synthesize
        rendering = self._service.rendering(request.text, request.speed, record)
        began = self._loop.time()
        outcome = "stopped"
        try:
            async with aclosing(rendering.pieces()) as pieces:
                if record.streamed:
                    # Until there is something to send, a failure can still be told by its status.
                    piece = await anext(pieces, None)
                    while piece is not None:
                        if not self._started and (piece.data or self._events is not None):
                            await self._begin(request)
                        if piece.data:
                            self._service.made(record, rendering.duration_s, self._loop.time())
                            await self._put_audio(piece.data)
                            record.listener.taken(self._loop.time())
                        piece = await self._next(pieces)
                    if not self._started:
                        await self._begin(request)
                    if self._events is not None:
                        await self._put(self._events.end(rendering.duration_s), last=True)
                else:
                    audio = b"".join([piece.data async for piece in pieces])
                    self._service.made(record, rendering.duration_s, self._loop.time())
                    if self._events is not None:
                        # Minutes in base64 take the loop from everybody else for too long.
                        body = await asyncio.to_thread(
                            self._events.whole, audio, rendering.duration_s
                        )
                        await self._start(request, {"Content-Length": str(len(body))})
                    else:
                        body = audio
                        await self._start(request, _totals(request, audio, rendering.duration_s))
                    await self._put(body)
            if not self._ended:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            outcome = "completed"
            self._completed = True
        except _Stalled:
            raise
        except Exception as error:
            outcome = "failed"
            log_event("synthesis_failed", **whereabouts(error))
            self._code = "synthesis_failed"
            if self._started:
                self._interruption = "failed"
            else:
                await self._refuse("synthesis_failed", "the engine failed", rejected=False)
        finally:
            log_event(
                "request",
                outcome=outcome,
                characters=len(request.text),
                audio_s=round(rendering.duration_s, 3),
                elapsed_s=round(self._loop.time() - began, 3),
            )

    async def _next(self, pieces: AsyncGenerator[Piece]) -> Piece | None:
        """The next piece, or None at the end; a stream of events is kept alive meanwhile."""
        if self._events is None:
            return await anext(pieces, None)
        coming = asyncio.ensure_future(anext(pieces, None))
        try:
            while not (await asyncio.wait({coming}, timeout=KEEP_ALIVE_S))[0]:
                await self._put(COMMENT)
            return coming.result()
        finally:
            # The stream of pieces cannot be closed while it is being asked.
            coming.cancel()
            await asyncio.wait({coming})

    async def _begin(self, request: Synthesize) -> None:
        """Begin an answer that is streamed."""
        await self._start(request, {})
        if self._events is not None:
            await self._put(self._events.start())

    async def _start(self, request: Synthesize, extra: dict[str, str]) -> None:
        if self._events is not None:
            headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", **extra}
        else:
            headers = {
                "Content-Type": media_type(request.format, request.sample_rate),
                "Utterwire-Sample-Rate": str(request.sample_rate),
                "Utterwire-Format": request.format,
                "Utterwire-Voice": quote(request.voice, safe=""),
                **extra,
            }
            if request.request_id is not None:
                headers["Utterwire-Request-Id"] = quote(request.request_id, safe="")
        self._started = True
        await self._send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (name.lower().encode(), value.encode()) for name, value in headers.items()
                ],
            }
        )

    async def _put_audio(self, audio: bytes) -> None:
        """Send audio as it is, or in events."""
        if self._events is None:
            await self._put(audio)
            return
        for event in self._events.audio(audio):
            await self._put(event)

    async def _put(self, audio: bytes, *, last: bool = False) -> None:
        """Send a part of the body, or the last of it, and return when the peer has taken it.

        :raises _Stalled: if it takes nothing for too long.
        """
        for at in range(0, len(audio), PIECE_BYTES):
            piece = audio[at : at + PIECE_BYTES]
            try:
                async with asyncio.timeout(self._service.settings.stall_timeout_s):
                    await self._send(
                        {"type": "http.response.body", "body": piece, "more_body": not last}
                    )
                    # From here on nothing may follow, whatever happens to the request.
                    self._ended = last
                    await self._wire.drained()
            except TimeoutError as error:
                raise _Stalled from error

    async def _refuse(
        self,
        code: str,
        message: str,
        *,
        rejected: bool = True,
        retry_after_s: float | None = None,
        close: bool = False,
    ) -> None:
        if self._record is None:
            self._service.tell("error", code)
        else:
            self._code = code
        response = error_response(
            code,
            message,
            rejected=rejected,
            request_id=self._request_id,
            retry_after_s=retry_after_s,
            close=close,
        )
        await response(self._scope, self._receive, self._send)

    async def _told(self) -> bool:
        """Tell a failure by an event and end the body; False where that cannot be."""
        # A body whose length was told takes no more.
        whole = self._scope["http_version"] == "1.0"
        if self._events is None or whole or self._interruption == "stalled":
            return False
        if self._ended:
            return True
        code, message = _FAILURES[self._interruption]
        self._code = code
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                last = {"type": "http.response.body", "more_body": False}
                await self._send(last | {"body": self._events.error(code, message)})
                await self._wire.drained()
        except TimeoutError:
            return False
        return True

    async def _abort(self) -> None:
        """Break the body off: its receiver must not take it for the whole (`http.md#failures`)."""
        if not self._wire.hang_up():
            raise ResponseAborted("the answer broke off")
        with suppress(TimeoutError):
            async with asyncio.timeout(ABORT_S):
                while (await self._receive())["type"] != "http.disconnect":
                    pass


def _totals(request: Synthesize, audio: bytes, duration: float) -> dict[str, str]:
    return {
        "Content-Length": str(len(audio)),
        "Utterwire-Duration-S": f"{duration:.6f}".rstrip("0").rstrip("."),
        "Utterwire-Audio-Bytes": str(len(audio)),
        "Utterwire-Characters": str(len(request.text)),
    }
