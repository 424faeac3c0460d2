"""Speeches through the fault proxy of the conformance suite: every rule that an endpoint can break
ends in audio or in a typed error, in time, with every sentence accounted for."""

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from utterwire_client import (
    Audio,
    AudioMissing,
    Backend,
    ConnectFailed,
    DeadlineExceeded,
    Deadlines,
    Lost,
    PeerViolation,
    Session,
    SessionLost,
    SpeechIncomplete,
    Spoken,
    UtteranceCancelled,
    UtteranceRejected,
    UtterwireError,
    connect,
)
from utterwire_client.http import HttpBackend

pytestmark = [
    pytest.mark.usefixtures("no_leftover_tasks"),
    pytest.mark.skipif(
        importlib.util.find_spec("h11") is None or importlib.util.find_spec("jinja2") is None,
        reason="the extra `conformance` is not installed",
    ),
]

TEXT = "One is here. Two. Three?"
PATIENT = Deadlines(close_s=0.2)
# What each fault leaves out is waited for so long, and nothing else: the machine may be held up.
WAITS = {
    "silent-after-utterance": replace(PATIENT, first_chunk_s=1),
    "complete-missing": replace(PATIENT, stall_s=1),
    "cancel-done-missing": replace(PATIENT, answer_s=1),
    "cancel-done-other-seq": replace(PATIENT, answer_s=1),
}
# Where it does not matter what comes of it.
HASTY = Deadlines(connect_s=10, first_chunk_s=1, stall_s=1, answer_s=1, close_s=0.2)
# A hang is what takes much longer than all of them together.
HANG_S = 100


class Outcome(NamedTuple):
    """What became of a speech: the errors told, the rules found broken, whether an interruption
    dropped the session (None if it never came to one), and how much was heard."""

    errors: set[type[UtterwireError]]
    broken: set[str]
    dropped: bool | None
    heard_bytes: int


def over(
    kind: str, proxy: Any, broken: set[str], deadlines: Deadlines
) -> AbstractAsyncContextManager[Session | Backend]:
    def warn(violation: PeerViolation) -> None:
        broken.add(violation.requirement)

    if kind == "websocket":
        return connect(proxy.ws_url, deadlines=deadlines, on_violation=warn)
    return HttpBackend(
        proxy.http_url,
        transport="sse" if kind == "sse" else "http",
        deadlines=deadlines,
        on_violation=warn,
    )


async def outcome(
    url: str, fault: str, kind: str = "websocket", *, deadlines: Deadlines | None = None
) -> Outcome:
    """Speak a text to its end, interrupt another, and say a word, behind a fault."""
    from utterwire_conformance.faults import FAULTS
    from utterwire_conformance.proxy import FaultProxy

    deadlines = deadlines or WAITS.get(fault, PATIENT)
    errors: set[type[UtterwireError]] = set()
    broken: set[str] = set()
    dropped = None
    heard_bytes = 0
    async with asyncio.timeout(HANG_S), FaultProxy(url, FAULTS[fault]) as proxy:
        try:
            async with over(kind, proxy, broken, deadlines) as backend:
                texts: dict[str, None] = {}
                speech = backend.speak(TEXT, on_loss="tell")
                try:
                    async for event in speech:
                        texts[event.sentence.text] = None
                        if isinstance(event, Spoken) and isinstance(event.event, Audio):
                            heard_bytes += len(event.event.data)
                        if isinstance(event, Lost):
                            errors.add(type(event.error))
                except SpeechIncomplete as exc:
                    errors.add(type(exc.__cause__))  # type: ignore[arg-type]
                    unspoken = exc.unspoken
                else:
                    unspoken = ""
                told = "".join(texts)
                # A sentence that was begun is in both.
                assert TEXT.startswith(told)
                assert TEXT.endswith(unspoken)
                assert len(told) + len(unspoken) >= len(TEXT)
                speech = backend.speak(TEXT)
                try:
                    await anext(speech)
                    dropped = (await speech.interrupt()).session_dropped
                    await backend.speak("Yes?").read()
                except SpeechIncomplete:
                    pass
        except ConnectFailed as exc:
            errors.add(type(exc))
    return Outcome(errors, broken, dropped, heard_bytes)


