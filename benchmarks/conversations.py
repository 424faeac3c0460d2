"""The experiments on texts that are spoken: as a whole or by sentences, as they come, from afar."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from finding import Finding, NotMeasured, Row
from speaking import Place, Plan, Tap, spoken
from spread import Spread
from token_stream import Best, PacedTokens, Uncut, decisive_token, tokens
from utterwire_client import IncrementalSentenceChunker, Player, Session
from utterwire_client.speech import Chunker

__all__ = [
    "ANSWERS",
    "LINKS",
    "PROMPTNESS_GOAL_MS",
    "gaps",
    "interruptions",
    "links",
    "promptness",
    "token_stream",
    "whole_or_sentences",
]

#: What an assistant answers.
ANSWERS: Final = {
    "short": "Sure, I can help with that. Your train to Edinburgh leaves at 9:42 from platform 4.",
    "medium": (
        "There are two rooms left for the weekend, both of them with breakfast. The one on the "
        "second floor looks over the garden and costs ninety pounds a night. The other is smaller, "
        "but it has a desk. Which of them shall I book for you?"
    ),
    "long": (
        "Bread needs less work than you think, as long as it has time. Stir flour, water, salt and "
        "a little yeast in a bowl until no dry flour is left. Cover it and leave it on the table "
        "until the morning. By then it has doubled and is full of bubbles. Turn it out on a board, "
        "fold it twice and let it rest while the oven heats. It wants to be hot, so give it half "
        "an hour. Bake it in a closed pot for thirty minutes. Let it cool before you cut it."
    ),
}
#: Nothing is over sooner than its first sentences: what waits for a round trip is late.
_BRISK: Final = "Yes. It does. I tried it twice. Shall I show you how?"
_FIRST_WORDS: Final = "One moment, please."
#: More than any endpoint has made when it is interrupted.
_STORY: Final = " ".join(
    f"Chapter {number} begins where the road leaves the town and follows the river up into the "
    "hills, past the mill and the last of the farms."
    for number in range(1, 41)
)
_NEXT: Final = "Yes?"
#: An interruption comes within so many seconds of the beginning.
_LATEST_S: Final = 1.0
#: First byte, after the token that told the first sentence and the engine's first block.
PROMPTNESS_GOAL_MS: Final = 10.0

#: Ways to ask over a link, and how many sentences are in flight at most.
LINKS: Final = {"one at a time": 1, "pipelined": 3}

_FIRST_BYTE: Final = "first byte, ms"


async def _in_turns(rounds: int, each: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run each so many times, in turns, and in the other order every second time, so that no drift
    of the machine falls on one of them."""
    for number in range(rounds):
        for one in each if number % 2 else reversed(each):
            await one()


@asynccontextmanager
async def _warm(place: Place, delay_s: float | None = None) -> AsyncIterator[Session]:
    """A session in which something was spoken already, over a link where a delay is given."""
    if delay_s is None:
        async with place.session() as session:
            await spoken(session, _FIRST_WORDS)
            yield session
        return
    async with place.link(delay_s) as link, place.session(link) as session:
        await spoken(session, _FIRST_WORDS)
        yield session


async def whole_or_sentences(places: Sequence[tuple[str, Place]], plan: Plan) -> Finding:
    """The first byte of an answer that is there: asked for as one request, or by sentences.

    ``places`` are endpoints, each with what kind it is.
    """
    finding = Finding(
        "The text is there. How soon is its first byte, asked for in one request or sentence by "
        "sentence?",
        published="329.3 ms for the whole answer, 156.7 ms by sentences: 2.1 times sooner",
        measures={"first_byte_ms": _FIRST_BYTE, "sooner": "whole / sentences, each round"},
        facts={"characters": "characters of the first request"},
        note=(
            "An endpoint that sends audio as it makes it loses nothing by a long request; one that "
            "makes an utterance whole first lets its listener wait for all of it."
        ),
    )
    for kind, place in places:
        finding.rows += await _whole_or_sentences(kind, place, plan)
    return finding


async def _whole_or_sentences(kind: str, place: Place, plan: Plan) -> list[Row]:
    text = _one_answer(plan)
    chunkers: dict[str, Callable[[], Chunker]] = {
        "whole": Uncut,
        "sentences": IncrementalSentenceChunker,
    }
    rows = {name: Row(f"{kind}: {name}") for name in chunkers}
    for name, chunker in chunkers.items():
        cut = chunker()
        rows[name].facts["characters"] = len((cut.feed(text) + cut.flush())[0].strip())
    async with _warm(place) as session:

        async def say(name: str) -> None:
            told = await spoken(session, text, chunker=chunkers[name]())
            rows[name].add(first_byte_ms=1000 * (told.first_at - told.asked_at))

        await _in_turns(plan.rounds, [partial(say, name) for name in rows])
    _compare(rows["whole"], rows["sentences"])
    place.tell(f"{kind}: {plan.rounds} rounds")
    return [*rows.values()]


