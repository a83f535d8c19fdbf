"""Rewrites nodes of which TVM's converters ignore or misread a part, as other standard operators.

Each rule raises Unknown for nodes that TVM converts as the standard says; they stay.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, attributes, optional, text
from autosched_tvm.compile.frontend.refused_operators import name_of
from autosched_tvm.tensors import Array

Rule = Callable[[NodeBuilder, Node], None]

_FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_SAMPLING = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
"""Coordinates for resized tensors that TVM computes from the sizes."""
OPSET_OF_ROUNDING = 11
"""First opset in which Resize says how it rounds."""


def _of_type(emit: NodeBuilder, value: float, like: str) -> str:
    """A scalar of a tensor's type."""
    kind = emit.element_type(like)
    if not kind:
        raise Unknown(f"the type of {like!r} is not known")
    return emit.constant(np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(kind)))


def _layer_normalization(emit: NodeBuilder, node: Node) -> None:
    """TVM's other outputs are placeholders."""
    if not any(node.output[1:]):
        raise Unknown("it has no statistics")
    given, rank = attributes(node), emit.rank(node.input[0])
    axes = list(range(int(given.get("axis", -1)) % rank, rank))
    if node.output[0]:
        emit.make("LayerNormalization", list(node.input), node.output[0], **given)
    value = emit.to_float(node.input[0])
    names = [*node.output[1:], ""]
    mean = emit.reduce("ReduceMean", value, axes)
    apart = emit.make("Sub", [value, mean])
    variance = emit.reduce("ReduceMean", emit.make("Mul", [apart, apart]), axes)
    if names[0]:
        emit.make("Identity", [mean], names[0])
    if names[1]:
        safe = emit.make("Add", [variance, emit.floats(float(given.get("epsilon", 1e-5)))])
        emit.make("Reciprocal", [emit.make("Sqrt", [safe])], names[1])


def _rms_normalization(emit: NodeBuilder, node: Node) -> None:
    """TVM normalises along the last axis alone."""
    given, rank = attributes(node), emit.rank(node.input[0])
    first = int(given.get("axis", -1)) % rank
    if first == rank - 1:
        raise Unknown("it is along the last axis")
    value, scale = node.input[0], node.input[1]
    squares = emit.reduce("ReduceMean", emit.make("Mul", [value, value]), list(range(first, rank)))
    safe = emit.make("Add", [squares, _of_type(emit, float(given.get("epsilon", 1e-5)), value)])
    emit.make("Mul", [emit.make("Div", [value, emit.make("Sqrt", [safe])]), scale], node.output[0])


def _dropout(emit: NodeBuilder, node: Node) -> None:
    """TVM's mask is of another type."""
    training = emit.array(optional(node, 2)) if optional(node, 2) else np.array(False)
    ratio = emit.array(optional(node, 1)) if optional(node, 1) else None
    if (training is None or bool(np.any(training))) and (ratio is None or bool(np.any(ratio))):
        raise ModelRejected(
            f"operator Dropout (node {name_of(node)}) is, or may be, in training mode; export the model"
            " in inference mode (in PyTorch: model.eval())"
        )
    if len(node.output) < 2 or not node.output[1]:
        raise Unknown("it has no mask")
    if node.output[0]:
        emit.make("Identity", [node.input[0]], node.output[0])
    emit.make("Identity", [emit.constant(np.ones(emit.fixed_shape(node.input[0]), bool))], node.output[1])


def _is_inf(emit: NodeBuilder, node: Node) -> None:
    """TVM detects both signs."""
    given = attributes(node)
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if given.get(name, 1)]
    if len(signs) != 1:
        raise Unknown("it detects both")
    kind = helper.tensor_dtype_to_np_dtype(emit.element_type(node.input[0]) or TensorProto.FLOAT)
    largest = _of_type(emit, signs[0] * float(ml_dtypes.finfo(kind).max), node.input[0])
    emit.make("Greater" if signs[0] > 0 else "Less", [node.input[0], largest], node.output[0])


