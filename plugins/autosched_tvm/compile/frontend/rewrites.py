"""Rewrites of an ONNX graph that save import time or give TVM better operators. Each keeps the graph's outputs.

TVM folds constants by compiling and running each expression, which takes seconds; numpy takes milliseconds. A batch
normalisation that is not merged into a convolution becomes one multiplication and one addition.
"""

import hashlib

import numpy as np
from onnx import ModelProto, helper, numpy_helper
from onnx import NodeProto as Node

from autosched_tvm.compile.frontend import conv1d_to_conv2d, normalisation_patterns
from autosched_tvm.compile.frontend.node_builder import opset_of
from autosched_tvm.compile.frontend.shape_inference import values
from autosched_tvm.compile.frontend.unused_names import unused
from autosched_tvm.tensors import Array


class Graph:
    """A graph that is being rewritten: constants by name, new nodes, unused names."""

    def __init__(self, model: ModelProto) -> None:
        self.graph = model.graph
        self.constants = {t.name: t for t in self.graph.initializer}
        self.types = {value.name: value.type.tensor_type for value in values(model)}
        """Type and shape of each value, as far as they are known."""
        self.ranks = {name: len(kind.shape.dim) for name, kind in self.types.items() if kind.HasField("shape")}
        self.taken = set(self.constants) | {name for node in self.graph.node for name in (*node.input, *node.output)}
        self.wanted = {value.name for value in self.graph.output}
        self.opset = opset_of(model)
        self._added: dict[object, str] = {}
        """Names of the added constants, by type, shape and digest of the values."""

    def array(self, name: str) -> Array | None:
        """Returns a constant's value; None for a computed value."""
        tensor = self.constants.get(name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def constant(self, like: str, value: Array) -> str:
        """Adds a constant, unless an equal one was added before; returns its name. The nodes of an unrolled loop share
        their weights, and would otherwise get a copy each."""
        array = np.asarray(value, order="C")
        key = array.dtype, array.shape, hashlib.sha256(array.tobytes()).digest()
        if (known := self._added.get(key)) is not None:
            return known
        name = self._added[key] = self.fresh(like)
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def fresh(self, like: str) -> str:
        """Returns an unused name."""
        return unused(like, self.taken)

    def write_constants(self) -> None:
        """Writes the constants that have readers back to the graph."""
        used = {name for node in self.graph.node for name in node.input} | self.wanted
        del self.graph.initializer[:]
        self.graph.initializer.extend(tensor for name, tensor in self.constants.items() if name in used)


def apply(model: ModelProto) -> dict[str, int]:
    """Rewrites the model in place; returns the number of uses of each rewrite."""
    state = Graph(model)
    counts = {
        "Dropout and Identity removed": _remove_nops(state),
        "normalisation recognised": normalisation_patterns.recognise(state),
    }
    lifted, counts["one-dimensional convolutions made two-dimensional"] = conv1d_to_conv2d.lift(state)
    replace_nodes(state, lifted)
    rules = {
        "Sum made Add": _sum_to_add,
        "bias taken out of Conv": _split_bias,
        "Gemm made MatMul": _gemm_to_matmul,
        "BatchNormalization made Mul and Add": _batch_norm,
    }
    for name, rule in rules.items():
        nodes: list[Node] = []
        counts[name] = 0
        for node in state.graph.node:
            new = rule(state, node)
            counts[name] += new is not None
            nodes.extend([node] if new is None else new)
        replace_nodes(state, nodes)
    state.write_constants()
    return counts


def replace_nodes(state: Graph, nodes: list[Node]) -> None:
    """Replaces the graph's nodes by these."""
    copies = [helper.make_node("Identity", [], []) for _ in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        copy.CopyFrom(node)
    del state.graph.node[:]
    state.graph.node.extend(copies)


def _remove_nops(state: Graph) -> int:
    """Removes operators without effect. Dropout has none in inference, and its second output breaks later passes."""
    other: dict[str, str] = {}
    keep = []
    for node in state.graph.node:
        node.input[:] = [other.get(name, name) for name in node.input]
        if _is_nop(state, node):
            other[node.output[0]] = node.input[0]
        else:
            keep.append(node)
    removed = len(state.graph.node) - len(keep)
    if removed:
        replace_nodes(state, keep)
    return removed


def _is_nop(state: Graph, node: Node) -> bool:
    if node.op_type not in ("Dropout", "Identity") or node.output[0] in state.wanted:
        return False
    used = {name for n in state.graph.node for name in n.input} | state.wanted
    if node.op_type == "Dropout":
        training = state.array(node.input[2]) if len(node.input) > 2 and node.input[2] else np.array(False)
        if training is None or bool(training) or any(name in used for name in node.output[1:] if name):
            return False
    return not _in_subgraph(state, node.output[0])


def _in_subgraph(state: Graph, name: str) -> bool:
    graphs = [a.g for node in state.graph.node for a in node.attribute if a.HasField("g")]
    return any(name in n.input for g in graphs for n in g.node) or any(name == o.name for g in graphs for o in g.output)


def _sum_to_add(state: Graph, node: Node) -> list[Node] | None:
    """Replaces Sum by additions. TVM imports Sum as a stack and a reduction."""
    if node.op_type != "Sum" or len(node.input) < 2:
        return None
    nodes = []
    left = node.input[0]
    for i, right in enumerate(node.input[1:], start=2):
        out = node.output[0] if i == len(node.input) else state.fresh(node.output[0])
        nodes.append(helper.make_node("Add", [left, right], [out], name=f"{node.name or node.output[0]}__{i}"))
        left = out
    return nodes


def _split_bias(state: Graph, node: Node) -> list[Node] | None:
    """Replaces a convolution's bias by an addition. TVM reshapes each bias at import, by compiling a kernel."""
    if node.op_type != "Conv" or len(node.input) < 3 or not node.input[2]:
        return None
    weight, bias = state.constants.get(node.input[1]), state.array(node.input[2])
    if weight is None or bias is None:
        return None
    shaped = state.constant(node.input[2], bias.reshape((1, -1) + (1,) * (len(weight.dims) - 2)))
    middle = state.fresh(node.output[0])
    conv = helper.make_node("Conv", list(node.input[:2]), [middle], name=node.name)
    conv.attribute.extend(node.attribute)
    return [conv, helper.make_node("Add", [middle, shaped], list(node.output), name=f"{node.name or middle}__bias")]


def _gemm_to_matmul(state: Graph, node: Node) -> list[Node] | None:
    """Replaces Gemm by MatMul and Add; factors and transpositions of constant operands are computed once, here."""
    if node.op_type != "Gemm":
        return None
    a = {x.name: helper.get_attribute_value(x) for x in node.attribute}
    weight = state.array(node.input[1])
    bias_name = node.input[2] if len(node.input) > 2 else ""
    bias = state.array(bias_name) if bias_name else None
    if weight is None or a.get("transA", 0) or (bias_name and bias is None):
        return None
    weight = (weight.T if a.get("transB", 0) else weight) * np.asarray(a.get("alpha", 1.0), weight.dtype)
    product = state.fresh(node.output[0]) if bias is not None else node.output[0]
    nodes = [
        helper.make_node("MatMul", [node.input[0], state.constant(node.input[1], weight)], [product], name=node.name)
    ]
    if bias is not None:
        scaled = state.constant(bias_name, bias * np.asarray(a.get("beta", 1.0), bias.dtype))
        nodes.append(
            helper.make_node("Add", [product, scaled], list(node.output), name=f"{node.name or product}__bias")
        )
    return nodes


def _batch_norm(state: Graph, node: Node) -> list[Node] | None:
    if node.op_type != "BatchNormalization" or sum(1 for name in node.output if name) != 1:
        return None
    arrays = [state.array(name) for name in node.input[1:5]]
    rank = state.ranks.get(node.input[0])
    if rank is None or any(array is None for array in arrays):
        return None
    scale, shift, mean, variance = (np.asarray(array, "float64") for array in arrays)
    epsilon = next((x.f for x in node.attribute if x.name == "epsilon"), 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    dtype = numpy_helper.to_array(state.constants[node.input[1]]).dtype
    shape = (1, -1) + (1,) * (rank - 2)
    middle = state.fresh(node.output[0])
    mul = state.constant(node.input[1], factor.astype(dtype).reshape(shape))
    add = state.constant(node.input[2], (shift - mean * factor).astype(dtype).reshape(shape))
    return [
        helper.make_node("Mul", [node.input[0], mul], [middle], name=f"{node.name or middle}__scale"),
        helper.make_node("Add", [middle, add], [node.output[0]], name=f"{node.name or middle}__shift"),
    ]
