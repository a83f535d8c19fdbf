"""Rewrites a quantised network in float operators: weights are dequantised, and activations are not rounded.

A quantised tensor q represents the real numbers (q - zero point) * scale. The rewrite carries these numbers:
QuantizeLinear becomes a clip to the range of its type (often equal to a Relu), the operators between compute in
float32, and DequantizeLinear disappears. Where the network needs the integers, at an output or in an operator without a
rule here, they are made by rounding, as ONNX defines it.

Each value has one meaning (meanings.py), from which the rules derive the meanings of the values that follow. The form
`Form.ROUNDED` serves comparisons only.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

import numpy as np
from onnx import TensorProto, helper

from autosched_tvm.compile.frontend.meanings import Bias, Levels, Meaning, Product, Quantised, Real, Scale, Weights
from autosched_tvm.compile.frontend.node_builder import Array, Node, NodeBuilder, Unknown, attributes, optional

MICROSOFT = "com.microsoft"
STANDARD = ("", "ai.onnx")

RANGES = {
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
}
"""Range of each type that QuantizeLinear produces. 8-bit float types are not rewritten."""
UNSIGNED_MAXIMA = 12
"""First opset in which Max, Min and MaxPool accept 8-bit integers."""
SIGNS = {TensorProto.UINT8: 0, TensorProto.INT8: 128}
"""Offset that turns an 8-bit type into an unsigned one."""


class Form(Enum):
    """The result of the rewrite."""

    REAL = "real numbers"
    ROUNDED = "real numbers, rounded wherever the quantised network rounds"
    INTEGERS = "real numbers, with products of 8-bit integers"


M = TypeVar("M", bound=Meaning)


class Dequantiser:
    """State of the rewrite of one graph, whose nodes are visited in order."""

    def __init__(self, emitter: NodeBuilder, form: Form) -> None:
        self.emit, self.form = emitter, form
        self._meanings: dict[str, Meaning] = {}

    @property
    def integers(self) -> bool:
        """Whether products of 8-bit integers are kept."""
        return self.form is Form.INTEGERS

    @property
    def rounded(self) -> bool:
        """Whether activations are rounded wherever the quantised network rounds."""
        return self.form is Form.ROUNDED

    # Meanings -----------------------------------------------------------------------------------------------

    def meaning(self, name: str, kind: type[M]) -> M | None:
        """Returns the meaning of a value, if it is of this kind."""
        return found if isinstance(found := self._meanings.get(name), kind) else None

    def note(self, name: str, meaning: Meaning) -> None:
        """Records the meaning of a value."""
        self._forget(name)
        self._meanings[name] = meaning
        if isinstance(meaning, Quantised):
            self._real_of(meaning.real).forms[name] = meaning

    def _real_of(self, name: str) -> Real:
        """Returns the meaning of a float tensor that quantised tensors represent."""
        if (known := self.meaning(name, Real)) is None:
            known = self._meanings[name] = Real()
        return known

    def _forget(self, name: str) -> None:
        if isinstance(old := self._meanings.pop(name, None), Quantised):
            self._real_of(old.real).forms.pop(name, None)

    def forget(self, node: Node) -> None:
        """Removes what a rule recorded about a node's outputs before the rule raised Unknown."""
        for name in node.output:
            self._forget(name)

    def factors_of(self, name: str) -> tuple[str, ...]:
        """Returns the tensors whose product a tensor is."""
        return (name,) if (scale := self.meaning(name, Scale)) is None else scale.factors

    # Real numbers of quantised tensors ----------------------------------------------------------------------

    def real(self, name: str, scale: str, zero: str, axis: int = 1) -> str:
        """Returns the float tensor that a quantised tensor represents when it is read with this scale and zero
        point."""
        known = self.meaning(name, Quantised)
        if known and self._same(known.scale, scale) and self._same_zero(known.zero, zero):
            return known.real
        emit = self.emit
        array, scales = emit.array(name), emit.array(scale)
        zeros = emit.array(zero) if zero else np.zeros((), "int32")
        if array is not None and scales is not None and zeros is not None:
            made = emit.constant(dequantised(array, scales, zeros, axis))
            if self.integers and (found := without_zero_point(array, scales, zeros, axis)) is not None:
                self.note(made, found)
            return made
        kind = emit.element_type(name)
        value = emit.to_float(name)
        if self.integers and kind in SIGNS and scales is not None and zeros is not None and scales.size == 1:
            moved = emit.make("Add", [value, emit.floats(SIGNS[kind])])
            levels = emit.make("Cast", [moved], to=TensorProto.UINT8) if SIGNS[kind] else name
            real = self.of_levels(Levels(levels, int(zeros.ravel()[0]) + SIGNS[kind], float(scales.ravel()[0])))
            self.note(name, Quantised(real, scale, zero, kind))
            return real
        if zero and (zeros is None or np.any(zeros)):
            value = emit.make("Sub", [value, emit.to_float(self._along(zero, axis, name))])
        return emit.make("Mul", [value, emit.to_float(self._along(scale, axis, name))])

    def levels_of(self, real: str) -> Levels | None:
        """Returns the integers that represent `real`, as operand of a product; None unless they have 8 bits and one
        scale."""
        known = self.meaning(self.emit.resolve(real), Real)
        if not self.integers or known is None or known.first is None:
            return None
        if known.levels is None:
            known.levels = self._stored(known.first)
        return known.levels

    def _stored(self, known: Quantised) -> Levels | None:
        """Makes the integers of a tensor, with 128 added to signed ones."""
        emit = self.emit
        scale, zeros = emit.array(known.scale), emit.array(known.zero) if known.zero else np.zeros(1, "uint8")
        if known.kind not in SIGNS or scale is None or zeros is None or scale.size != 1:
            return None
        zero = int(zeros.ravel()[0]) + SIGNS[known.kind]
        step = float(np.float32(scale.ravel()[0]))
        levels = emit.round(emit.make("Mul", [known.real, emit.floats(1 / step)]))  # a division takes ten times as long
        bounded = emit.clip(emit.make("Add", [levels, emit.floats(zero)]), *RANGES[TensorProto.UINT8])
        name = emit.make("Cast", [bounded], to=TensorProto.UINT8)
        emit.types[name] = TensorProto.UINT8
        return Levels(name, zero, step)

    def of_levels(self, levels: Levels, output: str = "") -> str:
        """Returns the real numbers that integers represent."""
        emit = self.emit
        whole = emit.make("Cast", [levels.name], to=TensorProto.FLOAT)
        if levels.zero:
            whole = emit.make("Sub", [whole, emit.floats(levels.zero)])
        real = emit.make("Mul", [whole, emit.floats(levels.scale)], output)
        self._real_of(real).levels = levels
        return real

    def quantise(self, real: str, scale: str, zero: str, output: str, kind: int = 0, axis: int = 1) -> None:
        """Quantises a float tensor into `output`: records what `output` represents, and makes the integers if they are
        needed."""
        emit = self.emit
        kind = kind or (emit.element_type(zero) if zero else TensorProto.UINT8)
        real = emit.resolve(real)
        bounded = self._bounded(real, scale, zero, kind, axis)
        levels = None
        if self.integers and bounded != real and (levels := self._stored(Quantised(real, scale, zero, kind))):
            bounded = self.of_levels(levels)  # integers take a quarter of the memory
        if real in emit.shapes:
            emit.shapes[bounded] = emit.shapes[real]
        self.note(output, Quantised(bounded, scale, zero, kind, axis))
        emit.types[output] = kind
        if levels and kind == TensorProto.UINT8:
            emit.make("Identity", [levels.name], output)
        else:
            self._round(bounded, scale, zero, kind, axis, output)

    def _bounded(self, real: str, scale: str, zero: str, kind: int, axis: int) -> str:
        """Returns the float tensor clipped to the range of a quantised type."""
        emit = self.emit
        like, known = Quantised(real, scale, zero, kind), self.meaning(real, Real)
        if known is not None and any(self.alike(form, like) for form in known.forms.values()):
            return real  # it was clipped to this range before
        if self.rounded:
            levels = self._levels(real, scale, zero, kind, axis)
            if zero:
                levels = emit.make("Sub", [levels, emit.to_float(self._along(zero, axis, real))])
            return emit.make("Mul", [levels, emit.to_float(self._along(scale, axis, real))])
        low, high = RANGES[kind]
        scales, zeros = emit.array(scale), emit.array(zero) if zero else np.zeros((), "int32")
        if scales is not None and zeros is not None and scales.size == 1:
            step, middle = float(np.asarray(scales, "float32").ravel()[0]), int(zeros.astype("int64").ravel()[0])
            return emit.clip(real, float(np.float32(low - middle) * step), float(np.float32(high - middle) * step))
        factor = emit.to_float(self._along(scale, axis, real))
        start = emit.to_float(self._along(zero, axis, real)) if zero else emit.floats(0.0)
        least = emit.make("Mul", [emit.make("Sub", [emit.floats(low), start]), factor])
        most = emit.make("Mul", [emit.make("Sub", [emit.floats(high), start]), factor])
        return emit.make("Min", [emit.make("Max", [real, least]), most])

    def _levels(self, real: str, scale: str, zero: str, kind: int, axis: int) -> str:
        """Returns the integers of a quantised tensor, in float32."""
        emit = self.emit
        levels = emit.round(emit.make("Div", [real, emit.to_float(self._along(scale, axis, real))]))
        if zero:
            levels = emit.make("Add", [levels, emit.to_float(self._along(zero, axis, real))])
        return emit.clip(levels, *RANGES[kind])

    def _round(self, real: str, scale: str, zero: str, kind: int, axis: int, output: str) -> None:
        self.emit.make("Cast", [self._levels(real, scale, zero, kind, axis)], output, to=kind)

    def _along(self, values: str, axis: int, like: str) -> str:
        """Returns a vector of scales or zero points in the shape that broadcasts along an axis."""
        emit = self.emit
        array, shape = emit.array(values), emit.shapes.get(values, ())
        if array is not None and array.size == 1:
            return values if array.ndim == 0 else emit.constant(array.reshape(()))
        if array is None and (len(shape) != 1 or shape == (1,) or (axis >= 0 and like not in emit.shapes)):
            return values
        after = -axis - 1 if axis < 0 else emit.rank(like) - axis - 1
        if array is not None:
            return emit.constant(array.reshape((-1,) + (1,) * after))
        made = emit.make("Reshape", [values, emit.integers(-1, *[1] * after)])
        emit.types[made] = emit.element_type(values)
        return made

    def alike(self, one: Quantised, other: Quantised) -> bool:
        """Returns whether two tensors are quantised in the same way."""
        return one.kind == other.kind and self._same(one.scale, other.scale) and self._same_zero(one.zero, other.zero)

    def _same(self, one: str, other: str) -> bool:
        if one == other:
            return True
        a, b = self.emit.array(one), self.emit.array(other)
        return a is not None and b is not None and a.size == b.size and bool(np.all(a.ravel() == b.ravel()))

    def _same_zero(self, one: str, other: str) -> bool:
        def values(name: str) -> Array | None:
            return self.emit.array(name) if name else np.zeros(1, "int32")

        a, b = values(one), values(other)
        if one == other:
            return True
        return a is not None and b is not None and bool(np.all(a.astype("int64") == b.astype("int64").ravel()))

    # Integer products ---------------------------------------------------------------------------------------

    def without_zero(self, name: str, zero: str, axis: int) -> tuple[str, tuple[str, ...]]:
        """Returns an integer operand of a product minus its zero point, as float, and the scales by which it is
        divided."""
        emit = self.emit
        known = self.meaning(name, Quantised)
        if known and self._same_zero(known.zero, zero) and emit.array(known.scale) is None:
            return known.real, (known.scale,)
        array, zeros = emit.array(name), emit.array(zero) if zero else np.zeros((), "int32")
        if array is not None and zeros is not None:
            return emit.constant(dequantised(array, np.ones((), "float32"), zeros, axis)), ()
        value = emit.to_float(name)
        if zero and (zeros is None or np.any(zeros)):
            value = emit.make("Sub", [value, emit.to_float(self._along(zero, axis, name))])
        return value, ()

    def accumulate(self, operator: str, operands: tuple[str, str], scales: tuple[str, ...], node: Node) -> None:
        """Records an int32 product. It is only computed where it is not multiplied by its scales later."""
        emit, output = self.emit, node.output[0]
        given = attributes(node)
        real = emit.make(operator, operands, **given)
        self.note(output, Product(real, scales, operator, operands, given))
        for scale in scales:
            real = emit.make("Div", [real, scale])
        emit.types[output] = TensorProto.INT32
        emit.make("Cast", [emit.round(real) if scales else real], output, to=TensorProto.INT32)

    def scaled(self, product: Product, factors: Sequence[str]) -> str:
        """Returns a product's real numbers times these factors, which go into its constant weights where possible."""
        emit = self.emit
        weight, left = emit.array(product.operands[1]), []
        for factor in factors:
            array = emit.array(factor)
            spread = None if weight is None or array is None else _per_output(product.operator, weight, array)
            if weight is not None and spread is not None:
                weight = weight * spread
            else:
                left.append(factor)
        value = product.real
        if len(left) < len(factors):
            operands = [product.operands[0], emit.constant(np.asarray(weight, "float32"))]
            value = emit.make(product.operator, operands, **product.attributes)
        for factor in left:
            value = emit.make("Mul", [value, factor])
        return value


