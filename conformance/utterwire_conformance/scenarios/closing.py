"""How sessions end: by `close`, by idling, by shutdown."""

from __future__ import annotations

import asyncio
import json

from utterwire_conformance.driver import (
    ConnectFailed,
    HttpConnection,
    WebSocketSession,
    fetch_status,
)
from utterwire_conformance.stage import SMALL_BUFFER, NoPlace, Stage, Unplayable, scenario
from utterwire_conformance.target import Instance
from utterwire_conformance.transcript import Case

__all__ = [
    "close_at_once",
    "close_drains",
    "close_frames",
    "endpoint_closes",
    "idle",
    "idle_reset",
    "shutdown",
]

_ENDPOINT_CLOSES_WITHIN_S = 7.0
_LONGEST_IDLE_S = 15.0
_LONGEST_DEADLINE_S = 20.0


@scenario()
async def close_drains(stage: Stage) -> None:
    """`close` behind two requests and a bad message; more messages behind `close`."""
    async with await stage.session() as session:
        await session.send(stage.request(stage.texts.sample(0), request_id="one"))
        await session.send(b"[]")
        await session.send(stage.request(stage.texts.sample(1), request_id="two"))
        await session.send({"type": "close"}, case=Case("close", "close.drains", "accept"))
        later = "close.ignores_later"
        request = stage.request(stage.texts.shortest, request_id="late")
        await session.send(request, case=Case("a valid request", later, "either"))
        await session.send(b"nonsense", case=Case("not JSON", later, "either"))
        await session.send({"type": "keepalive"}, case=Case("keepalive", later, "either"))
        await session.send({"type": "close"}, case=Case("a second close", later, "either"))
        if not await stage.farewell(session):
            return
        # What would still come would come before the pong.
        await session.ping(b"fence")
        await session.until_pongs(1, 1.0 + 2 * stage.pace.rtt)


@scenario()
async def close_at_once(stage: Stage) -> None:
    """`close` as the first message; then the client closes."""
    async with await stage.session() as session:
        await session.send({"type": "close"}, case=Case("close", "close.session_closed", "accept"))
        await stage.farewell(session)
    async with await stage.session() as session:
        case = Case("close, with fields nobody knows", "close.session_closed", "accept")
        await session.send({"type": "close", "x": [None], "text": 7, "request_id": 7}, case=case)
        await stage.farewell(session)


@scenario(long=True)
async def endpoint_closes(stage: Stage) -> None:
    """After `session_closed` the client does nothing: when and how does the endpoint close."""
    session = await stage.session()
    async with session:
        await session.send({"type": "close"})
        if not await stage.farewell(session):
            return
        # Messages now are read and dropped.
        await session.send(stage.request(stage.texts.shortest))
        done = await session.until_close(_ENDPOINT_CLOSES_WITHIN_S + 2 * stage.pace.rtt)
        if not done and not session.dialogue.ended:
            session.note(f"waited for the endpoint's close: {_ENDPOINT_CLOSES_WITHIN_S}")


@scenario()
async def close_frames(stage: Stage) -> None:
    """Close frames of several kinds, also in mid-utterance."""
    for code in (1000, 1001, None, 4000):
        session = await stage.session()
        async with session:
            if code == 1001:
                seq = await session.send(stage.request(stage.texts.of_length(400)))
                await stage.started(session, seq)
            else:
                # The round trip shows that the session is up before it is closed.
                await session.ping(b"up")
                await session.until_pongs(1, 1.0 + 2 * stage.pace.rtt)
            await session.send_close(code)
            await session.say_goodbye(stage.pace.first)


def _idle_limit(stage: Stage) -> float:
    limit = stage.claims.idle_s
    if limit is None:
        raise Unplayable("`timeouts.idle_s` is not in the endpoint file, so the limit is not known")
    if limit > _LONGEST_IDLE_S:
        raise Unplayable(
            f"the endpoint's idle limit is {limit:g} s; the suite waits for {_LONGEST_IDLE_S:g} s"
            " at most"
        )
    return limit


