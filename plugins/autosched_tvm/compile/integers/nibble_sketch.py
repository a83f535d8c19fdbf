"""The schedule of products with 4-bit weights: a tile of sums, some rows by some vectors of columns, in registers."""

from typing import Any

from autosched_tvm.compile.integers.schedule_steps import drawn, extent, factors, joined

ROWS_MAX, VECTORS_MAX = 16, 8
"""The largest tile has some more vectors than there are registers."""
PAIRS_MAX = 8
"""Maximum number of bytes, one below the other, that are unrolled."""
PAIRS_USUAL = 2


def apply(schedule: Any, anchor: Any, registers: int | None) -> None:
    """Schedule the block of sums. `registers`: vector registers of the CPU; None: the tile is drawn."""
    last = joined(schedule, anchor)
    *rows, columns = schedule.get_loops(last)
    row = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
    dot_row, parts, lanes, *_ = schedule.get_loops(anchor)
    if registers is None:
        high, wide = drawn(schedule, dot_row, ROWS_MAX), drawn(schedule, parts, VECTORS_MAX)
    else:
        high, wide = usual(extent(schedule, row), extent(schedule, parts), registers)
    row, tile_row = schedule.split(row, [None, high])
    column, tile_column, lane = schedule.split(columns, [None, wide, extent(schedule, lanes)])
    schedule.reorder(column, row, tile_row, tile_column, lane)
    place = schedule.fuse(column, row)
    schedule.parallel(place)
    schedule.compute_at(anchor, place, preserve_unit_loops=True)
    for loop in (tile_row, tile_column):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    *_, tile_row, tile_part, own_lane, group, pair, half = schedule.get_loops(anchor)
    several = drawn(schedule, pair, PAIRS_MAX) if registers is None else PAIRS_USUAL
    pair, unrolled = schedule.split(pair, [None, several])
    schedule.reorder(group, pair, unrolled, half, tile_row, tile_part, own_lane)
    for loop in (unrolled, half, tile_row, tile_part):
        schedule.unroll(loop)
    schedule.vectorize(own_lane)
    start = schedule.decompose_reduction(anchor, group)
    schedule.vectorize(schedule.get_loops(start)[-1])


def usual(rows: int, parts: int, registers: int) -> tuple[int, int]:
    """The most rows whose sums leave registers for weights, scales and offsets, and the most vectors then."""
    high = max(one for one in factors(rows, ROWS_MAX) if one + 4 <= registers)
    return high, max(wide for wide in factors(parts, VECTORS_MAX) if wide == 1 or (high + 3) * wide < registers)
