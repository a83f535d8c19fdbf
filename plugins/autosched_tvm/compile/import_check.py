"""Compares what TVM makes of each node of an ONNX model with the types and shapes that ONNX infers for it."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend import shape_inference
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected, name_of
from autosched_tvm.tvm_types import Expr, Type
from autosched_tvm.worker_failures import gist

_RUNNABLE = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16", "float16", "float32",
    "float64",
})  # fmt: skip
"""Types of values that builds compute with."""
_NO_TENSORS = {"sequence_type": "a sequence", "optional_type": "an optional value", "map_type": "a map"}
Known = dict[str, tuple[str, tuple[int | None, ...] | None]]
"""Type and shape by value; None for an unknown size, and for an unknown rank."""


@contextlib.contextmanager
def compared(model: onnx.ModelProto) -> Iterator[None]:
    """Context in which the importer raises OperatorRejected for a node whose result is not as ONNX says, and for one of
    which the converter does not read an attribute or an input."""
    known, original = _known(model), onnx_frontend.ONNXGraphImporter
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    outputs = {value.name for value in model.graph.output}

    class Compared(original):  # type: ignore[misc,valid-type]  # TVM has no types
        def _convert_operator(
            self, operator: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int
        ) -> Expr:
            read, taken = _Attributes(attributes), _Inputs(inputs)
            name = attributes["tvm_custom"]["name"]
            own = [n for n in model.graph.node if n.op_type == operator and name in (n.name, *n.output)][:1]
            where = f"operator {operator}" + (f" (node {name_of(own[0])})" if own else "")
            try:
                made = super()._convert_operator(operator, taken, read, opset)
            except OperatorRejected:
                raise
            except ModelRejected as error:
                raise OperatorRejected(f"{where}: {error}", model.graph, own) from error
            except Exception as error:  # converters raise errors of many classes
                advice = _advice(own[0], constants) if own else OTHERWISE
                said = f"TVM cannot import {where}: {gist(error)[:SAID_MAX].rstrip('.')}; {advice}"
                raise OperatorRejected(said, model.graph, own) from error
            if said := _unread(operator, read, taken, opset):
                raise OperatorRejected(f"TVM ignores {said} of {where}: export that layer without it", model.graph, own)
            return made

        def _construct_nodes(self, graph: onnx.GraphProto) -> None:
            super()._construct_nodes(graph)
            for node in graph.node:
                for name in node.output:
                    if name and name in self._nodes:
                        _check(graph, node, name, self._nodes[name], known)
                    if name in outputs or node.op_type in DATA_DEPENDENT:
                        _check_fixed(graph, node, name, self._nodes.get(name))

    onnx_frontend.ONNXGraphImporter = Compared
    try:
        yield
    finally:
        onnx_frontend.ONNXGraphImporter = original


OTHERWISE = "export that layer in another way"
SAID_MAX = 400
"""Maximum number of characters of TVM's message; the advice follows it."""


def _advice(node: onnx.NodeProto, constants: Collection[str]) -> str:
    """How a node may become one that can be imported."""
    given = [repr(name) for name in node.input[1:] if name and name not in constants]
    if not given:
        return OTHERWISE
    return f"export {' and '.join(given)} as constants, which the network takes as inputs or computes"


class _Attributes(dict[str, Any]):
    """Attributes of a node, and which of them were read."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        super().__init__(attributes)
        self.read = {"tvm_custom"}

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Reads one."""
        self.read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Reads one, and removes it."""
        self.read.add(name)
        return super().pop(name, *default)

    def items(self) -> Any:
        """Reads all."""
        self.read.update(self)
        return super().items()

    def __or__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]  # of text alone
        self.read.update(self)
        return {**self, **other}


class _Inputs(onnx_frontend.onnx_input):  # type: ignore[misc]  # TVM has no types
    """Inputs of a node, and which of them were read."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.extend(inputs)
        self.read: set[int] = set()

    def __getitem__(self, place: int) -> Expr:
        numbers = range(len(self))
        self.read.update(numbers[place] if isinstance(place, slice) else [place % len(self)] if len(self) else [])
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self.read.update(range(len(self)))
        return iter(super().__iter__())


_NEVER_READ = frozenset({
    ("Dropout", "seed"), ("GRU", "hidden_size"), ("LSTM", "hidden_size"), ("RNN", "hidden_size"),
    ("Split", "num_outputs"), ("Conv", "kernel_shape"), ("ConvInteger", "kernel_shape"),
    ("ConvTranspose", "kernel_shape"), ("QLinearConv", "kernel_shape"),
})  # fmt: skip
"""Attributes that no converter needs: inputs or outputs say the same, or they matter in training only."""
_CHECKED_BEFORE = frozenset({shape_inference.LAYER, shape_inference.FEW_BITS})
"""Operators of ONNX Runtime whose attributes were checked when they were recognised."""


