"""Rewrites standard operators that TVM lacks as other standard operators. Shapes must be fixed and folded."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, inliner

from autosched_tvm.compile.frontend import misread_operators
from autosched_tvm.compile.frontend.misread_operators import Rule
from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, attributes, opset_of, optional

Array = Any
_STANDARD = ("", "ai.onnx")


def expand_functions(model: Any, unsupported: Callable[[Iterable[Any]], list[Any]]) -> tuple[Any, list[str]]:
    """Returns the model with unsupported operators replaced by their function bodies in the standard, and their
    names. A body may have such operators itself.

    Nodes that TVM can import stay, even if they have the same name.
    """
    done: list[str] = []
    for _ in range(NESTED_MAX):
        found = [node for node in unsupported(model.graph.node) if _is_function(node) and node.op_type not in RULES]
        if not found:
            break
        names = sorted({node.op_type for node in found})
        for node in found:
            _fill_defaults(node, model)
        model = _inlined(model, found)
        done += names
    return model, list(dict.fromkeys(done))


_INLINED = "autosched.inlined"
"""Domain of the bodies, until they are inlined."""
STABLE_SINCE = 18
"""Opset from which on the operators in the bodies have kept their form."""
NESTED_MAX = 4
"""Maximum depth of functions in functions that are expanded."""


def _fill_defaults(node: Node, model: Any) -> None:
    """Writes the default values of a node's attributes out. The inliner drops them."""
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, opset_of(model), "").attributes.items():
        if name not in given and attribute.default_value is not None and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _inlined(model: Any, nodes: list[Node]) -> Any:
    """Returns the model with the bodies of nodes, each made for the types of its node's inputs."""
    opset = opset_of(model)
    types: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # without types, some bodies can still be made
        model_types = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        types = {value.name: value.type for value in (*model_types.value_info, *model_types.input)}
    types |= {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        for tensor in model.graph.initializer
    }
    for number, node in enumerate(nodes):
        schema = defs.get_schema(node.op_type, opset, "")
        if not (schema.has_function or schema.has_context_dependent_function):
            schema = defs.get_schema(node.op_type, "")  # the operator was written as others later
        if schema.has_context_dependent_function:
            inputs = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
            version = _version(schema.context_dependent_function_opset_versions, opset)
            made = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), inputs)
        else:
            made = schema.get_function_with_opset_version(_version(schema.function_opset_versions, opset))
        body = onnx.FunctionProto.FromString(made) if isinstance(made, bytes) else made
        for one in body.opset_import:
            if one.domain in _STANDARD and one.version >= STABLE_SINCE:
                one.version = opset  # the inliner's converter needs types, which a body has none of
        body.domain, body.name = _INLINED, f"{node.op_type}_{number}"
        node.domain, node.op_type = body.domain, body.name
        model.functions.append(body)
    model.opset_import.append(helper.make_opsetid(_INLINED, 1))
    model = inliner.inline_local_functions(model, True)
    kept = [one for one in model.opset_import if one.domain != _INLINED]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


def _version(versions: Iterable[int], opset: int) -> int:
    """Returns the last version of a body for an opset; the first one if all are later."""
    return max((one for one in versions if one <= opset), default=min(versions))


def _is_function(node: Node) -> bool:
    if node.domain not in _STANDARD or not defs.has(node.op_type, ""):
        return False
    schema = defs.get_schema(node.op_type, "")
    return bool(schema.has_function or schema.has_context_dependent_function)


def rewrite(model: Any) -> dict[str, int]:
    """Rewrites the model in place; returns the number of rewritten nodes by operator."""
    if not any(node.op_type in RULES and node.domain in _STANDARD for node in model.graph.node):
        return {}
    opset = opset_of(model)
    emit, done = NodeBuilder(model.graph, opset), Counter[str]()
    for node in list(model.graph.node):
        emit.about(node)
        rule = RULES.get(node.op_type) if node.domain in _STANDARD else None
        if rule is None:
            emit.nodes.append(node)
            continue
        written = len(emit.nodes)
        try:
            rule(emit, node)
        except Unknown:
            del emit.nodes[written:]
            emit.nodes.append(node)
        else:
            done[node.op_type] += 1
    emit.finish()
    return dict(done)


def _number(emit: NodeBuilder, name: str) -> int:
    array = emit.array(name)
    if array is None:
        raise Unknown(f"{name!r} is computed at run time")
    return int(np.asarray(array).reshape(-1)[0])


def _reverse_sequence(emit: NodeBuilder, node: Node) -> None:
    """Gathers each step from its mirrored position in its sequence."""
    given = attributes(node)
    time, batch = int(given.get("time_axis", 0)), int(given.get("batch_axis", 1))
    shape = emit.fixed_shape(node.input[0])
    steps = np.arange(shape[time]).reshape(-1 if time == 0 else 1, 1 if time == 0 else -1)
    column = [1, -1] if time == 0 else [-1, 1]
    lengths = emit.array(node.input[1])
    if lengths is not None:
        ends = lengths.reshape(column)
        index = emit.constant(np.where(steps < ends, ends - 1 - steps, steps).astype("int64"))
    else:
        ends_name = emit.make("Reshape", [node.input[1], emit.integers(*column)])
        numbers = emit.constant(steps.astype("int64"))
        last = emit.make("Sub", [ends_name, emit.integers(1)])
        mirrored = emit.make("Sub", [last, numbers])
        index = emit.make("Where", [emit.make("Less", [numbers, ends_name]), mirrored, numbers])
    if batch > 1 or len(shape) < 2:
        raise Unknown("the sequences lie along other dimensions than the first two")
    index = emit.make("Reshape", [index, emit.integers(*shape[:2], *[1] * (len(shape) - 2))])
    index = emit.make("Expand", [index, emit.integers(*shape)])
    emit.make("GatherElements", [node.input[0], index], node.output[0], axis=time)


