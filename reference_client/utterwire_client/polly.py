"""Speeches by Amazon Polly: its bidirectional synthesis, by the AWS SDK (extra ``polly``).

Needs Python 3.12 or newer. Each sentence is a stream of its own, on a connection of its own: a
stream has no mark between two texts, and the SDK no way to end a stream but to end its connection.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final

from aws_sdk_polly import models
from aws_sdk_polly.client import AsyncPollyClient
from aws_sdk_polly.config import AsyncPollyConfig
from awscrt.exceptions import AwsCrtError
from awscrt.io import ClientTlsContext, TlsContextOptions
from smithy_aws_event_stream.exceptions import EventError
from smithy_core.exceptions import CallError, SmithyError
from smithy_http.aio.crt import AWSCRTHTTPClient, AWSCRTHTTPClientConfig

from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    RequestInvalid,
    SessionLost,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
    Waiting,
)
from utterwire_client.events import Audio, Complete, Event, Start
from utterwire_client.request_backend import RequestBackend
from utterwire_client.utterance import Request

__all__ = ["PollyBackend"]

# Our formats: Polly's name, and the rates it makes of them, the first by itself.
_FORMATS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "pcm_s16le": ("pcm", (16_000, 8_000)),
    "mp3": ("mp3", (24_000, 22_050, 16_000, 8_000)),
    "opus": ("ogg_opus", (48_000, 24_000, 16_000, 12_000, 8_000)),
    "mulaw": ("mulaw", (8_000,)),
    "alaw": ("alaw", (8_000,)),
}
_CLOSE_S: Final = 2.0
_BODY_TASK: Final = "_set_request_body_generator"
_BUSY = (models.ThrottlingException, models.ServiceQuotaExceededException)
_BROKEN = (OSError, SmithyError, AwsCrtError, EventError)

# The SDK logs what it also raises.
for _name in ("smithy_core", "smithy_aws_core", "aws_sdk_polly"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class PollyBackend(RequestBackend):
    """Speaks texts by Polly's ``StartSpeechSynthesisStream``; several sentences run at once.

    ``voice`` is for utterances that name none. ``region`` and credentials are found as the SDK does
    it, where they are not given. ``endpoint_url`` and ``ca_file`` lead to a stand-in. Of formats it
    knows ``pcm_s16le`` (at 16,000 Hz, or 8,000), ``mp3``, ``opus``, ``mulaw`` and ``alaw``; it has
    no ``speed`` and no marks.
    """

    def __init__(
        self,
        voice: str = "Ruth",
        *,
        engine: str = "generative",
        region: str | None = None,
        endpoint_url: str | None = None,
        ca_file: Path | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        super().__init__()
        self._voice = voice
        self._engine = engine
        self._region = region
        self._endpoint_url = endpoint_url
        self._ca_file = ca_file
        self._deadlines = deadlines or Deadlines()

    def check(self, request: Request) -> None:
        if not request.text.strip():
            raise RequestInvalid("the text is blank: give something to say")
        if request.speed not in (None, 1):
            raise RequestInvalid("Polly's streams know no speed: leave it out")
        if request.format not in (None, *_FORMATS):
            known = ", ".join(_FORMATS)
            raise RequestInvalid(f"Polly makes no {request.format!r}: ask for one of {known}")
        _, rates = _FORMATS[request.format or "pcm_s16le"]
        if request.sample_rate not in (None, *rates):
            known = ", ".join(map(str, rates))
            raise RequestInvalid(f"Polly makes no {request.sample_rate} Hz: ask for one of {known}")

    async def events(self, request: Request) -> AsyncGenerator[Event]:
        format = request.format or "pcm_s16le"
        name, rates = _FORMATS[format]
        start = Start(request.sample_rate or rates[0], format, request.voice or self._voice)
        received, carry = 0, b""
        loop = asyncio.get_running_loop()
        waited_s = 0.0  # for audio: events without any are none, and who reads may take long
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with _deadline("connect", self._deadlines.connect_s):
                    output = await self._open(stack, request.text, start, name)
                yield start
                while True:
                    which: Waiting = "stall" if received else "first_chunk"
                    seconds = getattr(self._deadlines, f"{which}_s")
                    asked_at = loop.time()
                    async with _deadline(which, seconds, received, waited_s):
                        event = await output.receive()
                    waited_s += loop.time() - asked_at
                    match event:
                        case models.StartSpeechSynthesisStreamEventStreamAudioEvent(value=audio):
                            data = carry + (audio.audio_chunk or b"")
                            if audio.audio_chunk:
                                received += len(audio.audio_chunk)
                                waited_s = 0.0
                            whole = len(data) - len(data) % (2 if format == "pcm_s16le" else 1)
                            carry = data[whole:]
                            if whole:
                                yield Audio(data[:whole])
                        case models.StartSpeechSynthesisStreamEventStreamStreamClosedEvent():
                            break
                        case None:
                            raise OSError("it ended before it said so")
        except UtterwireError:
            raise
        except _BROKEN as exc:
            raise _failure(exc, received) from exc
        pcm = format == "pcm_s16le"
        yield Complete(received, received / (2 * start.sample_rate) if pcm else None)

    async def _open(
        self, stack: contextlib.AsyncExitStack, text: str, start: Start, format: str
    ) -> Any:
        settings = {"region": self._region, "endpoint_uri": self._endpoint_url}
        config = await AsyncPollyConfig.resolve(
            transport=_http_client(self._ca_file),
            max_attempts=1,
            **{name: value for name, value in settings.items() if value is not None},
        )
        client = AsyncPollyClient(config=config)
        await client.__aenter__()
        stack.push_async_callback(_bounded, client.__aexit__, None, None, None)
        stream = await client.start_speech_synthesis_stream(
            models.StartSpeechSynthesisStreamInput(
                engine=self._engine,
                output_format=format,
                sample_rate=str(start.sample_rate),
                voice_id=start.voice,
            )
        )
        stack.push_async_callback(_bounded, stream.input_stream.close)
        stack.callback(_own_body_tasks)
        event = models.TextEvent(text=text)
        await stream.input_stream.send(
            models.StartSpeechSynthesisStreamActionStreamTextEvent(value=event)
        )
        await stream.input_stream.send(
            models.StartSpeechSynthesisStreamActionStreamCloseStreamEvent(
                value=models.CloseStreamEvent()
            )
        )
        _, output = await stream.await_output()
        stack.push_async_callback(_bounded, output.close)
        return output


def _http_client(ca_file: Path | None) -> AWSCRTHTTPClient:
    client = AWSCRTHTTPClient(client_config=AWSCRTHTTPClientConfig(force_http_2=True))
    if ca_file is not None:
        options = TlsContextOptions()
        options.override_default_trust_store_from_path(None, str(ca_file))
        # There is no setting for it in this version of the SDK, which is why the version is pinned.
        client._tls_ctx = ClientTlsContext(options)
    return client


def _own_body_tasks() -> None:
    """Say nothing of the tasks by which the SDK sends a body: what ended a stream is told by it."""
    for task in asyncio.all_tasks():
        if getattr(task.get_coro(), "__name__", "") == _BODY_TASK:
            task.add_done_callback(lambda task: task.cancelled() or task.exception())


async def _bounded(ask: Any, *arguments: object) -> None:
    """Ask the SDK to end something; whether it does is none of our callers' business."""
    with contextlib.suppress(TimeoutError, RuntimeError, *_BROKEN):
        async with asyncio.timeout(_CLOSE_S):
            await ask(*arguments)


