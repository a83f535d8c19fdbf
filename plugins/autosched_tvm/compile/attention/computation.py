"""Attention as tensor expressions: softmax(queries x keys) x values, for each head of a batch.

Keys and values are packed so that one vector of them is contiguous. Rows of queries, and columns of keys and values,
are padded to a multiple of a tile with copies of the last one; the softmax ignores the scores of padding. A schedule
computes all stages from `QUERIES` to `ROWS` for a few rows at a time, with all their scores: 4 n bytes a row for n
keys, which fit into the L2 cache for ten thousand keys and more. The running maximum and sum of FlashAttention (Dao et
al. 2022, algorithm 1), made for accelerators with 100 kilobytes per core, would save nothing.
"""

import operator
from typing import Any

from tvm import te, tirx

from autosched_tvm.tvm_types import Expr, Tensor

QUERIES, KEYS, VALUES = "attention_queries", "attention_keys", "attention_values"
"""Names of the blocks that pack the inputs."""
DOT, SCORES, TERMS = "attention_dot", "attention_scores", "attention_terms"
"""Names of the blocks of sums, of the scores read from them, and of the softmax's arguments."""
OPERAND = "attention_operand"
"""Name of the block of a tensor that is combined with the scores, padded alike."""
TOP_LANES, TOP, POWERS, TOTAL_LANES, TOTAL = (
    "attention_top_lanes", "attention_top", "attention_powers", "attention_total_lanes", "attention_total",
)  # fmt: skip
"""Names of the blocks of the softmax: row maxima, exponentials, row sums."""
WEIGHTS = "attention_weights"
"""Name of the block of the values' weights, where operators follow the softmax."""
MIX, ROWS, RESULT = "attention_mix", "attention_rows", "attention_result"
"""Names of the blocks of weighted sums, of finished rows, and of the rows without padding."""

ROW_TILES = (8, 6)
"""Rows of a tile, in order of preference. The number of rows is padded to a multiple."""
ROW_BLOCKS = (40, 32, 30, 24, 18)
"""Rows of several tiles, for many rows, in order of preference."""
VECTOR_TILES = (4, 3, 2)
"""Vectors of scores computed together, in order of preference."""


