"""The example of the on-ramp: Piper, judged by the suite.

Piper is the real library, its phonemes included; the voice is a model of its own making that hums
each phoneme, since voices cannot be downloaded by tests. Needs `piper-tts` and `onnx`.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "piper_endpoint.py"
SAMPLE_RATE = 22_050
PROFILES = ["core", "http", "interrupt", "negotiate", "formats", "sse"]
# A phoneme id of Piper lasts so many samples at speed 1.
PER_ID = 900.0

needs_piper = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("piper", "onnx", "soxr")),
    reason="piper-tts, onnx or soxr is not installed",
)


def humming_voice(folder: Path) -> Path:
    """A voice in Piper's format: each phoneme id a tone of its own, longer at a lower speed."""
    # Not installed where types are checked.
    onnx = import_module("onnx")
    make, number = import_module("onnx.helper"), onnx.TensorProto
    from_array = import_module("onnx.numpy_helper").from_array
    phoneme_ids = import_module("piper.phoneme_ids")

    constants = {
        "zero": np.float32(0),
        "one": np.float32(1),
        "per_id": np.float32(PER_ID),
        "lowest": np.float32(120),
        "step": np.float32(7),
        "radians": np.float32(2 * np.pi / SAMPLE_RATE),
        "level": np.float32(0.3),
        "first": np.int64(0),
        "second": np.int64(1),
        "shape": np.array([1, 1, 1, -1], dtype=np.int64),
    }
    steps: list[tuple[Any, ...]] = [
        ("Gather", "scales second", "length_scale"),
        ("Gather", "input_lengths first", "count"),
        ("Cast", "count", "ids_long", number.FLOAT),
        ("Mul", "length_scale per_id", "samples_each"),
        ("Mul", "samples_each ids_long", "samples_exact"),
        ("Floor", "samples_exact", "samples"),
        ("Range", "zero samples one", "time"),
        ("Div", "time samples_each", "place_exact"),
        ("Cast", "place_exact", "place", number.INT64),
        ("Gather", "input first", "ids"),
        ("Gather", "ids place", "id"),
        ("Cast", "id", "id_float", number.FLOAT),
        ("Mul", "id_float step", "above"),
        ("Add", "above lowest", "hertz"),
        ("Mul", "hertz radians", "turn"),
        ("Mul", "turn time", "angle"),
        ("Sin", "angle", "wave"),
        ("Mul", "wave level", "audio"),
        ("Reshape", "audio shape", "output"),
    ]
    graph = make.make_graph(
        [
            make.make_node(kind, taken.split(), [given], **({"to": to[0]} if to else {}))
            for kind, taken, given, *to in steps
        ],
        "hum",
        [
            make.make_tensor_value_info("input", number.INT64, [1, None]),
            make.make_tensor_value_info("input_lengths", number.INT64, [1]),
            make.make_tensor_value_info("scales", number.FLOAT, [3]),
        ],
        [make.make_tensor_value_info("output", number.FLOAT, [1, 1, 1, None])],
        [from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path = folder / "hum.onnx"
    path.write_bytes(model.SerializeToString())
    config = {
        "audio": {"sample_rate": SAMPLE_RATE},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.6, "length_scale": 1.0, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "num_symbols": 256,
        "num_speakers": 1,
        "phoneme_id_map": phoneme_ids.DEFAULT_PHONEME_ID_MAP,
    }
    path.with_suffix(".onnx.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_the_example_is_as_short_as_is_said() -> None:
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    lines = {
        line
        for node in tree.body[1:]
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    source = EXAMPLE.read_text(encoding="utf-8").splitlines()
    assert sum(bool(source[line - 1].strip()) for line in lines) <= 15


@needs_piper
def test_the_example_conforms(tmp_path: Path) -> None:
    voice = humming_voice(tmp_path)
    (tmp_path / "endpoints.toml").write_text(
        f"""
[endpoint.piper]
launch = ["{{python}}", {json.dumps(str(EXAMPLE))}, {json.dumps(str(voice))}, "{{port}}"]
ready_url = "http://127.0.0.1:{{port}}/ping"
profiles = {json.dumps(PROFILES)}
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "utterwire_conformance", "--endpoint", "piper", "--no-fuzz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "utterwire-report" / "report.json").read_text("utf-8"))
    for profile in PROFILES:
        counts = report["summary"][profile]
        assert counts["passed"] == counts["applicable"], profile
