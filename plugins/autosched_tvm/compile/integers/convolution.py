"""Convolution of an 8-bit image and 8-bit weights, in 32-bit sums. Images are in NCHW[c]c.

The weights are packed as [blocks of filters, blocks of channels, rows, columns, groups of channels, lanes, group], so
that one vector of them is an operand of a dot instruction. Blocks are padded with zero filters and channels. Where the
image has more blocks of channels than the weights, the filters are in groups, each of which reads its own channels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.integers.product import BORDER, DEPTHWISE, DOT, FUSES_ELEMENTWISE, IMAGE, RESULT, filled_rows
from autosched_tvm.tvm_types import BlockBuilder, Expr, Tensor

Array = np.ndarray[Any, Any]

PLAIN_AXES = 4
"""Number of axes of an image in NCHW."""
FEW_BLOCKS, FEW_COLUMNS = 10, 16
"""Maximum number of blocks of filters, and of columns of an image, that are not padded to a tile."""


@dataclass(frozen=True)
class Window:
    """Window of a convolution: strides, dilation and padding."""

    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Rows and columns of padding: top, left, bottom, right."""
    border_value: int = 0
    """Value of the padding."""

    def results(self, image: tuple[int, int], taps: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of the result. `image` and `taps`: rows and columns, without padding."""
        top, left, bottom, right = self.border
        around = (top + bottom, left + right)
        height, width = (
            (size + more - (count - 1) * apart - 1) // step + 1
            for size, more, count, apart, step in zip(image, around, taps, self.dilation, self.strides, strict=True)
        )
        return height, width


def pack(weights: Array, block: int, one: DotInstruction) -> Array:
    """Returns OIHW as [O / lanes, I / block, H, W, block / group, lanes, group]."""
    group, lanes = one.group, one.lanes
    filters, channels, rows, columns = weights.shape
    filled = np.pad(weights, ((0, -filters % lanes), (0, -channels % block), (0, 0), (0, 0)))
    parts = filled.reshape(-1, lanes, filled.shape[1] // block, block // group, group, rows, columns)
    return np.ascontiguousarray(parts.transpose(0, 2, 5, 6, 3, 1, 4), one.weights)


def filled_blocks(blocks: int) -> int:
    """Returns the number of blocks of filters after padding: a multiple of a tile where there are many."""
    if blocks <= FEW_BLOCKS:
        return blocks
    whole = -(-blocks // 4) * 4
    return whole if (whole - blocks) * FEW_BLOCKS <= blocks else -(-blocks // 2) * 2


def convolution(data: Expr, weights: Expr, excess: Expr, how: Window) -> Tensor:
    """Returns the sums of `data` [n, blocks, rows, columns, block] and packed weights, plus each filter's `excess`.

    `excess` is [filters], without padding: int32 [n, filters / lanes, rows, columns, lanes].
    """
    n, chunks, height, width, block = (int(size) for size in data.shape)
    filters, depth, tall, wide, _, lanes, group = (int(size) for size in weights.shape)
    groups, parts = chunks // depth, int(excess.shape[0]) // lanes * depth // chunks
    top, left, bottom, right = how.border
    strides, dilation = how.strides, how.dilation
    image = data
    if any(how.border):
        before, after = (0, 0, top, left, 0), (0, 0, bottom, right, 0)
        image = topi.nn.pad(data, before, after, tirx.const(how.border_value, data.dtype), name=BORDER)
    out_height, out_width = how.results((height, width), (tall, wide))
    filled = out_width if out_width <= FEW_COLUMNS else filled_rows(out_width)
    chunk, inner = te.reduce_axis((0, depth), name="kc"), te.reduce_axis((0, block), name="ki")
    row, column = te.reduce_axis((0, tall), name="kh"), te.reduce_axis((0, wide), name="kw")

    def sums(b: Expr, o: Expr, y: Expr, x: Expr, lane: Expr) -> Expr:
        across = x if filled == out_width else tirx.min(x, out_width - 1)
        first = tirx.min(o // parts, groups - 1) * depth if groups > 1 else 0
        place = (
            b,
            first + chunk,
            y * strides[0] + row * dilation[0],
            across * strides[1] + column * dilation[1],
            inner,
        )
        factor = weights[o, chunk, row, column, inner // group, lane, inner % group]
        return te.sum(image[place].astype("int32") * factor.astype("int32"), axis=[chunk, row, column, inner])

    dot = te.compute((n, filters, out_height, filled, lanes), sums, name=DOT)

    def result(b: Expr, o: Expr, y: Expr, x: Expr, i: Expr) -> Expr:
        return dot[b, o, y, x, i] + excess[o * lanes + i]

    return te.compute((n, int(excess.shape[0]) // lanes, out_height, out_width, lanes), result, name=RESULT)


def depthwise(builder: BlockBuilder, data: Expr, weights: Array, how: Window) -> Expr:
    """Returns a call for the sums of unsigned integers in NCHW[c]c and one filter per channel, in NCHW[c]c.

    The kernel multiplies float32 numbers, which is exact: the sums have less than 24 bits. It reads bytes.
    """
    block = int(data.ty.shape[4])
    filters, _, tall, wide = weights.shape
    filled = np.pad(weights[:, 0], ((0, -filters % block), (0, 0), (0, 0))).astype("float32")
    factors = np.ascontiguousarray(filled.reshape(-1, block, tall, wide).transpose(0, 2, 3, 1))
    return builder.call_te(
        lambda x, w: _depthwise(x, w, how), data, relax.const(factors), primfunc_name_hint="int8_depthwise_NCHWc",
    )  # fmt: skip


def _depthwise(data: Tensor, weights: Tensor, how: Window) -> Tensor:
    n, chunks, height, width, block = (int(size) for size in data.shape)
    _, tall, wide, _ = (int(size) for size in weights.shape)
    top, left, bottom, right = how.border
    rows, columns = height + top + bottom, width + left + right

    def inside(b: Expr, c: Expr, y: Expr, x: Expr, i: Expr) -> Expr:
        value = data[b, c, y - top, x - left, i].astype("float32")
        if not any(how.border):
            return value
        here = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        return tirx.if_then_else(here, value, tirx.const(float(how.border_value), "float32"))

    image = te.compute((n, chunks, rows, columns, block), inside, name=IMAGE)
    row, column = te.reduce_axis((0, tall), name="kh"), te.reduce_axis((0, wide), name="kw")

    def sums(b: Expr, c: Expr, y: Expr, x: Expr, i: Expr) -> Expr:
        place = y * how.strides[0] + row * how.dilation[0], x * how.strides[1] + column * how.dilation[1]
        return te.sum(image[(b, c, *place, i)] * weights[c, row, column, i], axis=[row, column])

    shape = (n, chunks, *how.results((height, width), (tall, wide)), block)
    found = te.compute(shape, sums, name=DEPTHWISE)
    return te.compute(shape, lambda *index: found(*index).astype("int32"), name=RESULT)


def unfolded(data: Any, taps: tuple[int, int], block: int, how: Window) -> tuple[Tensor, Window]:
    """Returns an image of one channel with the numbers under each row of the window side by side, and the window over
    the rows that is left.

    `data`: [n, 1, rows, columns]. The image is [n, 1, rows, columns of the result, block], padded. A dot instruction
    then takes the columns of the window as channels; with one channel, it would multiply by three zeros.
    """
    n, _, height, width = (int(size) for size in data.shape)
    top, left, bottom, _ = how.border
    _, columns = how.results((height, width), taps)

    def number(b: Expr, _c: Expr, y: Expr, x: Expr, tap: Expr) -> Expr:
        row, column = y - top, x * how.strides[1] + tap * how.dilation[1] - left
        inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
        return tirx.if_then_else(inside, data[b, 0, row, column], tirx.const(how.border_value, data.dtype))

    image = te.compute((n, 1, height + top + bottom, columns, block), number, name=BORDER)
    return image, Window((how.strides[0], 1), (how.dilation[0], 1))


def packed(builder: BlockBuilder, data: Expr, weights: Array, how: Window, instruction: DotInstruction) -> Expr:
    """Returns a call for the sums of unsigned integers and weights OIHW, in NCHW[lanes]c. The data are in NCHW[i]c, or
    in NCHW if they have one channel."""
    lanes, taps = instruction.lanes, weights.shape[2:]
    blocks = -(-len(weights) // lanes)
    excess = np.zeros(blocks * lanes, "int32")
    excess[: len(weights)] = instruction.offset * weights.astype("int32").sum((1, 2, 3))
    data, how = instruction.taken(builder, data), replace(how, border_value=how.border_value - instruction.offset)
    missing = filled_blocks(blocks) * lanes - len(weights)
    single, block = len(data.ty.shape) == PLAIN_AXES, int(data.ty.shape[-1])
    if single:
        block, weights = taps[1] + -taps[1] % instruction.group, weights.transpose(0, 3, 2, 1)
    factors = pack(np.pad(weights, ((0, missing), (0, 0), (0, 0), (0, 0))), block, instruction)

    def sums(x: Expr, w: Expr, e: Expr) -> Expr:
        image, window = unfolded(x, taps, block, how) if single else (x, how)
        return convolution(image, w, e, window)

    return builder.call_te(
        sums, data, relax.const(factors), relax.const(excess),
        primfunc_name_hint="int8_conv2d_NCHWc", primfunc_attrs={"op_pattern": FUSES_ELEMENTWISE},
    )  # fmt: skip