NONE: set[type[UtterwireError]] = set()


@pytest.mark.parametrize(
    ("fault", "errors", "broken", "dropped"),
    [
        # What can be put up with, is; what is lost between sentences is asked for again.
        ("closes-after-utterance", NONE, None, False),
        ("silent-after-utterance", NONE, None, None),
        ("closes-with-1011", NONE, None, None),
        ("samples-split", NONE, "audio.whole-samples", False),
        ("one-byte-too-many", NONE, "audio.whole-samples", False),
        ("chunks-empty", NONE, "audio.chunk-size", False),
        ("chunks-over-64k", NONE, "audio.chunk-size", None),
        ("control-in-binary", NONE, "control.text-frame", False),
        ("start-missing", NONE, "order.start-first", False),
        ("complete-twice", NONE, "order.nothing-after-terminal", False),
        ("seq-left-out", NONE, None, True),
        # What is not, is told as what it is.
        ("complete-missing", {DeadlineExceeded}, None, None),
        ("audio-lost", {AudioMissing}, "complete.audio-bytes", False),
        ("audio-bytes-one-too-many", {AudioMissing}, "complete.audio-bytes", False),
        ("cancelled-unasked", {UtteranceCancelled}, None, None),
        ("voice-demanded", {UtteranceRejected}, None, None),
        ("path-moved", {ConnectFailed}, None, None),
        # Who does not stop when told to is left.
        ("cancel-done-missing", NONE, None, True),
        ("cancel-done-other-seq", NONE, "cancel.done", True),
        ("cancelled-twice", NONE, "order.nothing-after-terminal", False),
    ],
)
async def test_what_an_endpoint_gets_wrong(
    reference: Callable[..., Awaitable[Any]],
    fault: str,
    errors: set[type[UtterwireError]],
    broken: str | None,
    dropped: bool | None,
) -> None:
    server = await reference()
    found = await outcome(server.url, fault)
    assert found.errors == errors
    assert broken is None or broken in found.broken
    assert dropped is None or found.dropped is dropped


@pytest.mark.parametrize(
    "fault",
    [
        *(
            "seq-from-zero",
            "seq-in-threes",
            "seq-as-string",
            "control-with-nan",
            "control-too-deep",
        ),
        *("utterances-mixed", "second-first", "next-start-before-end", "start-twice"),
    ],
)
async def test_whoever_mixes_up_utterances_is_asked_for_nothing_twice(
    reference: Callable[..., Awaitable[Any]], fault: str
) -> None:
    server = await reference()
    honest = await outcome(server.url, "seq-left-out")
    assert honest.heard_bytes > 0
    found = await outcome(server.url, fault, deadlines=HASTY)
    assert found.heard_bytes <= honest.heard_bytes


@pytest.mark.parametrize(
    ("kind", "fault", "errors"),
    [
        ("http", "http-audio-of-odd-length", NONE),
        ("http", "http-always-busy", {UtteranceRejected}),
        ("http", "http-not-found", {ConnectFailed}),
        ("sse", "sse-chunk-lost", {SessionLost}),
        ("sse", "sse-end-missing", {SessionLost}),
        ("sse", "sse-start-missing", NONE),
        ("sse", "sse-never", {ConnectFailed}),
    ],
)
async def test_what_an_endpoint_gets_wrong_over_http(
    reference: Callable[..., Awaitable[Any]],
    kind: str,
    fault: str,
    errors: set[type[UtterwireError]],
) -> None:
    server = await reference()
    assert (await outcome(server.url, fault, kind)).errors == errors


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_fault_hangs_or_crashes_a_speech(
    reference: Callable[..., Awaitable[Any]],
) -> None:
    from utterwire_conformance.faults import FAULTS

    server = await reference()
    few = asyncio.Semaphore(6)

    async def behind(fault: str) -> None:
        async with few:
            kind = fault.partition("-")[0]
            found = await outcome(
                server.url,
                fault,
                kind if kind in ("http", "sse") else "websocket",
                deadlines=HASTY,
            )
            # Each of them is one of the types that are told of.
            assert all(issubclass(error, UtterwireError) for error in found.errors), fault

    async with asyncio.TaskGroup() as group:
        for fault in FAULTS:
            group.create_task(behind(fault))
