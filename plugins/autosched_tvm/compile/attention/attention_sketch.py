"""Schedules attention: a few rows of one head at a time, from their scores to the weighted values.

A tile of scores (rows x vectors of columns) stays in registers during the sum over the depth, and so does a tile of
weighted values. Several tiles, one below the other, read the same keys and values from the L1 cache.
"""

from typing import Any, NamedTuple

from autosched_tvm.compile.attention import computation
from autosched_tvm.compile.integers import dot_sketch
from autosched_tvm.compile.integers.schedule_steps import drawn, extent, factors, in_registers, spread, start_apart
from autosched_tvm.tvm_types import BlockRV, LoopRV, Schedule

ROWS_MAX, VECTORS_MAX = 16, 8
"""Maximum size of a tile, in rows and vectors. The largest has a few more vectors than there are registers."""
TILES_MAX = 8
"""Maximum number of tiles, one below the other, over the same keys."""
BLOCK_ROWS = 32
"""Usual number of rows computed together: their scores fit into the L1 cache."""
CONSTANTS = 6
"""Number of vector registers that LLVM reserves for constants of the exponential function, even during the sums."""

_NAMED = frozenset({
    computation.QUERIES, computation.KEYS, computation.VALUES, computation.DOT, computation.TERMS,
    computation.TOP_LANES, computation.TOP, computation.POWERS, computation.TOTAL_LANES, computation.TOTAL,
    computation.WEIGHTS, computation.MIX, computation.ROWS,
})  # fmt: skip


class Tiles(NamedTuple):
    """Sizes of the tiles of a schedule."""

    rows: int
    """Rows of a tile."""
    vectors: int
    """Vectors in a row of a tile of scores."""
    values: int
    """Vectors in a row of a tile of weighted values."""
    below: int
    """Number of tiles, one below the other; 0: drawn."""


