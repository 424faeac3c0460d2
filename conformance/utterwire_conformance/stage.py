"""What a scenario plays on: sessions and exchanges with one endpoint, texts, patience, budget."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from .claims import EndpointClaims
from .dialogue import STOOD_STILL, Utterance
from .driver import (
    ConnectFailed,
    HandshakeRefused,
    HttpConnection,
    NotCarried,
    Recorder,
    WebSocketSession,
)
from .endpoints import Budget, Endpoint
from .places import Places
from .target import Instance, LaunchFailed, Target
from .transcript import Transcript
from .via import SageMakerTarget

__all__ = [
    "HOLDING_CHARACTERS",
    "LONGEST_TEXT",
    "MOST_IN_VAIN",
    "SCENARIOS",
    "SMALL_BUFFER",
    "Crowded",
    "Meter",
    "NoPlace",
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
_HOPELESS_LIMIT_S: Final = 6.0
_HOPELESS_BYTES: Final = 512 * 1024
_TO_READ_S: Final = 0.3
_PULSE_S: Final = 0.1
_STANDSTILL_S: Final = 0.5
_HOPELESS_FRAMES: Final = 1_000
# Asking again for a place.
_NO_ROOM: Final = (429, 503)
_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 2.0
_FOR_OTHERS_S: Final = 1.0
_FOR_OWN_S: Final = 3.0
_FOR_ROOM_S: Final = 10.0
_LONGEST_RETRY_AFTER_S: Final = 30.0
_MOST_REFUSED: Final = 3
_MOST_REPLAYS: Final = 5


class Unplayable(Exception):
    """A scenario cannot be played on to its end, for a reason that is not the suite's fault."""


class NoPlace(Unplayable):
    """More connections would be needed at a time than the endpoint takes."""

    def __init__(self, needed: int, limit: int) -> None:
        connections = "1 connection" if limit == 1 else f"{limit} connections"
        super().__init__(
            f"it needs {needed} connections at a time, and the endpoint takes {connections}"
        )


class Crowded(Exception):
    """A scenario needs so many places, and others have them: it is played again, once it has."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"{needed} places are needed")
        self.needed = needed


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait, in seconds.

    `connect` for a connection, `first` for the first chunk of an answer, `stall` between two
    chunks; `brief` is what is left of both for an endpoint that was waited for in vain too often.
    `rtt` is the measured round trip, `character` the measured time to speak one.
    """

    connect: float = 10.0
    first: float = 30.0
    stall: float = 30.0
    rtt: float = 0.0
    character: float = 0.0
    brief: float = 1.0

    def measured(
        self, rtt: float, first_byte: float | None, character: float, *, players: int
    ) -> Pace:
        """The pace for an endpoint that took so long for a ping, a first chunk, and a character.

        `players` sessions run at a time, and an endpoint may serve them one after the other, the
        longest text first. Without a first byte the endpoint is taken to be stuck, and is not
        waited for again and again. What this pace was before is the most that is waited.
        """
        if first_byte is None:
            wait = 1.0 + 4.0 * rtt
            first, stall = min(self.first, wait), min(self.stall, wait)
            return Pace(self.connect, first, stall, rtt, brief=min(wait, 0.4 + 4.0 * rtt))
        wait = max(
            5.0,
            10.0 * players * (first_byte + rtt),
            players * character * LONGEST_TEXT,
        )
        first, stall = min(self.first, wait), min(self.stall, wait)
        # Short of patience, but never so short that an endpoint's ordinary answers come too late.
        brief = max(1.0, 2.0 * players * (first_byte + rtt))
        return Pace(self.connect, first, stall, rtt, character, brief)

    def whole(self, characters: int, *, players: int = 6) -> float:
        """How long to wait for an answer that comes only when all of it is made."""
        return self.first + 2.0 * players * self.character * characters


