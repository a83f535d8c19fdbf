"""3x3 convolution of an 8-bit image by Winograd's F(2x2, 3x3), for instructions on pairs of 16-bit integers.

Tiles of 2x2 results take 16 products for each pair of channels instead of 36. The transformed data are sums of four
8-bit integers and the transformed weights, times 4, sums of nine: both have less than 16 bits, so that these
instructions multiply them at full speed, and the sums are exact. The results are four times the sums of the
convolution. Dot instructions on bytes cannot take them. Images are in NCHW[c]c.

Source of the transforms: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from autosched_tvm.compile.integers.convolution import Window
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.integers.product import BORDER, FUSES_ELEMENTWISE, POINTS, RESULT, WINOGRAD
from autosched_tvm.compile.winograd.algebra import BOTH_AXES, SQUARE
from autosched_tvm.tvm_types import BlockBuilder, BlockRV, Expr, Schedule, Tensor

Array = np.ndarray[Any, Any]

ALGORITHM, _ = BOTH_AXES
"""F(2x2, 3x3); the other one is F(4x4, 3x3)."""
TILE, SIDE = ALGORITHM.down.outputs, ALGORITHM.down.inputs
"""Rows and columns of a tile of results, and of a tile of data."""
COUNT = ALGORITHM.products
"""Number of points of a tile."""
DISTANCES = "autosched.distances"
"""Annotation of the block of sums: distances of the rows and of the columns of a tile, which are those of the
filters."""
DENOMINATOR = 2
"""Factor along an axis by which the transformed weights are integers."""
SCALE_BITS = 2
"""Bits by which the results are shifted, which divides them by this factor along both axes."""
DATA_MAX = 4 * 255
"""Maximum magnitude of transformed data."""
TRANSFORM_PRODUCTS = 25
"""Number of products on vectors in the time in which a vector of channels, or of filters, of a tile is transformed."""
READING_PRODUCTS = 3
"""Number of products on vectors in the time in which a vector of weights is read."""
WORTH_SHARE = 0.9
"""Maximum estimated time, relative to the direct way."""


def pack(weights: Array, channels: int, one: DotInstruction) -> Array:
    """Returns OIHW, transformed and times 4, as [O / lanes, points, channels / group, lanes, group]."""
    factors = ALGORITHM.pack(weights, channels, one.lanes) * DENOMINATOR**2
    groups = factors.reshape(-1, COUNT, channels // one.group, one.group, one.lanes).swapaxes(3, 4)
    return np.ascontiguousarray(groups, one.weights)


def fits(factors: Array) -> bool:
    """Returns whether all sums with packed weights fit into 32 bits, also those within the transform of the results."""
    return DATA_MAX * int(np.abs(factors).sum((1, 2, 4), "int64").max()) < 2**31


def worthwhile(data: Sequence[Any], weights: Sequence[int], how: Window, one: DotInstruction) -> bool:
    """Returns whether this is faster than the direct way. `data`: shape of the image, NCHW[c]c; `weights`: OIHW."""
    if one.weights != "int16" or tuple(weights[2:]) != ALGORITHM.taps or how.strides != (1, 1):
        return False
    n, chunks, rows, columns, block = (int(size) for size in data)
    channels, filters = chunks * block, -(-weights[0] // one.lanes) * one.lanes
    height, width = how.results((rows, columns), ALGORITHM.taps)
    if weights[1] <= channels - block:
        return False  # in groups
    results = n * height * width
    tiles = n * _tiles(height, how.dilation[0]) * _tiles(width, how.dilation[1])
    direct = SQUARE**2 * (results + READING_PRODUCTS) * channels * filters
    products = COUNT * (tiles + READING_PRODUCTS) * channels * filters
    transforms = TRANSFORM_PRODUCTS * one.group * tiles * (channels + filters)
    return products + transforms < WORTH_SHARE * direct


def convolution(data: Tensor, weights: Tensor, how: Window) -> Tensor:
    """Returns the sums of `data` [n, blocks, rows, columns, block] and packed weights: int32 [n, filters / lanes, rows,
    columns, lanes]."""
    n, chunks, height, width, block = (int(size) for size in data.shape)
    filters, _, _, lanes, group = (int(size) for size in weights.shape)
    top, left, bottom, right = how.border
    height, width = how.results((height, width), ALGORITHM.taps)
    tall, wide = how.dilation
    down, across = _tiles(height, tall), _tiles(width, wide)
    after = (0, 0, bottom + down * TILE - height, right + across * TILE - width, 0)
    image = topi.nn.pad(data, (0, 0, top, left, 0), after, tirx.const(how.border_value, data.dtype), name=BORDER)

    def point(b: Expr, p: Expr, t: Expr, c: Expr) -> Expr:
        y, x = _first(t // across, tall), _first(t % across, wide)

        def number(i: Expr, j: Expr) -> Expr:
            return image[b, c // block, y + i * tall, x + j * wide, c % block].astype(weights.dtype)

        def along(i: Expr) -> Expr:
            return _of_data(lambda j: number(i, j), p % SIDE, weights.dtype)

        return _of_data(along, p // SIDE, weights.dtype)

    points = te.compute((n, COUNT, down * across, chunks * block), point, name=POINTS)
    step = te.reduce_axis((0, chunks * block), name="k")

    def sums(b: Expr, p: Expr, t: Expr, o: Expr, lane: Expr) -> Expr:
        factor = weights[o, p, step // group, lane, step % group]
        return te.sum(points[b, p, t, step].astype("int32") * factor.astype("int32"), axis=[step])

    shape = n, COUNT, down * across, filters, lanes
    dot = te.compute(shape, sums, name=WINOGRAD, attrs={DISTANCES: list(how.dilation)})

    def result(b: Expr, o: Expr, y: Expr, x: Expr, lane: Expr) -> Expr:
        (row, above), (column, before) = _tile_of(y, tall), _tile_of(x, wide)

        def along(i: Expr | int) -> Expr:
            return _of_results(lambda j: dot[b, i * SIDE + j, row * across + column, o, lane], before)

        return tirx.shift_right(_of_results(along, above), tirx.const(SCALE_BITS, "int32"))

    return te.compute((n, filters, height, width, lanes), result, name=RESULT)


def _tiles(extent: int, apart: int) -> int:
    """Returns the number of tiles along an axis, whose numbers are `apart` from each other."""
    return -(-extent // (TILE * apart)) * apart


def _first(tile: Expr, apart: int) -> Expr:
    """Returns the place of a tile's first number along an axis."""
    return tile // apart * (TILE * apart) + tile % apart


