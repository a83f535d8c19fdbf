"""Schedules products with 4-bit weights: a tile of sums, some rows by some vectors of columns, stays in registers."""

from autosched_tvm.compile.integers.schedule_steps import (
    compute_in,
    drawn,
    extent,
    factors,
    in_registers,
    joined,
    matrix_loops,
    start_apart,
    tiled,
)
from autosched_tvm.tvm_types import BlockRV, Schedule

ROWS_MAX, VECTORS_MAX = 16, 8
"""Maximum size of a tile, in rows and vectors. The largest has a few more vectors than there are registers."""
PAIRS_MAX = 8
"""Maximum number of bytes, one below the other, that are unrolled."""
PAIRS_USUAL = 2


def apply(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the block of sums. `registers`: number of vector registers of the CPU; None: draw tile sizes."""
    last = joined(schedule, anchor)
    row, columns = matrix_loops(schedule, last)
    dot_row, parts, lanes, *_ = schedule.get_loops(anchor)
    if registers is None:
        high, wide = drawn(schedule, dot_row, ROWS_MAX), drawn(schedule, parts, VECTORS_MAX)
    else:
        high, wide = usual(extent(schedule, row), extent(schedule, parts), registers)
    compute_in(schedule, anchor, tiled(schedule, row, columns, (high, wide, extent(schedule, lanes))))
    *_, tile_row, tile_part, own_lane, group, pair, half = schedule.get_loops(anchor)
    several = drawn(schedule, pair, PAIRS_MAX) if registers is None else PAIRS_USUAL
    pair, unrolled = schedule.split(pair, [None, several])
    schedule.reorder(group, pair, unrolled, half, tile_row, tile_part, own_lane)
    in_registers(schedule, unrolled, half, tile_row, tile_part, own_lane)
    start_apart(schedule, anchor, group)


def usual(rows: int, parts: int, registers: int) -> tuple[int, int]:
    """Returns the most rows whose sums leave registers for weights, scales and offsets, and the most vectors for these
    rows."""
    high = max(one for one in factors(rows, ROWS_MAX) if one + 4 <= registers)
    return high, max(wide for wide in factors(parts, VECTORS_MAX) if wide == 1 or (high + 3) * wide < registers)
