"""Measure what streaming by the window brings: first sound and cost, and how far it is off.

    python scripts/kokoro_streaming.py --model-dir DIR                         # kokoro-onnx
    python scripts/kokoro_streaming.py --model-dir DIR --engine kokoro-torch   # where torch is

In each round, in turns: the stock model on the whole sentence, the engine by the sentence and by
the window, and, with ``--peer PYTHON``, PyPI's `kokoro-onnx` on the same ONNX weights in an
interpreter of its own that has it. kokoro-torch computes in this process, as the others do. Times
are of one process at a time; ratios are within a round, and their median is told. The distance is
that of `log_mel.py`, over the same source noise; the noise floor is that of two exact renderings.
"""

# ruff: noqa: RUF001 - phonemes look like letters

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import provenance
from log_mel import distance
from stock_kokoro import onnx_graph, torch_model
from utterwire_server.engines import SpeechRequest
from utterwire_server.engines.kokoro.acoustics import Acoustics, tokens_of
from utterwire_server.engines.kokoro.calibration import measured
from utterwire_server.engines.kokoro.engine import KokoroEngine
from utterwire_server.engines.kokoro.onnx import KokoroOnnxEngine, OnnxAcoustics
from utterwire_server.engines.kokoro.speech import Streaming
from utterwire_server.engines.kokoro.torch import KokoroTorchEngine, TorchAcoustics
from utterwire_server.engines.kokoro.windows import windows
from utterwire_server.model.folder import ModelFolder
from utterwire_server.text.segment import Segment

SENTENCES: Final = {
    "50 phonemes": "ðə lˈæst tɹˈAn lˈɛft bəfˈɔɹ wi ɡˈɑt tə ðə stˈAʃᵊn.",
    "200 phonemes": (
        "ðə lˈæst tɹˈAn lˈɛft bəfˈɔɹ wi ɡˈɑt tə ðə stˈAʃᵊn, sˌO wi sˈæt ˌɑn ɐ bˈɛnʧ ænd wˈɑʧt ðə "
        "ɹˈAn kˌʌm dˈWn ˌOvəɹ ðə ɹˈufs; nˈObˌɑdi sˈɛd vˈɛɹi mˈʌʧ, bˌʌt wˌɛn ðə klˈɑk stɹˈʌk twˈɛlv "
        "wi lˈæft ænd stˈɑɹtᵻd ðə lˈɔŋ wˈɔk hˈOm."
    ),
}
VOICES: Final = ("af_heart", "am_michael", "bf_emma", "jf_alpha", "zf_xiaoxiao")
_PEER: Final = """
import json, sys, time, numpy as np
from kokoro_onnx import Kokoro
model, voices, config, voice = sys.argv[1:]
kokoro = Kokoro(model, voices, vocab_config=config)
for line in sys.stdin:
    phonemes = json.loads(line)
    begin = time.perf_counter()
    audio, rate = kokoro.create(phonemes, voice, is_phonemes=True)
    print(json.dumps(time.perf_counter() - begin), flush=True)
"""


class Phonemes:
    """A front end for texts that are phonemes: one segment, no words."""

    def languages(self) -> dict[str, str | None]:
        return {"a": None}

    def warm_up(self, language: str) -> None:
        pass

    def segments(self, text: str, language: str) -> Iterator[Segment]:
        yield Segment(text, (), 0, len(text))


