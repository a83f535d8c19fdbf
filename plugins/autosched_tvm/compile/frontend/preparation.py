"""Checks an ONNX file and rewrites it into the form that TVM imports best. This module does not use TVM."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx import helper, numpy_helper

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend import (
    decomposition,
    few_bits,
    folding,
    half_floats,
    lookup_tables,
    old_operators,
    rewrites,
    standard_operators,
)
from autosched_tvm.compile.frontend import input_shapes as fixed_shapes
from autosched_tvm.compile.frontend.dequantisation import Form
from autosched_tvm.compile.frontend.model_file import FileKind, kind_of
from autosched_tvm.compile.frontend.node_builder import opset_of, subgraphs
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected, first_output, name_of

IR_WITH_OPSETS = 3
"""First IR version in which a model says which opsets it uses."""
RUN_TIME = "is computed at run time"
"""End of the reasons why an operator is not rewritten that a constant would remove."""
DENSE_ELEMENTS_MAX = 250_000_000
"""Maximum number of elements of sparse weights, zeros included."""
Shapes = fixed_shapes.Shapes

_ADVICE = {
    "NonMaxSuppression": "it makes as many boxes as it finds, which ONNX Runtime can do after the network",
    "Loop": "export it with the loop unrolled (in PyTorch: trace, do not script)",
    "Scan": "export it with the loop unrolled (in PyTorch: trace, do not script)",
    "BatchNormalization": "it is in training mode: export the model in inference mode (in PyTorch: model.eval())",
}
_QUANTIZED = ("Integer", "QLinear", "DynamicQuantize")


@dataclass
class Prepared:
    """A model ready for import, and the changes made to it."""

    model: onnx.ModelProto
    opset: int
    nodes_before: int
    nodes_after: int
    fixes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Changes of what the network accepts or computes, which are reported to the user."""


def prepare(
    path: Path, shapes: Shapes, unsupported: Callable[[Iterable[Any]], list[Any]], *, integers: bool = False
) -> Prepared:
    """Reads, checks, simplifies and rewrites a model; `unsupported` returns the nodes that cannot be imported.
    `integers`: keep products of 8-bit integers. Raises ModelRejected."""
    model = read(path)
    before = len(model.graph.node)
    opset = opset_of(model)
    prepared = Prepared(model, opset, before, before)
    _own_inputs(model)
    prepared.notes += (decided := fixed_shapes.fix(model, shapes))
    prepared.fixes += decided
    _modernise(prepared)
    if half_floats.compute_in_float32(prepared.model):
        prepared.notes.append("16-bit floats computed in float32, as in ONNX Runtime")
    few_bits.widen_moved(prepared.model)
    rewritten = standard_operators.rewrite(prepared.model, Form.INTEGERS if integers else Form.REAL)
    prepared.fixes += rewritten
    prepared.notes += rewritten
    prepared.model, expanded = decomposition.expand_functions(prepared.model, unsupported)
    _fold(prepared)
    reasons: dict[str, str] = {}
    written = decomposition.rewrite(prepared.model, reasons)
    if expanded or written:
        prepared.fixes.append(f"written with other operators: {', '.join([*expanded, *written])}")
    _simplify(prepared)
    if nodes := unsupported(prepared.model.graph.node):
        raise OperatorRejected(_unsupported_message(nodes, reasons), prepared.model.graph, nodes)
    for name, count in rewrites.apply(prepared.model).items():
        if count:
            prepared.fixes.append(f"{name} ({count})")
    if integers and (tables := lookup_tables.put_in(prepared.model)):
        prepared.fixes.append(f"functions of one quantised tensor made tables ({tables})")
    prepared.nodes_after = len(prepared.model.graph.node)
    return prepared


def with_fixed_shapes(path: Path, shapes: Shapes) -> Any:
    """Returns the model in a file with fixed shapes, and what follows from them computed; its operators are as they
    were. Raises ModelRejected and RequestError."""
    model = read(path)
    prepared = Prepared(model, opset_of(model), 0, 0)
    _own_inputs(model)
    fixed_shapes.fix(model, shapes)
    _modernise(prepared)
    _fold(prepared)
    return prepared.model


