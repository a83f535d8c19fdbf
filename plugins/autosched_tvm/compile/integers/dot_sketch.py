"""The schedule of products and convolutions of 8-bit numbers whose weights are packed for a dot instruction.

A tile of sums, some rows by some vectors of columns, stays in registers while the instruction adds to it; what is fused
after the sums happens to the tile while it is there. Rows of a convolution are places of the image, columns are
filters. MetaSchedule's own rule for such instructions tiles three levels and writes the sums to memory.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm

from autosched_tvm.compile.integers import dot_instructions, product
from autosched_tvm.compile.integers.dot_instructions import GROUP

ROWS_MAX, VECTORS_MAX = 16, 8
"""The largest tile has some more vectors than there are registers."""
HEIGHT_MAX = 4
"""Maximum number of rows of an image in a tile."""
VECTOR = 16
"""Number of values of a vector where nothing is tiled."""
STEPS_MAX = 4
"""Maximum number of steps over the depth that are unrolled."""


class Tile(NamedTuple):
    """Sums in registers."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class _Nest:
    """The loops over results."""

    place: Any
    """The loop inside of which a tile is computed."""
    tile: tuple[Any, ...]
    """Loops over the vectors of a tile."""
    lane: Any
    """Loop over a vector."""


def sampled(workload: Any, seed: int) -> Any | None:
    """A schedule of a task's workload, tile drawn, so that every search of decisions works on it; None for tasks that
    have no such sums."""
    return _scheduled(workload, seed, None)


def by_rule(function: Any, registers: int) -> Any | None:
    """A function with a tile that is good for most; None for one that has no such sums. `registers`: vector registers
    of the CPU."""
    schedule = _scheduled(tvm.IRModule({"main": function}), 1, registers)
    return None if schedule is None else schedule.mod["main"]


def usual(rows: int, blocks: int, registers: int) -> Tile:
    """The tile with the most products for each number that is read, of those that fit into the registers."""
    tiles = [
        Tile(high, wide)
        for high in _factors(rows, ROWS_MAX)
        for wide in _factors(blocks, VECTORS_MAX)
        if high * wide + wide < registers
    ]
    return max(tiles, key=lambda tile: (tile.rows * tile.vectors / (tile.rows + tile.vectors), tile.vectors))


def usual_window(height: int, width: int, blocks: int, registers: int) -> tuple[int, Tile]:
    """The same for an image: rows of it, and the tile of each."""
    found = [
        (high, Tile(tile.rows, tile.vectors))
        for high in _factors(height, HEIGHT_MAX)
        for tile in [usual(width, blocks, registers // high)]
    ]
    return max(found, key=lambda one: (_reuse(one[0] * one[1].rows, one[1].vectors), -one[0]))


def _reuse(rows: int, vectors: int) -> float:
    return rows * vectors / (rows + vectors)


def _factors(size: int, most: int) -> list[int]:
    return [factor for factor in range(1, most + 1) if size % factor == 0]


def _scheduled(workload: Any, seed: int, registers: int | None) -> Any | None:
    schedule = tvm.s_tir.Schedule(workload, seed=seed, debug_mask=0, enable_check=False)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    if product.DOT not in [str(schedule.get(block).name_hint) for block in blocks]:
        return None
    anchor = schedule.get_sblock(product.DOT)
    if (instruction := dot_instructions.of_block(schedule.get(anchor))) is None:
        return None
    try:
        _apply(schedule, anchor, dot_instructions.register(instruction), registers)
    except Exception:  # foreign code, with errors of its own; an epilogue that does not follow the product's loops
        return None
    return schedule


def _apply(schedule: Any, anchor: Any, intrinsic: str, registers: int | None) -> None:
    last = _joined(schedule, anchor)
    image = len(schedule.get_loops(last)) == _IMAGE_AXES
    nest = (_windows if image else _rows)(schedule, anchor, last, registers)
    schedule.compute_at(anchor, nest.place, preserve_unit_loops=True)
    for loop in nest.tile:
        schedule.unroll(loop)
    schedule.vectorize(nest.lane)
    own = schedule.get_loops(anchor)
    reductions = 4 if image else 1
    *outer, depth = own[len(own) - reductions :]
    first, *others, lane = own[len(own) - reductions - (4 if image else 3) : len(own) - reductions]
    tile = [*others, first] if image else [first, *others]  # places, then filters: only the weights stay in registers
    steps, group = schedule.split(depth, [None, GROUP])
    unrolled = 1
    if registers is None:
        unrolled = schedule.sample_perfect_tile(steps, n=2, max_innermost_factor=STEPS_MAX)[1]
    step, several = schedule.split(steps, [None, unrolled])
    schedule.reorder(*outer, step, several, *tile, lane, group)
    for loop in (several, *tile):
        schedule.unroll(loop)
    start = schedule.decompose_reduction(anchor, [*outer, step][0])
    schedule.vectorize(schedule.get_loops(start)[-1])
    schedule.tensorize(lane, intrinsic)


_IMAGE_AXES = 5
"""Axes of an image whose channels are in blocks."""


def _joined(schedule: Any, anchor: Any) -> Any:
    """The block whose loops the sums follow, after what lies between has become part of it."""
    chain = [anchor]
    while after := schedule.get_consumers(chain[-1]):
        chain.append(after[0])
    at = max(number for number, block in enumerate(chain) if _size(schedule, block) <= _size(schedule, chain[1]))
    for block in (*chain[1:at], *chain[at + 1 : -1]):
        schedule.compute_inline(block)
    if chain[at + 1 :]:  # the results are used several times each
        _spread(schedule, chain[-1])
    kept = {str(schedule.get(block).name_hint) for block in (anchor, chain[at], chain[-1])}
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        name = str(schedule.get(block).name_hint)
        if name == product.BORDER:
            _spread(schedule, block)
        elif name not in kept:
            schedule.compute_inline(block)
    return chain[at]


def _size(schedule: Any, block: Any) -> int:
    """Number of values that a block computes, each as often as it is computed."""
    return math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block))


