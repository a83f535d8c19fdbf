"""The schedule of products of 8-bit numbers whose weights are packed for a dot instruction.

A tile of sums, some rows by some vectors of columns, stays in registers while the instruction adds to it; what is fused
after the product happens to the tile while it is there. MetaSchedule's own rule for such instructions tiles three
levels and writes the sums to memory.
"""

import math
from typing import Any, NamedTuple

import tvm

from autosched_tvm.compile.integers import dot_instructions, product

ROWS_MAX, VECTORS_MAX = 16, 8
"""The largest tile has some more vectors than there are registers."""
VECTOR = 16
"""Number of values of a vector where nothing is tiled."""
STEPS_MAX = 4
"""Maximum number of steps over the depth that are unrolled."""


class Tile(NamedTuple):
    """Sums in registers."""

    rows: int
    vectors: int


def sampled(workload: Any, seed: int) -> Any | None:
    """A schedule of a task's workload, tile drawn, so that every search of decisions works on it; None for tasks that
    are no such product."""
    return _scheduled(workload, seed, None)


def by_rule(function: Any, registers: int) -> Any | None:
    """A function with a tile that is good for most products; None for one that is no such product. `registers`: vector
    registers of the CPU."""
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
    chain = [anchor]
    while after := schedule.get_consumers(chain[-1]):
        chain.append(after[0])
    at = max(number for number, block in enumerate(chain) if _size(schedule, block) <= _size(schedule, chain[1]))
    for block in (*chain[1:at], *chain[at + 1 : -1]):
        schedule.compute_inline(block)
    if chain[at + 1 :]:  # the results are used several times each
        _spread(schedule, chain[-1])
    *rows, columns = schedule.get_loops(chain[at])
    row = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
    high, wide = _tile(schedule, anchor, registers)
    lanes = int(schedule.get(schedule.get_loops(anchor)[2]).extent)
    row, tile_row = schedule.split(row, [None, high])
    column, tile_column, lane = schedule.split(columns, [None, wide, lanes])
    schedule.reorder(column, row, tile_row, tile_column, lane)
    outer = schedule.fuse(column, row)
    schedule.parallel(outer)
    schedule.compute_at(anchor, outer, preserve_unit_loops=True)
    for loop in (tile_row, tile_column):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    _, *tile, lane, depth = schedule.get_loops(anchor)
    steps, group = schedule.split(depth, [None, dot_instructions.GROUP])
    unrolled = 1
    if registers is None:
        unrolled = schedule.sample_perfect_tile(steps, n=2, max_innermost_factor=STEPS_MAX)[1]
    step, several = schedule.split(steps, [None, unrolled])
    schedule.reorder(step, several, *tile, lane, group)
    for loop in (several, *tile):
        schedule.unroll(loop)
    start = schedule.decompose_reduction(anchor, step)
    schedule.vectorize(schedule.get_loops(start)[-1])
    schedule.tensorize(lane, intrinsic)


def _size(schedule: Any, block: Any) -> int:
    """Number of values that a block computes, each as often as it is computed."""
    return math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block))


def _spread(schedule: Any, block: Any) -> None:
    """Compute a block of more values than there are results, in vectors."""
    *outer, columns = schedule.get_loops(block)
    schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    schedule.vectorize(schedule.split(columns, [None, VECTOR])[1])


def _tile(schedule: Any, anchor: Any, registers: int | None) -> tuple[Any, Any]:
    """The rows and vectors of a tile: sampled where `registers` is None, else those of `usual`."""
    rows, blocks, *_ = schedule.get_loops(anchor)
    if registers is not None:
        return usual(int(schedule.get(rows).extent), int(schedule.get(blocks).extent), registers)
    return (
        schedule.sample_perfect_tile(rows, n=2, max_innermost_factor=ROWS_MAX)[1],
        schedule.sample_perfect_tile(blocks, n=2, max_innermost_factor=VECTORS_MAX)[1],
    )
