"""Cutting the ONNX graph of Kokoro-82M in two, so that its generator can run in windows.

Most of the work of a forward pass is in the generator (an iSTFTNet). The front, all that comes
before it, runs once for a sentence; the generator runs on as many frames at a time as one likes.
Its instance norms reduce over time: in the cut graph their means and variances are outputs, to
measure them on a whole sentence, and inputs, to hold them where only a part of one is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["CHANNELS_KEY", "GraphError", "cut", "cut_file"]

#: Under this key a generator's metadata tell, as a JSON array, how many channels each norm has.
CHANNELS_KEY: Final = "utterwire.channels"

_GENERATOR = "/generator/"
_X_CHANNELS = 512
_HAR_CHANNELS = 22
_STYLE_SIZE = 256


class GraphError(ValueError):
    """The graph is not built like the one that can be cut."""


@dataclass(frozen=True, slots=True)
class _Seams:
    """The tensors at which the graph is cut."""

    x: str
    har: str
    durations: str


@dataclass(frozen=True, slots=True)
class _Norm:
    """The two reductions of an instance norm."""

    mean: NodeProto
    variance: NodeProto


class _Index:
    """Who makes and who uses each tensor of a graph."""

    def __init__(self, model: ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.constants = {each.name: each for each in model.graph.initializer}
        self.made_by = {name: node for node in self.nodes for name in node.output}
        self.used_by: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.used_by.setdefault(name, []).append(node)

    def user(self, name: str, kind: str) -> NodeProto:
        found = [node for node in self.used_by.get(name, ()) if node.op_type == kind]
        if len(found) != 1:
            raise GraphError(f"{len(found)} nodes of type {kind} use {name!r}, and not one")
        return found[0]

    def between(self, inputs: Iterable[str], outputs: Iterable[str]) -> list[NodeProto]:
        """The nodes that make `outputs` out of `inputs` and constants, in their order."""
        known, todo, wanted = {*inputs, *self.constants, ""}, list(outputs), set[str]()
        while todo:
            name = todo.pop()
            if name in known:
                continue
            known.add(name)
            if (node := self.made_by.get(name)) is None:
                raise GraphError(f"{name!r} is needed on both sides of the cut")
            wanted.update(node.output)
            todo.extend(node.input)
        return [node for node in self.nodes if wanted.intersection(node.output)]


def _seams(index: _Index) -> _Seams:
    inside = [node for node in index.nodes if _GENERATOR in node.name]
    first = [node for node in inside if node.op_type == "LeakyRelu"][:1]
    source = [
        node
        for node in inside
        if "/noise_convs.0/" in node.name and node.op_type in ("Conv", "ConvInteger")
    ]
    if not first or len(source) != 1:
        raise GraphError("there is no generator in it")
    har = source[0].input[0]
    if (before := index.made_by.get(har)) is not None and before.op_type == "DynamicQuantizeLinear":
        har = before.input[0]
    # From the clip on, which leaves each token a frame at least, durations are whole numbers.
    name = "speed"
    for kind in ("Div", "Round", "Clip", "Cast"):
        name = index.user(name, kind).output[0]
    return _Seams(first[0].input[0], har, name)


def _norms(index: _Index, nodes: Sequence[NodeProto]) -> list[_Norm]:
    """The instance norms among `nodes`, in their order."""
    reductions = [node for node in nodes if node.op_type == "ReduceMean"]
    squares = {
        node.input[0]: node.output[0]
        for node in nodes
        if node.op_type == "Mul" and node.input[0] == node.input[1]
    }
    norms = []
    for mean in reductions:
        difference = [
            each for each in index.used_by.get(mean.output[0], ()) if each.op_type == "Sub"
        ]
        if difference and (square := squares.get(difference[0].output[0])):
            norms.append(_Norm(mean, index.user(square, "ReduceMean")))
    if not norms or len(reductions) != 2 * len(norms):
        raise GraphError("its instance norms are not built as expected")
    return norms


def _value(name: str, kind: int, shape: Sequence[int | str] | None) -> ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, shape)


def _constant(name: str, values: Sequence[int]) -> TensorProto:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array(values, np.int64), name)


def _renamed(nodes: Iterable[NodeProto], names: Mapping[str, str]) -> list[NodeProto]:
    from onnx import NodeProto

    renamed = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        for field in (copy.input, copy.output):
            field[:] = [names.get(each, each) for each in field]
        renamed.append(copy)
    return renamed


def _model(
    whole: ModelProto,
    name: str,
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    constants: Mapping[str, TensorProto],
) -> ModelProto:
    from onnx import helper

    used = {each for node in nodes for each in node.input}
    used.update(
        each
        for node in nodes
        for attribute in node.attribute
        for inner in attribute.g.node
        for each in inner.input
    )
    return helper.make_model(
        helper.make_graph(
            nodes,
            name,
            inputs,
            outputs,
            [tensor for each, tensor in constants.items() if each in used],
        ),
        opset_imports=whole.opset_import,
        ir_version=whole.ir_version,
        producer_name="utterwire",
    )


def _channels(generator: ModelProto, norms: Sequence[_Norm]) -> list[int]:
    """How many channels each norm has."""
    from onnx import shape_inference

    shapes = {
        each.name: each.type.tensor_type.shape.dim
        for each in shape_inference.infer_shapes(generator).graph.value_info
    }
    shapes.update((each.name, each.type.tensor_type.shape.dim) for each in generator.graph.input)
    found = []
    for norm in norms:
        shape = shapes.get(norm.mean.input[0], ())
        if len(shape) != 3 or not shape[1].dim_value:
            raise GraphError("the channels of its instance norms are unknown")
        found.append(shape[1].dim_value)
    return found


def _choice(reduction: NodeProto, held: str) -> NodeProto:
    """`held` where `fixed` is set, else what `reduction` makes."""
    from onnx import TensorProto, helper

    result = reduction.output[0]
    own = _renamed([reduction], {result: f"{result}.own"})
    branches = (
        helper.make_graph(
            [helper.make_node("Identity", [held], [f"{result}.held"])],
            "held",
            [],
            [_value(f"{result}.held", TensorProto.FLOAT, None)],
        ),
        helper.make_graph(own, "own", [], [_value(own[0].output[0], TensorProto.FLOAT, None)]),
    )
    return helper.make_node(
        "If", ["fixed"], [result], then_branch=branches[0], else_branch=branches[1]
    )


def _with_statistics(
    nodes: Sequence[NodeProto], norms: Sequence[_Norm], channels: Sequence[int]
) -> tuple[list[NodeProto], dict[str, TensorProto]]:
    from onnx import helper

    constants = {
        "channels": _constant("channels", channels),
        "per_channel": _constant("per_channel", [1, -1, 1]),
        "flat": _constant("flat", [-1]),
    }
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    choices = {}
    for kind, reductions in (
        ("means", [norm.mean for norm in norms]),
        ("variances", [norm.variance for norm in norms]),
    ):
        rows = [f"{kind}.{number}" for number in range(len(norms))]
        before.append(
            helper.make_node("Split", [kind, "channels"], [f"{row}.flat" for row in rows])
        )
        for row, reduction in zip(rows, reductions, strict=True):
            before.append(helper.make_node("Reshape", [f"{row}.flat", "per_channel"], [row]))
            after.append(
                helper.make_node("Reshape", [reduction.output[0], "flat"], [f"{row}.measured"])
            )
            choices[reduction.output[0]] = _choice(reduction, row)
        after.append(
            helper.make_node("Concat", [f"{row}.measured" for row in rows], [f"measured_{kind}"])
        )
    for node in after:
        if node.op_type == "Concat":
            node.attribute.append(helper.make_attribute("axis", 0))
    return [*before, *(choices.get(node.output[0], node) for node in nodes), *after], constants


def cut(whole: ModelProto) -> tuple[ModelProto, ModelProto]:
    """Cut the graph `tokens, style, speed -> audio` into front and generator.

    Front: ``tokens``, ``style``, ``speed`` -> ``x`` float32 ``(1, 512, 2 n)``, ``har`` float32
    ``(1, 22, 120 n + 1)``, ``durations`` int64, frames of each token; n is their sum.

    Generator: ``x``, ``har``, ``style``, ``fixed`` (bool, no dimensions), ``means`` and
    ``variances`` (float32, the channels of all norms one after the other) -> ``audio`` float32
    ``(600 n,)``, ``measured_means``, ``measured_variances``. Where ``fixed`` is false, each norm
    uses and gives the statistics of its own input, else those that come in. Frames a up to b are
    columns 2 a up to 2 b of ``x`` and 120 a up to 120 b + 1 of ``har``.

    :raises GraphError: if the graph is another.
    """
    from onnx import TensorProto, helper

    inputs = {each.name: each for each in whole.graph.input}
    if set(inputs) != {"tokens", "style", "speed"} or [o.name for o in whole.graph.output] != [
        "audio"
    ]:
        raise GraphError("its inputs and outputs are not tokens, style, speed and audio")
    index = _Index(whole)
    seams = _seams(index)
    names = {seams.x: "x", seams.har: "har", seams.durations: "durations"}
    real = TensorProto.FLOAT

    x = _value("x", real, [1, _X_CHANNELS, "columns"])
    har = _value("har", real, [1, _HAR_CHANNELS, "steps"])
    front = _model(
        whole,
        "front",
        _renamed(index.between(inputs, names), names),
        [*inputs.values()],
        [x, har, _value("durations", TensorProto.INT64, None)],
        index.constants,
    )

    nodes = _renamed(index.between([seams.x, seams.har, "style"], ["audio"]), names)
    values = [x, har, inputs["style"]]
    audio = _value("audio", real, ["samples"])
    plain = _model(whole, "generator", nodes, values, [audio], index.constants)
    norms = _norms(_Index(plain), nodes)
    channels = _channels(plain, norms)
    nodes, constants = _with_statistics(nodes, norms, channels)
    rows = [sum(channels)]
    generator = _model(
        whole,
        "generator",
        nodes,
        [
            *values,
            _value("fixed", TensorProto.BOOL, []),
            _value("means", real, rows),
            _value("variances", real, rows),
        ],
        [audio, _value("measured_means", real, rows), _value("measured_variances", real, rows)],
        {**index.constants, **constants},
    )
    helper.set_model_props(generator, {CHANNELS_KEY: json.dumps(channels)})
    return front, generator


def cut_file(whole: Path, front: Path, generator: Path) -> None:
    """`cut` from file to files.

    :raises GraphError: if it is no graph, or another one.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(whole)
    except DecodeError as error:
        raise GraphError(f"{whole} is no ONNX graph: {error}") from error
    for made, path in zip(cut(model), (front, generator), strict=True):
        onnx.save(made, path)