def filled(size: int, tiles: tuple[int, ...]) -> int:
    """Returns the smallest multiple of a tile that is at least `size`; a small size is one tile."""
    return size if size <= tiles[0] else min(-(-size // tile) * tile for tile in tiles)


def filled_rows(rows: int) -> int:
    """Returns the padded number of rows of queries."""
    return filled(rows, ROW_TILES if rows <= ROW_BLOCKS[0] else ROW_BLOCKS)


def filled_columns(columns: int, lanes: int) -> int:
    """Returns the padded number of columns of scores."""
    return filled(-(-columns // lanes), VECTOR_TILES) * lanes


def queries(data: Tensor) -> Tensor:
    """Returns [..., rows, depth] with the rows padded."""
    *batch, rows, depth = _shape(data)
    count = filled_rows(rows)

    def value(*index: Expr) -> Expr:
        *outer, row, k = index
        return data[(*outer, row if count == rows else tirx.min(row, rows - 1), k)]

    return te.compute((*batch, count, depth), value, name=QUERIES)


def keys(data: Tensor, lanes: int) -> Tensor:
    """Returns [..., depth, columns] as [..., blocks of columns, depth, lanes]."""
    *batch, depth, columns = _shape(data)
    blocks = filled_columns(columns, lanes) // lanes

    def value(*index: Expr) -> Expr:
        *outer, block, k, lane = index
        column = block * lanes + lane
        filled = _filled(data, outer, k, column, columns, blocks * lanes)
        if columns < lanes or columns == blocks * lanes:
            return filled
        # most blocks need no bounds
        return tirx.if_then_else(block < columns // lanes, data[(*outer, k, column)], filled)

    return te.compute((*batch, blocks, depth, lanes), value, name=KEYS)


def values(data: Tensor, lanes: int) -> Tensor:
    """Returns [..., rows, columns] with the columns padded."""
    *batch, rows, columns = _shape(data)
    size = -(-columns // lanes) * lanes

    def value(*index: Expr) -> Expr:
        *outer, row, column = index
        return _filled(data, outer, row, column, columns, size)

    return te.compute((*batch, rows, size), value, name=VALUES)


def operand(data: Tensor, rows: int, lanes: int) -> Tensor:
    """Returns a tensor that is combined with scores, [..., 1 or rows, 1 or columns], padded alike."""
    shape = _shape(data)
    size = list(shape)
    if shape[-1] > 1:
        size[-1] = filled_columns(shape[-1], lanes)
    if len(shape) > 1 and shape[-2] == rows:
        size[-2] = filled_rows(rows)

    def value(*index: Expr) -> Expr:
        *outer, column = index
        if outer and size[-2] != shape[-2]:
            outer[-1] = tirx.min(outer[-1], rows - 1)
        clamped = column if size[-1] == shape[-1] else tirx.min(column, shape[-1] - 1)
        return data[(*outer, clamped)]

    return te.compute(tuple(size), value, name=OPERAND)


def scores(rows: Tensor, packed: Tensor) -> Tensor:
    """Returns the products of padded queries and packed keys: [..., padded rows, padded columns]."""
    *batch, count, depth = _shape(rows)
    blocks, _, lanes = _shape(packed)[-3:]
    step = te.reduce_axis((0, depth), name="k")

    def sums(*index: Expr) -> Expr:
        *outer, row, block, lane = index
        return te.sum(rows[(*outer, row, step)] * packed[(*outer, block, step, lane)], axis=step)

    dot = te.compute((*batch, count, blocks, lanes), sums, name=DOT)

    def value(*index: Expr) -> Expr:
        *outer, column = index
        return dot[(*outer, column // lanes, column % lanes)]

    return te.compute((*batch, count, blocks * lanes), value, name=SCORES)


def softmax(data: Tensor, columns: int, lanes: int) -> tuple[Tensor, Tensor]:
    """Returns the exponentials, zero beyond `columns`, and their sum in each row."""
    *batch, size = _shape(data)
    dtype = str(data.dtype)
    lowest, none = tirx.min_value(dtype), tirx.const(0.0, dtype)

    def known(column: Expr, value: Expr, other: Expr) -> Expr:
        return value if columns == size else tirx.Select(column < columns, value, other)

    terms = te.compute((*batch, size), lambda *i: known(i[-1], data[i], lowest), name=TERMS)
    top = _combined(terms, (te.max, tirx.max), lanes, TOP_LANES, TOP)

    def power(*index: Expr) -> Expr:
        # an argument known not to be positive takes fewer steps
        exponent = tirx.min(terms[index] - top[index[:-1]], none)
        return known(index[-1], tirx.exp(exponent), none)

    powers = te.compute((*batch, size), power, name=POWERS)
    return powers, _combined(powers, (te.sum, operator.add), lanes, TOTAL_LANES, TOTAL)


def shares(powers: Tensor, total: Tensor) -> Tensor:
    """Returns the softmax, for networks with operators between it and the product with values."""
    return te.compute(_shape(powers), lambda *i: powers[i] * _reciprocal(total, i[:-1]), name="attention_shares")


def weights(data: Tensor) -> Tensor:
    """Returns the weights of the values, in memory, where operators follow the softmax."""
    return te.compute(_shape(data), lambda *i: data[i], name=WEIGHTS)


def mix(factors: Tensor, packed: Tensor, total: Tensor | None, lanes: int) -> Tensor:
    """Returns the weighted values: [..., padded rows, padded columns]. `total`: divisor of the sums, if they are not
    divided yet."""
    *batch, count, _ = _shape(factors)
    inner, size = _shape(packed)[-2:]
    step = te.reduce_axis((0, inner), name="k")

    def sums(*index: Expr) -> Expr:
        *outer, row, block, lane = index
        return te.sum(factors[(*outer, row, step)] * packed[(*outer, step, block * lanes + lane)], axis=step)

    added = te.compute((*batch, count, size // lanes, lanes), sums, name=MIX)

    def value(*index: Expr) -> Expr:
        *outer, column = index
        found = added[(*outer, column // lanes, column % lanes)]
        return found if total is None else found * _reciprocal(total, outer)

    return te.compute((*batch, count, size), value, name=ROWS)


def result(data: Tensor, rows: int, columns: int) -> Tensor:
    """Returns the rows and columns without padding."""
    *batch, _, _ = _shape(data)
    return te.compute((*batch, rows, columns), lambda *i: data[i], name=RESULT)


def _combined(data: Tensor, combine: Any, lanes: int, by_lane: str, name: str) -> Tensor:
    """Returns a reduction over the last axis: first over vectors, then over the lanes of one, halving each time."""
    *batch, size = _shape(data)
    block = te.reduce_axis((0, size // lanes), name="block")
    reduce, pair = combine
    vectors = te.compute(
        (*batch, lanes), lambda *i: reduce(data[(*i[:-1], block * lanes + i[-1])], axis=block), name=by_lane
    )

    def halved(*index: Expr) -> Expr:
        left = [vectors[(*index, lane)] for lane in range(lanes)]
        while half := len(left) // 2:
            left = [pair(left[lane], left[half + lane]) for lane in range(half)]
        return left[0]

    return te.compute(tuple(batch), halved, name=name)


def _filled(data: Tensor, outer: list[Expr], row: Expr, column: Expr, columns: int, size: int) -> Expr:
    """Returns an element of a matrix whose columns are padded with copies of the last one."""
    return data[(*outer, row, column if columns == size else tirx.min(column, columns - 1))]


def _reciprocal(total: Tensor, index: list[Expr]) -> Expr:
    return tirx.const(1.0, str(total.dtype)) / total[tuple(index)]


def _shape(data: Tensor) -> tuple[int, ...]:
    return tuple(int(size) for size in data.shape)