def dequantised(array: Array, scale: Array, zero: Array, axis: int, block: int = 0) -> Array:
    """Returns (array - zero) * scale in float32. The scale is per tensor, per index of an axis, or per block of it."""
    scale, zero = np.asarray(scale, "float32"), np.asarray(zero)

    def spread(values: Array) -> Array:
        if values.size == 1:
            return values.reshape(())
        if block:
            return np.take(np.repeat(values, block, axis), np.arange(array.shape[axis]), axis)
        return values if values.ndim > 1 else _spread(values, axis, array.ndim)

    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4:  # float32 cannot represent each int32
        level = array.astype("float64") - spread(zero.astype("float64"))
        return (level * spread(scale).astype("float64")).astype("float32")
    level = array.astype("float32") - spread(zero.astype("float32"))
    return (level * spread(scale)).astype("float32")


def _spread(values: Array, axis: int, rank: int) -> Array:
    """Returns a value, or one value for each index of an axis, in the shape that broadcasts to a tensor of this
    rank."""
    at = axis % rank if rank else 0
    return values.reshape(()) if values.size == 1 else values.reshape((-1,) + (1,) * (rank - at - 1))


def without_zero_point(array: Array, scale: Array, zero: Array, axis: int) -> Weights | None:
    """Returns constant integers minus their zero point; None where the differences exceed int8."""
    if array.dtype not in ("int8", "uint8"):
        return None
    numbers = array.astype("int16") - _spread(zero.astype("int16"), axis, array.ndim)
    if numbers.min(initial=0) < -128 or numbers.max(initial=0) > 127:
        return None
    return Weights(numbers.astype("int8"), np.asarray(scale, "float32"), axis)