def read(path: Path) -> onnx.ModelProto:
    """Returns the model in a file. Raises ModelRejected."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelRejected(f"{path}: cannot be read: {error.strerror}") from error
    if not data:
        raise ModelRejected(f"{path.name} is empty. Export the model again")
    kind = kind_of(data)
    if kind is FileKind.OTHER:
        raise ModelRejected(
            f"{path.name} is not an ONNX file, nor a TFLite file, nor a PyTorch program."
            " Export the model to ONNX, for example with torch.onnx.export"
        )
    if kind is FileKind.TRUNCATED:
        raise ModelRejected(
            f"{path.name} is truncated: its graph goes on after the end of the file ({len(data)} bytes)."
            " Copy or download it again, or export the model again"
        )
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError) as error:
        raise ModelRejected(f"{path.name} is not a valid ONNX file: {error}. Export the model again") from error
    if not model.graph.node:
        raise ModelRejected(f"{path.name} holds no operators: there is nothing to tune")
    for tensor in external_tensors(model):
        raise ModelRejected(
            f"the weights of {path.name} lie in other files (first: {tensor.name!r}). autosched tune joins those that"
            " lie beside the model; or save it as one file:"
            " onnx.save_model(onnx.load(FILE), OUT, save_as_external_data=False)"
        )
    _make_dense(model.graph, path)
    _check_whole(model, path)
    return model


def external_tensors(model: onnx.ModelProto) -> Iterator[Any]:
    """Yields the tensors of a model whose values lie in other files."""
    return (one for one in _tensors(model) if one.data_location == onnx.TensorProto.EXTERNAL or one.external_data)


def _tensors(message: onnx.ModelProto) -> Iterator[Any]:
    """Yields all tensors in a message of ONNX, wherever they stand: initialisers, sparse ones, attributes of nodes, of
    functions and of graphs in attributes, training information."""
    waiting = [message]
    while waiting:
        one = waiting.pop()
        if isinstance(one, onnx.TensorProto):
            yield one
            continue
        for kind, value in one.ListFields():
            if kind.message_type is not None:
                waiting += [value] if isinstance(value, Message) else list(value)


def _check_whole(model: onnx.ModelProto, path: Path) -> None:
    """Raises ModelRejected for a graph that is no valid ONNX, where no later step would say it in words."""
    graph = model.graph
    standard = any(one.domain in ("", "ai.onnx") for one in model.opset_import)
    if not standard and model.ir_version >= IR_WITH_OPSETS and any(node.domain == "" for node in graph.node):
        raise ModelRejected(f"{path.name} does not say which opset it uses. Export the model again")
    there = {"", *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
    made = {name for node in graph.node for name in node.output}
    for node in graph.node:
        where = f"node {name_of(node)} ({node.op_type})"
        for name in node.input:
            if name not in there:
                said = f"{where} reads {name!r}, which a later node makes" if name in made else (
                    f"nothing makes {name!r}, which {where} reads"
                )  # fmt: skip
                raise ModelRejected(f"{path.name} is not whole: {said}. Export the model again")
        if twice := [name for name in node.output if name and name in there]:
            raise ModelRejected(f"{path.name} is not valid: {where} makes {twice[0]!r} again. Export the model again")
        there.update(node.output)


def inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Returns the inputs that a caller must give."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def dims_of(value: onnx.ValueInfoProto) -> list[int | None] | None:
    """Returns the shape of an input or output, with None for open dimensions; None for an unknown rank."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [int(d.dim_value) if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim]


def _own_inputs(model: onnx.ModelProto) -> None:
    """Removes weights from the inputs, where they were listed up to IR version 3."""
    keep = inputs_of(model)
    if len(keep) != len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(keep)
    model.ir_version = max(model.ir_version, 4)


def _modernise(prepared: Prepared) -> None:
    _write_constants_as_tensors(prepared.model.graph)
    if prepared.model.functions:
        from onnx import inliner

        _fill_defaults(prepared.model)
        prepared.model = inliner.inline_local_functions(prepared.model)
        prepared.fixes.append("functions inlined")
    if prepared.opset < old_operators.OPSET:
        prepared.model = old_operators.raised(prepared.model)
        prepared.fixes.append(f"opset {prepared.opset} raised to {old_operators.OPSET}")


def _fill_defaults(model: onnx.ModelProto) -> None:
    """Writes the default attributes of the model's own functions out where they are called. The inliner drops them."""
    functions = {(function.domain, function.name): function for function in model.functions}
    graphs = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            graphs += subgraphs(node)
            if (called := functions.get((node.domain, node.op_type))) is not None:
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(default for default in called.attribute_proto if default.name not in given)


