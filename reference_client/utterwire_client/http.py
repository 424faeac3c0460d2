"""Speech over HTTP: one request, one utterance (``http.md``), as raw audio or as events
(``sse.md``)."""

import asyncio
import base64
import binascii
import contextlib
import json
import math
import re
import ssl as tls
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import unquote

import httpx
from utterwire_protocol import Connection, LocalProtocolError, Role

from utterwire_client.address import (
    SageMakerAddress,
    display,
    http_url,
    is_loopback,
    is_sagemaker,
)
from utterwire_client.aws import sagemaker
from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import (
    ConnectFailed,
    ContainerRefused,
    DeadlineExceeded,
    PeerViolation,
    RequestInvalid,
    SessionLost,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
    Waiting,
)
from utterwire_client.event_stream import EventStreamReader, ServerSentEvent
from utterwire_client.events import SAMPLE_BYTES, Audio, Complete, Event, Start
from utterwire_client.request_backend import RequestBackend
from utterwire_client.transport import Headers, checked_headers
from utterwire_client.utterance import Request

__all__ = ["HttpBackend", "HttpTransport", "http_utterance"]

#: How the audio of an answer travels: as it is, or in base64 inside server-sent events.
HttpTransport = Literal["http", "sse"]

_USER_AGENT = "utterwire-client/1"
_MAX_ERROR_BYTES = 65_536
_MOST_RATE = 999_999_999
_DEFAULT_RATE = 24_000
_DEFAULT_FORMAT = "pcm_s16le"
_WORDS = re.compile(r"text/.*|application/(?:.*\+)?(?:json|xml)")
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


def _ignore(violation: PeerViolation) -> None:
    pass


@dataclass(slots=True)
class _Answer:
    """What has come of an answer, and the rules that it broke."""

    shown: str
    on_violation: Callable[[PeerViolation], None]
    sample_rate: int | None
    format: str | None
    start: Start | None = None
    received_bytes: int = 0
    carry: bytes = b""
    told: set[str] = field(default_factory=set)

    def begin(self, rate: object, name: object, voice: object) -> Start:
        told = _rate(rate)
        implied = told is None or not isinstance(name, str)
        self.start = Start(
            sample_rate=told or self.sample_rate or _DEFAULT_RATE,
            format=name if isinstance(name, str) else self.format or _DEFAULT_FORMAT,
            voice=voice if isinstance(voice, str) else None,
            implied=implied,
        )
        return self.start

    def audio(self, data: bytes) -> Audio | None:
        """Whole samples of what came so far; pieces of a body may split them."""
        self.received_bytes += len(data)
        width = SAMPLE_BYTES.get(self.start.format if self.start else _DEFAULT_FORMAT, 1)
        data = self.carry + data
        whole = len(data) - len(data) % width
        self.carry = data[whole:]
        return Audio(data[:whole]) if whole else None

    def complete(self, duration_s: object = None) -> Complete:
        if self.carry:
            self.report(
                "audio.whole-samples",
                "the audio ended in the middle of a sample; its last byte was dropped",
            )
        seconds = _seconds(duration_s)
        if seconds is None and self.start is not None and self.start.format == "pcm_s16le":
            seconds = self.received_bytes / (2 * self.start.sample_rate)
        return Complete(received_bytes=self.received_bytes, duration_s=seconds)

    def report(self, requirement: str, message: str) -> None:
        if requirement not in self.told:
            self.told.add(requirement)
            self.on_violation(PeerViolation(message, requirement=requirement))

    def lost(self, why: str) -> SessionLost:
        return SessionLost(
            f"the utterance is incomplete, {self.received_bytes} bytes of audio came: {why}",
            retryable=True,
            audio_bytes=self.received_bytes,
        )