def _per_output(operator: str, weight: Array, factor: Array) -> Array | None:
    """Returns a factor of a product's results as a factor of its weights; None unless it is one for each output
    channel."""
    if factor.size == 1:
        return factor.reshape(())
    if operator == "MatMul":
        return factor.reshape(-1) if factor.shape[-1] == factor.size == weight.shape[-1] else None
    after = weight.ndim - 2
    channels_only = factor.ndim > after and all(size == 1 for size in factor.shape[factor.ndim - after :])
    return factor.reshape((-1,) + (1,) * (after + 1)) if channels_only and factor.size == weight.shape[0] else None


# Rules ------------------------------------------------------------------------------------------------------

Rule = Callable[[Dequantiser, Node], None]


def _quantize_linear(state: Dequantiser, node: Node) -> None:
    given, emit = attributes(node), state.emit
    value, scale, zero = node.input[0], node.input[1], optional(node, 2)
    if given.get("block_size"):
        raise Unknown("activations are quantised by blocks")
    kind = int(given.get("output_dtype", 0)) or (emit.element_type(zero) if zero else TensorProto.UINT8)
    if kind not in RANGES:
        raise Unknown("its type is no integer of at most 16 bits")
    array, scales = emit.array(value), emit.array(scale)
    zeros = emit.array(zero) if zero else np.zeros((), "int8")
    axis = int(given.get("axis", 1))
    # constants are weights, which are rounded in advance
    if array is not None and scales is not None and zeros is not None:
        emit.constant(_levels_of(array, scales, zeros, kind, axis), node.output[0])
        return
    if emit.element_type(value) in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        value = emit.to_float(value)
    emit.compute_in_float32()
    state.quantise(value, scale, zero, node.output[0], kind, axis)