@contextlib.asynccontextmanager
async def _deadline(
    which: Waiting, seconds: float, received: int = 0, waited_s: float = 0.0
) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(None if math.isinf(seconds) else seconds - waited_s):
            yield
    except TimeoutError:
        what = {"connect": "was not reached", "first_chunk": "sent no audio"}.get(which)
        raise DeadlineExceeded(
            f"Polly {what or 'fell silent'} within {seconds:g} s",
            which=which,
            seconds=seconds,
            audio_bytes=received,
        ) from None


def _failure(exc: BaseException, received: int) -> UtterwireError:
    said = " ".join(str(exc).split())[:300] or type(exc).__name__
    if isinstance(exc, models.ValidationException):
        told = f"Polly does not accept the request: {said}"
        return UtteranceRejected(told, code="invalid_request", retryable=False)
    if isinstance(exc, _BUSY):
        return UtteranceRejected(f"Polly is too busy: {said}", code="overloaded", retryable=True)
    if isinstance(exc, models.ServiceFailureException):
        told = f"Polly failed after {received} bytes of audio: {said}"
        return UtteranceFailed(told, code="synthesis_failed", retryable=True, audio_bytes=received)
    if received:
        told = f"the stream from Polly broke after {received} bytes of audio: {said}"
        return SessionLost(told, retryable=True, audio_bytes=received)
    refused = isinstance(exc, CallError) and exc.fault == "client"
    return ConnectFailed(f"no stream from Polly: {said}", retryable=not refused)
