"""Schedules convolutions of 8-bit integers by Winograd's algorithm.

    for each band of tiles
        points = B^T tile B                         for all tiles of the band: they stay in the second cache
        for each part of the filters
            for each of the 16 points, for some tiles
                sums += points * weights            tiles by vectors of filters, in registers
            results = what is fused(A^T sums A)     for all tiles of the band

Data of neighbouring points would lie at distances that are powers of two, in the same set of the first cache. So their
distance is an odd multiple of a cache line.
"""

from autosched_tvm.compile.integers import dot_instructions, dot_sketch, winograd_convolution
from autosched_tvm.compile.integers.product import POINTS
from autosched_tvm.compile.integers.schedule_steps import drawn, extent, in_registers, joined, start_apart
from autosched_tvm.compile.integers.winograd_convolution import COUNT, TILE
from autosched_tvm.tvm_types import BlockRV, LoopRV, Schedule

PLAIN_VECTOR = 4
"""Number of channels that a kernel without a schedule transforms together. Each image has a multiple of it."""
APART, LINE = 1024, 64
"""The distance between points is a multiple of APART, plus LINE bytes."""


def apply(schedule: Schedule, anchor: BlockRV, registers: int | None) -> None:
    """Schedules the block of sums. `registers`: number of vector registers of the CPU; None: draw tile sizes. Raises
    LookupError for weights that are packed for no known instruction."""
    instruction = dot_instructions.of_block(schedule.get(anchor))
    last = joined(schedule, anchor, lambda *_: None)
    points = _points_of(schedule, anchor)
    (border,) = schedule.get_producers(points)
    images, filters, rows, columns, lane = schedule.get_loops(last)
    apart = winograd_convolution.distances_of(schedule, anchor)
    down, tile_row, between_rows = schedule.split(rows, [None, TILE, apart[0]])
    across, tile_column, between_columns = schedule.split(columns, [None, TILE, apart[1]])
    *_, blocks, _, depth = (extent(schedule, loop) for loop in schedule.get_loops(anchor))
    width = extent(schedule, across) * apart[0] * apart[1]  # tiles of the smallest band
    if registers is None:
        tall = drawn(schedule, down, extent(schedule, down))
        wide = drawn(schedule, filters, dot_sketch.VECTORS_MAX)
    else:
        tall = dot_sketch.usual_band(extent(schedule, down), 1, COUNT * width * depth)
        together, wide = dot_sketch.usual(tall * width, blocks, registers - instruction.temporaries)
    band, down = schedule.split(down, [None, tall])
    part, vector = schedule.split(filters, [None, wide])
    places = down, between_rows, across, between_columns
    schedule.reorder(images, band, part, *places, vector, tile_row, tile_column, lane)
    in_registers(schedule, tile_row, tile_column, lane)
    several = extent(schedule, images) * extent(schedule, band) > 1
    piece = schedule.fuse(images, band)
    schedule.parallel(piece if several else part)

    sums = schedule.cache_write(anchor, 0, "global")
    schedule.compute_at(sums, part, preserve_unit_loops=True)
    *_, tile, vector, lane = schedule.get_loops(sums)
    if registers is None:
        together = drawn(schedule, tile, dot_sketch.ROWS_MAX)
    tile, row = schedule.split(tile, [None, together])
    in_registers(schedule, row, vector, lane)
    schedule.compute_at(anchor, tile, preserve_unit_loops=True)
    _apart(schedule, sums, 4)

    if several:
        schedule.compute_at(points, piece, preserve_unit_loops=True)
    tile = _transform(schedule, points, extent(schedule, schedule.get_loops(border)[-1]))
    _apart(schedule, points, 2)
    if several:
        schedule.compute_at(border, piece, preserve_unit_loops=True)
    else:
        schedule.parallel(tile)
    schedule.vectorize(schedule.get_loops(border)[-1])

    *_, row, vector, lane, depth = schedule.get_loops(anchor)
    step, group = schedule.split(depth, [None, instruction.group])
    schedule.reorder(step, row, vector, lane, group)
    for loop in (row, vector):
        schedule.unroll(loop)
    start_apart(schedule, anchor, step)
    schedule.tensorize(lane, dot_instructions.register(instruction))


def apply_plain(schedule: Schedule, anchor: BlockRV) -> None:
    """Transforms all points of a tile together, and adds vectors of products, without tiles and instructions: what
    schedules are compared with."""
    _transform(schedule, _points_of(schedule, anchor), PLAIN_VECTOR)
    dot_sketch.apply_plain(schedule, anchor)


def _points_of(schedule: Schedule, anchor: BlockRV) -> BlockRV:
    """Returns the block of points that the sums read."""
    (points,) = (one for one in schedule.get_producers(anchor) if str(schedule.get(one).name_hint) == POINTS)
    return points


def _transform(schedule: Schedule, points: BlockRV, block: int) -> LoopRV:
    """Computes all points of a tile together, in vectors of a block of channels; returns the loop over tiles."""
    *_, point, tile, channel = schedule.get_loops(points)
    outer, channel = schedule.split(channel, [None, block])
    schedule.reorder(tile, outer, point, channel)
    in_registers(schedule, point, channel)
    return tile


def _apart(schedule: Schedule, block: BlockRV, size: int) -> None:
    """Puts the values of neighbouring points, of this number of bytes, at a good distance."""
    schedule.storage_align(block, 0, 1, APART // size, LINE // size)