def _levels_of(array: Array, scale: Array, zero: Array, kind: int, axis: int) -> Array:
    def spread(values: Array) -> Array:
        return _spread(np.asarray(values, "float32"), axis, array.ndim)

    levels = np.clip(np.rint(array.astype("float32") / spread(scale)) + spread(zero), *RANGES[kind])
    return levels.astype(helper.tensor_dtype_to_np_dtype(kind))


def _dequantize_linear(state: Dequantiser, node: Node) -> None:
    given = attributes(node)
    emit = state.emit
    value, scale, zero = node.input[0], node.input[1], optional(node, 2)
    axis, block = int(given.get("axis", 1)), int(given.get("block_size", 0))
    if emit.element_type(value) not in (*RANGES, TensorProto.INT32, 0):
        raise Unknown("its type is no integer of at most 16 bits")
    half = emit.element_type(scale) in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if block:
        array, scales = emit.array(value), emit.array(scale)
        zeros = emit.array(zero) if zero else np.zeros((), "int32")
        if array is None or scales is None or zeros is None:
            raise Unknown("activations are quantised by blocks")
        real = emit.constant(dequantised(array, scales, zeros, axis, block))
    else:
        real = state.real(value, scale, zero, axis)
    if half:
        emit.make("Cast", [real], node.output[0], to=emit.element_type(scale))
    else:
        emit.alias(real, node.output[0])
        if (weights := state.meaning(real, Weights)) is not None:  # constants have no first name
            state.note(node.output[0], weights)


