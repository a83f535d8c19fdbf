"""Rewrites operators for which TVM has no converter, or none that works, as other standard operators.

Each rule raises Unknown for nodes that it cannot rewrite; they stay.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autosched_tvm.compile.frontend.misread_operators import Rule
from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, attributes, optional, text
from autosched_tvm.tensors import Array


def _numbers(emit: NodeBuilder, name: str) -> list[int]:
    array = emit.array(name)
    if array is None:
        raise Unknown(f"{name!r} is computed at run time")
    return [int(number) for number in array.reshape(-1)]


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
    step = _numbers(emit, node.input[1])[0]
    length = _numbers(emit, node.input[3])[0] if optional(node, 3) else len(window) if window is not None else samples
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
    axis = (
        int(given.get("axis", 1)) if emit.opset < 20 else _numbers(emit, node.input[2])[0] if optional(node, 2) else -2
    )
    axis %= rank
    inverse, onesided = bool(given.get("inverse", 0)), bool(given.get("onesided", 0))
    length = _numbers(emit, node.input[1])[0] if optional(node, 1) else shape[axis]
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


# Sliding windows --------------------------------------------------------------------------------------------------


def _col2im(emit: NodeBuilder, node: Node) -> None:
    """Writes the sum of overlapping blocks as a transposed convolution with one filter for each place in a block."""
    given = attributes(node)
    batch, rows, _ = emit.fixed_shape(node.input[0])
    image, block = (_numbers(emit, node.input[i]) for i in (1, 2))
    rank, size = len(image), math.prod(block)
    strides = list(given.get("strides", [1] * rank))
    dilations = list(given.get("dilations", [1] * rank))
    pads = list(given.get("pads", [0] * 2 * rank))
    reach = [(block[i] - 1) * dilations[i] + 1 - pads[i] - pads[rank + i] for i in range(rank)]
    counts = [(image[i] - reach[i]) // strides[i] + 1 for i in range(rank)]
    extra = [image[i] - reach[i] - (counts[i] - 1) * strides[i] for i in range(rank)]
    blocks = emit.make("Reshape", [node.input[0], emit.integers(batch * (rows // size), size, *counts)])
    filters = emit.constant(np.eye(size).reshape(size, 1, *block).astype(_dtype(emit, node.input[0])))
    summed = emit.make(
        "ConvTranspose", [blocks, filters], strides=strides, dilations=dilations, pads=pads, output_padding=extra
    )
    emit.make("Reshape", [summed, emit.integers(batch, rows // size, *image)], node.output[0])


def _deform_conv(emit: NodeBuilder, node: Node) -> None:
    """Samples the input at the moved places of each window, and multiplies the samples by the weights."""
    given = attributes(node)
    batch, channels, *size = emit.fixed_shape(node.input[0])
    outputs, depth, *kernel = emit.fixed_shape(node.input[1])
    *_, height, width = emit.fixed_shape(node.input[2])
    if len(size) != 2:
        raise Unknown("the windows are not of two dimensions")
    groups, moved = int(given.get("group", 1)), int(given.get("offset_group", 1))
    strides, dilations = given.get("strides", [1, 1]), given.get("dilations", [1, 1])
    pads, places = given.get("pads", [0] * 4), math.prod(kernel)
    starts = np.meshgrid(*(np.arange(count) * dilations[i] - pads[i] for i, count in enumerate(kernel)), indexing="ij")
    steps = np.meshgrid(*(np.arange(count) * strides[i] for i, count in enumerate((height, width))), indexing="ij")
    fixed = np.stack([a.reshape(-1, 1, 1) + b for a, b in zip(starts, steps, strict=True)], 1)  # place, y or x, out
    offsets = emit.make("Reshape", [node.input[2], emit.integers(batch * moved, places, 2, height, width)])
    at = emit.make("Add", [offsets, emit.constant(fixed.astype(_dtype(emit, node.input[2])))])
    scale = np.array([2 / size[0], 2 / size[1]]).reshape(2, 1, 1)  # GridSample takes -1 to 1, and x first
    shift = np.array([1 / size[0] - 1, 1 / size[1] - 1]).reshape(2, 1, 1)
    at = emit.make("Mul", [at, emit.constant(scale.astype(_dtype(emit, node.input[2])))])
    at = emit.make("Add", [at, emit.constant(shift.astype(_dtype(emit, node.input[2])))])
    at = emit.make("Gather", [emit.make("Transpose", [at], perm=[0, 1, 3, 4, 2]), emit.integers(1, 0)], axis=-1)
    grid = emit.make("Reshape", [at, emit.integers(batch * moved, places * height, width, 2)])
    image = emit.make("Reshape", [node.input[0], emit.integers(batch * moved, channels // moved, *size)])
    mode = "linear" if emit.opset >= 20 else "bilinear"
    samples = emit.make("GridSample", [image, grid], mode=mode, padding_mode="zeros", align_corners=0)
    if optional(node, 4):
        shape = [batch * moved, channels // moved, places, height, width]
        samples = emit.make("Reshape", [samples, emit.integers(*shape)])
        mask = emit.make("Reshape", [node.input[4], emit.integers(batch * moved, 1, places, height, width)])
        samples = emit.make("Mul", [samples, mask])
    columns = emit.make("Reshape", [samples, emit.integers(batch, groups, depth * places, height * width)])
    weights = emit.make("Reshape", [node.input[1], emit.integers(1, groups, outputs // groups, depth * places)])
    product = emit.make("MatMul", [weights, columns])
    last = "" if optional(node, 3) else node.output[0]
    made = emit.make("Reshape", [product, emit.integers(batch, outputs, height, width)], last)
    if optional(node, 3):
        bias = emit.make("Reshape", [node.input[3], emit.integers(1, outputs, 1, 1)])
        emit.make("Add", [made, bias], node.output[0])


def _max_pool(emit: NodeBuilder, node: Node) -> None:
    """Writes the places of the maxima, which TVM lacks, by comparing one slice for each place in a window. Makes pads
    before the image explicit, which TVM adds behind it."""
    given = attributes(node)
    auto, places_wanted = text(given.pop("auto_pad", "NOTSET")), any(node.output[1:])
    if not places_wanted and auto != "SAME_LOWER":
        raise Unknown("TVM has it")
    batch, channels, *size = emit.fixed_shape(node.input[0])
    counts = list(emit.fixed_shape(next(name for name in node.output if name))[2:])
    kernel, rank = list(given["kernel_shape"]), len(size)
    strides = list(given.get("strides", [1] * rank))
    dilations = list(given.get("dilations", [1] * rank))
    needed = [(counts[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    before = list(given.get("pads", [0] * 2 * rank))[:rank]
    if auto.startswith("SAME"):
        totals = [max(0, needed[i] - size[i]) for i in range(rank)]
        before = [total - total // 2 if auto == "SAME_LOWER" else total // 2 for total in totals]
    after = [max(0, needed[i] - size[i] - before[i]) for i in range(rank)]
    if not places_wanted:
        emit.make("MaxPool", [node.input[0]], node.output[0], **given | {"pads": [*before, *after]})
        return
    dtype = _dtype(emit, node.input[0])
    least = -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min
    value = node.input[0]
    if any(before + after):
        value = emit.pad(value, [0, 0, *before, 0, 0, *after], np.asarray(least, dtype))
    places = list(itertools.product(*(range(count) for count in kernel)))
    slices = []
    for place in places:
        first = [place[i] * dilations[i] for i in range(rank)]
        last = [first[i] + (counts[i] - 1) * strides[i] + 1 for i in range(rank)]
        slices.append(emit.unsqueeze(emit.slice(value, range(2, rank + 2), first, last, strides), 0))
    stacked = emit.make("Concat", slices, axis=0)
    if node.output[0]:
        emit.make("Identity", [emit.reduce("ReduceMax", stacked, [0], keep=False)], node.output[0])
    chosen = emit.make("ArgMax", [stacked], axis=0, keepdims=0)  # the first one, as the standard says
    unit = [math.prod(size[i + 1 :]) for i in range(rank)]
    if given.get("storage_order", 0):
        unit = [math.prod(size[:i]) for i in range(rank)]
    inner = [sum(place[i] * dilations[i] * unit[i] for i in range(rank)) for place in places]
    outer = np.arange(batch * channels).reshape(batch, channels, *[1] * rank) * math.prod(size)
    for i in range(rank):
        starts = (np.arange(counts[i]) * strides[i] - before[i]) * unit[i]
        outer = outer + starts.reshape([-1 if axis == i + 2 else 1 for axis in range(rank + 2)])
    moved = emit.make("Gather", [emit.integers(*inner), chosen])
    emit.make("Add", [moved, emit.constant(outer.astype("int64"))], node.output[1])


def _max_unpool(emit: NodeBuilder, node: Node) -> None:
    """Writes each value to its place in a tensor of zeros."""
    given, shape = attributes(node), emit.fixed_shape(node.input[0])
    rank = len(shape) - 2
    kernel, strides = list(given["kernel_shape"]), list(given.get("strides", [1] * rank))
    pads = list(given.get("pads", [0] * 2 * rank))
    smallest = [(shape[i + 2] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)]
    wanted = _numbers(emit, node.input[2]) if optional(node, 2) else [*shape[:2], *smallest]
    place = node.input[1]
    if wanted[2:] != smallest:  # a place counts elements of the smallest output
        place = _in_larger(emit, place, [*shape[:2], *smallest], wanted)
    zeros = emit.constant(np.zeros(math.prod(wanted), _dtype(emit, node.input[0])))
    flat = [emit.make("Reshape", [name, emit.integers(-1)]) for name in (place, node.input[0])]
    made = emit.make("ScatterElements", [zeros, *flat], axis=0)
    emit.make("Reshape", [made, emit.integers(*wanted)], node.output[0])


def _in_larger(emit: NodeBuilder, place: str, shape: Sequence[int], wanted: Sequence[int]) -> str:
    """The places in a larger tensor."""
    found = ""
    for axis, size in enumerate(shape):
        whole = emit.make("Div", [place, emit.integers(math.prod(shape[axis + 1 :]))])
        along = emit.make("Mod", [whole, emit.integers(size)])
        part = emit.make("Mul", [along, emit.integers(math.prod(wanted[axis + 1 :]))])
        found = emit.make("Add", [found, part]) if found else part
    return found


# Places -----------------------------------------------------------------------------------------------------------


def _tensor_scatter(emit: NodeBuilder, node: Node) -> None:
    """Chooses for each place of the cache between its old value and the update's."""
    given, shape = attributes(node), emit.fixed_shape(node.input[0])
    axis, rank = int(given.get("axis", -2)) % len(shape), len(shape)
    count, size = emit.fixed_shape(node.input[1])[axis], shape[axis]
    numbers = emit.constant(np.arange(size).reshape([-1 if i == axis else 1 for i in range(rank)]).astype("int64"))
    place = numbers
    if optional(node, 2):
        starts = emit.make("Reshape", [node.input[2], emit.integers(-1, *[1] * (rank - 1))])
        place = emit.make("Sub", [numbers, starts])
        if text(given.get("mode", "linear")) == "circular":
            place = emit.make("Mod", [emit.make("Add", [place, emit.integers(size)]), emit.integers(size)])
    lowest, first = emit.constant(np.int64(0)), emit.constant(np.int64(count))
    new = emit.make("And", [emit.make("GreaterOrEqual", [place, lowest]), emit.make("Less", [place, first])])
    inside = emit.make("Where", [new, place, lowest])
    index = emit.make("Expand", [inside, emit.integers(*shape)])
    update = emit.make("GatherElements", [node.input[1], index], axis=axis)
    emit.make("Where", [new, update, node.input[0]], node.output[0])


