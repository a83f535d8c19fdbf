"""Attention as tensor expressions: softmax(queries x keys) x values, for each of a batch of heads.

Keys and values are packed so that a vector of them is what is read at a time. Rows of queries and columns of keys and
values that are no multiple of a tile are filled up with copies of the last one; the softmax ignores their scores. A
schedule computes everything from `QUERIES` to `ROWS` for some rows at a time, with all their scores: 4 n bytes a row
for n keys, which stay in the second-level cache up to ten thousand keys and more. The running maximum and sum of
FlashAttention (Dao et al. 2022, algorithm 1), for accelerators with 100 kilobytes for each core, would save nothing.
"""

import operator
from typing import Any

from tvm import te, tirx

QUERIES, KEYS, VALUES = "attention_queries", "attention_keys", "attention_values"
"""Names of the blocks that bring the inputs into order."""
DOT, SCORES, TERMS = "attention_dot", "attention_scores", "attention_terms"
"""Names of the blocks of sums, of what is read of them, and of what the softmax is taken of."""
OPERAND = "attention_operand"
"""Name of the block of a tensor that is combined with the scores, filled up as they are."""
TOP_LANES, TOP, POWERS, TOTAL_LANES, TOTAL = (
    "attention_top_lanes", "attention_top", "attention_powers", "attention_total_lanes", "attention_total",
)  # fmt: skip
"""Names of the blocks of the softmax: greatest terms, powers of e, their sums."""
WEIGHTS = "attention_weights"
"""Name of the block of what the values are weighted with, where that is more than the powers over their sum."""
MIX, ROWS, RESULT = "attention_mix", "attention_rows", "attention_result"
"""Names of the blocks of weighted sums, of finished rows, and of the rows that were asked for."""

ROW_TILES = (8, 6)
"""Numbers of rows of a tile: a number of rows that is no multiple of one is filled up."""
ROW_BLOCKS = (40, 32, 30, 24, 18)
"""The same where there are many rows: of several tiles."""
VECTOR_TILES = (4, 3, 2)
"""Numbers of vectors of scores that are computed together."""


