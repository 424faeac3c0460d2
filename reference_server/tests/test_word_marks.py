"""Word marks: what an engine may say, and what a session tells (`protocol.md#marks`)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from utterwire_protocol import Word
from utterwire_server.engines import (
    Block,
    BraceEngine,
    EngineError,
    FaultyEngine,
    SpeechRequest,
    ToneEngine,
    WordMark,
)
from utterwire_server.marks import WordTimes
from websockets.frames import Opcode

TEXT = "Grüße, \U0001f600 e\u0301a \U00020000 3!"


class SegmentEngine(ToneEngine):
    """All words with the first block, before there are samples, as models by the segment do."""

    def __init__(self, marks: tuple[WordMark, ...] = ()) -> None:
        super().__init__()
        self.marks = marks

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        blocks = []
        async with aclosing(super().synthesize(request)) as stream:
            blocks = [block async for block in stream]
        marks = self.marks or tuple(mark for block in blocks for mark in block.marks)
        yield Block(np.zeros(0, np.float32), marks)
        for block in blocks:
            yield Block(block.samples)


class LateEngine(ToneEngine):
    """Tells all words with the last block."""

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        async with aclosing(super().synthesize(request)) as stream:
            blocks = [block async for block in stream]
        for block in blocks[:-1]:
            yield Block(block.samples)
        yield Block(blocks[-1].samples, tuple(mark for block in blocks for mark in block.marks))


def words_of(peer: Any, seq: int) -> list[dict[str, Any]]:
    messages = [json.loads(data) for opcode, data in peer.frames if opcode is Opcode.TEXT]
    told = [m for m in messages if m["type"] == "marks"]
    assert all(m["seq"] == seq for m in told)
    return [word for message in told for word in message["words"]]


@pytest.mark.parametrize("engine", [ToneEngine, SegmentEngine])
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("rate", [8_000, 24_000])
async def test_each_word_is_told_before_it_is_heard(
    start: Any, connect: Any, engine: type[ToneEngine], speed: float, rate: int
) -> None:
    peer = await connect(await start(engine()))
    peer.say(text=TEXT, marks=["word", "word"], speed=speed, sample_rate=rate, request_id="r")
    complete = await peer.until("synthesis_complete")
    words = words_of(peer, 1)
    assert [TEXT[w["char_start"] : w["char_end"]] for w in words] == [w["text"] for w in words]
    assert [w["text"] for w in words] == ["Grüße", "e\u0301a", "\U00020000", "3"]
    ends = [0.0, *(w["end_s"] for w in words)]
    assert all(end <= w["start_s"] < w["end_s"] for end, w in zip(ends, words, strict=False))
    assert words[-1]["end_s"] <= complete["total_duration_s"] + 0.001
    # 5, 2, 1 and 1 letters of 40 ms, 120 ms at punctuation and 40 ms elsewhere, all by the speed.
    starts = [0.0, 0.32, 0.44, 0.52]
    assert [w["start_s"] for w in words] == pytest.approx([s / speed for s in starts], abs=0.002)
    heard = 0
    for opcode, data in peer.frames:
        if opcode is Opcode.BINARY:
            heard += len(data)
        elif b'"marks"' in data:
            first = words.pop(0)
            assert first["start_s"] >= heard / (2 * rate) - 0.001
            del words[: data.count(b'"start_s"') - 1]
    assert not words


@pytest.mark.parametrize("asked", [{}, {"marks": None}, {"marks": []}])
async def test_nobody_asked(start: Any, connect: Any, asked: dict[str, Any]) -> None:
    peer = await connect(await start())
    peer.say(text=TEXT, **asked)
    await peer.until("synthesis_complete")
    assert not words_of(peer, 1)


async def test_nothing_to_speak_has_no_words(start: Any, connect: Any) -> None:
    peer = await connect(await start())
    peer.say(text="... \U0001f600", marks=["word"])
    await peer.until("synthesis_complete")
    assert not words_of(peer, 1)


@pytest.mark.parametrize(
    "marks", ["word", 1, {}, True, ["phoneme"], ["word", 1], [None], [["word"]]]
)
async def test_other_marks_are_invalid(start: Any, connect: Any, marks: Any) -> None:
    peer = await connect(await start())
    peer.say(text="a", marks=marks)
    assert (await peer.control())["code"] == "invalid_request"


@pytest.mark.parametrize(
    "unable", [{"engine": BraceEngine()}, {"profiles": frozenset({"core", "negotiate"})}]
)
async def test_without_the_profile_marks_are_not_looked_at(
    start: Any, connect: Any, unable: dict[str, Any]
) -> None:
    peer = await connect(await start(unable.pop("engine", None), **unable))
    peer.say(type="hello", protocol_versions=[1])
    assert "timing" not in (await peer.control())["profiles"]
    peer.say(text="a b", marks=5)
    await peer.until("synthesis_complete")
    peer.say(text="a b", marks=["word"])
    await peer.until("synthesis_complete")
    assert not words_of(peer, 2)


async def test_a_cancelled_utterance_tells_no_more_words(start: Any, connect: Any) -> None:
    peer = await connect(await start(ToneEngine(0.5)))
    peer.say(text="a b c d e f g h i " * 40, marks=["word"])
    await peer.until("marks")
    peer.say(type="cancel")
    await peer.until("cancel_done")
    told = len(words_of(peer, 1))
    peer.say(text="b")
    await peer.until("synthesis_complete")
    assert 0 < told == len(words_of(peer, 1)) < 360


async def test_a_failing_engine_has_told_what_it_came_to(start: Any, connect: Any) -> None:
    peer = await connect(await start(FaultyEngine(3)))
    peer.say(text="a b c d e f", marks=["word"])
    assert (await peer.until("error"))["code"] == "synthesis_failed"
    assert 0 < len(words_of(peer, 1)) < 6


async def test_many_words_come_in_messages_of_their_size(start: Any, connect: Any) -> None:
    peer = await connect(await start(SegmentEngine()))
    peer.say(text="a " * 2_000, marks=["word"])
    await peer.until("synthesis_complete")
    assert len(words_of(peer, 1)) == 2_000
    sizes = [len(data) for opcode, data in peer.frames if opcode is Opcode.TEXT]
    assert len(sizes) > 4
    assert max(sizes) <= 65_536


@pytest.mark.parametrize(
    "engine",
    [
        LateEngine(),
        SegmentEngine((WordMark("b", 0.0, 0.1, 0, 1),)),
        SegmentEngine((WordMark("a", 0.0, 0.1, 0, 1), WordMark("a", 0.1, 0.2, 0, 1))),
    ],
)
async def test_an_engine_that_errs_fails_its_utterance_alone(
    start: Any, connect: Any, engine: ToneEngine
) -> None:
    peer = await connect(await start(engine))
    peer.say(text="a b c", marks=["word"])
    assert (await peer.until("error"))["code"] == "synthesis_failed"
    peer.say(text="a b c")
    await peer.until("synthesis_complete")


def mark(start_s: float, end_s: float, at: int = 0) -> WordMark:
    return WordMark("abc"[at], start_s, end_s, at, at + 1)


ERRORS: list[tuple[list[WordMark], float]] = [
    ([WordMark("b", 0.0, 1.0, 0, 1)], 0.0),
    ([WordMark("abcd", 0.0, 1.0, 0, 4)], 0.0),
    ([mark(0.0, 0.5), mark(0.5, 0.6)], 0.0),
    ([mark(0.0, 0.5, 1), mark(0.5, 0.6, 0)], 0.0),
    ([mark(0.0, 0.5), mark(0.4, 0.6, 1)], 0.0),
    ([mark(0.1, 0.5)], 0.2),
    ([mark(0.5, 0.5)], 0.0),
    ([mark(0.0, 0.5), mark(0.4995, 0.5, 1)], 0.0),
]


@pytest.mark.parametrize(("marks", "made_s"), ERRORS)
def test_mistakes_of_engines(marks: list[WordMark], made_s: float) -> None:
    with pytest.raises(EngineError, match="the word at"):
        WordTimes("abc").words(marks, made_s)


def test_rounding_is_evened_out() -> None:
    times = WordTimes("abc")
    assert times.words([mark(0.0, 0.5)], 0.0) == [Word("a", 0.0, 0.5, 0, 1)]
    assert times.words([mark(0.4995, 0.7, 1)], 0.4) == [Word("b", 0.5, 0.7, 1, 2)]
    assert times.words([], 0.7) == []
    assert times.words([mark(0.7999, 0.9, 2)], 0.8) == [Word("c", 0.8, 0.9, 2, 3)]


async def test_a_reader_that_stalls_holds_up_the_words_too(
    start: Any, connect: Any, eventually: Any
) -> None:
    server = await start()
    peer = await connect(server, receive_buffer=4_096)
    peer.say(text="a b c d e f g h " * 250, marks=["word"])
    await peer.until("marks")
    # The engine waits for the reader, words or not.
    await eventually(lambda: not server.service.scheduler.computing)
    assert server.service.scheduler.speaking == 1
    await peer.until("synthesis_complete")
    assert len(words_of(peer, 1)) == 2_000
