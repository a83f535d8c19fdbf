"""Convolutions kept in 8-bit integers, analogous to `integer_products`.

    y = sum((x_q - zero_x) w_q) scale_x scale_w

with the sum over the taps of a window. Padding counts as 0: the border of x_q is filled with its zero point.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from autosched_tvm.compile.frontend import dequantisation
from autosched_tvm.compile.frontend.dequantisation import Dequantiser
from autosched_tvm.compile.frontend.node_builder import Node, attributes, optional

RANK = 4
"""Number of dimensions of images and of weights."""


def convolution(
    state: Dequantiser, data: str, weights: str, bias: str, given: Mapping[str, Any], output: str = ""
) -> str | None:  # fmt: skip
    """Writes a convolution of real numbers in the integers that represent them; returns None where there are none of 8
    bits, and for groups of several channels. `given`: attributes of Conv."""
    emit = state.emit
    known = state.weights.get(emit.resolve(weights))
    if known is None or known.numbers.ndim != RANK or (known.scales.size > 1 and known.axis != 0):
        return None
    groups = given.get("group", 1)
    depthwise = known.numbers.shape[:2] == (groups, 1)
    if groups > 1 and not depthwise:
        return None
    if (levels := state.levels_of(data)) is None:
        return None
    zero = emit.constant(np.asarray(levels.zero, "uint8"))
    sums = emit.make("ConvInteger", [levels.name, emit.constant(known.numbers), zero], **given)
    scales = np.asarray(levels.scale * known.scales.astype("float64"), "float32")
    real = emit.make("Cast", [sums], to=TensorProto.FLOAT)
    step = emit.constant(scales.reshape(()) if scales.size == 1 else scales.reshape(1, -1, 1, 1))
    if not bias:
        return emit.make("Mul", [real, step], output)
    array = emit.array(bias)
    shift = emit.constant(array.reshape(1, -1, 1, 1)) if array is not None else emit.unsqueeze(bias, 0, 2, 3)
    return emit.make("Add", [emit.make("Mul", [real, step]), shift], output)


def conv(state: Dequantiser, node: Node) -> None:
    """Rule for a float convolution of quantised tensors."""
    made = convolution(state, node.input[0], node.input[1], optional(node, 2), attributes(node), node.output[0])
    if made is None:
        state.emit.keep(node)


def conv_integer(state: Dequantiser, node: Node) -> None:
    """Rule for a convolution of integers, which is kept in the form that this module writes."""
    weights, zero = (state.emit.array(optional(node, i)) for i in (1, 2))
    if state.integers and stays(node) and weights is not None and zero is not None and weights.dtype == np.int8:
        state.emit.keep(node)
    else:
        dequantisation.RULES["ConvInteger"](state, node)


def stays(node: Node) -> bool:
    """Returns whether the node is a convolution of integers in which only the data has a zero point."""
    return node.op_type == "ConvInteger" and len(node.input) == 3


RULES: dict[str, Any] = {"Conv": conv, "ConvInteger": conv_integer}
"""Rules for standard operators."""