def filled(size: int, tiles: tuple[int, ...]) -> int:
    """The least number that is a multiple of a tile and no less than `size`; small numbers are one tile."""
    return size if size <= tiles[0] else min(-(-size // tile) * tile for tile in tiles)


def filled_rows(rows: int) -> int:
    """Number of rows of queries that are computed."""
    return filled(rows, ROW_TILES if rows <= ROW_BLOCKS[0] else ROW_BLOCKS)


def filled_columns(columns: int, lanes: int) -> int:
    """Number of columns of scores that are computed."""
    return filled(-(-columns // lanes), VECTOR_TILES) * lanes


def queries(data: Any) -> Any:
    """[..., rows, depth] with the rows filled up."""
    *batch, rows, depth = _shape(data)
    count = filled_rows(rows)

    def value(*index: Any) -> Any:
        *outer, row, k = index
        return data[(*outer, row if count == rows else tirx.min(row, rows - 1), k)]

    return te.compute((*batch, count, depth), value, name=QUERIES)


def keys(data: Any, lanes: int) -> Any:
    """[..., depth, columns] as [..., blocks of columns, depth, lanes]."""
    *batch, depth, columns = _shape(data)
    blocks = filled_columns(columns, lanes) // lanes

    def value(*index: Any) -> Any:
        *outer, block, k, lane = index
        column = block * lanes + lane
        filled = _filled(data, outer, k, column, columns, blocks * lanes)
        if columns < lanes or columns == blocks * lanes:
            return filled
        return tirx.if_then_else(block < columns // lanes, data[(*outer, k, column)], filled)  # no bounds for most

    return te.compute((*batch, blocks, depth, lanes), value, name=KEYS)


def values(data: Any, lanes: int) -> Any:
    """[..., rows, columns] with the columns filled up."""
    *batch, rows, columns = _shape(data)
    size = -(-columns // lanes) * lanes

    def value(*index: Any) -> Any:
        *outer, row, column = index
        return _filled(data, outer, row, column, columns, size)

    return te.compute((*batch, rows, size), value, name=VALUES)


def operand(data: Any, rows: int, lanes: int) -> Any:
    """A tensor that is combined with scores, [..., 1 or rows, 1 or columns], filled up as those are."""
    shape = _shape(data)
    size = list(shape)
    if shape[-1] > 1:
        size[-1] = filled_columns(shape[-1], lanes)
    if len(shape) > 1 and shape[-2] == rows:
        size[-2] = filled_rows(rows)

    def value(*index: Any) -> Any:
        *outer, column = index
        if outer and size[-2] != shape[-2]:
            outer[-1] = tirx.min(outer[-1], rows - 1)
        clamped = column if size[-1] == shape[-1] else tirx.min(column, shape[-1] - 1)
        return data[(*outer, clamped)]

    return te.compute(tuple(size), value, name=OPERAND)


def scores(rows: Any, packed: Any) -> Any:
    """Products of filled queries and packed keys: [..., filled rows, filled columns]."""
    *batch, count, depth = _shape(rows)
    blocks, _, lanes = _shape(packed)[-3:]
    step = te.reduce_axis((0, depth), name="k")

    def sums(*index: Any) -> Any:
        *outer, row, block, lane = index
        return te.sum(rows[(*outer, row, step)] * packed[(*outer, block, step, lane)], axis=step)

    dot = te.compute((*batch, count, blocks, lanes), sums, name=DOT)

    def value(*index: Any) -> Any:
        *outer, column = index
        return dot[(*outer, column // lanes, column % lanes)]

    return te.compute((*batch, count, blocks * lanes), value, name=SCORES)


def softmax(data: Any, columns: int, lanes: int) -> tuple[Any, Any]:
    """Powers of e, zero beyond `columns`, and their sum in each row."""
    *batch, size = _shape(data)
    dtype = str(data.dtype)
    lowest, none = tirx.min_value(dtype), tirx.const(0.0, dtype)

    def known(column: Any, value: Any, other: Any) -> Any:
        return value if columns == size else tirx.Select(column < columns, value, other)

    terms = te.compute((*batch, size), lambda *i: known(i[-1], data[i], lowest), name=TERMS)
    top = _combined(terms, (te.max, tirx.max), lanes, TOP_LANES, TOP)

    def power(*index: Any) -> Any:
        exponent = tirx.min(terms[index] - top[index[:-1]], none)  # known not to be positive: fewer steps
        return known(index[-1], tirx.exp(exponent), none)

    powers = te.compute((*batch, size), power, name=POWERS)
    return powers, _combined(powers, (te.sum, operator.add), lanes, TOTAL_LANES, TOTAL)


def shares(powers: Any, total: Any) -> Any:
    """The softmax itself, where something is made of it before values are weighted."""
    return te.compute(_shape(powers), lambda *i: powers[i] * _reciprocal(total, i[:-1]), name="attention_shares")


def weights(data: Any) -> Any:
    """The factors of the values, in memory, where operators follow the softmax."""
    return te.compute(_shape(data), lambda *i: data[i], name=WEIGHTS)


def mix(factors: Any, packed: Any, total: Any | None, lanes: int) -> Any:
    """Values, weighted: [..., filled rows, filled columns]. `total`: by which the sums are still to be divided."""
    *batch, count, _ = _shape(factors)
    inner, size = _shape(packed)[-2:]
    step = te.reduce_axis((0, inner), name="k")

    def sums(*index: Any) -> Any:
        *outer, row, block, lane = index
        return te.sum(factors[(*outer, row, step)] * packed[(*outer, step, block * lanes + lane)], axis=step)

    added = te.compute((*batch, count, size // lanes, lanes), sums, name=MIX)

    def value(*index: Any) -> Any:
        *outer, column = index
        found = added[(*outer, column // lanes, column % lanes)]
        return found if total is None else found * _reciprocal(total, outer)

    return te.compute((*batch, count, size), value, name=ROWS)


def result(data: Any, rows: int, columns: int) -> Any:
    """The rows and columns that were asked for."""
    *batch, _, _ = _shape(data)
    return te.compute((*batch, rows, columns), lambda *i: data[i], name=RESULT)


def _combined(data: Any, combine: Any, lanes: int, by_lane: str, name: str) -> Any:
    """A reduction over the last axis: vectors first, then the lanes of one, half by half."""
    *batch, size = _shape(data)
    block = te.reduce_axis((0, size // lanes), name="block")
    reduce, pair = combine
    vectors = te.compute(
        (*batch, lanes), lambda *i: reduce(data[(*i[:-1], block * lanes + i[-1])], axis=block), name=by_lane
    )

    def halved(*index: Any) -> Any:
        left = [vectors[(*index, lane)] for lane in range(lanes)]
        while half := len(left) // 2:
            left = [pair(left[lane], left[half + lane]) for lane in range(half)]
        return left[0]

    return te.compute(tuple(batch), halved, name=name)


def _filled(data: Any, outer: list[Any], row: Any, column: Any, columns: int, size: int) -> Any:
    """An element of a matrix whose columns are filled up with copies of the last one."""
    return data[(*outer, row, column if columns == size else tirx.min(column, columns - 1))]


def _reciprocal(total: Any, index: Any) -> Any:
    return tirx.const(1.0, str(total.dtype)) / total[tuple(index)]


def _shape(data: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in data.shape)
