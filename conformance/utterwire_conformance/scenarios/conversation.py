"""Several messages in one session: order, counting, the queue, reading while speaking."""

from __future__ import annotations

import asyncio

from utterwire_conformance.driver import HandshakeRefused
from utterwire_conformance.stage import SMALL_BUFFER, NoPlace, Stage, scenario
from utterwire_conformance.transcript import Case

from .cases import padded

__all__ = [
    "busy_ping",
    "duplicate_id",
    "flood",
    "keepalive",
    "many",
    "order",
    "queue_full",
    "waiting_floor",
]

_MOST_WAITING_TRIED = 40
_BESIDE_S = 1.0
_PAST_A_BYTE = 260
# They look alike; to who compares code points they are two.
_COMPOSED = "d\u00e9j\u00e0"
_DECOMPOSED = "de\u0301ja\u0300"


@scenario()
async def order(stage: Stage) -> None:
    """Requests and bad messages sent in one go: answered one after the other."""
    texts = stage.texts
    async with await stage.session() as session:
        first = await session.send(stage.request(texts.sample(0), request_id="first"))
        await session.send({"type": "keepalive"})
        bad = await session.send(stage.request(texts.sample(0), speed="bad", request_id="bad"))
        second = await session.send(stage.request(texts.shortest, request_id="second"))
        worse = await session.send(b"nonsense")
        third = await session.send(stage.request(texts.sample(1)))
        last = await session.send({"type": "utterwire-unknown", "request_id": "last"})
        await stage.ended(session, first, bad, second, worse, third, last)
    async with await stage.session() as session:
        # After a terminal message the session waits for more, and counts on.
        for number in range(3):
            utterance = await stage.speak(session, texts.shortest, request_id=f"turn-{number}")
            if not utterance.ended:
                break


@scenario()
async def many(stage: Stage) -> None:
    """Forty utterances in one session, some at a time, with nothing to speak, so that they cost
    little: what one of them takes must be free again for the next. One more comes behind so many
    messages that a byte does not count them."""
    async with await stage.session() as session:
        for _ in range(10):
            seqs = [
                await session.send(
                    stage.request("...", request_id=stage.new_id()),
                    case=Case("one of forty", "accept.waiting_floor", "accept"),
                )
                for _ in range(4)
            ]
            if not await stage.ended(session, *seqs):
                return
        for _ in range(_PAST_A_BYTE - len(session.dialogue.sent)):
            await session.send({"type": "keepalive"})
        seq = await session.send(
            stage.request("...", request_id=stage.new_id()),
            case=Case(f"behind {_PAST_A_BYTE} messages", "accept.waiting_floor", "accept"),
        )
        await stage.ended(session, seq)


@scenario()
async def keepalive(stage: Stage) -> None:
    """`keepalive` before, between and while speaking: counted, never answered."""
    case = Case("keepalive", "message.keepalive", "accept")
    async with await stage.session() as session:
        await session.send({"type": "keepalive"}, case=case)
        first = await session.send(stage.request(stage.texts.shortest, request_id="after-one"))
        await session.send({"type": "keepalive"}, case=case)
        await session.send({"type": "keepalive", "note": "unknown field"}, case=case)
        # Fields of other types, which would be wrong there.
        await session.send({"type": "keepalive", "text": 7, "request_id": ""}, case=case)
        second = await session.send(stage.request(stage.texts.shortest, request_id="after-four"))
        await stage.ended(session, first, second)


@scenario()
async def waiting_floor(stage: Stage) -> None:
    """Eight short requests behind a long one that cannot end."""
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session)
        waiting = [
            await session.send(
                stage.request(stage.texts.shortest, request_id=f"waiting-{number}"),
                case=Case(f"number {number + 1} to wait", "accept.waiting_floor", "accept"),
            )
            for number in range(8)
        ]
        session.resume()
        await stage.ended(session, *waiting)


@scenario(heavy=True)
async def queue_full(stage: Stage) -> None:
    """More requests than may wait, behind a long one that cannot end."""
    limit = stage.claims.max_waiting
    if limit is not None and limit > _MOST_WAITING_TRIED:
        limit = None
    count = _MOST_WAITING_TRIED if limit is None else limit + 3
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session)
        # What is rejected holds no place in the queue.
        for _ in range(4):
            await session.send(b"nonsense")
        waiting = []
        for number in range(count):
            expected = "either" if limit is None else "accept" if number < limit else "reject"
            case = Case(
                f"number {number + 1} to wait",
                "queue.full",
                expected,  # type: ignore[arg-type]
                () if expected == "accept" else ("queue_full",),
            )
            request = stage.request(stage.texts.shortest, request_id=f"waiting-{number}")
            waiting.append(await session.send(request, case=case))
        session.resume()
        await stage.ended(session, *waiting)
        # The queue is free again.
        after = await session.send(stage.request(stage.texts.shortest, request_id="after"))
        await stage.ended(session, after)


