"""`hello`, and whether what `session` states is so (`protocol.md#hello`, `protocol.md#session`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.driver import WebSocketSession
from utterwire_conformance.stage import SMALL_BUFFER, Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case, Transcript

from .cases import padded

__all__ = [
    "hello_late",
    "hello_malformed",
    "hello_unsupported",
    "hello_versions",
    "negotiation",
    "offers",
    "stated",
    "stated_idle",
    "stated_limits",
    "without_hello",
]

_HELLO: Final = {"type": "hello", "protocol_versions": [1]}
_LIMITS_HOLD: Final = "session.limits_hold"
_MOST_OFFERS: Final = 100
# What is too much to send, to hold, or to wait for; the limit is then not put to the test.
_LONGEST_TEXT: Final = 20_000
_LARGEST_MESSAGE: Final = 8 * 1024 * 1024
_LONGEST_ID: Final = 60_000
_MOST_WAITING: Final = 40
_LONGEST_IDLE_S: Final = 15.0


def stated(transcript: Transcript) -> Mapping[str, Any]:
    """What the first `session` message of a transcript states; nothing where there is none."""
    for session in transcript.sessions():
        for chunk in Dialogue.read(transcript, session).controls:
            if chunk.type == "session":
                return chunk.fields
    return {}


async def _greet(
    stage: Stage,
    session: WebSocketSession,
    message: Mapping[str, Any] | bytes = _HELLO,
    *,
    case: Case | None = None,
    kind: Literal["text", "binary"] = "text",
) -> None:
    """`hello` with a request on its heels, and what comes of both."""
    octets = message if isinstance(message, bytes) else json.dumps(message).encode()
    hello = await session.send(octets, kind=kind, case=case)
    request = await session.send(stage.request(stage.texts.shortest))
    await stage.ended(session, hello, request)


async def _greet_each(stage: Stage, cases: Sequence[tuple[Case, Mapping[str, Any]]]) -> None:
    late = Case("after a refused one", "hello.first_only", "reject", ("invalid_request",))
    for case, message in cases:
        async with await stage.session() as session:
            await _greet(stage, session, message, case=case)
            if case.expect == "reject" and not await stage.is_over(session):
                second = await session.send(_HELLO, case=late)
                await stage.ended(session, second)


@scenario(profile="negotiate")
async def negotiation(stage: Stage) -> None:
    """A plain `hello` with a request on its heels, then a second `hello`."""
    async with await stage.session() as session:
        if stage.endpoint.voice is not None:
            session.note(f"ordinary voice: {stage.endpoint.voice}")
        await _greet(stage, session, case=Case("version 1", "hello.session", "accept"))
        if not await stage.is_over(session):
            case = Case("a second one", "hello.first_only", "reject", ("invalid_request",))
            seq = await session.send(_HELLO, case=case)
            await stage.ended(session, seq)


@scenario(profile="negotiate")
async def hello_versions(stage: Stage) -> None:
    """`hello` with versions that nobody knows beside 1, in any order, in a binary frame."""
    check = "hello.session"
    listed: list[tuple[str, list[Any]]] = [
        ("newer ones first", [3, 2, 1]),
        ("zero and a negative number", [0, -1, 1]),
        ("1 twice", [1, 1]),
        ("1.0", [1.0]),
        ("a hundred", list(range(1, 101))),
    ]
    cases: list[tuple[Case, Mapping[str, Any]]] = [
        (Case(name, check, "accept"), {"type": "hello", "protocol_versions": versions})
        for name, versions in listed
    ]
    cases.append((Case("fields nobody knows", check, "accept"), _HELLO | {"x": [{}], "y": None}))
    cases.append((Case("with an id", check, "accept"), _HELLO | {"request_id": "hello"}))
    await _greet_each(stage, cases)
    async with await stage.session() as session:
        await _greet(stage, session, kind="binary", case=Case("a binary frame", check, "accept"))


@scenario(profile="negotiate")
async def without_hello(stage: Stage) -> None:
    """Sessions without `hello`: two requests, and a message that is none before a request."""
    async with await stage.session() as session:
        for number in range(2):
            await stage.speak(session, stage.texts.shortest, request_id=f"turn-{number}")
            if await stage.is_over(session):
                return
    async with await stage.session() as session:
        await session.send({"type": "keepalive"})
        await stage.speak(session, stage.texts.shortest)


@scenario(profile="negotiate")
async def hello_late(stage: Stage) -> None:
    """`hello` as a later message, right and wrong; also while an utterance is being spoken."""
    check, codes = "hello.first_only", ("invalid_request",)
    late: list[tuple[str, Mapping[str, Any]]] = [
        ("a valid one", _HELLO),
        ("a version nobody knows", _HELLO | {"protocol_versions": [99]}),
        ("no versions", {"type": "hello"}),
        ("versions of a wrong type", _HELLO | {"protocol_versions": "1"}),
        ("with an id", _HELLO | {"request_id": "late"}),
    ]
    session: WebSocketSession | None = None
    try:
        for name, message in late:
            if session is not None and await stage.is_over(session):
                await session.end()
                session = None
            if session is None:
                session = await stage.session()
                await stage.speak(session, stage.texts.shortest)
            seq = await session.send(dict(message), case=Case(name, check, "reject", codes))
            await stage.ended(session, seq)
        if session is not None and not await stage.is_over(session):
            await stage.speak(session, stage.texts.shortest)
            await session.say_goodbye()
    finally:
        if session is not None:
            await session.end()
    async with await stage.session(receive_buffer=SMALL_BUFFER) as busy:
        await stage.hold(busy)
        await busy.send(stage.request(stage.texts.shortest))
        seq = await busy.send(_HELLO, case=Case("while speaking", check, "reject", codes))
        await stage.let_it_read()
        busy.resume()
        await stage.ended(busy, seq)
        await _let_go(stage, busy)


async def _let_go(stage: Stage, session: WebSocketSession) -> None:
    """Have done with what is unended, so that nobody has to speak it."""
    session.resume()
    if await stage.is_over(session):
        return
    if "interrupt" in stage.claims.profiles:
        seq = await session.send({"type": "cancel"})
        await stage.ended(session, seq)
    else:
        await session.abort()


@scenario(profile="negotiate")
async def hello_unsupported(stage: Stage) -> None:
    """`hello` with no version that there is; requests behind it are served."""
    codes = ("unsupported_version",)
    listed: list[tuple[str, list[Any]]] = [
        ("a newer one", [2]),
        ("several", [99, 7]),
        ("zero", [0]),
        ("a negative number", [-1]),
        ("2.0", [2.0]),
    ]
    await _greet_each(
        stage,
        [
            (Case(name, "hello.unsupported_version", "reject", codes), _HELLO | {
                "protocol_versions": versions
            })
            for name, versions in listed
        ],
    )  # fmt: skip


@scenario(profile="negotiate")
async def hello_malformed(stage: Stage) -> None:
    """`hello` whose versions are none; requests behind it are served."""
    check, codes = "hello.malformed", ("invalid_request",)
    listed: list[tuple[str, Any]] = [
        ("null", None),
        ("none at all", []),
        ("a number", 1),
        ("a string", "1"),
        ("an object", {"1": 1}),
        ("a string in the list", ["1"]),
        ("1 and a string", [1, "x"]),
        ("half a version", [1.5]),
        ("true", [True]),
        ("null in the list", [None]),
        ("a list in the list", [[1]]),
    ]
    cases: list[tuple[Case, Mapping[str, Any]]] = [
        (Case(name, check, "reject", codes), _HELLO | {"protocol_versions": value})
        for name, value in listed
    ]
    cases.append((Case("absent", check, "reject", codes), {"type": "hello"}))
    await _greet_each(stage, cases)


async def _offer(stage: Stage, session: WebSocketSession) -> Mapping[str, Any]:
    """Say `hello` and give back what `session` states.

    Raises:
        Unplayable: there is no `session`.
    """
    seq = await session.send(_HELLO)
    await stage.ended(session, seq)
    for chunk in session.utterance(seq).obeyed:
        return chunk.fields
    raise Unplayable("`hello` was not answered by `session`")


def _strings(offer: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    values = offer.get(name)
    found = [value for value in values if type(value) is kind] if isinstance(values, list) else []
    return found[:_MOST_OFFERS]


@scenario(profile="negotiate", limit_s=180.0, heavy=True)
async def offers(stage: Stage) -> None:
    """Every voice, format and rate that `session` lists, the other two left to their defaults."""
    text = stage.texts.shortest
    session: WebSocketSession | None = await stage.session()
    assert session is not None
    try:
        offer = await _offer(stage, session)
        wanted = [("voice", v) for v in _strings(offer, "voices", str)]
        wanted += [("format", v) for v in _strings(offer, "formats", str)]
        wanted += [("sample_rate", v) for v in _strings(offer, "sample_rates", int)]
        for name, value in wanted:
            if session is not None and await stage.is_over(session):
                await session.end()
                session = None
            if session is None:
                session = await stage.session()
            case = Case(f"{name} {value}", "session.offers_work", "accept")
            seq = await session.send({"text": text, name: value}, case=case)
            await stage.ended(session, seq)
    finally:
        if session is not None:
            await session.end()


def _limit(offer: Mapping[str, Any], name: str) -> int | float | None:
    limits = offer.get("limits")
    value = limits.get(name) if isinstance(limits, Mapping) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@scenario(profile="negotiate", heavy=True)
async def stated_limits(stage: Stage) -> None:
    """What just keeps to each limit that `session` states, and what just goes past it."""
    async with await stage.session() as session:
        offer = await _offer(stage, session)
        await _small_limits(stage, session, offer)
    for play_one in (_text_limit, _waiting_limit, _message_limit, _message_past_limit):
        async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
            offer = await _offer(stage, session)
            await play_one(stage, session, offer)


async def _ask(
    stage: Stage,
    session: WebSocketSession,
    name: str,
    request: dict[str, Any] | bytes,
    *codes: str,
) -> int:
    """Send a case: one that is to be accepted where there are no codes."""
    case = Case(name, _LIMITS_HOLD, "reject" if codes else "accept", codes)
    return await session.send(request, case=case)


async def _small_limits(stage: Stage, session: WebSocketSession, offer: Mapping[str, Any]) -> None:
    request = stage.request(stage.texts.shortest)
    asked: list[tuple[str, dict[str, Any], tuple[str, ...]]] = []
    length = _limit(offer, "max_request_id_chars")
    if length is not None and length <= _LONGEST_ID:
        size = int(length)
        asked.append(("an id of the greatest length", {"request_id": "i" * size}, ()))
        change = {"request_id": "i" * (size + 1)}
        asked.append(("an id one longer", change, ("invalid_request",)))
    fastest, slowest = _limit(offer, "max_speed"), _limit(offer, "min_speed")
    if fastest is not None:
        asked.append(("max_speed", {"speed": fastest}, ()))
        asked.append(("above max_speed", {"speed": _rounded(fastest * 1.01)}, ("invalid_speed",)))
    if slowest is not None:
        asked.append(("min_speed", {"speed": slowest}, ()))
        asked.append(("below min_speed", {"speed": _rounded(slowest / 1.01)}, ("invalid_speed",)))
    for name, change, codes in asked:
        if await stage.is_over(session):
            return
        await stage.ended(session, await _ask(stage, session, name, request | change, *codes))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


async def _text_limit(stage: Stage, session: WebSocketSession, offer: Mapping[str, Any]) -> None:
    limit, room = _limit(offer, "max_text_chars"), _limit(offer, "max_message_bytes")
    if limit is None or limit > _LONGEST_TEXT:
        return
    size = int(limit)
    longer = stage.request(stage.texts.of_length(size + 1))
    if room is not None and len(json.dumps(longer, ensure_ascii=False).encode()) > room:
        return
    past = await _ask(stage, session, "text one longer", longer, "text_too_long")
    await stage.ended(session, past)
    if await stage.is_over(session):
        return
    longest = stage.request(stage.texts.of_length(size))
    seq = await _ask(stage, session, "text of the greatest length", longest)
    await stage.started(session, seq)
    await _let_go(stage, session)


async def _waiting_limit(stage: Stage, session: WebSocketSession, offer: Mapping[str, Any]) -> None:
    limit = _limit(offer, "max_waiting")
    if limit is None or limit > _MOST_WAITING:
        return
    await stage.hold(session)
    request = stage.request(stage.texts.shortest)
    for number in range(int(limit)):
        await _ask(stage, session, f"number {number + 1} to wait", request)
    past = await _ask(stage, session, "one too many to wait", request, "queue_full")
    await stage.let_it_read()
    session.resume()
    await stage.ended(session, past)
    await _let_go(stage, session)


def _message_bytes(offer: Mapping[str, Any]) -> int | None:
    limit = _limit(offer, "max_message_bytes")
    return int(limit) if limit is not None and limit <= _LARGEST_MESSAGE else None


async def _message_limit(stage: Stage, session: WebSocketSession, offer: Mapping[str, Any]) -> None:
    size = _message_bytes(offer)
    if size is not None:
        octets = padded(stage.request(stage.texts.shortest), size)
        seq = await _ask(stage, session, "a message of the greatest size", octets)
        await stage.ended(session, seq)


async def _message_past_limit(
    stage: Stage, session: WebSocketSession, offer: Mapping[str, Any]
) -> None:
    size = _message_bytes(offer)
    if size is None:
        return
    session.note("too big: begins")
    case = Case("a message one byte larger", _LIMITS_HOLD, "reject")
    octets = padded(stage.request(stage.texts.shortest), size + 1)
    sending = asyncio.create_task(session.send(octets, case=case))
    try:
        dialogue, before = session.dialogue, len(session.dialogue.chunks)
        await session.until(
            lambda: dialogue.close_in is not None or len(dialogue.chunks) > before,
            within=stage.pace.first,
        )
        await session.until_close(6.0)
    finally:
        sending.cancel()
        (sent,) = await asyncio.gather(sending, return_exceptions=True)
    if isinstance(sent, Unplayable):
        raise sent


@scenario(profile="negotiate", long=True)
async def stated_idle(stage: Stage) -> None:
    """After `hello` nothing is said, until the limit that `session` states is long over."""
    async with await stage.session() as session:
        limit = _limit(await _offer(stage, session), "idle_timeout_s")
        if limit is None or limit > _LONGEST_IDLE_S:
            raise Unplayable(
                f"the idle limit is {limit} s; the suite waits for {_LONGEST_IDLE_S:g} s at most"
            )
        session.note(f"stated idle: {limit}")
        await session.until_farewell(limit * 1.5 + 2.0)
        session.note("idle: waited")
