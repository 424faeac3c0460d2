"""Kokoro as an engine, on acoustics without a model: voices, threads, cancelling, calibration."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from utterwire_server.engines import Block, EngineError, SpeechRequest
from utterwire_server.engines.kokoro.engine import DEFAULT_VOICE, KokoroEngine
from utterwire_server.engines.kokoro.statistics import (
    Statistics,
    StatisticsStore,
    cache_folder,
    pooled,
)
from utterwire_server.model.folder import ModelFolder
from utterwire_server.text.segment import Segment, SpokenWord

VOCABULARY = {letter: 2 * (index + 1) for index, letter in enumerate("abcdefgh")} | {" ": 1}
REASON = "Japanese needs a dictionary; pip install it"


class Reader:
    """A front end whose phonemes are the letters; a sentence is a segment."""

    def __init__(self, languages: Mapping[str, str | None]) -> None:
        self._languages = languages
        self.warm: list[str] = []
        self.threads: set[int] = set()
        self.failure: Exception | None = None

    def languages(self) -> Mapping[str, str | None]:
        return self._languages

    def warm_up(self, language: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.warm.append(language)

    def segments(self, text: str, language: str) -> Iterator[Segment]:
        assert self._languages[language] is None
        offset = 0
        for sentence in text.split("."):
            self.threads.add(threading.get_ident())
            if sentence:
                word = SpokenWord(offset, offset + len(sentence), 0, len(sentence))
                yield Segment(sentence, (word,), offset, offset + len(sentence), 0.3)
            offset += len(sentence) + 1


Make = Callable[..., KokoroEngine]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFolder:
    monkeypatch.setenv("UTTERWIRE_CACHE_DIR", str(tmp_path / "cache"))
    model = tmp_path / "model"
    (model / "voices").mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"vocab": VOCABULARY}))
    (model / "weights").write_bytes(b"weights")
    for number, voice in enumerate(["af_alloy", DEFAULT_VOICE, "bm_george", "jf_alpha"]):
        np.full((510, 256), number, "<f4").tofile(model / "voices" / f"{voice}.bin")
    return ModelFolder(model)


@pytest.fixture
async def make(folder: ModelFolder, sounding_positions: Any) -> AsyncIterator[Make]:
    """``make(**parameters)`` gives an engine; what it loads is in its ``loaded``."""
    engines: list[KokoroEngine] = []

    def begin(**parameters: Any) -> KokoroEngine:
        loaded: list[Any] = []

        def load() -> Any:
            acoustics = sounding_positions()
            loaded.append(acoustics)
            return acoustics

        engine = KokoroEngine(
            folder,
            **{
                "name": "kokoro-fake",
                "weights": "weights",
                "make_acoustics": load,
                "front_end": Reader({"a": None, "b": None, "j": REASON}),
                **parameters,
            },
        )
        engine.loaded = loaded  # type: ignore[attr-defined]
        engines.append(engine)
        return engine

    yield begin
    for engine in engines:
        await engine.stop()


async def speak(engine: KokoroEngine, text: str, voice: str = DEFAULT_VOICE) -> list[Block]:
    request = SpeechRequest(text, voice, 1.0, 24_000)
    return [block async for block in engine.synthesize(request)]


def rendered(engine: Any) -> list[tuple[int, int, bool]]:
    return [spoken for acoustics in engine.loaded for spoken in acoustics.spoken]


def test_voices_of_languages_that_can_be_spoken_are_offered(make: Make) -> None:
    engine = make()
    assert engine.voices == (DEFAULT_VOICE, "af_alloy", "bm_george")
    assert engine.refused == {"jf_alpha": REASON}
    assert engine.sample_rates == (24_000,)
    assert engine.times_words


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"front_end": Reader({"j": REASON})}, f"no voice of Kokoro can speak here: {REASON}; the"),
        ({"streaming": "word"}, "no streaming 'word'; choose window or sentence"),
        ({"workers": 0}, "0 workers; there must be 1 or more"),
        ({"weights": "more"}, "more is missing"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    make: Make, parameters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem) as told:
        make(**parameters)
    assert "\n" not in str(told.value)


async def test_refused_voices_are_logged_by_reason(make: Make, log_lines: Any) -> None:
    await make().start()
    assert ("voices_refused", {"reason": REASON, "voices": ["jf_alpha"]}) in log_lines


async def test_starting_warms_up_every_worker_and_language(make: Make) -> None:
    reader = Reader({"a": None, "b": None})
    engine: Any = make(front_end=reader, workers=2)
    assert engine.concurrency == 2
    await engine.start()
    assert reader.warm == ["a", "b"]
    assert [bool(acoustics.spoken) for acoustics in engine.loaded] == [True, True]


async def test_a_front_end_that_does_not_load_fails_the_start(make: Make) -> None:
    reader = Reader({"a": None})
    reader.failure = OSError("no dictionary")
    with pytest.raises(EngineError, match="cannot read text: no dictionary"):
        await make(front_end=reader).start()


async def test_an_engine_that_was_not_started_says_so(make: Make) -> None:
    with pytest.raises(EngineError, match="was not started"):
        await speak(make(), "a")


async def test_it_speaks_in_threads_of_its_own(make: Make) -> None:
    reader = Reader({"a": None})
    engine = make(front_end=reader)
    await engine.start()
    blocks = await speak(engine, "abc.hh")
    assert len(blocks) == 2
    assert [mark.text for block in blocks for mark in block.marks] == ["abc", "hh"]
    assert threading.get_ident() not in reader.threads


async def test_nothing_to_speak_gives_no_block(make: Make) -> None:
    engine = make()
    await engine.start()
    assert await speak(engine, "...") == []


@pytest.mark.parametrize(("streaming", "fixed"), [("window", True), ("sentence", False)])
async def test_streaming_decides_how_it_is_rendered(
    make: Make, streaming: str, fixed: bool
) -> None:
    engine: Any = make(streaming=streaming)
    await engine.start()
    engine.loaded[0].spoken.clear()
    blocks = await speak(engine, "h" * 40)
    assert {statistics for *_, statistics in rendered(engine)} == {fixed}
    assert (len(blocks) > 1) == fixed


async def test_the_default_voice_is_measured_at_the_start_and_kept(
    make: Make, folder: ModelFolder
) -> None:
    await make(streaming="window").start()
    assert (folder.path / "statistics" / "kokoro-fake" / f"{DEFAULT_VOICE}.npz").is_file()
    again: Any = make(streaming="window")
    measured: list[Any] = []
    await again.start()
    again.loaded[0].measure = measured.append
    await speak(again, "h" * 40)
    assert not measured


async def test_another_voice_is_measured_on_the_side(make: Make, folder: ModelFolder) -> None:
    engine: Any = make(streaming="window")
    await engine.start()
    engine.loaded[0].spoken.clear()
    await speak(engine, "h" * 40, "af_alloy")
    assert [statistics for *_, statistics in rendered(engine)] == [False]
    await engine.calibrated()
    # By acoustics of its own: the worker's are never busy with it.
    assert len(engine.loaded) == 2
    await speak(engine, "h" * 40, "af_alloy")
    assert all(statistics for *_, statistics in rendered(engine)[1:])
    assert (folder.path / "statistics" / "kokoro-fake" / "af_alloy.npz").is_file()


@pytest.mark.parametrize("changed", ["weights", f"voices/{DEFAULT_VOICE}.bin"])
async def test_statistics_of_other_files_are_not_used(
    make: Make, folder: ModelFolder, changed: str
) -> None:
    await make(streaming="window").start()
    file = folder.path / "statistics" / "kokoro-fake" / f"{DEFAULT_VOICE}.npz"
    before = file.read_bytes()
    path = folder.path / changed
    path.write_bytes(bytes(len(path.read_bytes())))
    await make(streaming="window").start()
    assert file.read_bytes() != before


async def test_a_folder_that_cannot_be_written_has_its_statistics_in_the_cache(
    make: Make, folder: ModelFolder, tmp_path: Path
) -> None:
    (folder.path / "statistics").write_text("in the way")
    await make(streaming="window").start()
    assert (tmp_path / "cache" / "statistics" / "kokoro-fake" / f"{DEFAULT_VOICE}.npz").is_file()


async def test_where_nothing_can_be_stored_it_streams_all_the_same(
    make: Make, folder: ModelFolder, tmp_path: Path
) -> None:
    (folder.path / "statistics").write_text("in the way")
    (tmp_path / "cache").write_text("in the way")
    engine: Any = make(streaming="window")
    await engine.start()
    assert len(await speak(engine, "h" * 40)) > 1


async def test_a_voice_that_cannot_be_measured_is_spoken_by_the_sentence(
    make: Make, sounding_positions: Any, log_lines: Any
) -> None:
    def broken() -> Any:
        raise MemoryError

    engine: Any = make(streaming="window", make_spare_acoustics=broken)
    await engine.start()
    await speak(engine, "h" * 40, "af_alloy")
    await engine.calibrated()
    assert len(await speak(engine, "h" * 40, "af_alloy")) == 1
    assert [fields["voice"] for event, fields in log_lines if event == "calibration_failed"] == [
        "af_alloy"
    ]


async def test_stopping_gives_up_what_is_being_measured(
    make: Make, sounding_positions: Any, eventually: Any
) -> None:
    class Slow(sounding_positions):  # type: ignore[misc]
        def measure(self, prepared: Any) -> Any:
            self.gate = threading.Event()
            return self.render(prepared, 0, prepared.frames, None)

    spare = Slow()
    engine: Any = make(streaming="window", make_spare_acoustics=lambda: spare)
    await engine.start()
    await speak(engine, "h", "af_alloy")
    await eventually(spare.rendering.is_set)
    async with asyncio.timeout(60):
        await engine.stop()


async def test_cancelling_frees_the_worker_in_the_middle_of_a_window(
    make: Make, eventually: Any
) -> None:
    engine: Any = make()
    await engine.start()
    (acoustics,) = engine.loaded
    acoustics.gate = threading.Event()
    acoustics.rendering.clear()
    speaking = asyncio.create_task(speak(engine, "h" * 40))
    await eventually(acoustics.rendering.is_set)
    count = len(acoustics.spoken)
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    assert len(acoustics.spoken) == count, "the window was given up, not finished"
    acoustics.gate.set()
    assert await speak(engine, "a")


async def test_cancelling_returns_only_when_the_worker_has_let_go(
    make: Make, eventually: Any
) -> None:
    engine: Any = make()
    await engine.start()
    (acoustics,) = engine.loaded
    acoustics.gate = threading.Event()
    acoustics.interrupt = lambda: None  # deaf
    acoustics.rendering.clear()
    speaking = asyncio.create_task(speak(engine, "h" * 40))
    await eventually(acoustics.rendering.is_set)
    for _ in range(3):
        speaking.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({speaking}, timeout=0.05)
    assert not speaking.done()
    acoustics.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    assert await speak(engine, "a")


async def test_closing_a_stream_leaves_the_engine_to_others(make: Make) -> None:
    engine = make(streaming="window")
    await engine.start()
    async with aclosing(
        engine.synthesize(SpeechRequest("h" * 200, DEFAULT_VOICE, 1.0, 24_000))
    ) as stream:
        await anext(stream)
    assert await speak(engine, "a")


async def test_workers_speak_at_once_and_never_share(make: Make, eventually: Any) -> None:
    engine: Any = make(workers=2)
    await engine.start()
    for acoustics in engine.loaded:
        acoustics.gate = threading.Event()
        acoustics.rendering.clear()
    speaking = [asyncio.create_task(speak(engine, "h")) for _ in range(3)]
    await eventually(lambda: all(acoustics.rendering.is_set() for acoustics in engine.loaded))
    for acoustics in engine.loaded:
        acoustics.gate.set()
    assert all(await asyncio.gather(*speaking))


async def test_a_failure_ends_one_utterance_only(make: Make) -> None:
    engine: Any = make()
    await engine.start()
    (acoustics,) = engine.loaded
    acoustics.failure = RuntimeError("out of memory")
    with pytest.raises(EngineError, match="out of memory"):
        await speak(engine, "a")
    acoustics.failure = None
    assert await speak(engine, "a")


async def test_a_damaged_voice_is_an_engine_error(make: Make, folder: ModelFolder) -> None:
    (folder.path / "voices" / "af_alloy.bin").write_bytes(b"short")
    engine = make()
    await engine.start()
    with pytest.raises(EngineError, match="damaged"):
        await speak(engine, "a", "af_alloy")


async def test_a_session_hears_it_with_its_marks(make: Make, start: Any, connect: Any) -> None:
    peer = await connect(await start(make(streaming="window")))
    peer.say(text="abc.hhh", marks=["word"])
    done = await peer.until("synthesis_complete")
    assert len(peer.audio()) == done["audio_bytes"] > 0
    words = [
        word
        for opcode, data in peer.frames
        if opcode.name == "TEXT" and json.loads(data)["type"] == "marks"
        for word in json.loads(data)["words"]
    ]
    assert [word["text"] for word in words] == ["abc", "hhh"]


STATISTICS = Statistics(np.arange(4, dtype=np.float32), np.ones(4, np.float32), 7)


def test_statistics_come_back_as_they_were_stored(tmp_path: Path) -> None:
    store = StatisticsStore([tmp_path / "not" / "there" / "yet"])
    assert store.load("af_heart", "f") is None
    path = store.save("af_heart", "f", STATISTICS)
    assert path is not None
    found = store.load("af_heart", "f")
    assert found is not None
    assert np.array_equal(found.means, STATISTICS.means)
    assert np.array_equal(found.variances, STATISTICS.variances)
    assert found.frames == 7
    assert store.load("af_heart", "other") is None
    assert [each.name for each in path.parent.iterdir()] == ["af_heart.npz"]


@pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04 half"])
def test_a_damaged_file_is_as_none(tmp_path: Path, damage: bytes) -> None:
    store = StatisticsStore([tmp_path])
    (tmp_path / "af_heart.npz").write_bytes(damage)
    assert store.load("af_heart", "f") is None


def test_half_a_file_is_as_none(tmp_path: Path) -> None:
    store = StatisticsStore([tmp_path])
    path = store.save("af_heart", "f", STATISTICS)
    assert path is not None
    path.write_bytes(path.read_bytes()[:-40])
    assert store.load("af_heart", "f") is None


def test_pooling_is_measuring_everything_at_once() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, (4, 90)).astype(np.float32)

    def of(part: np.ndarray) -> Statistics:
        return Statistics(part.mean(1), part.var(1), part.shape[1])

    together = pooled([of(values[:, :20]), of(values[:, 20:])])
    assert together.frames == 90
    assert np.allclose(together.means, values.mean(1), atol=1e-5)
    assert np.allclose(together.variances, values.var(1), atol=1e-4)


@pytest.mark.parametrize(
    "parts", [[], [STATISTICS, Statistics(np.zeros(1, np.float32), np.ones(1, np.float32), 1)]]
)
def test_what_does_not_fit_is_not_pooled(parts: list[Statistics]) -> None:
    with pytest.raises(ValueError, match="of one model"):
        pooled(parts)


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"UTTERWIRE_CACHE_DIR": "/a"}, Path("/a")),
        ({"UTTERWIRE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/utterwire")),
        ({}, Path.home() / ".cache" / "utterwire"),
    ],
)
def test_the_cache_lies_where_it_is_usual(environment: dict[str, str], path: Path) -> None:
    assert cache_folder(environment) == path


def test_where_there_is_no_home_the_cache_is_among_temporary_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert cache_folder({}).parent == Path(tempfile.gettempdir())
