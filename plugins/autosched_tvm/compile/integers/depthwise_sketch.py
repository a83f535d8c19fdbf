"""Schedules depthwise convolutions of bytes.

Some rows of the image at a time are converted to float32, and stay in the L1 cache for all windows over them. A tile of
sums, some places of the image by one vector of channels, stays in registers.
"""

from autosched_tvm.compile.integers import product
from autosched_tvm.compile.integers.schedule_steps import drawn, extent, factors, in_registers, joined, start_apart
from autosched_tvm.tvm_types import BlockRV, Schedule

ROWS_MAX, COLUMNS_MAX = 4, 16
"""Maximum size of a tile, in rows and columns of the image."""
TILES_MAX = 16
"""Maximum number of tiles, one below the other, over one part of the image."""
TILES_USUAL = 4


def apply(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the block of sums. `registers`: number of vector registers of the CPU; None: draw tile sizes."""
    last = joined(schedule, anchor)
    images, channels, rows, columns, lane = schedule.get_loops(last)
    if registers is None:
        high, wide = drawn(schedule, rows, ROWS_MAX), drawn(schedule, columns, COLUMNS_MAX)
    else:
        high, wide = usual(extent(schedule, rows), extent(schedule, columns), registers)
    parts, tile_row = schedule.split(rows, [None, high])
    tiles = TILES_USUAL if registers is not None else drawn(schedule, parts, TILES_MAX)
    part, tile = schedule.split(parts, [None, tiles])
    column, tile_column = schedule.split(columns, [None, wide])
    schedule.reorder(images, channels, part, tile, column, tile_row, tile_column, lane)
    outer = schedule.fuse(images, channels, part)
    schedule.parallel(outer)
    image = schedule.get_sblock(product.IMAGE)
    schedule.compute_at(anchor, column, preserve_unit_loops=True)
    schedule.compute_at(image, outer, preserve_unit_loops=True)
    in_registers(schedule, tile_row, tile_column, lane)
    schedule.vectorize(schedule.get_loops(image)[-1])
    *_, y, x, own_lane, kernel_row, kernel_column = schedule.get_loops(anchor)
    schedule.reorder(kernel_row, kernel_column, y, x, own_lane)
    in_registers(schedule, y, x, kernel_column, own_lane)
    start_apart(schedule, anchor, kernel_row)


def usual(rows: int, columns: int, registers: int) -> tuple[int, int]:
    """Returns rows and columns of a tile that leaves some registers free."""
    tiles = [
        (high, wide)
        for high in factors(rows, ROWS_MAX)
        for wide in factors(columns, COLUMNS_MAX)
        if high * wide <= registers // 2
    ]
    return max(tiles, key=lambda tile: (tile[0] * tile[1], tile[1]))
