"""Try ``kokoro-torch`` on a GPU, for whoever has one: is it right, and how fast is it?

    python scripts/gpu_check.py --model-dir DIR               # a table on stderr, JSON on stdout
    python scripts/gpu_check.py --model-dir DIR --out gpu.json
    python scripts/gpu_check.py --model-dir DIR --device cpu  # tries the script itself

Repeats and listeners that do not fit into `--seconds` are left out and named. Exit status: 0 if
everything that ran is as it should be, 1 if not, 2 if it cannot run.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import provenance
from utterwire_server.engines import EngineError, ModelOptions, SpeechRequest, load_engine
from utterwire_server.engines.kokoro.acoustics import FRAME_S, SAMPLE_RATE, tokens_of
from utterwire_server.engines.kokoro.torch import SEED, TorchAcoustics, device_of
from utterwire_server.engines.kokoro.windows import windows
from utterwire_server.model.folder import ModelError, ModelFolder, find_model_folder

__all__ = ["main"]

# One of 50 phonemes, one of 200.
_SHORT = "ðə kwˈɪk bɹˈWn fˈɑks ʤˈʌmps ˈOvəɹ ðə lˈAzi dˈɔɡ."  # noqa: RUF001 - IPA
_LONG = (
    _SHORT[:-1]
    + ", ænd ðə ɹˈAn ɪn spˈAn stˈAz mˈAnli ɪn ðə plˈAn."  # noqa: RUF001 - IPA
    + " ʃi sˈɛlz sˈi ʃˈɛlz bI ðə sˈi ʃˈɔɹ, ænd ðə kˈæt sˈæt ˌɑn ðə mˈæt,"  # noqa: RUF001 - IPA
    + " wˌIl ðə bˈYz plˈAd fˈʊtbˌɔl ɪn ðə pˈɑɹk."  # noqa: RUF001 - IPA
)
_TEXT = "The quick brown fox jumps over the lazy dog, and the rain in Spain stays mainly there."
#: Rounding alone; TF32 in a GPU's convolutions is coarser than float32 on a processor.
_EXACT_DB = {"cpu": 100.0, "cuda": 40.0}
_WINDOWS_DB = {"cpu": 60.0, "cuda": 35.0}
_REPEATS = 5
_LISTENERS = (1, 2, 4, 8, 16, 32, 64, 128)
_LIBRARIES = ("torch", "kokoro", "numpy", "transformers")


@dataclass
class Check:
    """What was found, row by row."""

    until: float
    rows: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def tell(self, name: str, value: Any, unit: str = "") -> None:
        self.rows[name] = value
        shown = f"{value:.3g}" if isinstance(value, float) else value
        print(f"{name:44} {shown} {unit}".rstrip(), file=sys.stderr, flush=True)

    def judge(self, name: str, value: float, least: float) -> None:
        self.tell(name, value, f"dB (at least {least:g})")
        if not value >= least:
            self.wrong.append(name)

    def has_time(self, name: str, seconds: float) -> bool:
        """Whether what takes so long still fits; if not, it is noted."""
        if time.monotonic() + seconds <= self.until:
            return True
        self.left_out.append(name)
        return False


def _decibels(signal: Any, other: Any) -> float:
    noise = max(float(np.square(signal - other, dtype=np.float64).sum()), 1e-30)
    return float(10 * np.log10(np.square(signal, dtype=np.float64).sum() / noise))


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class _Sentence:
    """One sentence, spoken by the stock model and by ours, on the same weights and noise."""

    def __init__(
        self, ours: TorchAcoustics, stock: Any, folder: ModelFolder, voice: str, phonemes: str
    ) -> None:
        self._ours = ours
        self._stock = stock
        self._tokens = tokens_of(phonemes, folder.vocabulary)
        self._style = folder.styles(voice)[len(phonemes) - 1]
        prepared = self.prepared()
        self.audio_s = prepared.frames * FRAME_S
        self._cut = list(windows(0, prepared.frames))
        self._measured = ours.measure(prepared)

    def prepared(self) -> Any:
        return self._ours.prepare(self._tokens, self._style, 1.0)

    def stock(self) -> Any:
        import torch

        device = self._ours.device
        ids = torch.tensor([self._tokens], device=device)
        style = torch.from_numpy(self._style[None].copy()).to(device)
        torch.manual_seed(SEED)
        return self._stock.forward_with_tokens(ids, style)[0].float().cpu().numpy()

    def whole(self) -> Any:
        prepared = self.prepared()
        return self._ours.render(prepared, 0, prepared.frames, None)

    def windows(self, most: int | None = None) -> Any:
        prepared = self.prepared()
        return np.concatenate(
            [
                self._ours.render(prepared, part.start, part.stop, self._measured)
                for part in self._cut[:most]
            ]
        )


def _acoustics(check: Check, folder: ModelFolder, device: str, threads: int, voice: str) -> None:
    """Exactness and speed of the model itself, in this process."""
    import torch
    from kokoro import KModel

    config, weights = folder.file("config.json"), folder.file("kokoro.pth")
    kind = device.partition(":")[0]
    began = time.perf_counter()
    ours = TorchAcoustics(config, weights, device=device, threads=threads)
    check.tell("load_s", time.perf_counter() - began, "s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stock = KModel(repo_id="local", config=str(config), model=str(weights)).eval().to(device)

    for name, phonemes in (("50", _SHORT), ("200", _LONG)):
        sentence = _Sentence(ours, stock, folder, voice, phonemes)
        expected, exact = sentence.stock(), sentence.whole()
        if exact.shape == expected.shape:
            check.judge(f"exact_{name}_db", _decibels(expected, exact), _EXACT_DB[kind])
        else:
            check.tell(f"exact_{name}_db", None, "(the durations differ)")
            check.wrong.append(f"exact_{name}_db")
        joined = sentence.windows()
        check.judge(f"windows_{name}_db", _decibels(exact, joined), _WINDOWS_DB[kind])

        full: list[float] = []
        early: list[float] = []
        streamed: list[float] = []
        for _ in range(_REPEATS):
            spent = full[-1] + early[-1] + streamed[-1] if full else 0.0
            if full and not check.has_time(f"repeats_{name}", spent):
                break
            full.append(_timed(sentence.stock))
            early.append(_timed(lambda: sentence.windows(1)))  # noqa: B023 - called at once
            streamed.append(_timed(sentence.windows))
        check.tell(f"audio_{name}_s", sentence.audio_s, "s")
        check.tell(f"stock_whole_{name}_s", statistics.median(full), "s")
        check.tell(f"first_window_{name}_s", statistics.median(early), "s")
        for what, times in (("first_window", early), ("windows", streamed)):
            ratios = [one / other for one, other in zip(times, full, strict=True)]
            check.tell(f"{what}_of_whole_{name}", statistics.median(ratios))
        check.tell(f"real_time_factor_{name}", statistics.median(streamed) / sentence.audio_s)
    if kind == "cuda":
        check.tell("memory_peak_mib", round(torch.cuda.max_memory_allocated(device) / 2**20), "MiB")
        check.tell("memory_kept_mib", round(torch.cuda.memory_reserved(device) / 2**20), "MiB")


async def _listen(engine: Any, voice: str, gate: asyncio.Semaphore) -> tuple[float, float, float]:
    """Seconds to the first block, of audio, and by which a listener would have run dry."""
    request = SpeechRequest(text=_TEXT, voice=voice, speed=1.0, sample_rate=SAMPLE_RATE)
    began = time.monotonic()
    first = None
    audio = late = 0.0
    stream = engine.synthesize(request)
    while True:
        async with gate:
            block = await anext(stream, None)
        if block is None:
            return (first or 0.0), audio, late
        now = time.monotonic() - began
        if block.samples.size:
            first = now if first is None else first
            late = max(late, now - first - audio)
            audio += block.samples.size / SAMPLE_RATE


async def _engine(check: Check, folder: ModelFolder, device: str, threads: int, voice: str) -> None:
    """The engine in its own process, from text to blocks, for one listener and for many."""
    engine = load_engine(
        "kokoro-torch",
        model=ModelOptions(
            directory=str(folder.path), streaming="window", threads=threads or None, device=device
        ),
    )
    began = time.perf_counter()
    await engine.start()
    try:
        check.tell("engine_start_s", time.perf_counter() - began, "s")
        # Blocks are asked for in turn, as the server asks.
        gate = asyncio.Semaphore(engine.concurrency)
        await _listen(engine, voice, gate)
        first, audio, _ = await _listen(engine, voice, gate)
        took = 0.0
        check.tell("engine_first_block_s", first, "s")
        capacity = 0
        for listeners in _LISTENERS:
            if not check.has_time(f"listeners_{listeners}", 3 * took):
                break
            began = time.perf_counter()
            heard = await asyncio.gather(*(_listen(engine, voice, gate) for _ in range(listeners)))
            took = time.perf_counter() - began
            slowest = max(first for first, _, _ in heard)
            driest = max(late for _, _, late in heard)
            check.tell(f"first_block_of_{listeners}_s", slowest, "s (the slowest)")
            if driest > 0:
                break
            capacity = listeners
        check.tell("listeners_without_a_gap", capacity, f"at once, {audio:.1f} s each")
    finally:
        await engine.stop()


def main(arguments: list[str] | None = None) -> int:
    """Check, print and write; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model-dir", help="the model folder (default: UTTERWIRE_MODEL_DIR)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu (default cuda)")
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of PyTorch (default its own)"
    )
    parser.add_argument("--voice", default="af_heart", help="default af_heart")
    parser.add_argument("--seconds", type=float, default=270.0, help="time to be done in")
    parser.add_argument("--out", default="-", help="file for the JSON (default stdout)")
    values = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    check = Check(time.monotonic() + values.seconds)
    try:
        folder = find_model_folder(values.model_dir, os.environ)
        if folder is None:
            raise ModelError("no model folder: --model-dir, or UTTERWIRE_MODEL_DIR")
        device = device_of(values.device)
        import torch

        check.tell("torch", torch.__version__)
        check.tell("device", device)
        if device.startswith("cuda"):
            properties = torch.cuda.get_device_properties(device)
            check.tell("gpu", properties.name)
            check.tell("gpu_memory_mib", properties.total_memory // 2**20, "MiB")
            check.tell("cuda", torch.version.cuda)
        _acoustics(check, folder, device, values.threads, values.voice)
        asyncio.run(_engine(check, folder, device, values.threads, values.voice))
    except (EngineError, ValueError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    command = [
        "python",
        "scripts/gpu_check.py",
        *(sys.argv[1:] if arguments is None else arguments),
    ]
    result = {
        **provenance.record(command, started, _LIBRARIES),
        "results": check.rows,
        "wrong": check.wrong,
        "left_out": check.left_out,
    }
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if values.out == "-":
        print(text, end="")
    else:
        Path(values.out).write_text(text, encoding="utf-8")
    for name in check.wrong:
        print(f"gpu_check: {name} is not as it should be", file=sys.stderr)
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
