"""The HTTP binding (`http.md`)."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, Literal

from utterwire_conformance.driver import HttpConnection
from utterwire_conformance.stage import Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case

from .accepted import ACCEPTED_GROUPS
from .cases import padded
from .rejected import REJECTED_GROUPS

__all__ = [
    "http_accepts",
    "http_body_limit",
    "http_busy",
    "http_content_types",
    "http_methods",
    "http_persistent",
    "http_pings",
    "http_rejects",
    "http_streams",
    "http_unspeakable",
    "http_whole",
]

_ID = "héllo 1/\U0001f600"
_AT_A_TIME: Final = 5
_MESSAGE_FLOOR: Final = 65_536


@scenario(profile="http", heavy=True)
async def http_streams(stage: Stage) -> None:
    """Streamed answers: by default, asked for, with and without an id."""
    text = stage.texts.shortest
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("text alone", {}),
        ("stream true", {"stream": True}),
        ("stream null", {"stream": None}),
        ("with an id", {"request_id": _ID}),
        ("with rate and format", {"sample_rate": 24_000, "format": "pcm_s16le", "speed": 1.5}),
        *((f"voice {voice}", {"voice": voice}) for voice in sorted(stage.claims.voices or ())[:2]),
    ]
    for name, fields in shapes:
        case = Case(name, "http.streams", "accept")
        await stage.post(stage.request(text, **fields), case=case)
    long = stage.request(stage.texts.of_length(1200))
    await stage.post(long, case=Case("a long text", "http.streams", "accept"))


@scenario(profile="http")
async def http_whole(stage: Stage) -> None:
    """The same texts streamed and whole, with characters outside the BMP."""
    check = "http.whole"
    wide = f"{stage.texts.shortest} e\u0301 \U0001f600"
    for name, text, fields in (
        ("whole", stage.texts.shortest, {"stream": False}),
        ("streamed", stage.texts.shortest, {"stream": True}),
        ("whole, with an id", stage.texts.shortest, {"stream": False, "request_id": _ID}),
        ("whole, wide characters", wide, {"stream": False}),
        ("whole, nothing to speak", "...", {"stream": False}),
        ("whole, longer", stage.texts.of_length(600), {"stream": False}),
    ):
        await stage.post(stage.request(text, **fields), case=Case(name, check, "accept"))


@scenario(profile="http")
async def http_unspeakable(stage: Stage) -> None:
    """Texts with nothing to speak."""
    from .audio import UNSPEAKABLE

    for name, text in UNSPEAKABLE.items():
        await stage.post(stage.request(text), case=Case(name, "http.unspeakable", "accept"))


@scenario(profile="http")
async def http_content_types(stage: Stage) -> None:
    """Bodies of JSON under every `Content-Type`, and under none."""
    for kind in (
        "application/json",
        "application/json; charset=utf-8",
        "text/plain",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        None,
    ):
        headers = (("Content-Type", kind),) if kind is not None else ()
        await stage.post(
            stage.request(stage.texts.shortest),
            headers=headers,
            case=Case(kind or "no content type", "http.request_content_type", "accept"),
        )


@scenario(profile="http")
async def http_rejects(stage: Stage) -> None:
    """Every kind of invalid request, and a valid one after each kind."""
    text = stage.texts.shortest
    await stage.post(stage.request(text), case=Case("the valid twin", "http.survives", "accept"))
    same = "http.same_validation"

    async def bad(name: str, check: str, codes: tuple[str, ...], message: Any) -> None:
        await stage.post(message, case=Case(name, check, "reject", codes))

    for group in REJECTED_GROUPS.values():
        # A few at a time: refusals are cheap, and connections far away take long to open.
        at_a_time = stage.fitting(_AT_A_TIME)
        for start in range(0, len(group), at_a_time):
            await asyncio.gather(
                *(
                    # Over HTTP every type but `synthesize` is unknown, and a body is never text.
                    bad(
                        f"{special.case.check}: {special.case.name}",
                        same,
                        special.case.codes,
                        special.make(stage.request(text)),
                    )
                    for special in group[start : start + at_a_time]
                )
            )
        await stage.post(stage.request(text), case=Case("a valid one", "http.survives", "accept"))
    for kind in ("close", "keepalive", "cancel", "hello", "append", "speak"):
        message = stage.request(text, type=kind)
        await bad(f"type {kind}", "http.unknown_type", ("unknown_type",), message)
    streams: tuple[Any, ...] = ("true", 1, 0, [], {})
    for stream in streams:
        message = stage.request(text, stream=stream)
        await bad(f"stream {stream!r}", "http.stream_type", ("invalid_request",), message)
    if "timing" in stage.claims.profiles:
        marks: tuple[Any, ...] = ("word", {}, ["phoneme"], ["word", 1])
        for value in marks:
            message = stage.request(text, marks=value)
            await bad(f"marks {value!r}", same, ("invalid_request",), message)
    limit, room = stage.claims.max_text_chars, stage.claims.max_message_bytes
    if limit is not None:
        message = stage.request(stage.texts.of_length(limit + 1))
        # A body that is too big as well may be refused as that.
        if len(json.dumps(message, ensure_ascii=False).encode()) <= (room or _MESSAGE_FLOOR):
            await bad("text too long", same, ("text_too_long",), message)
    named = stage.request(text, speed="bad", request_id=_ID)
    await bad("with an id", "http.error_body", ("invalid_request", "invalid_speed"), named)
    await stage.post(stage.request(text), case=Case("a valid one", "http.survives", "accept"))


@scenario(profile="http")
async def http_accepts(stage: Stage) -> None:
    """Peculiar but valid requests are as valid here as in a session."""
    for group in ACCEPTED_GROUPS.values():
        for special in group[:3]:
            if "stream" in special.case.name:
                continue
            message = special.make(stage.request(stage.texts.shortest))
            name = f"{special.case.check}: {special.case.name}"
            await stage.post(message, case=Case(name, "http.same_validation", "accept"))


@scenario(profile="http")
async def http_methods(stage: Stage) -> None:
    """Methods that `/invocations` does not have."""
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        async with await stage.http() as connection:
            stage.recorder.case(Case(method, "http.method", "reject"), connection.session)
            await connection.send(method, "/invocations")
            await _whole(stage, connection)


@scenario(profile="http")
async def http_pings(stage: Stage) -> None:
    """`/ping` by GET and by POST."""
    for method in ("GET", "POST"):
        async with await stage.http() as connection:
            await connection.send(method, "/ping")
            await _whole(stage, connection)


@scenario(profile="http")
async def http_persistent(stage: Stage) -> None:
    """Several exchanges on one connection, for as long as the endpoint keeps it open."""
    check = "http.persistent"
    text = stage.texts.shortest
    steps: list[tuple[Case, str, str, dict[str, Any]]] = [
        (Case(name, check, "accept"), "POST", "/invocations", stage.request(text))
        for name in ("the first", "the second")
    ]
    bad = Case("a bad one", check, "reject", ("missing_text",))
    whole = stage.request(text, stream=False)
    steps += [
        (bad, "POST", "/invocations", {"voice": None}),
        (Case("after a bad one", check, "accept"), "POST", "/invocations", stage.request(text)),
        (Case("a ping", check, "either"), "GET", "/ping", {}),
        (Case("whole, after a ping", check, "accept"), "POST", "/invocations", whole),
        (Case("after a whole one", check, "accept"), "POST", "/invocations", stage.request(text)),
    ]
    async with await stage.http() as connection:
        for case, method, target, body in steps:
            stage.recorder.case(case, connection.session)
            octets = json.dumps(body).encode() if method == "POST" else b""
            spoken = len(text) if "text" in body else 0
            await connection.send(method, target, octets, characters=spoken)
            await _whole(stage, connection)
            if not connection.reusable:
                break


@scenario(profile="http", heavy=True, sessions=2)
async def http_busy(stage: Stage) -> None:
    """`/ping` while a long utterance is being spoken in a session."""
    async with await stage.session() as session:
        seq = await session.send(stage.request(stage.texts.of_length(4096)))
        if not await stage.started(session, seq):
            raise Unplayable("no long utterance could be started")
        async with await stage.http() as connection:
            await connection.send("GET", "/ping")
            await _whole(stage, connection)
        ended = session.utterance(seq).ended
        state: Literal["ended", "running"] = "ended" if ended else "running"
        stage.recorder.note(f"busy: {state}", connection.session)


@scenario(profile="http")
async def http_body_limit(stage: Stage) -> None:
    """A body one byte beyond the message limit, and one at the limit."""
    limit = stage.claims.max_message_bytes
    if limit is None:
        raise Unplayable(
            "`max_message_bytes` is not in the endpoint file, so the limit is not known"
        )
    if limit > 32 * 1024 * 1024:
        raise Unplayable(f"the endpoint takes bodies of {limit} bytes; that is too much to send")
    request = stage.request(stage.texts.shortest)
    check = "http.body_limit"
    await stage.post(padded(request, limit), case=Case(f"{limit} bytes", check, "accept"))
    codes = ("text_too_long", "invalid_request")
    await stage.post(padded(request, limit + 1), case=Case(f"{limit + 1}", check, "reject", codes))
    await stage.post(padded(request, 4 * limit), case=Case("4 times", check, "reject", codes))
    await stage.post(request, case=Case("a valid one", "http.survives", "accept"))


async def _whole(stage: Stage, connection: HttpConnection) -> None:
    if await connection.head(within=stage.pace.first) is not None:
        await connection.read(within=stage.pace.stall)
