"""Kokoro's weights for torch, rebuilt from the quantised ONNX graph.

They are the numbers that the graph computes with, made floating point again: the rounding to eight
bits stays in them. It serves where the hub and its own weights are out of reach.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from utterwire_server.model.folder import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = ["PARTS", "state", "write_weights"]

Array = npt.NDArray[Any]

#: The modules of Kokoro, each with a state of its own in the file.
PARTS: Final = ("bert", "bert_encoder", "predictor", "text_encoder", "decoder")

# A row of zeros has no direction, which is what a weight norm divides by.
_TINY: Final = 1e-12
# These have no part in the forward pass, or are 1 and 0 in every export that leaves them out.
_LEFT_OUT: Final = re.compile(r"bert\.pooler\.(weight|bias)|.*\.norm\.(weight|bias)")


def state(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The state of the torch module, by the names of its parameters.

    :param shapes: of all parameters, as the module has them.
    :raises ModelError: if the graph does not hold them all, or in other shapes.
    """
    found: dict[str, Array] = {}
    for name, value in _parameters(_Weights(model), shapes):
        if shapes.get(name) != value.shape:
            raise ModelError(
                f"the graph has {name} as {value.shape}, and the module as {shapes.get(name)}"
            )
        found.setdefault(name, np.ascontiguousarray(value, np.float32))
    for name, shape in shapes.items():
        if name in found:
            continue
        if not _LEFT_OUT.fullmatch(name):
            raise ModelError(f"the graph has no {name}")
        fill = 1.0 if name.endswith(".norm.weight") else 0.0
        found[name] = np.full(shape, fill, np.float32)
    return found


class _Weights:
    """The constants of a graph, made floating point again."""

    def __init__(self, model: ModelProto) -> None:
        from onnx import numpy_helper

        self.nodes = list(model.graph.node)
        self.constants = {
            each.name: numpy_helper.to_array(each) for each in model.graph.initializer
        }

    def plain(self, quantised: str, zero_point: str | None = None) -> Array:
        """A quantised weight: one scale for all, or one for each output channel.

        Those of a matrix are along its last axis, those of a convolution along its first.
        """
        base = quantised.removesuffix("_quantized")
        values = self.constants[quantised].astype(np.float32)
        scale = self.constants[f"{base}_scale"].astype(np.float32)
        zero = self.constants.get(zero_point or f"{base}_zero_point", np.float32(0))
        axis = -1 if values.ndim == 2 else 0
        shape = [1] * values.ndim
        shape[axis] = -1
        along = [
            each.reshape(shape) if each.size > 1 else each.reshape(())
            for each in (zero.astype(np.float32), scale)
        ]
        result: Array = (values - along[0]) * along[1]
        return result


def _parameters(
    weights: _Weights, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, Array]]:
    """Name and value of every parameter that the graph holds."""
    for node in weights.nodes:
        inputs = list(node.input)
        module = _module(node.name)
        known = len(inputs) > 1 and inputs[1] in weights.constants
        if node.op_type == "MatMulInteger" and known:
            # Linears that share their weights are numbered by their uses.
            module = re.sub(r"(attention\.\w+?|ffn|ffn_output)_\d+$", r"\1", module)
            yield f"{module}.weight", weights.plain(inputs[1], *inputs[3:4]).T
        elif node.op_type == "ConvInteger" and known:
            yield from _weight(module, weights.plain(inputs[1], *inputs[3:4]), shapes)
        elif node.op_type in ("Conv", "ConvTranspose") and known:
            if f"{module}.weight_v" in shapes or f"{module}.weight" in shapes:
                yield from _weight(module, weights.constants[inputs[1]], shapes)
        elif node.op_type == "MatMul" and "l_linear" in node.name and known:
            yield f"{module}.weight", weights.constants[inputs[1]].T
        elif node.op_type == "DynamicQuantizeLSTM":
            yield from _lstm(module, node, weights)
    for name, value in weights.constants.items():
        if (parameter := _parameter(name)) in shapes:
            yield parameter, value
        elif name.endswith(".weight_quantized"):
            parameter = _parameter(name.removesuffix("_quantized"))
            # A linear has been taken from the node that uses it, whose weight lies turned here.
            if parameter in shapes and re.search(r"embeddings?\.weight$", parameter):
                yield parameter, weights.plain(name)


