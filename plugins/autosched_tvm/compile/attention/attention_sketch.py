"""The schedule of attention: some rows of one head at a time, from their scores to the weighted values.

A tile of scores, some rows by some vectors of columns, stays in registers while the depth is summed up, and so does a
tile of weighted values; everything between them stays in the cache.
"""

from typing import Any

from autosched_tvm.compile.attention import computation
from autosched_tvm.compile.integers import dot_sketch
from autosched_tvm.compile.integers.schedule_steps import drawn, extent, factors, spread

ROWS_MAX, VECTORS_MAX = 16, 8
"""The largest tile has some more vectors than there are registers."""
CONSTANTS = 6
"""Vector registers that LLVM keeps for constants of the exponential function, also while it sums up."""

_NAMED = frozenset({
    computation.QUERIES, computation.KEYS, computation.VALUES, computation.DOT, computation.TERMS,
    computation.TOP_LANES, computation.TOP, computation.POWERS, computation.TOTAL_LANES, computation.TOTAL,
    computation.WEIGHTS, computation.MIX, computation.ROWS,
})  # fmt: skip


def apply(schedule: Any, anchor: Any, registers: int | None) -> None:
    """Schedule the kernel whose block of sums is `anchor`. `registers`: vector registers of the CPU; None: tiles are
    drawn."""
    _inline(schedule)
    rows = schedule.get_sblock(computation.ROWS)
    *batch, row, columns = schedule.get_loops(rows)
    *_, dot_row, blocks, lanes, _ = schedule.get_loops(anchor)
    mixed = schedule.get_loops(schedule.get_sblock(computation.MIX))[len(batch) + 1]
    if registers is None:
        high, wide = drawn(schedule, dot_row, ROWS_MAX), drawn(schedule, blocks, VECTORS_MAX)
        across = drawn(schedule, mixed, VECTORS_MAX)
    else:
        rows_there, blocks_there, mixed_there = (extent(schedule, loop) for loop in (dot_row, blocks, mixed))
        high, wide, across = usual(rows_there, blocks_there, mixed_there, registers)
    width = extent(schedule, lanes)
    part, tile_row = schedule.split(row, [None, high])
    column, tile_column, lane = schedule.split(columns, [None, across, width])
    schedule.reorder(part, column, tile_row, tile_column, lane)
    place = schedule.fuse(*batch, part)
    schedule.parallel(place)
    for loop in (tile_row, tile_column):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    mix = schedule.get_sblock(computation.MIX)
    schedule.compute_at(mix, column, preserve_unit_loops=True)
    _sums(schedule, mix)
    for name in (
        computation.WEIGHTS, computation.TOTAL, computation.TOTAL_LANES, computation.POWERS, computation.TOP,
        computation.TOP_LANES, computation.TERMS,
    ):  # fmt: skip
        if (block := _block(schedule, name)) is not None:
            schedule.compute_at(block, place, preserve_unit_loops=True)
            _softmax_part(schedule, block, name, width)
    terms = schedule.get_sblock(computation.TERMS)
    *_, term_row, term_column = schedule.get_loops(terms)
    column, tile_column, lane = schedule.split(term_column, [None, wide, width])
    schedule.reorder(column, term_row, tile_column, lane)
    for loop in (term_row, tile_column):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.compute_at(anchor, column, preserve_unit_loops=True)
    _sums(schedule, anchor)
    own = schedule.get_sblock(computation.QUERIES)
    schedule.compute_at(own, place, preserve_unit_loops=True)
    for name in (computation.KEYS, computation.VALUES):
        *outer, lane = schedule.get_loops(schedule.get_sblock(name))
        schedule.parallel(schedule.fuse(*outer))
        if name == computation.KEYS:
            schedule.vectorize(lane)
        else:
            schedule.vectorize(schedule.split(lane, [None, width])[1])


def usual(rows: int, blocks: int, mixed: int, registers: int) -> tuple[int, int, int]:
    """Rows, vectors of scores and vectors of weighted values of the tiles with the most products for each number that
    is read, of those that fit into the registers."""
    found = []
    free = registers - CONSTANTS
    for high in factors(rows, ROWS_MAX):
        wide, across = (
            max(wide for wide in factors(size, VECTORS_MAX) if wide == 1 or high * wide + wide <= free)
            for size in (blocks, mixed)
        )
        if high + 1 <= free:
            found.append((dot_sketch.reuse(high, wide) + dot_sketch.reuse(high, across), high, wide, across))
    return max(found)[1:]


def _inline(schedule: Any) -> None:
    """Make what lies between the named blocks part of them."""
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        name = str(schedule.get(block).name_hint)
        if name in _NAMED or name.startswith(computation.OPERAND):
            continue
        if schedule.get_consumers(block):
            schedule.compute_inline(block)
        else:
            spread(schedule, block)


def _block(schedule: Any, name: str) -> Any | None:
    names = {str(schedule.get(b).name_hint) for b in schedule.get_child_blocks(schedule.get_sblock("root"))}
    return schedule.get_sblock(name) if name in names else None


def _sums(schedule: Any, anchor: Any) -> None:
    """Keep a tile of sums in registers; the depth outside."""
    *_, row, block, lane, depth = schedule.get_loops(anchor)
    schedule.reorder(depth, row, block, lane)
    for loop in (row, block):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    start = schedule.decompose_reduction(anchor, depth)
    schedule.vectorize(schedule.get_loops(start)[-1])


def _softmax_part(schedule: Any, block: Any, name: str, width: int) -> None:
    """Vectors of a part of the softmax."""
    if name in (computation.WEIGHTS, computation.POWERS):
        schedule.vectorize(schedule.split(schedule.get_loops(block)[-1], [None, width])[1])
    elif name in (computation.TOTAL_LANES, computation.TOP_LANES):
        *_, lane, step = schedule.get_loops(block)
        schedule.reorder(step, lane)
        schedule.vectorize(lane)
        start = schedule.decompose_reduction(block, step)
        schedule.vectorize(schedule.get_loops(start)[-1])
