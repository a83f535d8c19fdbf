"""Raises networks of opsets 1 to 6 to opset 7: how operands are aligned, slopes of PRelu, attributes that became inputs
or that only trained networks need. ONNX's version converter needs the shapes of all values for it, which ONNX cannot
infer for operators of opset 1, and aligns operands at an axis wrongly."""

from collections.abc import Callable
from typing import Any

import onnx
from onnx import TensorProto, helper, shape_inference

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, attributes, opset_of, text
from autosched_tvm.compile.frontend.refused_operators import name_of

OPSET = 7
"""First opset with today's broadcasting."""
_ALIGNED = frozenset({
    "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less",
})  # fmt: skip
_SAME_RANK = _ALIGNED | frozenset({
    "Abs", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat", "Dropout", "Elu", "Exp", "Floor", "GlobalLpPool",
    "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log", "LpPool", "Max", "Mean", "Min", "Neg", "PRelu", "Pad",
    "Reciprocal", "Relu", "Selu", "Sigmoid", "Split", "Sqrt", "Sum", "Tanh", "Upsample",
})  # fmt: skip
"""Operators of opset 1 for which ONNX infers no shapes: results have as many dimensions as the first input."""
_GONE = frozenset({"consumed_inputs", "is_test", "output_sequence", "broadcast"})
"""Attributes that later opsets do not have."""
Ranks = dict[str, int]


def raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model of an opset before 7 as one of opset 7; any other as it is. Raises ModelRejected."""
    opset = opset_of(model)
    if opset >= OPSET:
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del made.graph.input[:]  # up to IR version 3 constants were inputs, too
    made.graph.input.extend(inputs)
    made.ir_version = max(made.ir_version, 4)
    ranks = _ranks(model)
    emit = NodeBuilder(made.graph, opset)
    for node in made.graph.node:
        emit.about(node)
        if rule := _RULES.get("aligned" if node.op_type in _ALIGNED else node.op_type):
            rule(emit, node, ranks)
        _without(node, *_GONE)
        emit.nodes.append(node)
    emit.finish()
    del made.graph.value_info[:]  # sizes of values that were reshaped
    for one in made.opset_import:
        if one.domain in ("", "ai.onnx"):
            one.version = OPSET
    if not made.opset_import:
        made.opset_import.append(helper.make_opsetid("", OPSET))
    return made


def _without(node: Node, *names: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _set(node: Node, **values: Any) -> None:
    _without(node, *values)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())


def _aligned(emit: NodeBuilder, node: Node, ranks: Ranks) -> None:
    """The second operand stands at an axis of the first, or at its last dimensions."""
    given = attributes(node)
    _without(node, "axis")
    if "axis" in given and given.get("broadcast", 0):
        first, second = (ranks.get(name) for name in node.input)
        if first is None or second is None:
            raise ModelRejected(
                f"operator {node.op_type} (node {name_of(node)}) of an opset before {OPSET} aligns values whose numbers"
                " of dimensions are not known: export the model with a later opset"
            )
        node.input[1] = _unsqueezed(emit, node.input[1], second, first - int(given["axis"]) % first - second)


def _unsqueezed(emit: NodeBuilder, name: str, rank: int, behind: int) -> str:
    """The value with dimensions of size 1 behind its own."""
    if behind <= 0:
        return name
    array = emit.array(name)
    if array is not None:
        return emit.constant(array.reshape(*array.shape, *[1] * behind))
    return emit.unsqueeze(name, *range(rank, rank + behind))


def _slopes(emit: NodeBuilder, node: Node, ranks: Ranks) -> None:
    """A slope for each channel."""
    if ranks.get(node.input[1]) == 1:
        node.input[1] = _unsqueezed(emit, node.input[1], 1, max(0, ranks.get(node.input[0], 2) - 2))


def _cast(_emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    """The type by name."""
    if isinstance(to := attributes(node).get("to"), bytes):
        _set(node, to=TensorProto.DataType.Value(text(to).upper()))


def _concat(_emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    _set(node, axis=int(attributes(node).get("axis", 1)))


def _pad(_emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    if (pads := attributes(node).get("paddings")) is not None:
        _without(node, "paddings")
        _set(node, pads=pads)


def _reshape(emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    if (shape := attributes(node).get("shape")) is not None:
        _without(node, "shape")
        node.input.append(emit.integers(*shape))


def _tile(emit: NodeBuilder, node: Node, ranks: Ranks) -> None:
    """The number of repeats along one axis."""
    if len(node.input) < 3:
        return
    repeats, axis = (emit.array(name) for name in node.input[1:3])
    rank = ranks.get(node.input[0])
    if rank is None or repeats is None or axis is None:
        raise ModelRejected(
            f"operator Tile (node {name_of(node)}) has repeats that the network computes; export the"
            " model with a later opset"
        )
    counts = [1] * rank
    counts[int(axis.reshape(-1)[0])] = int(repeats.reshape(-1)[0])
    del node.input[1:]
    node.input.append(emit.integers(*counts))


def _upsample(_emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    given = attributes(node)
    if "height_scale" in given:
        _without(node, "height_scale", "width_scale")
        _set(node, scales=[1.0, 1.0, given["height_scale"], given["width_scale"]])


def _norm(_emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    """The exponent was a floating-point number."""
    p = float(attributes(node).get("p", 2.0))
    if not p.is_integer():
        raise ModelRejected(f"operator {node.op_type} (node {name_of(node)}) has the exponent {p:g}")
    _set(node, p=int(p))


def _selu(_emit: NodeBuilder, node: Node, _ranks: Ranks) -> None:
    """The default factors had fewer digits."""
    given = attributes(node)
    _set(node, alpha=float(given.get("alpha", 1.6732)), gamma=float(given.get("gamma", 1.0507)))


_RULES: dict[str, Callable[[NodeBuilder, Node, Ranks], None]] = {
    "aligned": _aligned, "Cast": _cast, "Concat": _concat, "GlobalLpPool": _norm, "LpPool": _norm, "PRelu": _slopes,
    "Pad": _pad, "Reshape": _reshape, "Selu": _selu, "Tile": _tile, "Upsample": _upsample,
}  # fmt: skip


def _ranks(model: onnx.ModelProto) -> Ranks:
    """The number of dimensions of each value, as far as it is known."""
    found = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    known = onnx.ModelProto()
    known.CopyFrom(model)
    while True:
        graph = shape_inference.infer_shapes(known).graph
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                found[value.name] = len(value.type.tensor_type.shape.dim)
        added = []
        for node in graph.node:
            rank = _own_rank(node, found)
            for name in node.output if rank is not None else ():
                if name and name not in found:
                    found[name] = rank or 0
                    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [None] * (rank or 0))
                    added.append(helper.make_value_info(name, kind))
        if not added:
            return found
        known.graph.value_info.extend(added)


def _own_rank(node: Node, ranks: Ranks) -> int | None:
    """The number of dimensions of a node's results, where ONNX does not infer it."""
    if node.op_type == "Gemm":
        return 2
    if node.op_type == "Reshape":
        shape = attributes(node).get("shape")
        return None if shape is None else len(shape)
    return ranks.get(node.input[0]) if node.input and node.op_type in _SAME_RANK else None