class Meter:
    """Counts what a run costs and stops it where the budget ends."""

    def __init__(self, budget: Budget, places: Places | None = None) -> None:
        self.budget = budget
        self.places = places or Places()
        self.characters = 0
        self.sessions = 0
        self.vain = 0
        """How often the endpoint was waited for in vain."""
        self.hopeless = False
        """Whether the endpoint did not end a first, plain utterance, whatever else it sends."""
        self.refused = 0
        """How often the endpoint let nobody in, however long it was asked."""
        self.until: float | None = None
        """When the run is to be over, by the clock of the event loop; None if it has all time."""
        self.too_late = "the time of the run was over"
        """What to say of what was not played for that."""
        self._next_request = 0.0

    @property
    def time_left(self) -> float:
        """How many seconds the run has, 0 where they are over."""
        if self.until is None:
            return math.inf
        return max(0.0, self.until - asyncio.get_running_loop().time())

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

    `launches` marks those that need an instance of their own to stop. `sessions` is how many
    connections to the endpoint it must have open at the same time.
    """

    name: str
    profile: str
    play: Callable[[Stage], Awaitable[None]]
    launches: bool = False
    limit_s: float = _SCENARIO_LIMIT_S
    long: bool = False
    heavy: bool = False
    sessions: int = 1


SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(
    *,
    profile: str = "core",
    launches: bool = False,
    limit_s: float = _SCENARIO_LIMIT_S,
    long: bool = False,
    heavy: bool = False,
    sessions: int = 1,
) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Stage], Awaitable[None]]]:
    """Register a scenario under its function's name, `_` as `-`.

    `long` marks those that wait a lot, so that they are begun first; `heavy` those with thousands
    of characters to speak, so that they come last and a small budget goes far. `sessions` is how
    many connections must be open at the same time; an endpoint that takes fewer is spared it.
    """

    def register(
        function: Callable[[Stage], Awaitable[None]],
    ) -> Callable[[Stage], Awaitable[None]]:
        name = function.__name__.replace("_", "-")
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        SCENARIOS[name] = Scenario(
            name, profile, function, launches, limit_s, long, heavy, sessions
        )
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
    held: int = 1
    """How many places at the endpoint are kept for this scenario."""
    denied: int = 0
    """How many connections it had open when it was let in no further."""
    _ids: int = field(default=0)
    _connections: list[tuple[Instance, WebSocketSession | HttpConnection]] = field(
        default_factory=list
    )

    @property
    def pace(self) -> Pace:
        """How long to wait; less and less for an endpoint that was waited for in vain."""
        if self.meter.vain < MOST_IN_VAIN:
            return self.full_pace
        pace = self.full_pace
        return replace(pace, first=min(pace.first, pace.brief), stall=min(pace.stall, pace.brief))

    def waited_in_vain(self, session: WebSocketSession, since: float) -> None:
        """Remember a long wait (begun at `since`) for what did not come, however it ended."""
        if session.now - since >= min(self.pace.first, self.pace.brief):
            self.meter.vain += 1

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
            Unplayable: the budget is spent, or the endpoint takes no more connections at a time.
        """
        place = instance or self.instance

        async def enter() -> WebSocketSession:
            if place.sagemaker is not None:
                return await self._stream(place.sagemaker, receive_buffer)
            return await WebSocketSession.open(
                place.ws_url,
                self.recorder,
                self.claims,
                headers=self.endpoint.headers,
                extensions=extensions,
                context=self.context,
                within=self.pace.connect,
                receive_buffer=receive_buffer,
            )

        self._make_room(place)
        await self.meter.spend(sessions=1)
        opened = await self._let_in(enter, place)
        opened.gate = self._gate
        if self.meter.hopeless:
            opened.most_bytes, opened.most_frames = _HOPELESS_BYTES, _HOPELESS_FRAMES
        self._occupy(opened, place)
        return opened

    async def _stream(
        self, target: SageMakerTarget, receive_buffer: int | None
    ) -> WebSocketSession:
        """Open a session that SageMaker carries."""
        # Only there are its packages needed.
        try:
            from .driver.sagemaker import SageMakerSession
        except ModuleNotFoundError as error:
            needed = "Python 3.12 or newer and pip install 'utterwire[aws]'"
            raise ConnectFailed(f"SageMaker needs {needed}: no {error.name} here") from error
        opened: WebSocketSession = await SageMakerSession.reach(
            target,
            self.recorder,
            self.claims,
            within=self.pace.connect,
            receive_buffer=receive_buffer,
        )
        return opened

    async def http(
        self, *, instance: Instance | None = None, receive_buffer: int | None = None
    ) -> HttpConnection:
        """Open a connection for HTTP exchanges.

        Raises:
            ConnectFailed: there is no transport.
            Unplayable: the budget is spent, or the endpoint takes no more connections at a time.
        """
        place = instance or self.instance
        if not place.http_url:
            raise Unplayable("HTTP is not reached through SageMaker")
        self._make_room(place)
        await self.meter.spend(sessions=1)
        opened = await HttpConnection.open(
            place.http_url,
            self.recorder,
            headers=self.endpoint.headers,
            context=self.context,
            within=self.pace.connect,
            receive_buffer=receive_buffer,
        )
        opened.gate = self._gate
        if self.meter.hopeless:
            opened.most_bytes = _HOPELESS_BYTES
        self._occupy(opened, place)
        return opened

    # --- places at the endpoint ---------------------------------------------------------------

    def fitting(self, most: int, instance: Instance | None = None) -> int:
        """How many connections to have open at a time, at most `most`.

        Where the endpoint takes only so many, it is what this scenario has places for; of an
        instance of its own it has all.
        """
        limit = self.meter.places.limit
        if limit is None:
            return most
        own = (instance or self.instance) is not self.target.main
        return min(most, limit if own else max(1, min(self.held, limit)))

    async def side_by_side(self, *parts: Callable[[], Awaitable[None]]) -> None:
        """Play parts that need a connection each: at the same time, or one after the other."""
        if self.fitting(len(parts)) < len(parts):
            for part in parts:
                await part()
            return
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_as_coroutine(part))

    def _others(self) -> int:
        """How many connections others of this run have open."""
        main = self.target.main
        return self.meter.places.open - (self._own(main) if main is not None else 0)

    def _share(self, others: int) -> None:
        """The endpoint has no room for a request, and `others` are there beside this scenario:
        have fewer of them from now on, and play again.

        Raises:
            Crowded: there are others, and so it may be their doing.
        """
        own = max(1, self._own(self.instance))
        if self.held and self.instance is self.target.main and others > 0:
            self.meter.places.learn(max(own, (own + others) // 2))
            raise Crowded(own)

    def _occupy(self, opened: WebSocketSession | HttpConnection, place: Instance) -> None:
        self._connections.append((place, opened))
        if place is self.target.main:
            self.meter.places.occupy(opened)

    def _own(self, place: Instance) -> int:
        """How many connections of this scenario are open there."""
        self._connections = [each for each in self._connections if not each[1].over]
        return sum(where is place for where, _ in self._connections)

    def _make_room(self, place: Instance) -> None:
        """See to it that one more connection keeps to the limit of the endpoint."""
        limit = self.meter.places.limit
        needed = self._own(place) + 1
        if limit is None or needed <= min(self.held, limit):
            return
        if needed > limit:
            raise NoPlace(needed, limit)
        if place is self.target.main:
            raise Crowded(needed)

    async def _let_in(
        self, enter: Callable[[], Awaitable[WebSocketSession]], place: Instance
    ) -> WebSocketSession:
        """Open a session; where there is no room, ask again for a while.

        Raises:
            Crowded: others of this run have the places; it is to be played again, with its own.
            NoPlace: this scenario has as many open as the endpoint takes.
            HandshakeRefused: it lets nobody in.
        """
        places = self.meter.places
        waited, delay, most = 0.0, _FIRST_DELAY_S, 0
        while True:
            at = self.recorder.sessions
            total = places.open
            try:
                return await enter()
            except HandshakeRefused as refused:
                if refused.status not in _NO_ROOM:
                    raise
                own = self._own(place)
                if place is not self.target.main:
                    # One of its own: nobody else is in the way, and waiting might hide a fault.
                    self.denied = own
                    raise
                most = max(most, total)
                crowded = total > own and waited >= _FOR_OTHERS_S
                patience = self._patience(refused, own)
                if crowded:
                    places.learn(most)
                    raise Crowded(own + 1) from refused
                if waited >= patience and total <= own:
                    self.meter.refused += not own
                    if own:
                        places.learn(own)
                        raise NoPlace(own + 1, own) from refused
                    raise
                # What never came to be a session is no evidence; that it was so is.
                self.recorder.forget(at + 1)
                self.recorder.note(f"turned away: {refused.why}, with {total} connections open")
                pause = min(max(refused.retry_after or 0.0, delay), max(patience - waited, delay))
                await asyncio.sleep(pause)
                waited += pause
                delay = min(2 * delay, _LONGEST_DELAY_S)

    def _patience(self, refused: HandshakeRefused, own: int) -> float:
        """How long to ask again, in seconds, where nobody of this run is in the way."""
        if self.meter.refused >= _MOST_REFUSED:
            return 0.0
        if refused.retry_after is not None:
            return min(refused.retry_after + 1.0, _LONGEST_RETRY_AFTER_S)
        return _FOR_OWN_S if own else _FOR_ROOM_S

    async def _gate(self, characters: int) -> None:
        await self.meter.spend(characters=characters)

    async def ended(self, session: WebSocketSession, *seqs: int) -> bool:
        """Wait until every one of these messages was rejected or came to its end.

        Where that does not happen though the session lives, the transcript says so.
        """
        dialogue = session.dialogue
        others, since = self._others(), session.now
        await self.until_unless_lost(
            session,
            lambda: (
                all(session.utterance(seq).ended for seq in seqs)
                or dialogue.session_closed is not None
            ),
            *seqs,
        )
        done = all(session.utterance(seq).ended for seq in seqs)
        if any(c.code == "overloaded" for seq in seqs for c in session.utterance(seq).rejections):
            self._share(others)
        if not done:
            self.waited_in_vain(session, since)
        if not done and not dialogue.ended and dialogue.session_closed is None:
            unended = [seq for seq in seqs if not session.utterance(seq).ended]
            asked = [s for s in unended if dialogue.sent[s - 1].meaning.type in ("cancel", "hello")]
            spoken = [seq for seq in unended if seq not in asked]
            for remark, left in (("in vain", spoken), ("unanswered", asked)):
                if left:
                    session.note(f"{remark}: {','.join(map(str, left))}")
        return done

    async def until_unless_lost(
        self, session: WebSocketSession, done: Callable[[], bool], *seqs: int
    ) -> None:
        """Wait until it is done, but not long where what is waited for went to nobody.

        An end that names a message which was never sent may well be the one of a message here.
        """
        dialogue = session.dialogue

        def lost() -> bool:
            last = dialogue.chunks[-1] if dialogue.chunks else None
            if last is None or not (last.is_terminal or last.rejects):
                return False
            strays = sum(
                (chunk.is_terminal or chunk.rejects)
                and chunk.said_seq is not None
                and not 0 < chunk.said_seq <= len(dialogue.sent)
                for chunk in dialogue.chunks
            )
            return 0 < sum(not session.utterance(seq).ended for seq in seqs) <= strays

        await session.until(lambda: done() or lost(), within=self.pace.first, stall=self.pace.stall)
        if not done():
            await session.until(done, within=min(self.pace.first, 0.5 + 4.0 * self.pace.rtt))

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
        dialogue, since = session.dialogue, session.now
        done = await session.until(
            lambda: dialogue.session_closed is not None,
            within=self.pace.first,
            stall=self.pace.stall,
        )
        if not done:
            self.waited_in_vain(session, since)
        if not done and not dialogue.ended:
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
            others = self._others()
            if await connection.head(within=self.pace.whole(spoken)) is not None:
                await connection.read(within=self.pace.stall)
            if connection.status in _NO_ROOM and (instance or self.instance) is self.target.main:
                self._share(others)
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


async def _as_coroutine(part: Callable[[], Awaitable[None]]) -> None:
    await part()


async def play(
    scenario: Scenario, target: Target, instance: Instance, pace: Pace, meter: Meter
) -> Transcript:
    """Play one scenario and give back its transcript, whatever happens on the way."""
    if meter.time_left:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(meter.until):
                return await _play_in_turn(scenario, target, instance, pace, meter)
    # What was broken off in the middle would look as if the endpoint had not gone on.
    transcript = _new_transcript(scenario, target)
    transcript.unfinished = meter.too_late
    return transcript


async def _play_in_turn(
    scenario: Scenario, target: Target, instance: Instance, pace: Pace, meter: Meter
) -> Transcript:
    """Play a scenario once there are places for it."""
    needed = 0 if scenario.launches else scenario.sessions
    replays = 0
    while True:
        async with meter.places.reserved(needed) as held:
            limit = meter.places.limit
            try:
                if limit is not None and needed > limit:
                    raise NoPlace(needed, limit)
                return await _play(scenario, target, instance, pace, meter, held)
            except NoPlace as error:
                transcript = _new_transcript(scenario, target)
                transcript.unfinished = str(error)
                return transcript
            except Crowded as crowd:
                # What was played so far is of no use to anybody: it broke off in the middle.
                needed = max(needed, crowd.needed)
        replays += 1
        if replays > _MOST_REPLAYS:
            transcript = _new_transcript(scenario, target)
            transcript.unfinished = f"no {needed} places at the endpoint could be had"
            return transcript


def _new_transcript(scenario: Scenario, target: Target) -> Transcript:
    endpoint = target.endpoint
    return Transcript(
        scenario.name,
        endpoint.name,
        endpoint.claims,
        datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )


async def _play(
    scenario: Scenario, target: Target, instance: Instance, pace: Pace, meter: Meter, held: int
) -> Transcript:
    endpoint = target.endpoint
    transcript = _new_transcript(scenario, target)
    recorder = Recorder(transcript, endpoint.secrets)
    stage = Stage(target, transcript, recorder, pace, meter, Texts(endpoint.text_samples), instance)
    stage.held = held
    # A slow endpoint gets more time for the whole, as it does for each part.
    limit = scenario.limit_s + 10.0 * max(0.0, pace.first - 5.0)
    if meter.hopeless:
        limit = _HOPELESS_LIMIT_S
    pulse = _Pulse(recorder)
    beating = asyncio.create_task(pulse.run(), name="pulse")
    try:
        async with asyncio.timeout(limit):
            try:
                await scenario.play(stage)
            except ExceptionGroup as group:
                # Sessions that were played side by side: the first failure tells.
                raise _first_of(group) from group
    except Crowded:
        raise
    except (NotCarried, Unplayable) as error:
        transcript.unfinished = str(error)
    except TimeoutError:
        transcript.unfinished = f"it was not over after {limit:g} s"
    except HandshakeRefused as error:
        if error.status in _NO_ROOM and stage.denied:
            transcript.unfinished = str(NoPlace(stage.denied + 1, stage.denied))
        elif error.status in (401, 403, 407, 429) or error.status >= 500:
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
    finally:
        beating.cancel()
        await asyncio.wait({beating})
        pulse.beat()
    return transcript


class _Pulse:
    """Writes down when nothing of the suite ran: a machine that halts, or has too much to do.

    Times between which that was tell nothing of the endpoint.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._last = recorder.now

    async def run(self) -> None:
        """Beat until it is cancelled."""
        while True:
            await asyncio.sleep(_PULSE_S)
            self.beat()

    def beat(self) -> None:
        """Say that the suite runs."""
        recorder, last = self._recorder, self._last
        self._last = now = recorder.now
        if now - last > _PULSE_S + _STANDSTILL_S:
            for session in range(1, recorder.sessions + 1):
                recorder.note(f"{STOOD_STILL}{last:.3f} {now:.3f}", session)
