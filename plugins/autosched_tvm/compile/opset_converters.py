"""Converters for operator versions that TVM's importer lacks, or on which it spends seconds."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import tvm
from onnx import TensorProto, helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autosched_tvm.tvm_types import BlockBuilder, Expr

Convert = Callable[..., Any]


class AnyVersion(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]  # TVM has no types
    """A converter of our own, `_convert`, for all versions of an operator."""

    @classmethod
    def get_converter(cls, _opset: int) -> Convert:
        """Returns the converter for any version."""
        return cls._convert  # a subclass has it


def _slice(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """Before version 10 the bounds were attributes."""
    if "starts" not in attributes:
        return convert(builder, inputs, attributes, params)
    starts, ends = attributes["starts"], attributes["ends"]
    bounds = [starts, ends, attributes.get("axes", range(len(starts)))]
    constants = [relax.const(np.array(list(bound), "int64")) for bound in bounds]
    return convert(builder, _inputs(inputs[0], *constants), attributes, params)


def _resize(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """Version 10 has two inputs, and samples as Upsample does. Later versions may have an empty input, which means
    omitted."""
    if len(inputs) > 2:
        return convert(builder, _inputs(*(None if _is_empty(value) else value for value in inputs)), attributes, params)
    return convert(builder, _inputs(inputs[0], None, inputs[1]), attributes | _OLD_SAMPLING, params)


def _upsample(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """Predecessor of Resize. The scales are an attribute before version 9, and an input since."""
    given = attributes.get("scales")
    scales = inputs[1] if given is None else relax.const(np.array(given, "float32"))
    rest = {name: value for name, value in attributes.items() if name != "scales"}
    return convert(builder, _inputs(inputs[0], None, scales), rest | _OLD_SAMPLING, params)


def _clip(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """TVM compiles and runs a kernel for each constant bound to see whether it is a number."""
    bounds = [inputs[i] if len(inputs) > i else None for i in (1, 2)]
    if {"min", "max"} & attributes.keys() or any(b is not None and not _is_number(b) for b in bounds):
        return convert(builder, inputs, attributes, params)
    value = inputs[0]
    for bound, function, nothing in zip(bounds, (relax.op.maximum, relax.op.minimum), (-np.inf, np.inf), strict=True):
        number = None if bound is None else bound.value.numpy().reshape(())
        if number is not None and number == number and number != nothing:  # a NaN or infinite bound has no effect
            value = builder.emit(function(value, relax.const(number, str(value.ty.dtype))))
    return value


def _gather(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """TVM compiles and runs three kernels to make constant indices positive."""
    data, indices = inputs[0], inputs[1]
    if isinstance(data, tvm.ir.GenericConst | relax.ShapeExpr) or not isinstance(indices, tvm.ir.GenericConst):
        return convert(builder, inputs, attributes, params)
    axis = int(attributes.get("axis", 0))
    extent = data.ty.shape[axis] if data.ty.shape is not None else None
    if not isinstance(extent, tvm.tirx.IntImm):
        return convert(builder, inputs, attributes, params)
    numbers = indices.value.numpy()
    return relax.op.take(data, relax.const(np.where(numbers < 0, numbers + int(extent), numbers), "int64"), axis)


def _is_number(value: Expr) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and all(int(extent) == 1 for extent in value.value.shape)


def _cast(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """TVM checks whether a number fits into the type; it does not recognise a value that was clipped before."""
    made = builder.lookup_binding(inputs[0]) if isinstance(inputs[0], relax.Var) else None
    bounded = getattr(getattr(made, "op", None), "name", "") in ("relax.minimum", "relax.maximum", "relax.clip")
    if bounded and attributes["to"] in _BYTES:
        return relax.op.astype(inputs[0], _BYTES[attributes["to"]])
    return convert(builder, inputs, attributes, params)


def _top_k(
    _convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Any:
    """TVM ignores the number of values in version 10, and refuses what need not be sorted. Its kernel takes few
    types."""
    given = {name: value for name, value in attributes.items() if name != "sorted"}
    if "k" in given:
        inputs = _inputs(inputs[0], relax.const(np.array([given.pop("k")], "int64")))
    dtype = str(inputs[0].ty.dtype)
    if dtype == "uint64":
        raise ValueError("numbers of the type uint64 are not sorted")
    wide = "int64" if dtype in _SORTED_AS_WIDE else dtype
    data = inputs[0] if wide == dtype else builder.normalize(relax.op.astype(inputs[0], wide))
    found = onnx_frontend.TopK._impl_v11(builder, _inputs(data, inputs[1]), given, params)
    if wide == dtype:
        return found
    found = builder.emit(found)
    return relax.Tuple([relax.op.astype(found[0], dtype), found[1]])


_SORTED_AS_WIDE = frozenset({"int8", "uint8", "int16", "uint16", "uint32", "bool"})


def _roi_align(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Any:
    """With half pixels TVM moves regions before it scales them, and the standard afterwards."""
    usual = b"half_pixel" if convert.__name__ == "_impl_v16" else b"output_half_pixel"
    scale = float(attributes.get("spatial_scale", 1.0))
    if attributes.get("coordinate_transformation_mode", usual) != b"half_pixel" or scale == 1.0:
        return convert(builder, inputs, attributes, params)
    moved = relax.op.add(inputs[1], relax.const(0.5 - 0.5 / scale, str(inputs[1].ty.dtype)))
    return convert(builder, _inputs(inputs[0], builder.normalize(moved), inputs[2]), attributes, params)


def _softmax(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """Before version 13 the operator flattens its input to a matrix, which makes no difference along the last axis."""
    rank = inputs[0].ty.ndim
    if "axis" not in attributes or rank < 1 or attributes["axis"] % rank != rank - 1:
        return convert(builder, inputs, attributes, params)
    return relax.op.nn.softmax(inputs[0], axis=-1)


def _integer_product(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """TVM widens both operands to 32 bits, which hides that they have 8."""
    if len(inputs) > 2:
        return convert(builder, inputs, attributes, params)
    return relax.op.matmul(inputs[0], inputs[1], out_dtype="int32")


class _BitCast(AnyVersion):
    """The same bits as a type of the same size."""

    @classmethod
    def _convert(
        cls, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], _params: object
    ) -> Expr:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(attributes["to"])).name
        if "bool" in (dtype, str(inputs[0].ty.dtype)):
            return relax.op.astype(inputs[0], dtype)

        def reinterpreted(value: Expr) -> Expr:
            return tvm.te.compute(value.shape, lambda *at: tvm.tirx.reinterpret(dtype, value(*at)), name="bits")

        return builder.emit_te(reinterpreted, inputs[0], primfunc_name_hint="bit_cast")


class _CumProd(AnyVersion):
    """Products of the first values along a constant axis, as CumSum adds them."""

    @classmethod
    def _convert(cls, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object) -> Expr:
        axis = onnx_frontend.get_constant(inputs[1], params)
        if not isinstance(axis, tvm.ir.GenericConst):
            raise ValueError("CumProd takes an axis that is computed at run time")
        where = int(axis.value.numpy().reshape(()))

        def turned(value: Expr) -> Expr:
            return builder.emit_te(tvm.topi.flip, value, axis=where) if attributes.get("reverse", 0) else value

        made = relax.op.cumprod(turned(inputs[0]), where, exclusive=bool(attributes.get("exclusive", 0)))
        return turned(builder.normalize(made))


def _pairwise(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Returns a converter of Min or Max. TVM stacks the operands and reduces the stack, and gives the second operand
    where the first is NaN (see `nan_operands` for numbers)."""

    def combined(builder: BlockBuilder, one: Expr, other: Expr) -> Expr:
        if isinstance(other, tvm.ir.GenericConst) and not _is_number(other):
            one, other = other, one
        found = builder.emit(function(one, other))
        simple = isinstance(one, tvm.ir.GenericConst) or _is_number(other)
        return found if simple else _with_nan_of(builder, one, found)

    def convert(
        _convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], _attributes: dict[str, Any], _params: object
    ) -> Expr:
        return reduce(lambda one, other: combined(builder, one, other), inputs)

    return convert


