"""Kokoro on ONNX Runtime: with the real model where its folder is named, else as far as it goes.

`UTTERWIRE_MODEL_DIR` names the folder.
"""

# ruff: noqa: RUF001 - phonemes look like letters

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from utterwire_server.engines import EngineError, SpeechRequest
from utterwire_server.engines.kokoro.acoustics import Interrupted, Prepared, tokens_of
from utterwire_server.engines.kokoro.calibration import SENTENCES
from utterwire_server.engines.kokoro.onnx import KokoroOnnxEngine, OnnxAcoustics, sensible_threads
from utterwire_server.engines.kokoro.speech import END_S, LEAD_S, SILENCE, Utterance
from utterwire_server.marks import WordTimes
from utterwire_server.model.folder import ModelFolder
from utterwire_server.text.segment import Segment, SpokenWord

pytest.importorskip("onnxruntime", reason="the extra kokoro is not installed")
DIRECTORY = os.environ.get("UTTERWIRE_MODEL_DIR", "")
real = pytest.mark.skipif(not DIRECTORY, reason="UTTERWIRE_MODEL_DIR names no model folder")

#: "Hello world.", in phonemes, and which of them are words of it.
PHONEMES = "həlˈO wˈɜɹld."
TEXT = "Hello world."
SEGMENT = Segment(PHONEMES, (SpokenWord(0, 5, 0, 6), SpokenWord(6, 11, 7, 12)), 0, 12)


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return ModelFolder(Path(DIRECTORY))


@pytest.fixture(scope="module")
def acoustics(folder: ModelFolder) -> OnnxAcoustics:
    return OnnxAcoustics(
        folder.file("kokoro-front.onnx"), folder.file("kokoro-generator.onnx"), threads=1
    )


@pytest.fixture(scope="module")
def prepared(folder: ModelFolder, acoustics: OnnxAcoustics) -> Prepared:
    tokens = tokens_of(PHONEMES, folder.vocabulary)
    return acoustics.prepare(tokens, folder.styles("af_heart")[len(PHONEMES) - 1], 1.0)


class Greeting:
    """A front end that reads one text."""

    def languages(self) -> dict[str, str | None]:
        return {"a": None}

    def warm_up(self, language: str) -> None:
        pass

    def segments(self, text: str, language: str) -> Iterator[Segment]:
        assert text == TEXT
        yield SEGMENT


@pytest.mark.parametrize("workers", [1, 2, 1_000])
def test_threads_are_no_more_than_cores(workers: int) -> None:
    threads = sensible_threads(workers)
    assert 1 <= threads <= 4
    assert threads == 1 or threads * workers <= (os.cpu_count() or 1)


def test_a_file_that_is_no_graph_is_an_engine_error(tmp_path: Path) -> None:
    path = tmp_path / "front.onnx"
    path.write_bytes(b"not a graph")
    with pytest.raises(EngineError, match=r"front\.onnx cannot be loaded"):
        OnnxAcoustics(path, path)


def test_it_computes_what_the_whole_graph_does(tmp_path: Path, tiny_graph: Any) -> None:
    """On a graph with the joints of Kokoro's, one sample for each token."""
    import onnx
    import onnxruntime
    from utterwire_server.engines.kokoro.graph import cut_file

    whole, front, generator = (tmp_path / f"{name}.onnx" for name in ("whole", "front", "gen"))
    onnx.save(tiny_graph, whole)
    cut_file(whole, front, generator)
    acoustics: Any = OnnxAcoustics(front, generator, threads=1)
    tokens, style = [0, 5, 90, 17, 3, 44, 8, 0], np.linspace(-1, 1, 256, dtype=np.float32)
    prepared = acoustics.prepare(tokens, style, 1.25)
    (expected,) = onnxruntime.InferenceSession(whole).run(
        ["audio"],
        {
            "tokens": np.array([tokens]),
            "style": style[np.newaxis],
            "speed": np.array([1.25], np.float32),
        },
    )
    frames = prepared.frames
    assert prepared.durations.shape == (len(tokens),)
    assert np.allclose(acoustics.render(prepared, 0, frames, None), expected, atol=1e-5)
    statistics = acoustics.measure(prepared)
    assert statistics.channels == 7
    assert np.allclose(acoustics.render(prepared, 0, frames, statistics), expected, atol=1e-5)
    acoustics.interrupt()


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_below_one_are_refused(tmp_path: Path, threads: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="there must be 1 or more"):
        KokoroOnnxEngine(ModelFolder(tmp_path), threads=threads)


@real
def test_a_segment_has_as_many_samples_as_its_durations_say(
    acoustics: OnnxAcoustics, prepared: Prepared
) -> None:
    samples = acoustics.render(prepared, 0, prepared.frames, None)
    assert samples.shape == (600 * prepared.frames,)
    assert samples.dtype == np.float32
    assert 0.05 < np.abs(samples).max() < 2


@real
def test_true_statistics_held_fixed_change_nothing(
    acoustics: OnnxAcoustics, prepared: Prepared
) -> None:
    frames = prepared.frames
    exact = acoustics.render(prepared, 0, frames, None)
    held = acoustics.render(prepared, 0, frames, acoustics.measure(prepared))
    error = float(np.square(exact - held).sum() / np.square(exact).sum())
    assert error < 1e-6


