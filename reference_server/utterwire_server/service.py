"""What all sessions and requests of one server share."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from utterwire_protocol import EndpointOptions, Limits, Synthesize

from utterwire_server.access import Access
from utterwire_server.encoders import offer, resamples
from utterwire_server.engines.engine import Engine, SpeechRequest
from utterwire_server.line import Listener
from utterwire_server.logs import log_event, whereabouts
from utterwire_server.observer import Observer, Outcome, UtteranceRecord
from utterwire_server.rendering import Rendering
from utterwire_server.scheduler import Scheduler
from utterwire_server.settings import Settings

if TYPE_CHECKING:
    from utterwire_server.metrics import Metrics

__all__ = ["CLOSE_AFTER_S", "Guest", "Service"]

#: How long after ``session_closed`` the endpoint leaves the closing to the client
#: (`protocol.md#closing`: 2 to 5 seconds).
CLOSE_AFTER_S = 3.0
#: How long after the shutdown deadline sessions may take to be closed: one that reads its last
#: words at the last moment has its time to close, too.
LEAVING_S = CLOSE_AFTER_S + 5.0
_FULL = "overloaded", "the endpoint has no capacity left"
DEFAULT_SAMPLE_RATE = 24_000
DEFAULT_FORMAT = "pcm_s16le"
MIN_SPEED, MAX_SPEED = 0.5, 2.0


class Guest(Protocol):
    """A session or a request that shutdown must tell."""

    def shut_down(self) -> None:
        """Finish what was accepted, and nothing after it."""

    def cut_off(self) -> None:
        """Stop: the time for finishing is over."""


class Service:
    """The engine, its capacity, and who is using it.

    :param access: who is let in; everybody, without it.
    :param observers: are told what happens. One that fails is told on, and its failure is logged
        once for each method.
    :raises ValueError: if the engine does not offer what every endpoint must, or a format that
        the settings ask for cannot be made.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        *,
        access: Access | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        if engine.concurrency < 1:
            raise ValueError(f"engine {engine.name!r} makes {engine.concurrency} blocks at once")
        self.settings = settings
        self.engine = engine
        #: Who is let in; another one holds for who comes from then on, but for its origins.
        self.access = access or Access()
        self._observers = list(observers)
        self._failing: set[tuple[Observer, str]] = set()
        self._engine_rates = _checked_rates(engine)
        self._offer: Mapping[str, tuple[int, ...]] = {DEFAULT_FORMAT: (DEFAULT_SAMPLE_RATE,)}
        if "formats" in settings.profiles:
            self._offer = offer(settings.formats, self._engine_rates)
        try:
            self.options()
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(f"engine {engine.name!r} does not fit: {error}") from error
        #: Its threads encode and resample, beside the event loop.
        self._workshop = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="utterwire-encode")
        self.scheduler = Scheduler(
            engine,
            block_timeout_s=settings.block_timeout_s,
            max_queued_chars=settings.max_queued_chars,
            max_queued_work_s=settings.max_queued_work_s,
        )
        self._guests: set[Guest] = set()
        self._sessions = 0
        self._receiving = 0
        self._empty = asyncio.Event()
        self._empty.set()
        #: Set when the engine could not be started.
        self.failed = asyncio.Event()
        self._loaded = False
        self._draining = False
        self._loading: asyncio.Task[None] | None = None
        #: What `/metrics` shows; None where it is turned off or its extra is not installed.
        self.metrics = _metrics(self) if settings.metrics else None
        if self.metrics is not None:
            self._observers.append(self.metrics)

    @property
    def ready(self) -> bool:
        """Whether new sessions and requests are taken."""
        return self.status == "ready"

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is told what happens."""
        return tuple(self._observers)

    @property
    def failing_observers(self) -> tuple[Observer, ...]:
        """Those of whom a method has failed."""
        failing = [observer for observer, _ in self._failing]
        return tuple(observer for observer in self._observers if observer in failing)

    @property
    def status(self) -> str:
        """What `/ping` says: `ready`, `loading`, `draining`, or `unavailable` while the engine
        mends itself, or does not let go of anything."""
        if self._draining:
            return "draining"
        if not self._loaded:
            return "loading"
        return "ready" if self._able else "unavailable"

    @property
    def _able(self) -> bool:
        return self.engine.healthy and not self.scheduler.stuck

    @property
    def draining(self) -> bool:
        """Whether shutdown has begun."""
        return self._draining

    @property
    def guests(self) -> int:
        """How many sessions and requests are open."""
        return len(self._guests)

    @property
    def sessions(self) -> int:
        """How many WebSocket sessions are open."""
        return self._sessions

    @property
    def profiles(self) -> frozenset[str]:
        """What is claimed: the settings' profiles, less `timing` where the engine has no times."""
        unable = frozenset() if self.engine.times_words else frozenset({"timing"})
        return self.settings.profiles - unable

    def options(self) -> EndpointOptions:
        """What the protocol core needs to know of this endpoint, for a new session."""
        settings, engine = self.settings, self.engine
        return EndpointOptions(
            voices=engine.voices,
            formats=tuple(self._offer),
            default_format=DEFAULT_FORMAT,
            sample_rates=self._offer[DEFAULT_FORMAT],
            default_sample_rate=DEFAULT_SAMPLE_RATE,
            format_sample_rates=self._offer,
            profiles=self.profiles,
            limits=Limits(
                max_text_chars=settings.max_text_chars,
                max_message_bytes=settings.max_message_bytes,
                max_request_id_chars=settings.max_request_id_chars,
                max_waiting=settings.max_waiting,
                idle_timeout_s=settings.idle_timeout_s,
                min_speed=MIN_SPEED,
                max_speed=MAX_SPEED,
            ),
            shutdown_s=settings.shutdown_timeout_s,
            session_id=secrets.token_hex(8),
        )

    def rendering(self, text: str, speed: float, record: UtteranceRecord) -> Rendering:
        """Speech on its way to bytes, in voice, format and rate of ``record``; all are offered."""
        rates, sample_rate = self._engine_rates, record.sample_rate
        # From a higher rate nothing is lost; from a lower one what it does not have.
        higher = sorted(rate for rate in rates if rate >= sample_rate)
        spoken_at = higher[0] if higher else max(rates)
        request = SpeechRequest(text=text, voice=record.voice, speed=speed, sample_rate=spoken_at)
        return Rendering(
            self.scheduler,
            self._workshop,
            request,
            record,
            format=record.format,
            sample_rate=sample_rate,
        )

    def refusal(self, *, inside: bool = False) -> tuple[str, str] | None:
        """Why a request cannot be taken now: an error code and words for it; None if it can.

        ``inside``: it is one of the guests already, whose place is taken if it is no more than
        the last one.
        """
        if self._draining:
            return "going_away", "the endpoint is shutting down"
        if not self._loaded:
            return "overloaded", "the endpoint is still loading"
        if not self._able:
            return "overloaded", "the engine is not available at the moment"
        seated = len(self._guests) - self._receiving
        if seated + (not inside) > self.settings.max_sessions:
            return _FULL
        return None

    def overload_s(self, request: Synthesize, listener: Listener | None = None) -> float | None:
        """None if the queue of the whole server has room for ``request`` of ``listener``, who is
        new where None; else after how many seconds it may have."""
        return self.scheduler.backlog.overload(len(request.text), listener)

    def refusal_to_receive(self) -> tuple[str, str] | None:
        """Why a request cannot even be received now, in the same way."""
        full = self._receiving >= self.settings.max_sessions
        return self.refusal() or (_FULL if full else None)

    def observe(self, observer: Observer) -> None:
        """Tell ``observer``, too, from now on."""
        self._observers.append(observer)

    def tell(self, what: str, *details: Any) -> None:
        """Call the method ``what`` of each observer."""
        for observer in tuple(self._observers):
            try:
                getattr(observer, what)(*details)
            except Exception as error:
                # What counts must not stop counting for one odd case, nor fill the log.
                if (observer, what) not in self._failing:
                    self._failing.add((observer, what))
                    name = type(observer).__name__
                    log_event("observer_failed", observer=name, method=what, **whereabouts(error))

    def session_opened(self) -> None:
        """A WebSocket session was accepted."""
        self._sessions += 1
        self.tell("session_opened")

    def session_closed(self, reason: str, duration_s: float) -> None:
        """A session that was opened is over."""
        self._sessions -= 1
        self.tell("session_closed", reason, duration_s)

    def made(self, record: UtteranceRecord, speech_s: float, now: float) -> None:
        """Speech of an utterance, up to ``speech_s`` seconds of it, is ready to leave."""
        if record.made(speech_s, now):
            self.tell("first_byte", record)

    def ended(
        self, record: UtteranceRecord, outcome: Outcome, now: float, code: str | None = None
    ) -> None:
        """An accepted utterance has ended; ``code`` is that of the error its client is told.

        :raises RuntimeError: if it had ended before.
        """
        record.end(outcome, now, code)
        if code is not None:
            self.tell("error", code)
        self.tell("ended", record)

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """While the block runs, one of the guests has no place yet: its request is on its way.

        Who sends slowly, or never sends the rest, so takes no place from those who are served;
        as many as there are places can be received at a time.
        """
        self._receiving += 1
        try:
            yield
        finally:
            self._receiving -= 1

    @contextmanager
    def hosting(self, guest: Guest) -> Iterator[None]:
        """Count ``guest`` while the block runs."""
        self._guests.add(guest)
        self._empty.clear()
        try:
            yield
        finally:
            self._guests.discard(guest)
            if not self._guests:
                self._empty.set()

    def load(self) -> None:
        """Start the engine in the background; ``ready`` turns true when it is loaded."""
        self._loading = asyncio.create_task(self._load(), name="engine-start")

    async def loaded(self) -> None:
        """Return when the engine is loaded, or could not be; at once if nothing loads it."""
        if self._loading is not None:
            await asyncio.wait({self._loading})

    async def _load(self) -> None:
        try:
            await self.engine.start()
        except Exception as error:
            # Nothing has been spoken yet, so that the words cannot be a client's.
            log_event("engine_failed", **whereabouts(error), message=" ".join(str(error).split()))
            self.failed.set()
            return
        self._loaded = True
        log_event("ready", engine=self.engine.name)

    async def unload(self) -> None:
        """Stop the engine, also one that is still loading."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})
        self._loaded = False
        await self.scheduler.close()
        # What is being encoded is done within milliseconds, and nobody waits for it any more.
        self._workshop.shutdown(wait=False)
        try:
            await self.engine.stop()
        except Exception as error:
            log_event("engine_stop_failed", **whereabouts(error))

    async def drain(self) -> None:
        """Take nobody new, let the guests finish, and return when all have left.

        At the shutdown deadline requests are cut off and the core ends what is left of each
        session; the wait for its client to close comes on top.
        """
        self._draining = True
        log_event("draining", guests=len(self._guests), timeout_s=self.settings.shutdown_timeout_s)
        for guest in tuple(self._guests):
            guest.shut_down()
        try:
            async with asyncio.timeout(self.settings.shutdown_timeout_s):
                await self._empty.wait()
        except TimeoutError:
            for guest in tuple(self._guests):
                guest.cut_off()
            try:
                async with asyncio.timeout(LEAVING_S):
                    await self._empty.wait()
            except TimeoutError:
                log_event("guests_left", guests=len(self._guests))


def _checked_rates(engine: Engine) -> tuple[int, ...]:
    """The rates that an engine speaks at.

    :raises ValueError: if they are none, or the default cannot be made of them.
    """
    rates = tuple(engine.sample_rates)
    if not rates or len(set(rates)) != len(rates) or any(rate < 1 for rate in rates):
        raise ValueError(
            f"engine {engine.name!r} does not fit: its sample rates are {rates}; each is named"
            " once, and above 0"
        )
    if DEFAULT_SAMPLE_RATE not in rates and not resamples():
        raise ValueError(
            f"engine {engine.name!r} lacks the sample rate {DEFAULT_SAMPLE_RATE}, and nothing can"
            " resample; pip install 'utterwire[encoders]'"
        )
    return rates


def _metrics(service: Service) -> Metrics | None:
    try:
        from utterwire_server.metrics import Metrics
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        return None
    return Metrics(service)
