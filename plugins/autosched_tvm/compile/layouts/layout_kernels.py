"""Kernels that exist only with layouts: convolutions with packed weights, and layout transforms."""

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, te, topi

from autosched_tvm.compile.integers.product import FUSES_ELEMENTWISE
from autosched_tvm.compile.layouts.layout import Layout
from autosched_tvm.compile.layouts.packing import Array, pack_columns, pack_kernel
from autosched_tvm.compile.layouts.weight import Weight
from autosched_tvm.compile.relax_operators import Shape
from autosched_tvm.compile.winograd import algebra, workload
from autosched_tvm.tvm_types import Attrs, BlockBuilder, Expr, Tensor

TRANSFORM = "layout_transform"
"""Name of each kernel that transforms a layout."""


@dataclass(frozen=True)
class Convolution:
    """Window of a convolution. `padding`: top, left, bottom, right."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def plain(self) -> bool:
        """Whether there are no strides, dilation or groups."""
        return (self.strides, self.dilation, self.groups) == ((1, 1), (1, 1), 1)

    @classmethod
    def of(cls, attrs: Attrs) -> "Convolution":
        """Returns the window in the attributes of a Relax operator."""
        strides, padding, dilation = (
            tuple(int(v) for v in values) for values in (attrs.strides, attrs.padding, attrs.dilation)
        )
        return cls(strides, padding, dilation, int(attrs.groups))  # type: ignore[arg-type]


def conv2d_blocked(
    builder: BlockBuilder, data: Expr, kernel: Weight, how: Convolution, blocks: tuple[int, int]
) -> Expr:
    """Emits a convolution of NCHW[i]c values that returns NCHW[o]c. `kernel`: OIHW, packed here; `blocks`: i, o."""
    inside, outside = blocks
    filters, depth = kernel.array.shape[:2]
    compute, name = _conv2d_te, "conv2d_NCHWc" if how.groups == 1 else "group_conv2d_NCHWc"
    if how.groups == filters and depth == 1 and filters > 1:
        compute, name, inside = _depthwise_te, "depthwise_conv2d_NCHWc", 1
    packed = kernel.form((inside, outside), lambda array: pack_kernel(array, inside, outside))
    return builder.call_te(lambda x, w: compute(x, w, how), data, packed, primfunc_name_hint=name)


def conv2d_winograd(
    builder: BlockBuilder, data: Expr, kernel: Weight, one: algebra.Algorithm, padding: tuple[int, int, int, int],
    blocks: tuple[int, int],
) -> Expr:  # fmt: skip
    """Emits a convolution of NCHW[i]c values by Winograd's algorithm. `kernel`: OIHW, transformed here; `blocks`: i,
    o."""
    packed = kernel.form((one, *blocks), lambda array: one.pack(array, *blocks))
    return builder.call_te(
        lambda x, w: workload.convolution(x, w, one, padding), data, packed,
        primfunc_name_hint=f"winograd_{one.words}_conv2d_NCHWc", primfunc_attrs={"op_pattern": FUSES_ELEMENTWISE},
    )  # fmt: skip


def conv2d_nhwc(builder: BlockBuilder, data: Expr, kernel: Weight, how: Convolution) -> Expr:
    """Emits a convolution of NHWC values. `kernel`: OIHW."""
    turned = kernel.form("HWIO", lambda array: np.ascontiguousarray(array.transpose(2, 3, 1, 0)))
    name = "conv2d_NHWC" if how.groups == 1 else "group_conv2d_NHWC"
    return builder.call_te(
        topi.nn.conv, inp=data, filt=turned, stride=list(how.strides), padding=list(how.padding),
        dilation=list(how.dilation), groups=how.groups, data_layout="NHWC", kernel_layout="HWIO",
        primfunc_name_hint=name,
    )  # fmt: skip


def packed_matmul(builder: BlockBuilder, data: Expr, weights: Weight, block: int) -> Expr:
    """Emits the product of `data` and a matrix [k, n], whose columns are packed here into blocks [n/block, k,
    block]."""
    columns = weights.array.shape[1]

    def compute(x: Expr, w: Expr) -> Expr:
        step = te.reduce_axis((0, w.shape[1]), name="k")

        def element(*index: Expr) -> Expr:
            column = index[-1]
            factor = w[tvm.tirx.floordiv(column, block), step, tvm.tirx.floormod(column, block)]
            return te.sum(x[(*index[:-1], step)] * factor, axis=step)

        return te.compute((*x.shape[:-1], columns), element, name="packed_matmul")

    packed = weights.form(block, lambda array: pack_columns(array, block))
    return builder.call_te(compute, data, packed, primfunc_name_hint="packed_matmul")


def prelu(builder: BlockBuilder, value: Expr, slopes: Array) -> Expr:
    """Emits a PReLU; `slopes` is broadcast to the value."""

    def compute(x: Expr, slope: Expr) -> Expr:
        def element(*index: Expr) -> Expr:
            factor = slope(*(0 if size == 1 else i for size, i in zip(slopes.shape, index, strict=True)))
            return tvm.tirx.Select(x(*index) > 0, x(*index), x(*index) * factor)

        return te.compute(x.shape, element, name="prelu")

    return builder.call_te(compute, value, relax.const(slopes), primfunc_name_hint="prelu")


def transform(builder: BlockBuilder, value: Expr, shape: Shape, source: Layout, sink: Layout) -> Expr:
    """Emits the transform of a value of NCHW `shape` from one layout into another."""
    if free(shape, source, sink):
        return relax.op.reshape(value, sink.stored(shape))
    return builder.call_te(lambda x: moved(x, shape, source, sink), value, primfunc_name_hint=TRANSFORM)


def free(shape: Shape, source: Layout, sink: Layout) -> bool:
    """Returns whether a value is the same in memory in both layouts."""
    if source == sink:
        return True
    _, channels, h, w = shape
    return h == w == 1 and not source.filled(channels) and not sink.filled(channels)


def _conv2d_te(data: Tensor, kernel: Tensor, how: Convolution) -> Tensor:
    names = f"NCHW{data.shape[4]}c", f"NCHW{kernel.shape[5]}c"
    return topi.nn.conv2d_NCHWc(data, kernel, how.strides, how.padding, how.dilation, *names, "float32")


def _depthwise_te(data: Tensor, kernel: Tensor, how: Convolution) -> Tensor:
    n, chunks, height, width, block = (int(d) for d in data.shape)
    rows, columns = int(kernel.shape[2]), int(kernel.shape[3])
    top, left, bottom, right = how.padding
    (down, across), (tall, wide) = how.strides, how.dilation
    image = (
        topi.nn.pad(data, (0, 0, top, left, 0), (0, 0, bottom, right, 0), name="data_pad") if any(how.padding) else data
    )
    kh, kw = te.reduce_axis((0, rows), name="kh"), te.reduce_axis((0, columns), name="kw")
    out_height = (height + top + bottom - (rows - 1) * tall - 1) // down + 1
    out_width = (width + left + right - (columns - 1) * wide - 1) // across + 1
    return te.compute(
        (n, chunks, out_height, out_width, block),
        lambda b, c, y, x, i: te.sum(
            image[b, c, y * down + kh * tall, x * across + kw * wide, i] * kernel[c, 0, kh, kw, 0, i], axis=[kh, kw]
        ),
        name="depthwise_conv2d_NCHWc",
        tag="depthwise_conv2d_NCHWc",
    )


def moved(value: Tensor, shape: Shape, source: Layout, sink: Layout) -> Tensor:
    """Returns the computation of `transform`."""
    channels = shape[1]

    def read(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        if source.block:
            return value[n, c // source.block, h, w, c % source.block]
        return value[n, h, w, c] if source.name == "NHWC" else value[n, c, h, w]

    def element(*index: Expr) -> Expr:
        if sink.block:
            n, chunk, h, w, inner = index
            c = chunk * sink.block + inner
        elif sink.name == "NHWC":
            n, h, w, c = index
        else:
            n, c, h, w = index
        if sink.filled(channels):
            return tvm.tirx.if_then_else(c < channels, read(n, c, h, w), tvm.tirx.const(0, value.dtype))
        return read(n, c, h, w)

    return te.compute(sink.stored(shape), element, name=TRANSFORM)