@scenario(long=True)
async def idle(stage: Stage) -> None:
    """A session with one utterance, then nothing; and one with nothing at all but pings."""
    limit = _idle_limit(stage)

    async def spoken() -> None:
        async with await stage.session() as session:
            await stage.speak(session, stage.texts.shortest)
            # Counted, but never answered: `last_seq` does not name it.
            await session.send({"type": "keepalive"})
            session.note(f"idle limit: {limit}")
            await session.until_farewell(limit * 1.5 + 2.0)
            session.note("idle: waited")

    async def silent() -> None:
        async with await stage.session() as session:
            session.note(f"idle limit: {limit}")
            for _ in range(4):
                await session.until_farewell(limit / 3)
                if session.dialogue.session_closed or session.dialogue.ended:
                    break
                await session.ping(b"still here")
            await session.until_farewell(limit * 0.5 + 2.0)
            session.note("idle: waited")

    await stage.side_by_side(spoken, silent)


@scenario(long=True)
async def idle_reset(stage: Stage) -> None:
    """Messages of every kind keep a session; so does an utterance that is not ended."""
    limit = _idle_limit(stage)

    async def kept_by_messages() -> None:
        async with await stage.session() as session:
            session.note(f"idle limit: {limit}")
            messages: list[dict[str, object] | bytes] = [
                {"type": "keepalive"},
                b"nonsense",
                {"type": "keepalive"},
            ]
            for message in messages:
                await session.until_farewell(limit * 0.6)
                if session.dialogue.session_closed or session.dialogue.ended:
                    return
                await session.send(message)
            session.note(f"kept for: {limit * 1.8}")
            await stage.speak(session, stage.texts.shortest)

    async def kept_by_utterance() -> None:
        async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
            session.note(f"idle limit: {limit}")
            seq = await stage.hold(session)
            await asyncio.sleep(limit * 1.3)
            session.resume()
            session.note(f"held for: {limit * 1.3}")
            await stage.ended(session, seq)
            # Its end starts the clock again, from zero.
            await session.until_farewell(limit * 0.5)
            await stage.speak(session, stage.texts.shortest)

    await stage.side_by_side(kept_by_messages, kept_by_utterance)


@scenario(launches=True, limit_s=90.0)
async def shutdown(stage: Stage) -> None:
    """SIGTERM to an instance of its own, with sessions and a request in every state."""
    instance = await stage.target.launch()
    deadline = stage.claims.shutdown_s
    check = "shutdown.going_away"
    sessions = [
        await stage.session(instance=instance, receive_buffer=SMALL_BUFFER) for _ in range(2)
    ]
    draining, stuck = sessions
    http = events = None
    try:
        # Held by slow reading: after a standstill TCP may bring what was sent only seconds later,
        # when the endpoint has rightly given up.
        first = await stage.hold(draining, request_id="running")
        draining.sip()
        waiting = await draining.send(stage.request(stage.texts.shortest, request_id="waiting"))
        if deadline is not None:
            await stage.hold(stuck, request_id="stuck")
            stuck.sip()
        room = stage.fitting(5, instance)
        if "http" in stage.claims.profiles and deadline is not None and room >= 4:
            http = await stage.http(instance=instance, receive_buffer=SMALL_BUFFER)
            body = stage.request(stage.texts.of_length(4096))
            octets = _json(body)
            await http.send("POST", "/invocations", octets, characters=4096)
            await http.head(within=stage.pace.first)
            await http.read(within=stage.pace.first, at_least=1)
            stage.recorder.note("stalls until shutdown is over", http.session)
        if "sse" in stage.claims.profiles and deadline is not None and room >= 5:
            events = await _long_events(stage, instance)
        # The last to be opened, so that it has no time to idle.
        quiet = await stage.session(instance=instance, receive_buffer=SMALL_BUFFER)
        sessions.append(quiet)
        await stage.speak(quiet, stage.texts.shortest, request_id="done")
        # The request behind must have been read before the signal comes.
        await draining.ping(b"fence")
        await asyncio.sleep(0.1 + stage.pace.rtt)
        for session in sessions:
            session.note("shutdown: begins")
        instance.terminate()
        await _await_draining(stage, instance)
        late = await draining.send(
            stage.request(stage.texts.shortest, request_id="late"),
            case=Case("a new request", check, "reject", ("going_away",)),
        )
        await _ask_http_while_draining(stage, instance)
        draining.resume()
        await stage.ended(draining, first, waiting, late)
        await asyncio.gather(*(stage.farewell(session) for session in (draining, quiet)))
        if deadline is not None and deadline <= _LONGEST_DEADLINE_S:
            await _outlast(stage, stuck, http, events, deadline)
        for session in sessions:
            await session.until_close(6.0 + 2 * stage.pace.rtt)
        code = await instance.wait(10.0)
        stage.recorder.note(f"exit status: {code}")
    finally:
        for session in sessions:
            await session.end()
        for connection in (http, events):
            if connection is not None:
                await connection.end()
        await instance.stop()