def _spread(schedule: Any, block: Any) -> None:
    """Compute a block by itself, in vectors."""
    *outer, columns = schedule.get_loops(block)
    schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    schedule.vectorize(schedule.split(columns, [None, VECTOR])[1])


def _rows(schedule: Any, anchor: Any, last: Any, registers: int | None) -> _Nest:
    """The loops of a product: tiles of rows and of columns."""
    *rows, columns = schedule.get_loops(last)
    row = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
    dot_rows, blocks, lanes, _ = schedule.get_loops(anchor)
    if registers is None:
        high, wide = _drawn(schedule, dot_rows, ROWS_MAX), _drawn(schedule, blocks, VECTORS_MAX)
    else:
        high, wide = usual(_extent(schedule, dot_rows), _extent(schedule, blocks), registers)
    row, tile_row = schedule.split(row, [None, high])
    column, tile_column, lane = schedule.split(columns, [None, wide, _extent(schedule, lanes)])
    schedule.reorder(column, row, tile_row, tile_column, lane)
    outer = schedule.fuse(column, row)
    schedule.parallel(outer)
    return _Nest(outer, (tile_row, tile_column), lane)


def _windows(schedule: Any, anchor: Any, last: Any, registers: int | None) -> _Nest:
    """The loops of a convolution: tiles of an image's rows and columns, and of filters."""
    images, filters, rows, columns, lane = schedule.get_loops(last)
    _, blocks, dot_rows, dot_columns, *_ = schedule.get_loops(anchor)
    if registers is None:
        high, across = _drawn(schedule, dot_rows, HEIGHT_MAX), _drawn(schedule, dot_columns, ROWS_MAX)
        wide = _drawn(schedule, blocks, VECTORS_MAX)
    else:
        height, width, parts = (_extent(schedule, loop) for loop in (dot_rows, dot_columns, blocks))
        high, (across, wide) = usual_window(height, width, parts, registers)
    part, tile_part = schedule.split(filters, [None, wide])
    row, tile_row = schedule.split(rows, [None, high])
    column, tile_column = schedule.split(columns, [None, across])
    schedule.reorder(images, part, row, column, tile_row, tile_column, tile_part, lane)
    schedule.parallel(schedule.fuse(images, part, row))
    return _Nest(column, (tile_row, tile_column, tile_part), lane)


def _drawn(schedule: Any, loop: Any, most: int) -> Any:
    return schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most)[1]


def _extent(schedule: Any, loop: Any) -> int:
    return int(schedule.get(loop).extent)
