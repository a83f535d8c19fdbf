"""Rewrites operators on quantised tensors in float: QLinearConv and others, of ONNX and of ONNX Runtime."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from autosched_tvm.compile.frontend import few_bits
from autosched_tvm.compile.frontend.dequantisation import Dequantiser, Rule, dynamically
from autosched_tvm.compile.frontend.integer_convolutions import convolution
from autosched_tvm.compile.frontend.integer_products import dynamic, multiplied, product
from autosched_tvm.compile.frontend.node_builder import Array, Node, Unknown, attributes, optional


def _qlinear_conv(state: Dequantiser, node: Node) -> None:
    value, scale, zero, weight, weight_scale, weight_zero, out_scale, out_zero = node.input[:8]
    given = attributes(node)
    last = given.pop("channels_last", 0)
    inputs = [state.real(value, scale, zero), state.real(weight, weight_scale, weight_zero, 0)]
    rank = state.emit.rank(weight) if last else 0
    if last:
        inputs[0] = state.emit.make("Transpose", [inputs[0]], perm=_channels_first(rank))
    if bias := optional(node, 8):
        inputs.append(_bias(state, bias, scale, weight_scale))
    found = convolution(state, inputs[0], inputs[1], inputs[2] if inputs[2:] else "", given)
    real = found or state.emit.make("Conv", inputs, **given)
    if last:
        real = state.emit.make("Transpose", [real], perm=_channels_last(rank))
    state.quantise(real, out_scale, out_zero, node.output[0])


def _bias(state: Dequantiser, bias: str, *scales: str) -> str:
    """Returns the int32 bias of a product, whose scale is the product of the operands' scales."""
    emit = state.emit
    array, factors = emit.array(bias), [emit.array(scale) for scale in scales]
    if array is not None and all(factor is not None for factor in factors):
        step: Array = np.ones((), "float64")
        for factor in factors:
            step = step * np.asarray(factor, "float64").reshape(-1)
        return emit.constant((array.astype("float64") * step).astype("float32"))
    value = emit.to_float(bias)
    for scale in scales:
        value = emit.make("Mul", [value, emit.to_float(scale)])
    return value


def _qlinear_mat_mul(state: Dequantiser, node: Node) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.input[:8]
    operands = [state.real(a, a_scale, a_zero, -2), state.real(b, b_scale, b_zero, -1)]
    state.quantise(multiplied(state, *operands), scale, zero, node.output[0])


def _qgemm(state: Dequantiser, node: Node) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero = node.input[:6]
    given = attributes(node)
    transposed = given.get("transB", 0)
    operands = [state.real(a, a_scale, a_zero), state.real(b, b_scale, b_zero, 0 if transposed else 1)]
    bias = optional(node, 6)
    if bias:
        operands.append(_bias(state, bias, a_scale, b_scale))
    scale, zero = optional(node, 7), optional(node, 8)
    alpha = given.get("alpha", 1.0)  # the scale of the bias includes this factor
    plain = alpha == 1.0 and not given.get("transA")
    real = (product(state, *operands[:2], transposed=bool(transposed)) if plain else None) or ""
    if real and bias:
        real = state.emit.make("Add", [real, operands[2]])
    real = real or state.emit.make("Gemm", operands, beta=alpha, **given)
    if scale:
        state.quantise(real, scale, zero, node.output[0])
    else:
        state.emit.alias(real, node.output[0])


def _binary(operator: str) -> Rule:
    def rule(state: Dequantiser, node: Node) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, scale = node.input[:7]
        real = state.emit.make(operator, [state.real(a, a_scale, a_zero), state.real(b, b_scale, b_zero)])
        state.quantise(real, scale, optional(node, 7), node.output[0], _kind(state, a))

    return rule


def _unary(operator: str) -> Rule:
    def rule(state: Dequantiser, node: Node) -> None:
        value, scale, zero, out_scale = node.input[:4]
        given = attributes(node)
        real = state.emit.make(operator, [state.real(value, scale, zero)], **given)
        state.quantise(real, out_scale, optional(node, 4), node.output[0], _kind(state, value))

    return rule


def _softmax(state: Dequantiser, node: Node) -> None:
    value, scale, zero, out_scale = node.input[:4]
    given = attributes(node)
    axis = int(given.get("axis", -1))
    rank = len(state.emit.shapes.get(value, ()))
    if int(given.get("opset", state.emit.opset)) < 13 and axis not in (-1, rank - 1):
        raise Unknown("it flattens its input, whose rank is not known")
    real = state.real(value, scale, zero)
    real = state.emit.softmax(real) if axis in (-1, rank - 1) else state.emit.make(
        "Softmax", [real], axis=axis
    )  # fmt: skip
    state.quantise(real, out_scale, optional(node, 4), node.output[0], _kind(state, value))


