"""From a function that speaks to an endpoint: what hosts of a model need to write themselves.

::

    from utterwire_server.adapter import SpeechApp

    def speak(text, voice, speed):
        for chunk in model.stream(text, voice=voice, speed=speed):
            yield chunk.pcm  # signed 16-bit little-endian mono samples, as bytes

    app = SpeechApp(speak, voices=["amy"], sample_rate=22_050)

    if __name__ == "__main__":
        app.serve(port=8080)

Everything around the model (validation, order, queues, cancelling, slow readers, HTTP, shutdown) is
that of the reference server.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import numpy as np
from starlette.types import ASGIApp, Receive, Scope, Send

from utterwire_server.access import Access
from utterwire_server.app import create_app
from utterwire_server.engines.engine import Block, Engine, EngineError, SpeechRequest
from utterwire_server.engines.tone import is_spoken
from utterwire_server.logs import log_event, whereabouts
from utterwire_server.observer import Observer
from utterwire_server.service import Service
from utterwire_server.settings import Settings

__all__ = ["Speak", "SpeakEngine", "SpeechApp"]

Speak: TypeAlias = Callable[
    [str, str, float], AsyncIterator[bytes] | Iterator[bytes] | Awaitable[AsyncIterator[bytes]]
]
"""Speaks a text: called with text, voice and speed; what it gives back yields PCM.

