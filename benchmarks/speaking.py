"""One text, spoken once and timed: what every experiment of the study is made of."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from delayed_link import DelayedLink
from finding import NotMeasured
from utterwire_client import Audio, IncrementalSentenceChunker, Session, Spoken, Transport, connect
from utterwire_client.address import is_sagemaker, session_url
from utterwire_client.cli.where import Where
from utterwire_client.speech import Chunker, Text
from utterwire_client.waterfall import Waterfall

__all__ = ["Place", "Plan", "Tap", "Told", "spoken"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. ``rounds``: samples of most things; ``per_s``: tokens a second;
    ``delays_ms``: of the links, each way; ``texts``, ``clips``: how many of them."""

    rounds: int
    interruptions: int
    texts: int
    clips: int
    delays_ms: tuple[int, ...]
    per_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """The endpoint that is measured.

    ``first_block_s`` is how long its engine takes for its first audio: known of the engine, or
    measured. ``recogniser`` is a Python that has one, None without. ``tell`` is given lines about
    how far things are.
    """

    where: Where
    first_block_s: float
    recogniser: str | None
    tell: Callable[[str], None]

    def session(self, link: DelayedLink | None = None) -> connect:
        """A session there, over ``link`` where one is given."""
        return connect(
            self.where.endpoint.url,
            headers=self.where.headers,
            ssl=self.where.tls,
            deadlines=self.where.deadlines,
            proxy=True if link is None else link.url,
        )

    @asynccontextmanager
    async def tapped(self) -> AsyncIterator[tuple[Session, Tap]]:
        """A session there, and what is seen of what it receives."""
        tap = Tap(await self.session().open())
        async with Session(tap, deadlines=self.where.deadlines) as session:
            yield session, tap

    def link(self, delay_s: float) -> DelayedLink:
        """A link to it. Raises `NotMeasured` where none can be laid."""
        url = self.where.endpoint.url
        if is_sagemaker(url):
            raise NotMeasured("the AWS SDK takes no proxy, so that no delay can be put in its way")
        parts = urlsplit(session_url(url))
        assert parts.hostname is not None
        port = parts.port or (443 if parts.scheme == "wss" else 80)
        return DelayedLink(parts.hostname, port, delay_s)


class Tap:
    """A transport that counts what comes through it.

    ``after_ack_bytes`` is audio between a ``cancel_done`` and the next ``synthesis_start``, which
    no endpoint may send.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._acknowledged = False
        self.received_bytes = 0
        self.after_ack_bytes = 0
        self.audio_at: float | None = None

    async def receive(self) -> str | bytes:
        """The next message."""
        message = await self._transport.receive()
        self.received_bytes += len(message.encode() if isinstance(message, str) else message)
        if isinstance(message, bytes):
            self.audio_at = asyncio.get_running_loop().time()
            self.after_ack_bytes += len(message) * self._acknowledged
        elif '"cancel_done"' in message or '"synthesis_start"' in message:
            kind = json.loads(message)["type"]
            if kind in ("cancel_done", "synthesis_start"):
                self._acknowledged = kind == "cancel_done"
        return message

    async def send(self, message: str) -> None:
        """Send a message."""
        await self._transport.send(message)

    async def close(self) -> None:
        """End it in good order."""
        await self._transport.close()

    def abort(self) -> None:
        """Drop it."""
        self._transport.abort()


@dataclass(frozen=True, slots=True)
class Told:
    """When what came of a text, in times of the event loop; lengths in seconds.

    ``gap_s``: silence between sentences that a listener had who plays at once, because one was
    late; ``stall_s``: inside of sentences. ``heard_at``: when the last of it was heard.
    """

    asked_at: float
    first_at: float
    last_at: float
    heard_at: float
    sentences: int
    gaps: int
    gap_s: float
    stall_s: float
    audio_s: float


async def spoken(
    session: Session, text: Text, *, depth: int = 3, chunker: Chunker | None = None
) -> Told:
    """Speak it. Raises `UtterwireError`, and `NotMeasured` where no audio comes."""
    loop = asyncio.get_running_loop()
    asked_at = loop.time()
    waterfall = Waterfall(chunker or IncrementalSentenceChunker(), clock=loop.time)
    first_at: float | None = None
    async with session.speak(
        text,
        depth=depth,
        chunker=waterfall.chunker,
        player=waterfall.player,
        marks=False,
        max_unheard_s=math.inf,
    ) as speech:
        async for event in speech:
            waterfall.take(event)
            if first_at is None and isinstance(event, Spoken) and isinstance(event.event, Audio):
                first_at = event.utterance.inbox.first_audio_at
    last_at = loop.time()
    if first_at is None:
        raise NotMeasured("the endpoint completes a sentence and sends no audio")
    found = waterfall.document(
        made_by="study", endpoint={"name": "study"}, options={"transport": "websocket"}
    )
    player = waterfall.player
    return Told(
        asked_at=asked_at,
        first_at=first_at,
        last_at=last_at,
        heard_at=last_at + player.queued_s,
        sentences=len(found["sentences"]),
        gaps=found["summary"]["gaps"],
        gap_s=found["summary"]["gap_s"],
        stall_s=found["summary"]["stall_s"],
        audio_s=found["summary"]["audio_s"],
    )