def _dynamic_quantize_linear(state: Dequantiser, node: Node) -> None:
    """The scale comes from the range of the values, so nothing is clipped. Values are rounded only in the rounded
    form."""
    emit = state.emit
    value, (output, scale, zero) = node.input[0], node.output
    low = emit.clip(emit.reduce("ReduceMin", value, None, keep=False), -math.inf, 0.0)
    high = emit.clip(emit.reduce("ReduceMax", value, None, keep=False), 0.0, math.inf)
    width = emit.make("Sub", [high, low])
    empty = emit.make("Equal", [width, emit.floats(0.0)])  # all values are 0: each scale represents them
    emit.make("Where", [empty, emit.floats(1.0), emit.make("Div", [width, emit.floats(255.0)])], scale)
    start = emit.clip(emit.round(emit.make("Div", [emit.make("Neg", [low]), scale])), 0.0, 255.0)
    emit.make("Cast", [start], zero, to=TensorProto.UINT8)
    emit.types |= {zero: TensorProto.UINT8, output: TensorProto.UINT8, scale: TensorProto.FLOAT}
    levels = emit.clip(emit.make("Add", [emit.round(emit.make("Div", [value, scale])), start]), 0.0, 255.0)
    emit.make("Cast", [levels], output, to=TensorProto.UINT8)
    real = emit.make("Mul", [emit.make("Sub", [levels, start]), scale]) if state.rounded else value
    state.note(output, Quantised(real, scale, zero, TensorProto.UINT8))


def dynamically(state: Dequantiser, value: str) -> str:
    """Returns a float tensor that an operator quantises by itself: rounded in the rounded form."""
    if not state.rounded:
        return value
    emit = state.emit
    outputs = [emit.fresh(word) for word in ("levels", "scale", "zero")]
    _dynamic_quantize_linear(state, helper.make_node("DynamicQuantizeLinear", [value], outputs))
    known = state.meaning(outputs[0], Quantised)
    assert known is not None
    return known.real


