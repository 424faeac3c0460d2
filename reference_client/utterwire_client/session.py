"""A session with an endpoint: requests out, events in, several utterances in flight."""

import asyncio
import logging
import math
import ssl as tls
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from utterwire_protocol import (
    AudioChunk,
    CancelDone,
    Cancelled,
    Connection,
    Control,
    ErrorReceived,
    FrameKind,
    LocalProtocolError,
    MarksReceived,
    ProtocolViolation,
    RemoteProtocolError,
    Role,
    SessionClosed,
    SessionReceived,
    SynthesisComplete,
    SynthesisStart,
    classify,
)
from utterwire_protocol import Event as CoreEvent
from utterwire_protocol import Word as CoreWord

from utterwire_client.address import SageMakerAddress, is_sagemaker
from utterwire_client.aws import sagemaker
from utterwire_client.bell import Bell
from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import (
    DeadlineExceeded,
    ExtraMissing,
    InterruptUnavailable,
    PeerViolation,
    RequestInvalid,
    SessionLost,
    UtteranceCancelled,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
    Waiting,
)
from utterwire_client.events import SAMPLE_BYTES, Audio, Complete, EndpointInfo, Marks, Start, Word
from utterwire_client.session_backend import SessionBackend
from utterwire_client.speech import Speech, SpeechOptions, Text
from utterwire_client.transport import (
    Headers,
    Transport,
    TransportClosed,
    checked_headers,
)
from utterwire_client.utterance import Inbox, Request, Utterance

__all__ = ["Session", "connect"]

T = TypeVar("T")

_logger = logging.getLogger("utterwire_client")

# Close codes after which the same request would meet the same fate (RFC 6455 section 7.4.1).
_FINAL_CODES = frozenset({1002, 1003, 1007, 1008, 1009, 1010})
_FINAL_REASONS = frozenset({"policy", "message_too_big"})
#: Rules whose breach lets the audio of one utterance be taken for that of another, or a terminal
#: message be missed.
_MIX_UPS = frozenset(
    {
        "complete.audio-bytes",
        "control.schema",
        "control.strict-json",
        "order.complete-had-start",
        "order.nothing-after-terminal",
        "order.one-terminal",
    }
)

#: Audio of one utterance that may wait to be read (22 s of speech at the default format).
BUFFER_BYTES = 1024 * 1024

#: The same for all utterances of a session together (11 minutes).
MAX_BUFFER_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Due:
    """The deadline that runs now: when it passes (loop time), and what is being waited for."""

    when: float
    which: Waiting
    seconds: float