@scenario()
async def duplicate_id(stage: Stage) -> None:
    """An id used again while its utterance is unended, and once more when it has ended."""
    check = "reject.duplicate_request_id"
    codes = ("duplicate_request_id",)
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        # The first cannot end while nobody reads.
        first = await stage.hold(session, request_id="twice")
        duplicate = await session.send(
            stage.request(stage.texts.shortest, request_id="twice"),
            case=Case("while the first runs", check, "reject", codes),
        )
        waits = await session.send(stage.request(stage.texts.shortest, request_id=_COMPOSED))
        second = await session.send(
            stage.request(stage.texts.shortest, request_id=_COMPOSED),
            case=Case("while the first waits", check, "reject", codes),
        )
        others = [
            await session.send(
                stage.request(stage.texts.shortest, request_id=name),
                case=Case(what, check, "accept"),
            )
            for what, name in (("another id", "Twice"), ("composed otherwise", _DECOMPOSED))
        ]
        await _same_id_beside(stage, check)
        session.resume()
        await stage.ended(session, first, duplicate, waits, second, *others)
        if not session.dialogue.ended:
            again = await session.send(
                stage.request(stage.texts.shortest, request_id="twice"),
                case=Case("after its end", "request_id.reusable", "accept"),
            )
            await stage.ended(session, again)
        if not session.dialogue.ended:
            bad = await session.send(
                stage.request(stage.texts.shortest, request_id="rejected", speed="bad")
            )
            free = await session.send(
                stage.request(stage.texts.shortest, request_id="rejected"),
                case=Case("after a rejection", "request_id.reusable", "accept"),
            )
            await stage.ended(session, bad, free)


async def _same_id_beside(stage: Stage, check: str) -> None:
    """Ids of different sessions have nothing to do with each other."""
    try:
        beside = await stage.session()
    except (HandshakeRefused, NoPlace):
        # One session at a time is all that some endpoints have.
        return
    async with beside:
        same = await beside.send(
            stage.request(stage.texts.shortest, request_id="twice"),
            case=Case("in another session", check, "accept"),
        )
        # Where one engine speaks for all, this waits for what is held, and nothing is learned.
        await beside.until(lambda: beside.utterance(same).answered, within=_BESIDE_S)


@scenario(heavy=True)
async def busy_ping(stage: Stage) -> None:
    """Pings while a long utterance is being spoken."""
    async with await stage.session() as session:
        seq = await session.send(stage.request(stage.texts.of_length(1500)))
        utterance = session.utterance(seq)
        await session.until(
            lambda: utterance.ended or bool(utterance.audio),
            within=stage.pace.first,
            stall=stage.pace.stall,
        )
        if utterance.audio and not utterance.ended:
            await session.ping(b"while busy")
            await session.until(
                lambda: utterance.ended or bool(session.dialogue.pongs),
                within=stage.pace.first,
                stall=stage.pace.stall,
            )


@scenario(heavy=True)
async def flood(stage: Stage) -> None:
    """Far more than fits in any buffer, sent while a long utterance is being spoken."""
    text = stage.texts.of_length(4096)
    async with await stage.session() as session:
        seq = await session.send(stage.request(text))
        utterance = session.utterance(seq)
        if not await stage.started(session, seq):
            return
        octets = padded({"type": "keepalive"}, 60_000)

        async def send_all() -> None:
            for _ in range(40):
                if utterance.ended or session.dialogue.ended:
                    return
                await session.send(octets)
            if not utterance.ended:
                await session.ping(b"after the flood")

        sending = asyncio.create_task(send_all())
        try:
            await session.until(
                lambda: utterance.ended or bool(session.dialogue.pongs),
                within=stage.pace.first,
                stall=stage.pace.stall,
            )
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


@scenario(sessions=2)
async def disconnect(stage: Stage) -> None:
    """A client that vanishes in mid-utterance, beside one that stays and one that comes after."""
    async with await stage.session() as beside:
        kept = await beside.send(stage.request(stage.texts.sample(1), request_id="beside"))
        gone = await stage.session(receive_buffer=SMALL_BUFFER)
        try:
            await stage.hold(gone)
            for number in range(3):
                await gone.send(stage.request(stage.texts.shortest, request_id=f"lost-{number}"))
        finally:
            await gone.abort()
        await stage.ended(beside, kept)
        again = await beside.send(stage.request(stage.texts.shortest, request_id="beside-again"))
        await stage.ended(beside, again)
    try:
        after = await stage.session()
    except HandshakeRefused as error:
        stage.recorder.note(f"refused after a disconnect: {error}")
        return
    async with after:
        await stage.speak(after, stage.texts.shortest, request_id="after")