def _lp_normalization(emit: NodeBuilder, node: Node) -> None:
    given = attributes(node)
    operator = {1: "ReduceL1", 2: "ReduceL2"}[int(given.get("p", 2))]
    norm = emit.reduce(operator, node.input[0], [int(given.get("axis", -1))])
    safe = emit.make("Where", [emit.make("Equal", [norm, emit.number(0.0)]), emit.number(1.0), norm])
    emit.make("Div", [node.input[0], safe], node.output[0])  # a vector of zeros stays a vector of zeros


def _basis(rows: int, length: int, bins: int, *, inverse: bool) -> tuple[Array, Array]:
    """Returns the real and imaginary parts of exp(-2 pi i n k / length), n x k; with `inverse`, those of the inverse
    transform."""
    angles = 2 * np.pi * (np.outer(np.arange(rows), np.arange(bins)) % length) / length
    factor = 1 / length if inverse else 1.0
    return factor * np.cos(angles), factor * np.sin(angles) * (1 if inverse else -1)


def _stft(emit: NodeBuilder, node: Node) -> None:
    """Writes the transform as one convolution with the windowed Fourier basis as filters."""
    batch, samples, *parts = emit.fixed_shape(node.input[0])
    if parts not in ([], [1]):  # ONNX Runtime also accepts a signal without the last dimension
        raise Unknown("the signal is complex")
    window = emit.array(optional(node, 2)) if optional(node, 2) else None
    if optional(node, 2) and window is None:
        raise Unknown("the window is computed at run time")
    step = _number(emit, node.input[1])
    length = _number(emit, node.input[3]) if optional(node, 3) else len(window) if window is not None else samples
    bins = length // 2 + 1 if attributes(node).get("onesided", 1) else length
    parts_of = np.stack(_basis(length, length, bins, inverse=False))
    filters = parts_of * (np.ones(length) if window is None else window.astype("float64"))[None, :, None]
    weights = emit.constant(filters.transpose(0, 2, 1).reshape(2 * bins, 1, length).astype("float32"))
    signal = emit.make("Reshape", [node.input[0], emit.integers(batch, 1, samples)])
    found = emit.make("Conv", [signal, weights], strides=[step], kernel_shape=[length])
    frames = (samples - length) // step + 1
    found = emit.make("Reshape", [found, emit.integers(batch, 2, bins, frames)])
    emit.make("Transpose", [found], node.output[0], perm=[0, 3, 2, 1])


def _dft(emit: NodeBuilder, node: Node) -> None:
    """Writes the transform as matrix products with the Fourier basis."""
    given, shape = attributes(node), emit.fixed_shape(node.input[0])
    rank = len(shape)
    axis = int(given.get("axis", 1)) if emit.opset < 20 else _number(emit, node.input[2]) if optional(node, 2) else -2
    axis %= rank
    inverse, onesided = bool(given.get("inverse", 0)), bool(given.get("onesided", 0))
    length = _number(emit, node.input[1]) if optional(node, 1) else shape[axis]
    if inverse and onesided:
        raise Unknown("the inverse of a one-sided transform")
    rows, bins = min(length, shape[axis]), length // 2 + 1 if onesided else length
    order = [i for i in range(rank) if i not in (axis, rank - 1)]
    value = emit.make("Transpose", [node.input[0]], perm=[rank - 1, *order, axis])
    if rows < shape[axis]:
        value = emit.split(value, rank - 1, [rows, shape[axis] - rows])[0]
    real, imaginary = (emit.constant(part.astype("float32")) for part in _basis(rows, length, bins, inverse=inverse))
    if shape[-1] == 1:
        parts = [emit.make("MatMul", [value, part]) for part in (real, imaginary)]
    else:
        a, b = emit.split(value, 0, [1, 1])
        products = [[emit.make("MatMul", [part, basis]) for basis in (real, imaginary)] for part in (a, b)]
        parts = [
            emit.make("Sub", [products[0][0], products[1][1]]),
            emit.make("Add", [products[0][1], products[1][0]]),
        ]
    joined = emit.make("Concat", parts, axis=0)
    back = [0] * rank
    for place, where in enumerate([rank - 1, *order, axis]):
        back[where] = place
    emit.make("Transpose", [joined], node.output[0], perm=back)


RULES: dict[str, Rule] = {
    "DFT": _dft,
    "LpNormalization": _lp_normalization,
    "ReverseSequence": _reverse_sequence,
    "STFT": _stft,
} | misread_operators.RULES
"""Rewrite by operator. A node that its rewrite cannot handle stays, and the import refuses it."""
