"""What a scenario plays on: sessions and exchanges with one endpoint, texts, patience, budget."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from .claims import EndpointClaims
from .dialogue import Utterance
from .driver import ConnectFailed, HandshakeRefused, HttpConnection, Recorder, WebSocketSession
from .endpoints import Budget, Endpoint
from .target import Instance, LaunchFailed, Target
from .transcript import Transcript

__all__ = [
    "HOLDING_CHARACTERS",
    "LONGEST_TEXT",
    "MOST_IN_VAIN",
    "SCENARIOS",
    "SMALL_BUFFER",
    "Meter",
    "Pace",
    "Relay",
    "Scenario",
    "Stage",
    "Texts",
    "Unplayable",
    "play",
    "scenario",
]

SMALL_BUFFER: Final = 16_384
"""A receive buffer, in bytes, that fills within a second of speech."""

HOLDING_CHARACTERS: Final = 600
"""Length of a text whose speech is far more than may wait unsent."""

MOST_IN_VAIN: Final = 6
"""After so many waits in vain the suite loses its patience with an endpoint."""

LONGEST_TEXT: Final = 4096
"""Length of the longest text that scenarios have spoken, short of limits an endpoint claims."""

_SCENARIO_LIMIT_S: Final = 60.0
# For an endpoint that did not even end a first utterance.
_HOPELESS_LIMIT_S: Final = 10.0
_HOPELESS_BYTES: Final = 512 * 1024
_TO_READ_S: Final = 0.3
_HOPELESS_FRAMES: Final = 1_000


class Unplayable(Exception):
    """A scenario cannot be played on to its end, for a reason that is not the suite's fault."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait, in seconds.

    `connect` for a connection, `first` for the first chunk of an answer, `stall` between two
    chunks. `rtt` is the measured round trip, `character` the measured time to speak one.
    """

    connect: float = 10.0
    first: float = 30.0
    stall: float = 30.0
    rtt: float = 0.0
    character: float = 0.0

    def measured(
        self, rtt: float, first_byte: float | None, character: float, *, players: int
    ) -> Pace:
        """The pace for an endpoint that took so long for a ping, a first chunk, and a character.

        `players` sessions run at a time, and an endpoint may serve them one after the other, the
        longest text first. Without a first byte the endpoint is taken to be stuck, and is not
        waited for again and again. What this pace was before is the most that is waited.
        """
        if first_byte is None:
            return Pace(self.connect, min(self.first, 2.0), min(self.stall, 2.0), rtt)
        wait = max(
            5.0,
            10.0 * players * (first_byte + rtt),
            players * character * LONGEST_TEXT,
        )
        return Pace(self.connect, min(self.first, wait), min(self.stall, wait), rtt, character)

    def whole(self, characters: int, *, players: int = 6) -> float:
        """How long to wait for an answer that comes only when all of it is made."""
        return self.first + 2.0 * players * self.character * characters


class Meter:
    """Counts what a run costs and stops it where the budget ends."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.characters = 0
        self.sessions = 0
        self.vain = 0
        """How often the endpoint was waited for in vain."""
        self.hopeless = False
        """Whether the endpoint did not end a first, plain utterance, whatever else it sends."""
        self._next_request = 0.0

    async def spend(self, *, characters: int = 0, sessions: int = 0) -> None:
        """Take something from the budget; wait where requests are limited by the second.

        Raises:
            Unplayable: there is not enough left.
        """
        budget = self.budget
        if budget.characters is not None and self.characters + characters > budget.characters:
            raise Unplayable(f"the budget of {budget.characters} characters is spent")
        if budget.sessions is not None and self.sessions + sessions > budget.sessions:
            raise Unplayable(f"the budget of {budget.sessions} sessions is spent")
        self.characters += characters
        self.sessions += sessions
        if budget.requests_per_second is not None and characters:
            now = asyncio.get_running_loop().time()
            due = max(now, self._next_request)
            self._next_request = due + 1.0 / budget.requests_per_second
            await asyncio.sleep(due - now)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that the endpoint speaks well, all made from its samples."""

    samples: tuple[str, ...]

    def sample(self, number: int = 0) -> str:
        """One of the samples."""
        return self.samples[number % len(self.samples)]

    @property
    def shortest(self) -> str:
        """The sample that costs least."""
        return min(self.samples, key=len)

    def of_length(self, characters: int, *, first: int = 0) -> str:
        """A text of exactly so many code points, its ends not blank."""
        text = ""
        number = first
        while len(text) < characters:
            text += self.sample(number) + " "
            number += 1
        text = text[:characters]
        # White space at the end might be trimmed; a repeated character never is.
        return text.rstrip() + self.samples[0][0] * (characters - len(text.rstrip()))


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something to play: `play` drives the endpoint and judges nothing.

    `launches` marks those that need an instance of their own to stop.
    """

    name: str
    profile: str
    play: Callable[[Stage], Awaitable[None]]
    launches: bool = False
    limit_s: float = _SCENARIO_LIMIT_S
    long: bool = False
    heavy: bool = False


SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(
    *,
    profile: str = "core",
    launches: bool = False,
    limit_s: float = _SCENARIO_LIMIT_S,
    long: bool = False,
    heavy: bool = False,
) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Stage], Awaitable[None]]]:
    """Register a scenario under its function's name, `_` as `-`.

    `long` marks those that wait a lot, so that they are begun first; `heavy` those with thousands
    of characters to speak, so that they come last and a small budget goes far.
    """

    def register(
        function: Callable[[Stage], Awaitable[None]],
    ) -> Callable[[Stage], Awaitable[None]]:
        name = function.__name__.replace("_", "-")
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        SCENARIOS[name] = Scenario(name, profile, function, launches, limit_s, long, heavy)
        return function

    return register


@dataclass(slots=True)
class Stage:
    """One scenario's access to the endpoint; all that is done through it is recorded."""

    target: Target
    transcript: Transcript
    recorder: Recorder
    full_pace: Pace
    meter: Meter
    texts: Texts
    instance: Instance
    _ids: int = field(default=0)

    @property
    def pace(self) -> Pace:
        """How long to wait; less and less for an endpoint that was waited for in vain."""
        if self.meter.vain < MOST_IN_VAIN:
            return self.full_pace
        pace = self.full_pace
        return replace(pace, first=min(pace.first, 1.0), stall=min(pace.stall, 1.0))

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint, as its file describes it."""
        return self.target.endpoint

    @property
    def claims(self) -> EndpointClaims:
        """What it claims."""
        return self.endpoint.claims

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS settings."""
        return self.target.context

    def request(self, text: str, **fields: Any) -> dict[str, Any]:
        """A request to speak, with the voice the endpoint file names unless another is given."""
        body: dict[str, Any] = {"text": text}
        if self.endpoint.voice is not None:
            body["voice"] = self.endpoint.voice
        return body | fields

    def new_id(self) -> str:
        """A request id not used before in this scenario."""
        self._ids += 1
        return f"{self.transcript.scenario}-{self._ids}"

    async def session(
        self,
        *,
        instance: Instance | None = None,
        receive_buffer: int | None = None,
        extensions: str | None = None,
    ) -> WebSocketSession:
        """Open a session.

        Raises:
            ConnectFailed: there is no transport.
            HandshakeRefused: an HTTP answer came that opens no session.
            Unplayable: the budget is spent.
        """
        await self.meter.spend(sessions=1)
        opened = await WebSocketSession.open(
            (instance or self.instance).ws_url,
            self.recorder,
            self.claims,
            headers=self.endpoint.headers,
            extensions=extensions,
            context=self.context,
            within=self.pace.connect,
            receive_buffer=receive_buffer,
        )
        opened.gate = self._gate
        if self.meter.hopeless:
            opened.most_bytes, opened.most_frames = _HOPELESS_BYTES, _HOPELESS_FRAMES
        return opened

    async def http(
        self, *, instance: Instance | None = None, receive_buffer: int | None = None
    ) -> HttpConnection:
        """Open a connection for HTTP exchanges.

        Raises:
            ConnectFailed: there is no transport.
            Unplayable: the budget is spent.
        """
        await self.meter.spend(sessions=1)
        opened = await HttpConnection.open(
            (instance or self.instance).http_url,
            self.recorder,
            headers=self.endpoint.headers,
            context=self.context,
            within=self.pace.connect,
            receive_buffer=receive_buffer,
        )
        opened.gate = self._gate
        if self.meter.hopeless:
            opened.most_bytes = _HOPELESS_BYTES
        return opened

    async def _gate(self, characters: int) -> None:
        await self.meter.spend(characters=characters)

    async def ended(self, session: WebSocketSession, *seqs: int) -> bool:
        """Wait until every one of these messages was rejected or came to its end.

        Where that does not happen though the session lives, the transcript says so.
        """
        dialogue = session.dialogue
        await session.until(
            lambda: (
                all(session.utterance(seq).ended for seq in seqs)
                or dialogue.session_closed is not None
            ),
            within=self.pace.first,
            stall=self.pace.stall,
        )
        done = all(session.utterance(seq).ended for seq in seqs)
        if not done and not dialogue.ended and dialogue.session_closed is None:
            self.meter.vain += 1
            unended = [seq for seq in seqs if not session.utterance(seq).ended]
            asked = [s for s in unended if dialogue.sent[s - 1].meaning.type in ("cancel", "hello")]
            spoken = [seq for seq in unended if seq not in asked]
            for remark, left in (("in vain", spoken), ("unanswered", asked)):
                if left:
                    session.note(f"{remark}: {','.join(map(str, left))}")
        return done

    async def started(self, session: WebSocketSession, seq: int) -> bool:
        """Wait until the utterance has started, and tell whether it did."""
        await session.until(
            lambda: session.utterance(seq).answered or session.dialogue.session_closed is not None,
            within=self.pace.first,
            stall=self.pace.stall,
        )
        return session.utterance(seq).start is not None

    async def is_over(self, session: WebSocketSession) -> bool:
        """Whether the endpoint has hung up; one just done gets a round trip to show itself."""
        dialogue = session.dialogue
        if dialogue.chunks and dialogue.chunks[-1].is_terminal:
            await session.until(lambda: dialogue.ended, within=0.02 + 2 * self.pace.rtt)
        closed = dialogue.close_in is not None or dialogue.session_closed is not None
        return dialogue.ended or closed

    async def let_it_read(self) -> None:
        """Wait until the endpoint should have read what was sent, though we do not read."""
        await asyncio.sleep(_TO_READ_S + 2 * self.pace.rtt)

    def relay(self) -> Relay:
        """Sessions for messages that may be sent in one or in several."""
        return Relay(self)

    async def hold(
        self,
        session: WebSocketSession,
        *,
        first: int = 0,
        characters: int = HOLDING_CHARACTERS,
        **fields: Any,
    ) -> int:
        """Start a long utterance and stop reading, so that it cannot end; give back its `seq`.

        `session` should have been opened with a small receive buffer. `session.resume()` lets the
        utterance go on.

        Raises:
            Unplayable: it did not start.
        """
        text = self.texts.of_length(characters, first=first)
        seq = await session.send(self.request(text, **fields))
        if not await self.started(session, seq):
            raise Unplayable("a long utterance, needed to keep the endpoint busy, did not start")
        session.pause()
        return seq

    async def farewell(self, session: WebSocketSession) -> bool:
        """Wait for `session_closed`; where it does not come, the transcript says so."""
        dialogue = session.dialogue
        done = await session.until(
            lambda: dialogue.session_closed is not None,
            within=self.pace.first,
            stall=self.pace.stall,
        )
        if not done and not dialogue.ended:
            self.meter.vain += 1
            session.note("no session_closed: waited in vain")
        return done

    async def speak(self, session: WebSocketSession, text: str, **fields: Any) -> Utterance:
        """Send one request and wait for its end."""
        seq = await session.send(self.request(text, **fields))
        await self.ended(session, seq)
        return session.utterance(seq)

    async def post(
        self,
        body: dict[str, Any] | bytes,
        *,
        headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),),
        instance: Instance | None = None,
        case: Any = None,
    ) -> HttpConnection:
        """One whole exchange on `POST /invocations` over a connection of its own."""
        octets = body if isinstance(body, bytes) else json.dumps(body).encode()
        text = body.get("text") if isinstance(body, dict) else None
        connection = await self.http(instance=instance)
        async with connection:
            if case is not None:
                self.recorder.case(case, connection.session)
            await connection.send(
                "POST",
                "/invocations",
                octets,
                headers=headers,
                characters=len(text) if isinstance(text, str) else 0,
            )
            spoken = len(text) if isinstance(text, str) else 0
            if await connection.head(within=self.pace.whole(spoken)) is not None:
                await connection.read(within=self.pace.stall)
        return connection