def _concat(state: Dequantiser, node: Node) -> None:
    scale, zero, *parts = node.input
    reals = [state.real(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    state.quantise(state.emit.make("Concat", reals, **attributes(node)), scale, zero, node.output[0])


def _global_average_pool(state: Dequantiser, node: Node) -> None:
    value, scale, zero, out_scale, out_zero = node.input[:5]
    real = state.real(value, scale, zero)
    if attributes(node).get("channels_last", 0):
        axes = list(range(1, state.emit.rank(value) - 1))
        real = state.emit.reduce("ReduceMean", real, axes)
    else:
        real = state.emit.make("GlobalAveragePool", [real])
    state.quantise(real, out_scale, out_zero, node.output[0])


def _average_pool(state: Dequantiser, node: Node) -> None:
    value, scale, zero, out_scale = node.input[:4]
    given = attributes(node)
    last = given.pop("channels_last", 0)
    rank = len(given["kernel_shape"]) + 2
    real = state.real(value, scale, zero)
    if last:
        real = state.emit.make("Transpose", [real], perm=_channels_first(rank))
    real = state.emit.make("AveragePool", [real], **given)
    if last:
        real = state.emit.make("Transpose", [real], perm=_channels_last(rank))
    state.quantise(real, out_scale, optional(node, 4), node.output[0], _kind(state, value))


def _reduce_mean(state: Dequantiser, node: Node) -> None:
    value, scale, zero, out_scale = node.input[:4]
    given = attributes(node)
    real = state.real(value, scale, zero)
    real = state.emit.reduce("ReduceMean", real, given.get("axes"), keep=bool(given.get("keepdims", 1)))
    state.quantise(real, out_scale, optional(node, 4), node.output[0], _kind(state, value))


def _where(state: Dequantiser, node: Node) -> None:
    condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = node.input[:9]
    real = state.emit.make("Where", [condition, state.real(x, x_scale, x_zero), state.real(y, y_scale, y_zero)])
    state.quantise(real, scale, zero, node.output[0])


def _mat_mul_integer_to_float(state: Dequantiser, node: Node) -> None:
    a, b, a_scale, b_scale = node.input[:4]
    operands = [state.real(a, a_scale, optional(node, 4), -2), state.real(b, b_scale, optional(node, 5), -1)]
    _with_bias(state, multiplied(state, *operands), optional(node, 6), node.output[0])


def _dynamic_quantize_mat_mul(state: Dequantiser, node: Node) -> None:
    a, b, b_scale = node.input[:3]
    if (real := dynamic(state, a, b, b_scale, optional(node, 3))) is not None:
        _with_bias(state, real, optional(node, 4), node.output[0])
        return
    operands = [dynamically(state, a), state.real(b, b_scale, optional(node, 3), -1)]
    _with_bias(state, state.emit.make("MatMul", operands), optional(node, 4), node.output[0])


def _with_bias(state: Dequantiser, value: str, bias: str, output: str) -> None:
    if bias:
        state.emit.make("Add", [value, bias], output)
    else:
        state.emit.alias(value, output)


def _dynamic_quantize_lstm(state: Dequantiser, node: Node) -> None:
    """The weights are transposed relative to LSTM, and the hidden state is rounded in each step."""
    emit = state.emit
    if state.integers:
        emit.keep(node)
        return
    names = [optional(node, i) for i in range(12)]
    weights = [
        _lstm_weight(state, names[1], names[8], names[9]),
        _lstm_weight(state, names[2], names[10], names[11]),
    ]
    inputs = [dynamically(state, names[0]), *weights, *names[3:8]]
    while inputs and not inputs[-1]:
        inputs.pop()
    emit.several("LSTM", inputs, node.output, **attributes(node))


def _lstm_weight(state: Dequantiser, name: str, scale: str, zero: str) -> str:
    """Returns a weight [direction, input, gates] as float, in LSTM's order [direction, gates, input]."""
    arrays = [state.emit.array(one) for one in (name, scale, zero)]
    if any(array is None for array in arrays):
        raise Unknown("its weights are not constant")
    weight, scales, zeros = (np.asarray(array) for array in arrays)
    directions = weight.shape[0]
    scales, zeros = (values.reshape(directions, 1, -1) for values in (scales, zeros))
    real = (weight.astype("float32") - zeros.astype("float32")) * scales.astype("float32")
    return state.emit.constant(np.swapaxes(real, 1, 2))


def _kind(state: Dequantiser, like: str) -> int:
    """Returns the element type of a result, which is that of an operand."""
    return state.emit.element_type(like) or TensorProto.UINT8


def _channels_first(rank: int) -> Sequence[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _channels_last(rank: int) -> Sequence[int]:
    return [0, *range(2, rank), 1]


STANDARD_RULES: dict[str, Rule] = {"QLinearConv": _qlinear_conv, "QLinearMatMul": _qlinear_mat_mul}

MICROSOFT_RULES: dict[str, Any] = {
    "QLinearConv": _qlinear_conv,
    "QGemm": _qgemm,
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSoftmax": _softmax,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_average_pool,
    "QLinearAveragePool": _average_pool,
    "QLinearReduceMean": _reduce_mean,
    "QLinearWhere": _where,
    "MatMulIntegerToFloat": _mat_mul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantize_mat_mul,
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    "MatMulNBits": few_bits.mat_mul_n_bits,
}
"""Operators of ONNX Runtime's own domain."""
