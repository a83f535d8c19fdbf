"""The product of a matrix of 8-bit numbers and a matrix of 8-bit weights, in 32-bit sums.

The weights are packed as [blocks of columns, groups of rows, lanes, group], so that one vector of them is what a dot
instruction takes. Columns and rows of the weights that are missing from a block are zeros.
"""

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from autosched_tvm.compile.integers import tile_instructions
from autosched_tvm.compile.integers.dot_instructions import DotInstruction

Array = np.ndarray[Any, Any]

DOT, TILE_DOT, RESULT, BORDER = "int8_dot", "int8_tiles", "int8_product", "int8_border"
"""Names of the blocks of sums (vectors, or whole tiles), of what is read of them, and of data with its border."""
DEPTHWISE, IMAGE = "int8_depthwise", "int8_image"
"""Names of the blocks of sums, and of the image as float32, where each channel has its own filter."""
FUSES_ELEMENTWISE = 4
"""TVM's OpPatternKind of a kernel that elementwise operators after it become part of."""
TILES = (8, 7, 6, 5, 4)
"""Numbers of rows of which sums are kept in registers: a number of rows that is no multiple of one is filled up."""
FEW_ROWS = 12
"""Maximum number of rows that are one tile, whatever their number."""


def pack(weights: Array, one: DotInstruction) -> Array:
    """[rows, columns] as [blocks, groups, lanes, group]."""
    group, lanes = one.group, one.lanes
    rows, columns = weights.shape
    filled = np.pad(weights, ((0, -rows % group), (0, -columns % lanes)))
    return np.ascontiguousarray(
        filled.reshape(filled.shape[0] // group, group, filled.shape[1] // lanes, lanes).transpose(2, 0, 3, 1),
        one.weights,
    )


def filled_rows(rows: int) -> int:
    """The number of rows of sums: the least that is a multiple of a tile."""
    return rows if rows <= FEW_ROWS else min(-(-rows // tile) * tile for tile in TILES)


def product(data: Any, weights: Any) -> Any:
    """The product of `data` [..., rows, ..., depth] and packed weights, as int32 [..., rows, ..., columns].

    All other axes have the size 1, the depth is a multiple of a group, and the columns include those that fill the last
    block.
    """
    *outer, depth = (int(size) for size in data.shape)
    blocks, _, lanes, group = (int(size) for size in weights.shape)
    rows = math.prod(outer)
    axis = outer.index(rows)
    step = te.reduce_axis((0, depth), name="k")

    def sums(i: Any, block: Any, lane: Any) -> Any:
        row = i if filled_rows(rows) == rows else tirx.min(i, rows - 1)
        place = [row if one == axis else 0 for one in range(len(outer))]
        factor = weights[block, step // group, lane, step % group].astype("int32")
        return te.sum(data[(*place, step)].astype("int32") * factor, axis=step)

    return as_data(te.compute((filled_rows(rows), blocks, lanes), sums, name=DOT), outer)


def tiled_product(data: Any, weights: Any) -> Any:
    """The same for instructions on whole tiles, where the depth is a multiple of a tile's.

    Rows that fill the last tile are copies of the last one, in memory: the instructions read rows at equal distances.
    """
    *outer, depth = (int(size) for size in data.shape)
    blocks, groups, lanes, group = (int(size) for size in weights.shape)
    rows = math.prod(outer)
    axis = outer.index(rows)
    count = -(-rows // tile_instructions.ROWS) * tile_instructions.ROWS

    def filled(i: Any, k: Any) -> Any:
        return data[(*(tirx.min(i, rows - 1) if one == axis else 0 for one in range(len(outer))), k)]

    if count != rows or len(outer) > 1:
        data = te.compute((count, depth), filled, name=BORDER)
    step, part = te.reduce_axis((0, groups), name="step"), te.reduce_axis((0, group), name="part")

    def sums(i: Any, block: Any, lane: Any) -> Any:
        number = data[i, step * group + part].astype("int32")
        return te.sum(number * weights[block, step, lane, part].astype("int32"), axis=[step, part])

    return as_data(te.compute((count, blocks, lanes), sums, name=TILE_DOT), outer)


def as_data(dot: Any, outer: list[int]) -> Any:
    """Sums [rows, blocks, lanes] as [..., rows, ..., columns]: the axes `outer` of the data, then columns."""
    axis = outer.index(math.prod(outer))
    blocks, lanes = (int(size) for size in dot.shape[1:])

    def result(*index: Any) -> Any:
        return dot[index[axis], index[-1] // lanes, index[-1] % lanes]

    return te.compute((*outer, blocks * lanes), result, name=RESULT)