def _weight(
    module: str, value: Array, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, Array]]:
    """A weight, or the direction and length into which a weight norm takes it apart."""
    if f"{module}.weight_v" not in shapes:
        yield f"{module}.weight", value
        return
    rows = value.reshape(len(value), -1)
    length = np.linalg.norm(rows.astype(np.float64), axis=1)
    direction = np.where(length[:, None] == 0, np.float32(_TINY), rows).reshape(value.shape)
    yield f"{module}.weight_v", direction
    yield f"{module}.weight_g", length.reshape(-1, *(1,) * (value.ndim - 1))


def _lstm(module: str, node: NodeProto, weights: _Weights) -> Iterator[tuple[str, Array]]:
    """Both directions of an LSTM; ONNX has the gates as i, o, f, c and torch as i, f, c, o."""

    def gates(value: Array) -> Array:
        i, o, f, c = np.split(value, 4)
        return np.concatenate([i, f, c, o])

    def plain(value: int, scale: int, zero: int) -> Array:
        quantised, factor, offset = (
            weights.constants[node.input[each]].astype(np.float32) for each in (value, scale, zero)
        )
        directions = len(quantised)
        factor, offset = (
            each.reshape(directions, 1, -1) if each.size > 1 else each for each in (factor, offset)
        )
        result: Array = (quantised - offset) * factor
        return result

    inner, recurrent, bias = plain(1, 8, 9), plain(2, 10, 11), weights.constants[node.input[3]]
    for number, suffix in enumerate(("", "_reverse")):
        half = bias.shape[1] // 2
        yield f"{module}.weight_ih_l0{suffix}", gates(inner[number].T)
        yield f"{module}.weight_hh_l0{suffix}", gates(recurrent[number].T)
        yield f"{module}.bias_ih_l0{suffix}", gates(bias[number][:half])
        yield f"{module}.bias_hh_l0{suffix}", gates(bias[number][half:])


def _module(node: str) -> str:
    """The module of a node: `/decoder/decoder/encode/conv1/Conv_quant` is `decoder.encode.conv1`.

    Of a list, both the list and its element are named: `/ups/ups.0/` is `ups.0`.
    """
    path = node.strip("/").split("/")[:-1]
    kept = [
        step
        for number, step in enumerate(path)
        if not any(following.startswith(f"{step}.") for following in path[number + 1 : number + 2])
    ]
    return _parameter(".".join(kept))


def _parameter(name: str) -> str:
    """The name in the torch module of what the graph calls `name`."""
    if name.startswith("decoder.decoder."):
        return name.removeprefix("decoder.")
    if not name.startswith("encoder."):
        return name
    name = name.removeprefix("encoder.")
    if name.partition(".")[0] in ("F0", "N", "shared", "F0_proj", "N_proj"):
        return f"predictor.{name}"
    return name


def write_weights(graph: Path, config: Path, target: Path) -> None:
    """Write the torch weights of `graph` to `target`, in the form of Kokoro's own file.

    :raises ModelError: if torch or kokoro is missing, or the graph is another.
    """
    import onnx

    try:
        import torch
        from kokoro.model import KModel
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{error.name} is not installed, and kokoro-torch needs it; "
            "pip install 'utterwire[torch]', or fetch with --engines kokoro-onnx"
        ) from None
    empty = target.with_suffix(".empty")
    torch.save({}, empty)
    try:
        module = KModel(
            repo_id="hexgrad/Kokoro-82M",
            config=json.loads(config.read_bytes()),
            model=str(empty),
        )
    finally:
        empty.unlink()
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {
        name: torch.from_numpy(value) for name, value in state(onnx.load(graph), shapes).items()
    }
    torch.save(
        {
            part: {
                name.removeprefix(f"{part}."): value
                for name, value in found.items()
                if name.startswith(f"{part}.")
            }
            for part in PARTS
        },
        target,
    )