def apply(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the kernel whose block of sums is `anchor`. `registers`: number of vector registers of the CPU; None:
    draw tile sizes."""
    _inline(schedule)
    tiles = _tiles(schedule, anchor, registers)
    width = extent(schedule, schedule.get_loops(anchor)[-2])
    place = _rows(schedule, tiles, width)
    if (weights := _block(schedule, computation.WEIGHTS)) is not None:
        _vectors(schedule, weights, place, width)
    _combined(schedule, computation.TOTAL, computation.TOTAL_LANES, place)
    _vectors(schedule, schedule.get_sblock(computation.POWERS), place, width)
    _combined(schedule, computation.TOP, computation.TOP_LANES, place)
    _scores(schedule, anchor, place, tiles, width)
    schedule.compute_at(schedule.get_sblock(computation.QUERIES), place, preserve_unit_loops=True)
    for name in (computation.KEYS, computation.VALUES):
        *outer, last = schedule.get_loops(schedule.get_sblock(name))
        schedule.parallel(schedule.fuse(*outer))
        schedule.vectorize(schedule.split(last, [None, width])[1])


def _tiles(schedule: Schedule, anchor: BlockRV, registers: int | None) -> Tiles:
    *_, rows, blocks, _, _ = schedule.get_loops(anchor)
    *_, mixed, _, _ = schedule.get_loops(schedule.get_sblock(computation.MIX))
    if registers is not None:
        return usual(extent(schedule, rows), extent(schedule, blocks), extent(schedule, mixed), registers)
    high, wide = drawn(schedule, rows, ROWS_MAX), drawn(schedule, blocks, VECTORS_MAX)
    return Tiles(high, wide, drawn(schedule, mixed, VECTORS_MAX), 0)


def _rows(schedule: Schedule, tiles: Tiles, width: int) -> LoopRV:
    """Splits the loops over finished rows; returns the loop inside which a group of rows is computed."""
    *batch, row, columns = schedule.get_loops(schedule.get_sblock(computation.ROWS))
    parts, tile_row = schedule.split(row, [None, tiles.rows])
    part, tile = schedule.split(parts, [None, tiles.below or drawn(schedule, parts, TILES_MAX)])
    column, tile_column, lane = schedule.split(columns, [None, tiles.values, width])
    schedule.reorder(part, column, tile, tile_row, tile_column, lane)
    place = schedule.fuse(*batch, part)
    schedule.parallel(place)
    in_registers(schedule, tile_row, tile_column, lane)
    mix = schedule.get_sblock(computation.MIX)
    schedule.compute_at(mix, tile, preserve_unit_loops=True)
    _sums(schedule, mix)
    return place


def _scores(schedule: Schedule, anchor: BlockRV, place: LoopRV, tiles: Tiles, width: int) -> None:
    """Computes the scores of a place, tile by tile."""
    terms = schedule.get_sblock(computation.TERMS)
    schedule.compute_at(terms, place, preserve_unit_loops=True)
    *_, row, columns = schedule.get_loops(terms)
    column, tile_column, lane = schedule.split(columns, [None, tiles.vectors, width])
    tile, tile_row = schedule.split(row, [None, tiles.rows])
    schedule.reorder(column, tile, tile_row, tile_column, lane)
    in_registers(schedule, tile_row, tile_column, lane)
    schedule.compute_at(anchor, tile, preserve_unit_loops=True)
    _sums(schedule, anchor)


def usual(rows: int, blocks: int, mixed: int, registers: int) -> Tiles:
    """Returns the tiles that fit into the registers and have the most products per number read. Arguments: number of
    rows, vectors of scores and vectors of weighted values."""
    free = registers - CONSTANTS
    found = []
    for high in factors(rows, min(ROWS_MAX, free - 1)):
        wide, across = (
            max(wide for wide in factors(size, VECTORS_MAX) if wide == 1 or high * wide + wide <= free)
            for size in (blocks, mixed)
        )
        count = max(one for one in factors(rows // high, TILES_MAX) if one == 1 or one * high <= BLOCK_ROWS)
        found.append((dot_sketch.reuse(high, wide) + dot_sketch.reuse(high, across), Tiles(high, wide, across, count)))
    return max(found)[1]


def _inline(schedule: Schedule) -> None:
    """Inlines the blocks between the named ones."""
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        name = str(schedule.get(block).name_hint)
        if name in _NAMED or name.startswith(computation.OPERAND):
            continue
        if schedule.get_consumers(block):
            schedule.compute_inline(block)
        else:
            spread(schedule, block)


def _block(schedule: Schedule, name: str) -> Any | None:
    names = {str(schedule.get(b).name_hint) for b in schedule.get_child_blocks(schedule.get_sblock("root"))}
    return schedule.get_sblock(name) if name in names else None


def _sums(schedule: Schedule, anchor: BlockRV) -> None:
    """Keeps a tile of sums in registers, with the loop over the depth outside."""
    *_, row, block, lane, depth = schedule.get_loops(anchor)
    schedule.reorder(depth, row, block, lane)
    in_registers(schedule, row, block, lane)
    start_apart(schedule, anchor, depth)


def _vectors(schedule: Schedule, block: BlockRV, place: LoopRV, width: int) -> None:
    """Computes a block for the rows of a place, vectorised."""
    schedule.compute_at(block, place, preserve_unit_loops=True)
    schedule.vectorize(schedule.split(schedule.get_loops(block)[-1], [None, width])[1])


def _combined(schedule: Schedule, name: str, by_lane: str, place: LoopRV) -> None:
    """Reduces each row of a place: first its vectors, then their lanes."""
    block, lanes = schedule.get_sblock(name), schedule.get_sblock(by_lane)
    schedule.compute_at(block, place, preserve_unit_loops=True)
    schedule.compute_at(lanes, schedule.get_loops(block)[-1], preserve_unit_loops=True)
    *_, lane, step = schedule.get_loops(lanes)
    schedule.reorder(step, lane)
    schedule.vectorize(lane)
    start_apart(schedule, lanes, step)
