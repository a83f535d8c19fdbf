"""Product of an 8-bit matrix and 8-bit weights, in 32-bit sums.

The weights are packed as [blocks of columns, groups of rows, lanes, group], so that one vector of them is an operand of
a dot instruction. Blocks are padded with zero columns and rows.
"""

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from autosched_tvm.compile.integers import tile_instructions
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.tvm_types import Expr, Tensor

Array = np.ndarray[Any, Any]

DOT, TILE_DOT, RESULT, BORDER = "int8_dot", "int8_tiles", "int8_product", "int8_border"
"""Names of the blocks of sums (vectors, or whole tiles), of the result read from them, and of padded data."""
DEPTHWISE, IMAGE = "int8_depthwise", "int8_image"
"""Names of the blocks of depthwise sums, and of the image as float32."""
WINOGRAD, POINTS = "int8_winograd", "int8_points"
"""Names of the blocks of sums of a Winograd convolution, and of the transformed data."""
FUSES_ELEMENTWISE = 4
"""TVM's OpPatternKind of a kernel into which elementwise operators are fused. TVM treats kernels with several sums as
opaque."""
TILES = (8, 7, 6, 5, 4)
"""Rows of a tile, in order of preference. The number of rows is padded to a multiple."""
FEW_ROWS = 12
"""Maximum number of rows that are a single tile."""


def pack(weights: Array, one: DotInstruction) -> Array:
    """Returns [rows, columns] as [blocks, groups, lanes, group]."""
    group, lanes = one.group, one.lanes
    rows, columns = weights.shape
    filled = np.pad(weights, ((0, -rows % group), (0, -columns % lanes)))
    return np.ascontiguousarray(
        filled.reshape(filled.shape[0] // group, group, filled.shape[1] // lanes, lanes).transpose(2, 0, 3, 1),
        one.weights,
    )


def filled_rows(rows: int) -> int:
    """Returns the padded number of rows of sums: the least multiple of a tile."""
    return rows if rows <= FEW_ROWS else min(-(-rows // tile) * tile for tile in TILES)


def product(data: Tensor, weights: Tensor) -> Tensor:
    """Returns the product of `data` [..., rows, ..., depth] and packed weights, as int32 [..., rows, ..., columns].

    All other axes have the size 1, the depth is a multiple of a group, and the columns include the padding of the last
    block.
    """
    *outer, depth = (int(size) for size in data.shape)
    blocks, _, lanes, group = (int(size) for size in weights.shape)
    rows = math.prod(outer)
    axis = outer.index(rows)
    step = te.reduce_axis((0, depth), name="k")

    def sums(i: Expr, block: Expr, lane: Expr) -> Expr:
        row = i if filled_rows(rows) == rows else tirx.min(i, rows - 1)
        place = [row if one == axis else 0 for one in range(len(outer))]
        factor = weights[block, step // group, lane, step % group].astype("int32")
        return te.sum(data[(*place, step)].astype("int32") * factor, axis=step)

    return as_data(te.compute((filled_rows(rows), blocks, lanes), sums, name=DOT), outer)


def tiled_product(data: Tensor, weights: Tensor) -> Tensor:
    """Returns the same for instructions on whole tiles, where the depth is a multiple of a tile's.

    The rows are padded in memory with copies of the last one, since the instructions read rows at equal distances.
    """
    *outer, depth = (int(size) for size in data.shape)
    blocks, groups, lanes, group = (int(size) for size in weights.shape)
    rows = math.prod(outer)
    axis = outer.index(rows)
    count = -(-rows // tile_instructions.ROWS) * tile_instructions.ROWS

    def filled(i: Expr, k: Expr) -> Expr:
        return data[(*(tirx.min(i, rows - 1) if one == axis else 0 for one in range(len(outer))), k)]

    if count != rows or len(outer) > 1:
        data = te.compute((count, depth), filled, name=BORDER)
    step, part = te.reduce_axis((0, groups), name="step"), te.reduce_axis((0, group), name="part")

    def sums(i: Expr, block: Expr, lane: Expr) -> Expr:
        number = data[i, step * group + part].astype("int32")
        return te.sum(number * weights[block, step, lane, part].astype("int32"), axis=[step, part])

    return as_data(te.compute((count, blocks, lanes), sums, name=TILE_DOT), outer)


def as_data(dot: Tensor, outer: list[int]) -> Tensor:
    """Returns sums [rows, blocks, lanes] as [..., rows, ..., columns]: the axes `outer` of the data, then columns."""
    axis = outer.index(math.prod(outer))
    blocks, lanes = (int(size) for size in dot.shape[1:])

    def result(*index: Expr) -> Expr:
        return dot[index[axis], index[-1] // lanes, index[-1] % lanes]

    return te.compute((*outer, blocks * lanes), result, name=RESULT)
