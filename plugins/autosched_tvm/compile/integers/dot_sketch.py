"""Schedules products and convolutions of 8-bit integers whose weights are packed for a dot instruction.

A tile of sums, some rows by some vectors of columns, stays in registers while the instruction adds to it; fused
operators are applied to the tile while it is there. The rows of a convolution are places of the image, its columns are
filters. The padded image is made in bands of rows, which stay in the second cache: a copy of the whole image would be
written to memory and read again. MetaSchedule's own rule for such instructions tiles three levels and writes the sums
to memory.
"""

from typing import Any, NamedTuple

from tvm import tirx

from autosched_tvm.compile.integers import dot_instructions
from autosched_tvm.compile.integers.schedule_steps import (
    Nest,
    compute_in,
    drawn,
    extent,
    factors,
    joined,
    matrix_loops,
    size,
    start_apart,
    tiled,
)
from autosched_tvm.tvm_types import BlockRV, Schedule

ROWS_MAX, VECTORS_MAX = 16, 8
"""Maximum size of a tile, in rows and vectors. The largest has a few more vectors than there are registers."""
HEIGHT_MAX = 4
"""Maximum number of rows of an image in a tile."""
STEPS_MAX = 4
"""Maximum number of steps over the depth that are unrolled."""
BAND_MAX = 2**17
"""Maximum number of integers, of one or two bytes, in a band of an image that has several rows of tiles. Second caches
have 256 KB and more."""
PIECES_MIN = 8
"""Minimum number of pieces of a convolution that threads share, each a band and a part of the filters."""
_IMAGE_AXES = 5
"""Number of axes of an image in blocked layout."""


class Tile(NamedTuple):
    """Tile of sums in registers."""

    rows: int
    vectors: int


def usual(rows: int, blocks: int, registers: int) -> Tile:
    """Returns the tile that fits into the registers and has the most products per number read.

    `registers`: number of registers for sums, and for the weights of a step.
    """
    tiles = [
        Tile(high, wide)
        for high in factors(rows, ROWS_MAX)
        for wide in factors(blocks, VECTORS_MAX)
        if high * wide + wide <= registers
    ]
    return max(tiles, key=lambda tile: (reuse(*tile), tile.vectors))


def usual_window(height: int, width: int, blocks: int, registers: int) -> tuple[int, Tile]:
    """Returns the same for an image: the number of its rows in a tile, and the tile of each row."""
    found = [(high, usual(width, blocks, registers // high)) for high in factors(height, HEIGHT_MAX)]
    return max(found, key=lambda one: (reuse(one[0] * one[1].rows, one[1].vectors), -one[0]))


def reuse(rows: int, vectors: int) -> float:
    """Returns the number of products per number read."""
    return rows * vectors / (rows + vectors)


def apply(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the block of sums. `registers`: number of vector registers of the CPU; None: draw tile sizes. Raises
    LookupError for weights that are packed for no known instruction."""
    instruction = dot_instructions.of_block(schedule.get(anchor))
    if registers is not None:
        registers -= instruction.temporaries
    last = joined(schedule, anchor, lambda *_: None)
    image = len(schedule.get_loops(last)) == _IMAGE_AXES
    (_windows if image else _rows)(schedule, anchor, last, registers)
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


def apply_plain(schedule: Schedule, anchor: BlockRV) -> None:
    """Adds vectors of products one after the other, without tiles and instructions: what schedules are compared with.
    Single products take five times as long."""
    axes = schedule.get(anchor).iter_vars
    reductions = sum(axis.iter_type == tirx.IterVar.CommReduce for axis in axes)
    lane, *sums = schedule.get_loops(anchor)[-reductions - 1 :]
    schedule.cache_read(anchor, 1, "global")  # with the numbers of a vector side by side
    schedule.transform_layout(anchor, ("read", 1), lambda *index: (*index[:-2], index[-1], index[-2]))
    schedule.reorder(*sums, lane)
    schedule.vectorize(lane)
    start_apart(schedule, anchor, sums[0])


def _rows(schedule: Schedule, anchor: BlockRV, last: Any, registers: int | None) -> None:
    """Computes the sums of a product in tiles of rows and columns."""
    row, columns = matrix_loops(schedule, last)
    dot_rows, blocks, lanes, _ = schedule.get_loops(anchor)
    if registers is None:
        high, wide = drawn(schedule, dot_rows, ROWS_MAX), drawn(schedule, blocks, VECTORS_MAX)
    else:
        high, wide = usual(extent(schedule, dot_rows), extent(schedule, blocks), registers)
    compute_in(schedule, anchor, tiled(schedule, row, columns, (high, wide, extent(schedule, lanes))))


def _windows(schedule: Schedule, anchor: BlockRV, last: Any, registers: int | None) -> None:
    """Computes the sums of a convolution in tiles of an image's rows and columns, and of filters."""
    images, filters, rows, columns, lane = schedule.get_loops(last)
    _, blocks, dot_rows, dot_columns, lanes, *sums = schedule.get_loops(anchor)
    depth, tall, broad, inner = (extent(schedule, loop) for loop in sums)
    height, width, count = (extent(schedule, loop) for loop in (dot_rows, dot_columns, blocks))
    border = next(iter(schedule.get_producers(anchor)), None)  # others are inlined
    image = height * width * depth * inner
    if border is not None:
        image = size(schedule, border) // extent(schedule, images)
    weights = count * extent(schedule, lanes) * depth * tall * broad * inner
    if registers is None:
        _, tiles, high = schedule.sample_perfect_tile(dot_rows, n=3, max_innermost_factor=HEIGHT_MAX)
        across, wide = drawn(schedule, dot_columns, ROWS_MAX), drawn(schedule, blocks, VECTORS_MAX)
    else:
        high, (across, wide) = usual_window(height, width, count, registers)
        tiles = usual_band(height, high, image // height, extent(schedule, images) * count // wide) // high
    part, tile_part = schedule.split(filters, [None, wide])
    band, row, tile_row = schedule.split(rows, [None, tiles, high])
    column, tile_column = schedule.split(columns, [None, across])
    # the loop whose values need less memory is inside, since it is run again for each value of the other one
    bands, parts = extent(schedule, band), extent(schedule, part)
    outer = [band, part] if image * parts > weights * bands else [part, band]
    schedule.reorder(images, *outer, row, column, tile_row, tile_column, tile_part, lane)
    piece = schedule.fuse(images, *outer)
    schedule.parallel(piece)
    compute_in(schedule, anchor, Nest(column, (tile_row, tile_column, tile_part), lane))
    if border is not None:
        if bands > 1:
            schedule.compute_at(border, piece, preserve_unit_loops=True)
        else:  # once for all parts of the filters
            schedule.parallel(schedule.fuse(*schedule.get_loops(border)[:3]))
        schedule.vectorize(schedule.get_loops(border)[-1])


def usual_band(height: int, high: int, row: int, parts: int = PIECES_MIN) -> int:
    """Returns the number of an image's rows in a band: as many as the second cache holds, and threads can share.

    `high`: rows of a tile. `row`: number of integers in an image's row, with all channels. `parts`: number of pieces of
    a band; by default, there are enough for threads.
    """
    return max(
        (
            rows
            for rows in factors(height, height)
            if rows % high == 0 and rows * row <= BAND_MAX and height // rows * parts >= PIECES_MIN
        ),
        default=high,
    )