async def _long_events(stage: Stage, instance: Instance) -> HttpConnection:
    """Ask for a long text in events, and read the first of them."""
    events = await stage.http(instance=instance, receive_buffer=SMALL_BUFFER)
    octets = _json(stage.request(stage.texts.of_length(4096)))
    accept = (("Accept", "text/event-stream"),)
    await events.send("POST", "/invocations", octets, headers=accept, characters=4096)
    await events.head(within=stage.pace.first)
    await events.read(within=stage.pace.first, at_least=1)
    stage.recorder.note("events until shutdown is over", events.session)
    return events


async def _sip(events: HttpConnection, seconds: float) -> None:
    """Read a little now and then: who reads nothing at all need not be told of a failure."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while events.clean is None and loop.time() < end:
        await asyncio.sleep(seconds / 20)
        await events.read(within=seconds / 20, at_least=len(events.body) + 1)


async def _outlast(
    stage: Stage,
    stuck: WebSocketSession,
    http: HttpConnection | None,
    events: HttpConnection | None,
    limit: float,
) -> None:
    """Let the endpoint's deadline pass with readers that are too slow, then read what is left."""
    began = next(e.t for e in stuck.dialogue.entries if e.text == "shutdown: begins")
    left = max(0.0, began + limit + 0.3 - stuck.now)
    if events is not None:
        await _sip(events, left)
    left = max(0.0, began + limit + 0.3 - stuck.now)
    await asyncio.sleep(left)
    stuck.note("deadline: over")
    stuck.resume()

    async def read(connection: HttpConnection | None) -> None:
        if connection is not None:
            await connection.read(within=max(10.0, stage.pace.stall))

    await asyncio.gather(read(http), read(events), stage.farewell(stuck))


async def _await_draining(stage: Stage, instance: Instance) -> None:
    """Wait until the endpoint shows that it heard the signal; not every endpoint can."""
    for _ in range(20):
        status = await fetch_status(f"{instance.http_url}/ping", within=1.0)
        if status != 200:
            break
        await asyncio.sleep(0.05)


async def _ask_http_while_draining(stage: Stage, instance: Instance) -> None:
    """`/ping` and a request, over connections of their own."""
    if "http" not in stage.claims.profiles:
        return
    try:
        async with await stage.http(instance=instance) as connection:
            stage.recorder.note("draining", connection.session)
            await connection.send("GET", "/ping")
            if await connection.head(within=stage.pace.first) is not None:
                await connection.read(within=stage.pace.stall)
        case = Case("while draining", "http.retry_after", "reject", ("going_away", "overloaded"))
        await stage.post(stage.request(stage.texts.shortest), instance=instance, case=case)
    except NoPlace as error:
        stage.recorder.note(f"draining: not asked over HTTP ({error})")
    except ConnectFailed as error:
        stage.recorder.note(f"draining: no new connection is taken ({error})")


def _json(body: dict[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
