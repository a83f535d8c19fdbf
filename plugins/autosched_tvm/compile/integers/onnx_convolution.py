"""Converts ONNX's 8-bit convolution into Relax operators.

A separate operator pads the image with the integer that represents 0. The constant that this integer adds to each sum
is subtracted.
"""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from autosched.errors import ModelRejected
from autosched_tvm.compile.opset_converters import AnyVersion


class ConvInteger(AnyVersion):
    """Converter for unsigned data with a constant zero point, and constant signed weights."""

    @classmethod
    def _convert(cls, builder: Any, inputs: Any, attributes: dict[str, Any], _params: Any) -> Any:
        data, weights, zero = inputs[:3]
        if len(inputs) > 3 or not all(isinstance(one, tvm.ir.GenericConst) for one in (weights, zero)):
            raise ModelRejected("ConvInteger takes weights or zero points that the network computes")
        numbers, start = weights.value.numpy(), int(zero.value.numpy().ravel()[0])
        strides = [int(step) for step in attributes.get("strides", (1, 1))]
        dilation = [int(step) for step in attributes.get("dilations", (1, 1))]
        sizes = [int(size) for size in data.ty.shape]
        padding = _padding(attributes, sizes[2:], numbers.shape[2:], strides, dilation)
        if any(padding):
            top, left, bottom, right = padding
            widths = [0, 0, 0, 0, top, bottom, left, right]
            data = builder.emit(relax.op.nn.pad(data, widths, "constant", float(start)))
        sums = relax.op.nn.conv2d(
            data, weights, strides=strides, dilation=dilation, groups=int(attributes.get("group", 1)), out_dtype="int32"
        )
        if not start:
            return sums
        excess = start * numbers.astype("int32").sum((1, 2, 3)).reshape(1, -1, 1, 1)
        return relax.op.subtract(builder.emit(sums), relax.const(excess.astype("int32")))


def _padding(
    attributes: dict[str, Any], image: Sequence[int], window: Sequence[int], strides: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """Returns rows and columns of padding: top, left, bottom, right."""
    word = attributes.get("auto_pad", b"NOTSET")
    word = word.decode() if isinstance(word, bytes) else word
    if word == "NOTSET":
        return tuple(int(width) for width in attributes.get("pads", (0, 0, 0, 0)))
    if word == "VALID":
        return (0, 0, 0, 0)
    total = [
        max(0, (-(-size // step) - 1) * step + (taps - 1) * apart + 1 - size)
        for size, taps, step, apart in zip(image, window, strides, dilation, strict=True)
    ]
    less, more = [width // 2 for width in total], [width - width // 2 for width in total]
    return (*less, *more) if word == "SAME_UPPER" else (*more, *less)


CONVERTERS = {"ConvInteger": ConvInteger}
"""Converter by ONNX operator."""
