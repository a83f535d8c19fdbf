"""Rewrites standard operators that TVM lacks as other standard operators. Shapes must be fixed and folded."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, inliner, numpy_helper
from onnx.reference import ReferenceEvaluator

from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, attributes, optional

Array = Any
Rule = Callable[[NodeBuilder, Node, "Sizes"], None]
Sizes = dict[str, tuple[int, ...]]
_STANDARD = ("", "ai.onnx")


def expand_functions(model: Any, unsupported: Callable[[Iterable[Any]], list[Any]]) -> tuple[Any, list[str]]:
    """Returns the model with unsupported operators replaced by their function bodies in the standard, and their
    names."""
    names = sorted({node.op_type for node in unsupported(model.graph.node) if _is_function(node)} - RULES.keys())
    if not names:
        return model, []
    return inliner.inline_selected_functions(model, [("", name) for name in names], False, True), names


def _is_function(node: Node) -> bool:
    if node.domain not in _STANDARD or not defs.has(node.op_type, ""):
        return False
    schema = defs.get_schema(node.op_type, "")
    return bool(schema.has_function or schema.has_context_dependent_function)


def rewrite(model: Any) -> dict[str, int]:
    """Rewrites the model in place; returns the number of rewritten nodes by operator."""
    if not any(node.op_type in RULES and node.domain in _STANDARD for node in model.graph.node):
        return {}
    sizes: Sizes = {}
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            sizes[value.name] = tuple(int(d.dim_value) for d in tensor.shape.dim)
    opset = max((int(o.version) for o in model.opset_import if o.domain in _STANDARD), default=1)
    emit, done = NodeBuilder(model.graph, opset), Counter[str]()
    for node in list(model.graph.node):
        emit.about(node)
        rule = RULES.get(node.op_type) if node.domain in _STANDARD else None
        if rule is None:
            emit.nodes.append(node)
            continue
        written = len(emit.nodes)
        try:
            rule(emit, node, sizes)
        except Unknown:
            del emit.nodes[written:]
            emit.nodes.append(node)
        else:
            done[node.op_type] += 1
    emit.finish()
    return dict(done)


def _shape(emit: NodeBuilder, name: str, sizes: Sizes) -> tuple[int, ...]:
    array = emit.array(name)
    if array is None and name not in sizes:
        raise Unknown(f"the shape of {name!r} is not known")
    return tuple(array.shape) if array is not None else sizes[name]


def _number(emit: NodeBuilder, name: str) -> int:
    array = emit.array(name)
    if array is None:
        raise Unknown(f"{name!r} is computed at run time")
    return int(np.asarray(array).reshape(-1)[0])


def _reverse_sequence(emit: NodeBuilder, node: Node, sizes: Sizes) -> None:
    """Gathers each step from its mirrored position in its sequence."""
    given = attributes(node)
    time, batch = int(given.get("time_axis", 0)), int(given.get("batch_axis", 1))
    shape = _shape(emit, node.input[0], sizes)
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


def _lp_normalization(emit: NodeBuilder, node: Node, _sizes: Sizes) -> None:
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


def _stft(emit: NodeBuilder, node: Node, sizes: Sizes) -> None:
    """Writes the transform as one convolution with the windowed Fourier basis as filters."""
    batch, samples, *parts = _shape(emit, node.input[0], sizes)
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


def _dft(emit: NodeBuilder, node: Node, sizes: Sizes) -> None:
    """Writes the transform as matrix products with the Fourier basis."""
    given, shape = attributes(node), _shape(emit, node.input[0], sizes)
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


def _resize(emit: NodeBuilder, node: Node, sizes: Sizes) -> None:
    """Writes an antialiased resize as one matrix product for each resized axis; TVM ignores the attribute."""
    given, shape = attributes(node), _shape(emit, node.input[0], sizes)
    wanted = _shape(emit, node.output[0], sizes)
    if not given.get("antialias", 0):
        raise Unknown("TVM has it")
    if "axes" in given or given.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        raise Unknown("its axes depend on each other")
    scales = emit.array(optional(node, 2)) if optional(node, 2) else None
    by_size = scales is None or not scales.size
    if not by_size and given.get("coordinate_transformation_mode") == b"align_corners":
        raise Unknown("runtimes differ in what they make of a scale here")
    value, changed = node.input[0], [i for i in range(len(shape)) if shape[i] != wanted[i]]
    for number, axis in enumerate(changed):
        one = onnx.NodeProto()
        one.CopyFrom(node)
        one.input[:], one.output[:] = ["eye", "", "scale", ""], ["weights"]
        if by_size:
            one.input[:] = ["eye", "", "", "size"]
        constants = {
            "eye": np.eye(shape[axis], dtype="float32"),
            "scale": np.array([1, scales[axis] if scales is not None and not by_size else 1], "float32"),
            "size": np.array([shape[axis], wanted[axis]]),
        }
        made = _computed(one, constants, emit.opset).astype("float32")
        if made.shape != (shape[axis], wanted[axis]):
            raise Unknown("a scale is rounded in another way")
        weights = emit.constant(made)
        order = [i for i in range(len(shape)) if i != axis] + [axis]
        turned = emit.make("Transpose", [value], perm=order)
        product = emit.make("MatMul", [turned, weights])
        last = node.output[0] if number == len(changed) - 1 else ""
        value = emit.make("Transpose", [product], last, perm=[order.index(i) for i in range(len(shape))])
    if not changed:
        emit.make("Identity", [value], node.output[0])


def _computed(node: Node, constants: dict[str, Array], opset: int) -> Array:
    """Returns the output of a node with constant inputs, computed by ONNX's reference implementation."""
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "one", [], [onnx.ValueInfoProto(name=node.output[0])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return np.asarray(ReferenceEvaluator(model).run(None, {})[0])


RULES: dict[str, Rule] = {
    "DFT": _dft,
    "LpNormalization": _lp_normalization,
    "Resize": _resize,
    "ReverseSequence": _reverse_sequence,
    "STFT": _stft,
}
"""Rewrite by operator. A node that its rewrite cannot handle stays, and the import refuses it."""
