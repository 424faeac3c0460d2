"""Looking over an endpoint as a client meets it: what works, and what to do about the rest."""

import asyncio
import contextlib
import importlib
import ssl as tls
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from utterwire_client.address import HTTP_PATH, http_url, is_loopback, is_sagemaker, session_url
from utterwire_client.deadlines import Deadlines
from utterwire_client.endpoints import Endpoint
from utterwire_client.errors import (
    DeadlineExceeded,
    ExtraMissing,
    InterruptUnavailable,
    PeerViolation,
    SessionLost,
    UtteranceCancelled,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, EndpointInfo, Marks, Start
from utterwire_client.session import Session, connect
from utterwire_client.sound import SoundFinder

__all__ = ["Examination", "Finding", "Grade"]

#: ``ok``; ``note`` can be better; ``bad`` is broken; ``none`` is not there, and need not be.
Grade = Literal["ok", "note", "bad", "none"]

_SHORT = "Good morning."
_LONG = "This is a longer text, so that there is time to stop in the middle of it. " * 4
_TRIES = 3
_MAX_CHUNK_BYTES = 65_536
_SLOW_FIRST_BYTE_S = 0.5
_LONG_CHUNK_S = 0.5
_SKEW_S = 5.0
_EXPIRY_DAYS = 14


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and what to do where it could be better."""

    grade: Grade
    subject: str
    told: str
    advice: str | None = None


@dataclass(slots=True)
class _Probe:
    """What came of one utterance."""

    first_byte_s: float | None = None
    silence_s: float | None = None
    elapsed_s: float | None = None
    duration_s: float | None = None
    marks: int = 0
    start: Start | None = None
    chunks: list[int] = field(default_factory=list)


class Examination:
    """Looks over one endpoint. It has some short texts spoken, and one that it stops.

    ``headers`` and ``ssl`` are as for :class:`~utterwire_client.session.connect`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        headers: Sequence[tuple[str, str]] = (),
        ssl: tls.SSLContext | None = None,
        deadlines: Deadlines | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._endpoint = endpoint
        self._url = endpoint.url
        self._headers = list(headers)
        self._ssl = ssl
        self._deadlines = deadlines or Deadlines()
        self._now = now
        self._violations: dict[str, str] = {}
        self._version_1 = False
        self._info: EndpointInfo | None = None
        self._shown: dict[str, bool] = {}

    async def run(self) -> AsyncIterator[Finding]:
        """Yields each finding as soon as it is known. Raises the error by which there is no session
        at all."""
        for look in (
            self._sessions,
            self._profiles,
            self._transport_security,
            self._clock,
            self._compression,
            self._rules,
        ):
            for finding in await look():
                yield finding

    # -- sessions

    def _connect(self, *, negotiate: bool = False) -> connect:
        return connect(
            self._url,
            headers=self._headers,
            ssl=self._ssl,
            deadlines=self._deadlines,
            negotiate=negotiate,
            on_violation=self._note,
        )

    def _note(self, violation: PeerViolation) -> None:
        self._violations.setdefault(violation.requirement, str(violation))

    async def _sessions(self) -> list[Finding]:
        # Loaded before anything is timed.
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("utterwire_client.websocket")
        begun = time.monotonic()
        probes: list[_Probe] = []
        failure: UtterwireError | None = None
        async with self._connect() as session:
            opened_s = time.monotonic() - begun
            try:
                while len(probes) < _TRIES:
                    probes.append(await self._speak(session, _SHORT))
            except UtterwireError as exc:
                failure = exc
            self._version_1 = session.interruptible is True
        found = [Finding("ok", "reachable", f"a session opens in {_ms(opened_s)}")]
        if failure is not None:
            found.append(self._failed(failure, after=len(probes)))
        self._shown["core"] = failure is None or bool(probes)
        return found + (self._speed(probes) if probes else [])

    def _failed(self, failure: UtterwireError, *, after: int) -> Finding:
        if after and isinstance(failure, SessionLost):
            advice = "keep it open after an utterance: connecting anew costs each sentence time"
            return Finding("note", "session", f"it ended after {after}: {failure}", advice)
        advice = "look into the endpoint's log"
        if isinstance(failure, DeadlineExceeded):
            advice += ", or give it more time by --timeout"
        return Finding("bad", "speech", str(failure), advice)

    async def _speak(
        self, session: Session, text: str, marks: Sequence[str] | None = None
    ) -> _Probe:
        utterance = session.synthesize(text, voice=self._endpoint.voice, marks=marks)
        sent_at = asyncio.get_running_loop().time()
        probe = _Probe()
        finder: SoundFinder | None = None
        async for event in utterance:
            match event:
                case Start():
                    probe.start = event
                    if event.format == "pcm_s16le":
                        finder = SoundFinder(event.sample_rate)
                case Audio():
                    probe.chunks.append(len(event.data))
                    if finder is not None:
                        probe.silence_s = finder.feed(event.data)
                case Marks():
                    probe.marks += len(event.words)
                case Complete():
                    probe.elapsed_s, probe.duration_s = event.elapsed_s, event.duration_s
        if (came_at := utterance.inbox.first_audio_at) is not None:
            probe.first_byte_s = came_at - sent_at
        return probe

    def _speed(self, probes: list[_Probe]) -> list[Finding]:
        firsts = [probe.first_byte_s for probe in probes if probe.first_byte_s is not None]
        if not firsts:
            advice = "see whether the voice speaks, and the engine's log"
            return [Finding("bad", "first byte", f"no audio came of {_SHORT!r}", advice)]
        first_byte_s = statistics.median(firsts)
        told = f"{_ms(first_byte_s)}, median of {len(firsts)} (the first {_ms(firsts[0])})"
        slow = first_byte_s > _SLOW_FIRST_BYTE_S
        found = [
            Finding(
                "note" if slow else "ok",
                "first byte",
                told,
                "it should stream: audio leaves as it is made, not when all of it is"
                if slow
                else None,
            )
        ]
        silences = [probe.silence_s for probe in probes if probe.silence_s is not None]
        if silences:
            silence_s = statistics.median(silences)
            long = silence_s > 0.3
            found.append(
                Finding(
                    "note" if long else "ok",
                    "first sound",
                    f"{_ms(first_byte_s + silence_s)} ({_ms(silence_s)} of silence first)",
                    "cut the silence that the audio begins with" if long else None,
                )
            )
        works = [
            probe.elapsed_s / probe.duration_s
            for probe in probes
            if probe.elapsed_s is not None and probe.duration_s
        ]
        if works:
            factor = statistics.median(works)
            grade: Grade = "bad" if factor >= 1 else "note" if factor > 0.7 else "ok"
            gaps = None if grade == "ok" else "it is hardly faster than speech: expect gaps"
            found.append(Finding(grade, "real-time factor", f"{factor:.3f}", gaps))
        return [*found, self._chunks(probes)]

    def _chunks(self, probes: list[_Probe]) -> Finding:
        sizes = [size for probe in probes for size in probe.chunks]
        start = probes[0].start
        middle = statistics.median(sizes)
        told = f"{min(sizes)} to {max(sizes)} bytes, median {middle:g}"
        if max(sizes) > _MAX_CHUNK_BYTES:
            limit = f"cut audio to {_MAX_CHUNK_BYTES} bytes at most: clients refuse large frames"
            return Finding("bad", "chunks", told, limit)
        if start is not None and start.format == "pcm_s16le":
            seconds = middle / (2 * start.sample_rate)
            told += f" ({_ms(seconds)} of audio)"
            if seconds > _LONG_CHUNK_S:
                advice = "send smaller chunks: each is waited for, and heard after an interruption"
                return Finding("note", "chunks", told, advice)
        return Finding("ok", "chunks", told)

    # -- profiles

    async def _profiles(self) -> list[Finding]:
        found: list[Finding] = []
        if not self._shown["core"]:
            return found
        if self._version_1:
            found += await self._negotiate()
            found.append(await self._interrupt())
            found.append(await self._timing())
        else:
            found.append(
                Finding(
                    "note",
                    "version",
                    "it does not speak version 1 (no `seq`): an endpoint from before",
                    "see protocol.md#deployed-endpoints for what clients do without",
                )
            )
        found += [await self._http("http"), await self._http("sse")]
        claimed = None if self._info is None else self._info.profiles
        for profile in sorted(claimed or ()):
            if self._shown.get(profile) is False:
                found.append(
                    Finding(
                        "bad",
                        "claims",
                        f"it claims `{profile}`, which does not work",
                        f"mend it, or claim it no more; run utterwire-conformance for {profile}",
                    )
                )
        return found

    async def _negotiate(self) -> list[Finding]:
        try:
            async with self._connect(negotiate=True) as session:
                self._info = info = session.info
        except UtterwireError as exc:
            return [Finding("note", "negotiate", str(exc), "answer `hello` as the spec has it")]
        if info is None:
            return [Finding("none", "negotiate", "it does not say what it offers")]
        self._shown["negotiate"] = True
        offers = f"{', '.join(info.formats) or 'no formats told'}; voices: {len(info.voices)}"
        return [
            Finding("ok", "claims", ", ".join(sorted(info.profiles)) or "nothing"),
            Finding("ok", "offers", offers),
        ]

    async def _interrupt(self) -> Finding:
        advice = "without it an interruption costs the session: see protocol.md#cancel"
        try:
            async with self._connect() as session:
                utterance = session.synthesize(_LONG, voice=self._endpoint.voice)
                async for event in utterance:
                    if isinstance(event, Audio):
                        break
                asked_at = time.monotonic()
                count = await session.cancel()
                took_s = time.monotonic() - asked_at
                with contextlib.suppress(UtteranceCancelled):
                    async for _ in utterance:
                        pass
        except InterruptUnavailable:
            self._shown["interrupt"] = False
            return Finding("note", "interrupt", "it cannot be told to stop", advice)
        except UtterwireError as exc:
            self._shown["interrupt"] = False
            return Finding("bad", "interrupt", str(exc), advice)
        self._shown["interrupt"] = True
        if not count:
            told = f"answered in {_ms(took_s)}; all had been sent by then"
            return Finding("ok", "interrupt", told)
        return Finding("ok", "interrupt", f"silent in {_ms(took_s)}")

    async def _timing(self) -> Finding:
        try:
            async with self._connect() as session:
                probe = await self._speak(session, _SHORT, ["word"])
        except UtterwireError as exc:
            return Finding("bad", "timing", str(exc), "ignore `marks` where they are not known")
        self._shown["timing"] = probe.marks > 0
        if probe.marks:
            return Finding("ok", "timing", f"words of {_SHORT!r} that were timed: {probe.marks}")
        return Finding("none", "timing", "it times no words: interruptions are cut by proportion")

    async def _http(self, transport: Literal["http", "sse"]) -> Finding:
        try:
            from utterwire_client.http import http_utterance
        except ModuleNotFoundError:
            raise ExtraMissing("HTTP needs httpx: pip install 'utterwire[client]'") from None
        chunks = 0
        try:
            events = http_utterance(
                self._url,
                _SHORT,
                transport=transport,
                voice=self._endpoint.voice,
                headers=self._headers,
                ssl=self._ssl,
                deadlines=self._deadlines,
                on_violation=self._note,
            )
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, Audio):
                        chunks += 1
        except UtterwireError as exc:
            self._shown[transport] = False
            return Finding("none", transport, str(exc))
        self._shown[transport] = True
        if not chunks:
            return Finding("note", transport, "no audio came", "see the endpoint's log")
        return Finding("ok", transport, f"{_SHORT!r} came in {chunks} pieces")

    # -- the way there

    async def _transport_security(self) -> list[Finding]:
        if is_sagemaker(self._url):
            return []
        address = session_url(self._url)
        parts = urlsplit(address)
        if parts.scheme != "wss":
            if is_loopback(address):
                return [Finding("none", "TLS", "none, on this machine itself")]
            advice = "use wss://: text, audio and tokens are readable on their way"
            return [Finding("note", "TLS", "none", advice)]
        try:
            async with asyncio.timeout(self._deadlines.connect_s):
                _, writer = await asyncio.open_connection(
                    parts.hostname, parts.port or 443, ssl=self._ssl or tls.create_default_context()
                )
        except (OSError, TimeoutError) as exc:
            # Through a proxy, say: the session went another way.
            told = f"not seen ({type(exc).__name__} on a direct connection)"
            return [Finding("none", "TLS", told)]
        try:
            spoken = writer.get_extra_info("ssl_object")
            version, expires = spoken.version(), spoken.getpeercert().get("notAfter")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        if not expires:
            return [Finding("ok", "TLS", str(version))]
        left = tls.cert_time_to_seconds(expires) - self._now().timestamp()
        days = int(left // 86_400)
        told = f"{version}, certificate good for {days} days"
        if days < _EXPIRY_DAYS:
            return [Finding("note", "TLS", told, "renew the certificate")]
        return [Finding("ok", "TLS", told)]

    def _ping_url(self) -> str:
        parts = urlsplit(http_url(self._url))
        path = parts.path.removesuffix(HTTP_PATH) + "/ping"
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))

    async def _clock(self) -> list[Finding]:
        if is_sagemaker(self._url):
            return []
        try:
            import httpx
        except ModuleNotFoundError:
            return []
        client = httpx.AsyncClient(
            verify=True if self._ssl is None else self._ssl,
            follow_redirects=False,
            trust_env=not is_loopback(session_url(self._url)),
            timeout=self._deadlines.connect_s,
        )
        try:
            async with client:
                before = self._now()
                # What it says beside its head is of no interest, however much that is.
                async with client.stream("GET", self._ping_url(), headers=self._headers) as answer:
                    after = self._now()
        except httpx.HTTPError as exc:
            return [Finding("none", "ping", f"GET /ping: {type(exc).__name__}")]
        found = []
        if answer.status_code == 200:
            found.append(Finding("ok", "ping", "200"))
        else:
            asked = "GET /ping should say 200: platforms ask it whether the endpoint is well"
            found.append(Finding("note", "ping", f"HTTP {answer.status_code}", asked))
        try:
            told = parsedate_to_datetime(answer.headers["date"])
        except (KeyError, ValueError, OverflowError):
            return [*found, Finding("none", "clock", "it tells no time (`Date`)")]
        if told.tzinfo is None:  # it says -0000
            told = told.replace(tzinfo=UTC)
        # The header has whole seconds: any within one of the exchange is right.
        early = (before - told).total_seconds() - 1
        late = (told - after).total_seconds()
        skew_s = max(early, late, 0.0)
        which = "behind" if early > 0 else "ahead of"
        if skew_s <= 0:
            return [*found, Finding("ok", "clock", "agrees with this machine's")]
        grade: Grade = "note" if skew_s > _SKEW_S else "ok"
        advice = "set both clocks by NTP: signed requests fail by it" if grade == "note" else None
        return [*found, Finding(grade, "clock", f"{skew_s:.0f} s {which} this machine's", advice)]

    async def _compression(self) -> list[Finding]:
        """Whether the endpoint would compress audio, were it let to."""
        if is_sagemaker(self._url):
            return []
        from websockets.asyncio.client import connect as open_websocket
        from websockets.exceptions import WebSocketException

        address = session_url(self._url)
        try:
            async with open_websocket(
                address,
                compression="deflate",
                additional_headers=self._headers,
                ssl=(self._ssl or True) if address.startswith("wss:") else None,
                proxy=None if is_loopback(address) else True,
                open_timeout=self._deadlines.connect_s,
                close_timeout=self._deadlines.close_s,
            ) as socket:
                answer = socket.response
        except (OSError, TimeoutError, WebSocketException):
            return []
        on = answer is not None and "Sec-WebSocket-Extensions" in answer.headers
        if on:
            advice = "turn permessage-deflate off: audio gets hardly smaller and much slower by it"
            return [Finding("note", "compression", "on where clients offer it", advice)]
        return [Finding("ok", "compression", "off, as it should be")]

    async def _rules(self) -> list[Finding]:
        advice = "run utterwire-conformance to see all of it"
        return [
            Finding("bad", "rules", f"{message} [{requirement}]", advice)
            for requirement, message in self._violations.items()
        ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
