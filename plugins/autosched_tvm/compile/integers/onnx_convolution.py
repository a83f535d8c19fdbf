"""Converts ONNX's 8-bit convolution into Relax operators.

Separate operators pad the image with the integer that represents 0. The product of this integer and the sum of a
filter's weights is subtracted from the sums of the filter.
"""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from autosched.errors import ModelRejected
from autosched_tvm.compile.opset_converters import AnyVersion
from autosched_tvm.tvm_types import BlockBuilder, Expr


class ConvInteger(AnyVersion):
    """Converter for unsigned data, whose zero point may be computed at run time, and constant signed weights."""

    @classmethod
    def _convert(
        cls, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], _params: object
    ) -> Expr:
        data, weights, zero = inputs[:3]
        if len(inputs) > 3 or not isinstance(weights, tvm.ir.GenericConst):
            raise ModelRejected("ConvInteger takes weights, or a zero point of weights, that the network computes")
        numbers = weights.value.numpy()
        window = numbers.shape[2:]
        strides = [int(step) for step in attributes.get("strides", [1] * len(window))]
        dilation = [int(step) for step in attributes.get("dilations", [1] * len(window))]
        sizes = [int(size) for size in data.ty.shape]
        padding = _padding(attributes, sizes[2:], window, strides, dilation)
        start = _start(builder, zero)
        data = _padded(builder, data, padding, start)
        convolution = relax.op.nn.conv1d if len(window) == 1 else relax.op.nn.conv2d
        sums = convolution(
            data, weights, strides=strides, dilation=dilation, groups=int(attributes.get("group", 1)), out_dtype="int32"
        )
        filters = numbers.astype("int32").sum(tuple(range(1, numbers.ndim))).reshape(1, -1, *[1] * len(window))
        if not isinstance(start, int):
            return relax.op.subtract(builder.emit(sums), builder.emit(relax.op.multiply(start, relax.const(filters))))
        return relax.op.subtract(builder.emit(sums), relax.const(start * filters)) if start else sums


def _start(builder: BlockBuilder, zero: Expr) -> int | Expr:
    """Returns a zero point as an integer, or as an int32 tensor if the network computes it."""
    if isinstance(zero, tvm.ir.GenericConst):
        return int(zero.value.numpy().ravel()[0])
    return builder.emit(relax.op.astype(relax.op.reshape(zero, ()), "int32"))


def _padded(builder: BlockBuilder, data: Expr, padding: Sequence[int], start: int | Expr) -> Expr:
    """Returns an image padded with its zero point, of `_start`. `padding`: before each axis, then after each axis."""
    if not any(padding):
        return data
    half = len(padding) // 2
    widths = [0, 0, 0, 0, *(width for pair in zip(padding[:half], padding[half:], strict=True) for width in pair)]
    if isinstance(start, int):
        return builder.emit(relax.op.nn.pad(data, widths, "constant", float(start)))
    moved = builder.emit(relax.op.subtract(relax.op.astype(data, "int32"), start))
    wider = builder.emit(relax.op.nn.pad(moved, widths, "constant", 0.0))
    return builder.emit(relax.op.astype(relax.op.add(wider, start), "uint8"))


def _padding(
    attributes: dict[str, Any], image: Sequence[int], window: Sequence[int], strides: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """Returns the padding before each axis, then after each axis: for an image top, left, bottom, right."""
    word = attributes.get("auto_pad", b"NOTSET")
    word = word.decode() if isinstance(word, bytes) else word
    if word == "NOTSET":
        return tuple(int(width) for width in attributes.get("pads", [0] * 2 * len(window)))
    if word == "VALID":
        return (0,) * 2 * len(window)
    total = [
        max(0, (-(-size // step) - 1) * step + (taps - 1) * apart + 1 - size)
        for size, taps, step, apart in zip(image, window, strides, dilation, strict=True)
    ]
    less, more = [width // 2 for width in total], [width - width // 2 for width in total]
    return (*less, *more) if word == "SAME_UPPER" else (*more, *less)


CONVERTERS = {"ConvInteger": ConvInteger}
"""Converter by ONNX operator."""