def _compare(slow: Row, fast: Row) -> None:
    """How many times sooner the first byte was in each round."""
    pairs = zip(slow.samples["first_byte_ms"], fast.samples["first_byte_ms"], strict=True)
    fast.samples["sooner"] = [one / other for one, other in pairs]


def _one_answer(plan: Plan) -> str:
    """The text of what is measured with one text only."""
    return ANSWERS["medium" if plan.texts > 1 else "short"]


async def token_stream(place: Place, plan: Plan) -> Finding:
    """The first byte of an answer that is being written: after its end, or as it comes."""
    finding = Finding(
        f"The text comes at {plan.per_s:g} tokens a second. How soon after its first token is the "
        "first byte: when all of it is there (batch), or sentence by sentence as it comes (bidi)?",
        published="bidi 2.4 to 3.5 times sooner than batch",
        measures={
            "first_byte_ms": _FIRST_BYTE,
            "heard_ms": "all heard, ms",
            "sooner": "batch / bidi, each round",
            "over_ms": "first byte after the deciding token and the engine's first block, ms",
        },
        facts={"tokens": "tokens", "decisive": "the first sentence is told by token"},
        note=(
            "The most that a text allows of the ratio is the time of its last token against that "
            "of the one by which the first sentence can be told, with an engine that takes no "
            f"time. Here the engine takes {1000 * place.first_block_s:.1f} ms for its first block."
        ),
    )
    for name, text in [*ANSWERS.items()][: plan.texts]:
        finding.rows += await _token_stream(name, text, place, plan)
    return finding


async def _token_stream(name: str, text: str, place: Place, plan: Plan) -> list[Row]:
    pieces = tokens(text)
    chunkers: dict[str, Callable[[], Chunker]] = {
        "batch": Uncut,
        "bidi": IncrementalSentenceChunker,
        "bidi, first clause": partial(IncrementalSentenceChunker, first_clause=True),
    }
    rows = {mode: Row(f"{name}: {mode}", facts={"tokens": len(pieces)}) for mode in chunkers}
    best = {
        mode: Best(len(pieces), decisive_token(pieces, chunker()), plan.per_s, place.first_block_s)
        for mode, chunker in chunkers.items()
    }
    for mode, row in rows.items():
        row.expected["first_byte_ms"] = 1000 * best[mode].first_byte_s
        row.facts["decisive"] = best[mode].decisive + 1
        ratio = best[mode].ratio
        if mode != "batch" and ratio is not None:
            row.expected["sooner"] = ratio
    async with _warm(place) as session:

        async def say(mode: str) -> None:
            source = PacedTokens(pieces, plan.per_s)
            told = await spoken(session, source, chunker=chunkers[mode]())
            began, decided_at = source.given_at[0], source.given_at[best[mode].decisive]
            rows[mode].add(
                first_byte_ms=1000 * (told.first_at - began),
                heard_ms=1000 * (told.heard_at - began),
                over_ms=1000 * (told.first_at - decided_at - place.first_block_s),
            )

        await _in_turns(plan.rounds, [partial(say, mode) for mode in rows])
    for mode in list(rows)[1:]:
        _compare(rows["batch"], rows[mode])
    place.tell(f"{name}: {len(pieces)} tokens, {plan.rounds} rounds")
    return [*rows.values()]


def promptness(stream: Finding) -> list[float]:
    """How late the first byte was after what decided it, in milliseconds, of all texts of the
    finding of `token_stream` that were spoken as they came."""
    return [
        value for row in stream.rows if "sooner" in row.samples for value in row.samples["over_ms"]
    ]


async def links(place: Place, plan: Plan) -> Finding:
    """How soon an answer is here, over links with a delay."""
    finding = Finding(
        "The text is there. How soon is all of its audio here, if each sentence waits for the end "
        "of the one before it, or is asked for ahead?",
        measures={"here_ms": "last byte, ms", "first_byte_ms": _FIRST_BYTE},
        facts={"round_trip_ms": "round trip of the link, ms", "sentences": "sentences"},
        note=(
            "Delays are of each way. One at a time is expected to take a round trip more than "
            "pipelined for every sentence after the first."
        ),
    )
    for delay_ms in plan.delays_ms:
        finding.rows += await _links(delay_ms, place, plan)
    return finding


async def _links(delay_ms: int, place: Place, plan: Plan) -> list[Row]:
    text = _one_answer(plan)
    rows = {name: Row(f"{delay_ms} ms: {name}") for name in LINKS}
    async with _warm(place, delay_ms / 1000) as session:

        async def say(name: str) -> None:
            told = await spoken(session, text, depth=LINKS[name])
            rows[name].facts |= {"round_trip_ms": 2 * delay_ms, "sentences": told.sentences}
            rows[name].add(
                here_ms=1000 * (told.last_at - told.asked_at),
                first_byte_ms=1000 * (told.first_at - told.asked_at),
            )

        await _in_turns(plan.rounds, [partial(say, name) for name in LINKS])
    alone, pipelined = rows.values()
    trips = int(alone.facts["sentences"]) - 1
    alone.expected["here_ms"] = (
        Spread.of(pipelined.samples["here_ms"]).median + trips * 2 * delay_ms
    )
    place.tell(f"link of {delay_ms} ms: {plan.rounds} rounds")
    return [*rows.values()]


