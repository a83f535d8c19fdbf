"""Schedules products and convolutions of 8-bit integers whose weights are packed for a dot instruction.

A tile of sums, some rows by some vectors of columns, stays in registers while the instruction adds to it; fused
operators are applied to the tile while it is there. The rows of a convolution are places of the image, its columns are
filters. MetaSchedule's own rule for such instructions tiles three levels and writes the sums to memory.
"""

from typing import Any, NamedTuple

from autosched_tvm.compile.integers import dot_instructions
from autosched_tvm.compile.integers.schedule_steps import (
    Nest,
    compute_in,
    drawn,
    extent,
    factors,
    joined,
    matrix_loops,
    start_apart,
    tiled,
)

ROWS_MAX, VECTORS_MAX = 16, 8
"""Maximum size of a tile, in rows and vectors. The largest has a few more vectors than there are registers."""
HEIGHT_MAX = 4
"""Maximum number of rows of an image in a tile."""
STEPS_MAX = 4
"""Maximum number of steps over the depth that are unrolled."""
_IMAGE_AXES = 5
"""Number of axes of an image in blocked layout."""


class Tile(NamedTuple):
    """Tile of sums in registers."""

    rows: int
    vectors: int


def usual(rows: int, blocks: int, registers: int) -> Tile:
    """Returns the tile that fits into the registers and has the most products per number read."""
    tiles = [
        Tile(high, wide)
        for high in factors(rows, ROWS_MAX)
        for wide in factors(blocks, VECTORS_MAX)
        if high * wide + wide < registers
    ]
    return max(tiles, key=lambda tile: (reuse(*tile), tile.vectors))


def usual_window(height: int, width: int, blocks: int, registers: int) -> tuple[int, Tile]:
    """Returns the same for an image: the number of its rows in a tile, and the tile of each row."""
    found = [(high, usual(width, blocks, registers // high)) for high in factors(height, HEIGHT_MAX)]
    return max(found, key=lambda one: (reuse(one[0] * one[1].rows, one[1].vectors), -one[0]))


def reuse(rows: int, vectors: int) -> float:
    """Returns the number of products per number read."""
    return rows * vectors / (rows + vectors)


def apply(schedule: Any, anchor: Any, registers: int | None) -> None:
    """Schedules the block of sums. `registers`: number of vector registers of the CPU; None: draw tile sizes. Raises
    LookupError for weights that are packed for no known instruction."""
    if (instruction := dot_instructions.of_block(schedule.get(anchor))) is None:
        raise LookupError("weights for an unknown instruction")
    last = joined(schedule, anchor)
    image = len(schedule.get_loops(last)) == _IMAGE_AXES
    nest = (_windows if image else _rows)(schedule, anchor, last, registers)
    compute_in(schedule, anchor, nest)
    own = schedule.get_loops(anchor)
    reductions = 4 if image else 1
    *outer, depth = own[len(own) - reductions :]
    first, *others, lane = own[len(own) - reductions - (4 if image else 3) : len(own) - reductions]
    tile = [*others, first] if image else [first, *others]  # places outside filters: only the weights stay in registers
    steps, group = schedule.split(depth, [None, instruction.group])
    unrolled = 1
    if registers is None:
        unrolled = schedule.sample_perfect_tile(steps, n=2, max_innermost_factor=STEPS_MAX)[1]
    step, several = schedule.split(steps, [None, unrolled])
    schedule.reorder(*outer, step, several, *tile, lane, group)
    for loop in (several, *tile):
        schedule.unroll(loop)
    start_apart(schedule, anchor, [*outer, step][0])
    schedule.tensorize(lane, dot_instructions.register(instruction))


def _rows(schedule: Any, anchor: Any, last: Any, registers: int | None) -> Nest:
    """Returns the loops of a product: tiles of rows and columns."""
    row, columns = matrix_loops(schedule, last)
    dot_rows, blocks, lanes, _ = schedule.get_loops(anchor)
    if registers is None:
        high, wide = drawn(schedule, dot_rows, ROWS_MAX), drawn(schedule, blocks, VECTORS_MAX)
    else:
        high, wide = usual(extent(schedule, dot_rows), extent(schedule, blocks), registers)
    return tiled(schedule, row, columns, (high, wide, extent(schedule, lanes)))


def _windows(schedule: Any, anchor: Any, last: Any, registers: int | None) -> Nest:
    """Returns the loops of a convolution: tiles of an image's rows and columns, and of filters."""
    images, filters, rows, columns, lane = schedule.get_loops(last)
    _, blocks, dot_rows, dot_columns, *_ = schedule.get_loops(anchor)
    if registers is None:
        high, across = drawn(schedule, dot_rows, HEIGHT_MAX), drawn(schedule, dot_columns, ROWS_MAX)
        wide = drawn(schedule, blocks, VECTORS_MAX)
    else:
        height, width, parts = (extent(schedule, loop) for loop in (dot_rows, dot_columns, blocks))
        high, (across, wide) = usual_window(height, width, parts, registers)
    part, tile_part = schedule.split(filters, [None, wide])
    row, tile_row = schedule.split(rows, [None, high])
    column, tile_column = schedule.split(columns, [None, across])
    schedule.reorder(images, part, row, column, tile_row, tile_column, tile_part, lane)
    schedule.parallel(schedule.fuse(images, part, row))
    return Nest(column, (tile_row, tile_column, tile_part), lane)