def _make_dense(graph: onnx.GraphProto, path: Path) -> None:
    """Writes sparse constants as dense ones, also in subgraphs. Neither TVM nor the simplifier knows them."""
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, path))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for inner in subgraphs(node):
            _make_dense(inner, path)
        for attribute in list(node.attribute):
            if attribute.HasField("sparse_tensor") and node.op_type == "Constant":
                node.attribute.remove(attribute)
                node.attribute.append(helper.make_attribute("value", _dense(attribute.sparse_tensor, path)))


def _dense(sparse: onnx.SparseTensorProto, path: Path) -> onnx.TensorProto:
    shape = tuple(sparse.dims)
    if math.prod(shape) > DENSE_ELEMENTS_MAX:
        raise ModelRejected(
            f"the sparse weights {sparse.values.name!r} of {path.name} have {math.prod(shape):,} elements, zeros"
            f" included; {DENSE_ELEMENTS_MAX:,} can be handled"
        )
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, values.dtype)
    try:
        np.put(dense, indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape), values)
    except (IndexError, ValueError) as error:
        raise ModelRejected(
            f"the sparse weights {sparse.values.name!r} of {path.name} do not fit their shape: {error}. Export the"
            " model again"
        ) from error
    return numpy_helper.from_array(dense, sparse.values.name)


_VALUES = {
    "value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32",
}  # fmt: skip
"""Types of the attributes of a Constant that are numbers."""


def _write_constants_as_tensors(graph: onnx.GraphProto) -> None:
    """Gives each Constant its value as a tensor, also in subgraphs. TVM knows no other form."""
    for node in graph.node:
        for inner in subgraphs(node):
            _write_constants_as_tensors(inner)
        for attribute in list(node.attribute):
            if node.op_type == "Constant" and attribute.name in _VALUES:
                value = np.asarray(helper.get_attribute_value(attribute), _VALUES[attribute.name])
                node.attribute.remove(attribute)
                node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))


def _fold(prepared: Prepared) -> None:
    try:
        folded, done = folding.fold(prepared.model)
    except Exception as error:  # a failure here must not stop a model that imports as it is
        prepared.fixes.append(f"nothing computed ahead, since that failed ({type(error).__name__}: {error})")
        return
    prepared.model = folded
    prepared.fixes.extend(f"{said} ({count})" for said, count in done.items())
    prepared.notes.extend(f"{said} ({count})" for said, count in done.items() if said in folding.TO_BE_KNOWN)


def _simplify(prepared: Prepared) -> None:
    import onnxsim

    before = len(prepared.model.graph.node)
    try:
        simple, _ = onnxsim.simplify(prepared.model)
    except Exception as error:  # a failure of the simplifier must not stop a model that imports as it is
        prepared.fixes.append(f"not simplified, since the simplifier failed ({type(error).__name__})")
        return
    prepared.model = simple
    if len(simple.graph.node) != before:
        prepared.fixes.append(f"simplified: {before} -> {len(simple.graph.node)} nodes, constants folded")


def _unsupported_message(nodes: list[onnx.NodeProto], reasons: dict[str, str]) -> str:
    kinds: dict[str, list[Any]] = {}
    for node in nodes:
        kinds.setdefault(
            f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type, []
        ).append(node)
    said = []
    for kind, there in kinds.items():
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        reason = reasons.get(first_output(there[0]), "")
        why = f", since {reason}" if reason else ""
        advice = "export it as a constant" if reason.endswith(RUN_TIME) else _advice(there[0])
        said.append(f"operator {kind} (node {name_of(there[0])}{more}) is not supported{why}: {advice}")
    return "; ".join(said)


def _advice(node: onnx.NodeProto) -> str:
    if any(word in node.op_type for word in _QUANTIZED):
        return "export the model in QDQ form (QuantizeLinear and DequantizeLinear around float operators), or in float"
    if node.domain == "ai.onnx.ml":
        return (
            "it is of classical machine learning (tree ensembles, support vectors, scalers), and no neural network."
            " ONNX Runtime runs it"
        )
    if node.domain not in ("", "ai.onnx"):
        return f"it is no standard ONNX operator; export without the extension {node.domain!r}"
    return _ADVICE.get(node.op_type, "replace that layer")


def dtype_of(value: onnx.ValueInfoProto) -> str:
    """Returns the element type of an input or output, as numpy names it."""
    return str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
