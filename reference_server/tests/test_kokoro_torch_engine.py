"""The engine `kokoro-torch` from text to blocks, in its own process, with the real model."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from utterwire_server.engines import Block, EngineError, ModelOptions, SpeechRequest, load_engine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("UTTERWIRE_MODEL_DIR"),
        reason="UTTERWIRE_MODEL_DIR names no model folder",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None or importlib.util.find_spec("kokoro") is None,
        reason="PyTorch or the package kokoro is not installed",
    ),
]

TEXT = "The quick brown fox jumps over the lazy dog, and costs $3.50."


async def spoken(engine: Any) -> list[Block]:
    request = SpeechRequest(text=TEXT, voice="af_heart", speed=1.0, sample_rate=24_000)
    return [block async for block in engine.synthesize(request)]


@pytest.fixture(params=["sentence", "window"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made = load_engine(
        "kokoro-torch",
        model=ModelOptions(streaming=request.param, device="cpu", block_timeout_s=300.0),
    )
    await made.start()
    yield made
    await made.stop()


async def test_it_speaks_the_same_again_and_after_its_death(engine: Any) -> None:
    first = await spoken(engine)
    audio = np.concatenate([block.samples for block in first])
    assert 2.0 < audio.size / 24_000 < 8.0
    assert 0.05 < np.abs(audio).max() <= 1.5
    words = [mark for block in first for mark in block.marks]
    assert [word.text for word in words][:4] == ["The", "quick", "brown", "fox"]
    assert all(TEXT[word.char_start : word.char_end] == word.text for word in words)
    assert words[-1].end_s <= audio.size / 24_000
    stream = engine.synthesize(
        SpeechRequest(text=f"{TEXT} {TEXT}", voice="af_heart", speed=1.0, sample_rate=24_000)
    )
    await anext(stream)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="ended by SIGKILL"):
        async for _ in stream:
            pass
    again = np.concatenate([block.samples for block in await spoken(engine)])
    np.testing.assert_allclose(again, audio, atol=1e-3)
