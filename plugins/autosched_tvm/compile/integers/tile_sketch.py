"""The schedule of products on whole tiles: up to two tiles of rows by two of columns at a time.

Their sums go through memory of a few kilobytes, in the nearest cache, to what is fused after them: the registers of
tiles can do nothing but add products.
"""

from typing import Any

from autosched_tvm.compile.integers import tile_instructions
from autosched_tvm.compile.integers.schedule_steps import drawn, extent, in_registers, joined, matrix_loops, start_apart

ROWS_MAX = 8
"""Maximum number of places, one below the other, that read the same weights."""


def apply(schedule: Any, anchor: Any, registers: int | None) -> None:
    """Schedule the block of sums. `registers`: None: the number of places with the same weights is drawn.

    There are two tiles of each kind wherever these are all: with four of sums they take all registers.
    """
    last = joined(schedule, anchor)
    row, columns = matrix_loops(schedule, last)
    dot_rows, blocks, lanes, _, _ = schedule.get_loops(anchor)
    high = 2 - extent(schedule, dot_rows) // tile_instructions.ROWS % 2
    wide = 2 - extent(schedule, blocks) % 2
    row, tile_row = schedule.split(row, [None, high * tile_instructions.ROWS])
    rows_there, place = schedule.split(row, [None, 1 if registers else drawn(schedule, row, ROWS_MAX)])
    column, tile_column, lane = schedule.split(columns, [None, wide, extent(schedule, lanes)])
    schedule.reorder(column, rows_there, place, tile_row, tile_column, lane)
    schedule.parallel(schedule.fuse(column, rows_there))
    schedule.compute_at(anchor, place, preserve_unit_loops=True)
    in_registers(schedule, tile_column, lane)
    *_, sums_row, _, _, step, part = schedule.get_loops(anchor)
    start_apart(schedule, anchor, sums_row)
    depth = extent(schedule, step) * extent(schedule, part)
    schedule.tensorize(sums_row, tile_instructions.register(high, wide, depth))
