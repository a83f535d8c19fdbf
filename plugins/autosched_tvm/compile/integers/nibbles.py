"""Product of a float32 matrix and 4-bit weights, which are converted to float32 in registers.

    y = x w,  w[k, n] = levels[k, n] scale[k / block, n] + offset[k / block, n]

The time of a product of few rows is that of loading the weights: with 4 bits an eighth of float32's. The weights are
packed as [blocks of columns, pairs of rows, lanes], two rows in a byte, the first one in the low bits.
"""

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from autosched_tvm.compile.integers.product import as_data
from autosched_tvm.tvm_types import Expr, Tensor

Array = np.ndarray[Any, Any]

NAME = "nibble_dot"
"""Name of the block of sums."""
LANES = 16
"""Number of columns side by side: one vector of AVX-512, or two or four of other CPUs."""


def pack(levels: Array) -> Array:
    """Returns [rows, columns] of integers 0 to 15 as [blocks of columns, pairs of rows, lanes]."""
    rows, columns = levels.shape
    filled = np.pad(levels, ((0, rows % 2), (0, -columns % LANES))).astype("uint8")
    pairs = filled[0::2] | (filled[1::2] << 4)
    return _by_block(pairs)


def pack_factors(factors: Array) -> Array:
    """Returns [groups of rows, columns] as [blocks of columns, groups, lanes]."""
    return _by_block(np.pad(factors, ((0, 0), (0, -factors.shape[1] % LANES))))


def _by_block(values: Array) -> Array:
    rows, columns = values.shape
    return np.ascontiguousarray(values.reshape(rows, columns // LANES, LANES).transpose(1, 0, 2))


def product(data: Tensor, weights: Tensor, scales: Tensor, offsets: Tensor, block: int) -> Tensor:
    """Returns the product of `data` [..., rows, ..., depth] and packed weights: float32 [..., rows, ..., columns].

    All other axes have the size 1. `block`: number of rows of the weights that share a scale; it is even and divides
    the depth. The columns include the padding of the last vector.
    """
    *outer, depth = (int(size) for size in data.shape)
    parts = int(weights.shape[0])
    rows = math.prod(outer)
    axis = outer.index(rows)
    group = te.reduce_axis((0, depth // block), name="group")
    pair = te.reduce_axis((0, block // 2), name="pair")
    half = te.reduce_axis((0, 2), name="half")

    def sums(row: Expr, part: Expr, lane: Expr) -> Expr:
        place = [row if one == axis else 0 for one in range(len(outer))]
        byte = weights[part, group * (block // 2) + pair, lane].astype("int32")
        level = tirx.bitwise_and(tirx.shift_right(byte, (half * 4).astype("int32")), tirx.const(15, "int32"))
        weight = level.astype("float32") * scales[part, group, lane] + offsets[part, group, lane]
        return te.sum(data[(*place, group * block + pair * 2 + half)] * weight, axis=[group, pair, half])

    return as_data(te.compute((rows, parts, LANES), sums, name=NAME), outer)
