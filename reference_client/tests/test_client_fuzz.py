"""Whatever an endpoint sends, in whatever order: every utterance ends, in the types that are
documented, and nothing is left behind."""

# ruff: noqa: PT017 - an error is one of the right ends

import asyncio
import json
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_client import (
    Audio,
    Complete,
    Deadlines,
    PeerViolation,
    Session,
    Start,
    TransportClosed,
    UtterwireError,
)

deterministic = settings(derandomize=True, max_examples=250, deadline=None)

seqs = st.one_of(st.none(), st.integers(0, 6), st.just("1"), st.floats())
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
TYPES = [
    "synthesis_start",
    "synthesis_complete",
    "error",
    "cancelled",
    "cancel_done",
    "marks",
    "session",
    "session_closed",
    "unheard_of",
]
FIELDS = [
    *("sample_rate", "format", "voice", "audio_bytes", "code", "message", "retryable"),
    *("rejected", "words", "count", "reason", "last_seq", "limits", "request_id", "profiles"),
]


@st.composite
def control(draw: st.DrawFn) -> str:
    fields: dict[str, Any] = {"type": draw(st.sampled_from(TYPES))}
    if (seq := draw(seqs)) is not None:
        fields["seq"] = seq
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=3, unique=True)):
        fields[name] = draw(junk)
    return json.dumps(fields)


PLAUSIBLE = [
    '{"type":"synthesis_start","seq":%d,"sample_rate":24000,"format":"pcm_s16le","voice":"v"}',
    '{"type":"synthesis_start","seq":%d,"sample_rate":8000,"format":"mulaw","voice":"v"}',
    '{"type":"synthesis_complete","seq":%d,"audio_bytes":4}',
    '{"type":"error","seq":%d,"code":"internal","message":"m","retryable":true}',
    '{"type":"error","seq":%d,"code":"queue_full","message":"m","rejected":true}',
    '{"type":"cancelled","seq":%d,"audio_bytes":0}',
    '{"type":"cancel_done","seq":%d,"count":1}',
]
plausible = st.builds(lambda text, seq: text % seq, st.sampled_from(PLAUSIBLE), st.integers(1, 5))
audio = st.one_of(st.binary(max_size=9), st.just(struct.pack("<4h", 1, 2, 3, 4)))
messages: st.SearchStrategy[str | bytes] = st.one_of(
    plausible, plausible.map(str.encode), control(), audio, st.text(max_size=12)
)


class Tape:
    """Plays messages, then breaks."""

    def __init__(self, played: list[str | bytes]) -> None:
        self._played = list(reversed(played))
        self._aborted = False

    async def send(self, message: str) -> None:
        assert json.loads(message)

    async def receive(self) -> str | bytes:
        await asyncio.sleep(0)
        if self._aborted or not self._played:
            raise TransportClosed("the tape is over", code=1000)
        return self._played.pop()

    async def close(self) -> None:
        self._aborted = True

    def abort(self) -> None:
        self._aborted = True


async def listen(utterance: Any) -> int:
    """Read to the end; returns how many bytes came, and checks the order of events."""
    size = 0
    started = completed = False
    try:
        async for event in utterance:
            assert not completed
            assert started is not isinstance(event, Start)
            started = True
            if isinstance(event, Audio):
                assert event.data
                size += len(event.data)
            completed = isinstance(event, Complete)
    except UtterwireError as error:
        assert not completed
        assert str(error).isprintable()
        assert len(str(error)) < 1000
    else:
        assert completed
    return size


async def talk(played: list[str | bytes], leave: int, interrupt: bool | None) -> int:
    violations: list[PeerViolation] = []
    deadlines = Deadlines(answer_s=5, close_s=5)
    size = 0
    try:
        async with Session(
            Tape(played),
            deadlines=deadlines,
            interrupt=interrupt,
            on_violation=violations.append,
            buffer_bytes=1000,
            max_buffer_bytes=2000,
        ) as session:
            utterances = [session.synthesize("x", request_id=f"{n}") for n in range(3)]
            if leave < 3:
                await utterances.pop(leave).aclose()
            size = sum(await asyncio.gather(*map(listen, utterances)))
            await session.cancel()
    except UtterwireError as error:
        assert str(error).isprintable()
    assert len(asyncio.all_tasks()) == 1
    assert all(str(violation).isprintable() for violation in violations)
    return size


@given(
    played=st.lists(messages, max_size=30),
    leave=st.integers(0, 5),
    interrupt=st.sampled_from([None, True, False]),
)
@deterministic
def test_any_endpoint(played: list[str | bytes], leave: int, interrupt: bool | None) -> None:
    size = asyncio.run(talk(played, leave, interrupt))
    assert size <= sum(len(message) for message in played)