def _eye_like(emit: NodeBuilder, node: Node) -> None:
    given = attributes(node)
    rows, columns = emit.fixed_shape(node.input[0])
    kind = int(given.get("dtype", emit.element_type(node.input[0]) or TensorProto.FLOAT))
    eye = np.eye(rows, columns, int(given.get("k", 0))).astype(helper.tensor_dtype_to_np_dtype(kind))
    emit.make("Identity", [emit.constant(eye)], node.output[0])


# Sizes that the network is given, where it declares the shape of the result -------------------------------------------


def _range(emit: NodeBuilder, node: Node) -> None:
    """Counts as many values as the network declares."""
    if all(emit.array(name) is not None for name in node.input):
        raise Unknown("TVM has it")
    start, _, step = node.input
    numbers = np.arange(_declared_count(emit, node.output[0])).astype(_dtype(emit, start))
    emit.make("Add", [start, emit.make("Mul", [emit.constant(numbers), step])], node.output[0])


def _declared_count(emit: NodeBuilder, name: str) -> int:
    """The size of a vector, which the network declares for it, or for what it computes of it value by value."""
    if emit.shapes.get(name, (0,))[0]:
        return emit.shapes[name][0]
    for reader in emit.graph.node:
        if name in reader.input and reader.op_type in _VALUE_BY_VALUE:
            return _declared_count(emit, reader.output[0])
    raise Unknown("its size is computed at run time")