@real
def test_windows_join_to_what_the_whole_gives(acoustics: OnnxAcoustics, prepared: Prepared) -> None:
    statistics, frames = acoustics.measure(prepared), prepared.frames
    cut = frames // 2
    whole = acoustics.render(prepared, 0, frames, statistics)
    halves = [
        acoustics.render(prepared, 0, cut, statistics),
        acoustics.render(prepared, cut, frames, statistics),
    ]
    joined = np.concatenate(halves)
    assert joined.shape == whole.shape
    # The int8 graph takes its scales from what it is given, so that it is near and not equal.
    assert float(np.square(whole - joined).sum() / np.square(whole).sum()) < 0.2


@real
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_the_memory_of_a_long_sentence_is_given_back(
    acoustics: OnnxAcoustics, folder: ModelFolder
) -> None:
    def resident_mib() -> float:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1_024

    def speak(times: int) -> None:
        tokens = tokens_of(PHONEMES * times, folder.vocabulary)
        style = folder.styles("af_heart")[len(tokens) - 1]
        prepared = acoustics.prepare(tokens, style, 1.0)
        acoustics.render(prepared, 0, prepared.frames, None)

    speak(1)
    before = resident_mib()
    speak(35)
    # Kept, it was some 500 MiB.
    assert resident_mib() - before < 200


@real
def test_an_interrupted_call_is_given_up(acoustics: OnnxAcoustics, folder: ModelFolder) -> None:
    tokens = tokens_of(SENTENCES[0], folder.vocabulary)
    prepared = acoustics.prepare(tokens, folder.styles("af_heart")[len(tokens) - 3], 1.0)
    raised: list[BaseException] = []

    def render() -> None:
        try:
            acoustics.render(prepared, 0, prepared.frames, None)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=render)
    thread.start()
    while thread.is_alive():
        acoustics.interrupt()
        thread.join(0.01)
    assert [type(error) for error in raised] == [Interrupted]
    # With nothing running it does nothing, now or later.
    acoustics.interrupt()
    assert acoustics.render(prepared, 0, 1, acoustics.measure(prepared)).size == 600


@real
@pytest.mark.slow
@pytest.mark.parametrize("voice", ["af_heart", "af_nicole", "am_puck", "bm_lewis", "jm_kumo"])
@pytest.mark.parametrize("speed", [0.7, 1.0, 1.5])
def test_only_silence_is_cut_off(
    acoustics: OnnxAcoustics, folder: ModelFolder, voice: str, speed: float
) -> None:
    styles = folder.styles(voice)
    tokens = tokens_of(PHONEMES, folder.vocabulary)
    prepared = acoustics.prepare(tokens, styles[len(PHONEMES) - 1], speed)
    statistics = acoustics.measure(prepared)
    whole = acoustics.render(prepared, 0, prepared.frames, statistics)
    utterance = Utterance(
        TEXT,
        [SEGMENT],
        vocabulary=folder.vocabulary,
        styles=styles,
        speed=speed,
        statistics=statistics,
    )
    times, words, parts = WordTimes(TEXT), [], []
    made = 0
    while (block := utterance.next_block(acoustics)) is not None:
        words += times.words(block.marks, made / 24_000)
        parts.append(block.samples)
        made += block.samples.size
    samples = np.concatenate(parts)
    assert [word.text for word in words] == ["Hello", "world"]
    assert words[-1].end_s <= samples.size / 24_000

    # As much sound as in the whole: within a frame at either end, which is where the noise of the
    # source and the scales of int8 decide.
    loud = np.flatnonzero(np.abs(whole) > SILENCE)
    heard = np.flatnonzero(np.abs(samples) > SILENCE)
    assert abs((loud[-1] - loud[0]) - (heard[-1] - heard[0])) <= 1_200
    # More silence is kept only where marks say that a word is being spoken.
    first, last = round(words[0].start_s * 24_000), round(words[-1].end_s * 24_000)
    assert heard[0] <= round(LEAD_S * 24_000) or first == 0
    assert samples.size - heard[-1] <= round((END_S + 0.025) * 24_000) + 1 or last == samples.size


@pytest.fixture
async def engine(folder: ModelFolder) -> AsyncIterator[KokoroOnnxEngine]:
    made = KokoroOnnxEngine(folder, front_end=Greeting(), threads=1)
    await made.start()
    yield made
    await made.stop()


@real
@pytest.mark.slow
async def test_the_engine_speaks_and_stops_speaking(engine: KokoroOnnxEngine) -> None:
    request = SpeechRequest(TEXT, "af_heart", 1.0, 24_000)

    async def speak() -> int:
        return sum([block.samples.size async for block in engine.synthesize(request)])

    assert await speak() > 12_000
    speaking = asyncio.create_task(speak())
    await asyncio.sleep(0)
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    assert await speak() > 12_000


@real
def test_all_voices_of_a_language_are_offered(folder: ModelFolder) -> None:
    engine: Any = KokoroOnnxEngine(folder, front_end=Greeting())
    assert engine.voices[0] == "af_heart"
    assert set(engine.voices) == {voice for voice in folder.voices if voice[0] == "a"}
    assert set(engine.refused) == set(folder.voices) - set(engine.voices)


MANY_SIZES = """
import random, threading
from pathlib import Path
import numpy as np
from utterwire_server.engines.kokoro import onnx

def resident_mib():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1_024

def work():
    chance, kept = random.Random(1), []
    for _ in range(300):
        kept.append(np.ones(chance.randrange(1_000, 6_000_000), np.uint8))
        if chance.random() < 0.5 or len(kept) > 20:
            kept.pop(chance.randrange(len(kept)))

onnx._give_back_large_blocks()
before = resident_mib()
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident_mib() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_large_blocks_are_given_back_by_every_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY_SIZES], capture_output=True, text=True, check=True
    )
    # Kept, it was some 200 MiB.
    assert float(done.stdout) < 60
