"""Steps that the schedules of our own kernels share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autosched_tvm.compile.integers import product
from autosched_tvm.tvm_types import BlockRV, Expr, LoopRV, Schedule

VECTOR = 16
"""Number of values of a vector where nothing is tiled."""


def joined(schedule: Schedule, anchor: BlockRV, border: Callable[[Any, Any], None] | None = None) -> BlockRV:
    """Returns the block whose loops the sums follow, with the blocks between inlined.

    `border`: schedules the padded data; default: a separate block in vectors.
    """
    chain = [anchor]
    while after := schedule.get_consumers(chain[-1]):
        chain.append(after[0])
    at = max(number for number, block in enumerate(chain) if size(schedule, block) <= size(schedule, chain[1]))
    for block in (*chain[1:at], *chain[at + 1 : -1]):
        schedule.compute_inline(block)
    if chain[at + 1 :]:  # each result is read several times
        spread(schedule, chain[-1])
    kept = {str(schedule.get(block).name_hint) for block in (anchor, chain[at], chain[-1])}
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        name = str(schedule.get(block).name_hint)
        if name == product.BORDER:
            (border or spread)(schedule, block)
        elif name not in (*kept, product.IMAGE, product.POINTS):
            schedule.compute_inline(block)
    return chain[at]


@dataclass(frozen=True)
class Nest:
    """Loops over results."""

    place: Any
    """Loop inside which a tile is computed."""
    tile: tuple[Any, ...]
    """Loops over the vectors of a tile."""
    lane: Any
    """Loop over the lanes of a vector."""


def matrix_loops(schedule: Schedule, block: BlockRV) -> tuple[LoopRV, LoopRV]:
    """Returns the loops over the rows and columns of a matrix; all axes but the last are rows."""
    *rows, columns = schedule.get_loops(block)
    return (schedule.fuse(*rows) if len(rows) > 1 else rows[0]), columns


def tiled(schedule: Schedule, row: LoopRV, columns: LoopRV, sizes: tuple[int | Expr, int | Expr, int]) -> Nest:
    """Splits a matrix into tiles. `sizes`: rows and vectors of a tile, lanes of a vector."""
    high, wide, lanes = sizes
    row, tile_row = schedule.split(row, [None, high])
    column, tile_column, lane = schedule.split(columns, [None, wide, lanes])
    schedule.reorder(column, row, tile_row, tile_column, lane)
    place = schedule.fuse(column, row)
    schedule.parallel(place)
    return Nest(place, (tile_row, tile_column), lane)


def compute_in(schedule: Schedule, anchor: BlockRV, nest: Nest) -> None:
    """Computes the sums of a tile where the tile is finished, in registers."""
    schedule.compute_at(anchor, nest.place, preserve_unit_loops=True)
    in_registers(schedule, *nest.tile, nest.lane)


def in_registers(schedule: Schedule, *loops: LoopRV) -> None:
    """Vectorises the last loop and unrolls the others."""
    *unrolled, lane = loops
    for loop in unrolled:
        schedule.unroll(loop)
    schedule.vectorize(lane)


def start_apart(schedule: Schedule, anchor: BlockRV, loop: LoopRV) -> None:
    """Moves the initialisation of sums before the reduction loop, in vectors."""
    start = schedule.decompose_reduction(anchor, loop)
    schedule.vectorize(schedule.get_loops(start)[-1])


def size(schedule: Schedule, block: BlockRV) -> int:
    """Returns the number of values that a block computes, counting repeated computations."""
    return math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block))


def spread(schedule: Schedule, block: BlockRV) -> None:
    """Computes a block separately, in vectors."""
    *outer, columns = schedule.get_loops(block)
    schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    schedule.vectorize(schedule.split(columns, [None, VECTOR])[1])


def drawn(schedule: Schedule, loop: Any, most: int) -> Any:
    """Returns a drawn factor of a loop."""
    return schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most)[1]


def extent(schedule: Schedule, loop: LoopRV) -> int:
    """Returns the number of iterations of a loop."""
    return int(schedule.get(loop).extent)


def factors(size: int, most: int) -> list[int]:
    """Returns the factors of `size` up to `most`."""
    return [factor for factor in range(1, most + 1) if size % factor == 0]