def _conv_integer(state: Dequantiser, node: Node) -> None:
    left, scales = state.without_zero(node.input[0], optional(node, 2), 1)
    right, more = state.without_zero(node.input[1], optional(node, 3), 0)
    state.accumulate("Conv", (left, right), (*scales, *more), node)


def _mat_mul_integer(state: Dequantiser, node: Node) -> None:
    left, scales = state.without_zero(node.input[0], optional(node, 2), -2)
    right, more = state.without_zero(node.input[1], optional(node, 3), -1)
    state.accumulate("MatMul", (left, right), (*scales, *more), node)


def _cast(state: Dequantiser, node: Node) -> None:
    """A cast to float keeps a product of integers."""
    known = state.meaning(node.input[0], Product)
    if known and attributes(node)["to"] == TensorProto.FLOAT:
        state.note(node.output[0], known)
    _rounded(state, node)


def _div(state: Dequantiser, node: Node) -> None:
    """A constant divided by a run-time scale may be a bias. The rounded form rounds the quotient."""
    value, scale = node.input
    emit = state.emit
    if not state.rounded and emit.array(value) is not None and emit.array(scale) is None:
        state.note(node.output[0], Bias(value, state.factors_of(scale)))
    emit.keep(node)


def _rounded(state: Dequantiser, node: Node) -> None:
    """A bias that is rounded and cast is still a bias."""
    if (bias := state.meaning(node.input[0], Bias)) is not None:
        state.note(node.output[0], bias)
    state.emit.keep(node)


def _reshape(state: Dequantiser, node: Node) -> None:
    bias = state.meaning(node.input[0], Bias)
    if bias is None:
        _moved(state, node)
        return
    shaped = state.emit.make("Reshape", [bias.real, *node.input[1:]], **attributes(node))
    state.note(node.output[0], Bias(shaped, bias.factors))
    state.emit.keep(node)


def _add(state: Dequantiser, node: Node) -> None:
    """A product of integers plus a bias of the same scale is still a product."""
    for product, other in (tuple(node.input), tuple(reversed(node.input))):
        known, bias = state.meaning(product, Product), state.meaning(other, Bias)
        if known is not None and bias is not None:
            state.note(node.output[0], replace(known, added=(*known.added, bias)))
    state.emit.keep(node)


def _mul(state: Dequantiser, node: Node) -> None:
    """A product of integers times its scales is a product of real numbers."""
    emit = state.emit
    for product, other in (tuple(node.input), tuple(reversed(node.input))):
        known = state.meaning(product, Product)
        if known is None or product == other:
            continue
        left = list(state.factors_of(other))
        if any(sorted(bias.factors) != sorted(left) for bias in known.added):
            continue
        if all(known.scales.count(scale) <= left.count(scale) for scale in known.scales):
            for scale in known.scales:
                left.remove(scale)
            value = state.scaled(known, left)
            for bias in known.added:
                value = emit.make("Add", [value, bias.real])
            emit.alias(value, node.output[0])
            return
    state.note(node.output[0], Scale(state.factors_of(node.input[0]) + state.factors_of(node.input[1])))
    emit.keep(node)


