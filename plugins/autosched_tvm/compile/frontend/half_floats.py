"""Computes networks of 16-bit floats in float32, as ONNX Runtime does on CPUs. Inputs and outputs keep their types.

CPUs convert 16-bit floats before each operation, and long sums of them lose digits.
"""

from collections.abc import Iterator
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from autosched_tvm.compile.frontend.node_builder import subgraphs
from autosched_tvm.compile.frontend.unused_names import unused

HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision"})
"""Attributes that are an element type."""


def compute_in_float32(model: onnx.ModelProto) -> bool:
    """Changes the model in place; returns whether it had 16-bit floats. Leaves a model that reads the bits of
    values."""
    graphs = list(_graphs(model.graph))
    if any(node.op_type == "BitCast" for graph in graphs for node in graph.node):
        return False
    changed = [_widened(graph, outermost=graph is model.graph) for graph in graphs]
    taken = {name for graph in graphs for node in graph.node for name in (*node.input, *node.output)}
    taken |= {tensor.name for tensor in model.graph.initializer} | {value.name for value in model.graph.input}
    given = {value.name for value in model.graph.input}
    casts = []
    for value in filter(_is_half, model.graph.input):
        wide = unused(value.name, taken)
        _rename(graphs, value.name, wide)
        casts.append(helper.make_node("Cast", [value.name], [wide], name=wide, to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    for value in filter(_is_half, model.graph.output):
        if value.name in given:
            continue
        wide, kind = unused(value.name, taken), value.type.tensor_type.elem_type
        _rename(graphs, value.name, wide)
        nodes.append(helper.make_node("Cast", [wide], [value.name], name=wide, to=kind))
    added = len(nodes) > len(model.graph.node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return any(changed) or added


def _graphs(graph: onnx.GraphProto) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _is_half(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in HALVES


def _widened(graph: onnx.GraphProto, *, outermost: bool) -> bool:
    """Widens what a graph holds; returns whether anything was of 16 bits."""
    tensors = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    found = False
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i in HALVES:
                attribute.i, found = TensorProto.FLOAT, True
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            tensors += attribute.tensors
    for tensor in tensors:
        if tensor.data_type in HALVES:
            wide = numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name)
            tensor.CopyFrom(wide)
            found = True
    for value in (*graph.value_info, *(() if outermost else (*graph.input, *graph.output))):
        if _is_half(value):
            value.type.tensor_type.elem_type, found = TensorProto.FLOAT, True
    return found


def _rename(graphs: list[onnx.GraphProto], old: str, new: str) -> None:
    """Renames a value wherever nodes make and read it; inputs and outputs of the network keep their names."""
    for number, graph in enumerate(graphs):
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]
        inner = (*graph.input, *graph.output) if number else ()
        for one in (*graph.initializer, *graph.value_info, *inner):
            if one.name == old:
                one.name = new