async def gaps(place: Place, plan: Plan) -> Finding:
    """Silence between sentences, over links with a delay, of an answer that is being written."""
    finding = Finding(
        f"The text comes at {plan.per_s:g} tokens a second and is played at once. How long is a "
        "listener left in silence between two sentences, over links with a delay?",
        measures={
            "gap_ms": "gaps of a text together, ms",
            "stall_ms": "stalls inside of its sentences, ms",
        },
        facts={"gaps": "gaps in all", "sentences": "sentences", "speech_s": "speech, s"},
        note=(
            "Delays are of each way. The brisk text is: " + _BRISK + " A gap is due to the way "
            "there only where the text itself comes faster than it is spoken."
        ),
    )
    for delay_ms in plan.delays_ms:
        for name, text in (("an answer", _one_answer(plan)), ("brisk", _BRISK)):
            finding.rows += await _gaps(delay_ms, name, text, place, plan)
        place.tell(f"gaps over a link of {delay_ms} ms: {_half(plan.rounds)} rounds")
    return finding


def _half(rounds: int) -> int:
    return max(rounds // 2, 1)


async def _gaps(delay_ms: int, text_name: str, text: str, place: Place, plan: Plan) -> list[Row]:
    pieces = tokens(text)
    rows = {name: Row(f"{delay_ms} ms, {text_name}: {name}", facts={"gaps": 0}) for name in LINKS}
    async with _warm(place, delay_ms / 1000) as session:

        async def say(name: str) -> None:
            source = PacedTokens(pieces, plan.per_s)
            told = await spoken(session, source, depth=LINKS[name])
            facts = rows[name].facts
            facts["gaps"] = int(facts["gaps"]) + told.gaps
            facts |= {"sentences": told.sentences, "speech_s": told.audio_s}
            rows[name].add(gap_ms=1000 * told.gap_s, stall_ms=1000 * told.stall_s)

        await _in_turns(_half(plan.rounds), [partial(say, name) for name in LINKS])
    return [*rows.values()]


class _Silenced(Player):
    """Remembers when it fell silent."""

    flushed_at: float | None = None

    def flush(self) -> float:
        dropped = super().flush()
        self.flushed_at = asyncio.get_running_loop().time()
        return dropped


async def interruptions(place: Place, plan: Plan) -> Finding:
    """How soon all is silent after an interruption, and how soon the next words are heard."""
    finding = Finding(
        f"A long text is interrupted within {_LATEST_S:g} s, at random moments. How soon is it "
        "silent, and how soon is the next utterance heard?",
        measures={
            "silent_ms": "player silent, ms",
            "last_audio_ms": "last audio off the network, ms",
            "acknowledged_ms": "endpoint has stopped, ms",
            "next_byte_ms": "first byte of what is said next, ms",
        },
        facts={
            "after_ack_bytes": "bytes of audio after the acknowledgement",
            "tasks_left": "tasks left",
            "sessions_dropped": "sessions that had to be dropped",
        },
    )
    row = Row("interrupted")
    row.facts |= {"after_ack_bytes": 0, "tasks_left": 0, "sessions_dropped": 0}
    chance = random.Random(6)
    done = 0
    while done < plan.interruptions:
        async with place.tapped() as (session, tap):
            await spoken(session, _FIRST_WORDS)
            alive = True
            while alive and done < plan.interruptions:
                alive = await _interrupt(session, tap, row, chance.uniform(0.0, _LATEST_S))
                done += 1
                if alive:
                    told = await spoken(session, _NEXT)
                    row.add(next_byte_ms=1000 * (told.first_at - told.asked_at))
        _count(row, "sessions_dropped", not alive)
        _count(row, "after_ack_bytes", tap.after_ack_bytes)
    finding.rows.append(row)
    place.tell(f"{done} interruptions")
    return finding


async def _interrupt(session: Session, tap: Tap, row: Row, moment_s: float) -> bool:
    """Begin the story and interrupt it; whether the session lives."""
    loop = asyncio.get_running_loop()
    player = _Silenced(clock=loop.time)
    before = asyncio.all_tasks()
    speech = session.speak(_STORY, player=player, marks=False, max_unheard_s=math.inf)
    listening = asyncio.create_task(speech.play())
    await asyncio.sleep(moment_s)
    tap.audio_at = None
    asked_at = loop.time()
    interruption = await speech.interrupt()
    stopped_at = loop.time()
    await listening
    _count(row, "tasks_left", len(asyncio.all_tasks() - before))
    if player.flushed_at is None:
        raise NotMeasured("the endpoint has spoken a long text before it can be interrupted")
    row.add(
        silent_ms=1000 * (player.flushed_at - asked_at),
        last_audio_ms=1000 * ((tap.audio_at or asked_at) - asked_at),
        acknowledged_ms=1000 * (stopped_at - asked_at),
    )
    return not interruption.session_dropped


def _count(row: Row, fact: str, more: int) -> None:
    row.facts[fact] = int(row.facts[fact]) + more