async def http_utterance(
    url: str,
    text: str,
    *,
    transport: HttpTransport = "http",
    voice: str | None = None,
    speed: float | None = None,
    sample_rate: int | None = None,
    format: str | None = None,
    request_id: str | None = None,
    headers: Headers | None = None,
    ssl: tls.SSLContext | None = None,
    deadlines: Deadlines | None = None,
    on_violation: Callable[[PeerViolation], None] | None = None,
) -> AsyncGenerator[Event]:
    """Speak ``text`` by one ``POST /invocations``; yields ``Start``, ``Audio`` and ``Complete``.

    ``url`` is the endpoint's address (see :func:`~utterwire_client.address.http_url`).
    ``transport`` is ``http`` for the audio as it is, ``sse`` for events. The other parameters are
    those of :func:`~utterwire_client.session.connect` and ``synthesize``. Closing the generator
    closes the connection, which cancels the utterance.

    A body that is cut off raises (``client.http-truncation``), and so does a stream of events that
    ends before ``audio_stream_end``.

    Raises :class:`RequestInvalid`, :class:`ConnectFailed`, :class:`UtteranceRejected`,
    :class:`UtteranceFailed`, :class:`SessionLost`, :class:`DeadlineExceeded`.
    """
    route = _route(url, transport, headers, ssl, deadlines or Deadlines())
    body = _body(
        text,
        voice=voice,
        speed=speed,
        sample_rate=sample_rate,
        format=format,
        request_id=request_id,
    )
    answer = _Answer(route.shown, on_violation or _ignore, sample_rate, format)
    try:
        await route.open()
        async with contextlib.aclosing(route.ask(body, answer)) as events:
            async for event in events:
                yield event
    finally:
        await route.close()


class _Route(Protocol):
    """Where requests go, and how."""

    shown: str

    async def open(self) -> None:
        """Get ready for requests, which may take a while the first time."""
        ...

    def ask(self, body: bytes, answer: _Answer) -> AsyncGenerator[Event]:
        """One request, and what comes of it; several may run at once."""
        ...

    async def close(self) -> None: ...


def _route(
    url: str,
    transport: HttpTransport,
    headers: Headers | None,
    ssl: tls.SSLContext | None,
    deadlines: Deadlines,
) -> _Route:
    given = checked_headers(headers)
    if not is_sagemaker(url):
        return _HttpRoute(http_url(url), transport, given, ssl, deadlines)
    target = SageMakerAddress.parse(url)
    if given or ssl is not None:
        raise RequestInvalid(
            f"{target} takes no header fields, and its authorities by ca_file in the address"
        )
    return _SageMakerRoute(target, transport, deadlines)


class _HttpRoute:
    """``POST /invocations``, over connections that are kept."""

    def __init__(
        self,
        address: str,
        transport: HttpTransport,
        headers: list[tuple[str, str]],
        ssl: tls.SSLContext | None,
        deadlines: Deadlines,
    ) -> None:
        self.shown = display(address)
        self._address = address
        self._transport: HttpTransport = transport
        self._headers = headers
        self._ssl = ssl
        self._deadlines = deadlines
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        async with self._opening:
            if self._client is None:
                self._client = await self._made()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _made(self) -> httpx.AsyncClient:
        loopback = is_loopback(self._address)
        make = partial(
            httpx.AsyncClient,
            # A redirect would carry the caller's header fields to another place.
            follow_redirects=False,
            trust_env=not loopback,
            timeout=httpx.Timeout(None, connect=_finite(self._deadlines.connect_s)),
        )
        if loopback and self._address.startswith("http:"):
            return make(verify=False)  # there is no TLS on this way
        try:
            # Reading the authorities that the system trusts takes a tenth of a second.
            return await asyncio.to_thread(make, verify=True if self._ssl is None else self._ssl)
        except ValueError as exc:
            raise self._unsendable(exc) from None

    async def ask(self, body: bytes, answer: _Answer) -> AsyncGenerator[Event]:
        assert self._client is not None
        fields = {
            "Content-Type": "application/json",
            "User-Agent": _USER_AGENT,
            "Accept": _accepted(self._transport),
            # The body is read as it comes: nothing may be packed on its way.
            "Accept-Encoding": "identity",
        }
        named = {name.lower() for name, _ in self._headers}
        own = [(name, value) for name, value in fields.items() if name.lower() not in named]
        try:
            request = self._client.build_request(
                "POST", self._address, content=body, headers=[*own, *self._headers]
            )
            exchange = _exchange(self._client, request, self._transport, answer, self._deadlines)
            async with contextlib.aclosing(exchange) as events:
                async for event in events:
                    yield event
        except (ValueError, httpx.InvalidURL) as exc:
            if isinstance(exc, UtterwireError):
                raise
            raise self._unsendable(exc) from None

    def _unsendable(self, exc: Exception) -> RequestInvalid:
        return RequestInvalid(f"the request to {self.shown} cannot be sent: {_line(exc)}")


