"""Schedules products on whole tiles: up to two tiles of rows by two of columns at a time.

Their sums pass through a few kilobytes of memory in the L1 cache to the fused operators: tile registers can only add
products.
"""

from math import gcd

from autosched_tvm.compile.integers import product, tile_convolution
from autosched_tvm.compile.integers.schedule_steps import drawn, extent, in_registers, joined, matrix_loops, start_apart
from autosched_tvm.compile.integers.tile_instructions import ROWS, Tiles, register
from autosched_tvm.tvm_types import BlockRV, Schedule

_WINDOW_AXES = 8
"""Number of axes of the sums over windows of an image."""
ROWS_MAX = 8
"""Maximum number of places, one below the other, that read the same weights."""


def apply(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the block of sums. `registers`: None: draw the number of places that read the same weights.

    There are two tiles of data and two of weights where possible: with four of sums they take all registers.
    """
    if len(schedule.get_loops(anchor)) == _WINDOW_AXES:
        _windows(schedule, anchor, registers)
    else:
        _rows(schedule, anchor, registers)


def _rows(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    last = joined(schedule, anchor)
    row, columns = matrix_loops(schedule, last)
    dot_rows, blocks, lanes, _, _ = schedule.get_loops(anchor)
    high = 2 - extent(schedule, dot_rows) // ROWS % 2
    wide = 2 - extent(schedule, blocks) % 2
    row, tile_row = schedule.split(row, [None, high * ROWS])
    rows_there, place = schedule.split(row, [None, 1 if registers else drawn(schedule, row, ROWS_MAX)])
    column, tile_column, lane = schedule.split(columns, [None, wide, extent(schedule, lanes)])
    schedule.reorder(column, rows_there, place, tile_row, tile_column, lane)
    schedule.parallel(schedule.fuse(column, rows_there))
    schedule.compute_at(anchor, place, preserve_unit_loops=True)
    in_registers(schedule, tile_column, lane)
    *_, sums_row, _, _, step, part = schedule.get_loops(anchor)
    start_apart(schedule, anchor, sums_row)
    depth = extent(schedule, step) * extent(schedule, part)
    schedule.tensorize(sums_row, register(Tiles(high, wide, depth)))


def _windows(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the same for an image: all windows of a group of its rows form a matrix."""
    sizes = tile_convolution.sizes_of(schedule, anchor)
    last = joined(schedule, anchor, lambda *_: None)
    images, filters, rows, columns, lane = schedule.get_loops(last)
    blocks = extent(schedule, filters)
    high = 2 - sizes.group.places // ROWS % 2
    wide = next(count for count in (4 // high, 2, 1) if blocks % count == 0)
    part, tile_part = schedule.split(filters, [None, wide])
    group, row = schedule.split(rows, [None, sizes.group.rows])
    # the sums follow these loops, which include padded rows
    _, column = schedule.split(columns, [None, sizes.group.places - (sizes.group.rows - 1) * sizes.width])
    band, group = schedule.split(group, [None, sizes.groups])
    schedule.reorder(images, band, part, group, row, column, tile_part, lane)
    schedule.compute_at(anchor, group, preserve_unit_loops=True)
    image = schedule.get_sblock(product.BORDER)
    if sizes.bands > 1:
        place = schedule.fuse(images, band)
        schedule.parallel(place)
        schedule.compute_at(image, place, preserve_unit_loops=True)
    else:
        schedule.parallel(schedule.fuse(images, band, part, group))
    *outer, run = schedule.get_loops(image)
    vector = gcd(sizes.channels, ROWS)
    line, *_, numbers = schedule.split(run, [None, sizes.width, sizes.channels // vector, vector])
    schedule.vectorize(numbers)
    if sizes.bands == 1:
        schedule.parallel(schedule.fuse(*outer, line))
    in_registers(schedule, tile_part, lane)
    _, _, place, block, own, tap, step, four = schedule.get_loops(anchor)[-8:]
    _, tile = schedule.split(place, [None, high * ROWS])
    schedule.reorder(tile, block, own, tap, step, four)
    start_apart(schedule, anchor, tile)
    schedule.tensorize(tile, register(Tiles(high, wide, sizes.run, sizes.taps, sizes.below, sizes.apart)))