def _conv_transpose(emit: NodeBuilder, node: Node) -> None:
    """TVM ignores the shape of the output, from which the padding follows."""
    given = attributes(node)
    wanted = given.pop("output_shape", None)
    weights = emit.fixed_shape(node.input[1])
    spatial = len(weights) - 2
    same = text(given.get("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER")
    if wanted is None and not same:
        raise Unknown("its padding is given")
    upper = text(given.pop("auto_pad", "NOTSET")) == "SAME_UPPER"
    kernel, sizes = weights[2:], emit.fixed_shape(node.input[0])[2:]
    strides = list(given.get("strides", [1] * spatial))
    dilations = list(given.get("dilations", [1] * spatial))
    extra = list(given.get("output_padding", [0] * spatial))
    wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)] if wanted is None else list(wanted)
    before, after = [], []
    for i, out in enumerate(wanted[-spatial:]):
        total = strides[i] * (sizes[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - out
        if total < 0:  # the output is larger than what the input reaches
            extra[i], total = extra[i] - total, 0
        half = total // 2
        before.append(half if upper else total - half)
        after.append(total - half if upper else half)
    given |= {"pads": [*before, *after], "output_padding": extra, "strides": strides, "dilations": dilations}
    emit.make("ConvTranspose", list(node.input), node.output[0], **given)


def _one_hot(emit: NodeBuilder, node: Node) -> None:
    """TVM's result has the type of Python's numbers."""
    depth = emit.array(node.input[1])
    if depth is None:
        raise Unknown("the depth is computed at run time")
    count, rank = int(np.asarray(depth).reshape(-1)[0]), emit.rank(node.input[0])
    axis = int(attributes(node).get("axis", -1)) % (rank + 1)
    indices = emit.make("Cast", [node.input[0]], to=TensorProto.INT64)
    turned = emit.make("Add", [indices, emit.constant(np.int64(count))])
    positive = emit.make("Where", [emit.make("Less", [indices, emit.constant(np.int64(0))]), turned, indices])
    numbers = np.arange(count).reshape([-1 if place == axis else 1 for place in range(rank + 1)])
    chosen = emit.make("Equal", [emit.unsqueeze(positive, axis), emit.constant(numbers.astype("int64"))])
    values = emit.array(node.input[2])
    if values is not None:
        off, on = (emit.constant(np.asarray(one)) for one in np.asarray(values).reshape(2))
    else:
        off, on = (emit.make("Gather", [node.input[2], emit.constant(np.int64(place))]) for place in (0, 1))
    emit.make("Where", [chosen, on, off], node.output[0])


def _pow(emit: NodeBuilder, node: Node) -> None:
    """TVM takes operands of one floating-point type. The result has the type of the base."""
    base, exponent = node.input
    kinds = emit.element_type(base), emit.element_type(exponent)
    if not all(kinds) or (kinds[0] == kinds[1] and kinds[0] in _FLOATS):
        raise Unknown("both are of one floating-point type")
    number = emit.array(exponent)
    if kinds[0] not in _FLOATS and number is not None and number.size == 1 and number.reshape(-1)[0] in (1, 2, 3):
        power = base
        for _ in range(int(number.reshape(-1)[0]) - 1):
            power = emit.make("Mul", [power, base])
        emit.make("Identity", [power], node.output[0])
        return
    if kinds[0] in _FLOATS:
        emit.make("Pow", [base, emit.make("Cast", [exponent], to=kinds[0])], node.output[0])
        return
    wide = TensorProto.DOUBLE  # whole numbers up to 2^53 are exact
    made = emit.make("Pow", [emit.make("Cast", [name], to=wide) for name in (base, exponent)])
    emit.make("Cast", [emit.make("Round", [made])], node.output[0], to=kinds[0])


def _unsqueeze(emit: NodeBuilder, node: Node) -> None:
    """TVM takes a list of axes, and not one number."""
    axes = emit.array(optional(node, 1)) if optional(node, 1) else None
    if axes is None or axes.ndim:
        raise Unknown("the axes are a list, or an attribute")
    emit.make("Unsqueeze", [node.input[0], emit.integers(int(axes))], node.output[0])


def _extreme_of_bools(operator: str) -> Rule:
    """TVM has no least and no largest truth value."""

    def rule(emit: NodeBuilder, node: Node) -> None:
        if emit.element_type(node.input[0]) != TensorProto.BOOL:
            raise Unknown("it is of numbers")
        numbers = emit.make("Cast", [node.input[0]], to=TensorProto.UINT8)
        made = emit.make(operator, [numbers, *node.input[1:]], **attributes(node))
        emit.make("Cast", [made], node.output[0], to=TensorProto.BOOL)

    return rule


def _reduced_along_none(single: str, *more: str) -> Rule:
    """A reduction along no axes, with `noop_with_empty_axes`: what it computes of each value alone. TVM returns the
    value."""

    def rule(emit: NodeBuilder, node: Node) -> None:
        given = attributes(node)
        axes = emit.array(optional(node, 1)) if optional(node, 1) else np.zeros(0)
        if not given.get("noop_with_empty_axes", 0) or "axes" in given or axes is None or axes.size:
            raise Unknown("it is along some axes, or all")
        inputs = [node.input[0]] * (2 if single == "Mul" else 1)
        value = emit.make(single, inputs, "" if more else node.output[0])
        for number, operator in enumerate(more):
            value = emit.make(operator, [value], node.output[0] if number == len(more) - 1 else "")

    return rule


def _lp_pool(emit: NodeBuilder, node: Node) -> None:
    """TVM misreads windows that end behind the image: it is padded with zeros instead."""
    given = attributes(node)
    if not given.pop("ceil_mode", 0):
        raise Unknown("no window does")
    size, counts = emit.fixed_shape(node.input[0])[2:], emit.fixed_shape(node.output[0])[2:]
    rank, kernel = len(size), given["kernel_shape"]
    strides, dilations = given.get("strides", [1] * rank), given.get("dilations", [1] * rank)
    pads = list(given.get("pads", [0] * 2 * rank))
    for i in range(rank):
        reach = (counts[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1
        pads[rank + i] = max(pads[rank + i], reach - size[i] - pads[i])
    emit.make("LpPool", [node.input[0]], node.output[0], **given | {"pads": pads})


def _hyperbolic(sign: str) -> Rule:
    """TVM's code generator lacks Cosh and Sinh."""

    def rule(emit: NodeBuilder, node: Node) -> None:
        value = node.input[0]
        grown, shrunk = emit.make("Exp", [value]), emit.make("Exp", [emit.make("Neg", [value])])
        both = emit.make(sign, [grown, shrunk])
        emit.make("Mul", [both, _of_type(emit, 0.5, value)], node.output[0])

    return rule


# Resize -----------------------------------------------------------------------------------------------------------


def _resize(emit: NodeBuilder, node: Node) -> None:
    """TVM knows sizes of spatial axes alone, and takes the scale from rounded sizes.

    Writes nearest neighbours as one Gather, and weighted ones as one product, for each resized axis.
    """
    given, shape = attributes(node), emit.fixed_shape(node.input[0])
    wanted = emit.fixed_shape(node.output[0])
    if len(wanted) != len(shape):
        raise Unknown("the rank changes")
    axes = [int(axis) % len(shape) for axis in given.get("axes", range(len(shape)))]
    scales = _scales(emit, node, axes, shape, wanted)
    corners = text(given.get("coordinate_transformation_mode", "half_pixel")) == "align_corners"
    if corners and any(round(size * scale, 6) % 1 for size, scale in zip(shape, scales, strict=True)):
        raise ModelRejected(
            f"operator Resize (node {name_of(node)}) aligns corners with a scale that gives no whole"
            " size: runtimes differ in its result. Export it with sizes, or with another coordinate_transformation_mode"
        )
    old_nearest = emit.opset < OPSET_OF_ROUNDING and _mode(given) == "nearest" and min(scales) < 1
    if not old_nearest and _is_read_by_tvm(given, shape, wanted, scales):
        raise Unknown("TVM has it")
    roi, value = _region(emit, node, axes, shape), node.input[0]
    changed = [axis for axis in range(len(shape)) if shape[axis] != wanted[axis] or scales[axis] != 1 or axis in roi]
    for number, axis in enumerate(changed):
        weights = _weights(emit, node, axis, shape[axis], scales[axis], roi.get(axis))
        if weights.shape != (shape[axis], wanted[axis]):
            raise Unknown("a size is rounded in another way")
        last = node.output[0] if number == len(changed) - 1 else ""
        value = _along(emit, value, axis, len(shape), weights, last, nearest=_mode(given) == "nearest")
    if not changed:
        emit.make("Identity", [value], node.output[0])


def _mode(given: dict[str, Any]) -> str:
    return text(given.get("mode", "nearest"))


def _is_read_by_tvm(
    given: dict[str, Any], shape: tuple[int, ...], wanted: tuple[int, ...], scales: list[float]
) -> bool:
    sampling = text(given.get("coordinate_transformation_mode", "half_pixel"))
    odd = given.get("antialias", 0) or "axes" in given or sampling not in _SAMPLING
    policy = text(given.get("keep_aspect_ratio_policy", "stretch"))
    spatial = len(shape) in (3, 4, 5) and shape[:2] == wanted[:2]
    exact = all(round(size * scale, 6) == out for size, scale, out in zip(shape, scales, wanted, strict=True))
    corners = sampling == "align_corners" and (1 in wanted[2:] or _mode(given) == "cubic")
    return spatial and exact and not odd and not corners and policy == "stretch"


def _scales(
    emit: NodeBuilder, node: Node, axes: list[int], shape: tuple[int, ...], wanted: tuple[int, ...]
) -> list[float]:
    """The scale of each axis, as the standard computes it."""
    found = [1.0] * len(shape)
    place = 2 if emit.opset >= 11 else 1
    scales = emit.array(optional(node, place)) if optional(node, place) else None
    if scales is not None and scales.size:
        for axis, scale in zip(axes, scales.reshape(-1), strict=True):
            found[axis] = float(scale)
        return found
    sizes = emit.array(optional(node, 3)) if optional(node, 3) else None
    policy = text(attributes(node).get("keep_aspect_ratio_policy", "stretch"))
    if not optional(node, 3) or (sizes is None and policy != "stretch"):
        raise Unknown("the size is computed at run time")
    wanted_sizes = [wanted[axis] for axis in axes] if sizes is None else sizes.reshape(-1)
    ratios = [int(size) / shape[axis] for axis, size in zip(axes, wanted_sizes, strict=True)]
    if policy != "stretch":
        ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(ratios)
    for axis, ratio in zip(axes, ratios, strict=True):
        found[axis] = ratio
    return found


def _region(emit: NodeBuilder, node: Node, axes: list[int], shape: tuple[int, ...]) -> dict[int, tuple[float, float]]:
    """The part of each axis that is resized, with tf_crop_and_resize."""
    if text(attributes(node).get("coordinate_transformation_mode", "half_pixel")) != "tf_crop_and_resize":
        return {}
    roi = emit.array(optional(node, 1)) if optional(node, 1) else None
    if roi is None or roi.size != 2 * len(axes):
        raise Unknown("the region is computed at run time")
    starts, ends = roi.reshape(2, -1)
    if starts.min() < 0 or ends.max() > 1:
        raise Unknown("a part lies outside of the input")
    parts = zip(axes, starts, ends, strict=True)
    return {axis: (float(start), float(end)) for axis, start, end in parts if (start, end) != (0, 1) or shape[axis] > 1}


def _weights(
    emit: NodeBuilder, node: Node, axis: int, size: int, scale: float, part: tuple[float, float] | None
) -> Array:
    """The weight of each value of an axis for each resized one, by ONNX's reference implementation."""
    given = attributes(node)
    kept = {name: value for name, value in given.items() if name not in ("axes", "keep_aspect_ratio_policy")}
    by_size = optional(node, 3) and text(given.get("keep_aspect_ratio_policy", "stretch")) == "stretch"
    constants = {
        "eye": np.eye(size, dtype="float32"),
        "roi": np.array([0, part[0], 1, part[1]] if part else [], "float32"),
        "scale": np.array([1, scale], "float32"),
        "size": np.array([size, emit.shapes[node.output[0]][axis]]),
    }
    names = ["eye", "roi" if part else "", "" if by_size else "scale", "size" if by_size else ""]
    if emit.opset < OPSET_OF_ROUNDING:
        names, kept = ["eye", "", "scale"], {**kept, "coordinate_transformation_mode": "asymmetric"}
        kept |= {"nearest_mode": "ceil" if scale < 1 else "floor"}  # as in ONNX Runtime; the standard does not say
    one = helper.make_node("Resize", names, ["weights"], **kept)
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    output = helper.make_tensor_value_info("weights", TensorProto.FLOAT, None)
    graph = helper.make_graph([one], "one", [], [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(emit.opset, 13))])
    return np.asarray(ReferenceEvaluator(model).run(None, {})[0]).astype("float32")


def _along(emit: NodeBuilder, value: str, axis: int, rank: int, weights: Array, output: str, *, nearest: bool) -> str:
    if nearest and np.all(weights.sum(axis=0) == 1):
        return emit.make("Gather", [value, emit.integers(*weights.argmax(axis=0))], output, axis=axis)
    order = [i for i in range(rank) if i != axis] + [axis]
    turned = emit.make("Transpose", [value], perm=order)
    product = emit.make("MatMul", [turned, emit.constant(weights)])
    return emit.make("Transpose", [product], output, perm=[order.index(i) for i in range(rank)])


RULES: dict[str, Rule] = {
    "Cosh": _hyperbolic("Add"),
    "ConvTranspose": _conv_transpose,
    "Dropout": _dropout,
    "IsInf": _is_inf,
    "LpPool": _lp_pool,
    "LayerNormalization": _layer_normalization,
    "OneHot": _one_hot,
    "Pow": _pow,
    "RMSNormalization": _rms_normalization,
    "ReduceMax": _extreme_of_bools("ReduceMax"),
    "ReduceMin": _extreme_of_bools("ReduceMin"),
    "ReduceL1": _reduced_along_none("Abs"),
    "ReduceL2": _reduced_along_none("Abs"),
    "ReduceLogSum": _reduced_along_none("Log"),
    "ReduceLogSumExp": _reduced_along_none("Exp", "Log"),
    "ReduceSumSquare": _reduced_along_none("Mul"),
    "Resize": _resize,
    "Sinh": _hyperbolic("Sub"),
    "Unsqueeze": _unsqueeze,
}
"""Rewrite by operator."""