_VALUE_BY_VALUE = frozenset({"Add", "Cast", "Cos", "Div", "Identity", "Mul", "Neg", "Sin", "Sub"})


def _constant_of_shape(emit: NodeBuilder, node: Node) -> None:
    """Fills the shape that the network declares."""
    value = attributes(node).get("value")
    array = np.zeros(1, "float32") if value is None else np.asarray(numpy_helper.to_array(value))
    if emit.array(node.input[0]) is not None:
        raise Unknown("TVM has it")
    filled = np.full(emit.fixed_shape(node.output[0]), array.reshape(()))
    emit.make("Identity", [emit.constant(filled)], node.output[0])


def _dtype(emit: NodeBuilder, name: str) -> Any:
    """The type of a tensor's elements, as numpy names it."""
    kind = emit.element_type(name)
    if not kind:
        raise Unknown(f"the type of {name!r} is not known")
    return helper.tensor_dtype_to_np_dtype(kind)


RULES: dict[str, Rule] = {
    "Col2Im": _col2im,
    "ConstantOfShape": _constant_of_shape,
    "DFT": _dft,
    "DeformConv": _deform_conv,
    "EyeLike": _eye_like,
    "LpNormalization": _lp_normalization,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "Range": _range,
    "ReverseSequence": _reverse_sequence,
    "STFT": _stft,
    "TensorScatter": _tensor_scatter,
}
"""Rewrite by operator."""