class Peer:
    """PyPI's `kokoro-onnx`, in a process of its own."""

    def __init__(self, python: str, folder: ModelFolder, voice: str, scratch: Path) -> None:
        voices = scratch / "voices.npz"
        styles: Any = {voice: folder.styles(voice).reshape(510, 1, 256)}
        np.savez(voices, **styles)
        config = str(folder.path / "config.json")
        arguments = [str(folder.path / "kokoro.onnx"), str(voices), config, voice]
        self._process = subprocess.Popen(
            [python, "-c", _PEER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.speak("həlˈO.")

    def speak(self, phonemes: str) -> float:
        """How many seconds it takes until there is any sound, which is all of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(phonemes) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("kokoro-onnx failed; see above")
        return float(json.loads(line))

    def close(self) -> None:
        self._process.communicate()


def make_engine(
    folder: ModelFolder, options: argparse.Namespace, streaming: Streaming
) -> KokoroEngine:
    """The engine that was asked for, on phonemes."""
    if options.engine == "kokoro-onnx":
        return KokoroOnnxEngine(
            folder, front_end=Phonemes(), streaming=streaming, threads=options.threads
        )
    return KokoroTorchEngine(
        folder, front_end=Phonemes(), streaming=streaming, device="cpu", threads=options.threads
    )


def make_acoustics(folder: ModelFolder, options: argparse.Namespace) -> Acoustics:
    """What the engine computes with."""
    if options.engine == "kokoro-onnx":
        return OnnxAcoustics(
            folder.file("kokoro-front.onnx"),
            folder.file("kokoro-generator.onnx"),
            threads=options.threads,
        )
    return TorchAcoustics(
        folder.file("config.json"), folder.file("kokoro.pth"), threads=options.threads
    )


async def speak(engine: KokoroEngine, phonemes: str, voice: str) -> tuple[float, float]:
    """Seconds until the first block, and until the last."""
    begin = time.perf_counter()
    first = 0.0
    async for _ in engine.synthesize(SpeechRequest(phonemes, voice, 1.0, 24_000)):
        first = first or time.perf_counter() - begin
    return first, time.perf_counter() - begin


async def times(folder: ModelFolder, options: argparse.Namespace) -> dict[str, Any]:
    """For each sentence the seconds of each way, in every round, and the ratios."""
    streamings: tuple[Streaming, ...] = ("sentence", "window")
    engines = {streaming: make_engine(folder, options, streaming) for streaming in streamings}
    for engine in engines.values():
        await engine.start()
    stock = onnx_graph if options.engine == "kokoro-onnx" else torch_model
    synthesize, styles = stock(folder.path, options.threads), folder.styles(options.voice)

    def whole(phonemes: str) -> float:
        begin = time.perf_counter()
        synthesize(phonemes, styles[len(phonemes) - 1])
        return time.perf_counter() - begin

    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        peer = options.peer and Peer(options.peer, folder, options.voice, Path(scratch))
        for name, phonemes in SENTENCES.items():
            whole(phonemes)
            rounds: list[dict[str, float]] = []
            for _ in range(options.rounds):
                seconds = {"full forward": whole(phonemes)}
                for streaming, engine in engines.items():
                    first, last = await speak(engine, phonemes, options.voice)
                    seconds |= {f"{streaming}, first": first, f"{streaming}, all": last}
                if peer:
                    seconds["kokoro-onnx of PyPI"] = peer.speak(phonemes)
                rounds.append(seconds)
            ratios = {
                key: statistics.median(each[key] / each["full forward"] for each in rounds)
                for key in rounds[0]
            }
            result[name] = {"phonemes": len(phonemes), "ratios": ratios, "rounds_s": rounds}
            print(f"{name} ({len(phonemes)}), {options.rounds} rounds")
            for key, ratio in ratios.items():
                middle = statistics.median(each[key] for each in rounds)
                print(f"  {key:24} {middle:7.3f} s   x{ratio:.2f}", flush=True)
        if peer:
            peer.close()
    for engine in engines.values():
        await engine.stop()
    return result


def distances(folder: ModelFolder, options: argparse.Namespace) -> dict[str, Any]:
    """For each voice: dB between window and sentence, and between two exact renderings."""
    acoustics = make_acoustics(folder, options)
    result: dict[str, Any] = {}
    for voice in [voice for voice in options.voices.split(",") if voice in folder.voices]:
        styles = folder.styles(voice)
        held = measured(acoustics, folder.vocabulary, styles)
        apart: dict[str, list[float]] = {"window": [], "true statistics": [], "noise": []}
        for name, phonemes in SENTENCES.items():
            tokens, style = tokens_of(phonemes, folder.vocabulary), styles[len(phonemes) - 1]
            prepared, again = (acoustics.prepare(tokens, style, 1.0) for _ in range(2))
            frames = prepared.frames
            exact = acoustics.render(prepared, 0, frames, None)
            cut = list(windows(0, frames))

            def joined(kept: Any, cut: Any = cut, prepared: Any = prepared) -> Any:
                return np.concatenate(
                    [acoustics.render(prepared, each.start, each.stop, kept) for each in cut]
                )

            streamed = joined(held)
            apart["window"].append(distance(exact, streamed))
            apart["true statistics"].append(distance(exact, joined(acoustics.measure(prepared))))
            apart["noise"].append(distance(exact, acoustics.render(again, 0, frames, None)))
            if options.plots:
                plot(Path(options.plots) / f"{voice}-{name[:3].strip()}.png", exact, streamed, cut)
        result[voice] = {key: statistics.mean(values) for key, values in apart.items()}
        shown = ", ".join(f"{key} {value:.2f} dB" for key, value in result[voice].items())
        print(f"{voice}: log-mel distance {shown}", flush=True)
    return result


def plot(path: Path, exact: Any, streamed: Any, cut: Any) -> None:
    """Both spectrograms, one above the other, with the seams of the windows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(3, 1, figsize=(16, 9), sharex=True, layout="constrained")
    for axis, samples, title in zip(axes, (exact, streamed), ("sentence", "window"), strict=False):
        axis.specgram(samples + 1e-6, NFFT=1024, Fs=24_000, noverlap=768, vmin=-140, vmax=-20)
        axis.set_title(title)
    seconds = np.arange(len(exact)) / 24_000
    axes[2].plot(seconds, exact, lw=0.4, label="sentence")
    axes[2].plot(seconds, streamed, lw=0.4, alpha=0.7, label="window")
    axes[2].legend()
    for window in cut:
        for axis in axes:
            axis.axvline(window.start * 0.025, color="red", lw=0.5)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description="What streaming by the window brings.")
    parser.add_argument("--model-dir", required=True, help="the model's folder")
    parser.add_argument("--engine", choices=("kokoro-onnx", "kokoro-torch"), default="kokoro-onnx")
    parser.add_argument("--voice", default="af_heart", help="whose times are taken")
    parser.add_argument("--voices", default=",".join(VOICES), help="whose distances are taken")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", help="a Python that has PyPI's kokoro-onnx")
    parser.add_argument("--plots", help="a folder for spectrograms")
    parser.add_argument(
        "--out", help="- for the screen (default evidence/kokoro_streaming_onnx.json, or _torch)"
    )
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    folder = ModelFolder(Path(options.model_dir))
    result: dict[str, object] = {
        "times": asyncio.run(times(folder, options)),
        "log_mel_db": distances(folder, options),
    }
    # No path of this machine.
    named = {"--model-dir": "DIR", "--peer": "PYTHON", "--plots": "FOLDER"}
    given = sys.argv[1:] if arguments is None else arguments
    command = ["python", "scripts/kokoro_streaming.py"]
    command += [
        named.get(given[index - 1], each) if index else each for index, each in enumerate(given)
    ]
    library = options.engine.removeprefix("kokoro-")
    head = provenance.record(
        command, started, ["numpy", {"onnx": "onnxruntime"}.get(library, library)]
    )
    out = options.out or f"evidence/kokoro_streaming_{library}.json"
    provenance.write({**head, "threads": options.threads, **result}, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
