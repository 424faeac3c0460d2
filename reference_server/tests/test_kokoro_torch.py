"""Kokoro in PyTorch against the stock model of the `kokoro` package, on the same weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from utterwire_server.engines import EngineError
from utterwire_server.engines.kokoro.acoustics import FRAME_SAMPLES, Interrupted, tokens_of
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.engines.kokoro.torch import _SEEDED, TorchAcoustics, device_of
from utterwire_server.engines.kokoro.windows import windows

#: "The quick brown fox jumps over the lazy dog."
PHONEMES = "ðə kwˈɪk bɹˈWn fˈɑks ʤˈʌmps ˈOvəɹ ðə lˈAzi dˈɔɡ."  # noqa: RUF001 - IPA


@pytest.mark.parametrize("module", ["torch", "kokoro"])
def test_what_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
) -> None:
    if module == "kokoro":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EngineError, match=rf"{module} is not installed; pip install 'utterwire\["):
        TorchAcoustics(tmp_path / "config.json", tmp_path / "kokoro.pth")


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("kokoro", reason="the package kokoro is not installed")
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def folder(torch: Any) -> Path:
    name = os.environ.get("UTTERWIRE_MODEL_DIR")
    if not name:
        pytest.skip("UTTERWIRE_MODEL_DIR names no model folder")
    return Path(name)


@pytest.fixture(scope="module")
def stock(torch: Any, folder: Path) -> Any:
    import warnings

    from kokoro import KModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KModel(
            repo_id="local", config=str(folder / "config.json"), model=str(folder / "kokoro.pth")
        ).eval()


@pytest.fixture(scope="module")
def acoustics(folder: Path) -> TorchAcoustics:
    return TorchAcoustics(folder / "config.json", folder / "kokoro.pth", threads=2)


@pytest.fixture(scope="module")
def tokens(stock: Any) -> list[int]:
    return tokens_of(PHONEMES, stock.vocab)


@pytest.fixture(scope="module")
def style(folder: Path) -> Any:
    voice = np.fromfile(folder / "voices" / "af_heart.bin", "<f4").reshape(510, 256)
    return voice[len(PHONEMES) - 1]


@pytest.fixture(scope="module")
def prepared(acoustics: TorchAcoustics, tokens: list[int], style: Any) -> Any:
    return acoustics.prepare(tokens, style, 1.0)


@pytest.fixture(scope="module")
def whole(acoustics: TorchAcoustics, prepared: Any) -> Any:
    return acoustics.render(prepared, 0, prepared.frames, None)


def decibels(signal: Any, other: Any) -> float:
    """How far below ``signal`` its difference from ``other`` is."""
    noise = np.square(signal - other, dtype=np.float64).sum()
    return float(10 * np.log10(np.square(signal, dtype=np.float64).sum() / max(noise, 1e-30)))


def test_the_noise_is_seeded_by_one_thread_at_a_time() -> None:
    """What is seeded is the process's, so that another's numbers would come in between."""
    acoustics: Any = TorchAcoustics.__new__(TorchAcoustics)
    acoustics._torch, acoustics._generator, acoustics._device = (MagicMock() for _ in range(3))
    alone = []

    def m_source(_: Any) -> tuple[Any, ...]:
        alone.append(_SEEDED.locked())
        return MagicMock(), None, None

    acoustics._generator.m_source = m_source
    acoustics._source(MagicMock())
    assert alone == [True]
    assert not _SEEDED.locked()


def test_a_device(torch: Any) -> None:
    assert device_of("cpu") == "cpu"
    assert device_of("auto") in ("cpu", "cuda")
    for name in ("tpu", "cuda:x", "cpu;", "auto:1"):
        with pytest.raises(EngineError, match="no device"):
            device_of(name)
    with pytest.raises(EngineError, match="PyTorch sees no device cuda:99"):
        device_of("cuda:99")


@pytest.mark.parametrize("missing", ["config.json", "kokoro.pth"])
def test_a_file_that_is_missing(folder: Path, tmp_path: Path, missing: str) -> None:
    for name in {"config.json", "kokoro.pth"} - {missing}:
        (tmp_path / name).symlink_to(folder / name)
    with pytest.raises(EngineError, match=f"no file .*{missing}; utterwire-server model fetch"):
        TorchAcoustics(tmp_path / "config.json", tmp_path / "kokoro.pth")


def test_a_file_that_is_no_model(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kokoro.pth").write_bytes(b"nothing of the kind")
    with pytest.raises(EngineError, match="is no Kokoro model") as caught:
        TorchAcoustics(folder / "config.json", tmp_path / "kokoro.pth")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("speed", [1.0, 0.7, 1.8])
def test_a_sentence_whole_is_the_stock_models(
    torch: Any, acoustics: TorchAcoustics, stock: Any, tokens: list[int], style: Any, speed: float
) -> None:
    """With the same noise: 100 dB apart are rounding."""
    from utterwire_server.engines.kokoro.torch import SEED

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        theirs, durations = stock.forward_with_tokens(
            torch.tensor([tokens]), torch.from_numpy(style[None].copy()), speed
        )
    prepared = acoustics.prepare(tokens, style, speed)
    np.testing.assert_array_equal(prepared.durations, durations.numpy())
    ours = acoustics.render(prepared, 0, prepared.frames, None)
    assert ours.dtype == np.float32
    assert ours.shape == (prepared.frames * FRAME_SAMPLES,)
    assert decibels(theirs.numpy(), ours) > 100


def test_windows_with_its_own_statistics_are_the_whole(
    acoustics: TorchAcoustics, prepared: Any, whole: Any
) -> None:
    measured = acoustics.measure(prepared)
    assert measured.frames == prepared.frames
    parts = [
        acoustics.render(prepared, window.start, window.stop, measured)
        for window in windows(0, prepared.frames)
    ]
    assert len(parts) > 2
    assert decibels(whole, np.concatenate(parts)) > 60


def test_windows_need_the_right_statistics(
    acoustics: TorchAcoustics, prepared: Any, whole: Any
) -> None:
    """What the test above shows is not there by itself."""
    measured = acoustics.measure(prepared)
    wrong = Statistics(measured.means, 2 * measured.variances, measured.frames)
    samples = acoustics.render(prepared, 0, prepared.frames, wrong)
    assert decibels(whole, samples) < 20
    # And after them the right ones again.
    again = acoustics.render(prepared, 0, prepared.frames, measured)
    assert decibels(whole, again) > 60
    np.testing.assert_array_equal(acoustics.render(prepared, 0, prepared.frames, None), whole)


def test_statistics_of_another_model(acoustics: TorchAcoustics, prepared: Any) -> None:
    few = Statistics(np.zeros(8, np.float32), np.ones(8, np.float32), 1)
    with pytest.raises(EngineError, match="statistics for 8 channels; the model has 9216"):
        acoustics.render(prepared, 0, 20, few)


def test_the_same_text_sounds_the_same(
    torch: Any, acoustics: TorchAcoustics, tokens: list[int], style: Any, whole: Any
) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    again = acoustics.prepare(tokens, style, 1.0)
    # And nobody else's chance is touched.
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(acoustics.render(again, 0, again.frames, None), whole)


def test_no_other_model_is_changed(acoustics: TorchAcoustics, stock: Any) -> None:
    from kokoro.istftnet import AdaIN1d

    theirs = stock.decoder.generator.resblocks[0].adain1[0]
    assert type(theirs) is AdaIN1d
    assert AdaIN1d.forward.__module__ == "kokoro.istftnet"
    assert type(acoustics._generator.resblocks[0].adain1[0]) is not AdaIN1d


def test_a_call_is_given_up(acoustics: TorchAcoustics, prepared: Any, whole: Any) -> None:
    acoustics.interrupt()  # With none in progress nothing happens, nor later.
    layer = acoustics._generator.noise_convs[0]
    convolve = layer.forward

    def interrupting(x: Any) -> Any:
        acoustics.interrupt()
        return convolve(x)

    layer.forward = interrupting
    try:
        with pytest.raises(Interrupted):
            acoustics.render(prepared, 0, prepared.frames, None)
    finally:
        layer.forward = convolve
    np.testing.assert_array_equal(acoustics.render(prepared, 0, prepared.frames, None), whole)


def test_a_device_that_fails_for_good_is_told(
    torch: Any, acoustics: TorchAcoustics, prepared: Any
) -> None:
    layer = acoustics._generator.noise_convs[0]
    convolve = layer.forward

    def failing(x: Any) -> Any:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    assert not acoustics.broken
    layer.forward = failing
    try:
        with pytest.raises(torch.AcceleratorError):
            acoustics.render(prepared, 0, prepared.frames, None)
    finally:
        layer.forward = convolve
    assert acoustics.broken
    acoustics.broken = False
