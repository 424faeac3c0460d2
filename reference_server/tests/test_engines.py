"""The engines: audio follows the text, the same each time; and how an engine is found."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_server.encoders.pcm import encode_pcm_s16le
from utterwire_server.engines import (
    ENGINE_NAMES,
    Block,
    BraceEngine,
    Engine,
    EngineError,
    FaultyEngine,
    LoudEngine,
    ModelOptions,
    SpeechRequest,
    ToneEngine,
    WordMark,
    load_engine,
)


async def blocks_of(
    engine: Engine, text: str, voice: str = "alto", speed: float = 1.0, rate: int = 24_000
) -> list[Block]:
    return [block async for block in engine.synthesize(SpeechRequest(text, voice, speed, rate))]


async def speech(
    text: str, voice: str = "alto", speed: float = 1.0, rate: int = 24_000
) -> np.ndarray:
    blocks = await blocks_of(ToneEngine(), text, voice, speed, rate)
    return np.concatenate([np.zeros(0, np.float32), *(block.samples for block in blocks)])


async def test_the_same_request_gives_the_same_samples() -> None:
    first, second = await speech("Hello there."), await speech("Hello there.")
    assert first.size
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello there.", "Hello where."),
        ("ab", "ba"),
        ("a", "A"),
        ("Hello.", "Hello!"),
        ("мир", "рим"),
        ("一二", "二一"),
        ("\U00020000", "\U00020001"),
    ],
)
async def test_another_text_gives_other_samples(one: str, other: str) -> None:
    assert not np.array_equal(await speech(one), await speech(other))


async def test_another_voice_gives_other_samples() -> None:
    heard = [await speech("Hello there.", voice) for voice in ToneEngine().voices]
    for index, samples in enumerate(heard):
        for another in heard[index + 1 :]:
            assert not np.array_equal(samples, another)


async def test_a_higher_speed_is_shorter() -> None:
    lengths = [
        (await speech("Hello there.", speed=speed)).size for speed in (0.5, 0.9, 1.0, 1.1, 2.0)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) == len(lengths)


@pytest.mark.parametrize("rate", ToneEngine().sample_rates)
async def test_the_rate_changes_the_samples_not_the_length(rate: int) -> None:
    wanted = (await speech("Hello there.")).size / 24_000
    assert (await speech("Hello there.", rate=rate)).size / rate == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "...",
        "?!",
        "\u2014",
        "\U0001f642",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1eb\U0001f1f7",
        "\u200b",
        "1\ufe0f\u20e3",
        "#\ufe0f\u20e3",
        "2\u20e3",
        "\u2139",
        "\u2139\ufe0f",
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\U0001f44d\U0001f3fd",
        "\u2122",
        "\u2026\u2028",
        "\u0301",
        "\ufe0f",
    ],
)
async def test_nothing_to_speak(text: str) -> None:
    assert not (await speech(text)).size


@pytest.mark.parametrize(
    "text", ["a", "7", "é", "e\u0301", "你", "ب", "ก็", "हिन्दी", "\U0001d49c", "①", "½", "ª"]
)
async def test_something_to_speak(text: str) -> None:
    samples = await speech(text)
    assert np.abs(samples).max() > 0.1


@given(st.text(max_size=40), st.text(min_size=1, max_size=10))
@settings(derandomize=True, max_examples=50, deadline=None)
def test_more_text_is_never_shorter(text: str, more: str) -> None:
    if text:
        short = asyncio.run(speech(text)).size
        assert asyncio.run(speech(text + " a" + more)).size > short


@given(
    st.text(min_size=1, max_size=60),
    st.floats(0.5, 2.0),
    st.sampled_from(ToneEngine().sample_rates),
)
@settings(derandomize=True, max_examples=50, deadline=None)
def test_any_text_gives_clean_blocks(text: str, speed: float, rate: int) -> None:
    blocks = asyncio.run(blocks_of(ToneEngine(), text, "bass", speed, rate))
    assert all(0 < block.samples.size <= 0.05 * rate for block in blocks)
    samples = sum(block.samples.size for block in blocks)
    last = 0.0
    for mark in (mark for block in blocks for mark in block.marks):
        assert last <= mark.start_s <= mark.end_s <= samples / rate + 1e-6
        assert text[mark.char_start : mark.char_end] == mark.text
        last = mark.end_s


async def test_marks_name_the_words_in_the_block_where_they_begin() -> None:
    blocks = await blocks_of(ToneEngine(), "Hi, old world!")
    heard = [
        (mark.text, mark.char_start, mark.char_end) for block in blocks for mark in block.marks
    ]
    assert heard == [("Hi", 0, 2), ("old", 4, 7), ("world", 8, 13)]
    made = 0
    for block in blocks:
        for mark in block.marks:
            assert mark.start_s * 24_000 >= made
        made += block.samples.size


async def test_waiting_follows_the_real_time_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("utterwire_server.engines.tone.asyncio.sleep", sleep)
    blocks = await blocks_of(ToneEngine(0.5), "Hello there.")
    audio = sum(block.samples.size for block in blocks) / 24_000
    assert len(waits) == len(blocks)
    assert sum(waits) == pytest.approx(0.5 * audio)


@pytest.mark.parametrize("factor", [-0.1, float("inf"), float("nan")])
def test_a_real_time_factor_that_cannot_be(factor: float) -> None:
    with pytest.raises(ValueError, match="real-time factor"):
        ToneEngine(factor)


async def test_brace_spells_json() -> None:
    chunks = [
        encode_pcm_s16le(block.samples)
        for block in await blocks_of(BraceEngine(), "Hello there, world.")
    ]
    assert chunks[0].startswith(b'{"type":"synthesis_complete"')
    assert chunks[1] == b"{}"
    assert chunks[2] == b"{\x00}\x00"
    assert not await blocks_of(BraceEngine(), "...")


async def test_loud_is_beyond_full_scale_and_holds_what_is_no_number() -> None:
    samples = np.concatenate([block.samples for block in await blocks_of(LoudEngine(), "Hello.")])
    assert np.nanmax(np.where(np.isinf(samples), 0, samples)) > 1.5
    assert np.isnan(samples).any()
    assert np.isinf(samples).any()


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_faulty_fails_after_its_blocks(count: int) -> None:
    stream = FaultyEngine(count).synthesize(SpeechRequest("Hello there.", "alto", 1.0, 24_000))
    for _ in range(count):
        assert (await anext(stream)).samples.size
    with pytest.raises(EngineError, match=f"after {count} blocks"):
        await anext(stream)


async def test_faulty_fails_even_where_the_text_is_short() -> None:
    with pytest.raises(EngineError):
        await blocks_of(FaultyEngine(100), "a")


async def test_hanging_never_returns_and_can_be_closed() -> None:
    async with aclosing(
        FaultyEngine(1, hang=True).synthesize(SpeechRequest("Hello there.", "alto", 1.0, 24_000))
    ) as stream:
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


def test_faulty_cannot_fail_before_it_begins() -> None:
    with pytest.raises(ValueError, match="-1 blocks"):
        FaultyEngine(-1)


@pytest.mark.parametrize("name", [name for name in ENGINE_NAMES if "kokoro" not in name])
def test_each_name_makes_an_engine(name: str) -> None:
    engine = load_engine(name, real_time_factor=0.25, blocks=2)
    assert isinstance(engine, ToneEngine)
    assert engine.real_time_factor == 0.25
    assert engine.voices
    assert 24_000 in engine.sample_rates


def test_a_factory_of_ones_own() -> None:
    assert isinstance(load_engine("utterwire_server.engines:ToneEngine"), ToneEngine)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("festival", "no engine 'festival'; choose kokoro-onnx, kokoro-torch, tone"),
        ("no_such_module:make", "cannot be imported"),
        ("utterwire_server.engines:nothing", "cannot be imported"),
        (":make", "cannot be imported"),
        (".engines:make", "no engine '.engines:make'; choose"),
        ("engine_of_ones_own:make", r"cannot be imported: ZeroDivisionError: division by zero"),
        ("utterwire_server.engines:WordMark", "cannot be made"),
        ("builtins:dict", "made a dict, not an Engine"),
    ],
)
def test_an_engine_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    (tmp_path / "engine_of_ones_own.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=words):
        load_engine(name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"streaming": "whole"}, "no streaming 'whole'; choose window or sentence"),
        ({"threads": 0}, "threads is 0; it must be 1 to"),
        ({"workers": 10**9}, "workers is 1000000000; it must be 1 to"),
        ({"device": "auto:1"}, "no device 'auto:1'; there are auto, cpu, cuda, cuda:0"),
        ({"device": "cuda:"}, "no device 'cuda:'"),
        ({"device": "tpu"}, "no device 'tpu'"),
    ],
)
def test_a_model_is_run_in_no_way_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ModelOptions(**options)


@pytest.mark.parametrize(
    ("text", "speed", "rate", "words"),
    [
        ("", 1.0, 24_000, "text"),
        ("a", 0.0, 24_000, "speed"),
        ("a", float("nan"), 24_000, "speed"),
        ("a", 1.0, 0, "sample_rate"),
    ],
)
def test_a_request_that_cannot_be(text: str, speed: float, rate: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SpeechRequest(text, "alto", speed, rate)


@pytest.mark.parametrize(
    ("samples", "words"),
    [(np.zeros((2, 2), np.float32), "mono"), (np.zeros(2, np.float64), "float32")],
)
def test_a_block_that_cannot_be(samples: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Block(samples)


@pytest.mark.parametrize(
    "where", [(1.0, 0.5, 0, 1), (-1.0, 0.5, 0, 1), (0.0, 0.5, 1, 1), (0.0, 0.5, -1, 1)]
)
def test_a_mark_that_cannot_be(where: tuple[float, float, int, int]) -> None:
    with pytest.raises(ValueError, match="a word cannot run"):
        WordMark("a", *where)


async def test_starting_and_stopping_need_nothing() -> None:
    engine = ToneEngine()
    await engine.start()
    await engine.stop()