_MOVES = frozenset({
    "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
    "ReduceMax", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that only move or select elements of their first input. They apply to the real numbers alike."""


_LARGEST = frozenset({"MaxPool", "ReduceMax", "ReduceMin"})


def _moved(state: Dequantiser, node: Node) -> None:
    known = state.meaning(node.input[0], Quantised)
    if _moved_levels(state, node):
        return
    if known is None or not _is_one(state, known.scale) or len(node.output) != 1:
        state.emit.keep(node)
        return
    emit = state.emit
    moved = emit.make(node.op_type, [known.real, *node.input[1:]], **attributes(node))
    _as(state, node.output[0], moved, known)


def _moved_levels(state: Dequantiser, node: Node) -> bool:
    """Applies an operator that moves or selects elements to the integers in memory; returns whether it could."""
    emit, name = state.emit, node.input[0]
    known = state.meaning(name, Quantised)
    real = state.meaning(known.real if known else emit.resolve(name), Real)
    levels = real.levels if real else None
    like = known or (real.first if real else None)
    too_old = node.op_type in _LARGEST and emit.opset < UNSIGNED_MAXIMA
    if levels is None or like is None or len(node.output) > 1 or too_old:
        return False
    moved = emit.make(node.op_type, [levels.name, *node.input[1:]], **attributes(node))
    emit.types[moved] = TensorProto.UINT8
    found = state.of_levels(replace(levels, name=moved), "" if known else node.output[0])
    if known:
        _as(state, node.output[0], found, known)
    else:
        state.note(moved, replace(like, real=found))
    return True


def _max_pool(state: Dequantiser, node: Node) -> None:
    if len(node.output) > 1:
        state.emit.keep(node)
    else:
        _moved(state, node)


def _resize(state: Dequantiser, node: Node) -> None:
    """Resizes integers by copying (nearest). Interpolation would round differently."""
    if attributes(node).get("mode", b"nearest") == b"nearest":
        _moved(state, node)
    else:
        state.emit.keep(node)


def _pad(state: Dequantiser, node: Node) -> None:
    """The integer that pads the tensor represents a real number."""
    emit = state.emit
    known = state.meaning(node.input[0], Quantised)
    fill_name = optional(node, 2)
    fill = emit.array(fill_name) if fill_name else np.zeros((), "int32")
    if known is None or not _is_one(state, known.scale) or emit.opset < 11 or fill is None:
        emit.keep(node)
        return
    scale, zero = emit.array(known.scale), emit.array(known.zero) if known.zero else np.zeros((), "int32")
    if scale is None or zero is None:
        emit.keep(node)
        return
    value = emit.constant(dequantised(fill.reshape(()), scale, zero, 0))
    inputs = [known.real, node.input[1], value, *node.input[3:]]
    _as(state, node.output[0], emit.make("Pad", inputs, **attributes(node)), known)


def _split(state: Dequantiser, node: Node) -> None:
    known = state.meaning(node.input[0], Quantised)
    if known is None or not _is_one(state, known.scale):
        state.emit.keep(node)
        return
    outputs = [state.emit.fresh("part") for _ in node.output]
    state.emit.several("Split", [known.real, *node.input[1:]], outputs, **attributes(node))
    for output, part in zip(node.output, outputs, strict=True):
        _as(state, output, part, known)


def _concat(state: Dequantiser, node: Node) -> None:
    """Tensors with the same quantisation are concatenated as real numbers."""
    known = [state.meaning(name, Quantised) for name in node.input]
    first = known[0]
    if first is None or not _is_one(state, first.scale) or not all(k and state.alike(k, first) for k in known):
        state.emit.keep(node)
        return
    joined = state.emit.make("Concat", [k.real for k in known if k], **attributes(node))
    _as(state, node.output[0], joined, first)


def _as(state: Dequantiser, output: str, real: str, like: Quantised) -> None:
    state.note(output, Quantised(real, like.scale, like.zero, like.kind))
    state.emit.types[output] = like.kind
    state._round(real, like.scale, like.zero, like.kind, like.axis, output)


def _is_one(state: Dequantiser, scale: str) -> bool:
    array = state.emit.array(scale)
    return array is None or bool(array.size == 1)


_MOVING_RULES: dict[str, Rule] = dict.fromkeys(_MOVES, _moved)
RULES: dict[str, Rule] = _MOVING_RULES | {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "ConvInteger": _conv_integer,
    "MatMulInteger": _mat_mul_integer,
    "Cast": _cast,
    "Div": _div,
    "Floor": _rounded,
    "Round": _rounded,
    "Reshape": _reshape,
    "Add": _add,
    "Mul": _mul,
    "MaxPool": _max_pool,
    "Resize": _resize,
    "Pad": _pad,
    "Split": _split,
    "Concat": _concat,
}
"""Rules for standard operators, including those that carry integers without being quantised."""