def _sign(
    _convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], _attributes: dict[str, Any], _params: object
) -> Expr:
    """TVM gives 0 for NaN."""
    return _with_nan_of(builder, inputs[0], builder.emit(relax.op.sign(inputs[0])))


def _with_nan_of(builder: BlockBuilder, value: Expr, found: Expr) -> Expr:
    """A result, and NaN where the value is NaN."""
    if "float" not in str(value.ty.dtype):
        return found
    return builder.emit(relax.op.where(builder.emit(relax.op.isnan(value)), value, found))


def _thresholded_relu(
    _convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], _params: object
) -> Expr:
    """TVM multiplies by 0 where the value is at most alpha, which makes NaN of infinities."""
    dtype = str(inputs[0].ty.dtype)
    above = builder.emit(relax.op.greater(inputs[0], relax.const(attributes.get("alpha", 1.0), dtype)))
    return builder.emit(relax.op.where(above, inputs[0], relax.const(0, dtype)))


def _mod(
    convert: Convert, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], params: object
) -> Expr:
    """With floating-point numbers, TVM computes a - floor(a / b) * b, which is NaN for an infinite b. This is NumPy's
    way, which corrects the remainder that has the sign of a."""
    one, other = inputs[0], inputs[1]
    constant = all(isinstance(value, tvm.ir.GenericConst) for value in (one, other))
    if attributes.get("fmod", 0) or constant or "float" not in str(one.ty.dtype):
        return convert(builder, inputs, attributes, params)
    op, emit = relax.op, builder.emit
    zero = relax.const(0.0, str(one.ty.dtype))
    rest, negative = emit(op.mod(one, other)), emit(op.less(other, zero))
    is_zero, unlike = emit(op.equal(rest, zero)), emit(op.logical_xor(emit(op.less(rest, zero)), negative))
    signed_zero = emit(op.where(negative, relax.const(-0.0, str(one.ty.dtype)), zero))
    return emit(op.where(is_zero, signed_zero, emit(op.where(unlike, emit(op.add(rest, other)), rest))))