def _accepted(transport: HttpTransport) -> str:
    return "text/event-stream" if transport == "sse" else "*/*"


class _SageMakerRoute:
    """The same by SageMaker's ``InvokeEndpointWithResponseStream``, which passes the content type
    alone of the endpoint's header fields (``sagemaker.md#http``)."""

    def __init__(
        self, address: SageMakerAddress, transport: HttpTransport, deadlines: Deadlines
    ) -> None:
        self.shown = str(address)
        self._address = address
        self._transport: HttpTransport = transport
        self._deadlines = deadlines

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def ask(self, body: bytes, answer: _Answer) -> AsyncGenerator[Event]:
        seconds = self._deadlines.first_chunk_s
        try:
            async with _silence("first_chunk", seconds, answer):
                response = await sagemaker().invoke(
                    self._address, body, accept=_accepted(self._transport), deadline_s=seconds
                )
        except ContainerRefused as exc:
            told = _fields(ServerSentEvent("error", exc.original_message or ""))
            if told.get("type") == "error" and isinstance(told.get("code"), str):
                raise _failure(told, answer, rejected=told.get("rejected") is True) from exc
            raise
        reading = _read(response, self._transport, answer, self._deadlines)
        try:
            async with contextlib.aclosing(reading) as events:
                async for event in events:
                    yield event
        finally:
            await response.aclose()


