"""Compares what TVM makes of each node of an ONNX model with the types and shapes that ONNX infers for it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from onnx import TensorProto, helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend import shape_inference

_RUNNABLE = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16", "float16", "float32",
    "float64",
})  # fmt: skip
"""Types of values that builds compute with."""
Known = dict[str, tuple[str, tuple[int | None, ...] | None]]
"""Type and shape by value; None for an unknown size, and for an unknown rank."""


@contextlib.contextmanager
def compared(model: Any) -> Iterator[None]:
    """Context in which the importer raises ModelRejected for a node whose result is not as ONNX says."""
    known, original = _known(model), onnx_frontend.ONNXGraphImporter
    outputs = {value.name for value in model.graph.output}

    class Compared(original):  # type: ignore[misc,valid-type]  # TVM has no types
        def _construct_nodes(self, graph: Any) -> None:
            super()._construct_nodes(graph)
            for node in graph.node:
                for name in node.output:
                    if name and name in self._nodes:
                        _check(node, name, self._nodes[name], known)
                    if name in outputs or node.op_type in DATA_DEPENDENT:
                        _check_fixed(node, name, self._nodes.get(name))

    onnx_frontend.ONNXGraphImporter = Compared
    try:
        yield
    finally:
        onnx_frontend.ONNXGraphImporter = original


def check_types(model: Any) -> None:
    """Raises ModelRejected for a network with values of types that builds do not compute with."""
    makers = {name: node for node in model.graph.node for name in node.output if name}
    ends = {value.name for value in (*model.graph.input, *model.graph.output)}
    for value in shape_inference.values(model):
        kind = value.type.WhichOneof("value") or "tensor_type"
        told = _numpy_name(value.type.tensor_type.elem_type) if kind == "tensor_type" else f"a {kind[: -len('_type')]}"
        if kind == "tensor_type" and (not told or told in _RUNNABLE):
            continue
        if kind != "tensor_type" and value.name not in ends:
            continue  # such as a sequence that is made and taken apart again
        where = f"operator {makers[value.name].op_type} makes" if value.name in makers else "the network takes"
        raise ModelRejected(
            f"{where} {value.name!r}, which is of the type {told or kind}; builds compute with floating-point numbers"
            " and whole numbers of 8 to 64 bits. Cut the model there, and run that part in ONNX Runtime"
        )


def _numpy_name(kind: int) -> str:
    """NumPy's name of an ONNX type; empty if it is not known."""
    if not kind:
        return ""
    if kind == TensorProto.STRING:
        return "string"
    return str(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name)


def _known(model: Any) -> Known:
    found: Known = {}
    for value in shape_inference.values(model):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.elem_type:
            continue
        dims = [int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim]
        found[value.name] = _numpy_name(tensor.elem_type), tuple(dims) if tensor.HasField("shape") else None
    return found


def _check(node: Any, name: str, made: Any, known: Known) -> None:
    type_of = getattr(made, "ty", None)
    if name not in known or not isinstance(type_of, relax.TensorType):
        return
    dtype, shape = known[name]
    got, extents = str(type_of.dtype), _extents(type_of)
    if got and got != dtype:
        raise ModelRejected(_misread(node, name, f"the type {got}, and not {dtype}"))
    if shape is None or extents is None:
        return
    pairs = list(zip(shape, extents, strict=False))
    if len(shape) != len(extents) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ModelRejected(_misread(node, name, f"the shape {_told(extents)}, and not {_told(shape)}"))


def _extents(type_of: Any) -> tuple[int | None, ...] | None:
    if type_of.shape is None or not hasattr(type_of.shape, "values"):
        return None
    return tuple(int(one) if isinstance(one, tvm.tirx.IntImm) else None for one in type_of.shape.values)


def _told(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if one is None else str(one) for one in shape) or "scalar"


def _misread(node: Any, name: str, what: str) -> str:
    return (
        f"TVM misreads operator {node.op_type} (node {node.name or node.output[0]!r}): its result {name!r} has {what}."
        " Export that layer in another way, or cut the model before it"
    )


DATA_DEPENDENT = frozenset({"Compress", "NonZero", "Unique"})
"""Operators that make as many values as they find."""


def _check_fixed(node: Any, name: str, made: Any) -> None:
    type_of = getattr(made, "ty", None)
    extents = _extents(type_of) if isinstance(type_of, relax.TensorType) else None
    if isinstance(type_of, relax.ShapeType) or (extents is not None and None not in extents):
        return
    raise ModelRejected(
        f"{name!r} has no fixed shape: operator {node.op_type} (node {node.name or node.output[0]!r}) makes as many"
        " values as it finds, or as an input says. Cut the model before it, and run that part in ONNX Runtime or NumPy"
    )