_BYTES = {int(TensorProto.UINT8): "uint8", int(TensorProto.INT8): "int8"}
_OLD_SAMPLING = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
_RULES = {
    "Clip": ("Clip", _clip), "Gather": ("Gather", _gather), "Slice": ("Slice", _slice), "Resize": ("Resize", _resize),
    "Upsample": ("Resize", _upsample), "Cast": ("Cast", _cast),
    "Softmax": ("Softmax", _softmax), "Max": ("Max", _pairwise(relax.op.maximum)),
    "Min": ("Min", _pairwise(relax.op.minimum)),
    "MatMulInteger": ("MatMulInteger", _integer_product), "TopK": ("TopK", _top_k),
    "RoiAlign": ("RoiAlign", _roi_align), "Sign": ("Sign", _sign),
    "ThresholdedRelu": ("ThresholdedRelu", _thresholded_relu), "Mod": ("Mod", _mod),
}  # fmt: skip
"""Converter, and the function that prepares its arguments, by operator."""


def _is_empty(value: Expr) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and 0 in value.value.shape


def _inputs(*values: Any) -> Any:
    made = onnx_frontend.onnx_input()
    made.extend(values)
    return made


def converters(known: dict[str, Any]) -> dict[str, Any]:
    """Returns converters that accept old and new versions, based on TVM's own."""
    own = {name: _accepting(known[source], prepare) for name, (source, prepare) in _RULES.items() if source in known}
    return own | {"BitCast": _BitCast, "CumProd": _CumProd}


def _accepting(converter: Any, prepare: Callable[..., Any]) -> Any:
    class Accepting(converter):  # type: ignore[misc]  # TVM has no types
        @classmethod
        def get_converter(cls, opset: int) -> Convert:
            """Returns TVM's converter with prepared arguments."""
            convert = converter.get_converter(opset)
            return lambda *arguments: prepare(convert, *arguments)

    return Accepting