def _tile_of(place: Expr, apart: int) -> tuple[Expr, Expr]:
    """Returns the tile of a result along an axis, and its place there."""
    return place // (TILE * apart) * apart + place % apart, place % (TILE * apart) // apart


def distances_of(schedule: Schedule, anchor: BlockRV) -> tuple[int, int]:
    """Returns the distances of a tile's rows and columns, from the block of sums."""
    tall, wide = schedule.get(anchor).annotations[DISTANCES]
    return int(tall), int(wide)


def _of_data(values: Callable[[Any], Any], point: Any, dtype: str) -> Any:
    """Returns a point of a column of data: d2 - d0, d2 + d1, d2 - d1 or d3 - d1. `values`: the number at an index.

    A choice between four expressions would take twice as long to compile.
    """
    sign = tirx.Select(point == 1, tirx.const(1, dtype), tirx.const(-1, dtype))
    return values(2 + point // 3) + values(tirx.min(point, 1)) * sign


def _of_results(values: Callable[[Any], Any], place: Any) -> Any:
    """Returns a result from a column of products: m0 + m1 + m2 or m1 - m2 + m3."""
    sign = tirx.Select(place == 0, tirx.const(1, "int32"), tirx.const(-1, "int32"))
    return values(1) + values(3 * place) + values(2) * sign


def packed(builder: BlockBuilder, data: Expr, weights: Array, how: Window, instruction: DotInstruction) -> Expr | None:
    """Returns a call for the sums of unsigned integers in NCHW[i]c and weights OIHW, in NCHW[lanes]c; None for weights
    whose sums could overflow."""
    factors = pack(weights, int(data.ty.shape[1]) * int(data.ty.shape[4]), instruction)
    if not fits(factors):
        return None
    return builder.call_te(
        lambda x, w: convolution(x, w, how), data, relax.const(factors),
        primfunc_name_hint="int8_conv2d_NCHWc_winograd", primfunc_attrs={"op_pattern": FUSES_ELEMENTWISE},
    )  # fmt: skip
