"""Products of a quantised network that are kept in 8-bit integers.

    y = (x_q w_q - zero_x sum(w_q)) scale_x scale_w

with the sum over each column of w_q, which is constant. The operators around them become float operators. Source: Jacob
et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (CVPR 2018),
section 2.3.
"""

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from autosched_tvm.compile.frontend import dequantisation
from autosched_tvm.compile.frontend.dequantisation import Dequantiser, without_zero_point
from autosched_tvm.compile.frontend.meanings import Weights
from autosched_tvm.compile.frontend.node_builder import Array, Node, attributes, optional


def product(state: Dequantiser, data: str, weights: str, *, transposed: bool = False, output: str = "") -> str | None:
    """Writes a product of real numbers in the integers that represent them; returns None where there are none of 8
    bits. `transposed`: the weights are [columns, depth]."""
    factors = _columns(state.meaning(state.emit.resolve(weights), Weights), transposed=transposed)
    if factors is None or (levels := state.levels_of(data)) is None:
        return None
    numbers, scales = factors
    sums = _sums(state, levels.name, numbers, levels.zero)
    step = levels.scale * scales.astype("float64")
    real = state.emit.make("Cast", [sums], to=TensorProto.FLOAT)
    return state.emit.make("Mul", [real, state.emit.constant(step.astype("float32"))], output)


def stays(node: Node) -> bool:
    """Returns whether the node is a product of integers without zero points, as this module writes it."""
    return node.op_type == "MatMulInteger" and len(node.input) == 2


def multiplied(state: Dequantiser, data: str, weights: str) -> str:
    """Writes a product of real numbers, in integers where possible."""
    return product(state, data, weights) or state.emit.make("MatMul", [data, weights])


def mat_mul(state: Dequantiser, node: Node) -> None:
    """Rule for a float product of quantised tensors."""
    if product(state, *node.input, output=node.output[0]) is None:
        state.emit.keep(node)


def gemm(state: Dequantiser, node: Node) -> None:
    """Rule for the same with a bias."""
    given = attributes(node)
    plain = not given.get("transA") and given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0
    bias = optional(node, 2)
    output = "" if bias else node.output[0]
    found = plain and product(
        state, node.input[0], node.input[1], transposed=bool(given.get("transB")), output=output
    )  # fmt: skip
    if not found:
        state.emit.keep(node)
    elif bias:
        state.emit.make("Add", [found, bias], node.output[0])


def mat_mul_integer(state: Dequantiser, node: Node) -> None:
    """Rule for a product of integers, which is kept where its weights are constant."""
    if state.integers and stays(node) and state.emit.element_type(node.input[1]) == TensorProto.INT8:
        state.emit.keep(node)
    elif not _integers_multiplied(
        state, node.input[0], node.input[1], optional(node, 2), optional(node, 3), node.output[0]
    ):
        dequantisation.RULES["MatMulInteger"](state, node)


def dynamic(state: Dequantiser, value: str, weights: str, scale: str, zero: str) -> str | None:
    """Writes the product of real numbers quantised by their own range, and quantised weights; returns None where it
    cannot be written in integers."""
    factor = state.emit.array(scale)
    if not state.integers or factor is None:
        return None
    levels, step, start = (state.emit.fresh(word) for word in ("levels", "scale", "zero"))
    dequantisation.RULES["DynamicQuantizeLinear"](
        state, helper.make_node("DynamicQuantizeLinear", [value], [levels, step, start])
    )
    if not _integers_multiplied(state, levels, weights, start, zero, output := state.emit.fresh("sums")):
        return None
    real = state.emit.make("Mul", [state.emit.make("Cast", [output], to=TensorProto.FLOAT), step])
    return state.emit.make("Mul", [real, state.emit.constant(np.asarray(factor, "float32"))])


def _integers_multiplied(
    state: Dequantiser, data: str, weights: str, start: str, zero: str, output: str
) -> bool:  # fmt: skip
    """Writes an int32 product of integers minus the zero point `start`, and constant weights minus theirs; returns
    whether that is possible."""
    array, zeros = state.emit.array(weights), state.emit.array(zero) if zero else np.zeros((), "int8")
    unsigned = state.emit.element_type(data) == TensorProto.UINT8
    if not state.integers or array is None or zeros is None or not unsigned:
        return False
    factors = _columns(without_zero_point(array, np.ones((), "float32"), zeros, -1), transposed=False)
    known = state.emit.array(start) if start else np.zeros((), "uint8")
    if factors is None or (known is not None and known.size != 1):
        return False
    numbers, _ = factors
    if known is not None:
        state.emit.alias(_sums(state, data, numbers, int(known.ravel()[0])), output)
        return True
    sums = _sums(state, data, numbers, 0)
    columns = state.emit.constant(numbers.sum(0, dtype="int32"))
    excess = state.emit.make("Mul", [state.emit.make("Cast", [start], to=TensorProto.INT32), columns])
    state.emit.make("Sub", [sums, excess], output)
    return True


def _columns(weights: Weights | None, *, transposed: bool) -> tuple[Array, Array] | None:
    """Returns weights [depth, columns] and their scale, for the tensor or for each column; None for other weights."""
    if weights is None or weights.numbers.ndim != 2:
        return None
    numbers, scales = (weights.numbers.T if transposed else weights.numbers), weights.scales
    along = 0 if transposed else 1
    if scales.size > 1 and weights.axis % 2 != along:
        return None
    return np.ascontiguousarray(numbers), scales.reshape(-1) if scales.size > 1 else scales.reshape(())


def _sums(state: Dequantiser, name: str, numbers: Array, start: int) -> str:
    """Writes the int32 product of weights, and unsigned integers minus their zero point."""
    sums = state.emit.make("MatMulInteger", [name, state.emit.constant(numbers)])
    if start:
        excess = start * numbers.astype("int64").sum(0)
        sums = state.emit.make("Sub", [sums, state.emit.constant(excess.astype("int32"))])
    return sums


RULES: dict[str, Any] = {"MatMul": mat_mul, "Gemm": gemm, "MatMulInteger": mat_mul_integer}
"""Rules for standard operators."""
