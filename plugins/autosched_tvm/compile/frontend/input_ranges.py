"""Finds the kind and range of a network's inputs, so that generated inputs are valid and exercise the network.

Zeros and ones are always valid indices, but they can lead to results that depend on rounding, for example a division by
a variance of almost 0. Indices therefore use the whole range of the table that they index.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from autosched_tvm.compile.frontend import index_ranges, preparation
from autosched_tvm.compile.frontend.shape_inference import values
from autosched_tvm.tensors import Kind, Tensor

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

PLAIN_HIGH = 128
MASK_HIGH = 2
_SAME_VALUES = {
    "Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Expand", "Transpose", "Slice", "Concat", "Split",
    "Tile",
}  # fmt: skip
_SELECTING = {"Gather", "GatherElements", "GatherND"}
"""Operators whose results are elements of their first input."""
_BOUNDING = {"Clip", "Max", "Add"}
"""Operators that a network applies to a divisor to keep it away from 0."""
_OF_POSITIVES = {"Log": 0, "Sqrt": 0, "Reciprocal": 0, "Div": 1}
"""Operators whose results are useful for positive numbers only, and the index of that input."""
_ADJUSTED = {"Sub", "Add", "Mul", "Div", "BatchNormalization"}
"""Operators that normalise an input."""
_PIXEL_RATIO = 16.0
"""Minimum divisor of an input's values that marks them as pixels in 0 to 255."""
IMAGE_CHANNELS = (1, 3, 4)
IMAGE_SIDE_MIN = 16
SOUND_LENGTH_MIN = 256
SAMPLE_RATE = 16_000
_STATE_NAME = re.compile(
    r"(^|[_./:])([hc]\d*|[hc][_.]?(in|prev|0)|states?|hidden|cell|cache|past|memory)([_./:\d]|$)", re.I
)
_MASK_NAME = re.compile(r"mask", re.I)
_RATE_NAME = re.compile(r"^(sr|sample_?rate|sampling_?rate)$", re.I)
_LENGTH_NAME = re.compile(r"(^|[_./:])(lens?|lengths?)([_./:\d]|$)", re.I)
_POSITION_NAME = re.compile(r"position", re.I)


def inputs(model: "ModelProto") -> tuple[Tensor, ...]:
    """Returns the inputs of a model with fixed shapes, and the values that generated ones have."""
    bounds = ranges(model)
    found = [
        Tensor(
            v.name, tuple(d or 1 for d in preparation.dims_of(v) or ()), preparation.dtype_of(v), bounds[v.name][1],
            low=bounds[v.name][0],
        )
        for v in preparation.inputs_of(model)
    ]  # fmt: skip
    positive = _positive_inputs(model)
    known = with_kinds(found, lambda name: _image_kind(model, name))
    return tuple(
        msgspec.structs.replace(t, kind=Kind.POSITIVE)
        if t.name in positive and t.kind in (Kind.NORMAL, Kind.SOUND)
        else t
        for t in known
    )


def with_kinds(found: Sequence[Tensor], image: Callable[[str], Kind]) -> tuple[Tensor, ...]:
    """Returns the inputs and the values that generated ones have. `image` gives the kind of an image input by its
    name."""
    return tuple(_with_kind(image, tensor, found) for tensor in found)


def _with_kind(image: Callable[[str], Kind], tensor: Tensor, others: Sequence[Tensor]) -> Tensor:
    name, shape = tensor.name, tensor.shape
    whole = tensor.dtype.startswith(("int", "uint", "bool"))
    kind, high = Kind.TOKENS if whole else Kind.NORMAL, tensor.high
    if _MASK_NAME.search(name):
        kind = Kind.MASK
    elif whole and math.prod(shape) == 1 and _RATE_NAME.search(name):
        kind, high = Kind.COUNT, SAMPLE_RATE + 1
    elif whole and _LENGTH_NAME.search(name) and len(shape) <= 1:
        longest = max((max(o.shape, default=1) for o in others if o.name != name), default=1)
        kind, high = Kind.COUNT, longest + 1
    elif whole and _POSITION_NAME.search(name):
        kind = Kind.POSITIONS
    elif (not whole or tensor.dtype == "uint8") and _is_image(shape):
        kind = image(name)
    elif not whole and _STATE_NAME.search(name):
        kind = Kind.STATE
    elif not whole and _is_sound(shape):
        kind = Kind.SOUND
    return msgspec.structs.replace(tensor, high=high, kind=kind)


