"""Convolutions kept in 8-bit integers, analogous to `integer_products`.

    y = sum((x_q - zero_x) w_q) scale_x scale_w

with the sum over the taps of a window. Padding counts as 0: the border of x_q is filled with its zero point.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from autosched_tvm.compile.frontend import dequantisation
from autosched_tvm.compile.frontend.dequantisation import Dequantiser, without_zero_point
from autosched_tvm.compile.frontend.meanings import Weights
from autosched_tvm.compile.frontend.node_builder import Array, Node, attributes, optional

LANES_MAX = 16
"""Maximum number of 32-bit sums in a vector."""
CHANNELS = 4
"""Number of 8-bit channels that an instruction multiplies for each sum."""
JOINED_MAX = 4
"""Maximum number of groups of a convolution that are computed as one. Products of integers are four times as fast as
those of float32."""
RANKS = (3, 4)
"""Numbers of dimensions of data and of weights: of sequences and of images."""


def convolution(
    state: Dequantiser, data: str, weights: str, bias: str, given: Mapping[str, Any], output: str = ""
) -> str | None:  # fmt: skip
    """Writes a convolution of real numbers in the integers that represent them; returns None where there are none of 8
    bits, and for groups of several channels. `given`: attributes of Conv."""
    emit = state.emit
    known = state.meaning(emit.resolve(weights), Weights)
    if known is None or known.numbers.ndim not in RANKS or (known.scales.size > 1 and known.axis != 0):
        return None
    if not _fits(known.numbers, given):
        return None
    if (levels := state.levels_of(data)) is None:
        return None
    zero = emit.constant(np.asarray(levels.zero, "uint8"))
    sums = emit.make("ConvInteger", [levels.name, emit.constant(known.numbers), zero], **given)
    scales = np.asarray(levels.scale * known.scales.astype("float64"), "float32")
    real = emit.make("Cast", [sums], to=TensorProto.FLOAT)
    axes = [1] * (known.numbers.ndim - 2)
    step = emit.constant(scales.reshape(()) if scales.size == 1 else scales.reshape(1, -1, *axes))
    if not bias:
        return emit.make("Mul", [real, step], output)
    array = emit.array(bias)
    shift = (
        emit.constant(array.reshape(1, -1, *axes))
        if array is not None
        else emit.unsqueeze(bias, 0, *range(2, 2 + len(axes)))
    )
    return emit.make("Add", [emit.make("Mul", [real, step]), shift], output)


def conv(state: Dequantiser, node: Node) -> None:
    """Rule for a float convolution of quantised tensors."""
    made = convolution(state, node.input[0], node.input[1], optional(node, 2), attributes(node), node.output[0])
    if made is None:
        state.emit.keep(node)


def conv_integer(state: Dequantiser, node: Node) -> None:
    """Rule for a convolution of integers, which is kept where its weights are constant and the zero point of its data
    is one number, even one that is computed at run time, as that of DynamicQuantizeLinear."""
    emit = state.emit
    zeros = emit.array(optional(node, 3)) if optional(node, 3) else np.zeros((), "int8")
    weights, unsigned = emit.array(node.input[1]), emit.element_type(node.input[0]) != TensorProto.INT8
    if not state.integers or not unsigned or weights is None or zeros is None or weights.ndim not in RANKS:
        dequantisation.RULES["ConvInteger"](state, node)
        return
    zero = optional(node, 2) or emit.constant(np.zeros((), "uint8"))
    start = emit.array(zero)
    known = without_zero_point(weights, np.ones((), "float32"), zeros, 0)
    if known is None or not _fits(known.numbers, attributes(node)) or (start is not None and start.size != 1):
        dequantisation.RULES["ConvInteger"](state, node)
        return
    inputs = [node.input[0], emit.constant(known.numbers), zero]
    emit.make("ConvInteger", inputs, node.output[0], **attributes(node))
    emit.types[node.output[0]] = TensorProto.INT32


def _fits(weights: Array, given: Mapping[str, Any]) -> bool:
    """Returns whether there is a kernel for the groups of a convolution."""
    groups = given.get("group", 1)
    return weights.shape[:2] == (groups, 1) or joined_groups(weights, groups, LANES_MAX) is not None


def joined_groups(weights: Array, groups: int, lanes: int) -> Array | None:
    """Returns weights whose filters are in fewer groups, so that the filters of a group fill vectors of `lanes` sums,
    and its channels fill groups of `CHANNELS`. Weights of channels that a filter did not read are 0. None where more
    than `JOINED_MAX` groups would become one: float32 is faster then."""
    filters, channels, *taps = weights.shape
    own = filters // groups
    for count in range(1, JOINED_MAX + 1):
        if groups == count or (groups % count == 0 and own * count % lanes == 0 and channels * count % CHANNELS == 0):
            made = np.zeros((filters, channels * count, *taps), weights.dtype)
            for number in range(count):
                place = np.arange(filters) // own % count == number
                made[place, number * channels : (number + 1) * channels] = weights[place]
            return made
    return None


def stays(node: Node) -> bool:
    """Returns whether the node is a convolution of integers in which only the data has a zero point."""
    return node.op_type == "ConvInteger" and len(node.input) == 3


RULES: dict[str, Any] = {"Conv": conv, "ConvInteger": conv_integer}
"""Rules for standard operators."""