The bytes are signed 16-bit little-endian mono samples at the sample rate given to `SpeechApp`, cut
anywhere, in the middle of a sample too. It is an asynchronous iterator, or a plain one, which then
runs in a thread; the call itself must not compute.
"""

# The same as on the way out, so that samples come through as they are, -32,768 as -32,767.
_FULL_SCALE: Final = np.float32(32_767)
_BYTES_PER_SAMPLE: Final = 2
_PROFILES: Final = frozenset({"core", "http", "interrupt", "negotiate", "formats", "sse"})
_END: Final = object()


class SpeakEngine(Engine):
    """An engine made of a function that speaks.

    :param speak: see `Speak`. It is not called for a text without a letter or a number, which
        has nothing to be spoken. When an utterance is cancelled its iterator is closed.
    :param voices: the voices it knows; the first is the default.
    :param sample_rate: the rate of what it yields, in hertz.
    :param concurrency: how many chunks may be in the making at once, in all sessions together.
    :raises TypeError: if ``speak`` cannot be called.
    :raises ValueError: if there is no voice, or a number is below 1.
    """

    name = "speak"

    def __init__(
        self,
        speak: Speak,
        *,
        voices: Sequence[str],
        sample_rate: int = 24_000,
        concurrency: int = 1,
    ) -> None:
        if not callable(speak):
            raise TypeError(f"speak is a {type(speak).__name__}; it must be a function")
        if isinstance(voices, str) or not voices:
            raise ValueError(f"voices is {voices!r}; it must be a list with at least one name")
        if sample_rate < 1 or concurrency < 1:
            raise ValueError(
                f"sample_rate {sample_rate} and concurrency {concurrency} must be above 0"
            )
        self._speak = speak
        self._voices = tuple(voices)
        self._sample_rate = sample_rate
        self.concurrency = concurrency
        self._threads: ThreadPoolExecutor | None = None

    @property
    def voices(self) -> tuple[str, ...]:
        return self._voices

    @property
    def sample_rates(self) -> tuple[int, ...]:
        return (self._sample_rate,)

    async def stop(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=False)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        text = request.text
        if not any(is_spoken(text, index) for index in range(len(text))):
            return
        rest = b""
        async with aclosing(self._chunks(request)) as chunks:
            async for chunk in chunks:
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    raise EngineError(
                        f"speak yielded a {type(chunk).__name__}; it must yield bytes of"
                        " 16-bit samples"
                    )
                data = rest + bytes(chunk)
                whole = len(data) - len(data) % _BYTES_PER_SAMPLE
                rest = data[whole:]
                # A model may hand over minutes at once: others have their turns in between.
                step = self._sample_rate * _BYTES_PER_SAMPLE
                for at in range(0, max(whole, 1), step):
                    piece = data[at : min(at + step, whole)]
                    samples = np.frombuffer(piece, dtype="<i2").astype(np.float32)
                    yield Block(samples / _FULL_SCALE)
        if rest:
            # Half a sample is no sound: what came before it is worth more than a failure.
            log_event("odd_byte_dropped", engine=self.name)

    async def _chunks(self, request: SpeechRequest) -> AsyncGenerator[bytes]:
        spoken: Any = self._speak(request.text, request.voice, request.speed)
        if inspect.isawaitable(spoken):
            spoken = await spoken
        if isinstance(spoken, AsyncIterator):
            try:
                async for chunk in spoken:
                    yield chunk
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Something that it waited for was cancelled, and nobody gave the utterance up.
                raise EngineError("speak was cancelled by something of its own") from None
            finally:
                if isinstance(spoken, AsyncGenerator):
                    await spoken.aclose()
        elif isinstance(spoken, Iterator):
            async with aclosing(self._from_thread(spoken)) as chunks:
                async for chunk in chunks:
                    yield chunk
        else:
            raise EngineError(
                f"speak gave back a {type(spoken).__name__}; it must be an iterator, so that"
                " audio leaves while more is made (`yield` each chunk)"
            )

    async def _from_thread(self, spoken: Iterator[bytes]) -> AsyncGenerator[bytes]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, thread_name_prefix="speak")
        threads = self._threads
        job: Future[Any] | None = None
        try:
            while True:
                job = threads.submit(next, spoken, _END)
                chunk = await asyncio.wrap_future(job)
                if chunk is _END:
                    break
                yield chunk
        finally:
            close = getattr(spoken, "close", None)
            if job is not None and callable(close):
                # A generator cannot be closed while it runs, which a cancel does not change.
                job.add_done_callback(lambda _: _close_in(threads, close))


def _close_in(threads: ThreadPoolExecutor, close: Callable[[], Any]) -> None:
    def work() -> None:
        try:
            close()
        except Exception as error:
            log_event("speak_close_failed", **whereabouts(error))

    try:
        threads.submit(work)
    except RuntimeError:  # The engine was stopped meanwhile.
        work()


class SpeechApp:
    """An ASGI application that speaks with a function, and can serve itself.

    Left alone it claims `core`, `http`, `interrupt`, `negotiate`, `formats` and `sse`: bytes tell
    no word's time, and `load` and `sagemaker` depend on the model and where it runs. `serve` runs
    it as the reference server is run. Under another ASGI server, or mounted in an application,
    sessions and requests are the same; bounds on unsent audio and the orderly end at SIGTERM are
    then that server's (`protocol.md#shutdown`).

    :param settings: limits and timeouts; the defaults hold for what is left out.
    :param access: who is let in; everybody, without it.
    :param observers: are told of each utterance, as by `Service`.
    :raises TypeError: as `SpeakEngine`.
    :raises ValueError: as `SpeakEngine`, or if the rate is none that can be resampled.
    """

    def __init__(
        self,
        speak: Speak,
        *,
        voices: Sequence[str],
        sample_rate: int = 24_000,
        concurrency: int = 1,
        settings: Settings | None = None,
        access: Access | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        engine = SpeakEngine(speak, voices=voices, sample_rate=sample_rate, concurrency=concurrency)
        settings = settings or Settings(profiles=_PROFILES)
        self.service = Service(settings, engine, access=access, observers=observers)
        self._app: ASGIApp = create_app(self.service)
        self._loads = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the life of the server."""
        if scope["type"] == "lifespan":
            self._loads = True
        else:
            if not self._loads:
                # Mounted in another application, nobody tells it that the server has started.
                self._loads = True
                self.service.load()
            await self.service.loaded()
        await self._app(scope, receive, send)

    def serve(
        self, *, host: str = "127.0.0.1", port: int = 8080, tls: ssl.SSLContext | None = None
    ) -> int:
        """Serve until SIGTERM or SIGINT, then drain; the exit status of `utterwire-server`.

        With ``tls``, of `utterwire_server.access.tls_context`, it speaks `wss` and `https`. An
        address that cannot be had is told in one line, with status 1.
        """
        from utterwire_server import runner

        buffer = self.service.settings.send_buffer_bytes
        try:
            sock = runner.listen(host, port, send_buffer_bytes=buffer)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            print(f"cannot listen on {host} port {port}: {reason}", file=sys.stderr)
            return 1
        return runner.serve(self.service, sock, tls=tls)