class Relay:
    """One session as long as it lives, then another, so that an endpoint that ends sessions too
    early is asked everything all the same. An asynchronous context manager."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._current: WebSocketSession | None = None

    async def session(self) -> WebSocketSession:
        """A session that is alive."""
        if self._current is not None and await self._stage.is_over(self._current):
            await self._current.end()
            self._current = None
        if self._current is None:
            self._current = await self._stage.session()
        return self._current

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._current is not None:
            await self._current.__aexit__(kind, error, trace)


def _first_of(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def play(
    scenario: Scenario, target: Target, instance: Instance, pace: Pace, meter: Meter
) -> Transcript:
    """Play one scenario and give back its transcript, whatever happens on the way."""
    endpoint = target.endpoint
    transcript = Transcript(
        scenario.name,
        endpoint.name,
        endpoint.claims,
        datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
    recorder = Recorder(transcript, endpoint.secrets)
    stage = Stage(target, transcript, recorder, pace, meter, Texts(endpoint.text_samples), instance)
    # A slow endpoint gets more time for the whole, as it does for each part.
    limit = scenario.limit_s + 10.0 * max(0.0, pace.first - 5.0)
    if meter.hopeless:
        limit = _HOPELESS_LIMIT_S
    try:
        async with asyncio.timeout(limit):
            try:
                await scenario.play(stage)
            except ExceptionGroup as group:
                # Sessions that were played side by side: the first failure tells.
                raise _first_of(group) from group
    except Unplayable as error:
        transcript.unfinished = str(error)
    except TimeoutError:
        transcript.unfinished = f"it was not over after {limit:g} s"
    except HandshakeRefused as error:
        if error.status in (401, 403, 407, 429) or error.status >= 500:
            transcript.broken = f"the session was refused with HTTP {error.status}"
            if error.status in (401, 403, 407):
                transcript.broken += ": does it need a header, or another one?"
        else:
            transcript.unfinished = f"no session could be opened: {error.why}"
    except (ConnectFailed, LaunchFailed) as error:
        transcript.broken = str(error)
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        line = f" (line {place.tb_lineno})" if place is not None else ""
        transcript.broken = f"the suite failed: {type(error).__name__}: {error}{line}"
    return transcript