def _unread(operator: str, attributes: _Attributes, inputs: _Inputs, opset: int) -> str:
    """Says which attribute that is not as usual, or which input, a converter has not read; empty if there is none."""
    names = [name for name in attributes if name not in attributes.read and (operator, name) not in _NEVER_READ]
    if names and operator not in _CHECKED_BEFORE:
        usual = _usual(operator, opset)
        for name in names:
            value = dict.get(attributes, name)
            if value != usual.get(name) if usual is not None else value:
                return f"the attribute {name}={value.decode() if isinstance(value, bytes) else value}"
    unread = [n for n in range(1, len(inputs)) if n not in inputs.read and list.__getitem__(inputs, n) is not None]
    return f"input {unread[0]}" if unread else ""


def _usual(operator: str, opset: int) -> dict[str, Any] | None:
    """The default values of an operator's attributes, as far as it has any; None for one that is not the standard's."""
    try:
        known = onnx.defs.get_schema(operator, opset, "").attributes
    except onnx.defs.SchemaError:
        return None
    found = {}
    for name, attribute in known.items():
        if attribute.default_value.name:
            value = helper.get_attribute_value(attribute.default_value)
            found[name] = tuple(value) if isinstance(value, list) else value
    return found


def check_types(model: onnx.ModelProto) -> None:
    """Raises OperatorRejected for a network with values of types that builds do not compute with."""
    makers = {name: node for node in model.graph.node for name in node.output if name}
    ends = {value.name for value in (*model.graph.input, *model.graph.output)}
    for value in shape_inference.values(model):
        kind = value.type.WhichOneof("value") or "tensor_type"
        dtype = _numpy_name(value.type.tensor_type.elem_type) if kind == "tensor_type" else ""
        told = f"of the type {dtype}" if dtype else _NO_TENSORS.get(kind, kind)
        if kind == "tensor_type" and (not dtype or dtype in _RUNNABLE):
            continue
        if kind != "tensor_type" and value.name not in ends:
            continue  # such as a sequence that is made and taken apart again
        where = f"operator {makers[value.name].op_type} makes" if value.name in makers else "the network takes"
        own = makers.get(value.name)
        nodes = [own] if own is not None else [node for node in model.graph.node if value.name in node.input]
        raise OperatorRejected(
            f"{where} {value.name!r}, which is {told}; builds compute with floating-point numbers"
            " and whole numbers of 8 to 64 bits: export that part with one of these types", model.graph, nodes,
        )  # fmt: skip


def _numpy_name(kind: int) -> str:
    """NumPy's name of an ONNX type; empty if it is not known."""
    if not kind:
        return ""
    if kind == TensorProto.STRING:
        return "string"
    return str(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name)


def _known(model: onnx.ModelProto) -> Known:
    found: Known = {}
    for value in shape_inference.values(model):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.elem_type:
            continue
        dims = [int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim]
        found[value.name] = _numpy_name(tensor.elem_type), tuple(dims) if tensor.HasField("shape") else None
    return found


def _check(graph: onnx.GraphProto, node: onnx.NodeProto, name: str, made: Expr, known: Known) -> None:
    type_of = getattr(made, "ty", None)
    if name not in known or not isinstance(type_of, relax.TensorType):
        return
    dtype, shape = known[name]
    got, extents = str(type_of.dtype), _extents(type_of)
    if got and got != dtype:
        raise _misread(graph, node, name, f"the type {got}, and not {dtype}")
    if shape is None or extents is None:
        return
    pairs = list(zip(shape, extents, strict=False))
    if len(shape) != len(extents) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise _misread(graph, node, name, f"the shape {_told(extents)}, and not {_told(shape)}")


def _extents(type_of: Type) -> tuple[int | None, ...] | None:
    if type_of.shape is None or not hasattr(type_of.shape, "values"):
        return None
    return tuple(int(one) if isinstance(one, tvm.tirx.IntImm) else None for one in type_of.shape.values)


def _told(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if one is None else str(one) for one in shape) or "scalar"


def _misread(graph: onnx.GraphProto, node: onnx.NodeProto, name: str, what: str) -> OperatorRejected:
    return OperatorRejected(
        f"TVM misreads operator {node.op_type} (node {name_of(node)}): its result {name!r} has {what}."
        " Export that layer in another way", graph, [node],
    )  # fmt: skip


DATA_DEPENDENT = frozenset({"Compress", "NonZero", "Unique"})
"""Operators that make as many values as they find."""


def _check_fixed(graph: onnx.GraphProto, node: onnx.NodeProto, name: str, made: Expr) -> None:
    type_of = getattr(made, "ty", None)
    extents = _extents(type_of) if isinstance(type_of, relax.TensorType) else None
    if isinstance(type_of, relax.ShapeType) or (extents is not None and None not in extents):
        return
    raise OperatorRejected(
        f"{name!r} has no fixed shape: operator {node.op_type} (node {name_of(node)}) makes as many values as it finds,"
        " or as an input says. ONNX Runtime or NumPy can run that part", graph, [node],
    )  # fmt: skip