class _Response(Protocol):
    """What is read of an answer, whoever got it."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_raw(self) -> AsyncIterator[bytes]: ...


async def _exchange(
    client: httpx.AsyncClient,
    request: httpx.Request,
    transport: HttpTransport,
    answer: _Answer,
    deadlines: Deadlines,
) -> AsyncGenerator[Event]:
    response = await _send(client, request, answer, deadlines)
    try:
        if response.status_code != 200:
            raise await _refused(response, answer, deadlines)
        async with contextlib.aclosing(_read(response, transport, answer, deadlines)) as events:
            async for event in events:
                yield event
    finally:
        await response.aclose()


def _read(
    response: _Response, transport: HttpTransport, answer: _Answer, deadlines: Deadlines
) -> AsyncGenerator[Event]:
    if transport != "sse":
        return _raw(response, answer, deadlines)
    kind = _kind(response)
    if kind != "text/event-stream":
        raise ConnectFailed(f"{answer.shown} sends {kind or 'no type'}, and no events")
    return _events(response, answer, deadlines)


def _kind(response: _Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _send(
    client: httpx.AsyncClient, request: httpx.Request, answer: _Answer, deadlines: Deadlines
) -> httpx.Response:
    shown = answer.shown
    try:
        async with _silence("first_chunk", deadlines.first_chunk_s, answer):
            return await client.send(request, stream=True)
    except httpx.ConnectTimeout:
        raise DeadlineExceeded(
            f"no connection to {shown} within {deadlines.connect_s:g} s",
            which="connect",
            seconds=deadlines.connect_s,
        ) from None
    except (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol) as exc:
        raise ConnectFailed(f"no connection to {shown}: {_line(exc)}", retryable=True) from exc
    except httpx.TransportError as exc:
        raise answer.lost(_line(exc)) from exc


async def _raw(response: _Response, answer: _Answer, deadlines: Deadlines) -> AsyncGenerator[Event]:
    rate = response.headers.get("utterwire-sample-rate", "")
    name = response.headers.get("utterwire-format")
    if not name and _WORDS.fullmatch(kind := _kind(response)):
        # A page or an error that calls itself a success: as audio it would be noise.
        error, _ = await _told(response, answer, deadlines)
        raise error or ConnectFailed(f"{answer.shown} sends {kind}, and no audio")
    voice = response.headers.get("utterwire-voice")
    yield answer.begin(
        int(rate) if rate.isascii() and rate.isdigit() and len(rate) < 10 else None,
        name or None,
        unquote(voice) if voice else None,
    )
    async for data in _pieces(response, answer, deadlines):
        audio = answer.audio(data)
        if audio is not None:
            yield audio
    yield answer.complete()


async def _events(
    response: _Response, answer: _Answer, deadlines: Deadlines
) -> AsyncGenerator[Event]:
    reader = EventStreamReader()
    chunks = 0
    async for data in _pieces(response, answer, deadlines):
        for event in reader.feed(data):
            fields = _fields(event)
            # Where data stands alone, the name is in it.
            match fields.get("type") if event.name == "message" else event.name:
                case "audio_stream_start":
                    rate, name = fields.get("sample_rate"), fields.get("format")
                    yield answer.begin(rate, name, fields.get("voice"))
                case "audio_chunk":
                    if answer.start is None:
                        answer.report("sse.start", "audio came before `audio_stream_start`")
                        yield answer.begin(None, None, None)
                    if fields.get("seq") != chunks:
                        answer.report(
                            "sse.chunks", f"chunk {chunks} carries the number {fields.get('seq')!r}"
                        )
                    chunks += 1
                    audio = answer.audio(_decoded(fields.get("data"), answer))
                    if audio is not None:
                        yield audio
                case "audio_stream_end":
                    total = fields.get("total_chunks")
                    if isinstance(total, int) and total > chunks:
                        raise answer.lost(f"{total} chunks were sent, {chunks} came")
                    yield answer.complete(fields.get("duration_s"))
                    return
                case "error":
                    raise _failure(fields, answer, rejected=False)
                case _:
                    pass  # an agent's own, or of a later version
    raise answer.lost("the stream of events ended before `audio_stream_end`")


def _fields(event: ServerSentEvent) -> dict[str, Any]:
    try:
        value = json.loads(event.data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _decoded(data: object, answer: _Answer) -> bytes:
    try:
        return base64.b64decode(data if isinstance(data, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise answer.lost("a chunk is no base64") from None


async def _pieces(
    response: _Response, answer: _Answer, deadlines: Deadlines
) -> AsyncIterator[bytes]:
    """The body as it comes; a body that was cut off raises."""
    pieces = response.aiter_raw()
    loop = asyncio.get_running_loop()
    # For audio: comments and other events between mean nothing, and who reads may take long.
    received, waited_s = answer.received_bytes, 0.0
    while True:
        if answer.received_bytes > received:
            received, waited_s = answer.received_bytes, 0.0
        first = not answer.received_bytes
        which: Waiting = "first_chunk" if first else "stall"
        seconds = deadlines.first_chunk_s if first else deadlines.stall_s
        asked_at = loop.time()
        try:
            async with _silence(which, seconds, answer, waited_s=waited_s):
                data = await anext(pieces)
        except StopAsyncIteration:
            return
        except (httpx.TransportError, ConnectionError) as exc:
            raise answer.lost(f"the body was cut off ({_line(exc)})") from exc
        waited_s += loop.time() - asked_at
        yield data


@contextlib.asynccontextmanager
async def _silence(
    which: Waiting, seconds: float, answer: _Answer, *, waited_s: float = 0.0
) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_finite(seconds - waited_s)):
            yield
    except TimeoutError as exc:
        if isinstance(exc, UtterwireError):
            raise
        what = "sent no audio" if which == "first_chunk" else "fell silent"
        raise DeadlineExceeded(
            f"the endpoint {what} within {seconds:g} s"
            if which == "first_chunk"
            else f"the endpoint {what} in the middle of an utterance for {seconds:g} s",
            which=which,
            seconds=seconds,
            audio_bytes=answer.received_bytes,
        ) from None


async def _refused(
    response: httpx.Response, answer: _Answer, deadlines: Deadlines
) -> UtterwireError:
    """What an answer that is not 200 means."""
    error, told_s = await _told(response, answer, deadlines)
    status = response.status_code
    return error or ConnectFailed(
        f"{answer.shown} answers HTTP {status}",
        status=status,
        retry_after_s=told_s,
        retryable=status in _WORTH_ANOTHER_TRY,
    )


async def _told(
    response: _Response, answer: _Answer, deadlines: Deadlines
) -> tuple[UtterwireError | None, float | None]:
    """The error that a body holds, if it holds one, and when to ask again."""
    data = bytearray()
    # Without it, the status says enough.
    with contextlib.suppress(UtterwireError):
        async for piece in _pieces(response, answer, deadlines):
            data += piece
            if len(data) > _MAX_ERROR_BYTES:
                break
    told = response.headers.get("retry-after", "")
    told_s = float(told) if told.isascii() and told.isdigit() else None
    fields = _fields(ServerSentEvent("error", data.decode("utf-8", "replace")))
    if fields.get("type") == "error" and isinstance(fields.get("code"), str):
        rejected = fields.get("rejected") is True
        return _failure(fields, answer, rejected=rejected, retry_after_s=told_s), told_s
    return None, told_s


def _failure(
    fields: dict[str, Any],
    answer: _Answer,
    *,
    rejected: bool,
    retry_after_s: float | None = None,
) -> UtterwireError:
    code = fields.get("code")
    code = code if isinstance(code, str) else "internal"
    said = "".join(c if c.isprintable() else " " for c in f"{code}: {fields.get('message')}"[:300])
    retryable = fields.get("retryable")
    if not isinstance(retryable, bool):
        # An event has no such field: the registry says it.
        from utterwire_protocol import ERROR_CODES

        retryable = code in ERROR_CODES and ERROR_CODES[code].retryable
    if rejected:
        return UtteranceRejected(
            f"the endpoint does not accept the request ({said})",
            code=code,
            retryable=retryable,
            retry_after_s=retry_after_s,
        )
    return UtteranceFailed(
        f"the endpoint failed after {answer.received_bytes} bytes of audio ({said})",
        code=code,
        retryable=retryable,
        audio_bytes=answer.received_bytes,
        retry_after_s=retry_after_s,
    )


class HttpBackend(RequestBackend):
    """Speaks texts by ``POST /invocations``, a request for each sentence; several run at once.

    The parameters are those of :func:`http_utterance`. HTTP carries no marks.
    """

    def __init__(
        self,
        url: str,
        *,
        transport: HttpTransport = "http",
        headers: Headers | None = None,
        ssl: tls.SSLContext | None = None,
        deadlines: Deadlines | None = None,
        on_violation: Callable[[PeerViolation], None] | None = None,
    ) -> None:
        super().__init__()
        self._url = url
        self._transport: HttpTransport = transport
        self._headers = checked_headers(headers)
        self._ssl = ssl
        self._deadlines = deadlines
        self._on_violation = on_violation

    def check(self, request: Request) -> None:
        _body(request.text, **_fields_of(request))

    def events(self, request: Request) -> AsyncGenerator[Event]:
        return http_utterance(
            self._url,
            request.text,
            transport=self._transport,
            headers=self._headers,
            ssl=self._ssl,
            deadlines=self._deadlines,
            on_violation=self._on_violation,
            **_fields_of(request),
        )


def _fields_of(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("voice", "speed", "sample_rate", "format")}


def _body(text: str, **fields: Any) -> bytes:
    # A request is a session with one message in it (http.md), checked and written by the core.
    core = Connection(Role.CLIENT, now=0.0)
    try:
        core.synthesize(text, 0.0, **fields)
    except LocalProtocolError as exc:
        raise RequestInvalid(str(exc)) from None
    chunk = core.next_chunk()
    assert chunk is not None
    return chunk.data


def _rate(value: object) -> int | None:
    """A sample rate that an endpoint told; None for what can be none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= _MOST_RATE else None


def _seconds(value: object) -> float | None:
    """A duration that an endpoint told; None for what can be none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
