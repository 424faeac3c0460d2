"""One session, seen from one side, without any input or output of its own."""

from __future__ import annotations

from collections.abc import Iterable

from utterwire_protocol.admission import Admission
from utterwire_protocol.chunk import Chunk
from utterwire_protocol.classification import FrameKind
from utterwire_protocol.client import Client
from utterwire_protocol.control import Word
from utterwire_protocol.endpoint import Endpoint
from utterwire_protocol.errors import LocalProtocolError
from utterwire_protocol.events import Event
from utterwire_protocol.options import EndpointOptions
from utterwire_protocol.states import Role, SessionState
from utterwire_protocol.utterance import Utterance

__all__ = ["Connection"]


class Connection:
    """One session of either role.

    What the transport delivers goes into ``receive``, which tells what it means; what is to be sent
    comes out of ``next_chunk``, one chunk at a time, and counts as sent from then on. Time comes in
    as ``now``: seconds of any clock that does not go backwards. Nothing here waits, and nothing is
    ever raised for what the peer sent. Calls that the state does not allow raise
    ``LocalProtocolError``, and have changed nothing.

    ``endpoint`` is what an endpoint offers: needed for ``Role.ENDPOINT``, and for it alone.
    ``admission`` is asked whether the endpoint as a whole has room for a request; without it there
    always is.
    """

    def __init__(
        self,
        role: Role,
        *,
        now: float,
        endpoint: EndpointOptions | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._half: Endpoint | Client
        if role is Role.ENDPOINT:
            if endpoint is None:
                raise LocalProtocolError("an endpoint needs its options")
            self._half = Endpoint(endpoint, now, admission)
        elif endpoint is None and admission is None:
            self._half = Client()
        else:
            raise LocalProtocolError("a client has no endpoint's options")
        self.role = role

    def _endpoint(self) -> Endpoint:
        if not isinstance(self._half, Endpoint):
            raise LocalProtocolError("only an endpoint does this")
        return self._half

    def _client(self) -> Client:
        if not isinstance(self._half, Client):
            raise LocalProtocolError("only a client does this")
        return self._half

    # Both roles

    @property
    def state(self) -> SessionState:
        """Where the session stands."""
        return self._half.state

    @property
    def end_reason(self) -> str | None:
        """Why the session ended: a reason of ``session_closed``, or ``transport_lost``."""
        return self._half.end_reason

    def receive(
        self, data: bytes | str, now: float, *, kind: FrameKind | None = None
    ) -> tuple[Event, ...]:
        """What one whole message of the peer means.

        ``str`` is the text of a text frame. Bytes are a binary frame, unless ``kind`` says
        otherwise.
        """
        if isinstance(data, str):
            kind = kind or FrameKind.TEXT
            # What UTF-8 cannot carry is refused when it is decoded.
            data = data.encode("utf-8", "surrogatepass")
        if isinstance(self._half, Endpoint):
            return self._half.receive(data, now)
        return self._half.receive(data, kind or FrameKind.BINARY)

    def poll_events(self) -> tuple[Event, ...]:
        """Events that came of other calls: ``SessionEnded``, where handing over the last chunk of
        a drain ended the session. ``receive`` and ``tick`` return these too."""
        return self._half.poll_events()

    def next_chunk(self, now: float | None = None) -> Chunk | None:
        """Hand one chunk over to the transport, or None if there is none.

        It counts as sent from here on: ``audio_bytes`` has it, a cancel no longer drops it. So take
        one only when the transport has room. ``now`` defaults to the latest time told.
        """
        if isinstance(self._half, Endpoint):
            return self._half.next_chunk(now)
        return self._half.next_chunk()

    def pending(self) -> int:
        """Chunks that ``next_chunk`` would hand over. While there are any, a server does not ask
        its engine for more."""
        return self._half.pending()

    def pending_bytes(self) -> int:
        """Bytes that are kept to be sent, those of rejections that wait for their place too."""
        return self._half.pending_bytes()

    def next_deadline(self) -> float | None:
        """When ``tick`` is to be called; None if never, as things stand."""
        return self._half.next_deadline() if isinstance(self._half, Endpoint) else None

    def tick(self, now: float) -> tuple[Event, ...]:
        """Act on a deadline that has passed: the idle limit, or that of a shutdown."""
        return self._half.tick(now) if isinstance(self._half, Endpoint) else ()

    def transport_lost(self, now: float) -> tuple[Event, ...]:
        """The transport carries nothing more, either way: end everything.

        Each unended utterance gives an ``UtteranceEnded``. Legal in every state; after the end it
        changes nothing.
        """
        if isinstance(self._half, Endpoint):
            return self._half.transport_lost(now)
        return self._half.transport_lost()

    def utterance(self, seq: int) -> Utterance | None:
        """The unended utterance of that ``seq``: as it is now, or None if it has ended."""
        return self._half.utterance(seq)

    # Endpoint

    def running(self) -> Utterance | None:
        """The utterance that was started and is still being made."""
        return self._endpoint().running()

    def next_waiting(self) -> Utterance | None:
        """The utterance to start next, once none is running."""
        return self._endpoint().next_waiting()

    def start(self, seq: int, now: float) -> None:
        """Begin an utterance: queue its ``synthesis_start``. It must be the next in order, and none
        may be running."""
        self._endpoint().start(seq, now)

    def audio(self, seq: int, data: bytes, now: float) -> None:
        """Queue audio of the running utterance, in its format.

        Any number of bytes: they are cut into chunks that may be sent (``Cutter``).
        """
        self._endpoint().audio(seq, data, now)

    def marks(self, seq: int, words: Iterable[Word], now: float) -> None:
        """Queue ``marks`` of the running utterance, which must have asked for them; to be called
        before the audio that they speak of."""
        self._endpoint().marks(seq, words, now)

    def complete(self, seq: int, now: float, total_duration_s: float | None = None) -> None:
        """All audio of the running utterance is queued: queue ``synthesis_complete``.

        ``total_duration_s``: seconds of speech; for formats of a fixed number of bytes a sample it
        is reckoned from the bytes, whatever is given. The utterance is ``FINISHING`` until that
        message is handed over, and can be cancelled as long.
        """
        self._endpoint().complete(seq, now, total_duration_s)

    def fail(self, seq: int, code: str, message: str, now: float) -> None:
        """End an accepted utterance with an ``error``, in its place in the order.

        ``code`` must be one that an accepted utterance can end in (``protocol.md#error-codes``).
        Audio that is queued is still sent.
        """
        self._endpoint().fail(seq, code, message, now)

    def shutdown(self, now: float, *, retry_after_s: float | None = None) -> tuple[Event, ...]:
        """Take nothing more, finish what there is, and end the rest at the deadline
        (``protocol.md#shutdown``)."""
        return self._endpoint().shutdown(now, retry_after_s)

    def end(self, reason: str, now: float, retry_after_s: float | None = None) -> tuple[Event, ...]:
        """End the session now: ``slow_reader``, ``policy`` or ``message_too_big``.

        What is unended ends in ``error`` ``going_away``, and its queued audio is dropped. A
        ``close`` or shutdown that came before keeps giving the reason of ``session_closed``.
        """
        return self._endpoint().end(reason, now, retry_after_s)

    # Client

    def hello(self, now: float, versions: tuple[int, ...] = (1,)) -> int:
        """Queue ``hello``, which must be the first message; its ``seq``."""
        return self._client().hello(versions)

    def synthesize(
        self,
        text: str,
        now: float,
        *,
        voice: str | None = None,
        speed: float | None = None,
        sample_rate: int | None = None,
        format: str | None = None,
        request_id: str | None = None,
        marks: Iterable[str] | None = None,
    ) -> int:
        """Queue a request; its ``seq``. What is None is left to the endpoint.

        Raises ``LocalProtocolError`` for what no endpoint takes, for an id in use, and for what is
        beyond the limits that the endpoint's ``session`` stated.
        """
        return self._client().synthesize(
            text,
            voice=voice,
            speed=speed,
            sample_rate=sample_rate,
            format=format,
            request_id=request_id,
            marks=tuple(marks or ()),
        )

    def cancel(self, now: float, request_id: str | None = None) -> int:
        """Queue ``cancel`` of one utterance, or of all that is unended; its ``seq``."""
        return self._client().cancel(request_id)

    def keepalive(self, now: float) -> int:
        """Queue ``keepalive``; its ``seq``."""
        return self._client().keepalive()

    def close(self, now: float) -> int:
        """Queue ``close``; its ``seq``. After it only ``cancel`` can be sent."""
        return self._client().close()