def _is_image(shape: tuple[int, ...]) -> bool:
    """Returns whether an input has two long sides and a few channels, which come first or last."""
    inner = shape[1:] if len(shape) == 4 else shape
    if len(inner) != 3:
        return False
    first, last = (inner[0], inner[1:]), (inner[2], inner[:2])
    known = IMAGE_CHANNELS if len(shape) == 4 else IMAGE_CHANNELS[1:]  # 1x128x40 is a batch of features
    return any(channels in known and min(sides) >= IMAGE_SIDE_MIN for channels, sides in (first, last))


def _is_sound(shape: tuple[int, ...]) -> bool:
    """Returns whether an input is one long signal in one or two channels."""
    extents = sorted(shape, reverse=True)
    return bool(extents) and extents[0] >= SOUND_LENGTH_MIN and math.prod(extents[1:]) <= 2


def _positive_inputs(model: "ModelProto") -> set[str]:
    """Returns the inputs by which the network divides, or whose logarithm or root it takes: distances, durations,
    variances.

    Networks clip negative ones to almost 0, and the results of a division by these are so large that rounding hides any
    error.
    """
    origin = {value.name: value.name for value in preparation.inputs_of(model)}
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    found = set()
    for node in model.graph.node:  # ONNX requires topological order
        place = _OF_POSITIVES.get(node.op_type)
        if place is not None and len(node.input) > place and node.input[place] in origin:
            found.add(origin[node.input[place]])
        known = [name for name in node.input if name in origin]
        moves = node.op_type in _SAME_VALUES or (node.op_type in _SELECTING and node.input[0] in origin)
        bounds = node.op_type in _BOUNDING and all(
            name in origin or name in constants or not name for name in node.input
        )
        if len(known) == 1 and (moves or bounds):
            origin.update(dict.fromkeys(node.output, origin[known[0]]))
    return found


def _image_kind(model: "ModelProto", name: str) -> Kind:
    """Returns the range of an image's values, found in the network's own normalisation."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    factor, adjusted = 1.0, False
    while len(users := [node for node in model.graph.node if name in node.input]) == 1:
        node = users[0]
        if node.op_type in _ADJUSTED:
            adjusted = True
            factor *= _factor(node, name, constants)
        elif node.op_type not in _SAME_VALUES:
            break
        name = node.output[0]
    if not adjusted:
        return Kind.IMAGE
    return Kind.PIXELS if 0 < factor < 1 / _PIXEL_RATIO else Kind.UNIT_IMAGE


def _factor(node: "NodeProto", name: str, constants: dict[str, Any]) -> float:
    """Returns the average factor by which an operator multiplies its input; 1 where it is unknown."""
    import numpy as np
    from onnx import numpy_helper

    def mean(place: str) -> float:
        return float(np.mean(np.abs(numpy_helper.to_array(constants[place])))) if place in constants else 1.0

    match node.op_type:
        case "Mul":
            return mean(next((i for i in node.input if i != name), ""))
        case "Div":
            return 1 / (mean(node.input[1]) or 1.0)
        case "BatchNormalization":
            return mean(node.input[1]) / (math.sqrt(mean(node.input[4])) or 1.0)
    return 1.0


def ranges(model: "ModelProto") -> dict[str, tuple[int, int]]:
    """Returns the whole numbers that each input may have, as a half-open range."""
    graph = model.graph
    constants = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    dims = _computed_dims(model) | constants
    found = {}
    for value in graph.input:
        if value.name not in constants:
            is_mask = "mask" in value.name.lower()
            whole = preparation.dtype_of(value).startswith(("int", "uint", "bool"))
            indices = index_ranges.valid(graph, value.name, dims) if whole else None
            low, high = indices or (0, MASK_HIGH if is_mask else PLAIN_HIGH)
            found[value.name] = (low, max(low + 1, min(high, MASK_HIGH)) if is_mask else high)
    return found


def _computed_dims(model: "ModelProto") -> dict[str, list[int]]:
    """Returns the known shapes of the values that the network computes."""
    shapes = {value.name: preparation.dims_of(value) for value in values(model)}
    return {name: [size or 1 for size in dims] for name, dims in shapes.items() if dims is not None and all(dims)}
