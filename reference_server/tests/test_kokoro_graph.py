"""The cut graph does what the whole one does, and another graph is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnx", reason="the extra `model` is not installed")

from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator
from utterwire_server.engines.kokoro.graph import CHANNELS_KEY, GraphError, cut, cut_file

Array = npt.NDArray[Any]
INPUTS = {
    "tokens": np.array([[0, 5, 90, 17, 3, 44, 8, 0]]),
    "style": np.random.default_rng(2).normal(0, 1, (1, 256)).astype(np.float32),
    "speed": np.array([1.25], np.float32),
}
CHANNELS = [4, 3]
NONE = np.zeros(sum(CHANNELS), np.float32)


class Halves:
    def __init__(self, model: ModelProto) -> None:
        front, generator = cut(model)
        self.metadata = {each.key: each.value for each in generator.metadata_props}
        self._generator = ReferenceEvaluator(generator)
        made: Any = ReferenceEvaluator(front).run(["x", "har", "durations"], INPUTS)
        self.x: Array = made[0]
        self.har: Array = made[1]
        self.durations: Array = made[2]

    def speak(
        self, part: slice, fixed: bool, means: Array = NONE, variances: Array = NONE
    ) -> tuple[Array, Array, Array]:
        made: Any = self._generator.run(
            ["audio", "measured_means", "measured_variances"],
            {
                "x": self.x[:, :, part],
                "har": self.har[:, :, part],
                "style": INPUTS["style"],
                "fixed": np.array(fixed),
                "means": means,
                "variances": variances,
            },
        )
        return made[0], made[1], made[2]


@pytest.fixture
def halves(tiny_graph: ModelProto) -> Halves:
    return Halves(tiny_graph)


WHOLE = slice(None)


def test_both_halves_make_what_the_whole_graph_makes(
    halves: Halves, tiny_graph: ModelProto
) -> None:
    [whole] = ReferenceEvaluator(tiny_graph).run(["audio"], INPUTS)
    audio, means, variances = halves.speak(WHOLE, fixed=False)
    assert np.array_equal(audio, whole)
    assert (variances > 0).all()
    assert means.shape == variances.shape == NONE.shape
    held, same_means, same_variances = halves.speak(WHOLE, True, means, variances)
    assert np.array_equal(held, whole)
    assert np.array_equal(same_means, means)
    assert np.array_equal(same_variances, variances)


def test_a_window_is_the_same_as_its_part_of_the_whole_once_statistics_are_held(
    halves: Halves,
) -> None:
    audio, means, variances = halves.speak(WHOLE, fixed=False)
    window = slice(2, 5)
    held, _, _ = halves.speak(window, True, means, variances)
    own, own_means, _ = halves.speak(window, fixed=False)
    assert np.allclose(held, audio[window], rtol=1e-5)
    assert not np.allclose(own, audio[window], rtol=1e-2)
    assert not np.allclose(own_means, means, rtol=1e-2)


def test_statistics_count(halves: Halves) -> None:
    audio, means, variances = halves.speak(WHOLE, fixed=False)
    for index in range(len(NONE)):
        other = means.copy()
        other[index] += 1
        assert not np.allclose(halves.speak(WHOLE, True, other, variances)[0], audio)
        other = variances.copy()
        other[index] *= 4
        assert not np.allclose(halves.speak(WHOLE, True, means, other)[0], audio)


def test_durations_are_whole_frames_and_at_least_one(halves: Halves) -> None:
    assert halves.durations.dtype == np.int64
    assert halves.durations.tolist() == [[1, 4, 72, 14, 2, 35, 6, 1]]


def test_how_many_channels_each_norm_has(halves: Halves) -> None:
    assert json.loads(halves.metadata[CHANNELS_KEY]) == CHANNELS


def _without(name: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        kept = [node for node in model.graph.node if node.name != name]
        model.graph.ClearField("node")
        model.graph.node.extend(kept)

    return change


def _typed(name: str, kind: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        [node] = (node for node in model.graph.node if node.name == name)
        node.op_type = kind

    return change


def _fed(name: str, position: int, source: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        [node] = (node for node in model.graph.node if node.name == name)
        node.input[position] = source

    return change


def _input_named(model: ModelProto) -> None:
    model.graph.input[0].name = "input_ids"


def _output_named(model: ModelProto) -> None:
    model.graph.output[0].name = "waveform"


def _renamed(model: ModelProto) -> None:
    for node in model.graph.node:
        node.name = node.name.replace("/generator/", "/vocoder/")


def _one_more_reduction(model: ModelProto) -> None:
    g = "/decoder/generator/"
    nodes = list(model.graph.node)
    nodes.insert(
        -1, helper.make_node("ReduceMean", [f"{g}post", "time"], [f"{g}level"], name="level")
    )
    nodes[-1].input[0] = f"{g}level"
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_input_named, "inputs and outputs"),
        (_output_named, "inputs and outputs"),
        (_renamed, "no generator"),
        (_without("/decoder/generator/noise_convs.0/Conv"), "no generator"),
        (_typed("/decoder/generator/LeakyRelu", "Relu"), "no generator"),
        (_typed("rounded", "Floor"), "0 nodes of type Round use 'lengths'"),
        (_without("frames"), "0 nodes of type Cast"),
        (_fed("/decoder/generator/ups", 0, "row"), "needed on both sides"),
        (_fed("/decoder/generator/noise_res.0/square", 1, "gamma"), "norms are not built"),
        (_typed("/decoder/generator/resblocks.0/variance", "ReduceMax"), "norms|ReduceMean"),
        (_one_more_reduction, "norms are not built"),
    ],
)
def test_another_graph_is_refused(
    tiny_graph: ModelProto, change: Callable[[ModelProto], None], problem: str
) -> None:
    change(tiny_graph)
    with pytest.raises(GraphError, match=problem) as refused:
        cut(tiny_graph)
    assert "\n" not in str(refused.value)


def test_from_file_to_files(tiny_graph: ModelProto, tmp_path: Path) -> None:
    whole, front, generator = (tmp_path / name for name in ("whole", "front", "generator"))
    whole.write_bytes(tiny_graph.SerializeToString())
    cut_file(whole, front, generator)
    assert ReferenceEvaluator(str(front)).input_names == ["tokens", "style", "speed"]
    assert ReferenceEvaluator(str(generator)).output_names[0] == "audio"
    whole.write_bytes(b"\x00 no graph")
    with pytest.raises(GraphError, match="no ONNX graph"):
        cut_file(whole, front, generator)


@pytest.mark.slow
def test_the_real_graph(tmp_path: Path) -> None:
    """Its halves give the same bits; int8 windows differ, their ranges being their own."""
    if not (named := os.environ.get("UTTERWIRE_MODEL_DIR")):
        pytest.skip("UTTERWIRE_MODEL_DIR names no model folder")
    runtime = pytest.importorskip("onnxruntime", reason="the extra `kokoro` is not installed")
    from utterwire_server.model import ModelFolder

    folder = ModelFolder(Path(named))
    front, generator = tmp_path / "front.onnx", tmp_path / "generator.onnx"
    cut_file(folder.file("kokoro.onnx"), front, generator)
    phonemes = "hWv kIn ov spiʧ, ænd hWv noʊt."
    tokens = [0, *(folder.vocabulary[each] for each in phonemes), 0]
    inputs = {
        "tokens": np.array([tokens]),
        "style": folder.styles("af_heart")[len(phonemes) - 1][None],
        "speed": np.ones(1, np.float32),
    }

    def run(path: Path, names: list[str], values: dict[str, Array]) -> list[Array]:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 2
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found: list[Array] = session.run(names, values)
        return found

    [whole] = run(folder.file("kokoro.onnx"), ["audio"], inputs)
    x, har, durations = run(front, ["x", "har", "durations"], inputs)
    assert durations.shape == (1, len(tokens))
    frames = int(durations.sum())
    assert x.shape[2] == 2 * frames
    assert har.shape[2] == 120 * frames + 1
    none = np.zeros(8448, np.float32)
    values = {
        "x": x,
        "har": har,
        "style": inputs["style"],
        "fixed": np.array(False),
        "means": none,
        "variances": none,
    }
    audio, means, variances = run(
        generator, ["audio", "measured_means", "measured_variances"], values
    )
    assert audio.shape == (600 * frames,)
    assert np.array_equal(audio, whole)
    held = {**values, "fixed": np.array(True), "means": means, "variances": variances}
    assert np.array_equal(run(generator, ["audio"], held)[0], whole)