class Session:
    """One session over an open transport; :class:`connect` makes one over WebSocket.

    Use it as an async context manager: it owns a reading and a writing task, which have ended when
    the block is left. Leaving the block normally is :meth:`close`; leaving it by an exception
    tells the endpoint to stop, where it can be told, and disconnects.

    Utterances of a session are spoken one after the other, in the order in which they were asked
    for (``protocol.md#order``). Each has a buffer of its own, of ``buffer_bytes``: when the audio
    of one that nobody reads goes beyond that, the session reads nothing more, and the endpoint
    waits in turn. It reads on, though, up to ``max_buffer_bytes`` for all utterances together, as
    long as somebody waits for another utterance or for an answer; if even that is full and nothing
    is read for ``stall_s``, the session ends with ``DeadlineExceeded`` (``unread``). So a program
    that reads its utterances in another order than that of the requests gets all of them, or an
    error, and never hangs.

    ``interrupt`` tells whether the endpoint understands ``cancel``. None finds out: by what
    ``session`` says, else by whether the endpoint speaks version 1 at all, which then at worst
    refuses it. ``reopen`` opens another transport, with which :meth:`speak` goes on when this one
    is lost. ``on_violation`` is called for each rule that the endpoint breaks and the session can
    live with; without it, the first of each rule is logged as a warning of ``utterwire_client``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        deadlines: Deadlines | None = None,
        negotiate: bool = False,
        interrupt: bool | None = None,
        reopen: Callable[[], Awaitable[Transport]] | None = None,
        on_violation: Callable[[PeerViolation], None] | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
    ) -> None:
        self._transport = transport
        self._reopen = reopen
        self._backend = SessionBackend(self, None if reopen is None else self._another)
        self._deadlines = deadlines or Deadlines()
        self._negotiate = negotiate
        self._interrupt = interrupt
        self._on_violation = on_violation
        self._buffer_bytes = buffer_bytes
        self._max_buffer_bytes = max_buffer_bytes
        self._info: EndpointInfo | None = None
        self._bell = Bell()
        self._held: deque[Inbox] = deque()  # not sent yet: the endpoint has no room
        self._unended: dict[int, Inbox] = {}  # sent; by seq, which is the order of speaking
        self._unread: set[Inbox] = set()  # ended, and not all of it was taken
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._hello_seq: int | None = None
        self._cancel_seqs: set[int] = set()
        self._logged: set[str] = set()
        self._mixed_up = False
        self._close_sent = False
        self._speaks_version_1: bool | None = None
        self._next_id = 1
        self._paused = False
        self._turn_at = 0.0
        self._heard_at = 0.0
        self._taken_at = 0.0
        self._closing = False
        self._over: Callable[[Inbox | None], UtterwireError] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- what a caller does

    @property
    def info(self) -> EndpointInfo | None:
        """What the endpoint said of itself; None unless ``negotiate`` was asked for and the
        endpoint knows it."""
        return self._info

    @property
    def closed(self) -> bool:
        """Whether the session is over, whoever ended it."""
        return self._over is not None

    @property
    def usable(self) -> bool:
        """Whether it can be asked for something: not over, and not being closed."""
        return self._over is None and not self._closing

    @property
    def request_ids(self) -> set[str]:
        """The ids of the utterances that have not ended: no other may have one of them."""
        inboxes = (*self._held, *self._unended.values())
        return {inbox.request_id for inbox in inboxes if inbox.request_id is not None}

    @property
    def interruptible(self) -> bool | None:
        """Whether the endpoint understands ``cancel``; None while nobody knows."""
        known = (self._interrupt, self._info, self._speaks_version_1) != (None, None, None)
        return self._can_interrupt() if known else None

    @property
    def times_words(self) -> bool | None:
        """Whether the endpoint tells when words are spoken; None while nobody knows."""
        if self._info is not None:
            return "timing" in self._info.profiles
        return False if self._speaks_version_1 is False else None

    def speak(self, text: Text, **options: Unpack[SpeechOptions]) -> Speech:
        """Speak a text, or fragments of one as they come; iterate over what is returned.

        ``text`` is a string, or an iterable or async iterable of strings; ``options`` are those of
        :class:`SpeechOptions`. Sentences are asked for as soon as each is complete, some ahead. A
        session that was made by :class:`connect` and is lost is opened anew for what is still to be
        spoken; the new one ends with this one's ``async with`` block.

        Raises :class:`RequestInvalid`; :class:`SessionLost` on a session that is being closed, or
        is over and cannot be opened anew.
        """
        if self._closing or self._reopen is None:
            self._check_usable()
        return self._backend.speak(text, **options)

    def synthesize(
        self,
        text: str,
        *,
        voice: str | None = None,
        speed: float | None = None,
        sample_rate: int | None = None,
        format: str | None = None,
        request_id: str | None = None,
        marks: Sequence[str] | None = None,
    ) -> Utterance:
        """Ask for an utterance; iterate over what is returned.

        The request goes out at once, or, where the endpoint stated how many it lets wait, when
        there is room. The fields are those of ``protocol.md#synthesize``; None leaves them to the
        endpoint.

        Raises :class:`RequestInvalid` for a request that is not valid or goes beyond the limits
        that the endpoint stated, :class:`SessionLost` on a session that is over.
        """
        self._check_usable()
        if request_id is None and self._can_interrupt():
            request_id = self._own_id()
        request = Request(
            text=text,
            voice=voice,
            speed=speed,
            sample_rate=sample_rate,
            format=format,
            request_id=request_id,
            marks=tuple(marks or ()),
        )
        self._check_request(request)
        inbox = Inbox(request, taken=self._on_taken)
        if self._held or not self._endpoint_has_room():
            self._held.append(inbox)
        else:
            self._submit(inbox)
        return Utterance(inbox, self._abandon)

    async def cancel(self, request_id: str | None = None) -> int:
        """Stop the utterance of that id, or all that have not ended; returns how many it stopped.

        Their audio that was not read yet is dropped, and their readers get
        :class:`UtteranceCancelled`. An utterance that ended first is not counted.

        Raises :class:`InterruptUnavailable` where the endpoint refuses (nothing is stopped then),
        :class:`DeadlineExceeded`, :class:`SessionLost`, :class:`RequestInvalid`.
        """
        return await self._ask_to_stop(request_id)

    def _ask_to_stop(self, request_id: str | None) -> Coroutine[Any, Any, int]:
        """The same, sent before this returns: what is asked for from then on is not meant."""
        if self._over is not None:
            raise self._over(None)
        if self._interrupt is False:
            raise InterruptUnavailable("the endpoint does not know how to stop (no `interrupt`)")
        seq = self._send_cancel(request_id)
        stopped = self._drop_held(request_id)

        async def answered() -> int:
            return stopped + await self._answer(seq)

        return answered()

    async def interrupt(self, utterances: Sequence[Utterance]) -> bool:
        """Give utterances up and stop them; returns when the endpoint has stopped.

        False where it cannot be told, or does not answer: the session is then over. Other
        utterances of the session go on, if it is not.
        """
        for utterance in utterances:
            utterance.inbox.cancel_sent = True
            utterance.give_up()
        mine = [u.inbox for u in utterances if self._unended.get(u.seq or 0) is u.inbox]
        if not mine or self._over is not None:
            return True
        alone = len(mine) == len(self._unended) and not self._held
        ids = [None] if alone else [inbox.request_id for inbox in mine]
        try:
            if self.interruptible is False or (None in ids and not alone):
                raise InterruptUnavailable("the endpoint cannot be told to stop these")
            answers = await asyncio.gather(*map(self._ask_to_stop, ids), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
        except (InterruptUnavailable, DeadlineExceeded):
            self.abort()
            return False
        except SessionLost:
            pass
        return True

    def abort(self) -> None:
        """Disconnect at once; whoever listens gets :class:`SessionLost`."""
        self._end(lambda inbox: _lost(inbox, "the session was dropped", retryable=True))
        self._transport.abort()

    async def keepalive(self) -> None:
        """Keep the endpoint from ending a session in which nothing is said for long.

        Raises :class:`SessionLost`, :class:`DeadlineExceeded`.
        """
        self._check_usable()
        self._core(lambda: self._conn.keepalive(self._now()))
        self._bell.ring()
        await self._until(lambda: self._conn.pending() == 0)
        if self._over is not None:
            raise self._over(None)

    async def close(self) -> None:
        """Let everything asked for be spoken, then end the session; returns when it has ended.

        Whoever listens to an utterance gets the rest of it. A peer that leaves ``close``
        unanswered for ``close_s`` is disconnected from without complaint. May be called again.
        """
        self._closing = True
        self._on_taken()
        try:
            await self._until(lambda: not self._held)
            if self._over is None:
                self._say_close()
                await self._until(lambda: not self._unended)
                if self._speaks_version_1 is not False:
                    await self._await_reader()
        except asyncio.CancelledError:
            self._transport.abort()
            raise
        finally:
            await self._stop()

    # -- beginning and end

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._conn = Connection(Role.CLIENT, now=self._now())
        self._reader = asyncio.create_task(self._read(), name="utterwire-read")
        self._writer = asyncio.create_task(self._write(), name="utterwire-write")
        if self._negotiate:
            try:
                await self._say_hello()
            except BaseException:
                await self._stop()
                raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._backend.leave()
        finally:
            if exc_type is None:
                await self.close()
            else:
                await self._leave()

    async def _another(self) -> "Session":
        """A session like this one, over another transport."""
        assert self._reopen is not None
        session = Session(
            await self._reopen(),
            deadlines=self._deadlines,
            negotiate=self._negotiate,
            interrupt=self._interrupt,
            on_violation=self._on_violation,
            buffer_bytes=self._buffer_bytes,
            max_buffer_bytes=self._max_buffer_bytes,
        )
        return await session.__aenter__()

    async def _leave(self) -> None:
        """End the session without waiting for what is being spoken."""
        self._closing = True
        try:
            for inbox in (*self._held, *self._unended.values()):
                inbox.abandon()
            self._held.clear()
            if self._over is None and self._speaks_version_1:
                if self._can_interrupt() and not self._silence_asked():
                    self._send_cancel(None)
                if self._can_interrupt() or not self._unended:
                    self._say_close()
                    await self._await_reader()
        finally:
            await self._stop()

    def _silence_asked(self) -> bool:
        return all(inbox.cancel_sent for inbox in self._unended.values())

    async def _await_reader(self) -> None:
        await asyncio.wait({self._reader}, timeout=_finite(self._deadlines.close_s))

    async def _stop(self) -> None:
        """End both tasks and the transport, whatever state they are in."""
        self._end(lambda inbox: _lost(inbox, "the session was closed", retryable=False))
        try:
            await self._transport.close()
        finally:
            if not self._reader.done():
                self._transport.abort()
            self._writer.cancel()
            await asyncio.wait({self._reader, self._writer})
        for task in (self._reader, self._writer):
            if not task.cancelled():
                task.result()  # raises what was nobody's fault but this module's

    def _say_close(self) -> None:
        # Endpoints older than the protocol would take it for a request (protocol.md#deployed-
        # endpoints); they are just disconnected from, after their last word.
        if self._speaks_version_1 is not False and not self._close_sent:
            self._close_sent = True
            self._conn.close(self._now())
            self._bell.ring()

    async def _say_hello(self) -> None:
        self._hello_seq = self._conn.hello(self._now())
        # An endpoint that does not know it refuses; the session is at version 1 all the same.
        await self._answer(self._hello_seq)

    # -- the two tasks

    async def _read(self) -> None:
        try:
            while await self._room():
                message = await self._transport.receive()
                # The session may have ended meanwhile, and nobody is left to tell.
                if self._over is None:
                    self._receive(message)
        except TransportClosed as exc:
            code, error, why = exc.code, exc.error, str(exc)
            self._end(
                lambda inbox: _lost(
                    inbox, why, retryable=code not in _FINAL_CODES, code=code, error=error
                )
            )
        finally:
            # Whatever it was: nobody is left waiting.
            self._end(lambda inbox: _lost(inbox, "the session failed", retryable=True))
        await self._transport.close()

    async def _write(self) -> None:
        # A task of its own, so that a caller who is cancelled cannot keep a message that the core
        # has counted from being sent.
        seconds = self._deadlines.stall_s
        while self._over is None:
            chunk = self._conn.next_chunk()
            if chunk is None:
                await self._bell.wait()
                continue
            try:
                async with asyncio.timeout(_finite(seconds)):
                    await self._transport.send(chunk.data.decode())
            except TimeoutError:
                self._expire(_Due(self._now(), "send", seconds))
            except TransportClosed:
                return  # the reading task meets the same end, after all that had arrived
            self._bell.ring()

    async def _room(self) -> bool:
        """Wait while there is too much that nobody took; False once the session is over."""
        while self._over is None:
            if self._has_room():
                if self._paused:
                    # The peer's silence so far was ours.
                    self._paused = False
                    self._heard_at = self._turn_at = self._now()
                    self._arm()
                return True
            self._paused = True
            self._arm()
            await self._bell.wait()
        return False

    def _has_room(self) -> bool:
        buffers = (*self._unended.values(), *self._unread)
        sizes = [inbox.buffered_bytes for inbox in buffers]
        if sum(sizes) > self._max_buffer_bytes:
            return False
        return max(sizes, default=0) <= self._buffer_bytes or self._somebody_waits()

    def _somebody_waits(self) -> bool:
        waiting = self._closing or bool(self._answers)
        return waiting or any(inbox.starving for inbox in (*self._unended.values(), *self._held))

    def _on_taken(self) -> None:
        self._taken_at = self._now()
        self._unread = {inbox for inbox in self._unread if inbox.buffered_bytes}
        if self._paused:
            self._bell.ring()

    # -- what arrives

    def _receive(self, message: str | bytes) -> None:
        if self._speaks_version_1 is None:
            self._speaks_version_1 = _carries_seq(message)
        for event in self._conn.receive(message, self._now()):
            self._handle(event)
        for inbox in tuple(self._unended.values()):
            if inbox.abandoned:
                self._stop_speaking(inbox)
        while self._held and self._endpoint_has_room() and self._over is None:
            inbox = self._held.popleft()
            try:
                self._submit(inbox)
            except UtterwireError as exc:
                inbox.end(exc)
        self._arm()
        self._bell.ring()

    def _handle(self, event: CoreEvent) -> None:
        match event:
            case SynthesisStart():
                inbox = self._hear(event.seq)
                inbox.start = Start(
                    sample_rate=event.sample_rate,
                    format=event.format,
                    voice=event.voice,
                    implied=event.implied,
                )
                inbox.put(inbox.start)
            case AudioChunk():
                inbox = self._hear(event.seq)
                inbox.received_bytes += len(event.data)
                if data := self._aligned(inbox, event.data):
                    inbox.put(Audio(data))
            case MarksReceived():
                inbox = self._hear(event.seq)
                if inbox.start is None:
                    self._report("order.start-first", "`marks` came before `synthesis_start`")
                else:
                    inbox.put(Marks(tuple(_word(word) for word in event.words)))
            case SynthesisComplete():
                inbox = self._ended(event.seq)
                inbox.put(_complete(inbox, event))
                inbox.end()
            case Cancelled():
                inbox = self._ended(event.seq)
                inbox.end(
                    UtteranceCancelled(
                        f"the utterance was cancelled after {inbox.received_bytes} bytes of audio",
                        request_id=inbox.request_id,
                        audio_bytes=inbox.received_bytes,
                    ),
                    drop=True,
                )
            case ErrorReceived() if event.seq in self._unended:
                self._failed(self._ended(event.seq), event)
            case ErrorReceived():
                self._refused(event)
            case CancelDone():
                self._cancel_seqs.discard(event.seq)
                self._answered(event.seq, event.count or 0)
            case SessionReceived():
                self._info = _info(event)
                self._answered(self._hello_seq, 0)
            case SessionClosed():
                self._end(lambda inbox: _session_closed(inbox, event))
            case ProtocolViolation():
                self._mixed_up |= event.requirement in _MIX_UPS
                self._report(event.requirement, event.message)
            case _:
                pass  # control messages of unknown type (protocol.md#extension)

    def _hear(self, seq: int) -> Inbox:
        """The unended utterance of that seq, which is not silent any more.

        The core names no other: it ends utterances by the same events as this module.
        """
        self._heard_at = self._now()
        return self._unended[seq]

    def _ended(self, seq: int) -> Inbox:
        """The same, for the last time."""
        inbox = self._hear(seq)
        del self._unended[seq]
        self._turn_at = self._heard_at
        if inbox.carry:
            self._report(
                "audio.whole-samples",
                "the audio of an utterance ended in the middle of a sample; "
                "its last byte was dropped",
            )
        self._unread.add(inbox)
        return inbox

    def _aligned(self, inbox: Inbox, data: bytes) -> bytes:
        width = SAMPLE_BYTES.get(inbox.start.format if inbox.start else "", 1)
        if len(data) % width and not inbox.misaligned:
            inbox.misaligned = True
            self._report(
                "audio.whole-samples",
                f"a chunk of {len(data)} bytes does not hold whole samples of {width} bytes; "
                "the rest is carried over to the next one",
            )
        data = inbox.carry + data
        whole = len(data) - len(data) % width
        inbox.carry = data[whole:]
        return data[:whole]

    def _failed(self, inbox: Inbox, event: ErrorReceived) -> None:
        said = _printable(f"{event.code}: {event.message}")
        if event.rejected:
            inbox.end(
                UtteranceRejected(
                    f"the endpoint does not accept the request ({said})",
                    code=event.code,
                    retryable=event.retryable,
                    request_id=inbox.request_id,
                    retry_after_s=event.retry_after_s,
                )
            )
        else:
            inbox.end(
                UtteranceFailed(
                    f"the endpoint failed after {inbox.received_bytes} bytes of audio ({said})",
                    code=event.code,
                    retryable=event.retryable,
                    request_id=inbox.request_id,
                    audio_bytes=inbox.received_bytes,
                    retry_after_s=event.retry_after_s,
                )
            )

    def _refused(self, event: ErrorReceived) -> None:
        """An error that is about no utterance: about `hello`, a `cancel`, or nothing known."""
        if self._hello_seq in self._answers and event.seq in (None, self._hello_seq):
            self._answered(self._hello_seq, 0)
        elif event.seq in self._cancel_seqs:
            self._cancel_seqs.discard(event.seq)
            if event.code == "unknown_type":
                self._interrupt = False
            if event.seq in self._answers:
                said = _printable(f"{event.code}: {event.message}")
                self._answers[event.seq].set_exception(
                    InterruptUnavailable(f"the endpoint refuses to be interrupted ({said})")
                )

    # -- what goes out

    def _submit(self, inbox: Inbox) -> None:
        request = inbox.request
        now = self._now()
        inbox.seq = self._core(
            lambda: self._conn.synthesize(
                request.text,
                now,
                voice=request.voice,
                speed=request.speed,
                sample_rate=request.sample_rate,
                format=request.format,
                request_id=request.request_id,
                marks=request.marks,
            )
        )
        inbox.submitted_at = now
        self._unended[inbox.seq] = inbox
        self._arm()
        self._bell.ring()

    def _abandon(self, inbox: Inbox) -> None:
        """The reader of an utterance went away."""
        inbox.abandon()
        if inbox in self._held:
            self._held.remove(inbox)
            self._bell.ring()
        elif inbox.seq in self._unended:
            self._stop_speaking(inbox)

    def _stop_speaking(self, inbox: Inbox) -> None:
        """Tell the endpoint that nobody listens to an utterance, if it can be told that alone."""
        if inbox.cancel_sent or self._over is not None or not self._can_interrupt():
            return
        if inbox.request_id is not None or len(self._unended) == 1:
            inbox.cancel_sent = True
            self._send_cancel(inbox.request_id)

    def _send_cancel(self, request_id: str | None) -> int:
        seq = self._core(lambda: self._conn.cancel(self._now(), request_id))
        self._cancel_seqs.add(seq)
        self._bell.ring()
        return seq

    def _drop_held(self, request_id: str | None) -> int:
        dropped = [i for i in self._held if request_id is None or i.request_id == request_id]
        for inbox in dropped:
            self._held.remove(inbox)
            inbox.end(
                UtteranceCancelled("the utterance was cancelled", request_id=inbox.request_id)
            )
        return len(dropped)

    async def _answer(self, seq: int) -> int:
        """Wait for the answer to message ``seq``."""
        seconds = self._deadlines.answer_s
        answer: asyncio.Future[int] = self._loop.create_future()
        self._answers[seq] = answer
        self._on_taken()
        self._bell.ring()
        try:
            await asyncio.wait({answer}, timeout=_finite(seconds))
            if not answer.done():
                raise DeadlineExceeded(
                    f"the endpoint gave no answer within {seconds:g} s",
                    which="answer",
                    seconds=seconds,
                )
            return answer.result()
        finally:
            del self._answers[seq]
            if not answer.cancel():
                answer.exception()  # whoever asked may be gone: nothing is said of it elsewhere

    def _answered(self, seq: int | None, count: int) -> None:
        answer = self._answers.get(seq) if seq is not None else None
        if answer is not None and not answer.done():
            answer.set_result(count)

    # -- rules

    def _now(self) -> float:
        return self._loop.time()

    def _core(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except LocalProtocolError as exc:
            raise RequestInvalid(str(exc)) from None

    def _check_usable(self) -> None:
        if self._over is not None:
            raise self._over(None)
        if self._closing:
            raise _lost(None, "the session is being closed", retryable=False)

    def _can_interrupt(self) -> bool:
        if self._interrupt is not None:
            return self._interrupt
        if self._info is not None:
            return "interrupt" in self._info.profiles
        # An endpoint that sends no `seq` could take `cancel` for a request.
        return self._speaks_version_1 is True

    def _own_id(self) -> str:
        while (own := f"utterance-{self._next_id}") in self.request_ids:
            self._next_id += 1
        self._next_id += 1
        return own

    def _endpoint_has_room(self) -> bool:
        # The oldest unended utterance counts as running, the others wait (protocol.md#queue).
        if self._info is None:
            return True
        return len(self._unended) <= self._info.limits.get("max_waiting", math.inf)

    def _check_request(self, request: Request) -> None:
        # What strings and numbers may hold is checked by the core, when the request is sent.
        for name in ("text", "voice", "format", "request_id"):
            value = getattr(request, name)
            if not isinstance(value, str) and (value is not None or name == "text"):
                raise RequestInvalid(f"{name} is {value!r}: give a string")
        for name in ("speed", "sample_rate"):
            value = getattr(request, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise RequestInvalid(f"{name} is {value!r}: give a number")
        if request.request_id is not None and any(
            inbox.request_id == request.request_id for inbox in self._held
        ):
            raise RequestInvalid(f"request_id {request.request_id!r} is in use: end it first")

    def _report(self, requirement: str, message: str) -> None:
        violation = PeerViolation(_printable(message), requirement=requirement)
        if self._on_violation is None:
            if requirement not in self._logged:
                self._logged.add(requirement)
                _logger.warning("%s [%s]", violation, requirement)
            return
        try:
            self._on_violation(violation)
        except Exception:
            _logger.exception("on_violation failed")

    # -- deadlines and the end

    def _due(self) -> _Due | None:
        if self._over is not None:
            return None
        deadlines = self._deadlines
        if self._paused:
            if not self._somebody_waits():
                return None
            return _Due(self._taken_at + deadlines.stall_s, "unread", deadlines.stall_s)
        # The oldest is the one whose turn it is; what waits behind it is rightly silent.
        head = next(iter(self._unended.values()), None)
        if head is None:
            return None
        if head.received_bytes:
            return _Due(self._heard_at + deadlines.stall_s, "stall", deadlines.stall_s)
        since = max(head.submitted_at, self._turn_at)
        return _Due(since + deadlines.first_chunk_s, "first_chunk", deadlines.first_chunk_s)

    def _arm(self) -> None:
        """See to it that the deadline which runs now is looked at when it passes, or before."""
        due = self._due()
        if due is None or math.isinf(due.when):
            return
        if self._timer is None or self._timer.when() > due.when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due.when, self._look_at_deadline)

    def _look_at_deadline(self, rounds: int = 2) -> None:
        self._timer = None
        due = self._due()
        if due is None or due.when > self._now():
            self._arm()
        elif rounds:
            # A loop that the program held up has yet to read what came in time.
            self._timer = self._loop.call_at(due.when, self._look_at_deadline, rounds - 1)
        else:
            self._expire(due)

    def _expire(self, due: _Due) -> None:
        first = next(iter(self._unended), None)
        what = _SILENCES[due.which].format(seconds=due.seconds)

        def error(inbox: Inbox | None) -> UtterwireError:
            if due.which in ("first_chunk", "stall") and (inbox is None or inbox.seq != first):
                return _lost(
                    inbox, f"an utterance before it ran out of time: {what}", retryable=True
                )
            return DeadlineExceeded(
                what,
                which=due.which,
                seconds=due.seconds,
                request_id=None if inbox is None else inbox.request_id,
                audio_bytes=0 if inbox is None else inbox.received_bytes,
            )

        self._end(error)
        self._transport.abort()

    def _end(self, error: Callable[[Inbox | None], UtterwireError]) -> None:
        """The session is over; everybody who waits for something gets ``error``."""
        if self._over is not None:
            return
        self._over = error
        for inbox in self._unended.values():
            failure = error(inbox)
            if self._mixed_up and isinstance(failure, SessionLost | DeadlineExceeded):
                # It may have been heard as part of another: asked for again it is heard twice.
                failure.retryable = False
                if isinstance(failure, SessionLost):
                    failure.processed = None
            inbox.end(failure)
        for inbox in self._held:
            inbox.end(error(inbox))
        self._unended.clear()
        self._held.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error(None))
        if self._timer is not None:
            self._timer.cancel()
        self._bell.ring()

    async def _until(self, true: Callable[[], bool]) -> None:
        while self._over is None and not true():
            await self._bell.wait()


_SILENCES: dict[Waiting, str] = {
    "first_chunk": "the endpoint sent no audio within {seconds:g} s",
    "stall": "the endpoint fell silent in the middle of an utterance for {seconds:g} s",
    "send": "the endpoint read nothing for {seconds:g} s",
    "unread": "audio that nobody reads held up the session for {seconds:g} s: "
    "read every utterance, or close it",
}


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _printable(text: str, most: int = 300) -> str:
    """What a peer said, as it may stand in a line on a terminal."""
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(line) <= most else line[:most] + "..."


def _carries_seq(message: str | bytes) -> bool | None:
    """Whether a message shows that the endpoint speaks version 1; None for audio, which tells
    nothing (``protocol.md#deployed-endpoints``)."""
    try:
        if isinstance(message, str):
            chunk = classify(message.encode(), FrameKind.TEXT)
        else:
            chunk = classify(message, FrameKind.BINARY)
    except RemoteProtocolError:
        return None
    return "seq" in chunk.fields if isinstance(chunk, Control) else None


def _lost(
    inbox: Inbox | None,
    why: str,
    *,
    retryable: bool,
    reason: str | None = None,
    code: int | None = None,
    error: str | None = None,
    processed: bool | None = None,
    retry_after_s: float | None = None,
) -> SessionLost:
    if inbox is None:
        message = f"the session is over: {_printable(why)}"
    elif inbox.seq is None or processed is False:
        message = f"the request was not looked at: {_printable(why)}"
    else:
        message = (
            f"the utterance is incomplete, {inbox.received_bytes} bytes of audio came: "
            f"{_printable(why)}"
        )
    return SessionLost(
        message,
        retryable=retryable,
        reason=reason,
        code=code,
        error=error,
        request_id=None if inbox is None else inbox.request_id,
        audio_bytes=0 if inbox is None else inbox.received_bytes,
        processed=False if inbox is not None and inbox.seq is None else processed,
        retry_after_s=retry_after_s,
    )


def _session_closed(inbox: Inbox | None, event: SessionClosed) -> SessionLost:
    processed = None
    if inbox is not None and inbox.seq is not None and event.last_seq is not None:
        processed = None if inbox.seq <= event.last_seq or inbox.start else False
    return _lost(
        inbox,
        f"the endpoint ended the session ({_printable(event.reason)})",
        retryable=event.reason not in _FINAL_REASONS,
        reason=event.reason,
        processed=processed,
        retry_after_s=event.retry_after_s,
    )


def _complete(inbox: Inbox, event: SynthesisComplete) -> Complete:
    duration_s = event.total_duration_s
    start = inbox.start
    if duration_s is None and start is not None and start.format == "pcm_s16le":
        duration_s = inbox.received_bytes / (2 * start.sample_rate)
    return Complete(
        received_bytes=inbox.received_bytes,
        duration_s=duration_s,
        elapsed_s=event.elapsed_s,
        audio_bytes=event.audio_bytes,
        characters=event.characters,
    )


def _word(word: CoreWord) -> Word:
    return Word(word.text, word.start_s, word.end_s, word.char_start, word.char_end)


def _info(event: SessionReceived) -> EndpointInfo:
    return EndpointInfo(
        protocol_version=event.protocol_version,
        session_id=event.session_id,
        profiles=frozenset(event.profiles),
        limits=dict(event.limits),
        voices=tuple(event.voices),
        formats=tuple(event.formats),
        sample_rates=tuple(event.sample_rates),
    )


class connect:  # lower case: it is called like a function
    """A session over WebSocket: ``async with connect(url) as session``.

    Or over SageMaker's bidirectional streaming, for ``sagemaker:NAME`` (see
    :class:`~utterwire_client.address.SageMakerAddress`; ``headers``, ``ssl`` and ``proxy`` are not
    for it).

    ``url`` is the endpoint's address; one without a path gets that of the protocol, and http(s)
    means ws(s). ``headers`` go with the opening handshake. ``ssl`` holds the TLS settings for a
    wss:// address, where the system's will not do. ``proxy`` is True for what the environment says
    (never for this machine's own addresses), None for none, or the address of one. ``negotiate``
    asks the endpoint what it offers first (profile ``negotiate``; leave it to endpoints that are
    known to speak version 1). Redirects are not followed, and no compression is offered. The other
    parameters are those of :class:`Session`.

    Entering raises :class:`RequestInvalid`, :class:`ConnectFailed`, :class:`DeadlineExceeded`, and
    with ``negotiate`` also :class:`SessionLost`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        ssl: tls.SSLContext | None = None,
        proxy: str | Literal[True] | None = True,
        deadlines: Deadlines | None = None,
        negotiate: bool = False,
        interrupt: bool | None = None,
        on_violation: Callable[[PeerViolation], None] | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
    ) -> None:
        self._url = url
        self._headers = headers
        self._ssl = ssl
        self._proxy: str | Literal[True] | None = proxy
        self._deadlines = deadlines or Deadlines()
        self._negotiate = negotiate
        self._interrupt = interrupt
        self._on_violation = on_violation
        self._buffer_bytes = buffer_bytes
        self._max_buffer_bytes = max_buffer_bytes
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        if self._session is not None:
            raise RuntimeError("a connect() is entered once: make another")
        transport = await self.open()
        self._session = Session(
            transport,
            deadlines=self._deadlines,
            negotiate=self._negotiate,
            interrupt=self._interrupt,
            reopen=self.open,
            on_violation=self._on_violation,
            buffer_bytes=self._buffer_bytes,
            max_buffer_bytes=self._max_buffer_bytes,
        )
        return await self._session.__aenter__()

    async def open(self) -> Transport:
        """Only what carries a session, for who speaks the protocol over it. Raises as entering."""
        if is_sagemaker(self._url):
            return await self._open_sagemaker()
        try:
            from utterwire_client.websocket import open_websocket
        except ModuleNotFoundError as exc:
            missing = (exc.name or "websockets").partition(".")[0]
            raise ExtraMissing(
                f"sessions need the package {missing}: pip install 'utterwire[client]'"
            ) from None
        return await open_websocket(
            self._url,
            headers=self._headers,
            ssl_context=self._ssl,
            proxy=self._proxy,
            connect_s=self._deadlines.connect_s,
            close_s=self._deadlines.close_s,
        )

    async def _open_sagemaker(self) -> Transport:
        address = SageMakerAddress.parse(self._url)
        if checked_headers(self._headers) or self._ssl is not None:
            raise RequestInvalid(
                f"{address} takes no header fields, and its authorities by ca_file in the address"
            )
        transport: Transport = await sagemaker().open_sagemaker(
            address,
            connect_s=self._deadlines.connect_s,
            close_s=self._deadlines.close_s,
        )
        return transport

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.__aexit__(exc_type, exc, traceback)
