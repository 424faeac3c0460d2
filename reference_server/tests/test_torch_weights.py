"""Torch weights out of a quantised graph: every kind of node that holds some."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnx", reason="the extra `model` is not installed")

from onnx import ModelProto, TensorProto, helper, numpy_helper
from utterwire_server.model.folder import ModelError
from utterwire_server.model.torch_weights import state

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(3)


def model(nodes: list[tuple[str, str, list[str]]], constants: dict[str, Array]) -> ModelProto:
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node(kind, inputs, [f"{name}:0"], name=name)
                for kind, name, inputs in nodes
            ],
            "weights",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
    )


def whole(*shape: int) -> Array:
    return RANDOM.integers(-127, 127, shape).astype(np.int8)


@pytest.mark.parametrize("many", [True, False], ids=["per-channel", "one-scale"])
def test_a_linear_is_turned_and_scaled_by_its_outputs(many: bool) -> None:
    values = whole(3, 2)
    scale = np.array([0.5, 2.0] if many else [0.5])
    zero = np.array([1, -1] if many else [3], np.int8)
    graph = model(
        [
            (
                "MatMulInteger",
                "/encoder/bert_encoder/MatMul_quant",
                ["x", "w_quantized", "z", "w_zero_point"],
            ),
            ("Add", "/encoder/bert_encoder/Add", ["encoder.bert_encoder.bias", "a"]),
        ],
        {
            "w_quantized": values,
            "w_scale": scale.astype(np.float32),
            "w_zero_point": zero,
            "encoder.bert_encoder.bias": np.ones(2, np.float32),
        },
    )
    found = state(graph, {"bert_encoder.weight": (2, 3), "bert_encoder.bias": (2,)})
    expected = ((values.astype(np.float32) - zero) * scale).T
    assert np.allclose(found["bert_encoder.weight"], expected)
    assert (found["bert_encoder.bias"] == 1).all()


def test_a_weight_norm_is_taken_apart_and_a_row_of_zeros_stays_finite() -> None:
    values = whole(4, 2, 3)
    values[1] = 0
    scale = np.array([0.5, 1.0, 2.0, 3.0], np.float32)
    graph = model(
        [
            (
                "ConvInteger",
                "/decoder/decoder/decode.0/conv1/Conv_quant",
                ["x", "v_quantized", "z", "v_zero_point"],
            )
        ],
        {"v_quantized": values, "v_scale": scale, "v_zero_point": np.zeros(4, np.int8)},
    )
    name = "decoder.decode.0.conv1.weight"
    found = state(graph, {f"{name}_v": (4, 2, 3), f"{name}_g": (4, 1, 1)})
    v, g = found[f"{name}_v"], found[f"{name}_g"]
    plain = g * v / np.linalg.norm(v.reshape(4, -1), axis=1).reshape(4, 1, 1)
    assert np.isfinite(plain).all()
    assert np.allclose(plain, values * scale.reshape(4, 1, 1), rtol=1e-5)


def test_the_gates_of_an_lstm_are_put_in_torch_order() -> None:
    hidden, width = 2, 3
    inner, recurrent = whole(2, width, 4 * hidden), whole(2, hidden, 4 * hidden)
    bias = RANDOM.normal(size=(2, 8 * hidden)).astype(np.float32)
    scale = RANDOM.uniform(0.1, 1, (2, 4 * hidden)).astype(np.float32)
    zero = np.zeros((2, 4 * hidden), np.int8)
    graph = model(
        [
            (
                "DynamicQuantizeLSTM",
                "/encoder/text_encoder/lstm/LSTM_quant",
                ["x", "w", "r", "b", "", "", "", "", "s", "z", "s", "z"],
            )
        ],
        {"w": inner, "r": recurrent, "b": bias, "s": scale, "z": zero},
    )
    shapes: dict[str, tuple[int, ...]] = {}
    for suffix in ("", "_reverse"):
        shapes |= {
            f"text_encoder.lstm.weight_ih_l0{suffix}": (4 * hidden, width),
            f"text_encoder.lstm.weight_hh_l0{suffix}": (4 * hidden, hidden),
            f"text_encoder.lstm.bias_ih_l0{suffix}": (4 * hidden,),
            f"text_encoder.lstm.bias_hh_l0{suffix}": (4 * hidden,),
        }
    found = state(graph, shapes)
    order = [0, 1, 4, 5, 6, 7, 2, 3]  # i, o, f, c of two each, as i, f, c, o
    for number, suffix in enumerate(("", "_reverse")):
        weights = (inner[number] * scale[number]).T[order]
        assert np.allclose(found[f"text_encoder.lstm.weight_ih_l0{suffix}"], weights)
        weights = (recurrent[number] * scale[number]).T[order]
        assert np.allclose(found[f"text_encoder.lstm.weight_hh_l0{suffix}"], weights)
        assert np.array_equal(
            found[f"text_encoder.lstm.bias_ih_l0{suffix}"], bias[number][:8][order]
        )
        assert np.array_equal(
            found[f"text_encoder.lstm.bias_hh_l0{suffix}"], bias[number][8:][order]
        )


def test_an_embedding_and_names_that_differ() -> None:
    values = whole(5, 2)
    upsample = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
    merge = RANDOM.normal(size=(9, 1)).astype(np.float32)
    graph = model(
        [
            (
                "Gather",
                "/encoder/text_encoder/embedding/Gather_quant",
                ["encoder.text_encoder.embedding.weight_quantized", "x"],
            ),
            ("Conv", "/encoder/F0_proj/Conv", ["x", "proj"]),
            ("ConvTranspose", "/decoder/decoder/generator/ups.0/ConvTranspose", ["x", "up"]),
            ("MatMul", "/decoder/decoder/generator/m_source/l_linear/MatMul", ["x", "merge"]),
            ("Gather", "Gather_token_25", ["x", "y"]),
        ],
        {
            "encoder.text_encoder.embedding.weight_quantized": values,
            "encoder.text_encoder.embedding.weight_scale": np.array(0.25, np.float32),
            "encoder.text_encoder.embedding.weight_zero_point": np.array(2, np.int8),
            "proj": np.ones((1, 2, 1), np.float32),
            "up": upsample,
            "merge": merge,
        },
    )
    found = state(
        graph,
        {
            "text_encoder.embedding.weight": (5, 2),
            "predictor.F0_proj.weight": (1, 2, 1),
            "decoder.generator.ups.0.weight": (2, 3, 4),
            "decoder.generator.m_source.l_linear.weight": (1, 9),
        },
    )
    assert np.allclose(found["text_encoder.embedding.weight"], (values.astype(np.float32) - 2) / 4)
    assert np.array_equal(found["decoder.generator.ups.0.weight"], upsample)
    assert np.array_equal(found["decoder.generator.m_source.l_linear.weight"], merge.T)


def test_what_exports_leave_out_is_one_and_nought() -> None:
    found = state(
        model([], {}),
        {"decoder.encode.norm1.norm.weight": (2,), "decoder.encode.norm1.norm.bias": (2,)},
    )
    assert (found["decoder.encode.norm1.norm.weight"] == 1).all()
    assert (found["decoder.encode.norm1.norm.bias"] == 0).all()


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ({"decoder.encode.conv1.bias": (2,)}, "the graph has no decoder.encode.conv1.bias"),
        ({"decoder.bias": (3,)}, r"has decoder.bias as \(2,\), and the module as \(3,\)"),
    ],
)
def test_a_graph_that_lacks_something(shapes: dict[str, tuple[int, ...]], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        state(model([], {"decoder.bias": np.zeros(2, np.float32)}), shapes)
